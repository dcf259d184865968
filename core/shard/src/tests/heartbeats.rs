//! One heartbeat for all groups that a shard leads; whoever is not in it is missed, and nobody else.

use std::{collections::BTreeSet, vec::Vec};

use bytes::Bytes;
use vsr::{ChainPoint, Commit, CommitOk, Message, StartViewChange};
use wire::{ConsensusGroup, Op, ReplicaId, ShardId, View};

use super::{
    cluster::{Cluster, SHARDS},
    node::DATA_GROUPS,
};
use crate::{Input, PeerMessage, shard_of_group};

/// What was sent meanwhile.
fn sent_in(cluster: &mut Cluster, milliseconds: u64) -> Vec<(u8, ReplicaId, PeerMessage)> {
    cluster.sent.clear();
    cluster.pass(milliseconds);
    let sent = cluster.sent.iter();
    sent.map(|(from, to, parts)| {
        let message = PeerMessage::decode(Bytes::from(parts.concat())).unwrap();
        (*from, *to, message)
    })
    .collect()
}

fn shard_of(node: u8, group: ConsensusGroup) -> ShardId {
    shard_of_group(group, 3, SHARDS[usize::from(node)])
}

/// The groups that a shard of a node leads.
fn led_by(cluster: &Cluster, node: u8, shard: ShardId) -> BTreeSet<ConsensusGroup> {
    (0..=DATA_GROUPS)
        .map(ConsensusGroup)
        .filter(|group| shard_of(node, *group) == shard && cluster.leader(*group) == Some(node))
        .collect()
}

/// The frames of a node that has nothing to do are as many as pairs of shards and nodes, not as groups.
#[test]
fn groups_of_a_shard_share_their_heartbeat() {
    let mut cluster = Cluster::new();
    cluster.pass_until("all groups are led", |cluster| cluster.all_led());
    // The groups of the node with one shard begin their views one after the other.
    for group in (0..=DATA_GROUPS).map(ConsensusGroup) {
        cluster.silent = Some(group);
        cluster.pass_until("it leads the group", |cluster| {
            cluster.leader(group) == Some(1)
        });
        cluster.silent = None;
        cluster.pass(10);
    }
    cluster.pass(100);
    let sent = sent_in(&mut cluster, 3_000);
    let mut count = 0;
    for (from, _, message) in &sent {
        match message {
            PeerMessage::Commits(commits) => {
                let named: BTreeSet<ConsensusGroup> = commits.iter().map(|(it, _)| *it).collect();
                assert_eq!(named.len(), commits.len());
                let shard = shard_of(*from, commits[0].0);
                assert_eq!(named, led_by(&cluster, *from, shard));
                count += 1;
            }
            PeerMessage::CommitOks(oks) => {
                let named: BTreeSet<ConsensusGroup> = oks.iter().map(|(it, _)| *it).collect();
                assert_eq!(named.len(), oks.len());
            }
            PeerMessage::Replica { .. }
            | PeerMessage::Transfer { .. }
            | PeerMessage::Work { .. }
            | PeerMessage::Answer { .. }
            | PeerMessage::Hurry { .. }
            | PeerMessage::Moved(_)
            | PeerMessage::Liveness(_)
            | PeerMessage::Connections(_) => {
                panic!("nothing else is said by those who have nothing to do: {message:?}")
            }
        }
    }
    let leading_shards = (0..3_u8)
        .flat_map(|node| (0..SHARDS[usize::from(node)]).map(move |shard| (node, ShardId(shard))))
        .filter(|(node, shard)| !led_by(&cluster, *node, *shard).is_empty())
        .count();
    // Every third tick, to two nodes.
    assert_eq!(count, leading_shards * 100 * 2);
}

/// V17 and failure detection are each group's own: a node that is alive may have groups that are not.
#[test]
fn group_that_is_missing_from_the_heartbeat_is_suspected_alone() {
    let mut cluster = Cluster::new();
    cluster.pass_until("all groups are led", |cluster| cluster.all_led());
    let views = |cluster: &Cluster, node: u8| -> Vec<View> {
        let groups = (0..=DATA_GROUPS).map(ConsensusGroup);
        let view_of = |group| {
            let mut shards = cluster.shards().filter(|(it, _)| *it == node);
            shards.find_map(|(_, shard)| shard.member(group).map(|it| it.primary().view))
        };
        groups.map(|group| view_of(group).unwrap()).collect()
    };
    let before = views(&cluster, 1);
    let quiet = ConsensusGroup(3);
    cluster.silent = Some(quiet);
    cluster.pass(100);
    assert_eq!(views(&cluster, 1), before);
    cluster.pass_until("another view", |cluster| {
        views(cluster, 1)[usize::from(quiet.0)] > before[usize::from(quiet.0)]
    });
    cluster.silent = None;
    cluster.pass_until("all groups are led again", |cluster| cluster.all_led());
    let after = views(&cluster, 1);
    for group in (0..=DATA_GROUPS).filter(|group| *group != quiet.0) {
        let group = usize::from(group);
        assert_eq!(after[group], before[group], "group {group}");
    }
}

