//! Checkpoints: what may leave the journal because it is durable elsewhere (V15).

use wire::{Op, ReplicaId};

use super::Replica;
use crate::{ChainPoint, Checkpoint, Ignore, quorum};

impl Replica {
    /// Begins a checkpoint of the state after [`Replica::commit_min`], to be stored beside the state
    /// machine of that very op (every [`Effect::Apply`] that was taken is reported), then reported by
    /// [`Input::CheckpointWritten`]. One that was begun earlier and not reported is forgotten.
    ///
    /// [`Effect::Apply`]: crate::Effect::Apply
    /// [`Input::CheckpointWritten`]: crate::Input::CheckpointWritten
    pub fn begin_checkpoint(&mut self) -> Checkpoint {
        self.checkpoint_begun = Some(self.applied.point);
        Checkpoint {
            op: self.applied.point.op,
            checksum: self.applied.point.checksum,
            timestamp: self.applied.timestamp,
            view: self.applied.view,
            client_sessions: self.client_sessions.clone(),
            barriers: self.barriers.clone(),
        }
    }

    /// The op of the newest local checkpoint that is durable.
    #[must_use]
    pub const fn checkpoint_op(&self) -> Op {
        self.promises.newest().checkpoint.op
    }

    pub(super) fn on_checkpoint_written(&mut self, op: Op) {
        match self.checkpoint_begun {
            Some(point) if point.op == op => {
                self.checkpoint_begun = None;
                self.install_checkpoint(point);
            }
            Some(_) | None => self.count_ignored(Ignore::CheckpointUnknown),
        }
    }

    fn install_checkpoint(&mut self, point: ChainPoint) {
        if point.op <= self.checkpoint_op() {
            return;
        }
        self.checkpoints[usize::from(self.config.replica.0)] = point.op;
        self.checkpoint_lost = self.checkpoint_lost.filter(|lost| *lost > point.op);
        let checkpoint_quorum = self.checkpoint_quorum();
        self.promises.set_checkpoint(point, checkpoint_quorum);
        self.write_superblock();
        self.journal.recycle(self.promises.newest().recyclable());
    }

    /// Another replica has a durable checkpoint.
    pub(super) fn learn_checkpoint(&mut self, replica: ReplicaId, op: Op) {
        if op > self.checkpoints[usize::from(replica.0)] {
            self.checkpoints[usize::from(replica.0)] = op;
            self.learn_checkpoint_quorum(self.checkpoint_quorum());
        }
    }

    /// A checkpoint at `op` or above is durable on a quorum. It is written down when it lets the journal
    /// recycle something; else it can wait.
    pub(super) fn learn_checkpoint_quorum(&mut self, op: Op) {
        let before = self.promises.newest().recyclable();
        let checkpoint = self.promises.newest().checkpoint;
        let checkpoint_quorum = self.promises.newest().checkpoint_quorum.max(op);
        self.promises.set_checkpoint(checkpoint, checkpoint_quorum);
        if self.promises.newest().recyclable() > before {
            self.write_superblock();
            self.journal.recycle(self.promises.newest().recyclable());
        }
    }

    /// The highest op that the checkpoints of a quorum reach, as far as known.
    pub(super) fn checkpoint_quorum(&self) -> Op {
        let mut ops = self.checkpoints.clone();
        ops.sort_unstable();
        let others = ops.len() - usize::from(quorum(self.config.replica_count));
        ops[others].max(self.promises.newest().checkpoint_quorum)
    }
}
