//! System calls that take their time: each is a few steps, and a crash may come between any two.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use journal::FileId;
use partition::{FileKind, SegmentChange, SegmentId};
use shard::{GroupSnapshot, IoTicket, SnapshotPart};
use wire::{ConsensusGroup, Op};

use super::{Machine, snapshot};
use crate::{
    disk::{Directory, Inode, Mark, Name, Path},
    event::ProcessEvent,
    run::MILLISECOND,
};

/// How long until a full disk is tried again.
const RETRY: u64 = 50 * MILLISECOND;

/// Names something that the disk is doing for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId(u64);

/// Something that the disk is doing.
#[derive(Debug)]
pub(super) enum Job {
    /// A change of a segment.
    Change {
        shard: usize,
        ticket: IoTicket,
        change: SegmentChange,
    },
    /// A read of a segment.
    Read {
        shard: usize,
        ticket: IoTicket,
        path: Path,
        position: u64,
        length: u64,
    },
    /// A read of a snapshot.
    ReadSnapshot {
        shard: usize,
        ticket: IoTicket,
        path: Path,
        position: u64,
        length: u64,
    },
    /// A flush of segments and their directories.
    Flush {
        shard: usize,
        ticket: IoTicket,
        inodes: Vec<Inode>,
        directories: BTreeSet<Directory>,
        mark: Mark,
    },
    /// A snapshot on its way to its name.
    Snapshot {
        shard: usize,
        group: ConsensusGroup,
        op: Op,
        bytes: Bytes,
        step: FileStep,
    },
    /// The flush of a frame.
    JournalFlush { inode: Option<Inode>, mark: Mark },
    /// A file for the journal.
    JournalFile {
        file: FileId,
        from: Option<FileId>,
        size: u64,
        step: FileStep,
    },
    /// A file that the journal needs no more.
    JournalDelete { file: FileId },
    /// A frame that the journal reads back.
    JournalRead {
        file: FileId,
        position: u64,
        length: u32,
    },
}

/// How far a file is that appears under its name only when it is whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileStep {
    /// Its bytes are written, in two halves.
    Write,
    WriteRest(Inode),
    /// They are flushed; the flush ends at the next step.
    Flush(Inode, Mark),
    /// It gets its name, and the name is flushed.
    Rename,
    FlushName(Mark),
}

/// What came of a step.
pub(super) enum Outcome {
    /// The next step, after about so long.
    Next(Job, u64),
    /// It is done, and a shard is to be told.
    Shard(usize, shard::Input),
    /// Every change of the shard up to some ticket may be done.
    Changed(usize, IoTicket),
    /// It is done, and the journal is to be told.
    Journal(journal::Input),
    /// It is done.
    Nothing,
}

/// All jobs of a process.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    running: BTreeMap<JobId, Job>,
    count: u64,
}

impl Jobs {
    /// Begins a job; its first step comes after about `delay`.
    pub(super) fn begin(&mut self, machine: &mut Machine<'_>, job: Job, delay: u64) {
        self.count += 1;
        let id = JobId(self.count);
        self.running.insert(id, job);
        let delay = machine.random.around(delay);
        machine.plan(delay, ProcessEvent::Job(id));
    }

    /// Takes the next step of a job.
    pub(super) fn step(&mut self, machine: &mut Machine<'_>, id: JobId) -> Outcome {
        let Some(job) = self.running.remove(&id) else {
            return Outcome::Nothing;
        };
        let outcome = match job.grows() && machine.finds_no_space() {
            true => Outcome::Next(job, RETRY),
            false => job.step(machine),
        };
        match outcome {
            Outcome::Next(job, delay) => {
                self.running.insert(id, job);
                let delay = machine.random.around(delay);
                machine.plan(delay, ProcessEvent::Job(id));
                Outcome::Nothing
            }
            other => other,
        }
    }

    /// Whether a file of the journal is being made, and its bytes are not there yet.
    pub(super) fn make_journal_file(&self) -> bool {
        let mut running = self.running.values();
        running.any(|job| matches!(job, Job::JournalFile { .. }) && job.grows())
    }

    /// Whether a snapshot is being written or segments are being flushed for one.
    pub(super) fn take_checkpoint(&self) -> bool {
        self.running
            .values()
            .any(|job| matches!(job, Job::Snapshot { .. } | Job::Flush { .. }))
    }
}

impl Job {
    pub(super) fn snapshot(shard: usize, written: &GroupSnapshot) -> Self {
        Self::Snapshot {
            shard,
            group: written.group,
            op: written.checkpoint.op,
            bytes: snapshot::encode(written),
            step: FileStep::Write,
        }
    }

