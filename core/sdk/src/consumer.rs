//! Receiving.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use client::{ConsumerConfig, ConsumerEvent, Progress, Start, StoreMode};
use futures_core::Stream;
use tokio::sync::oneshot;
use wire::{Command, Offset, PartitionId};

use crate::{
    Client, Error, Id, Received,
    client::random_u64,
    core::{ConsumerEntry, MachineId, Next},
    id::check,
    listener::Listener,
    message::ConsumerRef,
    waiting::{in_time, timed_out},
};

/// The name that a consumer without a name of its own is polled under. Nothing is stored under it.
const READER_NAME: &str = "reader";

/// How a consumer reads. Made by [`Client::consumer`] and [`Client::reader`].
pub struct ConsumerBuilder {
    client: Client,
    stream: Id,
    topic: Id,
    name: Option<String>,
    partitions: Option<Vec<PartitionId>>,
    start: Start,
    resume: bool,
    store: StoreMode,
    stop_at_end: bool,
    buffer: Option<usize>,
    poll: Option<(u32, u32)>,
    wait: Option<Duration>,
    store_interval: Option<Duration>,
    on_event: Option<Listener<ConsumerEvent>>,
}

/// A consumer of one topic: a stream of its messages, in order within each partition, the partitions in
/// turn.
///
/// What is stored for a consumer is the offset of the last message *processed*; a consumer that is built
/// anew under the same name goes on behind it. When a message counts as processed is the [`StoreMode`]'s
/// choice. By default that is when the next message is asked for, so that nothing is lost: a message whose
/// handling fails, or does not end, is delivered again. Polling twice without storing anything never skips
/// a message.
///
/// - An `Err` in the stream tells of one partition or of the consumer as a whole; after an error of the
///   whole the stream ends. Lost connections and whatever else passes is retried without a word, except to
///   [`ConsumerBuilder::on_event`].
/// - The consumer stays with the topic that it was built for: when that is deleted it fails, even if
///   another one of the same name is made.
///
/// Dropping it stores nothing more; [`Consumer::close`] does.
pub struct Consumer {
    client: Client,
    consumer: Arc<ConsumerRef>,
    id: MachineId,
    on_event: Option<Listener<ConsumerEvent>>,
    /// The stream has ended.
    ended: bool,
}

impl ConsumerBuilder {
    pub(crate) fn new(client: Client, stream: Id, topic: Id, name: Option<String>) -> Self {
        let store = if name.is_some() {
            StoreMode::default()
        } else {
            StoreMode::Never
        };
        Self {
            client,
            stream,
            topic,
            resume: name.is_some(),
            name,
            partitions: None,
            start: Start::First,
            store,
            stop_at_end: false,
            buffer: None,
            poll: None,
            wait: None,
            store_interval: None,
            on_event: None,
        }
    }

    /// Reads only these partitions. Otherwise all, also those that are added later.
    #[must_use]
    pub fn partitions(
        mut self,
        partitions: impl IntoIterator<Item = impl Into<PartitionId>>,
    ) -> Self {
        self.partitions = Some(partitions.into_iter().map(Into::into).collect());
        self
    }

    /// Sets where to begin in partitions for which nothing is stored: at the first message unless set.
    #[must_use]
    pub const fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets whether to go on behind what is stored, which is so unless set. Otherwise the start counts,
    /// whatever is stored; storing goes on, but never back.
    #[must_use]
    pub const fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Sets when offsets are stored.
    #[must_use]
    pub const fn store(mut self, store: StoreMode) -> Self {
        self.store = store;
        self
    }

    /// Sets how soon after processing an offset is stored at the latest, 100 ms unless set.
    #[must_use]
    pub const fn store_interval(mut self, interval: Duration) -> Self {
        self.store_interval = Some(interval);
        self
    }

    /// Ends the stream behind what is there when the consumer is built.
    #[must_use]
    pub const fn stop_at_end(mut self, stop: bool) -> Self {
        self.stop_at_end = stop;
        self
    }

