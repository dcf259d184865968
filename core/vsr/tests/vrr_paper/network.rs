//! A consensus group in one thread: links, disks and state machines do what the test says, and what must
//! hold in every run is checked on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use vsr::{
    CLIENTS_MAX, Config, Effect, Input, Message, Note, Origin, Prepare, Recovered, Refusal,
    Replica, Request, Superblock, Token, quorum,
};
use wire::{
    ClientId, ClusterId, ConsensusGroup, Op, PrepareHeader, ReplicaId, RequestNumber,
    SessionNumber, Time, Timestamp,
};

/// A write on its way to a disk.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Prepare(Prepare),
    Superblock(Superblock),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Executed as this op, or answered from the client table.
    Reply(Op),
    Refused(Refusal),
    Confirmed,
}

/// One replica with its disk and its state machine.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) replica: Replica,
    /// Writes on their way to the disk.
    pub(crate) writes: Vec<Write>,
    /// Ops handed out and not executed.
    pub(crate) applies: VecDeque<(Prepare, Option<Token>)>,
    /// Ops executed, in order.
    pub(crate) executed: Vec<Prepare>,
    /// What is on its disk.
    superblock: Option<Superblock>,
    prepares: Vec<Prepare>,
    incarnation: u128,
    requests: BTreeSet<(ClientId, SessionNumber, RequestNumber)>,
}

/// The group. Replica 0 is the primary of view 0, replica 1 that of view 1, and so on.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) nodes: Vec<Node>,
    /// Messages on their way, oldest first.
    pub(crate) messages: Vec<(ReplicaId, Message)>,
    pub(crate) outcomes: BTreeMap<Token, Outcome>,
    pub(crate) asked: BTreeSet<Token>,
    /// The op that was prepared last under each number.
    pub(crate) history: BTreeMap<Op, Prepare>,
    /// Every op that was ever prepared.
    prepared: BTreeSet<(Op, u128)>,
    /// What was executed first under each number.
    committed: BTreeMap<Op, Prepare>,
    /// Replicas whose links lose everything.
    pub(crate) cut_off: BTreeSet<u8>,
    pub(crate) notes: Vec<(ReplicaId, Note)>,
    now: Time,
}

impl Network {
    /// All replicas are in normal status, and no message is on its way.
    pub(crate) fn new(replica_count: u8) -> Self {
        let nodes = (0..replica_count).map(|replica| node(replica, replica_count));
        let mut network = Self {
            nodes: nodes.collect(),
            messages: Vec::new(),
            outcomes: BTreeMap::new(),
            asked: BTreeSet::new(),
            history: BTreeMap::new(),
            prepared: BTreeSet::new(),
            committed: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            notes: Vec::new(),
            now: Time {
                monotonic: 1,
                wall: Timestamp(1_000_000),
            },
        };
        for replica in 0..replica_count {
            network.carry_out(replica);
            network.finish_writes(replica);
        }
        network.messages.clear();
        network
    }

    pub(crate) fn node(&self, replica: u8) -> &Node {
        &self.nodes[usize::from(replica)]
    }

    pub(crate) fn handle(&mut self, replica: u8, input: Input) {
        let node = &mut self.nodes[usize::from(replica)];
        node.replica.handle(self.now, input);
        self.carry_out(replica);
    }

    pub(crate) fn request(&mut self, replica: u8, token: u64, origin: Origin) {
        let token = Token(token);
        assert!(self.asked.insert(token), "tokens are unique");
        let request = Request {
            token,
            origin,
            operation: 1,
            body: Bytes::from(format!("{origin:?}")),
        };
        self.handle(replica, Input::Request(request));
    }

    pub(crate) fn tick(&mut self, milliseconds: u64) {
        self.now.monotonic += milliseconds * 1_000_000;
        self.now.wall.0 += milliseconds * 1_000;
        for replica in self.replicas() {
            self.handle(replica, Input::Tick);
        }
    }

