//! Configurations at the ends of what is allowed, and kills at bad moments.

use std::{fs, path::Path, process::Command, time::Duration};

use bytes::Bytes;
use integration::{Connection, Ledger, Load, Site, Volume, is_full, repetitions, until};
use wire::{Offset, PollStrategy};

/// Sends, reads, stores, restarts.
fn works(site: &Site, partitions: u32) {
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", partitions);
    let message = Bytes::from(vec![7; 100_000]);
    for partition in 0..partitions.min(12) {
        for offset in 0..3 {
            let appended = connection.append(&topic, partition, std::slice::from_ref(&message));
            assert_eq!(appended, Ok(Offset(offset)));
        }
        connection
            .store(&topic, partition, "billing", Offset(1))
            .expect("it is stored");
    }
    let _ = server.kill();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    for partition in 0..partitions.min(12) {
        let page = connection.read_from(&topic, partition, Offset(0));
        assert_eq!(page.expect("it can be read").messages.len(), 3);
        let stored = connection.stored(&topic, partition, "billing");
        assert_eq!(stored.expect("it is there").stored, Some(Offset(1)));
    }
    drop(connection);
    server.stop();
}

#[test]
fn one_shard_with_one_group_works() {
    let site = Site::new()
        .with("node.shards", "1")
        .with("cluster.data_groups", "1");
    works(&site, 3);
}

#[test]
fn many_shards_work() {
    let site = Site::new()
        .with("node.shards", "64")
        .with("cluster.data_groups", "64");
    works(&site, 64);
}

#[test]
fn more_shards_than_groups_work() {
    let site = Site::new()
        .with("node.shards", "5")
        .with("cluster.data_groups", "2");
    works(&site, 4);
}

#[test]
fn many_groups_on_one_shard_work() {
    let site = Site::new()
        .with("node.shards", "1")
        .with("cluster.data_groups", "1024");
    works(&site, 12);
}

/// The number of shards is a matter of each start.
#[test]
fn shards_may_be_more_and_fewer_at_every_start() {
    let mut site = Site::new().with("cluster.data_groups", "6");
    let mut expected = Vec::new();
    for (round, shards) in [(0, 1), (1, 4), (2, 6), (3, 2)] {
        site = site.with("node.shards", &format!("{shards}"));
        let server = site.start();
        let mut connection = Connection::login(server.address());
        let topic = connection.create_topic(&format!("orders-{round}"), 6);
        connection
            .append(&topic, 5, &[Bytes::from("x")])
            .expect("it is appended");
        expected.push(topic);
        for topic in &expected {
            let page = connection.poll(topic, 5, PollStrategy::First);
            assert_eq!(page.expect("it can be read").messages.len(), 1);
        }
        let _ = server.kill();
    }
}

/// The smallest of everything: segments and journal go round many times.
#[test]
fn smallest_sizes_lose_nothing_under_load() {
    let site = Site::new()
        .with("cluster.data_groups", "1")
        .with("node.shards", "1")
        .with("cluster.limits.batch_size", "\"64 KiB\"")
        .with("cluster.limits.poll_bytes", "\"64 KiB\"")
        .with("node.connections.bytes_in_flight", "\"64 KiB\"")
        .with("node.connections.bytes_in_flight_per_shard", "\"1 MiB\"")
        .with("node.connections.queue_soft_max", "\"64 KiB\"")
        .with("node.connections.queue_hard_max", "\"1 MiB\"")
        .with("node.connections.requests_in_flight", "1")
        .with("node.index_memory", "\"1 MiB\"");
    let server = site.start();
    let topic = Connection::login(server.address()).create_topic("orders", 3);
    let ledger = Ledger::new(4_000);
    let load = Load::start(&server.url(), &topic, 0..2, &ledger);
    let enough = u64::from(repetitions(4_000, 40_000));
    until("much is sent", || {
        (ledger.acknowledged() > enough).then_some(())
    });
    let _ = server.kill();
    drop(load);
    let server = site.start();
    ledger.check(&mut Connection::login(server.address()), &topic);
    server.stop();
}

/// Killed while a snapshot is being written, and right after it was.
#[test]
fn kill_in_the_middle_of_a_checkpoint_loses_nothing() {
    let site = Site::new();
    let mut server = site.start();
    let topic = Connection::login(server.address()).create_topic("orders", 4);
    let ledger = Ledger::new(8_000);
    for round in 0..repetitions(3, 40) {
        let load = Load::start(&server.url(), &topic, round * 3..round * 3 + 3, &ledger);
        if round % 2 == 0 {
            until("a snapshot is being written", || {
                has_new_snapshot(site.data()).then_some(())
            });
        } else {
            let said = server.log().wait_for("checkpoint");
            assert!(said.is_some());
        }
        let _ = server.kill();
        drop(load);
        server = site.start();
        ledger.check(&mut Connection::login(server.address()), &topic);
    }
    server.stop();
}

/// Whether there is a snapshot that has not got its name yet.
fn has_new_snapshot(data: &Path) -> bool {
    let groups = fs::read_dir(data).expect("list the data directory");
    groups
        .filter_map(Result::ok)
        .filter(|group| group.file_name().to_string_lossy().starts_with("group-"))
        .filter_map(|group| fs::read_dir(group.path()).ok())
        .flatten()
        .filter_map(Result::ok)
        .any(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.contains("snapshot") && name.ends_with(".new")
        })
}

/// A signal at any moment of a start: it ends at once, and the next start is none the worse.
#[test]
fn signal_in_the_middle_of_a_start_is_heeded() {
    let site = Site::new();
    for name in ["lock", "journal/0000000001.new", "node.toml"] {
        let starting = site.launch();
        let path = site.data().join(name);
        until(name, || path.exists().then_some(()));
        let ended = starting.terminate();
        // Before it is prepared for signals they end it by themselves.
        assert!(
            matches!(ended.code, None | Some(0)),
            "{:?}: {}",
            ended.code,
            ended.stderr
        );
        assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
        fs::remove_file(&path).unwrap_or_default();
        if is_full() || name == "node.toml" {
            fs::remove_dir_all(site.data()).unwrap_or_default();
        }
    }
    let server = site.start();
    Connection::login(server.address()).create_topic("orders", 1);
    server.stop();
}

/// The file system is mounted read-only.
#[test]
fn read_only_directory_is_refused_with_its_path() {
    let Some(volume) = Volume::mount(128) else {
        return;
    };
    let site = Site::new().with_data(&volume.path().join("data"));
    site.start().stop();
    let remount = |options: &str| {
        let status = Command::new("mount")
            .args(["-o", options])
            .arg(volume.path())
            .status();
        assert!(status.expect("run mount").success(), "{options}");
    };
    remount("remount,ro");
    let ended = site.try_start().expect_err("it must not start");
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let path = site.data().display().to_string();
    assert!(ended.stderr.contains(&path), "{}", ended.stderr);
    assert!(ended.stderr.contains("ead-only"), "{}", ended.stderr);
    remount("remount,rw");
    site.start().stop();
}
