//! What one shard asks of the shard that hosts a consensus group, and what it is answered.

use alloc::{string::String, vec::Vec};
use core::net::SocketAddr;

use catalog::{CachedReply, GroupKey};
use partition::{DataRequest, DataResult};
use wire::{
    ClientId, ConsensusGroup, Epoch, Failure, GroupPrimary, Incarnation, Offset, Op, PartitionId,
    PartitionKey, Password, PollResult, PollStrategy, ReplicaDetails, ReplicaId, Reply,
    RequestNumber, SessionNumber, SessionSecret, ShardId, UserId, View,
};

use crate::Binding;

/// A request that waits for its answer, among those that came in on one shard; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u64);

/// Where a request came in, and so where its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The node.
    pub node: ReplicaId,
    /// The shard.
    pub shard: ShardId,
    /// Its slot there.
    pub slot: Slot,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The session.
    pub binding: Binding,
    /// The request's number in its session; 0 for other than metadata commands.
    pub request: RequestNumber,
}

/// Work for the shard that hosts a consensus group.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Register a session. Shard 0.
    Login(LoginWork),
    /// Find a session, for another connection of it. Shard 0.
    Attach(AttachWork),
    /// Execute a metadata command, or answer a query from the catalog. Shard 0.
    Catalog(CatalogWork),
    /// Replicate requests to one data group.
    Write {
        /// The data group.
        group: ConsensusGroup,
        /// The metadata op that the names were resolved at.
        admitted: Op,
        /// Each with its section of the client's request.
        requests: Vec<(u16, DataRequest)>,
    },
    /// Read messages of partitions whose groups one shard hosts.
    Poll(PollWork),
    /// Store offsets of a consumer group in the partitions of one data group, or release them.
    GroupWrite(GroupWrite),
    /// Tell offsets of partitions of one data group.
    Offsets {
        /// The data group.
        group: ConsensusGroup,
        /// The metadata op that the names were resolved at.
        admitted: Op,
        /// Whose stored offset is asked for.
        consumer: Option<OffsetsOf>,
        /// Each with its section of the client's request.
        partitions: Vec<(u16, PartitionAddress)>,
    },
    /// Tell the views of the consensus groups that one shard hosts.
    Groups,
    /// Tell the counters of a shard.
    Counters,
    /// Check the password of somebody without a session, by this node's copy of the metadata. Shard 0.
    Verify(Credentials),
    /// Tell how far the replicas that one shard hosts have got, with or without digests of their states.
    Replicas {
        /// With them.
        digests: bool,
    },
}

/// Who somebody without a session says to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Name of the user.
    pub name: String,
    /// The password to check.
    pub password: Password,
}

/// A login.
#[derive(Debug, PartialEq, Eq)]
pub struct LoginWork {
    /// The client.
    pub client: ClientId,
    /// Name of the user.
    pub name: String,
    /// The password to check.
    pub password: Password,
}

/// A connection that wants to carry a session.
#[derive(Debug, PartialEq, Eq)]
pub struct AttachWork {
    /// The client.
    pub client: ClientId,
    /// The session's number.
    pub session: SessionNumber,
    /// What only the session's client knows.
    pub secret: SessionSecret,
}

/// A metadata command, or a query.
#[derive(Debug, PartialEq, Eq)]
pub struct CatalogWork {
    /// Who asks.
    pub caller: Caller,
    /// The client's address, for `GetMe`.
    pub peer: SocketAddr,
    /// What.
    pub request: wire::Request,
}

/// Where a partition is, as the metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionAddress {
    /// The partition.
    pub key: PartitionKey,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its data group.
    pub group: ConsensusGroup,
}

/// Whose stored offsets are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffsetsOf {
    /// The single consumer with this full name.
    Single(String),
    /// A consumer group.
    Group(GroupKey),
}

/// Who reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The single consumer with this full name.
    Single(String),
    /// A member of a consumer group.
    Group(GroupReader),
}

/// A session that acts for a consumer group; whether it is a member is judged where the partition lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupReader {
    /// The group.
    pub key: GroupKey,
    /// The client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionNumber,
}

/// What a session asks of partitions of one data group in its consumer group's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupWrite {
    /// The data group.
    pub group: ConsensusGroup,
    /// The metadata op that must be applied before it can be judged: that of its names and epochs.
    pub admitted: Op,
    /// Who asks.
    pub reader: GroupReader,
    /// Each partition once.
    pub sections: Vec<GroupWriteSection>,
}

