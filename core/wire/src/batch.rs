//! Batches of messages: one layout on the socket, in the journal and in segments.

use alloc::vec::Vec;

use bytemuck::{Pod, Zeroable};
use bytes::{Bytes, BytesMut};

use crate::{DecodeError, Offset, Problem, ProducerId, Reader, Timestamp, checksum64};

/// Bytes of the header.
pub const BATCH_HEADER_SIZE: usize = 96;

/// Bytes of a message before key, headers and payload.
const MESSAGE_HEADER_SIZE: usize = 32;

/// Where the fields end that the broker stamps; the producer's checksum follows.
const STAMPED_SIZE: usize = 24;

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
    /// Reads one batch from the front of `bytes`; what follows it is not looked at.
    ///
    /// Checks sizes, counts, the reserved bytes, the checksum, and of an uncompressed batch that its
    /// messages fill the body exactly. The stamp is checked by [`Batch::is_stamped`].
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn read(bytes: &Bytes) -> Result<Self, DecodeError> {
        let header = Self::read_header(bytes)?;
        let size = header.size as usize;
        if bytes.len() < size {
            let (needed, left) = (u64::from(header.size), bytes.len() as u64);
            return Err(error("batch", Problem::Truncated { needed, left }));
        }
        if checksum64(&bytes[STAMPED_SIZE + 8..size]) != header.checksum {
            return Err(error("batch checksum", Problem::Checksum));
        }
        let batch = Self {
            header,
            body: bytes.slice(BATCH_HEADER_SIZE..size),
        };
        batch.check()?;
        Ok(batch)
    }

    /// Reads only the header at the front of `bytes`; nothing is checked but that sizes are possible.
    ///
    /// # Errors
    /// `Truncated`, or `Invalid` for a size below the header's.
    pub fn read_header(bytes: &[u8]) -> Result<BatchHeader, DecodeError> {
        let Some(header) = bytes.get(..BATCH_HEADER_SIZE) else {
            let (needed, left) = (BATCH_HEADER_SIZE as u64, bytes.len() as u64);
            return Err(error("batch header", Problem::Truncated { needed, left }));
        };
        let header: BatchHeader = bytemuck::pod_read_unaligned(header);
        if (header.size as usize) < BATCH_HEADER_SIZE {
            return Err(error(
                "batch size",
                Problem::Invalid {
                    value: u64::from(header.size),
                },
            ));
        }
        Ok(header)
    }

    /// Checks that the fields which the broker stamps are 0, as in a send.
    pub(crate) fn check_unstamped(&self) -> Result<(), DecodeError> {
        let header = &self.header;
        let stamped = [header.base_offset, header.timestamp, header.stamp_checksum];
        match stamped.into_iter().find(|value| *value != 0) {
            None => Ok(()),
            Some(value) => Err(error("batch stamp", Problem::Invalid { value })),
        }
    }

    fn check(&self) -> Result<(), DecodeError> {
        let header = &self.header;
        if header.count == 0 {
            return Err(error("batch count", Problem::Invalid { value: 0 }));
        }
        if header.flags != 0 || header.reserved != [0; 10] {
            return Err(error(
                "batch flags",
                Problem::Invalid {
                    value: u64::from(header.flags),
                },
            ));
        }
        if (header.producer == 0) != (header.sequence == 0) {
            return Err(error(
                "batch sequence",
                Problem::Invalid {
                    value: header.sequence,
                },
            ));
        }
        match self.compression() {
            Some(Compression::None) => self.check_messages(),
            Some(Compression::Lz4 | Compression::Zstd) => Ok(()),
            None => {
                let value = u64::from(header.compression);
                Err(error("batch compression", Problem::Invalid { value }))
            }
        }
    }

    fn check_messages(&self) -> Result<(), DecodeError> {
        let mut messages = self.messages();
        let mut count = 0_u64;
        while let Some(message) = messages.next_message() {
            message?;
            count += 1;
        }
        if count == u64::from(self.header.count) {
            Ok(())
        } else {
            Err(error(
                "batch count",
                Problem::Invalid {
                    value: u64::from(self.header.count),
                },
            ))
        }
    }

    /// The compression, if it is one.
    #[must_use]
    pub const fn compression(&self) -> Option<Compression> {
        match self.header.compression {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Stamps offset and time.
    #[must_use]
    pub fn stamped(mut self, base_offset: Offset, timestamp: Timestamp) -> Self {
        self.header.base_offset = base_offset.0;
        self.header.timestamp = timestamp.0;
        self.header.stamp_checksum = self.header.own_stamp();
        self
    }

    /// Whether offset and time are what was stamped.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.header.stamp_checksum == self.header.own_stamp()
    }

    /// Offset of the last message of a stamped batch.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        self.header.last_offset()
    }

    /// The messages of an uncompressed batch.
    #[must_use]
    pub fn messages(&self) -> MessageIter {
        MessageIter {
            reader: Reader::new(self.body.clone()),
            offset: self.header.base_offset,
        }
    }

    /// Header and body in one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.header.size as usize);
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
        Offset(
            self.base_offset
                .saturating_add(self.count as u64)
                .saturating_sub(1),
        )
    }

    /// The producer.
    #[must_use]
    pub const fn producer(&self) -> ProducerId {
        ProducerId(self.producer)
    }

    fn own_stamp(&self) -> u64 {
        let mut stamp = [0; STAMPED_SIZE];
        stamp[..8].copy_from_slice(&self.base_offset.to_le_bytes());
        stamp[8..16].copy_from_slice(&self.timestamp.to_le_bytes());
        stamp[16..].copy_from_slice(&self.checksum.to_le_bytes());
        checksum64(&stamp)
    }
}

