//! A producer: batches, order, idempotence, back-pressure.

mod answers;
mod config;
mod queue;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use wire::{
    Acknowledgement, BATCH_HEADER_SIZE, BATCH_SIZE_MAX, BatchBuilder, GetTopic, KEY_SIZE_MAX,
    MESSAGE_HEADERS_SIZE_MAX, Message, Offset, PartitionId, PartitionTarget, ProducerId, ReplicaId,
    Reply, Request, SendMessages, SendSection, Time, partition_of_key,
};

use crate::{ClientError, nanoseconds, random::Random};

pub use config::ProducerConfig;
use queue::Queue;

/// Bytes of a frame that are not for batches: servers keep so many for what stands around a batch when it
/// is served.
const FRAME_RESERVE: usize = 64 * 1024;

/// Batches in one request: servers take at least as many sections.
const SECTIONS_MAX: usize = 128;

/// Names a batch of a producer, from 1, in the order in which they were begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// A producer's or consumer's name for one of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u64);

/// The partition of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// By the key; a message without one goes where the producer's current batch goes, and each batch to
    /// another partition in turn.
    #[default]
    Placed,
    /// This one.
    Partition(PartitionId),
}

/// Where a message was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The batch, whose end is told by [`ProducerEffect::Delivered`] or [`ProducerEffect::Failed`].
    pub batch: BatchId,
    /// The message's place in the batch: its offset is the base offset and this.
    pub index: u32,
    /// The partition.
    pub partition: PartitionId,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// As many bytes as allowed are held; there is room again after a batch has ended.
    #[error("{held} bytes of messages wait for the server; the limit is {limit}")]
    Full {
        /// Bytes held.
        held: usize,
        /// Bytes that may be held.
        limit: usize,
    },
    /// The message is too large for a request.
    #[error("a message of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// Bytes of the message with key and headers.
        size: usize,
        /// Bytes that a message may have.
        limit: usize,
    },
    /// The key is too long.
    #[error("a key of {size} bytes exceeds the limit of {KEY_SIZE_MAX} bytes")]
    KeyTooLarge {
        /// Bytes of the key.
        size: usize,
    },
    /// The headers take too much together.
    #[error("headers of {size} bytes exceed the limit of {MESSAGE_HEADERS_SIZE_MAX} bytes")]
    HeadersTooLarge {
        /// Bytes of the headers as encoded.
        size: usize,
    },
    /// The topic has no such partition.
    #[error("the topic has {partitions} partitions, from 0; there is no partition {partition}")]
    NoPartition {
        /// The partition asked for.
        partition: PartitionId,
        /// How many there are.
        partitions: u32,
    },
}

/// One event for a producer.
#[derive(Clone, Debug)]
pub enum ProducerInput {
    /// A request of [`ProducerEffect::Submit`] has ended.
    Answered {
        /// The request.
        call: Call,
        /// Its reply, or why there is none.
        result: Result<Reply, ClientError>,
    },
    /// What was pushed is to be sent without more linger.
    Flush,
    /// A consensus group has another primary: what was refused for want of one is tried again.
    PrimaryChanged,
    /// Time has passed, see [`Producer::deadline`].
    Tick,
}

/// What the shell has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum ProducerEffect {
    /// Give this request to the session, to be sent once ([`Retry::Caller`](crate::Retry::Caller)), and
    /// report [`ProducerInput::Answered`]. Requests of a producer to the same node keep their order
    /// ([`Route`](crate::Route)).
    Submit {
        /// The request.
        call: Call,
        /// What is asked.
        request: Request,
        /// How long it may take.
        timeout: Duration,
        /// The node that leads the partitions, as far as known.
        node: Option<ReplicaId>,
    },
    /// All messages of a batch are stored by a quorum.
    Delivered {
        /// The batch.
        batch: BatchId,
        /// Its partition.
        partition: PartitionId,
        /// The offset of its first message.
        base_offset: Offset,
        /// How many messages it has.
        count: u32,
    },
    /// A batch was given up.
    Failed {
        /// The batch.
        batch: BatchId,
        /// Its partition.
        partition: PartitionId,
        /// How many messages it has.
        count: u32,
        /// Why.
        error: ClientError,
        /// Whether it may have been stored all the same.
        may_be_stored: bool,
    },
}

