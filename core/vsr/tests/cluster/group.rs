//! The replicas of one group with their disks, state machines and links, and what must hold after every
//! step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use vsr::{
    Config, Effect, Input, Message, Note, Origin, Prepare, Refusal, Replica, Status, Token, quorum,
};
use wire::{
    ClientId, ClusterId, ConsensusGroup, Op, ReplicaId, SessionNumber, Time, Timestamp, View,
};

use crate::{
    clients::{self, Clients},
    disk::{Disk, Write},
    random::Random,
    transfer::Fetch,
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
    pub(crate) offered: u64,
    pub(crate) confirmed: u64,
    pub(crate) unknown: u64,
    pub(crate) requests_executed: u64,
    pub(crate) requests_answered_again: u64,
    pub(crate) requests_joined: u64,
    pub(crate) sessions_evicted: u64,
    pub(crate) requests_skipped: u64,
    pub(crate) elsewhere_first: u64,
    pub(crate) clocks_back: u64,
    pub(crate) endured: u64,
    pub(crate) heads_lost: u64,
    pub(crate) fetches: u64,
    pub(crate) fetches_given_up: u64,
    pub(crate) transfers: u64,
    pub(crate) transfers_elsewhere: u64,
    pub(crate) rotten: u64,
    pub(crate) damaged: u64,
    pub(crate) repaired: u64,
    pub(crate) truncated: u64,
    pub(crate) undecided: u64,
    pub(crate) wiped: u64,
    pub(crate) rejoined: u64,
    pub(crate) checkpoints_lost: u64,
    pub(crate) bridged: u64,
    pub(crate) not_bridged: u64,
}

impl Process {
    /// Whether it has something to execute.
    pub(crate) fn has_applies(&self) -> bool {
        !self.applies.is_empty()
    }

    /// How many ops it has executed.
    pub(crate) fn executed(&self) -> u64 {
        self.state.len() as u64
    }
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
        self.offered += other.offered;
        self.confirmed += other.confirmed;
        self.unknown += other.unknown;
        self.requests_executed += other.requests_executed;
        self.requests_answered_again += other.requests_answered_again;
        self.requests_joined += other.requests_joined;
        self.sessions_evicted += other.sessions_evicted;
        self.requests_skipped += other.requests_skipped;
        self.elsewhere_first += other.elsewhere_first;
        self.clocks_back += other.clocks_back;
        self.endured += other.endured;
        self.heads_lost += other.heads_lost;
        self.fetches += other.fetches;
        self.fetches_given_up += other.fetches_given_up;
        self.transfers += other.transfers;
        self.transfers_elsewhere += other.transfers_elsewhere;
        self.rotten += other.rotten;
        self.damaged += other.damaged;
        self.repaired += other.repaired;
        self.truncated += other.truncated;
        self.undecided += other.undecided;
        self.wiped += other.wiped;
        self.rejoined += other.rejoined;
        self.checkpoints_lost += other.checkpoints_lost;
        self.bridged += other.bridged;
        self.not_bridged += other.not_bridged;
    }
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) replica: Replica,
    applies: VecDeque<(Prepare, Option<Token>)>,
    /// The state: the checksums of all ops executed, from the first; [`SKIPPED`] of those that were not.
    state: Vec<u128>,
    /// Until when, in monotonic nanoseconds, it does nothing (SIGSTOP).
    pub(crate) paused_until: u64,
    /// Nanoseconds by which its clocks are ahead of the story's.
    clock: u64,
    /// Microseconds by which its wall clock is ahead of that.
    pub(crate) wall: u64,
    /// A checkpoint that it takes over.
    pub(crate) fetch: Option<Fetch>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) disk: Disk,
    pub(crate) process: Option<Process>,
    incarnations: u128,
    /// The highest view that it was seen in.
    pub(crate) view: View,
}

/// In place of the checksum of a committed op that was not executed.
const SKIPPED: u128 = 0;

