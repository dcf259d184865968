//! What a replica is doing, and why it may refuse to.

use core::fmt;

use wire::Op;

/// What a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Just started with an intact disk; its promises for the view to come are not durable yet (V1).
    Recovering,
    /// Takes part in its view.
    Normal,
    /// Has left a view and waits for the journal of the next (VRR §4.2).
    ViewChange,
    /// A fault may hide the head of its journal (V11), or its disk was lost (V13): no vote, no acknowledgement.
    RecoveringHead,
    /// Installs a checkpoint of another replica (VRR §5.2). While it is fetched, the replica goes on in the
    /// status that it is in.
    StateTransfer,
    /// Serves nothing and takes part in nothing until somebody repairs its disk.
    OutOfService(OutOfService),
}

/// Why a replica takes no part: what was durable here cannot be read, and nothing is guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfService {
    /// Prepares or a checkpoint were found, but no superblock: the replica has forgotten its promises.
    SuperblockMissing,
    /// The superblock names a checkpoint of this op; neither it nor an older one with all prepares in
    /// between can be read.
    CheckpointMissing {
        /// The op.
        op: Op,
    },
    /// A prepare above the checkpoint was flushed and cannot be read.
    PrepareRotten {
        /// Its op.
        op: Op,
    },
    /// A prepare above the checkpoint is not there, but one behind it or a checkpoint of it is.
    PrepareMissing {
        /// Its op.
        op: Op,
    },
    /// A prepare above the checkpoint does not belong to the history before it.
    PrepareUnchained {
        /// Its op.
        op: Op,
    },
    /// A fault may hide the last prepares.
    HeadUncertain {
        /// The last op that can be read.
        op: Op,
    },
    /// Its disk was lost, and there is no other replica to rejoin.
    NothingToRejoin,
}

impl fmt::Display for OutOfService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SuperblockMissing => f.write_str("its superblock is missing"),
            Self::CheckpointMissing { op } => {
                write!(f, "its checkpoint of op {op} cannot be read")
            }
            Self::PrepareRotten { op } => {
                write!(f, "op {op} was written and cannot be read")
            }
            Self::PrepareMissing { op } => write!(f, "op {op} is missing"),
            Self::PrepareUnchained { op } => {
                write!(f, "op {op} does not follow from the op before it")
            }
            Self::HeadUncertain { op } => {
                write!(f, "a fault may hide ops after op {op}")
            }
            Self::NothingToRejoin => {
                f.write_str("its disk was lost, and there is no other replica to rejoin")
            }
        }
    }
}
