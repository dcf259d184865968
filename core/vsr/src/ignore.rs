//! Why a message is ignored.

/// Why a message or a completion is ignored. Never an error: a replica that is slow, restarted or behind
/// sends such messages in normal operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignore {
    /// It names a sender that is not in the roster.
    UnknownReplica,
    /// It names this replica as its sender.
    FromSelf,
    /// This replica is not in normal status.
    NotNormal,
    /// It belongs to a view that is over.
    OlderView,
    /// It belongs to a view that this replica has not entered.
    NewerView,
    /// Only the primary of the view sends it, and the sender is not.
    FromBackup,
    /// Only the primary of the view takes it, and this replica is not.
    NotPrimary,
    /// Only a backup takes it, and this replica is the primary.
    NotBackup,
    /// Header or body are not what was sealed, or not of this group or cluster, or of a view or time
    /// that cannot be.
    PrepareInvalid,
    /// The op is here already, with the same checksum.
    PrepareRepeated,
    /// Another op with this number is here already.
    PrepareConflicts,
    /// An op before it is missing here; it is asked for.
    PrepareAhead,
    /// It does not follow from the op before it (V9).
    PrepareUnchained,
    /// An acknowledgement of an op that was not prepared here.
    PrepareOkNotInFlight,
    /// An acknowledgement of another op with the same number (V7).
    PrepareOkChecksum,
    /// A replica acknowledges an op for the second time (V5).
    PrepareOkRepeated,
    /// What it says is committed is not what is here under that op (V9).
    CommitUnchained,
    /// The prepare asked for is not in memory.
    PrepareNotKept,
    /// An answer to a round of view probes that is over.
    ProbeRoundOver,
    /// The completion of a write of a prepare that is not in the journal.
    WriteUnknown,
    /// The completion of a checkpoint that was not begun, or was begun anew; or one of another replica that
    /// is not wanted any more.
    CheckpointUnknown,
    /// Its view cannot be.
    ViewInvalid,
    /// A replica votes for a view for the second time (V5).
    DoViewChangeRepeated,
    /// The ops above what is committed are not a chain, too many, of another group, or not whole.
    SuffixInvalid,
    /// The votes contradict each other, so no journal is chosen (V4).
    VotesContradict,
    /// The journal of the view is here or on its way already.
    StartViewRepeated,
    /// It does not answer a question of this incarnation, and its view is not later (V11).
    StartViewNotAsked,
    /// Nobody asked for the prepare, or it is not what was asked for.
    PrepareUnwanted,
    /// The primary has heard from no quorum for too long, and leads no more (V17).
    Abdicated,
    /// What is said to be gone is not missing here, or is in no checkpoint there.
    GoneUnwanted,
    /// A checkpoint is being fetched already.
    GoneRepeated,
    /// The checkpoint that this replica has lost comes first.
    CheckpointLacking,
    /// The primary has not applied what it inherited, leads no more, or has as much in flight as it takes.
    NotServing,
    /// The barrier that it asks for is prepared, and not committed yet.
    RejoinRepeated,
    /// It was sent in another view, or before another barrier of its sender was prepared (V13).
    RejoinStale,
    /// It was sent before the replica lost its disk (V13).
    VoteOfLostDisk,
}
