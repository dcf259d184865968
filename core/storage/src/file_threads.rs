//! The threads that do a shard's work on segments and snapshots.
//!
//! Three of them, so that a long flush delays no read and a writer that is throttled by the kernel delays
//! neither. Each works in the order of its jobs.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use wire::{ConsensusGroup, Incarnation, Op, PartitionKey};

use crate::{Error, FileKind, SegmentName, Segments, SnapshotRange, Snapshots};

/// Makes the bytes of a snapshot, on the thread that writes it.
type Encode = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Reads the bytes of a snapshot, and answers itself.
type Decode = Box<dyn FnOnce() + Send>;

/// Something to be done with files. `ticket` is returned with the answer; from 1.
pub enum Job {
    /// Write into a segment.
    Append {
        /// Returned by [`Done::Changed`].
        ticket: u64,
        /// The segment.
        segment: SegmentName,
        /// Byte position in the file.
        position: u64,
        /// What to write, one after the other.
        pieces: Vec<Bytes>,
    },
    /// Write a segment's index.
    WriteIndex {
        /// Returned by [`Done::Changed`].
        ticket: u64,
        /// The segment.
        segment: SegmentName,
        /// The whole file.
        bytes: Bytes,
    },
    /// Delete a segment.
    Delete {
        /// Returned by [`Done::Changed`].
        ticket: u64,
        /// The segment.
        segment: SegmentName,
    },
    /// Delete everything of a partition's incarnation.
    DeletePartition {
        /// Returned by [`Done::Changed`].
        ticket: u64,
        /// The data group.
        group: ConsensusGroup,
        /// The partition.
        partition: PartitionKey,
        /// The incarnation.
        incarnation: Incarnation,
    },
    /// Read a range of one of a segment's files.
    Read {
        /// Returned by [`Done::Read`].
        ticket: u64,
        /// The segment.
        segment: SegmentName,
        /// Which file.
        kind: FileKind,
        /// Byte position in the file.
        position: u64,
        /// Bytes.
        length: u64,
    },
    /// Flush segments and their directories.
    Flush {
        /// Returned by [`Done::Flushed`].
        ticket: u64,
        /// The segments.
        segments: Vec<SegmentName>,
    },
    /// Read a range of a snapshot.
    ReadSnapshot {
        /// Returned by [`Done::SnapshotRead`].
        ticket: u64,
        /// The consensus group.
        group: ConsensusGroup,
        /// The op that it was taken after.
        op: Op,
        /// The first byte.
        position: u64,
        /// Bytes.
        length: u64,
    },
    /// Write a snapshot.
    Snapshot {
        /// The consensus group.
        group: ConsensusGroup,
        /// The op that it was taken after.
        op: Op,
        /// Makes its bytes.
        encode: Encode,
    },
    /// Make sense of a snapshot that another node has sent, on the thread that writes them: it may be large, and
    /// nobody waits for either.
    Decode(Decode),
}

/// A job that was done.
#[derive(Debug)]
pub enum Done {
    /// All changes up to this ticket are in their files.
    Changed {
        /// The ticket.
        ticket: u64,
    },
    /// A range was read, or not.
    Read {
        /// The ticket.
        ticket: u64,
        /// The bytes, or why there are none.
        result: Result<Bytes, Error>,
    },
    /// The segments are on the disk.
    Flushed {
        /// The ticket.
        ticket: u64,
    },
    /// A range of a snapshot was read, or not.
    SnapshotRead {
        /// The ticket.
        ticket: u64,
        /// The range, or why it cannot be had.
        result: Result<SnapshotRange, Error>,
    },
    /// The snapshot is on the disk.
    SnapshotWritten {
        /// The consensus group.
        group: ConsensusGroup,
        /// Its op.
        op: Op,
    },
}

/// Told what was done, on a file thread; it puts the answer into the shard's inbox.
type Answer = Arc<dyn Fn(Done) + Send + Sync>;

/// Told why a file cannot be written; ends the process.
type Fatal = Arc<dyn Fn(Error) + Send + Sync>;

/// The file threads of one shard; they end when it is dropped, after what was handed over is done.
#[derive(Debug)]
pub struct FileThreads {
    senders: Option<[Sender<Job>; 3]>,
    threads: Vec<JoinHandle<()>>,
    /// Nobody waits any more for what finds no space.
    ends: Arc<AtomicBool>,
}

/// Which thread does a job.
#[derive(Clone, Copy)]
enum Role {
    Write = 0,
    Read = 1,
    Flush = 2,
}

/// Files that each thread keeps open.
const OPEN_MAX: usize = 256;

/// How long until a full disk is tried again.
const RETRY: Duration = Duration::from_millis(200);

