//! Each rule by itself.

use alloc::vec::Vec;
use core::time::Duration;

use wire::{
    ConsumerGroupId, ConsumerGroupOptionsUpdate, Epoch, ErrorCode, Event, Failure, Identifier,
    MemberId, MembershipEndReason, MembershipEnded, Offset, PartitionId, PollResult, PollStrategy,
    Polled, ReplicaId, Reply, Request, StreamId, TopicId,
};

use super::{Driver, GroupEvent, GroupInput, MS, P0, P1};
use crate::{FencingToken, LossReason, StoreMode};

const NONE: &[(u32, u64, u64, u64)] = &[];

/// A member with partition 0 under epoch 5 and ten messages of it, and its unanswered poll.
fn holding(change: impl FnOnce(&mut crate::GroupConsumerConfig)) -> Driver {
    let mut driver = Driver::member((1, &[(0, 5, 5)], NONE), |config| {
        config.buffer_size_max = 1;
        config.store = StoreMode::Manual;
        change(config);
    });
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 10)]);
    driver.events();
    driver
}

fn token(epoch: u64) -> FencingToken {
    FencingToken {
        group: ConsumerGroupId(3),
        partition: P0,
        epoch: Epoch(epoch),
    }
}

fn acknowledge(driver: &mut Driver, epoch: u64, offset: u64) -> bool {
    let time = driver.time();
    let news = driver
        .consumer
        .acknowledge(time, token(epoch), Offset(offset));
    driver.collect();
    news
}

#[test]
fn a_missing_group_is_made_once_and_only_if_asked_for() {
    let mut driver = Driver::new(|config| {
        config.create = Some(ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: Some(7),
            initial_delay_ms: None,
            start: None,
            offset_expiry_ms: None,
        });
    });
    let (call, _) = driver.requests.remove(0);
    driver.fail(call, ErrorCode::ConsumerGroupNotFound);
    let (call, request) = driver.requests.remove(0);
    let Request::CreateConsumerGroup(create) = request else {
        panic!("{request:?}")
    };
    assert_eq!(
        (create.name.as_str(), create.options.rebalance_timeout_ms),
        ("g", Some(7))
    );
    // Somebody was faster.
    driver.fail(call, ErrorCode::ConsumerGroupAlreadyExists);
    driver.answer_join((1, &[(0, 5, 5)], NONE));
    assert_eq!(
        driver.consumer.membership(),
        Some((ConsumerGroupId(3), MemberId(4)))
    );
    // From here on the group is the one with the id.
    driver.input(GroupInput::SessionLost);
    let (call, request) = driver.requests.pop().unwrap();
    let Request::JoinConsumerGroup(join) = request else {
        panic!("{request:?}")
    };
    assert_eq!(join.group, Identifier::Number(3));
    driver.fail(call, ErrorCode::ConsumerGroupNotFound);
    assert!(driver.consumer.is_ended());

    let mut driver = Driver::new(|_| {});
    let (call, _) = driver.requests.remove(0);
    driver.fail(call, ErrorCode::ConsumerGroupNotFound);
    assert!(driver.consumer.is_ended());
}

#[test]
fn one_poll_covers_all_partitions_behind_what_is_stored_and_each_comes_first_in_turn() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |_| {});
    let mut firsts = Vec::new();
    for round in 0..4 {
        let (call, poll) = driver.polled();
        assert_eq!((poll.min_bytes, poll.max_wait_ms), (1, 5_000));
        assert_eq!(poll.sections.len(), 2);
        for section in &poll.sections {
            assert_eq!(section.epoch, Epoch(5 + u64::from(section.partition.0)));
            let wanted = if round == 0 {
                PollStrategy::Next
            } else {
                PollStrategy::Offset(Offset(7))
            };
            assert_eq!(section.strategy, wanted);
        }
        firsts.push(poll.sections[0].partition);
        driver.serve(call, &[(P0, 7, 0), (P1, 7, 0)]);
    }
    assert_eq!(firsts, [P0, P1, P0, P1]);
}

