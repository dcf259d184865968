//! A disk without room: what needs it is refused at once, what does not goes on.

use alloc::collections::BTreeSet;
use std::vec::Vec;

use wire::{
    Command, ConsensusGroup, CreateStream, ErrorCode, Op, PollMessages, PollStrategy, Reply,
    ShardId,
};

use super::{
    cluster::{self, Cluster, SHARDS},
    messages::{batch, payloads, poll, polled, send, sent, store, with_topic},
    node::{Client, DATA_GROUPS, Node, name},
};
use crate::{DiskSpace, Input, forward::UNWRITTEN_MAX};

fn tell(node: &mut Node, space: DiskSpace) {
    for shard in 0..2 {
        node.feed(ShardId(shard), Input::Disk(space));
    }
}

fn stream(name: &str) -> CreateStream {
    CreateStream { name: name.into() }
}

fn refusal<T: core::fmt::Debug>(outcome: Result<T, wire::Failure>) -> ErrorCode {
    outcome.expect_err("it is refused").code
}

fn send_one(node: &mut Node, client: &mut Client) -> Result<Reply, wire::Failure> {
    node.call(client, send(&[(0, batch(&payloads("a", 1), 0, 0))]))
}

#[test]
fn reserve_is_kept_from_messages_alone() {
    let (mut node, mut client) = with_topic(2);
    send_one(&mut node, &mut client).expect("there is space");
    tell(&mut node, DiskSpace::Reserve);
    assert_eq!(
        refusal(send_one(&mut node, &mut client)),
        ErrorCode::StorageFull
    );
    node.call(&mut client, store(0, 0))
        .expect("offsets are stored");
    node.call(&mut client, stream("other"))
        .expect("metadata is written");
    node.call(&mut client, poll(&[0], PollStrategy::First))
        .expect("messages are read");
    node.log_in(9, 99);
    tell(&mut node, DiskSpace::Enough);
    send_one(&mut node, &mut client).expect("there is space");
}

#[test]
fn full_disk_refuses_all_that_is_written_and_nothing_that_is_read() {
    let (mut node, mut client) = with_topic(2);
    send_one(&mut node, &mut client).expect("there is space");
    let mut other = node.client(9, 99);
    tell(&mut node, DiskSpace::Nothing);
    let full = ErrorCode::StorageFull;
    assert_eq!(refusal(send_one(&mut node, &mut client)), full);
    assert_eq!(refusal(node.call(&mut client, store(0, 0))), full);
    assert_eq!(refusal(node.call(&mut client, stream("other"))), full);
    let login = wire::Login {
        name: "root".into(),
        password: wire::Password("correct horse".into()),
    };
    assert_eq!(refusal(node.call(&mut other, login)), full);
    let storing = PollMessages {
        commit_on_poll: true,
        ..poll(&[0], PollStrategy::First)
    };
    assert_eq!(refusal(node.call(&mut client, storing)), full);
    node.call(&mut client, poll(&[0], PollStrategy::First))
        .expect("messages are read");
    node.call(&mut client, wire::Request::GetMe)
        .expect("metadata is read");
    tell(&mut node, DiskSpace::Enough);
    client.request -= 1;
    node.call(&mut client, stream("other"))
        .expect("the number was not used up");
}

