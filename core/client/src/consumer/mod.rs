//! A single consumer: positions, messages fetched ahead, stored offsets.

mod assignment;
mod config;
mod fetching;
mod storing;

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use wire::{
    Compression, DecodeError, Epoch, ErrorCode, Failure, Message, Offset, PartitionId, ReplicaId,
    Reply, Request, Time, Timestamp,
};

use crate::{Call, ClientError, nanoseconds, random::Random, turns::Turn};

use assignment::{Assignment, Position};
pub use config::{ConsumerConfig, Start, StoreMode};

/// A message for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its partition.
    pub partition: PartitionId,
    /// The epoch under which the partition is owned; 0 for a single consumer.
    pub epoch: Epoch,
    /// When the broker appended it.
    pub appended: Timestamp,
    /// The message.
    pub message: Message,
}

/// How far a consumer has got in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The partition.
    pub partition: PartitionId,
    /// The offset that is delivered next, when it is known.
    pub next: Option<Offset>,
    /// The last message processed, as stored.
    pub stored: Option<Offset>,
    /// The offset behind the newest message, as of the latest answer.
    pub end: Option<Offset>,
}

/// Why a consumer cannot go on, in one partition or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerError {
    /// The server refused what it will always refuse.
    #[error("{0}")]
    Request(ClientError),
    /// A batch is not what its producer sent.
    #[error("partition {partition}, near offset {offset}: {error}")]
    Damaged {
        /// The partition.
        partition: PartitionId,
        /// Where the poll began.
        offset: Offset,
        /// What is wrong.
        error: DecodeError,
    },
    /// A batch is compressed, and this client cannot read that.
    #[error(
        "partition {partition}, offset {offset}: the batch is compressed ({compression:?}), which this client cannot read"
    )]
    Compressed {
        /// The partition.
        partition: PartitionId,
        /// The batch's first message.
        offset: Offset,
        /// How.
        compression: Compression,
    },
}

/// What happens to a consumer beside messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerEvent {
    /// Messages were gone before they were read: retention has removed them.
    Skipped {
        /// The partition.
        partition: PartitionId,
        /// The offset that was wanted.
        from: Offset,
        /// The oldest one that is left.
        to: Offset,
    },
    /// An offset was refused for good. What is processed later is tried again.
    StoreRefused {
        /// The partition.
        partition: PartitionId,
        /// The offset.
        offset: Offset,
        /// Why.
        failure: Failure,
    },
    /// A request failed; it is tried again.
    Retrying {
        /// Why.
        error: ClientError,
    },
    /// A partition cannot be read any more; the others go on.
    PartitionFailed {
        /// The partition.
        partition: PartitionId,
        /// Why.
        error: ConsumerError,
    },
    /// The consumer cannot go on.
    Failed(ConsumerError),
}

/// What the shell has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum ConsumerEffect {
    /// Give this request to the session, which may send it again ([`Retry::Session`](crate::Retry)), and
    /// report it with [`Consumer::handle`].
    Submit {
        /// The request.
        call: Call,
        /// What is asked.
        request: Request,
        /// How long it may take.
        timeout: Duration,
        /// The node that leads what it is for, as far as known.
        node: Option<ReplicaId>,
    },
    /// Tell the application.
    Event(ConsumerEvent),
}

/// One event for a consumer.
#[derive(Clone, Debug)]
pub enum ConsumerInput {
    /// A request of [`ConsumerEffect::Submit`] has ended.
    Answered {
        /// The request.
        call: Call,
        /// Its reply, or why there is none.
        result: Result<Reply, ClientError>,
    },
    /// What is processed is to be stored without more delay. It is done when [`Consumer::is_stored`] says
    /// so.
    Flush,
    /// A consensus group has another primary: what was refused for want of one is tried again.
    PrimaryChanged,
    /// Time has passed, see [`Consumer::deadline`].
    Tick,
}

/// The client side of a single consumer. See the crate's documentation for how it is driven.
///
/// It keeps its own position per partition: every message is delivered once, in order, until the consumer
/// is made anew; then it goes on behind the stored offsets.
#[derive(Debug)]
pub struct Consumer {
    config: ConsumerConfig,
    random: Random,
    now: u64,
    /// By partition.
    assignments: BTreeMap<PartitionId, Assignment>,
    /// What the unanswered requests are for.
    calls: BTreeMap<Call, Asked>,
    /// The unanswered request for the topic.
    refresh: Option<Call>,
    refresh_at: u64,
    /// Whether the topic was asked for at least once, or need not be.
    partitions_known: bool,
    /// The partition that comes first in the next poll.
    poll_cursor: PartitionId,
    /// The partition that messages are delivered from.
    turn: Turn,
    /// The message delivered last, until it counts as processed.
    unsettled: Option<(PartitionId, Offset)>,
    /// Bytes of batches fetched ahead.
    buffered: usize,
    failed: bool,
    /// When something is due.
    due: Option<u64>,
    next_call: u64,
    effects: VecDeque<ConsumerEffect>,
}

