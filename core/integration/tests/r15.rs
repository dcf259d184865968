//! R15, R19 and R43: groups that are deleted are gone with all that they had; groups that exist are never
//! replaced.

use std::{path::PathBuf, thread};

use integration::{
    Connection, DEFAULT_OPTIONS, Group, Member, is_full, repetitions, shares, until,
};
use wire::{CreatePartitions, DeletePartitions, ErrorCode, Identifier, Offset};

use crate::scene::{Scene, patient};

#[test]
fn r15_new_group_of_the_same_name_has_nothing_of_the_deleted() {
    let mut scene = Scene::new(patient(), 3, 20);
    for is_killed in [false, true] {
        let mut member = scene.join_alone();
        for partition in 0..3 {
            assert_eq!(member.store(partition, 19), Ok(Some(Offset(19))));
            assert_eq!(scene.next(partition), 20);
        }
        member.leave().expect("it is a member");
        scene.group.delete(&mut scene.admin, false).expect("empty");
        if is_killed {
            scene.crash();
            member.attach(scene.address());
        }
        let old = scene.group.clone();
        let gone = old.describe(&mut scene.admin).expect_err("it is gone");
        assert_eq!(gone.code, ErrorCode::ConsumerGroupNotFound);
        let again = Group::create(&mut scene.admin, &scene.topic, "billing", DEFAULT_OPTIONS);
        scene.group = again.expect("the name is free");
        assert!(scene.group.id > old.id);
        let stored = scene.group.stored(&mut scene.admin, &[0, 1, 2]);
        assert_eq!(stored, Ok(vec![None; 3]));
        let details = scene.group.details(&mut scene.admin);
        for partition in &details.partitions {
            let progress = partition.progress.as_ref().expect("it is served");
            assert_eq!((progress.next, progress.lag), (Offset(0), 20));
        }
        let mut newcomer = scene.join();
        for partition in 0..3 {
            let page = newcomer.poll(partition, 1).expect("it is the owner");
            assert_eq!(page.messages[0].0, Offset(0));
        }
        newcomer.leave().expect("it is a member");
        // By its id the old one is unknown, also to who was its member.
        member.group.name = old.id.into();
        let refused = member.store(0, 19).expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
        let refused = member.sync().expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
    }
}

#[test]
fn r15_6_groups_leave_nothing_behind() {
    let mut scene = Scene::new(patient(), 1, 10);
    let mut files = Vec::new();
    let mut last = scene.group.id;
    for round in 0..repetitions(30, 1_000) {
        scene.group.delete(&mut scene.admin, true).expect("forced");
        let again = Group::create(&mut scene.admin, &scene.topic, "billing", DEFAULT_OPTIONS);
        scene.group = again.expect("the name is free");
        assert!(scene.group.id > last, "{last:?} {:?}", scene.group.id);
        last = scene.group.id;
        let mut member = scene.join();
        assert_eq!(member.store(0, 3), Ok(Some(Offset(3))));
        if round == 0 {
            // The segment is written behind the acknowledgement.
            until("the messages are in their segment", || {
                files = partition_files(&scene);
                let is_segment =
                    |file: &PathBuf| file.extension().is_some_and(|it| it == "segment");
                files.iter().any(is_segment).then_some(())
            });
        }
    }
    assert_eq!(partition_files(&scene), files);
    scene.crash();
    let again = Group::create(&mut scene.admin, &scene.topic, "other", DEFAULT_OPTIONS);
    assert!(again.expect("the name is free").id > last);
}

/// Files but those of the journal, and the checkpoints that it leads to.
fn partition_files(scene: &Scene) -> Vec<PathBuf> {
    scene
        .site
        .files(|path| !path.contains("journal") && !path.contains("snapshot"))
}

#[test]
fn r15_7_partition_that_is_added_again_has_nothing_stored() {
    let mut scene = Scene::new(patient(), 3, 20);
    let mut member = scene.join();
    for partition in 0..3 {
        assert_eq!(member.store(partition, 9), Ok(Some(Offset(9))));
    }
    let delete = DeletePartitions {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
        count: 1,
    };
    scene.admin.ask(delete).expect("there are three");
    let refused = member.store(2, 10).expect_err("it is gone");
    assert_eq!(refused.code, ErrorCode::PartitionNotFound, "{refused}");
    member.wait_for(2);
    let create = CreatePartitions {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
        count: 1,
    };
    scene.admin.ask(create).expect("there is room");
    member.wait_for(3);
    until("the partition is served", || {
        let details = scene.group.details(&mut scene.admin);
        details.partitions[2].progress.is_ok().then_some(())
    });
    let stored = scene.group.stored(&mut scene.admin, &[0, 1, 2]);
    let kept = Some(Offset(9));
    assert_eq!(stored, Ok(vec![kept, kept, None]));
    assert_eq!([scene.next(0), scene.next(1), scene.next(2)], [10, 10, 0]);
}

