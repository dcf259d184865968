//! Sockets and the ways between threads: everything that reaches a shard from outside its thread.
//!
//! One [`Connections`] per shard reads frames, checks them and hands them over as [`Event`]s; it writes
//! what the shard sends. A [`Endpoint`] joins the shards to one another, an [`Inbox`] brings the answers
//! of other threads. All three ring the shard's one [`Notify`], which is all that its loop waits for.
//! This crate knows frames, not commands: it judges header and checksum, never a body.

mod buffers;
mod connection;
mod decoder;
mod inbox;
mod links;
mod listener;
mod mesh;
mod notify;
mod runtime;

pub use connection::{
    CloseReason, ConnectionId, Connections, Event, Limits, SendOutcome, Statistics,
};
pub use inbox::{Inbox, InboxSender, inbox};
pub use links::{
    Difference, HandshakeError, KnownDisks, LINK_VERSION, LinkLimits, LinkNews, LinkOrders,
    LinkSecret, LinkStatistics, LinkThreads, Links, Membership, NewLink, PeerNode, RefusalText,
    Register, Traffic, Urgency,
};
pub use listener::{BindError, Listener, bind, bind_shards};
pub use mesh::{Endpoint, mesh};
pub use notify::Notify;
pub use runtime::{
    Driver, DriverChoice, available_cores, build_runtime, choose_driver, pin_to_core,
};
