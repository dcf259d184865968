//! The requests of one data prepare, and their encoding in its body.

use alloc::{string::String, vec::Vec};

use bytes::Bytes;
use wire::{
    BATCH_HEADER_SIZE, Batch, ConsumerGroupId, DecodeError, Field, Incarnation, Offset, Op,
    PartitionId, PartitionKey, Problem, Reader, StreamId, TopicId, Writer,
};

use crate::GroupCommand;

/// Version of the body's format, for the header of the prepare.
pub const REQUESTS_VERSION: u32 = 1;

/// Bytes of the smallest request: kind, partition, incarnation, one number.
const REQUEST_SIZE_MIN: usize = 1 + KEY_SIZE + 8 + 8;

/// Bytes of a partition's key.
const KEY_SIZE: usize = 8 + 8 + 4;

/// One request to a data group.
///
/// All name the incarnation that was resolved at admission, and are refused by a partition that has
/// another one. `admitted` is the metadata op that was applied where the request was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataRequest {
    /// Begin a partition, empty, at offset 0. One that is there with an older incarnation is replaced.
    CreatePartition {
        /// The partition.
        key: PartitionKey,
        /// The incarnation.
        incarnation: Incarnation,
        /// The metadata op that the proposer had applied.
        admitted: Op,
    },
    /// End a partition.
    DropPartition {
        /// The partition.
        key: PartitionKey,
        /// The incarnation; older ones end with it.
        incarnation: Incarnation,
        /// The metadata op that dropped it.
        dropped: Op,
    },
    /// Append a batch, whose checksum and structure were checked at admission.
    Append {
        /// The partition.
        key: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The metadata op applied at admission.
        admitted: Op,
        /// The batch; its stamp is not looked at.
        batch: Batch,
    },
    /// Store an offset of a single consumer.
    StoreOffset {
        /// The partition.
        key: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The metadata op applied at admission.
        admitted: Op,
        /// The consumer's full name, at most 255 bytes.
        consumer: String,
        /// The last message processed.
        offset: Offset,
    },
    /// Delete the stored offset of a single consumer.
    DeleteOffset {
        /// The partition.
        key: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The metadata op applied at admission.
        admitted: Op,
        /// The consumer's full name, at most 255 bytes.
        consumer: String,
    },
    /// Remove the messages before an offset.
    TruncateHead {
        /// The partition.
        key: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The new start.
        offset: Offset,
    },
    /// Fence, store or release for a consumer group. The group may be deleted: one admitted before what
    /// was dropped last changes what it finds, and makes nothing.
    ConsumerGroup {
        /// The partition.
        key: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The metadata op applied at admission.
        admitted: Op,
        /// The consumer group.
        group: ConsumerGroupId,
        /// What it asks.
        command: GroupCommand,
    },
    /// Forget a consumer group that is deleted.
    DropConsumerGroup {
        /// The partition.
        key: PartitionKey,
        /// Its incarnation as the proposer knew it; the group is forgotten whichever it is.
        incarnation: Incarnation,
        /// The metadata op that deleted the group.
        dropped: Op,
        /// The consumer group.
        group: ConsumerGroupId,
    },
}

/// The kinds, as they stand in the body.
mod kind {
    pub(super) const CREATE_PARTITION: u8 = 1;
    pub(super) const DROP_PARTITION: u8 = 2;
    pub(super) const APPEND: u8 = 3;
    pub(super) const STORE_OFFSET: u8 = 4;
    pub(super) const DELETE_OFFSET: u8 = 5;
    pub(super) const TRUNCATE_HEAD: u8 = 6;
    pub(super) const FENCE: u8 = 7;
    pub(super) const STORE_GROUP_OFFSET: u8 = 8;
    pub(super) const RELEASE: u8 = 9;
    pub(super) const DROP_GROUP: u8 = 10;
}

/// The body of one data prepare. Batches are copied into it, once.
///
/// # Panics
/// When there are more than `u32::MAX` requests, or a consumer's name exceeds 255 bytes.
#[must_use]
pub fn encode_requests(requests: &[DataRequest]) -> Bytes {
    let size = requests
        .iter()
        .map(DataRequest::encoded_size)
        .sum::<usize>();
    let mut writer = Writer::with_capacity(4 + size);
    writer.count(requests.len());
    for request in requests {
        request.encode(&mut writer);
    }
    assert!(writer.len() == 4 + size);
    writer.into_bytes()
}

