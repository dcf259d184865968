//! The start of a replica from what its disk holds (V10, V11). There is no recovery protocol as in VRR
//! §4.3: the superblock remembers what was promised.

use alloc::{collections::VecDeque, vec};

use wire::{Op, Time, View};

use super::{
    Config, Replica, leadership::Leadership, liveness::Liveness, promises::Promises,
    read_index::ReadIndex, rejoining::Rejoining, repair::Repair, state_transfer::StateTransfer,
    view_change::ViewChange,
};
use crate::{
    ChainPoint, Checkpoint, Note, OutOfService, Recovered, Status, constants::HEARTBEAT_INTERVAL,
    journal::Journal, mutation, pipeline::Pipeline, recovered::Chain, timeout::Timeout,
};

impl Replica {
    /// Starts from what the disk holds. Its first effect that matters makes a superblock durable; before
    /// that nothing is said or served.
    ///
    /// A backup of several goes on in its view; the primary starts the next one (V10); one that was voting
    /// votes the same again (V5). What of their journals cannot be read they fetch from the others (V12). One
    /// whose head is uncertain is in [`Status::RecoveringHead`]: only the journal of a view, given on its
    /// question, ends that (V11). A checkpoint that the superblock does not name yet is named first (V15).
    ///
    /// # Panics
    /// When `replica_count` is not 1, 3 or 5, `replica` is not below it, or `clients_max` is 0.
    #[must_use]
    pub fn new(config: Config, recovered: Recovered) -> Self {
        assert!(matches!(config.replica_count, 1 | 3 | 5));
        assert!(config.replica.0 < config.replica_count);
        assert!(config.clients_max > 0);
        if recovered.is_rejoining() && config.replica_count == 1 {
            Self::out_of_service(config, View(0), OutOfService::NothingToRejoin)
        } else if recovered.is_rejoining() && recovered.superblock.is_none() {
            Self::without_disk(config, recovered)
        } else if recovered.is_fresh() {
            let checkpoint = recovered.checkpoint.unwrap_or_default();
            let mut replica = Self::behind(config, checkpoint);
            replica.nonce = recovered.nonce;
            replica.promises = Promises::fresh(recovered.position);
            replica.begin_view(View(0));
            replica
        } else if config.replica_count == 1 {
            Self::restarted_alone(config, recovered)
        } else {
            Self::restarted_among_others(config, recovered)
        }
    }

    /// V13: that it has forgotten everything is the first that it remembers.
    fn without_disk(config: Config, recovered: Recovered) -> Self {
        let mut replica = Self::behind(config, recovered.checkpoint.unwrap_or_default());
        replica.nonce = recovered.nonce;
        replica.promises = Promises::lost(recovered.position);
        replica.rejoining.is_under_way = true;
        replica.status = Status::RecoveringHead;
        replica.view_change.repeat.start(replica.now);
        replica.write_superblock();
        replica
    }

    /// n = 1: all that is durable is committed, and goes to the state machine again.
    fn restarted_alone(config: Config, recovered: Recovered) -> Self {
        let view = recovered.superblock.as_ref().map_or(View(0), |it| it.view);
        let position = recovered.position;
        match recovered.chain(&config) {
            Ok(chain) => Self::from_chain(config, chain, position),
            Err(reason) => Self::out_of_service(config, view, reason),
        }
    }

    fn from_chain(config: Config, chain: Chain, position: u64) -> Self {
        let Chain {
            mut superblock,
            checkpoint,
            prepares,
            dropped,
            older: _,
            damaged: _,
            head_uncertain: _,
            lost: _,
        } = chain;
        let view = superblock.view;
        // The checkpoint that was read is the one to count on, whichever was written last.
        superblock.checkpoint = checkpoint.anchor().point;
        superblock.checkpoint_quorum = checkpoint.op;

        let mut replica = Self::behind(config, checkpoint);
        replica.promises = Promises::recovered(superblock, position);
        for prepare in prepares {
            replica.journal.append(prepare, true);
        }
        replica.note(Note::Recovered {
            checkpoint: replica.commit_min(),
            op: replica.op(),
        });
        for op in dropped {
            replica.note(Note::Dropped { op });
        }
        // V10: whatever a primary said in its view before it stopped may still be on its way.
        replica.begin_view(view.next());
        replica
    }

    fn out_of_service(config: Config, view: View, reason: OutOfService) -> Self {
        let mut replica = Self::behind(config, Checkpoint::default());
        replica.view = view;
        replica.status = Status::OutOfService(reason);
        replica.note(Note::OutOfService(reason));
        replica
    }

