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
    /// The completion of a checkpoint that was not begun, or was begun anew.
    CheckpointUnknown,
    /// View change is not part of this replica.
    ViewChangeUnsupported,
    /// State transfer is not part of this replica.
    StateTransferUnsupported,
}
