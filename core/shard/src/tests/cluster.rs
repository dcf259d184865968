//! Three nodes with different numbers of shards: any node takes any request; what a node leads moves on when
//! it is gone, and comes back to nobody twice.

use std::{collections::BTreeSet, format, vec, vec::Vec};

use bytes::Bytes;
use wire::{
    ClientId, Command, ConsensusGroup, Epoch, ErrorCode, Event, Failure, Offset,
    PEER_FRAME_SIZE_MAX, PollStrategy, ReplicaId, Reply, SessionNumber,
};

use super::{
    groups::{create, group_poll, join},
    messages::{batch, payloads, poll, polled, send, sent, store},
    node::{Client, DATA_GROUPS, Disk, Node, Received, name},
};
use crate::{
    Input, Origin, PeerMessage, Shard, Sign, TransferFile, TransferMessage, forward::LIST_MAX,
};

pub(super) const SHARDS: [u16; 3] = [2, 1, 3];
pub(super) const PARTITIONS: u32 = 6;

/// Three nodes, their links and the time that passes for them.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Option<Node>>,
    /// The disks of those that are down.
    disks: Vec<Disk>,
    /// Links that lose everything, by sender and receiver.
    pub(super) cut: BTreeSet<(u8, u8)>,
    /// A node that hears nothing of the metadata group's replicas.
    deaf: Option<u8>,
    /// Nothing of a state transfer arrives.
    pub(super) loses_transfers: bool,
    /// A group of which no heartbeat arrives anywhere.
    pub(super) silent: Option<ConsensusGroup>,
    /// A group whose work arrives nowhere.
    idle: Option<ConsensusGroup>,
    /// What was sent from node to node, lost or not.
    pub(super) sent: Vec<(u8, ReplicaId, Vec<Bytes>)>,
    /// How work was named that went from node to node.
    forwarded: BTreeSet<Origin>,
    /// Parts of files that were sent in state transfers, with their lengths.
    pub(super) parts: Vec<(TransferFile, u64)>,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let mut cluster = Self {
            nodes: vec![None, None, None],
            disks: vec![Disk::default(), Disk::default(), Disk::default()],
            cut: BTreeSet::new(),
            deaf: None,
            loses_transfers: false,
            silent: None,
            idle: None,
            sent: Vec::new(),
            forwarded: BTreeSet::new(),
            parts: Vec::new(),
        };
        for node in 0..3 {
            cluster.start(node);
        }
        cluster.settle();
        cluster
    }

    pub(super) fn start(&mut self, node: u8) {
        let index = usize::from(node);
        let disk = core::mem::take(&mut self.disks[index]);
        let mut started = Node::of_cluster(ReplicaId(node), 3, SHARDS[index], disk);
        let others = self.nodes.iter().flatten().map(|other| other.now);
        started.now = others
            .max_by_key(|now| now.monotonic)
            .unwrap_or(started.now);
        self.nodes[index] = Some(started);
        for other in (0..3).filter(|other| *other != node) {
            self.link_is_up(node, other);
            self.link_is_up(other, node);
        }
    }

    fn link_is_up(&mut self, at: u8, other: u8) {
        if let Some(node) = &mut self.nodes[usize::from(at)] {
            let node_id = ReplicaId(other);
            node.tell(|| Input::PeerUp { node: node_id });
        }
    }

    /// SIGKILL: the others see their links end.
    pub(super) fn kill(&mut self, node: u8) {
        let killed = self.nodes[usize::from(node)].take().unwrap();
        self.disks[usize::from(node)] = killed.disk;
        let down = ReplicaId(node);
        for other in self.nodes.iter_mut().flatten() {
            other.tell(|| Input::PeerDown { node: down });
        }
        self.settle();
    }

    /// Nothing comes from the node or to it any more, and no link ends.
    pub(super) fn isolate(&mut self, node: u8) {
        for other in (0..3).filter(|other| *other != node) {
            self.cut.insert((node, other));
            self.cut.insert((other, node));
        }
    }

    /// Nothing comes from one node to another any more, and no link ends.
    pub(super) fn cut(&mut self, from: u8, to: u8) {
        self.cut.insert((from, to));
    }

    /// All links work again, and are new.
    pub(super) fn reconnect(&mut self) {
        self.cut.clear();
        for node in 0..3 {
            for other in (0..3).filter(|other| *other != node) {
                self.link_is_up(node, other);
            }
        }
    }

    pub(super) fn node(&mut self, node: u8) -> &mut Node {
        self.nodes[usize::from(node)].as_mut().unwrap()
    }

    /// The disk of a node that is down.
    pub(super) fn disk(&mut self, node: u8) -> &mut Disk {
        &mut self.disks[usize::from(node)]
    }

    /// Carries everything out until nothing is left to do.
    pub(super) fn settle(&mut self) {
        loop {
            let mut messages = Vec::new();
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if let Some(node) = node {
                    node.settle();
                    let from = u8::try_from(index).unwrap();
                    messages.extend(node.outbox.drain(..).map(|(to, it)| (from, to, it)));
                }
            }
            if messages.is_empty() {
                return;
            }
            for (from, to, message) in messages {
                if let PeerMessage::Work { origin, .. } = &message {
                    self.forwarded.insert(*origin);
                }
                if let PeerMessage::Transfer {
                    message: TransferMessage::Part { part, .. },
                    ..
                } = &message
                {
                    self.parts.push((part.file, part.length));
                }
                self.sent.push((from, to, message.encode()));
                let is_idle = matches!(&message, PeerMessage::Work { group, .. } if self.idle == Some(*group));
                let is_transfer = matches!(&message, PeerMessage::Transfer { .. });
                let is_lost = is_idle || is_transfer && self.loses_transfers;
                if is_lost || self.cut.contains(&(from, to.0)) {
                    continue;
                }
                let is_deaf = self.deaf == Some(to.0);
                let message = heard(message, is_deaf, self.silent);
                if let Some(node) = &mut self.nodes[usize::from(to.0)] {
                    node.receive(ReplicaId(from), message);
                }
            }
        }
    }

    pub(super) fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            for node in self.nodes.iter_mut().flatten() {
                node.now.monotonic += 10_000_000;
                node.now.wall.0 += 10_000;
                node.tell(|| Input::Tick);
            }
            self.settle();
        }
    }

    /// Lets time pass until something is so.
    pub(super) fn pass_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..500 {
            if is_so(self) {
                return;
            }
            self.pass(10);
        }
        panic!("waited in vain: {what}");
    }

    pub(super) fn log_in(&mut self, node: u8, connection: u64, client: u128) -> Client {
        let mut client = self.node(node).client(connection, client);
        let login = wire::Login {
            name: "root".into(),
            password: wire::Password("correct horse".into()),
        };
        match self.call(node, &mut client, login) {
            Ok(Reply::LoggedIn(logged_in)) => {
                client.session = logged_in.session;
                client.secret = logged_in.secret;
                client
            }
            other => panic!("login: {other:?}"),
        }
    }

    /// Sends a request to a node, and takes its answer: that may take a while where no primary is.
    pub(super) fn call(
        &mut self,
        node: u8,
        client: &mut Client,
        request: impl Into<wire::Request>,
    ) -> Result<Reply, Failure> {
        let request = request.into();
        let command = request.command();
        let correlation = self.node(node).submit(client, request);
        let mut answer = None;
        self.pass_until("the answer", |cluster| {
            cluster.settle();
            answer = cluster.node(node).answer(client, command, correlation);
            answer.is_some()
        });
        answer.unwrap()
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = (u8, &Shard)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.flat_map(|(index, node)| {
            let index = u8::try_from(index).unwrap();
            node.iter()
                .flat_map(move |node| node.shards.iter().map(move |shard| (index, shard)))
        })
    }

    /// Who leads a group, if exactly one node does.
    pub(super) fn leader(&self, group: ConsensusGroup) -> Option<u8> {
        let serving: Vec<u8> = self
            .shards()
            .filter(|(_, shard)| shard.member(group).is_some_and(|member| member.serves()))
            .map(|(node, _)| node)
            .collect();
        match serving.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// Who of these leads a group.
    pub(super) fn leader_among(&self, group: ConsensusGroup, nodes: &[u8]) -> Option<u8> {
        let mut shards = self.shards().filter(|(node, _)| nodes.contains(node));
        let serves = |shard: &Shard| shard.member(group).is_some_and(|member| member.serves());
        shards
            .find(|(_, shard)| serves(shard))
            .map(|(node, _)| node)
    }

    pub(super) fn all_led(&self) -> bool {
        (0..=DATA_GROUPS).all(|group| self.leader(ConsensusGroup(group)).is_some())
    }

    /// All replicas have executed the same.
    pub(super) fn assert_equal(&self) {
        let catalogs = self.shards().filter_map(|(_, shard)| shard.catalog());
        let digests: BTreeSet<u128> = catalogs.map(catalog::Catalog::digest).collect();
        assert_eq!(digests.len(), 1, "the metadata differs");
        for group in (1..=DATA_GROUPS).map(ConsensusGroup) {
            let states = self
                .shards()
                .filter_map(|(_, shard)| shard.data_group(group));
            let digests: Vec<u128> = states.map(partition::DataGroup::digest).collect();
            let distinct: BTreeSet<&u128> = digests.iter().collect();
            assert_eq!((digests.len(), distinct.len()), (3, 1), "group {group}");
        }
    }
}

