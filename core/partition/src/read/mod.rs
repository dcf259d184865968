//! Reads messages: from memory, or by way of a segment's files.

mod goal;
mod plan;
mod serve;

use alloc::{boxed::Box, string::ToString, vec::Vec};

use bytes::Bytes;
use wire::{ErrorCode, Failure, Incarnation, Offset, PartitionKey, PollStrategy};

use crate::{
    Absent, Damage, DataGroup, DataRequest, Range, Scan, SegmentId, Verdict, group::Partition,
    index::Index,
};
use goal::{Goal, Wanted};
use serve::Served;

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadQuery<'a> {
    /// Where to begin.
    pub strategy: PollStrategy,
    /// Full name of the single consumer, for [`PollStrategy::Next`].
    pub consumer: &'a str,
    /// No batch is added once there are so many messages.
    pub max_messages: u32,
    /// No batch is added that would exceed so many bytes, but the first.
    pub max_bytes: u32,
}

/// The answer to a query, or what is needed for it.
#[derive(Clone, Debug)]
pub enum Read {
    /// The answer.
    Batches(Batches),
    /// Read this from a file and hand it to [`DataGroup::finish_read`].
    File(FileRead),
}

/// Whole batches, as they are stored. Whoever gets them skips what the first holds before `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// The first message that is wanted; `end` when there is none yet.
    pub from: Offset,
    /// The offset after the last message in `parts`; `from` when there is none.
    pub next: Offset,
    /// Messages from the position asked for to the start, which are gone.
    pub skipped: u64,
    /// The first offset that the partition serves.
    pub start: Offset,
    /// The offset of the partition's next message.
    pub end: Offset,
    /// Bytes of all parts together.
    pub size: u64,
    /// The batches, one after the other; a part need not be a whole one.
    pub parts: Vec<Bytes>,
}

/// A range of a file that a query needs.
#[derive(Clone, Debug)]
pub struct FileRead {
    /// The segment.
    pub segment: SegmentId,
    /// Which of its files.
    pub file: FileKind,
    /// Position of the first byte.
    pub position: u64,
    /// Bytes. An index may be shorter. When it is 0 there is nothing to be read.
    pub length: u64,
    goal: Goal,
    purpose: Purpose,
}

/// The files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The batches.
    Segment,
    /// The index.
    Index,
}

/// What is done with the bytes of a file.
#[derive(Clone, Debug)]
enum Purpose {
    /// Serve batches of it. The range begins with the batch at this offset.
    Serve(Offset),
    /// Take the index from it.
    LoadIndex,
    /// Build the index from it.
    BuildIndex(Box<Scan>),
}

/// Why a query is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollError {
    /// The partition is not looked at.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// The offset is behind the end.
    #[error(
        "offset {offset} is out of range: the partition starts at {start} and ends before {end}"
    )]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// The first offset held.
        start: Offset,
        /// The offset of the next message.
        end: Offset,
    },
    /// The partition is out of service on this node.
    #[error("the partition's segment {base} is {damage}", base = .segment.base)]
    Damaged {
        /// The damaged segment.
        segment: SegmentId,
        /// Its damage.
        damage: Damage,
    },
}

impl PollError {
    /// The code for programs.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Absent(_) => ErrorCode::Retry,
            Self::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Self::Damaged { .. } => ErrorCode::PartitionDamaged,
        }
    }

    /// The error reply.
    #[must_use]
    pub fn failure(&self) -> Failure {
        Failure::new(self.code(), self.to_string())
    }
}

