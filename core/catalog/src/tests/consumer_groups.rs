//! Consumer groups as a part of the catalog. What happens within one group is tested with its rules.

use std::{
    string::{String, ToString},
    vec::Vec,
};

use coordinator::{GroupOptions, Holder, MemberState, OptionsUpdate, ResetTo, StartPolicy, Weight};
use wire::{
    ClientId, ConsumerGroupId, Epoch, ErrorCode, EvictionReason, GetConsumerGroup,
    GetConsumerGroups, MemberId, MemberStatus, Offset, Op, PartitionId, ReplicaId, Reply,
    ResetTarget, SessionNumber, StreamId, SyncConsumerGroup, Timestamp, TopicId, UserId,
};

use super::{Run, named, password, time_of};
use crate::{
    CachedReply, Change, GroupKey, GroupTimer, Limits, Membership, Notice, Observed, Operation,
    Outcome,
};

const ROOT: UserId = UserId::ROOT;

pub(super) fn key(stream: u64, topic: u64, group: u64) -> GroupKey {
    GroupKey {
        stream: StreamId(stream),
        topic: TopicId(topic),
        group: ConsumerGroupId(group),
    }
}

pub(super) fn create_group(
    (stream, topic): (&str, &str),
    name: &str,
    options: GroupOptions,
) -> Operation {
    Operation::CreateConsumerGroup {
        by: ROOT,
        stream: named(stream),
        topic: named(topic),
        name: name.to_string(),
        options,
    }
}

pub(super) fn join(
    (client, session): (u128, SessionNumber),
    (stream, topic): (&str, &str),
    (group, instance): (&str, Option<&str>),
) -> Operation {
    Operation::JoinConsumerGroup {
        client: ClientId(client),
        session,
        stream: named(stream),
        topic: named(topic),
        group: named(group),
        instance: instance.map(ToString::to_string),
        weight: Weight::default(),
        address: std::format!("10.0.0.{client}:4000"),
    }
}

fn leave(client: u128, session: SessionNumber, group: &str) -> Operation {
    Operation::LeaveConsumerGroup {
        client: ClientId(client),
        session,
        stream: named("s"),
        topic: named("t"),
        group: named(group),
    }
}

fn delete(group: &str, force: bool) -> Operation {
    Operation::DeleteConsumerGroup {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        group: named(group),
        force,
    }
}

fn reset(partitions: &[(u32, ResetTo)], others: Option<ResetTo>, force: bool) -> Operation {
    let partitions = partitions.iter().map(|(id, to)| (PartitionId(*id), *to));
    Operation::ResetConsumerOffset {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        group: named("g"),
        partitions: partitions.collect(),
        others,
        force,
    }
}

fn end(sessions: &[(u128, SessionNumber)], reason: EvictionReason) -> Operation {
    let sessions = sessions.iter().map(|(client, it)| (ClientId(*client), *it));
    Operation::EndSessions {
        sessions: sessions.collect(),
        reason,
    }
}

fn sync(group: &str) -> SyncConsumerGroup {
    SyncConsumerGroup {
        stream: named("s"),
        topic: named("t"),
        group: named(group),
    }
}

/// Stream `s` with topic `t` of 4 partitions and group `g`.
fn with_group() -> Run {
    let mut run = Run::new();
    run.create_stream("s");
    run.create_topic("s", "t", 4);
    run.accept(create_group(("s", "t"), "g", GroupOptions::default()));
    run
}

impl Run {
    /// Logs a client in and makes it a member of group `g`.
    #[track_caller]
    fn member(&mut self, client: u128) -> (SessionNumber, Membership) {
        let session = self.log_in(client, ROOT);
        (session, self.join(client, session, ("g", None)))
    }

    #[track_caller]
    fn join(
        &mut self,
        client: u128,
        session: SessionNumber,
        group: (&str, Option<&str>),
    ) -> Membership {
        let outcome = self.accept(join((client, session), ("s", "t"), group));
        outcome.joined.expect("a join that succeeds tells of it")
    }

