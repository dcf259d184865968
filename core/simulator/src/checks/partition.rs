//! What a partition should hold: a plain model, written apart from the `partition` crate.

use std::{collections::BTreeMap, ops::RangeInclusive};

use bytes::Bytes;
use partition::{DataResult, GroupCommand, Refusal, StartAt};
use wire::{Batch, ConsensusGroup, ConsumerGroupId, Incarnation, Offset, ProducerId, Timestamp};

use super::groups::{Record, Verdict};

/// Counts the turns of shards: the order in which things became true.
pub(crate) type Step = u64;

/// Batches of a producer whose offsets are remembered.
const REMEMBERED: usize = 5;

/// One incarnation of a partition.
#[derive(Debug)]
pub(crate) struct PartitionModel {
    /// The data group that holds it.
    pub(crate) group: ConsensusGroup,
    pub(crate) incarnation: Incarnation,
    pub(crate) created: Step,
    pub(crate) dropped: Option<Step>,
    /// The first offset that is served, from which step on. Where it began at first, so did its offsets.
    starts: Vec<(Step, u64)>,
    batches: Vec<StoredBatch>,
    producers: BTreeMap<ProducerId, Vec<(u64, u64)>>,
    /// What each consumer had stored, from which step on.
    offsets: BTreeMap<String, Vec<(Step, Option<u64>)>>,
    /// What consumer groups have.
    records: BTreeMap<ConsumerGroupId, Record>,
}

/// A batch where it belongs.
#[derive(Debug)]
pub(crate) struct StoredBatch {
    pub(crate) step: Step,
    pub(crate) base: u64,
    pub(crate) next: u64,
    pub(crate) timestamp: Timestamp,
    /// What the producer computed over its messages.
    pub(crate) checksum: u64,
    /// As it is to be served, byte for byte.
    pub(crate) bytes: Bytes,
}

/// A stretch of time, by steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Step,
    pub(crate) to: Step,
}

/// What a model is told once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionLimits {
    pub(crate) producers_max: usize,
    pub(crate) consumers_max: usize,
}

impl PartitionModel {
    /// `begin` is the offset of its first message.
    pub(crate) fn new(
        group: ConsensusGroup,
        incarnation: Incarnation,
        (created, begin): (Step, u64),
    ) -> Self {
        Self {
            group,
            incarnation,
            created,
            dropped: None,
            starts: vec![(created, begin)],
            batches: Vec::new(),
            producers: BTreeMap::new(),
            offsets: BTreeMap::new(),
            records: BTreeMap::new(),
        }
    }

    /// What a consumer group has, or had.
    pub(crate) fn record(&self, group: ConsumerGroupId) -> Option<&Record> {
        self.records.get(&group)
    }

    pub(crate) fn record_mut(&mut self, group: ConsumerGroupId) -> Option<&mut Record> {
        self.records.get_mut(&group)
    }

    /// Carries out a command of a consumer group.
    pub(crate) fn apply_group(
        &mut self,
        at: (Step, Timestamp),
        group: ConsumerGroupId,
        command: &GroupCommand,
        told: Option<StartAt>,
    ) -> Result<Verdict, String> {
        let mut record = self.records.remove(&group).unwrap_or_default();
        let result = record.apply(at, self, command, told);
        self.records.insert(group, record);
        result
    }

    /// Whether it was there at some time in the window.
    pub(crate) fn lived(&self, window: Window) -> bool {
        self.created <= window.to && self.dropped.is_none_or(|dropped| dropped >= window.from)
    }

    /// The offset of the first message that it ever had, or would have had.
    fn begin(&self) -> u64 {
        self.starts.first().map_or(0, |(_, begin)| *begin)
    }

    /// The first offset that is served.
    pub(crate) fn start(&self) -> u64 {
        self.starts.last().map_or(0, |(_, start)| *start)
    }

    /// The least and the most that this was in the window.
    pub(crate) fn start_in(&self, window: Window) -> RangeInclusive<u64> {
        let at = |time: Step| {
            let known = self.starts.partition_point(|(step, _)| *step <= time);
            let last = known.checked_sub(1).map(|last| self.starts[last].1);
            last.unwrap_or_else(|| self.begin())
        };
        at(window.from)..=at(window.to)
    }

    /// Where a read begins that asks for an offset.
    pub(crate) fn reads_from(&self, asked: u64, from: u64, window: Window) -> bool {
        let starts = self.start_in(window);
        from >= *starts.start() && (from == asked || from > asked && from <= *starts.end())
    }

    /// The offset behind its newest message.
    pub(crate) fn end(&self) -> u64 {
        self.batches.last().map_or(self.begin(), |batch| batch.next)
    }

    /// That offset at an earlier step.
    pub(crate) fn end_at(&self, step: Step) -> u64 {
        let count = self.batches.partition_point(|batch| batch.step <= step);
        count
            .checked_sub(1)
            .map_or(self.begin(), |last| self.batches[last].next)
    }

