//! Reads by every strategy, from memory and from files.

use super::*;
use crate::{Absent, index::INDEX_INTERVAL};

/// Batches of three messages each, `count` of them, at times 1,020, 1,030, ….
fn with_batches(config: DataConfig, count: u64) -> Node {
    let mut node = Node::with_partition(config);
    for batch in 0..count {
        let texts = [0, 1, 2].map(|index| (batch * 3 + index).to_string());
        let payloads = texts.each_ref().map(String::as_str);
        node.append(batch_of(&payloads, 0, 0));
    }
    node
}

/// Nothing is kept in memory that is written, and every segment holds two batches.
fn from_files() -> DataConfig {
    DataConfig {
        tail_budget: 0,
        segment_size: 2 * u64::from(batch_of(&["10", "11", "12"], 0, 0).header.size),
        ..config()
    }
}

fn written(count: u64) -> Node {
    let mut node = with_batches(from_files(), count);
    node.settle();
    assert_eq!(node.group.memory(), 0);
    node
}

fn at(time: u64) -> PollStrategy {
    PollStrategy::Timestamp(Timestamp(time))
}

fn offset(offset: u64) -> PollStrategy {
    PollStrategy::Offset(Offset(offset))
}

/// What a poll with limits delivers: the first message wanted, and the offset behind the last.
fn limited(
    node: &mut Node,
    strategy: PollStrategy,
    max_messages: u32,
    max_bytes: u32,
) -> (u64, u64) {
    let query = ReadQuery {
        strategy,
        consumer: "reader",
        max_messages,
        max_bytes,
    };
    let answer = node.read(key(0), FIRST, &query).expect("served");
    assert!(!stored_batches(&answer).is_empty());
    (answer.from.0, answer.next.0)
}

#[test]
fn unwritten_batches_are_served_from_memory() {
    let mut node = with_batches(from_files(), 4);
    assert_eq!(
        node.texts(offset(4)),
        ["4", "5", "6", "7", "8", "9", "10", "11"]
    );
    assert_eq!(node.reads, 0);
}

#[test]
fn written_batches_are_served_from_their_segment() {
    let mut node = written(5);
    assert_eq!(node.texts(offset(13)), ["13", "14"]);
    assert_eq!(node.reads, 1);
    let expected: Vec<_> = (4..15).map(|text| text.to_string()).collect();
    assert_eq!(node.texts(offset(4)), expected);
}

#[test]
fn first_last_and_next_find_their_messages() {
    for mut node in [with_batches(config(), 4), written(4)] {
        assert_eq!(
            node.poll(PollStrategy::First).expect("served").from,
            Offset(0)
        );
        assert_eq!(limited(&mut node, PollStrategy::Last, 1, 1).0, 11);
        assert_eq!(limited(&mut node, PollStrategy::Last, 4, 1).0, 8);
        assert_eq!(limited(&mut node, PollStrategy::Last, 100, 1).0, 0);
        node.store("reader", 6);
        assert_eq!(
            node.poll(PollStrategy::Next).expect("served").from,
            Offset(7)
        );
    }
}

#[test]
fn time_finds_the_first_message_at_it_or_later() {
    for mut node in [with_batches(config(), 6), written(6)] {
        for (time, expected) in [
            (0, 0),
            (1_020, 0),
            (1_021, 3),
            (1_030, 3),
            (1_045, 9),
            (1_070, 15),
        ] {
            let answer = node.poll(at(time)).expect("served");
            assert_eq!(answer.from, Offset(expected), "time {time}");
            assert!(answer.next > answer.from);
        }
        let answer = node.poll(at(1_071)).expect("served");
        assert_eq!((answer.from, answer.next), (Offset(18), Offset(18)));
    }
}

#[test]
fn time_is_found_in_a_full_segment_whose_index_is_not_at_hand() {
    let config = DataConfig {
        index_budget: 0,
        ..from_files()
    };
    for settled in [false, true] {
        let mut node = with_batches(config, 9);
        if settled {
            node.settle();
        }
        node.files.indexes.clear();
        for batch in 0..9 {
            let answer = node.poll(at(1_015 + batch * 10)).expect("served");
            assert_eq!(answer.from, Offset(batch * 3));
        }
    }
}

