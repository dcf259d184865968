//! The journal's frames: layout, batch assembly, scan and verdict, recycling. Performs no I/O.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod event;
mod frame;
mod journal;
mod layout;
mod record;
mod scan;
#[cfg(test)]
mod tests;

pub use self::journal::{FrameLocation, Journal, Resume};
pub use event::{Config, Effect, FileId, FileSize, Input, UnitSize, identity};
pub use layout::{FRAME_ALIGNMENT, FRAME_SIZE_MAX};
pub use record::{Progress, Record, SuperblockRecord, Ticket};
pub use scan::{
    Affected, Damage, GroupScan, LostPrepares, Scan, Scanned, ScannedPrepare, Uncertain, Verdict,
    Wanted,
};
