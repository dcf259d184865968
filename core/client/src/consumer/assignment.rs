//! One partition in a consumer's hands.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{Epoch, Offset, PartitionId, Timestamp};

use super::{Call, Delivery};
use crate::{chunk::Chunk, frontier::Frontier};

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
    pub(super) buffer: VecDeque<Chunk>,
    /// Bytes of the batches in `buffer`.
    pub(super) buffered: usize,
    /// The unanswered request for offsets or messages. An answer to any other is dropped.
    pub(super) fetch: Option<Call>,
    /// Whether it must be the only section of a poll: another node leads it, and only such a poll is
    /// passed on.
    pub(super) alone: bool,
    /// Nothing is fetched before this time.
    pub(super) blocked_until: u64,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Nothing is fetched any more; the application was told why.
    pub(super) faulty: bool,
    /// Whether the application chose `start` itself, so that it counts whatever is stored.
    pub(super) sought: bool,
    /// The offset behind the newest message, as far as known.
    pub(super) end: Option<Offset>,
    /// Where the consumer is finished.
    pub(super) stop: Option<Offset>,
    pub(super) frontier: Frontier,
    pub(super) progress: Progress,
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

/// What is stored, and what is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The last message processed, as the server has it.
    pub(super) stored: Option<Offset>,
    /// What an unanswered request stores.
    pub(super) storing: Option<(Call, Offset)>,
    /// What is to be stored beside the frontier: the resolved start, or what the application named.
    pub(super) named: Option<Offset>,
    /// Since when something is to be stored.
    pub(super) since: Option<u64>,
    /// Whether it is to be stored without more delay.
    pub(super) urgent: bool,
    /// Nothing is stored before this time.
    pub(super) blocked_until: u64,
    /// Failed stores in a row.
    pub(super) failures: u32,
    /// What the server refused for good; only a higher offset is worth another try.
    pub(super) refused: Option<Offset>,
}

impl Assignment {
    pub(super) fn new(partition: PartitionId, epoch: Epoch, start: super::Start) -> Self {
        Self {
            partition,
            epoch,
            position: Position::Unknown,
            start,
            floor: Offset(0),
            buffer: VecDeque::new(),
            buffered: 0,
            fetch: None,
            alone: false,
            blocked_until: 0,
            failures: 0,
            faulty: false,
            sought: false,
            end: None,
            stop: None,
            frontier: Frontier::default(),
            progress: Progress::default(),
        }
    }

    /// Whether it may be asked for now.
    pub(super) const fn may_fetch(&self, now: u64) -> bool {
        self.fetch.is_none() && !self.faulty && now >= self.blocked_until
    }

    pub(super) const fn on_answered_well(&mut self) {
        self.failures = 0;
        self.blocked_until = 0;
    }

    /// Adds fetched batches.
    pub(super) fn extend(&mut self, chunks: Vec<Chunk>) {
        for mut chunk in chunks {
            if let Some(stop) = self.stop {
                chunk.to = chunk.to.min(stop);
            }
            chunk.from = chunk.from.max(self.floor);
            chunk.next = chunk.next.max(self.floor);
            self.buffered += chunk.size;
            self.buffer.push_back(chunk);
        }
    }

    /// The next message, and the bytes of batches that are done with. There can be batches without a
    /// wanted message.
    pub(super) fn take(&mut self) -> (Option<Delivery>, usize) {
        let mut freed = 0;
        while let Some(chunk) = self.buffer.front_mut() {
            if let Some(message) = chunk.next_message() {
                let delivery = Delivery {
                    partition: self.partition,
                    epoch: self.epoch,
                    appended: chunk.appended,
                    message,
                };
                return (Some(delivery), freed);
            }
            freed += chunk.size;
            self.buffered -= chunk.size;
            self.buffer.pop_front();
        }
        (None, freed)
    }

    /// The offset that is delivered next.
    fn next_offset(&self) -> Option<Offset> {
        match (self.buffer.front(), self.position) {
            (Some(chunk), _) => Some(chunk.next),
            (None, Position::At(offset)) => Some(offset.max(self.floor)),
            (None, Position::Unknown | Position::Since(_)) => None,
        }
    }

    pub(super) fn summary(&self) -> super::Progress {
        super::Progress {
            partition: self.partition,
            next: self.next_offset(),
            stored: self.progress.stored,
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
        self.buffer.is_empty() && (self.faulty || self.is_fetched())
    }

    /// What is worth storing now: above what is stored, being stored, or refused.
    pub(super) fn to_store(&self) -> Option<Offset> {
        let progress = &self.progress;
        let target = self.frontier.processed().max(progress.named)?;
        let beyond = |other: Option<Offset>| other.is_none_or(|other| target > other);
        let storing = progress.storing.map(|(_, offset)| offset);
        (beyond(progress.stored) && beyond(storing) && beyond(progress.refused)).then_some(target)
    }
}