#[test]
fn r19_1_group_that_exists_is_not_replaced() {
    let mut scene = Scene::new(patient(), 4, 100);
    let mut first = scene.join();
    let mut second = scene.join();
    first.wait_for(2);
    second.wait_for(2);
    for partition in first.owned() {
        assert_eq!(first.store(partition, 49), Ok(Some(Offset(49))));
    }
    for is_killed in [false, true] {
        let before = scene.group.details(&mut scene.admin);
        if is_killed {
            scene.crash();
            first.attach(scene.address());
            second.attach(scene.address());
        }
        let refused = Group::create(&mut scene.admin, &scene.topic, "billing", DEFAULT_OPTIONS);
        let refused = refused.expect_err("it exists");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupAlreadyExists);
        assert!(
            refused.text.contains(&scene.group.id.to_string()),
            "{refused}"
        );
        let after = scene.group.details(&mut scene.admin);
        assert_eq!(before.summary, after.summary);
        assert_eq!(shares(&after), [2, 2]);
        for partition in first.owned() {
            let page = first.poll(partition, 10).expect("it is the owner");
            assert_eq!(page.messages[0].0, Offset(50));
        }
    }
}

/// As many clients as like make the group unless it exists, and join.
#[test]
fn r19_2_clients_that_make_it_at_once_share_one_group() {
    let mut scene = Scene::new(patient(), 2, 0);
    let clients = if is_full() { 50 } else { 12 };
    let members: Vec<Member> = thread::scope(|scope| {
        let joining: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| make_and_join(&scene)))
            .collect();
        let joined = joining.into_iter();
        joined.map(|one| one.join().expect("it joins")).collect()
    });
    let mut group = scene.group.clone();
    group.name = Identifier::Name("shared".to_owned());
    let details = group.details(&mut scene.admin);
    assert_eq!(details.members.len(), clients);
    for member in &members {
        assert_eq!(member.assignment.group, details.summary.id);
    }
    let details = group.settled(&mut scene.admin);
    assert_eq!(shares(&details).iter().sum::<usize>(), 2);
}

fn make_and_join(scene: &Scene) -> Member {
    let mut connection = Connection::login(scene.address());
    let made = Group::create(&mut connection, &scene.topic, "shared", DEFAULT_OPTIONS);
    if let Err(refused) = made {
        assert_eq!(refused.code, ErrorCode::ConsumerGroupAlreadyExists);
    }
    let mut group = scene.group.clone();
    group.name = Identifier::Name("shared".to_owned());
    Member::try_join(connection, &group).expect("it exists")
}

#[test]
fn r19_3_groups_of_one_name_in_other_topics_are_others() {
    let mut scene = Scene::new(patient(), 2, 20);
    let topic = scene.admin.create_topic("parcels", 2);
    let other = Group::create(&mut scene.admin, &topic, "billing", DEFAULT_OPTIONS);
    let other = other.expect("the topic has none");
    let mut here = scene.join();
    assert_eq!(here.store(0, 9), Ok(Some(Offset(9))));
    let there = Member::join(scene.address(), &other);
    assert_eq!(there.owned().len(), 2);
    assert_eq!(other.next(&mut scene.admin, 0), 0);
    other.delete(&mut scene.admin, true).expect("forced");
    here.sync().expect("it is a member");
    assert_eq!((here.owned().len(), scene.next(0)), (2, 10));
}

#[test]
fn r43_group_with_members_is_deleted_only_by_force() {
    let mut scene = Scene::new(patient(), 4, 20);
    // The second and third wait for what the first has polled.
    let mut members = [scene.join_and_poll(), scene.join(), scene.join()];
    let before = scene.group.details(&mut scene.admin);
    assert!(before.summary.moving_count > 0);
    let refused = scene.group.delete(&mut scene.admin, false);
    let refused = refused.expect_err("it has members");
    assert_eq!(refused.code, ErrorCode::ConsumerGroupNotEmpty);
    assert!(refused.text.contains('3'), "{refused}");
    let after = scene.group.details(&mut scene.admin);
    assert_eq!(before.summary, after.summary);
    scene.group.delete(&mut scene.admin, true).expect("forced");
    scene.crash();
    for member in &mut members {
        member.attach(scene.address());
        let refused = member.sync().expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
    }
    for _ in 0..2 {
        let [first, ..] = &mut members;
        let refused = first.poll(0, 10).expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
        let refused = first.store(0, 9).expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
        let twice = scene.group.delete(&mut scene.admin, true);
        let twice = twice.expect_err("it is gone");
        assert_eq!(twice.code, ErrorCode::ConsumerGroupNotFound, "{twice}");
        scene.crash();
        first.attach(scene.address());
    }
    // One that nobody used.
    let unused = Group::create(&mut scene.admin, &scene.topic, "unused", DEFAULT_OPTIONS);
    let unused = unused.expect("the name is free");
    unused.delete(&mut scene.admin, false).expect("it is empty");
    assert_eq!(scene.counter("moving"), 0);
}