/// The client side of a producer. See the crate's documentation for how it is driven.
///
/// Messages of a partition are stored in the order in which they were pushed, each at most once, and none
/// behind one that is still being tried. A message counts as sent when its batch is delivered.
#[derive(Debug)]
pub struct Producer {
    config: ProducerConfig,
    random: Random,
    now: u64,
    /// One per partition that was ever sent to, by its id.
    queues: Vec<Queue>,
    /// Partitions whose queue is not empty.
    active: BTreeSet<usize>,
    /// How many partitions the topic has.
    partitions: u32,
    /// Where messages without key go.
    sticky: usize,
    /// The partition that comes first in the next request.
    cursor: usize,
    /// Requests that are unanswered: the batches of each, in the order of its sections.
    calls: BTreeMap<Call, Vec<(usize, BatchId)>>,
    /// The unanswered request for the topic.
    refresh: Option<Call>,
    refresh_at: u64,
    /// Bytes of batches held.
    held: usize,
    next_batch: u64,
    next_call: u64,
    effects: VecDeque<ProducerEffect>,
}

impl Producer {
    /// A producer that has sent nothing.
    ///
    /// # Panics
    /// When the configuration contradicts itself: no partition, producer id 0, a limit of 0.
    #[must_use]
    pub fn new(now: Time, config: ProducerConfig) -> Self {
        assert!(config.partitions > 0);
        assert!(config.producer.0 != 0);
        assert!(config.in_flight_max > 0);
        assert!(config.in_flight_per_partition_max > 0);
        assert!(config.batch_messages_max > 0);
        Self {
            random: Random::new(config.seed),
            now: now.monotonic,
            queues: Vec::new(),
            active: BTreeSet::new(),
            partitions: config.partitions,
            sticky: 0,
            cursor: 0,
            calls: BTreeMap::new(),
            refresh: None,
            refresh_at: now.after(nanoseconds(config.refresh_interval)),
            held: 0,
            next_batch: 0,
            next_call: 0,
            effects: VecDeque::new(),
            config,
        }
    }

    /// Takes a message, whose `offset` is ignored.
    ///
    /// # Errors
    /// Why it was not taken. Nothing has changed then.
    pub fn push(
        &mut self,
        now: Time,
        target: Target,
        message: &Message,
    ) -> Result<Pushed, PushError> {
        self.now = self.now.max(now.monotonic);
        let size = self.check(message)?;
        let index = self.place(target, message)?;
        let queue = self.queue(index);
        if let Some(open) = &queue.open
            && open.builder.size() + size > self.batch_size_max()
        {
            self.seal(index);
        }
        let begun = self.queues[index].open.is_none();
        self.held += size + if begun { BATCH_HEADER_SIZE } else { 0 };
        let next = BatchId(self.next_batch + u64::from(begun));
        self.next_batch = next.0;
        let (batch, message_index) = self.queues[index].push(message, next, self.now);
        self.active.insert(index);
        if self.queues[index]
            .open
            .as_ref()
            .is_some_and(|open| self.is_full(&open.builder))
        {
            self.seal(index);
        }
        self.dispatch();
        let partition = partition_id(index);
        Ok(Pushed {
            batch,
            index: message_index,
            partition,
        })
    }

