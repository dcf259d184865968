//! Bodies of replies.

use std::{vec, vec::Vec};

use super::{Bytes, Command, MemberStatus, MoveWait, PollResult, Polled, Reply};
use crate::{
    Batch, BatchBuilder, ErrorCode, Message, Offset, PartitionId, Problem, ProducerId, Reader,
    ReplicaId, Timestamp, Writer, field::Field, vectors::largest_group,
};

fn batch(size: usize, base: u64) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: Bytes::from(vec![7; size]),
        ..Message::default()
    });
    let batch = builder.build(ProducerId(0), 0);
    batch.stamped(Offset(base), Timestamp(9)).to_bytes()
}

fn polled(batches: Vec<Bytes>) -> Reply {
    Reply::Polled(Polled {
        sections: vec![PollResult {
            partition: PartitionId(1),
            status: Ok(()),
            primary: ReplicaId(0),
            start: Offset(0),
            end: Offset(9),
            stored: None,
            from: Offset(0),
            next: Offset(2),
            batches,
        }],
    })
}

#[test]
fn large_batches_are_served_without_a_copy() {
    let batches = vec![batch(5_000, 0), batch(10, 1)];
    let parts = polled(batches.clone()).encode();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[1].as_ptr(), batches[0].as_ptr());
    assert_eq!(polled(batches).to_bytes(), parts.concat());
}

#[test]
fn batches_are_told_apart_however_they_were_cut() {
    let batches = vec![batch(5_000, 0), batch(10, 1)];
    let whole = Bytes::from(batches.concat());
    let cut = polled(vec![whole.slice(..77), whole.slice(77..)]);
    let read = Reply::decode(Command::PollMessages, cut.to_bytes());
    assert_eq!(read, Ok(polled(batches.clone())));
    assert!(
        batches
            .iter()
            .all(|batch| Batch::read(batch).unwrap().is_stamped())
    );
}

#[test]
fn batches_that_do_not_end_with_their_section_are_refused() {
    let whole = batch(10, 0);
    for size in 1..whole.len() {
        let cut = polled(vec![whole.slice(..size)]).to_bytes();
        let error = Reply::decode(Command::PollMessages, cut).unwrap_err();
        assert!(matches!(error.problem, Problem::Truncated { .. }), "{size}");
    }
}

#[test]
fn nothing_to_tell_is_an_empty_body() {
    assert!(Reply::Done.encode().is_empty());
    assert_eq!(Reply::decode(Command::Ping, Bytes::new()), Ok(Reply::Done));
    assert!(Reply::decode(Command::Ping, Bytes::from_static(&[0])).is_err());
    assert!(Reply::decode(Command::GetMe, Bytes::new()).is_err());
}

/// The numbers are those that PROTOCOL.md lists.
#[test]
fn states_are_the_numbers_that_they_are_told_by() {
    let read = |number: u8| Reader::new(Bytes::copy_from_slice(&[number]));
    let waits = [
        MoveWait::Drain,
        MoveWait::Release,
        MoveWait::Fence,
        MoveWait::Completion,
        MoveWait::Incarnation,
    ];
    for (number, wait) in (1..).zip(waits) {
        assert_eq!(MoveWait::read(&mut read(number), "wait"), Ok(wait));
        let mut writer = Writer::new();
        wait.write(&mut writer);
        assert_eq!(writer.into_bytes(), [number][..]);
    }
    for (number, status) in (1..).zip([MemberStatus::Active, MemberStatus::Detached]) {
        assert_eq!(MemberStatus::read(&mut read(number), "state"), Ok(status));
    }
    assert!(MoveWait::read(&mut read(0), "wait").is_err());
    assert!(MoveWait::read(&mut read(6), "wait").is_err());
    assert!(MemberStatus::read(&mut read(3), "state").is_err());
}

/// A node of a later version may have a reason that this one has no name for; the rest is still read.
#[test]
fn progress_that_is_unknown_for_an_unknown_reason_is_unknown() {
    let mut group = largest_group();
    group.partitions[0].progress = Err(ErrorCode::NotReady);
    let body = Reply::from(group.clone()).to_bytes();
    let mut later = body.to_vec();
    let code = later.len() - 4;
    assert_eq!(later[code..], ErrorCode::NotReady.code().to_le_bytes());
    later[code..].copy_from_slice(&9_999_u32.to_le_bytes());
    let read = Reply::decode(Command::GetConsumerGroup, later.into());
    group.partitions[0].progress = Err(ErrorCode::Internal);
    assert_eq!(read, Ok(group.into()));
}
