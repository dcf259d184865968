//! R12: damaged files. The server starts, or refuses with a sentence; one bad partition stops nobody else;
//! the next offset never comes from a file's length.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use integration::{
    Connection, Site, append, cut, flip_bit, is_full, overwrite, repetitions, until,
};
use wire::{ErrorCode, PollStrategy, TopicDetails};

use crate::fixture::{Fixture, PARTITIONS};

/// What becomes of partition 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// It serves everything.
    Whole,
    /// It is out of service from the start.
    OutAtStart,
    /// It is out of service as soon as the damage is read.
    OutWhenRead,
}

/// Damage to one file of partition 0.
struct Fault {
    name: &'static str,
    extension: &'static str,
    /// Which of the files with this extension; the last segment is the one that is appended to.
    number: usize,
    apply: fn(&Path),
    expect: Expect,
}

const SEGMENT: &str = "segment";
const INDEX: &str = "index";
const OPEN: usize = 2;

/// The faults of the table. With one node nobody can repair, so damage takes the partition out of service;
/// garbage behind the end is cut, and an index is made again.
const FAULTS: &[Fault] = &[
    fault(
        "cut by 1 byte",
        SEGMENT,
        OPEN,
        |path| cut(path, 1),
        Expect::OutAtStart,
    ),
    fault(
        "cut by 97 bytes",
        SEGMENT,
        OPEN,
        |path| cut(path, 97),
        Expect::OutAtStart,
    ),
    fault(
        "cut by 200 bytes",
        SEGMENT,
        OPEN,
        |path| cut(path, 200),
        Expect::OutAtStart,
    ),
    fault(
        "64 random bytes behind",
        SEGMENT,
        OPEN,
        |path| append(path, &[0xA7; 64]),
        Expect::Whole,
    ),
    fault(
        "4 KiB of zeros behind",
        SEGMENT,
        OPEN,
        |path| append(path, &[0; 4096]),
        Expect::Whole,
    ),
    fault(
        "bit in the last batch",
        SEGMENT,
        OPEN,
        |path| flip_bit(path, length(path) - 50),
        Expect::OutAtStart,
    ),
    fault(
        "bit in the first batch of the last",
        SEGMENT,
        OPEN,
        |path| flip_bit(path, 20),
        Expect::OutAtStart,
    ),
    fault(
        "last one empty",
        SEGMENT,
        OPEN,
        |path| cut(path, length(path)),
        Expect::OutAtStart,
    ),
    fault(
        "last one missing",
        SEGMENT,
        OPEN,
        delete,
        Expect::OutAtStart,
    ),
    fault("last one zeroed", SEGMENT, OPEN, zero, Expect::OutAtStart),
    fault(
        "bit in the first of three",
        SEGMENT,
        0,
        |path| flip_bit(path, 400_000),
        Expect::OutWhenRead,
    ),
    fault(
        "bit in a stamp",
        SEGMENT,
        1,
        |path| flip_bit(path, 8),
        Expect::OutWhenRead,
    ),
    fault(
        "first one cut",
        SEGMENT,
        0,
        |path| cut(path, 1),
        Expect::OutWhenRead,
    ),
    fault(
        "first one empty",
        SEGMENT,
        0,
        |path| cut(path, length(path)),
        Expect::OutWhenRead,
    ),
    fault(
        "second one missing",
        SEGMENT,
        1,
        delete,
        Expect::OutWhenRead,
    ),
    fault(
        "garbage behind a full one",
        SEGMENT,
        0,
        |path| append(path, &[0x55; 300]),
        Expect::Whole,
    ),
    fault("index missing", INDEX, 0, delete, Expect::Whole),
    fault(
        "index empty",
        INDEX,
        0,
        |path| cut(path, length(path)),
        Expect::Whole,
    ),
    fault(
        "index cut to a byte",
        INDEX,
        0,
        |path| cut(path, length(path) - 1),
        Expect::Whole,
    ),
    fault(
        "index cut by a byte",
        INDEX,
        1,
        |path| cut(path, 1),
        Expect::Whole,
    ),
    fault("index zeroed", INDEX, 1, zero, Expect::Whole),
    fault(
        "bit in the index",
        INDEX,
        0,
        |path| flip_bit(path, length(path) / 2),
        Expect::Whole,
    ),
    fault(
        "index of another segment",
        INDEX,
        1,
        |path| {
            let other = path.with_file_name(format!("{:020}.index", 0));
            fs::copy(other, path).expect("copy the other index");
        },
        Expect::Whole,
    ),
];

