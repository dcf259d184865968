//! Memory stays within its budget, and what is not in a file stays in memory.

use super::*;

const MIB: u64 = 1024 * 1024;

fn budget(tail_budget: u64) -> DataConfig {
    DataConfig {
        tail_budget,
        ..config()
    }
}

#[test]
fn memory_stays_bounded_while_the_disk_keeps_up() {
    let mut node = Node::with_partition(budget(4 * MIB));
    node.create(1);
    let batch = batch_of_size(500_000, 1);
    for _ in 0..100 {
        node.apply(&[append(0, batch.clone()), append(1, batch.clone())]);
        assert!(node.group.memory() <= 6 * MIB);
        node.settle();
        assert!(node.group.memory() <= 4 * MIB);
    }
    assert!(node.group.memory() > 2 * MIB);
}

#[test]
fn what_is_not_written_is_kept_and_counted() {
    let mut node = Node::with_partition(budget(0));
    let size = u64::from(batch_of_size(1_000, 0).header.size);
    for index in 0..10 {
        node.append(batch_of_size(1_000, index));
    }
    assert_eq!(node.group.unwritten(), 10 * size);
    assert!(node.group.memory() > 10 * size);
    let segment = files_at(&node.group.snapshot())[0].id;
    node.group.appended(segment, 4 * size);
    assert_eq!(node.group.unwritten(), 6 * size);
    // Half a batch is none.
    node.group.appended(segment, 5 * size - 1);
    assert_eq!(node.group.unwritten(), 6 * size);
    let answer = node
        .poll(PollStrategy::Offset(Offset(4)))
        .expect("served from memory");
    assert_eq!((answer.next, node.reads), (Offset(10), 0));
    node.group.appended(segment, 10 * size);
    assert_eq!((node.group.unwritten(), node.group.memory()), (0, 0));
}

#[test]
fn completion_that_is_told_twice_or_late_changes_nothing() {
    let mut node = Node::with_partition(budget(MIB));
    node.send("a");
    let segment = files_at(&node.group.snapshot())[0].id;
    node.group.appended(segment, u64::MAX);
    node.group.appended(segment, u64::MAX);
    node.group.appended(segment, 0);
    node.group.appended(
        SegmentId {
            base: Offset(99),
            ..segment
        },
        10,
    );
    assert_eq!(node.group.unwritten(), 0);
}

#[test]
fn small_batch_is_charged_with_the_whole_prepare_that_it_keeps_alive() {
    let mut node = Node::with_partition(budget(10 * MIB));
    let repeated = batch_of(&[&"x".repeat(900_000)], 1, 1);
    node.append(repeated.clone());
    node.settle();
    let before = node.group.memory();
    node.apply(&[append(0, repeated), append(0, batch_of_size(10, 0))]);
    assert!(node.group.memory() >= before + 900_000);
}

#[test]
fn op_whose_first_batch_is_written_before_its_second_is_applied_stays() {
    let mut node = Node::with_partition(budget(5_000));
    let op = Op(node.op + 1);
    node.group
        .apply(op, Timestamp(2_000), append(0, batch_of_size(10, 0)));
    let segment = files_at(&node.group.snapshot())[0].id;
    node.group.appended(segment, u64::MAX);
    node.group
        .apply(op, Timestamp(2_000), append(0, batch_of_size(10, 1)));
    node.op = op.0;
    node.time = 3_000;
    node.append(batch_of_size(10_000, 2));
    // The second is in no file, and so must be in memory.
    let query = query(PollStrategy::Offset(Offset(1)), "reader");
    let read = node.group.read(key(0), FIRST, &query);
    assert!(matches!(read, Ok(Read::Batches(_))));
}

#[test]
fn oldest_batches_leave_memory_first() {
    let mut node = Node::with_partition(budget(100_000));
    for index in 0..100 {
        node.append(batch_of_size(10_000, index));
        node.settle();
    }
    let read = |node: &Node, offset: u64| {
        let query = query(PollStrategy::Offset(Offset(offset)), "reader");
        node.group.read(key(0), FIRST, &query)
    };
    assert!(matches!(read(&node, 99), Ok(Read::Batches(_))));
    assert!(matches!(read(&node, 93), Ok(Read::Batches(_))));
    assert!(matches!(read(&node, 50), Ok(Read::File(_))));
}

#[test]
fn slow_file_of_one_partition_does_not_keep_the_others_batches_in_memory() {
    let mut node = Node::with_partition(budget(50_000));
    node.create(1);
    node.apply(&[append(1, batch_of_size(1_000, 0))]);
    let slow = node.queue.len() - 1;
    let slow = node.queue.remove(slow);
    for index in 0..50 {
        node.append(batch_of_size(10_000, index));
        while !node.queue.is_empty() {
            node.carry_out(0);
        }
    }
    assert!(node.group.memory() <= 50_000);
    let query = query(PollStrategy::First, "reader");
    let held = node.group.read(key(1), FIRST, &query);
    assert!(matches!(held, Ok(Read::Batches(batches)) if batches.next == Offset(1)));
    node.queue.push(slow);
    node.settle();
}

#[test]
fn batches_of_a_partition_leave_as_few_appends() {
    let mut node = Node::with_partition(config());
    node.create(1);
    node.settle();
    let requests: Vec<_> = (0..100)
        .map(|index| append(index % 2, batch_of_size(100, 0)))
        .collect();
    node.apply(&requests);
    assert_eq!(node.queue.len(), 2);
}

#[test]
fn a_long_append_is_split() {
    let mut node = Node::with_partition(config());
    for _ in 0..40 {
        let requests: Vec<_> = (0..50).map(|_| append(0, batch_of_size(100, 0))).collect();
        let body = encode_requests(&requests);
        node.op += 1;
        node.group
            .apply_prepare(Op(node.op), Timestamp(node.op), &body)
            .expect("encoded here");
    }
    node.pull();
    for change in &node.queue {
        let SegmentChange::Append { parts, .. } = change else {
            panic!("{change:?}");
        };
        assert!(parts.len() <= 1_024);
    }
    node.settle();
    let last = node.poll(PollStrategy::Last).expect("served");
    assert_eq!((last.from, last.next), (Offset(1_000), Offset(2_000)));
}
