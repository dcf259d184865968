//! Ids, frames, commands, codes: every byte that crosses a socket or reaches a disk.
//!
//! `PROTOCOL.md` beside this crate is the normative text; the vectors under `vectors/` hold its
//! examples. Decoders take bytes from outside: they return [`DecodeError`], never panic, and never
//! allocate by a count that the bytes do not back.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

// Headers are read and written as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"));

mod batch;
mod codec;
mod command;
mod error_code;
mod event;
mod failure;
mod field;
mod frame;
mod hash;
mod identifier;
mod ids;
mod limits;
mod prepare;
mod reply;
mod request;
mod secret;
mod time;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod vectors;

pub use batch::{
    BATCH_HEADER_SIZE, BATCH_SIZE_MAX, Batch, BatchBuilder, BatchHeader, Compression, HeaderIter,
    HeaderProblem, KEY_SIZE_MAX, MESSAGE_HEADER_SIZE, MESSAGE_HEADERS_SIZE_MAX, Message,
    MessageIter, UNCOMPRESSED_SIZE_MAX, encode_headers,
};
pub use codec::{DecodeError, Problem, Reader, Writer};
pub use command::{Command, Plane};
pub use error_code::ErrorCode;
pub use event::{
    AssignmentChanged, Event, EventCode, EvictionReason, MembershipEndReason, MembershipEnded,
    PrimaryChanged, ServerStopping,
};
pub use failure::Failure;
pub use field::Field;
pub use frame::{
    FRAME_HEADER_SIZE, FRAME_SIZE_MAX, FrameHeader, FrameKind, PEER_FRAME_SIZE_MAX,
    PROTOCOL_VERSION,
};
pub use hash::{checksum64, checksum128, partition_of_key};
pub use identifier::{Identifier, NAME_SIZE_MAX, NameProblem, check_name};
pub use ids::{
    ClientId, ClusterId, ConsensusGroup, ConsumerGroupId, CorrelationId, DiskId, Epoch, Generation,
    Incarnation, MemberId, Offset, Op, PartitionId, PartitionKey, ProducerId, ReplicaId,
    RequestNumber, SessionNumber, ShardId, StreamId, TopicId, UserId, View,
};
pub use limits::{GROUP_MEMBERS_MAX, Limit};
pub use prepare::{PREPARE_HEADER_SIZE, PrepareHeader};
pub use reply::{
    AssignedPartition, ClusterMetadata, ConsumerGroupAssignment, ConsumerGroupDetails,
    ConsumerGroupOptions, ConsumerGroupSummary, ConsumerGroups, Counter, DeleteResult,
    DisplacedSession, GroupPrimary, GroupProgress, LoggedIn, Me, MemberDetails, MemberStatus,
    MoveWait, Node, NodeStatus, OffsetResult, Offsets, OffsetsDeleted, OffsetsReset, OffsetsStored,
    OwnershipDetails, PartitionDetails, PartitionMove, PartitionOwner, PartitionsChanged,
    PartitionsReleased, PollResult, Polled, ReleaseResult, ReplicaDetails, ReplicaState, Reply,
    RevokingPartition, SendResult, Sent, Stats, StoreResult, StreamDetails, Streams, TopicDetails,
    TopicSummary, Topics, UserDetails, Users,
};
pub use request::{
    Acknowledgement, Attach, ChangePassword, Consumer, ConsumerGroupOptionsUpdate,
    CreateConsumerGroup, CreatePartitions, CreateStream, CreateTopic, CreateUser,
    DeleteConsumerGroup, DeleteConsumerOffset, DeletePartitions, DeleteStream, DeleteTopic,
    DeleteUser, GetConsumerGroup, GetConsumerGroups, GetConsumerOffset, GetNodeStatus, GetStream,
    GetStreams, GetTopic, GetTopics, GetUser, GetUsers, GroupStart, JoinConsumerGroup,
    LeaveConsumerGroup, Login, PartitionTarget, PollMessages, PollSection, PollStrategy,
    PurgeStream, PurgeTopic, ReleasePartition, ReleaseSection, RemoveMember, Request,
    ResetConsumerOffset, ResetSection, ResetTarget, SendMessages, SendSection, StoreConsumerOffset,
    StoreSection, SyncConsumerGroup, UpdateConsumerGroup, UpdateStream, UpdateTopic, UpdateUser,
};
pub use secret::{PASSWORD_SIZE_MAX, PASSWORD_SIZE_MIN, Password, SessionSecret};
pub use time::{Time, Timestamp};
