//! A node that has lost its disk: it takes no part, unless it comes back by `cohort-server recover` (V13).

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use integration::{Cluster, Connection, Ended, Ledger, Load, NODES, Process, flip_bit};
use wire::{Offset, TopicDetails};

use super::{
    PARTITIONS, again, append, expect_everywhere, in_step, progress,
    transfer::{INSTALLED, expect_same_files},
};

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

/// What a node says of itself while too few others refuse its old disk.
const NEEDS_OTHERS: &str = "takes part when so many others know its new disk";

/// Exit codes.
const USAGE: i32 = 2;
const CANNOT_START: i32 = 4;
const DAMAGED: i32 = 5;

/// Bytes of a message: a few thousand fill a journal.
const SIZE: usize = 20_000;

/// Messages that are more than a node's journal holds.
const MORE_THAN_A_JOURNAL: u64 = 4_500;

fn wipe(cluster: &Cluster, node: usize) {
    fs::remove_dir_all(cluster.site(node).data()).expect("wipe a node");
}

/// Runs `recover`, which must end with this code and say all of these.
fn recover(cluster: &Cluster, node: usize, arguments: &[&str], code: i32, parts: &[&str]) -> Ended {
    let arguments = [&["recover"], arguments].concat();
    let ended = cluster.site(node).run(&arguments);
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    for part in parts {
        assert!(
            ended.stderr.contains(part),
            "no {part:?} in {}",
            ended.stderr
        );
    }
    ended
}

/// Names of what is in the data directory.
fn content(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("list the data directory");
    let names = entries.map(|entry| entry.expect("list the data directory").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

fn discarded(path: &Path) -> PathBuf {
    let names = content(path);
    let name = names.iter().find(|name| name.starts_with("discarded-"));
    path.join(name.expect("something was moved aside"))
}

/// A process that the others refuse says why.
fn expect_refused(process: Process, part: &str) {
    let said = process.log().wait_for(part);
    said.expect("it says why there is no link");
    let _ = process.kill();
}

fn expect_all(connection: &mut Connection, ledger: &Ledger, topic: &TopicDetails) {
    for partition in 0..PARTITIONS {
        again("the node serves", || {
            connection.read_from(topic, partition, Offset(0))
        });
    }
    let found = ledger.check(connection, topic);
    assert_eq!(found.acknowledged, ledger.acknowledged());
}

/// R08, step 4, and more: under load, with more than a journal holds, and whatever is asked of it afterwards.
#[test]
fn r08_4_wiped_node_comes_back_under_load_and_does_without_either_of_the_others() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(SIZE);
    let load = Load::start(&cluster.url(0), &topic, 0..2, &ledger);
    for _ in 0..5 {
        progress(&ledger, MORE_THAN_A_JOURNAL / 5);
    }
    drop(cluster.kill(2));
    wipe(&cluster, 2);
    progress(&ledger, 100);
    let plain = cluster.site(2).run(&[]);
    assert_eq!(plain.code, Some(CANNOT_START), "{}", plain.stderr);
    assert!(
        plain.stderr.contains("cohort-server recover"),
        "{}",
        plain.stderr
    );
    recover(&cluster, 2, &[], 0, &["in the place of the one before"]);
    cluster.start_in_order(&[2]);
    let installed = cluster.server(2).log().wait_for(INSTALLED);
    installed.expect("it says so");
    progress(&ledger, 200);
    load.finish();
    expect_everywhere(&cluster, &ledger, &topic);
    for dead in [0, 1] {
        drop(cluster.kill(dead));
        let mut connection = cluster.login(2);
        expect_all(&mut connection, &ledger, &topic);
        // And it goes on.
        for partition in 0..PARTITIONS {
            again("an offset is stored", || {
                connection.store(&topic, partition, "audit", Offset(dead as u64))
            });
        }
        cluster.start_in_order(&[dead]);
        in_step(&cluster, &[0, 1, 2]);
    }
    (0..NODES).for_each(|node| drop(cluster.stop(node)));
    expect_same_files(&cluster, (2, 0));
    expect_same_files(&cluster, (2, 1));
}

/// All that a cluster of little data does with nodes that lose their disks one after the other, so that none
/// of the disks that it began with is left.
#[test]
fn every_node_is_wiped_in_turn_and_nothing_is_lost() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(200);
    let load = Load::start(&cluster.url(0), &topic, 0..2, &ledger);
    for node in [1, 0, 2, 1] {
        progress(&ledger, 300);
        drop(cluster.kill(node));
        wipe(&cluster, node);
        progress(&ledger, 100);
        recover(&cluster, node, &[], 0, &[]);
        cluster.start_in_order(&[node]);
        progress(&ledger, 100);
        in_step_under_load(&cluster, &load);
    }
    load.finish();
    expect_everywhere(&cluster, &ledger, &topic);
    (0..NODES).for_each(|node| drop(cluster.stop(node)));
    cluster.start();
    expect_everywhere(&cluster, &ledger, &topic);
}

