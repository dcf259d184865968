//! The naive model: lists in memory.

use super::super::*;
use crate::{Absent, GroupRecord, Refusal, verify::to_index};

/// Sequence, checksum and offset of a batch.
pub(super) type Sent = (u64, u64, u64);

/// What a partition must be.
#[derive(Clone, Debug)]
pub(super) struct ModelPartition {
    pub(super) incarnation: Incarnation,
    pub(super) start: u64,
    /// Time and payload by offset, removed ones too.
    pub(super) messages: Vec<(u64, Bytes)>,
    /// The producers, and every batch of theirs. Who sent last is the last.
    pub(super) producers: Vec<(u128, Vec<Sent>)>,
    pub(super) consumers: BTreeMap<String, u64>,
    pub(super) groups: BTreeMap<ConsumerGroupId, GroupRecord>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) dropped: u64,
    pub(super) partitions: BTreeMap<u32, ModelPartition>,
}

impl ModelPartition {
    /// Where a read begins and what it skips; `None` beyond the end.
    pub(super) fn position(&self, query: &ReadQuery<'_>) -> Option<(u64, u64)> {
        let end = self.messages.len() as u64;
        let from = match query.strategy {
            PollStrategy::First => self.start,
            PollStrategy::Last => end
                .saturating_sub(u64::from(query.max_messages.max(1)))
                .max(self.start),
            PollStrategy::Next => self
                .consumers
                .get(query.consumer)
                .map_or(self.start, |stored| stored + 1),
            PollStrategy::Timestamp(time) => {
                let late = |(_, (sent, _)): &(u64, &(u64, Bytes))| *sent >= time.0;
                let served = (0..)
                    .zip(&self.messages)
                    .filter(|(offset, _)| *offset >= self.start);
                served
                    .into_iter()
                    .find(late)
                    .map_or(end, |(offset, _)| offset)
            }
            PollStrategy::Offset(offset) => offset.0,
        };
        let skipped = self.start.saturating_sub(from);
        (from <= end).then_some((from.max(self.start), skipped))
    }

    pub(super) fn check_messages(&self, answer: &Batches, query: &ReadQuery<'_>) {
        let found = messages(answer);
        let batches = stored_batches(answer);
        if answer.from == answer.end {
            assert!(batches.is_empty());
            return;
        }
        assert!(!found.is_empty());
        for (expected, message) in (answer.from.0..).zip(&found) {
            assert_eq!(message.offset, Offset(expected));
            assert_eq!(message.payload, self.messages[to_index(message.offset.0)].1);
        }
        for batch in &batches {
            let (time, _) = self.messages[to_index(batch.header.base_offset)];
            assert_eq!(batch.header.timestamp, time);
        }
        assert_eq!(answer.next, Offset(answer.from.0 + found.len() as u64));
        // Without its last batch the answer is within both limits.
        let last = batches.last().expect("there are messages");
        if batches.len() > 1 {
            assert!(answer.size <= u64::from(query.max_bytes));
            let before = last.header.base_offset - answer.from.0;
            assert!(before < u64::from(query.max_messages.max(1)));
        }
    }
}

impl Model {
    pub(super) fn apply(&mut self, time: u64, request: &DataRequest) -> DataResult {
        let of_group = self.try_group(time, request);
        of_group
            .unwrap_or_else(|| self.try_apply(time, request))
            .unwrap_or_else(DataResult::Failed)
    }

    pub(super) fn named(&mut self, request: &DataRequest) -> Result<&mut ModelPartition, Refusal> {
        let partition = request.key().partition.0;
        let model = self.partitions.get_mut(&partition).ok_or(Absent::NotHere)?;
        let (here, named) = (model.incarnation, request.incarnation());
        if here == named {
            Ok(model)
        } else {
            Err(Absent::OtherIncarnation { here, named }.into())
        }
    }

