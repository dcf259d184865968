//! A replica whose missing ops are in nobody's journal any more takes over a checkpoint of another one.
//!
//! The shell moves the bytes: it fetches any checkpoint that contains what is missing, from whomever it
//! likes, and hands it in when all of it is durable here, segments and snapshot. Until then nothing changes:
//! the replica goes on in its view and its status, votes with the journal that it has, and acknowledges what
//! is in it (V3). Then one superblock installs the checkpoint, and the journal goes on from there; while that
//! is on its way nothing is said ([`Status::StateTransfer`]), so that nobody relies on what a restart could
//! not find (V15). The rest is fetched like everything else that is missing.
//!
//! `log_view` stays what it was: the ops up to a checkpoint are committed, so they are those of the journal
//! of every view that can still be chosen, and of the ops after it the replica has none, unless prepares that
//! it cannot read were in between (`damage.rs`): what comes behind those stays.

use wire::{Op, ReplicaId};

use super::{Replica, installing::Target};
use crate::{
    Checkpoint, Effect, Gone, Ignore, Note, Status, constants::TIMESTAMP_MAX, journal::Journal,
    mutation,
};

/// What is wanted of others, and what is on its way to the disk.
#[derive(Debug)]
pub(super) struct StateTransfer {
    /// A checkpoint that contains this op is wanted.
    wanted: Option<Op>,
    /// Who has one.
    holder: ReplicaId,
    /// The sequence number of the superblock that installs one, and what the replica did before.
    installing: Option<(u64, Status)>,
}

impl StateTransfer {
    pub(super) const fn new() -> Self {
        Self {
            wanted: None,
            holder: ReplicaId(0),
            installing: None,
        }
    }
}

impl Replica {
    /// The op that a checkpoint of another replica must contain to be of use here; none when nothing is
    /// missing that cannot be had otherwise.
    #[must_use]
    pub fn wanted_checkpoint(&self) -> Option<Op> {
        let is_installing = self.state_transfer.installing.is_some();
        let wanted = self.state_transfer.wanted?;
        (wanted > self.commit_chained && !is_installing && self.may_transfer()).then_some(wanted)
    }

    /// A primary has whatever is committed.
    fn may_transfer(&self) -> bool {
        let target = self.view_change.target.as_ref();
        match self.status {
            Status::Normal => !self.is_primary(),
            // A journal that is being installed is whole.
            Status::ViewChange | Status::RecoveringHead => {
                target.is_none_or(|target| !target.is_being_installed())
            }
            Status::Recovering | Status::StateTransfer | Status::OutOfService(_) => false,
        }
    }

    /// What is missing here is no longer kept there, but in a checkpoint.
    pub(super) fn on_gone(&mut self, gone: Gone) {
        if let Some(reason) = self.ignore_gone(&gone) {
            return self.count_ignored(reason);
        }
        let Gone { replica, op, .. } = gone;
        if mutation::V3 {
            self.journal.truncate(self.commit_chained);
        }
        self.want_checkpoint(op, replica);
    }

    fn ignore_gone(&self, gone: &Gone) -> Option<Ignore> {
        let is_missing = match self.status {
            Status::Normal | Status::ViewChange if self.is_damaged(gone.op) => true,
            Status::Normal => gone.op > self.op() && self.repair.is_wanted(gone.op),
            Status::ViewChange | Status::RecoveringHead => {
                let target = self.view_change.target.as_ref();
                gone.op > self.commit_chained && target.is_some_and(|it| gone.op <= it.head())
            }
            Status::Recovering | Status::StateTransfer | Status::OutOfService(_) => false,
        };
        if !self.may_transfer() {
            Some(Ignore::NotNormal)
        } else if !is_missing || gone.checkpoint < gone.op {
            Some(Ignore::GoneUnwanted)
        } else if self.wanted_checkpoint().is_some() {
            Some(Ignore::GoneRepeated)
        } else {
            None
        }
    }

    /// The journal of the view is here, whole.
    pub(super) const fn want_no_checkpoint(&mut self) {
        self.state_transfer.wanted = None;
    }

    pub(super) fn want_checkpoint(&mut self, op: Op, from: ReplicaId) {
        self.state_transfer.wanted = Some(op);
        self.state_transfer.holder = from;
        self.repair.timeout.stop();
        self.note(Note::CheckpointWanted { op });
        let at_least = op;
        self.effects
            .push_back(Effect::FetchCheckpoint { at_least, from });
    }

