//! Bytes of segments that are not what was appended.

use proptest::prelude::*;

use super::*;
use crate::{Damage, SegmentFile, SegmentProblem, Verdict, verify};

/// A segment of `count` batches of random sizes below `size`, with what is replicated of it.
fn segment(count: u8, size: usize) -> (SegmentFile, Vec<u8>, DataGroup) {
    let mut node = Node::with_partition(DataConfig {
        tail_budget: 0,
        segment_size: u64::MAX,
        ..config()
    });
    for index in 0..count {
        node.append(batch_of_size(usize::from(index) * 37 % size, index));
    }
    node.settle();
    let file = files_at(&node.group.snapshot())[0];
    let bytes = node.files.segments[&file.id].clone();
    (file, bytes, node.group)
}

fn damage_of(file: &SegmentFile, bytes: &[u8]) -> Option<Damage> {
    match verify(file, &Bytes::copy_from_slice(bytes)) {
        Verdict::Whole(_) => None,
        Verdict::Damaged(damage) => Some(damage),
    }
}

#[test]
fn whole_segment_is_found_whole() {
    let (file, bytes, _) = segment(20, 300);
    assert_eq!(damage_of(&file, &bytes), None);
}

#[test]
fn what_is_behind_the_length_is_not_looked_at() {
    let (file, mut bytes, _) = segment(5, 300);
    bytes.extend_from_slice(&[0xaa; 64]);
    assert_eq!(damage_of(&file, &bytes), None);
}

#[test]
fn segment_cut_anywhere_is_found_at_its_last_whole_batch() {
    let (file, bytes, _) = segment(5, 300);
    let mut ends = alloc::vec![0];
    while let Ok(header) = Batch::read_header(&bytes[*ends.last().expect("never empty")..]) {
        ends.push(ends.last().expect("never empty") + header.size as usize);
    }
    for length in 0..bytes.len() {
        let damage = damage_of(&file, &bytes[..length]).expect("cut");
        let whole = ends.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(damage.position, ends[whole] as u64);
        assert_eq!(damage.offset, Offset(whole as u64));
        let length = length as u64;
        assert_eq!(damage.problem, SegmentProblem::Short { length });
    }
}

#[test]
fn batches_in_another_order_and_zeros_are_found() {
    let (file, bytes, _) = segment(3, 1);
    let size = bytes.len() / 3;
    let swapped = [&bytes[..size], &bytes[2 * size..], &bytes[size..2 * size]].concat();
    let damage = damage_of(&file, &swapped).expect("swapped");
    assert_eq!(damage.position, size as u64);
    let found = Offset(2);
    assert_eq!(damage.problem, SegmentProblem::Offset { found });
    let mut zeros = bytes;
    zeros[size..].fill(0);
    assert_eq!(
        damage_of(&file, &zeros).map(|damage| damage.position),
        Some(size as u64)
    );
}

#[test]
fn good_batches_that_were_never_appended_are_found() {
    let (file, _, _) = segment(3, 1);
    let forged: Vec<_> = (0..3)
        .flat_map(|index| {
            let batch = batch_of_size(0, 0).stamped(Offset(index), Timestamp(5 + index));
            batch.to_bytes().to_vec()
        })
        .collect();
    let damage = damage_of(&file, &forged).expect("forged");
    assert!(matches!(damage.problem, SegmentProblem::Foreign { .. }));
}

#[test]
fn time_that_falls_is_found() {
    let (file, bytes, _) = segment(2, 1);
    let first = &bytes[..bytes.len() / 2];
    let older = batch_of_size(0, 1).stamped(Offset(1), Timestamp(1));
    let damage = damage_of(&file, &[first, &older.to_bytes()].concat()).expect("falls");
    let found = Timestamp(1);
    assert_eq!(damage.problem, SegmentProblem::Time { found });
    assert_eq!(damage.position, first.len() as u64);
}