/// One partition of a [`GroupWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupWriteSection {
    /// The section of the client's request.
    pub index: u16,
    /// The partition.
    pub address: PartitionAddress,
    /// The epoch under which the caller owns it.
    pub epoch: Epoch,
    /// The last message processed; absent only in a release.
    pub offset: Option<Offset>,
    /// The epoch of the move that it is released for, if it is.
    pub planned: Option<Epoch>,
}

/// A poll, as far as one shard serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollWork {
    /// The metadata op that must be applied before it can be judged: that of its names and epochs.
    pub admitted: Op,
    /// Who reads.
    pub reader: Reader,
    /// Messages at the most, over all sections.
    pub max_messages: u32,
    /// Bytes at the most, over all sections, but for the first batch.
    pub max_bytes: u32,
    /// Bytes to wait for.
    pub min_bytes: u32,
    /// When the wait ends: monotonic time.
    pub deadline: u64,
    /// Whether the last offset served is stored before the answer.
    pub commit_on_poll: bool,
    /// In the order in which they are served.
    pub sections: Vec<PollSectionWork>,
}

/// One partition of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollSectionWork {
    /// The section of the client's request.
    pub index: u16,
    /// The partition.
    pub address: PartitionAddress,
    /// The epoch under which the caller owns it; 0 for a single consumer.
    pub epoch: Epoch,
    /// Where to begin.
    pub strategy: PollStrategy,
}

impl PollSectionWork {
    /// The section's result when it is refused.
    #[must_use]
    pub fn refused(&self, failure: Failure) -> PollResult {
        refused_poll(self.address.key.partition, failure)
    }
}

/// The result of a refused section of a poll.
pub(crate) const fn refused_poll(partition: PartitionId, failure: Failure) -> PollResult {
    PollResult {
        partition,
        status: Err(failure),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(0),
        stored: None,
        from: Offset(0),
        next: Offset(0),
        batches: Vec::new(),
    }
}

/// The answer to a work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What came of it.
    pub outcome: Result<Output, Failure>,
    /// The op that it rests on: of the metadata group for its commands and queries, else of the data group.
    pub op: Op,
    /// Who leads the consensus group asked, and its view.
    pub primary: GroupPrimary,
}

/// What a work yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The answer to a query.
    Reply(Reply),
    /// The answer to a metadata command, as the client table keeps it.
    Executed(CachedReply),
    /// The connection carries this session from now on; the reply if it is a login's.
    Bound(Binding, Reply),
    /// One result per request of a write, with its section.
    Written(Vec<(u16, Result<DataResult, Failure>)>),
    /// The sections of a poll, and whether they end the wait of the whole poll.
    Polled {
        /// Each with its section of the client's request.
        sections: Vec<(u16, PollResult)>,
        /// Whether there is enough, or a refusal, in them.
        satisfied: bool,
    },
    /// The offsets of partitions.
    Offsets(Vec<(u16, Result<PartitionOffsets, Failure>)>),
    /// The views of the groups of one shard.
    Groups(Vec<GroupPrimary>),
    /// The counters of one shard.
    Counters(Vec<(&'static str, u64)>),
    /// Name and password are those of a user.
    Verified,
    /// The replicas of one shard.
    Replicas(Vec<ReplicaDetails>),
}

/// The offsets of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// Of the oldest message.
    pub start: Offset,
    /// Behind the newest message.
    pub end: Offset,
    /// The last message processed by the consumer asked for.
    pub stored: Option<Offset>,
    /// How far a consumer group has got, if one was asked for.
    pub group: Option<GroupStanding>,
}

/// What a data group's primary knows of a consumer group in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    /// The message that it goes on with.
    pub next: Offset,
    /// The highest offset served since its owner's ownership began, where that is known.
    pub last_polled: Option<Offset>,
    /// The fence.
    pub fence: Epoch,
    /// How long ago its owner polled, as far as this node has seen, milliseconds.
    pub polled_ms_ago: Option<u32>,
    /// How long ago its owner stored an offset, as far as this node has seen, milliseconds.
    pub stored_ms_ago: Option<u32>,
    /// How long its owner has done neither, where there are messages left, milliseconds.
    pub stalled_ms: Option<u32>,
    /// What a move waits for, and how long a revocation still has, milliseconds.
    pub waits_for: Option<(wire::MoveWait, Option<u32>)>,
    /// Whether the partition is out of service on this node: it does not get on, wherever it stands.
    pub is_damaged: bool,
}

