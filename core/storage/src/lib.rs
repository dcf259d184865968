//! The system calls behind the journal, snapshots, segments and the data directory.
//!
//! Everything here blocks, on threads of its own: [`JournalThread`] writes and flushes the journal for all
//! shards, [`FileThreads`] do the rest for one shard. Both report through a callback, which puts the answer
//! into a shard's inbox. No decision is made here that a replica could make: what the journal's bytes mean
//! is the `journal` crate's matter.

mod directory;
mod disks;
mod error;
mod file_threads;
mod journal_files;
mod journal_reads;
mod journal_thread;
mod paths;
mod priority;
mod probe;
mod segments;
mod snapshots;
mod space;
#[cfg(test)]
mod tests;

pub use directory::{DataDirectory, Format, FormatNode};
pub use disks::Disks;
pub use error::Error;
pub use file_threads::{Done, FileThreads, Job};
pub use journal_files::{FoundJournal, scan_journal};
pub use journal_thread::{JournalEvent, JournalHandle, JournalThread};
pub use paths::SegmentName;
pub use priority::{Priority, raise as raise_priority};
pub use probe::{FlushProbe, probe_flush};
pub use segments::{FileKind, Segments};
pub use snapshots::{Snapshot, SnapshotRange, Snapshots};
pub use space::free_space;