    /// Completes every move of a group.
    fn settle(&mut self, key: GroupKey) -> Outcome {
        let group = self.catalog.consumer_group(&key).unwrap();
        let entries = (0..).map(PartitionId).zip(group.ownerships());
        let moves = entries.filter_map(|(partition, it)| Some((partition, it.moving()?.epoch)));
        let groups = [(key, moves.collect())].to_vec();
        self.accept(Operation::CompleteMoves { groups })
    }

    /// How many partitions each member of group `g` owns.
    fn counts(&self) -> Vec<usize> {
        let group = self.catalog.consumer_group(&key(1, 1, 1)).unwrap();
        let owned = |member| {
            let entries = group.ownerships();
            entries.filter(|it| it.owner() == Some(member)).count()
        };
        group.members().map(|member| owned(member.id)).collect()
    }

    fn members(&self, key: GroupKey) -> Vec<(u128, MemberState)> {
        let group = self.catalog.consumer_group(&key).unwrap();
        let members = group.members();
        members.map(|it| (it.client.0, it.state)).collect()
    }
}

/// Which groups an outcome's changes are about.
fn changed(outcome: &Outcome) -> Vec<u64> {
    let group = |change: &Change| {
        let Change::ConsumerGroupChanged { change, .. } = change else {
            return None;
        };
        Some(change.group.0)
    };
    outcome.changes.iter().filter_map(group).collect()
}

fn told(outcome: &Outcome) -> Vec<(u128, u64)> {
    let notices = outcome.changes.iter().flat_map(Change::notices);
    notices.map(|it| (it.client.0, it.key.group.0)).collect()
}

#[test]
fn creating_a_group_under_an_existing_name_changes_nothing_and_tells_its_id() {
    let mut run = with_group();
    let (session, _) = run.member(10);
    let again = create_group(
        ("s", "t"),
        "g",
        GroupOptions {
            rebalance_timeout_ms: 99,
            ..GroupOptions::default()
        },
    );
    let text = run.refuse(ErrorCode::ConsumerGroupAlreadyExists, again);
    assert_eq!(text, "consumer group \"g\" (id 1) exists already");
    assert!(run.catalog.session(ClientId(10), session).is_some());
}

#[test]
fn group_needs_a_legal_name_sane_options_and_a_topic() {
    let mut run = with_group();
    let options = GroupOptions::default();
    run.refuse(
        ErrorCode::InvalidName,
        create_group(("s", "t"), "12", options),
    );
    run.refuse(
        ErrorCode::TopicNotFound,
        create_group(("s", "u"), "h", options),
    );
    let silly = GroupOptions {
        rebalance_timeout_ms: 1,
        ..options
    };
    run.refuse(
        ErrorCode::InvalidConsumerGroupOptions,
        create_group(("s", "t"), "h", silly),
    );
}

#[test]
fn ids_of_deleted_groups_are_never_used_again() {
    let mut run = with_group();
    run.accept(delete("g", false));
    let outcome = run.accept(create_group(("s", "t"), "g", GroupOptions::default()));
    let Ok(Reply::ConsumerGroup(summary)) = &outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(summary.id, ConsumerGroupId(2));
    assert_eq!(summary.created_op, run.op());
    let by_old_id = Operation::DeleteConsumerGroup {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        group: ConsumerGroupId(1).into(),
        force: true,
    };
    run.refuse(ErrorCode::ConsumerGroupNotFound, by_old_id);
}

#[test]
fn asker_is_judged_when_the_op_is_applied() {
    let mut run = with_group();
    let user = run.create_user("u");
    run.accept(Operation::DeleteUser {
        by: ROOT,
        user: user.into(),
    });
    let by_nobody = Operation::DeleteConsumerGroup {
        by: user,
        stream: named("s"),
        topic: named("t"),
        group: named("g"),
        force: false,
    };
    run.refuse(ErrorCode::Unauthenticated, by_nobody);
}

#[test]
fn joining_again_answers_the_same_membership() {
    let mut run = with_group();
    let (session, first) = run.member(10);
    let outcome = run.accept(join((10, session), ("s", "t"), ("g", None)));
    let again = outcome.joined.unwrap();
    assert_eq!((again.key, again.member), (first.key, first.member));
    assert_eq!(again.generation, first.generation);
    assert_eq!(again.op, run.op());
    assert_eq!(outcome.changes, []);
}

