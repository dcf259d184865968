//! What single consumers store.

use super::*;
use crate::{Position, Refusal};

fn stored(offset: u64) -> DataResult {
    DataResult::Stored {
        stored: Offset(offset),
    }
}

fn delete(node: &mut Node, consumer: &str) -> DataResult {
    node.apply_one(DataRequest::DeleteOffset {
        key: key(0),
        incarnation: FIRST,
        admitted: Op(7),
        consumer: consumer.to_string(),
    })
}

fn with_messages(count: u64) -> Node {
    let mut node = Node::with_partition(config());
    for _ in 0..count {
        node.send("x");
    }
    node
}

// Field case R07.
#[test]
fn lower_store_is_answered_with_the_stored_offset_and_changes_nothing() {
    let mut node = with_messages(150);
    assert_eq!(node.store("c", 100), stored(100));
    assert_eq!(node.store("c", 60), stored(100));
    assert_eq!(node.store("c", 140), stored(140));
    assert_eq!(node.store("c", 60), stored(140));
    assert_eq!(node.store("c", 140), stored(140));
    assert_eq!(node.group.stored(key(0), "c"), Some(Offset(140)));
}

// Field case R41.
#[test]
fn store_beyond_the_last_message_is_refused() {
    let mut node = with_messages(10);
    assert_eq!(node.store("c", 9), stored(9));
    for offset in [10, 11, 10_000, u64::MAX] {
        let refusal = Refusal::OffsetOutOfRange {
            offset: Offset(offset),
            start: Offset(0),
            end: Offset(10),
        };
        assert_eq!(node.store("c", offset), DataResult::Failed(refusal));
    }
    assert_eq!(node.group.stored(key(0), "c"), Some(Offset(9)));
}

#[test]
fn any_store_in_an_empty_partition_is_refused() {
    let mut node = with_messages(0);
    let offset = Offset(0);
    let (start, end) = (offset, offset);
    let refusal = Refusal::OffsetOutOfRange { offset, start, end };
    assert_eq!(node.store("c", 0), DataResult::Failed(refusal));
    assert_eq!(node.group.stored(key(0), "c"), None);
}

// Field case R32.
#[test]
fn nothing_stored_is_not_0_stored() {
    let mut node = with_messages(3);
    let position = |node: &Node| node.group.position(key(0), FIRST, "reader");
    let (start, end) = (Offset(0), Offset(3));
    let stored = None;
    assert_eq!(position(&node), Ok(Position { start, end, stored }));
    assert_eq!(
        node.poll(PollStrategy::Next).expect("served").from,
        Offset(0)
    );
    node.store("reader", 0);
    let stored = Some(Offset(0));
    assert_eq!(position(&node), Ok(Position { start, end, stored }));
    assert_eq!(
        node.poll(PollStrategy::Next).expect("served").from,
        Offset(1)
    );
    node.store("reader", 2);
    let answer = node.poll(PollStrategy::Next).expect("served");
    assert_eq!((answer.from, answer.next), (Offset(3), Offset(3)));
    node.send("x");
    assert_eq!(
        node.poll(PollStrategy::Next).expect("served").from,
        Offset(3)
    );
}

#[test]
fn polling_moves_no_offset() {
    let mut node = with_messages(3);
    let first = node.poll(PollStrategy::Next);
    assert_eq!(node.poll(PollStrategy::Next), first);
}

#[test]
fn deleted_offset_is_none_and_only_a_delete_goes_back() {
    let mut node = with_messages(10);
    node.store("c", 8);
    let stored_before = Offset(8);
    let deleted = DataResult::OffsetDeleted {
        stored: stored_before,
    };
    assert_eq!(delete(&mut node, "c"), deleted);
    assert_eq!(node.group.stored(key(0), "c"), None);
    assert_eq!(
        delete(&mut node, "c"),
        DataResult::Failed(Refusal::OffsetNotStored)
    );
    assert_eq!(node.store("c", 2), stored(2));
}

#[test]
fn consumers_do_not_touch_each_other() {
    let mut node = with_messages(10);
    node.store("a", 8);
    node.store("A", 3);
    node.store("", 1);
    assert_eq!(node.group.stored(key(0), "a"), Some(Offset(8)));
    assert_eq!(node.group.stored(key(0), "A"), Some(Offset(3)));
    assert_eq!(node.group.stored(key(0), ""), Some(Offset(1)));
    assert_eq!(node.group.stored(key(0), "b"), None);
}

#[test]
fn one_consumer_too_many_is_refused_and_the_others_go_on() {
    let config = DataConfig {
        consumers_max: 2,
        ..config()
    };
    let mut node = Node::with_partition(config);
    for _ in 0..5 {
        node.send("x");
    }
    node.store("a", 0);
    node.store("b", 0);
    let refusal = Refusal::TooManyConsumers { limit: 2 };
    assert_eq!(node.store("c", 0), DataResult::Failed(refusal));
    assert_eq!(node.store("a", 1), stored(1));
    delete(&mut node, "b");
    assert_eq!(node.store("c", 0), stored(0));
}
