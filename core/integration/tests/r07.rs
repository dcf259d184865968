//! R07: stores of members never move a group back; only a reset does.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use integration::Member;
use wire::{Offset, ResetTarget};

use crate::scene::{Scene, patient};

const MESSAGES: u64 = 1_000;

#[test]
fn r07_lower_store_is_answered_with_what_is_stored_and_changes_nothing() {
    let mut scene = Scene::new(patient(), 1, MESSAGES);
    let mut member = scene.join();
    assert_eq!(member.store(0, 100), Ok(Some(Offset(100))));
    assert_eq!(member.store(0, 60), Ok(Some(Offset(100))));
    assert_eq!(scene.next(0), 101);
    // A store that was made long ago, and arrives on another way.
    let mut late = member.connection.attach();
    let old = member.store_of(&[(0, member.epoch(0), 60)]);
    let frame = late.frame(&old.into());
    assert_eq!(member.store(0, 140), Ok(Some(Offset(140))));
    for _ in 0..2 {
        // The second is the same once more, as after an answer that was lost.
        late.write(&frame).expect("it is connected");
        let answer = late.receive().expect("it is connected");
        match answer.reply(wire::Command::StoreConsumerOffset) {
            Ok(wire::Reply::OffsetsStored(stored)) => {
                assert_eq!(stored.sections[0].status, Ok(()));
                assert_eq!(stored.sections[0].stored, Some(Offset(140)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.next(0), 141);
    }
    scene.crash();
    member.attach(scene.address());
    assert_eq!(member.store(0, 60), Ok(Some(Offset(140))));
    assert_eq!(scene.next(0), 141);
    // Only who asks for it goes back.
    let back = (0, ResetTarget::Offset(Offset(10)));
    let epoch = member.epoch(0);
    let group = scene.group.clone();
    let done = group.reset(&mut scene.admin, back, true);
    done.expect("it is forced");
    assert_eq!(scene.next(0), 11);
    let late = member.store(0, 140).expect_err("it is from before");
    assert_eq!(late.code, wire::ErrorCode::PartitionNotOwned, "{late}");
    member.wait_for(1);
    assert!(member.epoch(0) > epoch);
    let page = member.poll(0, 1).expect("it is the owner");
    assert_eq!(page.messages[0].0, Offset(11));
}

/// Eight connections store a permutation of all offsets.
#[test]
fn r07_3_stores_in_any_order_end_at_the_highest() {
    const CONNECTIONS: u64 = 8;
    let mut scene = Scene::new(patient(), 1, MESSAGES);
    let member = scene.join();
    let stop = AtomicBool::new(false);
    let mut looks = 0;
    thread::scope(|scope| {
        let storing: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let mut one = Member {
                    connection: member.connection.attach(),
                    group: member.group.clone(),
                    assignment: member.assignment.clone(),
                };
                scope.spawn(move || {
                    for turn in 0..100 {
                        // 7919 has no common divisor with 800.
                        let offset = (turn * CONNECTIONS + number) * 7_919 % 800;
                        let stored = one.store(0, offset).expect("it is the owner");
                        assert!(stored >= Some(Offset(offset)), "{stored:?} {offset}");
                    }
                })
            })
            .collect();
        let looking = scope.spawn(|| {
            let mut last = 0;
            while !stop.load(Ordering::SeqCst) {
                let next = scene.next(0);
                assert!(last <= next, "{last} {next}");
                last = next;
                looks += 1;
            }
        });
        for one in storing {
            one.join().expect("every store is taken");
        }
        stop.store(true, Ordering::SeqCst);
        looking.join().expect("it never goes back");
    });
    assert!(looks > 1);
    assert_eq!(scene.next(0), 800);
}