#[test]
fn join_of_a_session_that_has_ended_is_refused() {
    let mut run = with_group();
    let older = run.log_in(10, ROOT);
    run.log_in(10, ROOT);
    let late = join((10, older), ("s", "t"), ("g", None));
    run.refuse(ErrorCode::SessionNotFound, late);
    run.refuse(ErrorCode::SessionNotFound, leave(10, older, "g"));
}

#[test]
fn kept_answer_to_a_join_is_the_membership_alone() {
    let mut run = with_group();
    let session = run.log_in(10, ROOT);
    let outcome = run.accept(join((10, session), ("s", "t"), ("g", None)));
    let CachedReply { status, body } = Outcome::decode_result(outcome.encode_result()).unwrap();
    assert_eq!(status, 0);
    assert_eq!(
        Membership::decode(body.clone()),
        Ok(outcome.joined.unwrap())
    );
    for size in 0..body.len() {
        assert!(Membership::decode(body.slice(..size)).is_err());
    }
    let refused = run.apply(&join((10, session), ("s", "t"), ("h", None)));
    let kept = Outcome::decode_result(refused.encode_result()).unwrap();
    assert_eq!(kept.status, ErrorCode::ConsumerGroupNotFound.code());
}

#[test]
fn every_way_to_end_a_session_takes_its_memberships_along_in_the_same_op() {
    for way in 0..7 {
        let mut run = with_group();
        let user = run.create_user("u");
        let session = run.log_in(10, user);
        run.join(10, session, ("g", None));
        let (_, other) = run.member(11);
        run.settle(other.key);
        assert_eq!(run.counts(), [2, 2]);
        let operation = match way {
            0 => Operation::Logout {
                client: ClientId(10),
                session,
            },
            1 => end(&[(10, session)], EvictionReason::Expired),
            2 => end(&[(10, session)], EvictionReason::TableFull),
            3 => run.register(10, user),
            4 => Operation::DeleteUser {
                by: ROOT,
                user: user.into(),
            },
            5 => Operation::UpdateUser {
                by: ROOT,
                user: user.into(),
                name: None,
                active: Some(false),
            },
            _ => Operation::ChangePassword {
                by: user,
                user: user.into(),
                password_hash: password("new"),
                verified: run.catalog.user_by_id(user).unwrap().password_op,
            },
        };
        let outcome = run.accept(operation);
        assert_eq!(run.members(other.key), [(11, MemberState::Active)]);
        assert_eq!(changed(&outcome), [1], "way {way}");
        assert_eq!(run.catalog.memberships(ClientId(10)).count(), 0);
        run.settle(other.key);
        assert_eq!(run.counts(), [4], "way {way}");
    }
}

#[test]
fn sessions_that_end_in_one_op_leave_a_group_in_one_generation() {
    let mut run = with_group();
    let (first, _) = run.member(10);
    let (second, _) = run.member(11);
    let (_, third) = run.member(12);
    run.settle(third.key);
    let before = run.catalog.consumer_group(&third.key).unwrap().generation();
    let outcome = run.accept(end(&[(10, first), (11, second)], EvictionReason::Expired));
    assert_eq!(changed(&outcome), [1]);
    let after = run.catalog.consumer_group(&third.key).unwrap().generation();
    assert_eq!(after.0, before.0 + 1);
}

#[test]
fn member_of_many_groups_leaves_them_all_and_no_other_is_touched() {
    let mut run = with_group();
    let (session, _) = run.member(10);
    let other = run.log_in(11, ROOT);
    for number in 0..40 {
        let name = std::format!("g{number}");
        run.accept(create_group(("s", "t"), &name, GroupOptions::default()));
        if number % 2 == 0 {
            run.join(10, session, (&name, None));
        } else {
            run.join(11, other, (&name, None));
        }
    }
    assert_eq!(run.catalog.memberships(ClientId(10)).count(), 21);
    let outcome = run.accept(Operation::Logout {
        client: ClientId(10),
        session,
    });
    let even: Vec<u64> = [1].into_iter().chain((2..42).step_by(2)).collect();
    assert_eq!(changed(&outcome), even);
    assert_eq!(run.catalog.memberships(ClientId(11)).count(), 20);
}

