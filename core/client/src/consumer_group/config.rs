//! What a member of a consumer group needs to know.

use alloc::string::String;
use core::time::Duration;

use wire::{ConsumerGroupOptionsUpdate, Identifier};

use crate::{Backoff, StoreMode};

/// What group to join, and how to read.
#[derive(Clone, Debug)]
pub struct GroupConsumerConfig {
    /// The stream. By id, the consumer stays with the stream that it was made for, whatever is made under
    /// the name later.
    pub stream: Identifier,
    /// The topic.
    pub topic: Identifier,
    /// The consumer group. Once joined, it is named by its id.
    pub group: Identifier,
    /// Makes the group with these options when it is missing and named by name; `None`: that is an error.
    pub create: Option<ConsumerGroupOptionsUpdate>,
    /// Makes a static member, which another session with the same instance id takes over.
    pub instance: Option<String>,
    /// How large a share of the partitions it takes, compared with the other members.
    pub weight: u16,
    /// Seeds the jitter of the back-off; to be chosen at random.
    pub seed: u64,
    /// When offsets are stored. Not [`StoreMode::Never`].
    pub store: StoreMode,
    /// The most messages of one poll, at least 1. Whole batches are served, so it can be more.
    pub poll_messages_max: u32,
    /// The most bytes of one poll; one larger batch is served all the same.
    pub poll_size_max: u32,
    /// The longest wait of a poll for messages.
    pub poll_wait_max: Duration,
    /// Polls that may be unanswered at one node: one covers all partitions that are free when it is sent, the others
    /// those that come later. Each may bring `poll_size_max` bytes above `buffer_size_max`.
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
    /// How often the assignment is asked for although nothing tells of a change: events may be lost.
    pub sync_interval: Duration,
    /// How long the application may leave messages that are there for it, or were handed to it, without
    /// asking for the next one. Then the consumer leaves the group until it is asked again. `None`: for
    /// good.
    pub max_poll_interval: Option<Duration>,
}

impl GroupConsumerConfig {
    /// The defaults: a dynamic member of weight 1 in a group that exists, offsets stored after processing
    /// every 100 ms or 1,000 messages; polls of up to 1 MiB or 10,000 messages that wait up to 5 s, 8 MiB
    /// fetched ahead, 30 s for a request, a sync every 3 s, 5 minutes between two messages.
    #[must_use]
    pub fn new(stream: Identifier, topic: Identifier, group: Identifier, seed: u64) -> Self {
        Self {
            stream,
            topic,
            group,
            create: None,
            instance: None,
            weight: 1,
            seed,
            store: StoreMode::default(),
            poll_messages_max: 10_000,
            poll_size_max: 1024 * 1024,
            poll_wait_max: Duration::from_secs(5),
            polls_max: 4,
            buffer_size_max: 8 * 1024 * 1024,
            store_interval: Duration::from_millis(100),
            store_messages: 1_000,
            request_timeout: Duration::from_secs(30),
            backoff: Backoff::default(),
            sync_interval: Duration::from_secs(3),
            max_poll_interval: Some(Duration::from_mins(5)),
        }
    }
}
