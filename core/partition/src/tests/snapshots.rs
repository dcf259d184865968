//! Snapshots, and starts from them.

use super::*;
use crate::{
    GroupSnapshot, PartitionSnapshot, ProducerSnapshot, SNAPSHOT_VERSION, Segment, SnapshotError,
};

/// Consumer groups that have stored something, start at an offset, at a time, and nowhere yet.
fn groups() -> Vec<GroupSnapshot> {
    let group = |group, fence, member| GroupSnapshot {
        group: ConsumerGroupId(group),
        fence: Epoch(fence),
        member: MemberId(member),
        session: SessionNumber(member * 100),
        stored: None,
        start: None,
        start_time: None,
    };
    alloc::vec![
        GroupSnapshot {
            stored: Some(Offset(39)),
            ..group(1, 20, 3)
        },
        GroupSnapshot {
            start: Some(Offset(40)),
            ..group(2, 21, 4)
        },
        GroupSnapshot {
            start_time: Some(Timestamp(1_060)),
            ..group(4, u64::MAX, 1)
        },
        group(u64::MAX, 22, 0),
    ]
}

/// The state as a program wrote it that knew no consumer groups.
fn former() -> DataSnapshot {
    let mut former = example();
    former.version = 1;
    former.partitions[0].groups.clear();
    former
}

/// A state in which every field says something.
fn example() -> DataSnapshot {
    let segment = |base, messages, time, checksum| Segment {
        base: Offset(base),
        length: messages * 200,
        messages,
        first_timestamp: Timestamp(time),
        last_timestamp: Timestamp(time + 50),
        checksum,
    };
    DataSnapshot {
        version: 2,
        group: ConsensusGroup(3),
        op: Op(77),
        dropped: Op(12),
        partitions: alloc::vec![
            PartitionSnapshot {
                key: key(0),
                incarnation: Incarnation(7),
                start: Offset(11),
                next: Offset(40),
                segments: alloc::vec![
                    segment(10, 10, 1_000, 0x0123_4567_89ab_cdef),
                    segment(20, 20, 1_050, u64::MAX),
                ],
                producers: alloc::vec![
                    ProducerSnapshot {
                        id: ProducerId(1),
                        sequence: 9,
                        batches: alloc::vec![(Offset(10), 5), (Offset(30), 6)],
                    },
                    ProducerSnapshot {
                        id: ProducerId(u128::MAX),
                        sequence: 1,
                        batches: alloc::vec![(Offset(31), 7)],
                    },
                ],
                consumers: alloc::vec![("a".to_string(), Offset(0)), ("b".to_string(), Offset(39))],
                groups: groups(),
            },
            PartitionSnapshot {
                key: key(1),
                incarnation: Incarnation(13),
                start: Offset(0),
                next: Offset(0),
                segments: Vec::new(),
                producers: Vec::new(),
                consumers: Vec::new(),
                groups: Vec::new(),
            },
        ],
    }
}

/// Released snapshots stay readable: this file is never written again.
const FORMER: &[u8] = include_bytes!("../../fixtures/snapshot-1.rmp");

/// What is written now; never written again once a program was released that writes it.
const GOLDEN: &[u8] = include_bytes!("../../fixtures/snapshot-2.rmp");

#[test]
fn snapshot_of_version_1_is_read_as_it_was_written() {
    let read: DataSnapshot = rmp_serde::from_slice(FORMER).expect("a snapshot");
    assert_eq!(read, former());
    let group = DataGroup::restore(config(), read).expect("sound");
    assert_eq!(group.digest(), FORMER_DIGEST);
    assert_eq!(group.group_records(key(0)).count(), 0);
}

#[test]
fn snapshot_of_version_2_is_read_as_it_was_written() {
    let read: DataSnapshot = rmp_serde::from_slice(GOLDEN).expect("a snapshot");
    assert_eq!(read, example());
}

#[test]
fn snapshot_is_written_as_version_2() {
    assert_eq!(SNAPSHOT_VERSION, 2);
    assert_eq!(rmp_serde::to_vec(&example()).expect("in memory"), GOLDEN);
}

#[test]
fn digest_stays_as_it_is() {
    assert_eq!(former().digest(), FORMER_DIGEST);
    assert_eq!(example().digest(), DIGEST);
}

/// Of the example.
const DIGEST: u128 = 319_832_140_365_580_027_360_222_955_686_360_394_452;

/// Of the example without consumer groups.
const FORMER_DIGEST: u128 = 46_528_967_732_171_385_966_861_714_075_327_530_297;

#[test]
fn restored_state_is_the_same_state() {
    let group = DataGroup::restore(config(), example()).expect("sound");
    assert_eq!(group.snapshot(), example());
    assert_eq!(group.digest(), example().digest());
    assert_eq!(group.stored(key(0), "b"), Some(Offset(39)));
    assert_eq!(group.dropped(), Op(12));
}

#[test]
fn files_of_a_snapshot_are_its_segments_and_the_last_of_each_partition_is_open() {
    let files = files_at(&example());
    let found: Vec<_> = files
        .iter()
        .map(|file| (file.id.base.0, file.segment.length, file.open))
        .collect();
    assert_eq!(found, [(10, 2_000, false), (20, 4_000, true)]);
    let id = SegmentId {
        group: ConsensusGroup(3),
        partition: key(0),
        incarnation: Incarnation(7),
        base: Offset(10),
    };
    assert_eq!(files[0].id, id);
}

