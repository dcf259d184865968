//! Runs as a whole, short ones.

use crate::{Counts, Report, world::World};

fn run(seed: u64) -> Report {
    World::short(seed, false).finish(|_| {})
}

#[test]
fn thirty_seeds_go_well() {
    let mut counts = Counts::ZERO;
    for seed in 1..=30 {
        let report = run(seed);
        assert_eq!(report.failure, None, "seed {seed}");
        counts.add(&report.counts);
    }
    assert!(counts.kills + counts.power_failures > 30, "{counts:?}");
    assert!(counts.batches_appended > 1_000, "{counts:?}");
    assert!(counts.messages_consumed > 1_000, "{counts:?}");
    assert!(counts.bits_rotten > 0, "{counts:?}");
}

#[test]
fn equal_seeds_run_alike() {
    for seed in [3, 14] {
        let mut lines = 0;
        let traced = World::short(seed, true).finish(|_| lines += 1);
        assert_eq!(traced, run(seed));
        assert!(lines > 300, "seed {seed}: {lines} lines");
    }
    assert_ne!(run(3).hash, run(14).hash);
}