impl Answer {
    /// An answer that rests on no op of a group.
    #[must_use]
    pub const fn without_group(outcome: Result<Output, Failure>) -> Self {
        let primary = GroupPrimary {
            group: ConsensusGroup::METADATA,
            view: View(0),
            primary: ReplicaId(0),
        };
        Self {
            outcome,
            op: Op(0),
            primary,
        }
    }
}

impl Output {
    /// Whether it can be the answer to work that would be refused so.
    pub(crate) const fn answers(&self, refused: &Result<Self, Failure>) -> bool {
        match self {
            Self::Reply(_) | Self::Executed(_) | Self::Bound(..) => refused.is_err(),
            Self::Written(_) => matches!(refused, Ok(Self::Written(_))),
            Self::Polled { .. } => matches!(refused, Ok(Self::Polled { .. })),
            Self::Offsets(_) => matches!(refused, Ok(Self::Offsets(_))),
            Self::Groups(_) | Self::Counters(_) | Self::Verified | Self::Replicas(_) => false,
        }
    }
}

impl Work {
    /// What is answered when the work is not done: where the request has sections, each is refused.
    ///
    /// # Errors
    /// The failure, where there are no sections.
    pub fn refused(&self, failure: &Failure) -> Result<Output, Failure> {
        match self {
            Self::Write { requests, .. } => {
                let sections = requests.iter();
                Ok(Output::Written(
                    sections
                        .map(|(index, _)| (*index, Err(failure.clone())))
                        .collect(),
                ))
            }
            Self::GroupWrite(write) => {
                let sections = write.sections.iter();
                Ok(Output::Written(
                    sections
                        .map(|section| (section.index, Err(failure.clone())))
                        .collect(),
                ))
            }
            Self::Offsets { partitions, .. } => {
                let sections = partitions.iter();
                Ok(Output::Offsets(
                    sections
                        .map(|(index, _)| (*index, Err(failure.clone())))
                        .collect(),
                ))
            }
            Self::Poll(poll) => {
                let sections = poll.sections.iter();
                let sections =
                    sections.map(|section| (section.index, section.refused(failure.clone())));
                Ok(Output::Polled {
                    sections: sections.collect(),
                    satisfied: true,
                })
            }
            Self::Login(_)
            | Self::Attach(_)
            | Self::Catalog(_)
            | Self::Groups
            | Self::Counters
            | Self::Verify(_)
            | Self::Replicas { .. } => Err(failure.clone()),
        }
    }

    /// Whether it appends messages: done twice, it does so twice, if their producer does not number them.
    pub(crate) fn appends(&self) -> bool {
        let Self::Write { requests, .. } = self else {
            return false;
        };
        let is_append = |request: &DataRequest| matches!(request, DataRequest::Append { .. });
        requests.iter().any(|(_, request)| is_append(request))
    }

    /// The consensus group whose primary does it; none for what every shard does itself, and for a poll of
    /// several partitions, which is served as far as this node leads their groups.
    #[must_use]
    pub fn group(&self) -> Option<ConsensusGroup> {
        match self {
            Self::Login(_) | Self::Attach(_) | Self::Catalog(_) => Some(ConsensusGroup::METADATA),
            Self::Write { group, .. } | Self::Offsets { group, .. } => Some(*group),
            Self::GroupWrite(write) => Some(write.group),
            Self::Poll(poll) => match poll.sections.as_slice() {
                [section] => Some(section.address.group),
                _ => None,
            },
            Self::Groups | Self::Counters | Self::Verify(_) | Self::Replicas { .. } => None,
        }
    }

    /// The metadata op that must be applied before the work can be done.
    #[must_use]
    pub const fn admitted(&self) -> Op {
        match self {
            Self::Write { admitted, .. } | Self::Offsets { admitted, .. } => *admitted,
            Self::Poll(poll) => poll.admitted,
            Self::GroupWrite(write) => write.admitted,
            Self::Login(_)
            | Self::Attach(_)
            | Self::Catalog(_)
            | Self::Groups
            | Self::Counters
            | Self::Verify(_)
            | Self::Replicas { .. } => Op(0),
        }
    }
}

impl Caller {
    /// The user.
    #[must_use]
    pub const fn user(&self) -> UserId {
        self.binding.user
    }
}