#[test]
fn contradictory_snapshots_are_refused() {
    type Change = fn(&mut DataSnapshot);
    let changes: [(Change, &str); 23] = [
        (|s| s.partitions.swap(0, 1), "order of keys"),
        (|s| s.partitions[1].key = key(0), "order of keys"),
        (|s| s.partitions[0].start = Offset(41), "start is behind"),
        (|s| s.partitions[0].start = Offset(9), "not in the first"),
        (|s| s.partitions[0].start = Offset(20), "not in the first"),
        (|s| s.partitions[0].next = Offset(41), "do not reach"),
        (|s| s.partitions[1].next = Offset(1), "in no segment"),
        (|s| s.partitions[0].segments[1].base = Offset(21), "hole"),
        (|s| s.partitions[0].segments[0].length = 0, "empty"),
        (
            |s| s.partitions[0].segments[1].messages = u64::MAX,
            "overflow",
        ),
        (
            |s| s.partitions[0].segments[1].first_timestamp = Timestamp(0),
            "times fall",
        ),
        (|s| s.partitions[0].producers.swap(0, 1), "order of ids"),
        (
            |s| s.partitions[0].producers[0].batches.clear(),
            "do not fit",
        ),
        (
            |s| s.partitions[0].producers[1].batches[0].0 = Offset(30),
            "one batch",
        ),
        (
            |s| s.partitions[0].consumers[0].1 = Offset(40),
            "beyond the end",
        ),
        (|s| s.partitions[0].groups.swap(1, 2), "order of ids"),
        (
            |s| s.partitions[0].groups[1].group = ConsumerGroupId(1),
            "order of ids",
        ),
        (|s| s.partitions[0].groups[0].fence = Epoch(0), "no fence"),
        (
            |s| s.partitions[0].groups[0].member = MemberId(0),
            "no member",
        ),
        (
            |s| s.partitions[0].groups[0].start = Some(Offset(1)),
            "two places",
        ),
        (
            |s| s.partitions[0].groups[1].start_time = Some(Timestamp(1)),
            "two places",
        ),
        (
            |s| s.partitions[0].groups[0].stored = Some(Offset(40)),
            "stored offset is beyond",
        ),
        (
            |s| s.partitions[0].groups[1].start = Some(Offset(41)),
            "start is beyond",
        ),
    ];
    for (change, what) in changes {
        let mut snapshot = example();
        change(&mut snapshot);
        let error = DataGroup::restore(config(), snapshot).expect_err(what);
        assert!(
            error.to_string().contains(what),
            "{error} is not about {what}"
        );
    }
}

#[test]
fn newer_version_and_another_group_are_refused() {
    let mut newer = example();
    newer.version = 3;
    let error = DataGroup::restore(config(), newer).err();
    assert_eq!(error, Some(SnapshotError::Version { version: 3 }));
    let other = DataConfig::new(ConsensusGroup(4));
    let (found, wanted) = (ConsensusGroup(3), ConsensusGroup(4));
    let error = DataGroup::restore(other, example()).err();
    assert_eq!(error, Some(SnapshotError::Group { found, wanted }));
}

// Field case R29.
#[test]
fn next_offset_comes_from_snapshot_and_journal_and_not_from_files() {
    let mut node = Node::with_partition(config());
    node.send("a");
    let snapshot = node.checkpoint();
    let journal = (
        node.op + 1,
        node.time + 10,
        encode_requests(&[append(0, batch_of(&["b"], 0, 0))]),
    );
    node.send("b");
    let digest = node.group.digest();
    // The append of "b" is lost, and then again everything is longer than it should be.
    node.queue.clear();
    node.restart(&snapshot, core::slice::from_ref(&journal));
    assert_eq!(node.group.digest(), digest);
    assert_eq!(node.texts(PollStrategy::First), ["a", "b"]);
    node.settle();
    for file in node.files.segments.values_mut() {
        file.extend_from_slice(&[1; 100]);
    }
    node.restart(&snapshot, &[journal]);
    assert_eq!(node.group.digest(), digest);
    assert_eq!(node.send("c"), Offset(2));
    node.settle();
    assert_eq!(node.texts(PollStrategy::First), ["a", "b", "c"]);
}

#[test]
fn segment_that_is_closed_after_a_start_has_its_index() {
    let config = DataConfig {
        tail_budget: 0,
        index_budget: 0,
        segment_size: 1_000,
        ..config()
    };
    let mut node = Node::with_partition(config);
    node.append(batch_of_size(300, 0));
    let snapshot = node.checkpoint();
    node.restart(&snapshot, &[]);
    for index in 1..5 {
        node.append(batch_of_size(300, index));
    }
    node.settle();
    assert_eq!(node.group.segments(key(0)).len(), 3);
    assert_eq!(node.files.indexes.len(), 2);
}

#[test]
fn partition_whose_open_segment_was_not_verified_is_served_all_the_same() {
    let config = DataConfig {
        tail_budget: 0,
        segment_size: 1_000,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for index in 0..5 {
        node.append(batch_of_size(300, index));
    }
    let snapshot = node.checkpoint();
    node.group = DataGroup::restore(config, snapshot).expect("sound");
    for index in 5..9 {
        node.append(batch_of_size(300, index));
        for offset in 0..=u64::from(index) {
            let answer = node
                .poll(PollStrategy::Offset(Offset(offset)))
                .expect("served");
            assert_eq!(answer.from, Offset(offset));
            let answer = node.poll(PollStrategy::Timestamp(Timestamp(1_020 + offset * 10)));
            assert_eq!(answer.expect("served").from, Offset(offset));
        }
    }
}

#[test]
#[should_panic(expected = "op > self.restored")]
fn an_op_of_the_snapshot_is_not_applied_again() {
    let mut node = Node::with_partition(config());
    let snapshot = node.checkpoint();
    let journal = (
        node.op,
        node.time,
        encode_requests(&[append(0, batch_of(&["a"], 0, 0))]),
    );
    node.restart(&snapshot, &[journal]);
}
