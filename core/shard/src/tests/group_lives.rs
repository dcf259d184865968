//! Consumer groups over time: members that vanish, come back or take over, resets, restarts.

use std::{vec, vec::Vec};

use partition::DataRequest;
use wire::{
    Command, ConsumerGroupOptionsUpdate, CreateConsumerGroup, DeletePartitions, ErrorCode, Event,
    JoinConsumerGroup, LeaveConsumerGroup, MembershipEndReason, Offset, Op, PartitionId,
    PollMessages, RemoveMember, Reply, ResetConsumerOffset, ResetSection, ResetTarget,
    UpdateConsumerGroup,
};

use super::{
    groups::{
        append_one, code, group_poll, join, joined, node_on, node_with, places, polled, stored,
        synced,
    },
    node::{Client, Node, Received, name},
};

fn reset(force: bool, sections: &[(u32, ResetTarget)]) -> ResetConsumerOffset {
    let sections = sections.iter().map(|(partition, to)| ResetSection {
        partition: PartitionId(*partition),
        to: *to,
    });
    ResetConsumerOffset {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        force,
        others: None,
        sections: sections.collect(),
    }
}

fn leave() -> LeaveConsumerGroup {
    LeaveConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    }
}

fn update(options: ConsumerGroupOptionsUpdate) -> UpdateConsumerGroup {
    UpdateConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        options,
    }
}

const SAME: ConsumerGroupOptionsUpdate = ConsumerGroupOptionsUpdate {
    rebalance_timeout_ms: None,
    initial_delay_ms: None,
    start: None,
    offset_expiry_ms: None,
};

fn ended(node: &mut Node, client: &Client) -> Vec<MembershipEndReason> {
    let received = node.take(client.connection).into_iter();
    received
        .filter_map(|it| match it {
            Received::Event(Event::MembershipEnded(reason, _)) => Some(reason),
            Received::Event(_) | Received::Reply(..) | Received::Closed => None,
        })
        .collect()
}

#[test]
fn only_who_did_not_leave_is_told_that_it_is_a_member_no_more() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    joined(&mut node, &mut first);
    let mut other = first.clone();
    node.attach(&mut other, 2).unwrap();
    node.call(&mut first, leave()).unwrap();
    for connection in [&first, &other] {
        assert_eq!(ended(&mut node, connection), []);
    }
    let member = joined(&mut node, &mut first).member;
    let remove = RemoveMember {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        member,
    };
    let mut admin = node.log_in(9, 9);
    node.call(&mut admin, remove).unwrap();
    for connection in [&first, &other] {
        assert_eq!(ended(&mut node, connection), [MembershipEndReason::Removed]);
    }
}

#[test]
fn partitions_of_a_vanished_member_go_on_after_the_grace() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    node.close(first.connection);
    node.pass(900);
    assert!(synced(&mut node, &mut second).owned.is_empty());
    node.pass(200);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 6);
}

#[test]
fn member_that_attaches_in_time_keeps_everything() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    node.close(first.connection);
    node.pass(900);
    node.attach(&mut first, 5).unwrap();
    node.pass(3_000);
    assert_eq!(synced(&mut node, &mut first), before);
}

#[test]
fn cancelled_revocation_leaves_the_source_what_it_has_read() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    assert_eq!(synced(&mut node, &mut first).revoking.len(), 3);
    node.call(&mut second, leave()).unwrap();
    let after = synced(&mut node, &mut first);
    assert_eq!(after.owned.len(), 6);
    for (was, is) in before.owned.iter().zip(&after.owned) {
        assert_eq!(was.held_since, is.held_since);
    }
    // Under the old epoch too: the ownership was never broken.
    let old = places(&before.owned);
    for (partition, epoch) in &old {
        assert_eq!(
            stored(&mut node, &mut first, (*partition, *epoch, 1)).status,
            Ok(())
        );
    }
    for result in polled(&mut node, &mut first, &old) {
        assert_eq!((result.status, result.from), (Ok(()), Offset(2)));
    }
}

