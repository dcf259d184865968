//! Everything that can be planned.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    network::LinkId,
    node::{JobId, RecoveryStep},
    peers::Way,
};

/// Something that is to come.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node starts.
    Start { node: usize },
    /// Something inside a process; of no meaning once that process is gone.
    Process {
        node: usize,
        boot: u64,
        event: ProcessEvent,
    },
    /// A client's connection has got somewhere.
    Network(NetworkEvent),
    /// Something reaches a node from another one, if both are still what they were when it was sent: the
    /// starts of sender and receiver.
    Peer {
        way: Way,
        boots: (u64, u64),
        frame: Bytes,
        /// Whether these are the bytes that were sent.
        is_whole: bool,
    },
    /// A node learns that its link to another one is new, or gone.
    PeerLink { at: usize, other: usize, up: bool },
    /// Links that were cut work again.
    PeerHeal { ways: BTreeSet<Way> },
    /// A client has something to do.
    Wake { client: usize },
    /// Somebody takes the place of a client that was killed.
    Replace { client: usize },
    /// Something goes wrong.
    Fault(Fault),
    /// It is looked how far the run has got.
    Look,
}

/// Something inside a process.
#[derive(Debug)]
pub(crate) enum ProcessEvent {
    /// The start goes on.
    Recover(RecoveryStep),
    /// Something comes to a shard.
    Input {
        shard: usize,
        input: Box<shard::Input>,
    },
    /// A shard goes about what has come.
    Turn { shard: usize },
    /// A shard's clock ticks.
    Tick { shard: usize },
    /// Something comes to the journal's thread.
    JournalInput(Box<journal::Input>),
    /// The journal's thread goes about what has come.
    JournalTurn,
    /// The journal's thread has not been given a record for a while, if it has had so many in all.
    JournalQuiet { records: u64 },
    /// A system call goes on or ends.
    Job(JobId),
}

/// What happens to a connection, on its way.
#[derive(Debug)]
pub(crate) enum NetworkEvent {
    /// A client's attempt reaches the node.
    Arrive { link: LinkId },
    /// The client learns that it is connected, or not.
    Answer { link: LinkId, accepted: bool },
    /// A frame reaches the node.
    ToNode { link: LinkId, bytes: Bytes },
    /// A frame reaches the client.
    ToClient { link: LinkId, bytes: Bytes },
    /// The node learns that the client has closed or lost the connection.
    NodeEnd { link: LinkId },
    /// The client learns that the node has closed or lost the connection.
    ClientEnd { link: LinkId },
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A process is killed, or the power is lost.
    Crash,
    /// The same, if that process is still there, and only during its start or whenever.
    CrashOf {
        node: usize,
        boot: u64,
        at_start: bool,
    },
    /// A node is told to stop, and starts again when it has.
    Stop,
    /// A connection is cut, a client falls silent or is killed.
    Cut,
    /// Links between nodes lose everything for a while.
    PeerCut,
    /// The shards of a node stand still.
    Pause,
    /// The journals need room.
    Checkpoint,
    /// Somebody sets the wall clock.
    Jump,
    /// Somebody sends bytes that are no frame, or repeats somebody's command.
    Garble,
    /// Bits flip on the disk.
    Rot,
    /// A disk is slow for a while.
    SlowDisk,
    /// A write or a flush fails.
    FailingDisk,
    /// Reads fail for a while, or give other bytes.
    FailingReads,
    /// A disk has no space for a while.
    FullDisk,
    /// A node loses its disk, or a record of its journal with both its copies.
    LostDisk,
    /// An operator has a node come back without what was on its disk.
    RecoveredDisk { node: usize },
    /// No more faults.
    End,
}