#[test]
fn a_full_buffer_is_not_added_to_and_others_are_read_on() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |config| {
        config.buffer_size_max = 1_600;
    });
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 25), (P1, 0, 0)]);
    let (_, poll) = driver.polled();
    let polled = poll.sections.iter().map(|section| section.partition);
    assert_eq!(polled.collect::<Vec<_>>(), [P1]);
    assert!(driver.requests.is_empty());
}

#[test]
fn partitions_are_handed_out_in_turn() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |_| {});
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 200), (P1, 0, 200)]);
    let order = core::iter::from_fn(|| driver.next()).map(|(partition, ..)| partition.0);
    let order = order.collect::<Vec<_>>();
    assert_eq!(order.len(), 400);
    assert!(order[..65].contains(&0) && order[..65].contains(&1));
}

#[test]
fn kept_ownership_keeps_messages_and_progress_under_the_new_epoch() {
    let mut driver = holding(|_| {});
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    driver.sync((2, &[(0, 9, 5)], NONE));
    assert_eq!(driver.events(), []);
    assert_eq!(driver.next(), Some((P0, 9, 1)));
    // A message handed out under the older epoch is still the member's.
    assert!(acknowledge(&mut driver, 5, 0));
    driver.advance(200);
    let (_, store) = driver.storing();
    assert_eq!(
        (store.sections[0].epoch, store.sections[0].offset),
        (Epoch(9), Offset(0))
    );
}

#[test]
fn another_ownership_begins_anew() {
    let mut driver = holding(|_| {});
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    driver.sync((2, &[(0, 9, 9)], NONE));
    let events = driver.events();
    let reason = LossReason::Reassigned;
    let lost = GroupEvent::Lost {
        partition: P0,
        reason,
        unstored: None,
        unprocessed: true,
    };
    let assigned = GroupEvent::Assigned {
        partitions: Vec::from([token(9)]),
    };
    assert_eq!(events, [lost, assigned]);
    assert_eq!(driver.next(), None);
    let (call, poll) = driver.polled();
    assert_eq!(poll.sections[0].strategy, PollStrategy::Next);
    assert_eq!(poll.sections[0].epoch, Epoch(9));
    // The same message again: the acknowledgement of the first time is none of the second.
    driver.serve(call, &[(P0, 0, 10)]);
    assert_eq!(driver.next(), Some((P0, 9, 0)));
    assert!(!acknowledge(&mut driver, 5, 0));
    assert!(acknowledge(&mut driver, 9, 0));
}

#[test]
fn an_older_assignment_changes_nothing() {
    let mut driver = holding(|_| {});
    driver.sync((7, &[(0, 5, 5)], NONE));
    driver.tell(8);
    let (call, _) = driver.requests.pop().unwrap();
    driver.answer(call, super::assignment((6, &[(1, 9, 9)], NONE)));
    assert_eq!(driver.events(), []);
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    // It asks again, after a pause, until it knows what it was told of.
    assert_eq!(driver.requests, []);
    driver.advance(100);
    let (call, request) = driver.requests.pop().unwrap();
    assert!(matches!(request, Request::SyncConsumerGroup(_)));
    driver.answer(call, super::assignment((8, &[(0, 5, 5)], NONE)));
    driver.advance(1_000);
    assert_eq!(driver.requests, []);
}

#[test]
fn an_event_of_a_known_generation_asks_for_nothing() {
    let mut driver = holding(|_| {});
    driver.tell(1);
    assert_eq!(driver.requests, []);
}

#[test]
fn the_assignment_is_asked_for_now_and_then() {
    let mut driver = holding(|config| config.sync_interval = Duration::from_secs(3));
    driver.advance(2_999);
    assert_eq!(driver.requests, []);
    driver.advance(1);
    assert!(matches!(
        driver.requests[0].1,
        Request::SyncConsumerGroup(_)
    ));
}

