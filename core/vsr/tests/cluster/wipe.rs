//! Disks that are lost with all that is on them (V13), and checkpoints that are (V10).

use vsr::Status;
use wire::{Op, ReplicaId, View};

use crate::{disk::Disk, group::Group};

impl Group {
    /// It is killed, and its disk is an empty one; a minority at the most is without its disk and not taken back.
    /// Sometimes it is back at once, and what it has said before arrives now or later.
    pub(crate) fn wipe(&mut self, replica: u8) {
        let missing = self.without_disk() + 1;
        // A disk without a superblock is a fresh one.
        let is_fresh = self.members[usize::from(replica)].disk.is_fresh();
        if is_fresh || missing > usize::from(self.replica_count / 2) {
            return;
        }
        if self.is_up(replica) {
            self.crash(replica);
        }
        let member = &mut self.members[usize::from(replica)];
        member.disk = Disk::empty();
        member.view = View(0);
        self.counts.wiped += 1;
        self.trace(|| format!("{replica} has lost its disk"));
        if self.random.percent(70) {
            self.start(replica);
        }
    }

    /// Whether a minority is lost for good only when all are back.
    pub(crate) fn random_for_disks(&mut self) -> bool {
        self.loses_disks && self.random.percent(70)
    }

    pub(crate) fn without_disk(&self) -> usize {
        let members = self.members.iter();
        members.filter(|it| it.disk.is_lost).count()
    }

    /// A replica has come back: its last vote of before may come again, now that it means something else.
    pub(crate) fn take_back(&mut self, replica: u8) {
        self.counts.rejoined += 1;
        if self.random.percent(50) {
            self.repeat_vote(ReplicaId(replica));
        }
    }

    /// Whether it has lost a checkpoint, and is no use to the others before it has another and knows its head.
    pub(crate) fn needs_others(&self, replica: u8) -> bool {
        let process = self.process(replica);
        let is_without_head = |status| {
            // While a checkpoint is being installed it is not told what comes after that.
            matches!(status, Status::RecoveringHead | Status::StateTransfer)
        };
        process.is_some_and(|it| is_without_head(it.replica.status()))
            || self.members[usize::from(replica)].disk.lacks_checkpoint()
    }

    /// It is killed, and its newest checkpoint is lost; of a minority at the most, until these have others.
    pub(crate) fn lose_checkpoint(&mut self, replica: u8) {
        let others = (0..self.replica_count).filter(|it| self.needs_others(*it));
        let others = others.count();
        let disk = &self.members[usize::from(replica)].disk;
        let has_one = disk.checkpoint_op() > Op(0) && !disk.lacks_checkpoint();
        if !has_one || others + 1 > usize::from(self.replica_count / 2) {
            return;
        }
        if self.is_up(replica) {
            self.crash(replica);
        }
        let disk = &mut self.members[usize::from(replica)].disk;
        disk.lose_checkpoint(&mut self.random);
        self.counts.checkpoints_lost += 1;
        self.trace(|| format!("{replica} has lost its checkpoint"));
        if self.random.percent(70) {
            self.start(replica);
        }
    }
}
