//! The head of a partition is removed.

use super::*;
use crate::Refusal;

fn truncated(start: u64) -> DataResult {
    DataResult::HeadTruncated {
        start: Offset(start),
    }
}

/// Ten batches of one message, two to a segment.
fn ten() -> Node {
    let mut node = Node::with_partition(DataConfig {
        segment_size: 2 * u64::from(batch_of_size(10, 0).header.size),
        ..config()
    });
    for index in 0..10 {
        node.append(batch_of_size(10, index));
    }
    node.settle();
    node
}

fn bases(node: &Node) -> Vec<u64> {
    let segments = node.group.segments(key(0));
    segments.iter().map(|segment| segment.base.0).collect()
}

#[test]
fn segments_are_closed_before_they_exceed_their_size() {
    let node = ten();
    assert_eq!(bases(&node), [0, 2, 4, 6, 8]);
    for (segment, file) in node
        .group
        .segments(key(0))
        .iter()
        .zip(node.files.segments.values())
    {
        assert_eq!(segment.messages, 2);
        assert_eq!(segment.length, file.len() as u64);
    }
}

#[test]
fn batch_larger_than_a_segment_has_one_to_itself() {
    let mut node = ten();
    node.append(batch_of_size(10_000, 0));
    node.append(batch_of_size(10, 0));
    assert_eq!(bases(&node), [0, 2, 4, 6, 8, 10, 11]);
}

#[test]
fn start_is_exactly_the_offset_asked_for_and_files_go_as_whole_segments() {
    let mut node = ten();
    assert_eq!(node.truncate(5), truncated(5));
    assert_eq!(node.group.start(key(0)), Some(Offset(5)));
    assert_eq!(bases(&node), [4, 6, 8]);
    assert_eq!(node.truncate(6), truncated(6));
    assert_eq!(bases(&node), [6, 8]);
    assert_eq!(node.group.end(key(0)), Some(Offset(10)));
}

#[test]
fn lower_start_changes_nothing() {
    let mut node = ten();
    node.truncate(5);
    assert_eq!(node.truncate(3), truncated(5));
    assert_eq!(node.truncate(5), truncated(5));
    assert_eq!(bases(&node), [4, 6, 8]);
}

#[test]
fn start_beyond_the_end_is_refused() {
    let mut node = ten();
    let refusal = Refusal::OffsetOutOfRange {
        offset: Offset(11),
        start: Offset(0),
        end: Offset(10),
    };
    assert_eq!(node.truncate(11), DataResult::Failed(refusal));
    assert_eq!(bases(&node).len(), 5);
}

#[test]
fn partition_that_is_emptied_goes_on_at_its_end() {
    let mut node = ten();
    assert_eq!(node.truncate(10), truncated(10));
    assert_eq!(bases(&node), []);
    let answer = node.poll(PollStrategy::First).expect("served");
    assert_eq!((answer.from, answer.next), (Offset(10), Offset(10)));
    assert_eq!(node.send("x"), Offset(10));
    assert_eq!(bases(&node), [10]);
    assert_eq!(node.texts(PollStrategy::First), ["x"]);
}

// Field case R42.
#[test]
fn position_before_the_start_continues_there_and_counts_what_was_skipped() {
    let mut node = ten();
    node.store("reader", 1);
    node.truncate(5);
    node.settle();
    for (strategy, skipped) in [
        (PollStrategy::Offset(Offset(0)), 5),
        (PollStrategy::Offset(Offset(4)), 1),
        (PollStrategy::Offset(Offset(5)), 0),
        (PollStrategy::Next, 3),
        (PollStrategy::First, 0),
    ] {
        let answer = node.poll(strategy).expect("served");
        assert_eq!((answer.from, answer.start), (Offset(5), Offset(5)));
        assert_eq!(answer.skipped, skipped);
    }
    assert_eq!(node.group.stored(key(0), "reader"), Some(Offset(1)));
}

#[test]
fn files_are_deleted_only_once_a_checkpoint_does_not_name_them() {
    let mut node = ten();
    let before = node.checkpoint();
    node.truncate(6);
    let op = node.op;
    node.settle();
    assert_eq!(node.files.segments.len(), 5);
    node.group.checkpointed(Op(op - 1));
    node.settle();
    assert_eq!(node.files.segments.len(), 5);
    // A crash here starts from the snapshot of before, which finds its files.
    assert_eq!(files_at(&before).len(), 5);
    node.group.checkpointed(Op(op));
    node.settle();
    assert_eq!(node.files.segments.len(), 2);
    assert_eq!(node.files.indexes.len(), 1);
}

#[test]
fn unwritten_batches_that_are_removed_are_no_longer_waited_for() {
    let mut node = Node::with_partition(config());
    node.send("a");
    node.send("b");
    node.truncate(2);
    assert_eq!(node.group.unwritten(), 0);
    assert_eq!(node.group.memory(), 0);
    node.settle();
    assert_eq!(node.send("c"), Offset(2));
}
