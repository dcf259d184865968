//! What is on a replica's disk when it starts.

use alloc::{collections::BTreeMap, vec::Vec};

use serde::{Deserialize, Serialize};
use wire::{ClusterId, ConsensusGroup, Op, Timestamp, View};

use crate::{ChainPoint, ClientSessions, OutOfService, Prepare, Superblock};

/// The replica's part of a snapshot: stored beside the state machine of the same op. New fields only at
/// the end, with `serde(default)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The last op that it contains; 0 is the empty state.
    pub op: Op,
    /// Checksum of that op's prepare: the chain goes on from there (V9).
    pub checksum: u128,
    /// Timestamp of that op: the next one is later (V16).
    pub timestamp: Timestamp,
    /// The view in which that op was prepared.
    pub view: View,
    /// The client table.
    pub client_sessions: ClientSessions,
}

/// What the disk holds of one consensus group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The newest superblock. None only on a disk that was formatted and never used: a lost superblock
    /// makes a replica a wiped one (V13).
    pub superblock: Option<Superblock>,
    /// The newest checkpoint that can be read whole.
    pub checkpoint: Option<Checkpoint>,
    /// The prepares in the order in which they were written, their bodies checked. Those up to the
    /// checkpoint may be left out.
    pub prepares: Vec<Prepare>,
    /// Ops of prepares that were flushed and cannot be read.
    pub rotten: Vec<Op>,
    /// A fault may hide the last prepares (V11).
    pub head_uncertain: bool,
}