    fn restarted_among_others(config: Config, recovered: Recovered) -> Self {
        let view = recovered.superblock.as_ref().map_or(View(0), |it| it.view);
        let nonce = recovered.nonce;
        let position = recovered.position;
        let chain = match recovered.chain_among_others(&config) {
            Ok(chain) => chain,
            Err(reason) => return Self::out_of_service(config, view, reason),
        };
        let named = chain.superblock.checkpoint;
        let found = chain.checkpoint.anchor().point;
        let mut replica = Self::behind(config, chain.checkpoint);
        replica.view = view;
        replica.nonce = nonce;
        replica.promises = Promises::recovered(chain.superblock, position);
        replica.journal.set_trimmed(chain.older);
        for prepare in chain.prepares {
            replica.journal.append(prepare, true);
        }
        replica.damaged = chain.damaged;
        replica.note(Note::Recovered {
            checkpoint: replica.commit_min(),
            op: replica.op(),
        });
        if let Some(damaged) = &replica.damaged {
            let (first, last) = (damaged.first(), damaged.last());
            replica.note(Note::Damaged { first, last });
        }
        for op in chain.dropped {
            replica.note(Note::Dropped { op });
        }
        if chain.head_uncertain {
            replica.rejoining.is_under_way = replica.is_rejoining();
            replica.status = Status::RecoveringHead;
            replica.view_change.repeat.start(replica.now);
        }
        replica.commit_behind_head();
        if let Some(lost) = chain.lost {
            replica.replace_checkpoint(found, lost);
        } else if found.op > named.op {
            replica.name_checkpoint(found);
        } else if !chain.head_uncertain {
            replica.take_part();
        }
        replica
    }

    /// V15: a checkpoint may be on the disk, and not the superblock that names it. It is named before anything
    /// relies on it: what comes behind it follows from nothing else, and if it were lost then, nothing would tell
    /// that there was more. Until that is durable nothing is said.
    fn name_checkpoint(&mut self, point: ChainPoint) {
        let checkpoint_quorum = self.checkpoint_quorum();
        self.promises.set_checkpoint(point, checkpoint_quorum);
        self.journal.recycle(self.promises.newest().recyclable());
        if self.status == Status::RecoveringHead {
            // The head is not known: what was promised of it stays.
            return self.write_superblock();
        }
        self.take_part_from_checkpoint();
    }

    /// The checkpoint that the replica started from is not the one of its superblock on the disk. It takes part once
    /// it is.
    pub(super) fn take_part_from_checkpoint(&mut self) {
        let suffix = self.suffix();
        self.promises.begin_journal(self.last_op(), suffix);
        if self.leaves_view() {
            // The superblock that promises the next view names the checkpoint.
            self.take_part();
        } else {
            self.write_superblock();
        }
    }

    /// V10: whatever a primary said in its view before it stopped may still be on its way.
    fn leaves_view(&self) -> bool {
        self.promises.newest().log_view == self.view && self.is_primary() && !mutation::V10
    }

    /// A restarted replica goes on where it was, as one of several.
    fn take_part(&mut self) {
        let view = self.view;
        if self.leaves_view() {
            self.leave_view(view.next());
            self.promise_view();
            self.broadcast_wish(view.next());
            self.repair_damaged();
        } else if self.promises.newest().log_view < view {
            self.resume_view_change();
        } else {
            self.enter_view();
        }
    }

    /// The view was left, and the vote for it may have been sent: the same is said again (V5).
    pub(super) fn resume_view_change(&mut self) {
        self.status = Status::ViewChange;
        self.view_change.timeout.start(self.now);
        self.view_change.repeat.start(self.now);
        self.vote();
        self.repair_damaged();
    }

    /// The promises for `view` go to the disk; once they are there, the replica enters it.
    fn begin_view(&mut self, view: View) {
        self.view = view;
        self.promises.install(view, self.op(), self.suffix());
        self.write_superblock();
    }

    /// A replica whose state is that of the checkpoint.
    fn behind(config: Config, checkpoint: Checkpoint) -> Self {
        let applied = checkpoint.anchor();
        let op = applied.point.op;
        let mut checkpoints = vec![Op(0); usize::from(config.replica_count)];
        checkpoints[usize::from(config.replica.0)] = op;
        Self {
            config,
            now: Time::default(),
            status: Status::Recovering,
            view: View(0),
            nonce: 0,
            promises: Promises::default(),
            journal: Journal::new(applied, config.replica_count > 1),
            damaged: None,
            inherited: op,
            commit_max: op,
            commit_chained: op,
            commit_ahead: None,
            applying: op,
            applied,
            pipeline: Pipeline::default(),
            client_sessions: checkpoint.client_sessions,
            barriers: checkpoint.barriers,
            rejoining: Rejoining::default(),
            checkpoints,
            checkpoint_begun: None,
            checkpoint_lost: None,
            repair: Repair::new(),
            state_transfer: StateTransfer::new(),
            heartbeat: Timeout::stopped(HEARTBEAT_INTERVAL),
            heartbeat_commit: op,
            read_index: ReadIndex::default(),
            view_change: ViewChange::new(config.replica_count),
            liveness: Liveness::new(config.replica_count),
            leadership: Leadership::new(config.replica_count),
            effects: VecDeque::new(),
        }
    }
}