impl DataGroup {
    /// Reads a partition. At least one batch is returned, however small the limits are, unless the query
    /// begins at the end. A position before the start continues at the start. Fewer batches than the
    /// limits allow may be returned: there is more as long as `next` is before `end`.
    ///
    /// # Errors
    /// When the partition is not here with this incarnation, or is damaged on this node; when the
    /// position is behind the end.
    pub fn read(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
        query: &ReadQuery<'_>,
    ) -> Result<Read, PollError> {
        let partition = self.serving(key, incarnation)?;
        let (start, end) = (partition.start, partition.next);
        let max_messages = u64::from(query.max_messages.max(1));
        let wanted = match query.strategy {
            PollStrategy::First => Wanted::Offset(start),
            PollStrategy::Last => {
                let from = Offset(end.0.saturating_sub(max_messages));
                Wanted::Offset(from.max(start))
            }
            PollStrategy::Timestamp(time) => Wanted::Time { time, floor: None },
            PollStrategy::Offset(offset) => Wanted::Offset(offset),
            PollStrategy::Next => match partition.consumers.stored(query.consumer) {
                Some(stored) => Wanted::Offset(stored.next()),
                None => Wanted::Offset(start),
            },
        };
        if let Wanted::Offset(offset) = wanted
            && offset > end
        {
            return Err(PollError::OffsetOutOfRange { offset, start, end });
        }
        let goal = Goal {
            wanted,
            skipped: 0,
            max_messages,
            max_bytes: u64::from(query.max_bytes),
        };
        Ok(self.plan(key, partition, goal))
    }

    /// Goes on with what was read from a file; `None` when the system cannot read it.
    ///
    /// A segment that cannot be read, is too short, or holds anything but what was appended takes its
    /// partition out of service on this node. An index that is wrong or missing is built again.
    ///
    /// # Errors
    /// Those of [`DataGroup::read`].
    pub fn finish_read(
        &mut self,
        read: FileRead,
        bytes: Option<&Bytes>,
    ) -> Result<Read, PollError> {
        let FileRead {
            segment,
            position,
            length,
            mut goal,
            purpose,
            ..
        } = read;
        let key = segment.partition;
        let partition = self.serving(key, segment.incarnation)?;
        let Some(tracked) = partition.segments.find(segment.base) else {
            // Removed since the read began, so what was read says nothing.
            return Ok(self.plan(key, partition, goal));
        };
        match purpose {
            Purpose::Serve(first) => {
                let range = Range { position, length };
                match serve::serve(&mut goal, partition, bytes, (segment.base, range, first)) {
                    Ok(Served::Batches(batches)) => return Ok(Read::Batches(batches)),
                    Ok(Served::Again) => {}
                    Err(damage) => return Err(self.damage_found(segment, damage)),
                }
            }
            Purpose::LoadIndex => match bytes.map(|bytes| Index::decode(bytes, &tracked.segment)) {
                Some(Ok(index)) => self.indexes.insert(segment, index),
                Some(Err(_)) | None => return Ok(self.build_index(segment, goal)),
            },
            Purpose::BuildIndex(mut scan) => {
                match bytes {
                    Some(bytes) => scan.feed(bytes),
                    // Nothing of the segment is written yet, so its file need not be there.
                    None if length == 0 => {}
                    None => scan.fail(),
                }
                if scan.next_read().is_some() {
                    return Ok(FileRead::of_scan(goal, scan));
                }
                match scan.finish() {
                    Verdict::Whole(index) => self.install_index(segment, index),
                    Verdict::Damaged(damage) => return Err(self.damage_found(segment, damage)),
                }
            }
        }
        let partition = self.serving(key, segment.incarnation)?;
        Ok(self.plan(key, partition, goal))
    }

    fn damage_found(&mut self, segment: SegmentId, damage: Damage) -> PollError {
        self.mark_damaged(segment, damage.clone());
        PollError::Damaged { segment, damage }
    }

    /// Refuses a request that should not be proposed on a node without peers: a batch for a partition that is out
    /// of service here could not be read when it is acknowledged. What is committed is applied nevertheless.
    ///
    /// # Errors
    /// [`PollError::Damaged`].
    pub fn admit(&self, request: &DataRequest) -> Result<(), PollError> {
        let DataRequest::Append {
            key, incarnation, ..
        } = request
        else {
            return Ok(());
        };
        match self.serving(*key, *incarnation) {
            // What becomes of a request for a partition that is not here is decided when it is applied.
            Ok(_) | Err(PollError::Absent(_)) => Ok(()),
            Err(refused) => Err(refused),
        }
    }

    /// The partition, if it is served on this node.
    fn serving(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
    ) -> Result<&Partition, PollError> {
        let partition = self.partition(key, incarnation)?;
        match partition.damage.first_key_value() {
            Some((base, damage)) => Err(PollError::Damaged {
                segment: self.segment_id(key, partition, *base),
                damage: damage.clone(),
            }),
            None => Ok(partition),
        }
    }
}
