//! What came of a run.

use crate::{counts::Counts, world::World};

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Of everything that happened; equal for equal seeds.
    pub hash: u64,
    /// Events noted.
    pub events: u64,
    /// Simulated nanoseconds.
    pub simulated: u64,
    /// How often things happened.
    pub counts: Counts,
    /// What is wrong, if anything is.
    pub failure: Option<String>,
}

/// Runs a seed with so many nodes: 1, 3 or 5.
#[must_use]
pub fn run(seed: u64, replicas: u8) -> Report {
    World::new(seed, replicas, false).finish(|_| {})
}

/// Runs a seed and tells every event, in a line that can be read.
pub fn run_traced(seed: u64, replicas: u8, lines: impl FnMut(&str)) -> Report {
    World::new(seed, replicas, true).finish(lines)
}