    /// The batch that begins at an offset.
    pub(crate) fn batch_at(&self, base: u64) -> Option<&StoredBatch> {
        let found = self.batches.binary_search_by_key(&base, |batch| batch.base);
        found.ok().map(|index| &self.batches[index])
    }

    /// The batch that holds an offset.
    pub(crate) fn batch_of(&self, offset: u64) -> Option<&StoredBatch> {
        let after = self.batches.partition_point(|batch| batch.base <= offset);
        let batch = self.batches.get(after.checked_sub(1)?)?;
        (offset < batch.next).then_some(batch)
    }

    /// The first batch of this time or a later one.
    pub(crate) fn batch_since(&self, time: Timestamp) -> Option<&StoredBatch> {
        let index = self.batches.partition_point(|batch| batch.timestamp < time);
        self.batches.get(index)
    }

    /// All batches, oldest first.
    pub(crate) fn batches(&self) -> &[StoredBatch] {
        &self.batches
    }

    /// What a consumer has stored.
    pub(crate) fn stored(&self, consumer: &str) -> Option<u64> {
        let history = self.offsets.get(consumer)?;
        history.last().and_then(|(_, offset)| *offset)
    }

    /// Everything that was stored for a consumer at some time in the window.
    pub(crate) fn stored_in(&self, consumer: &str, window: Window) -> Vec<Option<u64>> {
        let Some(history) = self.offsets.get(consumer) else {
            return vec![None];
        };
        let before = history.partition_point(|(step, _)| *step <= window.from);
        let mut values = vec![match before.checked_sub(1) {
            Some(last) => history[last].1,
            None => None,
        }];
        let within = history[before..]
            .iter()
            .take_while(|(step, _)| *step <= window.to);
        values.extend(within.map(|(_, offset)| *offset));
        values
    }

    /// Consumers that have something stored.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = (&str, u64)> {
        self.offsets.iter().filter_map(|(name, history)| {
            let (_, offset) = history.last()?;
            Some((name.as_str(), (*offset)?))
        })
    }

    pub(crate) fn append(
        &mut self,
        step: Step,
        timestamp: Timestamp,
        batch: &Batch,
        limits: PartitionLimits,
    ) -> DataResult {
        let header = &batch.header;
        let base = self.end();
        if header.producer != 0 {
            match self.judge(header.producer(), header.sequence, header.checksum) {
                Judgement::New => self.remember(header.producer(), base, header, limits),
                Judgement::Repeated(base) => {
                    return DataResult::Appended {
                        base_offset: Offset(base),
                        repeated: true,
                    };
                }
                Judgement::Refused(refusal) => return DataResult::Failed(refusal),
            }
        }
        let stamped = batch.clone().stamped(Offset(base), timestamp);
        self.batches.push(StoredBatch {
            step,
            base,
            next: base + u64::from(header.count),
            timestamp,
            checksum: header.checksum,
            bytes: stamped.to_bytes(),
        });
        DataResult::Appended {
            base_offset: Offset(base),
            repeated: false,
        }
    }

    pub(crate) fn store(
        &mut self,
        step: Step,
        consumer: &str,
        offset: Offset,
        limits: PartitionLimits,
    ) -> DataResult {
        let end = self.end();
        if offset.0 >= end {
            return DataResult::Failed(Refusal::OffsetOutOfRange {
                offset,
                start: Offset(self.start()),
                end: Offset(end),
            });
        }
        let before = self.stored(consumer);
        if before.is_none() && self.consumers().count() >= limits.consumers_max {
            let limit = limits.consumers_max as u64;
            return DataResult::Failed(Refusal::TooManyConsumers { limit });
        }
        let stored = before.map_or(offset.0, |before| before.max(offset.0));
        let history = self.offsets.entry(consumer.to_string()).or_default();
        history.push((step, Some(stored)));
        DataResult::Stored {
            stored: Offset(stored),
        }
    }

    pub(crate) fn delete_offset(&mut self, step: Step, consumer: &str) -> DataResult {
        let Some(stored) = self.stored(consumer) else {
            return DataResult::Failed(Refusal::OffsetNotStored);
        };
        let history = self.offsets.entry(consumer.to_string()).or_default();
        history.push((step, None));
        DataResult::OffsetDeleted {
            stored: Offset(stored),
        }
    }

    /// What a numbered batch is to the partition. Of a producer the last checksums are remembered, the
    /// newest last, each with the offset where the batch is.
    fn judge(&self, producer: ProducerId, sequence: u64, checksum: u64) -> Judgement {
        let Some(sent) = self.producers.get(&producer) else {
            return match sequence {
                1 => Judgement::New,
                _ => Judgement::Refused(Refusal::ProducerUnknown { sequence }),
            };
        };
        let last = sent.len() as u64;
        if sequence == last + 1 {
            return Judgement::New;
        }
        if sequence > last {
            let expected = last + 1;
            return Judgement::Refused(Refusal::SequenceOutOfOrder { sequence, expected });
        }
        let back = usize::try_from(last - sequence).unwrap_or(usize::MAX);
        if back >= REMEMBERED {
            return Judgement::Refused(Refusal::SequenceTooOld { sequence, last });
        }
        let (base, known) = sent[sent.len() - 1 - back];
        if known == checksum {
            Judgement::Repeated(base)
        } else {
            let offset = Offset(base);
            Judgement::Refused(Refusal::SequenceReused { sequence, offset })
        }
    }

    fn remember(
        &mut self,
        producer: ProducerId,
        base: u64,
        header: &wire::BatchHeader,
        limits: PartitionLimits,
    ) {
        let sent = self.producers.entry(producer).or_default();
        sent.push((base, header.checksum));
        while self.producers.len() > limits.producers_max {
            let oldest = self
                .producers
                .iter()
                .min_by_key(|(_, sent)| sent.last().map(|(base, _)| *base))
                .map(|(producer, _)| *producer);
            if let Some(oldest) = oldest {
                self.producers.remove(&oldest);
            }
        }
    }
}