#[test]
fn what_waits_for_a_full_disk_is_answered_that_nobody_knows() {
    let (mut node, mut client) = with_topic(2);
    node.disk_stalls = true;
    let request = send(&[
        (0, batch(&payloads("a", 1), 0, 0)),
        (1, batch(&payloads("b", 1), 0, 0)),
    ]);
    let sent = node.submit(&mut client, request);
    let created = node.submit(&mut client, stream("other"));
    let polled = node.submit(
        &mut client,
        PollMessages {
            min_bytes: 1,
            max_wait_ms: 30_000,
            ..poll(&[0], PollStrategy::First)
        },
    );
    node.settle();
    tell(&mut node, DiskSpace::Nothing);
    node.settle();
    let unknown = ErrorCode::OutcomeUnknown;
    let answer = node.answer(&mut client, Command::SendMessages, sent);
    assert_eq!(refusal(answer.expect("an answer")), unknown);
    let answer = node.answer(&mut client, Command::CreateStream, created);
    assert_eq!(refusal(answer.expect("an answer")), unknown);
    let answer = node.answer(&mut client, Command::PollMessages, polled);
    assert!(answer.is_none(), "it waits for messages, not for space");

    // There is space: what was proposed happens, and is not answered again.
    node.disk_stalls = false;
    tell(&mut node, DiskSpace::Enough);
    node.settle();
    let answer = node.answer(&mut client, Command::PollMessages, polled);
    answer.expect("an answer").expect("there is a message");
    let received = node.take(client.connection);
    assert!(received.is_empty(), "{received:?}");
    client.request -= 1;
    node.call(&mut client, stream("other"))
        .expect("it is the answer to the same number");
}

#[test]
fn node_stops_although_something_waits_for_a_full_disk() {
    let (mut node, mut client) = with_topic(2);
    node.disk_stalls = true;
    node.submit(&mut client, send(&[(0, batch(&payloads("a", 1), 0, 0))]));
    node.settle();
    tell(&mut node, DiskSpace::Nothing);
    for shard in 0..2 {
        node.feed(ShardId(shard), Input::Stop);
    }
    node.settle();
    assert_eq!(node.stopped, 2);
}

#[test]
fn without_space_checkpoints_free_what_was_deleted() {
    let (mut node, mut client) = with_topic(2);
    send_one(&mut node, &mut client).expect("there is space");
    let topic = wire::DeleteTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    node.call(&mut client, topic).expect("it is deleted");
    node.pass(5_000);
    let is_checkpoint = |note: &crate::Note| matches!(note, crate::Note::Checkpoint { .. });
    assert!(!node.notes.iter().any(is_checkpoint));
    tell(&mut node, DiskSpace::Reserve);
    node.pass(2_000);
    assert!(node.notes.iter().any(is_checkpoint));
}

fn tell_node(cluster: &mut Cluster, node: u8, space: DiskSpace) {
    for shard in 0..SHARDS[usize::from(node)] {
        let shard = ShardId(shard);
        cluster.node(node).feed(shard, Input::Disk(space));
    }
}

/// What comes of a message to partition 0 through a node.
fn send_through(cluster: &mut Cluster, node: u8, client: &mut Client) -> Result<(), ErrorCode> {
    let request = send(&[(0, batch(&payloads("a", 1), 0, 0))]);
    let reply = cluster.call(node, client, request);
    let result = sent(reply).remove(0);
    result.status.map_err(|failure| failure.code)
}

/// The node that leads the group of partition 0, and another one.
fn leader_and_other(cluster: &mut Cluster, admin: &mut Client) -> (u8, u8) {
    let topic = wire::GetTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    let Ok(Reply::Topic(details)) = cluster.call(1, admin, topic) else {
        panic!("a topic is told");
    };
    let group: ConsensusGroup = details.partitions[0].group;
    let leader = cluster.leader(group).expect("somebody leads it");
    (leader, (leader + 1) % 3)
}

#[test]
fn among_several_the_disk_of_the_node_that_leads_is_kept_from_messages() {
    let (mut cluster, mut admin) = cluster::with_topic();
    let (leader, other) = leader_and_other(&mut cluster, &mut admin);
    let mut there = cluster.log_in(leader, 200, 200);
    let mut elsewhere = cluster.log_in(other, 201, 201);
    tell_node(&mut cluster, leader, DiskSpace::Reserve);
    let full = Err(ErrorCode::StorageFull);
    assert_eq!(send_through(&mut cluster, leader, &mut there), full);
    assert_eq!(send_through(&mut cluster, other, &mut elsewhere), full);
    let stored = cluster.call(other, &mut elsewhere, store(0, 0));
    assert!(matches!(stored, Ok(Reply::OffsetsStored(_))), "{stored:?}");

    // The others have room: what is full is a backup's disk, or that of the node that was asked.
    tell_node(&mut cluster, leader, DiskSpace::Enough);
    for space in [DiskSpace::Reserve, DiskSpace::Nothing] {
        tell_node(&mut cluster, other, space);
        assert_eq!(send_through(&mut cluster, leader, &mut there), Ok(()));
        assert_eq!(send_through(&mut cluster, other, &mut elsewhere), Ok(()));
    }
}

