//! Crashes and checkpoints: what was acknowledged is there again.

use std::{format, string::String, vec::Vec};

use wire::{Command, ConsensusGroup, Offset, PollStrategy, Reply, Request};

use super::{
    groups::{create, details},
    messages::{batch, payloads, poll, polled, send, sent, store, texts, with_topic},
    node::{DATA_GROUPS, Node, config, name},
};
use crate::{Input, Note, shard_of_group};

fn digests(node: &Node) -> Vec<u128> {
    let mut digests: Vec<u128> = (1..=DATA_GROUPS)
        .filter_map(|group| {
            node.shards
                .iter()
                .find_map(|shard| shard.data_group(ConsensusGroup(group)))
        })
        .map(partition::DataGroup::digest)
        .collect();
    digests.push(node.shards[0].catalog().unwrap().digest());
    digests
}

#[test]
fn acknowledged_messages_offsets_and_sessions_survive_a_crash() {
    let (mut node, mut client) = with_topic(3);
    for partition in 0..6 {
        sent(node.call(
            &mut client,
            send(&[(partition, batch(&payloads("m", 5), 7, 1))]),
        ));
        node.call(&mut client, store(partition, 2)).unwrap();
    }
    let before = digests(&node);
    // The number of shards is this node's own affair.
    let mut node = node.crash(2);
    assert_eq!(digests(&node), before);
    assert_eq!(node.ready, 2);
    node.attach(&mut client, 5).unwrap();
    for partition in 0..6 {
        let sections = polled(node.call(&mut client, poll(&[partition], PollStrategy::Next)));
        assert_eq!(texts(&sections[0]), ["m-3", "m-4"]);
        let again = sent(node.call(
            &mut client,
            send(&[(partition, batch(&payloads("m", 5), 7, 1))]),
        ));
        assert_eq!(
            again[0].base_offset,
            Some(Offset(0)),
            "the producer is known"
        );
    }
}

#[test]
fn a_session_is_looked_for_only_when_the_metadata_is_there() {
    for connection in [4, 5] {
        let (node, mut client) = with_topic(2);
        let mut node = Node::stalled(2, node.disk);
        client.connection = node.open(connection);
        let secret = client.secret;
        let correlation = node.submit(&mut client, wire::Attach { secret });
        node.settle();
        assert_eq!(node.answer(&mut client, Command::Attach, correlation), None);
        node.disk_stalls = false;
        node.settle();
        let answer = node.answer(&mut client, Command::Attach, correlation);
        assert_eq!(answer, Some(Ok(Reply::Done)), "connection {connection}");
    }
}

#[test]
fn a_checkpoint_that_is_wanted_during_recovery_is_taken_after_it() {
    let (mut node, mut client) = with_topic(2);
    sent(node.call(&mut client, send(&[(0, batch(&payloads("m", 3), 0, 0))])));
    let mut node = Node::stalled(2, node.disk);
    for group in (0..=DATA_GROUPS).map(ConsensusGroup) {
        let shard = shard_of_group(group, 1, 2);
        node.feed(shard, Input::CheckpointWanted { group });
    }
    node.settle();
    assert_eq!(node.disk.snapshots.len(), 0);
    node.disk_stalls = false;
    node.settle();
    let groups: Vec<u16> = node.disk.snapshots.keys().map(|group| group.0).collect();
    assert_eq!(groups, (0..=DATA_GROUPS).collect::<Vec<_>>());
}

#[test]
fn a_checkpoint_takes_the_place_of_the_journal() {
    let (mut node, mut client) = with_topic(2);
    let text = "x".repeat(2_000);
    for round in 0..50 {
        for partition in 0..6 {
            let payload = format!("{round} {text}");
            sent(node.call(&mut client, send(&[(partition, batch(&[payload], 0, 0))])));
        }
    }
    take_checkpoints(&mut node);
    assert_eq!(node.disk.snapshots.len(), usize::from(DATA_GROUPS) + 1);
    for (group, snapshot) in node.disk.snapshots.clone() {
        let op = snapshot.checkpoint.op.0;
        node.disk.records.retain(|record| match record {
            journal::Record::Prepare { header, .. } => header.group() != group || header.op > op,
            journal::Record::Superblock(_) => true,
        });
    }
    for partition in 0..6 {
        sent(node.call(
            &mut client,
            send(&[(partition, batch(&[String::from("last")], 0, 0))]),
        ));
    }
    let before = digests(&node);
    let mut node = node.crash(3);
    assert_eq!(digests(&node), before);
    node.attach(&mut client, 4).unwrap();
    for partition in 0..6 {
        let mut next = Offset(0);
        let mut read = Vec::new();
        while next < Offset(51) {
            let sections =
                polled(node.call(&mut client, poll(&[partition], PollStrategy::Offset(next))));
            read.extend(texts(&sections[0]));
            assert!(sections[0].next > next);
            next = sections[0].next;
        }
        assert_eq!(read.len(), 51);
        assert!(read[49].starts_with("49 ") && read[50] == "last");
    }
}

