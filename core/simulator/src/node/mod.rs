//! A node: its disk, its clocks, and the process that runs on them, if one does.

mod jobs;
mod journal_thread;
mod process;
mod recovery;
mod snapshot;
mod trouble;

use std::collections::BTreeMap;

use wire::{ConsensusGroup, Op, ReplicaId};

use crate::{
    clock::Clock,
    disk::{Directory, Disk, Name},
    event::{Event, ProcessEvent},
    random::Random,
    run::Run,
    scenario::{Latency, Scenario},
};

use self::journal_thread::JournalThread;
pub(crate) use self::{
    jobs::JobId,
    process::{Process, RunningEvent, Thread},
    recovery::{Recovery, RecoveryEvent, RecoveryStep, Refused},
    trouble::{BadSector, Failing, Trouble},
};

/// One node of the cluster.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: usize,
    pub(crate) replica: ReplicaId,
    pub(crate) disk: Disk,
    /// What is wrong with the disk at the moment.
    pub(crate) trouble: Trouble,
    /// It has lost a disk, and its process is to come back from the others (V13).
    pub(crate) is_rejoining: bool,
    /// The newest snapshots that it has lost, with its disk or without.
    pub(crate) lost_snapshots: BTreeMap<ConsensusGroup, Op>,
    pub(crate) clock: Clock,
    pub(crate) state: State,
    /// Counts starts, so that what belongs to an earlier process is recognised.
    pub(crate) boot: u64,
    /// Until when its shards stand still.
    pub(crate) paused_until: u64,
    /// The next turn of a shard ends after so many effects, and with it the process.
    pub(crate) dies_after: Option<usize>,
    random: Random,
}

/// What a node is doing.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing runs.
    Down,
    /// A process finds out what the disk holds, and puts it in order.
    Recovering(Box<Recovery>),
    /// A process runs.
    Running(Box<Process>),
    /// The start was refused: only an operator can go on.
    Refused,
}

impl Node {
    pub(crate) fn new(id: usize, scenario: &Scenario, random: &mut Random) -> Self {
        let drift = i64::try_from(random.below(2 * scenario.faults.drift + 1));
        let drift = drift.expect("drifts are small")
            - i64::try_from(scenario.faults.drift).expect("drifts are small");
        Self {
            id,
            replica: ReplicaId(u8::try_from(id).expect("a cluster has few nodes")),
            disk: Disk::new(scenario.sector),
            trouble: Trouble::default(),
            is_rejoining: false,
            lost_snapshots: BTreeMap::new(),
            clock: Clock::new(0, drift),
            state: State::Down,
            boot: 0,
            paused_until: 0,
            dies_after: None,
            random: random.fork(),
        }
    }

    /// A process starts.
    pub(crate) fn start(&mut self, run: &mut Run, scenario: &Scenario) {
        assert!(matches!(self.state, State::Down));
        self.boot += 1;
        self.clock.restart(run.now);
        self.dies_after = None;
        let shards = u16::try_from(self.random.between(1, u64::from(scenario.shards_max)));
        let shards = shards.expect("it is at most shards_max");
        run.note(&[1, self.boot, u64::from(shards)], || {
            format!("node {}: start {} with {shards} shards", self.id, self.boot)
        });
        self.state = State::Recovering(Box::new(Recovery::new(shards)));
        let delay = self.random.around(scenario.latency.flush);
        self.plan(run, delay, ProcessEvent::Recover(RecoveryStep::FlushNames));
    }

    /// The process ends at once. Its connections are the network's matter.
    pub(crate) fn kill(&mut self, run: &mut Run, power: bool) {
        run.note(&[2, self.boot, u64::from(power)], || {
            let how = if power { "power failure" } else { "killed" };
            format!("node {}: {how}", self.id)
        });
        match &self.state {
            State::Recovering(_) => run.counts.crashes_at_start += 1,
            State::Running(process) if process.takes_checkpoint() => {
                run.counts.crashes_in_checkpoint += 1;
            }
            State::Running(_) | State::Down | State::Refused => {}
        }
        self.state = State::Down;
        self.dies_after = None;
        self.trouble.forget_failure();
        if power {
            run.counts.power_failures += 1;
            self.disk.lose_power(&mut self.random);
        } else {
            run.counts.kills += 1;
        }
    }

    /// The disk is an empty one from now on, formatted so that the node comes back from the others (V13).
    pub(crate) fn lose_disk(&mut self, scenario: &Scenario) {
        assert!(matches!(self.state, State::Down));
        for group in Self::groups(scenario) {
            self.remember_snapshot(group);
        }
        self.is_rejoining = true;
        self.disk = Disk::new(scenario.sector);
    }

