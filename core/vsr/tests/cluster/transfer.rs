//! The shell's part of state transfer: a checkpoint comes over piece by piece, from whoever has one, and is
//! written before the replica hears of it.

use vsr::{Checkpoint, Input, Status, Superblock, quorum};
use wire::{Op, ReplicaId};

use crate::{disk::Write, group::Group};

/// A checkpoint that is on its way to a replica.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    /// Whom it comes from at this moment.
    from: u8,
    /// Which one, once somebody has offered it, and the pieces that are here.
    pieces: Option<(Op, u64)>,
    /// It is being written.
    is_writing: bool,
}

/// Pieces of a checkpoint.
const PIECES: u64 = 4;

impl Group {
    pub(crate) fn begin_fetch(&mut self, replica: u8, from: ReplicaId) {
        self.counts.fetches += 1;
        let process = self.members[usize::from(replica)].process.as_mut();
        process.expect("it has just spoken").fetch = Some(Fetch {
            from: from.0,
            pieces: None,
            is_writing: false,
        });
    }

    /// The next piece arrives, or somebody else is asked.
    pub(crate) fn fetch(&mut self, replica: u8) {
        let Some(process) = &self.members[usize::from(replica)].process else {
            return;
        };
        let Some(fetch) = process.fetch.clone().filter(|it| !it.is_writing) else {
            return;
        };
        let fetched = match process.replica.wanted_checkpoint() {
            Some(wanted) => self.fetch_piece(replica, wanted, fetch),
            None => {
                self.counts.fetches_given_up += 1;
                None
            }
        };
        let process = self.members[usize::from(replica)].process.as_mut();
        process.expect("it was there just now").fetch = fetched;
    }

    fn fetch_piece(&mut self, replica: u8, wanted: Op, mut fetch: Fetch) -> Option<Fetch> {
        let from = fetch.from;
        let is_reached = self.is_up(from)
            && from != replica
            && !self.cut.contains(&(replica, from))
            && !self.cut.contains(&(from, replica))
            && !self.random.percent(self.loss);
        if is_reached && self.members[usize::from(from)].disk.checkpoint_op() < wanted {
            // It takes one, if it can, for when it is asked again.
            self.checkpoint(from);
        }
        let offered = self.members[usize::from(from)].disk.checkpoint.clone();
        let offered = offered.filter(|(checkpoint, _)| is_reached && checkpoint.op >= wanted);
        let Some((checkpoint, state)) = offered else {
            fetch.from = (from + 1) % self.replica_count;
            return Some(fetch);
        };
        // What is here of the same checkpoint counts, whoever it came from; a newer one begins anew.
        let here = fetch.pieces.filter(|(op, _)| *op == checkpoint.op);
        let here = here.map_or(0, |(_, pieces)| pieces) + 1;
        fetch.pieces = Some((checkpoint.op, here));
        if here == PIECES {
            fetch.is_writing = true;
            let disk = &mut self.members[usize::from(replica)].disk;
            disk.write(Write::Fetched(checkpoint, state));
        }
        Some(fetch)
    }

    /// The checkpoint is on the disk: what was handed out before is executed first.
    pub(crate) fn hand_in(&mut self, replica: u8, checkpoint: Checkpoint) {
        while self.applies(replica) {
            self.apply(replica);
        }
        let status = |group: &Self| group.process(replica).map(|it| it.replica.status());
        let before = status(self);
        let op = checkpoint.op;
        let process = self.members[usize::from(replica)].process.as_mut();
        process.expect("it is running").fetch = None;
        self.handle(replica, Input::CheckpointFetched(checkpoint));
        let is_installing = status(self) == Some(Status::StateTransfer);
        let executed = self.process(replica).map_or(0, |it| it.executed());
        if !is_installing && op > Op(executed) {
            self.members[usize::from(replica)].disk.forget_newest();
        }
        self.counts.transfers_elsewhere +=
            u64::from(is_installing && before != Some(Status::Normal));
    }

    fn applies(&self, replica: u8) -> bool {
        self.process(replica).is_some_and(|it| it.has_applies())
    }

    /// V15: what the disk may forget is in the checkpoints of a quorum.
    pub(crate) fn check_recyclable(&self, superblock: &Superblock) {
        let recyclable = superblock.recyclable();
        // One that is lost was there when it was counted.
        let has_it =
            |disk: &crate::disk::Disk| disk.checkpoint_op_ever() >= recyclable || disk.is_new;
        let holders = self.members.iter().filter(|it| has_it(&it.disk)).count();
        assert!(
            holders >= usize::from(quorum(self.replica_count)),
            "V15: {recyclable:?} is given up, and in {holders} checkpoints"
        );
    }
}
