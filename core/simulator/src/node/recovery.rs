//! A start: reads the journal and the snapshots, puts the files in order, lets the journal heal, then makes
//! the shards.

use std::collections::BTreeSet;

use bytes::Bytes;
use journal::{Affected, Damage, FileSize, Input, Journal, Scan, Scanned, Uncertain, Verdict};
use partition::FileKind;
use shard::{GroupSnapshot, GroupStart, StateSnapshot};
use wire::ConsensusGroup;

use super::{
    JournalThread, Machine, Node, Process, State,
    jobs::{JobId, Jobs, Outcome},
    journal_thread::Told,
    snapshot,
};
use crate::{
    disk::{Directory, Inode, Name, Path},
    event::ProcessEvent,
    run::Run,
    scenario::Scenario,
};

/// A start that is under way.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(super) shards: u16,
    /// What is to be done to files, the next one last.
    fixes: Vec<Fix>,
    starts: Vec<GroupStart>,
    resume: Option<journal::Resume>,
    thread: Option<JournalThread>,
    jobs: Jobs,
    /// What the journal has to say to shards that are not there yet.
    told: Vec<Told>,
}

/// What a start does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryStep {
    /// Flushes the names of journal files and snapshots: a process that was killed may have left some that
    /// no power failure has to keep, and everything that follows rests on them.
    FlushNames,
    /// Reads everything.
    Scan,
    /// Changes one file.
    Fix,
    /// Lets the journal heal.
    Heal,
}

/// A file that is not as the snapshots and the journal say.
#[derive(Clone, Copy, Debug)]
enum Fix {
    Remove(Path),
    Cut(Path, u64),
}

/// Why a start was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub(crate) String);

impl Recovery {
    pub(super) fn new(shards: u16) -> Self {
        Self {
            shards,
            fixes: Vec::new(),
            starts: Vec::new(),
            resume: None,
            thread: None,
            jobs: Jobs::default(),
            told: Vec::new(),
        }
    }
}

impl Node {
    /// Goes on with a start. Returns the process's parts when it is done.
    pub(crate) fn recover(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        step: RecoveryStep,
    ) -> Result<(), Refused> {
        match step {
            RecoveryStep::FlushNames => self.flush_names(run, scenario),
            RecoveryStep::Scan => self.read_all(run, scenario)?,
            RecoveryStep::Fix => self.fix_one(run, scenario),
            RecoveryStep::Heal => self.heal(run, scenario),
        }
        Ok(())
    }

    fn flush_names(&mut self, run: &mut Run, scenario: &Scenario) {
        let mark = self.disk.mark();
        self.disk.flushed_directory(Directory::Journal, mark);
        for group in Self::groups(scenario) {
            self.disk.flushed_directory(Directory::Group(group), mark);
        }
        let delay = self.random.around(scenario.latency.read);
        self.plan(run, delay, ProcessEvent::Recover(RecoveryStep::Scan));
    }

    fn read_all(&mut self, run: &mut Run, scenario: &Scenario) -> Result<(), Refused> {
        let mut scanned = self.scan(run, scenario);
        for damage in &scanned.damage {
            run.counts.frames_torn += u64::from(damage.verdict == Verdict::Torn);
            run.note(&[6, damage.sequence, damage.position], || {
                format!("node {}: {damage}", self.id)
            });
        }
        run.counts.recoveries += u64::from(!scanned.groups.is_empty());
        // One of several learns the end of its journal from the others (V11).
        if let Some(uncertain) = uncertain(&scanned.damage).filter(|_| scenario.replicas == 1) {
            return Err(Refused(format!("the journal's end is {uncertain}")));
        }
        let mut fixes = Vec::new();
        let mut starts = Vec::new();
        for group in Self::groups(scenario) {
            let snapshot = self.newest_snapshot(run, group);
            run.counts.snapshots_used += u64::from(snapshot.is_some());
            let found = scanned.groups.remove(&group);
            let damage = &scanned.damage;
            let start = GroupStart::from_disk(group, snapshot, found, damage, self.is_rejoining);
            let start = start.map_err(|error| {
                Refused(format!("superblock of consensus group {group}: {error}"))
            })?;
            if scenario.replicas == 1 || !start.has_lost_checkpoint() {
                self.find_fixes(group, start.snapshot.as_ref(), &mut fixes);
            }
            starts.push(self.named(scenario, start));
        }
        self.find_unfinished(Directory::Journal, &mut fixes);
        self.trouble.calm_start();
        let State::Recovering(recovery) = &mut self.state else {
            unreachable!("a start is under way");
        };
        recovery.fixes = fixes;
        recovery.starts = starts;
        recovery.resume = Some(scanned.resume);
        let delay = self.random.around(scenario.latency.read);
        self.plan(run, delay, ProcessEvent::Recover(RecoveryStep::Fix));
        Ok(())
    }

