//! Consumer groups: joining, sharing, handing over, fencing.

use std::{vec, vec::Vec};

use wire::{
    AssignedPartition, Command, ConsumerGroupAssignment, ConsumerGroupDetails,
    ConsumerGroupOptionsUpdate, CreateConsumerGroup, DeleteConsumerGroup, Epoch, ErrorCode, Event,
    Failure, GetConsumerGroup, JoinConsumerGroup, LeaveConsumerGroup, Offset, PartitionId,
    PollMessages, PollResult, PollSection, PollStrategy, ReleasePartition, ReleaseSection, Reply,
    StoreConsumerOffset, StoreResult, StoreSection, SyncConsumerGroup,
};

use super::{
    messages::{batch, payloads, poll, send, sent, store},
    node::{Client, Node, Received, name},
};

const PARTITIONS: u32 = 6;

/// A node with a topic, a group, and `each` messages in each of the topic's partitions.
pub(super) fn node_with(each: usize) -> Node {
    node_on(2, each)
}

pub(super) fn node_on(shards: u16, each: usize) -> Node {
    let mut node = Node::fresh(shards);
    let mut admin = node.log_in(100, 100);
    let stream = wire::CreateStream {
        name: "orders".into(),
    };
    node.call(&mut admin, stream).unwrap();
    let topic = wire::CreateTopic {
        stream: name("orders"),
        name: "payments".into(),
        partitions: PARTITIONS,
    };
    node.call(&mut admin, topic).unwrap();
    node.call(&mut admin, create()).unwrap();
    if each > 0 {
        for partition in 0..PARTITIONS {
            append(&mut node, &mut admin, partition, each);
        }
    }
    node
}

pub(super) fn create() -> CreateConsumerGroup {
    CreateConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        name: "billing".into(),
        options: ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: Some(5_000),
            initial_delay_ms: None,
            start: None,
            offset_expiry_ms: None,
        },
    }
}

fn append(node: &mut Node, client: &mut Client, partition: u32, count: usize) {
    let request = send(&[(partition, batch(&payloads("m", count), 0, 0))]);
    let reply = node.call(client, request);
    assert!(sent(reply).iter().all(|section| section.status.is_ok()));
}

pub(super) fn join() -> JoinConsumerGroup {
    JoinConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        instance: None,
        weight: 1,
    }
}

fn assignment(reply: Result<Reply, Failure>) -> ConsumerGroupAssignment {
    match reply {
        Ok(Reply::Assignment(assignment)) => assignment,
        other => panic!("{other:?}"),
    }
}

pub(super) fn joined(node: &mut Node, client: &mut Client) -> ConsumerGroupAssignment {
    assignment(node.call(client, join()))
}

pub(super) fn synced(node: &mut Node, client: &mut Client) -> ConsumerGroupAssignment {
    let sync = SyncConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    };
    assignment(node.call(client, sync))
}

pub(super) fn group_poll(sections: &[(u32, Epoch)]) -> PollMessages {
    let sections = sections.iter().map(|(partition, epoch)| PollSection {
        partition: PartitionId(*partition),
        epoch: *epoch,
        strategy: PollStrategy::Next,
    });
    PollMessages {
        consumer: wire::Consumer::Group(name("billing")),
        sections: sections.collect(),
        ..poll(&[], PollStrategy::Next)
    }
}

pub(super) fn polled(
    node: &mut Node,
    client: &mut Client,
    sections: &[(u32, Epoch)],
) -> Vec<PollResult> {
    match node.call(client, group_poll(sections)) {
        Ok(Reply::Polled(polled)) => polled.sections,
        other => panic!("{other:?}"),
    }
}

