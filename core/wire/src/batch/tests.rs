//! Batches are read as they were built, and not otherwise.

use std::{string::String, vec, vec::Vec};

use bytes::Bytes;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

use super::{
    BATCH_HEADER_SIZE, BATCH_SIZE_MAX, Batch, BatchBuilder, BatchHeader, Compression,
    HeaderProblem, Message, MessageIter, UNCOMPRESSED_SIZE_MAX, encode_headers,
};
use crate::{Offset, Problem, ProducerId, Timestamp, checksum64};

fn message(timestamp: u64, payload: &'static [u8]) -> Message {
    Message {
        timestamp: Timestamp(timestamp),
        payload: Bytes::from_static(payload),
        ..Message::default()
    }
}

fn batch(messages: &[Message]) -> Batch {
    let mut builder = BatchBuilder::new();
    for message in messages {
        builder.push(message);
    }
    builder.build(ProducerId(9), 4)
}

fn two() -> Batch {
    batch(&[message(20, b"one"), message(10, b"two")])
}

/// The batch with its header changed and its checksum right.
fn changed(batch: &Batch, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut batch = batch.clone();
    change(&mut batch.header);
    batch.header.checksum = checksum64(&batch.to_bytes()[32..]);
    batch.to_bytes()
}

#[track_caller]
fn assert_refused(bytes: &Bytes, field: &str, position: usize, problem: Problem) {
    let error = Batch::read(bytes).unwrap_err();
    let found = (error.field, error.position, error.problem);
    assert_eq!(found, (field, position, problem));
}

#[test]
fn header_says_what_the_messages_are() {
    let header = two().header;
    assert_eq!(header.size, 96 + 2 * (32 + 3));
    assert_eq!(header.uncompressed_size, 2 * (32 + 3));
    assert_eq!((header.count, header.sequence), (2, 4));
    assert_eq!(header.producer(), ProducerId(9));
    assert_eq!((header.first_timestamp, header.last_timestamp), (10, 20));
    assert_eq!(header.compression(), Some(Compression::None));
}

#[test]
fn read_leaves_what_follows_alone() {
    let one = two().to_bytes();
    let bytes = Bytes::from([&one[..], b"something else"].concat());
    assert_eq!(Batch::read(&bytes), Ok(two()));
}

#[test]
fn body_is_a_slice_and_no_copy() {
    let bytes = two().to_bytes();
    let batch = Batch::read(&bytes).unwrap();
    assert_eq!(batch.body.as_ptr(), bytes[BATCH_HEADER_SIZE..].as_ptr());
    let message = batch.messages().next().unwrap().unwrap();
    assert_eq!(
        message.payload.as_ptr(),
        bytes[BATCH_HEADER_SIZE + 32..].as_ptr()
    );
}

#[test]
fn stamping_changes_three_fields_and_keeps_the_checksum() {
    let sent = two();
    let stamped = sent.clone().stamped(Offset(100), Timestamp(7));
    assert!(!sent.is_stamped());
    assert!(stamped.is_stamped());
    assert_eq!(stamped.header.checksum, sent.header.checksum);
    assert_eq!(stamped.to_bytes()[24..], sent.to_bytes()[24..]);
    assert_eq!(Batch::read(&stamped.to_bytes()), Ok(stamped.clone()));
    assert_eq!(stamped.last_offset(), Offset(101));
    let offsets: Vec<Offset> = stamped
        .messages()
        .map(|message| message.unwrap().offset)
        .collect();
    assert_eq!(offsets, [Offset(100), Offset(101)]);
}

#[test]
fn batch_numbered_anew_reads_back_with_the_same_messages_and_no_stamp() {
    let before = two().stamped(Offset(9), Timestamp(8));
    let after = before.clone().numbered(ProducerId(77), 5);
    let read = Batch::read(&after.to_bytes()).unwrap();
    assert_eq!(read, after);
    assert_eq!(
        (read.header.producer(), read.header.sequence),
        (ProducerId(77), 5)
    );
    assert_eq!(
        (
            read.header.base_offset,
            read.header.timestamp,
            read.header.stamp_checksum
        ),
        (0, 0, 0)
    );
    assert_eq!(read.body, before.body);
    assert_ne!(read.header.checksum, before.header.checksum);
    // As if it had been built so.
    let own = read.numbered(before.header.producer(), before.header.sequence);
    assert_eq!(own.stamped(Offset(9), Timestamp(8)), before);
}

#[test]
fn changed_stamp_is_noticed() {
    let stamped = two().stamped(Offset(100), Timestamp(7));
    for change in [
        |header: &mut BatchHeader| header.base_offset += 1,
        |header: &mut BatchHeader| header.timestamp += 1,
        |header: &mut BatchHeader| header.checksum += 1,
    ] {
        let mut changed = stamped.clone();
        change(&mut changed.header);
        assert!(!changed.is_stamped());
    }
}

