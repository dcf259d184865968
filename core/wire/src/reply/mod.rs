//! Bodies of replies, one type per kind of answer.

mod catalog;
mod consumer_group;
mod message;
mod node;
mod offset;
mod session;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use bytes::Bytes;

use crate::{
    Command, DecodeError, Problem, Reader, Writer,
    field::{self, Field},
};

pub use catalog::{
    PartitionDetails, PartitionsChanged, StreamDetails, Streams, TopicDetails, TopicSummary, Topics,
};
pub use consumer_group::{
    AssignedPartition, ConsumerGroupAssignment, ConsumerGroupDetails, ConsumerGroupOptions,
    ConsumerGroupSummary, ConsumerGroups, DisplacedSession, GroupProgress, MemberDetails,
    MemberStatus, MoveWait, OffsetsReset, OwnershipDetails, PartitionMove, PartitionOwner,
    PartitionsReleased, ReleaseResult, RevokingPartition,
};
pub use message::{PollResult, Polled, SendResult, Sent};
pub use node::{
    ClusterMetadata, Counter, GroupPrimary, Node, NodeStatus, ReplicaDetails, ReplicaState, Stats,
};
pub use offset::{DeleteResult, OffsetResult, Offsets, OffsetsDeleted, OffsetsStored, StoreResult};
pub use session::{LoggedIn, Me, UserDetails, Users};

macro_rules! replies {
    ($($name:ident($body:ty): $first:ident $($command:ident)*;)*) => {
        /// The answer to a request that succeeded.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Reply {
            /// Done, and there is nothing to tell: an empty body. Answers [`Command::Ping`], `Attach`,
            /// `Logout`, `DeleteUser`, `UpdateUser`, `ChangePassword`, `DeleteStream`, `UpdateStream`,
            /// `DeleteTopic`, `UpdateTopic`, `DeleteConsumerGroup`, `LeaveConsumerGroup`, `RemoveMember`.
            Done,
            $(
                #[doc = concat!(
                    "Answers [`Command::", stringify!($first), "`]",
                    $(" [`Command::", stringify!($command), "`]",)* "."
                )]
                $name($body),
            )*
        }

        impl Reply {
            /// Reads the body of a reply to `command` with status 0.
            ///
            /// # Errors
            /// Names the first field that is wrong; field `command` when its body is not specified.
            pub fn decode(command: Command, body: Bytes) -> Result<Self, DecodeError> {
                match command {
                    Command::Ping
                    | Command::Attach
                    | Command::Logout
                    | Command::DeleteUser
                    | Command::UpdateUser
                    | Command::ChangePassword
                    | Command::DeleteStream
                    | Command::UpdateStream
                    | Command::PurgeStream
                    | Command::DeleteTopic
                    | Command::UpdateTopic
                    | Command::PurgeTopic
                    | Command::DeleteConsumerGroup
                    | Command::LeaveConsumerGroup
                    | Command::RemoveMember => {
                        Reader::new(body).finish()?;
                        Ok(Self::Done)
                    }
                    $(Command::$first $(| Command::$command)* => field::decode(body).map(Self::$name),)*
                    _ => Err(DecodeError {
                        field: "command",
                        position: 0,
                        problem: Problem::Invalid { value: u64::from(command.code()) },
                    }),
                }
            }

            /// A command that is answered so: what [`Reply::decode`] has to know.
            #[must_use]
            pub const fn command(&self) -> Command {
                match self {
                    Self::Done => Command::Ping,
                    $(Self::$name(_) => Command::$first,)*
                }
            }

            fn writer(&self) -> Writer {
                let mut writer = Writer::new();
                match self {
                    Self::Done => {}
                    $(Self::$name(body) => body.write(&mut writer),)*
                }
                writer
            }
        }

        $(
            impl From<$body> for Reply {
                fn from(body: $body) -> Self {
                    Self::$name(body)
                }
            }
        )*
    };
}

replies! {
    Stats(Stats): GetStats;
    NodeStatus(NodeStatus): GetNodeStatus;
    ClusterMetadata(ClusterMetadata): GetClusterMetadata;
    Me(Me): GetMe;
    LoggedIn(LoggedIn): Login;
    User(UserDetails): GetUser CreateUser;
    Users(Users): GetUsers;
    Stream(StreamDetails): GetStream CreateStream;
    Streams(Streams): GetStreams;
    Topic(TopicDetails): GetTopic CreateTopic;
    Topics(Topics): GetTopics;
    PartitionsChanged(PartitionsChanged): CreatePartitions DeletePartitions;
    Polled(Polled): PollMessages;
    Sent(Sent): SendMessages;
    Offsets(Offsets): GetConsumerOffset;
    OffsetsStored(OffsetsStored): StoreConsumerOffset;
    OffsetsDeleted(OffsetsDeleted): DeleteConsumerOffset;
    OffsetsReset(OffsetsReset): ResetConsumerOffset;
    ConsumerGroup(ConsumerGroupSummary): CreateConsumerGroup UpdateConsumerGroup;
    ConsumerGroupDetails(ConsumerGroupDetails): GetConsumerGroup;
    ConsumerGroups(ConsumerGroups): GetConsumerGroups;
    Assignment(ConsumerGroupAssignment): JoinConsumerGroup SyncConsumerGroup;
    PartitionsReleased(PartitionsReleased): ReleasePartition;
}

impl Reply {
    /// The body in pieces, for [`FrameHeader::frame_of_parts`](crate::FrameHeader::frame_of_parts): large
    /// batches are not copied.
    ///
    /// # Panics
    /// When a text exceeds 255 bytes: names are checked when they are given.
    #[must_use]
    pub fn encode(&self) -> Vec<Bytes> {
        self.writer().into_parts()
    }

    /// The body in one piece.
    ///
    /// # Panics
    /// As [`Reply::encode`].
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.writer().into_bytes()
    }
}