#[test]
fn time_before_the_start_finds_the_start() {
    for mut node in [with_batches(config(), 6), written(6)] {
        node.truncate(7);
        node.settle();
        assert_eq!(node.poll(at(0)).expect("served").from, Offset(7));
        assert_eq!(node.poll(at(1_040)).expect("served").from, Offset(7));
        assert_eq!(node.poll(at(1_050)).expect("served").from, Offset(9));
    }
}

#[test]
fn the_end_is_an_empty_answer_and_beyond_it_is_an_error() {
    for mut node in [
        with_batches(config(), 2),
        written(2),
        Node::with_partition(config()),
    ] {
        let end = node.group.end(key(0)).expect("created");
        let answer = node.poll(PollStrategy::Offset(end)).expect("served");
        assert_eq!((answer.from, answer.next, answer.end), (end, end, end));
        assert!(answer.parts.is_empty());
        let start = Offset(0);
        let offset = end.next();
        let error = node.poll(PollStrategy::Offset(offset));
        assert_eq!(
            error,
            Err(PollError::OffsetOutOfRange { offset, start, end })
        );
    }
}

#[test]
fn an_empty_partition_answers_every_strategy_with_nothing() {
    let mut node = Node::with_partition(config());
    let strategies = [
        PollStrategy::First,
        PollStrategy::Last,
        PollStrategy::Next,
        at(0),
        at(u64::MAX),
    ];
    for strategy in strategies {
        let answer = node.poll(strategy).expect("served");
        assert_eq!(
            (answer.from, answer.next, answer.size),
            (Offset(0), Offset(0), 0)
        );
    }
}

// Field case R50.
#[test]
fn one_batch_is_served_however_small_the_limits_are() {
    for mut node in [with_batches(config(), 4), written(4)] {
        for (max_messages, max_bytes) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            assert_eq!(
                limited(&mut node, offset(4), max_messages, max_bytes),
                (4, 6)
            );
        }
    }
}

#[test]
fn limits_end_an_answer_at_a_batch() {
    let size = batch_of(&["0", "1", "2"], 0, 0).header.size;
    let mut node = with_batches(config(), 6);
    assert_eq!(limited(&mut node, offset(1), 2, 1_000_000), (1, 3));
    assert_eq!(limited(&mut node, offset(1), 3, 1_000_000), (1, 6));
    assert_eq!(limited(&mut node, offset(0), 4, 1_000_000), (0, 6));
    assert_eq!(limited(&mut node, offset(0), 100, 2 * size), (0, 6));
    assert_eq!(limited(&mut node, offset(0), 100, 2 * size - 1), (0, 3));
    let mut node = written(6);
    assert_eq!(limited(&mut node, offset(0), 3, 1_000_000), (0, 3));
    assert_eq!(limited(&mut node, offset(0), 4, 1_000_000), (0, 6));
    assert_eq!(limited(&mut node, offset(0), 100, 2 * size - 1), (0, 3));
}

#[test]
fn batches_keep_the_producers_bytes_and_carry_offset_and_time() {
    let mut node = Node::with_partition(config());
    let sent = batch_of(&["a", "b"], 5, 1);
    node.append(sent.clone());
    let stored = stored_batches(&node.poll(PollStrategy::First).expect("served"));
    assert_eq!(stored, [sent.stamped(Offset(0), Timestamp(1_020))]);
}

