//! State transfer: the newest checkpoint of another node takes the place of a group's state here, when what
//! is missing is in nobody's journal any more.
//!
//! [`vsr`] says when, and what a checkpoint must contain (`FetchCheckpoint`); here the bytes are moved. The
//! snapshot comes first, part by part. It lists the segments; of those only the ranges are fetched that this
//! node lacks, from whoever has them: what a segment holds up to some offset is the same everywhere. Every
//! batch is judged, and every segment by its chain, before it counts. When all is in files the files are
//! flushed, then the snapshot is written, then `vsr` installs it with one superblock, and only then goes
//! what the new state does not have. Until then the group goes on as it was.
//!
//! Whoever does not answer, or says `Gone`, is left for another node; what is here stays. When nobody has a
//! range any more a newer snapshot is asked for.
//!
//! By the same parts a node gets back what has rotted on its own disk ([`mending`]).

mod fetching;
mod mending;
mod offering;
mod replacing;

use alloc::collections::BTreeMap;

use bytes::Bytes;
use partition::{DataGroup, SegmentId};
use wire::{ConsensusGroup, Incarnation, Offset, Op, PartitionKey, ReplicaId};

use crate::{Effect, PeerMessage, Shard, desk::Desk};

use fetching::Fetch;
use mending::Mending;
use offering::Offering;
pub(crate) use replacing::{superfluous, touch_all};

/// Bytes of a part that is asked for at once, unless a batch needs more.
pub(crate) const PART_SIZE: u64 = 1024 * 1024;

/// What is said between two nodes about the state of a consensus group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferMessage {
    /// Asks for the newest snapshot.
    Ask {
        /// It must contain this op.
        at_least: Op,
    },
    /// This is the newest snapshot.
    Offer(SnapshotOffer),
    /// Asks for a part of a file.
    AskPart(FilePart),
    /// The part.
    Part {
        /// Which one.
        part: FilePart,
        /// XXH3-64 of the bytes.
        checksum: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// The file is no longer there, or does not reach that far.
    Gone(FilePart),
}

/// A snapshot that may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotOffer {
    /// The op that it was taken after.
    pub op: Op,
    /// Bytes.
    pub size: u64,
    /// XXH3-128 of the bytes.
    pub checksum: u128,
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file.
    pub file: TransferFile,
    /// The first byte.
    pub position: u64,
    /// Bytes.
    pub length: u64,
}

/// A file of a consensus group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferFile {
    /// The snapshot of an op.
    Snapshot(Op),
    /// A segment of the group.
    Segment {
        /// The partition.
        partition: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Offset of the segment's first message.
        base: Offset,
    },
}

impl TransferFile {
    /// The file of a segment.
    #[must_use]
    pub const fn of_segment(segment: SegmentId) -> Self {
        Self::Segment {
            partition: segment.partition,
            incarnation: segment.incarnation,
            base: segment.base,
        }
    }
}

/// What a shell reads of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPart {
    /// Bytes of the whole snapshot.
    pub size: u64,
    /// XXH3-128 of the whole snapshot.
    pub checksum: u128,
    /// The part.
    pub bytes: Bytes,
}

/// The state machine of a snapshot.
#[derive(Debug)]
pub(crate) enum Restored {
    Metadata(catalog::Catalog),
    Data(DataGroup),
}

/// What is sent to other nodes and fetched from them.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    offering: Offering,
    fetches: BTreeMap<ConsensusGroup, Fetch>,
    mending: Mending,
}

impl Shard {
    pub(crate) fn on_transfer(
        &mut self,
        from: ReplicaId,
        group: ConsensusGroup,
        message: TransferMessage,
    ) {
        match message {
            TransferMessage::Ask { at_least } => self.offer(from, group, at_least),
            TransferMessage::AskPart(part) => self.read_part(from, group, part),
            TransferMessage::Offer(offer) => self.on_offer(from, group, offer),
            TransferMessage::Part {
                part,
                checksum,
                bytes,
            } => self.on_part(from, group, (part, checksum, bytes)),
            TransferMessage::Gone(part) => self.on_part_gone(from, group, part),
        }
    }
}

/// Whom to ask after `from`: one after the other, but never this node.
fn next_node(from: ReplicaId, own: ReplicaId, nodes: usize) -> ReplicaId {
    let nodes = u8::try_from(nodes).expect("a cluster is small");
    let next = ReplicaId((from.0 + 1) % nodes);
    if next == own {
        ReplicaId((next.0 + 1) % nodes)
    } else {
        next
    }
}

fn send(desk: &mut Desk, to: ReplicaId, group: ConsensusGroup, message: TransferMessage) {
    let message = PeerMessage::Transfer { group, message };
    desk.push(Effect::Peer { to, message });
}
