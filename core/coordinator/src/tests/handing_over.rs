//! Moves: planned, planned again, cancelled, completed; and who is told.

use std::{vec, vec::Vec};

use wire::{Epoch, MemberId, Offset, PartitionId};

use super::{Table, at, repeated, told, touched};
use crate::{Holding, OwnedPartition, Reset, ResetTo, RevokedPartition};

#[test]
fn grant_is_told_after_the_fence() {
    let mut table = Table::new(2);
    table.join(1);
    let (_, change) = table.join(2);
    assert_eq!(table.drawn(), ["1", "1>2"]);
    assert_eq!(
        told(&change),
        [1],
        "the source is told to finish, the target of nothing yet"
    );
    let revoked = RevokedPartition {
        partition: PartitionId(1),
        epoch: Epoch(10),
        held_since: Epoch(10),
        planned: Epoch(20),
        since: at(20).timestamp,
    };
    assert_eq!(table.assignment(1).revoking, [revoked]);
    assert_eq!(table.assignment(2).owned, []);

    let change = table.complete(&[(1, 20)]);
    assert_eq!(told(&change), [1, 2]);
    let owned = OwnedPartition {
        partition: PartitionId(1),
        epoch: Epoch(20),
        held_since: Epoch(20),
    };
    assert_eq!(table.assignment(2).owned, [owned]);
    assert_eq!(table.assignment(1).revoking, []);
}

#[test]
fn completion_counts_once_and_only_for_its_own_move() {
    let mut table = Table::new(2);
    table.join(1);
    table.join(2);
    let before = table.group.clone();
    for wrong in [(1, 10), (1, 19), (1, 21), (0, 20), (7, 20), (1, 0)] {
        let change = table.complete(&[wrong]);
        assert!(change.is_empty(), "{wrong:?}");
        assert_eq!(table.group, before);
    }
    let change = table.complete(&[(1, 20), (1, 20)]);
    assert_eq!(touched(&change), [1]);
    let generation = table.generation();
    assert!(table.complete(&[(1, 20)]).is_empty());
    assert_eq!(table.generation(), generation);
}

/// The target goes before the hand-over is complete: as if nothing had been, except for a new epoch, since
/// the fence may have been raised.
#[test]
fn cancelled_revocation_gives_back_what_was_owned() {
    let mut table = Table::new(4);
    table.join(1);
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1", "1>2", "1>2"]);
    table.leave(2);
    assert_eq!(table.drawn(), repeated("1", 4));
    let epochs: Vec<_> = table.group.ownerships().map(|it| it.epoch.0).collect();
    assert_eq!(epochs, [10, 10, 30, 30]);
    assert!(
        table
            .group
            .ownerships()
            .all(|it| it.held_since() == Some(Epoch(10)))
    );
    // The completion of the move that was is late.
    assert!(table.complete(&[(2, 20), (3, 20)]).is_empty());
    table.join(3);
    table.settle();
    assert_eq!(table.counts(), [2, 2]);
}

#[test]
fn source_that_goes_is_not_waited_for() {
    let mut table = Table::new(4);
    table.join(1);
    table.join(2);
    let generation = table.generation();
    table.leave(1);
    assert_eq!(table.drawn(), ["->2", "->2", "->2", "->2"]);
    let epochs: Vec<_> = table.moves().iter().map(|(_, epoch)| epoch.0).collect();
    assert_eq!(
        epochs,
        [30, 30, 20, 20],
        "what was on its way keeps its epoch"
    );
    assert_eq!(table.generation(), generation + 1);
    table.complete(&[(2, 20), (3, 20)]);
    table.settle();
    assert_eq!(table.drawn(), repeated("2", 4));
}

#[test]
fn both_parties_may_go() {
    let mut table = Table::new(4);
    table.join(1);
    table.join(2);
    let at = table.next();
    let both = [
        (MemberId(1), wire::SessionNumber(1)),
        (MemberId(2), wire::SessionNumber(2)),
    ];
    table.group.expire(at, &both);
    assert_eq!(table.drawn(), repeated("-", 4));
    table.join(3);
    assert_eq!(table.drawn(), repeated("->3", 4));
    table.settle();
    assert_eq!(table.drawn(), repeated("3", 4));
}

#[test]
fn further_joins_extend_no_deadline() {
    let mut table = Table::new(6);
    table.join(1);
    table.join(2);
    let since: Vec<_> = (3..6)
        .map(|it| table.entry(it).moving().unwrap().since)
        .collect();
    table.join(3);
    table.leave(2);
    for (partition, since) in (3..6).zip(since) {
        if let Some(moving) = table.entry(partition).moving() {
            assert_eq!(moving.since, since);
        }
    }
    assert_eq!(table.drawn(), ["1", "1", "1>3", "1", "1>3", "1>3"]);
}

#[test]
fn move_with_another_target_has_a_new_epoch_and_the_old_one_is_void() {
    let mut table = Table::new(2);
    table.join(1);
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1>2"]);
    let at = table.next();
    table
        .group
        .expire(at, &[(MemberId(2), wire::SessionNumber(2))]);
    table.join(3);
    assert_eq!(table.drawn(), ["1", "1>3"]);
    assert!(table.complete(&[(1, 20)]).is_empty());
    let change = table.complete(&[(1, 40)]);
    assert_eq!(told(&change), [1, 2 + 1]);
}