#[test]
fn reset_sets_the_offset_back_and_fences_what_was_before() {
    let mut node = node_with(5);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let (partition, epoch) = places(&before.owned)[0];
    stored(&mut node, &mut member, (partition, epoch, 4));
    let to = |offset| [(partition, ResetTarget::Offset(Offset(offset)))];
    let refused = node.call(&mut member, reset(false, &to(0)));
    assert_eq!(code(refused), ErrorCode::ConsumerGroupNotEmpty);
    let Ok(Reply::OffsetsReset(_)) = node.call(&mut member, reset(true, &to(1))) else {
        panic!("not reset");
    };
    let late = stored(&mut node, &mut member, (partition, epoch, 4));
    assert_eq!(code(late.status), ErrorCode::PartitionNotOwned);
    let after = synced(&mut node, &mut member);
    assert_eq!(after.owned.len(), 6);
    let result = &polled(&mut node, &mut member, &places(&after.owned))[0];
    assert_eq!((result.from, result.stored), (Offset(2), Some(Offset(1))));
}

#[test]
fn reset_to_nothing_starts_by_the_policy_again() {
    for shards in [1, 3] {
        let mut node = node_on(shards, 5);
        let mut member = node.log_in(1, 1);
        let before = joined(&mut node, &mut member);
        for (partition, epoch) in places(&before.owned) {
            stored(&mut node, &mut member, (partition, epoch, 4));
        }
        node.call(&mut member, leave()).unwrap();
        let all = ResetConsumerOffset {
            others: Some(ResetTarget::Nothing),
            ..reset(false, &[])
        };
        node.call(&mut member, all).unwrap();
        let after = joined(&mut node, &mut member);
        let after = if after.owned.is_empty() {
            synced(&mut node, &mut member)
        } else {
            after
        };
        for result in polled(&mut node, &mut member, &places(&after.owned)) {
            assert_eq!((result.status, result.from), (Ok(()), Offset(0)));
            assert_eq!(result.stored, None);
        }
    }
}

#[test]
fn latest_is_resolved_at_the_first_grant_and_kept() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let create = CreateConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        name: "latecomers".into(),
        options: ConsumerGroupOptionsUpdate {
            start: Some(wire::GroupStart::Latest),
            ..SAME
        },
    };
    node.call(&mut member, create).unwrap();
    let join = JoinConsumerGroup {
        group: name("latecomers"),
        ..join()
    };
    let Ok(Reply::Assignment(assignment)) = node.call(&mut member, join) else {
        panic!("not joined");
    };
    append_one(&mut node, 0);
    let mut node = node.crash(2);
    node.attach(&mut member, 3).unwrap();
    let poll = PollMessages {
        consumer: wire::Consumer::Group(name("latecomers")),
        ..group_poll(&places(&assignment.owned))
    };
    let Ok(Reply::Polled(polled)) = node.call(&mut member, poll) else {
        panic!("not polled");
    };
    assert_eq!(polled.sections[0].from, Offset(3));
    assert_eq!(polled.sections[0].next, Offset(4));
}

#[test]
fn static_member_is_taken_over_and_the_old_session_is_told() {
    let mut node = node_with(3);
    let mut old = node.log_in(1, 1);
    let instance = || JoinConsumerGroup {
        instance: Some("host-1".into()),
        ..join()
    };
    let Ok(Reply::Assignment(before)) = node.call(&mut old, instance()) else {
        panic!("not joined");
    };
    polled(&mut node, &mut old, &places(&before.owned));
    let mut new = node.log_in(2, 2);
    let Ok(Reply::Assignment(joined)) = node.call(&mut new, instance()) else {
        panic!("not joined");
    };
    assert_eq!(joined.member, before.member);
    assert_eq!(
        ended(&mut node, &old),
        [MembershipEndReason::FencedInstanceId]
    );
    let (partition, epoch) = places(&before.owned)[0];
    let fenced = stored(&mut node, &mut old, (partition, epoch, 1));
    assert_eq!(code(fenced.status), ErrorCode::FencedInstanceId);
    let after = synced(&mut node, &mut new);
    assert_eq!(after.owned.len(), 6);
    for result in polled(&mut node, &mut new, &places(&after.owned)) {
        assert_eq!((result.status, result.from), (Ok(()), Offset(0)));
    }
    // Another one has to wait, unless the one before it is gone.
    let mut third = node.log_in(3, 3);
    let refused = node.call(&mut third, instance()).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Retry, "{refused}");
    assert!(refused.text.contains("two processes have it"), "{refused}");
    assert_eq!(synced(&mut node, &mut new).member, joined.member);
    node.close(new.connection);
    node.pass(2_000);
    let Ok(Reply::Assignment(next)) = node.call(&mut third, instance()) else {
        panic!("not joined");
    };
    assert_eq!(next.member, joined.member);
}

