//! Recent batches of all partitions of a group, kept in memory.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::ops::Bound;

use bytes::Bytes;
use wire::{Batch, BatchHeader, Offset, Op, PartitionKey, Timestamp};

use crate::segments::Mark;

/// Bytes that a batch costs besides header and body: entries of maps, and the allocation of its header.
const OVERHEAD: u64 = 512;

/// A stamped batch.
#[derive(Clone, Debug)]
pub(crate) struct TailBatch {
    /// Offset of the first message.
    pub(crate) base: Offset,
    /// Broker time.
    pub(crate) timestamp: Timestamp,
    /// Base of its segment.
    pub(crate) segment: Offset,
    /// Where it ends there.
    pub(crate) end: Mark,
    /// The header's bytes.
    pub(crate) head: Bytes,
    /// The messages.
    pub(crate) body: Bytes,
    /// The op that brought it.
    op: Op,
    /// Whether it is known to be in its segment.
    written: bool,
}

/// What the batches of one op cost.
#[derive(Clone, Debug, Default)]
struct Charge {
    bytes: u64,
    /// The batches that it brought; some may be gone.
    batches: Vec<(PartitionKey, Offset)>,
    /// How many of them are held.
    held: u32,
    /// How many of them are held and not written.
    unwritten: u32,
}

/// Recent batches. Not part of the replicated state.
///
/// A body is a slice of its op's prepare and keeps all of it alive, so memory is counted and freed by op:
/// the oldest op goes first, all of its batches together. An op with a batch that is not written yet
/// stays, so what is not in memory can be read from a segment.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    budget: u64,
    /// The sum of all charges.
    charged: u64,
    batches: BTreeMap<(PartitionKey, Offset), TailBatch>,
    charges: BTreeMap<Op, Charge>,
    /// Ops whose batches are all written.
    evictable: BTreeSet<Op>,
}

impl Tail {
    pub(crate) const fn new(budget: u64) -> Self {
        Self {
            budget,
            charged: 0,
            batches: BTreeMap::new(),
            charges: BTreeMap::new(),
            evictable: BTreeSet::new(),
        }
    }

    /// Takes in a batch that is not written yet.
    pub(crate) fn push(&mut self, key: PartitionKey, batch: TailBatch) {
        let bytes = batch.size() + OVERHEAD;
        let charge = self.charges.entry(batch.op).or_default();
        charge.bytes += bytes;
        charge.batches.push((key, batch.base));
        charge.held += 1;
        charge.unwritten += 1;
        self.charged += bytes;
        self.evictable.remove(&batch.op);
        let replaced = self.batches.insert((key, batch.base), batch);
        assert!(replaced.is_none());
    }

    /// Says that the batches of `op` are slices of a buffer of `size` bytes.
    pub(crate) fn charge_buffer(&mut self, op: Op, size: u64) {
        let Some(charge) = self.charges.get_mut(&op) else {
            return;
        };
        let bytes = size + OVERHEAD * charge.batches.len() as u64;
        if bytes > charge.bytes {
            self.charged += bytes - charge.bytes;
            charge.bytes = bytes;
        }
    }

    /// Marks the batches of a segment from `from` on as written that end at or before `through`. Returns
    /// the end of the last of them.
    pub(crate) fn mark_written(
        &mut self,
        key: PartitionKey,
        segment: Offset,
        from: Offset,
        through: u64,
    ) -> Option<Mark> {
        let mut reached = None;
        let mut next = from;
        while let Some(batch) = self.batches.get_mut(&(key, next)) {
            if batch.segment != segment || batch.end.position > through {
                break;
            }
            assert!(!batch.written);
            batch.written = true;
            next = batch.end.next;
            reached = Some(batch.end);
            let op = batch.op;
            let charge = self.charges.get_mut(&op).expect("a held batch is charged");
            charge.unwritten -= 1;
            if charge.unwritten == 0 {
                self.evictable.insert(op);
            }
        }
        reached
    }

    /// Frees memory down to the budget, as far as batches are written.
    pub(crate) fn evict(&mut self) {
        while self.charged > self.budget {
            let Some(op) = self.evictable.pop_first() else {
                return;
            };
            let charge = self
                .charges
                .remove(&op)
                .expect("an evictable op is charged");
            self.charged -= charge.bytes;
            for place in charge.batches {
                // The place may hold a batch of a later incarnation.
                if self.batches.get(&place).is_some_and(|batch| batch.op == op) {
                    self.batches.remove(&place);
                }
            }
        }
    }

    /// Frees the batches of a partition before `offset`, written or not.
    pub(crate) fn remove_before(&mut self, key: PartitionKey, offset: Offset) {
        while let Some((place, _)) = self.batches.range((key, Offset(0))..(key, offset)).next() {
            self.remove(*place);
        }
    }

    /// Frees the batches of a partition, written or not.
    pub(crate) fn remove_partition(&mut self, key: PartitionKey) {
        self.remove_before(key, Offset(u64::MAX));
    }

    fn remove(&mut self, place: (PartitionKey, Offset)) {
        let batch = self.batches.remove(&place).expect("the caller found it");
        let op = batch.op;
        let charge = self.charges.get_mut(&op).expect("a held batch is charged");
        charge.held -= 1;
        charge.unwritten -= u32::from(!batch.written);
        if charge.held == 0 {
            self.charged -= charge.bytes;
            self.charges.remove(&op);
            self.evictable.remove(&op);
        } else if charge.unwritten == 0 {
            self.evictable.insert(op);
        }
    }

    /// The batch that begins at `base`.
    pub(crate) fn at(&self, key: PartitionKey, base: Offset) -> Option<&TailBatch> {
        self.batches.get(&(key, base))
    }

    /// The batch that holds the message at `offset`, and those that follow it without a hole.
    pub(crate) fn run(
        &self,
        key: PartitionKey,
        offset: Offset,
    ) -> impl Iterator<Item = &TailBatch> {
        let found = self
            .batches
            .range((key, Offset(0))..=(key, offset))
            .next_back();
        let first = found
            .map(|(_, batch)| batch)
            .filter(|batch| offset < batch.end.next);
        let after = Bound::Excluded((key, offset));
        let end = Bound::Included((key, Offset(u64::MAX)));
        let rest = first
            .map(|_| self.batches.range((after, end)))
            .into_iter()
            .flatten();
        let mut next = first.map(|batch| batch.end.next);
        let contiguous = rest.map(|(_, batch)| batch).take_while(move |batch| {
            let follows = Some(batch.base) == next;
            next = Some(batch.end.next);
            follows
        });
        first.into_iter().chain(contiguous)
    }

    /// Bytes that are charged.
    pub(crate) const fn charged(&self) -> u64 {
        self.charged
    }
}

impl TailBatch {
    /// A batch that was stamped and given its place.
    pub(crate) fn new(
        op: Op,
        header: &BatchHeader,
        body: Bytes,
        segment: Offset,
        end: Mark,
    ) -> Self {
        Self {
            base: Offset(header.base_offset),
            timestamp: Timestamp(header.timestamp),
            segment,
            end,
            head: Bytes::copy_from_slice(header.as_bytes()),
            body,
            op,
            written: false,
        }
    }

    /// The header.
    pub(crate) fn header(&self) -> BatchHeader {
        Batch::read_header(&self.head).expect("the bytes are those of a header")
    }

    /// Bytes of header and body.
    pub(crate) fn size(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }
}