fn reset(partitions: &[(u32, Option<u64>)], force: bool) -> Reset {
    let partitions = partitions.iter().map(|(partition, to)| {
        let to = to.map_or(ResetTo::Nothing, |offset| ResetTo::Offset(Offset(offset)));
        (PartitionId(*partition), to)
    });
    Reset {
        partitions: partitions.collect(),
        force,
    }
}

#[test]
fn reset_under_members_is_refused_unless_forced() {
    let mut table = Table::new(2);
    table.join(1);
    let before = table.group.clone();
    let at = table.next();
    let refused = table
        .group
        .reset(at, &reset(&[(0, None)], false))
        .unwrap_err();
    let failure = wire::Failure::from(refused);
    assert_eq!(failure.code, wire::ErrorCode::ConsumerGroupNotEmpty);
    assert_eq!(
        failure.text,
        "consumer group \"g\" (id 1) has 1 member (1); it must have none, unless it is forced"
    );
    assert_eq!(table.group, before);

    let at = table.next();
    let change = table
        .group
        .reset(at, &reset(&[(0, Some(7))], true))
        .unwrap();
    assert_eq!(table.drawn(), ["->1", "1"]);
    assert_eq!(
        told(&change),
        [1],
        "the owner is told that it has lost the partition"
    );
    let moving = table.entry(0).moving().unwrap();
    assert_eq!(moving.reset, Some(ResetTo::Offset(Offset(7))));
    let change = table.settle();
    assert_eq!(told(&change), [1]);
    assert_eq!(table.drawn(), ["1", "1"]);
    assert_eq!(
        table.entry(0).held_since(),
        Some(Epoch(30)),
        "a new ownership"
    );
}

#[test]
fn reset_of_an_empty_group_ends_without_an_owner() {
    let mut table = Table::new(2);
    let at = table.next();
    table
        .group
        .reset(at, &reset(&[(0, Some(7)), (1, None)], false))
        .unwrap();
    assert_eq!(table.drawn(), repeated("->-", 2));
    table.settle();
    assert_eq!(table.drawn(), repeated("-", 2));
    assert_eq!(table.entry(0).epoch, Epoch(10));
    // What has an epoch is fenced before it is granted, although nobody ever owned it.
    table.join(1);
    assert_eq!(table.drawn(), repeated("->1", 2));
}

#[test]
fn reset_that_waits_is_kept_by_later_plans() {
    let mut table = Table::new(1);
    let at = table.next();
    table
        .group
        .reset(at, &reset(&[(0, Some(7))], false))
        .unwrap();
    let kept = |table: &Table, epoch| {
        let moving = table.entry(0).moving().unwrap();
        assert_eq!(moving.reset, Some(ResetTo::Offset(Offset(7))));
        assert_eq!(moving.since, super::at(10).timestamp);
        assert_eq!(moving.epoch, Epoch(epoch));
    };
    table.join(1);
    assert_eq!(table.drawn(), ["->1"]);
    kept(&table, 20);
    table.leave(1);
    assert_eq!(
        table.drawn(),
        ["->-"],
        "nobody is left, and still it has to be carried out"
    );
    kept(&table, 30);
    table.join(2);
    kept(&table, 40);
    assert!(table.complete(&[(0, 10), (0, 20), (0, 30)]).is_empty());
    table.settle();
    assert_eq!(table.drawn(), ["2"]);
}

#[test]
fn forced_reset_of_a_moving_partition_goes_to_its_target() {
    let mut table = Table::new(2);
    table.join(1);
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1>2"]);
    let at = table.next();
    table
        .group
        .reset(at, &reset(&[(0, None), (1, None)], true))
        .unwrap();
    assert_eq!(table.drawn(), ["->1", "->2"]);
    assert!(
        table.complete(&[(1, 20)]).is_empty(),
        "the move of before is void"
    );
    table.settle();
    assert_eq!(table.drawn(), ["1", "2"]);
}

#[test]
fn reset_names_partitions_that_exist_once() {
    let mut table = Table::new(2);
    let before = table.group.clone();
    let at = table.next();
    let refused = table
        .group
        .reset(at, &reset(&[(1, None), (2, None)], false))
        .unwrap_err();
    assert_eq!(
        wire::Failure::from(refused).code,
        wire::ErrorCode::PartitionNotFound
    );
    let refused = table
        .group
        .reset(at, &reset(&[(1, None), (1, Some(3))], false))
        .unwrap_err();
    assert_eq!(
        wire::Failure::from(refused).code,
        wire::ErrorCode::InvalidArgument
    );
    assert_eq!(table.group, before);
}

/// Losses of either party at every moment of a hand-over leave nothing that waits for the dead.
#[test]
fn moves_wait_for_members_only() {
    for gone in 1..=3_u64 {
        for completed in 0..4_u32 {
            let mut table = Table::new(6);
            for client in 1..=3 {
                table.join(client);
            }
            let moves = table.moves();
            let some: Vec<_> = moves
                .into_iter()
                .filter(|(it, _)| it.0 % 4 == completed)
                .collect();
            let at = table.next();
            table.group.complete(at, &some);
            table.leave(gone);
            for entry in table.group.ownerships() {
                assert_ne!(entry.heir(), Some(MemberId(gone)));
                assert_ne!(entry.owner(), Some(MemberId(gone)));
                assert_ne!(entry.holding, Holding::Nobody);
            }
            table.settle();
            assert_eq!(table.counts(), vec![3, 3]);
        }
    }
}
