//! Bytes with consumer groups in them, which every later version must read.

use std::{fs, path::PathBuf, string::String, vec::Vec};

use coordinator::{GroupOptions, OptionsUpdate, ResetTo, StartPolicy, Weight};
use wire::{
    ClientId, ConsumerGroupId, Epoch, EvictionReason, MemberId, Offset, Op, PartitionId,
    SessionNumber, StreamId, Timestamp, TopicId, UserId,
};

use super::{
    CONFIG, Run,
    consumer_groups::{create_group, join, key},
    fixtures::{Edit, decode, scenario},
    named,
};
use crate::{Catalog, GroupKey, Limits, Operation};

/// Written by the first version with consumer groups, for the state that [`group_scenario`] makes.
const SNAPSHOT_GROUPS: &[u8] = include_bytes!("../../fixtures/snapshot-1-groups.rmp");

/// The operations on consumer groups, with every form that a field can take.
pub(super) fn of_groups() -> Vec<Operation> {
    let mut operations = of_administrators();
    operations.extend(of_members());
    operations.extend(of_the_primary());
    operations
}

fn of_administrators() -> Vec<Operation> {
    let (by, stream, topic) = (UserId::ROOT, named("sales"), TopicId(2).into());
    let create = |name: &str, start| Operation::CreateConsumerGroup {
        by,
        stream: named("sales"),
        topic: TopicId(2).into(),
        name: name.into(),
        options: GroupOptions {
            start,
            offset_expiry_ms: 60_000,
            ..GroupOptions::default()
        },
    };
    let limits = Limits {
        members_per_group: 100,
        ..Limits::INITIAL
    };
    [
        Operation::SetLimits { limits },
        create("billing", StartPolicy::Earliest),
        create("audit", StartPolicy::Latest),
        create("replay", StartPolicy::Timestamp(Timestamp(7))),
        Operation::DeleteConsumerGroup {
            by,
            stream: StreamId(1).into(),
            topic: named("refunds"),
            group: named("replay"),
            force: true,
        },
        Operation::UpdateConsumerGroup {
            by,
            stream: named("sales"),
            topic: TopicId(2).into(),
            group: named("audit"),
            options: OptionsUpdate::default(),
        },
        Operation::UpdateConsumerGroup {
            by,
            stream: named("sales"),
            topic: TopicId(2).into(),
            group: ConsumerGroupId(2).into(),
            options: OptionsUpdate {
                rebalance_timeout_ms: Some(5_000),
                initial_delay_ms: Some(0),
                start: Some(StartPolicy::Timestamp(Timestamp(9))),
                offset_expiry_ms: Some(0),
            },
        },
        Operation::RemoveMember {
            by,
            stream: named("sales"),
            topic: TopicId(2).into(),
            group: named("audit"),
            member: MemberId(9),
        },
        Operation::ResetConsumerOffset {
            by,
            stream,
            topic,
            group: named("audit"),
            partitions: [
                (PartitionId(0), ResetTo::Nothing),
                (PartitionId(1), ResetTo::Offset(Offset(4))),
                (PartitionId(2), ResetTo::Start(StartPolicy::Latest)),
            ]
            .to_vec(),
            others: Some(ResetTo::Nothing),
            force: false,
        },
        Operation::ResetConsumerOffset {
            by,
            stream: named("sales"),
            topic: TopicId(2).into(),
            group: named("audit"),
            partitions: Vec::new(),
            others: None,
            force: true,
        },
    ]
    .into()
}

fn of_members() -> Vec<Operation> {
    let (client, session) = (ClientId(20), SessionNumber(21));
    let join = |instance: Option<&str>| Operation::JoinConsumerGroup {
        client,
        session,
        stream: named("sales"),
        topic: named("refunds"),
        group: named("billing"),
        instance: instance.map(String::from),
        weight: Weight(3),
        address: "10.0.0.20:4000".into(),
    };
    let leave = Operation::LeaveConsumerGroup {
        client,
        session,
        stream: named("sales"),
        topic: named("refunds"),
        group: named("billing"),
    };
    [join(None), leave, join(Some("a-1"))].into()
}

fn of_the_primary() -> Vec<Operation> {
    let key = GroupKey {
        stream: StreamId(1),
        topic: TopicId(2),
        group: ConsumerGroupId(u64::MAX),
    };
    [
        Operation::PlanGroups {
            groups: [(key, Op(40))].to_vec(),
        },
        Operation::CompleteMoves {
            groups: [(key, [(PartitionId(1), Epoch(41))].to_vec())].to_vec(),
        },
        Operation::ExpireMembers {
            groups: [(key, [(MemberId(1), SessionNumber(12))].to_vec())].to_vec(),
        },
        Operation::ExpireGroups {
            groups: [(key, Timestamp(1_000_040))].to_vec(),
        },
    ]
    .into()
}

