//! One newtype for every number that names something.

use core::fmt;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    )*};
}

id! {
    /// A cluster, chosen at random when it is formatted.
    ClusterId(u128);
    /// A node of the cluster, and its part in every consensus group: its index in the roster, from 0.
    ReplicaId(u8);
    /// One VSR sequence of ops: 0 is the metadata group, `1..=G` are data groups.
    ConsensusGroup(u16);
    /// The number of one primary's term in a consensus group.
    View(u32);
    /// A position in the journal of a consensus group, from 1; 0 is the empty state.
    Op(u64);
    /// One thread of a node, from 0.
    ShardId(u16);
    /// Chosen at random by the client; names it across sessions.
    ClientId(u128);
    /// The metadata op that registered the session; 0 before login.
    SessionNumber(u64);
    /// Counts a session's metadata requests, from 1; 0 means none.
    RequestNumber(u64);
    /// Chosen by the client, echoed in the reply.
    CorrelationId(u64);
    /// A user, never reused; `root` is 1.
    UserId(u64);
    /// A stream, never reused; from 1.
    StreamId(u64);
    /// A topic within its stream, never reused there; from 1.
    TopicId(u64);
    /// A partition within its topic; dense, from 0.
    PartitionId(u32);
    /// The metadata op that created or purged a partition.
    Incarnation(u64);
    /// A consumer group within its topic, never reused there; from 1.
    ConsumerGroupId(u64);
    /// A membership within its consumer group, never reused there; from 1.
    MemberId(u64);
    /// The metadata op that planned a grant of a partition; 0: never owned.
    Epoch(u64);
    /// Counts the changes of anybody's assignment in a consumer group.
    Generation(u64);
    /// A message's number in its partition; dense, from 0.
    Offset(u64);
    /// An idempotent producer; 0: the batch is not idempotent.
    ProducerId(u128);
}

impl ConsensusGroup {
    /// The group that holds the metadata state machine.
    pub const METADATA: Self = Self(0);
}

impl UserId {
    /// The user that formatting the data directory creates.
    pub const ROOT: Self = Self(1);
}

impl Op {
    /// The op after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl View {
    /// The view after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Offset {
    /// The offset after this one. Saturates: offsets may come from outside.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The disk of a node: what the node has promised and acknowledged is there and nowhere else (V13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskId {
    /// Chosen at random when the data directory was first used.
    pub name: u128,
    /// When `cohort-server recover` formatted it, in nanoseconds since 1970; 0 for one that `format` made.
    pub recovered: u64,
}

impl DiskId {
    /// Whether it may take the place of a disk that its node had before. That is decided by the time alone, so
    /// that none can come back whose place another one has taken, whatever a node has heard of in between.
    #[must_use]
    pub const fn replaces(self, other: Self) -> bool {
        self.recovered > other.recovered
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.name)?;
        match self.recovered {
            0 => Ok(()),
            time => write!(f, " (recovered at {time})"),
        }
    }
}

/// Names a partition in the whole cluster, whatever its incarnation.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct PartitionKey {
    /// The stream.
    pub stream: StreamId,
    /// The topic within the stream.
    pub topic: TopicId,
    /// The partition within the topic.
    pub partition: PartitionId,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stream, self.topic, self.partition)
    }
}