/// What arrives of a message.
fn heard(message: PeerMessage, is_deaf: bool, silent: Option<ConsensusGroup>) -> PeerMessage {
    let is_unheard = |group: ConsensusGroup| is_deaf && group == ConsensusGroup::METADATA;
    let mut message = message;
    if let PeerMessage::Commits(commits) = &mut message {
        commits.retain(|(group, _)| !is_unheard(*group) && silent != Some(*group));
    }
    if let PeerMessage::CommitOks(oks) = &mut message {
        oks.retain(|(group, _)| !is_unheard(*group));
    }
    if matches!(message, PeerMessage::Replica { group, .. } if is_unheard(group)) {
        return PeerMessage::Commits(Vec::new());
    }
    message
}

/// A cluster with a topic and a consumer group, made through a node that leads no metadata.
pub(super) fn with_topic() -> (Cluster, Client) {
    let mut cluster = Cluster::new();
    let mut admin = cluster.log_in(1, 100, 100);
    let stream = wire::CreateStream {
        name: "orders".into(),
    };
    cluster.call(1, &mut admin, stream).unwrap();
    let topic = wire::CreateTopic {
        stream: name("orders"),
        name: "payments".into(),
        partitions: PARTITIONS,
    };
    cluster.call(1, &mut admin, topic).unwrap();
    cluster.call(1, &mut admin, create()).unwrap();
    cluster.pass(100);
    (cluster, admin)
}

