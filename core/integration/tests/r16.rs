//! R16: whoever gives signs of life and does not get on keeps what it has to give up no longer than its time,
//! and is seen.

use std::time::{Duration, Instant};

use cohort::GroupEvent;
use integration::{Member, until};
use wire::{ErrorCode, GroupProgress, Offset, Reply};

use crate::{
    application::Application,
    scene::{Scene, patient, rebalance_timeout},
};

/// How long a hand-over may take.
const DEADLINE: Duration = Duration::from_millis(1_500);

/// After how long an application that does not ask gives its partitions up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

fn scene(partitions: u32) -> Scene {
    let deadline = u32::try_from(DEADLINE.as_millis()).expect("it is short");
    Scene::with_options(patient(), partitions, 20, rebalance_timeout(deadline))
}

fn progress(scene: &mut Scene, partition: usize) -> GroupProgress {
    let details = scene.group.details(&mut scene.admin);
    let progress = details.partitions[partition].progress.clone();
    progress.expect("the partition is served")
}

/// A member that joins while the others move on must not begin the first one's time anew.
#[test]
fn r16_1_2_nothing_that_a_member_sends_prolongs_its_time() {
    let mut scene = scene(3);
    let mut first = scene.join_and_poll();
    let began = Instant::now();
    let mut second = scene.join();
    first.wait_for_revoking(1);
    let moving = first.revoking()[0];
    let epoch = first.epoch(moving);
    let since = |scene: &mut Scene| {
        let details = scene.group.details(&mut scene.admin);
        let moving = details.partitions[moving as usize].moving.as_ref();
        moving.map(|moving| (moving.since, moving.time_left_ms))
    };
    let (begin, _) = since(&mut scene).expect("it moves");
    let mut third = None;
    until("the partition is taken from the first", || {
        // Pings, syncs, polls of what it keeps and of what it loses, and another join.
        first.connection.ping();
        first.sync().expect("it is a member");
        let kept = first.owned().first().copied();
        if let Some(kept) = kept {
            let _ = first.poll(kept, 1);
        }
        if first.revoking().contains(&moving) {
            let refused = first.poll(moving, 1).expect_err("it is revoked");
            assert!(
                matches!(
                    refused.code,
                    ErrorCode::PartitionRevoking | ErrorCode::PartitionNotOwned
                ),
                "{refused}"
            );
        }
        if began.elapsed() > DEADLINE / 2 && third.is_none() {
            third = Some(scene.join());
        }
        match since(&mut scene) {
            Some((now, left)) => {
                assert_eq!(now, begin, "the move goes on as it began");
                let most = DEADLINE.saturating_sub(began.elapsed());
                let left = left.map(|left| Duration::from_millis(left.into()));
                // Told before the time that it is compared with.
                assert!(left.is_none_or(|left| left <= most + DEADLINE / 4));
                None
            }
            None => Some(()),
        }
    });
    assert!(began.elapsed() >= DEADLINE);
    let mut third = third.expect("it has joined");
    for member in [&mut first, &mut second, &mut third] {
        member.wait_for(1);
    }
    let store = first.store_of(&[(moving, epoch, 9)]);
    let Ok(Reply::OffsetsStored(stored)) = first.connection.ask(store) else {
        panic!("not answered");
    };
    let refused = stored.sections[0].status.clone();
    let refused = refused.expect_err("it is another's");
    assert_eq!(refused.code, ErrorCode::PartitionNotOwned, "{refused}");
    assert!(scene.counter("moves_timed_out") >= 1);
}

#[test]
fn r16_3_member_that_only_gives_signs_of_life_is_seen() {
    let mut scene = scene(2);
    let mut member = scene.join_and_poll();
    let quiet = until("it is quiet", || {
        member.connection.ping();
        let progress = progress(&mut scene, 0);
        let quiet = progress.stalled_ms.expect("messages are left");
        (quiet >= 300).then_some(progress)
    });
    assert!(quiet.polled_ms_ago >= Some(300));
    assert_eq!(quiet.stored_ms_ago, None);

    let store = Instant::now();
    assert_eq!(member.store(0, 9), Ok(Some(Offset(9))));
    let stored = progress(&mut scene, 0);
    let most = u32::try_from(store.elapsed().as_millis()).expect("it is short");
    assert!(stored.stored_ms_ago <= Some(most));
    assert!(stored.stalled_ms <= Some(most));
    assert!(progress(&mut scene, 1).stalled_ms >= Some(300), "the other");

    // With nothing left nobody is waited for.
    let page = member.poll(0, 20).expect("it is the owner");
    let (last, _) = page.messages.last().expect("there are messages");
    assert_eq!(member.store(0, last.0), Ok(Some(*last)));
    assert_eq!(progress(&mut scene, 0).stalled_ms, None);

    // A node that was killed does not know more than since when it leads.
    scene.crash();
    member.attach(scene.address());
    let told = progress(&mut scene, 1);
    assert_eq!((told.polled_ms_ago, told.stored_ms_ago), (None, None));
    assert!(told.stalled_ms.is_some());
}

#[test]
fn r16_3_4_application_that_does_not_ask_gives_its_partitions_to_others() {
    let mut scene = scene(2);
    let application = Application::start(&scene);
    let (told, stalls) = std::sync::mpsc::channel();
    let mut consumer = application.join(&scene, |builder| {
        builder
            .max_poll_interval(Some(POLL_INTERVAL))
            .on_event(move |event| {
                if let GroupEvent::Stalled { idle } = event {
                    let _ = told.send(*idle);
                }
            })
    });
    application.take(&mut consumer, 1);
    let mut second = scene.join();
    // The application lives, and asks for nothing more.
    until("the other has everything", || {
        second.sync().expect("it is a member");
        (second.owned().len() == 2).then_some(())
    });
    let details = scene.group.details(&mut scene.admin);
    assert_eq!(details.members.len(), 1);
    read_all(&mut second);
    // It is a member again as soon as it asks.
    scene.append(0, 10);
    scene.append(1, 10);
    let mut owned = second.owned();
    let taken = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            until("the first has a share again", || {
                second.sync().expect("it is a member");
                owned = second.owned();
                (owned.len() == 1 && second.revoking().is_empty()).then_some(())
            });
        });
        let taken = application.take(&mut consumer, 1);
        other.join().expect("the other goes on");
        taken
    });
    assert!(!owned.contains(&taken[0].partition().0));
    // It is told when it asks.
    assert!(stalls.try_recv().is_ok_and(|idle| idle >= POLL_INTERVAL));
    application.run(consumer.close()).expect("close");
}

fn read_all(member: &mut Member) {
    for partition in member.owned() {
        while let Some((last, _)) = {
            let page = member.poll(partition, 20).expect("it is the owner");
            page.messages.last().cloned()
        } {
            member.store(partition, last.0).expect("it is the owner");
        }
    }
}
