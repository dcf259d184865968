//! What the replicas of a consensus group say to each other.
//!
//! Every message names its sender and the sender's view. The names are those of the paper; where a
//! message carries more than there, the field says why.

use alloc::vec::Vec;

use wire::{Op, PrepareHeader, ReplicaId, View};

use crate::{ChainPoint, Prepare};

/// One message between two replicas of a consensus group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// VRR §4.1: replicate an op.
    Prepare(PrepareMessage),
    /// VRR §4.1: the op is durable here.
    PrepareOk(PrepareOk),
    /// VRR §4.1: nothing new, but this much is committed. Also the heartbeat.
    Commit(Commit),
    /// Answers a heartbeat.
    CommitOk(CommitOk),
    /// Asks for a prepare that is missing here.
    RequestPrepare(RequestPrepare),
    /// Answers a [`RequestPrepare`].
    RequestedPrepare(RequestedPrepare),
    /// VRR §4.2: a wish to leave the view.
    StartViewChange(StartViewChange),
    /// VRR §4.2: the journal of a replica that has left the view.
    DoViewChange(DoViewChange),
    /// VRR §4.2: the journal of the new view.
    StartView(StartView),
    /// Asks for a [`StartView`] that answers this very question (V11).
    RequestStartView(RequestStartView),
    /// Is this still the view? (ReadIndex.)
    ViewProbe(ViewProbe),
    /// It is.
    ViewProbeOk(ViewProbeOk),
    /// VRR §5.2: the prepare asked for is no longer kept.
    Gone(Gone),
    /// Asks to be taken back after the disk was lost (V13).
    Rejoin(Rejoin),
}

/// Replicate an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareMessage {
    /// The primary of `view`.
    pub replica: ReplicaId,
    /// The view in which it is sent; that of the header is lower when a new primary inherited the op.
    pub view: View,
    /// What the sender knows to be committed, with its checksum (V9).
    pub commit: ChainPoint,
    /// The op.
    pub prepare: Prepare,
}

/// The op, and every op before it, is durable at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareOk {
    /// Who has it.
    pub replica: ReplicaId,
    /// The view in which it is acknowledged; an acknowledgement counts in that view only.
    pub view: View,
    /// The op.
    pub op: Op,
    /// Checksum of its header (V7): an op of this number with other bytes is another op.
    pub checksum: u128,
    /// The op of the sender's durable checkpoint (V15).
    pub checkpoint: Op,
}

/// What the primary knows; sent in every heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The primary of `view`.
    pub replica: ReplicaId,
    /// Its view.
    pub view: View,
    /// Its highest op: tells a backup that the last prepares were lost on the way.
    pub op: Op,
    /// What is committed, with its checksum (V9).
    pub commit: ChainPoint,
    /// A checkpoint at this op or above is durable on a quorum (V15).
    pub checkpoint_quorum: Op,
}

/// Answers a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOk {
    /// Who answers.
    pub replica: ReplicaId,
    /// Its view.
    pub view: View,
    /// The op that it has applied.
    pub commit_min: Op,
    /// The op of its durable checkpoint (V15).
    pub checkpoint: Op,
    /// Whether it would lead, should it be asked to. Of no consequence for what is safe.
    pub is_willing: bool,
}

/// Asks for one prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPrepare {
    /// Who asks.
    pub replica: ReplicaId,
    /// Its view.
    pub view: View,
    /// The op.
    pub op: Op,
    /// The prepare's checksum, if it is known; else the one of the view's journal.
    pub checksum: Option<u128>,
}

/// The prepare asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedPrepare {
    /// Who has it.
    pub replica: ReplicaId,
    /// The view whose journal it is from, which is not that of a sender that has left it: if it is not
    /// committed, it may be in no other.
    pub view: View,
    /// The sender knows that it is committed, so it is in the journal of every later view.
    pub is_committed: bool,
    /// The prepare.
    pub prepare: Prepare,
}

/// A wish for a view; the only message of normal operation that may name a view above the durable one
/// (V1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartViewChange {
    /// Who wishes.
    pub replica: ReplicaId,
    /// The view wished for.
    pub view: View,
    /// The view that the sender has promised: it cannot go back to an earlier one. Those that are in an
    /// earlier one go along, or it would take no part for as long as they are content.
    pub promised: View,
}

