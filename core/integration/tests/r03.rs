//! R03: a hand-over ends, whoever vanishes in the middle of it.

use std::time::Duration;

use integration::{Group, Member, Site, is_full, repetitions, shares, until};
use wire::{MoveWait, Offset, PollStrategy};

use crate::scene::{NEVER_MS, Scene, hasty, pass_a_moment, rebalance_timeout};

const PARTITIONS: u32 = 4;

/// Who vanishes, and how.
#[derive(Clone, Copy, Debug)]
enum Variant {
    TargetLost,
    TargetLeaves,
    SourceLost,
    BothLost,
    TargetReplaced,
}

const ALL: [Variant; 5] = [
    Variant::TargetLost,
    Variant::TargetLeaves,
    Variant::SourceLost,
    Variant::BothLost,
    Variant::TargetReplaced,
];

#[test]
fn r03_hand_over_ends_at_once_when_somebody_vanishes() {
    let mut scene = Scene::new(hasty(), PARTITIONS, 10);
    for variant in ALL {
        for round in 0..repetitions(2, 50) {
            eprintln!("---- {variant:?} {round}");
            let limit = if is_full() { 100 } else { 20 };
            let (first, second) = begin(&mut scene);
            pass_a_moment(round + 1, Duration::from_millis(limit));
            end(&mut scene, variant, first, second);
        }
    }
    assert_eq!(scene.counter("moves_timed_out"), 0);
}

/// The same, the node being killed in the middle; whoever vanishes does so while it is down.
#[test]
fn r03_hand_over_ends_although_the_node_dies_in_the_middle() {
    let site = Site::new()
        .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
        .with("cluster.timeouts.session_timeout", "\"3 s\"")
        .with("cluster.timeouts.disconnect_grace", "\"3 s\"");
    let mut scene = Scene::new(site, PARTITIONS, 10);
    let variants: &[Variant] = if is_full() {
        &ALL
    } else {
        &[Variant::SourceLost, Variant::TargetReplaced]
    };
    for (round, variant) in (1..).zip(variants) {
        eprintln!("---- {variant:?}");
        let (mut first, mut second) = begin(&mut scene);
        pass_a_moment(round, Duration::from_millis(20));
        scene.crash();
        if !matches!(variant, Variant::SourceLost | Variant::BothLost) {
            first.attach(scene.address());
        }
        if !matches!(
            variant,
            Variant::TargetLost | Variant::TargetReplaced | Variant::BothLost
        ) {
            second.attach(scene.address());
        }
        end(&mut scene, *variant, first, second);
    }
    assert_eq!(scene.counter("moves_timed_out"), 0);
}

/// A member with four partitions, of which it has polled ten messages each, and one that gets two of them.
fn begin(scene: &mut Scene) -> (Member, Member) {
    scene.begin_group(rebalance_timeout(NEVER_MS));
    let mut first = scene.join_and_poll();
    assert_eq!(first.store(0, 4), Ok(Some(Offset(4))));
    assert_eq!(first.store(1, 4), Ok(Some(Offset(4))));
    let second = scene.join();
    let details = scene.group.details(&mut scene.admin);
    let moving: Vec<_> = details
        .partitions
        .iter()
        .filter_map(|one| one.moving.as_ref())
        .collect();
    assert_eq!(moving.len(), 2);
    for moving in moving {
        assert_eq!(moving.to, Some(second.id()));
        assert_eq!(moving.waits_for, Some(MoveWait::Drain));
        assert!(moving.time_left_ms.is_some_and(|left| left <= NEVER_MS));
    }
    (first, second)
}

fn end(scene: &mut Scene, variant: Variant, mut first: Member, mut second: Member) {
    match variant {
        Variant::TargetLost => {
            drop(second);
            finish(scene, first);
        }
        Variant::TargetLeaves => {
            second.leave().expect("it is a member");
            finish(scene, first);
        }
        Variant::SourceLost => {
            drop(first);
            wait_for_all(scene, &mut second);
            starts_behind_what_is_stored(&mut second);
            finish(scene, second);
        }
        Variant::BothLost => {
            drop((first, second));
            let mut third = scene.join();
            wait_for_all(scene, &mut third);
            starts_behind_what_is_stored(&mut third);
            finish(scene, third);
        }
        Variant::TargetReplaced => {
            drop(second);
            let mut third = scene.join();
            let group: Group = scene.group.clone();
            until("the target is gone", || {
                first.sync().expect("it is a member");
                for partition in first.revoking() {
                    // The plan may change at any moment.
                    let _ = first.release(partition, None);
                }
                let details = group.details(&mut scene.admin);
                (details.members.len() == 2).then_some(())
            });
            until("the rest is given up", || {
                first.sync().expect("it is a member");
                for partition in first.revoking() {
                    let _ = first.release(partition, None);
                }
                third.sync().expect("it is a member");
                let counts = (first.owned().len(), third.owned().len());
                (counts == (2, 2)).then_some(())
            });
            assert_eq!(shares(&group.settled(&mut scene.admin)), [2, 2]);
        }
    }
}

/// Waits until a member owns everything; meanwhile the other session gives signs of life.
fn wait_for_all(scene: &mut Scene, member: &mut Member) {
    until("one member owns everything", || {
        scene.admin.ping();
        member.sync().expect("it is a member");
        (member.owned().len() == 4).then_some(())
    });
}

fn starts_behind_what_is_stored(member: &mut Member) {
    for (partition, start) in [(0, 5), (1, 5), (2, 0), (3, 0)] {
        let page = member.poll(partition, 10).expect("it is the owner");
        assert_eq!(page.messages[0].0, Offset(start));
    }
}

/// The last one left owns everything, and gets what is sent from now on.
fn finish(scene: &mut Scene, mut last: Member) {
    wait_for_all(scene, &mut last);
    let details = scene.group.settled(&mut scene.admin);
    assert_eq!(shares(&details), [4]);
    for partition in 0..PARTITIONS {
        let end = scene.append(partition, 1);
        let epoch = last.epoch(partition);
        let mut poll = last.poll_of(&[(partition, epoch)], 10);
        poll.sections[0].strategy = PollStrategy::Offset(Offset(end - 1));
        let page = last.polled(poll).expect("it is the owner");
        assert_eq!(page.messages.len(), 1);
    }
}
