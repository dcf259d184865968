//! Who comes and who goes.

use std::{string::ToString, vec, vec::Vec};

use wire::{ClientId, ErrorCode, Failure, MemberId, Op, PartitionId, SessionNumber};

use super::{Table, at, dynamic, repeated, told, touched};
use crate::{GroupOptions, Holding, Join, Member, OptionsUpdate, Ownership, Weight, member::Slot};

#[test]
fn entries_and_members_are_small() {
    assert!(size_of::<Ownership<Slot>>() <= 48);
    // The longest instance id stands in the member and in an index.
    assert!(size_of::<Member>() + 2 * 255 + 4 * 64 <= 1024);
}

#[test]
fn first_member_owns_everything_at_once() {
    let mut table = Table::new(4);
    let (member, change) = table.join(1);
    assert_eq!(member, 1);
    assert_eq!(table.drawn(), repeated("1", 4));
    assert_eq!(table.generation(), 1);
    assert_eq!(told(&change), [1]);
    assert_eq!(touched(&change), [0, 1, 2, 3]);
}

#[test]
fn joining_again_answers_the_same_membership() {
    let mut table = Table::new(4);
    let (member, _) = table.join(1);
    let generation = table.generation();
    for _ in 0..3 {
        let (again, change) = table.join(1);
        assert_eq!(again, member);
        assert!(change.is_empty());
    }
    assert_eq!(table.generation(), generation);
    assert_eq!(table.group.members().len(), 1);
}

#[test]
fn session_has_one_membership_only() {
    let mut table = Table::new(4);
    table.join(1);
    let otherwise = Join {
        instance: Some("a".to_string()),
        ..dynamic(1)
    };
    let failure = Failure::from(table.try_join(otherwise).unwrap_err());
    assert_eq!(failure.code, ErrorCode::InvalidArgument);
    assert_eq!(
        failure.text,
        "session 1 is member 1 of consumer group \"g\" (id 1) already, with another instance id or weight; it must leave first"
    );
    let heavier = Join {
        weight: Weight(2),
        ..dynamic(1)
    };
    assert!(table.try_join(heavier).is_err());
    assert_eq!(table.group.members().len(), 1);
}

#[test]
fn member_ids_are_never_used_again() {
    let mut table = Table::new(2);
    for id in 1..=5 {
        let (member, _) = table.join(7);
        assert_eq!(member, id);
        table.leave(7);
    }
    assert_eq!(table.group.members().len(), 0);
}

#[test]
fn full_group_refuses_the_next_and_takes_its_own_again() {
    let mut table = Table::new(4);
    for client in 1..=3 {
        let at = table.next();
        table.group.join(at, dynamic(client), 3).unwrap();
    }
    let at = table.next();
    let refused = table.group.join(at, dynamic(4), 3).unwrap_err();
    let failure = Failure::from(refused);
    assert_eq!(failure.code, ErrorCode::ConsumerGroupFull);
    assert_eq!(
        failure.text,
        "consumer group \"g\" (id 1) has 3 members; the limit is 3 (cluster.limits.members_per_group)"
    );
    let at = table.next();
    assert!(table.group.join(at, dynamic(2), 3).is_ok());
}

#[test]
fn newer_session_of_a_client_takes_its_membership_over() {
    let mut table = Table::new(2);
    table.join(1);
    let newer = Join {
        session: SessionNumber(50),
        ..dynamic(1)
    };
    let (joined, _) = table.try_join(newer.clone()).unwrap();
    assert_eq!(joined.member, MemberId(1));
    assert_eq!(table.drawn(), repeated("->1", 2));

    let refused = table.try_join(dynamic(1)).unwrap_err();
    assert_eq!(Failure::from(refused).code, ErrorCode::SessionNotFound);
    let left = table.group.leave(at(900), ClientId(1), SessionNumber(1));
    let failure = Failure::from(left.unwrap_err());
    assert_eq!(failure.code, ErrorCode::ConsumerGroupMemberNotFound);
    assert_eq!(
        failure.text,
        "session 1 is not a member of consumer group \"g\" (id 1)"
    );
}

#[test]
fn expiry_of_several_is_one_plan() {
    let mut table = Table::new(9);
    for client in 1..=3 {
        table.join(client);
        table.settle();
    }
    let generation = table.generation();
    let gone = [
        (MemberId(1), SessionNumber(1)),
        (MemberId(2), SessionNumber(2)),
    ];
    let at = table.next();
    let change = table.group.expire(at, &gone);
    assert_eq!(table.generation(), generation + 1);
    assert_eq!(touched(&change).len(), 6);
    assert_eq!(
        told(&change),
        Vec::<u64>::new(),
        "a grant is told after the fence"
    );
    let change = table.settle();
    assert_eq!(told(&change), [3]);
    assert_eq!(table.counts(), [9]);
}

#[test]
fn expiry_that_was_decided_for_an_older_session_is_harmless() {
    let mut table = Table::new(2);
    table.join_fixed(1, "a");
    table.join_fixed(2, "a");
    table.settle();
    let before = table.group.clone();
    let at = table.next();
    let change = table.group.expire(
        at,
        &[
            (MemberId(1), SessionNumber(1)),
            (MemberId(9), SessionNumber(9)),
        ],
    );
    assert!(change.is_empty());
    assert_eq!(table.group, before);
}