#[test]
fn index_finds_batches_in_the_middle_of_a_large_segment() {
    let config = DataConfig {
        tail_budget: 0,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for index in 0..100_u8 {
        node.append(batch_of_size(10_000, index));
    }
    node.settle();
    for index in [0, 1, 6, 7, 50, 98, 99] {
        let answer = limited(&mut node, offset(index), 1, 1);
        assert_eq!(answer, (index, index + 1));
        let time = 1_020 + index * 10;
        assert_eq!(limited(&mut node, at(time), 1, 1), (index, index + 1));
        assert_eq!(limited(&mut node, at(time - 5), 1, 1), (index, index + 1));
        let Ok(Read::File(file)) = node.group.read(
            key(0),
            FIRST,
            &ReadQuery {
                max_bytes: 0,
                ..query(offset(index), "reader")
            },
        ) else {
            panic!("nothing is in memory");
        };
        // No more is read than from one entry to the next.
        assert!(file.length <= INDEX_INTERVAL + 11_000);
    }
}

#[test]
fn one_read_of_a_file_serves_what_the_limits_allow() {
    let config = DataConfig {
        tail_budget: 0,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for index in 0..100_u8 {
        node.append(batch_of_size(10_000, index));
    }
    node.settle();
    let size = batch_of_size(10_000, 0).header.size;
    for first in [0, 3, 7, 50] {
        let answer = limited(&mut node, offset(first), 100, 40 * size);
        assert_eq!(answer, (first, first + 40));
    }
}

#[test]
fn little_more_is_read_of_a_file_than_is_served() {
    let config = DataConfig {
        tail_budget: 0,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for index in 0..20_u8 {
        node.append(batch_of_size(200_000, index));
    }
    node.settle();
    let size = u64::from(batch_of_size(200_000, 0).header.size);
    for (max_bytes, served) in [(1, 1), (700_000, 3), (u32::MAX, 13)] {
        let query = ReadQuery {
            max_messages: 100,
            max_bytes,
            ..query(offset(7), "reader")
        };
        let Ok(Read::File(file)) = node.group.read(key(0), FIRST, &query) else {
            panic!("nothing is in memory");
        };
        let end = 7 * size + served * size;
        assert_eq!(file.position, 7 * size);
        assert!(file.position + file.length >= end);
        assert!(file.position + file.length <= end + INDEX_INTERVAL);
        let answer = node.read(key(0), FIRST, &query).expect("served");
        assert_eq!((answer.from.0, answer.next.0), (7, 7 + served));
    }
}

#[test]
fn index_that_was_overtaken_by_appends_while_it_was_built_is_completed() {
    let config = DataConfig {
        tail_budget: 0,
        ..config()
    };
    let mut node = Node::with_partition(config);
    node.append(batch_of_size(10, 0));
    node.append(batch_of_size(10, 1));
    let snapshot = node.checkpoint();
    node.group = DataGroup::restore(config, snapshot).expect("sound");
    let query = ReadQuery {
        max_bytes: 0,
        ..query(at(1_030), "reader")
    };
    let Ok(Read::File(build)) = node.group.read(key(0), FIRST, &query) else {
        panic!("there is no index");
    };
    for index in 2..6 {
        node.append(batch_of_size(10, index));
    }
    node.settle();
    let bytes = node.files.read(&build);
    let read = node.group.finish_read(build, bytes.as_ref());
    assert!(matches!(read, Ok(Read::File(_))));
    // The index ends before these, and they are not in memory.
    for index in [5, 3, 4, 2] {
        assert_eq!(limited(&mut node, at(1_020 + index * 10), 1, 0).0, index);
    }
    for index in 0..6 {
        assert_eq!(limited(&mut node, offset(index), 1, 0).0, index);
    }
}

#[test]
fn time_finds_the_first_of_many_batches_of_one_time() {
    let config = DataConfig {
        tail_budget: 0,
        ..config()
    };
    let mut node = Node::with_partition(config);
    node.append(batch_of_size(10, 0));
    let requests: Vec<_> = (0..20)
        .map(|index| append(0, batch_of_size(30_000, index)))
        .collect();
    node.apply(&requests);
    node.append(batch_of_size(10, 0));
    for settled in [false, true] {
        if settled {
            node.settle();
        }
        for (time, expected) in [(1_021, 1), (1_030, 1), (1_031, 21)] {
            assert_eq!(limited(&mut node, at(time), 1, 1).0, expected);
        }
    }
}

#[test]
fn reads_find_their_way_from_a_file_into_memory() {
    let config = DataConfig {
        tail_budget: 0,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for index in 0..4_u8 {
        node.append(batch_of_size(100, index));
        if index < 2 {
            node.settle();
        }
    }
    // Batches 0 and 1 are in the file, 2 and 3 in memory, one segment.
    assert_eq!(limited(&mut node, offset(0), 100, 100_000), (0, 2));
    assert_eq!(limited(&mut node, offset(2), 100, 100_000), (2, 4));
    for index in 0..4 {
        assert_eq!(limited(&mut node, at(1_020 + index * 10), 1, 1).0, index);
        assert_eq!(limited(&mut node, at(1_015 + index * 10), 1, 1).0, index);
    }
}

#[test]
fn a_read_that_is_overtaken_by_retention_goes_on_at_the_start() {
    let mut node = written(6);
    let Ok(Read::File(same_segment)) = node.group.read(key(0), FIRST, &query(offset(6), "reader"))
    else {
        panic!("nothing is in memory");
    };
    let Ok(Read::File(removed)) = node.group.read(key(0), FIRST, &query(offset(1), "reader"))
    else {
        panic!("nothing is in memory");
    };
    node.truncate(10);
    for (file, skipped) in [(same_segment, 4), (removed, 9)] {
        let mut read = node
            .group
            .finish_read(file, None)
            .expect("the segment is not damaged");
        while let Read::File(file) = read {
            let bytes = node.files.read(&file);
            read = node
                .group
                .finish_read(file, bytes.as_ref())
                .expect("served");
        }
        let Read::Batches(answer) = read else {
            panic!("the loop ended");
        };
        assert_eq!((answer.from, answer.skipped), (Offset(10), skipped));
    }
}

#[test]
fn a_read_that_is_overtaken_by_a_new_incarnation_is_told_to_retry() {
    let mut node = written(2);
    let Ok(Read::File(file)) = node.group.read(key(0), FIRST, &query(offset(0), "reader")) else {
        panic!("nothing is in memory");
    };
    let here = Incarnation(9);
    node.apply(&[DataRequest::CreatePartition {
        key: key(0),
        incarnation: here,
        admitted: Op(9),
    }]);
    let bytes = node.files.read(&file);
    let result = node.group.finish_read(file, bytes.as_ref());
    let named = FIRST;
    let expected = PollError::Absent(Absent::OtherIncarnation { here, named });
    assert_eq!(result.err(), Some(expected));
}

#[test]
fn full_segments_index_is_read_from_its_file_and_built_when_it_is_missing_or_wrong() {
    let config = DataConfig {
        index_budget: 0,
        ..from_files()
    };
    let mut node = with_batches(config, 9);
    node.settle();
    assert_eq!(node.files.indexes.len(), 4);
    let expected: Vec<_> = (0..27).map(|index| node.poll(offset(index))).collect();
    let by_time: Vec<_> = (1_000..1_120).map(|time| node.poll(at(time))).collect();
    let intact = node.files.indexes.clone();
    for fault in 0..4 {
        for file in node.files.indexes.values_mut() {
            let mut bytes = file.to_vec();
            match fault {
                0 => bytes.clear(),
                1 => bytes.truncate(bytes.len() / 2),
                2 => bytes.fill(0),
                _ => bytes[20] ^= 1,
            }
            *file = Bytes::from(bytes);
        }
        if fault == 3 {
            node.files.indexes.clear();
        }
        for (index, expected) in expected.iter().enumerate() {
            assert_eq!(&node.poll(offset(index as u64)), expected);
        }
        for (time, expected) in (1_000..).zip(&by_time) {
            assert_eq!(&node.poll(at(time)), expected);
        }
        node.settle();
        assert_eq!(node.files.indexes, intact);
    }
}

#[test]
fn an_index_file_of_another_segment_is_not_taken() {
    let config = DataConfig {
        index_budget: 0,
        ..from_files()
    };
    let mut node = with_batches(config, 9);
    node.settle();
    let files: Vec<_> = node.files.indexes.values().cloned().collect();
    for (file, other) in node
        .files
        .indexes
        .values_mut()
        .zip(files.iter().cycle().skip(1))
    {
        *file = other.clone();
    }
    for index in 0..27 {
        assert_eq!(
            node.poll(offset(index)).expect("served").from,
            Offset(index)
        );
    }
}
