//! Sending and polling.

use alloc::{string::String, vec::Vec};

use bytes::Bytes;

use crate::{
    Batch, DecodeError, Epoch, Identifier, Offset, PartitionId, Reader, Timestamp, Writer,
    field::{Field, body},
};

body! {
    /// Appends batches.
    SendMessages {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// When the answer comes.
        acknowledgement: Acknowledgement,
        /// The batches. Several for one partition are appended in this order.
        sections: Vec<SendSection>,
    }

    /// One batch of a send.
    SendSection {
        /// Where it goes.
        target: PartitionTarget,
        /// The batch, not stamped.
        batch: Batch,
    }

    /// Reads messages of one or several partitions.
    PollMessages {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// Who reads.
        consumer: Consumer,
        /// No batch is added to an answer that holds so many messages, over all sections; at least 1.
        max_messages: u32,
        /// No batch is added to an answer that would exceed so many bytes of batches, over all sections,
        /// except the first.
        max_bytes: u32,
        /// Bytes of batches that end the wait; 0: the answer comes at once, whatever there is.
        min_bytes: u32,
        /// The longest wait for `min_bytes`, milliseconds.
        max_wait_ms: u32,
        /// Whether the last offset served is stored before the answer is sent (at most once delivery).
        commit_on_poll: bool,
        /// The partitions, each at most once, served in this order.
        sections: Vec<PollSection>,
    }

    /// One partition of a poll.
    PollSection {
        /// The partition.
        partition: PartitionId,
        /// The epoch under which it is owned; 0 for a single consumer.
        epoch: Epoch,
        /// Where to begin.
        strategy: PollStrategy,
    }
}

/// When a send is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Acknowledgement {
    /// When a quorum has the batches on its disks.
    #[default]
    Quorum = 1,
    /// When the batches are admitted; they may still be lost, and their offsets are not told.
    None = 2,
}

impl Field for Acknowledgement {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.u8(field)? {
            1 => Ok(Self::Quorum),
            2 => Ok(Self::None),
            value => Err(reader.invalid(field, start, value)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.u8(*self as u8);
    }
}

/// The partition that a batch goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionTarget {
    /// This one. On the wire: kind 1, u32.
    Explicit(PartitionId),
    /// One that the server chooses, in turn. On the wire: kind 2. Refused for idempotent batches: their
    /// sequences count per partition.
    Balanced,
    /// The one that the key hashes to, see [`partition_of_key`](crate::partition_of_key). On the wire:
    /// kind 3, u16 length, bytes.
    Key(Bytes),
}

impl Field for PartitionTarget {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.kind(field)? {
            1 => Ok(Self::Explicit(Field::read(reader, field)?)),
            2 => Ok(Self::Balanced),
            3 => {
                let size = usize::from(reader.length16(field)?);
                Ok(Self::Key(reader.bytes(field, size)?))
            }
            kind => Err(reader.invalid(field, start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Explicit(partition) => writer.u8(1).u32(partition.0),
            Self::Balanced => writer.u8(2),
            Self::Key(key) => {
                let size = u16::try_from(key.len()).expect("keys are checked before");
                writer.u8(3).u16(size).bytes(key)
            }
        };
    }
}

/// Who reads and stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// A single reader, known by its full name. On the wire: kind 1, u8 length, UTF-8.
    Single(String),
    /// A consumer group that the session is a member of. On the wire: kind 2, identifier.
    Group(Identifier),
}

impl Field for Consumer {
    const SIZE_MIN: usize = 2;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.kind(field)? {
            1 => Ok(Self::Single(reader.text8(field)?)),
            2 => Ok(Self::Group(Field::read(reader, field)?)),
            kind => Err(reader.invalid(field, start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Single(name) => {
                writer.u8(1).text8(name);
            }
            Self::Group(group) => {
                writer.u8(2);
                group.write(writer);
            }
        }
    }
}

/// Where a poll begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStrategy {
    /// At this offset, or at the start of the partition if that is later. On the wire: kind 1, u64.
    Offset(Offset),
    /// At the first message with a broker time at or after this. On the wire: kind 2, u64.
    Timestamp(Timestamp),
    /// At the oldest message. On the wire: kind 3.
    First,
    /// `max_messages` before the end. On the wire: kind 4.
    Last,
    /// Behind the stored offset; at the oldest message when none is stored. On the wire: kind 5.
    Next,
}

impl Field for PollStrategy {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.kind(field)? {
            1 => Ok(Self::Offset(Field::read(reader, field)?)),
            2 => Ok(Self::Timestamp(Field::read(reader, field)?)),
            3 => Ok(Self::First),
            4 => Ok(Self::Last),
            5 => Ok(Self::Next),
            kind => Err(reader.invalid(field, start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Offset(offset) => writer.u8(1).u64(offset.0),
            Self::Timestamp(timestamp) => writer.u8(2).u64(timestamp.0),
            Self::First => writer.u8(3),
            Self::Last => writer.u8(4),
            Self::Next => writer.u8(5),
        };
    }
}
