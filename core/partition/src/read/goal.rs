//! What a query amounts to, while it is on its way through files.

use wire::{BatchHeader, Offset, Timestamp};

use super::Batches;
use crate::group::Partition;

/// What a query amounts to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    pub(super) wanted: Wanted,
    /// Messages between the position asked for and the start.
    pub(super) skipped: u64,
    pub(super) max_messages: u64,
    pub(super) max_bytes: u64,
}

/// The first message that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// The one at this offset, which is the end at the most.
    Offset(Offset),
    /// The first one of this time or later.
    Time {
        /// The time.
        time: Timestamp,
        /// What is known of where it is.
        floor: Option<Floor>,
    },
}

/// The beginning of a batch all messages before which are not wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// Base of the segment.
    pub(super) segment: Offset,
    /// Offset of the batch.
    pub(super) offset: Offset,
    /// Its position in the segment.
    pub(super) position: u64,
}

impl Goal {
    /// Moves a position before the start to the start. Returns whether it was moved.
    pub(super) fn skip_to_start(&mut self, partition: &Partition) -> bool {
        match &mut self.wanted {
            Wanted::Offset(from) if *from < partition.start => {
                self.skipped += partition.start.0 - from.0;
                *from = partition.start;
                true
            }
            Wanted::Offset(_) | Wanted::Time { .. } => false,
        }
    }

    /// The first message that is wanted if it is in this batch, given that it is in none before.
    pub(super) fn first_in(&self, header: &BatchHeader, start: Offset) -> Option<Offset> {
        let last = header.last_offset();
        match self.wanted {
            Wanted::Offset(from) => (from <= last).then_some(from),
            Wanted::Time { time, .. } => {
                let reached = Timestamp(header.timestamp) >= time && start <= last;
                reached.then(|| Offset(header.base_offset).max(start))
            }
        }
    }

    /// An answer without batches.
    pub(super) const fn answer(&self, partition: &Partition, from: Offset) -> Batches {
        Batches {
            from,
            next: from,
            skipped: self.skipped,
            start: partition.start,
            end: partition.next,
            size: 0,
            parts: alloc::vec::Vec::new(),
        }
    }

    /// Whether a batch of `size` bytes is added to `batches`. The first one always is.
    pub(super) const fn takes(&self, batches: &Batches, size: u64) -> bool {
        batches.next.0 == batches.from.0
            || (batches.next.0 - batches.from.0 < self.max_messages
                && batches.size + size <= self.max_bytes)
    }
}