/// It is verified after a start, and deleted before the read ends.
#[test]
fn a_segment_that_is_deleted_while_it_is_read_is_not_damaged() {
    let (mut node, mut client) = with_topic(1);
    for partition in 0..6 {
        let request = send(&[(partition, batch(&[String::from("one")], 0, 0))]);
        sent(node.call(&mut client, request));
    }
    take_checkpoints(&mut node);
    let segments = node.disk.segments.len();
    assert!(segments > 0);

    let mut node = Node::slow_to_read(1, node.disk);
    node.pass(50);
    assert!(node.unread() > 0);
    node.attach(&mut client, 4).unwrap();
    let delete = wire::DeleteTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    node.call(&mut client, delete).unwrap();
    node.pass(50);
    take_checkpoints(&mut node);
    assert!(node.disk.segments.is_empty());
    node.reads_stall = false;
    node.read_all();
    node.pass(50);
    let is_damage = |note: &Note| matches!(note, Note::Damaged { .. });
    assert!(!node.notes.iter().any(is_damage), "{:?}", node.notes);
}

fn take_checkpoints(node: &mut Node) {
    let shards = u16::try_from(node.shards.len()).unwrap();
    for group in (0..=DATA_GROUPS).map(ConsensusGroup) {
        let shard = shard_of_group(group, 1, shards);
        node.feed(shard, Input::CheckpointWanted { group });
    }
    node.settle();
}

#[test]
fn a_damaged_segment_takes_only_its_partition_out_of_service() {
    let (mut node, mut client) = with_topic(2);
    for partition in 0..6 {
        sent(node.call(
            &mut client,
            send(&[(partition, batch(&payloads("m", 5), 0, 0))]),
        ));
    }
    for group in (0..=DATA_GROUPS).map(ConsensusGroup) {
        node.feed(
            shard_of_group(group, 1, 2),
            Input::CheckpointWanted { group },
        );
    }
    node.settle();
    node.disk.records.retain(|record| match record {
        journal::Record::Prepare { header, .. } => header.group() == ConsensusGroup::METADATA,
        journal::Record::Superblock(_) => true,
    });
    let damaged = *node.disk.segments.keys().next().unwrap();
    let bytes = node.disk.segments.get_mut(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let mut node = node.crash(2);
    node.attach(&mut client, 4).unwrap();
    for partition in (0..6).chain(0..6) {
        let sections = polled(node.call(&mut client, poll(&[partition], PollStrategy::First)));
        if damaged.partition.partition.0 == partition {
            let failure = sections[0].status.clone().unwrap_err();
            assert_eq!(failure.code, wire::ErrorCode::PartitionDamaged);
        } else {
            assert_eq!(texts(&sections[0]).len(), 5);
        }
    }
    let notes = node.notes.iter();
    let told =
        notes.filter(|note| matches!(note, Note::Damaged { segment, .. } if *segment == damaged));
    assert_eq!(told.count(), 1, "once, not at every poll");
    // A consumer group does not get on there, and is not told to stand somewhere.
    node.call(&mut client, create()).unwrap();
    for partition in details(&mut node, &mut client).partitions {
        if damaged.partition.partition == partition.partition {
            let code = partition.progress.unwrap_err();
            assert_eq!(code, wire::ErrorCode::PartitionDamaged);
        } else {
            assert_eq!(partition.progress.unwrap().end, Offset(5));
        }
    }
    // What could not be read afterwards is not taken.
    let all: Vec<_> = (0..6)
        .map(|p| (p, batch(&payloads("new", 1), 0, 0)))
        .collect();
    for section in sent(node.call(&mut client, send(&all))) {
        if damaged.partition.partition == section.partition {
            let failure = section.status.unwrap_err();
            assert_eq!(failure.code, wire::ErrorCode::PartitionDamaged);
            assert_eq!(section.base_offset, None);
        } else {
            assert_eq!(section.base_offset, Some(Offset(5)));
        }
    }
    assert!(node.call(&mut client, Request::GetMe).is_ok());
}

#[test]
fn a_partition_whose_creation_was_cut_off_is_created_after_the_restart() {
    let (mut node, mut client) = with_topic(2);
    node.settle();
    // The metadata op is on the disk, those of the data groups are not.
    node.disk.records.retain(|record| match record {
        journal::Record::Prepare { header, .. } => header.group() == ConsensusGroup::METADATA,
        journal::Record::Superblock(superblock) => superblock.group == ConsensusGroup::METADATA,
    });
    let mut node = node.crash(2);
    node.attach(&mut client, 4).unwrap();
    for partition in 0..6 {
        let sections = sent(node.call(
            &mut client,
            send(&[(partition, batch(&payloads("m", 1), 0, 0))]),
        ));
        assert_eq!(sections[0].base_offset, Some(Offset(0)));
    }
}

#[test]
fn session_that_a_full_client_table_has_forgotten_ends_after_a_crash_too() {
    let mut node = Node::fresh(1);
    let clients_max = u64::from(config(0, 1).clients_max);
    let first = node.log_in(1, 1);
    for other in 2..=clients_max {
        node.log_in(other, u128::from(other));
    }
    // One more takes the place of the first, and the node is gone before that one's end is on the disk.
    let mut last = node.client(clients_max + 1, u128::from(clients_max + 1));
    node.disk_stalls = true;
    let login = wire::Login {
        name: "root".into(),
        password: wire::Password("correct horse".into()),
    };
    node.submit(&mut last, login);
    node.settle();
    assert!(node.flush(0), "the register");
    let sessions = |node: &Node| node.shards[0].catalog().unwrap().sessions().len() as u64;
    assert_eq!(sessions(&node), clients_max + 1);
    let mut node = node.crash(1);
    node.pass(100);
    assert_eq!(sessions(&node), clients_max);
    let catalog = node.shards[0].catalog().unwrap();
    assert!(catalog.session(first.id, first.session).is_none());
}
