//! The threads of a running process, and what carries out their effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use journal::Record;
use shard::{
    Config, DiskSpace, Effect, GroupStart, Input, IoTicket, MeshMessage, Shard, StartError,
};
use vsr::Prepare;
use wire::{ConsensusGroup, ReplicaId, ShardId, Time};

use super::{
    JobId, JournalThread, Machine, Node, State,
    jobs::{Job, Jobs, Outcome},
    journal_thread::Told,
    snapshot,
};
use crate::{
    disk::Path,
    event::ProcessEvent,
    run::{Lane, MILLISECOND, Run},
    scenario::{CLUSTER, ROOT_PASSWORD, Scenario, address_of},
};

/// Bytes that were fetched and wait for their files: few, so that fetches wait, too.
const FETCHED_MAX: u64 = 64 * 1024;

/// How often a shard's clock ticks.
const TICK_INTERVAL: u64 = 10 * MILLISECOND;

/// How often it is looked whether the disk has space.
const SPACE_INTERVAL: u64 = 100 * MILLISECOND;

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) threads: Vec<Thread>,
    journal: JournalThread,
    jobs: Jobs,
    replicas: u8,
    /// What the journal holds, by checksum, where other nodes may ask for it.
    prepares: BTreeMap<u128, Prepare>,
    /// What the shards were told of the disk, and when it is looked at again.
    space: (DiskSpace, u64),
    /// Shards that serve.
    ready: BTreeSet<usize>,
    /// Shards that have stopped, as asked.
    stopped: BTreeSet<usize>,
}

/// One shard's thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) shard: Shard,
    inbox: VecDeque<Input>,
    /// Whether its turn is planned.
    planned: bool,
    /// Changes of segments that are not carried out.
    changes: BTreeSet<IoTicket>,
    /// The newest of all.
    last_change: IoTicket,
    /// Ways to the other shards.
    mesh: Vec<Lane>,
}

impl Process {
    pub(super) fn new(
        scenario: &Scenario,
        (replica, boot, time): (ReplicaId, u64, Time),
        (starts, shards): (Vec<GroupStart>, u16),
        (journal, jobs): (JournalThread, Jobs),
    ) -> Self {
        let mut prepares = BTreeMap::new();
        if scenario.replicas > 1 {
            let found = starts.iter().flat_map(|start| &start.recovered.prepares);
            prepares.extend(found.map(|prepare| (prepare.header.checksum, prepare.clone())));
        }
        let mut by_shard: Vec<Vec<GroupStart>> = (0..shards).map(|_| Vec::new()).collect();
        for start in starts {
            let shard = shard::shard_of_group(start.group, scenario.replicas, shards);
            by_shard[usize::from(shard.0)].push(start);
        }
        let threads = by_shard.into_iter().enumerate().map(|(index, starts)| {
            let config = Config {
                incarnation: boot << 32,
                ..config(scenario, replica, index, shards)
            };
            let shard = start_shard(config, starts, time);
            Thread::new(shard, usize::from(shards))
        });
        Self {
            threads: threads.collect(),
            journal,
            jobs,
            replicas: scenario.replicas,
            prepares,
            space: (DiskSpace::Enough, 0),
            ready: BTreeSet::new(),
            stopped: BTreeSet::new(),
        }
    }

    /// Whether every shard serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.len() == self.threads.len()
    }

    /// Whether every shard has stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.len() == self.threads.len()
    }

    /// Whether a checkpoint is on its way to the disk.
    pub(crate) fn takes_checkpoint(&self) -> bool {
        self.jobs.take_checkpoint()
    }

    fn shard_of(&self, group: ConsensusGroup) -> usize {
        let shards = u16::try_from(self.threads.len()).expect("there are few shards");
        usize::from(shard::shard_of_group(group, self.replicas, shards).0)
    }
}

impl Thread {
    fn new(shard: Shard, shards: usize) -> Self {
        Self {
            shard,
            inbox: VecDeque::new(),
            planned: true,
            changes: BTreeSet::new(),
            last_change: IoTicket(0),
            mesh: vec![Lane::default(); shards],
        }
    }

    /// Changes up to this ticket are carried out.
    fn changed_through(&self) -> IoTicket {
        match self.changes.first() {
            Some(first) => IoTicket(first.0 - 1),
            None => self.last_change,
        }
    }
}