#[test]
fn segment_larger_than_one_read_is_scanned_piece_by_piece() {
    let mut node = Node::with_partition(DataConfig {
        tail_budget: 0,
        ..config()
    });
    for size in [700_000, 700_000, 3_000_000, 10, 20, 1_500_000] {
        node.append(batch_of_size(size, 1));
    }
    node.settle();
    let file = files_at(&node.group.snapshot())[0];
    let mut scan = Scan::new(&file);
    let mut reads = 0;
    while let Some(range) = scan.next_read() {
        assert!(range.length <= 3_100_000);
        scan.feed(&slice(&node.files.segments[&file.id], range));
        reads += 1;
    }
    assert!(reads > 3);
    assert!(matches!(scan.finish(), Verdict::Whole(_)));
    let mut scan = Scan::new(&file);
    scan.fail();
    let Verdict::Damaged(damage) = scan.finish() else {
        panic!("the file cannot be read");
    };
    assert_eq!(damage.problem, SegmentProblem::Unreadable);
}

#[test]
fn segment_is_judged_as_far_as_it_is_written() {
    let mut node = Node::with_partition(config());
    node.send("a");
    let snapshot = node.checkpoint();
    for forged in [false, true] {
        node.restart(&snapshot, &[]);
        node.group = DataGroup::restore(config(), snapshot.clone()).expect("sound");
        node.send("b");
        let id = files_at(&snapshot)[0].id;
        if forged {
            let other = batch_of(&["c"], 0, 0).stamped(Offset(0), Timestamp(1_020));
            node.files.segments.insert(id, other.to_bytes().to_vec());
        }
        let mut scan = node.group.scan(id).expect("the segment is there");
        node.files.scan(&mut scan);
        let verdict = scan.finish();
        let foreign = |verdict: &Verdict| {
            matches!(verdict, Verdict::Damaged(damage)
                if matches!(damage.problem, SegmentProblem::Foreign { .. }))
        };
        assert_eq!(foreign(&verdict), forged);
    }
}

/// Two partitions of three written segments each.
fn two_partitions() -> Node {
    let mut node = Node::with_partition(DataConfig {
        tail_budget: 0,
        segment_size: 1_000,
        ..config()
    });
    node.create(1);
    for index in 0..6 {
        node.apply(&[
            append(0, batch_of_size(300, index)),
            append(1, batch_of_size(300, index)),
        ]);
    }
    node.settle();
    assert_eq!(node.group.segments(key(0)).len(), 3);
    node
}

/// Flips a bit in the second segment of partition 0.
fn rot(node: &mut Node) -> SegmentId {
    let id = files_at(&node.group.snapshot())[1].id;
    let file = node.files.segments.get_mut(&id).expect("written");
    file[500] ^= 0x10;
    id
}

// Field case R12.
#[test]
fn damage_takes_its_partition_out_of_service_and_no_other() {
    let mut node = two_partitions();
    let before = node.group.digest();
    let segment = rot(&mut node);
    assert_eq!(
        node.poll(PollStrategy::First).expect("not read yet").next,
        Offset(2)
    );
    let error = node
        .poll(PollStrategy::Offset(Offset(2)))
        .expect_err("rotten");
    assert_eq!(error.code(), wire::ErrorCode::PartitionDamaged);
    assert!(error.to_string().contains("segment 2"));
    for strategy in [PollStrategy::First, PollStrategy::Last, PollStrategy::Next] {
        let error = node.poll(strategy).expect_err("out of service");
        assert_eq!(error.code(), wire::ErrorCode::PartitionDamaged);
    }
    let damaged: Vec<_> = node.group.damaged().map(|(segment, _)| segment).collect();
    assert_eq!(damaged, [segment]);
    assert_eq!(node.group.digest(), before);
    let query = query(PollStrategy::First, "reader");
    assert_eq!(
        node.read(key(1), FIRST, &query).expect("served").next,
        Offset(2)
    );
}

