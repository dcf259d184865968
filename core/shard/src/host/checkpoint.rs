//! Checkpoints: segments flushed, snapshot written, then a record in the journal, which may then be
//! recycled up to the snapshot's op.

use alloc::{boxed::Box, vec::Vec};

use partition::SegmentId;
use wire::Op;

use crate::{Effect, GroupSnapshot, IoTicket, desk::Desk};

/// How far a group's checkpoint has got. The state is captured when it begins; ops that come after it do
/// not touch bytes that it rests on.
#[derive(Debug, Default)]
pub(crate) enum Checkpoint {
    /// None is being taken.
    #[default]
    Idle,
    /// Waits until the appends that the state rests on are in their files.
    Appending {
        through: IoTicket,
        segments: Vec<SegmentId>,
        snapshot: Box<GroupSnapshot>,
    },
    /// Waits until those files are flushed.
    Flushing {
        ticket: IoTicket,
        snapshot: Box<GroupSnapshot>,
    },
    /// Waits until the snapshot is on the disk.
    Writing { op: Op },
}

impl Checkpoint {
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Begins with a captured state that rests on `segments`, changed since the last checkpoint.
    pub(crate) fn begin(
        &mut self,
        desk: &mut Desk,
        snapshot: Box<GroupSnapshot>,
        segments: Vec<SegmentId>,
    ) {
        assert!(self.is_idle());
        if segments.is_empty() {
            self.write(desk, snapshot);
        } else if let Some(through) = desk.last_change() {
            *self = Self::Appending {
                through,
                segments,
                snapshot,
            };
        } else {
            self.flush(desk, snapshot, segments);
        }
    }

    /// Every change of a segment up to `done` is in its file.
    pub(crate) fn on_changed(&mut self, desk: &mut Desk, done: IoTicket) {
        match core::mem::take(self) {
            Self::Appending {
                through,
                segments,
                snapshot,
            } if through <= done => {
                self.flush(desk, snapshot, segments);
            }
            other @ (Self::Idle
            | Self::Appending { .. }
            | Self::Flushing { .. }
            | Self::Writing { .. }) => {
                *self = other;
            }
        }
    }

    /// A flush ended.
    pub(crate) fn on_flushed(&mut self, desk: &mut Desk, done: IoTicket) {
        match core::mem::take(self) {
            Self::Flushing { ticket, snapshot } if ticket == done => self.write(desk, snapshot),
            other @ (Self::Idle
            | Self::Appending { .. }
            | Self::Flushing { .. }
            | Self::Writing { .. }) => {
                *self = other;
            }
        }
    }

    /// A snapshot is on the disk; tells whether it is the one waited for.
    pub(crate) fn on_written(&mut self, written: Op) -> bool {
        match self {
            Self::Writing { op } if *op == written => {
                *self = Self::Idle;
                true
            }
            Self::Idle | Self::Appending { .. } | Self::Flushing { .. } | Self::Writing { .. } => {
                false
            }
        }
    }

    fn flush(&mut self, desk: &mut Desk, snapshot: Box<GroupSnapshot>, segments: Vec<SegmentId>) {
        let ticket = desk.next_io_ticket();
        desk.push(Effect::Flush { ticket, segments });
        *self = Self::Flushing { ticket, snapshot };
    }

    fn write(&mut self, desk: &mut Desk, snapshot: Box<GroupSnapshot>) {
        *self = Self::Writing {
            op: snapshot.checkpoint.op,
        };
        desk.push(Effect::WriteSnapshot { snapshot });
    }
}
