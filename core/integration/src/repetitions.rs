//! How often a case is repeated.

use std::env;

/// Set by `make cases`.
const FULL: &str = "COHORT_CASES";

/// Whether the cases are to be repeated as often as they say.
#[must_use]
pub fn is_full() -> bool {
    env::var_os(FULL).is_some_and(|value| value == "full")
}

/// `full` repetitions when `COHORT_CASES=full` is set, else `reduced`.
#[must_use]
pub fn repetitions(reduced: u32, full: u32) -> u32 {
    if is_full() { full } else { reduced }
}
