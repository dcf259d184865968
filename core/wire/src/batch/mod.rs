//! Batches of messages: one layout on the socket, in the journal and in segments.

mod builder;
mod message;
#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};
use bytes::{Bytes, BytesMut};

use crate::{
    DecodeError, Offset, Problem, ProducerId, Timestamp, checksum64, hash::checksum64_of_parts,
};

pub use builder::BatchBuilder;
pub use message::{
    HeaderIter, HeaderProblem, KEY_SIZE_MAX, MESSAGE_HEADER_SIZE, MESSAGE_HEADERS_SIZE_MAX,
    Message, MessageIter, encode_headers,
};

/// Bytes of the header.
pub const BATCH_HEADER_SIZE: usize = 96;

/// The largest batch, header included, that a node admits: small enough for its prepare, and for an
/// answer that serves it beside many other sections.
pub const BATCH_SIZE_MAX: u32 = 7 * 1024 * 1024;

/// The most bytes that the messages of a compressed batch may take when they are decompressed: what a
/// consumer must be ready to allocate for one batch.
pub const UNCOMPRESSED_SIZE_MAX: u32 = 64 * 1024 * 1024;

/// Where the producer's checksum starts to count: behind the fields that the broker stamps and itself.
const CHECKSUM_START: usize = 32;

/// Bytes that the stamp's checksum runs over.
const STAMP_SIZE: usize = 24;

/// The header. The first three fields are 0 in a send and stamped when the batch is applied; the
/// producer's checksum starts behind itself, so that stamping hashes 24 bytes and not the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BatchHeader {
    /// Offset of the first message.
    pub base_offset: u64,
    /// The broker's time of the append, microseconds.
    pub timestamp: u64,
    /// XXH3-64 of the two fields above and of `checksum`.
    pub stamp_checksum: u64,
    /// XXH3-64 of everything after this field, messages included.
    pub checksum: u64,
    /// Bytes of header and body.
    pub size: u32,
    /// Messages in the body; at least 1.
    pub count: u32,
    /// The producer's sequence number of this batch, from 1; 0 when not idempotent.
    pub sequence: u64,
    /// The producer; 0 when not idempotent.
    pub producer: u128,
    /// The lowest timestamp of a message, by the producer's clock.
    pub first_timestamp: u64,
    /// The highest timestamp of a message, by the producer's clock.
    pub last_timestamp: u64,
    /// Bytes of the body when it is not compressed.
    pub uncompressed_size: u32,
    /// A [`Compression`].
    pub compression: u8,
    /// 0.
    pub flags: u8,
    /// 0.
    pub reserved: [u8; 10],
}

const _: () = assert!(size_of::<BatchHeader>() == BATCH_HEADER_SIZE);
const _: () = assert!(core::mem::offset_of!(BatchHeader, size) == CHECKSUM_START);

/// How a client compressed the body of a batch. The broker never looks inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// Messages as they are.
    #[default]
    None = 0,
    /// One LZ4 block.
    Lz4 = 1,
    /// One Zstandard frame.
    Zstd = 2,
}

/// A batch for one partition: header and body, the body shared and never copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The header.
    pub header: BatchHeader,
    /// The messages, perhaps compressed.
    pub body: Bytes,
}

impl Batch {
    /// Reads one batch from the front of `bytes`, as it came from a producer; what follows it is not
    /// looked at.
    ///
    /// Checks sizes, counts, the reserved bytes, the checksum, and of an uncompressed batch that its
    /// messages fill the body exactly and are as the header says. The stamp is checked by
    /// [`Batch::is_stamped`].
    ///
    /// # Errors
    /// Names the first field that is wrong; positions count from the batch's first byte.
    pub fn read(bytes: &Bytes) -> Result<Self, DecodeError> {
        let size = Self::read_header(bytes)?.size;
        if size > BATCH_SIZE_MAX {
            let (value, limit) = (u64::from(size), u64::from(BATCH_SIZE_MAX));
            return Err(error("batch size", 32, Problem::TooLarge { value, limit }));
        }
        let batch = Self::read_admitted(bytes)?;
        batch.check()?;
        Ok(batch)
    }