#[test]
fn a_revoked_partition_is_released_when_what_was_handed_out_is_processed() {
    let mut driver = holding(|_| {});
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    assert_eq!(driver.next(), Some((P0, 5, 1)));
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let time_left = Duration::from_millis(500);
    let partitions = Vec::from([P0]);
    assert_eq!(
        driver.events(),
        [GroupEvent::Revoking {
            partitions,
            time_left
        }]
    );
    // What was fetched and not handed out is somebody else's.
    assert_eq!(driver.next(), None);
    assert!(acknowledge(&mut driver, 5, 1));
    assert_eq!(driver.requests, []);
    assert!(acknowledge(&mut driver, 5, 0));
    let (call, release) = driver.releasing();
    let section = &release.sections[0];
    assert_eq!(
        (section.epoch, section.planned, section.offset),
        (Epoch(5), Epoch(9), Some(Offset(1)))
    );
    driver.released(call, P0, Ok(()));
    assert_eq!(driver.events(), [GroupEvent::Revoked { partition: P0 }]);
    // Until the assignment follows nothing is said or asked twice.
    driver.sync((3, &[], &[(0, 5, 5, 9)]));
    driver.advance(1_000);
    let others = driver
        .requests
        .iter()
        .filter(|(_, request)| !matches!(request, Request::SyncConsumerGroup(_)));
    assert_eq!(others.count(), 0);
    assert_eq!(driver.events(), []);
}

#[test]
fn answers_to_polls_of_a_revoked_partition_are_dropped() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |_| {});
    let (call, _) = driver.polled();
    driver.sync((2, &[(1, 6, 6)], &[(0, 5, 5, 9)]));
    driver.serve(call, &[(P0, 0, 10), (P1, 0, 1)]);
    assert_eq!(driver.next(), Some((P1, 6, 0)));
    assert_eq!(driver.next(), None);
}

#[test]
fn nothing_handed_out_is_released_at_once_without_an_offset() {
    let mut driver = holding(|_| {});
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let (_, release) = driver.releasing();
    assert_eq!(release.sections[0].offset, None);
}

#[test]
fn a_cancelled_revocation_goes_on_where_it_was() {
    let mut driver = holding(|_| {});
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    driver.events();
    driver.sync((3, &[(0, 12, 5)], NONE));
    let partitions = Vec::from([P0]);
    assert_eq!(driver.events(), [GroupEvent::Retained { partitions }]);
    let (_, poll) = driver.polled();
    let section = &poll.sections[0];
    assert_eq!(
        (section.epoch, section.strategy),
        (Epoch(12), PollStrategy::Offset(Offset(1)))
    );
    assert!(acknowledge(&mut driver, 5, 0));
}

#[test]
fn a_release_that_came_late_is_stored_and_synced() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let (call, _) = driver.releasing();
    driver.released(call, P0, Err(ErrorCode::RevocationChanged));
    assert!(matches!(
        driver.requests[0].1,
        Request::SyncConsumerGroup(_)
    ));
    let stored = driver.consumer.partitions().next().unwrap().stored;
    assert_eq!(stored, Some(Offset(0)));
}

#[test]
fn a_release_without_an_answer_is_sent_again() {
    let mut driver = holding(|_| {});
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let (call, _) = driver.releasing();
    driver.fail(call, ErrorCode::NotReady);
    driver.advance(100);
    driver.releasing();
}

#[test]
fn stores_are_contiguous_and_share_requests_of_which_one_is_under_way() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |config| {
        config.store = StoreMode::Manual;
        config.buffer_size_max = 1;
    });
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 3), (P1, 0, 3)]);
    for _ in 0..6 {
        driver.next();
    }
    driver.requests.clear();
    let other = FencingToken {
        partition: P1,
        ..token(6)
    };
    assert!(acknowledge(&mut driver, 5, 0));
    assert!(acknowledge(&mut driver, 5, 2));
    let time = driver.time();
    assert!(driver.consumer.acknowledge(time, other, Offset(0)));
    driver.advance(100);
    let (call, store) = driver.storing();
    let sections = store.sections.iter();
    let sections = sections.map(|own| (own.partition, own.epoch, own.offset));
    assert_eq!(
        sections.collect::<Vec<_>>(),
        [(P0, Epoch(5), Offset(0)), (P1, Epoch(6), Offset(0))]
    );
    assert!(acknowledge(&mut driver, 5, 1));
    driver.advance(1_000);
    assert_eq!(driver.requests, []);
    driver.stored(call, &[(P0, Ok(0)), (P1, Ok(0))]);
    driver.advance(100);
    let (call, store) = driver.storing();
    assert_eq!(store.sections[0].offset, Offset(2));
    assert!(!driver.consumer.is_stored());
    driver.stored(call, &[(P0, Ok(2))]);
    assert!(driver.consumer.is_stored());
}

