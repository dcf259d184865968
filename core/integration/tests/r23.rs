//! R23: whatever has happened, two nodes of three that hear each other go on; and one that was away does not tell
//! what it knew before.

use integration::{Cluster, Ledger, Load, NODES, message, repetitions, until};
use wire::{ErrorCode, Offset, TopicDetails};

use crate::{MESSAGE, PARTITIONS, again, append, expect_everywhere, in_step, primary, progress};

/// The node that leads a partition.
fn leader(cluster: &Cluster, topic: &TopicDetails, partition: usize, ask: usize) -> usize {
    primary(cluster, ask, topic.partitions[partition].group)
}

/// Step 2: one node is gone for good, and while the others share its work one of them restarts.
#[test]
fn r23_2_two_nodes_go_on_when_one_of_them_restarts_without_the_third() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(1), &topic, 0..3, &ledger);
    progress(&ledger, 500);
    drop(cluster.kill(0));
    for node in (1..NODES).cycle().take(repetitions(2, 20) as usize) {
        drop(cluster.kill(node));
        cluster.start_in_order(&[node]);
        progress(&ledger, 500);
    }
    load.finish();
    cluster.start_in_order(&[0]);
    expect_everywhere(&cluster, &ledger, &topic);
}

/// Step 4: a primary that stood still knows nothing of what was done without it. What it was asked before, and is
/// asked now, it answers as the others do or not at all.
#[test]
fn r23_4_primary_that_stood_still_tells_nothing_of_its_old_view_and_takes_nothing_in_it() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    for round in 0..u64::from(repetitions(2, 20)) {
        let old = leader(&cluster, &topic, 0, 0);
        let other = (old + 1) % NODES;
        let mut connection = cluster.login(old);
        let mut elsewhere = cluster.login(other);
        let first = append(&mut connection, &topic, 0, &message(0, 2 * round));
        again("an offset is stored", || {
            connection.store(&topic, 0, "audit", first)
        });
        cluster.server(old).pause();
        let second = append(&mut elsewhere, &topic, 0, &message(0, 2 * round + 1));
        assert!(second > first);
        again("an offset is stored", || {
            elsewhere.store(&topic, 0, "audit", second)
        });
        cluster.server(old).resume();
        let stored = again("an offset is read", || {
            connection.stored(&topic, 0, "audit")
        });
        assert_eq!(stored.stored, Some(second));
        assert!(stored.end > second);
        let page = again("it is read", || connection.read_from(&topic, 0, second));
        assert_eq!(page.messages[0].0, second);
        let lower = again("a lower offset changes nothing", || {
            connection.store(&topic, 0, "audit", first)
        });
        assert_eq!(lower, Some(second));
        let beyond = until("an offset beyond the end is refused", || {
            match connection.store(&topic, 0, "audit", Offset(second.0 + 1_000)) {
                Err(failure) if failure.code.retryable() => None,
                other => Some(other),
            }
        });
        let failure = beyond.expect_err("nothing is there");
        assert_eq!(failure.code, ErrorCode::OffsetOutOfRange, "{failure}");
        in_step(&cluster, &[0, 1, 2]);
    }
}