/// What a request is for.
#[derive(Clone, Debug)]
enum Asked {
    Offsets(Vec<PartitionId>),
    /// The node that is asked, partitions, and where the poll begins in each.
    Messages(Option<ReplicaId>, Vec<(PartitionId, Position)>),
    Store(Vec<(PartitionId, Offset)>),
}

impl Consumer {
    /// A consumer that begins when it is first given an input.
    ///
    /// # Panics
    /// When a limit of the configuration is 0.
    #[must_use]
    pub fn new(now: Time, config: ConsumerConfig) -> Self {
        assert!(config.poll_messages_max > 0);
        assert!(config.polls_max > 0);
        assert!(config.buffer_size_max > 0);
        let given = config.partitions.clone();
        let mut consumer = Self {
            random: Random::new(config.seed),
            now: now.monotonic,
            assignments: BTreeMap::new(),
            calls: BTreeMap::new(),
            refresh: None,
            refresh_at: now.monotonic,
            partitions_known: given.is_some(),
            poll_cursor: PartitionId(0),
            turn: Turn::FIRST,
            unsettled: None,
            buffered: 0,
            failed: false,
            due: Some(now.monotonic),
            next_call: 0,
            effects: VecDeque::new(),
            config,
        };
        let start = consumer.config.start;
        for partition in given.unwrap_or_default() {
            consumer.assign(partition, start);
        }
        consumer
    }

    /// Feeds one event.
    pub fn handle(&mut self, now: Time, input: ConsumerInput) {
        self.now = self.now.max(now.monotonic);
        match input {
            ConsumerInput::Answered { call, result } => self.on_answer(call, result),
            ConsumerInput::Flush => self.on_flush(),
            ConsumerInput::PrimaryChanged => self.on_primary_changed(),
            ConsumerInput::Tick => {}
        }
        self.drive();
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<ConsumerEffect> {
        self.effects.pop_front()
    }

    /// The monotonic time at which [`ConsumerInput::Tick`] is wanted if nothing else happens before.
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        self.due
    }

    /// The next message, if one is there. Asking for it says that the one before is processed
    /// ([`StoreMode::Processed`]).
    pub fn next_message(&mut self, now: Time) -> Option<Delivery> {
        self.now = self.now.max(now.monotonic);
        let settled = self.unsettled;
        self.settle_last();
        let buffered = self.buffered;
        let delivery = if self.failed {
            None
        } else {
            self.take_message()
        };
        if let Some(delivery) = &delivery {
            self.on_delivered(delivery.partition, delivery.message.offset);
        }
        // Most messages leave nothing to do: no room was made, and there is time to store.
        let store = settled.is_some_and(|(partition, _)| self.is_store_due(partition));
        if delivery.is_none() || store || self.buffered != buffered {
            self.drive();
        }
        delivery
    }

