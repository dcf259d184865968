//! Reading and writing little-endian fields.

use alloc::{string::String, vec::Vec};
use core::fmt;

use bytes::Bytes;

use crate::Batch;

/// Why foreign bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} at byte {position}: {problem}")]
pub struct DecodeError {
    /// The field that was being read, as PROTOCOL.md names it.
    pub field: &'static str,
    /// Where it starts, counted from the beginning of the body.
    pub position: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// The kinds of damage that a decoder tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Fewer bytes are left than the field needs.
    Truncated {
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// The value is none of those that PROTOCOL.md allows.
    Invalid {
        /// The value read.
        value: u64,
    },
    /// The value exceeds the limit.
    TooLarge {
        /// The value read.
        value: u64,
        /// The largest that is allowed.
        limit: u64,
    },
    /// Text is not UTF-8, or breaks the rules for names.
    Text,
    /// The checksum does not match.
    Checksum,
    /// Bytes are left behind the last field.
    Trailing {
        /// How many.
        left: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, left } => write!(f, "needs {needed} bytes, {left} are left"),
            Self::Invalid { value } => write!(f, "{value} is not a value of this field"),
            Self::TooLarge { value, limit } => write!(f, "{value} exceeds the limit of {limit}"),
            Self::Text => f.write_str("is not valid text"),
            Self::Checksum => f.write_str("does not match its checksum"),
            Self::Trailing { left } => write!(f, "{left} bytes are left behind the last field"),
        }
    }
}

/// Reads fields from a body, one after the other. Byte strings are slices of the body, not copies.
#[derive(Clone, Debug)]
pub struct Reader {
    body: Bytes,
    position: usize,
}

