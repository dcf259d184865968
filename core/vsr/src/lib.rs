//! Viewstamped Replication: one replica of one consensus group.
//!
//! [`Replica`] takes an [`Input`] and hands out [`Effect`]s. It performs no I/O, knows no clock and no
//! randomness, and never fails: a bad message is ignored with a named reason ([`Ignore`]).
//! It refuses to guess: what was durable and cannot be read is fetched from the others by its checksum, and
//! votes name it (V12); where nobody could have it the replica is out of service ([`OutOfService`]).
//! What others have in checkpoints only, it has the shell fetch ([`Effect::FetchCheckpoint`]).
//!
//! | message | source | target | section |
//! | --- | --- | --- | --- |
//! | prepare, commit | primary | backups | VRR §4.1 |
//! | prepare_ok, commit_ok | backup | primary | VRR §4.1 |
//! | request_prepare, requested_prepare | any; whoever is asked | any; who asked | VRR §5.2 |
//! | start_view_change | any | all | VRR §4.2 |
//! | do_view_change | any | primary to be | VRR §4.2 |
//! | start_view | new primary | backups | VRR §4.2 |
//! | request_start_view | any | primary | instead of VRR §4.3 |
//! | rejoin | any that lost its disk | all | instead of VRR §4.3 |
//! | view_probe, view_probe_ok | primary; backup | backups; primary | VRR §6.3, without leases |
//! | gone | whoever is asked | who asked | VRR §5.2 |
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod barriers;
mod client_sessions;
mod codec;
mod constants;
mod damaged;
mod event;
mod ignore;
mod journal;
mod message;
mod mutation;
mod pipeline;
mod primary;
mod progress;
mod quorum;
mod recovered;
mod replica;
mod status;
mod superblock;
mod timeout;

pub use barriers::{Barrier, Barriers};
pub use client_sessions::{ClientSession, ClientSessions};
pub use constants::{
    CLIENT_REPLY_SIZE_MAX, CLIENTS_MAX, PIPELINE_BYTES_MAX, PIPELINE_PREPARES_MAX,
};
pub use event::{Effect, Input, Note, Origin, Prepare, Refusal, Request, Token};
pub use ignore::Ignore;
pub use message::{
    Commit, CommitOk, DoViewChange, Gone, Message, PrepareMessage, PrepareOk, Rejoin,
    RequestPrepare, RequestStartView, RequestedPrepare, StartView, StartViewChange, SuffixReport,
    ViewProbe, ViewProbeOk,
};
pub use primary::primary_of;
pub use quorum::quorum;
pub use recovered::{Checkpoint, Recovered, Rotten};
pub use replica::{Config, Replica, Room, Wait};
pub use status::{OutOfService, Status};
pub use superblock::{ChainPoint, SuffixEntry, Superblock};
