//! What rots on the disk of one node of three, the others have.

use std::{fs, path::PathBuf};

use integration::{Cluster, Ledger, Load, counter, cut, flip_bit, until};
use wire::{Offset, PartitionId, TopicDetails};

use super::{PARTITIONS, again, expect_everywhere, in_step, progress};

/// Bytes of a message.
const MESSAGE: usize = 20_000;

/// Messages that are more than a node's journal holds: it cannot write the first segments again.
const MORE_THAN_A_JOURNAL: u64 = 4_500;

/// The oldest segment of a partition on a node.
fn oldest(cluster: &Cluster, node: usize, topic: &TopicDetails, partition: u32) -> PathBuf {
    let directory = cluster.site(node).partition(topic, PartitionId(partition));
    let files = fs::read_dir(directory).expect("list the partition");
    let files = files.map(|entry| entry.expect("list the partition").path());
    let segments = files.filter(|path| path.extension().is_some_and(|it| it == "segment"));
    segments.min().expect("there are some")
}

#[test]
fn segments_that_rot_on_one_node_are_whole_again_by_the_others_and_nothing_wrong_is_read() {
    // Nobody reads everything through this node: it looks for itself, and need not be sparing.
    let mut cluster = Cluster::with(|_, site| site.with("node.scrub_rate", "\"256 MiB\""));
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..2, &ledger);
    progress(&ledger, MORE_THAN_A_JOURNAL);
    load.finish();
    in_step(&cluster, &[0, 1, 2]);
    for victim in [2, 0] {
        drop(cluster.stop(victim));
        let whole: Vec<(PathBuf, Vec<u8>)> = (0..PARTITIONS)
            .map(|partition| {
                let path = oldest(&cluster, victim, &topic, partition);
                let bytes = fs::read(&path).expect("read a segment");
                match partition % 4 {
                    0 => flip_bit(&path, bytes.len() as u64 / 2),
                    1 => cut(&path, bytes.len() as u64 / 3),
                    2 => fs::remove_file(&path).expect("delete a segment"),
                    _ => (0..bytes.len() as u64)
                        .step_by(50_000)
                        .for_each(|position| flip_bit(&path, position)),
                }
                (path, bytes)
            })
            .collect();
        cluster.start_in_order(&[victim]);
        let mut connection = cluster.login(victim);
        for partition in 0..PARTITIONS {
            again("messages are read", || {
                connection.read_from(&topic, partition, Offset(0))
            });
        }
        for (path, bytes) in whole {
            until("the file is whole again", || {
                let found = fs::read(&path).unwrap_or_default();
                (found == bytes).then_some(())
            });
        }
        let mut connection = cluster.login(victim);
        until("all partitions are in service", || {
            let mended = counter(&mut connection, "segments_mended");
            (mended == u64::from(PARTITIONS)).then_some(())
        });
        expect_everywhere(&cluster, &ledger, &topic);
    }
}