/// What is known of a committed op.
#[derive(Clone, Copy, Debug)]
struct Committed {
    checksum: u128,
    timestamp: Timestamp,
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
    group: ConsensusGroup,
    pub(crate) random: Random,
    pub(crate) members: Vec<Member>,
    flights: Vec<Flight>,
    /// The last start_view that was sent to each replica: it may come again at any time.
    start_views: BTreeMap<ReplicaId, Flight>,
    /// The last vote of each replica, likewise.
    votes: BTreeMap<ReplicaId, Flight>,
    /// Links that lose everything, by sender and receiver.
    pub(crate) cut: BTreeSet<(u8, u8)>,
    /// Replicas whose nodes would rather have others lead, restarts or not.
    reluctant: BTreeSet<u8>,
    /// Percent of messages that are lost, and that come twice.
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    /// Nanoseconds that a message takes at most.
    pub(crate) delay_max: u64,
    /// Percent of messages that take much longer.
    pub(crate) tardy: u64,
    /// Whether faults take the last prepares from disks.
    pub(crate) loses_heads: bool,
    /// Whether prepares on disks rot.
    pub(crate) rots: bool,
    /// Whether disks are lost.
    pub(crate) loses_disks: bool,
    /// Whether checkpoints are lost.
    pub(crate) loses_checkpoints: bool,
    pub(crate) now: u64,
    /// What is committed, by op: whichever replica executed it first.
    committed: BTreeMap<Op, Committed>,
    pub(crate) clients: Clients,
    /// The requests that were answered, with their op.
    pub(crate) answered: BTreeMap<Token, Op>,
    /// The highest of these ops.
    acknowledged: Op,
    next_token: u64,
    /// Confirmations asked for, with what was committed then.
    confirming: BTreeMap<Token, Op>,
    pub(crate) counts: Counts,
    is_traced: bool,
}

const CLUSTER: ClusterId = ClusterId(7);

/// Nanoseconds that a tardy message takes at most.
const TARDY: u64 = 1_500_000_000;

impl Group {
    pub(crate) fn new(replica_count: u8, mut random: Random) -> Self {
        let member = |_| Member {
            disk: Disk::default(),
            process: None,
            incarnations: 0,
            view: View(0),
        };
        // Of data groups the first primary is not always replica 0, nor the second replica 1.
        let group = [0, 0, 1 + random.below(20)][random.index(3)];
        let group = ConsensusGroup(u16::try_from(group).expect("small"));
        let first = vsr::primary_of(group, View(0), replica_count);
        let mut group = Self {
            replica_count,
            group,
            random,
            members: (0..replica_count).map(member).collect(),
            flights: Vec::new(),
            start_views: BTreeMap::new(),
            votes: BTreeMap::new(),
            cut: BTreeSet::new(),
            reluctant: BTreeSet::new(),
            loss: 0,
            repeats: 0,
            delay_max: 3_000_000,
            tardy: 0,
            loses_heads: false,
            rots: false,
            loses_disks: false,
            loses_checkpoints: false,
            now: 1_000_000_000,
            committed: BTreeMap::new(),
            clients: Clients::new(),
            answered: BTreeMap::new(),
            acknowledged: Op(0),
            next_token: 1,
            confirming: BTreeMap::new(),
            counts: Counts::default(),
            is_traced: std::env::var("VSR_TRACE").is_ok(),
        };
        group.counts.elsewhere_first += u64::from(first != ReplicaId(0));
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

    /// The view in which a replica is in normal status.
    pub(crate) fn normal_view(&self, replica: u8) -> Option<View> {
        let replica = &self.process(replica)?.replica;
        (replica.status() == Status::Normal).then_some(replica.view())
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{:>8} us  {}", self.now / 1_000, what());
        }
    }

    pub(crate) fn start(&mut self, replica: u8) {
        let config = Config {
            cluster: CLUSTER,
            group: self.group,
            replica: ReplicaId(replica),
            replica_count: self.replica_count,
            clients_max: clients::SESSIONS_MAX,
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
            wall: 0,
            fetch: None,
        };
        let has_resumed = process.replica.status() == Status::ViewChange;
        member.process = Some(process);
        self.counts.votes_resumed += u64::from(has_resumed);
        self.trace(|| format!("{replica} starts"));
        self.carry_out(replica);
        if self.reluctant.contains(&replica) {
            self.handle(replica, Input::Reluctant(true));
        }
    }

    /// A node would rather have others lead from now on, or does not mind.
    pub(crate) fn set_reluctant(&mut self, replica: u8, is_reluctant: bool) {
        match is_reluctant {
            true => self.reluctant.insert(replica),
            false => self.reluctant.remove(&replica),
        };
        self.handle(replica, Input::Reluctant(is_reluctant));
    }

