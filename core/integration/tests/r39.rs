//! R39: who lives, and how long something may take, goes by no wall clock.

use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};

use integration::{
    Clock, Cluster, Connection, DEFAULT_OPTIONS, Group, Ledger, Load, Member, NODES, Site, is_full,
    repetitions, until,
};
use wire::{ConsensusGroup, ConsumerGroupOptionsUpdate, TopicDetails};

use crate::{
    MESSAGE, PARTITIONS, again, in_step, primary, progress,
    r25::Crew,
    stage::{Stage, others, patient, rebalance_timeout},
};

/// Seconds.
const HOUR: i64 = 3_600;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

/// By how much each node's clock is wrong all the time.
const SKEW: [i64; NODES] = [-300, 0, 300];

/// A time for hand-overs that passes within a test.
const HAND_OVER: Duration = Duration::from_secs(2);

/// How long a session may be silent where that matters.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// A clock for each node; none where that cannot be.
fn clocks() -> Option<Vec<Clock>> {
    let clocks: Option<Vec<Clock>> = (0..NODES).map(|_| Clock::make()).collect();
    let clocks = clocks?;
    for (clock, skew) in clocks.iter().zip(SKEW) {
        clock.set(skew);
    }
    Some(clocks)
}

/// Steps 1 and 2: clocks that differ, and steps of the primary's before it dies.
#[test]
fn r39_1_2_nobody_is_expired_and_nodes_agree_whatever_wall_clocks_say_while_primaries_die() {
    let Some(clocks) = clocks() else { return };
    let mut cluster = Cluster::with(|node, site| clocks[node].rule(site));
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut admin = cluster.login(0);
    let group = Group::create(&mut admin, &topic, "billing", DEFAULT_OPTIONS);
    let group = group.expect("make a group");
    // Nobody is in it, and its time is an hour.
    let expiring = ConsumerGroupOptionsUpdate {
        offset_expiry_ms: Some(HOUR.unsigned_abs() * 1_000),
        ..DEFAULT_OPTIONS
    };
    let empty = Group::create(&mut admin, &topic, "nobody", expiring).expect("make a group");
    let crew = Crew::join(&cluster, NODES);
    let held = crew.settled(PARTITIONS as usize / NODES);
    let described = |cluster: &Cluster, group: &Group, node: usize| {
        let mut admin = cluster.login(node);
        let told = again("the group is described", || group.describe(&mut admin));
        (told.summary, told.members.len())
    };
    let before = [&group, &empty].map(|group| described(&cluster, group, 0));
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(1), &topic, 0..1, &ledger);
    let steps = [HOUR, -HOUR, TEN_YEARS];
    let rounds = repetitions(3, 20) as usize;
    for (round, step) in steps.into_iter().cycle().take(rounds).enumerate() {
        let victim = primary(&cluster, round % NODES, ConsensusGroup::METADATA);
        eprintln!("---- node {victim}, {step} s");
        clocks[victim].set(SKEW[victim] + step);
        progress(&ledger, 200);
        crew.catch_up(&ledger);
        assert_eq!(crew.held(), held);
        expect_log_time(&cluster.login(victim), &topic, (round, step));
        drop(cluster.kill(victim));
        progress(&ledger, 200);
        crew.catch_up(&ledger);
        clocks[victim].set(SKEW[victim]);
        cluster.start_in_order(&[victim]);
        assert_eq!(crew.held(), held);
    }
    load.finish();
    crew.catch_up(&ledger);
    assert_eq!(crew.held(), held);
    in_step(&cluster, &[0, 1, 2]);
    for node in 0..NODES {
        let after = [&group, &empty].map(|group| described(&cluster, group, node));
        assert_eq!(after, before);
    }
}