/// The state of [`scenario`] with groups in which nothing is empty: members of all kinds, one that was
/// taken over, one that is away, moves with and without source, resets, a plan that is pending, a group
/// that is gone.
fn group_scenario() -> Run {
    let mut run = scenario();
    for operation in of_groups() {
        run.apply(&operation);
    }
    let sessions: Vec<SessionNumber> = (30..34)
        .map(|client| run.log_in(client, UserId::ROOT))
        .collect();
    let topic = ("sales", "refunds");
    for (client, instance, group) in [
        (30, Some("b"), "billing"),
        (31, None, "billing"),
        (32, Some("b"), "billing"),
        (33, Some("c"), "billing"),
        (30, None, "audit"),
        (33, None, "audit"),
    ] {
        let at = usize::try_from(client - 30).unwrap();
        run.accept(join((client, sessions[at]), topic, (group, instance)));
    }
    run.accept(Operation::EndSessions {
        sessions: [(ClientId(33), sessions[3])].to_vec(),
        reason: EvictionReason::Disconnected,
    });
    run.accept(create_group(
        topic,
        "waiting",
        GroupOptions {
            initial_delay_ms: 3_000,
            ..GroupOptions::default()
        },
    ));
    run.accept(join((31, sessions[1]), topic, ("waiting", None)));
    run.accept(Operation::ResetConsumerOffset {
        by: UserId::ROOT,
        stream: named("sales"),
        topic: named("refunds"),
        group: named("audit"),
        partitions: [(PartitionId(0), ResetTo::Offset(Offset(4)))].to_vec(),
        others: Some(ResetTo::Start(StartPolicy::Latest)),
        force: true,
    });
    run
}

#[test]
fn snapshot_with_groups_is_read_and_written_as_ever() {
    let run = group_scenario();
    let written = rmp_serde::to_vec(&run.catalog.snapshot()).unwrap();
    assert!(
        written == SNAPSHOT_GROUPS,
        "a new layout needs a fixture of its own beside this one"
    );
    let restored = Catalog::restore(CONFIG, decode(SNAPSHOT_GROUPS)).unwrap();
    assert_eq!(restored, run.catalog);
    assert_eq!(restored.digest(), run.catalog.digest());
}

#[test]
#[ignore = "writes the fixture anew: only for a layout that no release has written"]
fn snapshot_with_groups_is_written() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/snapshot-1-groups.rmp");
    let snapshot = rmp_serde::to_vec(&group_scenario().catalog.snapshot()).unwrap();
    fs::write(path, snapshot).unwrap();
}

/// Changes to the fixture, each of which makes another state of it.
const OTHER_STATES: &[Edit] = &[
    |s| s.limits.members_per_group += 1,
    |s| s.streams[0].topics[1].groups.next_group.0 += 1,
    |s| s.streams[0].topics[0].groups.next_group.0 += 1,
    |s| s.streams[0].topics[1].groups.groups[0].name.push('x'),
    |s| s.streams[0].topics[1].groups.groups[0].generation.0 += 1,
    |s| s.streams[0].topics[1].groups.groups[0].members[0].weight.0 += 1,
    |s| s.streams[0].topics[1].groups.groups[1].ownership[0].epoch.0 -= 1,
    |s| s.streams[0].topics[1].groups.groups.truncate(2),
];

#[test]
fn every_part_of_the_groups_is_in_the_digest() {
    let mut digests = [group_scenario().catalog.digest()].to_vec();
    for change in OTHER_STATES {
        let mut snapshot = decode(SNAPSHOT_GROUPS);
        change(&mut snapshot);
        let catalog = Catalog::restore(CONFIG, snapshot).unwrap();
        let digest = catalog.digest();
        assert!(!digests.contains(&digest), "change {}", digests.len() - 1);
        digests.push(digest);
    }
}

/// Changes to the fixture, each of which no catalog can hold, with what is said of them.
const CONTRADICTIONS: &[(Edit, &str)] = &[
    (
        |s| s.sessions.retain(|session| session.client != ClientId(31)),
        "has ended",
    ),
    (
        |s| s.streams[0].topics[1].groups.next_group = ConsumerGroupId(2),
        "topic \"refunds\": the consumer groups contradict themselves or their topic",
    ),
    (
        |s| s.streams[0].topics[1].groups.version = 2,
        "topic \"refunds\": consumer groups of version 2",
    ),
    (
        |s| s.streams[0].topics[1].partitions.truncate(1),
        "2 partitions of 1",
    ),
];

#[test]
fn snapshot_whose_groups_contradict_it_is_refused() {
    for (change, what) in CONTRADICTIONS {
        let mut snapshot = decode(SNAPSHOT_GROUPS);
        change(&mut snapshot);
        let refused = Catalog::restore(CONFIG, snapshot).unwrap_err();
        let text = std::format!("{refused}");
        assert!(text.contains(what), "{text:?} does not say {what:?}");
    }
}

#[test]
fn index_of_memberships_is_restored() {
    let run = group_scenario();
    let restored = Catalog::restore(CONFIG, run.catalog.snapshot()).unwrap();
    let of = |client| restored.memberships(ClientId(client)).collect::<Vec<_>>();
    assert_eq!(of(31), [key(1, 2, 1), key(1, 2, 4)]);
    assert_eq!(of(33), []);
}