    /// Whether whoever leads is willing to, or nobody is.
    pub(crate) fn is_led_willingly(&self) -> bool {
        let all_reluctant = self.reluctant.len() == usize::from(self.replica_count);
        let leader = self.leader();
        all_reluctant || leader.is_some_and(|it| !self.reluctant.contains(&it))
    }

    pub(crate) fn crash(&mut self, replica: u8) {
        let member = &mut self.members[usize::from(replica)];
        member.process = None;
        member.disk.crash(&mut self.random);
        self.counts.restarts += 1;
        self.trace(|| format!("{replica} is killed"));
    }

    /// It is killed, and a fault takes the last prepares from its disk; never on so many at once that what
    /// was acknowledged could be nowhere else, or that no quorum is left to say what it was.
    pub(crate) fn lose_head(&mut self, replica: u8) {
        // A disk without a superblock is a fresh one.
        let is_fresh = self.members[usize::from(replica)].disk.is_fresh();
        if is_fresh || self.uncertain_heads() + 1 > usize::from(self.replica_count / 2) {
            return;
        }
        if self.is_up(replica) {
            self.crash(replica);
        }
        let disk = &mut self.members[usize::from(replica)].disk;
        disk.lose_head(&mut self.random);
        self.counts.heads_lost += 1;
        self.trace(|| format!("{replica} has lost its head"));
    }

    /// It is killed, and some of its prepares rot; never so that nobody could say what was acknowledged.
    pub(crate) fn rot(&mut self, replica: u8) {
        if self.members[usize::from(replica)].disk.is_fresh() {
            return;
        }
        if self.is_up(replica) {
            self.crash(replica);
        }
        let is_at_end = self.random.percent(60);
        for _ in 0..=self.random.index(4) {
            let needed = self.members[usize::from(replica)].disk.needed();
            let from = if is_at_end {
                needed.len().saturating_sub(3)
            } else {
                0
            };
            let Some(last) = needed[from..].len().checked_sub(1) else {
                return;
            };
            let index = needed[from + self.random.index(last + 1)];
            self.rot_one(replica, index);
        }
    }

    /// Prepares under one number rot on fewer replicas than make a quorum: whatever was acknowledged has a copy
    /// then, and of what has none enough others can say that they never had it.
    fn rot_one(&mut self, replica: u8, index: usize) {
        let disk = &self.members[usize::from(replica)].disk;
        let lost = disk.loss_of(index, &mut self.random);
        let others = (0..self.replica_count).filter(|it| *it != replica);
        let losers = others.filter(|it| {
            let disk = &self.members[usize::from(*it)].disk;
            disk.has_lost_beside(&lost)
        });
        if losers.count() + 1 >= usize::from(quorum(self.replica_count)) {
            return;
        }
        let disk = &mut self.members[usize::from(replica)].disk;
        disk.rot(index, lost);
        self.counts.rotten += 1;
        self.trace(|| format!("{replica} has lost {lost:?}"));
    }