#[test]
fn static_member_outlives_its_connection_and_its_login_until_it_expires() {
    for reason in EvictionReason::ALL.iter().copied() {
        let mut run = with_group();
        let session = run.log_in(10, ROOT);
        let membership = run.join(10, session, ("g", Some("a")));
        run.accept(end(&[(10, session)], reason));
        let stays = match reason {
            EvictionReason::Disconnected | EvictionReason::Replaced | EvictionReason::TableFull => {
                true
            }
            EvictionReason::Expired
            | EvictionReason::LoggedOut
            | EvictionReason::UserChanged
            | EvictionReason::Removed => false,
        };
        if !stays {
            assert_eq!(run.members(membership.key), [], "{reason:?}");
            continue;
        }
        let away = [(10, MemberState::Detached)];
        assert_eq!(run.members(membership.key), away, "{reason:?}");
        let timers: Vec<_> = run.catalog.group_timers().collect();
        let (key, member) = (membership.key, membership.member);
        assert_eq!(
            timers,
            [GroupTimer::Detached {
                key,
                member,
                session
            }]
        );
        let expire = |session| Operation::ExpireMembers {
            groups: [(key, [(member, session)].to_vec())].to_vec(),
        };
        run.accept(expire(SessionNumber(session.0 + 1)));
        assert_eq!(run.members(key), away);
        run.accept(expire(session));
        assert_eq!(run.members(key), []);
        run.accept(expire(session));
    }
}

#[test]
fn static_member_that_logs_in_anew_keeps_its_partitions() {
    let mut run = with_group();
    let session = run.log_in(10, ROOT);
    let first = run.join(10, session, ("g", Some("a")));
    let newer = run.log_in(10, ROOT);
    let again = run.join(10, newer, ("g", Some("a")));
    assert_eq!(again.member, first.member);
    run.settle(first.key);
    assert_eq!(run.counts(), [4]);
}

#[test]
fn member_that_is_away_does_not_take_the_membership_of_its_client_along() {
    let mut run = with_group();
    let session = run.log_in(10, ROOT);
    let away = run.join(10, session, ("g", Some("a")));
    let newer = run.log_in(10, ROOT);
    run.join(10, newer, ("g", None));
    run.accept(Operation::ExpireMembers {
        groups: [(away.key, [(away.member, session)].to_vec())].to_vec(),
    });
    assert_eq!(run.members(away.key), [(10, MemberState::Active)]);
    assert_eq!(run.catalog.memberships(ClientId(10)).count(), 1);
    run.accept(end(&[(10, newer)], EvictionReason::Expired));
    assert_eq!(run.members(away.key), []);
}

#[test]
fn taken_over_session_is_told_and_counts_no_membership() {
    let mut run = with_group();
    let old = run.log_in(10, ROOT);
    let held = run.join(10, old, ("g", Some("a")));
    let new = run.log_in(11, ROOT);
    let outcome = run.accept(join((11, new), ("s", "t"), ("g", Some("a"))));
    assert_eq!(outcome.joined.unwrap().member, held.member);
    assert!(told(&outcome).contains(&(10, 1)));
    assert_eq!(run.catalog.memberships(ClientId(10)).count(), 0);
    let text = run.refuse(ErrorCode::FencedInstanceId, leave(10, old, "g"));
    assert!(text.contains("client 11 at 10.0.0.11:4000"), "{text}");
    // The end of the old session means nothing to the group.
    let outcome = run.accept(end(&[(10, old)], EvictionReason::Expired));
    assert_eq!(changed(&outcome), []);
}

