//! The process around the shards: configuration, threads, signals, the hashing pool.
//!
//! The pure crates decide, `storage` and `network` do; this crate starts them, joins them in one loop per
//! shard, and ends them.

pub mod config;
