//! One thing at a time.

use alloc::vec::Vec;
use core::time::Duration;

use coordinator::HandOver;
use wire::{ClientId, ConsumerGroupId, Offset, PartitionId};

use super::{Faults, MS, SECOND, World};
use crate::{GroupEvent, LossReason, StoreMode};

fn world(partitions: u32, messages: u32) -> World {
    let mut world = World::new(1, partitions, Faults::default());
    for partition in 0..usize::try_from(partitions).unwrap() {
        for _ in 0..messages / 5 {
            world.broker.produce(partition, 5);
        }
    }
    world
}

#[test]
fn alone_reads_everything_once() {
    let mut world = world(3, 50);
    world.start(|_| {});
    world.work_off(10 * SECOND);
    world.check_stored();
    assert_eq!(world.repeated(), 0);
    assert_eq!(world.handed.len(), 150);
}

#[test]
fn a_newcomer_gets_its_share_by_release_and_nothing_is_repeated() {
    let mut world = world(4, 200);
    let first = world.start(|_| {});
    world.run_for(SECOND / 4);
    for _ in 0..30 {
        world.take(first).unwrap();
        world.run_for(MS);
    }
    let second = world.start(|_| {});
    world.run_for(SECOND / 10);
    // The message in hand holds its partition; the others go at once.
    world.take(first);
    world.run_for(SECOND / 10);
    world.take(first);
    world.run_for(SECOND / 2);
    assert_eq!(world.owned(first).len(), 2);
    assert_eq!(world.owned(second).len(), 2);
    world.work_off(10 * SECOND);
    world.check_stored();
    assert_eq!(world.repeated(), 0);
    let how = world.broker.hand_overs.iter().map(|(_, how)| *how);
    assert!(how.clone().all(|how| how != HandOver::TimedOut));
    assert!(how.clone().any(|how| how == HandOver::Released));
    let revoked = |event: &&GroupEvent| matches!(event, GroupEvent::Revoked { .. });
    assert_eq!(world.peers[first].events.iter().filter(revoked).count(), 2);
}

#[test]
fn what_was_not_processed_in_time_is_delivered_again_and_never_stored_for() {
    let mut world = world(2, 50);
    world.broker.rebalance_timeout_ms = 1_000;
    let first = world.start(|config| config.store = StoreMode::Manual);
    world.run_for(SECOND / 4);
    while world.take(first).is_some() {}
    let second = world.start(|config| config.store = StoreMode::Manual);
    world.run_for(3 * SECOND);
    let lost = world.peers[first].events.iter().find_map(|event| {
        if let GroupEvent::Lost {
            partition, reason, ..
        } = event
        {
            Some((*partition, reason.clone()))
        } else {
            None
        }
    });
    let (partition, reason) = lost.expect("the time was over");
    assert_eq!(reason, LossReason::Reassigned);
    assert_eq!(world.owned(second), [partition.0]);
    // Late acknowledgements change nothing.
    while !world.peers[first].open.is_empty() {
        world.process_one(first);
    }
    world.run_for(SECOND);
    let own = &world.broker.partitions[usize::try_from(partition.0).unwrap()];
    assert_eq!(own.stored, None);
    world.work_off(10 * SECOND);
    assert!(world.repeated() > 0);
}

#[test]
fn a_crashed_member_is_replaced() {
    let mut world = world(2, 50);
    let first = world.start(|_| {});
    let second = world.start(|_| {});
    world.run_for(SECOND);
    for _ in 0..7 {
        world.take(first);
        world.take(second);
    }
    world.kill(first);
    world.work_off(10 * SECOND);
    world.check_stored();
    assert_eq!(world.owned(second), [0, 1]);
    // What was in hand or on its way to be stored, and no more.
    assert!(world.repeated() <= 7, "{}", world.repeated());
}

