//! Sending, polling and storing.

use std::{format, string::String, vec, vec::Vec};

use bytes::Bytes;
use wire::{
    Acknowledgement, Batch, BatchBuilder, Command, Consumer, Epoch, ErrorCode, Failure, Message,
    Offset, PartitionId, PartitionTarget, PollMessages, PollResult, PollSection, PollStrategy,
    ProducerId, Reply, SendMessages, SendResult, SendSection, StoreConsumerOffset, StoreSection,
};

use super::node::{Client, Disk, Node, name};
use crate::Note;

pub(super) fn batch(payloads: &[String], producer: u128, sequence: u64) -> Batch {
    let mut builder = BatchBuilder::new();
    for payload in payloads {
        builder.push(&Message {
            payload: Bytes::from(payload.clone()),
            ..Message::default()
        });
    }
    builder.build(ProducerId(producer), sequence)
}

pub(super) fn payloads(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|index| format!("{prefix}-{index}"))
        .collect()
}

pub(super) fn send(partitions: &[(u32, Batch)]) -> SendMessages {
    let sections = partitions.iter().map(|(partition, batch)| SendSection {
        target: PartitionTarget::Explicit(PartitionId(*partition)),
        batch: batch.clone(),
    });
    SendMessages {
        stream: name("orders"),
        topic: name("payments"),
        acknowledgement: Acknowledgement::Quorum,
        sections: sections.collect(),
    }
}

pub(super) fn poll(partitions: &[u32], strategy: PollStrategy) -> PollMessages {
    let sections = partitions.iter().map(|partition| PollSection {
        partition: PartitionId(*partition),
        epoch: Epoch(0),
        strategy,
    });
    PollMessages {
        stream: name("orders"),
        topic: name("payments"),
        consumer: Consumer::Single("billing".into()),
        max_messages: 1_000,
        max_bytes: 60_000,
        min_bytes: 0,
        max_wait_ms: 0,
        commit_on_poll: false,
        sections: sections.collect(),
    }
}

pub(super) fn store(partition: u32, offset: u64) -> StoreConsumerOffset {
    StoreConsumerOffset {
        stream: name("orders"),
        topic: name("payments"),
        consumer: Consumer::Single("billing".into()),
        sections: vec![StoreSection {
            partition: PartitionId(partition),
            epoch: Epoch(0),
            offset: Offset(offset),
        }],
    }
}

pub(super) fn sent(reply: Result<Reply, Failure>) -> Vec<SendResult> {
    match reply {
        Ok(Reply::Sent(sent)) => sent.sections,
        other => panic!("{other:?}"),
    }
}

pub(super) fn polled(reply: Result<Reply, Failure>) -> Vec<PollResult> {
    match reply {
        Ok(Reply::Polled(polled)) => polled.sections,
        other => panic!("{other:?}"),
    }
}

/// The payloads that a section serves, trimmed as a client does.
pub(super) fn texts(result: &PollResult) -> Vec<String> {
    assert_eq!(result.status, Ok(()));
    let mut texts = Vec::new();
    for bytes in &result.batches {
        let batch = Batch::read(bytes).unwrap();
        assert!(batch.is_stamped());
        for message in batch.messages() {
            let message = message.unwrap();
            if message.offset >= result.from && message.offset < result.next {
                texts.push(String::from_utf8(message.payload.to_vec()).unwrap());
            }
        }
    }
    texts
}

/// A node with a topic of six partitions, and a client that is logged in.
pub(super) fn with_topic(shard_count: u16) -> (Node, Client) {
    let mut node = Node::fresh(shard_count);
    let mut client = node.log_in(1, 11);
    node.call(
        &mut client,
        wire::CreateStream {
            name: "orders".into(),
        },
    )
    .unwrap();
    let topic = wire::CreateTopic {
        stream: name("orders"),
        name: "payments".into(),
        partitions: 6,
    };
    node.call(&mut client, topic).unwrap();
    (node, client)
}

