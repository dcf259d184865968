//! One partition in a consumer's hands.

use alloc::vec::Vec;

use wire::{Epoch, Offset, PartitionId, Timestamp};

use super::Delivery;
use crate::{chunk::Chunk, fetching::Fetching, frontier::Frontier, lead::Lead, storing::Storing};

/// A partition from the moment that it is assigned until it is taken away: position, messages fetched
/// ahead, what is processed and what is stored. Dropping it drops all of that together.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) partition: PartitionId,
    /// Under which it is owned; 0 for a single consumer.
    pub(super) epoch: Epoch,
    pub(super) position: Position,
    /// Where to begin when nothing is stored.
    pub(super) start: super::Start,
    /// Messages below this are not wanted, though the position is: the partition did not reach so far when
    /// it was asked.
    pub(super) floor: Offset,
    /// Messages, or the offsets, which come before.
    pub(super) fetching: Fetching,
    pub(super) lead: Lead,
    /// Whether the application chose `start` itself, so that it counts whatever is stored.
    pub(super) sought: bool,
    /// The offset behind the newest message, as far as known.
    pub(super) end: Option<Offset>,
    /// Where the consumer is finished.
    pub(super) stop: Option<Offset>,
    pub(super) frontier: Frontier,
    /// What is to be stored beside the frontier: the resolved start, or what the application named.
    pub(super) named: Option<Offset>,
    pub(super) storing: Storing,
}

/// Where the next poll begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Not known before the offsets are.
    Unknown,
    /// At this offset.
    At(Offset),
    /// At the first message with this time or a later one; only the server knows where that is.
    Since(Timestamp),
}

impl Assignment {
    pub(super) fn new(partition: PartitionId, epoch: Epoch, start: super::Start) -> Self {
        Self {
            partition,
            epoch,
            position: Position::Unknown,
            start,
            floor: Offset(0),
            fetching: Fetching::default(),
            lead: Lead::default(),
            sought: false,
            end: None,
            stop: None,
            frontier: Frontier::default(),
            named: None,
            storing: Storing::default(),
        }
    }

    /// Adds fetched batches. Gives the bytes that they take.
    pub(super) fn extend(&mut self, mut chunks: Vec<Chunk>) -> usize {
        for chunk in &mut chunks {
            if let Some(stop) = self.stop {
                chunk.to = chunk.to.min(stop);
            }
            chunk.from = chunk.from.max(self.floor);
            chunk.next = chunk.next.max(self.floor);
        }
        self.fetching.extend(chunks)
    }

    /// The next message, and the bytes of batches that are done with.
    pub(super) fn take(&mut self) -> (Option<Delivery>, usize) {
        self.fetching.take(self.partition, self.epoch)
    }

    /// The offset that is delivered next.
    fn next_offset(&self) -> Option<Offset> {
        match (self.fetching.next_offset(), self.position) {
            (Some(offset), _) => Some(offset),
            (None, Position::At(offset)) => Some(offset.max(self.floor)),
            (None, Position::Unknown | Position::Since(_)) => None,
        }
    }

    pub(super) fn summary(&self) -> super::Progress {
        super::Progress {
            partition: self.partition,
            next: self.next_offset(),
            stored: self.storing.stored,
            end: self.end,
        }
    }

    /// Whether everything up to the stop is fetched.
    pub(super) fn is_fetched(&self) -> bool {
        match (self.stop, self.position) {
            (Some(stop), Position::At(position)) => position >= stop,
            (Some(stop), Position::Since(_)) => stop == Offset(0),
            (Some(_), Position::Unknown) | (None, _) => false,
        }
    }

    /// Whether nothing more will be delivered.
    pub(super) fn is_finished(&self) -> bool {
        self.fetching.is_empty() && (self.fetching.faulty || self.is_fetched())
    }

    /// The last message that may be stored as processed.
    pub(super) fn processed(&self) -> Option<Offset> {
        self.frontier.processed().max(self.named)
    }
}
