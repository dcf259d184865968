//! The state machine of a data group: the messages of its partitions, the producers' sequence numbers,
//! the offsets that consumers have stored, and the fences of consumer groups.
//!
//! [`DataGroup`] takes committed requests one after the other and answers each with a [`DataResult`].
//! What has to be done to files comes out as [`SegmentChange`]s, what has to be read from them as
//! [`Read`]s. Everything that decides a result is replicated: the next offset, the moment at which a
//! segment is full, and the start of a partition come from snapshot and journal, never from a file.
//! Files are only looked at by [`Scan`], which judges their bytes.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod apply;
mod changes;
mod command;
mod config;
mod fencing;
mod group;
mod index;
mod mutation;
mod offsets;
mod producers;
mod read;
mod record;
mod request;
mod result;
mod result_codec;
mod retention;
mod segment;
mod segments;
mod snapshot;
mod tail;
#[cfg(test)]
mod tests;
mod verify;

pub use command::{FenceOffset, GroupCommand};
pub use config::DataConfig;
pub use group::{DataGroup, Position};
pub use index::Index;
pub use read::{Batches, FileKind, FileRead, PollError, Read, ReadQuery};
pub use record::{EpochHolder, Grant, GroupRecord, PollRight, StartAt};
pub use request::{DataRequest, REQUESTS_VERSION, decode_requests, encode_requests};
pub use result::{Absent, Applied, DataResult, Refusal};
pub use segment::{Segment, SegmentChange, SegmentFile, SegmentId};
pub use segments::Mark;
pub use snapshot::{
    DataSnapshot, GroupSnapshot, PartitionSnapshot, ProducerSnapshot, SNAPSHOT_VERSION,
    SnapshotError, files_at,
};
pub use verify::{Damage, Range, Scan, SegmentProblem, Verdict, verify};
