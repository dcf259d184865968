//! One partition in a member's hands.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{AssignedPartition, Epoch, Incarnation, Offset, PartitionId, PollStrategy};

use crate::{Call, Delivery, StoreMode, chunk::Chunk, frontier::Frontier};

/// One ownership of a partition, from the assignment that names it until it is given up or lost. Dropping it
/// drops position, messages and frontier together, so that nothing of it reaches the next ownership.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) partition: PartitionId,
    pub(super) incarnation: Incarnation,
    /// The epoch of polls and stores.
    /// Invariant: rises only, and is at least `held_since`.
    pub(super) epoch: Epoch,
    /// Names the ownership: the epoch with which it began.
    pub(super) held_since: Epoch,
    pub(super) state: State,
    /// Whether the application knows that it has the partition.
    pub(super) told: bool,
    /// Where the next poll begins; `None`: behind the stored offset, which the server knows.
    pub(super) position: Option<Offset>,
    pub(super) buffer: VecDeque<Chunk>,
    /// Bytes of the batches in `buffer`.
    pub(super) buffered: usize,
    /// The unanswered poll. An answer to any other is dropped.
    pub(super) fetch: Option<Call>,
    /// Whether it must be alone in a request: another node leads it, and only such a request is passed on.
    pub(super) alone: bool,
    /// Nothing is fetched before this time.
    pub(super) blocked_until: u64,
    /// Failed polls in a row.
    pub(super) failures: u32,
    /// Nothing is fetched any more; the application was told why.
    pub(super) faulty: bool,
    /// Nothing is fetched or handed out at the application's wish.
    pub(super) paused: bool,
    /// The offset behind the newest message, as far as known.
    pub(super) end: Option<Offset>,
    pub(super) frontier: Frontier,
    pub(super) progress: Progress,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is read.
    Owned,
    /// It is to be given up: what was handed out is processed, nothing is fetched.
    Revoking {
        /// The epoch of the next owner.
        planned: Epoch,
        /// When it is taken, about.
        deadline: u64,
    },
    /// Everything is processed, and the release is unanswered.
    Releasing {
        /// The epoch of the next owner.
        planned: Epoch,
        /// When it is taken, about.
        deadline: u64,
        /// The release.
        call: Call,
    },
    /// It is released. Kept until an assignment without it comes.
    Released,
}

/// What is stored, and what is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The last message processed, as the server has it.
    pub(super) stored: Option<Offset>,
    /// What an unanswered request stores.
    pub(super) storing: Option<(Call, Offset)>,
    /// Since when something is to be stored.
    pub(super) since: Option<u64>,
    /// Whether it is to be stored without more delay.
    pub(super) urgent: bool,
    /// Nothing is stored or released before this time.
    pub(super) blocked_until: u64,
    /// Failed stores and releases in a row.
    pub(super) failures: u32,
    /// What the server refused for good; only a higher offset is worth another try.
    pub(super) refused: Option<Offset>,
}

impl Holding {
    pub(super) fn new(assigned: &AssignedPartition) -> Self {
        Self {
            partition: assigned.partition,
            incarnation: assigned.incarnation,
            epoch: assigned.epoch,
            held_since: assigned.held_since,
            state: State::Owned,
            told: false,
            position: None,
            buffer: VecDeque::new(),
            buffered: 0,
            fetch: None,
            alone: false,
            blocked_until: 0,
            failures: 0,
            faulty: false,
            paused: false,
            end: None,
            frontier: Frontier::default(),
            progress: Progress::default(),
        }
    }

    /// Whether an epoch names this ownership: its own or an earlier one of it.
    pub(super) fn is_under(&self, epoch: Epoch) -> bool {
        self.held_since <= epoch && epoch <= self.epoch
    }

    /// Whether it may be asked for now.
    pub(super) fn may_fetch(&self, now: u64) -> bool {
        self.state == State::Owned
            && self.fetch.is_none()
            && !self.faulty
            && !self.paused
            && now >= self.blocked_until
    }

    pub(super) fn strategy(&self) -> PollStrategy {
        self.position
            .map_or(PollStrategy::Next, PollStrategy::Offset)
    }

    pub(super) fn extend(&mut self, chunks: Vec<Chunk>) {
        for chunk in chunks {
            self.buffered += chunk.size;
            self.buffer.push_back(chunk);
        }
    }

    /// The next message, and the bytes of batches that are done with.
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

    /// The offset that is handed out next, where it is known.
    pub(super) fn next_offset(&self) -> Option<Offset> {
        self.buffer
            .front()
            .map(|chunk| chunk.next)
            .or(self.position)
    }

    /// Forgets what was fetched and not handed out: it is fetched again if reading goes on. Gives the bytes
    /// that it took.
    pub(super) fn drop_fetched(&mut self) -> usize {
        self.position = self.next_offset();
        self.buffer.clear();
        self.fetch = None;
        core::mem::take(&mut self.buffered)
    }

    /// Goes on at another offset. Gives the bytes that what was fetched took.
    pub(super) fn seek(&mut self, offset: Offset) -> usize {
        let freed = self.drop_fetched();
        self.position = Some(offset);
        self.frontier.leap();
        self.faulty = false;
        self.blocked_until = 0;
        freed
    }

    /// Everything that was handed out is processed, and everything that is the application's was handed out.
    pub(super) fn is_finished(&self, store: StoreMode) -> bool {
        match store {
            // What was served counts as processed, so that nobody else will get it.
            StoreMode::BeforeDelivery => self.buffer.is_empty() && self.fetch.is_none(),
            StoreMode::Processed | StoreMode::Manual | StoreMode::Never => {
                self.frontier.is_settled()
            }
        }
    }

    /// What is processed and not known to be stored.
    pub(super) fn unstored(&self) -> Option<Offset> {
        let processed = self.frontier.processed()?;
        let known = self.progress.stored.max(self.progress.refused);
        (Some(processed) > known).then_some(processed)
    }

    /// What is worth storing now: what is not being stored either.
    pub(super) fn to_store(&self) -> Option<Offset> {
        let storing = self.progress.storing.map(|(_, offset)| offset);
        self.unstored().filter(|offset| Some(*offset) > storing)
    }

    /// Whether it may still be stored for.
    pub(super) const fn may_store(&self) -> bool {
        matches!(self.state, State::Owned | State::Revoking { .. })
    }
}
