//! The replica: its state, its one entry, and what holds after every event.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{ClusterId, ConsensusGroup, Op, ReplicaId, Time, View};

use crate::{
    Barriers, ChainPoint, ClientSessions, Effect, Ignore, Input, Message, Note, Status,
    damaged::Damaged,
    journal::{Anchor, Journal},
    mutation,
    pipeline::Pipeline,
    primary_of,
    timeout::Timeout,
};

use leadership::Leadership;
use liveness::Liveness;
use promises::Promises;
use read_index::ReadIndex;
use rejoining::Rejoining;
use repair::Repair;
use state_transfer::StateTransfer;
use view_change::ViewChange;

pub use waiting::Wait;

mod apply;
mod checkpoint;
mod choice;
mod damage;
mod installing;
mod leadership;
mod liveness;
mod lost_checkpoint;
mod normal;
mod promises;
mod read_index;
mod recovery;
mod rejoining;
mod repair;
mod state_transfer;
mod view_change;
mod waiting;

#[cfg(test)]
mod tests;

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
    /// The time of the event that is being handled.
    now: Time,
    status: Status,
    /// The view that this replica is in, or about to enter. Never falls (V2).
    /// Invariant: in normal status it is durable, and its journal is installed.
    view: View,
    /// Chosen by the shell for this incarnation (V11).
    nonce: u128,
    /// The superblock: what is promised, and how much of it is durable (V1).
    promises: Promises,
    /// Invariant: holds every op that is not applied, up to the first that cannot be read.
    journal: Journal,
    /// What comes behind that, if the end of the journal is damaged. Invariant: it begins behind the journal's
    /// head, and a primary in normal status has none.
    damaged: Option<Damaged>,
    /// The last op of the journal when the view began; a primary serves nothing before it is applied (V8).
    inherited: Op,
    /// The highest op known to be committed, wherever.
    commit_max: Op,
    /// The highest op known to be committed and to be the one in the journal (V9).
    /// Invariant: `commit_chained <= commit_max`.
    commit_chained: Op,
    /// Committed, but the journal does not reach that far.
    commit_ahead: Option<ChainPoint>,
    /// The last op handed out to be applied. Invariant: `commit_min <= applying <= commit_chained`.
    applying: Op,
    /// The last op applied: `commit_min`.
    applied: Anchor,
    /// What a primary has prepared in this view and not applied.
    pipeline: Pipeline,
    client_sessions: ClientSessions,
    /// Those of replicas that lost their disks, as far as they are applied (V13).
    barriers: Barriers,
    rejoining: Rejoining,
    /// Ops of the durable checkpoints, by replica, as far as known. They only rise, unless a disk is lost.
    checkpoints: Vec<Op>,
    /// The checkpoint that is being written.
    checkpoint_begun: Option<ChainPoint>,
    /// The newest one could not be read at the start, and none has taken its place.
    checkpoint_lost: Option<Op>,
    repair: Repair,
    state_transfer: StateTransfer,
    /// Of a primary with backups.
    heartbeat: Timeout,
    /// Of a backup: what the last heartbeat said is committed.
    heartbeat_commit: Op,
    read_index: ReadIndex,
    view_change: ViewChange,
    liveness: Liveness,
    leadership: Leadership,
    effects: VecDeque<Effect>,
}