#[test]
fn close_leaves_nothing_behind() {
    let mut world = world(2, 50);
    let first = world.start(|_| {});
    world.run_for(SECOND / 4);
    for _ in 0..7 {
        world.take(first);
    }
    world.close(first, Duration::from_secs(5));
    world.run_until(2 * SECOND, |world| {
        world.peers[first].consumer.is_ended() && !world.is_worked_off()
    });
    let stored = world.broker.partitions.iter();
    let stored: u64 = stored.map(|own| own.stored.map_or(0, |it| it.0 + 1)).sum();
    assert_eq!(stored, 7);
    let group = world.broker.groups.group(ConsumerGroupId(1)).unwrap();
    assert_eq!(group.members().len(), 0);
    assert_eq!(world.take(first), None);
    let lost = |event: &GroupEvent| matches!(event, GroupEvent::Lost { .. });
    assert!(!world.peers[first].events.iter().any(lost));
    // Nothing is repeated for who comes next.
    world.start(|_| {});
    world.work_off(10 * SECOND);
    assert_eq!(world.repeated(), 0);
}

#[test]
fn close_waits_for_what_is_processed_and_not_for_ever() {
    let mut world = world(1, 50);
    let first = world.start(|config| config.store = StoreMode::Manual);
    world.run_for(SECOND / 4);
    for _ in 0..3 {
        world.take(first);
    }
    world.close(first, Duration::from_secs(5));
    world.run_for(SECOND);
    assert!(!world.peers[first].consumer.is_ended());
    world.process_one(first);
    world.run_for(5 * SECOND);
    assert!(world.peers[first].consumer.is_ended());
    let lost = |event: &GroupEvent| {
        matches!(
            event,
            GroupEvent::Lost {
                reason: LossReason::Left,
                ..
            }
        )
    };
    assert!(world.peers[first].events.iter().any(lost));
}

#[test]
fn a_stalled_member_gives_way_and_comes_back() {
    let mut world = world(2, 100);
    let stalling = world.start(|config| config.max_poll_interval = Some(Duration::from_secs(2)));
    let other = world.start(|_| {});
    world.run_for(SECOND / 2);
    world.take(stalling).unwrap();
    while world.now < 6 * SECOND {
        while world.take(other).is_some() {}
        world.run_for(SECOND / 10);
    }
    let stalled = |event: &GroupEvent| matches!(event, GroupEvent::Stalled { .. });
    assert!(world.peers[stalling].events.iter().any(stalled));
    assert_eq!(world.owned(other), [0, 1]);
    assert_eq!(world.owned(stalling), [0; 0]);
    // An application that waits for messages is not stalled, however long none come.
    assert!(!world.peers[other].events.iter().any(stalled));
    assert_eq!(world.take(stalling), None);
    for _ in 0..20 {
        world.take(other);
        world.run_for(SECOND / 10);
    }
    assert_eq!(world.owned(stalling).len(), 1);
}

#[test]
fn membership_survives_lost_connections() {
    let mut world = world(2, 50);
    let first = world.start(|_| {});
    world.run_for(SECOND / 2);
    let group = ConsumerGroupId(1);
    let before = world.broker.groups.group(group).unwrap().generation();
    for _ in 0..5 {
        let links = world.open.iter().copied().collect::<Vec<_>>();
        for link in links {
            world.cut(link);
        }
        world.take(first).unwrap();
        world.run_for(SECOND / 2);
    }
    world.work_off(10 * SECOND);
    assert_eq!(world.broker.logins, 1);
    let after = world.broker.groups.group(group).unwrap().generation();
    assert_eq!(before, after);
    assert_eq!(world.repeated(), 0);
}

