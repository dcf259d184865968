//! Snapshots and replay.

use std::{string::ToString, vec::Vec};

use proptest::{collection::vec, prop_assert_eq, proptest};
use wire::{ClientId, ConsumerGroupId, Epoch, MemberId, Offset, Op, PartitionId, SessionNumber};

use super::{
    Table, at, dynamic, fixed,
    random::{Run, digest, operation, restored},
};
use crate::{
    ConsumerGroups, GroupsSnapshot, MoveSnapshot, OwnershipSnapshot, Reset, ResetSnapshot, ResetTo,
    RestoreContext, RestoreError, StartPolicy,
};

/// Puts another reset where there is one.
fn reset(snapshot: &mut GroupsSnapshot, to: ResetTo) {
    let moving = snapshot.groups[0].ownership[0].moving.as_mut();
    moving.unwrap().reset = Some(to.into());
}

/// Makes a snapshot another one.
type Spoil = fn(&mut GroupsSnapshot);

/// A group in which every field of a snapshot has something in it.
fn rich() -> Table {
    let mut table = Table::new(6);
    table.join_fixed(1, "a");
    table.join(2);
    table.settle();
    table.join_fixed(3, "b");
    table.join_fixed(4, "a");
    let at = table.next();
    table
        .group
        .end_sessions(at, &[(ClientId(3), SessionNumber(3))], true);
    let partitions = Vec::from([
        (PartitionId(0), ResetTo::Nothing),
        (PartitionId(1), ResetTo::Offset(Offset(0))),
        (PartitionId(2), ResetTo::Start(StartPolicy::Latest)),
    ]);
    let at = table.next();
    table
        .group
        .reset(
            at,
            &Reset {
                partitions,
                force: true,
            },
        )
        .unwrap();
    table
}

fn snapshot(table: &Table) -> GroupsSnapshot {
    GroupsSnapshot {
        next_group: ConsumerGroupId(2),
        groups: Vec::from([table.group.snapshot()]),
        ..GroupsSnapshot::default()
    }
}

fn restore(snapshot: GroupsSnapshot) -> Result<ConsumerGroups, RestoreError> {
    let context = RestoreContext {
        applied: Op(1_000),
        partitions: 6,
    };
    ConsumerGroups::restore(context, snapshot)
}

#[test]
fn snapshot_gives_back_the_group() {
    let table = rich();
    let again = restored(&table.group, Op(table.op));
    assert_eq!(again, table.group);
    assert_eq!(digest(&again), digest(&table.group));
    assert_eq!(again.snapshot(), table.group.snapshot());
}

/// What is nothing, what is an offset, and what is not there must stay different in bytes.
#[test]
fn resets_are_told_apart_in_bytes() {
    let resets = [
        None,
        Some(ResetTo::Nothing),
        Some(ResetTo::Offset(Offset(0))),
        Some(ResetTo::Start(StartPolicy::Latest)),
    ];
    for reset in resets {
        let entry = OwnershipSnapshot {
            epoch: Epoch(1),
            owner: None,
            moving: Some(MoveSnapshot {
                to: None,
                epoch: Epoch(2),
                since: at(2).timestamp,
                reset: reset.map(ResetSnapshot::from),
            }),
        };
        let bytes = rmp_serde::to_vec(&entry).unwrap();
        let read: OwnershipSnapshot = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(read, entry);
    }
}

/// Written by the first version; must stay readable.
#[test]
fn snapshot_of_the_first_version_is_read() {
    let table = rich();
    let written = rmp_serde::to_vec(&snapshot(&table)).unwrap();
    let fixture = include_bytes!("../../fixtures/groups-1.rmp");
    assert_eq!(
        written, fixture,
        "the bytes of a snapshot change only with its version"
    );
    let read: GroupsSnapshot = rmp_serde::from_slice(fixture).unwrap();
    let groups = restore(read).unwrap();
    assert_eq!(groups.group(ConsumerGroupId(1)), Some(&table.group));
}

#[test]
#[ignore = "writes the fixture anew: only for a layout that no release has written"]
fn fixture_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/groups-1.rmp");
    let written = rmp_serde::to_vec(&snapshot(&rich())).unwrap();
    std::fs::write(path, written).unwrap();
}

#[test]
fn later_versions_are_refused() {
    let later = GroupsSnapshot {
        version: 2,
        ..GroupsSnapshot::default()
    };
    let refused = restore(later).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "consumer groups of version 2, above 1, the highest that this version reads"
    );
}

