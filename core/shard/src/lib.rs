//! Everything that one core of a node owns: admission, routing, the consensus groups that live here,
//! long polls, sessions' liveness. Performs no I/O.
//!
//! [`Shard::handle`] takes one [`Input`]; [`Shard::next_effect`] says what is to be done. A shard shares
//! nothing with the others: what it does not own it passes over the mesh. Shard 0 hosts the metadata
//! group and publishes every change to the others, whose [`catalog::Projection`] may lag; safety never
//! rests on it. What another node leads is passed on to it.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod activity;
mod admission;
mod answers;
mod config;
mod connection;
mod counters;
mod desk;
mod event;
mod fencing;
mod forward;
mod group_requests;
mod hand_over;
mod heartbeats;
mod held;
mod host;
mod inflow;
mod inspect;
mod leading;
mod liveness;
mod mutation;
mod offset_requests;
mod peer_codec;
mod pending;
mod poll;
mod reconcile;
mod recovery;
mod scrub;
mod shard;
mod standing;
mod stopping;
#[cfg(test)]
mod tests;
mod transfer;
mod verify;
mod work;

pub use config::{Config, FRAME_RESERVE, Limits, Node, shard_of_group};
pub use connection::Binding;
pub use event::{
    ConnectionId, DiskSpace, Effect, GroupSnapshot, Input, IoTicket, MeshMessage, Note,
    PeerMessage, Secret, StateSnapshot,
};
pub use held::Held;
pub use liveness::Sign;
pub use peer_codec::PEER_VERSION;
pub use shard::{GroupStart, Shard, StartError};
pub use transfer::{FilePart, SnapshotOffer, SnapshotPart, TransferFile, TransferMessage};
pub use wire::ShardId;
pub use work::{
    Answer, AttachWork, Caller, CatalogWork, Credentials, GroupReader, GroupStanding, GroupWrite,
    GroupWriteSection, LoginWork, OffsetsOf, Origin, Output, PartitionAddress, PartitionOffsets,
    PollSectionWork, PollWork, Reader, Slot, Work,
};