fn offsets_of(reply: Result<Reply, Failure>) -> (Offset, usize) {
    let result = polled(reply).remove(0);
    assert_eq!(result.status, Ok(()));
    (result.next, result.batches.len())
}

fn stored(reply: Result<Reply, Failure>) -> Vec<wire::StoreResult> {
    match reply {
        Ok(Reply::OffsetsStored(stored)) => stored.sections,
        other => panic!("{other:?}"),
    }
}

fn primary_changes(received: &[Received]) -> Vec<(u16, u8)> {
    let changes = received.iter().filter_map(|received| match received {
        Received::Event(Event::PrimaryChanged(it)) => Some((it.group.0, it.primary.0)),
        Received::Reply(..) | Received::Event(_) | Received::Closed => None,
    });
    changes.collect()
}

#[test]
fn any_node_takes_any_request() {
    let (mut cluster, mut admin) = with_topic();
    for partition in 0..PARTITIONS {
        for node in 0..3_u8 {
            let connection = 10 + u64::from(node) + u64::from(partition) * 10;
            let mut client = cluster.log_in(node, connection, u128::from(connection));
            let request = send(&[(partition, batch(&payloads("m", 3), 0, 0))]);
            let results = sent(cluster.call(node, &mut client, request));
            assert_eq!(results[0].status, Ok(()));
            assert_eq!(results[0].base_offset, Some(Offset(u64::from(node) * 3)));
            let request = poll(&[partition], PollStrategy::First);
            let (next, _) = offsets_of(cluster.call(node, &mut client, request));
            assert_eq!(next, Offset(u64::from(node) * 3 + 3));
            let reply = cluster.call(node, &mut client, store(partition, u64::from(node)));
            assert_eq!(stored(reply)[0].stored, Some(Offset(u64::from(node))));
            cluster
                .call(node, &mut client, wire::Request::Logout)
                .unwrap();
        }
    }
    // A whole send goes to several nodes, and so do the offsets of a topic.
    let all: Vec<_> = (0..PARTITIONS)
        .map(|partition| (partition, batch(&payloads("all", 1), 0, 0)))
        .collect();
    let results = sent(cluster.call(1, &mut admin, send(&all)));
    assert!(results.iter().all(|result| result.status.is_ok()));
    let topic = wire::GetTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    let Ok(Reply::Topic(details)) = cluster.call(1, &mut admin, topic) else {
        panic!("a topic is told");
    };
    assert!(
        details
            .partitions
            .iter()
            .all(|it| it.end == Some(Offset(10)))
    );
    cluster.pass(100);
    cluster.assert_equal();
}

