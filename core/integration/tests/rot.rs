//! What rots on the disk of one node of three, the others have.

use std::{
    fs,
    path::{Path, PathBuf},
};

use integration::{Cluster, Ledger, Load, NODES, append, counter, cut, flip_bit, overwrite, until};
use wire::{Offset, PartitionId, PollStrategy, Timestamp, TopicDetails};

use super::{PARTITIONS, again, expect_everywhere, in_step, progress, transfer::expect_same_files};

/// Bytes of a message.
const MESSAGE: usize = 20_000;

/// Messages that are more than a node's journal holds: it cannot write the first segments again.
const MORE_THAN_A_JOURNAL: u64 = 4_500;

/// The files of a partition on a node that have this extension, the oldest first.
fn files(
    cluster: &Cluster,
    node: usize,
    (topic, partition): (&TopicDetails, u32),
    extension: &str,
) -> Vec<PathBuf> {
    let directory = cluster.site(node).partition(topic, PartitionId(partition));
    let files = fs::read_dir(directory).expect("list the partition");
    let files = files.map(|entry| entry.expect("list the partition").path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    files.sort_unstable();
    files
}

/// Damages a file.
type Damage = fn(&Path);

/// What is done to the last segment, or to an index, of partition after partition (R12).
const FAULTS: [(&str, Damage); 11] = [
    ("segment", |path| cut(path, 1)),
    ("segment", |path| cut(path, 200)),
    ("segment", |path| cut(path, length(path))),
    ("segment", |path| append(path, &[0xA7; 64])),
    ("segment", |path| append(path, &[0; 4096])),
    ("segment", |path| flip_bit(path, length(path) - 50)),
    ("segment", |path| flip_bit(path, 20)),
    ("segment", |path| {
        fs::remove_file(path).expect("delete a segment");
    }),
    ("index", |path| {
        fs::remove_file(path).expect("delete an index");
    }),
    ("index", |path| cut(path, length(path))),
    ("index", |path| {
        let zeros = vec![0; usize::try_from(length(path)).expect("it is small")];
        overwrite(path, 0, &zeros);
    }),
];

fn length(path: &Path) -> u64 {
    fs::metadata(path).expect("look at the file").len()
}

/// Where the first message that was sent since this time is, or where it would be, as a node says.
fn at_times(
    cluster: &Cluster,
    node: usize,
    topic: &TopicDetails,
    times: &[Timestamp],
) -> Vec<Offset> {
    let mut connection = cluster.login(node);
    let asked = (0..PARTITIONS).flat_map(|partition| times.iter().map(move |it| (partition, *it)));
    let found = asked.map(|(partition, time)| {
        let page = again("messages are read", || {
            connection.poll(topic, partition, PollStrategy::Timestamp(time))
        });
        page.messages
            .first()
            .map_or(page.end, |(offset, _)| *offset)
    });
    found.collect()
}

/// A cluster whose journals have left their beginning to segments and snapshots, the topic, and what was acknowledged.
fn loaded() -> (Cluster, TopicDetails, Ledger) {
    // Nobody reads everything through each node: it looks for itself, and need not be sparing.
    let mut cluster = Cluster::with(|_, site| site.with("node.scrub_rate", "\"256 MiB\""));
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..2, &ledger);
    progress(&ledger, MORE_THAN_A_JOURNAL);
    load.finish();
    in_step(&cluster, &[0, 1, 2]);
    (cluster, topic, ledger)
}