    /// Feeds one event.
    pub fn handle(&mut self, now: Time, input: ProducerInput) {
        self.now = self.now.max(now.monotonic);
        match input {
            ProducerInput::Answered { call, result } => self.on_answer(call, result),
            ProducerInput::Flush => self.on_flush(),
            ProducerInput::PrimaryChanged => self.on_primary_changed(),
            ProducerInput::Tick => {}
        }
        self.expire();
        self.refresh();
        self.dispatch();
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<ProducerEffect> {
        self.effects.pop_front()
    }

    /// The monotonic time at which [`ProducerInput::Tick`] is wanted if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let refresh = if self.refresh.is_some() {
            None
        } else {
            Some(self.refresh_at)
        };
        let queues = self
            .active
            .iter()
            .filter_map(|index| self.queue_deadline(&self.queues[*index]));
        queues.chain(refresh).min()
    }

    /// Bytes of batches held, unanswered ones included.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether nothing waits for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// The batch begun last; 0 before the first.
    #[must_use]
    pub const fn last_batch(&self) -> BatchId {
        BatchId(self.next_batch)
    }

    /// How many partitions the topic has, as far as known.
    #[must_use]
    pub const fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The bytes that a message takes, if it can be taken.
    fn check(&self, message: &Message) -> Result<usize, PushError> {
        if message.key.len() > KEY_SIZE_MAX {
            return Err(PushError::KeyTooLarge {
                size: message.key.len(),
            });
        }
        if message.headers.len() > MESSAGE_HEADERS_SIZE_MAX {
            return Err(PushError::HeadersTooLarge {
                size: message.headers.len(),
            });
        }
        let size = BatchBuilder::size_of(message);
        let limit = self
            .frame_room()
            .min(self.config.memory_max)
            .saturating_sub(BATCH_HEADER_SIZE);
        if size > limit {
            return Err(PushError::TooLarge { size, limit });
        }
        if self.held + size + BATCH_HEADER_SIZE > self.config.memory_max {
            return Err(PushError::Full {
                held: self.held,
                limit: self.config.memory_max,
            });
        }
        Ok(size)
    }

    /// Bytes of batches that a frame has room for.
    fn frame_room(&self) -> usize {
        let frame = usize::try_from(self.config.frame_size_max).unwrap_or(usize::MAX);
        let room = frame - FRAME_RESERVE.min(frame / 2);
        room.min(usize::try_from(BATCH_SIZE_MAX).unwrap_or(usize::MAX))
    }

    fn batch_size_max(&self) -> usize {
        self.config.batch_size_max.min(self.frame_room())
    }

    fn place(&self, target: Target, message: &Message) -> Result<usize, PushError> {
        match target {
            Target::Partition(partition) if partition.0 >= self.partitions => {
                Err(PushError::NoPartition {
                    partition,
                    partitions: self.partitions,
                })
            }
            Target::Partition(partition) => Ok(partition_index(partition)),
            Target::Placed if message.key.is_empty() => Ok(self.sticky),
            Target::Placed => Ok(partition_index(partition_of_key(
                &message.key,
                self.partitions,
            ))),
        }
    }

    fn queue(&mut self, index: usize) -> &mut Queue {
        let identity = self.config.producer;
        while self.queues.len() <= index {
            self.queues.push(Queue::new(identity));
        }
        &mut self.queues[index]
    }

    fn is_full(&self, builder: &BatchBuilder) -> bool {
        builder.size() >= self.batch_size_max() || builder.count() >= self.config.batch_messages_max
    }

    /// Closes a partition's open batch; messages without key move on to another partition.
    fn seal(&mut self, index: usize) {
        self.queues[index].seal();
        if index == self.sticky {
            self.sticky = self.next_sticky();
        }
    }

    /// The next partition in turn that has nothing waiting, else simply the next.
    fn next_sticky(&self) -> usize {
        let count = partition_index(PartitionId(self.partitions));
        let mut turn = (1..=count).map(|step| (self.sticky + step) % count);
        turn.find(|index| {
            self.queues
                .get(*index)
                .is_none_or(|queue| queue.batches.is_empty())
        })
        .unwrap_or((self.sticky + 1) % count)
    }

    fn on_flush(&mut self) {
        for index in &self.active {
            if let Some(open) = &mut self.queues[*index].open {
                open.flushed = true;
            }
        }
    }

    /// Whether the open batch need not wait for more messages.
    fn is_due(&self, open: &queue::Open) -> bool {
        open.flushed || self.now >= open.since.saturating_add(nanoseconds(self.config.linger))
    }

    /// Sends what the windows allow.
    fn dispatch(&mut self) {
        while self.calls.len() < self.config.in_flight_max {
            let (node, sections) = self.next_sections();
            if sections.is_empty() {
                break;
            }
            self.submit(node, sections);
        }
    }

    /// At most one batch of each partition, beginning with the partition whose turn it is: of all that its node
    /// leads.
    fn next_sections(&mut self) -> (Option<ReplicaId>, Vec<(usize, BatchId, SendSection)>) {
        let mut sections = Vec::new();
        let mut course = None;
        let mut passed = None;
        let mut size = 0;
        let size_max = self.config.request_size_max.min(self.frame_room());
        let turn = self
            .active
            .range(self.cursor..)
            .chain(self.active.range(..self.cursor));
        for index in turn.copied().collect::<Vec<_>>() {
            let Some(position) = self.ready(index) else {
                continue;
            };
            let batch_size = self.queues[index].batches[position].size;
            let full = size + batch_size > size_max || sections.len() == SECTIONS_MAX;
            if full && !sections.is_empty() {
                passed.get_or_insert(index);
                break;
            }
            if !self.queues[index].joins(&mut course) {
                passed.get_or_insert(index);
                continue;
            }
            size += batch_size;
            let id = self.queues[index].batches[position].id;
            let batch = self.queues[index].send(position);
            let target = PartitionTarget::Explicit(partition_id(index));
            sections.push((index, id, SendSection { target, batch }));
        }
        let behind = sections.last().map(|(index, ..)| index + 1);
        self.cursor = passed.or(behind).unwrap_or(self.cursor);
        let node = course.flatten();
        for (index, ..) in &sections {
            self.queues[*index].bind(node);
        }
        (node, sections)
    }

    /// The batch of a partition that may be sent now; closes the open batch if it is its turn.
    fn ready(&mut self, index: usize) -> Option<usize> {
        let window = self.config.in_flight_per_partition_max;
        let queue = &self.queues[index];
        if let Some(position) = queue.next_to_send(self.now, window) {
            return Some(position);
        }
        let due = queue.open.as_ref().is_some_and(|open| self.is_due(open));
        let all_sent = queue.batches.iter().all(|batch| batch.in_flight);
        if !due || !all_sent || !queue.may_send(self.now, window) {
            return None;
        }
        self.seal(index);
        self.queues[index].next_to_send(self.now, window)
    }

    fn submit(&mut self, node: Option<ReplicaId>, sections: Vec<(usize, BatchId, SendSection)>) {
        let call = self.call();
        let batches = sections
            .iter()
            .map(|(index, id, _)| (*index, *id))
            .collect();
        self.calls.insert(call, batches);
        let oldest = sections
            .iter()
            .filter_map(|(index, id, _)| {
                let queue = &self.queues[*index];
                queue
                    .position(*id)
                    .map(|position| queue.batches[position].since)
            })
            .min()
            .unwrap_or(self.now);
        let left = oldest
            .saturating_add(nanoseconds(self.config.delivery_timeout))
            .saturating_sub(self.now);
        let timeout = self.config.request_timeout.min(Duration::from_nanos(left));
        let request = Request::SendMessages(SendMessages {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
            acknowledgement: Acknowledgement::Quorum,
            sections: sections.into_iter().map(|(.., section)| section).collect(),
        });
        self.effects.push_back(ProducerEffect::Submit {
            call,
            request,
            timeout,
            node,
        });
    }

    fn refresh(&mut self) {
        if self.refresh.is_some() || self.now < self.refresh_at {
            return;
        }
        let call = self.call();
        self.refresh = Some(call);
        let request = Request::GetTopic(GetTopic {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
        });
        let timeout = self.config.request_timeout;
        self.effects.push_back(ProducerEffect::Submit {
            call,
            request,
            timeout,
            node: None,
        });
    }

    fn call(&mut self) -> Call {
        self.next_call += 1;
        Call(self.next_call)
    }

    fn queue_deadline(&self, queue: &Queue) -> Option<u64> {
        let delivery = nanoseconds(self.config.delivery_timeout);
        let first = queue.batches.front().filter(|batch| !batch.in_flight);
        let expiry = first.map(|batch| batch.since.saturating_add(delivery));
        let waiting = queue.batches.iter().find(|batch| !batch.in_flight);
        let unblocked = waiting.map(|_| queue.blocked_until);
        // A batch that waits for a window is sent when an answer comes, not when time passes.
        let unblocked = unblocked.filter(|time| *time > self.now);
        let linger = queue.open.as_ref().and_then(|open| {
            let due = open
                .since
                .saturating_add(nanoseconds(self.config.linger))
                .max(queue.blocked_until);
            (due > self.now).then_some(due)
        });
        [expiry, unblocked, linger].into_iter().flatten().min()
    }
}

fn partition_id(index: usize) -> PartitionId {
    PartitionId(u32::try_from(index).expect("partitions are counted by a u32"))
}

fn partition_index(partition: PartitionId) -> usize {
    usize::try_from(partition.0).expect("a u32 fits a usize")
}

/// An identity that no other producer has, as far as chance goes.
fn identity(base: ProducerId, random: &mut Random) -> ProducerId {
    let mixed = base.0 ^ (u128::from(random.next()) << 64 | u128::from(random.next()));
    ProducerId(mixed.max(1))
}

#[cfg(test)]
mod tests;
