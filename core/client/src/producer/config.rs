//! What a producer needs to know.

use core::time::Duration;

use wire::{FRAME_SIZE_MAX, Identifier, ProducerId};

use crate::Backoff;

/// Where a producer sends, and how it batches.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// The stream. By id, the producer stays with the stream that it was made for, whatever is made under
    /// the name later.
    pub stream: Identifier,
    /// The topic.
    pub topic: Identifier,
    /// How many partitions the topic has now; followed by asking every `refresh_interval`.
    pub partitions: u32,
    /// Names the producer to the partitions, which tell repeated batches by it; not 0, to be chosen at
    /// random.
    pub producer: ProducerId,
    /// Seeds the jitter of the back-off; to be chosen at random.
    pub seed: u64,
    /// Bytes at which a batch is closed; one larger message makes a batch of its own.
    pub batch_size_max: usize,
    /// Messages at which a batch is closed.
    pub batch_messages_max: u32,
    /// How long a batch waits for more messages. With 0 it goes as soon as the windows allow, and fills
    /// while they do not.
    pub linger: Duration,
    /// Bytes of batches at which a request is full. Each partition has at most one batch in a request.
    pub request_size_max: usize,
    /// Requests that may be unanswered.
    pub in_flight_max: usize,
    /// Batches of one partition that may be unanswered; more than five come to nothing, since partitions
    /// remember the last five of a producer.
    pub in_flight_per_partition_max: usize,
    /// Bytes of batches that may be held, unanswered ones included; then `push` says that it is full.
    pub memory_max: usize,
    /// How long a message may take from `push` to its answer; then it has failed.
    pub delivery_timeout: Duration,
    /// How long one request may take before it is sent again.
    pub request_timeout: Duration,
    /// Pauses before a refused batch is sent again.
    pub backoff: Backoff,
    /// How often the number of partitions is asked for.
    pub refresh_interval: Duration,
    /// Bytes of the largest frame that the server takes.
    pub frame_size_max: u32,
}

impl ProducerConfig {
    /// The defaults: batches of up to 1 MiB or 10,000 messages, no linger, requests of up to 2 MiB, eight
    /// of them and two batches per partition unanswered, 32 MiB held, 120 s for a delivery and 30 s for a
    /// request, the topic asked for every 60 s.
    #[must_use]
    pub fn new(
        stream: Identifier,
        topic: Identifier,
        partitions: u32,
        producer: ProducerId,
        seed: u64,
    ) -> Self {
        Self {
            stream,
            topic,
            partitions,
            producer,
            seed,
            batch_size_max: 1024 * 1024,
            batch_messages_max: 10_000,
            linger: Duration::ZERO,
            request_size_max: 2 * 1024 * 1024,
            in_flight_max: 8,
            in_flight_per_partition_max: 2,
            memory_max: 32 * 1024 * 1024,
            delivery_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            backoff: Backoff::default(),
            refresh_interval: Duration::from_secs(60),
            frame_size_max: FRAME_SIZE_MAX,
        }
    }
}
