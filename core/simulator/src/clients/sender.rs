//! Somebody who sends by hand: repeats, gaps, reused numbers, keys, batches without number.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use client::{Retry, Ticket};
use wire::{
    Acknowledgement, Batch, BatchBuilder, ErrorCode, Identifier, Message, PartitionId,
    PartitionTarget, ProducerId, Reply, SendMessages, SendSection, StreamId, TopicId,
};

use super::{Answer, Desk, producer::payload};
use crate::run::MILLISECOND;

/// Batches of a partition that are sent again now and then.
const KEPT: usize = 7;

/// A sender.
#[derive(Debug, Default)]
pub(super) struct Sender {
    lanes: BTreeMap<(StreamId, TopicId, PartitionId), Numbered>,
    asked: BTreeMap<Ticket, (StreamId, TopicId)>,
    next_at: u64,
}

/// What was sent to one partition under numbers.
#[derive(Debug)]
struct Numbered {
    producer: ProducerId,
    sequence: u64,
    /// The last batches, the newest last.
    batches: Vec<Batch>,
}

impl Sender {
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) const fn deadline(&self) -> u64 {
        self.next_at
    }

    pub(super) fn on_answer(&mut self, ticket: Ticket, answer: &Answer) {
        let Some((stream, topic)) = self.asked.remove(&ticket) else {
            return;
        };
        let Ok(Reply::Sent(sent)) = answer else {
            return;
        };
        for section in &sent.sections {
            let code = section.status.as_ref().err().map(|failure| failure.code);
            if matches!(
                code,
                Some(ErrorCode::ProducerUnknown | ErrorCode::SequenceOutOfOrder)
            ) {
                // Begins anew, under another id.
                self.lanes.remove(&(stream, topic, section.partition));
            }
        }
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        if desk.now.monotonic < self.next_at {
            return;
        }
        let pause = desk.random.around(8 * MILLISECOND);
        self.next_at = desk.after(pause);
        if !desk.may_begin() || self.asked.len() >= 3 {
            return;
        }
        let Some((stream, topic, partitions)) = desk.pick_topic() else {
            return;
        };
        let mut sections = Vec::new();
        let mut taken = BTreeSet::new();
        for _ in 0..desk.random.between(1, 3) {
            let partition = desk.random.below(u64::from(partitions));
            let partition = PartitionId(u32::try_from(partition).unwrap_or(0));
            sections.push(match desk.random.below(4) {
                0 => unnumbered(desk),
                // One numbered batch of a partition in a request; the order of several is theirs.
                _ if taken.insert(partition) => self.numbered(desk, (stream, topic, partition)),
                _ => unnumbered(desk),
            });
        }
        let acknowledgement = match desk.random.chance(900) {
            true => Acknowledgement::Quorum,
            false => Acknowledgement::None,
        };
        let request = SendMessages {
            stream: Identifier::Number(stream.0),
            topic: Identifier::Number(topic.0),
            acknowledgement,
            sections,
        };
        let timeout = Duration::from_millis(desk.random.between(100, 1_500));
        let retry = match desk.random.chance(500) {
            true => Retry::Session,
            false => Retry::Caller,
        };
        let ticket = desk.submit(request.into(), timeout, retry);
        self.asked.insert(ticket, (stream, topic));
    }

    fn numbered(
        &mut self,
        desk: &mut Desk<'_>,
        place: (StreamId, TopicId, PartitionId),
    ) -> SendSection {
        let lane = self.lanes.entry(place).or_insert_with(|| Numbered {
            producer: ProducerId(desk.random.wide().max(1)),
            sequence: 0,
            batches: Vec::new(),
        });
        let batch = match desk.random.below(10) {
            // The same again.
            0..4 if !lane.batches.is_empty() => desk.random.pick(&lane.batches).clone(),
            // Another batch under a number that was used.
            4 if lane.sequence > 0 => builder(desk).build(lane.producer, lane.sequence),
            // A gap.
            5 => builder(desk).build(lane.producer, lane.sequence + 2),
            _ => {
                lane.sequence += 1;
                let batch = builder(desk).build(lane.producer, lane.sequence);
                lane.batches.push(batch.clone());
                if lane.batches.len() > KEPT {
                    lane.batches.remove(0);
                }
                batch
            }
        };
        SendSection {
            target: PartitionTarget::Explicit(place.2),
            batch,
        }
    }
}

fn unnumbered(desk: &mut Desk<'_>) -> SendSection {
    let target = match desk.random.chance(500) {
        true => PartitionTarget::Balanced,
        false => PartitionTarget::Key(Bytes::from(format!("key-{}", desk.random.below(30)))),
    };
    SendSection {
        target,
        batch: builder(desk).build(ProducerId(0), 0),
    }
}

fn builder(desk: &mut Desk<'_>) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for _ in 0..desk.random.between(1, 6) {
        desk.shared.messages += 1;
        builder.push(&Message {
            // The upper half is 0: no producer of the client crate sends such.
            id: u128::from(desk.shared.messages),
            payload: payload(desk),
            ..Message::default()
        });
    }
    builder
}