#[test]
fn a_store_without_an_answer_is_not_done_and_goes_out_again_under_the_same_epoch() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    driver.input(GroupInput::Flush);
    let (call, _) = driver.storing();
    driver.fail(call, ErrorCode::OutcomeUnknown);
    assert!(!driver.consumer.is_stored());
    driver.advance(100);
    let (_, store) = driver.storing();
    assert_eq!(
        (store.sections[0].epoch, store.sections[0].offset),
        (Epoch(5), Offset(0))
    );
}

#[test]
fn a_fenced_store_loses_the_partition_for_good() {
    for code in [ErrorCode::StaleEpoch, ErrorCode::PartitionNotOwned] {
        let mut driver = holding(|_| {});
        driver.next();
        driver.next();
        acknowledge(&mut driver, 5, 0);
        driver.input(GroupInput::Flush);
        let (call, _) = driver.storing();
        driver.stored(call, &[(P0, Err(code))]);
        let events = driver.events();
        let [
            GroupEvent::Lost {
                partition: P0,
                reason: LossReason::Fenced(_),
                unstored,
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(*unstored, Some(Offset(0)));
        // A node that is behind still names the epoch.
        let (call, _) = driver.requests.pop().unwrap();
        driver.answer(call, super::assignment((1, &[(0, 5, 5)], NONE)));
        assert!(!acknowledge(&mut driver, 5, 1));
        driver.input(GroupInput::Flush);
        driver.advance(1_000);
        assert_eq!(driver.requests, []);
        assert_eq!(driver.events(), []);
    }
}

#[test]
fn a_poll_that_is_refused_syncs() {
    for (code, lost) in [
        (ErrorCode::PartitionRevoking, 0),
        (ErrorCode::PartitionNotOwned, 1),
        (ErrorCode::StaleEpoch, 1),
    ] {
        let mut driver = Driver::member((1, &[(0, 5, 5)], NONE), |_| {});
        driver.events();
        let (call, _) = driver.polled();
        driver.refuse_poll(call, P0, code);
        assert_eq!(driver.events().len(), lost, "{code:?}");
        assert!(matches!(
            driver.requests[0].1,
            Request::SyncConsumerGroup(_)
        ));
        assert_eq!(driver.requests.len(), 1);
    }
}

#[test]
fn who_is_not_a_member_drops_everything_and_joins_again() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    driver.input(GroupInput::Flush);
    let (call, _) = driver.storing();
    driver.fail(call, ErrorCode::ConsumerGroupMemberNotFound);
    let events = driver.events();
    assert!(
        matches!(
            &events[..],
            [GroupEvent::Lost {
                reason: LossReason::MembershipEnded(_),
                ..
            }]
        ),
        "{events:?}"
    );
    driver.answer_join((9, &[(0, 20, 20)], NONE));
    assert_eq!(driver.events().len(), 2);
    assert!(!acknowledge(&mut driver, 5, 1));
}

#[test]
fn a_session_that_is_lost_takes_late_answers_with_it() {
    let mut driver = Driver::member((1, &[(0, 5, 5)], NONE), |_| {});
    let (call, _) = driver.polled();
    driver.tell(2);
    let (sync, _) = driver.requests.remove(0);
    driver.input(GroupInput::SessionLost);
    driver.answer_join((2, &[(0, 9, 9)], NONE));
    driver.events();
    driver.serve(call, &[(P0, 0, 10)]);
    assert_eq!(driver.next(), None);
    // Of the old membership: the new one lives.
    driver.fail(sync, ErrorCode::ConsumerGroupMemberNotFound);
    assert_eq!(driver.events(), []);
    assert!(driver.consumer.membership().is_some());
}

#[test]
fn a_store_waits_for_the_one_under_way_though_that_is_of_another_partition() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |config| {
        config.store = StoreMode::Manual;
        config.buffer_size_max = 1;
    });
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 1), (P1, 0, 1)]);
    driver.next();
    driver.next();
    driver.requests.clear();
    assert!(acknowledge(&mut driver, 5, 0));
    driver.advance(100);
    let (call, _) = driver.storing();
    let other = FencingToken {
        partition: P1,
        ..token(6)
    };
    let time = driver.time();
    assert!(driver.consumer.acknowledge(time, other, Offset(0)));
    driver.advance(1_000);
    assert_eq!(driver.requests, []);
    driver.stored(call, &[(P0, Ok(0))]);
    let (_, store) = driver.storing();
    assert_eq!(store.sections[0].partition, P1);
}