/// Whether all replicas of each group have executed as much.
fn is_in_step(cluster: &Cluster) -> bool {
    (0..=DATA_GROUPS).map(ConsensusGroup).all(|group| {
        let members = cluster
            .shards()
            .filter_map(|(_, shard)| shard.member(group));
        let executed: BTreeSet<Op> = members.map(|member| member.replica.commit_min()).collect();
        executed.len() == 1
    })
}

/// The others have a majority without it, and go on: what they say is not kept in its memory for as long as they do.
#[test]
fn among_several_a_backup_whose_disk_stands_still_keeps_little_and_comes_after() {
    let (mut cluster, mut admin) = cluster::with_topic();
    let (leader, other) = leader_and_other(&mut cluster, &mut admin);
    let mut client = cluster.log_in(leader, 200, 200);
    assert_eq!(send_through(&mut cluster, leader, &mut client), Ok(()));
    cluster.node(other).disk_stalls = true;
    let payload = "a".repeat(900_000);
    for _ in 0..(3 * UNWRITTEN_MAX / 2) / 900_000 {
        let request = send(&[(0, batch(core::slice::from_ref(&payload), 0, 0))]);
        let sent = sent(cluster.call(leader, &mut client, request)).remove(0);
        assert_eq!(sent.status, Ok(()));
    }
    let of_other = cluster.shards().filter(|(node, _)| *node == other);
    let held: Vec<(u64, u64)> = of_other
        .map(|(_, shard)| (shard.desk.unwritten(), shard.counters.prepares_dropped))
        .collect();
    let (most, dropped) = held.iter().max().expect("it has shards");
    assert!(*most > UNWRITTEN_MAX && *dropped > 0, "{held:?}");
    assert!(*most < UNWRITTEN_MAX + (2 << 20), "{held:?}");

    cluster.node(other).disk_stalls = false;
    cluster.pass_until("it has come after", |cluster| {
        let mut ends = cluster.shards().map(|(_, shard)| shard.desk.unwritten());
        ends.all(|unwritten| unwritten == 0) && is_in_step(cluster)
    });
    cluster.assert_equal();
}

#[test]
fn among_several_a_full_disk_refuses_what_its_node_would_have_to_write() {
    let (mut cluster, mut admin) = cluster::with_topic();
    let (leader, other) = leader_and_other(&mut cluster, &mut admin);
    let mut client = cluster.log_in(other, 200, 200);
    assert_eq!(send_through(&mut cluster, other, &mut client), Ok(()));
    tell_node(&mut cluster, leader, DiskSpace::Nothing);
    let full = Err(ErrorCode::StorageFull);
    assert_eq!(send_through(&mut cluster, other, &mut client), full);
    let Ok(Reply::OffsetsStored(stored)) = cluster.call(other, &mut client, store(0, 0)) else {
        panic!("each section is answered");
    };
    let status = stored.sections[0].status.as_ref();
    assert_eq!(
        status.expect_err("it is refused").code,
        ErrorCode::StorageFull
    );
    let request = poll(&[0], PollStrategy::First);
    let results = polled(cluster.call(other, &mut client, request));
    assert_eq!(results[0].status, Ok(()));
    tell_node(&mut cluster, leader, DiskSpace::Enough);
    assert_eq!(send_through(&mut cluster, other, &mut client), Ok(()));
}
