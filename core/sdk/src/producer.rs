//! Sending.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use client::{ProducerConfig, Target};
use tokio::sync::{Notify, mpsc};
use wire::{Offset, PartitionId, ProducerId, Time};

use crate::{
    Client, Error, Id, Message,
    client::{random_u64, random_u128},
    core::{BatchCell, Core, MachineId, ProducerEntry},
};

/// Where a message was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receipt {
    /// Its partition.
    pub partition: PartitionId,
    /// Its number in the partition.
    pub offset: Offset,
}

/// Where a batch was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchReceipt {
    /// Its partition.
    pub partition: PartitionId,
    /// The offset of its first message.
    pub first: Offset,
    /// The offset of its last message.
    pub last: Offset,
}

impl BatchReceipt {
    /// How many messages it has.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }
}

/// How a producer sends. Made by [`Client::producer`].
#[derive(Debug)]
pub struct ProducerBuilder {
    client: Client,
    stream: Id,
    topic: Id,
    change: Vec<Setting>,
}

#[derive(Clone, Copy, Debug)]
enum Setting {
    Linger(Duration),
    BatchSize(usize),
    BatchMessages(u32),
    InFlight(usize),
    Memory(usize),
    DeliveryTimeout(Duration),
}

/// A producer of messages for one topic. It puts messages together to batches, one for each partition, and
/// sends several batches at a time.
///
/// - Messages with a key go to the partition of their key. Those without one go to a partition until its
///   batch is closed, and then to the next: what is sent one by one is spread evenly, a short burst is not.
/// - The messages of a partition are stored in the order in which they were given to the producer, each
///   once, through errors, repetitions and failures of nodes. One that is still being tried holds up those
///   behind it, in its partition.
/// - What is given to it waits in bounded memory; when that is full, `send` and `enqueue` wait.
/// - The producer stays with the topic that it was built for: when that is deleted it fails, even if
///   another one of the same name is made.
///
/// Dropping it drops what is not sent yet; [`Producer::close`] sends it first.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    id: MachineId,
    room: Arc<Notify>,
}

/// The receipts of a producer's batches, in the order in which they are stored.
#[derive(Debug)]
pub struct Receipts {
    receiver: mpsc::UnboundedReceiver<BatchReceipt>,
}

/// A message on its way: a future of its receipt. Dropping it changes nothing for the message.
#[derive(Debug)]
#[must_use = "a failure is only told here, or by flush"]
pub struct Delivery {
    cell: Arc<BatchCell>,
    index: u32,
    slot: Option<usize>,
}

impl ProducerBuilder {
    pub(crate) const fn new(client: Client, stream: Id, topic: Id) -> Self {
        Self {
            client,
            stream,
            topic,
            change: Vec::new(),
        }
    }

    /// Sets how long a batch waits for more messages, 0 unless set: it goes as soon as the batches before it
    /// allow, and fills while they do not.
    #[must_use]
    pub fn linger(self, linger: Duration) -> Self {
        self.with(Setting::Linger(linger))
    }

    /// Sets the size at which a batch is closed, 1 MiB unless set, at most 7 MiB.
    #[must_use]
    pub fn batch_size(self, bytes: usize) -> Self {
        self.with(Setting::BatchSize(bytes))
    }

    /// Sets the number of messages at which a batch is closed, 10,000 unless set.
    #[must_use]
    pub fn batch_messages(self, messages: u32) -> Self {
        self.with(Setting::BatchMessages(messages))
    }

    /// Sets how many requests may be unanswered, 8 unless set. Each holds at most one batch of each
    /// partition.
    #[must_use]
    pub fn in_flight(self, requests: usize) -> Self {
        self.with(Setting::InFlight(requests))
    }

    /// Sets how many bytes of messages may be held, unanswered ones included, 32 MiB unless set.
    #[must_use]
    pub fn memory(self, bytes: usize) -> Self {
        self.with(Setting::Memory(bytes))
    }

    /// Sets how long a message may take until it is stored, 120 s unless set; then it has failed.
    #[must_use]
    pub fn delivery_timeout(self, timeout: Duration) -> Self {
        self.with(Setting::DeliveryTimeout(timeout))
    }

    fn with(mut self, setting: Setting) -> Self {
        self.change.push(setting);
        self
    }

    /// Looks up the topic and makes the producer.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`; when a setting is 0 that must not be.
    pub async fn build(self) -> Result<Producer, Error> {
        self.make(None).await
    }

    /// As [`ProducerBuilder::build`], with the receipts of all batches. They wait in memory until they are
    /// read.
    ///
    /// # Errors
    /// As [`ProducerBuilder::build`].
    pub async fn build_with_receipts(self) -> Result<(Producer, Receipts), Error> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let producer = self.make(Some(sender)).await?;
        Ok((producer, Receipts { receiver }))
    }

    async fn make(
        self,
        receipts: Option<mpsc::UnboundedSender<BatchReceipt>>,
    ) -> Result<Producer, Error> {
        let topic = self.client.topic(self.stream, self.topic).await?;
        let partitions = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
        if partitions == 0 {
            return Err(Error::Protocol(
                "the server tells of a topic without partitions".to_string(),
            ));
        }
        let producer = ProducerId(random_u128()?);
        let (stream, topic) = (topic.stream.into(), topic.id.into());
        let mut config = ProducerConfig::new(stream, topic, partitions, producer, random_u64()?);
        for setting in self.change {
            setting.apply(&mut config)?;
        }
        let shared = self.client.shared();
        let now: Time = shared.now();
        let mut core = shared.lock();
        config.frame_size_max = core.frame_size_max;
        let id = core.machine_id();
        let machine = client::Producer::new(now, config);
        let entry = ProducerEntry::new(machine, receipts, id.lane());
        let room = entry.room();
        core.producers.insert(id, entry);
        core.pump(shared, now);
        drop(core);
        Ok(Producer {
            client: self.client,
            id,
            room,
        })
    }
}

