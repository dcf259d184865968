//! The journal's thread: feeds the journal, and does as it says.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use journal::{Effect, Input, Journal, Record};
use wire::{ConsensusGroup, ShardId};

use super::{
    Machine,
    jobs::{FileStep, Job, Jobs},
};
use crate::{
    disk::Path,
    event::ProcessEvent,
    run::{Lane, MILLISECOND},
};

/// How long the thread waits for records before it says that none comes.
const QUIET_AFTER: u64 = MILLISECOND;

/// The thread that writes the journal.
#[derive(Debug)]
pub(super) struct JournalThread {
    pub(super) journal: Journal,
    inbox: VecDeque<Input>,
    /// Whether its turn is planned.
    planned: bool,
    /// Whether it waits for a flush, and so does nothing else.
    flushing: bool,
    /// Records that came from shards.
    records: u64,
    /// Ways from the shards to it, and back.
    lanes_in: BTreeMap<usize, Lane>,
    lanes_out: BTreeMap<usize, Lane>,
}

/// What the journal has to say to a shard.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Progress(ShardId, journal::Progress),
    CheckpointWanted(ConsensusGroup),
}

impl JournalThread {
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            inbox: VecDeque::new(),
            planned: false,
            flushing: false,
            records: 0,
            lanes_in: BTreeMap::new(),
            lanes_out: BTreeMap::new(),
        }
    }

    /// A shard hands a record over.
    pub(super) fn hand_over(&mut self, machine: &mut Machine<'_>, shard: ShardId, record: Record) {
        let delay = machine.random.around(machine.latency.mesh);
        let lane = self.lanes_in.entry(usize::from(shard.0)).or_default();
        let time = lane.next(machine.run.now, delay);
        let input = Box::new(Input::Record { shard, record });
        machine.plan_at(time, ProcessEvent::JournalInput(input));
    }

    /// Something has come.
    pub(super) fn take(&mut self, machine: &mut Machine<'_>, input: Input) {
        match &input {
            Input::Record { record, .. } => {
                self.records += 1;
                note_record(machine, record);
            }
            Input::Flushed => self.flushing = false,
            Input::Prepared { .. } | Input::Read { .. } | Input::Quiet | Input::Suspend { .. } => {}
        }
        self.inbox.push_back(input);
        self.plan_turn(machine);
    }

    /// Nothing has come for a while, if no record has.
    pub(super) fn on_quiet(&mut self, machine: &mut Machine<'_>, records: u64) {
        if records == self.records && self.journal.wants_quiet() {
            self.take(machine, Input::Quiet);
        }
    }

    /// Goes about what has come. While a flush is under way nothing is done, but things may come.
    pub(super) fn turn(&mut self, machine: &mut Machine<'_>, jobs: &mut Jobs) -> Vec<Told> {
        self.planned = false;
        for input in self.inbox.drain(..) {
            self.journal.handle(input);
        }
        let mut told = Vec::new();
        while !self.flushing {
            let Some(effect) = self.journal.next_effect() else {
                break;
            };
            told.extend(self.carry_out(machine, jobs, effect));
        }
        if !self.flushing && self.journal.wants_quiet() {
            let records = self.records;
            machine.plan(QUIET_AFTER, ProcessEvent::JournalQuiet { records });
        }
        told
    }

    /// When something told to a shard reaches it.
    pub(super) fn arrival(&mut self, machine: &mut Machine<'_>, shard: usize) -> u64 {
        let delay = machine.random.around(machine.latency.mesh);
        let lane = self.lanes_out.entry(shard).or_default();
        lane.next(machine.run.now, delay)
    }

    fn carry_out(
        &mut self,
        machine: &mut Machine<'_>,
        jobs: &mut Jobs,
        effect: Effect,
    ) -> Option<Told> {
        match effect {
            Effect::Write { file, position } => {
                let bytes = Bytes::copy_from_slice(self.journal.frame());
                machine.run.counts.frames += 1;
                let numbers = [3, u64::from(file.0), position, bytes.len() as u64];
                machine.run.note(&numbers, || {
                    let size = bytes.len();
                    format!("journal: write {size} bytes at {}:{position}", file.0)
                });
                let inode = machine.disk.open(Path::journal(file));
                let length = bytes.len() as u64;
                machine.disk.note_frame(inode, position, length);
                machine.write(inode, position, bytes);
            }
            Effect::Zero {
                file,
                position,
                length,
            } => {
                let inode = machine.disk.open(Path::journal(file));
                let size = usize::try_from(length).expect("a simulated file fits the memory");
                let zeros = Bytes::from(vec![0; size]);
                machine.write(inode, position, zeros);
            }
            Effect::Flush { file } => {
                self.flushing = true;
                let inode = machine.disk.find(Path::journal(file));
                let mark = machine.disk.mark();
                let delay = machine.latency.flush;
                jobs.begin(machine, Job::JournalFlush { inode, mark }, delay);
            }
            Effect::Prepare { file, from, size } => {
                let delay = machine.latency.write;
                let job = Job::JournalFile {
                    file,
                    from,
                    size,
                    step: FileStep::Write,
                };
                jobs.begin(machine, job, delay);
            }
            Effect::Delete { file } => {
                let delay = machine.latency.write;
                jobs.begin(machine, Job::JournalDelete { file }, delay);
            }
            Effect::Read {
                file,
                position,
                length,
            } => {
                let delay = machine.latency.read;
                let job = Job::JournalRead {
                    file,
                    position,
                    length,
                };
                jobs.begin(machine, job, delay);
            }
            Effect::Progress { shard, progress } => return Some(Told::Progress(shard, progress)),
            Effect::CheckpointWanted { group, .. } => return Some(Told::CheckpointWanted(group)),
        }
        None
    }

    fn plan_turn(&mut self, machine: &mut Machine<'_>) {
        if !self.planned {
            self.planned = true;
            let delay = match machine.random.below(5_000) {
                // Somebody else has the core for a while.
                0 => machine.random.between(10, 100) * MILLISECOND,
                _ => machine.random.around(machine.latency.turn),
            };
            machine.plan(delay, ProcessEvent::JournalTurn);
        }
    }
}

fn note_record(machine: &mut Machine<'_>, record: &Record) {
    match record {
        Record::Prepare { header, .. } => {
            let (group, op) = (header.group(), header.op());
            let [low, high] = halves(header.checksum);
            machine
                .run
                .note(&[4, u64::from(group.0), op.0, low, high], || {
                    format!("journal: prepare {op} of group {group}")
                });
        }
        Record::Superblock(superblock) => {
            let (group, checkpoint) = (superblock.group, superblock.checkpoint);
            let numbers = [5, u64::from(group.0), checkpoint.0];
            machine.run.note(&numbers, || {
                format!("journal: superblock of group {group}, checkpoint {checkpoint}")
            });
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes the number apart")]
const fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}