    /// A checkpoint of another replica is durable here. It is of use if it goes beyond what is known to be committed
    /// here, though what it was fetched for has come otherwise: who is that far behind will want one again.
    pub(super) fn on_checkpoint_fetched(&mut self, checkpoint: Checkpoint) {
        let point = checkpoint.anchor().point;
        let is_of_use = self.may_transfer()
            && self.state_transfer.installing.is_none()
            && point.op > self.commit_chained
            && self.replaces_lost(point);
        if !is_of_use || checkpoint.timestamp >= TIMESTAMP_MAX {
            self.count_ignored(Ignore::CheckpointUnknown);
            return self.fetch_still_wanted();
        }
        assert!(
            self.applying == self.commit_min(),
            "whatever was handed out is reported"
        );
        if self.journal.checksum(point.op) == Some(point.checksum) {
            // It has come here otherwise meanwhile, and is now known to be committed.
            self.state_transfer.wanted = None;
            self.commit_up_to(point.op);
            return self.advance_target();
        }
        self.install_fetched(checkpoint);
    }

    /// What was fetched is not what is wanted by now: a later one is fetched. Nobody else would ask for it again.
    fn fetch_still_wanted(&mut self) {
        if let Some(at_least) = self.wanted_checkpoint() {
            let from = self.state_transfer.holder;
            self.effects
                .push_back(Effect::FetchCheckpoint { at_least, from });
        }
    }

    /// V3: with one superblock the state of the checkpoint takes the place of the own one, and of the ops in
    /// the journal: those are in it, or were given up by a view that committed others in their place.
    fn install_fetched(&mut self, checkpoint: Checkpoint) {
        let before = self.status;
        let anchor = checkpoint.anchor();
        let point = anchor.point;
        self.keep_damaged_after(point);
        self.journal = Journal::new(anchor, self.config.replica_count > 1);
        self.commit_chained = point.op;
        self.commit_max = self.commit_max.max(point.op);
        self.commit_ahead = self.commit_ahead.filter(|ahead| ahead.op > point.op);
        self.applying = point.op;
        self.applied = anchor;
        self.client_sessions = checkpoint.client_sessions;
        self.barriers = checkpoint.barriers;
        self.checkpoint_begun = None;
        self.checkpoint_lost = None;
        self.repair.stop();
        // Unless others are further on than that view, its journal goes on being fetched.
        let target = self.view_change.target.take();
        self.view_change.target = target
            .filter(|target| target.contains(point))
            .map(Target::asked_for_nothing);

        let own = usize::from(self.config.replica.0);
        self.checkpoints[own] = self.checkpoints[own].max(point.op);
        let checkpoint_quorum = self.checkpoint_quorum();
        self.promises.set_checkpoint(point, checkpoint_quorum);
        if before != Status::RecoveringHead {
            // There the head is not known: what was promised of it stays.
            let suffix = self.suffix();
            self.promises.begin_journal(self.last_op(), suffix);
        }
        self.write_superblock();
        let sequence = self.promises.newest().sequence;
        self.state_transfer = StateTransfer {
            wanted: None,
            holder: self.state_transfer.holder,
            installing: Some((sequence, before)),
        };
        self.status = Status::StateTransfer;
        self.note(Note::CheckpointInstalled { op: point.op });
        let op = point.op;
        self.effects.push_back(Effect::ReplaceState { op });
        self.effects.push_back(Effect::StatusChanged);
    }

    /// Goes on with what it did before, once the superblock is durable.
    pub(super) fn finish_state_transfer(&mut self, sequence: u64) {
        assert!(self.status == Status::StateTransfer);
        let Some((written, before)) = self.state_transfer.installing else {
            unreachable!("the superblock that installs the checkpoint is on its way")
        };
        if written > sequence {
            return;
        }
        self.state_transfer.installing = None;
        self.status = before;
        self.effects.push_back(Effect::StatusChanged);
        // Nothing was listened to meanwhile.
        self.be_patient();
        self.connect();
        match before {
            Status::Normal => self.repair_on(),
            Status::ViewChange => {
                self.advance_target();
                self.promise_view();
                self.vote();
            }
            Status::RecoveringHead => self.advance_target(),
            Status::Recovering | Status::StateTransfer | Status::OutOfService(_) => {
                unreachable!("no checkpoint is installed there")
            }
        }
    }
}
