//! R30: a stored offset is as durable as a message, and is never lower or gone without a word.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use integration::{Connection, Ledger, Load, Site, Volume, cut, flip_bit, repetitions, until};
use wire::{ErrorCode, Offset, PollStrategy, TopicDetails};

use crate::fixture::{CONSUMER, Fixture, PARTITIONS, STORED};

const MESSAGES: u64 = 100_000;

/// Step 1. Stores at irregular intervals, SIGKILL at an irregular moment: what was acknowledged is there,
/// and nothing that was not sent.
#[test]
fn r30_1_acknowledged_stores_survive_sigkill() {
    let site = Site::new();
    let mut server = site.start();
    let topic = filled_topic(&mut Connection::login(server.address()));
    let mut stored = 0;
    for run in 0..repetitions(5, 100) {
        let acknowledged = Arc::new(AtomicU64::new(stored));
        let storing = {
            let acknowledged = Arc::clone(&acknowledged);
            let mut connection = Connection::login(server.address());
            let topic = topic.clone();
            thread::spawn(move || store_until_killed(&mut connection, &topic, &acknowledged))
        };
        let more = stored + 5 + u64::from(run * 37 % 50);
        until("offsets are stored", || {
            (acknowledged.load(Ordering::SeqCst) >= more).then_some(())
        });
        let _ = server.kill();
        let sent = storing.join().expect("the connection ends with the server");
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        server = site.start();
        let mut connection = Connection::login(server.address());
        let found = connection.stored(&topic, 0, CONSUMER).expect("it is there");
        let found = found.stored.expect("something is stored").0;
        assert!(
            acknowledged <= found && found <= sent,
            "{acknowledged} ≤ {found} ≤ {sent}"
        );
        let page = connection.poll(&topic, 0, PollStrategy::Next);
        assert_eq!(
            page.expect("it can be read").next.0.min(found + 1),
            found + 1
        );
        stored = found;
    }
    server.stop();
}

/// Stores one offset after the other, with pauses of irregular length; gives the highest that was sent.
fn store_until_killed(
    connection: &mut Connection,
    topic: &TopicDetails,
    acknowledged: &AtomicU64,
) -> u64 {
    let mut offset = acknowledged.load(Ordering::SeqCst);
    loop {
        offset += 1;
        match connection.try_ask(integration::store(topic, 0, CONSUMER, Offset(offset))) {
            Some(Ok(_)) => acknowledged.store(offset, Ordering::SeqCst),
            Some(Err(failure)) => panic!("store: {failure}"),
            None => return offset,
        }
        let pause = Instant::now() + Duration::from_micros(offset * 7919 % 3_000);
        while Instant::now() < pause {
            thread::yield_now();
        }
    }
}

fn filled_topic(connection: &mut Connection) -> TopicDetails {
    let topic = connection.create_topic("orders", 1);
    let tiny: Vec<Bytes> = vec![Bytes::from_static(b"x"); 50_000];
    for batch in 0..MESSAGES / 50_000 {
        let appended = connection.append(&topic, 0, &tiny);
        assert_eq!(appended, Ok(Offset(batch * 50_000)));
    }
    topic
}

