//! The metadata state machine: users, sessions, streams, topics, partitions and their placement, and the
//! consumer groups of the topics, whose rules are those of [`coordinator`].
//!
//! [`Catalog`] applies the committed [`Operation`]s of the metadata group, each at once and whole; equal
//! operations make equal states on every replica. What an op changed comes out as [`Change`]s, from which
//! every shard keeps its [`Projection`]. It knows no clock but the timestamps of its ops, no passwords but
//! their hashes, and refuses what it cannot do by a [`wire::Failure`] that names thing, value and limit.
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
mod catalog;
mod change;
mod consumer_group;
mod directory;
mod failure;
mod limits;
mod operation;
mod placement;
mod projection;
mod query;
mod secret;
mod session;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod topic;
mod user;

pub use apply::{CachedReply, Outcome};
pub use catalog::{Catalog, CatalogConfig};
pub use change::{Change, Notice};
pub use consumer_group::{GroupKey, GroupTimer, Membership, Observed};
pub use limits::{FormerLimits, Limit, LimitExceeded, LimitOutOfRange, Limits};
pub use operation::Operation;
pub use placement::Placement;
pub use projection::{Projection, SessionView, TopicView};
pub use query::PAGE_MAX;
pub use secret::{PasswordHash, SecretHash};
pub use session::Session;
pub use snapshot::{CatalogSnapshot, RestoreError, StreamSnapshot, TopicSnapshot};
pub use stream::Stream;
pub use topic::Topic;
pub use user::{Permissions, User};