#[test]
fn segments_that_rot_on_one_node_are_whole_again_by_the_others_and_nothing_wrong_is_read() {
    let (mut cluster, topic, ledger) = loaded();
    for victim in [2, 0] {
        drop(cluster.stop(victim));
        let whole: Vec<(PathBuf, Vec<u8>)> = (0..PARTITIONS)
            .map(|partition| {
                let path = files(&cluster, victim, (&topic, partition), "segment").remove(0);
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
    tails_and_indexes_are_made_whole(&mut cluster, &ledger, &topic);
}

/// R12: what ends in the middle, or has garbage behind it, and what only helps to find messages.
fn tails_and_indexes_are_made_whole(cluster: &mut Cluster, ledger: &Ledger, topic: &TopicDetails) {
    let page = again("messages are read", || {
        cluster.login(0).read_from(topic, 0, Offset(0))
    });
    let times: Vec<Timestamp> = page
        .batches
        .iter()
        .map(|(_, time)| *time)
        .step_by(7)
        .collect();
    let before = at_times(cluster, 0, topic, &times);
    for (round, faults) in FAULTS.chunks(PARTITIONS as usize).enumerate() {
        let victim = 1 + round % 2;
        drop(cluster.stop(victim));
        for (partition, (extension, apply)) in (0..).zip(faults) {
            let mut files = files(cluster, victim, (topic, partition), extension);
            let path = match *extension {
                "segment" => files.pop(),
                _ => files.into_iter().next(),
            };
            apply(&path.expect("there are some"));
        }
        cluster.start_in_order(&[victim]);
        expect_everywhere(cluster, ledger, topic);
        assert_eq!(at_times(cluster, victim, topic, &times), before);
        // What it has made whole is its own: it is there, too, without one of the others.
        drop(cluster.kill(0));
        assert_eq!(at_times(cluster, victim, topic, &times), before);
        cluster.start_in_order(&[0]);
        expect_everywhere(cluster, ledger, topic);
    }
    (0..NODES).for_each(|node| drop(cluster.stop(node)));
    expect_same_files(cluster, (1, 0));
    expect_same_files(cluster, (2, 0));
}

/// The snapshots of all consensus groups of a node, the newest of each first.
fn snapshots(cluster: &Cluster, node: usize) -> Vec<Vec<PathBuf>> {
    let list = |directory: &PathBuf| -> Vec<PathBuf> {
        let files = fs::read_dir(directory).expect("list a directory");
        files
            .map(|it| it.expect("list a directory").path())
            .collect()
    };
    let is_named = |path: &PathBuf, prefix: &str| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix))
    };
    let mut groups = list(&cluster.site(node).data().to_path_buf());
    groups.retain(|path| is_named(path, "group-"));
    let snapshots = groups.iter().map(|group| {
        let mut files = list(group);
        files.retain(|path| is_named(path, "snapshot-"));
        // Their names have as many digits as it takes.
        files.sort_by_key(|path| core::cmp::Reverse((path.as_os_str().len(), path.clone())));
        files
    });
    snapshots.filter(|files| !files.is_empty()).collect()
}

/// A snapshot that cannot be read any more is that of another node from then on, or is made anew from the one before
/// it. A node without any is no new one.
#[test]
fn snapshots_that_are_damaged_or_gone_on_one_node_are_had_from_the_others() {
    let (mut cluster, topic, ledger) = loaded();
    for (victim, how) in [
        (2, "damaged"),
        (0, "newest gone"),
        (1, "all gone"),
        (2, "all gone"),
    ] {
        drop(cluster.stop(victim));
        let found = snapshots(&cluster, victim);
        assert!(!found.is_empty(), "node {victim} has taken checkpoints");
        for files in &found {
            match how {
                "damaged" => flip_bit(&files[0], 60),
                "newest gone" => fs::remove_file(&files[0]).expect("delete a snapshot"),
                _ => files
                    .iter()
                    .for_each(|file| fs::remove_file(file).expect("delete a snapshot")),
            }
        }
        cluster.start_in_order(&[victim]);
        let load = Load::start(&cluster.url((victim + 1) % 3), &topic, 0..2, &ledger);
        progress(&ledger, 20);
        load.finish();
        in_step(&cluster, &[0, 1, 2]);
    }
    expect_everywhere(&cluster, &ledger, &topic);
}