#[test]
fn group_with_members_is_deleted_by_force_only_and_fences_all() {
    let mut run = with_group();
    let (first, membership) = run.member(10);
    let (second, _) = run.member(11);
    let text = run.refuse(ErrorCode::ConsumerGroupNotEmpty, delete("g", false));
    assert!(text.contains("has 2 members (1, 2)"), "{text}");
    let generation = run
        .catalog
        .consumer_group(&membership.key)
        .unwrap()
        .generation();
    let outcome = run.accept(delete("g", true));
    let holder = |member, client, session| Holder {
        member: MemberId(member),
        client: ClientId(client),
        session,
    };
    let topic = run.projection.resolve(&named("s"), &named("t")).unwrap();
    assert_eq!(
        outcome.changes,
        [Change::ConsumerGroupDeleted {
            stream: StreamId(1),
            topic: TopicId(1),
            group: ConsumerGroupId(1),
            generation,
            members: [holder(1, 10, first), holder(2, 11, second)].to_vec(),
            partitions: topic.partitions.clone(),
        }]
    );
    assert_eq!(told(&outcome), [(10, 1), (11, 1)]);
    for (client, session) in [(10, first), (11, second)] {
        run.refuse(
            ErrorCode::ConsumerGroupNotFound,
            leave(client, session, "g"),
        );
        assert_eq!(run.catalog.memberships(ClientId(client)).count(), 0);
    }
}

#[test]
fn topic_takes_its_groups_along_and_the_data_groups_need_not_be_asked_twice() {
    for stream in [false, true] {
        let mut run = with_group();
        run.member(10);
        let outcome = run.accept(if stream {
            Operation::DeleteStream {
                by: ROOT,
                stream: named("s"),
            }
        } else {
            Operation::DeleteTopic {
                by: ROOT,
                stream: named("s"),
                topic: named("t"),
            }
        });
        let Change::ConsumerGroupDeleted { partitions, .. } = &outcome.changes[0] else {
            panic!("{outcome:?}");
        };
        assert_eq!(*partitions, []);
        assert!(matches!(outcome.changes[1], Change::TopicDeleted { .. }));
        assert_eq!(told(&outcome), [(10, 1)]);
        assert_eq!(run.catalog.memberships(ClientId(10)).count(), 0);
    }
}

#[test]
fn partitions_that_come_and_go_are_planned_in_the_same_op() {
    let mut run = with_group();
    run.member(10);
    let outcome = run.accept(Operation::CreatePartitions {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        count: 3,
    });
    assert_eq!(changed(&outcome), [1]);
    assert_eq!(told(&outcome), [(10, 1)]);
    assert_eq!(run.counts(), [7]);
    let outcome = run.accept(Operation::DeletePartitions {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        count: 5,
    });
    assert_eq!(changed(&outcome), [1]);
    assert_eq!(run.counts(), [2]);
}

#[test]
fn purge_moves_every_partition_to_its_owner_under_a_new_epoch() {
    let mut run = with_group();
    run.accept(create_group(("s", "t"), "empty", GroupOptions::default()));
    run.member(10);
    let outcome = run.accept(Operation::PurgeTopic {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
    });
    assert!(matches!(
        outcome.changes[0],
        Change::PartitionsPurged { .. }
    ));
    // Also of a group without members what was stored is gone, and fenced.
    assert_eq!(changed(&outcome), [1, 2]);
    assert_eq!(told(&outcome), [(10, 1)]);
    let op = run.op().0;
    let group = run
        .catalog
        .consumer_group(&key(1, 1, 1))
        .expect("it is there");
    for ownership in group.ownerships() {
        let moving = ownership.moving().expect("it moves");
        assert_eq!((ownership.owner(), moving.epoch.0), (None, op));
        assert_eq!(moving.to.map(|to| to.0), Some(1));
    }
}

#[test]
fn limits_of_groups_members_and_memberships_name_value_and_limit() {
    let mut run = with_group();
    run.accept(create_group(("s", "t"), "h", GroupOptions::default()));
    let limits = Limits {
        consumer_groups_per_topic: 2,
        members_per_group: 2,
        memberships_per_session: 1,
        ..Limits::INITIAL
    };
    run.accept(Operation::SetLimits { limits });
    let third = create_group(("s", "t"), "i", GroupOptions::default());
    let text = run.refuse(ErrorCode::TooManyConsumerGroups, third);
    assert!(
        text.contains("limit is 2 (cluster.limits.consumer_groups_per_topic)"),
        "{text}"
    );
    let (first, _) = run.member(10);
    run.member(11);
    let session = run.log_in(12, ROOT);
    let third = join((12, session), ("s", "t"), ("g", None));
    let text = run.refuse(ErrorCode::ConsumerGroupFull, third);
    assert!(
        text.contains("the limit is 2 (cluster.limits.members_per_group)"),
        "{text}"
    );
    let second = join((10, first), ("s", "t"), ("h", None));
    let text = run.refuse(ErrorCode::TooManyMemberships, second);
    assert_eq!(
        text,
        "this would make 2 memberships of one session; the limit is 1 (cluster.limits.memberships_per_session)"
    );
    // A membership that it has is no further one.
    run.join(10, first, ("g", None));
    run.accept(leave(10, first, "g"));
    run.join(10, first, ("h", None));
}