#[test]
fn static_member_keeps_its_partitions_until_the_session_timeout() {
    let mut node = node_with(3);
    let mut old = node.log_in(1, 1);
    let join = JoinConsumerGroup {
        instance: Some("host-1".into()),
        ..join()
    };
    node.call(&mut old, join).unwrap();
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
    node.close(old.connection);
    node.pass(5_000);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
    node.pass(6_500);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 6);
}

#[test]
fn group_waits_for_more_members_at_first() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let delay = ConsumerGroupOptionsUpdate {
        initial_delay_ms: Some(500),
        ..SAME
    };
    node.call(&mut first, update(delay)).unwrap();
    let waiting = joined(&mut node, &mut first);
    assert!(waiting.plan_pending && waiting.owned.is_empty());
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    node.pass(400);
    assert!(synced(&mut node, &mut first).owned.is_empty());
    node.pass(200);
    assert_eq!(synced(&mut node, &mut first).owned.len(), 3);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
}

#[test]
fn removed_member_is_told_and_may_join_again() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let mut admin = node.log_in(9, 9);
    let remove = RemoveMember {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        member: before.member,
    };
    node.call(&mut admin, remove).unwrap();
    assert_eq!(ended(&mut node, &member), [MembershipEndReason::Removed]);
    let (partition, epoch) = places(&before.owned)[0];
    let refused = &polled(&mut node, &mut member, &[(partition, epoch)])[0];
    assert_eq!(
        code(refused.status.clone()),
        ErrorCode::ConsumerGroupMemberNotFound
    );
    joined(&mut node, &mut member);
    let after = synced(&mut node, &mut member);
    assert_ne!(after.member, before.member);
    assert_eq!(after.owned.len(), 6);
}

#[test]
fn shorter_deadline_counts_from_the_beginning_of_the_move() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    node.pass(1_000);
    let shorter = ConsumerGroupOptionsUpdate {
        rebalance_timeout_ms: Some(500),
        ..SAME
    };
    node.call(&mut second, update(shorter)).unwrap();
    node.pass(20);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
}

#[test]
fn polls_of_before_a_restart_are_unknown_until_their_owner_releases_or_runs_out_of_time() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut node = node.crash(2);
    node.attach(&mut first, 1).unwrap();
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    assert!(synced(&mut node, &mut second).owned.is_empty());
    assert_eq!(synced(&mut node, &mut first).revoking.len(), 3);
    node.pass(5_100);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
}

/// What a new primary proposes may be there already: that tells nothing of what was served before. (Seed 186
/// with three nodes: a partition was taken as drained from an owner that had not stored all.)
#[test]
fn partition_that_is_created_again_as_what_it_is_has_the_polls_of_before() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let placements: Vec<_> = node.shards[0]
        .projection
        .placements()
        .map(|(key, placement)| (key, *placement))
        .collect();
    for shard in &mut node.shards {
        for (key, placement) in &placements {
            if let Some(host) = shard.data.get_mut(&placement.group) {
                host.propose(DataRequest::CreatePartition {
                    key: *key,
                    incarnation: placement.incarnation,
                    admitted: Op(1_000),
                });
            }
        }
    }
    node.pass(20);
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    assert!(synced(&mut node, &mut second).owned.is_empty());
    assert_eq!(synced(&mut node, &mut first).revoking.len(), 3);
}

#[test]
fn hand_over_goes_on_after_a_crash_at_any_point() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    // The plan is durable, the fences are not.
    let correlation = node.submit(&mut second, join());
    node.settle();
    node.answer(&mut second, Command::JoinConsumerGroup, correlation)
        .unwrap()
        .unwrap();
    node.call(&mut first, leave()).unwrap();
    for records in 0..8 {
        let mut disk = node.disk.clone();
        let kept = disk.records.len() - records;
        disk.records.truncate(kept);
        let mut node = Node::start(2, disk);
        node.attach(&mut second, 2).unwrap();
        node.pass(6_000);
        let now = synced(&mut node, &mut second);
        assert!(now.owned.len() == 6 || now.owned.len() == 3, "{records}");
        assert!(now.revoking.is_empty());
    }
}