impl FileThreads {
    /// Starts the threads of a shard.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(data: &Path, shard: u16, answer: Answer, fatal: Fatal) -> Result<Self, Error> {
        let mut threads = Vec::new();
        let ends = Arc::new(AtomicBool::new(false));
        let mut start = |name: &str| {
            let (sender, jobs) = mpsc::channel();
            let mut worker = Worker {
                segments: Segments::new(data, OPEN_MAX),
                snapshots: Snapshots::new(data),
                answer: Arc::clone(&answer),
                ends: Arc::clone(&ends),
            };
            let fatal = Arc::clone(&fatal);
            let thread = thread::Builder::new()
                .name(format!("{name}-{shard}"))
                .spawn(move || {
                    if let Err(error) = worker.run(&jobs) {
                        fatal(error);
                    }
                });
            threads.push(thread.map_err(Error::io("start a thread for", data))?);
            Ok::<_, Error>(sender)
        };
        let senders = [
            start("files-write")?,
            start("files-read")?,
            start("files-flush")?,
        ];
        Ok(Self {
            senders: Some(senders),
            threads,
            ends,
        })
    }

    /// Hands a job over.
    pub fn submit(&self, job: Job) {
        // The reader closes its files of what goes, too, so that the space is freed: a ticket of 0 says that.
        match &job {
            Job::DeletePartition {
                group,
                partition,
                incarnation,
                ..
            } => self.send(
                Role::Read,
                Job::DeletePartition {
                    ticket: 0,
                    group: *group,
                    partition: *partition,
                    incarnation: *incarnation,
                },
            ),
            Job::Delete { segment, .. } => self.send(
                Role::Read,
                Job::Delete {
                    ticket: 0,
                    segment: *segment,
                },
            ),
            Job::Append { .. }
            | Job::WriteIndex { .. }
            | Job::Read { .. }
            | Job::ReadSnapshot { .. }
            | Job::Flush { .. }
            | Job::Snapshot { .. }
            | Job::Decode(_) => {}
        }
        self.send(job.role(), job);
    }

    fn send(&self, role: Role, job: Job) {
        if let Some(senders) = &self.senders {
            // A thread ends early only after `fatal` was told why.
            let _ = senders[role as usize].send(job);
        }
    }
}

impl Drop for FileThreads {
    fn drop(&mut self) {
        self.senders = None;
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread was told on standard error.
            let _ = thread.join();
        }
    }
}

impl Job {
    const fn role(&self) -> Role {
        match self {
            Self::Append { .. }
            | Self::WriteIndex { .. }
            | Self::Delete { .. }
            | Self::DeletePartition { .. } => Role::Write,
            Self::Read { .. } | Self::ReadSnapshot { .. } => Role::Read,
            Self::Flush { .. } | Self::Snapshot { .. } | Self::Decode(_) => Role::Flush,
        }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Append { .. } => "Append",
            Self::WriteIndex { .. } => "WriteIndex",
            Self::Delete { .. } => "Delete",
            Self::DeletePartition { .. } => "DeletePartition",
            Self::Read { .. } => "Read",
            Self::ReadSnapshot { .. } => "ReadSnapshot",
            Self::Flush { .. } => "Flush",
            Self::Snapshot { .. } => "Snapshot",
            Self::Decode(_) => "Decode",
        })
    }
}

struct Worker {
    segments: Segments,
    snapshots: Snapshots,
    answer: Answer,
    ends: Arc<AtomicBool>,
}

/// Tries again until there is space, so that a full disk loses nothing and ends nothing; gives up, as if
/// it were done, when `ends` turns true.
fn when_there_is_space(
    ends: &AtomicBool,
    mut attempt: impl FnMut() -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut told = false;
    loop {
        match attempt() {
            Err(error) if error.is_full() => {
                if !told {
                    tracing::error!("{error}; it is tried again until there is space");
                    told = true;
                }
                if ends.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                thread::sleep(RETRY);
            }
            done => return done.map(|()| true),
        }
    }
}

/// Deletes what a job behind an append deletes: the append may wait for just this space. The job is done
/// again in its turn, since appends before it make files anew.
fn delete_early(segments: &mut Segments, job: &Job) -> Result<(), Error> {
    match job {
        Job::Delete { segment, .. } => segments.delete(segment),
        Job::DeletePartition {
            group,
            partition,
            incarnation,
            ..
        } => segments.delete_partition(*group, partition, *incarnation),
        Job::Append { .. }
        | Job::WriteIndex { .. }
        | Job::Read { .. }
        | Job::ReadSnapshot { .. }
        | Job::Flush { .. }
        | Job::Snapshot { .. }
        | Job::Decode(_) => Ok(()),
    }
}