enum Judgement {
    New,
    Repeated(u64),
    Refused(Refusal),
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use partition::{DataResult, Refusal};
    use wire::{BatchBuilder, ConsensusGroup, Incarnation, Message, Offset, ProducerId, Timestamp};

    use super::{PartitionLimits, PartitionModel, Window};

    const LIMITS: PartitionLimits = PartitionLimits {
        producers_max: 2,
        consumers_max: 1,
    };

    fn batch(producer: u128, sequence: u64, count: u32) -> wire::Batch {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            builder.push(&Message {
                payload: Bytes::from(format!("{producer} {sequence}")),
                ..Message::default()
            });
        }
        builder.build(ProducerId(producer), sequence)
    }

    fn append(model: &mut PartitionModel, step: u64, batch: &wire::Batch) -> DataResult {
        model.append(step, Timestamp(step), batch, LIMITS)
    }

    fn appended(base: u64, repeated: bool) -> DataResult {
        DataResult::Appended {
            base_offset: Offset(base),
            repeated,
        }
    }

    #[test]
    fn numbered_batch_is_there_once() {
        let mut model = PartitionModel::new(ConsensusGroup(1), Incarnation(1), (1, 0));
        let (first, second) = (batch(7, 1, 2), batch(7, 2, 3));
        assert_eq!(append(&mut model, 2, &first), appended(0, false));
        assert_eq!(append(&mut model, 3, &first), appended(0, true));
        assert_eq!(append(&mut model, 4, &second), appended(2, false));
        assert_eq!((model.end_at(2), model.end_at(3), model.end()), (2, 2, 5));
        assert!(matches!(
            append(&mut model, 5, &batch(7, 4, 1)),
            DataResult::Failed(Refusal::SequenceOutOfOrder { expected: 3, .. })
        ));
        assert!(matches!(
            append(&mut model, 5, &batch(7, 2, 1)),
            DataResult::Failed(Refusal::SequenceReused { .. })
        ));
    }

    #[test]
    fn producer_that_is_silent_longest_is_forgotten() {
        let mut model = PartitionModel::new(ConsensusGroup(1), Incarnation(1), (1, 0));
        for producer in [7, 8, 9] {
            append(&mut model, 2, &batch(producer, 1, 1));
        }
        assert!(matches!(
            append(&mut model, 3, &batch(7, 2, 1)),
            DataResult::Failed(Refusal::ProducerUnknown { .. })
        ));
        assert_eq!(append(&mut model, 3, &batch(8, 2, 1)), appended(3, false));
    }

    #[test]
    fn stored_offset_rises_until_it_is_deleted() {
        let mut model = PartitionModel::new(ConsensusGroup(1), Incarnation(1), (1, 0));
        append(&mut model, 2, &batch(0, 0, 9));
        model.store(3, "a", Offset(5), LIMITS);
        assert_eq!(
            model.store(4, "a", Offset(2), LIMITS),
            DataResult::Stored { stored: Offset(5) }
        );
        assert!(matches!(
            model.store(4, "b", Offset(2), LIMITS),
            DataResult::Failed(Refusal::TooManyConsumers { .. })
        ));
        assert!(matches!(
            model.store(4, "a", Offset(9), LIMITS),
            DataResult::Failed(Refusal::OffsetOutOfRange { .. })
        ));
        model.delete_offset(6, "a");
        let window = |from, to| Window { from, to };
        assert_eq!(model.stored_in("a", window(0, 2)), [None]);
        assert_eq!(model.stored_in("a", window(2, 3)), [None, Some(5)]);
        assert_eq!(model.stored_in("a", window(5, 7)), [Some(5), None]);
        assert_eq!(model.stored_in("b", window(0, 9)), [None]);
    }
}