/// Requires that the metadata go by a clock that is so many seconds ahead: it was set, and the primary asks it.
fn expect_log_time(connection: &Connection, topic: &TopicDetails, (round, step): (usize, i64)) {
    let mut connection = connection.attach();
    let name = format!("round-{round}");
    let group = again("a group is made", || {
        Group::create(&mut connection, topic, &name, DEFAULT_OPTIONS)
    });
    let told = again("the group is described", || group.describe(&mut connection));
    let made = told.summary.empty_since.expect("nobody has joined");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let right = i64::try_from(now.expect("it is later").as_secs()).expect("it is soon enough");
    let told = i64::try_from(made.0 / 1_000_000).expect("it is soon enough");
    assert!(told - right > step - 2 * SKEW[2], "{told}, {right}");
}

/// Step 1: a hand-over takes as long as it may, whatever becomes of wall clocks meanwhile.
#[test]
fn r39_1_deadlines_of_hand_overs_go_by_no_wall_clock() {
    let Some(clocks) = clocks() else { return };
    let options = rebalance_timeout(u32::try_from(HAND_OVER.as_millis()).expect("it is short"));
    let rule = |node: usize, site: Site| clocks[node].rule(patient(site));
    let mut stage = Stage::with(rule, 20, options);
    for step in [TEN_YEARS, -HOUR] {
        let mut first = stage.join(0);
        first.wait_for(PARTITIONS as usize);
        for partition in 0..PARTITIONS {
            again("it is read", || first.poll(partition, 10));
        }
        let begun = Instant::now();
        let mut second = stage.join(1);
        first.wait_for_revoking(3);
        for (clock, skew) in clocks.iter().zip(SKEW) {
            clock.set(skew + step);
        }
        second.wait_for(3);
        assert!(begun.elapsed() >= HAND_OVER, "{:?}", begun.elapsed());
        again("it leaves", || second.leave());
        again("it leaves", || first.leave());
        stage.renew();
    }
    assert_eq!(stage.counted("moves_drained"), 0);
}

/// Gives signs of life for so long.
fn live(members: &mut [&mut Member], lasts: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < lasts {
        for member in &mut *members {
            again("it is a member", || member.sync());
        }
    }
}

/// Step 3: the primary stands still for many times the session timeout, and so do all nodes: everybody has a full
/// timeout then. Who is silent for longer is expired as ever.
#[test]
fn r39_3_members_have_a_full_timeout_after_nodes_stood_still() {
    let timeout = format!("\"{} s\"", SESSION_TIMEOUT.as_secs());
    let hasty = |_: usize, site: Site| {
        site.with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
            .with("cluster.timeouts.session_timeout", &timeout)
    };
    let stage = Stage::with(hasty, 10, DEFAULT_OPTIONS);
    let victim = stage.leader(0);
    let [here, there] = others(victim);
    let (mut first, mut second) = (stage.join(here), stage.join(there));
    first.wait_for(3);
    second.wait_for(3);
    let known = (first.assignment.clone(), second.assignment.clone());
    let long = SESSION_TIMEOUT * if is_full() { 10 } else { 2 };

    stage.cluster.server(victim).pause();
    live(&mut [&mut first, &mut second], long);
    stage.cluster.server(victim).resume();
    live(&mut [&mut first, &mut second], SESSION_TIMEOUT);
    assert_eq!(
        (&first.assignment, &second.assignment),
        (&known.0, &known.1)
    );

    (0..NODES).for_each(|node| stage.cluster.server(node).pause());
    // Nothing can happen meanwhile that could be waited for: it is the time that matters.
    thread::sleep(long);
    (0..NODES).for_each(|node| stage.cluster.server(node).resume());
    live(&mut [&mut first, &mut second], SESSION_TIMEOUT);
    assert_eq!(
        (&first.assignment, &second.assignment),
        (&known.0, &known.1)
    );

    until("the silent one is expired", || {
        again("it is a member", || first.sync());
        (first.owned().len() == PARTITIONS as usize).then_some(())
    });
    assert_eq!(stage.details(here).members.len(), 1);
}