/// The next node may be lost only when the one before is back.
fn in_step_under_load(cluster: &Cluster, load: &Load) {
    load.hold();
    in_step(cluster, &[0, 1, 2]);
    load.go_on();
}

#[test]
fn disk_that_was_replaced_is_refused_for_ever() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut connection = cluster.login(0);
    append(&mut connection, &topic, 0, &message(0, 0));
    in_step(&cluster, &[0, 1, 2]);
    let data = cluster.site(2).data().to_path_buf();
    let aside = |name: &str| cluster_path(&data, name);
    drop(cluster.kill(2));
    fs::rename(&data, aside("first")).expect("take the disk out");
    recover(&cluster, 2, &[], 0, &[]);
    cluster.start_in_order(&[2]);
    in_step(&cluster, &[0, 1, 2]);

    // It turns up again; also at nodes that have been started since.
    drop(cluster.kill(2));
    fs::rename(&data, aside("second")).expect("take the disk out");
    fs::rename(aside("first"), &data).expect("put the first one in");
    for node in [0, 1] {
        drop(cluster.stop(node));
        cluster.start_in_order(&[node]);
    }
    expect_refused(cluster.launch(2), "a disk that another one has replaced");
    let said = cluster.server(0).log();
    said.wait_for("a disk that another one has replaced")
        .expect("the others say so, too");

    // A third one replaces the second, which then is refused as well.
    fs::remove_dir_all(&data).expect("throw the first one away");
    recover(&cluster, 2, &[], 0, &[]);
    cluster.start_in_order(&[2]);
    in_step(&cluster, &[0, 1, 2]);
    drop(cluster.kill(2));
    fs::rename(&data, aside("third")).expect("take the disk out");
    fs::rename(aside("second"), &data).expect("put the second one in");
    expect_refused(cluster.launch(2), "a disk that another one has replaced");
    fs::remove_dir_all(&data).expect("throw the second one away");
    fs::rename(aside("third"), &data).expect("put the third one in");
    cluster.start_in_order(&[2]);
    in_step(&cluster, &[0, 1, 2]);
    // `format` is no way around any of it.
    drop(cluster.kill(2));
    wipe(&cluster, 2);
    let formatted = cluster.site(2).run(&["format"]);
    assert_eq!(formatted.code, Some(0), "{}", formatted.stderr);
    expect_refused(cluster.launch(2), "a disk that another one has replaced");
}

fn cluster_path(data: &Path, name: &str) -> PathBuf {
    data.with_file_name(name)
}

#[test]
fn node_that_was_away_while_another_was_recovered_learns_of_it_and_is_waited_for() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut connection = cluster.login(0);
    append(&mut connection, &topic, 0, &message(0, 0));
    in_step(&cluster, &[0, 1, 2]);
    drop(cluster.kill(1));
    drop(cluster.kill(2));
    let data = cluster.site(2).data().to_path_buf();
    let first = cluster_path(&data, "first");
    fs::rename(&data, &first).expect("take the disk out");
    recover(&cluster, 2, &[], 0, &[]);
    let waiting = cluster.launch(2);
    // With node 1, which knows nothing of it, the old disk would be a majority.
    let said = waiting.log().wait_for(NEEDS_OTHERS);
    said.expect("it says what it waits for");
    let _ = waiting.kill();
    // Node 1 hears of the new disk from node 0 alone.
    cluster.start_in_order(&[1]);
    let new = cluster_path(&data, "second");
    fs::rename(&data, &new).expect("take the disk out");
    fs::rename(&first, &data).expect("put the first one in");
    let old = cluster.launch(2);
    let said = cluster.server(1).log();
    said.wait_for("a disk that another one has replaced")
        .expect("it was told");
    expect_refused(old, "a disk that another one has replaced");
    fs::remove_dir_all(&data).expect("throw the first one away");
    fs::rename(&new, &data).expect("put the new one in");
    cluster.start_in_order(&[2]);
    in_step(&cluster, &[0, 1, 2]);
    drop(cluster.kill(0));
    let mut connection = cluster.login(2);
    let page = again("it is read", || connection.read_from(&topic, 0, Offset(0)));
    assert_eq!(page.messages[0].1, message(0, 0));
}