#[test]
fn a_killed_node_s_groups_go_on_elsewhere_and_it_catches_up() {
    let (mut cluster, mut admin) = with_topic();
    let mut other = cluster.log_in(2, 7, 7);
    for round in 0..20 {
        for partition in 0..PARTITIONS {
            let request = send(&[(partition, batch(&payloads("before", 2), 0, 0))]);
            assert_eq!(
                sent(cluster.call(1, &mut admin, request))[0].status,
                Ok(()),
                "{round}"
            );
        }
    }
    cluster.node(2).take(other.connection);
    let leads: Vec<u16> = (0..=DATA_GROUPS)
        .filter(|group| cluster.leader(ConsensusGroup(*group)) == Some(0))
        .collect();
    assert!(leads.contains(&0) && leads.len() >= 2, "{leads:?}");
    cluster.kill(0);
    cluster.pass_until("every group is led", |cluster| cluster.all_led());
    // Whoever is connected elsewhere is told, on every shard.
    for (node, client) in [(1, &admin), (2, &other)] {
        let told = primary_changes(&cluster.node(node).take(client.connection));
        let groups: BTreeSet<u16> = told.iter().map(|(group, _)| *group).collect();
        assert!(leads.iter().all(|group| groups.contains(group)), "{told:?}");
        assert!(told.iter().all(|(_, primary)| *primary != 0), "{told:?}");
    }
    for partition in 0..PARTITIONS {
        for _ in 0..40 {
            let request = send(&[(partition, batch(&payloads("after", 1), 0, 0))]);
            assert_eq!(sent(cluster.call(2, &mut other, request))[0].status, Ok(()));
        }
        let request = poll(&[partition], PollStrategy::First);
        assert_eq!(
            offsets_of(cluster.call(1, &mut admin, request)).0,
            Offset(80)
        );
    }
    // It has missed more than the others keep in memory, and fetches it from their journals.
    cluster.start(0);
    cluster.pass(1_000);
    cluster.assert_equal();
    assert!(cluster.all_led());
}