    /// Delivers the message at `index`, and leaves a copy on its way if it is to come twice.
    pub(crate) fn deliver(&mut self, index: usize, again: bool) {
        let (to, message) = if again {
            self.messages[index].clone()
        } else {
            self.messages.remove(index)
        };
        self.handle(to.0, Input::Message(message));
    }

    /// Delivers the messages now on their way to `replica`, in order; others stay.
    pub(crate) fn deliver_to(&mut self, replica: u8) {
        let (delivered, others) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(|(to, _)| to.0 == replica);
        self.messages = others;
        let delivered: Vec<(ReplicaId, Message)> = delivered;
        for (to, message) in delivered {
            self.handle(to.0, Input::Message(message));
        }
    }

    /// Loses what is on its way to `replica`.
    pub(crate) fn lose_to(&mut self, replica: u8) {
        self.messages.retain(|(to, _)| to.0 != replica);
    }

    /// Completes the write at `index`; writes may finish in any order.
    pub(crate) fn finish_write(&mut self, replica: u8, index: usize) {
        let node = &mut self.nodes[usize::from(replica)];
        let done = match node.writes.remove(index) {
            Write::Prepare(prepare) => {
                let (op, checksum) = (prepare.header.op(), prepare.header.checksum);
                node.prepares.push(prepare);
                Input::PrepareWritten { op, checksum }
            }
            Write::Superblock(superblock) => {
                let sequence = superblock.sequence;
                node.superblock = Some(superblock);
                Input::SuperblockWritten { sequence }
            }
        };
        self.handle(replica, done);
    }

    /// The process is gone, with whatever was not on its disk, and starts again.
    pub(crate) fn restart(&mut self, replica: u8, head_uncertain: bool) {
        let replica_count = self.replicas().end;
        let node = &mut self.nodes[usize::from(replica)];
        node.writes.clear();
        node.applies.clear();
        node.executed.clear();
        node.requests.clear();
        node.incarnation += 1;
        let recovered = Recovered {
            superblock: node.superblock.clone(),
            prepares: node.prepares.clone(),
            head_uncertain,
            nonce: node.incarnation,
            ..Recovered::default()
        };
        node.replica = Replica::new(config(replica, replica_count), recovered);
        self.carry_out(replica);
    }

    pub(crate) fn finish_writes(&mut self, replica: u8) {
        while !self.node(replica).writes.is_empty() {
            self.finish_write(replica, 0);
        }
    }

    /// Executes the next op that was handed out, if there is one.
    pub(crate) fn execute_one(&mut self, replica: u8) {
        let node = &mut self.nodes[usize::from(replica)];
        let Some((prepare, token)) = node.applies.pop_front() else {
            return;
        };
        let header = prepare.header;
        let op = header.op();
        let (client, session, request) = (header.client(), header.session(), header.request());
        if session != SessionNumber(0) {
            let is_new = node.requests.insert((client, session, request));
            assert!(is_new, "op {op} executes a request for the second time");
        }
        let first = self.committed.entry(op).or_insert_with(|| prepare.clone());
        assert_eq!(first, &prepare, "what is committed stays");
        node.executed.push(prepare);
        if let Some(token) = token {
            answer(&mut self.outcomes, token, Outcome::Reply(op));
        }
        let applied = Input::Applied {
            op,
            reply: Bytes::from(format!("reply of {op}")),
            ended: sessions_ended_by(&header),
            registered: true,
        };
        self.handle(replica, applied);
    }

    pub(crate) fn execute(&mut self, replica: u8) {
        while !self.node(replica).applies.is_empty() {
            self.execute_one(replica);
        }
    }

    /// Everything that is on its way arrives, is written and executed; time goes on until that brings
    /// nothing new.
    pub(crate) fn settle(&mut self) {
        for _ in 0..40 {
            while !self.messages.is_empty() {
                self.deliver(0, false);
            }
            for replica in self.replicas() {
                self.finish_writes(replica);
                self.execute(replica);
            }
            if self.messages.is_empty() {
                self.tick(10);
            }
        }
        self.messages.clear();
    }

