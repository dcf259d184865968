//! One partition in a member's hands.

use wire::{AssignedPartition, Epoch, Incarnation, Offset, PartitionId, PollStrategy};

use crate::{
    Call, Delivery, StoreMode, fetching::Fetching, frontier::Frontier, lead::Lead, storing::Storing,
};

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
    pub(super) fetching: Fetching,
    pub(super) lead: Lead,
    /// Nothing is fetched or handed out at the application's wish.
    pub(super) paused: bool,
    /// The offset behind the newest message, as far as known.
    pub(super) end: Option<Offset>,
    pub(super) frontier: Frontier,
    /// By stores and releases.
    pub(super) storing: Storing,
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
            fetching: Fetching::default(),
            lead: Lead::default(),
            paused: false,
            end: None,
            frontier: Frontier::default(),
            storing: Storing::default(),
        }
    }

    /// Whether an epoch names this ownership: its own or an earlier one of it.
    pub(super) fn is_under(&self, epoch: Epoch) -> bool {
        self.held_since <= epoch && epoch <= self.epoch
    }

    /// Whether it may be asked for now.
    pub(super) fn may_fetch(&self, now: u64) -> bool {
        self.state == State::Owned && !self.paused && self.fetching.may_begin(now)
    }

    pub(super) fn strategy(&self) -> PollStrategy {
        self.position
            .map_or(PollStrategy::Next, PollStrategy::Offset)
    }

    /// The next message, and the bytes of batches that are done with.
    pub(super) fn take(&mut self) -> (Option<Delivery>, usize) {
        self.fetching.take(self.partition, self.epoch)
    }

    /// The offset that is handed out next, where it is known.
    pub(super) fn next_offset(&self) -> Option<Offset> {
        self.fetching.next_offset().or(self.position)
    }

    /// Forgets what was fetched and not handed out: it is fetched again if reading goes on. Gives the bytes
    /// that it took.
    pub(super) fn drop_fetched(&mut self) -> usize {
        self.position = self.next_offset();
        self.fetching.clear()
    }

    /// Goes on at another offset. Gives the bytes that what was fetched took.
    pub(super) fn seek(&mut self, offset: Offset) -> usize {
        let freed = self.drop_fetched();
        self.position = Some(offset);
        self.frontier.leap();
        self.fetching.faulty = false;
        self.fetching.succeed();
        freed
    }

    /// Everything that was handed out is processed, and everything that is the application's was handed out.
    pub(super) fn is_finished(&self, store: StoreMode) -> bool {
        match store {
            // What was served counts as processed, so that nobody else will get it.
            StoreMode::BeforeDelivery => self.fetching.is_idle(),
            StoreMode::Processed | StoreMode::Manual | StoreMode::Never => {
                self.frontier.is_settled()
            }
        }
    }

    /// What is processed and not known to be stored.
    pub(super) fn unstored(&self) -> Option<Offset> {
        self.storing.unstored(self.frontier.processed())
    }

    /// What is worth storing now: what is not being stored either.
    pub(super) fn to_store(&self) -> Option<Offset> {
        self.storing.to_store(self.frontier.processed())
    }

    /// Whether it may still be stored for.
    pub(super) const fn may_store(&self) -> bool {
        matches!(self.state, State::Owned | State::Revoking { .. })
    }
}
