//! Whole consensus groups of three and five replicas from a seed: messages are lost, repeated, late and out
//! of order, links are cut one way and both, replicas are killed and restarted at any point, all of them
//! too, pause, and write slowly or for a time not at all, wall clocks jump. Clients have sessions, and repeat
//! their requests elsewhere (`clients.rs`). After every step the safety checks of `group.rs`; in many stories
//! a minority is then lost for good, and the others must elect, commit, serve and stay in their view; at the
//! end, with everything healed, the group must elect, commit, answer everybody and bring everybody along.
//! The README has the rules that are taken out to test the stories, and what these have found.

mod clients;
mod disk;
mod group;
mod load;
mod random;
mod story;
mod transfer;
mod wipe;

use group::Group;
use random::Random;

/// `VSR_SEEDS=first..last` runs those instead, and `VSR_TRACE=1` prints what happens.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let given = std::env::var("VSR_SEEDS").ok();
    let Some(given) = given else {
        return 1..count + 1;
    };
    let (first, last) = given.split_once("..").expect("VSR_SEEDS=first..last");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    number(first)..number(last)
}

/// How often the interesting things must have happened over all seeds of one replica count, or the story
/// does not test what it is for.
fn assert_floors(replica_count: u8, counts: &group::Counts, seeds: u64) {
    let floors = [
        (
            "views entered after the first",
            counts.views_entered,
            2 * seeds,
        ),
        ("restarts", counts.restarts, seeds),
        (
            "votes resumed after a restart",
            counts.votes_resumed,
            seeds / 50,
        ),
        ("ops committed", counts.committed, 20 * seeds),
        (
            "ops inherited by a new primary",
            counts.inherited,
            seeds / 4,
        ),
        ("prepares dropped by a new view", counts.dropped, seeds / 50),
        (
            "prepares read from a disk for others",
            counts.read,
            seeds / 50,
        ),
        ("primaries that abdicated", counts.abdicated, seeds / 50),
        ("primaries that handed over", counts.offered, seeds / 5),
        ("views confirmed", counts.confirmed, seeds / 2),
        ("requests refused as unknown", counts.unknown, seeds / 4),
        (
            "requests of sessions executed",
            counts.requests_executed,
            20 * seeds,
        ),
        (
            "requests answered from the client table",
            counts.requests_answered_again,
            seeds,
        ),
        (
            "requests joined while in flight",
            counts.requests_joined,
            seeds,
        ),
        ("sessions evicted", counts.sessions_evicted, seeds),
        (
            "committed requests not executed",
            counts.requests_skipped,
            seeds,
        ),
        (
            "groups whose first primary is not replica 0",
            counts.elsewhere_first,
            seeds / 20,
        ),
        ("wall clocks set back", counts.clocks_back, seeds / 20),
        ("minorities lost for good", counts.endured, seeds / 10),
        ("heads of journals lost", counts.heads_lost, seeds / 4),
        ("prepares that rotted", counts.rotten, 2 * seeds),
        ("journals found damaged", counts.damaged, seeds),
        ("prepares repaired", counts.repaired, seeds / 2),
        ("ops dropped on nacks", counts.truncated, seeds / 10),
    ];
    for (what, count, floor) in floors.into_iter().chain(transfer_floors(counts, seeds)) {
        assert!(
            count >= floor,
            "n = {replica_count}: {what}: {count}, at least {floor} expected"
        );
    }
}

const fn transfer_floors(counts: &group::Counts, seeds: u64) -> [(&str, u64, u64); 4] {
    [
        ("checkpoints fetched for", counts.fetches, seeds / 2),
        ("checkpoints installed", counts.transfers, seeds / 2),
        (
            "checkpoints installed between views or without a head",
            counts.transfers_elsewhere,
            seeds / 20,
        ),
        (
            "checkpoints that were not wanted any more",
            counts.fetches_given_up,
            seeds / 500,
        ),
    ]
}

const fn count_of(seeds: &std::ops::Range<u64>) -> u64 {
    seeds.end - seeds.start
}

fn run(replica_count: u8) {
    let seeds = seeds(100);
    let mut counts = group::Counts::default();
    for seed in seeds.clone() {
        let group = Group::new(replica_count, Random::new(seed));
        counts.add(&story::tell(group, seed));
    }
    let count = count_of(&seeds);
    eprintln!("n = {replica_count}, {count} seeds: {counts:?}");
    if count >= 100 {
        assert_floors(replica_count, &counts, count);
    }
}

/// Disks are lost, and nothing else is wrong with them (V13).
fn run_without_disks(replica_count: u8) {
    let seeds = seeds(50);
    let mut counts = group::Counts::default();
    for seed in seeds.clone() {
        let mut group = Group::new(replica_count, Random::new(seed));
        group.loses_disks = true;
        counts.add(&story::tell(group, seed));
    }
    let count = count_of(&seeds);
    eprintln!("n = {replica_count}, {count} seeds: {counts:?}");
    for (what, count, floor) in [
        ("disks lost", counts.wiped, count),
        ("replicas taken back", counts.rejoined, count),
        ("ops committed", counts.committed, 20 * count),
        ("minorities lost for good", counts.endured, count / 10),
    ] {
        assert!(
            count >= floor,
            "n = {replica_count}: {what}: {count}, at least {floor} expected"
        );
    }
}

/// Newest checkpoints are lost, and nothing else is wrong with the disks (V10).
fn run_without_checkpoints(replica_count: u8) {
    let seeds = seeds(50);
    let mut counts = group::Counts::default();
    for seed in seeds.clone() {
        let mut group = Group::new(replica_count, Random::new(seed));
        group.loses_checkpoints = true;
        counts.add(&story::tell(group, seed));
    }
    let count = count_of(&seeds);
    eprintln!("n = {replica_count}, {count} seeds: {counts:?}");
    for (what, count, floor) in [
        ("checkpoints lost", counts.checkpoints_lost, count),
        ("journals that led there", counts.bridged, count / 2),
        ("journals that did not", counts.not_bridged, count / 2),
        ("ops committed", counts.committed, 20 * count),
        ("minorities lost for good", counts.endured, count / 10),
    ] {
        assert!(
            count >= floor,
            "n = {replica_count}: {what}: {count}, at least {floor} expected"
        );
    }
}

/// Everything is slow, and nobody fails: the first view is the only one.
fn run_under_load(replica_count: u8) {
    let seeds = seeds(20);
    let mut counts = group::Counts::default();
    for seed in seeds.clone() {
        counts.add(&load::tell(replica_count, seed));
    }
    let count = count_of(&seeds);
    eprintln!("n = {replica_count}, {count} seeds: {counts:?}");
    assert!(
        counts.committed >= 50 * count,
        "n = {replica_count}: ops committed: {}",
        counts.committed
    );
}

#[test]
fn three_replicas_under_load() {
    run_under_load(3);
}

#[test]
fn five_replicas_under_load() {
    run_under_load(5);
}

#[test]
fn three_replicas_that_lose_checkpoints() {
    run_without_checkpoints(3);
}

#[test]
fn five_replicas_that_lose_checkpoints() {
    run_without_checkpoints(5);
}

#[test]
fn three_replicas_that_lose_disks() {
    run_without_disks(3);
}

#[test]
fn five_replicas_that_lose_disks() {
    run_without_disks(5);
}

#[test]
fn three_replicas() {
    run(3);
}

#[test]
fn five_replicas() {
    run(5);
}