#[test]
fn deposed_primary_serves_nobody() {
    let (mut cluster, mut admin) = with_topic();
    let partition = 0;
    let request = send(&[(partition, batch(&payloads("m", 2), 0, 0))]);
    assert_eq!(sent(cluster.call(1, &mut admin, request))[0].status, Ok(()));
    let group = cluster.node(1).group_of(partition);
    let old = cluster.leader(group).unwrap();
    let mut stuck = cluster.log_in(old, 55, 55);
    let request = poll(&[partition], PollStrategy::First);
    let (next, _) = offsets_of(cluster.call(old, &mut stuck, request.clone()));
    assert_eq!(next, Offset(2));

    // It does not know that it is alone; its answers wait until it does, those that serve nothing, too.
    cluster.isolate(old);
    let correlation = cluster.node(old).submit(&mut stuck, request);
    let beyond = poll(&[partition], PollStrategy::Offset(Offset(4)));
    let beyond = cluster.node(old).submit(&mut stuck, beyond);
    let told = wire::GetConsumerOffset {
        stream: name("orders"),
        topic: name("payments"),
        consumer: wire::Consumer::Single("billing".into()),
        partitions: vec![wire::PartitionId(partition)],
    };
    let told = cluster.node(old).submit(&mut stuck, told);
    cluster.settle();
    let command = Command::PollMessages;
    for (command, correlation) in [
        (command, correlation),
        (command, beyond),
        (Command::GetConsumerOffset, told),
    ] {
        let early = cluster.node(old).answer(&mut stuck, command, correlation);
        assert!(early.is_none(), "{early:?}");
    }
    cluster.pass_until("the others have another", |cluster| {
        let others = cluster.shards().filter(|(node, _)| *node != old);
        let mut members = others.filter_map(|(_, shard)| shard.member(group));
        members.any(|member| member.serves())
    });
    cluster.pass(1_000);
    let late = cluster.node(old).answer(&mut stuck, command, correlation);
    let results = polled(late.expect("it has abdicated"));
    let failure = results[0].status.clone().unwrap_err();
    assert_eq!(failure.code, ErrorCode::NotReady);
    assert_eq!(results[0].batches.len(), 0);

    // Once it hears of them it forwards like any other.
    cluster.cut.clear();
    cluster.pass(1_000);
    let request = poll(&[partition], PollStrategy::First);
    assert_eq!(
        offsets_of(cluster.call(old, &mut stuck, request)).0,
        Offset(2)
    );
    cluster.assert_equal();
}

#[test]
fn what_was_forwarded_to_a_lost_node_is_answered() {
    let (mut cluster, mut admin) = with_topic();
    let led_by_0 = (0..PARTITIONS).find(|partition| {
        let group = cluster.node(1).group_of(*partition);
        cluster.leader(group) == Some(0)
    });
    let partition = led_by_0.expect("node 0 leads some");
    cluster.cut.insert((0, 1));
    let request = send(&[(partition, batch(&payloads("m", 2), 0, 0))]);
    let appended = cluster.node(1).submit(&mut admin, request);
    let read = poll(&[partition], PollStrategy::First);
    let read = cluster.node(1).submit(&mut admin, read);
    cluster.settle();
    let early = cluster
        .node(1)
        .answer(&mut admin, Command::SendMessages, appended);
    assert!(early.is_none());
    cluster.kill(0);
    let answer = cluster
        .node(1)
        .answer(&mut admin, Command::SendMessages, appended);
    let failure = sent(answer.unwrap())[0].status.clone().unwrap_err();
    assert_eq!(failure.code, ErrorCode::OutcomeUnknown, "{failure}");
    let answer = cluster
        .node(1)
        .answer(&mut admin, Command::PollMessages, read);
    let failure = polled(answer.unwrap())[0].status.clone().unwrap_err();
    assert_eq!(failure.code, ErrorCode::Retry, "{failure}");
}

