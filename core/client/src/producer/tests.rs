//! Exact effects of a producer.

use alloc::{string::ToString, vec, vec::Vec};
use core::time::Duration;

use bytes::Bytes;
use wire::{
    Batch, Command, ConsensusGroup, ErrorCode, Failure, Identifier, Incarnation, Message, Offset,
    PartitionDetails, PartitionId, PartitionTarget, ProducerId, ReplicaId, Reply, Request,
    SendMessages, SendResult, Sent, StreamId, Time, Timestamp, TopicDetails, TopicId,
    partition_of_key,
};

use super::{
    BatchId, Call, Producer, ProducerConfig, ProducerEffect, ProducerInput, PushError, Pushed,
    Target,
};
use crate::ClientError;

const MS: u64 = 1_000_000;
const ID: ProducerId = ProducerId(99);

struct Driver {
    producer: Producer,
    now: u64,
    /// The node that answers name.
    primary: ReplicaId,
}

/// One section of a request: partition, producer, sequence, payloads.
type Section = (u32, ProducerId, u64, Vec<Vec<u8>>);

impl Driver {
    fn new(partitions: u32, change: impl FnOnce(&mut ProducerConfig)) -> Self {
        let id = Identifier::Number(1);
        let mut config = ProducerConfig::new(id.clone(), id, partitions, ID, 1);
        change(&mut config);
        Self {
            producer: Producer::new(Time::default(), config),
            now: 0,
            primary: ReplicaId(0),
        }
    }

    fn time(&self) -> Time {
        Time {
            monotonic: self.now,
            wall: Timestamp(0),
        }
    }

    fn push(&mut self, payload: &[u8]) -> Result<Pushed, PushError> {
        self.push_to(Target::Placed, b"", payload)
    }

    fn push_to(&mut self, target: Target, key: &[u8], payload: &[u8]) -> Result<Pushed, PushError> {
        let message = Message {
            key: Bytes::copy_from_slice(key),
            payload: Bytes::copy_from_slice(payload),
            ..Message::default()
        };
        self.producer.push(self.time(), target, &message)
    }

    fn input(&mut self, input: ProducerInput) {
        self.producer.handle(self.time(), input);
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms * MS;
        self.input(ProducerInput::Tick);
    }

    /// Lets time pass until the producer wants to be called.
    fn wait(&mut self) -> u64 {
        let before = self.now;
        self.now = self.producer.deadline().expect("something is due");
        assert!(self.now > before, "the deadline is over");
        self.input(ProducerInput::Tick);
        (self.now - before) / MS
    }

    fn effects(&mut self) -> Vec<ProducerEffect> {
        core::iter::from_fn(|| self.producer.next_effect()).collect()
    }

    fn submitted(&mut self) -> (Call, Request) {
        let mut effects = self.effects();
        assert_eq!(effects.len(), 1, "{effects:?}");
        let effect = effects.remove(0);
        let ProducerEffect::Submit { call, request, .. } = effect else {
            panic!("{effect:?}")
        };
        (call, request)
    }

    fn sent(&mut self) -> (Call, Vec<Section>) {
        let (call, request) = self.submitted();
        (call, sections(&request))
    }

    fn answer(&mut self, call: Call, results: &[(u32, Result<u64, ErrorCode>)]) {
        let sections = results.iter().map(|(partition, result)| SendResult {
            partition: PartitionId(*partition),
            status: result.map(|_| ()).map_err(|code| Failure::new(code, "no")),
            primary: self.primary,
            base_offset: result.ok().map(Offset),
        });
        let reply = Reply::Sent(Sent {
            sections: sections.collect(),
        });
        self.input(ProducerInput::Answered {
            call,
            result: Ok(reply),
        });
    }

    fn fail(&mut self, call: Call, error: ClientError) {
        self.input(ProducerInput::Answered {
            call,
            result: Err(error),
        });
    }
}

fn sections(request: &Request) -> Vec<Section> {
    let Request::SendMessages(SendMessages { sections, .. }) = request else {
        panic!("{request:?}")
    };
    let sections = sections.iter().map(|section| {
        let PartitionTarget::Explicit(partition) = section.target else {
            panic!("{section:?}")
        };
        // Reading checks the batch's checksum.
        let batch = Batch::read(&section.batch.to_bytes()).unwrap();
        let payloads = batch
            .messages()
            .map(|message| message.unwrap().payload.to_vec());
        (
            partition.0,
            batch.header.producer(),
            batch.header.sequence,
            payloads.collect(),
        )
    });
    sections.collect()
}

