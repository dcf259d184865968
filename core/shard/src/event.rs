//! What goes into a shard and what comes out of it.

use alloc::{boxed::Box, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::net::SocketAddr;

use bytes::Bytes;
use catalog::{CatalogSnapshot, Change, Projection};
use journal::{Progress, Record};
use partition::{DataSnapshot, FileKind, SegmentChange, SegmentId};
use wire::{ConsensusGroup, DecodeError, FrameHeader, GroupPrimary, Op, ReplicaId, ShardId};

use crate::{
    transfer::{SnapshotPart, TransferMessage},
    work::{Answer, Origin, Work},
};

/// A connection of this shard; never reused while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Names something that the shell was asked to do; counts up from 1 within its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoTicket(pub u64);

/// One event for a shard.
#[derive(Debug)]
pub enum Input {
    /// A client connected to this shard.
    Opened {
        /// The connection.
        connection: ConnectionId,
        /// The client's address.
        peer: SocketAddr,
    },
    /// A frame whose header and checksum are right.
    Frame {
        /// Where it came in.
        connection: ConnectionId,
        /// Its header.
        header: FrameHeader,
        /// Its body.
        body: Bytes,
    },
    /// Bytes that are no frame. The shell reads nothing more from this connection.
    BadFrame {
        /// Where they came in.
        connection: ConnectionId,
        /// The header, if there were enough bytes for one.
        header: Option<FrameHeader>,
        /// What is wrong.
        error: DecodeError,
    },
    /// The connection is gone; nothing can be sent to it.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// From another shard of this node. Messages of one shard arrive in the order sent.
    Mesh {
        /// The sender.
        from: ShardId,
        /// The message.
        message: MeshMessage,
    },
    /// From another node. The shell hands it to the shards that [`PeerMessage::by_shard`] names.
    Peer {
        /// The sender.
        from: ReplicaId,
        /// The message.
        message: PeerMessage,
    },
    /// The link to another node is new: whatever was on its way before may be lost. All shards are told.
    PeerUp {
        /// The other node.
        node: ReplicaId,
    },
    /// The link to another node has ended and cannot be made again at this moment. All shards are told.
    PeerDown {
        /// The other node.
        node: ReplicaId,
    },
    /// Bytes of something large have come from another node: what it has said since may be behind them.
    Receiving {
        /// The other node.
        from: ReplicaId,
    },
    /// Bytes have gone to other nodes that others wait behind.
    Moving,
    /// An [`Effect::ReadPrepare`] ended.
    PrepareRead {
        /// The consensus group.
        group: ConsensusGroup,
        /// The op.
        op: Op,
        /// For whom.
        to: ReplicaId,
        /// The prepare; none when the journal has it no more.
        prepare: Option<vsr::Prepare>,
    },
    /// Time has passed. Expected every 10 ms; nothing breaks when it is late.
    Tick,
    /// How far this shard's records are durable.
    Journal(Progress),
    /// The journal needs room, and this group, one of this shard's, keeps its oldest file.
    CheckpointWanted {
        /// The consensus group.
        group: ConsensusGroup,
    },
    /// Every [`Effect::Change`] up to this ticket is carried out.
    Changed {
        /// The last of them.
        through: IoTicket,
    },
    /// An [`Effect::Read`] ended.
    Read {
        /// The read.
        ticket: IoTicket,
        /// The bytes, or why they cannot be had (for people).
        result: Result<Bytes, String>,
    },
    /// An [`Effect::Flush`] ended: the bytes are on the disk.
    Flushed {
        /// The flush.
        ticket: IoTicket,
    },
    /// An [`Effect::WriteSnapshot`] ended: the file and its directory are on the disk.
    SnapshotWritten {
        /// The consensus group.
        group: ConsensusGroup,
        /// The op of the snapshot.
        op: Op,
    },
    /// An [`Effect::ReadSnapshot`] ended.
    SnapshotRead {
        /// The read.
        ticket: IoTicket,
        /// What was read; none when there is no such snapshot any more, or it is damaged.
        part: Option<SnapshotPart>,
    },
    /// An [`Effect::DecodeSnapshot`] ended.
    SnapshotDecoded {
        /// The request.
        ticket: IoTicket,
        /// The snapshot; none when the bytes are none.
        snapshot: Option<Box<GroupSnapshot>>,
    },
    /// An [`Effect::CheckPassword`] ended.
    PasswordChecked {
        /// The check.
        ticket: IoTicket,
        /// Whether the password is right.
        valid: bool,
        /// 32 fresh random bytes, which become the session's secret.
        secret: [u8; 32],
    },
    /// An [`Effect::HashPassword`] ended.
    PasswordHashed {
        /// The request.
        ticket: IoTicket,
        /// The PHC string.
        phc: String,
    },
    /// What the disk has room for has changed; until told otherwise it has room for everything.
    Disk(DiskSpace),
    /// Finish what is in flight, take nothing new, then say [`Effect::Stopped`].
    Stop,
}

/// What the disk has room for. Among several nodes work is refused by the disk of the node that leads its group,
/// whichever node was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskSpace {
    /// Everything.
    #[default]
    Enough,
    /// No further messages. What is left is for stored offsets, metadata and checkpoints.
    Reserve,
    /// Nothing: what is proposed would wait until there is space.
    Nothing,
}

