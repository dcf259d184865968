//! A node that has lost its disk and was formatted anew.

use std::fs;

use bytes::Bytes;
use integration::Cluster;
use wire::Offset;

use super::{PARTITIONS, again, append};

/// Messages of each partition that only one of the nodes left has.
const MESSAGES: u32 = 20;

fn message(partition: u32, number: u32) -> Bytes {
    Bytes::from(format!("message {number} of partition {partition}"))
}

#[test]
fn wiped_node_is_refused_and_what_it_had_acknowledged_is_not_lost() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    drop(cluster.kill(2));
    let mut connection = cluster.login(0);
    for partition in 0..PARTITIONS {
        for number in 0..MESSAGES {
            append(
                &mut connection,
                &topic,
                partition,
                &message(partition, number),
            );
        }
    }
    drop(connection);
    drop(cluster.kill(0));
    drop(cluster.kill(1));
    fs::remove_dir_all(cluster.site(1).data()).expect("wipe a node");
    let formatted = cluster.site(1).run(&["format"]);
    assert_eq!(formatted.code, Some(0), "{}", formatted.stderr);

    // Two of three, of which one knows nothing and the other not all: they must not go on.
    let behind = cluster.launch(2);
    let wiped = cluster.launch(1);
    for process in [&behind, &wiped] {
        let told = process.log().wait_for("another disk");
        told.expect("both say why there is no link");
    }
    cluster.start_in_order(&[0]);
    cluster.adopt(2, behind);
    let mut connection = cluster.login(2);
    for partition in 0..PARTITIONS {
        let page = again("it is read", || {
            connection.read_from(&topic, partition, Offset(0))
        });
        let found: Vec<&Bytes> = page.messages.iter().map(|(_, bytes)| bytes).collect();
        for number in 0..MESSAGES {
            let wanted = message(partition, number);
            assert!(found.contains(&&wanted), "{wanted:?} was acknowledged");
        }
    }
    let ended = wiped.terminate();
    assert_eq!(ended.code, Some(0), "it can be stopped: {}", ended.stderr);
}
