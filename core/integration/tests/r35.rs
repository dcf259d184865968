//! R35: a group with its offsets is kept as long as it has members, and then for its time.

use std::time::{Duration, Instant};

use integration::{DEFAULT_OPTIONS, Group, repetitions, until};
use wire::{ConsumerGroupOptionsUpdate, ErrorCode, Offset};

use crate::scene::{Scene, patient};

const EXPIRY: Duration = Duration::from_millis(1_500);

fn expiring() -> ConsumerGroupOptionsUpdate {
    ConsumerGroupOptionsUpdate {
        offset_expiry_ms: Some(1_500),
        ..DEFAULT_OPTIONS
    }
}

fn is_there(scene: &mut Scene) -> bool {
    match scene.group.describe(&mut scene.admin) {
        Ok(_) => true,
        Err(failure) if failure.code == ErrorCode::ConsumerGroupNotFound => false,
        Err(failure) => {
            assert!(failure.code.retryable(), "{failure}");
            true
        }
    }
}

/// Waits until the group is gone, which must not be before its time is over since then.
fn expect_gone(scene: &mut Scene, since: Instant) {
    until("the group is gone", || (!is_there(scene)).then_some(()));
    assert!(since.elapsed() >= EXPIRY, "{:?}", since.elapsed());
}

#[test]
fn r35_1_group_with_a_member_that_only_lives_is_kept() {
    let mut scene = Scene::with_options(patient(), 1, 10, expiring());
    let mut member = scene.join();
    member.wait_for(1);
    assert_eq!(member.store(0, 4), Ok(Some(Offset(4))));
    for is_killed in [false, true] {
        let began = Instant::now();
        if is_killed {
            scene.crash();
            member.attach(scene.address());
        }
        while began.elapsed() < EXPIRY + EXPIRY / 2 {
            member.connection.ping();
            assert!(is_there(&mut scene), "it has a member");
        }
        assert_eq!(scene.next(0), 5);
    }
}

#[test]
fn r35_2_its_time_begins_when_the_last_member_has_gone() {
    let mut scene = Scene::with_options(patient(), 1, 10, expiring());
    let mut member = scene.join();
    member.wait_for(1);
    assert_eq!(member.store(0, 4), Ok(Some(Offset(4))));
    member.leave().expect("it is a member");
    // Whoever joins in time stops it.
    let mut member = scene.join();
    let left = Instant::now();
    member.leave().expect("it is a member");
    expect_gone(&mut scene, left);
    let stored = scene.group.stored(&mut scene.admin, &[0]);
    let refused = stored.expect_err("it is gone");
    assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
    // One that is made again has nothing of it.
    let again = Group::create(&mut scene.admin, &scene.topic, "billing", DEFAULT_OPTIONS);
    let again = again.expect("the name is free");
    assert!(again.id > scene.group.id);
    assert_eq!(again.stored(&mut scene.admin, &[0]), Ok(vec![None]));
}

#[test]
fn r35_3_group_that_was_never_used_has_its_time_too_and_a_kill_does_not_shorten_it() {
    for is_killed in [false, true] {
        let made = Instant::now();
        let mut scene = Scene::with_options(patient(), 1, 10, expiring());
        if is_killed {
            scene.crash();
        }
        expect_gone(&mut scene, made);
    }
}

#[test]
fn r35_4_groups_that_are_used_once_leave_nothing() {
    let mut scene = Scene::new(patient(), 1, 10);
    let groups: Vec<Group> = (0..repetitions(30, 1_000))
        .map(|number| {
            let name = format!("once-{number}");
            let group = Group::create(&mut scene.admin, &scene.topic, &name, expiring());
            group.expect("there is room")
        })
        .collect();
    for group in &groups {
        until("it is gone", || {
            let gone = group.describe(&mut scene.admin);
            let failure = gone.err()?;
            (failure.code == ErrorCode::ConsumerGroupNotFound).then_some(())
        });
    }
    // Those without an expiry stay.
    assert!(is_there(&mut scene));
}
