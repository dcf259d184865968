//! Reads the journal back and judges what cannot be read.

mod report;

pub use report::{Affected, Damage, GroupScan, LostPrepares, ScannedPrepare, Verdict};
