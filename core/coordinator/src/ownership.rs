//! The state of one partition in one consumer group.
//!
//! | state | [`Holding`] | may poll | may store | how it ends |
//! | --- | --- | --- | --- | --- |
//! | never owned | `Nobody`, epoch 0 | – | – | granted at once: nobody older exists |
//! | no owner | `Nobody`, epoch > 0 | – | – | a join: `Fencing` to a member |
//! | owned (m, E) | `Owned` | m | m | leave, expiry, revocation, take-over, reset, purge |
//! | moving (m, E) → (m', E') | `Revoking` | nobody | m with E | hand-over complete, or cancelled: `Owned` |
//! | moving nobody → (m', E') | `Fencing` to m' | nobody | nobody | fence raised: `Owned` |
//! | moving nobody → nobody | `Fencing` to nobody | – | – | fence raised: `Nobody` |
//!
//! A partition is in exactly one of these states, so two owners of one partition, a revocation without an
//! owner, or a reset while somebody may still store cannot be written down.

use wire::{Epoch, MemberId, Timestamp};

use crate::ResetTo;

/// Who holds a partition and where it goes.
///
/// `M` names a member: by its id in changes and answers, by its place in a table in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership<M = MemberId> {
    /// The epoch of the last grant, 0 if there never was one. While somebody owns the partition, it is
    /// the epoch of polls and stores.
    pub epoch: Epoch,
    /// The rest.
    pub holding: Holding<M>,
}

/// One row of the state table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding<M = MemberId> {
    /// No owner, and none planned.
    Nobody,
    /// Owned, and it stays so.
    Owned {
        /// The owner.
        owner: M,
        /// The epoch at which its unbroken ownership began.
        /// Invariant: at most [`Ownership::epoch`].
        held_since: Epoch,
    },
    /// A revocation: the owner finishes what it has polled, then the partition goes to another member.
    Revoking {
        /// The owner, who may store but not poll.
        owner: M,
        /// The epoch at which its unbroken ownership began.
        held_since: Epoch,
        /// The member that it goes to.
        /// Invariant: not the owner.
        to: M,
        /// The epoch that it will have there.
        /// Invariant: above [`Ownership::epoch`].
        epoch: Epoch,
        /// When the revocation began; kept when it gets another target. Its deadline counts from here.
        since: Timestamp,
    },
    /// No owner any more; it goes on when the data group has raised the fence, and waits for nobody.
    Fencing {
        /// The member that it goes to, if the group has any.
        to: Option<M>,
        /// The epoch that it will have there.
        /// Invariant: above [`Ownership::epoch`].
        epoch: Epoch,
        /// When the move began.
        since: Timestamp,
        /// What the fence sets the stored offset to, if it does.
        reset: Option<ResetTo>,
    },
}

/// Where a partition goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move<M = MemberId> {
    /// The member that it goes to, if there is one.
    pub to: Option<M>,
    /// The epoch that it will have there.
    pub epoch: Epoch,
    /// When it began to move.
    pub since: Timestamp,
    /// What the fence sets the stored offset to, if it does.
    pub reset: Option<ResetTo>,
}

impl<M: Copy + PartialEq> Ownership<M> {
    /// A partition that nobody has ever owned.
    pub const NEVER: Self = Self {
        epoch: Epoch(0),
        holding: Holding::Nobody,
    };

    /// Who owns it, also while it is being revoked.
    #[must_use]
    pub const fn owner(&self) -> Option<M> {
        match self.holding {
            Holding::Owned { owner, .. } | Holding::Revoking { owner, .. } => Some(owner),
            Holding::Nobody | Holding::Fencing { .. } => None,
        }
    }

    /// The epoch at which the owner's unbroken ownership began.
    #[must_use]
    pub const fn held_since(&self) -> Option<Epoch> {
        match self.holding {
            Holding::Owned { held_since, .. } | Holding::Revoking { held_since, .. } => {
                Some(held_since)
            }
            Holding::Nobody | Holding::Fencing { .. } => None,
        }
    }

    /// Where it goes, if it moves.
    #[must_use]
    pub const fn moving(&self) -> Option<Move<M>> {
        match self.holding {
            Holding::Nobody | Holding::Owned { .. } => None,
            Holding::Revoking {
                to, epoch, since, ..
            } => Some(Move {
                to: Some(to),
                epoch,
                since,
                reset: None,
            }),
            Holding::Fencing {
                to,
                epoch,
                since,
                reset,
            } => Some(Move {
                to,
                epoch,
                since,
                reset,
            }),
        }
    }

    /// Who will own it when nothing moves any more.
    #[must_use]
    pub const fn heir(&self) -> Option<M> {
        match self.holding {
            Holding::Nobody => None,
            Holding::Owned { owner, .. } => Some(owner),
            Holding::Revoking { to, .. } => Some(to),
            Holding::Fencing { to, .. } => to,
        }
    }

    /// The highest epoch that it has been given, granted or planned.
    pub(crate) const fn epoch_max(&self) -> Epoch {
        match self.holding {
            Holding::Nobody | Holding::Owned { .. } => self.epoch,
            Holding::Revoking { epoch, .. } | Holding::Fencing { epoch, .. } => epoch,
        }
    }

    /// The same with members named otherwise.
    pub(crate) fn map<N>(&self, name: impl Fn(M) -> N) -> Ownership<N> {
        let holding = match self.holding {
            Holding::Nobody => Holding::Nobody,
            Holding::Owned { owner, held_since } => Holding::Owned {
                owner: name(owner),
                held_since,
            },
            Holding::Revoking {
                owner,
                held_since,
                to,
                epoch,
                since,
            } => Holding::Revoking {
                owner: name(owner),
                held_since,
                to: name(to),
                epoch,
                since,
            },
            Holding::Fencing {
                to,
                epoch,
                since,
                reset,
            } => Holding::Fencing {
                to: to.map(name),
                epoch,
                since,
                reset,
            },
        };
        Ownership {
            epoch: self.epoch,
            holding,
        }
    }

    /// Whether the epochs are in order and the target is another member than the source.
    pub(crate) fn is_consistent(&self) -> bool {
        let Self { epoch, holding } = *self;
        match holding {
            Holding::Nobody => true,
            Holding::Owned { held_since, .. } => held_since > Epoch(0) && held_since <= epoch,
            Holding::Revoking {
                owner,
                held_since,
                to,
                epoch: planned,
                ..
            } => held_since > Epoch(0) && held_since <= epoch && epoch < planned && owner != to,
            Holding::Fencing { epoch: planned, .. } => epoch < planned,
        }
    }
}
