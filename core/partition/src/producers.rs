//! Idempotence: which batches of which producers a partition holds already.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use wire::{BatchHeader, Offset, ProducerId};

use crate::{ProducerSnapshot, Refusal};

/// Batches of a producer whose offsets are kept: a producer with more unanswered ones than this may
/// learn of an old one only that it was appended.
const BATCHES_KEPT: usize = 5;

/// The producers of one partition.
///
/// Invariant: `by_age` has one entry for each producer, under the base offset of its last batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    by_id: BTreeMap<ProducerId, Producer>,
    by_age: BTreeMap<Offset, ProducerId>,
}

#[derive(Clone, Debug)]
struct Producer {
    /// Sequence of the last batch.
    sequence: u64,
    /// Base offset and checksum of the last batches, the newest last; never empty.
    batches: VecDeque<(Offset, u64)>,
}

/// What a batch is to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    /// To be appended.
    New,
    /// Appended before.
    Repeated {
        /// Where.
        base_offset: Offset,
    },
}

impl Producers {
    /// Whether a batch is to be appended.
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<Novelty, Refusal> {
        if header.producer == 0 {
            return Ok(Novelty::New);
        }
        let sequence = header.sequence;
        match self.by_id.get(&header.producer()) {
            None if sequence == 1 => Ok(Novelty::New),
            None => Err(Refusal::ProducerUnknown { sequence }),
            Some(producer) => producer.check(sequence, header.checksum),
        }
    }

    /// Remembers a batch that was appended at `base_offset`; forgets the producer that has been silent
    /// longest when there are more than `producers_max`.
    pub(crate) fn record(
        &mut self,
        header: &BatchHeader,
        base_offset: Offset,
        producers_max: usize,
    ) {
        if header.producer == 0 {
            return;
        }
        let id = header.producer();
        let producer = self.by_id.entry(id).or_insert(Producer {
            sequence: 0,
            batches: VecDeque::new(),
        });
        if let Some((last, _)) = producer.batches.back() {
            self.by_age.remove(last);
        }
        assert!(header.sequence == producer.sequence + 1);
        producer.sequence = header.sequence;
        if producer.batches.len() == BATCHES_KEPT {
            producer.batches.pop_front();
        }
        producer.batches.push_back((base_offset, header.checksum));
        self.by_age.insert(base_offset, id);
        // The producer at hand is the youngest, and is never forgotten here.
        while self.by_id.len() > producers_max.max(1) {
            let (_, oldest) = self
                .by_age
                .pop_first()
                .expect("one entry for each producer");
            self.by_id.remove(&oldest);
        }
        assert!(self.by_id.len() == self.by_age.len());
    }

    pub(crate) fn snapshot(&self) -> Vec<ProducerSnapshot> {
        let producers = self.by_id.iter().map(|(id, producer)| ProducerSnapshot {
            id: *id,
            sequence: producer.sequence,
            batches: producer.batches.iter().copied().collect(),
        });
        producers.collect()
    }

    pub(crate) fn restore(producers: Vec<ProducerSnapshot>) -> Self {
        let mut restored = Self::default();
        for ProducerSnapshot {
            id,
            sequence,
            batches,
        } in producers
        {
            let (last, _) = *batches.last().expect("a snapshot's producers have batches");
            let batches = VecDeque::from(batches);
            restored.by_age.insert(last, id);
            restored.by_id.insert(id, Producer { sequence, batches });
        }
        assert!(restored.by_id.len() == restored.by_age.len());
        restored
    }
}

impl Producer {
    fn check(&self, sequence: u64, checksum: u64) -> Result<Novelty, Refusal> {
        let last = self.sequence;
        if sequence > last {
            return if sequence == last + 1 {
                Ok(Novelty::New)
            } else {
                let expected = last + 1;
                Err(Refusal::SequenceOutOfOrder { sequence, expected })
            };
        }
        let back = usize::try_from(last - sequence).unwrap_or(usize::MAX);
        match self.batches.iter().rev().nth(back) {
            None => Err(Refusal::SequenceTooOld { sequence, last }),
            Some((offset, kept)) if *kept == checksum => Ok(Novelty::Repeated {
                base_offset: *offset,
            }),
            Some((offset, _)) => Err(Refusal::SequenceReused {
                sequence,
                offset: *offset,
            }),
        }
    }
}
