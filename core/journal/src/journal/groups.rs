//! What the journal knows of each consensus group.

use alloc::collections::BTreeMap;

use wire::{ConsensusGroup, Op, ShardId};

use crate::{FileId, SuperblockRecord, layout::GroupEntry};

/// How many frames hold the newest superblock record when it counts as durable.
pub(crate) const COPIES: u8 = 2;

/// One consensus group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// The newest superblock record.
    pub record: Option<SuperblockRecord>,
    /// Frames that hold it, the one in flight included.
    /// Invariant: never above [`COPIES`]; back to 1 in the first frame of a file.
    pub copies: u8,
    /// See [`GroupEntry`].
    pub written: u64,
    pub numbered: u64,
    pub head: Op,
    pub last_frame: u64,
    pub superblock_frame: u64,
    /// The checkpoint of a record that is flushed in two frames: prepares up to it are not needed.
    pub released: Op,
    /// Who handed over the newest record in this run.
    pub shard: Option<ShardId>,
    /// Out of service: its needs do not count.
    pub is_suspended: bool,
    /// The file that was written when a checkpoint was asked for.
    pub asked: Option<FileId>,
}

impl GroupState {
    /// Whether a frame must be written for the sake of the superblock record.
    pub(crate) const fn owes_copy(&self) -> bool {
        self.record.is_some() && self.copies < COPIES
    }

    pub(crate) fn entry(&self, group: ConsensusGroup) -> GroupEntry {
        GroupEntry {
            written: self.written,
            numbered: self.numbered,
            head: self.head.0,
            last_frame: self.last_frame,
            superblock_frame: self.superblock_frame,
            group: group.0,
            reserved: [0; 3],
        }
    }
}

/// All groups that have a record in the journal.
pub(crate) type Groups = BTreeMap<ConsensusGroup, GroupState>;
