//! What goes into the journal and what comes out of it.

use bytes::Bytes;
use wire::{ClusterId, ConsensusGroup, ReplicaId, ShardId, checksum64};

use crate::{Progress, Record};

/// A file of the journal. Its number is also the generation of its units and is never used again: a file
/// that is recycled gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// The largest block that the device writes whole or not at all; a tear falls between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitSize {
    /// 512 bytes: right for every device.
    #[default]
    Bytes512,
    /// 4 KiB: for devices that say so.
    Bytes4096,
}

impl UnitSize {
    /// Bytes of a unit, trailer included.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }

    /// The unit of `bytes` bytes, if there is one.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self::Bytes512),
            4096 => Some(Self::Bytes4096),
            _ => None,
        }
    }
}

/// What a journal is, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// [`identity`] of the node. Frames of another one are never taken for ours.
    pub identity: u64,
    /// Fixed when the data directory is formatted.
    pub unit_size: UnitSize,
    /// Bytes of a file; a multiple of 4 KiB. The largest record, with the superblock records of all groups,
    /// must fit in one.
    pub file_size: u64,
    /// Bytes of the very first file, which somebody waits for; deleted instead of recycled if it differs.
    pub first_file_size: u64,
    /// A frame takes no further prepare when it has reached this many bytes.
    pub frame_size: u32,
    /// Bytes of all files with something that is still needed, above which no prepare is written. Records
    /// of superblocks, which free space, still are.
    pub live_max: u64,
    /// Bytes of the same, from which on the groups that pin the oldest file are asked for checkpoints.
    pub checkpoint_at: u64,
}

impl Config {
    /// The sizes that a server uses.
    #[must_use]
    pub const fn new(identity: u64, unit_size: UnitSize) -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            identity,
            unit_size,
            file_size: 64 * MIB,
            first_file_size: 16 * MIB,
            frame_size: 4 * 1024 * 1024,
            live_max: 512 * MIB,
            checkpoint_at: 256 * MIB,
        }
    }
}

/// Stands for one replica of one cluster in the header of every frame.
#[must_use]
pub fn identity(cluster: ClusterId, replica: ReplicaId) -> u64 {
    let mut bytes = [0; 17];
    bytes[..16].copy_from_slice(&cluster.0.to_le_bytes());
    bytes[16] = replica.0;
    checksum64(&bytes)
}

/// One event for the journal.
#[derive(Clone, Debug)]
pub enum Input {
    /// A shard hands a record over. Its ticket is one more than that of the shard's record before.
    Record {
        /// The shard.
        shard: ShardId,
        /// The record.
        record: Record,
    },
    /// What the last [`Effect::Flush`] asked for is done: all that was written and zeroed before is on the
    /// disk.
    Flushed,
    /// The file of an [`Effect::Prepare`] exists under its name, also after a power failure, with all its
    /// bytes.
    Prepared {
        /// The file.
        file: FileId,
    },
    /// The bytes that an [`Effect::Read`] asked for; empty if they could not be read.
    Read {
        /// The file.
        file: FileId,
        /// Position in the file.
        position: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// No record came for a while (about a millisecond). Expected once after every flush that
    /// `Journal::wants_quiet` follows.
    Quiet,
    /// The group is out of service until it is repaired: what it still needs stays, without counting.
    Suspend {
        /// The group.
        group: ConsensusGroup,
    },
}

/// What the driver of the journal has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write `Journal::frame` at this position.
    Write {
        /// The file.
        file: FileId,
        /// Position in the file, a multiple of 4 KiB.
        position: u64,
    },
    /// Overwrite with zeros.
    Zero {
        /// The file.
        file: FileId,
        /// Position in the file, a multiple of 4 KiB.
        position: u64,
        /// How many bytes.
        length: u64,
    },
    /// Flush the file, then report [`Input::Flushed`]. Nothing else is written before.
    Flush {
        /// The file.
        file: FileId,
    },
    /// Make a file ready, in the background, then report [`Input::Prepared`]: rename `from`, or else create
    /// one of `size` zero bytes that are allocated and written; make the name durable.
    Prepare {
        /// The new file.
        file: FileId,
        /// An old file that nothing is needed from any more.
        from: Option<FileId>,
        /// Bytes of the file.
        size: u64,
    },
    /// Delete a file, in the background. It may be missing.
    Delete {
        /// The file.
        file: FileId,
    },
    /// Read what was written before, then report [`Input::Read`].
    Read {
        /// The file.
        file: FileId,
        /// Position in the file.
        position: u64,
        /// How many bytes.
        length: u32,
    },
    /// Tell a shard how far its records are durable.
    Progress {
        /// The shard.
        shard: ShardId,
        /// How far.
        progress: Progress,
    },
    /// A checkpoint of this group would free the oldest file. Asked again with each further file.
    CheckpointWanted {
        /// The group.
        group: ConsensusGroup,
        /// The shard that handed over the group's newest record in this run.
        shard: Option<ShardId>,
    },
}

/// A file that a directory holds, for `Scan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    /// The file.
    pub file: FileId,
    /// Its bytes.
    pub size: u64,
}