/// It hears whoever leads, and cannot send to it: its clients may reach what it does not.
#[test]
fn what_cannot_be_forwarded_for_want_of_a_link_is_refused_at_once() {
    let (mut cluster, mut admin) = with_topic();
    let led_by_0 = (0..PARTITIONS).find(|partition| {
        let group = cluster.node(1).group_of(*partition);
        cluster.leader(group) == Some(0)
    });
    let partition = led_by_0.expect("node 0 leads some");
    let node = ReplicaId(0);
    cluster.cut.insert((1, 0));
    cluster.node(1).tell(|| Input::PeerDown { node });
    let append = |sequence| send(&[(partition, batch(&payloads("m", 2), 0, sequence))]);
    let refused = cluster.node(1).submit(&mut admin, append(0));
    cluster.settle();
    let answer = cluster
        .node(1)
        .answer(&mut admin, Command::SendMessages, refused);
    let section = sent(answer.expect("it is answered")).remove(0);
    assert_eq!(section.primary, node);
    let failure = section.status.unwrap_err();
    assert_eq!(failure.code, ErrorCode::NotPrimary, "{failure}");
    cluster.cut.clear();
    cluster.node(1).tell(|| Input::PeerUp { node });
    let appended = sent(cluster.call(1, &mut admin, append(0)));
    assert_eq!(appended[0].status, Ok(()));
}

/// The links are there, and nothing comes through one of them.
#[test]
fn what_a_node_left_unanswered_is_followed_by_a_time_without_further_work_for_it() {
    let (mut cluster, mut admin) = with_topic();
    let led_by_0 = (0..PARTITIONS).find(|partition| {
        let group = cluster.node(1).group_of(*partition);
        cluster.leader(group) == Some(0)
    });
    let partition = led_by_0.expect("node 0 leads some");
    let ask = poll(&[partition], PollStrategy::First);
    cluster.cut.insert((0, 1));
    let code = |cluster: &mut Cluster, admin: &mut Client, after: u64| {
        let asked = cluster.node(1).submit(admin, ask.clone());
        cluster.pass(after);
        let answer = cluster.node(1).answer(admin, Command::PollMessages, asked);
        let failure = polled(answer?).remove(0).status.err();
        failure.map(|failure| failure.code)
    };
    assert_eq!(code(&mut cluster, &mut admin, 3_000), None);
    cluster.pass(2_000);
    assert_eq!(
        code(&mut cluster, &mut admin, 100),
        Some(ErrorCode::NotPrimary)
    );
    cluster.cut.clear();
    cluster.pass(6_000);
    assert_eq!(code(&mut cluster, &mut admin, 500), None);
}

/// One that answers other things meanwhile is slow: the next work goes there all the same.
#[test]
fn who_answers_other_work_is_not_silent() {
    let (mut cluster, mut admin) = with_topic();
    let group = |cluster: &mut Cluster, partition: u32| cluster.node(1).group_of(partition);
    let led_by_0 = (0..PARTITIONS).find(|partition| {
        let group = group(&mut cluster, *partition);
        cluster.leader(group) == Some(0)
    });
    let partition = led_by_0.expect("node 0 leads some");
    let ask = poll(&[partition], PollStrategy::First);
    cluster.idle = Some(group(&mut cluster, partition));
    let asked = cluster.node(1).submit(&mut admin, ask.clone());
    let mut answer = None;
    for round in 0..12 {
        cluster
            .call(
                1,
                &mut admin,
                wire::CreateStream {
                    name: format!("stream-{round}"),
                },
            )
            .unwrap();
        cluster.pass(500);
        let answered = cluster
            .node(1)
            .answer(&mut admin, Command::PollMessages, asked);
        answer = answer.or(answered);
    }
    let failure = polled(answer.expect("its time is over"))
        .remove(0)
        .status
        .err();
    assert_eq!(failure.map(|it| it.code), Some(ErrorCode::Retry));
    cluster.idle = None;
    let result = polled(cluster.call(1, &mut admin, ask)).remove(0);
    assert_eq!(result.status, Ok(()));
}

