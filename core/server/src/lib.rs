//! The process around the shards: configuration, threads, signals, the hashing pool.
//!
//! The pure crates decide, `storage` and `network` do; this crate starts them, joins them in one loop per
//! shard, and ends them.

pub mod arguments;
pub mod config;
mod exit;
mod format;
pub mod logging;
mod names;
mod node;
mod notes;
pub mod password;
mod peers;
pub mod process_limits;
pub mod random;
mod recover;
mod settings;
mod shard_loop;
pub mod signals;
mod space;

pub use exit::Exit;
pub use format::format;
pub use node::serve;
pub use recover::{Permission, recover};