#[test]
fn who_is_fenced_by_its_instance_id_stops_and_tells_by_whom() {
    let by_answer = |driver: &mut Driver| {
        driver.tell(2);
        let (call, _) = driver.requests.pop().unwrap();
        driver.fail(call, ErrorCode::FencedInstanceId);
    };
    let by_event = |driver: &mut Driver| {
        let ended = MembershipEnded {
            stream: StreamId(1),
            topic: TopicId(2),
            group: ConsumerGroupId(3),
            member: MemberId(4),
            by: None,
            address: Some("10.0.0.7:99".into()),
        };
        let reason = MembershipEndReason::FencedInstanceId;
        driver.input(GroupInput::Told(Event::MembershipEnded(reason, ended)));
    };
    for fence in [by_answer as fn(&mut Driver), by_event] {
        let mut driver = holding(|config| config.instance = Some("one".into()));
        fence(&mut driver);
        let events = driver.events();
        let [GroupEvent::Lost { .. }, GroupEvent::Failed(error)] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(alloc::format!("{error}").contains("10.0.0.7:99"), "{error}");
        assert!(driver.consumer.is_ended());
        driver.requests.clear();
        driver.advance(60_000);
        assert_eq!((driver.requests.len(), driver.next()), (0, None));
    }
}

#[test]
fn a_partition_led_elsewhere_is_asked_for_there_and_alone_if_that_is_in_vain() {
    let mut driver = Driver::member((1, &[(0, 5, 5), (1, 6, 6)], NONE), |_| {});
    let refuse = |driver: &mut Driver, call, partitions: &[PartitionId]| {
        let sections = partitions.iter().map(|partition| PollResult {
            status: Err(Failure::new(ErrorCode::NotPrimary, "no")),
            primary: ReplicaId(2),
            ..super::section(*partition, 0, 0)
        });
        let sections = sections.collect();
        driver.answer(call, Reply::Polled(Polled { sections }));
    };
    let (call, _) = driver.polled();
    refuse(&mut driver, call, &[P0, P1]);
    assert_eq!(driver.nodes.pop(), Some(Some(ReplicaId(2))));
    let (call, poll) = driver.polled();
    assert_eq!(poll.sections.len(), 2);
    refuse(&mut driver, call, &[P0, P1]);
    driver.advance(10);
    let (_, poll) = driver.polled();
    let (_, other) = driver.polled();
    assert_eq!((poll.sections.len(), other.sections.len()), (1, 1));
}

#[test]
fn retention_is_told() {
    let mut driver = Driver::member((1, &[(0, 5, 5)], NONE), |_| {});
    driver.events();
    let (call, _) = driver.polled();
    let mut section = super::section(P0, 50, 1);
    section.stored = Some(Offset(9));
    let sections = Vec::from([section]);
    driver.answer(call, Reply::Polled(Polled { sections }));
    let (from, to) = (Offset(10), Offset(50));
    assert_eq!(
        driver.events(),
        [GroupEvent::Skipped {
            partition: P0,
            from,
            to
        }]
    );
}

#[test]
fn a_leave_without_an_answer_is_sent_again_and_nothing_else() {
    let mut driver = holding(|_| {});
    driver.input(GroupInput::Close {
        timeout: Duration::from_secs(5),
    });
    let (call, request) = driver.requests.remove(0);
    assert!(matches!(request, Request::LeaveConsumerGroup(_)));
    driver.fail(call, ErrorCode::NotReady);
    assert!(!driver.consumer.is_ended());
    driver.advance(100);
    let (call, request) = driver.requests.remove(0);
    assert!(matches!(request, Request::LeaveConsumerGroup(_)));
    assert_eq!(driver.requests, []);
    driver.answer(call, Reply::Done);
    assert!(driver.consumer.is_ended());
    assert_eq!(driver.consumer.deadline(), None);
}

