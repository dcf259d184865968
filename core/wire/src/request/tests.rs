//! Bodies of requests.

use std::{vec, vec::Vec};

use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::{
    Acknowledgement, Bytes, Consumer, PartitionTarget, PollMessages, PollSection, PollStrategy,
    Request, SendMessages, SendSection,
};
use crate::{
    BatchBuilder, Command, Epoch, Identifier, Message, Offset, PartitionId, ProducerId, Timestamp,
};

fn send(payload: &Bytes) -> SendMessages {
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: payload.clone(),
        ..Message::default()
    });
    SendMessages {
        stream: Identifier::Number(1),
        topic: Identifier::Number(2),
        acknowledgement: Acknowledgement::Quorum,
        sections: vec![SendSection {
            target: PartitionTarget::Balanced,
            batch: builder.build(ProducerId(0), 0),
        }],
    }
}

#[test]
fn large_batch_is_sent_and_read_without_a_copy() {
    let request = send(&Bytes::from(vec![7; 100_000]));
    let batch = request.sections[0].batch.body.as_ptr();
    let parts = Request::from(request.clone()).encode_parts();
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[1].as_ptr(), batch);
    let body = Bytes::from(parts.concat());
    let read = Request::decode(Command::SendMessages, body.clone()).unwrap();
    let Request::SendMessages(read) = read else {
        panic!("{read:?}")
    };
    let start = body.len() - read.sections[0].batch.body.len();
    assert_eq!(read.sections[0].batch.body.as_ptr(), body[start..].as_ptr());
    assert_eq!(read, request);
}

#[test]
fn stamped_batch_is_refused_in_a_send() {
    let mut request = send(&Bytes::from_static(b"x"));
    let batch = request.sections[0].batch.clone();
    request.sections[0].batch = batch.stamped(Offset(1), Timestamp(2));
    let body = Request::from(request).encode();
    let start = body.len() - 96 - 33;
    let error = Request::decode(Command::SendMessages, body).unwrap_err();
    assert_eq!((error.field, error.position), ("batch stamp", start));
}

#[test]
fn commands_without_a_body_take_none() {
    for request in [
        Request::Ping,
        Request::GetStats,
        Request::GetClusterMetadata,
        Request::GetMe,
        Request::Logout,
    ] {
        assert!(request.encode().is_empty());
        let command = request.command();
        assert_eq!(Request::decode(command, Bytes::new()), Ok(request));
        assert!(Request::decode(command, Bytes::from_static(&[0])).is_err());
    }
}

fn any_strategy() -> impl Strategy<Value = PollStrategy> {
    prop_oneof![
        any::<u64>().prop_map(|offset| PollStrategy::Offset(Offset(offset))),
        any::<u64>().prop_map(|time| PollStrategy::Timestamp(Timestamp(time))),
        Just(PollStrategy::First),
        Just(PollStrategy::Last),
        Just(PollStrategy::Next),
    ]
}

fn any_section() -> impl Strategy<Value = PollSection> {
    (any::<u32>(), any::<u64>(), any_strategy()).prop_map(|(partition, epoch, strategy)| {
        PollSection {
            partition: PartitionId(partition),
            epoch: Epoch(epoch),
            strategy,
        }
    })
}

fn any_consumer() -> impl Strategy<Value = Consumer> {
    prop_oneof![
        ".{0,40}".prop_map(Consumer::Single),
        ".{0,40}".prop_map(|name| Consumer::Group(Identifier::Name(name))),
        any::<u64>().prop_map(|id| Consumer::Group(Identifier::Number(id))),
    ]
}

proptest! {
    #[test]
    fn polls_come_back(
        consumer in any_consumer(),
        numbers in any::<[u32; 4]>(),
        commit_on_poll in any::<bool>(),
        sections in prop::collection::vec(any_section(), 0..30),
    ) {
        let [max_messages, max_bytes, min_bytes, max_wait_ms] = numbers;
        let poll = PollMessages {
            stream: Identifier::Number(1),
            topic: Identifier::Name("t".into()),
            consumer,
            max_messages,
            max_bytes,
            min_bytes,
            max_wait_ms,
            commit_on_poll,
            sections,
        };
        let request = Request::from(poll);
        let read = Request::decode(Command::PollMessages, request.encode());
        prop_assert_eq!(read, Ok(request));
    }

    #[test]
    fn keys_come_back(key in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut request = send(&Bytes::from_static(b"x"));
        request.sections[0].target = PartitionTarget::Key(Vec::into(key));
        let request = Request::from(request);
        let read = Request::decode(Command::SendMessages, request.encode());
        prop_assert_eq!(read, Ok(request));
    }
}
