//! The replicas of one group with their disks, state machines and links, and what must hold after every
//! step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use vsr::{
    CLIENTS_MAX, Config, Effect, Ignore, Input, Message, Note, Origin, Prepare, Refusal, Replica,
    Request, Status, Token, quorum,
};
use wire::{ClusterId, ConsensusGroup, Op, ReplicaId, Time, Timestamp, View};

use crate::{
    disk::{Disk, Write},
    random::Random,
};

/// What happened, for the floors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) views_entered: u64,
    pub(crate) restarts: u64,
    pub(crate) votes_resumed: u64,
    pub(crate) committed: u64,
    pub(crate) inherited: u64,
    pub(crate) dropped: u64,
    pub(crate) read: u64,
    pub(crate) abdicated: u64,
    pub(crate) confirmed: u64,
    pub(crate) unknown: u64,
    pub(crate) left_behind: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.views_entered += other.views_entered;
        self.restarts += other.restarts;
        self.votes_resumed += other.votes_resumed;
        self.committed += other.committed;
        self.inherited += other.inherited;
        self.dropped += other.dropped;
        self.read += other.read;
        self.abdicated += other.abdicated;
        self.confirmed += other.confirmed;
        self.unknown += other.unknown;
        self.left_behind += other.left_behind;
    }
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) replica: Replica,
    applies: VecDeque<(Prepare, Option<Token>)>,
    /// The state: the checksums of all ops executed, from the first.
    state: Vec<u128>,
    /// Until when, in monotonic nanoseconds, it does nothing (SIGSTOP).
    pub(crate) paused_until: u64,
    /// Nanoseconds by which its clocks are ahead of the story's.
    clock: u64,
    /// The others have recycled what it asked for: only a checkpoint of theirs could help.
    is_left_behind: bool,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) disk: Disk,
    pub(crate) process: Option<Process>,
    incarnations: u128,
    /// The highest view that it was seen in.
    view: View,
}

/// A message on its way.
#[derive(Clone, Debug)]
struct Flight {
    from: ReplicaId,
    to: ReplicaId,
    /// When it arrives, if its link is up then.
    at: u64,
    message: Message,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) replica_count: u8,
    pub(crate) random: Random,
    pub(crate) members: Vec<Member>,
    flights: Vec<Flight>,
    /// Links that lose everything, by sender and receiver.
    pub(crate) cut: BTreeSet<(u8, u8)>,
    /// Percent of messages that are lost, and that come twice.
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    /// Nanoseconds that a message takes at most.
    pub(crate) delay_max: u64,
    pub(crate) now: u64,
    /// What is committed, by op: whichever replica executed it first.
    committed: BTreeMap<Op, u128>,
    /// The requests that were answered, with their op.
    pub(crate) answered: BTreeMap<Token, Op>,
    refused: BTreeMap<Token, Refusal>,
    next_token: u64,
    /// Confirmations asked for, with what was committed then.
    confirming: BTreeMap<Token, Op>,
    pub(crate) counts: Counts,
    is_traced: bool,
}

const CLUSTER: ClusterId = ClusterId(7);

impl Group {
    pub(crate) fn new(replica_count: u8, random: Random) -> Self {
        let member = |_| Member {
            disk: Disk::default(),
            process: None,
            incarnations: 0,
            view: View(0),
        };
        let mut group = Self {
            replica_count,
            random,
            members: (0..replica_count).map(member).collect(),
            flights: Vec::new(),
            cut: BTreeSet::new(),
            loss: 0,
            repeats: 0,
            delay_max: 3_000_000,
            now: 1_000_000_000,
            committed: BTreeMap::new(),
            answered: BTreeMap::new(),
            refused: BTreeMap::new(),
            next_token: 1,
            confirming: BTreeMap::new(),
            counts: Counts::default(),
            is_traced: std::env::var("VSR_TRACE").is_ok(),
        };
        for replica in 0..replica_count {
            group.start(replica);
        }
        group
    }

    pub(crate) fn is_up(&self, replica: u8) -> bool {
        self.members[usize::from(replica)].process.is_some()
    }