    /// Names this incarnation, where others ask for it.
    fn named(&mut self, scenario: &Scenario, mut start: GroupStart) -> GroupStart {
        if scenario.replicas > 1 {
            start.recovered.nonce = self.random.wide();
        }
        start
    }

    fn scan(&mut self, run: &mut Run, scenario: &Scenario) -> Scanned {
        let mut files = Vec::new();
        for (name, inode) in self.disk.list(Directory::Journal) {
            if let Name::Journal(file) = name {
                let size = self.disk.size(inode);
                files.push(FileSize { file, size });
            }
        }
        let mut scan = Scan::new(scenario.journal_of(self.replica), files);
        while let Some(wanted) = scan.wanted() {
            let inode = self.disk.find(Path::journal(wanted.file));
            let inode = inode.expect("the scan asks for files that it was told of");
            // Reads may return less than was asked for.
            let length = match self.random.chance(900) {
                true => wanted.length,
                false => self.random.between(1, wanted.length),
            };
            let bytes = self.read_at_start(run, inode, (wanted.position, length));
            match bytes.is_empty() {
                false => scan.supply(&bytes),
                true => scan.supply_unreadable_block(),
            }
        }
        scan.finish(Uncertain::Keep)
    }

    /// Reads a range, or what of it lies before the first sector that cannot be read.
    fn read_at_start(&self, run: &mut Run, inode: Inode, range: (u64, u64)) -> Bytes {
        let (position, length) = range;
        let end = position.saturating_add(length);
        let bad = self.trouble.at_start(inode, (position, end));
        let read = self.disk.try_read(inode, position, length);
        let failed = match (bad, &read) {
            (Some(bad), _) if bad.elsewhere.is_none() => Some(bad.position.max(position)),
            (_, Err(at)) => Some(*at),
            _ => None,
        };
        if let Some(at) = failed {
            run.counts.reads_failed += u64::from(at == position);
            return self.disk.read(inode, position, at.min(end) - position);
        }
        let mut bytes = read.unwrap_or_default().to_vec();
        if let Some((bad, elsewhere)) = bad.and_then(|bad| Some((bad, bad.elsewhere?))) {
            run.counts.reads_misdirected += 1;
            let other = self.disk.read(inode, elsewhere, bad.length);
            let from = bad.position.max(position);
            let other = other.slice(index(from - bad.position).min(other.len())..);
            let at = index(from - position);
            let count = other.len().min(bytes.len() - at);
            bytes[at..at + count].copy_from_slice(&other[..count]);
        }
        Bytes::from(bytes)
    }

    fn newest_snapshot(&self, run: &mut Run, group: ConsensusGroup) -> Option<GroupSnapshot> {
        let names: Vec<_> = self.disk.list(Directory::Group(group)).collect();
        let mut newest_first = names.into_iter().rev();
        newest_first.find_map(|(name, inode)| match name {
            Name::Snapshot(_) => {
                let whole = (0, self.disk.size(inode));
                let bytes = self.read_at_start(run, inode, whole);
                snapshot::decode(&bytes, group)
            }
            Name::Journal(_) | Name::Segment(_) | Name::Index(_) | Name::Unfinished(_) => None,
        })
    }

    /// Segments are cut to what the snapshot says; what it does not know goes.
    fn find_fixes(
        &self,
        group: ConsensusGroup,
        snapshot: Option<&GroupSnapshot>,
        fixes: &mut Vec<Fix>,
    ) {
        let files = match snapshot.map(|snapshot| &snapshot.state) {
            Some(StateSnapshot::Data(state)) => partition::files_at(state),
            Some(StateSnapshot::Metadata(_)) | None => Vec::new(),
        };
        let mut known = BTreeSet::new();
        for file in files {
            let path = Path::segment(file.id, FileKind::Segment);
            known.insert(path);
            if !file.open {
                known.insert(Path::segment(file.id, FileKind::Index));
            }
            let size = self.disk.find(path).map(|inode| self.disk.size(inode));
            if size.is_some_and(|size| size > file.segment.length) {
                fixes.push(Fix::Cut(path, file.segment.length));
            }
        }
        for directory in self.disk.directories() {
            if !matches!(directory, Directory::Partition { group: of, .. } if of == group) {
                continue;
            }
            for (name, _) in self.disk.list(directory) {
                let path = Path { directory, name };
                if !known.contains(&path) {
                    fixes.push(Fix::Remove(path));
                }
            }
        }
        self.find_unfinished(Directory::Group(group), fixes);
    }