fn delivered(batch: u64, partition: u32, base_offset: u64, count: u32) -> ProducerEffect {
    ProducerEffect::Delivered {
        batch: BatchId(batch),
        partition: PartitionId(partition),
        base_offset: Offset(base_offset),
        count,
    }
}

fn lost() -> ClientError {
    ClientError::ConnectionLost {
        command: Command::SendMessages,
        reason: "cut".to_string(),
    }
}

fn payloads(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn a_message_goes_at_once_and_others_gather_while_the_window_is_full() {
    let mut driver = Driver::new(1, |config| config.in_flight_per_partition_max = 1);
    let first = driver.push(b"a").unwrap();
    assert_eq!(
        first,
        Pushed {
            batch: BatchId(1),
            index: 0,
            partition: PartitionId(0)
        }
    );
    let (call, sent) = driver.sent();
    assert_eq!(sent, [(0, ID, 1, payloads(&["a"]))]);

    driver.push(b"b").unwrap();
    let third = driver.push(b"c").unwrap();
    assert_eq!((third.batch, third.index), (BatchId(2), 1));
    assert_eq!(driver.effects(), []);
    driver.answer(call, &[(0, Ok(40))]);
    assert_eq!(driver.producer.next_effect(), Some(delivered(1, 0, 40, 1)));
    let (call, sent) = driver.sent();
    assert_eq!(sent, [(0, ID, 2, payloads(&["b", "c"]))]);
    driver.answer(call, &[(0, Ok(41))]);
    assert_eq!(driver.effects(), [delivered(2, 0, 41, 2)]);
    assert!(driver.producer.is_idle());
    assert_eq!(driver.producer.held(), 0);
}

#[test]
fn linger_holds_a_batch_until_its_time_its_size_or_a_flush() {
    let linger = |config: &mut ProducerConfig| {
        config.linger = Duration::from_millis(10);
        config.batch_messages_max = 3;
    };
    let mut driver = Driver::new(1, linger);
    driver.push(b"a").unwrap();
    driver.advance(9);
    assert_eq!(driver.effects(), []);
    assert_eq!(driver.wait(), 1);
    driver.sent();

    for payload in [b"b", b"c", b"d"] {
        driver.push(payload).unwrap();
    }
    let (_, sent) = driver.sent();
    assert_eq!(sent[0].3, payloads(&["b", "c", "d"]));

    let mut driver = Driver::new(1, linger);
    driver.push(b"e").unwrap();
    driver.input(ProducerInput::Flush);
    driver.sent();
}

#[test]
fn a_batch_is_closed_before_it_grows_too_large_and_a_large_message_stands_alone() {
    let mut driver = Driver::new(1, |config| {
        config.batch_size_max = 300;
        config.linger = Duration::from_secs(1);
        config.in_flight_per_partition_max = 5;
    });
    for _ in 0..3 {
        driver.push(&[b'x'; 70]).unwrap();
    }
    let (_, sent) = driver.sent();
    assert_eq!(sent[0].3.len(), 2);
    driver.push(&[b'y'; 5_000]).unwrap();
    let counts = driver.effects().into_iter().map(|effect| match effect {
        ProducerEffect::Submit { request, .. } => sections(&request)[0].3.len(),
        ProducerEffect::Delivered { .. } | ProducerEffect::Failed { .. } => panic!("{effect:?}"),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn memory_is_bounded_and_freed_by_answers() {
    let mut driver = Driver::new(1, |config| config.memory_max = 1_000);
    let mut taken = 0;
    let error = loop {
        match driver.push(&[0; 200]) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PushError::Full { held, limit: 1_000 } if held > 600 && held <= 1_000));
    assert!(taken >= 2);
    let ProducerEffect::Submit { call, .. } = driver.effects().remove(0) else {
        panic!()
    };
    driver.answer(call, &[(0, Ok(0))]);
    driver.push(&[0; 200]).unwrap();
}

#[test]
fn messages_that_cannot_be_sent_are_refused_by_name_and_limit() {
    let mut driver = Driver::new(2, |_| {});
    let huge = vec![0; 9 * 1024 * 1024];
    let error = driver.push(&huge).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a message of 9437216 bytes exceeds the limit of 7339936 bytes"
    );
    let error = driver
        .push_to(Target::Placed, &huge[..70_000], b"")
        .unwrap_err();
    assert_eq!(error, PushError::KeyTooLarge { size: 70_000 });
    let partition = PartitionId(2);
    let error = driver
        .push_to(Target::Partition(partition), b"", b"")
        .unwrap_err();
    assert_eq!(
        error,
        PushError::NoPartition {
            partition,
            partitions: 2
        }
    );
    assert_eq!(driver.effects(), []);
    assert_eq!(driver.producer.held(), 0);
}

#[test]
fn keys_decide_the_partition_and_other_messages_move_on_with_each_batch() {
    let mut driver = Driver::new(4, |config| config.linger = Duration::from_millis(1));
    for key in ["a", "b", "c", "d", "e"] {
        let pushed = driver.push_to(Target::Placed, key.as_bytes(), b"").unwrap();
        assert_eq!(pushed.partition, partition_of_key(key.as_bytes(), 4));
    }
    let mut driver = Driver::new(3, |config| {
        config.linger = Duration::from_millis(1);
        config.batch_messages_max = 2;
    });
    let turns = (0..8)
        .map(|_| driver.push(b"").unwrap().partition.0)
        .collect::<Vec<_>>();
    assert_eq!(turns, [0, 0, 1, 1, 2, 2, 0, 0]);
}

#[test]
fn a_request_takes_one_batch_of_each_partition_and_the_turn_goes_round() {
    let mut driver = Driver::new(3, |config| {
        config.request_size_max = 300;
        config.in_flight_max = 1;
        config.linger = Duration::from_millis(1);
    });
    for partition in [0, 1, 2] {
        driver
            .push_to(Target::Partition(PartitionId(partition)), b"", b"x")
            .unwrap();
    }
    driver.advance(1);
    let (call, sent) = driver.sent();
    assert_eq!(
        sent.iter().map(|section| section.0).collect::<Vec<_>>(),
        [0, 1]
    );
    driver
        .push_to(Target::Partition(PartitionId(0)), b"", b"y")
        .unwrap();
    driver.advance(1);
    driver.answer(call, &[(0, Ok(0)), (1, Ok(0))]);
    let effects = driver.effects();
    let Some(ProducerEffect::Submit { request, .. }) = effects.last() else {
        panic!("{effects:?}")
    };
    let turn = sections(request)
        .iter()
        .map(|section| section.0)
        .collect::<Vec<_>>();
    assert_eq!(turn, [2, 0]);
}

#[test]
fn what_failed_goes_again_under_its_number_and_nothing_passes_it() {
    let mut driver = Driver::new(1, |config| config.in_flight_per_partition_max = 2);
    driver.push(b"a").unwrap();
    let (first, _) = driver.sent();
    driver.push(b"b").unwrap();
    let (second, _) = driver.sent();
    driver.push(b"c").unwrap();
    driver.answer(first, &[(0, Err(ErrorCode::Busy))]);
    assert_eq!(driver.effects(), []);
    // The second batch skips the first one, so the partition refuses it.
    driver.answer(second, &[(0, Err(ErrorCode::ProducerUnknown))]);
    assert_eq!(driver.effects(), []);
    let waited = driver.wait();
    assert!((25..=50).contains(&waited), "{waited} ms");
    let (again, sent) = driver.sent();
    assert_eq!(sent, [(0, ID, 1, payloads(&["a"]))]);
    driver.answer(again, &[(0, Ok(0))]);
    let effects = driver.effects();
    let numbers = effects.iter().filter_map(|effect| match effect {
        ProducerEffect::Submit { request, .. } => Some(sections(request)[0].2),
        ProducerEffect::Delivered { .. } | ProducerEffect::Failed { .. } => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_lost_connection_costs_no_pause_and_a_repetition_no_second_message() {
    let mut driver = Driver::new(1, |_| {});
    driver.push(b"a").unwrap();
    let (call, before) = driver.sent();
    driver.fail(call, lost());
    let (call, after) = driver.sent();
    assert_eq!(before, after);
    driver.answer(call, &[(0, Ok(7))]);
    assert_eq!(driver.effects(), [delivered(1, 0, 7, 1)]);
}

#[test]
fn no_batch_runs_so_far_ahead_that_the_oldest_is_forgotten() {
    let mut driver = Driver::new(1, |config| config.in_flight_per_partition_max = 2);
    driver.push(b"first").unwrap();
    let (call, _) = driver.sent();
    driver.answer(call, &[(0, Ok(0))]);
    driver.effects();
    driver.push(b"slow").unwrap();
    driver.sent();
    for base in 2..6 {
        driver.push(b"fast").unwrap();
        let (call, _) = driver.sent();
        driver.answer(call, &[(0, Ok(base))]);
        driver.effects();
    }
    // The partition keeps the offsets of five batches, and one of them is the first.
    driver.push(b"waits").unwrap();
    assert_eq!(driver.effects(), []);
}

#[test]
fn a_batch_that_is_refused_for_good_ends_alone_and_the_next_ones_are_numbered_anew() {
    let mut driver = Driver::new(1, |config| config.in_flight_per_partition_max = 2);
    driver.push(b"bad").unwrap();
    let (first, _) = driver.sent();
    driver.push(b"good").unwrap();
    let (second, _) = driver.sent();
    driver.answer(first, &[(0, Err(ErrorCode::BatchTooLarge))]);
    let effects = driver.effects();
    let [
        ProducerEffect::Failed {
            batch,
            may_be_stored,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*batch, *may_be_stored), (BatchId(1), false));
    driver.push(b"later").unwrap();
    // Under another number it must not pass the one that is unanswered.
    assert_eq!(driver.effects(), []);
    driver.answer(second, &[(0, Err(ErrorCode::ProducerUnknown))]);
    let (call, sent) = driver.sent();
    let (_, id, sequence, messages) = &sent[0];
    assert_ne!(*id, ID);
    assert_eq!((*sequence, messages), (1, &payloads(&["good"])));
    let id = *id;
    driver.answer(call, &[(0, Ok(0))]);
    driver.producer.next_effect();
    let (_, sent) = driver.sent();
    assert_eq!(sent, [(0, id, 2, payloads(&["later"]))]);
}

#[test]
fn time_runs_out_with_the_latest_reason() {
    let mut driver = Driver::new(1, |config| {
        config.delivery_timeout = Duration::from_millis(100)
    });
    driver.push(b"a").unwrap();
    let (call, _) = driver.sent();
    driver.answer(call, &[(0, Err(ErrorCode::StorageFull))]);
    while driver.now < 100 * MS {
        driver.wait();
        for effect in driver.effects() {
            if let ProducerEffect::Submit { call, timeout, .. } = effect {
                assert!(timeout <= Duration::from_millis(100 - driver.now / MS));
                driver.answer(call, &[(0, Err(ErrorCode::StorageFull))]);
            } else {
                let ProducerEffect::Failed {
                    error,
                    may_be_stored,
                    ..
                } = effect
                else {
                    panic!()
                };
                assert_eq!(error.refusal(), Some(ErrorCode::StorageFull));
                assert!(!may_be_stored);
                assert!(driver.producer.is_idle());
                return;
            }
        }
    }
    panic!("the batch is not given up");
}

#[test]
fn a_batch_in_doubt_is_told_when_its_producer_is_forgotten() {
    let mut driver = Driver::new(1, |_| {});
    driver.push(b"a").unwrap();
    let (call, _) = driver.sent();
    driver.answer(call, &[(0, Ok(0))]);
    driver.push(b"b").unwrap();
    driver.producer.next_effect();
    let (call, _) = driver.sent();
    driver.fail(call, lost());
    let (call, _) = driver.sent();
    driver.answer(call, &[(0, Err(ErrorCode::ProducerUnknown))]);
    let effects = driver.effects();
    assert!(
        matches!(
            effects[..],
            [ProducerEffect::Failed {
                may_be_stored: true,
                ..
            }]
        ),
        "{effects:?}"
    );
}

#[test]
fn the_number_of_partitions_is_followed() {
    let mut driver = Driver::new(1, |config| config.refresh_interval = Duration::from_secs(1));
    assert_eq!(driver.wait(), 1_000);
    let (call, request) = driver.submitted();
    assert_eq!(request.command(), Command::GetTopic);
    let partition = |id| PartitionDetails {
        id: PartitionId(id),
        incarnation: Incarnation(1),
        group: ConsensusGroup(1),
        start: None,
        end: None,
    };
    let reply = Reply::Topic(TopicDetails {
        stream: StreamId(1),
        id: TopicId(1),
        name: "t".to_string(),
        created: Timestamp(0),
        partitions: (0..3).map(partition).collect(),
    });
    driver.input(ProducerInput::Answered {
        call,
        result: Ok(reply),
    });
    assert_eq!(driver.producer.partitions(), 3);
    driver
        .push_to(Target::Partition(PartitionId(2)), b"", b"")
        .unwrap();
    driver.sent();
    assert_eq!(driver.wait(), 1_000);
}

#[test]
fn an_answer_that_does_not_fit_ends_the_batch_in_doubt() {
    let mut driver = Driver::new(1, |_| {});
    driver.push(b"a").unwrap();
    let (call, _) = driver.sent();
    driver.answer(call, &[]);
    let effects = driver.effects();
    assert!(
        matches!(
            effects[..],
            [ProducerEffect::Failed {
                may_be_stored: true,
                ..
            }]
        ),
        "{effects:?}"
    );
}

/// The requests that were sent: to which node, with which partitions.
fn courses(driver: &mut Driver) -> Vec<(Call, Option<u8>, Vec<u32>)> {
    let mut courses = Vec::new();
    for effect in driver.effects() {
        if let ProducerEffect::Submit {
            call,
            request,
            node,
            ..
        } = effect
        {
            let partitions = sections(&request).iter().map(|section| section.0).collect();
            courses.push((call, node.map(|node| node.0), partitions));
        }
    }
    courses
}

fn push_to_all(driver: &mut Driver, partitions: u32) {
    for partition in 0..partitions {
        let target = Target::Partition(PartitionId(partition));
        driver.push_to(target, b"", b"x").unwrap();
    }
    driver.advance(1);
}

#[test]
fn batches_go_to_the_nodes_that_lead_their_partitions() {
    let mut driver = Driver::new(3, |config| config.linger = Duration::from_millis(1));
    push_to_all(&mut driver, 3);
    let sent = courses(&mut driver);
    let [(call, None, partitions)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(partitions, &[0, 1, 2]);
    let sections = [(0, 1), (1, 2), (2, 1)].map(|(partition, primary)| SendResult {
        partition: PartitionId(partition),
        status: Ok(()),
        primary: ReplicaId(primary),
        base_offset: Some(Offset(0)),
    });
    let sections = sections.to_vec();
    let result = Ok(Reply::Sent(Sent { sections }));
    driver.input(ProducerInput::Answered {
        call: *call,
        result,
    });
    driver.effects();
    push_to_all(&mut driver, 3);
    let sent = courses(&mut driver);
    let sent: Vec<_> = sent
        .iter()
        .map(|(_, node, own)| (*node, &own[..]))
        .collect();
    assert_eq!(sent, [(Some(1), &[0, 2][..]), (Some(2), &[1])]);
}

#[test]
fn a_partition_that_moves_waits_for_what_is_unanswered_elsewhere() {
    let mut driver = Driver::new(1, |config| config.in_flight_per_partition_max = 3);
    driver.push(b"a").unwrap();
    driver.push(b"b").unwrap();
    let sent = courses(&mut driver);
    assert_eq!(sent.len(), 2);
    driver.primary = ReplicaId(2);
    driver.answer(sent[0].0, &[(0, Ok(0))]);
    driver.effects();
    driver.push(b"c").unwrap();
    assert_eq!(courses(&mut driver), []);
    driver.answer(sent[1].0, &[(0, Ok(1))]);
    let sent = courses(&mut driver);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1, Some(2));
}

#[test]
fn a_node_that_leads_no_more_names_the_one_that_does() {
    let mut driver = Driver::new(1, |_| {});
    driver.push(b"a").unwrap();
    let (call, _) = driver.sent();
    driver.primary = ReplicaId(2);
    driver.answer(call, &[(0, Err(ErrorCode::NotPrimary))]);
    driver.wait();
    assert_eq!(courses(&mut driver)[0].1, Some(2));
}

#[test]
fn another_primary_ends_the_pause_of_what_waits_for_one() {
    for (code, wakes) in [(ErrorCode::NotReady, true), (ErrorCode::Busy, false)] {
        let mut driver = Driver::new(1, |_| {});
        driver.push(b"a").unwrap();
        let (mut call, _) = driver.sent();
        for attempt in 0..5 {
            driver.answer(call, &[(0, Err(code))]);
            assert_eq!(driver.effects(), []);
            let waited = driver.wait();
            let longest = if wakes { 4 } else { 50 } << attempt;
            assert!(waited <= longest, "{waited} ms");
            call = driver.sent().0;
        }
        driver.answer(call, &[(0, Err(code))]);
        driver.input(ProducerInput::PrimaryChanged);
        assert_eq!(driver.effects().len(), usize::from(wakes));
    }
}
