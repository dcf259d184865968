//! One replica alone, stopped at any moment and started again from what was on its disk (V10).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use proptest::{collection::vec, prelude::any, prop_assert, prop_assert_eq, proptest};
use vsr::{
    Checkpoint, Config, Effect, Input, Origin, Prepare, Recovered, Replica, Request, Status,
    Superblock, Token,
};
use wire::{
    ClientId, ClusterId, ConsensusGroup, Op, ReplicaId, RequestNumber, SessionNumber, Time,
    Timestamp,
};

const CONFIG: Config = Config {
    cluster: ClusterId(1),
    group: ConsensusGroup::METADATA,
    replica: ReplicaId(0),
    replica_count: 1,
    clients_max: 2,
};

/// What is durable.
#[derive(Clone, Debug, Default)]
struct Disk {
    superblock: Option<Superblock>,
    prepares: Vec<Prepare>,
    snapshot: Option<(Checkpoint, State)>,
}

/// The state machine: which requests were executed, and the checksum of the last op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    executed: BTreeSet<(ClientId, SessionNumber, RequestNumber)>,
    last: u128,
}

/// Writes reach the disk in the order in which they were handed over.
#[derive(Debug)]
enum Write {
    Prepare(Prepare),
    Superblock(Superblock),
    Snapshot(Checkpoint, State),
}

#[derive(Debug)]
struct Alone {
    replica: Replica,
    disk: Disk,
    writes: VecDeque<Write>,
    state: State,
    now: Time,
    /// Every op that was acknowledged to somebody.
    acknowledged: BTreeMap<Op, u128>,
    /// Every op that was ever executed, with the state after it.
    states: BTreeMap<Op, (u128, State)>,
    /// The last reply that each request got.
    replies: BTreeMap<Token, Op>,
    asked: BTreeMap<Token, (ClientId, SessionNumber, RequestNumber)>,
}

impl Alone {
    fn new() -> Self {
        let mut alone = Self {
            replica: Replica::new(CONFIG, Recovered::default()),
            disk: Disk::default(),
            writes: VecDeque::new(),
            state: State::default(),
            now: Time::default(),
            acknowledged: BTreeMap::new(),
            states: BTreeMap::new(),
            replies: BTreeMap::new(),
            asked: BTreeMap::new(),
        };
        alone.carry_out();
        alone
    }

    /// The process is gone, and with it every write that had not reached the disk.
    fn restart(&mut self, clock_back: u64) {
        self.writes.clear();
        let (checkpoint, state) = self.disk.snapshot.clone().unwrap_or_default();
        self.state = state;
        let recovered = Recovered {
            superblock: self.disk.superblock.clone(),
            checkpoint: (checkpoint.op > Op(0)).then_some(checkpoint),
            prepares: self.disk.prepares.clone(),
            ..Recovered::default()
        };
        self.replica = Replica::new(CONFIG, recovered);
        self.now.monotonic = 0;
        self.now.wall.0 = self.now.wall.0.saturating_sub(clock_back);
        self.carry_out();
        assert_eq!(self.replica.status(), Status::Recovering);
    }

    fn handle(&mut self, input: Input) {
        self.now.monotonic += 1;
        self.replica.handle(self.now, input);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.replica.next_effect() {
            match effect {
                Effect::WritePrepare(prepare) => self.writes.push_back(Write::Prepare(prepare)),
                Effect::WriteSuperblock(it) => self.writes.push_back(Write::Superblock(it)),
                Effect::Apply { prepare, token } => self.apply(&prepare, token),
                Effect::Reply { token, op, .. } => {
                    self.replies.insert(token, op);
                }
                Effect::ReadPrepare { .. } => panic!("there is nobody who could ask"),
                Effect::Send { .. } => panic!("there is nobody to send to"),
                Effect::FetchCheckpoint { .. } | Effect::ReplaceState { .. } => {
                    unreachable!("nothing is missing on one replica")
                }
                Effect::Refuse { .. }
                | Effect::Evict { .. }
                | Effect::ViewConfirmed { .. }
                | Effect::StatusChanged
                | Effect::Note(_) => {}
            }
        }
    }

    fn apply(&mut self, prepare: &Prepare, token: Option<Token>) {
        let header = &prepare.header;
        let op = header.op();
        // Committed is durable, here as everywhere.
        assert!(self.disk.prepares.contains(prepare));
        if header.session != 0 {
            let request = (header.client(), header.session(), header.request());
            assert!(self.state.executed.insert(request), "{op} executed twice");
        }
        self.state.last = header.checksum;
        let now = (header.checksum, self.state.clone());
        let before = self.states.insert(op, now.clone());
        // An op that was executed before the restart is the same after it, and leads to the same state.
        assert!(before.is_none_or(|before| before == now));
        if let Some(token) = token {
            self.acknowledged.insert(op, header.checksum);
            self.replies.insert(token, op);
        }
        self.replica.handle(
            self.now,
            Input::Applied {
                op,
                reply: Bytes::from(format!("{op}")),
                ended: Vec::new(),
                registered: true,
            },
        );
    }

