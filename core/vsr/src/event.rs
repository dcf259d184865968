//! What goes into a replica and what comes out of it.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{ClientId, Op, PrepareHeader, ReplicaId, RequestNumber, SessionNumber, View};

use crate::{Checkpoint, Ignore, Message, OutOfService, Superblock};

/// One replicated entry: the header that names it and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// Sealed for `body`.
    pub header: PrepareHeader,
    /// The state machine's own encoding.
    pub body: Bytes,
}

/// The shell's name for a request that waits for its reply; means nothing to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Who asks, which decides how duplicates are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node itself, or a data group's batch: the state machine tells duplicates apart.
    Internal,
    /// A client that registers a session: the op becomes the session number and replaces an older one.
    Register {
        /// The client.
        client: ClientId,
    },
    /// A session's metadata request: executed at most once (V14).
    Session {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionNumber,
        /// The request's number.
        request: RequestNumber,
    },
}

/// A request that passed the shell's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Returned with the reply or refusal.
    pub token: Token,
    /// Who asks.
    pub origin: Origin,
    /// The kind of op, as the state machine names it; `u16::MAX` is none of its.
    pub operation: u16,
    /// The state machine's own encoding; with its header it fits a u32.
    pub body: Bytes,
}

/// One event for a replica.
#[derive(Clone, Debug)]
pub enum Input {
    /// From another replica of the group.
    Message(Message),
    /// From a client, by way of the shell.
    Request(Request),
    /// Time has passed. Expected every 10 ms; nothing breaks when it is late.
    Tick,
    /// The prepare with this op and checksum is durable here.
    PrepareWritten {
        /// The op.
        op: Op,
        /// Its header's checksum.
        checksum: u128,
    },
    /// The superblock with this sequence number (see [`Superblock::sequence`]) is durable here.
    SuperblockWritten {
        /// The sequence number.
        sequence: u64,
    },
    /// The state machine has executed the op of an [`Effect::Apply`]; they are answered in order.
    Applied {
        /// The op.
        op: Op,
        /// Kept for retries when a session asked for the op, also when it says that the op has failed.
        reply: Bytes,
        /// Clients whose sessions the op has ended.
        ended: Vec<ClientId>,
        /// Of an [`Origin::Register`]: whether the state machine took it. If not, the client table does
        /// not change. Without meaning for other ops.
        registered: bool,
    },
    /// The checkpoint begun by [`Replica::begin_checkpoint`] is durable here, segments and snapshot.
    ///
    /// [`Replica::begin_checkpoint`]: crate::Replica::begin_checkpoint
    CheckpointWritten {
        /// The last op that it contains.
        op: Op,
    },
    /// A checkpoint of another replica, which [`Replica::wanted_checkpoint`] wanted, is durable here,
    /// segments and snapshot: a restart would find it. Every [`Effect::Apply`] that was taken is reported.
    /// If it is of use, [`Effect::ReplaceState`] follows.
    ///
    /// [`Replica::wanted_checkpoint`]: crate::Replica::wanted_checkpoint
    CheckpointFetched(Checkpoint),
    /// What [`Effect::ReadPrepare`] asked for; none when it is not in the journal any more.
    PrepareRead {
        /// The op.
        op: Op,
        /// For whom.
        to: ReplicaId,
        /// The prepare, whole.
        prepare: Option<Prepare>,
    },
    /// The link to the primary's node has ended and is refused: the primary is suspected at once. Of no
    /// consequence for what is safe.
    PrimaryLost,
    /// Bytes of another replica's node have arrived that are no whole message yet: what it says to this group may
    /// be behind them. Of no consequence for what is safe.
    Receiving {
        /// The node's replica.
        from: ReplicaId,
    },
    /// Bytes that were given to this node's disk, or to its links, have gone there: what this replica gave may be
    /// behind them. Of no consequence for what is safe.
    Moving,
    /// Whether the node would rather have others lead: its disk is full, or it is cut off from the metadata. A primary
    /// then hands over to a replica that is willing, if there is one. Of no consequence for what is safe.
    Reluctant(bool),
    /// Whether the node has replicas of other groups that are not up to date: nobody gives it the lead of anything
    /// meanwhile that others lead as well. Of no consequence for what is safe.
    CatchingUp(bool),
    /// The process is about to end. Where there are others, this replica takes nothing new, and gives up what
    /// it leads or comes to lead as soon as nothing is in flight: the others go on at once. Of no consequence
    /// for what is safe.
    Stop,
    /// Asks, for something that has arrived by now, whether this replica is still the primary
    /// (ReadIndex). Answered by [`Effect::ViewConfirmed`] or [`Effect::Refuse`].
    ConfirmView {
        /// What asks.
        token: Token,
    },
}