/// What the shell has to do. Effects may be carried out in any order, except that sends to one
/// connection or one shard, and records, keep theirs.
#[derive(Debug)]
pub enum Effect {
    /// Send a frame, its pieces one after the other.
    Send {
        /// To whom.
        connection: ConnectionId,
        /// The pieces.
        frame: Vec<Bytes>,
    },
    /// Send what is queued, then close.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// The connection carries a session now: frames of the full size may come.
    Admit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Read nothing more from this connection until it is resumed: too much of it is in flight.
    Pause {
        /// The connection.
        connection: ConnectionId,
    },
    /// Read on.
    Resume {
        /// The connection.
        connection: ConnectionId,
    },
    /// To another shard of this node. Never lost.
    Mesh {
        /// The receiver.
        to: ShardId,
        /// The message.
        message: MeshMessage,
    },
    /// To another node. May be lost; but what is not lost arrives in order, as long as the link is the same.
    Peer {
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: PeerMessage,
    },
    /// Read a prepare from the journal, for another node that lacks it.
    ReadPrepare {
        /// The consensus group.
        group: ConsensusGroup,
        /// The op.
        op: Op,
        /// The prepare's checksum: there may be others with this op.
        checksum: u128,
        /// For whom; reported back by [`Input::PrepareRead`].
        to: ReplicaId,
    },
    /// Make this record durable and report [`Input::Journal`]. The n-th record of a shard is ticket n.
    Journal(Record),
    /// Change a segment, in the background; a failure ends the process.
    Change {
        /// Reported back by [`Input::Changed`].
        ticket: IoTicket,
        /// The change.
        change: SegmentChange,
    },
    /// Read a range of a segment; fewer bytes at the file's end are no error.
    Read {
        /// Reported back by [`Input::Read`].
        ticket: IoTicket,
        /// The segment.
        segment: SegmentId,
        /// Which of its files.
        file: FileKind,
        /// Byte position in the file.
        position: u64,
        /// Bytes.
        length: u64,
    },
    /// Flush segments and their directories to the disk; those that are gone are no error. A failure
    /// ends the process.
    Flush {
        /// Reported back by [`Input::Flushed`].
        ticket: IoTicket,
        /// The segments.
        segments: Vec<SegmentId>,
    },
    /// Write a snapshot to the disk. A failure ends the process.
    WriteSnapshot {
        /// The snapshot.
        snapshot: Box<GroupSnapshot>,
    },
    /// Read a range of a snapshot, as [`Effect::WriteSnapshot`] has written it, for another node.
    ReadSnapshot {
        /// Reported back by [`Input::SnapshotRead`].
        ticket: IoTicket,
        /// The consensus group.
        group: ConsensusGroup,
        /// The op of the snapshot.
        op: Op,
        /// The first byte.
        position: u64,
        /// Bytes; none to learn of size and checksum only.
        length: u64,
    },
    /// Make a snapshot of what another node's [`Effect::ReadSnapshot`] has read. The bytes are from outside.
    DecodeSnapshot {
        /// Reported back by [`Input::SnapshotDecoded`].
        ticket: IoTicket,
        /// The consensus group.
        group: ConsensusGroup,
        /// The whole snapshot.
        bytes: Bytes,
    },
    /// Check a password against a PHC string, off the shard.
    CheckPassword {
        /// Reported back by [`Input::PasswordChecked`].
        ticket: IoTicket,
        /// The password.
        password: Secret,
        /// The PHC string; `None` when there is no such user: check against a constant, so that time
        /// does not tell, and answer that it is not valid.
        phc: Option<String>,
    },
    /// Hash a password into a PHC string, off the shard.
    HashPassword {
        /// Reported back by [`Input::PasswordHashed`].
        ticket: IoTicket,
        /// The password.
        password: Secret,
    },
    /// This shard serves: its groups are in normal status and it knows the metadata.
    Ready,
    /// After [`Input::Stop`]: nothing is in flight any more.
    Stopped,
    /// Something happened that an operator or a test counts.
    Note(Note),
}

