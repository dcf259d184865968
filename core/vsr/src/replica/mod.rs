//! The replica: its state and its one entry.

use alloc::collections::VecDeque;

use wire::{ClusterId, ConsensusGroup, Op, ReplicaId, Time, View};

use crate::{
    Checkpoint, ClientSessions, Effect, Ignore, Input, Note, Recovered, Refusal, Status, primary_of,
};

/// What a replica is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster.
    pub cluster: ClusterId,
    /// The consensus group.
    pub group: ConsensusGroup,
    /// This replica.
    pub replica: ReplicaId,
    /// Replicas of the group: 1, 3 or 5.
    pub replica_count: u8,
    /// Sessions that the client table holds. Equal on all replicas.
    pub clients_max: usize,
}

/// What a primary can take at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Requests.
    pub prepares: usize,
    /// Bytes of prepares, headers included. With nothing in flight a single larger one is taken, too.
    pub bytes: usize,
}

/// One replica of one consensus group.
#[derive(Debug)]
pub struct Replica {
    config: Config,
    status: Status,
    view: View,
    clients: ClientSessions,
    effects: VecDeque<Effect>,
}

impl Replica {
    /// Starts from what the disk holds.
    #[must_use]
    pub fn new(config: Config, recovered: Recovered) -> Self {
        let checkpoint = recovered.checkpoint.unwrap_or_default();
        Self {
            config,
            status: Status::Recovering,
            view: recovered.superblock.map_or(View(0), |it| it.view),
            clients: checkpoint.client_sessions,
            effects: VecDeque::new(),
        }
    }

    /// Feeds one event.
    pub fn handle(&mut self, _now: Time, input: Input) {
        match input {
            Input::Request(request) => self.effects.push_back(Effect::Refuse {
                token: request.token,
                reason: Refusal::NotReady,
            }),
            Input::ConfirmView { token } => self.effects.push_back(Effect::Refuse {
                token,
                reason: Refusal::NotReady,
            }),
            Input::Message(_) => self
                .effects
                .push_back(Effect::Note(Note::Ignored(Ignore::NotNormal))),
            Input::Tick
            | Input::PrepareWritten { .. }
            | Input::SuperblockWritten { .. }
            | Input::Applied { .. }
            | Input::CheckpointWritten { .. } => {}
        }
    }

    /// The next thing to do, if there is one.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// What the replica is doing.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Its view.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// The primary of its view.
    #[must_use]
    pub fn primary(&self) -> ReplicaId {
        primary_of(self.config.group, self.view, self.config.replica_count)
    }

    /// Whether that is this replica.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.primary() == self.config.replica
    }

    /// Whether it is the primary and takes requests: normal status, the inherited ops applied (V8).
    #[must_use]
    pub fn is_serving(&self) -> bool {
        false
    }

    /// Its highest op.
    #[must_use]
    pub const fn op(&self) -> Op {
        Op(0)
    }

    /// The highest op known to be committed.
    #[must_use]
    pub const fn commit_max(&self) -> Op {
        Op(0)
    }

    /// The highest op applied here.
    #[must_use]
    pub const fn commit_min(&self) -> Op {
        Op(0)
    }

    /// What it can take as a primary; nothing while it does not serve.
    #[must_use]
    pub const fn room(&self) -> Room {
        Room {
            prepares: 0,
            bytes: 0,
        }
    }

    /// The client table.
    #[must_use]
    pub const fn client_sessions(&self) -> &ClientSessions {
        &self.clients
    }

    /// The op of the newest local checkpoint that is durable.
    #[must_use]
    pub const fn checkpoint_op(&self) -> Op {
        Op(0)
    }

    /// Begins a checkpoint of the state after [`Replica::commit_min`]; to be stored beside the state
    /// machine of this very moment, then reported by [`Input::CheckpointWritten`]. A checkpoint begun
    /// earlier and not reported is forgotten.
    pub fn begin_checkpoint(&mut self) -> Checkpoint {
        Checkpoint {
            client_sessions: self.clients.clone(),
            ..Checkpoint::default()
        }
    }
}