#[test]
fn directory_with_something_in_it_is_recovered_only_by_moving_that_aside() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut connection = cluster.login(0);
    append(&mut connection, &topic, 0, &message(0, 0));
    in_step(&cluster, &[0, 1, 2]);
    let data = cluster.site(2).data().to_path_buf();
    recover(&cluster, 2, &[], CANNOT_START, &["in use", "stop it"]);
    let refused = ["--discard-disk"];
    recover(&cluster, 2, &refused, CANNOT_START, &["in use", "stop it"]);
    drop(cluster.stop(2));
    let before = content(&data);
    let parts = [
        "not empty",
        "node.toml",
        "journal",
        "for node 2",
        "--discard-disk",
    ];
    recover(&cluster, 2, &[], CANNOT_START, &parts);
    recover(&cluster, 2, &["--cut"], USAGE, &["--discard-disk"]);
    assert_eq!(content(&data), before, "nothing was changed");

    recover(&cluster, 2, &["--discard-disk"], 0, &["moved aside"]);
    let aside = discarded(&data);
    let moved: Vec<String> = before.into_iter().filter(|name| name != "lock").collect();
    assert_eq!(content(&aside), moved, "all of it is there");
    cluster.start_in_order(&[2]);
    in_step(&cluster, &[0, 1, 2]);

    // A directory of somebody else is not touched either.
    drop(cluster.stop(2));
    wipe(&cluster, 2);
    fs::create_dir(&data).expect("make a directory");
    fs::write(data.join("thesis.txt"), "chapter 1").expect("write a file");
    let parts = ["thesis.txt", "not formatted"];
    recover(&cluster, 2, &[], CANNOT_START, &parts);
    assert_eq!(content(&data), ["thesis.txt"]);
    recover(&cluster, 2, &["--discard-disk"], 0, &[]);
    let text = fs::read_to_string(discarded(&data).join("thesis.txt"));
    assert_eq!(text.expect("it is there"), "chapter 1");
}

/// What is lost from outside, in three ways: all of the journal, part of it, and what it was formatted for.
#[test]
fn node_that_has_lost_its_journal_or_its_record_says_how_to_come_back_and_does() {
    type Loss = fn(&Path);
    let journal: Loss = |data| fs::remove_dir_all(data.join("journal")).expect("remove it");
    let files: Loss = |data| {
        for entry in fs::read_dir(data.join("journal")).expect("list the journal") {
            let path = entry.expect("list the journal").path();
            let length = fs::metadata(&path).expect("look at it").len();
            fs::write(&path, vec![0; usize::try_from(length).expect("small")]).expect("zero it");
        }
    };
    let record: Loss = |data| flip_bit(&data.join("node.toml"), 100);
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(SIZE);
    let load = Load::start(&cluster.url(0), &topic, 0..2, &ledger);
    progress(&ledger, 300);
    load.finish();
    in_step(&cluster, &[0, 1, 2]);
    for lose in [journal, files, record] {
        drop(cluster.stop(2));
        let data = cluster.site(2).data().to_path_buf();
        lose(&data);
        let ended = cluster.site(2).run(&[]);
        assert_eq!(ended.code, Some(DAMAGED), "{}", ended.stderr);
        let way_on = "cohort-server recover --discard-disk";
        assert!(ended.stderr.contains(way_on), "{}", ended.stderr);
        recover(&cluster, 2, &[], CANNOT_START, &[way_on, "not empty"]);
        recover(&cluster, 2, &["--discard-disk"], 0, &[]);
        cluster.start_in_order(&[2]);
        expect_everywhere(&cluster, &ledger, &topic);
        fs::remove_dir_all(discarded(&data)).expect("make room");
    }
}

/// R30, step 4: what is stored on one node of three is damaged beyond use, and comes from the others.
#[test]
fn r30_4_stored_offsets_of_a_damaged_node_come_from_the_others() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
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
        for stored in [3, u64::from(partition) + 4] {
            again("an offset is stored", || {
                connection.store(&topic, partition, "audit", Offset(stored))
            });
        }
    }
    in_step(&cluster, &[0, 1, 2]);
    let expect = |cluster: &Cluster, node: usize| {
        let mut connection = cluster.login(node);
        for partition in 0..PARTITIONS {
            let found = again("an offset is read", || {
                connection.stored(&topic, partition, "audit")
            });
            assert_eq!(found.stored, Some(Offset(u64::from(partition) + 4)));
        }
    };
    // Every block of the journal, where the positions are.
    drop(cluster.stop(2));
    for path in cluster.site(2).files(|path| path.ends_with(".journal")) {
        let length = fs::metadata(&path).expect("look at it").len();
        (0..length)
            .step_by(4096)
            .for_each(|position| flip_bit(&path, position));
    }
    recover(&cluster, 2, &["--discard-disk"], 0, &[]);
    cluster.start_in_order(&[2]);
    in_step(&cluster, &[0, 1, 2]);
    for dead in [0, 1] {
        drop(cluster.kill(dead));
        expect(&cluster, 2);
        cluster.start_in_order(&[dead]);
        in_step(&cluster, &[0, 1, 2]);
    }
}
