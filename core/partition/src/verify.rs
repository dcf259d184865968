//! Judges the bytes of segments.

use bytes::Bytes;
use wire::{BATCH_HEADER_SIZE, Batch, DecodeError, FRAME_SIZE_MAX, Offset, Timestamp};

use crate::{
    SegmentFile, SegmentId,
    index::Index,
    segments::{Mark, chain},
};

/// Bytes that a scan asks for at once, unless a batch needs more.
const SCAN_CHUNK: u64 = 1024 * 1024;

/// Where a segment stops being what was appended to it, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged at byte {position}, at offset {offset}: {problem}")]
pub struct Damage {
    /// Where the first batch begins that is not right.
    pub position: u64,
    /// The offset that should be there.
    pub offset: Offset,
    /// What is wrong.
    pub problem: SegmentProblem,
}

/// The kinds of damage of a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentProblem {
    /// The file is not there, or the system cannot read it.
    #[error("the file cannot be read")]
    Unreadable,
    /// The file ends too early.
    #[error("the file ends at byte {length}")]
    Short {
        /// Its length.
        length: u64,
    },
    /// The bytes are no batch, or not the batch that its checksums are of.
    #[error(transparent)]
    Batch(DecodeError),
    /// Offset and time of a batch are not those that it was stamped with.
    #[error("offset and time of the batch there do not match their checksum")]
    Stamp,
    /// A batch without messages.
    #[error("the batch there has no messages")]
    NoMessages,
    /// A batch has another offset.
    #[error("the batch there has offset {found}")]
    Offset {
        /// The offset found.
        found: Offset,
    },
    /// A batch is older than the one before it.
    #[error("the batch there is of time {found}, and older than the one before")]
    Time {
        /// The time found.
        found: Timestamp,
    },
    /// A batch is larger than what is left of the segment.
    #[error("the batch there takes {size} bytes, and the segment has {left} left")]
    Overrun {
        /// The batch's size.
        size: u64,
        /// Bytes left.
        left: u64,
    },
    /// Every batch is a good one, but they are not those that were appended.
    #[error(
        "the batches are not those that were appended: checksum {found:#018x}, not {wanted:#018x}"
    )]
    Foreign {
        /// The chain over the file.
        found: u64,
        /// The chain that is replicated.
        wanted: u64,
    },
}

/// What a scan has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every batch is there and right. Here is the index.
    Whole(Index),
    /// It is damaged.
    Damaged(Damage),
}

/// A range of a segment file to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Position of the first byte.
    pub position: u64,
    /// Bytes.
    pub length: u64,
}

/// Walks a segment from its beginning, however large it is: asks for ranges, and judges them.
#[derive(Clone, Debug)]
pub struct Scan {
    id: SegmentId,
    /// Bytes to be judged.
    length: u64,
    /// The chain that is replicated of them.
    wanted: u64,
    /// Built from what was judged.
    index: Index,
    timestamp: Timestamp,
    /// Bytes that the next batch needs.
    needed: u64,
    damage: Option<Damage>,
}

/// Judges the bytes of a whole segment file that are at hand. What is behind its length is not looked
/// at.
#[must_use]
pub fn verify(file: &SegmentFile, bytes: &Bytes) -> Verdict {
    let mut scan = Scan::new(file);
    while let Some(Range { position, length }) = scan.next_read() {
        let size = bytes.len() as u64;
        let (from, to) = (position.min(size), (position + length).min(size));
        scan.feed(&bytes.slice(to_index(from)..to_index(to)));
    }
    scan.finish()
}

impl Scan {
    /// Of a whole segment.
    #[must_use]
    pub const fn new(file: &SegmentFile) -> Self {
        let index = Index::new(file.segment.base);
        Self::resume(file.id, index, Mark::end_of(&file.segment))
    }

    /// Of the rest of a segment, whose beginning up to `mark` is known to be right. What it finds is no index
    /// to be kept.
    #[must_use]
    pub const fn behind(file: &SegmentFile, mark: Mark) -> Self {
        Self::resume(file.id, Index::behind(mark), Mark::end_of(&file.segment))
    }

    /// How far the segment was judged, and found to be right so far.
    #[must_use]
    pub const fn reached(&self) -> Mark {
        Mark {
            position: self.index.covered(),
            next: self.index.next(),
            checksum: self.index.checksum(),
        }
    }

    /// From where `index` ends, up to `end`.
    pub(crate) const fn resume(id: SegmentId, index: Index, end: Mark) -> Self {
        Self {
            id,
            length: end.position,
            wanted: end.checksum,
            index,
            timestamp: Timestamp(0),
            needed: BATCH_HEADER_SIZE as u64,
            damage: None,
        }
    }

    /// The segment.
    #[must_use]
    pub const fn id(&self) -> SegmentId {
        self.id
    }

    /// What to read next and hand to [`Scan::feed`]; `None` when the scan is at its end.
    #[must_use]
    pub fn next_read(&self) -> Option<Range> {
        let position = self.index.covered();
        let left = self.length - position;
        if self.damage.is_some() || left == 0 {
            return None;
        }
        Some(Range {
            position,
            length: left.min(self.needed.max(SCAN_CHUNK)),
        })
    }