/// A password on its way to the hashing pool; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Between the shards of one node.
#[derive(Debug)]
pub enum MeshMessage {
    /// Work for a group that the receiver hosts.
    Work {
        /// Where the answer goes.
        origin: Origin,
        /// The work.
        work: Box<Work>,
    },
    /// The answer.
    Answer {
        /// Whom it is for.
        origin: Origin,
        /// The answer.
        answer: Box<Answer>,
    },
    /// Nobody waits for the answer any more, or the wait of a poll is over: answer at once with what is
    /// there.
    Hurry {
        /// The work.
        origin: Origin,
    },
    /// The whole metadata: the first that a shard hears of it.
    Projection(Box<Projection>),
    /// The changes of one metadata op, in op order.
    Changes {
        /// The op.
        op: Op,
        /// What it changed; may be empty.
        changes: Arc<[Change]>,
    },
    /// Moves of consumer groups' partitions whose fence is committed.
    Moved(Vec<(catalog::GroupKey, wire::PartitionId, wire::Epoch)>),
    /// Which sessions gave a sign of life, gained or lost a connection since the last report.
    Liveness(Vec<crate::liveness::Sign>),
    /// Whether this node has not heard the primary of the metadata for long, and others have.
    CutOff(bool),
    /// A consensus group has another primary, or the same in another view.
    PrimaryChanged(GroupPrimary),
}

/// Between the nodes of a cluster.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Between the replicas of a consensus group.
    Replica {
        /// The group.
        group: ConsensusGroup,
        /// The message.
        message: vsr::Message,
    },
    /// What the primaries of groups on one shard of the sender know: the heartbeat of all of them. A group that
    /// it does not name hears nothing of its primary. Each at most once.
    Commits(Vec<(ConsensusGroup, vsr::Commit)>),
    /// Answers it, group by group.
    CommitOks(Vec<(ConsensusGroup, vsr::CommitOk)>),
    /// The state of a consensus group, for a node that cannot catch up otherwise.
    Transfer {
        /// The group.
        group: ConsensusGroup,
        /// The message.
        message: TransferMessage,
    },
    /// Work for a group that the receiver leads, as far as the sender knows.
    Work {
        /// Where the answer goes: the sender's shard that forwards it.
        origin: Origin,
        /// The group.
        group: ConsensusGroup,
        /// The work. Times in it are nanoseconds from when it is sent.
        work: Box<Work>,
    },
    /// The answer.
    Answer {
        /// Whom it is for.
        origin: Origin,
        /// The answer.
        answer: Box<Answer>,
    },
    /// The wait of a poll that was forwarded is over: answer at once with what is there.
    Hurry {
        /// The work.
        origin: Origin,
        /// Its group.
        group: ConsensusGroup,
    },
    /// For the primary of the metadata group: moves whose fence is committed.
    Moved(Vec<(catalog::GroupKey, wire::PartitionId, wire::Epoch)>),
    /// For the primary of the metadata group: what the sender's sessions did.
    Liveness(Vec<crate::liveness::Sign>),
    /// For the primary of the metadata group: the connections of all of the sender's sessions.
    Connections(Vec<(wire::ClientId, wire::SessionNumber, u32)>),
}