/// The journal of a replica that has left its view. Everything but `present` is durable before it is
/// first sent, and never changes for a view (V5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoViewChange {
    /// Whose journal it is.
    pub replica: ReplicaId,
    /// The view to be started.
    pub view: View,
    /// The last view whose journal was installed here (V2).
    pub log_view: View,
    /// The highest op of that journal.
    pub op: Op,
    /// What the sender knows to be committed.
    pub commit: ChainPoint,
    /// The op of its durable checkpoint (V15).
    pub checkpoint: Op,
    /// The ops above `commit`, in order; empty abstains (V12).
    pub suffix: Vec<SuffixReport>,
}

/// One uncommitted op, as a replica sees it (V12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixReport {
    /// The op.
    pub op: Op,
    /// Its header, if known here.
    pub header: Option<PrepareHeader>,
    /// It was provably never prepared here. Never set for an entry that cannot be read.
    pub nack: bool,
    /// Header and body are durable here and can be read.
    pub present: bool,
}

/// The journal of a new view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartView {
    /// The primary of `view`.
    pub replica: ReplicaId,
    /// The view.
    pub view: View,
    /// The last op of its journal.
    pub op: Op,
    /// What is committed.
    pub commit: ChainPoint,
    /// A checkpoint at this op or above is durable on a quorum (V15).
    pub checkpoint_quorum: Op,
    /// The headers of the ops above `commit`, in order.
    pub suffix: Vec<PrepareHeader>,
    /// The nonce of the [`RequestStartView`] that it answers.
    pub nonce: Option<u128>,
}

/// Asks the primary of a view for its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStartView {
    /// Who asks.
    pub replica: ReplicaId,
    /// The view asked for.
    pub view: View,
    /// Chosen by this incarnation of the replica: an answer to an older one does not count (V11).
    pub nonce: u128,
}

/// Asks a replica whether it is in normal status in exactly this view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewProbe {
    /// The primary of `view`.
    pub replica: ReplicaId,
    /// The view.
    pub view: View,
    /// The round of questions; an answer counts for its round only.
    pub round: u64,
}

/// The sender is in normal status in this view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewProbeOk {
    /// Who answers.
    pub replica: ReplicaId,
    /// The view.
    pub view: View,
    /// The round that is answered.
    pub round: u64,
}

/// The prepare asked for is no longer kept; the sender's newest checkpoint contains it, if it reaches that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Who says so.
    pub replica: ReplicaId,
    /// Its view.
    pub view: View,
    /// The op of the prepare asked for.
    pub op: Op,
    /// The sender's newest checkpoint.
    pub checkpoint: Op,
}

/// Asks the primary that was heard to prepare the sender's barrier, and to answer with a [`StartView`] once that is
/// committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejoin {
    /// Who has lost its disk.
    pub replica: ReplicaId,
    /// The view that it has promised since: none.
    pub view: View,
    /// The view of the primary that this incarnation has heard.
    pub heard_view: View,
    /// What was committed, as that primary said: only before barriers that are behind this it is a new question.
    pub heard_commit: Op,
    /// Chosen by this incarnation of the replica: names the barrier and its answer.
    pub nonce: u128,
}

macro_rules! each_message {
    ($message:expr, $field:ident) => {
        match $message {
            Message::Prepare(it) => it.$field,
            Message::PrepareOk(it) => it.$field,
            Message::Commit(it) => it.$field,
            Message::CommitOk(it) => it.$field,
            Message::RequestPrepare(it) => it.$field,
            Message::RequestedPrepare(it) => it.$field,
            Message::StartViewChange(it) => it.$field,
            Message::DoViewChange(it) => it.$field,
            Message::StartView(it) => it.$field,
            Message::RequestStartView(it) => it.$field,
            Message::ViewProbe(it) => it.$field,
            Message::ViewProbeOk(it) => it.$field,
            Message::Gone(it) => it.$field,
            Message::Rejoin(it) => it.$field,
        }
    };
}

impl Message {
    /// Who sent it.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        each_message!(self, replica)
    }

    /// The view that it names.
    #[must_use]
    pub const fn view(&self) -> View {
        each_message!(self, view)
    }
}
