//! Receiving as a member of a consumer group.

mod ending;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use client::{
    ConsumerError, GroupConsumerConfig, GroupEvent, GroupInput, HeldPartition, StoreMode,
};
use futures_core::Stream;
use tokio::sync::{broadcast, oneshot};
use wire::{Command, ConsumerGroupId, MemberId, Offset, PartitionId, StreamId, TopicId};

use crate::{
    Client, Error, GroupOptions, Id, Received,
    client::random_u64,
    core::{EVENTS_MAX, MachineId, MemberEntry, Next},
    id::check,
    listener::Listener,
    message::ConsumerRef,
    waiting::{in_time, timed_out},
};

/// How a member of a consumer group reads. Made by [`Client::consumer_group`].
pub struct GroupConsumerBuilder {
    client: Client,
    stream: Id,
    topic: Id,
    group: Id,
    create: Option<GroupOptions>,
    /// What is set by now; stream, topic and group are filled in at last.
    config: GroupConsumerConfig,
    on_event: Option<Listener<GroupEvent>>,
}

/// A member of a consumer group: a stream of the messages of those partitions that are its own at the time,
/// in order within each partition, the partitions in turn.
///
/// What is stored for the group is the offset of the last message *processed* in each partition; whoever gets
/// the partition next goes on behind it. By default a message counts as processed when the next one is asked
/// for ([`StoreMode::Processed`]): every message is delivered **at least once**. It is delivered twice when a
/// member dies or loses a partition before what it has processed is stored; not when partitions are handed
/// over in time, and not when the member is [closed](Self::close).
///
/// - **Partitions come and go** while other members do. One that is revoked is not read any more; when what
///   was handed out of it is processed, it is stored and given up. [`GroupEvent`] tells of it, first
///   [`Revoking`](GroupEvent::Revoking) with the time that is left, then [`Revoked`](GroupEvent::Revoked) or
///   [`Lost`](GroupEvent::Lost). An acknowledgement that comes after that changes nothing.
/// - **Lost connections** cost nothing as long as the session lives: the membership stays. When the session
///   has ended, everything is lost, and the member joins again.
/// - **An application that does not ask** for messages, although there are some or one was handed to it,
///   for [`GroupConsumerBuilder::max_poll_interval`], gives its partitions up; it joins again when it asks.
/// - An `Err` in the stream tells of one partition or of the consumer as a whole; after an error of the whole
///   the stream ends. With [`GroupConsumerBuilder::instance_id`], another process that joins under the same
///   id ends it: `FencedInstanceId`, whose text names the other's address.
/// - **A session has at most one membership in a group**, and a [`Client`] has one session: for several
///   members in one process make several clients.
///
/// Dropping it stores nothing more. It leaves the group as far as the client still lives; otherwise the
/// session expires soon after. [`GroupConsumer::close`] leaves nothing to be delivered again; with an instance
/// id, [`GroupConsumer::detach`] keeps the membership for the next process.
///
/// ```no_run
/// # async fn handle(_: &cohort::Received) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use cohort::{Client, GroupEvent, GroupOptions, GroupStart, StoreMode};
///
/// let client = Client::connect("cohort://root:secret@127.0.0.1:5100").await?;
/// let mut consumer = client
///     .consumer_group("shop", "orders", "billing")
///     .create_if_missing(GroupOptions::default().start(GroupStart::Earliest))
///     .store(StoreMode::Manual)
///     .max_poll_interval(Some(Duration::from_secs(60)))
///     .build()
///     .await?;
///
/// // At once, also while a message is being handled.
/// let mut events = consumer.events();
/// tokio::spawn(async move {
///     while let Some(event) = events.next().await {
///         if let GroupEvent::Revoking { partitions, time_left } = event {
///             println!("{partitions:?} will be gone in {time_left:?}");
///         }
///     }
/// });
///
/// while let Some(message) = consumer.next().await {
///     let message = message?;
///     handle(&message).await?;
///     message.ack();
/// }
/// consumer.close().await?;
/// # Ok(()) }
/// ```
pub struct GroupConsumer {
    client: Client,
    consumer: Arc<ConsumerRef>,
    id: MachineId,
    topic: (StreamId, TopicId),
    group: ConsumerGroupId,
    /// Whether it has an instance id.
    is_static: bool,
    on_event: Option<Listener<GroupEvent>>,
    /// Listens from the beginning, until somebody takes it.
    events: Option<broadcast::Receiver<GroupEvent>>,
    /// The stream has ended.
    ended: bool,
    /// Whether the membership is its own to end.
    leaves: bool,
}

