//! Operations on consumer groups at random.

use std::{
    string::{String, ToString},
    vec::Vec,
};

use coordinator::{GroupOptions, MemberState, OptionsUpdate, ResetTo, StartPolicy, Weight};
use proptest::{
    bool, collection::vec, option, prelude::Strategy, prop_oneof, sample::select, strategy::Just,
};
use wire::{
    ConsumerGroupId, Epoch, Identifier, MemberId, Offset, Op, PartitionId, SessionNumber, StreamId,
    Timestamp, TopicId,
};

use super::random::{asker, client, identifier, name};
use crate::{Catalog, GroupKey, Operation, Topic};

/// Mostly numbers, which [`aim_at_groups`] makes those of things that are there.
fn place() -> impl Strategy<Value = Identifier> {
    prop_oneof![
        9 => (0..12_u64).prop_map(Identifier::Number),
        1 => identifier(),
    ]
}

fn path() -> impl Strategy<Value = (Identifier, Identifier, Identifier)> {
    (place(), place(), place())
}

fn key() -> impl Strategy<Value = GroupKey> {
    (0..4_u64, 0..4_u64, 0..12_u64).prop_map(|(stream, topic, group)| GroupKey {
        stream: StreamId(stream),
        topic: TopicId(topic),
        group: ConsumerGroupId(group),
    })
}

fn options() -> impl Strategy<Value = GroupOptions> {
    (
        prop_oneof![8 => Just(30_000_u32), 1 => Just(1)],
        prop_oneof![3 => Just(0_u32), 1 => Just(3_000)],
        start(),
        prop_oneof![Just(0_u64), Just(60_000)],
    )
        .prop_map(|(rebalance, delay, start, expiry)| GroupOptions {
            rebalance_timeout_ms: rebalance,
            initial_delay_ms: delay,
            start,
            offset_expiry_ms: expiry,
        })
}

fn start() -> impl Strategy<Value = StartPolicy> {
    prop_oneof![
        Just(StartPolicy::Earliest),
        Just(StartPolicy::Latest),
        (0..9_u64).prop_map(|time| StartPolicy::Timestamp(Timestamp(time))),
    ]
}

fn update() -> impl Strategy<Value = OptionsUpdate> {
    (
        option::of(prop_oneof![Just(5_000_u32), Just(1)]),
        option::of(Just(0_u32)),
        option::of(start()),
    )
        .prop_map(
            |(rebalance_timeout_ms, initial_delay_ms, start)| OptionsUpdate {
                rebalance_timeout_ms,
                initial_delay_ms,
                start,
                offset_expiry_ms: None,
            },
        )
}

fn reset_to() -> impl Strategy<Value = ResetTo> {
    prop_oneof![
        Just(ResetTo::Nothing),
        (0..9_u64).prop_map(|offset| ResetTo::Offset(Offset(offset))),
        start().prop_map(ResetTo::Start),
    ]
}

fn of_administrators() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (asker(), path(), name(), options()).prop_map(
            |(by, (stream, topic, _), name, options)| {
                Operation::CreateConsumerGroup { by, stream, topic, name, options }
            },
        ),
        1 => (asker(), path(), bool::ANY).prop_map(
            |(by, (stream, topic, group), force)| {
                Operation::DeleteConsumerGroup { by, stream, topic, group, force }
            },
        ),
        1 => (asker(), path(), update()).prop_map(|(by, (stream, topic, group), options)| {
            Operation::UpdateConsumerGroup { by, stream, topic, group, options }
        }),
        2 => (asker(), path(), 0..5_u64).prop_map(|(by, (stream, topic, group), member)| {
            let member = MemberId(member);
            Operation::RemoveMember { by, stream, topic, group, member }
        }),
        2 => (
            asker(),
            path(),
            vec(((0..5_u32).prop_map(PartitionId), reset_to()), 0..3),
            option::of(reset_to()),
            bool::ANY,
        )
            .prop_map(|(by, (stream, topic, group), partitions, others, force)| {
                Operation::ResetConsumerOffset {
                    by,
                    stream,
                    topic,
                    group,
                    partitions,
                    others,
                    force,
                }
            }),
    ]
}

fn of_members() -> impl Strategy<Value = Operation> {
    let number = || (0..6_u64).prop_map(SessionNumber);
    let instance = || option::of(select(&["a", "b", "7", ""][..]).prop_map(String::from));
    let weight = || prop_oneof![8 => Just(Weight(1)), 1 => Just(Weight(2)), 1 => Just(Weight(0))];
    prop_oneof![
        8 => (client(), number(), path(), instance(), weight()).prop_map(
            |(client, session, (stream, topic, group), instance, weight)| {
                Operation::JoinConsumerGroup {
                    client,
                    session,
                    stream,
                    topic,
                    group,
                    instance,
                    weight,
                    address: client.0.to_string(),
                }
            },
        ),
        1 => (client(), number(), path()).prop_map(
            |(client, session, (stream, topic, group))| {
                Operation::LeaveConsumerGroup { client, session, stream, topic, group }
            },
        ),
    ]
}

