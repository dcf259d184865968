//! Batches, sends and polls.

use std::{vec, vec::Vec};

use bytes::Bytes;

use super::{Content, MOMENT, Vector, add_exchange, add_reply, add_request, stream, topic};
use crate::{
    Acknowledgement, Batch, BatchBuilder, Command, Compression, Consumer, Epoch, ErrorCode,
    Failure, Identifier, Message, Offset, PartitionId, PartitionTarget, PollMessages, PollResult,
    PollSection, PollStrategy, Polled, ProducerId, ReplicaId, Reply, SendMessages, SendResult,
    SendSection, Sent, Timestamp, encode_headers,
};

const PRODUCER: ProducerId = ProducerId(0x2f2e_2d2c_2b2a_2928_2726_2524_2322_2120);

pub(super) fn add(vectors: &mut Vec<Vector>) {
    add_batches(vectors);
    add_sends(vectors);
    add_polls(vectors);
    add_poll_replies(vectors);
}

/// Two messages: one with key and headers, one with a payload alone.
fn messages() -> [Message; 2] {
    let headers = encode_headers([("type", b"created".as_slice()), ("retry", b"")]).unwrap();
    [
        Message {
            id: 7,
            timestamp: Timestamp(MOMENT + 2),
            key: Bytes::from_static(b"customer-9"),
            headers,
            payload: Bytes::from_static(b"first"),
            ..Message::default()
        },
        Message {
            timestamp: Timestamp(MOMENT + 1),
            payload: Bytes::from_static(b"second"),
            ..Message::default()
        },
    ]
}

fn builder() -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for message in messages() {
        builder.push(&message);
    }
    builder
}

/// The two messages, idempotent.
fn batch() -> Batch {
    builder().build(PRODUCER, 1)
}

/// One message without anything but its payload.
fn small_batch(payload: &'static [u8]) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: Bytes::from_static(payload),
        ..Message::default()
    });
    builder.build(ProducerId(0), 0)
}

/// An LZ4 block of one sequence of literals.
fn lz4_literals(body: &[u8]) -> Vec<u8> {
    let rest = body.len() - 15;
    assert!(rest < 255, "the length takes one more byte");
    let mut block = vec![0xf0, u8::try_from(rest).unwrap()];
    block.extend_from_slice(body);
    block
}

/// A Zstandard frame of one raw block: magic number, descriptor (single segment, content size in one
/// byte), content size, block header (last, raw, size), bytes.
fn zstd_raw(body: &[u8]) -> Vec<u8> {
    let size = u8::try_from(body.len()).unwrap();
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, size];
    let block = 1 | u32::from(size) << 3;
    frame.extend_from_slice(&block.to_le_bytes()[..3]);
    frame.extend_from_slice(body);
    frame
}

fn add_batches(vectors: &mut Vec<Vector>) {
    let mut add = |file: &str, title: &str, batch| {
        vectors.push(Vector {
            file: file.into(),
            title: title.into(),
            content: Content::Batch(batch),
        });
    };
    let stamped = batch().stamped(Offset(1000), Timestamp(MOMENT + 5));
    add("batch.txt", "Batch of two messages, as sent", batch());
    add(
        "batch-stamped.txt",
        "The same batch, stamped by the broker",
        stamped,
    );
    let compressed = |compression, compress: fn(&[u8]) -> Vec<u8>| {
        let builder = builder();
        let body = compress(builder.body());
        builder.build_compressed(PRODUCER, 2, compression, body)
    };
    let lz4 = compressed(Compression::Lz4, lz4_literals);
    add(
        "batch-lz4.txt",
        "Batch of the same messages as an LZ4 block",
        lz4,
    );
    let zstd = compressed(Compression::Zstd, zstd_raw);
    add(
        "batch-zstd.txt",
        "Batch of the same messages as a Zstandard frame",
        zstd,
    );
}