/// Reads the body of a data prepare. Batches are slices of it. Their checksums are not computed again:
/// they were compared at admission, and the prepare's covers the body.
///
/// # Errors
/// Names the first field that is wrong.
pub fn decode_requests(body: Bytes) -> Result<Vec<DataRequest>, DecodeError> {
    let mut reader = Reader::new(body);
    let count = reader.count("request count", REQUEST_SIZE_MIN)?;
    let mut requests = Vec::with_capacity(count);
    for _ in 0..count {
        requests.push(DataRequest::decode(&mut reader)?);
    }
    reader.finish()?;
    Ok(requests)
}

impl DataRequest {
    /// The partition.
    #[must_use]
    pub const fn key(&self) -> PartitionKey {
        match self {
            Self::CreatePartition { key, .. }
            | Self::DropPartition { key, .. }
            | Self::Append { key, .. }
            | Self::StoreOffset { key, .. }
            | Self::DeleteOffset { key, .. }
            | Self::TruncateHead { key, .. }
            | Self::ConsumerGroup { key, .. }
            | Self::DropConsumerGroup { key, .. } => *key,
        }
    }

    /// The incarnation named.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        match self {
            Self::CreatePartition { incarnation, .. }
            | Self::DropPartition { incarnation, .. }
            | Self::Append { incarnation, .. }
            | Self::StoreOffset { incarnation, .. }
            | Self::DeleteOffset { incarnation, .. }
            | Self::TruncateHead { incarnation, .. }
            | Self::ConsumerGroup { incarnation, .. }
            | Self::DropConsumerGroup { incarnation, .. } => *incarnation,
        }
    }

    /// Bytes that the request takes in the body of a prepare.
    #[must_use]
    pub const fn encoded_size(&self) -> usize {
        let fields = match self {
            Self::CreatePartition { .. }
            | Self::DropPartition { .. }
            | Self::TruncateHead { .. } => 8,
            Self::Append { batch, .. } => 8 + BATCH_HEADER_SIZE + batch.body.len(),
            Self::StoreOffset { consumer, .. } => 8 + 1 + consumer.len() + 8,
            Self::DeleteOffset { consumer, .. } => 8 + 1 + consumer.len(),
            Self::ConsumerGroup { command, .. } => 8 + 8 + command.encoded_size(),
            Self::DropConsumerGroup { .. } => 8 + 8,
        };
        1 + KEY_SIZE + 8 + fields
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::CreatePartition { .. } => kind::CREATE_PARTITION,
            Self::DropPartition { .. } => kind::DROP_PARTITION,
            Self::Append { .. } => kind::APPEND,
            Self::StoreOffset { .. } => kind::STORE_OFFSET,
            Self::DeleteOffset { .. } => kind::DELETE_OFFSET,
            Self::TruncateHead { .. } => kind::TRUNCATE_HEAD,
            Self::ConsumerGroup { command, .. } => match command {
                GroupCommand::Fence { .. } => kind::FENCE,
                GroupCommand::Store { .. } => kind::STORE_GROUP_OFFSET,
                GroupCommand::Release { .. } => kind::RELEASE,
            },
            Self::DropConsumerGroup { .. } => kind::DROP_GROUP,
        }
    }

    fn encode(&self, writer: &mut Writer) {
        self.encode_fields(writer);
        if let Self::Append { batch, .. } = self {
            writer.bytes(&batch.body);
        }
    }

    /// All but the body of a batch, which comes last.
    fn encode_fields(&self, writer: &mut Writer) {
        let key = self.key();
        writer
            .u8(self.kind())
            .u64(key.stream.0)
            .u64(key.topic.0)
            .u32(key.partition.0)
            .u64(self.incarnation().0);
        match self {
            Self::CreatePartition { admitted, .. } => writer.u64(admitted.0),
            Self::DropPartition { dropped, .. } => writer.u64(dropped.0),
            Self::Append {
                admitted, batch, ..
            } => {
                assert!(batch.header.size as usize == BATCH_HEADER_SIZE + batch.body.len());
                writer.u64(admitted.0).bytes(batch.header.as_bytes())
            }
            Self::StoreOffset {
                admitted,
                consumer,
                offset,
                ..
            } => writer.u64(admitted.0).text8(consumer).u64(offset.0),
            Self::DeleteOffset {
                admitted, consumer, ..
            } => writer.u64(admitted.0).text8(consumer),
            Self::TruncateHead { offset, .. } => writer.u64(offset.0),
            Self::ConsumerGroup {
                admitted,
                group,
                command,
                ..
            } => {
                writer.u64(admitted.0).u64(group.0);
                command.encode(writer);
                writer
            }
            Self::DropConsumerGroup { dropped, group, .. } => writer.u64(dropped.0).u64(group.0),
        };
    }

    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let start = reader.clone();
        let kind = reader.u8("request kind")?;
        let key = PartitionKey {
            stream: StreamId(reader.u64("stream")?),
            topic: TopicId(reader.u64("topic")?),
            partition: PartitionId(reader.u32("partition")?),
        };
        let incarnation = Incarnation(reader.u64("incarnation")?);
        Ok(match kind {
            kind::CREATE_PARTITION => Self::CreatePartition {
                key,
                incarnation,
                admitted: Op(reader.u64("admitted")?),
            },
            kind::DROP_PARTITION => Self::DropPartition {
                key,
                incarnation,
                dropped: Op(reader.u64("dropped")?),
            },
            kind::APPEND => Self::Append {
                key,
                incarnation,
                admitted: Op(reader.u64("admitted")?),
                batch: decode_batch(reader)?,
            },
            kind::STORE_OFFSET => Self::StoreOffset {
                key,
                incarnation,
                admitted: Op(reader.u64("admitted")?),
                consumer: reader.text8("consumer")?,
                offset: Offset(reader.u64("offset")?),
            },
            kind::DELETE_OFFSET => Self::DeleteOffset {
                key,
                incarnation,
                admitted: Op(reader.u64("admitted")?),
                consumer: reader.text8("consumer")?,
            },
            kind::TRUNCATE_HEAD => Self::TruncateHead {
                key,
                incarnation,
                offset: Offset(reader.u64("offset")?),
            },
            kind::FENCE | kind::STORE_GROUP_OFFSET | kind::RELEASE => Self::ConsumerGroup {
                key,
                incarnation,
                admitted: Op(reader.u64("admitted")?),
                group: ConsumerGroupId(reader.u64("consumer group")?),
                command: match kind {
                    kind::FENCE => GroupCommand::decode_fence(reader)?,
                    kind::RELEASE => GroupCommand::decode_release(reader)?,
                    _ => GroupCommand::decode_store(reader)?,
                },
            },
            kind::DROP_GROUP => Self::DropConsumerGroup {
                key,
                incarnation,
                dropped: Op(reader.u64("dropped")?),
                group: ConsumerGroupId(reader.u64("consumer group")?),
            },
            value => {
                let value = u64::from(value);
                return Err(start.error("request kind", Problem::Invalid { value }));
            }
        })
    }
}

/// As in a prepare, but that large batches are not copied.
impl Field for DataRequest {
    const SIZE_MIN: usize = REQUEST_SIZE_MIN;

    fn read(reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        Self::decode(reader)
    }

    fn write(&self, writer: &mut Writer) {
        self.encode_fields(writer);
        if let Self::Append { batch, .. } = self {
            writer.shared(batch.body.clone());
        }
    }
}

fn decode_batch(reader: &mut Reader) -> Result<Batch, DecodeError> {
    let start = reader.clone();
    let head = reader.bytes("batch header", BATCH_HEADER_SIZE)?;
    let at_start = |mut error: DecodeError| {
        error.position = start.position();
        error
    };
    let header = Batch::read_header(&head).map_err(at_start)?;
    // What apply relies on, whoever sent the prepare.
    if header.count == 0 {
        return Err(start.error("batch count", Problem::Invalid { value: 0 }));
    }
    if (header.producer == 0) != (header.sequence == 0) {
        let value = header.sequence;
        return Err(start.error("batch sequence", Problem::Invalid { value }));
    }
    let body = reader.bytes("batch", header.size as usize - BATCH_HEADER_SIZE)?;
    Ok(Batch { header, body })
}
