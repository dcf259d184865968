//! A node that was away for so long that nobody keeps what it misses takes over the others' checkpoints.

use std::{format, vec::Vec};

use wire::{ConsensusGroup, Event, Op, PollStrategy, Reply};

use super::{
    cluster::{Cluster, PARTITIONS, with_topic},
    messages::{batch, payloads, poll, polled, send, sent},
    node::{Client, DATA_GROUPS, Node, Received, name},
};
use crate::{Input, Note, PeerMessage, TransferFile, TransferMessage};

/// Ops of every group, more than are kept in memory for others.
const ROUNDS: usize = 90;

/// What is sent then fills some segments of each partition.
const SIZE: usize = 2_000;

fn groups() -> impl Iterator<Item = ConsensusGroup> {
    (0..=DATA_GROUPS).map(ConsensusGroup)
}

/// Every group commits much.
fn work(cluster: &mut Cluster, admin: &mut Client, node: u8) {
    for round in 0..ROUNDS {
        let stream = wire::CreateStream {
            name: format!("stream-{round}-{}", admin.request),
        };
        cluster.call(node, admin, stream).unwrap();
        for partition in 0..PARTITIONS {
            let text = "x".repeat(SIZE);
            let request = send(&[(partition, batch(&payloads(&text, 1), 0, 0))]);
            let results = sent(cluster.call(node, admin, request));
            assert_eq!(results[0].status, Ok(()));
        }
    }
}

/// The nodes that run take checkpoints of all groups, and learn of each other's.
fn take_checkpoints(cluster: &mut Cluster) {
    for node in cluster.nodes.iter_mut().flatten() {
        want_checkpoints(node);
    }
    cluster.pass(200);
}

fn want_checkpoints(node: &mut Node) {
    for group in groups() {
        let shards = u16::try_from(node.shards.len()).unwrap();
        let shard = crate::shard_of_group(group, 3, shards);
        node.feed(shard, Input::CheckpointWanted { group });
    }
}

/// Checkpoints of other nodes that a node has installed.
fn installed(cluster: &mut Cluster, node: u8) -> Vec<ConsensusGroup> {
    let notes = cluster.node(node).notes.iter();
    let groups = notes.filter_map(|note| {
        if let Note::Replica {
            group,
            note: vsr::Note::CheckpointInstalled { .. },
        } = note
        {
            Some(*group)
        } else {
            None
        }
    });
    groups.collect()
}

fn caught_up(cluster: &Cluster, node: u8) -> bool {
    groups().all(|group| {
        let points = cluster.shards().filter_map(|(at, shard)| {
            let point = shard.applied_point(group)?;
            Some((at, point))
        });
        let points: Vec<(u8, vsr::ChainPoint)> = points.collect();
        let newest = points.iter().map(|(_, point)| point.op).max();
        let own = points.iter().find(|(at, _)| *at == node);
        own.is_some_and(|(_, point)| Some(point.op) == newest)
    })
}

/// All segments on the disk of a node are those of another one.
fn assert_same_files(cluster: &mut Cluster, node: u8, other: u8) {
    for group in groups().skip(1) {
        let shards = cluster.shards();
        let state = shards
            .filter(|(at, _)| *at == node)
            .find_map(|(_, shard)| shard.data_group(group));
        let files = partition::files_at(&state.unwrap().snapshot());
        for file in files {
            let length = usize::try_from(file.segment.length).unwrap();
            let own = cluster.node(node).disk.segments[&file.id][..length].to_vec();
            let others = &cluster.node(other).disk.segments[&file.id][..length];
            assert!(own == others, "{:?}", file.id);
        }
    }
}