#[test]
fn messages_come_back_in_order_from_every_partition() {
    for shard_count in [1, 2, 3] {
        let (mut node, mut client) = with_topic(shard_count);
        for partition in 0..6 {
            for round in 0..3 {
                let batch = batch(&payloads(&format!("p{partition}r{round}"), 4), 0, 0);
                let sections = sent(node.call(&mut client, send(&[(partition, batch)])));
                assert_eq!(sections[0].base_offset, Some(Offset(round * 4)));
            }
        }
        let sections =
            polled(node.call(&mut client, poll(&[0, 1, 2, 3, 4, 5], PollStrategy::First)));
        for (partition, section) in sections.iter().enumerate() {
            let expected: Vec<String> = (0..3)
                .flat_map(|round| payloads(&format!("p{partition}r{round}"), 4))
                .collect();
            assert_eq!(texts(section), expected, "{shard_count} shards");
            assert_eq!((section.start, section.end), (Offset(0), Offset(12)));
        }
    }
}

#[test]
fn one_send_reaches_partitions_on_all_shards() {
    let (mut node, mut client) = with_topic(3);
    let parts: Vec<(u32, Batch)> = (0..6)
        .map(|p| (p, batch(&payloads("x", 2), 0, 0)))
        .collect();
    let sections = sent(node.call(&mut client, send(&parts)));
    assert_eq!(sections.len(), 6);
    for (partition, section) in sections.iter().enumerate() {
        assert_eq!(
            section.partition,
            PartitionId(u32::try_from(partition).unwrap())
        );
        assert_eq!(section.base_offset, Some(Offset(0)));
    }
}

#[test]
fn nothing_is_acknowledged_before_it_is_on_the_disk() {
    let (mut node, mut client) = with_topic(2);
    node.disk_stalls = true;
    let correlation = node.submit(&mut client, send(&[(0, batch(&payloads("a", 1), 0, 0))]));
    node.settle();
    assert!(
        node.answer(&mut client, Command::SendMessages, correlation)
            .is_none()
    );
    let sections = polled(node.call(&mut client, poll(&[0], PollStrategy::First)));
    assert_eq!(
        texts(&sections[0]),
        Vec::<String>::new(),
        "nor is it served"
    );
    node.disk_stalls = false;
    node.settle();
    assert!(
        node.answer(&mut client, Command::SendMessages, correlation)
            .unwrap()
            .is_ok()
    );
}

#[test]
fn a_section_for_an_unknown_partition_fails_alone() {
    let (mut node, mut client) = with_topic(2);
    let parts = [
        (0, batch(&payloads("a", 1), 0, 0)),
        (9, batch(&payloads("b", 1), 0, 0)),
    ];
    let sections = sent(node.call(&mut client, send(&parts)));
    assert_eq!(sections[0].base_offset, Some(Offset(0)));
    let failure = sections[1].status.clone().unwrap_err();
    assert_eq!(failure.code, ErrorCode::PartitionNotFound);
    assert!(
        failure.text.contains('9') && failure.text.contains('6'),
        "{failure}"
    );
}

#[test]
fn a_repeated_batch_is_answered_with_the_first_offset() {
    let (mut node, mut client) = with_topic(2);
    let first = batch(&payloads("a", 3), 77, 1);
    assert_eq!(
        sent(node.call(&mut client, send(&[(2, first.clone())])))[0].base_offset,
        Some(Offset(0))
    );
    assert_eq!(
        sent(node.call(&mut client, send(&[(2, first)])))[0].base_offset,
        Some(Offset(0))
    );
    let gap = batch(&payloads("c", 1), 77, 3);
    let failure = sent(node.call(&mut client, send(&[(2, gap)])))[0]
        .status
        .clone()
        .unwrap_err();
    assert_eq!(failure.code, ErrorCode::SequenceOutOfOrder);
}

#[test]
fn a_long_poll_ends_with_the_first_message() {
    for shard_count in [1, 3] {
        let (mut node, mut client) = with_topic(shard_count);
        let mut producer = node.log_in(2, 22);
        producer.seen = client.seen;
        let request = PollMessages {
            min_bytes: 1,
            max_wait_ms: 20_000,
            ..poll(&[0, 1, 2, 3, 4, 5], PollStrategy::Next)
        };
        let correlation = node.submit(&mut client, request);
        node.pass(500);
        assert!(
            node.answer(&mut client, Command::PollMessages, correlation)
                .is_none()
        );
        sent(node.call(
            &mut producer,
            send(&[(4, batch(&payloads("late", 1), 0, 0))]),
        ));
        let reply = node
            .answer(&mut client, Command::PollMessages, correlation)
            .expect("it has ended");
        let sections = polled(reply);
        assert_eq!(texts(&sections[4]), ["late-0"]);
        assert_eq!(texts(&sections[3]), Vec::<String>::new());
    }
}