/// Step 2. The power fails: what was not flushed is lost, of every file. Messages and stored offsets that
/// were acknowledged are there.
#[test]
fn r30_2_what_was_acknowledged_survives_a_power_failure() {
    let Some(volume) = Volume::mount(512) else {
        return;
    };
    let site = Site::new().with_data(&volume.path().join("data"));
    let mut server = site.start();
    let topic = Connection::login(server.address()).create_topic("orders", 2);
    let ledger = Ledger::new(500);
    let mut stored = 0;
    for round in 0..repetitions(3, 30) {
        let load = Load::start(&server.url(), &topic, round * 2..round * 2 + 2, &ledger);
        let before = ledger.acknowledged();
        until("the load is on", || {
            (ledger.acknowledged() > before + 500).then_some(())
        });
        let mut connection = Connection::login(server.address());
        for offset in stored..stored + 20 {
            let answer = connection.store(&topic, 0, CONSUMER, Offset(offset));
            assert_eq!(answer, Ok(Some(Offset(offset))));
        }
        stored += 20;
        volume.cut_power();
        // It ends by itself as soon as a flush fails, and is killed if it has nothing to flush.
        let _ = server.kill();
        drop(load);
        volume.restore_power();
        server = site.start();
        let mut connection = Connection::login(server.address());
        let found = ledger.check(&mut connection, &topic);
        assert!(found.acknowledged > before, "{found:?}");
        let answer = connection.stored(&topic, 0, CONSUMER).expect("it is there");
        assert_eq!(answer.stored, Some(Offset(stored - 1)));
    }
    server.stop();
}

/// Damages a file.
type Apply = fn(&Path);

/// Step 3. The newest record of stored offsets is damaged. They are in snapshot and journal: what cannot be
/// read is made up for by what is left, or the group is out of service and says so. It never looks as if
/// nothing, or less, were stored.
#[test]
fn r30_3_damaged_snapshot_never_lowers_or_forgets_a_stored_offset() {
    let mut fixture = Fixture::with_checkpoints(2);
    let group = fixture.topic.partitions[0].group;
    let snapshots = snapshots(&fixture, group.0);
    assert_eq!(snapshots.len(), 2, "{snapshots:?}");
    let newest = snapshots[1].clone();
    let whole = fs::read(&newest).expect("read the snapshot");
    let faults: [(&str, Apply); 4] = [
        ("cut to 1 byte", |path| {
            let length = fs::metadata(path).expect("it is there").len();
            cut(path, length - 1);
        }),
        ("empty", |path| fs::write(path, "").expect("write it")),
        ("a bit", |path| flip_bit(path, 60)),
        ("missing", |path| fs::remove_file(path).expect("delete it")),
    ];
    for (name, apply) in faults {
        apply(&newest);
        eprintln!("---- snapshot {name}");
        let server = fixture.site.start();
        let mut connection = Connection::login(server.address());
        match connection.stored(&fixture.topic, 0, CONSUMER) {
            // An older snapshot and the journal behind it tell the same.
            Ok(found) => assert_eq!(found.stored, Some(STORED), "{name}"),
            Err(refused) => {
                assert_eq!(refused.code, ErrorCode::OutOfService, "{name}: {refused}");
                let log = server.log().text();
                let said = log.lines().find(|line| line.contains("out of service"));
                let said = said.expect("it is said");
                assert!(said.contains(&format!("group={group}")), "{said}");
                let refused = fixture
                    .read(&mut connection, 0)
                    .expect_err("out of service");
                assert_eq!(refused.code, ErrorCode::OutOfService);
            }
        }
        if name != "missing" {
            let path = newest.display().to_string();
            assert!(
                server.log().find(&path).is_some(),
                "{name}: the file is named"
            );
        }
        // Other groups are not touched.
        let stranger = stranger(&fixture);
        fixture.expect_whole(&mut connection, stranger);
        fixture.append(&mut connection, stranger);
        drop(connection);
        server.stop();
        fs::write(&newest, &whole).expect("restore the snapshot");
    }
    let server = fixture.site.start();
    let mut connection = Connection::login(server.address());
    for partition in 0..PARTITIONS {
        fixture.expect_whole(&mut connection, partition);
    }
    server.stop();
}

fn snapshots(fixture: &Fixture, group: u16) -> Vec<PathBuf> {
    let start = format!("group-{group}/snapshot-");
    fixture.site.files(|path| path.starts_with(&start))
}

/// A partition of the other data group.
fn stranger(fixture: &Fixture) -> u32 {
    let partitions = &fixture.topic.partitions;
    let mut others = partitions.iter();
    let stranger = others.find(|partition| partition.group != partitions[0].group);
    stranger.expect("four partitions in two groups").id.0
}
