//! Messages inside a batch.

use alloc::{string::String, vec::Vec};
use core::iter::FusedIterator;

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

use super::{error, invalid};
use crate::{DecodeError, Offset, Problem, Timestamp};

/// Bytes of a message before key, headers and payload.
pub const MESSAGE_HEADER_SIZE: usize = 32;

/// The longest key, in bytes.
pub const KEY_SIZE_MAX: usize = u16::MAX as usize;

/// The most bytes that the headers of one message take in their encoded form.
pub const MESSAGE_HEADERS_SIZE_MAX: usize = u16::MAX as usize;

/// What stands before key, headers and payload.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct MessageHeader {
    /// Bytes of the message, this header included.
    pub(super) size: u32,
    pub(super) key_length: u16,
    pub(super) headers_length: u16,
    pub(super) timestamp: u64,
    pub(super) id: u128,
}

const _: () = assert!(size_of::<MessageHeader>() == MESSAGE_HEADER_SIZE);

impl MessageHeader {
    /// Reads the header at `position`, and checks that the message ends within `body`.
    fn read(body: &[u8], position: usize) -> Result<Self, DecodeError> {
        let left = body.len() - position;
        if left < MESSAGE_HEADER_SIZE {
            let (needed, left) = (MESSAGE_HEADER_SIZE as u64, left as u64);
            let problem = Problem::Truncated { needed, left };
            return Err(error("batch message", position, problem));
        }
        let bytes = &body[position..position + MESSAGE_HEADER_SIZE];
        let header: Self = bytemuck::pod_read_unaligned(bytes);
        if (header.size as usize) < header.payload_start() {
            return Err(invalid("batch message size", position, header.size));
        }
        if header.size as usize > left {
            let (needed, left) = (u64::from(header.size), left as u64);
            let problem = Problem::Truncated { needed, left };
            return Err(error("batch message", position, problem));
        }
        Ok(header)
    }

    /// Where the headers start, counted from the message.
    const fn headers_start(&self) -> usize {
        MESSAGE_HEADER_SIZE + self.key_length as usize
    }

    /// Where the payload starts, counted from the message.
    const fn payload_start(&self) -> usize {
        self.headers_start() + self.headers_length as usize
    }
}

/// What the messages of a body amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: u32,
    pub(super) first_timestamp: u64,
    pub(super) last_timestamp: u64,
}

/// Walks an uncompressed body without taking it apart, and checks every message.
pub(super) fn summarize(body: &[u8]) -> Result<Summary, DecodeError> {
    let mut summary = Summary {
        count: 0,
        first_timestamp: u64::MAX,
        last_timestamp: 0,
    };
    let mut position = 0;
    while position < body.len() {
        let header = MessageHeader::read(body, position)?;
        if header.headers_length > 0 {
            let headers = position + header.headers_start()..position + header.payload_start();
            check_headers(&body[headers.clone()]).map_err(|error| DecodeError {
                position: headers.start + error.position,
                ..error
            })?;
        }
        summary.count = summary.count.saturating_add(1);
        summary.first_timestamp = summary.first_timestamp.min(header.timestamp);
        summary.last_timestamp = summary.last_timestamp.max(header.timestamp);
        position += header.size as usize;
    }
    Ok(summary)
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
    /// Headers in their encoded form, see [`encode_headers`] and [`Message::headers`].
    pub headers: Bytes,
    /// The payload.
    pub payload: Bytes,
}

impl Message {
    /// Walks the headers.
    #[must_use]
    pub fn headers(&self) -> HeaderIter<'_> {
        HeaderIter {
            headers: &self.headers,
            position: 0,
        }
    }
}

/// Walks the messages of an uncompressed body; ends after the first error.
#[derive(Clone, Debug)]
pub struct MessageIter {
    body: Bytes,
    position: usize,
    offset: Offset,
}

impl MessageIter {
    /// Walks a body that was decompressed by the caller.
    #[must_use]
    pub const fn new(body: Bytes, base_offset: Offset) -> Self {
        Self {
            body,
            position: 0,
            offset: base_offset,
        }
    }

