//! R17: a topic that is purged begins anew: nothing that somebody remembers of before skips a new message, and
//! nothing of before is stored. One that is made again is in `deaths.rs`.

use cohort::Start;
use integration::{Connection, Deliveries, Member, message, until};
use wire::{ErrorCode, Failure, GetTopic, Offset, PurgeTopic, Reply, TopicDetails};

use crate::{
    application::Application,
    scene::{Scene, patient},
};

/// Messages of each partition before.
const BEFORE: u64 = 30;

fn purge(connection: &mut Connection, topic: &TopicDetails) {
    let purge = PurgeTopic {
        stream: topic.stream.into(),
        topic: topic.id.into(),
    };
    connection.ask(purge).expect("the topic is there");
}

/// Waits until every partition has begun anew.
fn begun(connection: &mut Connection, topic: &TopicDetails) {
    until("the partitions have begun anew", || {
        let get = GetTopic {
            stream: topic.stream.into(),
            topic: topic.id.into(),
        };
        let Ok(Reply::Topic(now)) = connection.ask(get) else {
            return None;
        };
        let mut partitions = now.partitions.iter();
        let is_empty = partitions.all(|it| it.end.is_some() && it.start == it.end);
        is_empty.then_some(())
    });
}

/// Whoever asks under an epoch of before is refused.
fn is_fenced(refused: &Failure) -> bool {
    matches!(
        refused.code,
        ErrorCode::PartitionNotOwned | ErrorCode::StaleEpoch | ErrorCode::PartitionRevoking
    )
}

/// Reads one partition and stores what came, until it is at this offset; gives the first offset.
fn read_up_to(member: &mut Member, partition: u32, end: u64) -> u64 {
    let mut first = None;
    until("everything is read", || {
        member.sync().expect("it is a member");
        let page = member.poll(partition, 100).ok()?;
        let (last, _) = page.messages.last()?;
        first.get_or_insert(page.messages[0].0.0);
        assert_eq!(member.store(partition, last.0), Ok(Some(*last)));
        (last.0 + 1 == end).then_some(())
    });
    first.expect("there was something")
}

#[test]
fn r17_1_purged_topic_has_nothing_stored_and_its_members_go_on_with_what_comes_next() {
    for is_killed in [false, true] {
        let mut scene = Scene::new(patient(), 2, BEFORE);
        let alone = scene.admin.store(&scene.topic, 0, "alone", Offset(9));
        assert_eq!(alone, Ok(Some(Offset(9))));
        let mut first = scene.join();
        let mut second = scene.join();
        first.wait_for(1);
        second.wait_for(1);
        for member in [&mut first, &mut second] {
            let partition = member.owned()[0];
            member.poll(partition, 20).expect("it is the owner");
            member.store(partition, 9).expect("it is the owner");
        }
        let before = [first.assignment.clone(), second.assignment.clone()];
        purge(&mut scene.admin, &scene.topic);
        if is_killed {
            scene.crash();
            first.attach(scene.address());
            second.attach(scene.address());
        }
        for member in [&mut first, &mut second] {
            let partition = member.owned()[0];
            let refused = member.store(partition, 19).expect_err("it is fenced");
            assert!(is_fenced(&refused), "{refused}");
        }
        begun(&mut scene.admin, &scene.topic);
        let stored = scene.group.stored(&mut scene.admin, &[0, 1]);
        assert_eq!(stored, Ok(vec![None, None]));
        let alone = scene.admin.stored(&scene.topic, 0, "alone");
        assert_eq!(alone.map(|it| it.stored), Ok(None));
        assert_eq!((scene.next(0), scene.next(1)), (BEFORE, BEFORE));

        for (member, before) in [&mut first, &mut second].into_iter().zip(&before) {
            let partition = before.owned[0].partition.0;
            member.wait_for(1);
            let now = &member.assignment.owned[0];
            assert_eq!(now.partition.0, partition, "nobody else gets it");
            assert!(now.epoch > before.owned[0].epoch);
            assert!(now.incarnation > before.owned[0].incarnation);
            let end = scene.append(partition, 10);
            assert_eq!(read_up_to(member, partition, end), BEFORE);
        }
    }
}

#[test]
fn r17_1_purge_in_the_middle_of_a_hand_over_ends_it() {
    let mut scene = Scene::new(patient(), 2, BEFORE);
    let mut first = scene.join_and_poll();
    let mut second = scene.join();
    first.wait_for_revoking(1);
    purge(&mut scene.admin, &scene.topic);
    // There is nothing left that the first could have to store.
    first.wait_for(1);
    second.wait_for(1);
    let deliveries = Deliveries::default();
    begun(&mut scene.admin, &scene.topic);
    for partition in [0, 1] {
        scene.append(partition, 10);
    }
    until("everything is read", || {
        first.turn(&deliveries).expect("it is a member");
        second.turn(&deliveries).expect("it is a member");
        ((0..2).all(|partition| deliveries.count(partition) == 10)).then_some(())
    });
    assert_eq!(deliveries.repeated(), 0);
    assert_eq!(scene.counter("moves_timed_out"), 0);
}

#[test]
fn r17_2_consumers_of_the_sdk_miss_nothing_that_comes_after_a_purge() {
    let mut scene = Scene::new(patient(), 1, BEFORE);
    let application = Application::start(&scene);
    let mut member = application.join(&scene, |builder| builder);
    let single = application
        .client
        .consumer(scene.topic.stream, scene.topic.id, "alone")
        .start(Start::First);
    let mut single = application.run(single.build()).expect("build");
    application.take(&mut member, 20);
    for _ in 0..20 {
        let next = application.run(single.next());
        next.expect("it goes on").expect("nothing fails");
    }
    // The application stands still while what it remembers goes and other messages come.
    let standing = application.stand_still();
    purge(&mut scene.admin, &scene.topic);
    begun(&mut scene.admin, &scene.topic);
    let end = scene.append(0, 50);
    drop(standing);
    let mut of_member = Vec::new();
    while of_member.last().copied() != Some(end - 1) {
        let taken = application.take(&mut member, 1);
        of_member.push(taken[0].offset().0);
    }
    let mut of_single = Vec::new();
    while of_single.last().copied() != Some(end - 1) {
        let next = application.run(single.next()).expect("it goes on");
        let next = next.expect("nothing fails");
        if next.offset().0 >= BEFORE {
            assert_eq!(next.payload(), &message(0, next.offset().0));
        }
        of_single.push(next.offset().0);
    }
    for offsets in [of_member, of_single] {
        let new: Vec<u64> = offsets.into_iter().filter(|it| *it >= BEFORE).collect();
        assert_eq!(new, (BEFORE..end).collect::<Vec<_>>());
    }
}