#[test]
fn damaged_partition_goes_on_taking_what_is_committed() {
    let mut node = two_partitions();
    let mut healthy = two_partitions();
    rot(&mut node);
    node.poll(PollStrategy::Offset(Offset(2)))
        .expect_err("rotten");
    for node in [&mut node, &mut healthy] {
        assert_eq!(node.send("x"), Offset(6));
        node.store("c", 6);
        node.settle();
    }
    assert_eq!(node.group.digest(), healthy.group.digest());
}

#[test]
fn damaged_partition_admits_no_batch_and_everything_else() {
    let mut node = two_partitions();
    let batch = || batch_of(&["x"], 0, 0);
    assert_eq!(node.group.admit(&append(0, batch())), Ok(()));
    rot(&mut node);
    node.poll(PollStrategy::Offset(Offset(2)))
        .expect_err("rotten");
    let refused = node.group.admit(&append(0, batch())).expect_err("damaged");
    assert_eq!(refused.code(), wire::ErrorCode::PartitionDamaged);
    assert_eq!(node.group.admit(&append(1, batch())), Ok(()));
    // Nothing is known of it: that is told when it is applied.
    assert_eq!(node.group.admit(&append(9, batch())), Ok(()));
    let store = DataRequest::StoreOffset {
        key: key(0),
        incarnation: FIRST,
        admitted: Op(7),
        consumer: "c".into(),
        offset: Offset(1),
    };
    assert_eq!(node.group.admit(&store), Ok(()));
    node.truncate(4);
    assert_eq!(node.group.admit(&append(0, batch())), Ok(()));
}

#[test]
fn removal_of_the_damaged_segment_puts_the_partition_back_into_service() {
    let mut node = two_partitions();
    rot(&mut node);
    node.poll(PollStrategy::Offset(Offset(2)))
        .expect_err("rotten");
    node.truncate(3);
    node.poll(PollStrategy::Offset(Offset(4)))
        .expect_err("the segment is still there");
    node.truncate(4);
    assert_eq!(
        node.poll(PollStrategy::First).expect("served").from,
        Offset(4)
    );
    assert_eq!(node.group.damaged().count(), 0);
}

#[test]
fn file_that_is_missing_or_too_short_is_damage() {
    for short in [false, true] {
        let mut node = two_partitions();
        let id = files_at(&node.group.snapshot())[1].id;
        if short {
            node.files
                .segments
                .get_mut(&id)
                .expect("written")
                .truncate(700);
        } else {
            node.files.segments.remove(&id);
        }
        let error = node
            .poll(PollStrategy::Offset(Offset(2)))
            .expect_err("damaged");
        let PollError::Damaged { segment, damage } = error else {
            panic!("{error}");
        };
        assert_eq!(segment, id);
        let length = 700;
        let expected = if short {
            SegmentProblem::Short { length }
        } else {
            SegmentProblem::Unreadable
        };
        assert_eq!(damage.problem, expected);
    }
}

#[test]
fn damage_of_a_segment_that_is_not_there_marks_nothing() {
    let mut node = two_partitions();
    let id = rot(&mut node);
    let problem = SegmentProblem::Unreadable;
    let (position, offset) = (0, Offset(2));
    let damage = Damage {
        position,
        offset,
        problem,
    };
    let others = [
        SegmentId {
            base: Offset(1),
            ..id
        },
        SegmentId {
            incarnation: Incarnation(8),
            ..id
        },
        SegmentId {
            partition: key(5),
            ..id
        },
        SegmentId {
            group: ConsensusGroup(4),
            ..id
        },
    ];
    for other in others {
        node.group.mark_damaged(other, damage.clone());
        assert!(node.group.scan(other).is_none());
    }
    assert_eq!(node.group.damaged().count(), 0);
}

