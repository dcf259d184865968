//! How the ownership of one partition changes: every step that there is, on one entry of the table.
//!
//! | step | from | to |
//! | --- | --- | --- |
//! | [`assign`](Ownership::assign) | never owned | owned (t, op) |
//! | | no owner, epoch > 0 | moving nobody → (t, op) |
//! | | owned (m, E) | moving (m, E) → (t, op) |
//! | | moving (m, E) → (t', E') | moving (m, E) → (t, op), since as before |
//! | | moving nobody → (t', E') | moving nobody → (t, op), since and reset as before |
//! | [`cancel`](Ownership::cancel) | moving (m, E) → (t, E') | owned (m, op), held since as before |
//! | [`release`](Ownership::release): the owner is gone | owned (m, E) | no owner |
//! | | moving (m, E) → (t, E') | moving nobody → (t, E') |
//! | [`strand`](Ownership::strand): no member is left | moving nobody → (t, E') | no owner; with a reset: moving nobody → (nobody, op) |
//! | [`take_over`](Ownership::take_over): another session | owned (m, E) | moving nobody → (m, op) |
//! | | moving (m, E) → (t, E') | moving nobody → (t, E') |
//! | [`restart`](Ownership::restart): reset or purge | any | moving nobody → (heir, else owner, else nobody; op) |
//! | [`complete`](Ownership::complete): the fence is raised | moving … → (t, E') | owned (t, E') |
//! | | moving nobody → (nobody, E') | no owner, epoch E' |
//!
//! Three things follow, and keep a source from ever holding an epoch above that of its move. Every epoch
//! that is given is the number of the op that gives it, so epochs of a partition rise. The only step that
//! changes an owner's epoch without ending its ownership, `cancel`, ends the move. And the fence of a
//! move that was planned earlier may have been raised when the plan changes: `cancel` goes above it with
//! a new epoch, `assign` leaves the source where it is, fenced, and the target's new epoch is above both.

use wire::{Epoch, Op, Timestamp};

use crate::{Holding, Ownership, ResetTo};

/// The op that is applied, and its timestamp: the only clock and the only source of epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The op.
    pub op: Op,
    /// Its prepare's timestamp.
    pub timestamp: Timestamp,
}

impl At {
    /// The epoch of what this op plans.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        Epoch(self.op.0)
    }
}

impl<M: Copy + PartialEq> Ownership<M> {
    /// Plans that the partition goes to `to`; at once where nobody older exists.
    ///
    /// # Panics
    /// When `to` is its owner, or the op is below an epoch of the partition.
    pub(crate) fn assign(&mut self, at: At, to: M) {
        let epoch = self.next_epoch(at);
        assert!(
            self.owner() != Some(to),
            "a partition moves to another member"
        );
        self.holding = match self.holding {
            Holding::Nobody if self.epoch == Epoch(0) => {
                self.epoch = epoch;
                Holding::Owned {
                    owner: to,
                    held_since: epoch,
                }
            }
            Holding::Nobody => Holding::Fencing {
                to: Some(to),
                epoch,
                since: at.timestamp,
                reset: None,
            },
            Holding::Owned { owner, held_since } => Holding::Revoking {
                owner,
                held_since,
                to,
                epoch,
                since: at.timestamp,
            },
            Holding::Revoking {
                owner,
                held_since,
                since,
                ..
            } => Holding::Revoking {
                owner,
                held_since,
                to,
                epoch,
                since,
            },
            Holding::Fencing { since, reset, .. } => Holding::Fencing {
                to: Some(to),
                epoch,
                since,
                reset,
            },
        };
    }

    /// Ends a revocation for the owner's good. Its new epoch is above a fence that may have been raised.
    ///
    /// # Panics
    /// When it is not being revoked, or the op is below an epoch of the partition.
    pub(crate) fn cancel(&mut self, at: At) {
        let epoch = self.next_epoch(at);
        let Holding::Revoking {
            owner, held_since, ..
        } = self.holding
        else {
            panic!("only a revocation is cancelled");
        };
        self.epoch = epoch;
        self.holding = Holding::Owned { owner, held_since };
    }

    /// The owner is gone. A move that was planned goes on, waiting only for its fence.
    ///
    /// # Panics
    /// When it has no owner.
    pub(crate) fn release(&mut self) {
        self.holding = match self.holding {
            Holding::Owned { .. } => Holding::Nobody,
            Holding::Revoking {
                to, epoch, since, ..
            } => Holding::Fencing {
                to: Some(to),
                epoch,
                since,
                reset: None,
            },
            Holding::Nobody | Holding::Fencing { .. } => panic!("only an owner lets go"),
        };
    }

    /// The target is gone and there is no other. What is not reset need not be fenced before somebody
    /// joins: that is planned anew, above every epoch that has been.
    ///
    /// # Panics
    /// When it is not moving from nobody to a member, or the op is below an epoch of the partition.
    pub(crate) fn strand(&mut self, at: At) {
        let epoch = self.next_epoch(at);
        let Holding::Fencing {
            to: Some(_),
            since,
            reset,
            ..
        } = self.holding
        else {
            panic!("only a move from nobody is stranded");
        };
        self.holding = match reset {
            None => Holding::Nobody,
            Some(_) => Holding::Fencing {
                to: None,
                epoch,
                since,
                reset,
            },
        };
    }

    /// Another session has the owner's membership. What the old one does has to be fenced first.
    ///
    /// # Panics
    /// When it has no owner, or the op is below an epoch of the partition.
    pub(crate) fn take_over(&mut self, at: At) {
        let epoch = self.next_epoch(at);
        match self.holding {
            Holding::Owned { owner, .. } => {
                self.holding = Holding::Fencing {
                    to: Some(owner),
                    epoch,
                    since: at.timestamp,
                    reset: None,
                };
            }
            Holding::Revoking { .. } => self.release(),
            Holding::Nobody | Holding::Fencing { .. } => panic!("only what is owned is taken over"),
        }
    }

    /// A reset, or with none a purge: whoever polls the partition begins anew, under a new epoch. A reset
    /// that waits is superseded: by another one, or by a purge that leaves nothing to reset.
    ///
    /// # Panics
    /// When the op is below an epoch of the partition.
    pub(crate) fn restart(&mut self, at: At, reset: Option<ResetTo>) {
        let epoch = self.next_epoch(at);
        self.holding = Holding::Fencing {
            to: self.heir(),
            epoch,
            since: self.moving().map_or(at.timestamp, |planned| planned.since),
            reset,
        };
    }

    /// The fence of the move to `epoch` is raised: the target owns the partition. Nothing happens, and
    /// `false` is returned, when that is not what the partition waits for.
    pub(crate) fn complete(&mut self, epoch: Epoch) -> bool {
        let Some(planned) = self.moving().filter(|planned| planned.epoch == epoch) else {
            return false;
        };
        self.epoch = epoch;
        self.holding = match planned.to {
            Some(to) => Holding::Owned {
                owner: to,
                held_since: epoch,
            },
            None => Holding::Nobody,
        };
        true
    }

    /// An op may plan a partition again that it has planned a moment before: nobody has seen that yet.
    fn next_epoch(&self, at: At) -> Epoch {
        let epoch = at.epoch();
        assert!(epoch > self.epoch, "granted epochs of a partition rise");
        assert!(
            epoch >= self.epoch_max(),
            "planned epochs of a partition rise"
        );
        epoch
    }
}

#[cfg(test)]
mod tests;