const fn fault(
    name: &'static str,
    extension: &'static str,
    number: usize,
    apply: fn(&Path),
    expect: Expect,
) -> Fault {
    Fault {
        name,
        extension,
        number,
        apply,
        expect,
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).expect("look at the file").len()
}

fn delete(path: &Path) {
    fs::remove_file(path).expect("delete the file");
}

fn zero(path: &Path) {
    let length = usize::try_from(length(path)).expect("it is small");
    overwrite(path, 0, &vec![0; length]);
}

/// The table, on segments that the journal does not cover any more.
#[test]
fn r12_damaged_segment_takes_its_partition_out_and_a_damaged_index_is_made_again() {
    let mut fixture = Fixture::with_checkpoints(1);
    for fault in FAULTS.iter().step_by(step()) {
        let files = fixture.files(fault.extension);
        assert!(
            files.len() >= 2 && fixture.files(SEGMENT).len() == 3,
            "{files:?}"
        );
        let path = &files[fault.number];
        let before = fs::read(path).expect("read the file");
        (fault.apply)(path);
        eprintln!("---- {}: {}", fault.name, path.display());
        check(&mut fixture, fault);
        // Who puts the file back gets everything back.
        fs::write(path, before).expect("restore the file");
    }
    let server = fixture.site.start();
    let mut connection = Connection::login(server.address());
    for partition in 0..PARTITIONS {
        fixture.expect_whole(&mut connection, partition);
    }
    server.stop();
}

/// Every fault when the cases are run in full, else every third: each takes a second start.
fn step() -> usize {
    if is_full() { 1 } else { 3 }
}

fn check(fixture: &mut Fixture, fault: &Fault) {
    let server = fixture.site.start();
    let mut connection = Connection::login(server.address());
    if fault.expect == Expect::Whole {
        fixture.expect_whole(&mut connection, 0);
        assert_eq!(server.log().find("out of service"), None, "{}", fault.name);
    } else {
        let is_told = || server.log().wait_for("partition is out of service");
        if fault.expect == Expect::OutAtStart {
            assert!(is_told().is_some());
        }
        let refused = fixture.read(&mut connection, 0).expect_err(fault.name);
        assert_eq!(refused.code, ErrorCode::PartitionDamaged, "{}", fault.name);
        let said = is_told().expect("it is said");
        let topic = &fixture.topic;
        let partition = format!("partition={}/{}/0", topic.stream, topic.id);
        let group = format!("group={}", topic.partitions[0].group);
        for part in [&partition, &group] {
            assert!(said.contains(part), "{}: no {part} in {said}", fault.name);
        }
        // It stays so, and what is not in its segments is not touched.
        let refused = fixture.read(&mut connection, 0).expect_err(fault.name);
        assert_eq!(refused.code, ErrorCode::PartitionDamaged, "{}", fault.name);
        fixture.expect_stored(&mut connection, 0);
        // What could not be read is not taken either.
        let appended = connection.append(&fixture.topic, 0, &[Bytes::from("lost")]);
        let refused = appended.expect_err(fault.name);
        assert_eq!(refused.code, ErrorCode::PartitionDamaged, "{}", fault.name);
    }
    let neighbour = fixture.neighbour();
    fixture.append(&mut connection, neighbour);
    fixture.expect_whole(&mut connection, neighbour);
    // A connection that stays open is lingered for.
    drop(connection);
    server.stop();
}

/// Damages the segments of a partition.
type Apply = fn(&[PathBuf]);

/// The same damage, and worse, while the journal still holds every message: nothing is lost, nobody notices.
#[test]
fn r12_segments_that_the_journal_covers_are_written_again_whatever_became_of_them() {
    let mut fixture = Fixture::without_checkpoints();
    let segments = fixture.files(SEGMENT);
    let faults: [(&str, Apply); 6] = [
        ("last one cut", |files| cut(&files[OPEN], 97)),
        ("last one grown", |files| append(&files[OPEN], &[0xA7; 64])),
        ("bits in all", |files| {
            files.iter().for_each(|file| flip_bit(file, 400_000));
        }),
        ("all empty", |files| {
            files.iter().for_each(|file| cut(file, length(file)))
        }),
        ("all missing", |files| {
            files.iter().for_each(|file| delete(file))
        }),
        ("directory missing", |files| {
            let directory = files[0].parent().expect("files lie in a directory");
            fs::remove_dir_all(directory).expect("delete the directory");
        }),
    ];
    for (name, apply) in faults.into_iter().step_by(step()) {
        apply(&segments);
        eprintln!("---- {name}");
        let server = fixture.site.start();
        let mut connection = Connection::login(server.address());
        for partition in 0..PARTITIONS {
            fixture.expect_whole(&mut connection, partition);
        }
        fixture.append(&mut connection, 0);
        assert_eq!(server.log().find("out of service"), None, "{name}");
        drop(connection);
        server.stop();
    }
}

