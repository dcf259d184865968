//! R14: who is no member any more is told so at once, by another answer than a member that has nothing.

use std::time::{Duration, Instant};

use integration::{Connection, DEFAULT_OPTIONS, Group, Member};
use wire::{
    DeleteTopic, ErrorCode, Event, EvictionReason, GetTopic, MembershipEndReason, RemoveMember,
    Reply, Request, TopicDetails,
};

use crate::scene::{Scene, hasty, patient};

#[test]
fn r14_1_who_was_removed_is_told_so_by_every_answer() {
    let mut scene = Scene::new(patient(), 3, 10);
    for is_killed in [false, true] {
        let mut member = scene.join_alone();
        let remove = RemoveMember {
            stream: scene.topic.stream.into(),
            topic: scene.topic.id.into(),
            group: scene.group.name.clone(),
            member: member.id(),
        };
        scene.admin.ask(remove.clone()).expect("it is a member");
        if is_killed {
            scene.crash();
            member.attach(scene.address());
        } else {
            assert_eq!(ended(&mut member), MembershipEndReason::Removed);
        }
        expect_no_member(&mut member, ErrorCode::ConsumerGroupMemberNotFound);
        let refused = scene.admin.ask(remove).expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupMemberNotFound);
        // It may come again, as another member.
        let again = Member::try_join(member.connection, &member.group).expect("join");
        assert!(again.id() > member.assignment.member);
        let mut again = again;
        again.wait_for(3);
        again.leave().expect("it is a member");
    }
}

#[test]
fn r14_1_who_lost_its_session_is_told_so_by_every_answer() {
    let mut scene = Scene::new(hasty(), 3, 10);
    let mut member = scene.join();
    // It logs out on its other connection.
    let mut other = member.connection.attach();
    other.ask(Request::Logout).expect("it is logged in");
    loop {
        let frame = member.connection.receive().expect("it is connected");
        let event = Event::decode(&frame.header, frame.body.clone());
        if event == Ok(Some(Event::Evicted(EvictionReason::LoggedOut))) {
            break;
        }
    }
    expect_no_member(&mut member, ErrorCode::Unauthenticated);
    let details = scene.group.details(&mut scene.admin);
    assert!(details.members.is_empty(), "{details:?}");
}

#[test]
fn r14_1_members_of_a_deleted_group_are_told_so_by_every_answer() {
    let mut scene = Scene::new(patient(), 3, 10);
    let mut member = scene.join();
    assert_eq!(
        member.store(0, 4).expect("it is the owner").map(|it| it.0),
        Some(4)
    );
    scene.group.delete(&mut scene.admin, true).expect("forced");
    assert_eq!(ended(&mut member), MembershipEndReason::GroupDeleted);
    expect_no_member(&mut member, ErrorCode::ConsumerGroupNotFound);
    // One of the same name is another group.
    let again = Group::create(&mut scene.admin, &scene.topic, "billing", DEFAULT_OPTIONS);
    let again = again.expect("the name is free");
    assert!(again.id > scene.group.id);
    expect_no_member(&mut member, ErrorCode::ConsumerGroupMemberNotFound);
    member.group.name = scene.group.id.into();
    expect_no_member(&mut member, ErrorCode::ConsumerGroupNotFound);
}

#[test]
fn r14_1_members_of_a_deleted_topic_are_told_so_by_every_answer() {
    let mut scene = Scene::new(patient(), 3, 10);
    let mut member = scene.join();
    let delete = DeleteTopic {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
    };
    scene.admin.ask(delete).expect("it is there");
    assert_eq!(ended(&mut member), MembershipEndReason::GroupDeleted);
    expect_no_member(&mut member, ErrorCode::TopicNotFound);
    let again = topic_again(&mut scene.admin, &scene.topic);
    assert!(again.id > scene.topic.id);
    expect_no_member(&mut member, ErrorCode::TopicNotFound);
    member.group.topic = again.clone();
    expect_no_member(&mut member, ErrorCode::ConsumerGroupNotFound);
    let group = Group::create(&mut scene.admin, &again, "billing", DEFAULT_OPTIONS);
    group.expect("the topic has none");
    expect_no_member(&mut member, ErrorCode::ConsumerGroupMemberNotFound);
}

fn topic_again(connection: &mut Connection, topic: &TopicDetails) -> TopicDetails {
    let create = wire::CreateTopic {
        stream: topic.stream.into(),
        name: topic.name.clone(),
        partitions: 3,
    };
    let created = connection.ask(create).expect("the name is free");
    let Reply::Topic(created) = created else {
        panic!("{created:?}");
    };
    let get = GetTopic {
        stream: created.stream.into(),
        topic: created.id.into(),
    };
    integration::until("the partitions are served", || {
        match connection.ask(get.clone()) {
            Ok(Reply::Topic(topic)) => {
                let mut partitions = topic.partitions.iter();
                partitions.all(|one| one.end.is_some()).then_some(topic)
            }
            other => panic!("{other:?}"),
        }
    })
}

/// Waits for the event that ends its membership.
fn ended(member: &mut Member) -> MembershipEndReason {
    loop {
        let frame = member.connection.receive().expect("it is connected");
        let event = Event::decode(&frame.header, frame.body.clone());
        if let Ok(Some(Event::MembershipEnded(reason, ended))) = event {
            assert_eq!(ended.member, member.id());
            return reason;
        }
    }
}

/// Requires the same answer to everything that members do, and soon: also to a poll that would wait.
fn expect_no_member(member: &mut Member, code: ErrorCode) {
    let partition = member.owned()[0];
    let epoch = member.epoch(partition);
    let begun = Instant::now();
    let mut poll = member.poll_of(&[(partition, epoch)], 10);
    poll.min_bytes = 1 << 20;
    poll.max_wait_ms = 30_000;
    let polled = member.polled(poll).expect_err("it is no member");
    let stored = member.store(partition, 9).expect_err("it is no member");
    let synced = member.sync().expect_err("it is no member");
    let left = member.leave().expect_err("it is no member");
    for refused in [polled, stored, synced, left] {
        assert_eq!(refused.code, code, "{refused}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "it did not wait");
}

#[test]
fn r14_3_member_without_partitions_is_a_member() {
    let mut scene = Scene::new(patient(), 1, 10);
    let mut owner = scene.join();
    let mut idle = [scene.join(), scene.join()];
    let before = scene.group.details(&mut scene.admin).summary;
    let told = scene.counter("assignment_events");
    for _ in 0..20 {
        for member in &mut idle {
            member.sync().expect("it is a member");
            assert_eq!((member.owned().len(), member.revoking().len()), (0, 0));
            assert_eq!(member.assignment.member_count, 3);
            // Of what is another's it is told so, and it stays a member.
            let poll = member.poll_of(&[(0, owner.epoch(0))], 10);
            let refused = member.polled(poll).expect_err("it is another's");
            assert_eq!(refused.code, ErrorCode::PartitionNotOwned, "{refused}");
        }
    }
    // That is not the same as nothing new.
    assert_eq!(
        owner.store(0, 9).expect("it is the owner").map(|it| it.0),
        Some(9)
    );
    let page = owner.poll(0, 10).expect("it is the owner");
    assert!(page.messages.is_empty());
    let after = scene.group.details(&mut scene.admin).summary;
    assert_eq!(before, after);
    assert_eq!(scene.counter("assignment_events"), told);
    owner.leave().expect("it is a member");
    let [first, _] = &mut idle;
    first.wait_for(1);
}
