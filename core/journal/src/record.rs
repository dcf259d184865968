//! What a frame carries.

use bytes::Bytes;
use wire::{ConsensusGroup, Op, PrepareHeader};

/// One durable fact of one consensus group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A prepare. Durable once the frame that carries it is flushed.
    Prepare {
        /// Sealed by the replica; the journal checks it when it reads, never when it writes.
        header: PrepareHeader,
        /// The body.
        body: Bytes,
    },
    /// What a replica promised: view, log_view, suffix headers, truncation, checkpoint. The newest of
    /// its group replaces the one before. Durable once the frame *after* the one that carries it, which
    /// repeats it, is flushed.
    Superblock(SuperblockRecord),
}

/// A superblock record. Only `group` and `checkpoint` mean something to the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockRecord {
    /// The consensus group.
    pub group: ConsensusGroup,
    /// The group's prepares up to this op are covered by a checkpoint that is durable on a quorum (V15):
    /// the journal may recycle them.
    pub checkpoint: Op,
    /// The replica's own encoding of the rest.
    pub body: Bytes,
}

/// Counts the records that one shard handed to the journal, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// How far the records that one shard handed over are durable. Both only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every prepare up to this ticket is on the disk.
    pub flushed: Ticket,
    /// Every superblock record up to this ticket is on the disk twice.
    pub repeated: Ticket,
}