    /// Sets how many bytes are fetched ahead over all partitions, 8 MiB unless set. Up to four polls, of
    /// which each may bring its limit, come on top.
    #[must_use]
    pub const fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = Some(bytes);
        self
    }

    /// Sets the limits of one poll, 10,000 messages and 1 MiB unless set. At least one batch is served,
    /// however large.
    #[must_use]
    pub const fn poll_limits(mut self, messages: u32, bytes: u32) -> Self {
        self.poll = Some((messages, bytes));
        self
    }

    /// Sets how long a poll waits at the server for messages, 5 s unless set, at most 30 s by default of the
    /// server. New messages end the wait at once.
    #[must_use]
    pub const fn poll_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets what is called for everything that happens beside messages: gaps that retention made, refused
    /// stores, failures that are retried. It is called while the next message is asked for, before that is
    /// given out.
    #[must_use]
    pub fn on_event(mut self, on_event: impl FnMut(&ConsumerEvent) + Send + 'static) -> Self {
        self.on_event = Some(Listener::new(on_event));
        self
    }

    /// Looks up the topic and makes the consumer.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`, `PartitionNotFound`; when the name is not one, or a setting is 0
    /// that must not be.
    pub async fn build(mut self) -> Result<Consumer, Error> {
        let invalid = |what, problem: &str| Error::Invalid {
            what,
            problem: problem.to_string(),
        };
        let name = match &self.name {
            Some(name) => {
                check("consumer", name)?;
                name.clone()
            }
            None if self.store != StoreMode::Never => {
                return Err(invalid("consumer", "to store offsets it needs a name"));
            }
            None => READER_NAME.to_string(),
        };
        if self.buffer == Some(0)
            || self
                .poll
                .is_some_and(|(messages, bytes)| messages == 0 || bytes == 0)
        {
            return Err(invalid("limits of polls and buffer", "0 is not allowed"));
        }
        let topic = self
            .client
            .topic(self.stream.clone(), self.topic.clone())
            .await?;
        for partition in self.partitions.iter().flatten() {
            if !topic.partitions.iter().any(|own| own.id == *partition) {
                let count = topic.partitions.len();
                let text = format!(
                    "topic {:?} has {count} partitions, from 0; there is no partition {partition}",
                    topic.name
                );
                return Err(Error::Refused {
                    code: wire::ErrorCode::PartitionNotFound,
                    text,
                });
            }
        }
        if self.partitions.as_ref().is_some_and(Vec::is_empty) {
            return Err(invalid("partitions", "none are given"));
        }
        let mut config =
            ConsumerConfig::new(topic.stream.into(), topic.id.into(), name, random_u64()?);
        let on_event = self.on_event.take();
        self.configure(&mut config);
        Ok(Consumer::start(self.client, config, on_event))
    }

    fn configure(&mut self, config: &mut ConsumerConfig) {
        config.partitions = self.partitions.take();
        config.start = self.start;
        config.resume = self.resume;
        config.store = self.store;
        config.stop_at_end = self.stop_at_end;
        if let Some(bytes) = self.buffer {
            config.buffer_size_max = bytes;
        }
        if let Some((messages, bytes)) = self.poll {
            config.poll_messages_max = messages;
            config.poll_size_max = bytes;
        }
        if let Some(wait) = self.wait {
            config.poll_wait_max = wait;
        }
        if let Some(interval) = self.store_interval {
            config.store_interval = interval;
        }
    }
}

impl Consumer {
    fn start(
        client: Client,
        config: ConsumerConfig,
        on_event: Option<Listener<ConsumerEvent>>,
    ) -> Self {
        let shared = client.shared();
        let now = shared.now();
        let mut core = shared.lock();
        let id = core.machine_id();
        let machine = client::Consumer::new(now, config);
        core.consumers
            .insert(id, ConsumerEntry::new(machine, id.lane()));
        core.with_consumer(shared, id, |consumer, now| {
            consumer.handle(now, client::ConsumerInput::Tick);
        });
        drop(core);
        let consumer = Arc::new(ConsumerRef {
            shared: Arc::downgrade(shared),
            id,
        });
        Self {
            client,
            consumer,
            id,
            on_event,
            ended: false,
        }
    }