#[test]
fn node_that_was_away_for_long_takes_over_checkpoints() {
    let (mut cluster, mut admin) = with_topic();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    // After the checkpoints the journals go on, too.
    let request = send(&[(0, batch(&payloads("last", 1), 0, 0))]);
    assert_eq!(sent(cluster.call(1, &mut admin, request))[0].status, Ok(()));

    cluster.loses_transfers = true;
    cluster.start(2);
    let is_catching_up = |cluster: &Cluster| {
        let mut shards = cluster.shards().filter(|(at, _)| *at == 2);
        shards.any(|(_, shard)| shard.is_catching_up)
    };
    cluster.pass_until("it is given no lead", |cluster| is_catching_up(cluster));
    cluster.loses_transfers = false;
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    cluster.pass_until("it takes what it is given", |cluster| {
        !is_catching_up(cluster)
    });
    let mut transferred = installed(&mut cluster, 2);
    transferred.sort_unstable();
    assert_eq!(transferred, groups().collect::<Vec<_>>());
    cluster.pass(100);
    cluster.assert_equal();
    assert_same_files(&mut cluster, 2, 1);

    // It knows the metadata, and serves once it leads.
    let mut client = cluster.log_in(2, 9, 9);
    cluster.kill(0);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    for partition in 0..PARTITIONS {
        let request = poll(&[partition], PollStrategy::First);
        let result = polled(cluster.call(2, &mut client, request)).remove(0);
        assert_eq!(result.status, Ok(()));
        assert!(!result.batches.is_empty());
    }
}

/// All of its snapshots are lost, which are newer than those of the others: these take new ones for it. Its files are
/// left alone meanwhile, and it claims nothing.
#[test]
fn node_that_lost_its_snapshots_takes_over_those_of_others() {
    let (mut cluster, mut admin) = with_topic();
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    work(&mut cluster, &mut admin, 1);
    cluster.pass(200);
    want_checkpoints(cluster.node(2));
    cluster.pass(200);
    let newest = |cluster: &mut Cluster, node: u8| {
        let snapshots = &cluster.disk(node).snapshots;
        let ops = snapshots.values().map(|it| it.checkpoint.op);
        ops.collect::<Vec<Op>>()
    };
    let lost = newest(&mut cluster, 2);
    cluster.kill(2);
    cluster.disk(2).snapshots.clear();
    let before = newest(&mut cluster, 1);
    assert!(before.iter().zip(&lost).all(|(other, own)| other < own));

    cluster.start(2);
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert_eq!(installed(&mut cluster, 2).len(), groups().count());
    assert!(
        newest(&mut cluster, 2)
            .iter()
            .zip(&lost)
            .all(|(now, own)| now >= own)
    );
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    assert_same_files(&mut cluster, 2, 1);
    cluster.assert_equal();
}

/// What was fetched and waits for its files is bounded, however slow they are.
#[test]
fn no_more_is_fetched_than_the_files_take() {
    let (mut cluster, mut admin) = with_topic();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    for _ in 0..3 {
        work(&mut cluster, &mut admin, 1);
    }
    take_checkpoints(&mut cluster);
    cluster.start(2);
    cluster.node(2).files_stall = true;
    cluster.pass(3_000);
    let asked = |cluster: &Cluster| {
        let segments = cluster.parts.iter();
        let segments = segments.filter(|(file, _)| matches!(file, TransferFile::Segment { .. }));
        segments.count()
    };
    // Those that were asked for before the first one came.
    let at_once = asked(&cluster);
    let groups_with_data = usize::from(DATA_GROUPS);
    assert!(
        (1..=4 * groups_with_data).contains(&at_once),
        "{at_once} parts"
    );
    cluster.pass(3_000);
    assert_eq!(asked(&cluster), at_once);
    cluster.node(2).files_stall = false;
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert!(asked(&cluster) > 4 * groups_with_data, "there was more");
    assert_same_files(&mut cluster, 2, 1);
}

/// A restart after the transfer finds what was transferred.
#[test]
fn transferred_state_survives_a_restart() {
    let (mut cluster, mut admin) = with_topic();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    cluster.start(2);
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    cluster.kill(2);
    cluster.start(2);
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert_eq!(installed(&mut cluster, 2), []);
    cluster.pass(100);
    cluster.assert_equal();
}

/// Bytes that are not what they should be count for nothing, and come from somebody else.
#[test]
fn spoilt_parts_are_fetched_from_another_node() {
    let (mut cluster, mut admin) = with_topic();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    // What node 1 has is rotten on its disk: every byte in the middle of a segment.
    let disk = &mut cluster.node(1).disk;
    for bytes in disk.segments.values_mut() {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    }
    cluster.start(2);
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert_eq!(installed(&mut cluster, 2).len(), groups().count());
    assert_same_files(&mut cluster, 2, 0);
}

