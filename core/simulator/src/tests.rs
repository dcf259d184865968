//! Runs as a whole.

use crate::{run, run_traced};

#[test]
fn thirty_seeds_go_well() {
    for seed in 1..=30 {
        let report = run(seed);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

#[test]
fn equal_seeds_run_alike() {
    for seed in [3, 14] {
        let mut lines = 0;
        let report = run_traced(seed, |_| lines += 1);
        assert_eq!(report, run(seed));
        assert!(lines > 1_000);
    }
    assert_ne!(run(3).hash, run(14).hash);
}
