//! A producer's batch is appended once.

use super::*;
use crate::Refusal;

fn appended(base_offset: u64, repeated: bool) -> DataResult {
    DataResult::Appended {
        base_offset: Offset(base_offset),
        repeated,
    }
}

/// Sends the batch that a producer sends under a sequence: two messages, told apart by it.
fn send(node: &mut Node, producer: u128, sequence: u64) -> DataResult {
    let text = sequence.to_string();
    node.append(batch_of(&[&text, "second"], producer, sequence))
}

#[test]
fn repeated_sequence_is_answered_with_the_offset_of_the_first() {
    let mut node = Node::with_partition(config());
    for sequence in 1..=5 {
        assert_eq!(
            send(&mut node, 1, sequence),
            appended((sequence - 1) * 2, false)
        );
    }
    for sequence in 1..=5 {
        assert_eq!(
            send(&mut node, 1, sequence),
            appended((sequence - 1) * 2, true)
        );
    }
    assert_eq!(node.group.end(key(0)), Some(Offset(10)));
}

#[test]
fn sequence_older_than_the_last_five_is_known_to_be_appended_but_not_where() {
    let mut node = Node::with_partition(config());
    for sequence in 1..=6 {
        send(&mut node, 1, sequence);
    }
    let (sequence, last) = (1, 6);
    let expected = Refusal::SequenceTooOld { sequence, last };
    assert_eq!(send(&mut node, 1, 1), DataResult::Failed(expected));
    assert_eq!(send(&mut node, 1, 2), appended(2, true));
    assert_eq!(node.group.end(key(0)), Some(Offset(12)));
}

#[test]
fn gap_is_out_of_order_and_says_what_is_expected() {
    let mut node = Node::with_partition(config());
    send(&mut node, 1, 1);
    let (sequence, expected) = (3, 2);
    let refusal = Refusal::SequenceOutOfOrder { sequence, expected };
    assert_eq!(send(&mut node, 1, 3), DataResult::Failed(refusal));
    assert_eq!(send(&mut node, 1, 2), appended(2, false));
    assert_eq!(send(&mut node, 1, 3), appended(4, false));
}

#[test]
fn unknown_producer_begins_with_sequence_1_only() {
    let mut node = Node::with_partition(config());
    let refusal = Refusal::ProducerUnknown { sequence: 2 };
    assert_eq!(send(&mut node, 1, 2), DataResult::Failed(refusal));
    assert_eq!(send(&mut node, 1, 1), appended(0, false));
}

#[test]
fn producer_that_begins_anew_with_its_old_id_is_told_so() {
    let mut node = Node::with_partition(config());
    send(&mut node, 1, 1);
    let (sequence, offset) = (1, Offset(0));
    let refusal = Refusal::SequenceReused { sequence, offset };
    let other = batch_of(&["of another life"], 1, 1);
    assert_eq!(node.append(other), DataResult::Failed(refusal));
    assert_eq!(node.group.end(key(0)), Some(Offset(2)));
}

#[test]
fn batches_without_a_producer_are_never_repeated() {
    let mut node = Node::with_partition(config());
    assert_eq!(send(&mut node, 0, 0), appended(0, false));
    assert_eq!(send(&mut node, 0, 0), appended(2, false));
}

#[test]
fn producer_that_was_silent_longest_is_forgotten() {
    let config = DataConfig {
        producers_max: 2,
        ..config()
    };
    let mut node = Node::with_partition(config);
    send(&mut node, 1, 1);
    send(&mut node, 2, 1);
    send(&mut node, 1, 2);
    // A repeated batch is no sign of life: it changes nothing.
    send(&mut node, 2, 1);
    send(&mut node, 3, 1);
    let refusal = Refusal::ProducerUnknown { sequence: 2 };
    assert_eq!(send(&mut node, 2, 2), DataResult::Failed(refusal));
    assert_eq!(send(&mut node, 1, 3), appended(8, false));
    assert_eq!(send(&mut node, 3, 2), appended(10, false));
}

#[test]
fn partitions_count_the_sequences_of_a_producer_each_for_itself() {
    let mut node = Node::with_partition(config());
    node.create(1);
    send(&mut node, 1, 1);
    let other = node.apply_one(append(1, batch_of(&["x"], 1, 1)));
    assert_eq!(other, appended(0, false));
}

#[test]
fn two_batches_of_one_prepare_may_repeat_each_other() {
    let mut node = Node::with_partition(config());
    let batch = batch_of(&["x"], 1, 1);
    let results = node.apply(&[append(0, batch.clone()), append(0, batch)]);
    assert_eq!(results, [appended(0, false), appended(0, true)]);
}

#[test]
fn a_restart_forgets_no_producer() {
    let mut node = Node::with_partition(config());
    for sequence in 1..=7 {
        send(&mut node, 1, sequence);
    }
    let snapshot = node.checkpoint();
    node.restart(&snapshot, &[]);
    assert_eq!(send(&mut node, 1, 3), appended(4, true));
    assert_eq!(send(&mut node, 1, 8), appended(14, false));
}
