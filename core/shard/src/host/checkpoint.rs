//! Checkpoints: segments flushed, snapshot written, then a record in the journal, which may then be
//! recycled up to the snapshot's op.

use alloc::{boxed::Box, vec::Vec};

use partition::SegmentId;
use wire::Op;

use crate::{Effect, GroupSnapshot, IoTicket, Note, StateSnapshot, desk::Desk, host::Member};

/// The checkpoints of one group.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    stage: Stage,
    /// One is to be taken as soon as none is.
    wanted: bool,
}

/// How far a checkpoint has got. The state is captured when it begins; ops that come after it do not
/// touch bytes that it rests on.
#[derive(Debug, Default)]
enum Stage {
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

impl Checkpoints {
    pub(crate) const fn want(&mut self) {
        self.wanted = true;
    }

    /// The state that was captured is the group's no more.
    pub(crate) fn give_up(&mut self) {
        self.stage = Stage::Idle;
    }

    /// Begins a checkpoint if one is wanted and can begin. `capture` gives the state and the segments
    /// that it rests on and that have changed since the last one.
    pub(crate) fn begin(
        &mut self,
        member: &mut Member,
        desk: &mut Desk,
        capture: impl FnOnce() -> (StateSnapshot, Vec<SegmentId>),
    ) {
        // The one that was lost was reached again.
        let lost = member.replica.lost_checkpoint();
        self.wanted |= lost.is_some_and(|op| member.replica.commit_min() >= op)
            && matches!(self.stage, Stage::Idle);
        if !self.wanted || !matches!(self.stage, Stage::Idle) {
            return;
        }
        if !member.has_new_ops() {
            // A group that has not recovered yet has nothing new, and will have: the journal asks only once.
            self.wanted = !member.is_settled();
            return;
        }
        if !member.may_checkpoint() {
            return;
        }
        self.wanted = false;
        let (state, segments) = capture();
        let snapshot = Box::new(GroupSnapshot {
            group: member.group,
            checkpoint: member.replica.begin_checkpoint(),
            state,
        });
        if segments.is_empty() {
            self.write(desk, snapshot);
        } else if let Some(through) = desk.last_change() {
            self.stage = Stage::Appending {
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
        match core::mem::take(&mut self.stage) {
            Stage::Appending {
                through,
                segments,
                snapshot,
            } if through <= done => self.flush(desk, snapshot, segments),
            other @ (Stage::Idle
            | Stage::Appending { .. }
            | Stage::Flushing { .. }
            | Stage::Writing { .. }) => self.stage = other,
        }
    }

    /// A flush ended.
    pub(crate) fn on_flushed(&mut self, desk: &mut Desk, done: IoTicket) {
        match core::mem::take(&mut self.stage) {
            Stage::Flushing { ticket, snapshot } if ticket == done => self.write(desk, snapshot),
            other @ (Stage::Idle
            | Stage::Appending { .. }
            | Stage::Flushing { .. }
            | Stage::Writing { .. }) => self.stage = other,
        }
    }

    /// A snapshot is on the disk. Tells whether it is the one waited for, which the replica then knows.
    pub(crate) fn on_written(&mut self, member: &mut Member, desk: &mut Desk, op: Op) -> bool {
        match self.stage {
            Stage::Writing { op: wanted } if wanted == op => {}
            Stage::Idle
            | Stage::Appending { .. }
            | Stage::Flushing { .. }
            | Stage::Writing { .. } => return false,
        }
        self.stage = Stage::Idle;
        member.snapshot = member.snapshot.max(op);
        member.handle(desk, vsr::Input::CheckpointWritten { op });
        desk.note(Note::Checkpoint {
            group: member.group,
            op,
        });
        true
    }

    fn flush(&mut self, desk: &mut Desk, snapshot: Box<GroupSnapshot>, segments: Vec<SegmentId>) {
        let ticket = desk.next_io_ticket();
        desk.push(Effect::Flush { ticket, segments });
        self.stage = Stage::Flushing { ticket, snapshot };
    }

    fn write(&mut self, desk: &mut Desk, snapshot: Box<GroupSnapshot>) {
        let op = snapshot.checkpoint.op;
        self.stage = Stage::Writing { op };
        desk.push(Effect::WriteSnapshot { snapshot });
    }
}