    /// Reads one batch from the front of `bytes` that [`Batch::read`] passed when it was admitted: only
    /// sizes and the checksum are looked at, not each message.
    ///
    /// # Errors
    /// `Truncated`, `Invalid` for a size below the header's, or `Checksum`.
    pub fn read_admitted(bytes: &Bytes) -> Result<Self, DecodeError> {
        let header = Self::read_header(bytes)?;
        let size = header.size as usize;
        if bytes.len() < size {
            let (needed, left) = (u64::from(header.size), bytes.len() as u64);
            return Err(error("batch", 0, Problem::Truncated { needed, left }));
        }
        if checksum64(&bytes[CHECKSUM_START..size]) != header.checksum {
            return Err(error("batch checksum", 24, Problem::Checksum));
        }
        Ok(Self {
            header,
            body: bytes.slice(BATCH_HEADER_SIZE..size),
        })
    }

    /// Reads only the header at the front of `bytes`; nothing is checked but that sizes are possible.
    ///
    /// # Errors
    /// `Truncated`, or `Invalid` for a size below the header's.
    pub fn read_header(bytes: &[u8]) -> Result<BatchHeader, DecodeError> {
        let Some(header) = bytes.get(..BATCH_HEADER_SIZE) else {
            let (needed, left) = (BATCH_HEADER_SIZE as u64, bytes.len() as u64);
            return Err(error(
                "batch header",
                0,
                Problem::Truncated { needed, left },
            ));
        };
        let header: BatchHeader = bytemuck::pod_read_unaligned(header);
        if (header.size as usize) < BATCH_HEADER_SIZE {
            return Err(invalid("batch size", 32, header.size));
        }
        Ok(header)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let header = &self.header;
        if header.count == 0 {
            return Err(invalid("batch count", 36, 0_u32));
        }
        if (header.producer == 0) != (header.sequence == 0) {
            return Err(invalid("batch sequence", 40, header.sequence));
        }
        if header.flags != 0 {
            return Err(invalid("batch flags", 85, header.flags));
        }
        if let Some(byte) = header.reserved.iter().find(|byte| **byte != 0) {
            return Err(invalid("batch reserved", 86, *byte));
        }
        match self.compression() {
            Some(Compression::None) => self.check_uncompressed(),
            Some(Compression::Lz4 | Compression::Zstd) => header.check_compressed(),
            None => Err(invalid("batch compression", 84, header.compression)),
        }
    }

    fn check_uncompressed(&self) -> Result<(), DecodeError> {
        let header = &self.header;
        if header.uncompressed_size as usize != self.body.len() {
            return Err(invalid(
                "batch uncompressed_size",
                80,
                header.uncompressed_size,
            ));
        }
        let summary = message::summarize(&self.body).map_err(|error| DecodeError {
            position: BATCH_HEADER_SIZE + error.position,
            ..error
        })?;
        if summary.count != header.count {
            return Err(invalid("batch count", 36, header.count));
        }
        if summary.first_timestamp != header.first_timestamp {
            return Err(invalid("batch first_timestamp", 64, header.first_timestamp));
        }
        if summary.last_timestamp != header.last_timestamp {
            return Err(invalid("batch last_timestamp", 72, header.last_timestamp));
        }
        Ok(())
    }

    /// Checks that the fields which the broker stamps are 0, as in a send.
    pub(crate) fn check_unstamped(&self) -> Result<(), DecodeError> {
        let header = &self.header;
        let stamped = [header.base_offset, header.timestamp, header.stamp_checksum];
        match stamped.into_iter().find(|value| *value != 0) {
            None => Ok(()),
            Some(value) => Err(invalid("batch stamp", 0, value)),
        }
    }

    /// The compression, if it is one.
    #[must_use]
    pub const fn compression(&self) -> Option<Compression> {
        self.header.compression()
    }