/// What happens to a member of a consumer group, as it happens.
#[derive(Debug)]
pub struct GroupEvents(broadcast::Receiver<GroupEvent>);

impl GroupEvents {
    /// The next event; `None` when the consumer is gone. Who asks so rarely that more than 1,024 wait misses
    /// the oldest of them.
    pub async fn next(&mut self) -> Option<GroupEvent> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl GroupConsumerBuilder {
    pub(crate) fn new(client: Client, stream: Id, topic: Id, group: Id) -> Self {
        let unknown = wire::Identifier::Number(0);
        let config = GroupConsumerConfig::new(unknown.clone(), unknown.clone(), unknown, 0);
        Self {
            client,
            stream,
            topic,
            group,
            create: None,
            config,
            on_event: None,
        }
    }

    /// Makes the group with these options when there is none of this name.
    #[must_use]
    pub const fn create_if_missing(mut self, options: GroupOptions) -> Self {
        self.create = Some(options);
        self
    }

    /// Makes it a static member: it keeps its partitions for a while after its session was lost, and whoever
    /// joins with the same id takes it over. 1 to 255 bytes. To stop it for a restart, use
    /// [`GroupConsumer::detach`].
    #[must_use]
    pub fn instance_id(mut self, instance: impl Into<String>) -> Self {
        self.config.instance = Some(instance.into());
        self
    }

    /// Sets how large a share of the partitions it takes, compared with the other members: 1 unless set. 0:
    /// none while anybody else has a weight.
    #[must_use]
    pub const fn weight(mut self, weight: u16) -> Self {
        self.config.weight = weight;
        self
    }

    /// Sets when offsets are stored. Not [`StoreMode::Never`]: nobody would get ahead.
    #[must_use]
    pub const fn store(mut self, store: StoreMode) -> Self {
        self.config.store = store;
        self
    }

    /// Sets how soon after processing an offset is stored at the latest, 100 ms unless set.
    #[must_use]
    pub const fn store_interval(mut self, interval: Duration) -> Self {
        self.config.store_interval = interval;
        self
    }

    /// Sets how long the application may leave messages that are there, or were handed to it, without asking
    /// for the next one: 5 minutes unless set. Then its partitions go to others. `None`: for ever.
    #[must_use]
    pub const fn max_poll_interval(mut self, interval: Option<Duration>) -> Self {
        self.config.max_poll_interval = interval;
        self
    }

    /// Sets how many bytes are fetched ahead over all partitions, 8 MiB unless set. Up to four polls, of
    /// which each may bring its limit, come on top.
    #[must_use]
    pub const fn buffer(mut self, bytes: usize) -> Self {
        self.config.buffer_size_max = bytes;
        self
    }

    /// Sets the limits of one poll, 10,000 messages and 1 MiB unless set. At least one batch is served,
    /// however large.
    #[must_use]
    pub const fn poll_limits(mut self, messages: u32, bytes: u32) -> Self {
        self.config.poll_messages_max = messages;
        self.config.poll_size_max = bytes;
        self
    }

    /// Sets how long a poll waits at the server for messages, 5 s unless set, at most 60 s by default of the
    /// server. New messages end the wait at once.
    #[must_use]
    pub const fn poll_wait(mut self, wait: Duration) -> Self {
        self.config.poll_wait_max = wait;
        self
    }

    /// Sets how often the assignment is asked for although nothing tells of a change, 3 s unless set.
    #[must_use]
    pub const fn sync_interval(mut self, interval: Duration) -> Self {
        self.config.sync_interval = interval;
        self
    }

    /// Sets what is called for everything that happens beside messages. It is called while the next message
    /// is asked for, before that is given out: of each partition in the order of [`GroupEvent`].
    /// [`GroupConsumer::events`] tells it at once instead.
    #[must_use]
    pub fn on_event(mut self, on_event: impl FnMut(&GroupEvent) + Send + 'static) -> Self {
        self.on_event = Some(Listener::new(on_event));
        self
    }

    /// Looks up the topic, makes the group if need be, and joins it.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`, `ConsumerGroupNotFound`, `ConsumerGroupFull`, `FencedInstanceId`;
    /// [`Error::TimedOut`] after the client's request timeout; when the client is in the group already, a name
    /// is not one, or a setting is 0 that must not be.
    pub async fn build(mut self) -> Result<GroupConsumer, Error> {
        let invalid = |what, problem: &str| Error::Invalid {
            what,
            problem: problem.to_string(),
        };
        let config = &self.config;
        if config.buffer_size_max == 0 || config.poll_messages_max == 0 || config.poll_size_max == 0
        {
            return Err(invalid("limits of polls and buffer", "0 is not allowed"));
        }
        if config.store == StoreMode::Never {
            let problem = "a member of a consumer group stores offsets";
            return Err(invalid("store mode", problem));
        }
        if let Id::Name(name) = &self.group {
            check("consumer group", name)?;
        }
        let topic = self
            .client
            .topic(self.stream.clone(), self.topic.clone())
            .await?;
        self.config.stream = topic.stream.into();
        self.config.topic = topic.id.into();
        self.config.group = self.group.identifier("consumer group")?;
        self.config.create = self.create.map(GroupOptions::update);
        self.config.seed = random_u64()?;
        let topic = (topic.stream, topic.id);
        GroupConsumer::start(self.client, topic, self.config, self.on_event).await
    }
}

impl GroupConsumer {
    async fn start(
        client: Client,
        topic: (StreamId, TopicId),
        config: GroupConsumerConfig,
        on_event: Option<Listener<GroupEvent>>,
    ) -> Result<Self, Error> {
        let timeout = client.request_timeout;
        let (mut own, joined) = Self::enter(client, topic, config, on_event);
        match in_time(timeout, joined).await {
            Some(joined) => joined??,
            None => return Err(timed_out(Command::JoinConsumerGroup, timeout)),
        }
        let core = own.client.shared().lock();
        let membership = core.members.get(&own.id).and_then(MemberEntry::membership);
        let twice = core.is_member_twice(own.id);
        drop(core);
        if twice {
            // It is the same membership: the other one keeps it.
            own.leaves = false;
            return Err(Error::Invalid {
                what: "consumer group",
                problem: "this client is a member already; use another client for another member"
                    .to_string(),
            });
        }
        own.group = membership.map_or(ConsumerGroupId(0), |(group, _)| group);
        Ok(own)
    }