// Field cases R12 and R29.
#[test]
fn cut_file_is_found_at_start_and_its_offsets_are_not_given_out_again() {
    let mut node = two_partitions();
    let snapshot = node.checkpoint();
    let last = files_at(&snapshot)[2].id;
    node.files
        .segments
        .get_mut(&last)
        .expect("written")
        .truncate(450);
    node.restart(&snapshot, &[]);
    node.poll(PollStrategy::Last).expect_err("damaged");
    assert_eq!(node.group.end(key(0)), Some(Offset(6)));
    assert_eq!(node.send("x"), Offset(6));
    let query = query(PollStrategy::First, "reader");
    assert_eq!(
        node.read(key(1), FIRST, &query).expect("served").next,
        Offset(2)
    );
}

#[test]
fn index_whose_entries_lead_astray_is_not_taken_though_its_checksum_is_right() {
    let config = DataConfig {
        segment_size: 300_000,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for index in 0..20 {
        node.append(batch_of_size(30_000, index));
    }
    node.settle();
    let segment = node.group.segments(key(0))[0];
    let file = node
        .files
        .indexes
        .first_key_value()
        .expect("a full segment");
    let file = file.1.to_vec();
    let decode = |bytes: &[u8]| crate::Index::decode(&Bytes::copy_from_slice(bytes), &segment);
    assert!(decode(&file).is_ok());
    // Where the entries begin, behind the header; each is offset, time and position.
    let entries = 44;
    for (at, value) in [(0, 1), (8, 1), (16, 1), (24, 0), (32, 0), (40, 0)] {
        for value in [value, u64::MAX] {
            let at = entries + at;
            let mut bytes = file.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let end = bytes.len() - 8;
            let checksum = wire::checksum64(&bytes[..end]);
            bytes[end..].copy_from_slice(&checksum.to_le_bytes());
            assert!(decode(&bytes).is_err(), "{value} at byte {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// One change of any kind is found in or before the batch that it is in.
    #[test]
    fn any_change_of_a_segment_is_found(
        at in any::<prop::sample::Index>(),
        change in prop_oneof![(1..=255_u8).prop_map(Some), Just(None)],
        run in 1..200_usize,
    ) {
        let (file, mut bytes, mut group) = segment(12, 300);
        let at = at.index(bytes.len());
        match change {
            Some(bits) => bytes[at] ^= bits,
            None => {
                let end = bytes.len().min(at + run);
                let same = bytes[at..end].iter().all(|byte| *byte == 0xee);
                prop_assume!(!same);
                bytes[at..end].fill(0xee);
            }
        }
        let damage = damage_of(&file, &bytes).expect("changed");
        prop_assert!(damage.position <= at as u64);
        // A read that serves the changed bytes finds it as well, whatever it asks for.
        let mut found = false;
        for offset in 0..12 {
            let strategy = PollStrategy::Offset(Offset(offset));
            let mut read = group.read(key(0), FIRST, &query(strategy, "reader"));
            while let Ok(Read::File(file)) = read {
                let range = Range { position: file.position, length: file.length };
                let bytes = slice(&bytes, range);
                read = group.finish_read(file, Some(&bytes));
            }
            found |= read.is_err();
        }
        prop_assert!(found);
    }

    #[test]
    fn garbage_is_damage_and_never_a_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        head in any::<bool>(),
    ) {
        let (file, good, _) = segment(8, 300);
        if head {
            // Garbage behind a header that looks right.
            bytes.splice(..0, good[..100].iter().copied());
        }
        prop_assert!(damage_of(&file, &bytes).is_some());
    }

    #[test]
    fn garbage_in_an_index_file_is_never_taken(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut node = two_partitions();
        let (id, file) = node.files.indexes.first_key_value().expect("a full segment");
        let (id, mut bytes) = (*id, file.to_vec());
        let segment = node.group.segments(id.partition)[0];
        for (at, bits) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        bytes.truncate(length.index(bytes.len()) + 1);
        let same = bytes == file.to_vec();
        prop_assume!(!same);
        prop_assert!(crate::Index::decode(&Bytes::from(bytes), &segment).is_err());
        node.settle();
    }
}
