//! Answers to sends and polls.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::{
    DecodeError, Failure, Offset, PartitionId, Reader, ReplicaId, Writer,
    field::{Field, body},
};

body! {
    /// Batches were appended, or not, in the order of the request.
    Sent {
        /// One per section.
        sections: Vec<SendResult>,
    }

    /// How one batch fared.
    SendResult {
        /// The partition that it went to.
        partition: PartitionId,
        /// Whether it succeeded.
        status: Result<(), Failure>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
        /// The offset of its first message; absent after an error, and with acknowledgement none. A
        /// repeated batch is answered with the offset of the first.
        base_offset: Option<Offset>,
    }

    /// Messages, in the order of the request.
    Polled {
        /// One per section.
        sections: Vec<PollResult>,
    }

    /// The messages of one partition. They are those of `batches` with an offset from `from` up to, not
    /// including, `next`: whole batches are served, clients trim.
    PollResult {
        /// The partition.
        partition: PartitionId,
        /// Whether it succeeded; if not, the offsets mean nothing and there are no batches.
        status: Result<(), Failure>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
        /// The offset of the oldest message.
        start: Offset,
        /// The offset behind the newest message.
        end: Offset,
        /// The last message processed, as the consumer stored it.
        stored: Option<Offset>,
        /// The offset of the first message of this answer.
        from: Offset,
        /// The offset behind its last message, where the next poll begins; equal to `from` when there is
        /// none.
        next: Offset,
        /// Stamped batches. To be encoded, the items one after the other must be whole batches; when
        /// decoded, each item holds one.
        batches: Vec<Bytes>,
    }
}

/// Stamped batches: a u32 of their bytes, and the bytes. Each batch tells its own size; checksums are
/// left to the reader of the messages.
impl Field for Vec<Bytes> {
    const SIZE_MIN: usize = 4;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let size = reader.length32(field)?;
        let end = reader.position() + size;
        let mut batches = Self::new();
        while reader.position() < end {
            batches.push(reader.stamped_batch(field, end)?);
        }
        Ok(batches)
    }

    fn write(&self, writer: &mut Writer) {
        writer.count(self.iter().map(Bytes::len).sum());
        for batches in self {
            writer.shared(batches.clone());
        }
    }
}
