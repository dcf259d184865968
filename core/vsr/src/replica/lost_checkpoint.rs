//! The newest checkpoint of a replica cannot be read any more: its snapshot is damaged, or gone.
//!
//! The superblock names the checkpoint, so a start notices. What is left is an older checkpoint, or none, and a
//! journal that begins behind what the checkpoints of a quorum have let it give up (V15). A replica alone has
//! nobody to ask; see `recovered.rs`. Among others there are two cases.
//!
//! **The journal leads from the older checkpoint to the lost one**: without a gap, to the very op that the superblock
//! names, by its checksum (V9). Then nothing is lost but time. The replica goes back: one superblock names the older
//! checkpoint and the last ops of the journal, is durable before the replica says anything, and leaves a disk as if
//! the lost checkpoint had never been taken.
//!
//! - *V10, V12.* Whatever was acknowledged here is in the journal, which is the same before and after. Its last ops
//!   go into that superblock, since those up to the lost checkpoint are not committed by name any more, and may be
//!   of older views than `log_view`.
//! - *V5.* A vote has the same `log_view`, last op and headers. It may tell of less that is committed; others have
//!   committed that, or it is chosen from its headers.
//! - *V15.* The journal gives up what is in the older one of this checkpoint and that of a quorum. A journal that
//!   reaches back to the older checkpoint has not given up anything beyond it, so a quorum was known for no more
//!   than that: the older one counts in it just as well. What is given up stays the same, and does not grow before
//!   there is a newer checkpoint. The replica tells its older checkpoint from here on. Others that have counted the
//!   lost one gave up what is in their own checkpoints: this replica has those ops in its journal.
//!
//! It takes a checkpoint again as soon as it has executed what was in the lost one.
//!
//! **It does not.** What was acknowledged behind the lost checkpoint may be in the journal, but follows from nothing
//! that is here. The replica is in [`Status::RecoveringHead`]: no vote, no acknowledgement (V11). Nothing is
//! repaired op by op: prepares before the lost checkpoint are among those that the journal gives up, so that the
//! next start might not find them. First a checkpoint of another replica that contains the lost one is installed:
//! every op of it is committed, so all replicas agree on it (V3). No start_view is listened to before that. Then the
//! journal of a view is asked for as by every replica that is not certain of its head (V11).
//!
//! - *V10.* Until the checkpoint is installed the superblock is not touched: a start in between finds the same.
//!   After that a start finds a checkpoint, the promises of before, and every prepare behind it that was flushed:
//!   the disk of a replica that has taken over a checkpoint and was stopped (`state_transfer.rs`).
//! - *V11.* In between it has said nothing; a journal that answers its nonce contains whatever was acknowledged.
//! - *V15.* It claims no checkpoint before it has one.

use wire::{Op, ReplicaId};

use super::Replica;
use crate::{ChainPoint, Note, Status};

impl Replica {
    /// The op of the checkpoint that could not be read at the start, until another takes its place: the state after it
    /// is to be stored as soon as it is reached.
    #[must_use]
    pub const fn lost_checkpoint(&self) -> Option<Op> {
        self.checkpoint_lost
    }

    /// Whether its state is older than its newest checkpoint, which it has lost, and the journal does not lead there.
    /// Whatever the state machine has on its disk is to be left alone until another checkpoint is installed.
    #[must_use]
    pub fn lacks_checkpoint(&self) -> bool {
        self.status == Status::RecoveringHead && self.checkpoint_op() > self.commit_chained
    }

    /// `found` is what can be read instead.
    pub(super) fn replace_checkpoint(&mut self, found: ChainPoint, lost: ChainPoint) {
        let op = lost.op;
        let is_bridged = self.status != Status::RecoveringHead;
        self.checkpoint_lost = Some(op);
        self.note(Note::CheckpointLost { op, is_bridged });
        if is_bridged {
            self.promises.go_back(found);
            self.commit_up_to(op.min(self.op()));
            self.take_part_from_checkpoint();
        } else {
            let next = (self.config.replica.0 + 1) % self.config.replica_count;
            self.want_checkpoint(op, ReplicaId(next));
        }
    }

    /// Whether a checkpoint of another replica contains the one that is lost here, if one is.
    pub(super) fn replaces_lost(&self, point: ChainPoint) -> bool {
        let named = self.promises.newest().checkpoint;
        point.op > named.op || point == named
    }
}