#[test]
fn former_limits_leave_those_of_groups_as_they_are_initially() {
    let mut run = Run::new();
    let former = Limits::INITIAL.former();
    run.accept(Operation::SetFormerLimits { limits: former });
    assert_eq!(*run.catalog.limits(), Limits::INITIAL);
}

#[test]
fn plan_waits_for_its_op_and_a_late_one_does_nothing() {
    let mut run = with_group();
    let options = GroupOptions {
        initial_delay_ms: 3_000,
        ..GroupOptions::default()
    };
    run.accept(create_group(("s", "t"), "w", options));
    let session = run.log_in(10, ROOT);
    let joined = run.join(10, session, ("w", None));
    let timer = GroupTimer::Plan {
        key: joined.key,
        pending: joined.op,
        delay_ms: 3_000,
    };
    assert_eq!(
        run.catalog.timers_of(joined.key).collect::<Vec<_>>(),
        [timer]
    );
    let plan = |pending| Operation::PlanGroups {
        groups: [(joined.key, pending)].to_vec(),
    };
    assert_eq!(run.accept(plan(Op(1))).changes, []);
    let outcome = run.accept(plan(joined.op));
    assert_eq!(changed(&outcome), [2]);
    assert_eq!(told(&outcome), [(10, 2)]);
    assert_eq!(run.accept(plan(joined.op)).changes, []);
    assert_eq!(run.catalog.timers_of(joined.key).count(), 0);
}

#[test]
fn completions_are_batched_over_groups_compared_and_repeated_safely() {
    let mut run = with_group();
    run.accept(create_group(("s", "t"), "h", GroupOptions::default()));
    let (first, _) = run.member(10);
    run.join(10, first, ("h", None));
    let (second, _) = run.member(11);
    run.join(11, second, ("h", None));
    let of = |group| {
        let key = key(1, 1, group);
        let group = run.catalog.consumer_group(&key).unwrap();
        let entries = (0..).map(PartitionId).zip(group.ownerships());
        let moves = entries.filter_map(|(id, it)| Some((id, it.moving()?.epoch)));
        (key, moves.collect::<Vec<_>>())
    };
    let gone = (key(1, 1, 9), [(PartitionId(0), Epoch(1))].to_vec());
    let stale = (key(1, 1, 1), [(PartitionId(3), Epoch(1))].to_vec());
    let complete = Operation::CompleteMoves {
        groups: [of(1), of(2), gone, stale].to_vec(),
    };
    let outcome = run.accept(complete.clone());
    assert_eq!(changed(&outcome), [1, 2]);
    assert_eq!(run.counts(), [2, 2]);
    assert_eq!(run.accept(complete).changes, []);
}

#[test]
fn group_that_is_named_twice_in_an_op_changes_its_generation_once() {
    let mut run = with_group();
    run.member(10);
    let (_, second) = run.member(11);
    let key = second.key;
    let group = run.catalog.consumer_group(&key).unwrap();
    let before = group.generation();
    let entries = (0..).map(PartitionId).zip(group.ownerships());
    let moves = entries.filter_map(|(id, it)| Some((key, [(id, it.moving()?.epoch)].to_vec())));
    let groups: Vec<_> = moves.collect();
    assert_eq!(groups.len(), 2);
    let outcome = run.accept(Operation::CompleteMoves { groups });
    assert_eq!(changed(&outcome), [1]);
    assert_eq!(run.counts(), [2, 2]);
    let after = run.catalog.consumer_group(&key).unwrap().generation();
    assert_eq!(after.0, before.0 + 1);
}