macro_rules! read_integer {
    ($($(#[$doc:meta])* $name:ident: $ty:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Truncated` when the body ends first.
        pub fn $name(&mut self, field: &'static str) -> Result<$ty, DecodeError> {
            const SIZE: usize = size_of::<$ty>();
            let start = self.position;
            self.skip(field, SIZE)?;
            let mut bytes = [0; SIZE];
            bytes.copy_from_slice(&self.body[start..start + SIZE]);
            Ok(<$ty>::from_le_bytes(bytes))
        }
    )*};
}

impl Reader {
    /// Starts at the first byte of `body`.
    #[must_use]
    pub const fn new(body: Bytes) -> Self {
        Self { body, position: 0 }
    }

    /// Bytes that are not read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.body.len() - self.position
    }

    /// Bytes that are read.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// An error at the current position.
    #[must_use]
    pub const fn error(&self, field: &'static str, problem: Problem) -> DecodeError {
        DecodeError {
            field,
            position: self.position,
            problem,
        }
    }

    /// The error of a value, read at `position`, that the field cannot have.
    #[must_use]
    pub fn invalid(
        &self,
        field: &'static str,
        position: usize,
        value: impl Into<u64>,
    ) -> DecodeError {
        let value = value.into();
        DecodeError {
            field,
            position,
            problem: Problem::Invalid { value },
        }
    }

    fn skip(&mut self, field: &'static str, size: usize) -> Result<(), DecodeError> {
        let left = self.left();
        if size <= left {
            #[cfg(test)]
            crate::trace::record(field, self.position, size);
            self.position += size;
            Ok(())
        } else {
            Err(self.error(
                field,
                Problem::Truncated {
                    needed: size as u64,
                    left: left as u64,
                },
            ))
        }
    }

    read_integer! {
        /// Reads one byte.
        u8: u8;
        /// Reads a u16.
        u16: u16;
        /// Reads a u32.
        u32: u32;
        /// Reads a u64.
        u64: u64;
        /// Reads a u128.
        u128: u128;
    }

    /// Reads the u8 that tells the alternatives of `field` apart.
    pub(crate) fn kind(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        part_of_field("kind");
        self.u8(field)
    }

    /// Reads the u8 that tells whether a value follows.
    pub(crate) fn present(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        part_of_field("present");
        self.bool(field)
    }

    /// Reads a length as u8.
    pub(crate) fn length8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        part_of_field("length");
        self.u8(field)
    }

    /// Reads a length as u16.
    pub(crate) fn length16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        part_of_field("length");
        self.u16(field)
    }

    /// Reads a length as u32 that the bytes left back.
    pub(crate) fn length32(&mut self, field: &'static str) -> Result<usize, DecodeError> {
        self.counted(field, "length", 1)
    }

    /// Reads a u16 length and as many bytes of text; what is not UTF-8 is shown as far as it goes.
    pub(crate) fn lossy_text16(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let size = usize::from(self.length16(field)?);
        #[cfg(test)]
        crate::trace::text();
        let bytes = self.bytes(field, size)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a u8 that is 0 or 1.
    ///
    /// # Errors
    /// `Truncated`; `Invalid` for any other value.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        let start = self.position;
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.invalid(field, start, value)),
        }
    }

    /// Reads `size` bytes as they are.
    ///
    /// # Errors
    /// `Truncated` when the body ends first.
    pub fn bytes(&mut self, field: &'static str, size: usize) -> Result<Bytes, DecodeError> {
        let start = self.position;
        self.skip(field, size)?;
        Ok(self.body.slice(start..start + size))
    }

    /// Reads a u8 length and as many bytes of UTF-8.
    ///
    /// # Errors
    /// `Truncated`; `Text` when it is not UTF-8.
    pub fn text8(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let size = usize::from(self.length8(field)?);
        self.text(field, size)
    }

    /// Reads a u16 length and as many bytes of UTF-8.
    ///
    /// # Errors
    /// `Truncated`; `Text` when it is not UTF-8.
    pub fn text16(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let size = usize::from(self.length16(field)?);
        self.text(field, size)
    }

    fn text(&mut self, field: &'static str, size: usize) -> Result<String, DecodeError> {
        let start = self.position;
        #[cfg(test)]
        crate::trace::text();
        let bytes = self.bytes(field, size)?;
        match core::str::from_utf8(&bytes) {
            Ok(text) => Ok(String::from(text)),
            Err(_) => Err(DecodeError {
                field,
                position: start,
                problem: Problem::Text,
            }),
        }
    }

    /// Reads a u32 length and as many bytes.
    ///
    /// # Errors
    /// `Truncated` when the body ends first.
    pub fn bytes32(&mut self, field: &'static str) -> Result<Bytes, DecodeError> {
        let size = self.length32(field)?;
        self.bytes(field, size)
    }

    /// Reads a u32 count of items that take at least `item_size` bytes each, so that the count may size
    /// an allocation.
    ///
    /// # Panics
    /// When `item_size` is 0: any count would pass.
    ///
    /// # Errors
    /// `Truncated` when the bytes left cannot hold so many items.
    pub fn count(&mut self, field: &'static str, item_size: usize) -> Result<usize, DecodeError> {
        assert!(item_size > 0);
        self.counted(field, "count", item_size)
    }

    fn counted(
        &mut self,
        field: &'static str,
        part: &'static str,
        item_size: usize,
    ) -> Result<usize, DecodeError> {
        let start = self.position;
        part_of_field(part);
        let count = self.u32(field)?;
        let needed = u64::from(count).saturating_mul(item_size as u64);
        let left = self.left() as u64;
        if needed <= left {
            Ok(usize::try_from(count).expect("a u32 fits a usize"))
        } else {
            Err(DecodeError {
                field,
                position: start,
                problem: Problem::Truncated { needed, left },
            })
        }
    }

    /// Reads a batch as a producer sends it: checked as [`Batch::read`] does, and not stamped.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn batch(&mut self, field: &'static str) -> Result<Batch, DecodeError> {
        let start = self.position;
        let at = |error: DecodeError| DecodeError {
            position: start + error.position,
            ..error
        };
        let batch = Batch::read(&self.body.slice(start..)).map_err(at)?;
        batch.check_unstamped().map_err(at)?;
        self.bytes(field, batch.header.size as usize)?;
        Ok(batch)
    }

    /// Reads one batch of a poll's answer, which must end at or before `end`. Only its size is checked.
    pub(crate) fn stamped_batch(
        &mut self,
        field: &'static str,
        end: usize,
    ) -> Result<Bytes, DecodeError> {
        let start = self.position;
        let header = Batch::read_header(&self.body[start..end]).map_err(|error| DecodeError {
            position: start + error.position,
            ..error
        })?;
        let size = header.size as usize;
        if size > end - start {
            let (needed, left) = (size as u64, (end - start) as u64);
            return Err(self.error(field, Problem::Truncated { needed, left }));
        }
        self.bytes(field, size)
    }

    /// All bytes that are left.
    #[must_use]
    pub fn rest(&mut self) -> Bytes {
        let rest = self.body.slice(self.position..);
        self.position = self.body.len();
        rest
    }

    /// Ends reading.
    ///
    /// # Errors
    /// `Trailing` when bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.error("body", Problem::Trailing { left: left as u64 })),
        }
    }
}

