//! What the metadata asks of stored offsets.

use alloc::vec::Vec;

use wire::{Offset, PartitionId};

use crate::StartPolicy;

/// What a reset makes of the stored offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// Nothing is stored any more: the group starts by its policy.
    Nothing,
    /// This offset is stored: the group goes on with the message after it.
    Offset(Offset),
    /// Nothing is stored any more, and the group starts here whatever its policy.
    Start(StartPolicy),
}

/// Sets the stored offsets of partitions, backwards too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// The partitions, none twice, and what becomes of each.
    pub partitions: Vec<(PartitionId, ResetTo)>,
    /// Whether to do it although the group has members: each loses the partition for a moment and gets it
    /// back under a new epoch.
    pub force: bool,
}