    /// Judges the bytes of the range that was asked for; fewer bytes mean that the file ends there, none
    /// at all that it is perhaps not there.
    pub fn feed(&mut self, bytes: &Bytes) {
        let Some(range) = self.next_read() else {
            return;
        };
        let size = bytes.len().min(to_index(range.length));
        let mut walk = Walk::new(bytes.slice(..size), range.position, self.index.next());
        walk.timestamp = self.timestamp;
        loop {
            if walk.position == self.length {
                break;
            }
            match walk.step() {
                Ok(Step::Batch(batch)) => {
                    let checksum = chain(self.index.checksum(), &batch.header);
                    self.index.push(&batch.header, checksum);
                    self.needed = BATCH_HEADER_SIZE as u64;
                }
                Ok(Step::Partial { needed }) => {
                    let left = self.length - walk.position;
                    if needed > left {
                        let size = needed;
                        self.damage = Some(walk.damage(SegmentProblem::Overrun { size, left }));
                    } else if (size as u64) < range.length {
                        let length = range.position + size as u64;
                        self.damage = Some(walk.damage(SegmentProblem::Short { length }));
                    }
                    self.needed = needed;
                    break;
                }
                Err(damage) => {
                    self.damage = Some(damage);
                    break;
                }
            }
        }
        self.timestamp = walk.timestamp;
    }

    /// Ends the scan as damaged where it is: the system cannot read the file.
    pub fn fail(&mut self) {
        self.damage = Some(Damage {
            position: self.index.covered(),
            offset: self.index.next(),
            problem: SegmentProblem::Unreadable,
        });
    }

    /// The verdict.
    ///
    /// # Panics
    /// When there is something left to be read.
    #[must_use]
    pub fn finish(self) -> Verdict {
        assert!(self.next_read().is_none());
        if let Some(damage) = self.damage {
            return Verdict::Damaged(damage);
        }
        let (found, wanted) = (self.index.checksum(), self.wanted);
        if found == wanted {
            return Verdict::Whole(self.index);
        }
        Verdict::Damaged(Damage {
            position: 0,
            offset: self.id.base,
            problem: SegmentProblem::Foreign { found, wanted },
        })
    }
}

/// Walks stored batches, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// What is not walked yet.
    bytes: Bytes,
    /// Position of its first byte in the segment.
    pub(crate) position: u64,
    /// The offset that the next batch must have.
    pub(crate) next: Offset,
    /// The time that the next batch must have at least.
    timestamp: Timestamp,
}

/// One step of a walk.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A batch that is right.
    Batch(Batch),
    /// The next batch is not whole in the bytes at hand; nothing is known against it.
    Partial {
        /// Bytes that it takes, as far as is known.
        needed: u64,
    },
}

impl Walk {
    pub(crate) const fn new(bytes: Bytes, position: u64, next: Offset) -> Self {
        Self {
            bytes,
            position,
            next,
            timestamp: Timestamp(0),
        }
    }

    pub(crate) fn step(&mut self) -> Result<Step, Damage> {
        if self.bytes.len() < BATCH_HEADER_SIZE {
            let needed = BATCH_HEADER_SIZE as u64;
            return Ok(Step::Partial { needed });
        }
        let header = Batch::read_header(&self.bytes).map_err(|error| self.rotten(error))?;
        let found = Offset(header.base_offset);
        if found != self.next {
            return Err(self.damage(SegmentProblem::Offset { found }));
        }
        if header.size > FRAME_SIZE_MAX {
            let (size, left) = (u64::from(header.size), u64::from(FRAME_SIZE_MAX));
            return Err(self.damage(SegmentProblem::Overrun { size, left }));
        }
        let size = header.size as usize;
        if self.bytes.len() < size {
            let needed = size as u64;
            return Ok(Step::Partial { needed });
        }
        let batch = Batch::read_admitted(&self.bytes).map_err(|error| self.rotten(error))?;
        if !batch.is_stamped() {
            return Err(self.damage(SegmentProblem::Stamp));
        }
        if header.count == 0 {
            return Err(self.damage(SegmentProblem::NoMessages));
        }
        let found = Timestamp(header.timestamp);
        if found < self.timestamp {
            return Err(self.damage(SegmentProblem::Time { found }));
        }
        self.bytes = self.bytes.slice(size..);
        self.position += size as u64;
        self.next = batch.last_offset().next();
        self.timestamp = found;
        Ok(Step::Batch(batch))
    }

    /// Damage where the walk is.
    pub(crate) const fn damage(&self, problem: SegmentProblem) -> Damage {
        Damage {
            position: self.position,
            offset: self.next,
            problem,
        }
    }

    const fn rotten(&self, error: DecodeError) -> Damage {
        self.damage(SegmentProblem::Batch(error))
    }
}

/// A position within bytes that are in memory.
pub(crate) fn to_index(position: u64) -> usize {
    usize::try_from(position).expect("what is in memory has a usize for its size")
}
