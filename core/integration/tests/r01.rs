//! R01: a member may store what it still owns, under the epoch that it last learned; being refused in one
//! partition costs it no other.

use wire::{ErrorCode, Offset};

use crate::scene::{Scene, patient};

#[test]
fn r01_who_gives_up_a_partition_may_store_until_it_is_anothers_and_not_after() {
    let mut scene = Scene::new(patient(), 4, 100);
    let mut first = scene.join_and_poll();
    let mut second = scene.join();
    // It has not heard of the second member, and stores under the epochs of before.
    let results = first.store_all(&[(0, 9), (1, 9), (2, 9), (3, 9)]);
    assert_eq!(results, Ok(vec![Ok(Some(Offset(9))); 4]));
    second.wait_for(2);
    assert_eq!(scene.counter("moves_drained"), 2);
    assert_eq!(scene.counter("moves_timed_out"), 0);
    for partition in second.owned() {
        let page = second.poll(partition, 10).expect("it is the owner");
        assert_eq!(page.messages[0].0, Offset(10));
    }
    let moved = second.owned()[0];
    let kept: Vec<u32> = (0..4).filter(|one| !second.owned().contains(one)).collect();
    for _ in 0..2 {
        let late = first.store(moved, 9).expect_err("it is another's");
        assert_eq!(late.code, ErrorCode::PartitionNotOwned, "{late}");
        assert_eq!(scene.next(moved), 10);
        for partition in &kept {
            let page = first.poll(*partition, 10).expect("it is the owner");
            assert_eq!(page.messages[0].0, Offset(10));
        }
        // What was refused stays so.
        scene.crash();
        first.attach(scene.address());
        second.attach(scene.address());
    }
    let results = first.store_all(&[(moved, 19), (kept[0], 19), (kept[1], 19)]);
    let results = results.expect("it is a member");
    let refused = results[0].as_ref().expect_err("it is another's");
    assert_eq!(refused.code, ErrorCode::PartitionNotOwned, "{refused}");
    assert_eq!(results[1..], [Ok(Some(Offset(19))), Ok(Some(Offset(19)))]);
    assert_eq!((scene.next(moved), scene.next(kept[0])), (10, 20));
    first.wait_for(2);
    assert_eq!(first.owned(), kept);
}