#[test]
fn removed_member_is_told_to_join_again() {
    let mut table = Table::new(2);
    table.join(1);
    let at = table.next();
    table.group.remove(at, MemberId(1)).unwrap();
    let refused = table
        .group
        .membership(ClientId(1), SessionNumber(1))
        .unwrap_err();
    assert_eq!(
        Failure::from(refused).code,
        ErrorCode::ConsumerGroupMemberNotFound
    );
    let at = table.next();
    let refused = table.group.remove(at, MemberId(1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "member 1 is not in consumer group \"g\" (id 1)"
    );
    let (again, _) = table.join(1);
    assert_eq!(again, 2);
}

/// Empty is a proper state, and reachable from every other one.
#[test]
fn all_members_may_go_at_any_moment() {
    let none: fn(&mut Table) = |_| {};
    let moving: fn(&mut Table) = |table| {
        table.join(3);
    };
    let all_moving: fn(&mut Table) = |table| {
        let partitions = [0, 1, 2, 3].map(|it| (PartitionId(it), crate::ResetTo::Nothing));
        let reset = crate::Reset {
            partitions: partitions.to_vec(),
            force: true,
        };
        let at = table.next();
        table.group.reset(at, &reset).unwrap();
    };
    let adding: fn(&mut Table) = |table| {
        let at = table.next();
        table.group.partitions_created(at, 3);
    };
    for phase in [none, moving, all_moving, adding] {
        let mut table = Table::new(4);
        table.join(1);
        table.join(2);
        phase(&mut table);
        let all: Vec<_> = table
            .group
            .members()
            .map(|it| (it.id, it.session))
            .collect();
        let at = table.next();
        table.group.expire(at, &all);
        assert_eq!(table.group.members().len(), 0);
        assert_eq!(table.group.empty_since(), Some(at.timestamp));
        assert!(
            table
                .group
                .ownerships()
                .all(|it| it.owner().is_none() && it.heir().is_none())
        );

        let (member, _) = table.join(9);
        table.settle();
        assert!(
            table
                .group
                .ownerships()
                .all(|it| it.owner() == Some(MemberId(member)))
        );
        assert_eq!(table.moves(), vec![]);
        assert_eq!(table.group.empty_since(), None);
    }
}

#[test]
fn what_was_owned_before_passes_a_fence_again() {
    let mut table = Table::new(1);
    table.join(1);
    table.leave(1);
    assert_eq!(table.entry(0).holding, Holding::Nobody);
    assert_eq!(table.entry(0).epoch.0, 10, "epochs survive an empty group");
    table.join(1);
    assert_eq!(table.drawn(), ["->2"]);
}

fn delayed(partitions: u32) -> Table {
    let options = GroupOptions {
        initial_delay_ms: 500,
        ..GroupOptions::default()
    };
    Table::with(partitions, options)
}

#[test]
fn joins_of_an_empty_group_wait_for_the_initial_delay() {
    let mut table = delayed(10);
    for client in 1..=5 {
        let (joined, change) = table.try_join(dynamic(client)).unwrap();
        assert_eq!(joined.plan_pending, Some(Op(10)));
        assert_eq!(change.ownership, vec![]);
    }
    assert_eq!(table.generation(), 0);
    let at = table.next();
    let change = table.group.plan(at, Op(10));
    assert_eq!(table.generation(), 1, "one plan for all");
    assert_eq!(table.counts(), vec![2; 5]);
    assert_eq!(told(&change), [1, 2, 3, 4, 5]);
    // From now on joins are planned at once.
    let (joined, _) = table.try_join(dynamic(6)).unwrap();
    assert_eq!(joined.plan_pending, None);
    assert_eq!(table.generation(), 2);
}

#[test]
fn plan_of_a_wait_that_is_over_does_nothing() {
    let mut table = delayed(4);
    table.join(1);
    table.leave(1);
    assert_eq!(table.group.plan_pending(), None);
    table.join(2);
    let at = table.next();
    assert!(table.group.plan(at, Op(10)).is_empty());
    assert_eq!(table.group.plan_pending(), Some(Op(30)));
    let at = table.next();
    table.group.plan(at, Op(30));
    assert_eq!(table.drawn(), repeated("2", 4));
    let before = table.group.clone();
    let at = table.next();
    assert!(table.group.plan(at, Op(30)).is_empty());
    assert_eq!(table.group, before);
}

#[test]
fn options_change_without_a_new_generation() {
    let mut table = Table::new(2);
    table.join(1);
    let generation = table.generation();
    let update = OptionsUpdate {
        rebalance_timeout_ms: Some(3_000),
        ..OptionsUpdate::default()
    };
    let at = table.next();
    let change = table.group.update(at, &update).unwrap();
    assert_eq!(change.options.unwrap().rebalance_timeout_ms, 3_000);
    assert_eq!(table.generation(), generation);
    let at = table.next();
    assert!(table.group.update(at, &update).unwrap().is_empty());

    let silly = OptionsUpdate {
        rebalance_timeout_ms: Some(0),
        ..OptionsUpdate::default()
    };
    let at = table.next();
    assert!(table.group.update(at, &silly).is_err());
    assert_eq!(table.group.options().rebalance_timeout_ms, 3_000);
}
