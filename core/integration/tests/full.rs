//! R31, step 5: the disk of one node of three is full. What it leads goes to the others, so that everything goes on;
//! until then it is refused at once. Nothing that was acknowledged is lost. When there is space everything is the same
//! everywhere. When all disks are full, nobody has anybody to give anything to.

use std::time::{Duration, Instant};

use bytes::Bytes;
use integration::{Cluster, Connection, Ledger, Load, NODES, Volume, repetitions, until};
use wire::{ConsensusGroup, ErrorCode, PollStrategy, TopicDetails};

use crate::{MESSAGE, PARTITIONS, again, expect_everywhere, metadata, progress};

/// Whose disk is full.
const FULL: usize = 2;

/// Bytes of a message that takes much room.
const SIZE: usize = 20_000;

/// Messages of a batch, and batches that each partition is sent: more than the files of a journal which are there
/// have room for.
const BATCH: usize = 50;
const ATTEMPTS: u32 = 10;

/// How soon a refusal comes, on a busy machine too.
const SOON: Duration = Duration::from_secs(5);

/// The partitions that a node leads, as another one knows.
fn led_by(connection: &mut Connection, topic: &TopicDetails, node: usize) -> Vec<u32> {
    let known = metadata(connection);
    let leads = |group: ConsensusGroup| {
        let mut groups = known.groups.iter();
        groups.any(|found| found.group == group && usize::from(found.primary.0) == node)
    };
    let partitions = topic.partitions.iter();
    let own = partitions.filter(|partition| leads(partition.group));
    own.map(|partition| partition.id.0).collect()
}

/// The consensus groups that a node leads, as another one knows.
fn led_by_any(connection: &mut Connection, node: usize) -> Vec<ConsensusGroup> {
    let known = metadata(connection);
    let led = known.groups.iter();
    let led = led.filter(|found| usize::from(found.primary.0) == node);
    led.map(|found| found.group).collect()
}

#[test]
fn r31_5_others_lead_and_all_goes_on_when_the_disk_of_one_node_is_full() {
    let Some(volume) = Volume::mount(512) else {
        return;
    };
    let mut cluster = Cluster::with(|node, site| match node {
        FULL => site
            .with("node.disk_reserve", "\"16 MiB\"")
            .with_data(&volume.path().join("data")),
        _ => site,
    });
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let others = cluster.create_topic(0, "others", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    for round in 0..repetitions(1, 10) {
        let load = Load::start(&cluster.url(0), &topic, 3 * round..3 * round + 3, &ledger);
        progress(&ledger, 200);
        volume.occupy(0);
        let said = cluster.server(FULL).log().wait_for("the disk is");
        said.expect("it is told");
        let mut connection = cluster.login(0);
        // Refusals are at once, as long as it leads anything.
        for _ in 0..ATTEMPTS {
            let own = led_by(&mut connection, &others, FULL);
            for partition in 0..PARTITIONS {
                let begun = Instant::now();
                let batch = vec![Bytes::from(vec![7; SIZE]); BATCH];
                let sent = connection.append(&others, partition, &batch);
                assert!(begun.elapsed() < SOON, "{:?}: {sent:?}", begun.elapsed());
                let Err(failure) = sent else { continue };
                assert!(is_passing(failure.code), "{partition}: {failure}");
                if failure.code == ErrorCode::StorageFull && !own.contains(&partition) {
                    let own = led_by(&mut connection, &others, FULL);
                    assert!(own.contains(&partition), "{partition}: {failure}");
                }
            }
        }
        until("others lead everything", || {
            let led = led_by_any(&mut connection, FULL);
            led.is_empty().then_some(())
        });
        for partition in 0..PARTITIONS {
            until("messages are taken while the disk is full", || {
                let sent = connection.append(&others, partition, &[Bytes::from("full")]);
                sent.ok()
            });
        }
        progress(&ledger, 200);
        let led = led_by_any(&mut connection, FULL);
        assert!(led.is_empty(), "it took {led:?} back without space");
        for partition in 0..PARTITIONS {
            again("it is read", || {
                connection.poll(&topic, partition, PollStrategy::First)
            });
        }
        assert!(!cluster.has_ended(FULL), "it does not end");
        volume.vacate();
        let said = cluster.server(FULL).log().wait_for("has space again");
        said.expect("it is told");
        for partition in 0..PARTITIONS {
            until("messages are taken", || {
                let sent = connection.append(&others, partition, &[Bytes::from("again")]);
                sent.ok()
            });
        }
        load.finish();
    }
    expect_everywhere(&cluster, &ledger, &topic);
    (0..NODES).for_each(|node| drop(cluster.stop(node)));
}

/// Whether an append may succeed later: the node that leads has changed, or is the one with the full disk.
fn is_passing(code: ErrorCode) -> bool {
    code.retryable() || code == ErrorCode::OutcomeUnknown
}
