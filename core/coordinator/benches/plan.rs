//! How long a change takes in large groups: `cargo bench -p coordinator`.
//!
//! Prints the least and the median of a number of rounds in nanoseconds, and fails by no figure. "plan" is the plan alone,
//! of a group at rest; the others are whole operations, the change that they return included.
#![expect(clippy::print_stdout, reason = "prints its result")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use coordinator::{
    At, ConsumerGroup, ConsumerGroups, GroupChange, GroupOptions, GroupProjection, Join, NewGroup,
    Weight,
};
use wire::{ClientId, Identifier, MemberId, Op, SessionNumber, Timestamp};

const SIZES: [(u32, u64); 5] = [
    (1_000, 1_000),
    (10_000, 10),
    (10_000, 100),
    (100_000, 1_000),
    (100_000, 10_000),
];

const ROUNDS: usize = 21;

fn at(op: u64) -> At {
    At {
        op: Op(op),
        timestamp: Timestamp(op),
    }
}

fn join(group: &mut ConsumerGroup, client: u64) -> GroupChange {
    let join = Join {
        client: ClientId(client.into()),
        session: SessionNumber(client),
        instance: None,
        weight: Weight::default(),
        address: String::new(),
    };
    let joined = group.join(at(client + 10), join, u32::MAX);
    joined.expect("there is room for every member").1
}

/// Members that have joined and wait for their first plan.
fn waiting(partitions: u32, members: u64) -> (ConsumerGroup, Op) {
    let mut groups = ConsumerGroups::default();
    let new = NewGroup {
        name: "bench".into(),
        options: GroupOptions {
            initial_delay_ms: 1,
            ..GroupOptions::default()
        },
        partitions,
    };
    groups.create(at(1), new, 1).expect("the name is free");
    let group = groups.find_mut(&Identifier::Name("bench".into()));
    let group = group.expect("the group was created");
    for client in 1..=members {
        join(group, client);
    }
    let pending = group.plan_pending().expect("the first plan is pending");
    (group.clone(), pending)
}

/// The least and the median.
#[derive(Clone, Copy)]
struct Times(Duration, Duration);

/// The time of an operation on a copy of `before`, and its change.
fn measure<S: Clone, T>(before: &S, operation: impl Fn(&mut S) -> T) -> (Times, T) {
    let mut times = Vec::with_capacity(ROUNDS);
    let mut last = None;
    for _ in 0..ROUNDS {
        let mut state = before.clone();
        let start = Instant::now();
        let outcome = black_box(operation(&mut state));
        times.push(start.elapsed());
        last = Some(outcome);
    }
    times.sort_unstable();
    let times = Times(times[0], times[ROUNDS / 2]);
    (times, last.expect("there is a round"))
}

fn report(what: &str, Times(least, median): Times, outcome: &str) {
    let (least, median) = (least.as_nanos(), median.as_nanos());
    println!("  {what:<22} {least:>12} {median:>12} ns   {outcome}");
}

fn summary(change: &GroupChange) -> String {
    let (entries, told) = (change.ownership.len(), change.notify.len());
    format!("{entries} partitions, {told} told")
}

fn main() {
    for (partitions, members) in SIZES {
        println!("{partitions} partitions, {members} members");
        let (fresh, pending) = waiting(partitions, members);
        let later = members + 100;

        let (time, moves) = measure(&fresh, |group| group.unplanned());
        report("plan, nothing owned", time, &format!("{moves} moves"));
        let (time, change) = measure(&fresh, |group| group.plan(at(later), pending));
        report("first plan", time, &summary(&change));
        let mut settled = fresh.clone();
        settled.plan(at(later), pending);

        let (time, moves) = measure(&settled, |group| group.unplanned());
        report("plan, all at rest", time, &format!("{moves} moves"));

        let newcomer = later + 1;
        let (time, change) = measure(&settled, |group| join(group, newcomer));
        report("one joins", time, &summary(&change));
        let before = GroupProjection::from(&settled);
        let (time, ()) = measure(&before, |follower| follower.follow(&change));
        report("a projection follows", time, &summary(&change));

        let client = ClientId((members / 2).into());
        let session = SessionNumber(members / 2);
        let (time, change) = measure(&settled, |group| {
            let left = group.leave(at(newcomer), client, session);
            left.expect("the session is a member")
        });
        report("one leaves", time, &summary(&change));

        let half: Vec<_> = (1..=members / 2)
            .map(|it| (MemberId(it), SessionNumber(it)))
            .collect();
        let (time, change) = measure(&settled, |group| group.expire(at(newcomer), &half));
        report("half of them expire", time, &summary(&change));

        let mut moving = settled.clone();
        moving.expire(at(newcomer), &half);
        let projection = GroupProjection::from(&moving);
        let moves = projection.moves();
        let moves: Vec<_> = moves
            .filter_map(|(partition, view)| Some((partition, view.moving()?.epoch)))
            .collect();
        let (time, change) = measure(&moving, |group| group.complete(at(newcomer + 1), &moves));
        report("all moves complete", time, &summary(&change));
        let one = moves.get(..1).unwrap_or_default();
        let (time, change) = measure(&moving, |group| group.complete(at(newcomer + 1), one));
        report("one move completes", time, &summary(&change));
    }
}
