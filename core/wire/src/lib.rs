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

mod batch;
mod codec;
mod frame;
mod hash;
mod ids;
mod prepare;
mod time;

pub use batch::{
    BATCH_HEADER_SIZE, Batch, BatchBuilder, BatchHeader, Compression, Message, MessageIter,
};
pub use codec::{DecodeError, Problem, Reader, Writer};
pub use frame::{FRAME_HEADER_SIZE, FRAME_SIZE_MAX, FrameHeader, FrameKind, PROTOCOL_VERSION};
pub use hash::{checksum64, checksum128, partition_of_key};
pub use ids::{
    ClientId, ClusterId, ConsensusGroup, ConsumerGroupId, CorrelationId, Epoch, Generation,
    Incarnation, MemberId, Offset, Op, PartitionId, PartitionKey, ProducerId, ReplicaId,
    RequestNumber, SessionNumber, ShardId, StreamId, TopicId, UserId, View,
};
pub use prepare::{PREPARE_HEADER_SIZE, PrepareHeader};
pub use time::{Time, Timestamp};