fn of_the_primary() -> impl Strategy<Value = Operation> {
    let moves = || {
        vec(
            (
                (0..5_u32).prop_map(PartitionId),
                (0..40_u64).prop_map(Epoch),
            ),
            0..4,
        )
    };
    let members = || {
        let member = (1..5_u64).prop_map(MemberId);
        vec((member, (0..4_u64).prop_map(SessionNumber)), 0..3)
    };
    prop_oneof![
        1 => vec((key(), (0..40_u64).prop_map(Op)), 0..3)
            .prop_map(|groups| Operation::PlanGroups { groups }),
        4 => vec((key(), moves()), 0..3).prop_map(|groups| Operation::CompleteMoves { groups }),
        1 => vec((key(), members()), 0..3).prop_map(|groups| Operation::ExpireMembers { groups }),
        1 => vec((key(), (0..9_u64).prop_map(Timestamp)), 0..2)
            .prop_map(|groups| Operation::ExpireGroups { groups }),
    ]
}

/// Any operation on consumer groups.
pub(super) fn group_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => of_administrators().boxed(),
        20 => of_members().boxed(),
        10 => of_the_primary().boxed(),
    ]
}

/// The numbers of a path, made those of what is there.
fn aim_path(path: [&mut Identifier; 3], catalog: &Catalog) {
    let [stream, topic, group] = path;
    let Some(found) = aim_topic([stream, topic], catalog) else {
        return;
    };
    if let Identifier::Number(number) = group
        && let Some(found) = nth(found.groups().iter().map(|group| group.id().0), *number)
    {
        *number = found;
    }
}

fn aim_topic<'a>(path: [&mut Identifier; 2], catalog: &'a Catalog) -> Option<&'a Topic> {
    let [stream, topic] = path;
    let (Identifier::Number(stream), Identifier::Number(topic)) = (stream, topic) else {
        return None;
    };
    let topics: Vec<_> = catalog.topics().collect();
    let at = nth(0..topics.len() as u64, *topic)?;
    let (stream_id, found) = topics[usize::try_from(at).expect("it is an index")];
    (*stream, *topic) = (stream_id.0, found.id().0);
    Some(found)
}

fn nth(of: impl Iterator<Item = u64>, number: u64) -> Option<u64> {
    let all: Vec<u64> = of.collect();
    let count = all.len() as u64;
    let at = number.checked_rem(count)?;
    Some(all[usize::try_from(at).expect("it is an index")])
}

/// A key that was drawn, made that of a group that is there.
fn aim_key(key: &mut GroupKey, catalog: &Catalog) {
    let keys: Vec<GroupKey> = catalog
        .topics()
        .flat_map(|(stream, topic)| {
            topic.groups().iter().map(move |group| GroupKey {
                stream,
                topic: topic.id(),
                group: group.id(),
            })
        })
        .collect();
    if key.stream.0 > 0
        && let Some(at) = nth(0..keys.len() as u64, key.group.0)
    {
        *key = keys[usize::try_from(at).expect("it is an index")];
    }
}

/// Paths, keys, moves, pending plans and sessions of those who are away.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others are not about groups"
)]
pub(super) fn aim_at_groups(operation: &mut Operation, catalog: &Catalog) {
    match operation {
        Operation::CreateConsumerGroup { stream, topic, .. } => {
            aim_topic([stream, topic], catalog);
        }
        Operation::DeleteConsumerGroup {
            stream,
            topic,
            group,
            ..
        }
        | Operation::UpdateConsumerGroup {
            stream,
            topic,
            group,
            ..
        }
        | Operation::RemoveMember {
            stream,
            topic,
            group,
            ..
        }
        | Operation::ResetConsumerOffset {
            stream,
            topic,
            group,
            ..
        }
        | Operation::JoinConsumerGroup {
            stream,
            topic,
            group,
            ..
        }
        | Operation::LeaveConsumerGroup {
            stream,
            topic,
            group,
            ..
        } => aim_path([stream, topic, group], catalog),
        Operation::PlanGroups { groups } => {
            for (key, pending) in groups {
                aim_key(key, catalog);
                let group = catalog.consumer_group(key);
                *pending = group.and_then(|it| it.plan_pending()).unwrap_or(*pending);
            }
        }
        Operation::CompleteMoves { groups } => {
            for (key, moves) in groups {
                aim_key(key, catalog);
                for (partition, epoch) in moves {
                    let group = catalog.consumer_group(key);
                    let entry = group.and_then(|group| group.ownership(*partition));
                    let moving = entry.and_then(|entry| entry.moving());
                    *epoch = moving.map_or(*epoch, |moving| moving.epoch);
                }
            }
        }
        Operation::ExpireMembers { groups } => {
            for (key, members) in groups {
                aim_key(key, catalog);
                let Some(group) = catalog.consumer_group(key) else {
                    continue;
                };
                for (member, session) in members {
                    let found = group.member(*member);
                    let away = found.filter(|it| it.state == MemberState::Detached);
                    *session = away.map_or(*session, |member| member.session);
                }
            }
        }
        Operation::ExpireGroups { groups } => {
            for (key, since) in groups {
                aim_key(key, catalog);
                let group = catalog.consumer_group(key);
                *since = group.and_then(|it| it.empty_since()).unwrap_or(*since);
            }
        }
        _ => {}
    }
}
