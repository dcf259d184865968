//! Partitions come and go with their incarnations.

use super::*;
use crate::{Absent, Refusal};

fn create(incarnation: u64, admitted: u64) -> DataRequest {
    DataRequest::CreatePartition {
        key: key(0),
        incarnation: Incarnation(incarnation),
        admitted: Op(admitted),
    }
}

fn drop_partition(partition: u32, incarnation: u64, dropped: u64) -> DataRequest {
    DataRequest::DropPartition {
        key: key(partition),
        incarnation: Incarnation(incarnation),
        dropped: Op(dropped),
    }
}

const NOT_HERE: DataResult = DataResult::Failed(Refusal::Absent(Absent::NotHere));

#[test]
fn creating_again_changes_nothing() {
    let mut node = Node::with_partition(config());
    node.send("a");
    assert_eq!(node.create(0), DataResult::Created);
    assert_eq!(node.group.end(key(0)), Some(Offset(1)));
}

#[test]
fn requests_to_a_partition_that_is_not_here_are_told_to_retry_and_create_none() {
    let mut node = Node::new(config());
    let requests = [
        append(0, batch_of(&["a"], 0, 0)),
        DataRequest::StoreOffset {
            key: key(0),
            incarnation: FIRST,
            admitted: Op(7),
            consumer: "c".to_string(),
            offset: Offset(0),
        },
        DataRequest::DeleteOffset {
            key: key(0),
            incarnation: FIRST,
            admitted: Op(7),
            consumer: "c".to_string(),
        },
        DataRequest::TruncateHead {
            key: key(0),
            incarnation: FIRST,
            offset: Offset(0),
        },
    ];
    for result in node.apply(&requests) {
        assert_eq!(result, NOT_HERE);
        let DataResult::Failed(refusal) = result else {
            panic!("{result:?}");
        };
        assert_eq!(refusal.failure().code, wire::ErrorCode::Retry);
    }
    assert_eq!(node.group.partitions().count(), 0);
    assert!(node.queue.is_empty());
}

#[test]
fn another_incarnation_is_told_to_retry() {
    let mut node = Node::new(config());
    node.apply(&[create(9, 9)]);
    let named = FIRST;
    let here = Incarnation(9);
    let expected = Refusal::Absent(Absent::OtherIncarnation { here, named });
    assert_eq!(
        node.append(batch_of(&["a"], 0, 0)),
        DataResult::Failed(expected)
    );
    let error = node
        .poll(PollStrategy::First)
        .expect_err("no such incarnation");
    assert_eq!(error.code(), wire::ErrorCode::Retry);
    let position = node.group.position(key(0), named, "c");
    assert_eq!(position, Err(Absent::OtherIncarnation { here, named }));
}

#[test]
fn late_creation_does_not_revive_what_was_dropped() {
    let mut node = Node::new(config());
    assert_eq!(node.apply_one(create(5, 6)), DataResult::Created);
    assert_eq!(
        node.apply_one(drop_partition(0, 5, 10)),
        DataResult::Dropped
    );
    assert_eq!(node.apply_one(create(5, 6)), NOT_HERE);
    assert_eq!(node.apply_one(create(5, 9)), NOT_HERE);
    assert_eq!(node.group.partitions().count(), 0);
}

#[test]
fn the_drop_of_one_partition_delays_the_creation_of_another_until_its_proposer_knows_of_it() {
    let mut node = Node::new(config());
    node.apply(&[drop_partition(1, 5, 10)]);
    assert_eq!(node.apply_one(create(8, 9)), NOT_HERE);
    assert_eq!(node.apply_one(create(8, 10)), DataResult::Created);
}

#[test]
fn highest_drop_is_kept() {
    let mut node = Node::new(config());
    node.apply(&[drop_partition(0, 5, 10), drop_partition(0, 5, 4)]);
    assert_eq!(node.group.dropped(), Op(10));
}

#[test]
fn late_drop_does_not_touch_a_later_incarnation() {
    let mut node = Node::new(config());
    node.apply(&[create(9, 9)]);
    assert_eq!(node.apply_one(drop_partition(0, 5, 6)), DataResult::Dropped);
    assert_eq!(node.group.incarnation(key(0)), Some(Incarnation(9)));
}

#[test]
fn drop_of_a_later_incarnation_ends_an_older_one() {
    let mut node = Node::new(config());
    node.apply(&[create(9, 9)]);
    assert_eq!(
        node.apply_one(drop_partition(0, 12, 15)),
        DataResult::Dropped
    );
    assert_eq!(node.group.incarnation(key(0)), None);
}

#[test]
fn later_incarnation_begins_empty_and_the_older_ones_files_go_after_a_checkpoint() {
    let mut node = Node::with_partition(config());
    node.send("old");
    node.store("c", 0);
    assert_eq!(node.apply_one(create(9, 9)), DataResult::Created);
    let (start, end) = (node.group.start(key(0)), node.group.end(key(0)));
    assert_eq!((start, end), (Some(Offset(1)), Some(Offset(1))));
    assert_eq!(node.group.stored(key(0), "c"), None);
    assert_eq!(node.group.unwritten(), 0);
    node.pull();
    let deletes = |change: &SegmentChange| matches!(change, SegmentChange::DeletePartition { .. });
    assert!(!node.queue.iter().any(deletes));
    node.group.checkpointed(Op(node.op));
    node.pull();
    let incarnation = FIRST;
    let expected = SegmentChange::DeletePartition {
        group: ConsensusGroup(3),
        partition: key(0),
        incarnation,
    };
    assert!(node.queue.contains(&expected));
}

#[test]
fn creation_of_an_older_incarnation_is_refused() {
    let mut node = Node::new(config());
    node.apply(&[create(9, 9)]);
    let (here, named) = (Incarnation(9), Incarnation(5));
    let expected = Refusal::Absent(Absent::OtherIncarnation { here, named });
    assert_eq!(node.apply_one(create(5, 20)), DataResult::Failed(expected));
}

#[test]
fn appends_of_a_dropped_partition_that_are_told_later_are_ignored() {
    let mut node = Node::with_partition(config());
    node.send("a");
    node.apply(&[drop_partition(0, FIRST.0, 10)]);
    node.settle();
    assert_eq!(node.group.memory(), 0);
    assert_eq!(node.group.unwritten(), 0);
}