    fn finish_write(&mut self) {
        let Some(write) = self.writes.pop_front() else {
            return;
        };
        let input = match write {
            Write::Prepare(prepare) => {
                let (op, checksum) = (prepare.header.op(), prepare.header.checksum);
                self.disk.prepares.push(prepare);
                Input::PrepareWritten { op, checksum }
            }
            Write::Superblock(superblock) => {
                let sequence = superblock.sequence;
                self.disk.superblock = Some(superblock);
                Input::SuperblockWritten { sequence }
            }
            Write::Snapshot(checkpoint, state) => {
                let op = checkpoint.op;
                self.disk.snapshot = Some((checkpoint, state));
                Input::CheckpointWritten { op }
            }
        };
        self.handle(input);
    }

    /// The journal forgets what the superblock on the disk lets go.
    fn recycle(&mut self) {
        let recyclable = self.disk.superblock.as_ref().map(Superblock::recyclable);
        let recyclable = recyclable.unwrap_or_default();
        self.disk
            .prepares
            .retain(|prepare| prepare.header.op() > recyclable);
    }

    fn begin_checkpoint(&mut self) {
        let is_writing = self
            .writes
            .iter()
            .any(|it| matches!(it, Write::Snapshot(..)));
        if !is_writing && self.replica.is_serving() {
            let checkpoint = self.replica.begin_checkpoint();
            let write = Write::Snapshot(checkpoint, self.state.clone());
            self.writes.push_back(write);
        }
    }

    fn request(&mut self, token: u64, origin: Origin) {
        let token = Token(token);
        if let Origin::Session {
            client,
            session,
            request,
        } = origin
        {
            self.asked.insert(token, (client, session, request));
        }
        self.handle(Input::Request(Request {
            token,
            origin,
            operation: 1,
            body: Bytes::from_static(b"body"),
        }));
    }

    /// A client's request: the one after its last executed one, or that one again.
    fn client_request(&mut self, token: u64, pick: u32) {
        let client = ClientId(u128::from(1 + pick % 3));
        let origin = match self.replica.client_sessions().session(client) {
            Some(entry) if !pick.is_multiple_of(16) => Origin::Session {
                client,
                session: entry.session,
                request: RequestNumber(entry.request.0 + u64::from(!pick.is_multiple_of(5))),
            },
            Some(_) | None => Origin::Register { client },
        };
        self.request(token, origin);
    }
}

fn run(steps: &[u32]) -> Alone {
    let mut alone = Alone::new();
    for (token, step) in (1..).zip(steps) {
        let pick = step / 100;
        match step % 100 {
            0..=44 => alone.finish_write(),
            45..=59 => alone.request(token, Origin::Internal),
            60..=84 => alone.client_request(token, pick),
            85..=89 => alone.begin_checkpoint(),
            90..=93 => alone.recycle(),
            94..=97 => alone.restart(u64::from(pick % 1_000)),
            _ => alone.now.wall = Timestamp(alone.now.wall.0 + u64::from(pick % 100)),
        }
    }
    // In the end it comes up, and everything that it took is done.
    alone.restart(0);
    while !alone.writes.is_empty() {
        alone.finish_write();
    }
    alone
}

proptest! {
    #[test]
    fn nothing_acknowledged_is_lost_or_done_twice(steps in vec(any::<u32>(), 50..600)) {
        let alone = run(&steps);
        prop_assert!(alone.replica.is_serving());
        prop_assert_eq!(alone.replica.commit_min(), alone.replica.op());
        for (op, checksum) in &alone.acknowledged {
            prop_assert!(*op <= alone.replica.commit_min());
            prop_assert_eq!(alone.states[op].0, *checksum);
        }
        // A request that was answered more than once was answered by one and the same op.
        let mut ops = BTreeMap::new();
        for (token, op) in &alone.replies {
            if let Some(request) = alone.asked.get(token) {
                prop_assert_eq!(*ops.entry(*request).or_insert(*op), *op);
            }
        }
    }
}

/// The steps do reach what they are for.
#[test]
fn runs_reach_what_they_are_for() {
    let mut state: u32 = 7;
    let steps: Vec<u32> = (0..5_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        })
        .collect();
    let alone = run(&steps);
    assert!(alone.acknowledged.len() > 500);
    assert!(alone.replica.view().0 > 50);
    assert!(alone.replica.checkpoint_op() > Op(100));
    assert!(alone.disk.prepares[0].header.op() > Op(100));
    // Some replies came from the client table: more tokens than ops.
    let answered: BTreeSet<_> = alone.replies.values().collect();
    assert!(alone.replies.len() > answered.len());
}