    /// A message is processed, whatever its order among the others. Says whether that was news.
    pub fn acknowledge(&mut self, now: Time, partition: PartitionId, offset: Offset) -> bool {
        self.now = self.now.max(now.monotonic);
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return false;
        };
        let news = assignment.frontier.acknowledge(offset);
        self.note_progress(partition);
        self.drive();
        news
    }

    /// Everything of a partition up to `offset` is processed, and is to be stored at once. It is done when
    /// [`Consumer::progress`] shows it as stored. Says whether the consumer has the partition
    /// and stores at all.
    pub fn store(&mut self, now: Time, partition: PartitionId, offset: Offset) -> bool {
        self.now = self.now.max(now.monotonic);
        if self.config.store == StoreMode::Never {
            return false;
        }
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return false;
        };
        assignment.frontier.acknowledge_through(offset);
        assignment.named = assignment.named.max(Some(offset));
        assignment.storing.refused = None;
        assignment.storing.urgent = true;
        self.note_progress(partition);
        self.drive();
        true
    }

    /// The message delivered last is processed as well: there will be no next one
    /// ([`StoreMode::Processed`]).
    pub fn settle_last(&mut self) {
        let Some((partition, offset)) = self.unsettled.take() else {
            return;
        };
        if let Some(assignment) = self.assignments.get_mut(&partition) {
            assignment.frontier.acknowledge(offset);
        }
        self.note_progress(partition);
    }

    /// Goes to another place in a partition: what was fetched ahead is dropped. Says whether the consumer
    /// has the partition.
    pub fn seek(&mut self, now: Time, partition: PartitionId, start: Start) -> bool {
        self.now = self.now.max(now.monotonic);
        let Some(old) = self.assignments.get(&partition) else {
            return false;
        };
        let mut assignment = Assignment::new(partition, old.epoch, start);
        assignment.sought = true;
        assignment.storing.stored = old.storing.stored;
        self.remove(partition);
        self.assignments.insert(partition, assignment);
        if self
            .unsettled
            .is_some_and(|(unsettled, _)| unsettled == partition)
        {
            self.unsettled = None;
        }
        self.drive();
        true
    }

    /// How far the consumer has got, by partition.
    pub fn progress(&self) -> impl Iterator<Item = Progress> + '_ {
        self.assignments.values().map(Assignment::summary)
    }

    /// Whether there will be no more messages: all that was there at the beginning is delivered
    /// (`stop_at_end`), or nothing can be read any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let mut assignments = self.assignments.values();
        let known = self.partitions_known && !self.assignments.is_empty();
        self.failed || known && assignments.all(Assignment::is_finished)
    }

    /// Whether nothing is left that could be stored, except what the server refused.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        let mut assignments = self.assignments.values();
        assignments.all(|assignment| {
            let processed = assignment.processed();
            assignment.storing.call.is_none() && assignment.storing.to_store(processed).is_none()
        })
    }

    /// Whether the consumer cannot go on; an event told why.
    #[must_use]
    pub const fn is_failed(&self) -> bool {
        self.failed
    }

    /// Whether a message is probably there to be taken.
    #[must_use]
    pub fn has_message(&self) -> bool {
        !self.failed && self.buffered > 0
    }

    fn assign(&mut self, partition: PartitionId, start: Start) {
        self.assignments
            .entry(partition)
            .or_insert_with(|| Assignment::new(partition, Epoch(0), start));
    }

    fn remove(&mut self, partition: PartitionId) {
        if let Some(assignment) = self.assignments.remove(&partition) {
            self.buffered -= assignment.fetching.size();
        }
    }

    /// Does whatever is due.
    fn drive(&mut self) {
        if !self.failed {
            self.refresh();
            self.ask_offsets();
            self.poll();
            self.store_due();
        }
        self.due = self.next_due();
    }

    fn next_due(&self) -> Option<u64> {
        if self.failed {
            return None;
        }
        let refresh = self.wants_refresh().then_some(self.refresh_at);
        let assignments = self.assignments.values().filter_map(|assignment| {
            let unblocked = Some(assignment.fetching.blocked_until).filter(|time| *time > self.now);
            let store = self.store_deadline(assignment);
            unblocked.into_iter().chain(store).min()
        });
        assignments.chain(refresh).min()
    }

    fn take_message(&mut self) -> Option<Delivery> {
        let turn = &mut self.turn;
        let partition = turn.pass(&self.assignments, |own| !own.fetching.is_empty())?;
        let assignment = self.assignments.get_mut(&partition)?;
        let (delivery, freed) = assignment.take();
        self.buffered -= freed;
        delivery.or_else(|| self.take_message())
    }

    fn on_delivered(&mut self, partition: PartitionId, offset: Offset) {
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return;
        };
        match self.config.store {
            StoreMode::Processed => {
                assignment.frontier.deliver(offset);
                self.unsettled = Some((partition, offset));
            }
            StoreMode::Manual => assignment.frontier.deliver(offset),
            StoreMode::BeforeDelivery | StoreMode::Never => {}
        }
    }

    fn on_answer(&mut self, call: Call, result: Result<Reply, ClientError>) {
        if self.refresh == Some(call) {
            self.refresh = None;
            return self.on_topic(result);
        }
        match self.calls.remove(&call) {
            None => {}
            Some(Asked::Offsets(partitions)) => self.on_offsets(call, &partitions, result),
            Some(Asked::Messages(_, sections)) => self.on_polled(call, &sections, result),
            Some(Asked::Store(sections)) => self.on_stored(call, &sections, result),
        }
    }

    /// The consumer cannot go on.
    fn fail(&mut self, error: ConsumerError) {
        if !self.failed {
            self.failed = true;
            self.event(ConsumerEvent::Failed(error));
        }
    }

    /// A partition cannot be read any more.
    fn fail_partition(&mut self, partition: PartitionId, error: ConsumerError) {
        if let Some(assignment) = self.assignments.get_mut(&partition) {
            assignment.fetching.faulty = true;
            self.event(ConsumerEvent::PartitionFailed { partition, error });
        }
    }

    fn event(&mut self, event: ConsumerEvent) {
        self.effects.push_back(ConsumerEffect::Event(event));
    }

    fn submit(&mut self, request: Request, wait: Duration, node: Option<ReplicaId>) -> Call {
        self.next_call += 1;
        let call = Call(self.next_call);
        let timeout = self.config.request_timeout.saturating_add(wait);
        self.effects.push_back(ConsumerEffect::Submit {
            call,
            request,
            timeout,
            node,
        });
        call
    }

    /// Leaves a partition alone for a while after a failure.
    fn block(&mut self, partition: PartitionId, refusal: Option<ErrorCode>) {
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return;
        };
        let pace = (&self.config.backoff, &mut self.random);
        assignment.fetching.fail(self.now, refusal, pace);
    }

    /// A consensus group has another primary: what waits for one need not wait any more.
    fn on_primary_changed(&mut self) {
        for assignment in self.assignments.values_mut() {
            assignment.fetching.wake();
            assignment.storing.wake();
        }
    }
}

/// The refusal of one section, as an error.
pub(crate) const fn refused(failure: Failure) -> ConsumerError {
    ConsumerError::Request(ClientError::Refused(failure))
}

#[cfg(test)]
mod tests;
