//! R18: partitions that are added belong to somebody at once, and are read from their first message.

use integration::{DEFAULT_OPTIONS, Deliveries, is_full, shares, until};
use wire::{
    ConsumerGroupOptionsUpdate, CreatePartitions, DeletePartitions, ErrorCode, GroupStart, Offset,
};

use crate::scene::{NEVER_MS, Scene, patient};

/// A group that begins behind what is there.
const LATEST: ConsumerGroupOptionsUpdate = ConsumerGroupOptionsUpdate {
    start: Some(GroupStart::Latest),
    rebalance_timeout_ms: Some(NEVER_MS),
    ..DEFAULT_OPTIONS
};

#[test]
fn r18_1_members_get_added_partitions_and_read_them_from_the_start() {
    for is_killed in [false, true] {
        let mut scene = Scene::with_options(patient(), 2, 20, LATEST);
        let mut first = scene.join();
        let mut second = scene.join();
        first.wait_for(1);
        second.wait_for(1);
        let before = [first.assignment.clone(), second.assignment.clone()];
        let generation = scene.group.details(&mut scene.admin).summary.generation;
        add(&mut scene, 3);
        if is_killed {
            scene.crash();
            first.attach(scene.address());
            second.attach(scene.address());
        }
        for partition in 2..5 {
            fill_when_served(&mut scene, partition, 20);
        }
        let details = scene.group.settled(&mut scene.admin);
        assert!(details.summary.generation > generation);
        let mut counts = shares(&details);
        counts.sort_unstable();
        assert_eq!(counts, [2, 3]);
        let deliveries = Deliveries::default();
        for (member, before) in [&mut first, &mut second].into_iter().zip(&before) {
            member.turn(&deliveries).expect("it is a member");
            assert_eq!(member.assignment.owned[0], before.owned[0]);
            assert_eq!(member.revoking(), []);
        }
        for partition in 2..5 {
            deliveries.expect_all(partition, 20);
        }
        assert_eq!((deliveries.count(0), deliveries.count(1)), (0, 0));
    }
}

#[test]
fn r18_2_who_joins_later_reads_them_from_the_start() {
    let mut scene = Scene::with_options(patient(), 2, 20, LATEST);
    let mut member = scene.join();
    member.leave().expect("it is a member");
    add(&mut scene, 3);
    for partition in 2..5 {
        fill_when_served(&mut scene, partition, 20);
    }
    scene.append(0, 20);
    let mut member = scene.join();
    member.wait_for(5);
    let deliveries = Deliveries::default();
    member.turn(&deliveries).expect("it is a member");
    for partition in 2..5 {
        deliveries.expect_all(partition, 20);
    }
    // The group began behind the first 20, when the first member joined.
    assert_eq!((deliveries.count(0), deliveries.count(1)), (20, 0));
    assert_eq!(member.store(0, 39), Ok(Some(Offset(39))));
}

#[test]
fn r18_3_partitions_added_while_others_move_are_shared_out_with_them() {
    for is_killed in [false, true] {
        let mut scene = Scene::new(patient(), 4, 20);
        let mut first = scene.join_and_poll();
        let mut second = scene.join();
        first.wait_for_revoking(2);
        add(&mut scene, 4);
        if is_killed {
            scene.crash();
            first.attach(scene.address());
            second.attach(scene.address());
        }
        for partition in 4..8 {
            fill_when_served(&mut scene, partition, 20);
        }
        let deliveries = Deliveries::default();
        until("everything is read", || {
            first.turn(&deliveries).expect("it is a member");
            second.turn(&deliveries).expect("it is a member");
            let is_done = (0..8).all(|partition| deliveries.count(partition) == 20);
            is_done.then_some(())
        });
        assert_eq!(deliveries.repeated(), 0);
        assert_eq!(shares(&scene.group.settled(&mut scene.admin)), [4, 4]);
        assert_eq!(scene.counter("moves_timed_out"), 0);
    }
}

#[test]
fn r18_4_many_partitions_are_shared_out_at_once() {
    let mut scene = Scene::new(patient(), 2, 10);
    let mut first = scene.join();
    let mut second = scene.join();
    let added = if is_full() { 998 } else { 98 };
    let half = (added as usize + 2) / 2;
    add(&mut scene, added);
    first.wait_for(half);
    second.wait_for(half);
    assert_eq!(shares(&scene.group.settled(&mut scene.admin)), [half, half]);
}

#[test]
fn r18_5_partitions_that_are_removed_are_nobodys() {
    let mut scene = Scene::new(patient(), 4, 20);
    let mut first = scene.join_and_poll();
    let mut second = scene.join();
    first.wait_for_revoking(2);
    let delete = DeletePartitions {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
        count: 2,
    };
    scene.admin.ask(delete).expect("there are four");
    for partition in [2, 3] {
        let refused = first.poll(partition, 1).expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::PartitionNotFound, "{refused}");
        let refused = first.store(partition, 9).expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::PartitionNotFound, "{refused}");
    }
    let deliveries = Deliveries::default();
    until("each has one", || {
        first.turn(&deliveries).expect("it is a member");
        second.turn(&deliveries).expect("it is a member");
        (first.owned().len() == 1 && second.owned().len() == 1).then_some(())
    });
    let details = scene.group.settled(&mut scene.admin);
    assert_eq!(details.partitions.len(), 2);
    assert_eq!(scene.counter("moving"), 0);
}

fn add(scene: &mut Scene, count: u32) {
    let create = CreatePartitions {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
        count,
    };
    scene.admin.ask(create).expect("there is room");
    scene.partitions_added(count as usize);
}

/// The producer is not told when a partition is served: it tries.
fn fill_when_served(scene: &mut Scene, partition: u32, count: u64) {
    until("the partition is served", || {
        let details = scene.group.details(&mut scene.admin);
        let details = details.partitions.get(partition as usize)?;
        details.progress.is_ok().then_some(())
    });
    scene.append(partition, count);
}