    /// Stamps offset and time.
    #[must_use]
    pub fn stamped(mut self, base_offset: Offset, timestamp: Timestamp) -> Self {
        self.header.base_offset = base_offset.0;
        self.header.timestamp = timestamp.0;
        self.header.stamp_checksum = self.header.own_stamp();
        self
    }

    /// The same messages under another producer id and sequence, both 0 or neither; not stamped.
    ///
    /// # Panics
    /// When only one of `producer` and `sequence` is 0.
    #[must_use]
    pub fn numbered(mut self, producer: ProducerId, sequence: u64) -> Self {
        assert!((producer.0 == 0) == (sequence == 0));
        self.header = BatchHeader {
            base_offset: 0,
            timestamp: 0,
            stamp_checksum: 0,
            producer: producer.0,
            sequence,
            ..self.header
        };
        let header = &self.header.as_bytes()[CHECKSUM_START..];
        self.header.checksum = checksum64_of_parts([header, &self.body]);
        self
    }

    /// Whether offset and time are what was stamped.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.header.is_stamped()
    }

    /// Offset of the last message of a stamped batch.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        self.header.last_offset()
    }

    /// The messages of an uncompressed batch. Those of a compressed one: decompress the body, then
    /// [`MessageIter::new`].
    #[must_use]
    pub fn messages(&self) -> MessageIter {
        MessageIter::new(self.body.clone(), Offset(self.header.base_offset))
    }

    /// Header and body in one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(BATCH_HEADER_SIZE + self.body.len());
        bytes.extend_from_slice(self.header.as_bytes());
        bytes.extend_from_slice(&self.body);
        bytes.freeze()
    }
}

impl BatchHeader {
    /// The header's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// Offset of the last message of a stamped batch. Saturates on nonsense.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        let others = (self.count as u64).saturating_sub(1);
        Offset(self.base_offset.saturating_add(others))
    }

    /// The producer.
    #[must_use]
    pub const fn producer(&self) -> ProducerId {
        ProducerId(self.producer)
    }

    /// The compression, if it is one.
    #[must_use]
    pub const fn compression(&self) -> Option<Compression> {
        match self.compression {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Whether offset and time are what was stamped. Says nothing about the fields behind `checksum`.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.stamp_checksum == self.own_stamp()
    }

    /// What can be checked of a batch that is not looked into: that there is something, that the messages
    /// it promises fit the size it promises, and that the size is one which consumers accept.
    const fn check_compressed(&self) -> Result<(), DecodeError> {
        if self.size as usize == BATCH_HEADER_SIZE {
            let value = self.size as u64;
            return Err(error("batch size", 32, Problem::Invalid { value }));
        }
        let size = self.uncompressed_size;
        if size > UNCOMPRESSED_SIZE_MAX {
            let (value, limit) = (size as u64, UNCOMPRESSED_SIZE_MAX as u64);
            return Err(error(
                "batch uncompressed_size",
                80,
                Problem::TooLarge { value, limit },
            ));
        }
        if (size as u64) < self.count as u64 * MESSAGE_HEADER_SIZE as u64 {
            let value = size as u64;
            return Err(error(
                "batch uncompressed_size",
                80,
                Problem::Invalid { value },
            ));
        }
        if self.first_timestamp > self.last_timestamp {
            let value = self.first_timestamp;
            return Err(error(
                "batch first_timestamp",
                64,
                Problem::Invalid { value },
            ));
        }
        Ok(())
    }

    fn own_stamp(&self) -> u64 {
        let mut stamp = [0; STAMP_SIZE];
        stamp[..8].copy_from_slice(&self.base_offset.to_le_bytes());
        stamp[8..16].copy_from_slice(&self.timestamp.to_le_bytes());
        stamp[16..].copy_from_slice(&self.checksum.to_le_bytes());
        checksum64(&stamp)
    }
}

fn invalid(field: &'static str, position: usize, value: impl Into<u64>) -> DecodeError {
    let value = value.into();
    error(field, position, Problem::Invalid { value })
}

const fn error(field: &'static str, position: usize, problem: Problem) -> DecodeError {
    DecodeError {
        field,
        position,
        problem,
    }
}
