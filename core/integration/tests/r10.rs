//! R10 and R46: what the SDK's members of consumer groups store, when, and when they stop.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use cohort::{Error, Received, StoreMode};
use integration::{Proxy, ROOT_PASSWORD, counter, until};
use wire::{Command, Offset};

use crate::{
    application::Application,
    scene::{Scene, hasty},
};

const MESSAGES: u64 = 1_000;

fn offsets(messages: &[Received]) -> Vec<u64> {
    messages.iter().map(|message| message.offset().0).collect()
}

/// Everything from where the group goes on to the end, read by another member.
fn read_the_rest(scene: &mut Scene, from: u64) {
    let application = Application::start(scene);
    let mut consumer = application.join(scene, |builder| builder);
    let rest = application.take(&mut consumer, MESSAGES - from);
    assert_eq!(offsets(&rest), (from..MESSAGES).collect::<Vec<_>>());
    application.run(consumer.close()).expect("close");
    assert_eq!(scene.next(0), MESSAGES);
}

#[test]
fn r10_1_what_was_not_processed_when_the_process_died_is_delivered_again() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder);
    let taken = application.take(&mut consumer, 400);
    assert_eq!(offsets(&taken), (0..400).collect::<Vec<_>>());
    application.run(consumer.store()).expect("store");
    // The last one is still being processed.
    assert_eq!(scene.next(0), 399);
    application.take(&mut consumer, 100);
    application.stop_dead();
    drop(consumer);
    until("the member is gone", || {
        let details = scene.group.details(&mut scene.admin);
        details.members.is_empty().then_some(())
    });
    let next = scene.next(0);
    assert!((399..=499).contains(&next), "{next}");
    read_the_rest(&mut scene, next);
}

#[test]
fn r10_2_at_most_once_delivers_nothing_twice() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| {
        builder
            .store(StoreMode::BeforeDelivery)
            .poll_limits(10, 1 << 20)
            .buffer(1_000)
    });
    let taken = application.take(&mut consumer, 500);
    assert_eq!(offsets(&taken), (0..500).collect::<Vec<_>>());
    application.stop_dead();
    drop(consumer);
    until("the member is gone", || {
        let details = scene.group.details(&mut scene.admin);
        details.members.is_empty().then_some(())
    });
    let next = scene.next(0);
    assert!((500..MESSAGES).contains(&next), "{next}");
    read_the_rest(&mut scene, next);
}

/// The answer to the third poll with messages is lost on its way.
#[test]
fn r10_3_lost_answer_loses_no_message() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let proxy = Proxy::before(scene.address(), Command::PollMessages, 300, 3);
    let url = format!("cohort://root:{ROOT_PASSWORD}@{}", proxy.address());
    let application = Application::at(&url);
    let mut consumer = application.join(&scene, |builder| builder.poll_limits(50, 1 << 20));
    let mut seen = BTreeSet::new();
    application.run(async {
        while (seen.len() as u64) < MESSAGES {
            let next = consumer.next().await.expect("it goes on");
            seen.insert(next.expect("nothing fails").offset().0);
        }
    });
    assert!(proxy.has_cut());
    assert_eq!(seen.last(), Some(&(MESSAGES - 1)));
    application.run(consumer.close()).expect("close");
    assert_eq!(scene.next(0), MESSAGES);
}

#[test]
fn r10_4_the_server_keeps_no_cursor() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let mut member = scene.join();
    for _ in 0..2 {
        let page = member.poll(0, 10).expect("it is the owner");
        assert_eq!((page.messages[0].0, page.next), (Offset(0), Offset(10)));
    }
    assert_eq!(member.store(0, 4), Ok(Some(Offset(4))));
    drop(member);
    let mut other = scene.join_alone();
    let page = other.poll(0, 10).expect("it is the owner");
    assert_eq!(page.messages[0].0, Offset(5));
    assert_eq!(scene.next(0), 5);
}

#[test]
fn r10_5_message_that_failed_is_not_passed_over() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder.store(StoreMode::Manual));
    let taken = application.take(&mut consumer, 100);
    for message in &taken {
        // Number 40 has failed.
        if message.offset() != Offset(40) {
            assert!(message.ack());
        }
    }
    application.run(consumer.store()).expect("store");
    assert_eq!(scene.next(0), 40);
    application.stop_dead();
    drop(consumer);
    until("the member is gone", || {
        let details = scene.group.details(&mut scene.admin);
        details.members.is_empty().then_some(())
    });
    read_the_rest(&mut scene, 40);
}