    /// The next message; `None` when there will be no more. Asking says that the message before is processed
    /// ([`StoreMode::Processed`]).
    ///
    /// May be dropped before it is ready: nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Received, Error>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Result<Received, Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let shared = self.client.shared();
            let next = shared.lock().next(shared, self.id, context);
            match next {
                Next::Message(delivery) => {
                    let received = Received::new(delivery, None, &self.consumer);
                    return Poll::Ready(Some(Ok(received)));
                }
                Next::Wait => return Poll::Pending,
                Next::End => self.ended = true,
                Next::Event(event) => {
                    if let Some(error) = self.on_event(event) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
    }

    /// Tells of an event; gives the error that belongs into the stream of messages.
    fn on_event(&mut self, event: ConsumerEvent) -> Option<Error> {
        if let Some(on_event) = &mut self.on_event {
            on_event.tell(&event);
        }
        match event {
            ConsumerEvent::PartitionFailed { partition, error } => {
                Some(Error::PartitionFailed { partition, error })
            }
            ConsumerEvent::Failed(error) => Some(error.into()),
            ConsumerEvent::Skipped { .. }
            | ConsumerEvent::StoreRefused { .. }
            | ConsumerEvent::Retrying { .. } => None,
        }
    }

    /// Says that a message is processed ([`StoreMode::Manual`]), in whatever order, see [`Received::ack`].
    pub fn ack(&self, message: &Received) -> bool {
        message.ack()
    }

    /// Stores that everything of a partition up to `offset` is processed, and waits until it is stored. A
    /// lower offset than the one stored changes nothing.
    ///
    /// # Errors
    /// `OffsetOutOfRange` beyond the newest message; [`Error::TimedOut`] after the client's request timeout,
    /// though it goes on being tried; when the consumer does not have the partition, or does
    /// not store ([`StoreMode::Never`]).
    pub async fn store(
        &self,
        partition: impl Into<PartitionId>,
        offset: impl Into<Offset>,
    ) -> Result<(), Error> {
        let (partition, offset) = (partition.into(), offset.into());
        let shared = self.client.shared();
        let stored = shared.lock().store(shared, self.id, partition, offset);
        match stored {
            Some(stored) => self.within_timeout(stored).await,
            None => Err(Error::Invalid {
                what: "partition",
                problem: format!("the consumer stores nothing for partition {partition}"),
            }),
        }
    }

    /// Goes to another place in a partition. What was fetched ahead is dropped. Says whether the consumer
    /// has the partition.
    pub fn seek(&self, partition: impl Into<PartitionId>, start: Start) -> bool {
        let partition = partition.into();
        let shared = self.client.shared();
        let sought = shared
            .lock()
            .with_consumer(shared, self.id, |consumer, now| {
                consumer.seek(now, partition, start)
            });
        sought.unwrap_or(false)
    }

    /// How far it has got, by partition: what is stored, what comes next, where the end is.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        let core = self.client.shared().lock();
        core.consumers
            .get(&self.id)
            .map_or_else(Vec::new, ConsumerEntry::progress)
    }

    /// Waits until all that is processed is stored. The message given out last is not among it, by default.
    ///
    /// # Errors
    /// The first refusal; [`Error::TimedOut`] after the client's request timeout.
    pub async fn flush(&self) -> Result<(), Error> {
        self.settle(false).await
    }

    /// Ends the consumer: everything given out counts as processed, the last message too
    /// ([`StoreMode::Processed`]), and is stored. When the last message could not be processed, drop the
    /// consumer instead, after [`Consumer::flush`].
    ///
    /// # Errors
    /// As [`Consumer::flush`]; then what was processed last may come again.
    pub async fn close(self) -> Result<(), Error> {
        self.settle(true).await
    }

    async fn settle(&self, last_too: bool) -> Result<(), Error> {
        let shared = self.client.shared();
        let settled = shared.lock().flush_consumer(shared, self.id, last_too);
        match settled {
            Some(settled) => self.within_timeout(settled).await,
            None => Err(Error::Closed),
        }
    }

    /// Stores are repeated until they succeed, but nobody waits for ever.
    async fn within_timeout(
        &self,
        stored: oneshot::Receiver<Result<(), Error>>,
    ) -> Result<(), Error> {
        let timeout = self.client.request_timeout;
        match in_time(timeout, stored).await {
            Some(stored) => stored?,
            None => Err(timed_out(Command::StoreConsumerOffset, timeout)),
        }
    }
}

impl Stream for Consumer {
    type Item = Result<Received, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.client.shared().lock().remove_consumer(self.id);
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("stream", &self.stream)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}