/// What is answered late must not find another one's request: the names that a process gives are not those of
/// the process before. (Seed 27 with three nodes.)
#[test]
fn answer_of_before_a_restart_is_nobody_s() {
    let (mut cluster, _admin) = with_topic();
    let before = core::mem::take(&mut cluster.forwarded);
    cluster.kill(1);
    cluster.start(1);
    cluster.pass(500);
    for client in 60..66 {
        cluster.log_in(1, client, client.into());
    }
    let after = core::mem::take(&mut cluster.forwarded);
    let of_node_1 = |origin: &&Origin| origin.node == ReplicaId(1);
    assert!(before.iter().filter(of_node_1).count() >= 4, "{before:?}");
    assert!(after.iter().filter(of_node_1).count() >= 6, "{after:?}");
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
}

/// A node that has not heard of the group yet answers no sooner than others. (Seed 39 with three nodes.)
#[test]
fn reset_through_a_node_that_is_behind_is_answered_when_it_is_carried_out() {
    let (mut cluster, mut admin) = with_topic();
    let mut behind = cluster.log_in(2, 70, 70);
    // Node 2 hears nothing of the metadata group, and leads some of the topic.
    cluster.deaf = Some(2);
    let other = wire::CreateConsumerGroup {
        name: "shipping".into(),
        ..create()
    };
    cluster.call(1, &mut admin, other).unwrap();
    let reset = wire::ResetConsumerOffset {
        stream: name("orders"),
        topic: name("payments"),
        group: name("shipping"),
        force: false,
        others: Some(wire::ResetTarget::Latest),
        sections: Vec::new(),
    };
    behind.seen = 0;
    let correlation = cluster.node(2).submit(&mut behind, reset);
    cluster.settle();
    let command = Command::ResetConsumerOffset;
    let early = cluster.node(2).answer(&mut behind, command, correlation);
    assert!(early.is_none(), "{early:?}");
    cluster.deaf = None;
    cluster.pass(1_000);
    let late = cluster.node(2).answer(&mut behind, command, correlation);
    assert!(matches!(late, Some(Ok(Reply::OffsetsReset(_)))), "{late:?}");
    cluster.assert_equal();
}

#[test]
fn members_at_different_nodes_share_and_hand_over() {
    let (mut cluster, mut admin) = with_topic();
    for partition in 0..PARTITIONS {
        let request = send(&[(partition, batch(&payloads("m", 4), 0, 0))]);
        assert_eq!(sent(cluster.call(1, &mut admin, request))[0].status, Ok(()));
    }
    let mut first = cluster.log_in(0, 20, 20);
    let mut second = cluster.log_in(2, 21, 21);
    let Ok(Reply::Assignment(all)) = cluster.call(0, &mut first, join()) else {
        panic!("it is the only member");
    };
    assert_eq!(all.owned.len(), PARTITIONS as usize);
    for assigned in &all.owned {
        let sections = [(assigned.partition.0, assigned.epoch)];
        let (next, _) = offsets_of(cluster.call(0, &mut first, group_poll(&sections)));
        assert_eq!(next, Offset(4));
    }
    cluster.node(0).take(first.connection);
    cluster.call(2, &mut second, join()).unwrap();
    let events = cluster.node(0).take(first.connection);
    let is_told = |it: &Received| matches!(it, Received::Event(Event::AssignmentChanged(_)));
    assert!(events.iter().any(is_told), "{events:?}");

    // What it was served and has not stored holds the hand-over back; once that is stored it is drained,
    // wherever the partition and the members are.
    for assigned in &all.owned {
        let request = wire::StoreConsumerOffset {
            consumer: wire::Consumer::Group(name("billing")),
            sections: vec![wire::StoreSection {
                partition: assigned.partition,
                epoch: assigned.epoch,
                offset: Offset(3),
            }],
            ..store(0, 0)
        };
        let results = stored(cluster.call(0, &mut first, request));
        assert_eq!(results[0].status, Ok(()));
    }
    let sync = wire::SyncConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    };
    let mut half = Vec::new();
    cluster.pass_until("half are the newcomer's", |cluster| {
        let reply = cluster.call(2, &mut second, sync.clone());
        let Ok(Reply::Assignment(assignment)) = reply else {
            panic!("{reply:?}");
        };
        half = assignment.owned;
        half.len() == PARTITIONS as usize / 2
    });
    for assigned in &half {
        let sections = [(assigned.partition.0, assigned.epoch)];
        let (next, batches) = offsets_of(cluster.call(2, &mut second, group_poll(&sections)));
        assert_eq!((next, batches), (Offset(4), 0), "nothing is served twice");
        let before = all.owned.iter();
        let old = before.clone().find(|it| it.partition == assigned.partition);
        let stale = [(assigned.partition.0, old.map_or(Epoch(0), |it| it.epoch))];
        let refused = polled(cluster.call(0, &mut first, group_poll(&stale)));
        assert!(refused[0].status.is_err());
    }
}