#[test]
fn close_stores_before_it_leaves() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    driver.input(GroupInput::Close {
        timeout: Duration::from_secs(5),
    });
    let (call, _) = driver.storing();
    assert_eq!(driver.requests, []);
    driver.stored(call, &[(P0, Ok(0))]);
    assert!(matches!(
        driver.requests[0].1,
        Request::LeaveConsumerGroup(_)
    ));
    assert_eq!(driver.events(), [GroupEvent::Revoked { partition: P0 }]);
}

fn seek(driver: &mut Driver, offset: u64) -> bool {
    let time = driver.time();
    let sought = driver.consumer.seek(time, P0, Offset(offset));
    driver.collect();
    sought
}

#[test]
fn reading_goes_on_where_it_was_sought_and_what_is_stored_does_not_go_back() {
    let mut driver = holding(|_| {});
    for offset in 0..4 {
        assert_eq!(driver.next(), Some((P0, 5, offset)));
    }
    assert!(acknowledge(&mut driver, 5, 0) && acknowledge(&mut driver, 5, 1));
    assert!(seek(&mut driver, 1));
    // The answer to what was asked before is not wanted.
    let (call, poll) = driver.polled();
    assert_eq!(poll.sections[0].strategy, PollStrategy::Offset(Offset(1)));
    assert!(!acknowledge(&mut driver, 5, 3));
    driver.serve(call, &[(P0, 0, 10)]);
    assert_eq!(driver.next(), Some((P0, 5, 1)));
    driver.input(GroupInput::Flush);
    let (call, store) = driver.storing();
    assert_eq!(store.sections[0].offset, Offset(1));
    driver.stored(call, &[(P0, Ok(1))]);
    // Ahead: what is left out does not hold anything up.
    assert!(seek(&mut driver, 8));
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 10)]);
    assert_eq!(driver.next(), Some((P0, 5, 8)));
    assert!(acknowledge(&mut driver, 5, 8));
    driver.input(GroupInput::Flush);
    let (_, store) = driver.storing();
    assert_eq!(store.sections[0].offset, Offset(8));
}

#[test]
fn an_offset_that_is_not_there_fails_the_partition_until_the_next_seek() {
    let mut driver = holding(|_| {});
    assert!(seek(&mut driver, 500));
    let (call, _) = driver.polled();
    driver.refuse_poll(call, P0, ErrorCode::OffsetOutOfRange);
    let events = driver.events();
    assert!(
        matches!(
            events[..],
            [GroupEvent::PartitionFailed { partition: P0, .. }]
        ),
        "{events:?}"
    );
    assert_eq!(driver.requests, []);
    assert!(seek(&mut driver, 2));
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 10)]);
    assert_eq!(driver.next(), Some((P0, 5, 2)));
}

#[test]
fn what_is_given_up_is_not_sought_in() {
    let mut driver = holding(|_| {});
    driver.next();
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    assert!(!seek(&mut driver, 0));
    assert!(!driver.consumer.seek(driver.time(), P1, Offset(0)));
}

#[test]
fn a_message_before_a_seek_does_not_count_as_processed_when_the_next_is_asked_for() {
    let mut driver = holding(|config| config.store = StoreMode::Processed);
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    assert!(seek(&mut driver, 0));
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 10)]);
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    driver.input(GroupInput::Flush);
    assert_eq!(driver.requests, []);
}

#[test]
fn who_detaches_stores_what_is_processed_and_does_not_leave() {
    let mut driver = holding(|_| {});
    for offset in 0..2 {
        assert_eq!(driver.next(), Some((P0, 5, offset)));
    }
    acknowledge(&mut driver, 5, 0);
    let timeout = Duration::from_secs(5);
    driver.input(GroupInput::Detach { timeout });
    let (call, _) = driver.storing();
    driver.stored(call, &[(P0, Ok(0))]);
    // The second message is still to be processed.
    assert!(!driver.consumer.is_ended());
    acknowledge(&mut driver, 5, 1);
    driver.advance(100);
    let (call, store) = driver.storing();
    assert_eq!(store.sections[0].offset, Offset(1));
    driver.stored(call, &[(P0, Ok(1))]);
    assert!(driver.consumer.is_ended());
    assert_eq!(driver.requests, []);
    assert_eq!(driver.consumer.farewell(), None);
    assert_eq!(driver.events(), [GroupEvent::Revoked { partition: P0 }]);
}