/// Says what the next read is of its field; only tests record it.
fn part_of_field(part: &'static str) {
    #[cfg(test)]
    crate::trace::part(part);
    #[cfg(not(test))]
    let _ = part;
}

/// Byte strings from this size on are passed on as they are; smaller ones are cheaper to copy.
const SHARED_SIZE_MIN: usize = 1024;

/// Writes fields into a growing body.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// What is written up to the last byte string that is shared.
    parts: Vec<Bytes>,
    /// What is written since.
    buffer: Vec<u8>,
}

macro_rules! write_integer {
    ($($(#[$doc:meta])* $name:ident: $ty:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, value: $ty) -> &mut Self {
            self.bytes(&value.to_le_bytes())
        }
    )*};
}

impl Writer {
    /// An empty body.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parts: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// An empty body with room for `size` bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Self {
            parts: Vec::new(),
            buffer: Vec::with_capacity(size),
        }
    }

    write_integer! {
        /// Writes one byte.
        u8: u8;
        /// Writes a u16.
        u16: u16;
        /// Writes a u32.
        u32: u32;
        /// Writes a u64.
        u64: u64;
        /// Writes a u128.
        u128: u128;
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer.extend_from_slice(bytes);
        self
    }

    /// Writes bytes as they are, without copying them when they are many: they become a part of their own.
    pub fn shared(&mut self, bytes: Bytes) -> &mut Self {
        if bytes.len() < SHARED_SIZE_MIN {
            return self.bytes(&bytes);
        }
        self.seal();
        self.parts.push(bytes);
        self
    }

    fn seal(&mut self) {
        if !self.buffer.is_empty() {
            self.parts
                .push(Bytes::from(core::mem::take(&mut self.buffer)));
        }
    }

    /// Writes a u8 length and the text.
    ///
    /// # Panics
    /// When the text has more than 255 bytes: names are checked before they are encoded.
    pub fn text8(&mut self, text: &str) -> &mut Self {
        self.u8(u8::try_from(text.len()).expect("text8 takes at most 255 bytes"))
            .bytes(text.as_bytes())
    }

    /// Writes a u16 length and the text.
    ///
    /// # Panics
    /// When the text has more than 65,535 bytes.
    pub fn text16(&mut self, text: &str) -> &mut Self {
        self.u16(u16::try_from(text.len()).expect("text16 takes at most 65,535 bytes"))
            .bytes(text.as_bytes())
    }

    /// Writes a u32 length and the bytes.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` bytes.
    pub fn bytes32(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len()).bytes(bytes)
    }

    /// Writes a count or length as u32.
    ///
    /// # Panics
    /// When it exceeds `u32::MAX`.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("counts and lengths fit a u32"))
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum::<usize>() + self.buffer.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.buffer.is_empty()
    }

    /// The body in one piece; copies what was shared.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.into_vec())
    }

    /// The body in pieces; what was shared is not copied.
    #[must_use]
    pub fn into_parts(mut self) -> Vec<Bytes> {
        self.seal();
        self.parts
    }

    /// The body in one piece, to be extended.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        if self.parts.is_empty() {
            return self.buffer;
        }
        let mut body = Vec::with_capacity(self.len());
        for part in &self.parts {
            body.extend_from_slice(part);
        }
        body.extend_from_slice(&self.buffer);
        body
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::{Bytes, Problem, Reader, SHARED_SIZE_MIN, Writer};

    #[test]
    fn fields_come_back_in_their_order() {
        let mut writer = Writer::new();
        writer
            .u8(1)
            .u16(2)
            .u32(3)
            .u64(4)
            .u128(5)
            .text8("six")
            .text16("seven");
        writer.bytes32(b"eight").count(9);
        let mut reader = Reader::new(writer.into_bytes());
        assert_eq!(reader.u8("a"), Ok(1));
        assert_eq!(reader.u16("a"), Ok(2));
        assert_eq!(reader.u32("a"), Ok(3));
        assert_eq!(reader.u64("a"), Ok(4));
        assert_eq!(reader.u128("a"), Ok(5));
        assert_eq!(reader.text8("a").unwrap(), "six");
        assert_eq!(reader.text16("a").unwrap(), "seven");
        assert_eq!(reader.bytes32("a").unwrap(), "eight");
        assert_eq!(reader.rest(), [9, 0, 0, 0][..]);
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn error_names_field_position_and_what_is_wrong() {
        let mut reader = Reader::new(Bytes::from_static(&[0, 0, 7]));
        reader.u16("first").unwrap();
        let error = reader.u32("second").unwrap_err();
        assert_eq!(
            error.to_string(),
            "second at byte 2: needs 4 bytes, 1 are left"
        );
        let error = reader.bool("second").unwrap_err();
        assert_eq!(
            error.to_string(),
            "second at byte 2: 7 is not a value of this field"
        );
        let reader = Reader::new(Bytes::from_static(b"xy"));
        let error = reader.finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            "body at byte 0: 2 bytes are left behind the last field"
        );
    }

    #[test]
    fn failed_read_takes_nothing() {
        let mut reader = Reader::new(Bytes::from_static(&[1, 2]));
        assert!(reader.u32("a").is_err());
        assert_eq!((reader.position(), reader.left()), (0, 2));
    }

    #[test]
    fn count_is_backed_by_bytes() {
        let body = |count: u32| {
            let mut writer = Writer::new();
            writer.u32(count).bytes(&[0; 30]);
            writer.into_bytes()
        };
        assert_eq!(Reader::new(body(3)).count("items", 10), Ok(3));
        let error = Reader::new(body(4)).count("items", 10).unwrap_err();
        let (needed, left) = (40, 30);
        assert_eq!(error.problem, Problem::Truncated { needed, left });
        assert_eq!(error.position, 0);
        let error = Reader::new(body(u32::MAX))
            .count("items", 1 << 40)
            .unwrap_err();
        assert!(matches!(error.problem, Problem::Truncated { .. }));
        assert!(Reader::new(body(31)).bytes32("bytes").is_err());
    }

    #[test]
    fn text_that_is_not_utf8_is_refused() {
        let mut reader = Reader::new(Bytes::from_static(&[2, 0xc3, 0x28]));
        let error = reader.text8("name").unwrap_err();
        assert_eq!((error.position, error.problem), (1, Problem::Text));
    }

    #[test]
    fn large_bytes_are_shared_and_small_ones_copied() {
        let large = Bytes::from(std::vec![7; SHARED_SIZE_MIN]);
        let small = large.slice(1..);
        let mut writer = Writer::new();
        writer.u8(1).shared(small.clone()).u8(2);
        writer.shared(large.clone()).shared(large.clone()).u8(3);
        assert_eq!(writer.len(), 3 + small.len() + 2 * large.len());
        let whole = writer.clone().into_bytes();
        let parts = writer.into_parts();
        assert_eq!(parts.concat(), whole);
        let sizes: std::vec::Vec<usize> = parts.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [2 + small.len(), large.len(), large.len(), 1]);
        assert_eq!(parts[1].as_ptr(), large.as_ptr());
    }

    #[test]
    fn writer_knows_whether_anything_was_written() {
        let mut writer = Writer::with_capacity(10);
        assert!(writer.is_empty());
        assert!(writer.clone().into_parts().is_empty());
        writer.shared(Bytes::from(std::vec![7; SHARED_SIZE_MIN]));
        assert!(!writer.is_empty());
    }
}
