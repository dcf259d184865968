//! R04: a partition goes to its next owner when the one before has stored what it was served, or at the
//! deadline; and meanwhile nobody is served.

use std::time::{Duration, Instant};

use integration::{Ledger, Load, Member};
use wire::{ErrorCode, Offset};

use crate::scene::{NEVER_MS, Scene, patient, rebalance_timeout};

/// How long a hand-over may take where it must come to that.
const DEADLINE: Duration = Duration::from_millis(1_500);

#[test]
fn r04_a_what_was_never_polled_goes_at_once() {
    let mut scene = Scene::new(patient(), 2, 50);
    let mut first = scene.join();
    let page = first.poll(0, 10).expect("it is the owner");
    assert_eq!(page.messages.len(), 10);
    let mut second = scene.join();
    second.wait_for(1);
    assert_eq!(second.owned(), [1]);
    assert_eq!(scene.counter("moves_drained"), 1);
}

#[test]
fn r04_b_what_was_stored_goes_at_once_and_repeats_nothing() {
    let mut scene = Scene::new(patient(), 2, 50);
    let mut first = poll_and_store(&scene, 50, 49);
    let mut second = scene.join();
    second.wait_for(1);
    scene.append(1, 1);
    assert_eq!(first_offset(&mut second, 1), 50);
    first.wait_for(1);
    assert_eq!(scene.counter("moves_drained"), 1);
}

/// While the producers are running.
#[test]
fn r04_c_what_is_not_stored_goes_at_the_deadline_and_is_delivered_again() {
    let deadline = u32::try_from(DEADLINE.as_millis()).expect("it is short");
    let options = rebalance_timeout(deadline);
    let mut scene = Scene::with_options(patient(), 2, 50, options);
    let mut first = poll_and_store(&scene, 50, 29);
    let ledger = Ledger::new(100);
    let load = Load::start(&scene.server().url(), &scene.topic, 0..1, &ledger);
    let begun = Instant::now();
    let mut second = scene.join();
    first.wait_for_revoking(1);
    let refused = first.poll(1, 10).expect_err("it is revoked");
    assert_eq!(refused.code, ErrorCode::PartitionRevoking, "{refused}");
    second.wait_for(1);
    let took = begun.elapsed();
    assert!(took >= DEADLINE, "{took:?}");
    load.finish();
    assert!(ledger.acknowledged() > 0);
    // 20 messages were delivered to the first, and are to the second.
    assert_eq!(scene.next(1), 30);
    assert_eq!(first_offset(&mut second, 1), 30);
    assert_eq!(scene.counter("moves_timed_out"), 1);
    assert_eq!(scene.counter("moves_drained"), 0);
}

#[test]
fn r04_d_the_last_store_ends_the_wait() {
    for is_released in [false, true] {
        let mut scene = Scene::new(patient(), 2, 50);
        let mut first = poll_and_store(&scene, 50, 29);
        let mut second = scene.join();
        first.wait_for_revoking(1);
        second.sync().expect("it is a member");
        assert_eq!(second.owned(), []);
        assert_eq!(first.store(1, 48), Ok(Some(Offset(48))));
        second.sync().expect("it is a member");
        assert_eq!(second.owned(), [], "one message is not stored");
        let result = if is_released {
            // The last one was dropped, not processed.
            first.release(1, None)
        } else {
            first.store(1, 49)
        };
        result.expect("it is the owner");
        second.wait_for(1);
        scene.append(1, 1);
        let start = if is_released { 49 } else { 50 };
        assert_eq!(first_offset(&mut second, 1), start);
        let counter = if is_released {
            "moves_released"
        } else {
            "moves_drained"
        };
        assert_eq!(scene.counter(counter), 1);
        assert_eq!(scene.counter("moves_timed_out"), 0);
    }
}

/// A node that was killed does not know what it has served: it waits for the release.
#[test]
fn r04_d_after_a_crash_only_the_release_ends_the_wait() {
    let mut scene = Scene::new(patient(), 2, 50);
    let mut first = poll_and_store(&scene, 50, 29);
    let mut second = scene.join();
    scene.crash();
    first.attach(scene.address());
    second.attach(scene.address());
    first.wait_for_revoking(1);
    let refused = first.poll(1, 10).expect_err("it is revoked");
    assert_eq!(refused.code, ErrorCode::PartitionRevoking, "{refused}");
    assert_eq!(first.store(1, 39), Ok(Some(Offset(39))));
    second.sync().expect("it is a member");
    assert_eq!(second.owned(), []);
    assert_eq!(first.release(1, Some(44)), Ok(Some(Offset(44))));
    second.wait_for(1);
    assert_eq!(first_offset(&mut second, 1), 45);
    assert_eq!(scene.counter("moves_released"), 1);
}

#[test]
fn r04_f_an_empty_poll_counts_as_none() {
    let mut scene = Scene::with_options(patient(), 2, 0, rebalance_timeout(NEVER_MS));
    let mut first = scene.join();
    for partition in [0, 1] {
        let page = first.poll(partition, 10).expect("it is the owner");
        assert!(page.messages.is_empty());
    }
    let mut second = scene.join();
    second.wait_for(1);
    assert_eq!(scene.counter("moves_drained"), 1);
}

/// A member that has polled `count` messages of both partitions, and stored this offset in both.
fn poll_and_store(scene: &Scene, count: u32, offset: u64) -> Member {
    let mut member = scene.join();
    for partition in [0, 1] {
        // What counts is the highest that was served, whenever that was.
        for count in [10, count, 10] {
            let page = member.poll(partition, count).expect("it is the owner");
            assert_eq!(page.messages.len(), count as usize);
        }
        assert_eq!(member.store(partition, offset), Ok(Some(Offset(offset))));
    }
    member
}

fn first_offset(member: &mut Member, partition: u32) -> u64 {
    let page = member.poll(partition, 1).expect("it is the owner");
    page.messages[0].0.0
}