impl Node {
    /// Hands something to a shard.
    pub(crate) fn give(&mut self, run: &mut Run, scenario: &Scenario, shard: usize, input: Input) {
        let State::Running(process) = &mut self.state else {
            return;
        };
        let Some(thread) = process.threads.get_mut(shard) else {
            return;
        };
        thread.inbox.push_back(input);
        if !std::mem::replace(&mut thread.planned, true) {
            let delay = match self.random.below(5_000) {
                // Somebody else has the core for a while.
                0 => self.random.between(10, 200) * MILLISECOND,
                _ => self.random.around(scenario.latency.turn),
            };
            self.plan(run, delay, ProcessEvent::Turn { shard });
        }
    }

    /// What waits in a shard's inbox.
    pub(crate) fn inbox(&self, shard: usize) -> impl Iterator<Item = &Input> {
        let thread = self
            .process()
            .and_then(|process| process.threads.get(shard));
        thread.into_iter().flat_map(|thread| &thread.inbox)
    }

    /// A shard's turn: feeds what has come, and returns what is to be done.
    pub(crate) fn turn(&mut self, run: &Run, shard: usize) -> Vec<Effect> {
        let now = self.clock.read(run.now);
        let State::Running(process) = &mut self.state else {
            return Vec::new();
        };
        let thread = &mut process.threads[shard];
        thread.planned = false;
        for input in thread.inbox.drain(..) {
            thread.shard.handle(now, input);
        }
        let mut effects = Vec::new();
        while let Some(effect) = thread.shard.next_effect() {
            effects.push(effect);
        }
        effects
    }

    /// A shard's clock ticks.
    pub(crate) fn tick(&mut self, run: &mut Run, scenario: &Scenario, shard: usize) {
        self.look_at_space(run, scenario);
        self.give(run, scenario, shard, Input::Tick);
        let late = self.random.around(MILLISECOND);
        self.plan(run, TICK_INTERVAL + late, ProcessEvent::Tick { shard });
    }

    /// Tells the shards what the disk has room for, now and then, when that has changed.
    fn look_at_space(&mut self, run: &mut Run, scenario: &Scenario) {
        let is_full = self.trouble.is_full(run.now);
        let State::Running(process) = &mut self.state else {
            return;
        };
        let (told, next) = process.space;
        if run.now < next {
            return;
        }
        let waits = process.journal.journal.is_stalled() && process.jobs.make_journal_file();
        let space = match (is_full, waits) {
            (false, _) => DiskSpace::Enough,
            (true, false) => DiskSpace::Reserve,
            (true, true) => DiskSpace::Nothing,
        };
        process.space = (space, run.now + SPACE_INTERVAL);
        if space == told {
            return;
        }
        run.counts.times_without_room += u64::from(space == DiskSpace::Nothing);
        run.note(&[64, self.id as u64], || {
            format!("node {}: the disk has room for {space:?}", self.id)
        });
        for shard in 0..usize::from(self.shards()) {
            self.give(run, scenario, shard, Input::Disk(space));
        }
    }

    /// Carries out an effect that stays on the node.
    pub(crate) fn carry_out(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        shard: usize,
        effect: Effect,
    ) {
        let (node, boot) = (self.id, self.boot);
        let State::Running(process) = &mut self.state else {
            return;
        };
        let machine = &mut Machine {
            latency: self.trouble.latency(scenario.latency, run.now),
            run,
            disk: &mut self.disk,
            trouble: &mut self.trouble,
            random: &mut self.random,
            node,
            boot,
        };
        process.carry_out(machine, shard, effect);
    }

    /// Something happens to the journal or the disk of a running process.
    pub(crate) fn process_event(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        event: RunningEvent,
    ) {
        let (node, boot) = (self.id, self.boot);
        let State::Running(process) = &mut self.state else {
            return;
        };
        let machine = &mut Machine {
            latency: self.trouble.latency(scenario.latency, run.now),
            run,
            disk: &mut self.disk,
            trouble: &mut self.trouble,
            random: &mut self.random,
            node,
            boot,
        };
        let given = process.on_event(machine, event);
        if let Some((shard, input)) = given {
            self.give(run, scenario, shard, input);
        }
    }
}

/// What happens to the journal or the disk of a running process.
pub(crate) enum RunningEvent {
    JournalTurn,
    JournalQuiet(u64),
    JournalInput(journal::Input),
    Job(JobId),
}

