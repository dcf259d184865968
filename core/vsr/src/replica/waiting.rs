//! What a replica waits for, for people.

use core::fmt;

use wire::{Op, View};

use super::Replica;
use crate::{OutOfService, Status};

/// What keeps a replica from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Somebody has to repair its disk.
    Operator(OutOfService),
    /// The own disk has to hold what it promises for this view.
    Superblock {
        /// The view.
        view: View,
    },
    /// The primary has to tell it the end of its journal.
    Head,
    /// A majority has to vote for this view, and its primary to begin it.
    View {
        /// The view.
        view: View,
    },
    /// Others have to miss the primary of this view, too, or that one has to come back.
    Primary {
        /// The view.
        view: View,
    },
    /// As a primary it was not heard by a majority, and leads no more.
    Majority,
    /// Another replica has to hand over a checkpoint that contains this op.
    Checkpoint {
        /// The op.
        op: Op,
    },
    /// Another replica has to hand over ops that are damaged here.
    Damaged {
        /// The first.
        first: Op,
        /// The last.
        last: Op,
    },
    /// Another replica has to hand over ops that were lost on the way.
    Prepares {
        /// The first.
        first: Op,
        /// The last.
        last: Op,
    },
    /// As a primary: a majority has to have these ops on its disks.
    Quorum {
        /// The first.
        first: Op,
        /// The last.
        last: Op,
    },
    /// As a backup: the primary has to say that these ops are committed.
    Commit {
        /// The first.
        first: Op,
        /// The last.
        last: Op,
    },
    /// The state machine has to apply these ops.
    Apply {
        /// The first.
        first: Op,
        /// The last.
        last: Op,
    },
}

impl Replica {
    /// Every op up to here is on the disk.
    #[must_use]
    pub const fn durable(&self) -> Op {
        self.journal.durable()
    }

    /// The ops of its journal that are damaged and not fetched yet.
    #[must_use]
    pub fn damaged_count(&self) -> u64 {
        let damaged = self.damaged.as_ref();
        damaged.map_or(0, |damaged| damaged.last().0 - damaged.first().0 + 1)
    }

    /// What it waits for; none when everything that it has heard of is done.
    #[must_use]
    pub fn waits_for(&self) -> Option<Wait> {
        let view = self.view;
        match self.status {
            Status::OutOfService(why) => Some(Wait::Operator(why)),
            Status::Recovering | Status::StateTransfer => Some(Wait::Superblock { view }),
            Status::RecoveringHead => Some(self.checkpoint_wait().unwrap_or(Wait::Head)),
            Status::ViewChange => Some(self.checkpoint_wait().unwrap_or(Wait::View { view })),
            Status::Normal if self.liveness.is_abdicated() => Some(Wait::Majority),
            Status::Normal if self.has_wish() => Some(Wait::Primary { view }),
            Status::Normal => self.checkpoint_wait().or_else(|| self.op_wait()),
        }
    }

    fn checkpoint_wait(&self) -> Option<Wait> {
        let wanted = self.wanted_checkpoint();
        wanted.map(|op| Wait::Checkpoint { op })
    }

    fn op_wait(&self) -> Option<Wait> {
        let (op, commit, applied) = (self.op(), self.commit_max, self.commit_min());
        let lacking = self.repair.wanted();
        if let Some(damaged) = &self.damaged {
            let (first, last) = (damaged.first(), damaged.last());
            Some(Wait::Damaged { first, last })
        } else if lacking > op {
            let (first, last) = (op.next(), lacking);
            Some(Wait::Prepares { first, last })
        } else if applied < commit.min(op) {
            let (first, last) = (applied.next(), commit.min(op));
            Some(Wait::Apply { first, last })
        } else if commit < op {
            let (first, last) = (commit.next(), op);
            Some(match self.is_primary() {
                true => Wait::Quorum { first, last },
                false => Wait::Commit { first, last },
            })
        } else {
            None
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(why) => write!(f, "repair of its disk: {why}"),
            Self::Superblock { view } => {
                write!(f, "its disk, to hold what it promises for view {view}")
            }
            Self::Head => f.write_str("the primary, to tell it the end of its journal"),
            Self::View { view } => write!(f, "a majority for view {view}"),
            Self::Primary { view } => {
                write!(
                    f,
                    "a majority that misses the primary of view {view}, or that primary"
                )
            }
            Self::Majority => f.write_str("a majority: it heard none and leads no more"),
            Self::Checkpoint { op } => write!(f, "a checkpoint that contains op {op}"),
            Self::Damaged { first, last } => {
                write!(f, "{}, damaged here", Ops(*first, *last))
            }
            Self::Prepares { first, last } => {
                write!(f, "{} from another node", Ops(*first, *last))
            }
            Self::Quorum { first, last } => {
                write!(f, "a majority that has {} on its disks", Ops(*first, *last))
            }
            Self::Commit { first, last } => {
                write!(f, "the primary, to commit {}", Ops(*first, *last))
            }
            Self::Apply { first, last } => write!(f, "itself, to apply {}", Ops(*first, *last)),
        }
    }
}

struct Ops(Op, Op);

impl fmt::Display for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(first, last) if first == last => write!(f, "op {first}"),
            Self(first, last) => write!(f, "ops {first} to {last}"),
        }
    }
}
