//! Putting a batch together.

use alloc::vec::Vec;

use bytes::Bytes;

use super::{
    BATCH_HEADER_SIZE, Batch, BatchHeader, CHECKSUM_START, Compression, MESSAGE_HEADER_SIZE,
    Message, UNCOMPRESSED_SIZE_MAX, message::MessageHeader,
};
use crate::{ProducerId, hash::checksum64_of_parts};

/// Puts a batch together. One copy of each message, into the batch.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    body: Vec<u8>,
    count: u32,
    first_timestamp: u64,
    last_timestamp: u64,
}

impl BatchBuilder {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for messages of `size` bytes together, see [`BatchBuilder::size_of`].
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Self {
            body: Vec::with_capacity(size),
            ..Self::default()
        }
    }

    /// Adds a message; its offset is ignored.
    ///
    /// # Panics
    /// When key or headers exceed 65,535 bytes, or the batch 4 GiB: callers check their users' input
    /// first.
    pub fn push(&mut self, message: &Message) {
        let size = Self::size_of(message);
        let [key_length, headers_length] = [&message.key, &message.headers]
            .map(|part| u16::try_from(part.len()).expect("key and headers are checked before"));
        let header = MessageHeader {
            size: u32::try_from(size).expect("a message fits a frame"),
            key_length,
            headers_length,
            timestamp: message.timestamp.0,
            id: message.id,
        };
        self.body.reserve(size);
        self.body.extend_from_slice(bytemuck::bytes_of(&header));
        for part in [&message.key, &message.headers, &message.payload] {
            self.body.extend_from_slice(part);
        }
        if self.count == 0 || header.timestamp < self.first_timestamp {
            self.first_timestamp = header.timestamp;
        }
        self.last_timestamp = self.last_timestamp.max(header.timestamp);
        self.count += 1;
    }

    /// Bytes that a message takes in a batch.
    #[must_use]
    pub const fn size_of(message: &Message) -> usize {
        MESSAGE_HEADER_SIZE + message.key.len() + message.headers.len() + message.payload.len()
    }

    /// Bytes of the batch so far, header included.
    #[must_use]
    pub const fn size(&self) -> usize {
        BATCH_HEADER_SIZE + self.body.len()
    }

    /// Messages so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The batch, uncompressed; `producer` and `sequence` are both 0 when it is not idempotent.
    ///
    /// # Panics
    /// When no message was added, or only one of `producer` and `sequence` is 0.
    #[must_use]
    pub fn build(self, producer: ProducerId, sequence: u64) -> Batch {
        let uncompressed_size = u32::try_from(self.body.len()).expect("a batch fits a frame");
        self.finish(producer, sequence, uncompressed_size, Compression::None)
    }

    /// The uncompressed body, for a client that compresses it.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The batch with its body replaced by `compressed`.
    ///
    /// # Panics
    /// As [`BatchBuilder::build`]; and when the messages take more than [`UNCOMPRESSED_SIZE_MAX`].
    #[must_use]
    pub fn build_compressed(
        mut self,
        producer: ProducerId,
        sequence: u64,
        compression: Compression,
        compressed: Vec<u8>,
    ) -> Batch {
        let uncompressed_size = u32::try_from(self.body.len()).expect("a batch fits a frame");
        assert!(uncompressed_size <= UNCOMPRESSED_SIZE_MAX);
        self.body = compressed;
        self.finish(producer, sequence, uncompressed_size, compression)
    }

    fn finish(
        self,
        producer: ProducerId,
        sequence: u64,
        uncompressed_size: u32,
        compression: Compression,
    ) -> Batch {
        assert!(self.count > 0);
        assert!((producer.0 == 0) == (sequence == 0));
        let size = u32::try_from(self.size()).expect("a batch fits a frame");
        let mut header = BatchHeader {
            size,
            count: self.count,
            sequence,
            producer: producer.0,
            first_timestamp: self.first_timestamp,
            last_timestamp: self.last_timestamp,
            uncompressed_size,
            compression: compression as u8,
            ..BatchHeader::default()
        };
        header.checksum =
            checksum64_of_parts([&header.as_bytes()[CHECKSUM_START..], self.body.as_slice()]);
        Batch {
            header,
            body: Bytes::from(self.body),
        }
    }
}