    pub(crate) fn uncertain_heads(&self) -> usize {
        let members = self.members.iter();
        members.filter(|it| it.disk.is_head_uncertain).count()
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
            wall: Timestamp(now / 1_000 + process.clock / 1_000 + process.wall),
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
                member.disk.write(Write::Superblock(superblock.clone()));
                self.check_recyclable(&superblock);
            }
            Effect::FetchCheckpoint { from, .. } => self.begin_fetch(replica, from),
            Effect::ReplaceState { op } => self.replace_state(replica, op),
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
            Effect::Reply { token, op, body } => {
                assert_eq!(body, clients::reply_of(op));
                self.counts.requests_answered_again += 1;
                self.answer(token, op);
            }
            Effect::Refuse { token, reason } => self.refuse(token, reason),
            Effect::ViewConfirmed { token } => self.confirm(replica, token),
            Effect::Note(note) => self.count(replica, note),
            Effect::Evict { .. } => self.counts.sessions_evicted += 1,
            Effect::StatusChanged => {}
        }
    }

    fn refuse(&mut self, token: Token, reason: Refusal) {
        self.counts.unknown += u64::from(reason == Refusal::Unknown);
        self.counts.requests_joined += u64::from(reason == Refusal::Superseded);
        self.confirming.remove(&token);
        let random = self.random.next();
        self.clients.refuse(token, reason, self.now, random);
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
            Note::LeadOffered { .. } => self.counts.offered += 1,
            Note::Dropped { .. } => self.counts.dropped += 1,
            Note::Damaged { .. } => self.counts.damaged += 1,
            Note::Repaired { .. } => self.counts.repaired += 1,
            Note::Truncated { .. } => self.counts.truncated += 1,
            Note::Undecided { .. } => self.counts.undecided += 1,
            Note::Skipped { op } => {
                self.counts.requests_skipped += 1;
                self.execute(replica, op, SKIPPED, Timestamp(0));
            }
            Note::Barrier { op, .. } => self.execute(replica, op, SKIPPED, Timestamp(0)),
            Note::Rejoined { .. } => self.take_back(replica),
            Note::CheckpointLost { is_bridged, .. } => {
                self.counts.bridged += u64::from(is_bridged);
                self.counts.not_bridged += u64::from(!is_bridged);
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

    /// A start_view of the past comes again.
    pub(crate) fn repeat_start_view(&mut self, replica: u8) {
        let sent = self.start_views.get(&ReplicaId(replica)).cloned();
        self.flights.extend(sent.map(|sent| Flight {
            at: self.now,
            ..sent
        }));
    }

    /// So does a vote.
    pub(crate) fn repeat_vote(&mut self, replica: ReplicaId) {
        let sent = self.votes.get(&replica).cloned();
        let at = self.now + self.random.below(TARDY);
        self.flights.extend(sent.map(|sent| Flight { at, ..sent }));
    }

    fn send(&mut self, from: ReplicaId, to: ReplicaId, message: Message) {
        let copies = if self.random.percent(self.loss) {
            0
        } else {
            1 + u64::from(self.random.percent(self.repeats))
        };
        for _ in 0..copies {
            let is_tardy = self.random.percent(self.tardy);
            let delay_max = if is_tardy { TARDY } else { self.delay_max };
            let at = self.now + 20_000 + self.random.below(delay_max);
            let flight = Flight {
                from,
                to,
                at,
                message: message.clone(),
            };
            if matches!(message, Message::StartView(_)) {
                self.start_views.insert(to, flight.clone());
            }
            if matches!(message, Message::DoViewChange(_)) {
                self.votes.insert(from, flight.clone());
            }
            self.flights.push(flight);
        }
    }

    fn answer(&mut self, token: Token, op: Op) {
        self.acknowledged = self.acknowledged.max(op);
        let before = self.answered.insert(token, op);
        assert!(before.is_none_or(|it| it == op), "{token:?} has two ops");
        let random = self.random.next();
        self.clients.answer(token, op, random);
    }

    /// A read that was confirmed sees whatever was acknowledged when it was asked for.
    fn confirm(&mut self, replica: u8, token: Token) {
        let Some(op) = self.confirming.remove(&token) else {
            panic!("{token:?} was confirmed twice, or after it was refused");
        };
        let process = self.process(replica).expect("it has just spoken");
        assert!(
            process.state.len() as u64 >= op.0,
            "replica {replica} confirmed a view that is over, or that it has not caught up with (V8)"
        );
        self.counts.confirmed += 1;
    }

    /// A request to whoever thinks that it leads.
    pub(crate) fn request(&mut self, replica: u8) {
        let token = self.next_token();
        self.ask(replica, token, Origin::Internal, 1);
    }

    pub(crate) const fn next_token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    pub(crate) fn ask_confirmation(&mut self, replica: u8) {
        let token = self.next_token();
        self.confirming.insert(token, self.acknowledged);
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
        let slowness = member.disk.slowness;
        if member.disk.stalled_until > self.now || self.random.percent(slowness) {
            return false;
        }
        match member.disk.finish_one(&mut self.random) {
            Some(Input::CheckpointFetched(checkpoint)) => {
                self.hand_in(replica, checkpoint);
                true
            }
            Some(input) => {
                self.handle(replica, input);
                true
            }
            None => false,
        }
    }

    pub(crate) fn apply(&mut self, replica: u8) {
        let member = &mut self.members[usize::from(replica)];
        let process = member.process.as_mut().expect("it has something to apply");
        let (prepare, token) = process.applies.pop_front().expect("the same");
        let header = prepare.header;
        let op = header.op();
        self.execute(replica, op, header.checksum, header.timestamp());
        let is_asked = header.client() != ClientId(0);
        let is_register = is_asked && header.session() == SessionNumber(0);
        if is_asked && !is_register {
            self.counts.requests_executed += 1;
            let key = (header.client(), header.session(), header.request());
            self.clients.execute(key, op);
        }
        if let Some(token) = token {
            self.answer(token, op);
        }
        let is_logout = is_asked && header.operation == clients::LOGOUT;
        let applied = Input::Applied {
            op,
            reply: clients::reply_of(op),
            ended: is_logout.then(|| header.client()).into_iter().collect(),
            registered: is_register,
        };
        self.handle(replica, applied);
    }

    /// The state is that of the checkpoint that was fetched.
    fn replace_state(&mut self, replica: u8, op: Op) {
        let member = &mut self.members[usize::from(replica)];
        let process = member.process.as_mut().expect("it has just spoken");
        assert!(process.applies.is_empty());
        let (checkpoint, state) = member.disk.checkpoint.clone().expect("it was fetched");
        assert_eq!(checkpoint.op, op);
        assert!(op > Op(process.state.len() as u64), "states do not go back");
        process.state = state;
        self.counts.transfers += 1;
        for (op, checksum) in (1..).map(Op).zip(&process.state) {
            let first = self.committed.get(&op);
            assert_eq!(first.map(|it| it.checksum), Some(*checksum), "of {op:?}");
        }
    }

    /// A replica has come to `op`; every other one must find the same there.
    fn execute(&mut self, replica: u8, op: Op, checksum: u128, timestamp: Timestamp) {
        let member = &mut self.members[usize::from(replica)];
        let process = member.process.as_mut().expect("it has just spoken");
        process.state.push(checksum);
        assert_eq!(
            process.state.len() as u64,
            op.0,
            "ops are executed in order, each once"
        );
        let here = Committed {
            checksum,
            timestamp,
        };
        let first = *self.committed.entry(op).or_insert_with(|| {
            self.counts.committed += 1;
            here
        });
        assert_eq!(
            first.checksum, checksum,
            "replica {replica} executed another op {op:?}"
        );
        let before = self.committed.range(..op).next_back();
        assert!(
            checksum == SKIPPED || before.is_none_or(|(_, it)| it.timestamp < timestamp),
            "V16: {op:?} is not later than the op before it"
        );
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
            member.disk.is_head_uncertain = false;
            member.disk.is_lost = false;
        }
        if process.replica.is_serving() {
            // V8: whoever serves has executed all that was ever acknowledged before its view; a deposed
            // primary serves in a view that is over, and commits nothing.
            let is_newest = self.members.iter().all(|other| other.view <= view);
            let acknowledged = self.acknowledged;
            let process = self.process(replica).expect("it serves");
            assert!(
                !is_newest || process.replica.commit_min() >= acknowledged,
                "V8: replica {replica} serves without op {acknowledged:?}"
            );
        }
    }

    /// All that believe that they lead: those that are deposed do not know it yet.
    pub(crate) fn leaders(&self) -> Vec<u8> {
        let serves = |replica: &u8| {
            let process = self.process(*replica);
            process.is_some_and(|process| process.replica.is_serving())
        };
        (0..self.replica_count).filter(serves).collect()
    }

    /// Who serves, if somebody does; of several the one in the highest view.
    pub(crate) fn leader(&self) -> Option<u8> {
        let serving = self.leaders().into_iter();
        serving.max_by_key(|replica| self.process(*replica).map(|it| it.replica.view()))
    }

    fn processes(&self) -> Vec<&Process> {
        self.members
            .iter()
            .flat_map(|member| &member.process)
            .collect()
    }

    /// Everything acknowledged is in every state, and all states are the same.
    pub(crate) fn assert_whole(&self) {
        let processes = self.processes();
        let first = &processes[0].state;
        for other in &processes {
            assert_eq!(&other.state, first);
            let sessions = other.replica.client_sessions();
            assert_eq!(sessions, processes[0].replica.client_sessions(), "V14");
        }
        for (token, op) in &self.answered {
            assert!(op.0 <= first.len() as u64, "{token:?} was lost with {op:?}");
        }
    }

    /// Whether all replicas are in normal status in one view with the same ops executed.
    pub(crate) fn is_at_rest(&self) -> bool {
        let all: Vec<_> = self.processes().iter().map(|it| &it.replica).collect();
        let first = all[0];
        all.len() == usize::from(self.replica_count)
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
    text.chars().take(40000).collect()
}