#[test]
fn a_lost_session_loses_everything_and_joins_again() {
    let mut world = world(2, 50);
    let first = world.start(|_| {});
    world.run_for(SECOND / 2);
    world.take(first).unwrap();
    world.broker.forget_session(ClientId(1));
    world.run_for(5 * SECOND);
    let events = &world.peers[first].events;
    let lost = events.iter().filter(|event| {
        matches!(
            event,
            GroupEvent::Lost {
                reason: LossReason::SessionLost,
                ..
            }
        )
    });
    assert_eq!(lost.count(), 2);
    let joined = |event: &&GroupEvent| matches!(event, GroupEvent::Joined { .. });
    assert_eq!(events.iter().filter(joined).count(), 2);
    world.work_off(10 * SECOND);
    world.check_stored();
}

#[test]
fn a_removed_member_joins_again() {
    let mut world = world(2, 50);
    let first = world.start(|_| {});
    world.run_for(SECOND / 2);
    let (_, member) = world.peers[first].consumer.membership().unwrap();
    world.broker.remove_member(member);
    world.run_for(5 * SECOND);
    let (_, again) = world.peers[first].consumer.membership().unwrap();
    assert!(again > member);
    world.work_off(10 * SECOND);
}

#[test]
fn an_assignment_is_found_though_every_event_is_lost() {
    let mut world = world(2, 50);
    world.faults.lose_event = 1_000;
    let first = world.start(|_| {});
    world.run_for(SECOND);
    let second = world.start(|_| {});
    for _ in 0..80 {
        world.take(first);
        world.take(second);
        world.run_for(SECOND / 10);
    }
    assert_eq!(world.owned(first).len(), 1);
    assert_eq!(world.owned(second).len(), 1);
    world.work_off(10 * SECOND);
}

#[test]
fn a_reset_under_members_starts_a_new_ownership() {
    let mut world = world(2, 20);
    let first = world.start(|_| {});
    world.work_off(5 * SECOND);
    world.broker.reset();
    world.run_for(SECOND);
    assert_eq!(world.owned(first), [0, 1]);
    world.work_off(5 * SECOND);
    assert_eq!(world.repeated(), 40);
}

#[test]
fn after_a_view_change_only_the_release_ends_a_revocation_early() {
    let mut world = world(2, 20);
    let first = world.start(|_| {});
    world.work_off(5 * SECOND);
    world.broker.change_view(0);
    world.broker.change_view(1);
    world.broker.hand_overs.clear();
    world.start(|_| {});
    world.run_for(SECOND);
    assert_eq!(world.owned(first).len(), 1);
    let how = world.broker.hand_overs.iter().map(|(_, how)| *how);
    assert_eq!(how.collect::<Vec<_>>(), [HandOver::Released]);
}

#[test]
fn at_most_once_repeats_nothing_and_a_hand_over_loses_nothing() {
    let mut world = world(2, 100);
    let first = world.start(|config| config.store = StoreMode::BeforeDelivery);
    world.run_for(SECOND / 4);
    for _ in 0..7 {
        world.take(first);
    }
    let second = world.start(|config| config.store = StoreMode::BeforeDelivery);
    for _ in 0..400 {
        world.take(first);
        world.take(second);
        world.run_for(10 * MS);
    }
    assert_eq!(world.repeated(), 0);
    assert_eq!(world.handed.len(), 200);
}

#[test]
fn a_paused_partition_is_not_read_until_it_is_resumed() {
    let mut world = world(2, 50);
    let first = world.start(|_| {});
    world.run_for(SECOND / 2);
    let time = world.time();
    assert!(
        world.peers[first]
            .consumer
            .pause(time, PartitionId(0), true)
    );
    for _ in 0..100 {
        world.take(first);
        world.run_for(10 * MS);
    }
    assert!(world.handed.keys().all(|(partition, _)| partition.0 == 1));
    assert_eq!(world.handed.len(), 50);
    let time = world.time();
    assert!(
        world.peers[first]
            .consumer
            .pause(time, PartitionId(0), false)
    );
    world.work_off(5 * SECOND);
    assert_eq!(world.repeated(), 0);
    assert_eq!(world.broker.partitions[0].stored, Some(Offset(49)));
}