    /// What is lost may be the newest snapshot of a group.
    pub(crate) fn remember_snapshot(&mut self, group: ConsensusGroup) {
        if let Some(newest) = self.newest_snapshot_op(group) {
            let before = self.lost_snapshots.entry(group).or_default();
            *before = newest.max(*before);
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Recovering(_) | State::Running(_))
    }

    /// The process, if one runs.
    pub(crate) fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Running(process) => Some(process),
            State::Down | State::Recovering(_) | State::Refused => None,
        }
    }

    /// A thread of the process.
    pub(crate) fn thread(&self, shard: usize) -> Option<&Thread> {
        self.process()
            .and_then(|process| process.threads.get(shard))
    }

    /// The metadata op that each shard has applied.
    pub(crate) fn metadata_applied(&self) -> Vec<Op> {
        let threads = self.process().map(|process| &process.threads);
        let threads = threads.into_iter().flatten();
        threads
            .map(|thread| thread.shard.metadata_applied())
            .collect()
    }

    /// Whether the metadata group serves; other groups may need longer after a start.
    pub(crate) fn serves_metadata(&self) -> bool {
        self.serves(ConsensusGroup::METADATA)
    }

    /// Whether a consensus group is led here.
    pub(crate) fn serves(&self, group: ConsensusGroup) -> bool {
        let mut threads = self.process().into_iter().flat_map(|it| &it.threads);
        threads.any(|thread| thread.shard.serves(group))
    }

    /// Shards of the process that runs, 0 if none does.
    pub(crate) fn shards(&self) -> u16 {
        let shards = self.process().map_or(0, |process| process.threads.len());
        u16::try_from(shards).expect("there are few shards")
    }

    /// Whether every shard serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.process().is_some_and(Process::is_ready)
    }

    /// What its shards hold, for people.
    pub(crate) fn holds(&self) -> String {
        let threads = self.process().map(|process| &process.threads);
        let threads = threads.into_iter().flatten().enumerate();
        let held = threads.map(|(shard, thread)| {
            format!(
                "node {} shard {shard}: {:?}, idle {}",
                self.id,
                thread.shard.held(),
                thread.shard.is_idle()
            )
        });
        let held = held.collect::<Vec<_>>().join(", ");
        format!(
            "{held}, ready {}, stopped {}",
            self.is_ready(),
            self.has_stopped()
        )
    }

    /// Whether every shard has stopped, as it was told.
    pub(crate) fn has_stopped(&self) -> bool {
        self.process().is_some_and(Process::has_stopped)
    }

    /// Plans something inside the process.
    pub(crate) fn plan(&self, run: &mut Run, delay: u64, event: ProcessEvent) {
        let (node, boot) = (self.id, self.boot);
        run.after(delay, Event::Process { node, boot, event });
    }

    /// The op of the newest snapshot of a group on the disk.
    pub(crate) fn newest_snapshot_op(&self, group: ConsensusGroup) -> Option<Op> {
        let names = self.disk.list(Directory::Group(group));
        let ops = names.filter_map(|(name, _)| match name {
            Name::Snapshot(op) => Some(op),
            Name::Journal(_) | Name::Segment(_) | Name::Index(_) | Name::Unfinished(_) => None,
        });
        ops.max()
    }

    /// Bytes of the journal's files.
    pub(crate) fn journal_size(&self) -> u64 {
        let files = self.disk.list(Directory::Journal);
        files
            .filter(|(name, _)| matches!(name, Name::Journal(_)))
            .map(|(_, inode)| self.disk.size(inode))
            .sum()
    }

    /// Every consensus group of the cluster.
    pub(crate) fn groups(scenario: &Scenario) -> impl Iterator<Item = ConsensusGroup> + use<> {
        (0..=scenario.data_groups).map(ConsensusGroup)
    }
}

/// What the parts of a process need of the node that they run on.
pub(crate) struct Machine<'a> {
    pub(crate) run: &'a mut Run,
    pub(crate) disk: &'a mut Disk,
    pub(crate) trouble: &'a mut Trouble,
    pub(crate) random: &'a mut Random,
    pub(crate) latency: Latency,
    pub(crate) node: usize,
    pub(crate) boot: u64,
}

impl Machine<'_> {
    /// Plans something inside the process.
    pub(crate) fn plan(&mut self, delay: u64, event: ProcessEvent) {
        let (node, boot) = (self.node, self.boot);
        self.run.after(delay, Event::Process { node, boot, event });
    }

    /// Plans something inside the process, at a time.
    pub(crate) fn plan_at(&mut self, time: u64, event: ProcessEvent) {
        let (node, boot) = (self.node, self.boot);
        self.run.at(time, Event::Process { node, boot, event });
    }
}
