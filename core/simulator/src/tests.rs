//! Runs as a whole, short ones.

use crate::{
    Counts, Report,
    run::MILLISECOND,
    scenario::{DiskFaults, PeerFaults, Scenario},
    world::World,
};

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

/// Runs of three nodes in which a disk does this, and nothing else happens to one.
fn with_disks(seeds: std::ops::Range<u64>, disks: DiskFaults) -> Counts {
    let mut counts = Counts::ZERO;
    for seed in seeds {
        let wish = |scenario: &mut Scenario| {
            scenario.disks = disks;
            scenario.peers = PeerFaults {
                rot: 0,
                rot_segments: 0,
                rot_end: 0,
                ..scenario.peers
            };
        };
        let report = World::short_of(seed, 3, wish).finish(|_| {});
        assert_eq!(report.failure, None, "seed {seed}");
        counts.add(&report.counts);
    }
    counts
}

#[test]
fn nodes_that_lose_their_disks_are_taken_back() {
    let disks = DiskFaults {
        lose: 150 * MILLISECOND,
        forget: 400,
        ..DiskFaults::default()
    };
    let counts = with_disks(1..7, disks);
    assert!(counts.disks_lost > 0, "{counts:?}");
    assert!(counts.replicas_taken_back > counts.disks_lost, "{counts:?}");
    assert!(
        counts.barriers >= counts.replicas_taken_back / 2,
        "{counts:?}"
    );
}

#[test]
fn nodes_whose_disks_were_full_go_on() {
    let disks = DiskFaults {
        full: 100 * MILLISECOND,
        ..DiskFaults::default()
    };
    let counts = with_disks(1..4, disks);
    assert!(counts.writes_without_space > 10, "{counts:?}");
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
