//! Partitions that come, go and are purged under a group.

use std::vec::Vec;

use wire::{Epoch, Incarnation, Offset, PartitionId};

use super::{Table, at, repeated, told};
use crate::{GroupOptions, Holding, Reset, ResetTo, StartPolicy};

#[test]
fn new_partitions_are_granted_at_once() {
    let mut table = Table::new(2);
    table.join(1);
    table.join(2);
    table.settle();
    assert_eq!(table.drawn(), ["1", "2"]);
    let generation = table.generation();
    let at = table.next();
    let change = table.group.partitions_created(at, 3);
    assert_eq!(change.partitions, 5);
    assert_eq!(table.generation(), generation + 1);
    assert_eq!(table.drawn()[..2], ["1", "2"], "what was assigned stays");
    assert_eq!(table.counts(), [3, 2]);
    assert_eq!(told(&change), [1, 2]);
}

#[test]
fn new_partitions_of_an_empty_group_change_no_generation() {
    let mut table = Table::new(2);
    let at = table.next();
    let change = table.group.partitions_created(at, 3);
    assert!(!change.is_empty(), "projections have to know");
    assert_eq!(change.partitions, 5);
    assert_eq!(table.generation(), 0);
    table.join(1);
    assert_eq!(table.drawn(), repeated("1", 5));
}

#[test]
fn new_partitions_spare_the_owners_that_are_asked_to_give_up() {
    let mut table = Table::new(4);
    table.join(1);
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1", "1>2", "1>2"]);
    let at = table.next();
    table.group.partitions_created(at, 4);
    // Quota 4: member 1 keeps what it has, and member 2 gets the new ones.
    assert_eq!(table.drawn(), ["1", "1", "1", "1", "2", "2", "2", "2"]);
    assert_eq!(table.moves(), []);
}

#[test]
fn new_partitions_are_read_from_their_first_message() {
    let options = GroupOptions {
        start: StartPolicy::Latest,
        ..GroupOptions::default()
    };
    let table = Table::with(2, options);
    let created = table.group.created();
    assert_eq!(
        table.group.start(Incarnation(created.0 - 1)),
        StartPolicy::Latest
    );
    assert_eq!(
        table.group.start(Incarnation(created.0 + 1)),
        StartPolicy::Earliest
    );
}

#[test]
fn deleted_partitions_vanish_with_their_moves() {
    let mut table = Table::new(6);
    table.join(1);
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1", "1", "1>2", "1>2", "1>2"]);
    let at = table.next();
    let change = table.group.partitions_deleted(at, 2);
    // Quota 2 of 4: one revocation was lost with its partition, and one is planned instead.
    assert_eq!(table.drawn(), ["1", "1", "1>2", "1>2"]);
    assert_eq!(change.partitions, 4);
    assert_eq!(told(&change), [1]);
    assert!(table.complete(&[(5, 20)]).is_empty());
    table.settle();
    assert_eq!(table.counts(), [2, 2]);
}

#[test]
fn deleting_what_was_never_owned_changes_no_generation() {
    let mut table = Table::new(6);
    let at = table.next();
    table.group.partitions_deleted(at, 2);
    assert_eq!(table.generation(), 0);
    assert_eq!(table.group.partition_count(), 4);
}

#[test]
fn partition_that_comes_back_is_another_one() {
    let mut table = Table::new(2);
    table.join(1);
    let at = table.next();
    table.group.partitions_deleted(at, 1);
    let at = table.next();
    table.group.partitions_created(at, 1);
    assert_eq!(table.entry(1).epoch, Epoch(30));
    assert_eq!(
        table.entry(1).held_since(),
        Some(Epoch(30)),
        "granted at once"
    );
}

#[test]
fn purge_begins_anew_with_whom_the_partition_goes_to() {
    let mut table = Table::new(3);
    table.join(1);
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1", "1>2"]);
    let all: Vec<_> = (0..3).map(PartitionId).collect();
    let at = table.next();
    let change = table.group.purge(at, &all);
    assert_eq!(table.drawn(), ["->1", "->1", "->2"]);
    assert!(table.moves().iter().all(|(_, epoch)| *epoch == Epoch(30)));
    assert_eq!(told(&change), [1]);
    table.settle();
    assert_eq!(table.drawn(), ["1", "1", "2"]);
}

#[test]
fn purge_of_an_empty_group_raises_its_fences_too() {
    let mut table = Table::new(2);
    let at = table.next();
    table.group.purge(at, &[PartitionId(0), PartitionId(1)]);
    assert_eq!(table.drawn(), repeated("->-", 2));
    assert_eq!(table.generation(), 1);
    table.settle();
    assert_eq!(table.drawn(), repeated("-", 2));
}

#[test]
fn purge_leaves_nothing_to_reset() {
    let mut table = Table::new(1);
    let partitions = Vec::from([(PartitionId(0), ResetTo::Offset(Offset(100)))]);
    table
        .group
        .reset(
            at(5),
            &Reset {
                partitions,
                force: false,
            },
        )
        .unwrap();
    let at = table.next();
    table.group.purge(at, &[PartitionId(0)]);
    assert!(matches!(
        table.entry(0).holding,
        Holding::Fencing { reset: None, .. }
    ));
}
