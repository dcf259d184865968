//! What came of a run.

use crate::{case::Case, counts::Counts, world::World};

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

/// Runs a case.
#[must_use]
pub fn run(case: &Case) -> Report {
    World::new(case, false).finish(|_| {})
}

/// Runs a case and tells every event, in a line that can be read.
pub fn run_traced(case: &Case, lines: impl FnMut(&str)) -> Report {
    World::new(case, true).finish(lines)
}