#[test]
fn stamped_batch_is_no_send() {
    assert_eq!(two().check_unstamped(), Ok(()));
    let stamped = two().stamped(Offset(0), Timestamp(7));
    let error = stamped.check_unstamped().unwrap_err();
    assert_eq!((error.field, error.position), ("batch stamp", 0));
}

#[test]
fn header_that_contradicts_the_messages_is_refused() {
    let batch = two();
    let invalid = |value| Problem::Invalid { value };
    let check = |change: fn(&mut BatchHeader), field, position, value| {
        assert_refused(&changed(&batch, change), field, position, invalid(value));
    };
    check(|header| header.count = 0, "batch count", 36, 0);
    check(|header| header.count = 1, "batch count", 36, 1);
    check(|header| header.count = 3, "batch count", 36, 3);
    check(|header| header.sequence = 0, "batch sequence", 40, 0);
    check(|header| header.producer = 0, "batch sequence", 40, 4);
    check(
        |header| header.first_timestamp = 9,
        "batch first_timestamp",
        64,
        9,
    );
    check(
        |header| header.last_timestamp = 21,
        "batch last_timestamp",
        72,
        21,
    );
    check(
        |header| header.uncompressed_size = 71,
        "batch uncompressed_size",
        80,
        71,
    );
    check(|header| header.compression = 3, "batch compression", 84, 3);
    check(|header| header.flags = 1, "batch flags", 85, 1);
    check(|header| header.reserved[9] = 5, "batch reserved", 86, 5);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let bytes = two().to_bytes();
    let with_size = |size: u32| {
        let mut bytes = bytes.to_vec();
        bytes[32..36].copy_from_slice(&size.to_le_bytes());
        Bytes::from(bytes)
    };
    let truncated = |needed, left| Problem::Truncated { needed, left };
    assert_refused(
        &with_size(95),
        "batch size",
        32,
        Problem::Invalid { value: 95 },
    );
    assert_refused(&with_size(167), "batch", 0, truncated(167, 166));
    let (value, limit) = (u64::from(BATCH_SIZE_MAX) + 1, u64::from(BATCH_SIZE_MAX));
    let too_large = Problem::TooLarge { value, limit };
    assert_refused(&with_size(BATCH_SIZE_MAX + 1), "batch size", 32, too_large);
    assert_refused(&bytes.slice(..95), "batch header", 0, truncated(96, 95));
}

#[test]
fn message_that_cannot_be_is_refused_where_it_stands() {
    let second = BATCH_HEADER_SIZE + 35;
    let with = |at: usize, value: &[u8]| {
        let mut bytes = two().to_bytes().to_vec();
        bytes[second + at..second + at + value.len()].copy_from_slice(value);
        let checksum = checksum64(&bytes[32..]);
        bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
        Bytes::from(bytes)
    };
    let invalid = |value| Problem::Invalid { value };
    assert_refused(&with(0, &[31]), "batch message size", second, invalid(31));
    let truncated = |needed, left| Problem::Truncated { needed, left };
    assert_refused(&with(0, &[36]), "batch message", second, truncated(36, 35));
    assert_refused(
        &with(0, &[34]),
        "batch message",
        second + 34,
        truncated(32, 1),
    );
    // Key and headers together are longer than the message.
    assert_refused(
        &with(4, &[2, 0, 2, 0]),
        "batch message size",
        second,
        invalid(35),
    );
    // The payload is taken for headers.
    let error = Batch::read(&with(6, &[3])).unwrap_err();
    assert_eq!(
        (error.field, error.position),
        ("batch message headers", second + 33)
    );
}

#[test]
fn compressed_batch_is_not_looked_into() {
    let mut builder = BatchBuilder::with_capacity(35);
    builder.push(&message(5, b"one"));
    assert_eq!(builder.body().len(), 35);
    let batch = builder.build_compressed(ProducerId(0), 0, Compression::Zstd, vec![1, 2, 3]);
    assert_eq!(Batch::read(&batch.to_bytes()), Ok(batch.clone()));
    assert_eq!(batch.header.uncompressed_size, 35);
    let with_size = |size: u32| changed(&batch, |header| header.uncompressed_size = size);
    let field = "batch uncompressed_size";
    assert_refused(&with_size(31), field, 80, Problem::Invalid { value: 31 });
    let (value, limit) = (
        u64::from(UNCOMPRESSED_SIZE_MAX) + 1,
        u64::from(UNCOMPRESSED_SIZE_MAX),
    );
    let too_large = Problem::TooLarge { value, limit };
    assert_refused(&with_size(UNCOMPRESSED_SIZE_MAX + 1), field, 80, too_large);
    let later = changed(&batch, |header| header.first_timestamp = 6);
    assert_refused(
        &later,
        "batch first_timestamp",
        64,
        Problem::Invalid { value: 6 },
    );
    let mut empty = batch;
    empty.header.size = 96;
    empty.body = Bytes::new();
    let empty = changed(&empty, |_| ());
    assert_refused(&empty, "batch size", 32, Problem::Invalid { value: 96 });
}

