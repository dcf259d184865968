//! Names of segments and what is to be done with them.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{ConsensusGroup, Incarnation, Offset, PartitionKey};

/// One segment: `group-<g>/<stream>-<topic>-<partition>-<incarnation>/<base offset>.segment`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
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
    /// Delete the segment and its index. A file that is not there is no error.
    Delete {
        /// The segment.
        segment: SegmentId,
    },
    /// Delete the directory of a partition's incarnation with all that is in it.
    DeletePartition {
        /// The data group.
        group: ConsensusGroup,
        /// The partition.
        partition: PartitionKey,
        /// The incarnation.
        incarnation: Incarnation,
    },
}