#[test]
fn stores_and_polls_of_partitions_that_are_gone_are_refused() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let delete = DeletePartitions {
        stream: name("orders"),
        topic: name("payments"),
        count: 1,
    };
    node.call(&mut member, delete).unwrap();
    assert_eq!(synced(&mut node, &mut member).owned.len(), 5);
    let (partition, epoch) = places(&before.owned)[5];
    let refused = stored(&mut node, &mut member, (partition, epoch, 0));
    assert_eq!(code(refused.status), ErrorCode::PartitionNotFound);
}

#[test]
fn commit_on_poll_stores_before_it_serves() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let place = places(&before.owned)[0];
    let poll = PollMessages {
        commit_on_poll: true,
        max_messages: 2,
        ..group_poll(&[place])
    };
    let Ok(Reply::Polled(polled_once)) = node.call(&mut member, poll) else {
        panic!("not polled");
    };
    let served = &polled_once.sections[0];
    assert_eq!(served.stored, Some(Offset(served.next.0 - 1)));
    let again = &polled(&mut node, &mut member, &[place])[0];
    assert_eq!(again.from, served.next);
}

#[test]
fn target_that_asks_too_early_waits_until_it_owns_the_partition() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let moving = synced(&mut node, &mut first).revoking[0].clone();
    let early = PollMessages {
        min_bytes: 1,
        max_wait_ms: 10_000,
        ..group_poll(&[(moving.partition.0, moving.planned)])
    };
    let correlation = node.submit(&mut second, early);
    node.settle();
    assert!(
        node.answer(&mut second, Command::PollMessages, correlation)
            .is_none()
    );
    stored(&mut node, &mut first, (moving.partition.0, moving.epoch, 2));
    append_one(&mut node, moving.partition.0);
    let answer = node.answer(&mut second, Command::PollMessages, correlation);
    let Some(Ok(Reply::Polled(polled))) = answer else {
        panic!("{answer:?}");
    };
    let section = &polled.sections[0];
    assert_eq!((section.status.clone(), section.from), (Ok(()), Offset(3)));
    assert_eq!(vec![section.next], [Offset(4)]);
}

#[test]
fn waiting_poll_keeps_its_session_alive() {
    let mut node = node_with(0);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let waits = PollMessages {
        min_bytes: 1,
        max_wait_ms: 25_000,
        ..group_poll(&places(&before.owned))
    };
    let correlation = node.submit(&mut member, waits);
    node.settle();
    node.pass(24_000);
    assert_eq!(synced(&mut node, &mut member), before);
    node.pass(2_000);
    let answer = node.answer(&mut member, Command::PollMessages, correlation);
    assert!(matches!(answer, Some(Ok(Reply::Polled(_)))), "{answer:?}");
    node.pass(12_000);
    let gone = node.call(&mut member, leave());
    assert_eq!(code(gone), ErrorCode::Unauthenticated);
}

#[test]
fn what_a_deleted_group_has_stored_is_dropped_although_the_node_died_before() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    for (partition, epoch) in places(&before.owned) {
        stored(&mut node, &mut member, (partition, epoch, 1));
    }
    let kept = node.disk.records.len();
    let delete = wire::DeleteConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        force: true,
    };
    node.call(&mut member, delete).unwrap();
    let mut disk = node.disk.clone();
    // The deletion is durable, and nothing of what it leads to.
    disk.records.truncate(kept + 1);
    let node = Node::start(2, disk);
    let records = (1..=4).map(wire::ConsensusGroup).map(|group| {
        let shard = node.shards.iter().find_map(|it| it.data_group(group));
        let data = shard.unwrap();
        let partitions = data.partitions();
        let records = partitions.map(|(key, _)| data.group_records(key).count());
        records.sum::<usize>()
    });
    assert_eq!(records.sum::<usize>(), 0);
}

#[test]
fn members_outlive_a_stop_and_a_start() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut first);
    joined(&mut node, &mut second);
    let before = synced(&mut node, &mut first);
    for shard in 0..2 {
        node.feed(wire::ShardId(shard), crate::Input::Stop);
    }
    node.settle();
    // Clients that are told to go close their connections.
    node.close(first.connection);
    node.close(second.connection);
    node.pass(5_000);
    let mut node = node.crash(2);
    node.attach(&mut first, 1).unwrap();
    node.attach(&mut second, 2).unwrap();
    node.pass(1_000);
    assert_eq!(synced(&mut node, &mut first), before);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
}
