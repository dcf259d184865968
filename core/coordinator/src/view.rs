//! What a member is told of its group.

use alloc::vec::Vec;

use wire::{Epoch, Generation, MemberId, PartitionId, Timestamp};

use crate::{Holding, Ownership, member::Slot};

/// A member's partitions at one generation: the answer to a join or sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The member.
    pub member: MemberId,
    /// The group's generation.
    pub generation: Generation,
    /// What it may poll and store, in order of partitions. What is on its way to it is not in here: a
    /// grant is told after the fence.
    pub owned: Vec<OwnedPartition>,
    /// What it has to give up, in order of partitions: it may store, not poll.
    pub revoking: Vec<RevokedPartition>,
}

/// A partition that a member owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedPartition {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of polls and stores.
    pub epoch: Epoch,
    /// The epoch at which the unbroken ownership began.
    pub held_since: Epoch,
}

/// A partition that is being revoked from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedPartition {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of stores.
    pub epoch: Epoch,
    /// The epoch at which the unbroken ownership began.
    pub held_since: Epoch,
    /// The epoch that its release has to name.
    pub planned: Epoch,
    /// When the revocation began; the deadline counts from there.
    pub since: Timestamp,
}

pub(crate) fn assignment<'a>(
    (slot, member): (Slot, MemberId),
    generation: Generation,
    ownership: impl Iterator<Item = &'a Ownership<Slot>>,
) -> Assignment {
    let mut owned = Vec::new();
    let mut revoking = Vec::new();
    for (partition, entry) in (0..).map(PartitionId).zip(ownership) {
        let epoch = entry.epoch;
        match entry.holding {
            Holding::Owned { owner, held_since } if owner == slot => owned.push(OwnedPartition {
                partition,
                epoch,
                held_since,
            }),
            Holding::Revoking {
                owner,
                held_since,
                epoch: planned,
                since,
                ..
            } if owner == slot => revoking.push(RevokedPartition {
                partition,
                epoch,
                held_since,
                planned,
                since,
            }),
            Holding::Nobody
            | Holding::Owned { .. }
            | Holding::Revoking { .. }
            | Holding::Fencing { .. } => {}
        }
    }
    Assignment {
        member,
        generation,
        owned,
        revoking,
    }
}