#[test]
fn contradictions_are_refused_and_named() {
    let spoilt: [(&str, Spoil); 19] = [
        ("group id 1 with next id 1", |it| {
            it.next_group = ConsumerGroupId(1)
        }),
        ("is there twice", |it| it.groups.push(it.groups[0].clone())),
        ("start policy 9", |it| it.groups[0].options.start = 9),
        ("created by op 1001", |it| it.groups[0].created = Op(1_001)),
        ("3 members", |it| {
            it.groups[0].empty_since = Some(at(1).timestamp)
        }),
        ("0 members", |it| it.groups[0].members.clear()),
        ("member 3", |it| it.groups[0].next_member = MemberId(3)),
        ("member 0", |it| it.groups[0].members[1].id = MemberId(0)),
        ("member 1", |it| it.groups[0].members[1].id = MemberId(1)),
        ("member 2", |it| {
            it.groups[0].members[1].client = ClientId(4)
        }),
        ("member 3", |it| {
            it.groups[0].members[2].instance = Some("a".to_string())
        }),
        ("member 3", |it| it.groups[0].members[2].instance = None),
        ("5 partitions of 6", |it| it.groups[0].ownership.truncate(5)),
        ("partition 5", |it| {
            it.groups[0].ownership[5].owner = Some((MemberId(9), Epoch(1)))
        }),
        ("partition 5", |it| {
            it.groups[0].ownership[5].epoch = Epoch(0)
        }),
        ("partition 0", |it| {
            it.groups[0].ownership[0].owner = Some((MemberId(2), Epoch(1)));
        }),
        ("partition 0", |it| {
            it.groups[0].ownership[0].moving.as_mut().unwrap().epoch = Epoch(1_001);
        }),
        ("partition 2", |it| {
            let moving = it.groups[0].ownership[2].moving.as_mut().unwrap();
            moving.reset.as_mut().unwrap().offset = Some(Offset(1));
        }),
        ("partition 2", |it| {
            let moving = it.groups[0].ownership[2].moving.as_mut().unwrap();
            moving.reset.as_mut().unwrap().start = Some((3, at(1).timestamp));
        }),
    ];
    let sound = snapshot(&rich());
    assert!(restore(sound.clone()).is_ok());
    for (what, spoil) in spoilt {
        let mut snapshot = sound.clone();
        spoil(&mut snapshot);
        let refused = restore(snapshot).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused:?} does not name {what:?}");
    }
}

#[test]
fn nobody_owns_anything_before_the_first_plan() {
    let mut snapshot = snapshot(&rich());
    snapshot.groups[0].plan_pending = Some(Op(5));
    assert!(restore(snapshot).is_err());
}

#[test]
fn digest_differs_in_every_field() {
    let rich = rich();
    let mut digests = Vec::from([digest(&rich.group)]);
    let sound = snapshot(&rich);
    let changes: [Spoil; 15] = [
        |it| it.groups[0].name.push('x'),
        |it| it.groups[0].created = Op(2),
        |it| it.groups[0].options.start = 1,
        |it| it.groups[0].generation.0 += 1,
        |it| it.groups[0].next_member.0 += 1,
        |it| it.groups[0].members[0].session.0 += 100,
        |it| it.groups[0].members[0].displaced = None,
        |it| it.groups[0].members[1].instance = Some(std::string::String::new() + "z"),
        |it| it.groups[0].members[1].weight.0 = 2,
        |it| it.groups[0].members[1].address.push('0'),
        |it| it.groups[0].members[2].detached = false,
        |it| it.groups[0].ownership[0].moving.as_mut().unwrap().reset = None,
        |it| reset(it, ResetTo::Start(StartPolicy::Earliest)),
        |it| reset(it, ResetTo::Start(StartPolicy::Timestamp(at(3).timestamp))),
        |it| it.groups[0].ownership[1].moving.as_mut().unwrap().since.0 += 1,
    ];
    for change in changes {
        let mut snapshot = sound.clone();
        change(&mut snapshot);
        let groups = restore(snapshot).unwrap();
        digests.push(digest(groups.group(ConsumerGroupId(1)).unwrap()));
    }
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

/// Members sit in other slots after a restore; nothing that is decided may depend on it.
#[test]
fn decisions_do_not_depend_on_the_order_of_slots() {
    let mut table = Table::new(30);
    for client in 1..=6 {
        table.join(client);
        table.settle();
    }
    for client in [2, 5, 1] {
        table.leave(client);
    }
    for client in [7, 8] {
        table.join(client);
    }
    let mut twin = Table {
        group: restored(&table.group, Op(table.op)),
        op: table.op,
    };
    for replica in [&mut table, &mut twin] {
        replica.try_join(fixed(9, "a")).unwrap();
        replica.leave(4);
        replica.settle();
        replica.try_join(dynamic(10)).unwrap();
    }
    assert_eq!(digest(&table.group), digest(&twin.group));
}

proptest! {
    #[test]
    fn replay_from_the_beginning_gives_an_equal_digest(
        partitions in 1..9_u32,
        operations in vec(operation(6, &[1, 0, 2]), 1..60),
    ) {
        let play = || -> Result<Vec<u128>, proptest::test_runner::TestCaseError> {
            let mut run = Run::new(partitions);
            let mut digests = Vec::new();
            for operation in &operations {
                run.step(operation)?;
                digests.push(digest(&run.group));
            }
            Ok(digests)
        };
        prop_assert_eq!(play()?, play()?);
    }
}