/// Strange files: named or not, they are left alone and change nothing.
#[test]
fn r12_stray_files_are_left_alone() {
    let fixture = Fixture::without_checkpoints();
    let partition = fixture.files(SEGMENT)[0].clone();
    let in_partition = |name: &str| partition.with_file_name(name);
    let data = fixture.site.data();
    let strays = [
        data.join("notes.txt"),
        data.join("journal/notes.txt"),
        data.join("group-1/notes.txt"),
        data.join("group-1/snapshot-x"),
        in_partition("notes.txt"),
        // Where segments would be whose messages do not exist.
        in_partition("00000000000000009999.segment"),
        in_partition("00000000000000009999.index"),
        in_partition("00000000000000000000.segment.old"),
    ];
    for path in &strays {
        fs::write(path, "not ours").expect("write a file");
    }
    let server = fixture.site.start();
    let mut connection = Connection::login(server.address());
    for partition in 0..PARTITIONS {
        fixture.expect_whole(&mut connection, partition);
    }
    drop(connection);
    server.stop();
    for path in &strays {
        assert_eq!(
            fs::read(path).expect("it is there"),
            b"not ours",
            "{}",
            path.display()
        );
    }
}

/// Deleting what others read, and write: each gets an answer, nobody takes a shard down, and the server
/// starts again. Retention deletes the same way, and has no command yet.
#[test]
fn r12_deletion_under_polls_and_sends_takes_no_shard_down() {
    let site = Site::new();
    let mut server = site.start();
    let mut admin = Connection::login(server.address());
    for round in 0..repetitions(3, 30) {
        let name = format!("orders-{round}");
        let topic = admin.create_topic(&name, 4);
        let megabyte = vec![Bytes::from(vec![9; 1_000]); 1_000];
        for partition in 0..4 {
            for _ in 0..2 {
                let appended = admin.append(&topic, partition, &megabyte);
                appended.expect("it is appended");
            }
        }
        std::thread::scope(|scope| {
            for number in 0..6 {
                let mut connection = admin.attach();
                let topic = &topic;
                scope.spawn(move || use_until_gone(&mut connection, topic, number));
            }
            // The partitions one after the other, then everything.
            for _ in 0..3 {
                let request = wire::DeletePartitions {
                    stream: topic.stream.into(),
                    topic: topic.id.into(),
                    count: 1,
                };
                admin.ask(request).expect("it is deleted");
            }
            let stream = topic.stream.into();
            admin
                .ask(wire::DeleteStream { stream })
                .expect("it is deleted");
        });
        admin.ping();
    }
    // Files go when a checkpoint no longer rests on them.
    let filler = admin.create_topic("filler", 2);
    let own = format!("/{}-", filler.stream);
    let deleted = |path: &str| path.ends_with(".segment") && !path.contains(&own);
    let megabyte = [Bytes::from(vec![7; 1 << 20])];
    let mut partition = 0;
    until("the files are deleted", || {
        partition = 1 - partition;
        let appended = admin.append(&filler, partition, &megabyte);
        appended.expect("it is appended");
        site.files(deleted).is_empty().then_some(())
    });
    drop(admin);
    server.stop();
    server = site.start();
    Connection::login(server.address()).create_topic("orders", 1);
    server.stop();
}

/// Reads from the oldest message, or appends, until the topic is gone.
fn use_until_gone(connection: &mut Connection, topic: &TopicDetails, number: u32) {
    let payload = [Bytes::from(vec![1; 1_000])];
    let mut partition = number % 4;
    loop {
        let outcome = if number.is_multiple_of(2) {
            let page = connection.poll(topic, partition, PollStrategy::First);
            page.map(|_| ())
        } else {
            connection.append(topic, partition, &payload).map(|_| ())
        };
        match outcome.map_err(|failure| failure.code) {
            Ok(()) | Err(ErrorCode::Retry) => {}
            Err(ErrorCode::PartitionNotFound) => partition = 0,
            Err(ErrorCode::StreamNotFound | ErrorCode::TopicNotFound) => return,
            Err(other) => panic!("{other:?}"),
        }
    }
}