#[test]
fn session_of_a_client_that_was_at_a_dead_node_has_its_grace_and_no_more() {
    let (mut cluster, _admin) = with_topic();
    let lost = cluster.log_in(2, 30, 30);
    let mut moved = cluster.log_in(2, 31, 31);
    cluster.pass(50);
    cluster.kill(2);
    let (session, secret) = (moved.session, moved.secret);
    moved = cluster.node(1).client(40, 31);
    (moved.session, moved.secret) = (session, secret);
    cluster
        .call(1, &mut moved, wire::Attach { secret })
        .unwrap();
    cluster.pass(500);
    let is_there = |cluster: &Cluster, client: &Client| {
        let mut catalogs = cluster.shards().filter_map(|(_, shard)| shard.catalog());
        let found = catalogs.next().unwrap();
        found.session(client.id, client.session).is_some()
    };
    assert!(is_there(&cluster, &lost), "its grace is a second");
    cluster.pass(800);
    assert!(!is_there(&cluster, &lost));
    assert!(is_there(&cluster, &moved));
}

/// What a node tells about all of its sessions is more than one message may hold.
#[test]
fn sessions_beyond_those_of_one_message_are_told_in_further_ones() {
    let mut cluster = Cluster::new();
    cluster.pass_until("all groups are led", |cluster| cluster.all_led());
    let leader = cluster.leader(ConsensusGroup::METADATA).unwrap();
    let node = ReplicaId((leader + 1) % 3);
    let sessions = 0..u64::try_from(LIST_MAX).unwrap() + 10;
    // Two connections each.
    let signs = sessions.clone().chain(sessions.clone()).map(|session| {
        Sign::Connected(
            ClientId(u128::from(session) + 1),
            SessionNumber(session + 1_000),
        )
    });
    cluster.node(node.0).shards[0].pass_signs(signs.collect());
    cluster.settle();
    let told = |cluster: &mut Cluster| {
        let host = cluster.node(leader).shards[0].metadata.as_ref();
        host.expect("it leads it").connections_of(node)
    };
    let before = told(&mut cluster);
    assert_eq!(before.len() as u64, sessions.end);
    assert!(before.iter().all(|(_, _, count)| *count == 2));

    // The link is made again.
    cluster.node(leader).tell(|| Input::PeerDown { node });
    assert!(told(&mut cluster).is_empty());
    let to = ReplicaId(leader);
    cluster.node(node.0).tell(|| Input::PeerUp { node: to });
    cluster.settle();
    assert_eq!(told(&mut cluster), before);
    let largest = cluster
        .sent
        .iter()
        .map(|(_, _, parts)| parts.iter().map(Bytes::len).sum::<usize>())
        .max();
    assert!(largest.is_some_and(|size| size < PEER_FRAME_SIZE_MAX as usize / 2));
}