    pub(crate) fn replicas(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.nodes.len()).expect("a group is small")
    }

    fn carry_out(&mut self, replica: u8) {
        let node = &mut self.nodes[usize::from(replica)];
        while let Some(effect) = node.replica.next_effect() {
            match effect {
                Effect::Send { to, message } => {
                    if !self.cut_off.contains(&replica) && !self.cut_off.contains(&to.0) {
                        self.messages.push((to, message));
                    }
                }
                Effect::WritePrepare(prepare) => {
                    let header = prepare.header;
                    let (op, checksum) = (header.op(), header.checksum);
                    let is_new = node.replica.is_serving() && header.view() == node.replica.view();
                    if is_new {
                        let before = header.op.checked_sub(2).map(|op| Op(op + 1));
                        let parent = before.map(|op| (op, header.parent));
                        assert!(parent.is_none_or(|point| self.prepared.contains(&point)));
                        assert!(self.prepared.insert((op, checksum)));
                        self.history.insert(op, prepare.clone());
                    }
                    assert!(self.prepared.contains(&(op, checksum)));
                    node.writes.push(Write::Prepare(prepare));
                }
                Effect::WriteSuperblock(superblock) => {
                    node.writes.push(Write::Superblock(superblock));
                }
                Effect::Apply { prepare, token } => node.applies.push_back((prepare, token)),
                Effect::Reply { token, op, .. } => {
                    answer(&mut self.outcomes, token, Outcome::Reply(op));
                }
                Effect::Refuse { token, reason } => {
                    answer(&mut self.outcomes, token, Outcome::Refused(reason));
                }
                Effect::ViewConfirmed { token } => {
                    answer(&mut self.outcomes, token, Outcome::Confirmed);
                }
                Effect::ReadPrepare { op, .. } => panic!("{op:?} is in memory"),
                Effect::Note(note) => self.notes.push((ReplicaId(replica), note)),
                // The test itself hands the checkpoint in.
                Effect::FetchCheckpoint { .. } | Effect::ReplaceState { .. } => {}
                Effect::Evict { .. } | Effect::StatusChanged => {}
            }
        }
        self.check_commits();
    }

    /// V7: what any replica holds committed is on the disks of a quorum.
    fn check_commits(&self) {
        let replica_count = u8::try_from(self.nodes.len()).expect("a group is small");
        for node in &self.nodes {
            assert!(node.replica.commit_min() <= node.replica.commit_max());
            let op = node.replica.commit_max();
            if op == Op(0) {
                continue;
            }
            let wanted = (op, self.history[&op].header.checksum);
            let is_it = |it: &Prepare| (it.header.op(), it.header.checksum) == wanted;
            let holders = self.nodes.iter();
            let holders = holders.filter(|it| it.prepares.iter().any(is_it));
            assert!(holders.count() >= usize::from(quorum(replica_count)));
        }
    }
}

const fn config(replica: u8, replica_count: u8) -> Config {
    Config {
        cluster: ClusterId(1),
        group: ConsensusGroup::METADATA,
        replica: ReplicaId(replica),
        replica_count,
        clients_max: CLIENTS_MAX,
    }
}

fn node(replica: u8, replica_count: u8) -> Node {
    Node {
        replica: Replica::new(config(replica, replica_count), Recovered::default()),
        writes: Vec::new(),
        applies: VecDeque::new(),
        executed: Vec::new(),
        superblock: None,
        prepares: Vec::new(),
        incarnation: 0,
        requests: BTreeSet::new(),
    }
}

/// Now and then an op of the node itself ends a session, the same on every replica.
fn sessions_ended_by(header: &PrepareHeader) -> Vec<ClientId> {
    let ends = header.client == 0 && header.op.is_multiple_of(8);
    ends.then(|| ClientId(u128::from(1 + header.op / 8 % 3)))
        .into_iter()
        .collect()
}

fn answer(outcomes: &mut BTreeMap<Token, Outcome>, token: Token, outcome: Outcome) {
    let older = outcomes.insert(token, outcome);
    assert_eq!(older, None, "{token:?} is answered once");
}