pub(super) fn stored(
    node: &mut Node,
    client: &mut Client,
    (partition, epoch, offset): (u32, Epoch, u64),
) -> StoreResult {
    let request = StoreConsumerOffset {
        consumer: wire::Consumer::Group(name("billing")),
        sections: vec![StoreSection {
            partition: PartitionId(partition),
            epoch,
            offset: Offset(offset),
        }],
        ..store(0, 0)
    };
    match node.call(client, request) {
        Ok(Reply::OffsetsStored(stored)) => stored.sections[0].clone(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn code<T: core::fmt::Debug>(result: Result<T, Failure>) -> ErrorCode {
    result.unwrap_err().code
}

pub(super) fn places(owned: &[AssignedPartition]) -> Vec<(u32, Epoch)> {
    owned.iter().map(|it| (it.partition.0, it.epoch)).collect()
}

fn was_told(node: &mut Node, client: &Client) -> bool {
    let received = node.take(client.connection);
    received
        .iter()
        .any(|it| matches!(it, Received::Event(Event::AssignmentChanged(_))))
}

#[test]
fn first_member_owns_everything_and_reads_from_the_start() {
    for shards in 1..=3 {
        let mut node = node_on(shards, 3);
        let mut member = node.log_in(1, 1);
        let assignment = joined(&mut node, &mut member);
        assert_eq!(assignment.owned.len(), PARTITIONS as usize);
        assert!(assignment.revoking.is_empty());
        for result in polled(&mut node, &mut member, &places(&assignment.owned)) {
            assert_eq!(result.status, Ok(()));
            assert_eq!((result.from, result.next), (Offset(0), Offset(3)));
            assert_eq!(result.stored, None);
        }
        let (partition, epoch) = places(&assignment.owned)[0];
        let result = stored(&mut node, &mut member, (partition, epoch, 1));
        assert_eq!((result.status, result.stored), (Ok(()), Some(Offset(1))));
        let result = &polled(&mut node, &mut member, &[(partition, epoch)])[0];
        assert_eq!((result.from, result.stored), (Offset(2), Some(Offset(1))));
    }
}

#[test]
fn what_nobody_has_polled_is_handed_over_without_waiting() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    joined(&mut node, &mut first);
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let theirs = synced(&mut node, &mut second);
    let mine = synced(&mut node, &mut first);
    assert_eq!((mine.owned.len(), theirs.owned.len()), (3, 3));
    assert!(mine.revoking.is_empty());
    assert!(was_told(&mut node, &first));
    assert!(was_told(&mut node, &second));
}

#[test]
fn what_was_polled_is_handed_over_once_it_is_stored_and_repeats_nothing() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    assert!(joined(&mut node, &mut second).owned.is_empty());
    let mine = synced(&mut node, &mut first);
    assert_eq!((mine.owned.len(), mine.revoking.len()), (3, 3));
    let moving = &mine.revoking[0];
    // No more polls, but what was read may be stored.
    let place = (moving.partition.0, moving.epoch);
    let refused = &polled(&mut node, &mut first, &[place])[0];
    assert_eq!(code(refused.status.clone()), ErrorCode::PartitionRevoking);
    assert_eq!(
        stored(&mut node, &mut first, (place.0, place.1, 1)).status,
        Ok(())
    );
    assert!(synced(&mut node, &mut second).owned.is_empty());
    assert_eq!(
        stored(&mut node, &mut first, (place.0, place.1, 2)).status,
        Ok(())
    );
    let theirs = synced(&mut node, &mut second);
    assert_eq!(places(&theirs.owned), [(place.0, moving.planned)]);
    append_one(&mut node, place.0);
    let result = &polled(&mut node, &mut second, &places(&theirs.owned))[0];
    assert_eq!(result.from, Offset(3));
    let late = stored(&mut node, &mut first, (place.0, place.1, 2));
    assert_eq!(code(late.status), ErrorCode::PartitionNotOwned);
}

pub(super) fn append_one(node: &mut Node, partition: u32) {
    let mut admin = node.log_in(101, 101);
    append(node, &mut admin, partition, 1);
}

#[test]
fn release_hands_over_at_once() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let mine = synced(&mut node, &mut first);
    let sections = mine.revoking.iter().map(|moving| ReleaseSection {
        partition: moving.partition,
        epoch: moving.epoch,
        planned: moving.planned,
        offset: Some(Offset(0)),
    });
    let release = ReleasePartition {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        sections: sections.collect(),
    };
    let Ok(Reply::PartitionsReleased(released)) = node.call(&mut first, release) else {
        panic!("not released");
    };
    assert!(released.sections.iter().all(|it| it.status.is_ok()));
    let theirs = synced(&mut node, &mut second);
    assert_eq!(theirs.owned.len(), 3);
    for result in polled(&mut node, &mut second, &places(&theirs.owned)) {
        assert_eq!((result.status, result.from), (Ok(()), Offset(1)));
    }
}

#[test]
fn source_that_does_not_finish_loses_the_partition_at_the_deadline() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    node.pass(4_900);
    assert!(synced(&mut node, &mut second).owned.is_empty());
    let left = synced(&mut node, &mut first).revoking[0].time_left_ms;
    assert!(left <= 100, "{left}");
    node.pass(200);
    let theirs = synced(&mut node, &mut second);
    assert_eq!(theirs.owned.len(), 3);
    // What was read and not stored is delivered again.
    for result in polled(&mut node, &mut second, &places(&theirs.owned)) {
        assert_eq!(result.from, Offset(0));
    }
}