#[test]
fn admitted_batch_is_not_walked_again_but_its_checksum_counts() {
    let batch = two();
    let contradicting = changed(&batch, |header| header.count = 9);
    assert!(Batch::read_admitted(&contradicting).is_ok());
    let mut rotten = batch.to_bytes().to_vec();
    rotten[120] ^= 1;
    let error = Batch::read_admitted(&rotten.into()).unwrap_err();
    assert_eq!(
        (error.field, error.problem),
        ("batch checksum", Problem::Checksum)
    );
}

#[test]
fn walk_ends_after_the_first_error() {
    let body = Bytes::from_static(&[33; 40]);
    let mut messages = MessageIter::new(body, Offset(0));
    assert!(messages.next().unwrap().is_err());
    assert!(messages.next().is_none());
    let message = Message {
        headers: Bytes::from_static(&[0, 0, 0]),
        ..Message::default()
    };
    let mut headers = message.headers();
    assert!(headers.next().unwrap().is_err());
    assert!(headers.next().is_none());
}

#[test]
fn offsets_at_the_end_of_their_range_do_not_overflow() {
    let stamped = two().stamped(Offset(u64::MAX), Timestamp(0));
    assert_eq!(stamped.last_offset(), Offset(u64::MAX));
    assert_eq!(stamped.messages().count(), 2);
}

#[test]
fn headers_are_read_back_in_their_order() {
    let given = [("a", b"1".as_slice()), ("bé", b""), ("a", b"2")];
    let message = Message {
        headers: encode_headers(given).unwrap(),
        ..Message::default()
    };
    let read: Result<Vec<_>, _> = message.headers().collect();
    assert_eq!(read.unwrap(), given);
    assert!(Batch::read(&batch(&[message]).to_bytes()).is_ok());
}

#[test]
fn headers_beyond_their_limits_are_named() {
    let long = "n".repeat(256);
    let large = vec![0; 65_536];
    let refused = |name: &str, value: &[u8]| encode_headers([(name, value)]).unwrap_err();
    assert_eq!(
        refused("", b""),
        HeaderProblem::Name {
            name: String::new()
        }
    );
    assert_eq!(
        refused(&long, b""),
        HeaderProblem::Name { name: long.clone() }
    );
    let (name, size) = ("n".into(), 65_536);
    assert_eq!(refused("n", &large), HeaderProblem::Value { name, size });
    // Each fits, all together do not.
    let size = 65_540;
    assert_eq!(
        refused("n", &large[..65_535]),
        HeaderProblem::Size { size: 65_539 }
    );
    let two = [("n", &large[..60_000]), ("n", &large[..5_532])];
    assert_eq!(encode_headers(two), Err(HeaderProblem::Size { size }));
}

#[test]
#[should_panic(expected = "count > 0")]
fn empty_batch_cannot_be_built() {
    let _batch = BatchBuilder::new().build(ProducerId(0), 0);
}

fn any_message() -> impl Strategy<Value = Message> {
    let bytes = |size| prop::collection::vec(any::<u8>(), 0..size).prop_map(Bytes::from);
    let headers = prop::collection::vec(
        ("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..9)),
        0..4,
    );
    (any::<u128>(), any::<u64>(), bytes(20), headers, bytes(300)).prop_map(
        |(id, timestamp, key, headers, payload)| Message {
            offset: Offset(0),
            id,
            timestamp: Timestamp(timestamp),
            key,
            headers: encode_headers(
                headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_slice())),
            )
            .unwrap(),
            payload,
        },
    )
}

proptest! {
    #[test]
    fn messages_come_back_as_they_were_sent(
        sent in prop::collection::vec(any_message(), 1..20),
        base in 0..u64::MAX / 2,
    ) {
        let bytes = batch(&sent).stamped(Offset(base), Timestamp(3)).to_bytes();
        let read = Batch::read(&bytes).unwrap();
        prop_assert!(read.is_stamped());
        let received: Vec<Message> = read.messages().map(|message| message.unwrap()).collect();
        let expected: Vec<Message> = (base..)
            .zip(&sent)
            .map(|(offset, message)| Message { offset: Offset(offset), ..message.clone() })
            .collect();
        prop_assert_eq!(received, expected);
    }
}