    pub(crate) fn process(&self, replica: u8) -> Option<&Process> {
        self.members[usize::from(replica)].process.as_ref()
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{:>8} us  {}", self.now / 1_000, what());
        }
    }

    pub(crate) fn start(&mut self, replica: u8) {
        let config = Config {
            cluster: CLUSTER,
            group: ConsensusGroup::METADATA,
            replica: ReplicaId(replica),
            replica_count: self.replica_count,
            clients_max: CLIENTS_MAX,
        };
        let clock = self.random.below(1_000_000_000);
        let member = &mut self.members[usize::from(replica)];
        assert!(member.process.is_none());
        member.incarnations += 1;
        let recovered = member.disk.recovered(member.incarnations);
        let state = member.disk.checkpoint.clone();
        let process = Process {
            replica: Replica::new(config, recovered),
            applies: VecDeque::new(),
            state: state.map_or_else(Vec::new, |(_, ops)| ops),
            paused_until: 0,
            clock,
            is_left_behind: false,
        };
        let has_resumed = process.replica.status() == Status::ViewChange;
        member.process = Some(process);
        self.counts.votes_resumed += u64::from(has_resumed);
        self.trace(|| format!("{replica} starts"));
        self.carry_out(replica);
    }

    pub(crate) fn crash(&mut self, replica: u8) {
        let member = &mut self.members[usize::from(replica)];
        member.process = None;
        member.disk.crash(&mut self.random);
        self.counts.restarts += 1;
        self.trace(|| format!("{replica} is killed"));
    }

    pub(crate) fn handle(&mut self, replica: u8, input: Input) {
        self.trace(|| format!("{replica} <- {}", short(&input)));
        let now = self.now;
        let member = &mut self.members[usize::from(replica)];
        let Some(process) = &mut member.process else {
            return;
        };
        let time = Time {
            monotonic: now + process.clock,
            wall: Timestamp(1_000_000 + now / 1_000 + process.clock / 1_000),
        };
        process.replica.handle(time, input);
        self.carry_out(replica);
        self.check(replica);
    }

    fn carry_out(&mut self, replica: u8) {
        while let Some(effect) = self.members[usize::from(replica)]
            .process
            .as_mut()
            .and_then(|process| process.replica.next_effect())
        {
            self.carry_out_one(replica, effect);
        }
    }

    fn carry_out_one(&mut self, replica: u8, effect: Effect) {
        let member = &mut self.members[usize::from(replica)];
        match effect {
            Effect::Send { to, message } => self.send(ReplicaId(replica), to, message),
            Effect::WritePrepare(prepare) => member.disk.write(Write::Prepare(prepare)),
            Effect::WriteSuperblock(superblock) => {
                member.disk.write(Write::Superblock(superblock));
            }
            Effect::ReadPrepare { op, checksum, to } => {
                self.counts.read += 1;
                let prepare = member.disk.read(op, checksum);
                self.handle(replica, Input::PrepareRead { op, to, prepare });
            }
            Effect::Apply { prepare, token } => {
                if let Some(process) = &mut member.process {
                    process.applies.push_back((prepare, token));
                }
            }
            Effect::Reply { token, op, .. } => self.answer(token, op),
            Effect::Refuse { token, reason } => {
                self.counts.unknown += u64::from(reason == Refusal::Unknown);
                self.confirming.remove(&token);
                self.refused.insert(token, reason);
            }
            Effect::ViewConfirmed { token } => self.confirm(replica, token),
            Effect::Note(note) => self.count(replica, note),
            Effect::Evict { .. } | Effect::StatusChanged => {}
        }
    }

    fn count(&mut self, replica: u8, note: Note) {
        if !matches!(note, Note::Ignored(_)) {
            self.trace(|| format!("{replica}    {note:?}"));
        }
        match note {
            Note::ViewEntered { view } => {
                self.counts.views_entered += u64::from(view > View(0));
                self.count_inherited(replica);
            }
            Note::Abdicated { .. } => self.counts.abdicated += 1,
            Note::Dropped { .. } => self.counts.dropped += 1,
            Note::Ignored(Ignore::StateTransferUnsupported) => {
                if let Some(process) = &mut self.members[usize::from(replica)].process {
                    process.is_left_behind = true;
                }
            }
            Note::OutOfService(reason) => panic!("replica {replica} is out of service: {reason}"),
            _ => {}
        }
    }

    fn count_inherited(&mut self, replica: u8) {
        let leads = self.process(replica).map(|it| &it.replica);
        if let Some(leader) = leads.filter(|it| it.is_primary()) {
            self.counts.inherited += leader.op().0 - leader.commit_max().0;
        }
    }

    fn send(&mut self, from: ReplicaId, to: ReplicaId, message: Message) {
        let copies = if self.random.percent(self.loss) {
            0
        } else {
            1 + u64::from(self.random.percent(self.repeats))
        };
        for _ in 0..copies {
            let at = self.now + 20_000 + self.random.below(self.delay_max);
            let message = message.clone();
            self.flights.push(Flight {
                from,
                to,
                at,
                message,
            });
        }
    }

    fn answer(&mut self, token: Token, op: Op) {
        let before = self.answered.insert(token, op);
        assert!(before.is_none_or(|it| it == op), "{token:?} has two ops");
    }

    /// A read that was confirmed sees whatever was acknowledged when it was asked for.
    fn confirm(&mut self, replica: u8, token: Token) {
        let Some(op) = self.confirming.remove(&token) else {
            panic!("{token:?} was confirmed twice, or after it was refused");
        };
        let process = self.process(replica).expect("it has just spoken");
        assert!(
            process.replica.op() >= op,
            "replica {replica} confirmed a view that is over"
        );
        self.counts.confirmed += 1;
    }

    /// A request to whoever thinks that it leads.
    pub(crate) fn request(&mut self, replica: u8) {
        let token = Token(self.next_token);
        self.next_token += 1;
        let size = 1 + self.random.index(40);
        let request = Request {
            token,
            origin: Origin::Internal,
            operation: 1,
            body: Bytes::from(vec![7; size]),
        };
        self.handle(replica, Input::Request(request));
    }

    pub(crate) fn ask_confirmation(&mut self, replica: u8) {
        let token = Token(self.next_token);
        self.next_token += 1;
        let acknowledged = self.answered.values().max().copied().unwrap_or(Op(0));
        self.confirming.insert(token, acknowledged);
        self.handle(replica, Input::ConfirmView { token });
    }

    pub(crate) fn checkpoint(&mut self, replica: u8) {
        let member = &mut self.members[usize::from(replica)];
        let Some(process) = &mut member.process else {
            return;
        };
        if process.replica.status() != Status::Normal || !process.applies.is_empty() {
            return;
        }
        let checkpoint = process.replica.begin_checkpoint();
        let state = process.state.clone();
        assert_eq!(checkpoint.op.0, state.len() as u64);
        member.disk.write(Write::Checkpoint(checkpoint, state));
    }

    /// One step of one replica's disk or state machine. False when it has nothing to do.
    pub(crate) fn work(&mut self, replica: u8) -> bool {
        if self.is_paused(replica) {
            return false;
        }
        let member = &mut self.members[usize::from(replica)];
        let Some(process) = &mut member.process else {
            return false;
        };
        let applies = !process.applies.is_empty();
        if applies && (!member.disk.is_busy() || self.random.percent(50)) {
            self.apply(replica);
            return true;
        }
        match member.disk.finish_one(&mut self.random) {
            Some(input) => {
                self.handle(replica, input);
                true
            }
            None => false,
        }
    }

    fn apply(&mut self, replica: u8) {
        let member = &mut self.members[usize::from(replica)];
        let process = member.process.as_mut().expect("it has something to apply");
        let (prepare, token) = process.applies.pop_front().expect("the same");
        let (op, checksum) = (prepare.header.op(), prepare.header.checksum);
        process.state.push(checksum);
        assert_eq!(
            process.state.len() as u64,
            op.0,
            "ops are executed in order, each once"
        );
        let first = self.committed.entry(op).or_insert_with(|| {
            self.counts.committed += 1;
            checksum
        });
        assert_eq!(
            *first, checksum,
            "replica {replica} executed another op {op:?}"
        );
        if let Some(token) = token {
            self.answer(token, op);
        }
        let applied = Input::Applied {
            op,
            reply: Bytes::new(),
            ended: Vec::new(),
            registered: false,
        };
        self.handle(replica, applied);
    }

    fn is_paused(&self, replica: u8) -> bool {
        self.process(replica)
            .is_some_and(|process| process.paused_until > self.now)
    }

    /// Delivers what is due, and ticks.
    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        let ticks = (self.now + nanoseconds) / 10_000_000 > self.now / 10_000_000;
        self.now += nanoseconds;
        let mut index = 0;
        while index < self.flights.len() {
            let flight = &self.flights[index];
            if flight.at > self.now || self.is_paused(flight.to.0) {
                index += 1;
                continue;
            }
            let flight = self.flights.swap_remove(index);
            let is_cut = self.cut.contains(&(flight.from.0, flight.to.0));
            if self.is_up(flight.to.0) && !is_cut {
                self.handle(flight.to.0, Input::Message(flight.message));
            }
        }
        for replica in 0..self.replica_count {
            if ticks && !self.is_paused(replica) {
                self.handle(replica, Input::Tick);
            }
        }
    }

    fn check(&mut self, replica: u8) {
        let member = &mut self.members[usize::from(replica)];
        let Some(process) = &member.process else {
            return;
        };
        let view = process.replica.view();
        if process.replica.status() == Status::Normal {
            assert!(view >= member.view, "V2: the view of {replica} fell");
            member.view = view;
        }
        if process.replica.is_serving() {
            // V8: whoever serves has executed all that was ever acknowledged before its view; a deposed
            // primary serves in a view that is over, and commits nothing.
            let is_newest = self.members.iter().all(|other| other.view <= view);
            let acknowledged = self.answered.values().max().copied().unwrap_or(Op(0));
            let process = self.process(replica).expect("it serves");
            assert!(
                !is_newest || process.replica.op() >= acknowledged,
                "replica {replica} serves without op {acknowledged:?}"
            );
        }
    }

    /// Who serves, if somebody does; of several the one in the highest view.
    pub(crate) fn leader(&self) -> Option<u8> {
        let serving = (0..self.replica_count).filter(|replica| {
            self.process(*replica)
                .is_some_and(|process| process.replica.is_serving())
        });
        serving.max_by_key(|replica| self.process(*replica).map(|it| it.replica.view()))
    }

    /// Those that can follow: nobody whose missing prepares are gone.
    fn followers(&self) -> Vec<&Process> {
        let processes = self.members.iter().flat_map(|member| &member.process);
        processes.filter(|it| !it.is_left_behind).collect()
    }

    /// Everything acknowledged is in every state, and all states are the same.
    pub(crate) fn assert_whole(&mut self) {
        let followers = self.followers();
        let first = &followers[0].state;
        for other in &followers {
            assert_eq!(&other.state, first);
        }
        let left_behind = u64::from(self.replica_count) - followers.len() as u64;
        for (token, op) in &self.answered {
            assert!(op.0 <= first.len() as u64, "{token:?} was lost with {op:?}");
        }
        self.counts.left_behind += left_behind;
    }

    /// Whether all replicas are in normal status in one view with the same ops executed.
    pub(crate) fn is_at_rest(&self) -> bool {
        let all: Vec<_> = self.followers().iter().map(|it| &it.replica).collect();
        let first = all[0];
        all.len() >= usize::from(quorum(self.replica_count))
            && all.iter().all(|it| {
                it.status() == Status::Normal
                    && it.view() == first.view()
                    && it.commit_min() == first.op()
                    && it.op() == first.op()
            })
    }

    pub(crate) fn states(&self) -> String {
        let member = |replica: u8| {
            self.process(replica).map_or_else(
                || format!("{replica}: down"),
                |it| {
                    let it = &it.replica;
                    let (status, view, op) = (it.status(), it.view(), it.op());
                    let (max, min) = (it.commit_max(), it.commit_min());
                    format!("{replica}: {status:?} {view:?} {op:?} max {max:?} min {min:?}")
                },
            )
        };
        (0..self.replica_count)
            .map(member)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn short(input: &Input) -> String {
    let text = format!("{input:?}");
    text.chars().take(400).collect()
}