    fn read(&mut self) -> Result<Message, DecodeError> {
        let start = self.position;
        let header = MessageHeader::read(&self.body, start)?;
        let part = |from: usize, to: usize| self.body.slice(start + from..start + to);
        let message = Message {
            offset: self.offset,
            id: header.id,
            timestamp: Timestamp(header.timestamp),
            key: part(MESSAGE_HEADER_SIZE, header.headers_start()),
            headers: part(header.headers_start(), header.payload_start()),
            payload: part(header.payload_start(), header.size as usize),
        };
        self.position += header.size as usize;
        self.offset = self.offset.next();
        Ok(message)
    }
}

impl Iterator for MessageIter {
    type Item = Result<Message, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.body.len() {
            return None;
        }
        let message = self.read();
        if message.is_err() {
            self.position = self.body.len();
        }
        Some(message)
    }
}

impl FusedIterator for MessageIter {}

/// Walks the headers of a message: name and value of each; ends after the first error.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    headers: &'a [u8],
    position: usize,
}

impl<'a> HeaderIter<'a> {
    fn read(&mut self) -> Result<(&'a str, &'a [u8]), DecodeError> {
        let name_length = usize::from(self.take(1)?[0]);
        let start = self.position;
        let name = self.take(name_length)?;
        let name = match core::str::from_utf8(name) {
            Ok(name) if !name.is_empty() => name,
            _ => return Err(error("batch message headers", start, Problem::Text)),
        };
        let value_length = self.take(2)?;
        let value_length = u16::from_le_bytes([value_length[0], value_length[1]]);
        Ok((name, self.take(usize::from(value_length))?))
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], DecodeError> {
        let left = &self.headers[self.position..];
        let Some(bytes) = left.get(..size) else {
            let (needed, left) = (size as u64, left.len() as u64);
            let problem = Problem::Truncated { needed, left };
            return Err(error("batch message headers", self.position, problem));
        };
        self.position += size;
        Ok(bytes)
    }
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Result<(&'a str, &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.headers.len() {
            return None;
        }
        let header = self.read();
        if header.is_err() {
            self.position = self.headers.len();
        }
        Some(header)
    }
}

impl FusedIterator for HeaderIter<'_> {}

fn check_headers(headers: &[u8]) -> Result<(), DecodeError> {
    let mut walk = HeaderIter {
        headers,
        position: 0,
    };
    walk.try_for_each(|header| header.map(|_| ()))
}

/// Why headers cannot be part of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    /// A name is empty or has more than 255 bytes.
    #[error("header name {name:?} has {} bytes; 1 to 255 are allowed", .name.len())]
    Name {
        /// The name.
        name: String,
    },
    /// A value has more than 65,535 bytes.
    #[error("the value of header {name:?} has {size} bytes; the limit is 65535")]
    Value {
        /// The header's name.
        name: String,
        /// Bytes of the value.
        size: usize,
    },
    /// Together they are too large.
    #[error(
        "the headers of the message take {size} bytes; the limit is {MESSAGE_HEADERS_SIZE_MAX}"
    )]
    Size {
        /// Bytes of all headers in their encoded form.
        size: usize,
    },
}

/// Encodes headers for [`Message::headers`]: of each the name's length as u8, the name, the value's
/// length as u16, the value. Names may repeat; the order is kept.
///
/// # Errors
/// The first limit that is exceeded.
pub fn encode_headers<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Bytes, HeaderProblem> {
    let mut encoded = Vec::new();
    for (name, value) in headers {
        let name_length = match u8::try_from(name.len()) {
            Ok(length) if length > 0 => length,
            _ => {
                let name = String::from(name);
                return Err(HeaderProblem::Name { name });
            }
        };
        let Ok(value_length) = u16::try_from(value.len()) else {
            let (name, size) = (String::from(name), value.len());
            return Err(HeaderProblem::Value { name, size });
        };
        encoded.push(name_length);
        encoded.extend_from_slice(name.as_bytes());
        encoded.extend_from_slice(&value_length.to_le_bytes());
        encoded.extend_from_slice(value);
    }
    if encoded.len() > MESSAGE_HEADERS_SIZE_MAX {
        let size = encoded.len();
        return Err(HeaderProblem::Size { size });
    }
    Ok(Bytes::from(encoded))
}
