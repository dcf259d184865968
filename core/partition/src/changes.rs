//! What applied ops ask of the files.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use bytes::Bytes;
use wire::{ConsensusGroup, Incarnation, Op, PartitionKey};

use crate::{SegmentChange, SegmentId};

/// Pieces of one append at the most: a vectored write takes 1,024.
const PARTS_MAX: usize = 512;

/// Bytes after which an append is not extended.
const APPEND_SIZE: usize = 1024 * 1024;

/// The queue of changes. Batches that follow each other in a segment leave it as one append.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Appends that may still be extended.
    appends: BTreeMap<SegmentId, Append>,
    ready: VecDeque<SegmentChange>,
    /// Deletions, with the op that a checkpoint must contain before them.
    deletions: VecDeque<(Op, SegmentChange)>,
}

#[derive(Clone, Debug)]
struct Append {
    position: u64,
    size: usize,
    parts: Vec<Bytes>,
}

impl Changes {
    pub(crate) const fn new() -> Self {
        Self {
            appends: BTreeMap::new(),
            ready: VecDeque::new(),
            deletions: VecDeque::new(),
        }
    }

    /// The next change, if there is one.
    pub(crate) fn next(&mut self) -> Option<SegmentChange> {
        if let Some(change) = self.ready.pop_front() {
            return Some(change);
        }
        let (segment, append) = self.appends.pop_first()?;
        Some(append.into_change(segment))
    }

    /// A batch, in two pieces, at its place.
    pub(crate) fn append(&mut self, segment: SegmentId, position: u64, parts: [Bytes; 2]) {
        let size = parts.iter().map(Bytes::len).sum::<usize>();
        match self.appends.get_mut(&segment) {
            Some(append) if append.takes(position) => {
                append.size += size;
                append.parts.extend(parts);
            }
            Some(_) | None => {
                let parts = Vec::from(parts);
                let append = Append {
                    position,
                    size,
                    parts,
                };
                if let Some(full) = self.appends.insert(segment, append) {
                    self.ready.push_back(full.into_change(segment));
                }
            }
        }
    }

    pub(crate) fn write_index(&mut self, segment: SegmentId, bytes: Bytes) {
        self.ready
            .push_back(SegmentChange::WriteIndex { segment, bytes });
    }

    /// Deletes a segment once `op` is in a checkpoint.
    pub(crate) fn delete(&mut self, op: Op, segment: SegmentId) {
        self.delay(op, SegmentChange::Delete { segment });
    }

    /// Deletes an incarnation's directory once `op` is in a checkpoint.
    pub(crate) fn delete_partition(
        &mut self,
        op: Op,
        group: ConsensusGroup,
        partition: PartitionKey,
        incarnation: Incarnation,
    ) {
        let change = SegmentChange::DeletePartition {
            group,
            partition,
            incarnation,
        };
        self.delay(op, change);
    }

    fn delay(&mut self, op: Op, change: SegmentChange) {
        assert!(self.deletions.back().is_none_or(|(last, _)| *last <= op));
        self.deletions.push_back((op, change));
    }

    /// The state after `op` is in a checkpoint.
    pub(crate) fn release(&mut self, op: Op) {
        while let Some((_, change)) = self.deletions.pop_front_if(|(last, _)| *last <= op) {
            self.ready.push_back(change);
        }
    }
}

impl Append {
    const fn takes(&self, position: u64) -> bool {
        self.position + self.size as u64 == position
            && self.size < APPEND_SIZE
            && self.parts.len() < PARTS_MAX
    }

    fn into_change(self, segment: SegmentId) -> SegmentChange {
        SegmentChange::Append {
            segment,
            position: self.position,
            parts: self.parts,
        }
    }
}
