//! Somebody who sends by the client crate's producer.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use client::{
    BatchId, Call, Producer, ProducerConfig, ProducerEffect, ProducerInput, PushError, Retry,
    Route, Target, Ticket,
};
use wire::{
    Batch, Identifier, Message, PartitionId, PartitionKey, ProducerId, StreamId, Time, Timestamp,
    TopicId,
};

use super::{Answer, Desk, backoff};
use crate::{checks::partition::PartitionModel, run::MILLISECOND};

/// Messages of these producers have ids with the producer's number in the upper half; see
/// [`order_of`].
const NUMBER_SHIFT: u32 = 64;

/// Somebody who sends messages, through one producer after the other.
#[derive(Debug, Default)]
pub(super) struct Sending {
    current: Option<Current>,
    next_at: u64,
}

#[derive(Debug)]
struct Current {
    producer: Producer,
    number: u64,
    stream: StreamId,
    topic: TopicId,
    /// The messages of each batch that has not ended.
    batches: BTreeMap<BatchId, Vec<u128>>,
    calls: BTreeMap<Ticket, Call>,
    pushed: u64,
    left: u64,
    /// About how long it waits between two handfuls.
    pace: u64,
}

impl Sending {
    /// A consensus group has another primary.
    pub(super) fn on_primary_changed(&mut self, now: Time) {
        if let Some(current) = &mut self.current {
            current.producer.handle(now, ProducerInput::PrimaryChanged);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let producer = self.current.as_ref().map(|current| &current.producer);
        let deadline = producer.and_then(Producer::deadline);
        Some(deadline.map_or(self.next_at, |deadline| deadline.min(self.next_at)))
    }

    pub(super) fn on_answer(&mut self, desk: &mut Desk<'_>, ticket: Ticket, result: Answer) {
        if let Some(current) = &mut self.current
            && let Some(call) = current.calls.remove(&ticket)
        {
            let input = ProducerInput::Answered { call, result };
            current.producer.handle(desk.now, input);
            current.pump(desk);
        }
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        if self.current.is_none() && desk.may_begin() && desk.now.monotonic >= self.next_at {
            self.current = Current::begin(desk);
        }
        let Some(current) = &mut self.current else {
            self.next_at = self.next_at.max(desk.after(20 * MILLISECOND));
            return;
        };
        current.producer.handle(desk.now, ProducerInput::Tick);
        if desk.now.monotonic >= self.next_at {
            current.push_some(desk);
            let pause = desk.random.around(current.pace);
            self.next_at = desk.after(pause);
        }
        current.pump(desk);
        if current.is_done() {
            self.current = None;
        }
    }
}

impl Current {
    fn begin(desk: &mut Desk<'_>) -> Option<Self> {
        let (stream, topic, partitions) = desk.pick_topic()?;
        desk.shared.producers += 1;
        let config = config(desk, (stream, topic, partitions));
        Some(Self {
            producer: Producer::new(desk.now, config),
            number: desk.shared.producers,
            stream,
            topic,
            batches: BTreeMap::new(),
            calls: BTreeMap::new(),
            pushed: 0,
            left: desk.random.between(20, 300),
            pace: desk.random.between(1, 15) * MILLISECOND,
        })
    }

    /// Everything is pushed and has an answer, and no request is on its way.
    fn is_done(&self) -> bool {
        self.left == 0 && self.producer.is_idle()
    }

    fn push_some(&mut self, desk: &mut Desk<'_>) {
        if !desk.may_begin() {
            self.left = 0;
        }
        for _ in 0..desk.random.between(1, 12).min(self.left) {
            if !self.push(desk) {
                break;
            }
        }
        if self.left == 0 {
            self.producer.handle(desk.now, ProducerInput::Flush);
        }
    }

    fn push(&mut self, desk: &mut Desk<'_>) -> bool {
        let id = u128::from(self.number) << NUMBER_SHIFT | u128::from(self.pushed + 1);
        let message = Message {
            id,
            timestamp: Timestamp(desk.random.below(1_000_000)),
            key: key(desk),
            payload: payload(desk),
            ..Message::default()
        };
        let target = match desk.random.below(3) {
            0 => {
                let partitions = u64::from(self.producer.partitions());
                let partition = desk.random.below(partitions);
                Target::Partition(PartitionId(u32::try_from(partition).unwrap_or(0)))
            }
            _ => Target::Placed,
        };
        match self.producer.push(desk.now, target, &message) {
            Ok(pushed) => {
                self.pushed += 1;
                self.left -= 1;
                let batch = self.batches.entry(pushed.batch).or_default();
                if batch.len() != pushed.index as usize {
                    let place = batch.len();
                    desk.run.fail(format!(
                        "message {place} of a batch is told as {}",
                        pushed.index
                    ));
                }
                batch.push(id);
                true
            }
            Err(PushError::Full { .. }) => false,
            Err(error) => {
                desk.run.fail(format!("a message was not taken: {error}"));
                false
            }
        }
    }