fn add_sends(vectors: &mut Vec<Vector>) {
    let send = SendMessages {
        stream: stream(),
        topic: topic(),
        acknowledgement: Acknowledgement::Quorum,
        sections: vec![SendSection {
            target: PartitionTarget::Explicit(PartitionId(3)),
            batch: batch(),
        }],
    };
    let sent = Sent {
        sections: vec![SendResult {
            partition: PartitionId(3),
            status: Ok(()),
            primary: ReplicaId(0),
            base_offset: Some(Offset(1000)),
        }],
    };
    add_exchange(
        vectors,
        "a batch of two messages for partition 3",
        send,
        sent,
    );
    let section = |target, payload| SendSection {
        target,
        batch: small_batch(payload),
    };
    let several = SendMessages {
        stream: stream(),
        topic: topic(),
        acknowledgement: Acknowledgement::None,
        sections: vec![
            section(PartitionTarget::Balanced, b"a"),
            section(
                PartitionTarget::Key(Bytes::from_static(b"customer-9")),
                b"b",
            ),
        ],
    };
    let title = "two batches, one balanced, one by key, not acknowledged";
    add_request(vectors, "several", title, several);
    let refused = SendResult {
        partition: PartitionId(9),
        status: Err(Failure::new(
            ErrorCode::PartitionNotFound,
            "partition 9 does not exist in topic \"payments\", which has 4",
        )),
        primary: ReplicaId(0),
        base_offset: None,
    };
    let unknown = SendResult {
        partition: PartitionId(0),
        status: Ok(()),
        primary: ReplicaId(0),
        base_offset: None,
    };
    let sent = Reply::Sent(Sent {
        sections: vec![unknown, refused],
    });
    let title = "one section not acknowledged, one refused";
    add_reply(vectors, "several", title, (Command::SendMessages, sent));
}

fn section(partition: u32, strategy: PollStrategy) -> PollSection {
    PollSection {
        partition: PartitionId(partition),
        epoch: Epoch(0),
        strategy,
    }
}

fn add_polls(vectors: &mut Vec<Vector>) {
    let single = PollMessages {
        stream: stream(),
        topic: topic(),
        consumer: Consumer::Single("audit".into()),
        max_messages: 100,
        max_bytes: 1_048_576,
        min_bytes: 1,
        max_wait_ms: 5_000,
        commit_on_poll: false,
        sections: vec![
            section(0, PollStrategy::Offset(Offset(1000))),
            section(1, PollStrategy::Timestamp(Timestamp(MOMENT))),
            section(2, PollStrategy::First),
            section(3, PollStrategy::Last),
            section(4, PollStrategy::Next),
        ],
    };
    add_request(
        vectors,
        "",
        "a single consumer, one partition with each strategy",
        single,
    );
    let group = PollMessages {
        stream: Identifier::Number(1),
        topic: topic(),
        consumer: Consumer::Group(Identifier::name("billing").unwrap()),
        max_messages: 1,
        max_bytes: 0,
        min_bytes: 0,
        max_wait_ms: 0,
        commit_on_poll: true,
        sections: vec![PollSection {
            partition: PartitionId(0),
            epoch: Epoch(1234),
            strategy: PollStrategy::Next,
        }],
    };
    add_request(vectors, "group", "a member of a consumer group", group);
}

fn add_poll_replies(vectors: &mut Vec<Vector>) {
    let stamped = batch().stamped(Offset(1000), Timestamp(MOMENT + 5));
    let served = PollResult {
        partition: PartitionId(0),
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(10),
        end: Offset(1002),
        stored: Some(Offset(1000)),
        from: Offset(1001),
        next: Offset(1002),
        batches: vec![stamped.to_bytes()],
    };
    let empty = PollResult {
        partition: PartitionId(1),
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(0),
        stored: None,
        from: Offset(0),
        next: Offset(0),
        batches: Vec::new(),
    };
    let refused = PollResult {
        partition: PartitionId(7),
        status: Err(Failure::new(
            ErrorCode::NotPrimary,
            "node 2 leads data group 5",
        )),
        primary: ReplicaId(2),
        ..empty.clone()
    };
    let polled = Reply::Polled(Polled {
        sections: vec![served, empty, refused],
    });
    let title = "the second message of a batch, nothing, and a refusal";
    add_reply(vectors, "", title, (Command::PollMessages, polled));
}