const fn commit(op: u64) -> Commit {
    Commit {
        replica: ReplicaId(1),
        view: View(2),
        op: Op(op),
        commit: ChainPoint {
            op: Op(op),
            checksum: 7,
        },
        checkpoint_quorum: Op(0),
    }
}

const fn commit_ok(op: u64) -> CommitOk {
    CommitOk {
        replica: ReplicaId(1),
        view: View(2),
        commit_min: Op(op),
        checkpoint: Op(0),
        is_willing: true,
    }
}

#[test]
fn what_a_group_says_later_takes_the_place_of_what_it_said() {
    let mut heartbeats = crate::heartbeats::Heartbeats::new();
    let (to, other) = (ReplicaId(0), ReplicaId(2));
    let (first, second) = (ConsensusGroup(1), ConsensusGroup(4));
    assert!(!heartbeats.has_commits());
    for (to, group, message) in [
        (to, second, Message::Commit(commit(5))),
        (to, first, Message::Commit(commit(6))),
        (to, second, Message::Commit(commit(7))),
        (other, first, Message::CommitOk(commit_ok(8))),
        (other, first, Message::CommitOk(commit_ok(9))),
    ] {
        assert_eq!(heartbeats.gather(to, group, message), None);
    }
    let wish = Message::StartViewChange(StartViewChange {
        replica: ReplicaId(1),
        view: View(3),
        promised: View(2),
    });
    assert_eq!(heartbeats.gather(to, first, wish.clone()), Some(wish));
    assert!(heartbeats.has_commits());
    let commits = PeerMessage::Commits([(first, commit(6)), (second, commit(7))].into());
    let oks = PeerMessage::CommitOks([(first, commit_ok(9))].into());
    assert_eq!(heartbeats.take(), [(to, commits), (other, oks)]);
    assert_eq!(heartbeats.take(), []);
}

#[test]
fn heartbeat_is_split_by_the_shards_of_the_receiver() {
    let groups = (0..=12).map(ConsensusGroup);
    let commits: Vec<(ConsensusGroup, Commit)> = groups.map(|it| (it, commit(1))).collect();
    let whole = PeerMessage::Commits(commits.clone());
    assert_eq!(whole.by_shard(3, 1).len(), 1);
    let parts = PeerMessage::Commits(commits.clone()).by_shard(3, 4);
    assert_eq!(parts.len(), 4);
    let mut named = Vec::new();
    for (shard, part) in parts {
        let PeerMessage::Commits(part) = part else {
            panic!("it is a part of it: {part:?}");
        };
        assert!(
            part.iter()
                .all(|(it, _)| shard_of_group(*it, 3, 4) == shard)
        );
        named.extend(part);
    }
    named.sort_by_key(|(group, _)| *group);
    assert_eq!(named, commits);
    let oks = PeerMessage::CommitOks([(ConsensusGroup(1), commit_ok(1))].into());
    assert_eq!(oks.by_shard(3, 4).len(), 1);
}

#[test]
fn node_speaks_for_its_own_replicas_only() {
    let mut cluster = Cluster::new();
    cluster.pass_until("all groups are led", |cluster| cluster.all_led());
    let group = ConsensusGroup::METADATA;
    let leader = cluster.leader(group).unwrap();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let serves = |cluster: &Cluster| cluster.leader(group) == Some(leader);
    let mut wish = |from: u8, replica: u8| {
        let node = cluster.node(leader);
        let view = node.shards[0].member(group).unwrap().primary().view;
        let message = PeerMessage::Replica {
            group,
            message: Message::StartViewChange(StartViewChange {
                replica: ReplicaId(replica),
                view: view.next(),
                promised: view,
            }),
        };
        let from = ReplicaId(from);
        node.feed(ShardId(0), Input::Peer { from, message });
        node.settle();
        serves(&cluster)
    };
    // One node says what two would have to say together.
    assert!(wish(one, other));
    assert!(wish(one, one));
    assert!(!wish(other, other));
}