impl PeerMessage {
    /// What each shard takes of it, of a node with so many shards in a cluster of so many nodes. Nobody takes an
    /// answer to a shard that the node does not have, or has no more.
    #[must_use]
    pub fn by_shard(self, replica_count: u8, shard_count: u16) -> Vec<(ShardId, Self)> {
        let of_group = |group| crate::shard_of_group(group, replica_count, shard_count);
        let shard = match &self {
            Self::Replica { group, .. }
            | Self::Transfer { group, .. }
            | Self::Work { group, .. }
            | Self::Hurry { group, .. } => of_group(*group),
            Self::Commits(_) | Self::CommitOks(_) if shard_count == 1 => ShardId(0),
            Self::Commits(commits) => {
                let parts = by_shard(commits, of_group);
                return parts
                    .map(|(shard, it)| (shard, Self::Commits(it)))
                    .collect();
            }
            Self::CommitOks(oks) => {
                let parts = by_shard(oks, of_group);
                return parts
                    .map(|(shard, it)| (shard, Self::CommitOks(it)))
                    .collect();
            }
            Self::Answer { origin, .. } => origin.shard,
            Self::Moved(_) | Self::Liveness(_) | Self::Connections(_) => ShardId(0),
        };
        let is_here = shard.0 < shard_count;
        is_here.then_some((shard, self)).into_iter().collect()
    }
}

/// What concerns groups, by the shard that hosts them.
fn by_shard<T: Copy>(
    items: &[(ConsensusGroup, T)],
    of_group: impl Fn(ConsensusGroup) -> ShardId,
) -> impl Iterator<Item = (ShardId, Vec<(ConsensusGroup, T)>)> {
    let mut parts: BTreeMap<ShardId, Vec<(ConsensusGroup, T)>> = BTreeMap::new();
    for (group, item) in items {
        parts
            .entry(of_group(*group))
            .or_default()
            .push((*group, *item));
    }
    parts.into_iter()
}

/// What one consensus group needs to start after a restart without the ops before.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct GroupSnapshot {
    /// The consensus group.
    pub group: ConsensusGroup,
    /// The replica's part: op, hash chain, client table.
    pub checkpoint: vsr::Checkpoint,
    /// The state machine.
    pub state: StateSnapshot,
}

/// The state of one state machine.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum StateSnapshot {
    /// Group 0.
    Metadata(CatalogSnapshot),
    /// Groups 1..=G.
    Data(DataSnapshot),
}

/// Things that happened, by consensus group where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A replica's note.
    Replica {
        /// The consensus group.
        group: ConsensusGroup,
        /// The note.
        note: vsr::Note,
    },
    /// A segment's bytes are not what was written; only its partition is out of service.
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// For people.
        reason: String,
    },
    /// A damaged segment was fetched from another node, and is whole.
    Mended {
        /// The segment.
        segment: SegmentId,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// The consensus group.
        group: ConsensusGroup,
        /// Its op.
        op: Op,
    },
    /// A session began.
    SessionRegistered {
        /// Its number.
        session: wire::SessionNumber,
        /// Whether that was before this node was started, which learns it from its journal.
        is_replayed: bool,
    },
    /// A session ended.
    SessionEnded {
        /// Its number.
        session: wire::SessionNumber,
        /// Why.
        reason: wire::EvictionReason,
        /// Whether that was before this node was started, which learns it from its journal.
        is_replayed: bool,
    },
    /// A static member was taken over from a session that lived: two processes have its instance id. Told once
    /// a minute of a member.
    InstanceContended {
        /// The consumer group.
        key: catalog::GroupKey,
        /// The member.
        member: wire::MemberId,
        /// Its instance id.
        instance: String,
        /// The session that had it.
        from: wire::SessionNumber,
        /// The session that has it.
        to: wire::SessionNumber,
        /// Where that one is connected from.
        address: String,
    },
    /// A login was refused.
    LoginRefused,
}
