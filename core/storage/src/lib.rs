//! The system calls behind the journal, snapshots, segments and the data directory.
//!
//! Everything here blocks, on threads of its own: `JournalThread` writes and flushes the journal for all
//! shards, a `FileThread` per shard does the rest. Shards hand work over through bounded rings and are
//! woken by a `Waker` when something is done. No decision is made here that a replica could make: what
//! the journal's bytes mean is the `journal` crate's matter.

mod error;

pub use error::Error;