#[test]
fn removed_member_and_the_heirs_are_told() {
    let mut run = with_group();
    let (_, first) = run.member(10);
    run.member(11);
    run.settle(first.key);
    let outcome = run.accept(Operation::RemoveMember {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        group: named("g"),
        member: first.member,
    });
    let generation = run.catalog.consumer_group(&first.key).unwrap().generation();
    let notices: Vec<Notice> = outcome.changes.iter().flat_map(Change::notices).collect();
    assert_eq!(notices[0].client, ClientId(10));
    assert_eq!(
        (notices[0].key, notices[0].generation),
        (first.key, generation)
    );
    // What the other one gets is told when its fence is raised.
    assert_eq!(told(&run.settle(first.key)), [(11, 1)]);
    assert_eq!(run.counts(), [4]);
}

#[test]
fn reset_needs_an_empty_group_or_force_and_covers_the_others() {
    let mut run = with_group();
    run.member(10);
    let to = ResetTo::Offset(Offset(7));
    run.refuse(
        ErrorCode::ConsumerGroupNotEmpty,
        reset(&[(0, to)], None, false),
    );
    run.refuse(ErrorCode::PartitionNotFound, reset(&[(4, to)], None, true));
    let twice = reset(&[(1, to), (1, to)], None, true);
    run.refuse(ErrorCode::InvalidArgument, twice);
    let others = Some(ResetTo::Start(StartPolicy::Latest));
    let outcome = run.accept(reset(&[(1, to)], others, true));
    let Ok(Reply::OffsetsReset(reply)) = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(reply.partition_count, 4);
    let group = run.catalog.consumer_group(&key(1, 1, 1)).unwrap();
    let resets = group.ownerships().map(|it| it.moving().unwrap().reset);
    let resets: Vec<_> = resets.collect();
    assert_eq!(resets, [others, Some(to), others, others]);
}