#[test]
fn a_long_poll_ends_empty_when_its_time_is_over() {
    let (mut node, mut client) = with_topic(2);
    let request = PollMessages {
        min_bytes: 1,
        max_wait_ms: 1_000,
        ..poll(&[0, 1], PollStrategy::Next)
    };
    let correlation = node.submit(&mut client, request);
    node.pass(900);
    assert!(
        node.answer(&mut client, Command::PollMessages, correlation)
            .is_none()
    );
    node.pass(200);
    let sections = polled(
        node.answer(&mut client, Command::PollMessages, correlation)
            .unwrap(),
    );
    assert!(
        sections
            .iter()
            .all(|section| section.batches.is_empty() && section.status.is_ok())
    );
}

#[test]
fn what_was_stored_decides_where_next_begins() {
    let (mut node, mut client) = with_topic(2);
    sent(node.call(&mut client, send(&[(1, batch(&payloads("m", 10), 0, 0))])));
    let sections = polled(node.call(&mut client, poll(&[1], PollStrategy::Next)));
    assert_eq!((sections[0].from, sections[0].stored), (Offset(0), None));
    node.call(&mut client, store(1, 3)).unwrap();
    node.call(&mut client, store(1, 2)).unwrap();
    let sections = polled(node.call(&mut client, poll(&[1], PollStrategy::Next)));
    assert_eq!(
        (sections[0].from, sections[0].stored),
        (Offset(4), Some(Offset(3)))
    );
    let Ok(Reply::OffsetsStored(stored)) = node.call(&mut client, store(1, 10)) else {
        panic!()
    };
    assert_eq!(
        stored.sections[0].status.clone().unwrap_err().code,
        ErrorCode::OffsetOutOfRange
    );
}

#[test]
fn a_poll_that_stores_serves_nothing_twice() {
    let (mut node, mut client) = with_topic(2);
    sent(node.call(&mut client, send(&[(1, batch(&payloads("m", 10), 0, 0))])));
    let request = PollMessages {
        commit_on_poll: true,
        ..poll(&[1], PollStrategy::Next)
    };
    let first = polled(node.call(&mut client, request.clone()));
    assert_eq!(
        (texts(&first[0]).len(), first[0].stored),
        (10, Some(Offset(9)))
    );
    let second = polled(node.call(&mut client, request));
    assert_eq!((second[0].from, second[0].next), (Offset(10), Offset(10)));
}

#[test]
fn at_least_one_batch_is_served_however_small_the_limit_is() {
    let (mut node, mut client) = with_topic(3);
    for partition in 0..6 {
        sent(node.call(
            &mut client,
            send(&[(partition, batch(&payloads("m", 50), 0, 0))]),
        ));
    }
    let request = PollMessages {
        max_bytes: 1,
        ..poll(&[0, 1, 2, 3, 4, 5], PollStrategy::First)
    };
    let sections = polled(node.call(&mut client, request));
    let served: Vec<usize> = sections
        .iter()
        .map(|section| texts(section).len())
        .collect();
    assert_eq!(served.iter().sum::<usize>(), 50, "{served:?}");
    assert!(sections.iter().all(|section| section.end == Offset(50)));
}

