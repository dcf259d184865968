//! What a consumer needs to know.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use wire::{Identifier, Offset, PartitionId, Timestamp};

use crate::Backoff;

/// Where a consumer begins in a partition for which nothing is stored. A partition that is added while it
/// reads is read from its oldest message; that, too, only a stored offset keeps for the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest message.
    First,
    /// So many messages before the end; with 0, at the next message that is sent. Resolved once, and then
    /// stored: messages sent before the consumer stores for the first time are not passed over when it
    /// starts again. Only an end at offset 0 cannot be stored.
    Last(u64),
    /// At this offset, or at the oldest message if that is later. One that no message has yet is waited for.
    Offset(Offset),
    /// At the first message that the broker appended at or after this time.
    Timestamp(Timestamp),
}

/// When the offset of a message is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreMode {
    /// After it was processed: when the next message is asked for, or the consumer is finished. A message
    /// whose processing fails or ends with the process is delivered again: at least once.
    #[default]
    Processed,
    /// When the application says so, message by message in any order ([`Consumer::acknowledge`]: the
    /// highest offset below which everything is acknowledged is stored), or by offset
    /// ([`Consumer::store`]).
    ///
    /// [`Consumer::acknowledge`]: crate::Consumer::acknowledge
    /// [`Consumer::store`]: crate::Consumer::store
    Manual,
    /// By the server, before it is delivered. **At most once**: what was fetched and not processed when the
    /// process ends is never delivered again.
    BeforeDelivery,
    /// Never. The consumer only reads.
    Never,
}

/// What a consumer reads, and how far ahead.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The stream. By id, the consumer stays with the stream that it was made for, whatever is made under
    /// the name later.
    pub stream: Identifier,
    /// The topic.
    pub topic: Identifier,
    /// The consumer's full name, under which its offsets are stored.
    pub name: String,
    /// The partitions to read; `None`: all, also those that are added later.
    pub partitions: Option<Vec<PartitionId>>,
    /// Seeds the jitter of the back-off; to be chosen at random.
    pub seed: u64,
    /// Where to begin when nothing is stored.
    pub start: Start,
    /// Whether to go on behind the stored offset. Otherwise `start` counts, whatever is stored.
    pub resume: bool,
    /// When offsets are stored.
    pub store: StoreMode,
    /// Whether the consumer is finished when it has delivered what was there when it began.
    pub stop_at_end: bool,
    /// The most messages of one poll, at least 1. Whole batches are served, so it can be more.
    pub poll_messages_max: u32,
    /// The most bytes of one poll; one larger batch is served all the same.
    pub poll_size_max: u32,
    /// Bytes that end the wait of a poll.
    pub poll_size_min: u32,
    /// The longest wait of a poll for messages.
    pub poll_wait_max: Duration,
    /// Polls that may be unanswered at one node. Each may bring `poll_size_max` bytes above `buffer_size_max`.
    pub polls_max: usize,
    /// Bytes of batches that are fetched ahead, over all partitions; each partition has an equal share.
    pub buffer_size_max: usize,
    /// The longest time between the processing of a message and the request to store its offset.
    pub store_interval: Duration,
    /// Processed messages of a partition after which its offset is stored, however short the time.
    pub store_messages: u64,
    /// How long one request may take, beside the wait of a poll.
    pub request_timeout: Duration,
    /// Pauses before a refused request is sent again.
    pub backoff: Backoff,
    /// How often the topic is asked for partitions that were added.
    pub refresh_interval: Duration,
}

impl ConsumerConfig {
    /// The defaults: all partitions, from the first message or behind the stored one, stored after
    /// processing every 100 ms or 1,000 messages; polls of up to 1 MiB or 10,000 messages that wait up to
    /// 5 s, 8 MiB fetched ahead, 30 s for a request, the topic asked for every 60 s.
    #[must_use]
    pub fn new(stream: Identifier, topic: Identifier, name: String, seed: u64) -> Self {
        Self {
            stream,
            topic,
            name,
            partitions: None,
            seed,
            start: Start::First,
            resume: true,
            store: StoreMode::default(),
            stop_at_end: false,
            poll_messages_max: 10_000,
            poll_size_max: 1024 * 1024,
            poll_size_min: 1,
            poll_wait_max: Duration::from_secs(5),
            polls_max: 4,
            buffer_size_max: 8 * 1024 * 1024,
            store_interval: Duration::from_millis(100),
            store_messages: 1_000,
            request_timeout: Duration::from_secs(30),
            backoff: Backoff::default(),
            refresh_interval: Duration::from_secs(60),
        }
    }
}