#[test]
fn group_that_is_empty_for_too_long_is_deleted_unless_somebody_came() {
    let mut run = with_group();
    let options = GroupOptions {
        offset_expiry_ms: 60_000,
        ..GroupOptions::default()
    };
    run.accept(create_group(("s", "t"), "e", options));
    let (created, key) = (run.op(), key(1, 1, 2));
    let timer = |since| GroupTimer::Empty {
        key,
        since,
        expiry_ms: 60_000,
    };
    let since = time_of(created);
    assert_eq!(
        run.catalog.group_timers().collect::<Vec<_>>(),
        [timer(since)]
    );
    let session = run.log_in(10, ROOT);
    run.join(10, session, ("e", None));
    assert_eq!(run.catalog.group_timers().count(), 0);
    run.accept(leave(10, session, "e"));
    let expire = |since: Timestamp| Operation::ExpireGroups {
        groups: [(key, since)].to_vec(),
    };
    assert_eq!(run.accept(expire(since)).changes, []);
    let left = run.catalog.consumer_group(&key).unwrap().empty_since();
    let outcome = run.accept(expire(left.unwrap()));
    let [Change::ConsumerGroupDeleted { partitions, .. }] = &outcome.changes[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(partitions.len(), 4);
    assert_eq!(run.accept(expire(left.unwrap())).changes, []);
}

#[test]
fn update_changes_the_options_named() {
    let mut run = with_group();
    let update = |rebalance_timeout_ms| Operation::UpdateConsumerGroup {
        by: ROOT,
        stream: named("s"),
        topic: named("t"),
        group: named("g"),
        options: OptionsUpdate {
            rebalance_timeout_ms: Some(rebalance_timeout_ms),
            ..OptionsUpdate::default()
        },
    };
    run.refuse(ErrorCode::InvalidConsumerGroupOptions, update(1));
    let outcome = run.accept(update(5_000));
    let Ok(Reply::ConsumerGroup(summary)) = &outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(summary.options.rebalance_timeout_ms, 5_000);
    assert_eq!(changed(&outcome), [1]);
}

#[test]
fn assignment_is_the_members_and_nobody_elses() {
    let mut run = with_group();
    let (first, _) = run.member(10);
    let (second, _) = run.member(11);
    let stranger = run.log_in(12, ROOT);
    let of = |client, session| {
        let client = (ClientId(client), session);
        run.catalog
            .assignment(client, &sync("g"), |_, partition, _| partition.0)
    };
    let assignment = of(10, first).unwrap();
    assert_eq!((assignment.owned.len(), assignment.revoking.len()), (2, 2));
    assert_eq!(
        (assignment.member_count, assignment.partition_count),
        (2, 4)
    );
    let left: Vec<_> = assignment
        .revoking
        .iter()
        .map(|it| it.time_left_ms)
        .collect();
    let partitions: Vec<_> = assignment
        .revoking
        .iter()
        .map(|it| it.partition.0)
        .collect();
    assert_eq!(left, partitions);
    let created = run.projection.resolve(&named("s"), &named("t")).unwrap();
    assert_eq!(
        assignment.owned[0].incarnation,
        created.partitions[0].incarnation
    );
    assert_eq!(of(11, second).unwrap().owned, []);
    let refused = of(12, stranger).unwrap_err();
    assert_eq!(refused.code, ErrorCode::ConsumerGroupMemberNotFound);
    let by_key = run
        .catalog
        .assignment((ClientId(10), first), &key(1, 1, 1).into(), |_, it, _| it.0);
    assert_eq!(by_key, of(10, first));
    let unknown = run
        .catalog
        .assignment((ClientId(10), first), &sync("h"), |_, _, _| 0);
    assert_eq!(unknown.unwrap_err().code, ErrorCode::ConsumerGroupNotFound);
}

#[test]
fn groups_are_listed_page_by_page_and_told_in_full() {
    let mut run = with_group();
    run.accept(create_group(("s", "t"), "h", GroupOptions::default()));
    let page = |after, limit| {
        let page = GetConsumerGroups {
            stream: named("s"),
            topic: named("t"),
            after: ConsumerGroupId(after),
            limit,
        };
        let page = run.catalog.consumer_groups_page(&page).unwrap();
        let names: Vec<String> = page.groups.iter().map(|it| it.name.clone()).collect();
        (names, page.more)
    };
    assert_eq!(page(0, 1), (["g".to_string()].to_vec(), true));
    assert_eq!(page(1, 1), (["h".to_string()].to_vec(), false));
    assert_eq!(page(2, 0), (Vec::new(), false));

    let session = run.log_in(10, ROOT);
    run.join(10, session, ("g", Some("a")));
    run.accept(reset(&[(1, ResetTo::Nothing)], None, true));
    let asked = GetConsumerGroup {
        stream: named("s"),
        topic: named("t"),
        group: ConsumerGroupId(1).into(),
    };
    let observe =
        |_: &GroupKey, placement: &crate::Placement, _: &coordinator::Ownership| Observed {
            primary: ReplicaId(u8::try_from(placement.partition.0).unwrap()),
            progress: Err(ErrorCode::Retry),
            waits_for: None,
            time_left_ms: None,
        };
    let details = run.catalog.consumer_group_details(&asked, observe).unwrap();
    assert_eq!(
        (details.summary.member_count, details.summary.moving_count),
        (1, 1)
    );
    assert_eq!(
        details.members[0].address.as_deref(),
        Some("10.0.0.10:4000")
    );
    assert_eq!(details.members[0].state, MemberStatus::Active);
    assert_eq!(details.partitions.len(), 4);
    assert_eq!(details.partitions[3].primary, ReplicaId(3));
    let moving = details.partitions[1].moving.as_ref().unwrap();
    assert_eq!(moving.reset, Some(ResetTarget::Nothing));
    assert_eq!(details.partitions[1].owner, None);
}

/// The member that is away names its client still, and changes when somebody else is no longer displaced.
#[test]
fn a_change_of_a_member_that_is_away_leaves_its_client_the_membership_that_it_has_now() {
    let mut run = with_group();
    let displaced = run.log_in(11, ROOT);
    run.join(11, displaced, ("g", Some("a")));
    let session = run.log_in(10, ROOT);
    run.join(10, session, ("g", Some("a")));
    run.accept(end(&[(10, session)], EvictionReason::Disconnected));
    let newer = run.log_in(10, ROOT);
    let membership = run.join(10, newer, ("g", None));
    run.join(11, displaced, ("g", None));
    run.accept(end(&[(10, newer)], EvictionReason::TableFull));
    let members = run.members(membership.key);
    assert_eq!(
        members,
        [(10, MemberState::Detached), (11, MemberState::Active)]
    );
}