    fn try_apply(&mut self, time: u64, request: &DataRequest) -> Result<DataResult, Refusal> {
        let partition = request.key().partition.0;
        match request {
            DataRequest::CreatePartition {
                incarnation,
                admitted,
                ..
            } => {
                let purged = self.partitions.get(&partition);
                match purged.map(|model| model.incarnation) {
                    None if admitted.0 < self.dropped => return Err(Absent::NotHere.into()),
                    Some(here) if here > *incarnation => {
                        let named = *incarnation;
                        return Err(Absent::OtherIncarnation { here, named }.into());
                    }
                    Some(here) if here == *incarnation => {}
                    None | Some(_) => {
                        let messages = purged.map_or(Vec::new(), |it| it.messages.clone());
                        let model = ModelPartition {
                            incarnation: *incarnation,
                            start: messages.len() as u64,
                            messages,
                            producers: Vec::new(),
                            consumers: BTreeMap::new(),
                            groups: BTreeMap::new(),
                        };
                        self.partitions.insert(partition, model);
                    }
                }
                Ok(DataResult::Created)
            }
            DataRequest::DropPartition {
                incarnation,
                dropped,
                ..
            } => {
                self.dropped = self.dropped.max(dropped.0);
                if self
                    .partitions
                    .get(&partition)
                    .is_some_and(|model| model.incarnation <= *incarnation)
                {
                    self.partitions.remove(&partition);
                }
                Ok(DataResult::Dropped)
            }
            DataRequest::Append { batch, .. } => self.named(request)?.append(time, batch),
            DataRequest::StoreOffset {
                consumer, offset, ..
            } => self.named(request)?.store(consumer, *offset),
            DataRequest::DeleteOffset { consumer, .. } => {
                let deleted = self.named(request)?.consumers.remove(consumer);
                let stored = Offset(deleted.ok_or(Refusal::OffsetNotStored)?);
                Ok(DataResult::OffsetDeleted { stored })
            }
            DataRequest::TruncateHead { offset, .. } => {
                let model = self.named(request)?;
                if offset.0 > model.messages.len() as u64 {
                    return Err(model.out_of_range(*offset));
                }
                model.start = model.start.max(offset.0);
                let start = Offset(model.start);
                Ok(DataResult::HeadTruncated { start })
            }
            DataRequest::ConsumerGroup { .. } | DataRequest::DropConsumerGroup { .. } => {
                unreachable!("tried before")
            }
        }
    }
}

impl ModelPartition {
    pub(super) fn out_of_range(&self, offset: Offset) -> Refusal {
        let (start, end) = (Offset(self.start), Offset(self.messages.len() as u64));
        Refusal::OffsetOutOfRange { offset, start, end }
    }

    fn append(&mut self, time: u64, batch: &Batch) -> Result<DataResult, Refusal> {
        let (producer, sequence) = (batch.header.producer, batch.header.sequence);
        let offset = self.messages.len() as u64;
        if producer != 0 {
            let place = self.producers.iter().position(|(id, _)| *id == producer);
            let mut sent = match place {
                Some(place) => self.producers[place].1.clone(),
                None if sequence == 1 => Vec::new(),
                None => return Err(Refusal::ProducerUnknown { sequence }),
            };
            let last = sent.last().map_or(0, |(sequence, ..)| *sequence);
            if sequence > last + 1 {
                let expected = last + 1;
                return Err(Refusal::SequenceOutOfOrder { sequence, expected });
            }
            if let Some((_, checksum, offset)) =
                sent.iter().find(|(number, ..)| *number == sequence)
            {
                let base_offset = Offset(*offset);
                return if last - sequence >= 5 {
                    Err(Refusal::SequenceTooOld { sequence, last })
                } else if *checksum == batch.header.checksum {
                    Ok(DataResult::Appended {
                        base_offset,
                        repeated: true,
                    })
                } else {
                    Err(Refusal::SequenceReused {
                        sequence,
                        offset: base_offset,
                    })
                };
            }
            sent.push((sequence, batch.header.checksum, offset));
            self.producers.retain(|(id, _)| *id != producer);
            self.producers.push((producer, sent));
            if self.producers.len() > 3 {
                self.producers.remove(0);
            }
        }
        for message in batch.messages() {
            self.messages
                .push((time, message.expect("built here").payload));
        }
        Ok(DataResult::Appended {
            base_offset: Offset(offset),
            repeated: false,
        })
    }

    fn store(&mut self, consumer: &str, offset: Offset) -> Result<DataResult, Refusal> {
        if offset.0 >= self.messages.len() as u64 {
            return Err(self.out_of_range(offset));
        }
        if !self.consumers.contains_key(consumer) && self.consumers.len() == 3 {
            return Err(Refusal::TooManyConsumers { limit: 3 });
        }
        let stored = self
            .consumers
            .entry(consumer.to_string())
            .or_insert(offset.0);
        *stored = offset.0.max(*stored);
        Ok(DataResult::Stored {
            stored: Offset(*stored),
        })
    }
}
