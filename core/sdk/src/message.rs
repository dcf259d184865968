//! Messages, as they are sent and as they are received.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use client::{Delivery, FencingToken};
use wire::{ConsumerGroupId, Epoch, HeaderIter, Offset, PartitionId, Timestamp};

use crate::{
    Error,
    core::{MachineId, Shared},
};

/// A message to be sent: a payload, and what else belongs to it.
///
/// ```
/// # use cohort::Message;
/// let message = Message::new("paid").key("customer-9").header("trace", "5f3a")?;
/// # Ok::<(), cohort::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub(crate) inner: wire::Message,
    pub(crate) partition: Option<PartitionId>,
}

impl Message {
    /// A message with this payload.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        let inner = wire::Message {
            payload: payload.into(),
            ..wire::Message::default()
        };
        Self {
            inner,
            partition: None,
        }
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.inner.payload = payload.into();
        self
    }

    /// Sets the key, up to 65,535 bytes: messages with equal keys go to the same partition, as long as the
    /// number of partitions stays the same. Without a key the producer spreads them over the
    /// partitions, batch by batch.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.inner.key = key.into();
        self
    }

    /// Sets the partition, whatever the key is.
    #[must_use]
    pub fn partition(mut self, partition: impl Into<PartitionId>) -> Self {
        self.partition = Some(partition.into());
        self
    }

    /// Sets an id of the application's own; 0, the default, is none. It has nothing to do with the
    /// producer's own protection against repetitions.
    #[must_use]
    pub const fn id(mut self, id: u128) -> Self {
        self.inner.id = id;
        self
    }

    /// Sets when what the message tells of has happened. Without it only the broker's time is known.
    #[must_use]
    pub const fn timestamp(mut self, timestamp: Timestamp) -> Self {
        self.inner.timestamp = timestamp;
        self
    }

    /// Adds a header. Names may repeat, the order is kept.
    ///
    /// # Errors
    /// When the name is empty or longer than 255 bytes, the value longer than 65,535, or all headers
    /// together take more than that.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Result<Self, Error> {
        let known = self.inner.headers().filter_map(Result::ok);
        let added = std::iter::once((name.as_ref(), value.as_ref()));
        let encoded = wire::encode_headers(known.chain(added));
        self.inner.headers = encoded.map_err(|problem| Error::Invalid {
            what: "header",
            problem: problem.to_string(),
        })?;
        Ok(self)
    }
}

impl<T: Into<Bytes>> From<T> for Message {
    fn from(payload: T) -> Self {
        Self::new(payload)
    }
}

/// A message that was received. Its byte strings share the memory of the answer that it came in.
#[derive(Clone, Debug)]
pub struct Received {
    inner: wire::Message,
    partition: PartitionId,
    epoch: Epoch,
    /// The consumer group that it was received for.
    group: Option<ConsumerGroupId>,
    appended: Timestamp,
    consumer: Arc<ConsumerRef>,
}

/// The consumer that a message came from; not kept alive by it.
#[derive(Debug)]
pub(crate) struct ConsumerRef {
    pub(crate) shared: Weak<Shared>,
    pub(crate) id: MachineId,
}

impl Received {
    pub(crate) fn new(
        delivery: Delivery,
        group: Option<ConsumerGroupId>,
        consumer: &Arc<ConsumerRef>,
    ) -> Self {
        Self {
            inner: delivery.message,
            partition: delivery.partition,
            epoch: delivery.epoch,
            group,
            appended: delivery.appended,
            consumer: Arc::clone(consumer),
        }
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> &Bytes {
        &self.inner.payload
    }

    /// The key; empty when it has none.
    #[must_use]
    pub const fn key(&self) -> &Bytes {
        &self.inner.key
    }

    /// Names and values of the headers, in the order in which they were added.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let headers: HeaderIter<'_> = self.inner.headers();
        // They were checked when the batch came in.
        headers.filter_map(Result::ok)
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// Its partition.
    #[must_use]
    pub const fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Its number in the partition, from 0.
    #[must_use]
    pub const fn offset(&self) -> Offset {
        self.inner.offset
    }

    /// The application's id of it; 0: none.
    #[must_use]
    pub const fn id(&self) -> u128 {
        self.inner.id
    }

    /// The time that its producer gave it, microseconds since the Unix epoch; 0: none.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        self.inner.timestamp
    }

    /// When the broker stored it, microseconds since the Unix epoch.
    #[must_use]
    pub const fn appended(&self) -> Timestamp {
        self.appended
    }

    /// The epoch under which its partition was owned; 0 for a single consumer.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Of a consumer group: the ownership under which it was handed out. Stored beside what the application
    /// makes of the message, it keeps out an owner that does not know yet that it has lost the partition:
    /// nothing is taken under a lower epoch of the same group and partition.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        Some(FencingToken {
            group: self.group?,
            partition: self.partition,
            epoch: self.epoch,
        })
    }

    /// Says that it is processed ([`StoreMode::Manual`](crate::StoreMode::Manual)), in whatever order: what
    /// is stored, soon after, is the highest offset below which everything that the consumer handed out is
    /// processed. Says whether that was news; of a consumer group: not when the partition was lost since.
    // Nothing to wait for, so nothing to fail: a store that the server refuses is an error of the consumer.
    pub fn ack(&self) -> bool {
        let Some(shared) = self.consumer.shared.upgrade() else {
            return false;
        };
        let (id, offset) = (self.consumer.id, self.inner.offset);
        let mut core = shared.lock();
        let news = match self.fencing_token() {
            Some(token) => core.with_member(&shared, id, |member, now| {
                member.acknowledge(now, token, offset)
            }),
            None => core.with_consumer(&shared, id, |consumer, now| {
                consumer.acknowledge(now, self.partition, offset)
            }),
        };
        news.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::Message;
    use crate::Error;

    #[test]
    fn headers_are_added_in_order_and_names_may_repeat() {
        let message = Message::new("p")
            .header("a", "1")
            .unwrap()
            .header("a", [2])
            .unwrap();
        let headers = message
            .inner
            .headers()
            .map(Result::unwrap)
            .collect::<Vec<_>>();
        assert_eq!(headers, [("a", &b"1"[..]), ("a", &[2][..])]);
        let error = message.header("", "x").unwrap_err();
        assert!(
            matches!(error, Error::Invalid { what: "header", .. }),
            "{error}"
        );
    }
}
