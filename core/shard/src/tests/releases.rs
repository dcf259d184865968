//! Releases that come when their move is not planned any more.

use wire::{
    Epoch, ErrorCode, LeaveConsumerGroup, Offset, PartitionId, ReleasePartition, ReleaseResult,
    ReleaseSection, Reply,
};

use super::{
    groups::{code, joined, node_with, places, polled, synced},
    node::{Client, Node, name},
};

fn released(
    node: &mut Node,
    client: &mut Client,
    (partition, epoch, planned): (PartitionId, Epoch, Epoch),
) -> ReleaseResult {
    let release = ReleasePartition {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
        sections: [ReleaseSection {
            partition,
            epoch,
            planned,
            offset: Some(Offset(0)),
        }]
        .to_vec(),
    };
    match node.call(client, release) {
        Ok(Reply::PartitionsReleased(released)) => released.sections[0].clone(),
        other => panic!("the request as a whole is in order: {other:?}"),
    }
}

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
    let release = (moving.partition, moving.epoch, moving.planned);
    let section = released(&mut node, &mut first, release);
    assert_eq!(section.stored, Some(Offset(0)));
    assert_eq!(code(section.status), ErrorCode::RevocationChanged);
    let after = synced(&mut node, &mut first);
    assert_eq!(after.owned.len(), before.owned.len());
    assert!(after.revoking.is_empty());
}

#[test]
fn release_that_names_the_owners_own_epoch_stores_and_says_that_it_releases_nothing() {
    let mut node = node_with(3);
    let mut member = node.log_in(1, 1);
    let before = joined(&mut node, &mut member);
    let (partition, epoch) = (before.owned[0].partition, before.owned[0].epoch);
    // The fence is there before, and raised by the release itself.
    polled(&mut node, &mut member, &places(&before.owned[1..]));
    for place in &before.owned {
        let release = (place.partition, place.epoch, place.epoch);
        let section = released(&mut node, &mut member, release);
        assert_eq!(section.stored, Some(Offset(0)));
        assert_eq!(code(section.status), ErrorCode::RevocationChanged);
    }
    let served = &polled(&mut node, &mut member, &[(partition.0, epoch)])[0];
    assert_eq!(served.from, Offset(1), "it is the member's");
    assert_eq!(synced(&mut node, &mut member).owned, before.owned);
}

#[test]
fn release_that_names_the_epoch_of_a_cancellation_says_that_it_releases_nothing() {
    let mut node = node_with(3);
    let mut first = node.log_in(1, 1);
    let before = joined(&mut node, &mut first);
    polled(&mut node, &mut first, &places(&before.owned));
    let mut second = node.log_in(2, 2);
    joined(&mut node, &mut second);
    let old = synced(&mut node, &mut first).revoking[0].clone();
    let leave = LeaveConsumerGroup {
        stream: name("orders"),
        topic: name("payments"),
        group: name("billing"),
    };
    node.call(&mut second, leave).unwrap();
    let after = synced(&mut node, &mut first);
    let mut owned = after.owned.iter();
    let now = owned.find(|it| it.partition == old.partition).unwrap();
    assert!(
        now.epoch > old.planned,
        "the cancellation has an epoch of its own"
    );
    // Under the old epoch, which is lifted to the one that is named.
    let section = released(&mut node, &mut first, (old.partition, old.epoch, now.epoch));
    assert_eq!(section.stored, Some(Offset(0)));
    assert_eq!(code(section.status), ErrorCode::RevocationChanged);
}