impl Replica {
    /// Feeds one event. Reads, writes and sends may finish in any order; an effect that must wait for a
    /// disk is emitted after that completion came in.
    ///
    /// # Panics
    /// When an invariant of the replica is broken, or when [`Input::Applied`] does not follow the order of
    /// [`Effect::Apply`]. Never by what a message or a client's request contains.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = now;
        match input {
            Input::Message(message) => self.on_message(message),
            Input::Request(request) => self.on_request(request),
            Input::Tick => self.on_tick(),
            Input::PrepareWritten { op, checksum } => self.on_prepare_written(op, checksum),
            Input::SuperblockWritten { sequence } => self.on_superblock_written(sequence),
            Input::Applied {
                op,
                reply,
                ended,
                registered,
            } => self.on_applied(op, reply, &ended, registered),
            Input::CheckpointWritten { op } => self.on_checkpoint_written(op),
            Input::CheckpointFetched(checkpoint) => self.on_checkpoint_fetched(checkpoint),
            Input::PrepareRead { op, to, prepare } => self.on_prepare_read(op, to, prepare),
            Input::PrimaryLost => self.on_primary_lost(),
            Input::Receiving { from } => self.on_receiving(from),
            Input::Moving => self.on_moving(),
            Input::Reluctant(is_reluctant) => self.on_reluctant(is_reluctant),
            Input::CatchingUp(is_catching_up) => self.on_catching_up(is_catching_up),
            Input::Stop => self.on_stop(),
            Input::ConfirmView { token } => self.on_confirm_view(token),
        }
        if mutation::V1 {
            self.on_superblock_written(self.promises.newest().sequence);
        }
        self.hand_over();
        self.go_on_handing_over();
        self.spread();
        self.assert_invariants();
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
        self.primary_of(self.view)
    }

    fn primary_of(&self, view: View) -> ReplicaId {
        primary_of(self.config.group, view, self.config.replica_count)
    }

    /// Whether that is this replica.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.primary() == self.config.replica
    }

    /// Whether it is the primary and takes requests: normal status, the inherited ops are applied (V8), and
    /// it has neither abdicated (V17) nor been told to stop, and does not hand over.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.status == Status::Normal
            && self.is_primary()
            && (mutation::V8 || self.commit_min() >= self.inherited)
            && !self.liveness.is_abdicated()
            && !self.liveness.is_stopping()
            && !self.leadership.is_handing_over()
    }

    /// Since when, in monotonic nanoseconds, it suspects the primary of its view, the others being content with it:
    /// if it is long ago, this replica is cut off from that one, and learns nothing new.
    #[must_use]
    pub fn suspects_since(&self) -> Option<u64> {
        let follows = self.status == Status::Normal && !self.is_primary();
        self.liveness.suspected_since().filter(|_| follows)
    }

    /// Whether it lost its disk, and has not been taken back (V13).
    #[must_use]
    pub const fn is_rejoining(&self) -> bool {
        self.promises.newest().is_rejoining
    }

    /// Its highest op.
    #[must_use]
    pub fn op(&self) -> Op {
        self.journal.head().point.op
    }

    /// The highest op known to be committed.
    #[must_use]
    pub const fn commit_max(&self) -> Op {
        self.commit_max
    }

    /// The highest op applied here.
    #[must_use]
    pub const fn commit_min(&self) -> Op {
        self.applied.point.op
    }

    /// The last op applied here.
    #[must_use]
    pub const fn applied_point(&self) -> ChainPoint {
        self.applied.point
    }

    /// What it can take as a primary; nothing while it does not serve.
    #[must_use]
    pub fn room(&self) -> Room {
        if self.is_serving() {
            self.pipeline.room()
        } else {
            Room {
                prepares: 0,
                bytes: 0,
            }
        }
    }

    /// The client table.
    #[must_use]
    pub const fn client_sessions(&self) -> &ClientSessions {
        &self.client_sessions
    }

    fn on_message(&mut self, message: Message) {
        if let Some(reason) = self.ignore_message(&message) {
            self.count_ignored(reason);
            let is_elsewhere = matches!(reason, Ignore::NotNormal | Ignore::NewerView);
            if let Message::Commit(heartbeat) = &message
                && is_elsewhere
            {
                self.on_primary_elsewhere(heartbeat);
            }
            return;
        }
        match message {
            Message::Prepare(it) => self.on_prepare(it),
            Message::PrepareOk(it) => self.on_prepare_ok(it),
            Message::Commit(it) => self.on_commit(it),
            Message::CommitOk(it) => self.on_commit_ok(it),
            Message::RequestPrepare(it) => self.on_request_prepare(it),
            Message::RequestedPrepare(it) => self.on_requested_prepare(it),
            Message::ViewProbe(it) => self.on_view_probe(it),
            Message::ViewProbeOk(it) => self.on_view_probe_ok(it),
            Message::StartViewChange(it) => self.on_start_view_change(it),
            Message::DoViewChange(it) => self.on_do_view_change(it),
            Message::StartView(it) => self.on_start_view(it),
            Message::RequestStartView(it) => self.on_request_start_view(it),
            Message::Gone(it) => self.on_gone(it),
            Message::Rejoin(it) => self.on_rejoin(it),
        }
    }

    /// What holds for every message: a known sender; and for those of normal operation normal status and
    /// exactly this view (VRR §4.1). The others are looked at where they are handled.
    fn ignore_message(&self, message: &Message) -> Option<Ignore> {
        if message.replica().0 >= self.config.replica_count {
            Some(Ignore::UnknownReplica)
        } else if message.replica() == self.config.replica {
            Some(Ignore::FromSelf)
        } else if !is_of_one_view(message) {
            None
        } else if self.status != Status::Normal {
            Some(Ignore::NotNormal)
        } else if message.view() < self.view {
            Some(Ignore::OlderView)
        } else if message.view() > self.view {
            Some(Ignore::NewerView)
        } else {
            None
        }
    }

    fn on_superblock_written(&mut self, sequence: u64) {
        self.promises.set_durable(sequence);
        match self.status {
            Status::Recovering if self.promises.is_durable(self.view) => self.enter_view(),
            Status::Recovering if self.promises.durable_view() == Some(self.view) => {
                self.resume_view_change();
            }
            Status::ViewChange | Status::RecoveringHead => {
                let target = self.view_change.target.as_ref();
                if target.is_some_and(|target| target.is_installed(sequence)) {
                    self.enter_view();
                } else if self.status == Status::ViewChange {
                    self.vote();
                }
            }
            Status::StateTransfer => self.finish_state_transfer(sequence),
            Status::Recovering | Status::Normal | Status::OutOfService(_) => {}
        }
    }

    /// The view is durable and its journal installed: takes part in it.
    fn enter_view(&mut self) {
        assert!(self.promises.is_durable(self.view));
        let installed = self
            .view_change
            .target
            .as_ref()
            .map(installing::Target::commit);
        self.status = Status::Normal;
        self.inherited = self.op();
        self.view_change.end(self.config.replica);
        self.want_no_checkpoint();
        self.watch();
        self.note(Note::ViewEntered { view: self.view });
        self.finish_rejoining();
        self.effects.push_back(Effect::StatusChanged);
        // The journal of the view contains whatever was committed before it.
        self.commit_up_to(self.commit_max.min(self.op()));
        if self.config.replica_count == 1 {
            // What is durable here is durable on a quorum.
            self.commit_up_to(self.journal.durable());
        } else if self.is_primary() {
            self.begin_leading(installed.is_some());
        } else if let Some(commit) = installed {
            self.acknowledge_after(commit);
        }
        self.repair_damaged();
    }

    /// VRR §4.2, step 4 and 5: all learn the journal of the view, and the ops that it inherited are
    /// replicated like new ones (V8).
    fn begin_leading(&mut self, was_view_change: bool) {
        // It has whatever is committed, so what is said to be beyond that is not.
        self.commit_max = self.commit_chained;
        self.heartbeat.start(self.now);
        if !was_view_change {
            return self.send_heartbeat();
        }
        let headers: Vec<_> = self.journal.headers_after(self.commit_min()).collect();
        for header in &headers {
            self.pipeline.push_inherited(*header);
        }
        self.broadcast(&Message::StartView(self.start_view(None)));
        for header in headers {
            if header.op() > self.commit_max {
                self.count_vote(header.op(), header.checksum, self.config.replica);
            }
        }
    }

    fn write_superblock(&mut self) {
        let superblock = self.promises.write();
        self.effects.push_back(Effect::WriteSuperblock(superblock));
    }

    fn send(&mut self, to: ReplicaId, message: Message) {
        assert!(to != self.config.replica);
        assert!(message.replica() == self.config.replica);
        self.promises.assert_may_say(&message);
        self.effects.push_back(Effect::Send { to, message });
    }

    fn others(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let this = self.config.replica;
        (0..self.config.replica_count)
            .map(ReplicaId)
            .filter(move |replica| *replica != this)
    }

    fn broadcast(&mut self, message: &Message) {
        for to in self.others() {
            self.send(to, message.clone());
        }
    }

    fn note(&mut self, note: Note) {
        self.effects.push_back(Effect::Note(note));
    }

    fn count_ignored(&mut self, reason: Ignore) {
        self.note(Note::Ignored(reason));
    }

    fn assert_invariants(&self) {
        assert!(self.commit_min() <= self.applying);
        assert!(self.applying <= self.commit_chained);
        assert!(self.commit_chained <= self.commit_max);
        assert!(self.commit_chained <= self.op());
        assert!(self.checkpoint_op() <= self.commit_chained || self.lacks_checkpoint());
        assert!(self.promises.newest().view <= self.view);
        if self.commit_min() < self.op() {
            assert!(self.journal.prepare(self.commit_min().next()).is_some());
        }
        if self.status == Status::Normal {
            assert!(self.promises.is_durable(self.view));
            assert!(self.checkpoint_op() <= self.commit_min());
        }
        if let Some(damaged) = &self.damaged {
            assert!(damaged.first() == self.op().next());
            assert!(self.status != Status::Normal || !self.is_primary());
        }
        if let Some(last) = self.pipeline.last() {
            assert!(self.status == Status::Normal && self.is_primary());
            assert!(last == self.op());
            assert!(self.pipeline.first() == Some(self.commit_min().next()));
        }
        debug_assert!(self.journal.is_chained());
    }
}

/// Whether a message means something in the view only that it names, between replicas in normal status.
const fn is_of_one_view(message: &Message) -> bool {
    matches!(
        message,
        Message::Prepare(_)
            | Message::PrepareOk(_)
            | Message::Commit(_)
            | Message::CommitOk(_)
            | Message::ViewProbe(_)
            | Message::ViewProbeOk(_)
    )
}