    fn find_unfinished(&self, directory: Directory, fixes: &mut Vec<Fix>) {
        for (name, _) in self.disk.list(directory) {
            if matches!(name, Name::Unfinished(_)) {
                fixes.push(Fix::Remove(Path { directory, name }));
            }
        }
    }

    fn fix_one(&mut self, run: &mut Run, scenario: &Scenario) {
        let State::Recovering(recovery) = &mut self.state else {
            unreachable!("a start is under way");
        };
        let next = match recovery.fixes.pop() {
            Some(fix) => {
                let path = match fix {
                    Fix::Remove(path) => {
                        self.disk.remove(path);
                        path
                    }
                    Fix::Cut(path, size) => {
                        if let Some(inode) = self.disk.find(path) {
                            self.disk.set_size(inode, size);
                        }
                        path
                    }
                };
                run.note(&[7], || format!("node {}: puts {path} in order", self.id));
                RecoveryStep::Fix
            }
            None => RecoveryStep::Heal,
        };
        let delay = self.random.around(scenario.latency.write);
        self.plan(run, delay, ProcessEvent::Recover(next));
    }

    fn heal(&mut self, run: &mut Run, scenario: &Scenario) {
        let State::Recovering(recovery) = &mut self.state else {
            unreachable!("a start is under way");
        };
        let resume = recovery.resume.take().expect("the journal was read");
        let journal = Journal::resume(scenario.journal_of(self.replica), resume);
        recovery.thread = Some(JournalThread::new(journal));
        self.plan(run, 0, ProcessEvent::JournalTurn);
    }

    /// Something happens to the journal of a start.
    pub(crate) fn recover_journal(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        event: RecoveryEvent,
    ) {
        let (node, boot) = (self.id, self.boot);
        let State::Recovering(recovery) = &mut self.state else {
            return;
        };
        let Recovery {
            thread, jobs, told, ..
        } = &mut **recovery;
        let Some(thread) = thread else {
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
        match event {
            RecoveryEvent::Turn => told.extend(thread.turn(machine, jobs)),
            RecoveryEvent::Quiet(records) => thread.on_quiet(machine, records),
            RecoveryEvent::Job(job) => {
                if let Outcome::Journal(input) = jobs.step(machine, job) {
                    thread.take(machine, input);
                }
            }
            RecoveryEvent::Input(input) => thread.take(machine, input),
        }
        if thread.journal.is_ready() {
            self.run_shards(run, scenario);
        }
    }

    fn run_shards(&mut self, run: &mut Run, scenario: &Scenario) {
        let state = std::mem::replace(&mut self.state, State::Down);
        let State::Recovering(recovery) = state else {
            unreachable!("a start is under way");
        };
        let Recovery {
            shards,
            starts,
            thread,
            jobs,
            told,
            ..
        } = *recovery;
        let thread = thread.expect("the journal is ready");
        let time = self.clock.read(run.now);
        let mut process = Process::new(
            scenario,
            (self.replica, self.boot, time),
            (starts, shards),
            (thread, jobs),
        );
        let machine = &mut Machine {
            latency: self.trouble.latency(scenario.latency, run.now),
            run,
            disk: &mut self.disk,
            trouble: &mut self.trouble,
            random: &mut self.random,
            node: self.id,
            boot: self.boot,
        };
        for told in told {
            process.tell(machine, told);
        }
        self.state = State::Running(Box::new(process));
        for shard in 0..usize::from(shards) {
            self.plan(run, 0, ProcessEvent::Turn { shard });
            self.plan(run, 0, ProcessEvent::Tick { shard });
        }
    }
}

/// What happens to the journal of a start.
pub(crate) enum RecoveryEvent {
    Turn,
    Quiet(u64),
    Job(JobId),
    Input(Input),
}

fn index(count: u64) -> usize {
    usize::try_from(count).expect("it is in memory")
}

fn uncertain(damage: &[Damage]) -> Option<String> {
    let found = damage
        .iter()
        .find(|damage| damage.verdict == Verdict::Uncertain)?;
    let groups = match &found.affected {
        Affected::Any => "any group".to_string(),
        Affected::Groups(groups) => format!("{} groups", groups.len()),
    };
    Some(format!("{found} ({groups})"))
}