    fn pump(&mut self, desk: &mut Desk<'_>) {
        while let Some(effect) = self.producer.next_effect() {
            match effect {
                ProducerEffect::Submit {
                    call,
                    request,
                    timeout,
                    node,
                } => {
                    let route = Route {
                        lane: 0,
                        node,
                        ordered: true,
                    };
                    let ticket = desk.submit_on(route, request, timeout, Retry::Caller);
                    self.calls.insert(ticket, call);
                }
                ProducerEffect::Delivered {
                    batch,
                    partition,
                    base_offset,
                    ..
                } => self.on_delivered(desk, batch, partition, base_offset.0),
                ProducerEffect::Failed {
                    batch,
                    partition,
                    may_be_stored,
                    error,
                    ..
                } => {
                    let messages = self.batches.remove(&batch).unwrap_or_default();
                    desk.run.note(&[30, batch.0], || {
                        format!(
                            "producer {}: batch {} failed: {error}",
                            self.number, batch.0
                        )
                    });
                    if may_be_stored {
                        // It may still be on its way, and come behind what was sent after it was given up.
                        let orders = messages.iter().filter_map(|id| order_of(*id));
                        desk.shared.given_up.extend(orders);
                    } else {
                        self.check_absent(desk, partition, &messages);
                    }
                }
            }
        }
    }

    fn on_delivered(
        &mut self,
        desk: &mut Desk<'_>,
        batch: BatchId,
        partition: PartitionId,
        base: u64,
    ) {
        let messages = self.batches.remove(&batch).unwrap_or_default();
        let key = self.key(partition);
        let holds = |(at, model): (PartitionKey, &PartitionModel)| {
            at == key
                && model
                    .batch_at(base)
                    .is_some_and(|stored| ids(&stored.bytes) == messages)
        };
        if !desk.ledger.all_partitions().any(holds) {
            desk.run.fail(format!(
                "producer {}: batch {} is delivered to {key} at {base}, and is not there",
                self.number, batch.0
            ));
        }
    }

    /// A batch that is told as not stored must not be there.
    fn check_absent(&self, desk: &mut Desk<'_>, partition: PartitionId, messages: &[u128]) {
        let key = self.key(partition);
        for (at, model) in desk.ledger.all_partitions() {
            if at != key {
                continue;
            }
            for stored in model.batches() {
                if ids(&stored.bytes).iter().any(|id| messages.contains(id)) {
                    return desk.run.fail(format!(
                        "producer {}: a batch is told as not stored and is at {} of {key}",
                        self.number, stored.base
                    ));
                }
            }
        }
    }

    const fn key(&self, partition: PartitionId) -> PartitionKey {
        PartitionKey {
            stream: self.stream,
            topic: self.topic,
            partition,
        }
    }
}

fn config(
    desk: &mut Desk<'_>,
    (stream, topic, partitions): (StreamId, TopicId, u32),
) -> ProducerConfig {
    let producer = ProducerId(desk.random.wide().max(1));
    let random = &mut *desk.random;
    ProducerConfig {
        batch_size_max: random.index(4_000) + 300,
        batch_messages_max: u32::try_from(random.between(1, 40)).unwrap_or(1),
        linger: Duration::from_micros(random.below(4_000)),
        request_size_max: random.index(6_000) + 500,
        in_flight_max: random.index(4) + 1,
        in_flight_per_partition_max: random.index(5) + 1,
        memory_max: random.index(32 * 1024) + 8 * 1024,
        delivery_timeout: Duration::from_millis(random.between(1_000, 8_000)),
        request_timeout: Duration::from_millis(random.between(200, 1_500)),
        backoff: backoff(random),
        refresh_interval: Duration::from_millis(random.between(200, 2_000)),
        frame_size_max: desk.scenario.limits.frame_size,
        ..ProducerConfig::new(
            Identifier::Number(stream.0),
            Identifier::Number(topic.0),
            partitions,
            producer,
            random.number(),
        )
    }
}

fn key(desk: &mut Desk<'_>) -> Bytes {
    match desk.random.chance(400) {
        true => Bytes::from(format!("key-{}", desk.random.below(30))),
        false => Bytes::new(),
    }
}

/// Mostly small, seldom large.
pub(super) fn payload(desk: &mut Desk<'_>) -> Bytes {
    let size = match desk.random.below(100) {
        0..60 => desk.random.index(100),
        60..97 => desk.random.index(400),
        _ => desk.random.index(5_000),
    };
    Bytes::from(desk.random.bytes(size))
}

/// The ids of the messages of a stored batch.
fn ids(bytes: &Bytes) -> Vec<u128> {
    let batch = Batch::read_admitted(bytes).expect("the ledger keeps whole batches");
    let messages = batch
        .messages()
        .map(|message| message.map(|message| message.id));
    messages
        .collect::<Result<_, _>>()
        .expect("the ledger keeps whole batches")
}

/// Producer and place of a message among those that the producer pushed; `None` for messages that others
/// have sent.
pub(crate) fn order_of(id: u128) -> Option<(u64, u64)> {
    let producer = u64::try_from(id >> NUMBER_SHIFT).expect("it is the upper half");
    let place = u64::try_from(id & u128::from(u64::MAX)).expect("it is the lower half");
    (producer != 0 && place != 0).then_some((producer, place))
}
