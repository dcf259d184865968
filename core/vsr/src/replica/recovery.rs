//! The start of a replica from what its disk holds (V10, V11). There is no recovery protocol as in VRR
//! §4.3: the superblock remembers what was promised.

use alloc::{collections::VecDeque, vec};

use wire::{Op, Time, View};

use super::{Config, Replica, promises::Promises, read_index::ReadIndex, repair::Repair};
use crate::{
    Checkpoint, Note, OutOfService, Recovered, Status, constants::HEARTBEAT_INTERVAL,
    journal::Journal, pipeline::Pipeline, recovered::Chain, timeout::Timeout,
};

impl Replica {
    /// Starts from what the disk holds. Its first effect that matters makes a superblock durable; before
    /// that nothing is said or served.
    ///
    /// A replica of several that was stopped stays in [`Status::Recovering`], one whose head is uncertain
    /// in [`Status::RecoveringHead`]: only the journal of a later view ends that.
    ///
    /// # Panics
    /// When `replica_count` is not 1, 3 or 5, `replica` is not below it, or `clients_max` is 0.
    #[must_use]
    pub fn new(config: Config, recovered: Recovered) -> Self {
        assert!(matches!(config.replica_count, 1 | 3 | 5));
        assert!(config.replica.0 < config.replica_count);
        assert!(config.clients_max > 0);
        if recovered.is_fresh() {
            let checkpoint = recovered.checkpoint.unwrap_or_default();
            let mut replica = Self::behind(config, checkpoint);
            replica.begin_view(View(0));
            replica
        } else if config.replica_count == 1 {
            Self::restarted_alone(config, recovered)
        } else {
            Self::restarted_among_others(config, recovered)
        }
    }

    /// n = 1: all that is durable is committed, and goes to the state machine again.
    fn restarted_alone(config: Config, recovered: Recovered) -> Self {
        let view = recovered.superblock.as_ref().map_or(View(0), |it| it.view);
        match recovered.chain(&config) {
            Ok(chain) => Self::from_chain(config, chain),
            Err(reason) => Self::out_of_service(config, view, reason),
        }
    }

    fn from_chain(config: Config, chain: Chain) -> Self {
        let Chain {
            mut superblock,
            checkpoint,
            prepares,
            dropped,
        } = chain;
        let view = superblock.view;
        // The checkpoint that was read is the one to count on, whichever was written last.
        superblock.checkpoint = checkpoint.anchor().point;
        superblock.checkpoint_quorum = checkpoint.op;

        let mut replica = Self::behind(config, checkpoint);
        replica.promises = Promises::recovered(superblock);
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
        let Some(superblock) = recovered.superblock else {
            return Self::out_of_service(config, View(0), OutOfService::SuperblockMissing);
        };
        let checkpoint = recovered.checkpoint.unwrap_or_default();
        let mut replica = Self::behind(config, checkpoint);
        replica.view = superblock.view;
        replica.promises = Promises::recovered(superblock);
        if recovered.head_uncertain {
            replica.status = Status::RecoveringHead;
        }
        replica
    }

    /// The promises for `view` go to the disk; once they are there, the replica enters it.
    fn begin_view(&mut self, view: View) {
        self.view = view;
        self.promises.install(view, self.op());
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
            promises: Promises::default(),
            journal: Journal::new(applied, config.replica_count > 1),
            inherited: op,
            commit_max: op,
            commit_chained: op,
            commit_ahead: None,
            applying: op,
            applied,
            pipeline: Pipeline::default(),
            client_sessions: checkpoint.client_sessions,
            checkpoints,
            checkpoint_begun: None,
            repair: Repair::new(),
            heartbeat: Timeout::stopped(HEARTBEAT_INTERVAL),
            heartbeat_commit: op,
            read_index: ReadIndex::default(),
            effects: VecDeque::new(),
        }
    }
}
