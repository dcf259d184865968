//! Consumer groups: who owns which partition of a topic, how it is handed over, and what is fenced.
//!
//! [`ConsumerGroup`] is the replicated state of one group; a topic holds its [`ConsumerGroups`]. Every
//! operation is applied at its commit, at once and whole, and returns what it changed as a
//! [`GroupChange`]. By these every shard keeps a [`GroupProjection`], against which it admits polls and
//! stores. Where to read on: the states of a partition in `ownership`, the steps between them in
//! `revocation`, the plan in `assignment`, and why nothing gets past a fence in `admission`.
//!
//! It knows no clock but the timestamps of its ops. It stores no offsets and raises no fences: the data
//! groups do.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod assignment;
mod change;
mod group;
mod groups;
mod hand_over;
mod member;
mod offsets;
mod options;
mod ownership;
mod projection;
mod refusal;
mod revocation;
mod snapshot;
#[cfg(test)]
mod tests;
mod view;

pub use admission::{Admission, Claim, Intent, Park, Right};
pub use change::{GroupChange, MemberChange};
pub use group::{ConsumerGroup, Join, Joined};
pub use groups::{ConsumerGroups, Deleted, NewGroup};
pub use hand_over::{HandOver, Progress, hand_over};
pub use member::{Displaced, Holder, Member, MemberState, Weight, check_instance};
pub use offsets::{Reset, ResetTo};
pub use options::{GroupOptions, OptionsSnapshot, OptionsUpdate, StartPolicy};
pub use ownership::{Holding, Move, Ownership};
pub use projection::{GroupProjection, OwnershipView};
pub use refusal::{
    CreateRefused, DeleteRefused, FencedInstance, GroupName, GroupNotEmpty, GroupNotFound,
    JoinRefused, MemberNotFound, MembershipRefused, OptionOutOfRange, ResetRefused,
};
pub use revocation::At;
pub use snapshot::{
    GroupSnapshot, GroupsSnapshot, MemberSnapshot, MoveSnapshot, OwnershipSnapshot, ResetSnapshot,
    RestoreContext, RestoreError,
};
pub use view::{Assignment, OwnedPartition, RevokedPartition};