/// What the newest snapshot lists is gone: a newer one is taken, or the node would ask for ever.
#[test]
fn newer_snapshot_is_taken_when_segments_of_the_last_one_are_gone() {
    let (mut cluster, mut admin) = with_topic();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    delete_topic(&mut cluster, &mut admin);
    cluster.pass(100);
    cluster.start(2);
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert_eq!(installed(&mut cluster, 2).len(), groups().count());
    cluster.pass(100);
    cluster.assert_equal();
}

/// The same of a node that is between two views, and will be until the other one has its checkpoint: it has ops
/// that are not committed before.
#[test]
fn newer_snapshot_is_taken_between_two_views() {
    let (mut cluster, mut admin) = with_topic();
    let other = wire::CreateStream {
        name: "other".into(),
    };
    cluster.call(1, &mut admin, other).unwrap();
    let other = wire::CreateTopic {
        stream: name("other"),
        name: "topic".into(),
        partitions: PARTITIONS,
    };
    cluster.call(1, &mut admin, other).unwrap();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    delete_topic(&mut cluster, &mut admin);
    cluster.pass(100);
    // Nobody tells node 1 that what it sends is there.
    cluster.cut(0, 1);
    for partition in 0..PARTITIONS {
        let batch = batch(&payloads("late", 1), 0, 0);
        let request = wire::SendMessages {
            stream: name("other"),
            topic: name("topic"),
            ..send(&[(partition, batch)])
        };
        cluster.node(1).submit(&mut admin, request);
    }
    cluster.settle();
    cluster.kill(0);
    cluster.pass(1_000);
    cluster.start(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert_eq!(installed(&mut cluster, 2).len(), groups().count());
}

/// The newest snapshots of a node are lost, and its journal leads on from older ones. What has been deleted in
/// between is not damaged, also after a start at which nothing tells that there were newer ones.
#[test]
fn segments_that_were_deleted_before_a_snapshot_was_lost_are_not_damaged() {
    let (mut cluster, mut admin) = with_topic();
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    let older = cluster.node(2).disk.snapshots.clone();
    let files = cluster.node(2).disk.segments.len();
    delete_topic(&mut cluster, &mut admin);
    cluster.pass(100);
    want_checkpoints(cluster.node(2));
    cluster.pass(200);
    assert!(cluster.node(2).disk.segments.len() < files);
    cluster.kill(2);
    cluster.disk(2).snapshots = older;

    cluster.isolate(2);
    for (boot, is_lost) in [(1, true), (2, false)] {
        cluster.start(2);
        cluster.pass(200);
        let notes = &cluster.node(2).notes;
        let lost = notes.iter().filter(|note| is_lost_checkpoint(note)).count();
        assert_eq!(lost > 0, is_lost, "start {boot}: {lost}");
        assert!(!notes.iter().any(is_damage), "start {boot}: {notes:?}");
        cluster.kill(2);
    }
    cluster.start(2);
    cluster.reconnect();
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert!(!cluster.node(2).notes.iter().any(is_damage));
    cluster.assert_equal();
}

fn is_damage(note: &Note) -> bool {
    matches!(note, Note::Damaged { .. })
}

/// Whether it tells that a checkpoint was lost, and that the journal leads on from an older one.
fn is_lost_checkpoint(note: &Note) -> bool {
    matches!(
        note,
        Note::Replica {
            note: vsr::Note::CheckpointLost {
                is_bridged: true,
                ..
            },
            ..
        }
    )
}

fn delete_topic(cluster: &mut Cluster, admin: &mut Client) {
    let delete = wire::DeleteTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    cluster.call(1, admin, delete).unwrap();
}

/// Only what is missing of the segments is asked for.
#[test]
fn segments_that_are_here_are_not_fetched() {
    let (mut cluster, mut admin) = with_topic();
    work(&mut cluster, &mut admin, 1);
    cluster.pass(100);
    let before: u64 = cluster
        .node(2)
        .disk
        .segments
        .values()
        .map(|it| it.len() as u64)
        .sum();
    cluster.kill(2);
    cluster.pass_until("leaders", |cluster| cluster.all_led());
    work(&mut cluster, &mut admin, 1);
    take_checkpoints(&mut cluster);
    cluster.start(2);
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    let fetched: u64 = cluster
        .parts
        .iter()
        .filter(|(file, _)| matches!(file, TransferFile::Segment { .. }))
        .map(|(_, length)| *length)
        .sum();
    assert!(before > 100_000 && fetched > 100_000);
    let all: u64 = cluster
        .node(2)
        .disk
        .segments
        .values()
        .map(|it| it.len() as u64)
        .sum();
    // What is not known to be committed after a restart is in no state yet.
    let uncommitted = u64::from(DATA_GROUPS) * 32 * (SIZE as u64 + 300);
    assert!(
        fetched <= all - before + uncommitted,
        "{fetched} of {all}, {before} were here"
    );
}

/// Who was connected to a node learns what has changed while that was cut off.
#[test]
fn sessions_and_members_learn_what_the_new_metadata_says() {
    let (mut cluster, mut admin) = with_topic();
    let mut other = cluster.log_in(2, 7, 7);
    let mut member = cluster.log_in(2, 8, 8);
    cluster
        .call(2, &mut member, super::groups::join())
        .expect("it joins");
    cluster.pass(100);
    cluster.node(2).take(other.connection);
    cluster.node(2).take(member.connection);

    cluster.isolate(2);
    cluster.pass_until("leaders", |cluster| {
        groups().all(|group| cluster.leader_among(group, &[0, 1]).is_some())
    });
    work(&mut cluster, &mut admin, 1);
    // Their sessions end meanwhile: nobody has heard of them.
    cluster.pass(12_000);
    take_checkpoints(&mut cluster);
    cluster.reconnect();
    cluster.pass_until("the node has caught up", |cluster| caught_up(cluster, 2));
    assert!(installed(&mut cluster, 2).contains(&ConsensusGroup::METADATA));
    cluster.pass(100);
    cluster.assert_equal();
    for client in [&mut other, &mut member] {
        let received = cluster.node(2).take(client.connection);
        let is_evicted = |it: &Received| matches!(it, Received::Event(Event::Evicted(_)));
        assert!(received.iter().any(is_evicted), "{received:?}");
    }
    let mut again = cluster.log_in(2, 70, 70);
    let stream = wire::GetTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    assert!(matches!(
        cluster.call(2, &mut again, stream),
        Ok(Reply::Topic(_))
    ));
}

/// A message of a transfer that nobody has asked for harms nobody.
#[test]
fn unasked_messages_are_ignored() {
    let (mut cluster, _) = with_topic();
    let group = ConsensusGroup(1);
    let part = crate::FilePart {
        file: TransferFile::Snapshot(Op(u64::MAX)),
        position: u64::MAX,
        length: u64::MAX,
    };
    let segment = crate::FilePart {
        file: TransferFile::Segment {
            partition: wire::PartitionKey::default(),
            incarnation: wire::Incarnation(1),
            base: wire::Offset(u64::MAX),
        },
        ..part
    };
    let offer = crate::SnapshotOffer {
        op: Op(u64::MAX),
        size: u64::MAX,
        checksum: 0,
    };
    let messages = [
        TransferMessage::Ask { at_least: Op(0) },
        TransferMessage::Ask {
            at_least: Op(u64::MAX),
        },
        TransferMessage::Offer(offer),
        TransferMessage::AskPart(part),
        TransferMessage::AskPart(segment),
        TransferMessage::Part {
            part: segment,
            checksum: 0,
            bytes: bytes::Bytes::new(),
        },
        TransferMessage::Gone(part),
    ];
    for message in messages {
        for group in [group, ConsensusGroup::METADATA, ConsensusGroup(999)] {
            let message = PeerMessage::Transfer {
                group,
                message: message.clone(),
            };
            cluster.node(1).receive(wire::ReplicaId(0), message);
        }
    }
    cluster.pass(1_000);
    cluster.assert_equal();
}
