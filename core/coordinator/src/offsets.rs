//! What the metadata asks of stored offsets.

use alloc::vec::Vec;

use wire::{Offset, PartitionId, ResetTarget};

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

impl From<ResetTarget> for ResetTo {
    fn from(target: ResetTarget) -> Self {
        match target {
            ResetTarget::Nothing => Self::Nothing,
            ResetTarget::Offset(offset) => Self::Offset(offset),
            ResetTarget::Earliest => Self::Start(StartPolicy::Earliest),
            ResetTarget::Latest => Self::Start(StartPolicy::Latest),
            ResetTarget::Timestamp(timestamp) => Self::Start(StartPolicy::Timestamp(timestamp)),
        }
    }
}

impl From<ResetTo> for ResetTarget {
    fn from(reset: ResetTo) -> Self {
        match reset {
            ResetTo::Nothing => Self::Nothing,
            ResetTo::Offset(offset) => Self::Offset(offset),
            ResetTo::Start(StartPolicy::Earliest) => Self::Earliest,
            ResetTo::Start(StartPolicy::Latest) => Self::Latest,
            ResetTo::Start(StartPolicy::Timestamp(timestamp)) => Self::Timestamp(timestamp),
        }
    }
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

#[cfg(test)]
mod tests {
    use wire::{Offset, ResetTarget, Timestamp};

    use super::ResetTo;

    #[test]
    fn what_a_client_asks_for_is_what_it_is_told() {
        let targets = [
            ResetTarget::Nothing,
            ResetTarget::Offset(Offset(0)),
            ResetTarget::Earliest,
            ResetTarget::Latest,
            ResetTarget::Timestamp(Timestamp(7)),
        ];
        for target in targets {
            assert_eq!(ResetTarget::from(ResetTo::from(target)), target);
        }
    }
}