#[test]
fn who_detaches_goes_in_time_whatever_is_stored_and_tells_what_is_not() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    let timeout = Duration::from_secs(5);
    driver.input(GroupInput::Detach { timeout });
    let (_, _) = driver.storing();
    assert_eq!(driver.consumer.farewell(), None);
    driver.advance(5_000);
    assert!(driver.consumer.is_ended());
    assert_eq!(driver.requests, []);
    let lost = GroupEvent::Lost {
        partition: P0,
        reason: LossReason::Detached,
        unstored: Some(Offset(0)),
        unprocessed: false,
    };
    assert_eq!(driver.events(), [lost]);
    assert_eq!(driver.consumer.deadline(), None);
}

#[test]
fn at_most_once_is_stored_by_the_poll_and_by_nothing_else() {
    let mut driver = Driver::member((1, &[(0, 5, 5)], NONE), |config| {
        config.store = StoreMode::BeforeDelivery;
    });
    let (call, poll) = driver.polled();
    assert!(poll.commit_on_poll);
    driver.serve(call, &[(P0, 0, 2)]);
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    // Nobody else gets what was served.
    assert_eq!(driver.next(), Some((P0, 5, 0)));
    assert_eq!(driver.requests, []);
    assert_eq!(driver.next(), Some((P0, 5, 1)));
    assert_eq!(driver.next(), None);
    let (_, release) = driver.releasing();
    assert_eq!(release.sections[0].offset, None);
}

#[test]
fn time_without_messages_is_no_stall() {
    let interval = Some(Duration::from_secs(1));
    let mut driver = Driver::member((1, &[(0, 5, 5)], NONE), |config| {
        config.max_poll_interval = interval;
    });
    driver.events();
    let (call, _) = driver.polled();
    driver.now += 5_000 * MS;
    driver.serve(call, &[(P0, 0, 1)]);
    driver.advance(999);
    assert_eq!(driver.events(), []);
    driver.advance(1);
    let idle = Duration::from_secs(1);
    assert_eq!(driver.events()[0], GroupEvent::Stalled { idle });
}

#[test]
fn a_partition_that_is_gone_before_its_release_is_answered_is_not_lost() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let (call, _) = driver.releasing();
    driver.events();
    driver.sync((3, &[], NONE));
    assert_eq!(driver.events(), []);
    driver.released(call, P0, Ok(()));
    assert_eq!(driver.events(), [GroupEvent::Revoked { partition: P0 }]);
}

#[test]
fn a_revocation_that_is_planned_anew_is_released_anew() {
    let mut driver = holding(|_| {});
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let (old, _) = driver.releasing();
    driver.sync((3, &[], &[(0, 5, 5, 12)]));
    let (call, release) = driver.releasing();
    assert_eq!(release.sections[0].planned, Epoch(12));
    driver.events();
    driver.released(old, P0, Err(ErrorCode::RevocationChanged));
    driver.released(call, P0, Ok(()));
    assert_eq!(driver.events(), [GroupEvent::Revoked { partition: P0 }]);
}

#[test]
fn a_store_that_is_overtaken_by_the_release_means_nothing() {
    let mut driver = holding(|_| {});
    driver.next();
    acknowledge(&mut driver, 5, 0);
    driver.input(GroupInput::Flush);
    let (store, _) = driver.storing();
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    let (release, _) = driver.releasing();
    driver.events();
    driver.stored(store, &[(P0, Err(ErrorCode::StaleEpoch))]);
    assert_eq!(driver.events(), []);
    driver.released(release, P0, Ok(()));
    assert_eq!(driver.events(), [GroupEvent::Revoked { partition: P0 }]);
}

#[test]
fn when_the_time_to_give_up_is_over_the_assignment_is_asked_for() {
    let mut driver = holding(|_| {});
    driver.next();
    driver.sync((2, &[], &[(0, 5, 5, 9)]));
    driver.advance(499);
    assert_eq!(driver.requests, []);
    driver.advance(1);
    assert!(matches!(
        driver.requests[0].1,
        Request::SyncConsumerGroup(_)
    ));
}