impl Setting {
    fn apply(self, config: &mut ProducerConfig) -> Result<(), Error> {
        let positive = |what, value: usize| match value {
            0 => Err(Error::Invalid {
                what,
                problem: "0 is not allowed".to_string(),
            }),
            value => Ok(value),
        };
        match self {
            Self::Linger(linger) => config.linger = linger,
            Self::BatchSize(bytes) => config.batch_size_max = positive("batch size", bytes)?,
            Self::BatchMessages(0) => {
                let problem = "0 is not allowed".to_string();
                return Err(Error::Invalid {
                    what: "batch messages",
                    problem,
                });
            }
            Self::BatchMessages(messages) => config.batch_messages_max = messages,
            Self::InFlight(requests) => {
                config.in_flight_max = positive("requests in flight", requests)?
            }
            Self::Memory(bytes) => config.memory_max = positive("memory", bytes)?,
            Self::DeliveryTimeout(timeout) => config.delivery_timeout = timeout,
        }
        Ok(())
    }
}

impl Producer {
    /// Sends a message and waits until it is stored.
    ///
    /// Alone it takes a round trip and a flush of the server's disk. For many messages [`Producer::enqueue`]
    /// is the way.
    ///
    /// # Errors
    /// Why it was not stored, or is not known to be.
    pub async fn send(&self, message: impl Into<Message>) -> Result<Receipt, Error> {
        self.enqueue(message).await?.await
    }

    /// Gives a message to the producer, waiting only for room, and returns a future of its receipt.
    ///
    /// ```no_run
    /// # async fn example(producer: cohort::Producer, lines: Vec<String>) -> Result<(), cohort::Error> {
    /// for line in lines {
    ///     // Failures are told by flush as well.
    ///     let _delivery = producer.enqueue(line).await?;
    /// }
    /// producer.flush().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the message is too large, or its partition does not exist.
    pub async fn enqueue(&self, message: impl Into<Message>) -> Result<Delivery, Error> {
        let message = message.into();
        loop {
            let mut room = pin!(self.room.notified());
            // Listens before it looks, so that room made in between is noticed.
            room.as_mut().enable();
            match self.push(&message) {
                Err(error) if Core::is_full(&error) => room.await,
                result => return result,
            }
        }
    }

    /// Gives a message to the producer if there is room, without waiting.
    ///
    /// # Errors
    /// [`Error::Message`] when there is no room, which is retryable, when the message is too large, or when
    /// its partition does not exist.
    pub fn try_enqueue(&self, message: impl Into<Message>) -> Result<Delivery, Error> {
        self.push(&message.into())
    }

    fn push(&self, message: &Message) -> Result<Delivery, Error> {
        let target = message.partition.map_or(Target::Placed, Target::Partition);
        let shared = self.client.shared();
        let (pushed, cell) = shared
            .lock()
            .push(shared, self.id, target, &message.inner)?;
        Ok(Delivery {
            cell,
            index: pushed.index,
            slot: None,
        })
    }

    /// Waits until everything given to the producer is stored or has failed.
    ///
    /// # Errors
    /// The first failure since the last flush. The other messages are stored, or failed as well.
    pub async fn flush(&self) -> Result<(), Error> {
        let shared = self.client.shared();
        let waiting = {
            let mut core = shared.lock();
            core.flush_producer(shared, self.id);
            core.producers
                .get(&self.id)
                .map_or_else(Vec::new, ProducerEntry::waiting)
        };
        for cell in waiting {
            // How it ended is noted at the producer as well.
            let _ended = Delivery {
                cell,
                index: 0,
                slot: None,
            }
            .await;
        }
        let mut core = shared.lock();
        match core
            .producers
            .get_mut(&self.id)
            .and_then(ProducerEntry::take_failure)
        {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// How many partitions the topic has, as far as known.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        let core = self.client.shared().lock();
        core.producers
            .get(&self.id)
            .map_or(0, ProducerEntry::partitions)
    }

    /// Flushes, and ends the producer.
    ///
    /// # Errors
    /// As [`Producer::flush`].
    pub async fn close(self) -> Result<(), Error> {
        self.flush().await
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.client.shared().lock().remove_producer(self.id);
    }
}

impl Receipts {
    /// The receipt of the next batch; `None` when the producer has ended.
    pub async fn next(&mut self) -> Option<BatchReceipt> {
        self.receiver.recv().await
    }

    /// The receipt of the next batch, if it is there.
    pub fn try_next(&mut self) -> Option<BatchReceipt> {
        self.receiver.try_recv().ok()
    }
}

impl Future for Delivery {
    type Output = Result<Receipt, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (partition, base) = ready!(this.cell.poll(context, &mut this.slot))?;
        let offset = Offset(base.0 + u64::from(this.index));
        Poll::Ready(Ok(Receipt { partition, offset }))
    }
}