#[test]
fn r46_1_close_stores_what_was_processed_before_it_leaves() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| {
        builder.store_interval(Duration::from_secs(10))
    });
    application.take(&mut consumer, MESSAGES);
    application.run(consumer.close()).expect("close");
    assert_eq!(scene.next(0), MESSAGES);
    let details = scene.group.details(&mut scene.admin);
    assert!(details.members.is_empty(), "{details:?}");
    application.run(application.client.clone().close());
    // Nothing is sent after that: whatever comes is from this test.
    until("the application is gone", || {
        (scene.counter("connections") == 1).then_some(())
    });
    let requests = scene.counter("requests");
    for _ in 0..50 {
        scene.admin.ping();
    }
    assert_eq!(scene.counter("requests"), requests + 51);
    assert_eq!(scene.counter("group_stores_refused"), 0);
}

#[test]
fn r46_2_close_waits_for_what_is_being_processed_but_not_for_ever() {
    let limit = Duration::from_secs(2);
    for is_processed in [true, false] {
        let mut scene = Scene::new(hasty(), 1, MESSAGES);
        let application = Application::start(&scene);
        let mut consumer = application.join(&scene, |builder| builder.store(StoreMode::Manual));
        let mut taken = application.take(&mut consumer, 501);
        let last = taken.pop().expect("there are 501");
        assert!(taken.iter().all(Received::ack));
        let begun = Instant::now();
        let closing = application.runtime.spawn(consumer.close_within(limit));
        until("the rest is stored", || {
            (scene.next(0) >= 500).then_some(())
        });
        if is_processed {
            assert!(last.ack());
        }
        let closed = application.run(closing).expect("no panic");
        let took = begun.elapsed();
        assert!(took < limit + Duration::from_secs(6), "{took:?}");
        let next = scene.next(0);
        if is_processed {
            closed.expect("everything is stored");
            assert_eq!(next, 501);
        } else {
            assert_eq!(next, 500);
            assert!(!last.ack(), "it is too late");
        }
        let details = scene.group.details(&mut scene.admin);
        assert!(details.members.is_empty(), "{details:?}");
        assert_eq!(scene.counter("group_stores_refused"), 0);
    }
}

#[test]
fn r46_3_close_stores_nothing_that_was_not_acknowledged() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder.store(StoreMode::Manual));
    let taken = application.take(&mut consumer, 100);
    assert!(taken[..60].iter().all(Received::ack));
    // It waits for those that were given out, so long.
    let closing = consumer.close_within(Duration::from_millis(300));
    let _ = application.run(closing);
    assert_eq!(scene.next(0), 60);
    let details = scene.group.details(&mut scene.admin);
    assert!(details.members.is_empty(), "{details:?}");
}

#[test]
fn r46_4_close_without_a_server_ends_and_says_so() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| {
        builder.store_interval(Duration::from_secs(10))
    });
    application.take(&mut consumer, 100);
    scene.stop();
    let limit = Duration::from_secs(1);
    let begun = Instant::now();
    let closed = application.run(consumer.close_within(limit));
    let took = begun.elapsed();
    assert!(took < limit + Duration::from_secs(3), "{took:?}");
    let error = closed.expect_err("nobody has stored it");
    assert!(matches!(error, Error::StoreInDoubt { .. }), "{error:?}");
}

#[test]
fn r46_5_consumer_that_is_dropped_is_no_member_any_more() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder);
    application.take(&mut consumer, 10);
    application.run(async { drop(consumer) });
    until("the member is gone", || {
        let details = scene.group.details(&mut scene.admin);
        details.members.is_empty().then_some(())
    });
    // The client goes on.
    application.run(application.client.ping()).expect("ping");
    assert!(counter(&mut scene.admin, "connections") > 1);
}

#[test]
fn r07_member_that_seeks_back_does_not_move_the_group_back() {
    let mut scene = Scene::new(hasty(), 1, MESSAGES);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder);
    application.take(&mut consumer, 101);
    application.run(consumer.store()).expect("store");
    assert_eq!(scene.next(0), 100);
    assert!(consumer.seek(0, 40));
    let again = application.take(&mut consumer, 11);
    assert_eq!(offsets(&again), (40..51).collect::<Vec<_>>());
    application.run(consumer.store()).expect("store");
    assert_eq!(scene.next(0), 100);
    // Ahead it goes, and leaves out what lies between.
    assert!(consumer.seek(0, 700));
    let ahead = application.take(&mut consumer, 1);
    assert_eq!(offsets(&ahead), [700]);
    assert!(!consumer.seek(1, 0), "there is no such partition");
    application.run(consumer.close()).expect("close");
    assert_eq!(scene.next(0), 701);
}
