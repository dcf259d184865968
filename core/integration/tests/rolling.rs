//! Nodes that are told to stop hand over what they lead.

use std::{
    thread,
    time::{Duration, Instant},
};

use integration::{Cluster, Ended, Ledger, Load, NODES, until};
use wire::ConsensusGroup;

use crate::{MESSAGE, PARTITIONS, expect_everywhere, in_step, metadata, primary, progress};

/// What a node says of each consensus group that it hands over.
const HANDS_OVER: &str = "leads no more: the process stops";

/// The consensus groups that a node leads.
fn led_by(cluster: &Cluster, node: usize) -> Vec<ConsensusGroup> {
    let known = metadata(&mut cluster.login(node));
    let led = known.groups.iter();
    led.filter(|group| usize::from(group.primary.0) == node)
        .map(|group| group.group)
        .collect()
}

/// Stops a node, and requires that it has handed over what it led.
fn stop(cluster: &mut Cluster, node: usize) -> Ended {
    let led = led_by(cluster, node);
    let ended = cluster.stop(node);
    for group in led {
        let said = ended
            .stderr
            .lines()
            .any(|line| line.contains(HANDS_OVER) && line.contains(&format!("group={group} ")));
        assert!(said, "group {group} is not handed over:\n{}", ended.stderr);
    }
    ended
}

/// The longest time without an acknowledgement while `what` is done. Only told.
fn longest_gap(ledger: &Ledger, what: impl FnOnce()) -> Duration {
    thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let watch = scope.spawn(move || {
            let (mut longest, mut last) = (Duration::ZERO, (Instant::now(), ledger.acknowledged()));
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let acknowledged = ledger.acknowledged();
                if acknowledged > last.1 {
                    longest = longest.max(last.0.elapsed());
                    last = (Instant::now(), acknowledged);
                }
                thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        what();
        drop(done);
        watch.join().expect("nobody panics")
    })
}

#[test]
fn rolling_restart_under_load_hands_everything_over_and_loses_nothing() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..3, &ledger);
    progress(&ledger, 1_000);
    for node in 0..NODES {
        // The last one leads the metadata by then, if not by chance.
        let mut took = Duration::ZERO;
        let gap = longest_gap(&ledger, || {
            took = stop(&mut cluster, node).took;
            progress(&ledger, 1_000);
        });
        eprintln!("node {node} ended after {took:?}; the longest gap was {gap:?}");
        let next = (node + 1) % NODES;
        assert_ne!(primary(&cluster, next, ConsensusGroup::METADATA), node);
        cluster.start_in_order(&[node]);
        progress(&ledger, 200);
        until("the node leads or follows everything", || {
            let known = metadata(&mut cluster.login(node));
            (known.groups.len() == 7).then_some(())
        });
    }
    load.finish();
    until("every node leads some groups again", || {
        let leads = |node| !led_by(&cluster, node).is_empty();
        (0..NODES).all(leads).then_some(())
    });
    expect_everywhere(&cluster, &ledger, &topic);
}

#[test]
fn nodes_that_are_stopped_one_after_the_other_end_in_order_the_last_ones_too() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..3, &ledger);
    progress(&ledger, 1_000);
    for node in [1, 0, 2] {
        // An exit code of 0, also of those without a majority, for whose answers clients wait.
        let ended = cluster.stop(node);
        eprintln!("node {node} ended after {:?}", ended.took);
    }
    drop(load);
    cluster.start_in_order(&[0, 1, 2]);
    in_step(&cluster, &[0, 1, 2]);
    expect_everywhere(&cluster, &ledger, &topic);
}
