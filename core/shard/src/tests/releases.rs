//! Releases that come when their move is not planned any more.

use wire::{ErrorCode, LeaveConsumerGroup, Offset, ReleasePartition, ReleaseSection, Reply};

use super::{
    groups::{code, joined, node_with, places, polled, synced},
    node::name,
};

#[test]
fn release_of_a_cancelled_move_stores_and_says_that_it_releases_nothing() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let mine = synced(&mut node, &mut first);
    let moving = mine.revoking[0].clone();
    let leave = LeaveConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    };
    node.call(&mut second, leave).unwrap();
    // The move is cancelled: the partition stays where it is, under an epoch above that of the move.
    let release = ReleasePartition {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        sections: [ReleaseSection {
            partition: moving.partition,
            epoch: moving.epoch,
            planned: moving.planned,
            offset: Some(Offset(0)),
        }]
        .to_vec(),
    };
    let Ok(Reply::PartitionsReleased(released)) = node.call(&mut first, release) else {
        panic!("the request as a whole is in order");
    };
    let section = released.sections[0].clone();
    assert_eq!(section.stored, Some(Offset(0)));
    assert_eq!(code(section.status), ErrorCode::RevocationChanged);
    let after = synced(&mut node, &mut first);
    assert_eq!(after.owned.len(), before.owned.len());
    assert!(after.revoking.is_empty());
}