impl Process {
    fn on_event(
        &mut self,
        machine: &mut Machine<'_>,
        event: RunningEvent,
    ) -> Option<(usize, Input)> {
        match event {
            RunningEvent::JournalTurn => {
                for told in self.journal.turn(machine, &mut self.jobs) {
                    self.tell(machine, told);
                }
                None
            }
            RunningEvent::JournalQuiet(records) => {
                self.journal.on_quiet(machine, records);
                None
            }
            RunningEvent::JournalInput(input) => {
                self.journal.take(machine, input);
                None
            }
            RunningEvent::Job(job) => match self.jobs.step(machine, job) {
                Outcome::Journal(input) => {
                    self.journal.take(machine, input);
                    None
                }
                Outcome::Shard(shard, input) => Some((shard, input)),
                Outcome::Changed(shard, ticket) => {
                    let thread = &mut self.threads[shard];
                    let before = thread.changed_through();
                    thread.changes.remove(&ticket);
                    let through = thread.changed_through();
                    (through > before).then_some((shard, Input::Changed { through }))
                }
                Outcome::Next(..) | Outcome::Nothing => None,
            },
        }
    }

    /// The journal tells a shard something.
    pub(super) fn tell(&mut self, machine: &mut Machine<'_>, told: Told) {
        let (shard, input) = match told {
            Told::Progress(shard, progress) => (usize::from(shard.0), Input::Journal(progress)),
            Told::CheckpointWanted(group) => {
                let live = self.journal.journal.live();
                machine.run.note(&[14, u64::from(group.0), live], || {
                    format!("journal: {live} bytes are needed, group {group} pins the oldest")
                });
                (self.shard_of(group), Input::CheckpointWanted { group })
            }
        };
        let time = self.journal.arrival(machine, shard);
        let input = Box::new(input);
        machine.plan_at(time, ProcessEvent::Input { shard, input });
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of effect")]
    fn carry_out(&mut self, machine: &mut Machine<'_>, shard: usize, effect: Effect) {
        let latency = machine.latency;
        match effect {
            Effect::Mesh { to, message } => self.pass_on(machine, shard, (to, message)),
            Effect::Journal(record) => {
                let from = ShardId(u16::try_from(shard).expect("there are few shards"));
                if let Record::Prepare { header, body } = &record
                    && self.replicas > 1
                {
                    let (header, body) = (*header, body.clone());
                    self.prepares
                        .insert(header.checksum, Prepare { header, body });
                }
                self.journal.hand_over(machine, from, record);
            }
            Effect::Change { ticket, change } => {
                let thread = &mut self.threads[shard];
                thread.changes.insert(ticket);
                thread.last_change = thread.last_change.max(ticket);
                let job = Job::Change {
                    shard,
                    ticket,
                    change,
                };
                self.jobs.begin(machine, job, latency.write);
            }
            Effect::Read {
                ticket,
                segment,
                file,
                position,
                length,
            } => {
                machine.run.counts.segment_reads += 1;
                let job = Job::Read {
                    shard,
                    ticket,
                    path: Path::segment(segment, file),
                    position,
                    length,
                };
                self.jobs.begin(machine, job, latency.read);
            }
            Effect::Flush { ticket, segments } => {
                machine.run.note(&[15, ticket.0], || {
                    format!("shard {shard}: flush {segments:?}")
                });
                let job = Job::flush(machine, shard, ticket, &segments);
                self.jobs.begin(machine, job, latency.flush);
            }
            Effect::WriteSnapshot { snapshot } => {
                let (group, op) = (snapshot.group, snapshot.checkpoint.op);
                machine.run.note(&[16, u64::from(group.0), op.0], || {
                    format!("shard {shard}: snapshot of group {group} at op {op}")
                });
                let job = Job::snapshot(shard, &snapshot);
                self.jobs.begin(machine, job, latency.write);
            }
            Effect::ReadSnapshot {
                ticket,
                group,
                op,
                position,
                length,
            } => {
                let job = Job::ReadSnapshot {
                    shard,
                    ticket,
                    path: Path::snapshot(group, op),
                    position,
                    length,
                };
                self.jobs.begin(machine, job, latency.read);
            }
            Effect::DecodeSnapshot { ticket, bytes, .. } => {
                let snapshot = snapshot::read(&bytes);
                let input = Input::SnapshotDecoded { ticket, snapshot };
                plan_input(machine, shard, latency.read, input);
            }
            Effect::CheckPassword {
                ticket,
                password,
                phc,
            } => {
                let valid = phc.is_some_and(|phc| phc == hashed(&password.0));
                let mut secret = [0; 32];
                secret.copy_from_slice(&machine.random.bytes(32));
                let input = Input::PasswordChecked {
                    ticket,
                    valid,
                    secret,
                };
                plan_input(machine, shard, latency.password, input);
            }
            Effect::HashPassword { ticket, password } => {
                let phc = hashed(&password.0);
                let input = Input::PasswordHashed { ticket, phc };
                plan_input(machine, shard, latency.password, input);
            }
            Effect::Ready => {
                self.ready.insert(shard);
            }
            Effect::Stopped => {
                self.stopped.insert(shard);
            }
            Effect::Note(shard::Note::Replica {
                group,
                note: vsr::Note::OutOfService(_),
            }) => self.suspend(machine, group),
            Effect::Note(_) => {}
            Effect::ReadPrepare {
                group,
                op,
                checksum,
                to,
            } => {
                machine.run.counts.prepares_read += 1;
                let prepare = self.prepares.get(&checksum).cloned();
                let input = Input::PrepareRead {
                    group,
                    op,
                    to,
                    prepare,
                };
                plan_input(machine, shard, latency.read, input);
            }
            Effect::Peer { .. }
            | Effect::Send { .. }
            | Effect::Close { .. }
            | Effect::Admit { .. }
            | Effect::Pause { .. }
            | Effect::Resume { .. } => unreachable!("the network carries it out"),
        }
    }

    /// A group that is out of service must not keep the journal from going on.
    fn suspend(&mut self, machine: &mut Machine<'_>, group: ConsensusGroup) {
        self.journal
            .take(machine, journal::Input::Suspend { group });
    }

    fn pass_on(
        &mut self,
        machine: &mut Machine<'_>,
        from: usize,
        (to, message): (ShardId, MeshMessage),
    ) {
        let to = usize::from(to.0);
        let delay = machine.random.around(machine.latency.mesh);
        let time = self.threads[from].mesh[to].next(machine.run.now, delay);
        let from = ShardId(u16::try_from(from).expect("there are few shards"));
        let input = Box::new(Input::Mesh { from, message });
        machine.plan_at(time, ProcessEvent::Input { shard: to, input });
    }
}

fn plan_input(machine: &mut Machine<'_>, shard: usize, delay: u64, input: Input) {
    let delay = machine.random.around(delay);
    let input = Box::new(input);
    machine.plan(delay, ProcessEvent::Input { shard, input });
}

fn start_shard(config: Config, starts: Vec<GroupStart>, time: Time) -> Shard {
    match Shard::new(config, starts, time) {
        Ok(shard) => shard,
        Err(StartError::Snapshot { group, reason }) => {
            // Its checksum was right, so it is what was written.
            unreachable!("snapshot of group {group}: {reason}")
        }
    }
}

/// What the simulated hashing makes of a password.
pub(super) fn hashed(password: &str) -> String {
    format!("$simulated${password}")
}

fn config(scenario: &Scenario, replica: ReplicaId, shard: usize, shards: u16) -> Config {
    let node = |index| shard::Node {
        replica: ReplicaId(index),
        address: address_of(index),
    };
    Config {
        cluster: CLUSTER,
        replica,
        nodes: (0..scenario.replicas).map(node).collect(),
        incarnation: 0,
        shard: ShardId(u16::try_from(shard).expect("there are few shards")),
        shard_count: shards,
        data_groups: scenario.data_groups,
        root_password: Some(hashed(ROOT_PASSWORD)),
        catalog_limits: scenario.catalog().limits,
        limits: scenario.limits,
        disconnect_grace: scenario.sessions.disconnect_grace,
        session_timeout: scenario.sessions.session_timeout,
        liveness_interval: scenario.sessions.liveness_interval,
        park_timeout: scenario.sessions.park_timeout,
        segment_size: scenario.segment_size,
        tail_budget: scenario.tail_budget,
        fetched_max: FETCHED_MAX,
        fetch_rate: scenario.fetch_rate,
        index_budget: scenario.index_budget,
        scrub_rate: scenario.scrub_rate,
        producers_max: scenario.producers_max,
        consumers_max: scenario.consumers_max,
        clients_max: scenario.clients_max,
    }
}
