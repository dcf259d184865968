//! What an operation changed in a group, for those who follow it.

use alloc::vec::Vec;

use wire::{ConsumerGroupId, Generation, PartitionId};

use crate::{GroupOptions, Holder, Member, Ownership};

/// Everything that one op changed in one group: enough for a [`GroupProjection`](crate::GroupProjection)
/// to follow, and to tell the members concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupChange {
    /// The group.
    pub group: ConsumerGroupId,
    /// Its generation now: one more than before if an ownership or epoch changed, else the same.
    pub generation: Generation,
    /// Partitions of the topic now.
    pub partitions: u32,
    /// The options, where they changed.
    pub options: Option<GroupOptions>,
    /// Members that came, changed or went, in this order.
    pub members: Vec<MemberChange>,
    /// Every partition whose ownership is another than before, in order of ids. Not those that are gone.
    pub ownership: Vec<(PartitionId, Ownership)>,
    /// Members that see another assignment than before, in order of ids: they are told to sync.
    pub notify: Vec<Holder>,
    /// Whether any ownership, epoch or partition count changed.
    pub(crate) reassigned: bool,
}

/// A change of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It joined, or something about it is different.
    Put(Member),
    /// It has left by itself; this is what it was.
    Left(Member),
    /// It is gone, and has not asked for it; this is what it was.
    Gone(Member),
}

impl GroupChange {
    /// Whether nothing changed that anybody follows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.reassigned && self.members.is_empty() && self.options.is_none()
    }
}
