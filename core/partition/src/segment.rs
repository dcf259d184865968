//! Names of segments and what is to be done with them.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{ConsensusGroup, Incarnation, Offset, PartitionKey, Timestamp};

/// One segment: `group-<g>/<stream>-<topic>-<partition>-<incarnation>/<base offset>.segment`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct SegmentId {
    /// The data group.
    pub group: ConsensusGroup,
    /// The partition.
    pub partition: PartitionKey,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Offset of the segment's first message.
    pub base: Offset,
}

/// What is replicated of a segment. It is made with its first batch, so it is never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Segment {
    /// Offset of the first message.
    pub base: Offset,
    /// Bytes.
    pub length: u64,
    /// Messages.
    pub messages: u64,
    /// Broker time of the first batch.
    pub first_timestamp: Timestamp,
    /// Broker time of the last batch.
    pub last_timestamp: Timestamp,
    /// Chain over the stamped headers of all batches, whose own checksums cover the messages.
    pub checksum: u64,
}

impl Segment {
    /// The offset after the last message.
    #[must_use]
    pub const fn next(&self) -> Offset {
        Offset(self.base.0 + self.messages)
    }
}

/// A file that a snapshot rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its name.
    pub id: SegmentId,
    /// What it held when the snapshot was taken: bytes behind `length` belong to later ops.
    pub segment: Segment,
    /// Whether batches were still being appended to it, so that it is verified at start.
    pub open: bool,
}

/// A change of files that committed ops ask for. Positions are explicit, so that carrying one out twice
/// (a replay) changes nothing, and appends may be carried out in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentChange {
    /// Write `parts`, one after the other, at `position`; creates file and directory.
    Append {
        /// The segment.
        segment: SegmentId,
        /// Byte position in the file.
        position: u64,
        /// The bytes.
        parts: Vec<Bytes>,
    },
    /// Write the segment's index file, in place of one that may be there. Losing it costs a scan of the
    /// segment, nothing else: it need not be flushed.
    WriteIndex {
        /// The segment.
        segment: SegmentId,
        /// The whole file.
        bytes: Bytes,
    },
    /// Delete the segment and its index. A file that is not there is no error.
    Delete {
        /// The segment.
        segment: SegmentId,
    },
    /// Delete the directory of a partition's incarnation with all that is in it. A directory that is not
    /// there is no error.
    DeletePartition {
        /// The data group.
        group: ConsensusGroup,
        /// The partition.
        partition: PartitionKey,
        /// The incarnation.
        incarnation: Incarnation,
    },
}
