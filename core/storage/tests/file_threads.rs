//! The file threads of a shard on a real directory.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use bytes::Bytes;
use storage::{Done, Error, FileKind, FileThreads, Job, SegmentName, Snapshots};
use tempfile::TempDir;
use wire::{ConsensusGroup, Incarnation, Offset, Op, PartitionId, PartitionKey, StreamId, TopicId};

const GROUP: ConsensusGroup = ConsensusGroup(1);

fn start() -> (TempDir, FileThreads, Receiver<Done>) {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let (sender, done) = channel();
    let answer = Arc::new(move |done| sender.send(done).expect("the test listens"));
    let fatal = Arc::new(|error: Error| panic!("{error}"));
    let threads =
        FileThreads::start(directory.path(), 0, answer, fatal).expect("threads can be started");
    (directory, threads, done)
}

fn name(base: u64) -> SegmentName {
    let partition = PartitionKey {
        stream: StreamId(1),
        topic: TopicId(1),
        partition: PartitionId(0),
    };
    SegmentName {
        group: GROUP,
        partition,
        incarnation: Incarnation(1),
        base: Offset(base),
    }
}

fn next(done: &Receiver<Done>) -> Done {
    done.recv_timeout(Duration::from_secs(60))
        .expect("the threads go on")
}

fn append(threads: &FileThreads, ticket: u64, base: u64, text: &'static str) {
    let pieces = vec![Bytes::from_static(text.as_bytes())];
    threads.submit(Job::Append {
        ticket,
        segment: name(base),
        position: 0,
        pieces,
    });
}

fn wait_for_change(done: &Receiver<Done>, wanted: u64) {
    loop {
        match next(done) {
            Done::Changed { ticket } if ticket == wanted => return,
            Done::Changed { ticket } => assert!(ticket < wanted),
            other => panic!("{other:?}"),
        }
    }
}

fn read(threads: &FileThreads, done: &Receiver<Done>, base: u64) -> Result<Bytes, Error> {
    let (segment, kind) = (name(base), FileKind::Segment);
    threads.submit(Job::Read {
        ticket: 99,
        segment,
        kind,
        position: 0,
        length: 100,
    });
    match next(done) {
        Done::Read { ticket: 99, result } => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn changes_are_told_in_order_and_can_be_read_then() {
    let (_directory, threads, done) = start();
    for ticket in 1..=50 {
        append(&threads, ticket, ticket, "messages");
    }
    wait_for_change(&done, 50);
    for base in 1..=50 {
        assert_eq!(
            read(&threads, &done, base).expect("it was written"),
            "messages"
        );
    }
    threads.submit(Job::Flush {
        ticket: 7,
        segments: vec![name(1), name(50), name(51)],
    });
    assert!(matches!(next(&done), Done::Flushed { ticket: 7 }));
}

#[test]
fn deleted_partition_is_gone_for_readers_too() {
    let (_directory, threads, done) = start();
    append(&threads, 1, 1, "messages");
    wait_for_change(&done, 1);
    assert_eq!(
        read(&threads, &done, 1).expect("it was written"),
        "messages"
    );
    let SegmentName {
        group,
        partition,
        incarnation,
        ..
    } = name(1);
    threads.submit(Job::DeletePartition {
        ticket: 2,
        group,
        partition,
        incarnation,
    });
    wait_for_change(&done, 2);
    assert!(
        read(&threads, &done, 1)
            .expect_err("it is gone")
            .is_missing()
    );
}

#[test]
fn snapshot_is_on_the_disk_when_it_is_told() {
    let (directory, threads, done) = start();
    let encode = Box::new(|| b"state".to_vec());
    threads.submit(Job::Snapshot {
        group: GROUP,
        op: Op(5),
        encode,
    });
    assert!(matches!(
        next(&done),
        Done::SnapshotWritten {
            group: GROUP,
            op: Op(5)
        }
    ));
    let (newest, damaged) = Snapshots::new(directory.path())
        .newest(GROUP)
        .expect("it can be read");
    assert_eq!(
        newest.map(|snapshot| snapshot.payload),
        Some(Bytes::from_static(b"state"))
    );
    assert!(damaged.is_empty());
}