/// What the shell has to do. Effects that must wait for a disk are emitted after that disk's completion
/// came in, so they may be carried out in any order, except that `Apply` keeps its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send to another replica; may be lost.
    Send {
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: Message,
    },
    /// Make a prepare durable, then report [`Input::PrepareWritten`].
    WritePrepare(Prepare),
    /// Read a committed prepare from the journal on the disk, then report [`Input::PrepareRead`].
    ReadPrepare {
        /// The op.
        op: Op,
        /// The prepare's checksum: there may be others with this op, of views that came to nothing.
        checksum: u128,
        /// Who asks for it.
        to: ReplicaId,
    },
    /// Fetch a checkpoint that contains this op from another replica, whichever, and make it durable, then
    /// report [`Input::CheckpointFetched`]. As long as [`Replica::wanted_checkpoint`] says so: it may be had
    /// otherwise.
    ///
    /// [`Replica::wanted_checkpoint`]: crate::Replica::wanted_checkpoint
    FetchCheckpoint {
        /// The op.
        at_least: Op,
        /// Somebody who has one.
        from: ReplicaId,
    },
    /// From here on the state machine is that of the checkpoint that was fetched.
    ReplaceState {
        /// Its op.
        op: Op,
    },
    /// Make a superblock durable, then report [`Input::SuperblockWritten`].
    WriteSuperblock(Superblock),
    /// Execute a committed op, then report [`Input::Applied`].
    Apply {
        /// The op.
        prepare: Prepare,
        /// The request that waits for it here, if there is one.
        token: Option<Token>,
    },
    /// Answer a repeated request from the client table.
    Reply {
        /// The request.
        token: Token,
        /// The op that executed it.
        op: Op,
        /// The reply of that time.
        body: Bytes,
    },
    /// Answer a request that is not executed.
    Refuse {
        /// The request.
        token: Token,
        /// Why.
        reason: Refusal,
    },
    /// The client table is full: this client's session was evicted, the same on every replica.
    Evict {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionNumber,
    },
    /// After the [`Input::ConfirmView`] of this token arrived, a quorum was in this view.
    ViewConfirmed {
        /// What asked.
        token: Token,
    },
    /// View, status, primary, or whether requests are served, changed.
    StatusChanged,
    /// Something happened that an operator or a test counts.
    Note(Note),
}

/// Why a request is not executed, or a view not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another replica is the primary.
    NotPrimary {
        /// Whom to ask.
        primary: ReplicaId,
    },
    /// No primary serves at this moment: view change, recovery, or the inherited suffix is not committed.
    NotReady,
    /// This replica takes no part until its disk is repaired.
    OutOfService(OutOfService),
    /// The pipeline is full.
    Busy,
    /// The client has no session here, or another one.
    NoSession,
    /// An older request of the session; its reply is no longer kept.
    Stale,
    /// The session's last request, executed as this op; its reply was too large to be kept.
    ReplyNotKept {
        /// The op.
        op: Op,
    },
    /// Another request of the session is in flight.
    InFlight,
    /// The same request is in flight already; its reply goes to the newer asker, this one is dropped.
    Superseded,
    /// The view changed before the op committed here; it may or may not be executed.
    Unknown,
}

/// Things that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A message was ignored.
    Ignored(Ignore),
    /// A backup suspects its primary, or a view change takes too long, and wishes for a view (V6).
    ViewWished {
        /// The view.
        view: View,
    },
    /// A primary leads no more because its process is about to end.
    HandsOver {
        /// The view.
        view: View,
    },
    /// A primary hands over to a replica that had better lead.
    LeadOffered {
        /// The view that it is to lead.
        view: View,
        /// The replica.
        to: ReplicaId,
    },
    /// A primary that heard from no quorum for too long leads no more (V17).
    Abdicated {
        /// Its view.
        view: View,
    },
    /// The replica left its view for a later one.
    ViewChangeStarted {
        /// The view.
        view: View,
    },
    /// The replica is in normal status in a view.
    ViewEntered {
        /// The view.
        view: View,
    },
    /// Ops were committed.
    Committed {
        /// The highest.
        op: Op,
    },
    /// A committed op was not executed: its session is gone, or it repeats a request (V14).
    Skipped {
        /// The op.
        op: Op,
    },
    /// The replica asked others for prepares that are missing here.
    RepairRequested {
        /// The first.
        first: Op,
        /// The last.
        last: Op,
    },
    /// The newest checkpoint cannot be read any more. The journal leads there from an older one; if not, one of
    /// another replica is fetched (V10).
    CheckpointLost {
        /// Its op.
        op: Op,
        /// Whether the journal leads there.
        is_bridged: bool,
    },
    /// What is missing here is in nobody's journal any more: a checkpoint is fetched (VRR §5.2).
    CheckpointWanted {
        /// It must contain this op.
        op: Op,
    },
    /// The state is that of a checkpoint of another replica.
    CheckpointInstalled {
        /// Its op.
        op: Op,
    },
    /// The replica has read its disk.
    Recovered {
        /// The op of the checkpoint.
        checkpoint: Op,
        /// The last op of the journal.
        op: Op,
    },
    /// A prepare on the disk was not part of the journal that was last installed, and is dropped.
    Dropped {
        /// Its op.
        op: Op,
    },
    /// Prepares of the journal cannot be read: what comes from the first of them on is fetched from the
    /// others where it cannot be connected (V10, V12).
    Damaged {
        /// The first that cannot be read.
        first: Op,
        /// The last op that may have been in the journal.
        last: Op,
    },
    /// A prepare that could not be read was fetched from another replica, and is durable here again.
    Repaired {
        /// Its op.
        op: Op,
    },
    /// A new view does without an op that somebody may have prepared: so many were certain never to have had
    /// it that no quorum can have acknowledged it (V12).
    Truncated {
        /// The first op that it drops.
        op: Op,
        /// How many were certain.
        nacks: u8,
    },
    /// All replicas have voted, and still nobody knows whether an op was acknowledged, or nobody can read it:
    /// the group serves nothing until a copy appears (V12).
    Undecided {
        /// The view that cannot begin.
        view: View,
        /// The op.
        op: Op,
    },
    /// A replica that lost its disk has a barrier from here on: it may come back (V13).
    Barrier {
        /// The op.
        op: Op,
        /// The replica.
        replica: ReplicaId,
    },
    /// The replica has lost its disk, and asks the others to take it back (V13).
    Rejoining,
    /// It has asked for long, and nobody has answered: no primary serves.
    RejoinUnanswered,
    /// It has the journal of a view, and takes part again.
    Rejoined {
        /// The view.
        view: View,
    },
    /// The replica takes no part until its disk is repaired.
    OutOfService(OutOfService),
}