impl Worker {
    fn run(&mut self, jobs: &Receiver<Job>) -> Result<(), Error> {
        while let Ok(job) = jobs.recv() {
            let mut queue = VecDeque::from([job]);
            let mut changed = None;
            // What is there already is done before the shard is told, once for all of it.
            while let Some(job) = queue.pop_front().or_else(|| jobs.try_recv().ok()) {
                if let Some(ticket) = self.work(job, jobs, &mut queue)? {
                    changed = Some(ticket);
                }
            }
            if let Some(ticket) = changed {
                (self.answer)(Done::Changed { ticket });
            }
        }
        Ok(())
    }

    /// Does a job; the ticket of a change is given back, to be told with those that follow. What comes in
    /// while a full disk is waited for goes into `queue`.
    fn work(
        &mut self,
        job: Job,
        jobs: &Receiver<Job>,
        queue: &mut VecDeque<Job>,
    ) -> Result<Option<u64>, Error> {
        match job {
            Job::Append {
                ticket,
                segment,
                position,
                pieces,
            } => {
                let done = self.append((&segment, position, &pieces), jobs, queue)?;
                Ok(done.then_some(ticket))
            }
            Job::WriteIndex {
                ticket,
                segment,
                bytes,
            } => {
                self.write_index(&segment, &bytes)?;
                Ok(Some(ticket))
            }
            Job::Delete { ticket: 0, segment } => {
                self.segments.close(&segment);
                Ok(None)
            }
            Job::Delete { ticket, segment } => {
                self.segments.delete(&segment)?;
                Ok(Some(ticket))
            }
            Job::DeletePartition {
                ticket: 0,
                group,
                partition,
                incarnation,
            } => {
                self.segments.forget(group, &partition, incarnation);
                Ok(None)
            }
            Job::DeletePartition {
                ticket,
                group,
                partition,
                incarnation,
            } => {
                self.segments
                    .delete_partition(group, &partition, incarnation)?;
                Ok(Some(ticket))
            }
            Job::Read { .. } | Job::ReadSnapshot { .. } => {
                self.read(job);
                Ok(None)
            }
            Job::Flush { ticket, segments } => {
                self.segments.flush(&segments)?;
                (self.answer)(Done::Flushed { ticket });
                Ok(None)
            }
            Job::Snapshot { group, op, encode } => self.write_snapshot(group, op, encode),
            Job::Decode(decode) => {
                decode();
                Ok(None)
            }
        }
    }

    fn read(&mut self, job: Job) {
        let done = match job {
            Job::Read {
                ticket,
                segment,
                kind,
                position,
                length,
            } => {
                let result = self.segments.read(&segment, kind, position, length);
                Done::Read { ticket, result }
            }
            Job::ReadSnapshot {
                ticket,
                group,
                op,
                position,
                length,
            } => {
                let result = self.snapshots.read_range(group, op, position, length);
                Done::SnapshotRead { ticket, result }
            }
            Job::Append { .. }
            | Job::WriteIndex { .. }
            | Job::Delete { .. }
            | Job::DeletePartition { .. }
            | Job::Flush { .. }
            | Job::Snapshot { .. }
            | Job::Decode(_) => unreachable!("it reads nothing"),
        };
        (self.answer)(done);
    }

    /// Appends as soon as there is space; whether it has.
    fn append(
        &mut self,
        (segment, position, pieces): (&SegmentName, u64, &[Bytes]),
        jobs: &Receiver<Job>,
        queue: &mut VecDeque<Job>,
    ) -> Result<bool, Error> {
        let Self { segments, ends, .. } = self;
        let mut seen = 0;
        when_there_is_space(ends, || {
            let appended = segments.append(segment, position, pieces);
            if appended.as_ref().is_err_and(Error::is_full) {
                queue.extend(jobs.try_iter());
                for job in queue.iter().skip(seen) {
                    delete_early(segments, job)?;
                }
                seen = queue.len();
            }
            appended
        })
    }

    fn write_snapshot(
        &self,
        group: ConsensusGroup,
        op: Op,
        encode: Encode,
    ) -> Result<Option<u64>, Error> {
        let bytes = encode();
        let snapshots = &self.snapshots;
        if when_there_is_space(&self.ends, || snapshots.write(group, op, &bytes))? {
            (self.answer)(Done::SnapshotWritten { group, op });
        }
        Ok(None)
    }

    fn write_index(&self, segment: &SegmentName, bytes: &[u8]) -> Result<(), Error> {
        match self.segments.write_index(segment, bytes) {
            // It is made again when it is missed.
            Err(error) if error.is_full() => {
                tracing::warn!("{error}; the index is left out");
                Ok(())
            }
            written => written,
        }
    }
}