/// One message; its byte strings are slices of the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its offset, once the batch is stamped.
    pub offset: Offset,
    /// The producer's id for it; 0: none.
    pub id: u128,
    /// The producer's time; 0: none, the batch's broker time counts.
    pub timestamp: Timestamp,
    /// The key; empty: none.
    pub key: Bytes,
    /// Headers in their encoded form: `name length u8, name, value length u16, value`, repeated.
    pub headers: Bytes,
    /// The payload.
    pub payload: Bytes,
}

/// Walks the messages of an uncompressed body.
#[derive(Clone, Debug)]
pub struct MessageIter {
    reader: Reader,
    offset: u64,
}

impl MessageIter {
    /// Walks a body that was decompressed by the caller.
    #[must_use]
    pub const fn new(body: Bytes, base_offset: Offset) -> Self {
        Self {
            reader: Reader::new(body),
            offset: base_offset.0,
        }
    }

    /// The next message; `None` at the end; after an error the walk must stop.
    pub fn next_message(&mut self) -> Option<Result<Message, DecodeError>> {
        if self.reader.left() == 0 {
            return None;
        }
        Some(self.read())
    }

    fn read(&mut self) -> Result<Message, DecodeError> {
        let size = self.reader.u32("message size")?;
        let key_size = usize::from(self.reader.u16("key length")?);
        let headers_size = usize::from(self.reader.u16("headers length")?);
        let timestamp = Timestamp(self.reader.u64("timestamp")?);
        let id = self.reader.u128("id")?;
        let Some(payload_size) =
            (size as usize).checked_sub(MESSAGE_HEADER_SIZE + key_size + headers_size)
        else {
            return Err(self.reader.error(
                "message size",
                Problem::Invalid {
                    value: u64::from(size),
                },
            ));
        };
        let key = self.reader.bytes("key", key_size)?;
        let headers = self.reader.bytes("headers", headers_size)?;
        let payload = self.reader.bytes("payload", payload_size)?;
        let offset = Offset(self.offset);
        self.offset = self.offset.saturating_add(1);
        Ok(Message {
            offset,
            id,
            timestamp,
            key,
            headers,
            payload,
        })
    }
}

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

    /// Adds a message; its offset is ignored.
    ///
    /// # Panics
    /// When key or headers exceed 65,535 bytes: callers check their users' input first.
    pub fn push(&mut self, message: &Message) {
        let size = Self::size_of(message);
        let lengths = [&message.key, &message.headers]
            .map(|part| u16::try_from(part.len()).expect("key and headers are checked before"));
        self.body.reserve(size);
        let size = u32::try_from(size).expect("a message fits a frame");
        self.body.extend_from_slice(&size.to_le_bytes());
        for length in lengths {
            self.body.extend_from_slice(&length.to_le_bytes());
        }
        self.body
            .extend_from_slice(&message.timestamp.0.to_le_bytes());
        self.body.extend_from_slice(&message.id.to_le_bytes());
        for part in [&message.key, &message.headers, &message.payload] {
            self.body.extend_from_slice(part);
        }
        let timestamp = message.timestamp.0;
        if self.count == 0 || timestamp < self.first_timestamp {
            self.first_timestamp = timestamp;
        }
        self.last_timestamp = self.last_timestamp.max(timestamp);
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
    /// When no message was added.
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
    /// When no message was added.
    #[must_use]
    pub fn build_compressed(
        mut self,
        producer: ProducerId,
        sequence: u64,
        compression: Compression,
        compressed: Vec<u8>,
    ) -> Batch {
        let uncompressed_size = u32::try_from(self.body.len()).expect("a batch fits a frame");
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
        // The checksum runs over header fields and messages alike, without joining them.
        let mut hasher = twox_hash::XxHash3_64::with_seed(0);
        core::hash::Hasher::write(&mut hasher, &header.as_bytes()[STAMPED_SIZE + 8..]);
        core::hash::Hasher::write(&mut hasher, &self.body);
        header.checksum = core::hash::Hasher::finish(&hasher);
        Batch {
            header,
            body: Bytes::from(self.body),
        }
    }
}

const fn error(field: &'static str, problem: Problem) -> DecodeError {
    DecodeError {
        field,
        position: 0,
        problem,
    }
}