    pub(super) fn flush(
        machine: &Machine<'_>,
        shard: usize,
        ticket: IoTicket,
        segments: &[SegmentId],
    ) -> Self {
        let path = |segment: &SegmentId| Path::segment(*segment, FileKind::Segment);
        let inodes = segments.iter().map(path);
        Self::Flush {
            shard,
            ticket,
            inodes: inodes.filter_map(|path| machine.disk.find(path)).collect(),
            directories: segments
                .iter()
                .map(|segment| Directory::of_segment(*segment))
                .collect(),
            mark: machine.disk.mark(),
        }
    }

    /// Whether the next step needs space.
    const fn grows(&self) -> bool {
        match self {
            Self::Change { change, .. } => matches!(
                change,
                SegmentChange::Append { .. } | SegmentChange::WriteIndex { .. }
            ),
            // A file that is recycled has its bytes.
            Self::JournalFile { from: Some(_), .. } => false,
            Self::JournalFile { step, .. } | Self::Snapshot { step, .. } => {
                matches!(step, FileStep::Write | FileStep::WriteRest(_))
            }
            Self::Read { .. }
            | Self::ReadSnapshot { .. }
            | Self::Flush { .. }
            | Self::JournalFlush { .. }
            | Self::JournalDelete { .. }
            | Self::JournalRead { .. } => false,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of job")]
    fn step(self, machine: &mut Machine<'_>) -> Outcome {
        match self {
            Self::Change {
                shard,
                ticket,
                change,
            } => {
                carry_out(machine, change);
                Outcome::Changed(shard, ticket)
            }
            Self::Read {
                shard,
                ticket,
                path,
                position,
                length,
            } => {
                let result = machine.read(path, position, length);
                Outcome::Shard(shard, shard::Input::Read { ticket, result })
            }
            Self::ReadSnapshot {
                shard,
                ticket,
                path,
                position,
                length,
            } => {
                let part = read_snapshot(machine, path, (position, length));
                Outcome::Shard(shard, shard::Input::SnapshotRead { ticket, part })
            }
            Self::Flush {
                shard,
                ticket,
                inodes,
                directories,
                mark,
            } => {
                for inode in inodes {
                    machine.flushed(inode, mark);
                }
                for directory in directories {
                    machine.flushed_directory(directory, mark);
                }
                Outcome::Shard(shard, shard::Input::Flushed { ticket })
            }
            Self::Snapshot {
                shard,
                group,
                op,
                bytes,
                step,
            } => step_snapshot(machine, (shard, group, op), bytes, step),
            Self::JournalFlush { inode, mark } => {
                if let Some(inode) = inode {
                    machine.flushed(inode, mark);
                }
                Outcome::Journal(journal::Input::Flushed)
            }
            Self::JournalFile {
                file,
                from,
                size,
                step,
            } => step_journal_file(machine, file, (from, size), step),
            Self::JournalDelete { file } => {
                machine.disk.remove(Path::journal(file));
                Outcome::Nothing
            }
            Self::JournalRead {
                file,
                position,
                length,
            } => {
                let path = Path::journal(file);
                let is_there = machine.disk.find(path).is_some();
                assert!(is_there, "{path} is read, and given up");
                let read = machine.read(path, position, u64::from(length));
                // What cannot be read is told as such; the journal knows what that means.
                let bytes = read.unwrap_or_default();
                Outcome::Journal(journal::Input::Read {
                    file,
                    position,
                    bytes,
                })
            }
        }
    }
}

fn read_snapshot(
    machine: &mut Machine<'_>,
    path: Path,
    (position, length): (u64, u64),
) -> Option<SnapshotPart> {
    let inode = machine.disk.find(path)?;
    let size = machine.disk.size(inode);
    let (size, checksum, body) = snapshot::open(&machine.read(path, 0, size).ok()?)?;
    let there = body.len() as u64;
    let index = |position: u64| usize::try_from(position.min(there)).expect("it is in memory");
    let bytes = body.slice(index(position)..index(position.saturating_add(length)));
    Some(SnapshotPart {
        size,
        checksum,
        bytes,
    })
}

/// Carries out a change of a segment.
fn carry_out(machine: &mut Machine<'_>, change: SegmentChange) {
    match change {
        SegmentChange::Append {
            segment,
            position,
            parts,
        } => {
            let inode = machine.disk.open(Path::segment(segment, FileKind::Segment));
            let mut at = position;
            for part in parts {
                let size = part.len() as u64;
                machine.write(inode, at, part);
                at += size;
            }
        }
        SegmentChange::WriteIndex { segment, bytes } => {
            let inode = machine.disk.open(Path::segment(segment, FileKind::Index));
            machine.disk.set_size(inode, 0);
            machine.write(inode, 0, bytes);
        }
        SegmentChange::Delete { segment } => {
            for kind in [FileKind::Segment, FileKind::Index] {
                machine.disk.remove(Path::segment(segment, kind));
            }
        }
        SegmentChange::DeletePartition {
            group,
            partition,
            incarnation,
        } => {
            let directory = Directory::Partition {
                group,
                key: partition,
                incarnation,
            };
            let names: Vec<Name> = machine.disk.list(directory).map(|(name, _)| name).collect();
            for name in names {
                machine.disk.remove(Path { directory, name });
            }
        }
    }
}

fn step_snapshot(
    machine: &mut Machine<'_>,
    (shard, group, op): (usize, ConsensusGroup, Op),
    bytes: Bytes,
    step: FileStep,
) -> Outcome {
    let finished = Path::snapshot(group, op);
    let Some((next, delay)) = make_file(machine, finished, &bytes, step) else {
        remove_older_snapshots(machine, group, op);
        return Outcome::Shard(shard, shard::Input::SnapshotWritten { group, op });
    };
    let job = Job::Snapshot {
        shard,
        group,
        op,
        bytes,
        step: next,
    };
    Outcome::Next(job, delay)
}

fn step_journal_file(
    machine: &mut Machine<'_>,
    file: FileId,
    (from, size): (Option<FileId>, u64),
    step: FileStep,
) -> Outcome {
    let next = match (from, step) {
        // A file that is recycled has its bytes; only the name is new.
        (Some(from), FileStep::Write) => {
            let (from, to) = (Path::journal(from), Path::journal(file));
            machine.disk.rename(Directory::Journal, from.name, to.name);
            machine.run.counts.files_recycled += 1;
            let mark = machine.disk.mark();
            Some((FileStep::FlushName(mark), machine.latency.flush))
        }
        (_, step) => {
            let zeros = match step {
                FileStep::Write | FileStep::WriteRest(_) => vec![0; zeros_of(size)],
                FileStep::Flush(..) | FileStep::Rename | FileStep::FlushName(_) => Vec::new(),
            };
            make_file(machine, Path::journal(file), &Bytes::from(zeros), step)
        }
    };
    match next {
        Some((step, delay)) => Outcome::Next(
            Job::JournalFile {
                file,
                from,
                size,
                step,
            },
            delay,
        ),
        None => {
            machine.run.counts.files_made += u64::from(from.is_none());
            Outcome::Journal(journal::Input::Prepared { file })
        }
    }
}

/// Makes a file under another name, flushes it, gives it its own, flushes that. Returns the next step and
/// about how long until then.
fn make_file(
    machine: &mut Machine<'_>,
    finished: Path,
    bytes: &Bytes,
    step: FileStep,
) -> Option<(FileStep, u64)> {
    let unfinished = unfinished(finished);
    let half = bytes.len() / 2;
    let (write, flush) = (machine.latency.write, machine.latency.flush);
    match step {
        FileStep::Write => {
            let inode = machine.disk.open(unfinished);
            machine.write(inode, 0, bytes.slice(..half));
            Some((FileStep::WriteRest(inode), write))
        }
        FileStep::WriteRest(inode) => {
            machine.write(inode, half as u64, bytes.slice(half..));
            let mark = machine.disk.mark();
            Some((FileStep::Flush(inode, mark), flush))
        }
        FileStep::Flush(inode, mark) => {
            machine.flushed(inode, mark);
            Some((FileStep::Rename, write))
        }
        FileStep::Rename => {
            let directory = finished.directory;
            machine
                .disk
                .rename(directory, unfinished.name, finished.name);
            let mark = machine.disk.mark();
            Some((FileStep::FlushName(mark), flush))
        }
        FileStep::FlushName(mark) => {
            machine.flushed_directory(finished.directory, mark);
            None
        }
    }
}

/// What a file is called before it is whole.
fn unfinished(finished: Path) -> Path {
    let number = match finished.name {
        Name::Journal(file) => u64::from(file.0),
        Name::Snapshot(op) => op.0,
        Name::Segment(offset) | Name::Index(offset) => offset.0,
        Name::Unfinished(number) => number,
    };
    Path {
        name: Name::Unfinished(number),
        ..finished
    }
}

/// Two snapshots are kept.
fn remove_older_snapshots(machine: &mut Machine<'_>, group: ConsensusGroup, newest: Op) {
    let directory = Directory::Group(group);
    let mut older: Vec<Name> = machine
        .disk
        .list(directory)
        .map(|(name, _)| name)
        .filter(|name| matches!(name, Name::Snapshot(op) if *op < newest))
        .collect();
    older.pop();
    for name in older {
        machine.disk.remove(Path { directory, name });
    }
}

fn zeros_of(size: u64) -> usize {
    usize::try_from(size).expect("a simulated file fits the memory")
}
