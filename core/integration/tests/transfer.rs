//! A node that was away for so long that the others' journals do not hold what it missed any more.

use std::{collections::BTreeMap, fs};

use integration::{Cluster, Connection, Ledger, Load, NODES, until};
use wire::{DeleteTopic, Offset, PartitionId, Reply, TopicDetails};

use super::{PARTITIONS, again, expect_everywhere, in_step, progress};

/// Bytes of a message: a few thousand fill a journal.
const MESSAGE: usize = 20_000;

/// Messages that are more than a node's journal holds.
const MORE_THAN_A_JOURNAL: u64 = 4_500;

/// What a node says when it has taken over a checkpoint.
pub(super) const INSTALLED: &str = "a checkpoint of another node is installed";

/// Requires that all segments of a stopped node are, byte for byte, those of another one.
pub(super) fn expect_same_files(cluster: &Cluster, (node, other): (usize, usize)) {
    let segments = |node: usize| {
        let site = cluster.site(node);
        let files = site.files(|path| path.ends_with(".segment"));
        let files = files.into_iter().map(|path| {
            let name = path.strip_prefix(site.data()).expect("it is below");
            (name.to_owned(), fs::read(&path).expect("read a segment"))
        });
        files.collect::<BTreeMap<_, _>>()
    };
    let (own, others) = (segments(node), segments(other));
    assert!(
        own.keys().eq(others.keys()),
        "{:?}\n{:?}",
        own.keys(),
        others.keys()
    );
    assert!(!own.is_empty());
    for (name, bytes) in own {
        assert!(others[&name] == bytes, "{}", name.display());
    }
}

#[test]
fn node_that_was_away_for_long_catches_up_under_load_and_does_without_either_of_the_others() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..2, &ledger);
    progress(&ledger, 100);
    drop(cluster.kill(2));
    progress(&ledger, MORE_THAN_A_JOURNAL);
    cluster.start_in_order(&[2]);
    let installed = cluster.server(2).log().wait_for(INSTALLED);
    installed.expect("it says so");
    progress(&ledger, 200);
    load.finish();
    expect_everywhere(&cluster, &ledger, &topic);
    // Without either of the others it is needed for everything, and leads what that one led.
    for dead in [0, 1] {
        drop(cluster.kill(dead));
        let mut connection = cluster.login(2);
        for partition in 0..PARTITIONS {
            again("the node serves", || {
                connection.read_from(&topic, partition, Offset(0))
            });
        }
        let found = ledger.check(&mut connection, &topic);
        assert_eq!(found.acknowledged, ledger.acknowledged());
        let known = super::metadata(&mut connection);
        assert!(known.groups.iter().any(|group| group.primary.0 == 2));
        cluster.start_in_order(&[dead]);
        in_step(&cluster, &[0, 1, 2]);
    }
    (0..NODES).for_each(|node| drop(cluster.stop(node)));
    expect_same_files(&cluster, (2, 0));
    expect_same_files(&cluster, (2, 1));
}

/// Deletes a topic that has the name of its stream.
fn delete_topic(connection: &mut Connection, topic: &TopicDetails) {
    let request = DeleteTopic {
        stream: topic.stream.into(),
        topic: topic.id.into(),
    };
    let deleted = again("the topic is deleted", || connection.ask(request.clone()));
    assert_eq!(deleted, Reply::Done);
}

/// Directories of the topic's partitions.
fn directories(cluster: &Cluster, node: usize, topic: &TopicDetails) -> usize {
    let site = cluster.site(node);
    let partitions = topic.partitions.iter();
    let there = partitions.filter(|partition| site.partition(topic, partition.id).exists());
    there.count()
}

#[test]
fn what_was_deleted_while_a_node_was_away_goes_there_too() {
    let mut cluster = Cluster::new();
    cluster.start();
    let kept = cluster.create_topic(0, "orders", PARTITIONS);
    let gone = cluster.create_topic(0, "drafts", PARTITIONS);
    let mut connection = cluster.login(0);
    let ledger = Ledger::new(MESSAGE);
    let lost = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &gone, 7..8, &lost);
    progress(&lost, 50);
    load.finish();
    in_step(&cluster, &[0, 1, 2]);
    drop(cluster.kill(2));
    assert_eq!(
        directories(&cluster, 2, &gone),
        usize::try_from(PARTITIONS).expect("small")
    );
    delete_topic(&mut connection, &gone);
    let load = Load::start(&cluster.url(0), &kept, 0..2, &ledger);
    progress(&ledger, MORE_THAN_A_JOURNAL);
    load.finish();
    // What a transfer that was cut short may have left.
    let directory = cluster.site(2).partition(&kept, PartitionId(0));
    let stray = directory.join(format!("{:020}.segment", 1_000_000));
    fs::create_dir_all(&directory).expect("make a directory");
    fs::write(&stray, b"the beginning of a segment").expect("write a file");
    cluster.start_in_order(&[2]);
    assert!(!stray.exists());
    expect_everywhere(&cluster, &ledger, &kept);
    let installed = cluster.server(2).log().find(INSTALLED);
    installed.expect("it says so");
    until("the directories are gone", || {
        (directories(&cluster, 2, &gone) == 0).then_some(())
    });
}