#[test]
fn leaver_is_told_nothing_and_its_partitions_go_on_at_once() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let leave = LeaveConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    };
    node.call(&mut first, leave).unwrap();
    assert_eq!(synced(&mut node, &mut second).owned.len(), 6);
    let (partition, epoch) = places(&before.owned)[0];
    let late = stored(&mut node, &mut first, (partition, epoch, 2));
    assert_eq!(code(late.status), ErrorCode::ConsumerGroupMemberNotFound);
}

#[test]
fn waiting_poll_ends_when_its_partition_is_revoked() {
    let mut node = node_with(0);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    let waits = PollMessages {
        min_bytes: 1,
        max_wait_ms: 20_000,
        ..group_poll(&places(&before.owned))
    };
    let correlation = node.submit(&mut first, waits);
    node.settle();
    assert!(
        node.answer(&mut first, Command::PollMessages, correlation)
            .is_none()
    );
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let answer = node.answer(&mut first, Command::PollMessages, correlation);
    let Some(Ok(Reply::Polled(polled))) = answer else {
        panic!("{answer:?}");
    };
    let refused = polled.sections.iter().filter(|it| it.status.is_err());
    assert_eq!(refused.count(), 3);
    assert_eq!(synced(&mut node, &mut second).owned.len(), 3);
}

#[test]
fn forged_epoch_waits_and_raises_no_fence() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    let (partition, epoch) = places(&before.owned)[0];
    let forged = group_poll(&[(partition, Epoch(1_000_000))]);
    let correlation = node.submit(&mut first, forged);
    node.settle();
    assert!(
        node.answer(&mut first, Command::PollMessages, correlation)
            .is_none()
    );
    node.pass(2_100);
    let Some(Ok(Reply::Polled(polled))) =
        node.answer(&mut first, Command::PollMessages, correlation)
    else {
        panic!("the wait has an end");
    };
    assert_eq!(code(polled.sections[0].status.clone()), ErrorCode::Retry);
    assert_eq!(
        stored(&mut node, &mut first, (partition, epoch, 0)).status,
        Ok(())
    );
}

#[test]
fn everything_is_as_before_after_a_crash() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    let (partition, epoch) = places(&before.owned)[0];
    stored(&mut node, &mut first, (partition, epoch, 1));
    let mut node = node.crash(3);
    node.attach(&mut first, 7).unwrap();
    assert_eq!(synced(&mut node, &mut first), before);
    let result = &polled(&mut node, &mut first, &[(partition, epoch)])[0];
    assert_eq!((result.from, result.stored), (Offset(2), Some(Offset(1))));
}

#[test]
fn deleted_group_is_gone_and_a_new_one_begins_anew() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let (partition, epoch) = places(&before.owned)[0];
    stored(&mut node, &mut member, (partition, epoch, 1));
    let delete = |force| DeleteConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        force,
    };
    let refused = node.call(&mut member, delete(false));
    assert_eq!(code(refused), ErrorCode::ConsumerGroupNotEmpty);
    node.call(&mut member, delete(true)).unwrap();
    let ended = node.take(member.connection);
    assert!(
        ended
            .iter()
            .any(|it| matches!(it, Received::Event(Event::MembershipEnded(..))))
    );
    let gone = node.call(&mut member, group_poll(&[(partition, epoch)]));
    assert_eq!(code(gone), ErrorCode::ConsumerGroupNotFound);
    node.call(&mut member, create()).unwrap();
    let after = joined(&mut node, &mut member);
    for result in polled(&mut node, &mut member, &places(&after.owned)) {
        assert_eq!((result.from, result.stored), (Offset(0), None));
    }
}

pub(super) fn details(node: &mut Node, client: &mut Client) -> ConsumerGroupDetails {
    let get = GetConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    };
    match node.call(client, get) {
        Ok(Reply::ConsumerGroupDetails(details)) => details,
        other => panic!("{other:?}"),
    }
}

#[test]
fn group_tells_members_owners_and_progress() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let details = details(&mut node, &mut first);
    assert_eq!(details.members.len(), 2);
    assert_eq!(details.partitions.len(), 6);
    let moving: Vec<_> = details
        .partitions
        .iter()
        .filter_map(|it| it.moving.as_ref())
        .collect();
    assert_eq!(moving.len(), 3);
    for moving in moving {
        assert_eq!(moving.waits_for, Some(wire::MoveWait::Drain));
        assert!(moving.time_left_ms.is_some_and(|left| left <= 5_000));
    }
    for partition in &details.partitions {
        let progress = partition.progress.as_ref().unwrap();
        assert_eq!(
            (progress.next, progress.end, progress.lag),
            (Offset(0), Offset(3), 3)
        );
        assert_eq!(progress.last_polled, Some(Offset(2)));
    }
}