    fn enter(
        client: Client,
        topic: (StreamId, TopicId),
        config: GroupConsumerConfig,
        on_event: Option<Listener<GroupEvent>>,
    ) -> (Self, oneshot::Receiver<Result<(), Error>>) {
        let (sender, joined) = oneshot::channel();
        let shared = client.shared();
        let now = shared.now();
        let mut core = shared.lock();
        let id = core.machine_id();
        let is_static = config.instance.is_some();
        let machine = client::GroupConsumer::new(now, config);
        let entry = MemberEntry::new(machine, sender, id.lane());
        let events = Some(entry.listen());
        core.members.insert(id, entry);
        core.with_member(shared, id, |member, now| {
            member.handle(now, GroupInput::Tick);
        });
        drop(core);
        let consumer = Arc::new(ConsumerRef {
            shared: Arc::downgrade(shared),
            id,
        });
        let own = Self {
            client,
            consumer,
            id,
            topic,
            group: ConsumerGroupId(0),
            is_static,
            on_event,
            events,
            ended: false,
            leaves: true,
        };
        (own, joined)
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
            let next = shared.lock().next_of_group(shared, self.id, context);
            match next {
                Next::Message(delivery) => {
                    let received = Received::new(delivery, Some(self.group), &self.consumer);
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
    fn on_event(&mut self, event: GroupEvent) -> Option<Error> {
        if let Some(on_event) = &mut self.on_event {
            on_event.tell(&event);
        }
        match event {
            GroupEvent::PartitionFailed { partition, error } => {
                Some(Error::PartitionFailed { partition, error })
            }
            GroupEvent::Failed(error) => Some(ConsumerError::into(error)),
            GroupEvent::Joined { .. }
            | GroupEvent::Assigned { .. }
            | GroupEvent::Revoking { .. }
            | GroupEvent::Retained { .. }
            | GroupEvent::Revoked { .. }
            | GroupEvent::Lost { .. }
            | GroupEvent::Stalled { .. }
            | GroupEvent::Skipped { .. }
            | GroupEvent::StoreRefused { .. }
            | GroupEvent::Retrying { .. } => None,
        }
    }

    /// What happens to the member, told at once, from the join on; to who asks again, from then on.
    pub fn events(&mut self) -> GroupEvents {
        let first = self.events.take();
        GroupEvents(first.unwrap_or_else(|| {
            let core = self.client.shared().lock();
            let entry = core.members.get(&self.id);
            entry.map_or_else(|| broadcast::channel(EVENTS_MAX).1, MemberEntry::listen)
        }))
    }

    /// Says that a message is processed ([`StoreMode::Manual`]), in whatever order, see [`Received::ack`].
    pub fn ack(&self, message: &Received) -> bool {
        message.ack()
    }

    /// Stops, or goes on, reading a partition. Lasts while the partition is the consumer's; says whether it
    /// is.
    pub fn pause(&self, partition: impl Into<PartitionId>, paused: bool) -> bool {
        let partition = partition.into();
        let shared = self.client.shared();
        let held = shared.lock().with_member(shared, self.id, |member, now| {
            member.pause(now, partition, paused)
        });
        held.unwrap_or(false)
    }

    /// Goes on at another offset of a partition. What was fetched ahead is dropped. What was handed out and is
    /// not processed by now, the last message among it, does not hold up anything that is stored later: going
    /// ahead leaves it out. Going back repeats messages, and changes nothing of what is stored: whoever gets the
    /// partition next begins behind the highest message processed. To move that back there is
    /// [`Client::reset_offsets`].
    ///
    /// Lasts while the partition is the consumer's; says whether it is, and is not being given up. An offset
    /// that is not there yet is an error in the stream, after which the partition is read again from the next
    /// seek on.
    pub fn seek(&self, partition: impl Into<PartitionId>, offset: impl Into<Offset>) -> bool {
        let (partition, offset) = (partition.into(), offset.into());
        let shared = self.client.shared();
        let sought = shared.lock().with_member(shared, self.id, |member, now| {
            member.seek(now, partition, offset)
        });
        sought.unwrap_or(false)
    }

    /// The partitions that it has now, how far it has got in each.
    #[must_use]
    pub fn partitions(&self) -> Vec<HeldPartition> {
        let core = self.client.shared().lock();
        let entry = core.members.get(&self.id);
        entry.map_or_else(Vec::new, MemberEntry::partitions)
    }

    /// The consumer group.
    #[must_use]
    pub const fn group(&self) -> ConsumerGroupId {
        self.group
    }

    /// The member, while it is one. Another one after a membership has ended.
    #[must_use]
    pub fn member(&self) -> Option<MemberId> {
        let core = self.client.shared().lock();
        let membership = core.members.get(&self.id).and_then(MemberEntry::membership);
        membership.map(|(_, member)| member)
    }
}

impl Stream for GroupConsumer {
    type Item = Result<Received, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

impl Drop for GroupConsumer {
    fn drop(&mut self) {
        let shared = self.client.shared();
        shared.lock().remove_member(shared, self.id, self.leaves);
    }
}

impl fmt::Debug for GroupConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupConsumer")
            .field("id", &self.id)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GroupConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupConsumerBuilder")
            .field("stream", &self.stream)
            .field("topic", &self.topic)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