#[test]
fn messages_of_a_poll_are_counted_over_all_shards() {
    let (mut node, mut client) = with_topic(3);
    for partition in 0..6 {
        for round in ["a", "b", "c"] {
            let batch = batch(&payloads(round, 4), 0, 0);
            sent(node.call(&mut client, send(&[(partition, batch)])));
        }
    }
    let mut served = |max_messages| {
        let request = PollMessages {
            max_messages,
            ..poll(&[0, 1, 2, 3, 4, 5], PollStrategy::First)
        };
        let sections = polled(node.call(&mut client, request));
        sections
            .iter()
            .map(|section| {
                assert_eq!(section.next.0, texts(section).len() as u64);
                section.next.0
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(served(9), [12, 0, 0, 0, 0, 0]);
    assert_eq!(served(12), [12, 0, 0, 0, 0, 0]);
    assert_eq!(served(13), [12, 4, 0, 0, 0, 0]);
    assert_eq!(served(23), [12, 12, 0, 0, 0, 0]);
    assert_eq!(served(29), [12, 12, 8, 0, 0, 0]);
}

#[test]
fn old_messages_are_read_back_from_their_segments() {
    let (mut node, mut client) = with_topic(2);
    let text = "x".repeat(1_000);
    for round in 0..400 {
        let batch = batch(&[format!("{round} {text}")], 0, 0);
        sent(node.call(&mut client, send(&[(3, batch)])));
    }
    let mut next = Offset(0);
    let mut read = 0;
    while next < Offset(400) {
        let sections = polled(node.call(&mut client, poll(&[3], PollStrategy::Offset(next))));
        for text in texts(&sections[0]) {
            assert!(text.starts_with(&format!("{read} ")));
            read += 1;
        }
        assert!(sections[0].next > next);
        next = sections[0].next;
    }
    assert_eq!(read, 400);
}

#[test]
fn full_segments_are_read_back_and_damage_is_found_before_somebody_reads() {
    let (mut node, mut client) = with_topic(2);
    let text = "x".repeat(1_000);
    for partition in [3, 4] {
        for _ in 0..200 {
            let batch = batch(core::slice::from_ref(&text), 0, 0);
            sent(node.call(&mut client, send(&[(partition, batch)])));
        }
    }
    node.pass(5_000);
    let counter = |node: &mut Node, client: &mut Client, name: &str| {
        let Ok(Reply::Stats(stats)) = node.call(client, wire::Request::GetStats) else {
            panic!("no counters");
        };
        let mut counters = stats.counters.iter();
        counters.find(|it| it.name == name).unwrap().value
    };
    let is_damage = |note: &&Note| matches!(note, Note::Damaged { .. });
    assert_eq!(node.notes.iter().filter(is_damage).count(), 0);
    let full = |disk: &Disk| {
        let sizes = disk.segments.values().map(Vec::len);
        sizes.filter(|size| *size >= 64_000).sum::<usize>() as u64
    };
    let scrubbed = counter(&mut node, &mut client, "bytes_scrubbed");
    assert_eq!(scrubbed, full(&node.disk), "each full segment once");
    assert!(scrubbed >= 4 * 64_000);

    let damaged = *node.disk.segments.keys().next().unwrap();
    let bytes = node.disk.segments.get_mut(&damaged).unwrap();
    bytes[1_000] ^= 1;
    node.pass(8_000);
    let again = counter(&mut node, &mut client, "bytes_scrubbed");
    assert_eq!(again, scrubbed, "a round an hour");
    node.now.monotonic += 3_600_000_000_000;
    node.pass(5_000);
    let found: Vec<&Note> = node.notes.iter().filter(is_damage).collect();
    let [Note::Damaged { segment, .. }] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(*segment, damaged);
}

#[test]
fn an_unacknowledged_send_is_answered_at_once_and_happens() {
    let (mut node, mut client) = with_topic(2);
    node.disk_stalls = true;
    let request = SendMessages {
        acknowledgement: Acknowledgement::None,
        ..send(&[(0, batch(&payloads("a", 1), 0, 0))])
    };
    let sections = sent(node.call(&mut client, request));
    assert_eq!(
        (sections[0].status.clone(), sections[0].base_offset),
        (Ok(()), None)
    );
    node.disk_stalls = false;
    node.settle();
    let sections = polled(node.call(&mut client, poll(&[0], PollStrategy::First)));
    assert_eq!(texts(&sections[0]), ["a-0"]);
}

#[test]
fn what_is_appended_is_counted_once() {
    let (mut node, mut client) = with_topic(2);
    for _ in 0..2 {
        let batch = batch(&payloads("m", 3), 77, 1);
        let size = u64::from(batch.header.size);
        sent(node.call(&mut client, send(&[(0, batch)])));
        let Ok(Reply::Stats(stats)) = node.call(&mut client, wire::Request::GetStats) else {
            panic!("no counters");
        };
        let counter = |name: &str| {
            stats
                .counters
                .iter()
                .find(|it| it.name == name)
                .unwrap()
                .value
        };
        assert_eq!(counter("batches_appended"), 1);
        assert_eq!(counter("messages_appended"), 3);
        assert_eq!(counter("bytes_appended"), size);
    }
}
