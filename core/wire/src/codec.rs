//! Reading and writing little-endian fields.

use alloc::{string::String, vec::Vec};
use core::fmt;

use bytes::Bytes;

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

    fn skip(&mut self, field: &'static str, size: usize) -> Result<(), DecodeError> {
        let left = self.left();
        if size <= left {
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
        let size = usize::from(self.u8(field)?);
        self.text(field, size)
    }

    /// Reads a u16 length and as many bytes of UTF-8.
    ///
    /// # Errors
    /// `Truncated`; `Text` when it is not UTF-8.
    pub fn text16(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let size = usize::from(self.u16(field)?);
        self.text(field, size)
    }

    fn text(&mut self, field: &'static str, size: usize) -> Result<String, DecodeError> {
        let start = self.position;
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
        let size = self.u32(field)?;
        let size = usize::try_from(size).expect("a u32 fits a usize");
        self.bytes(field, size)
    }

    /// Reads a u32 count of items that take at least `item_size` bytes each, so that the count may size
    /// an allocation.
    ///
    /// # Errors
    /// `Truncated` when the bytes left cannot hold so many items.
    pub fn count(&mut self, field: &'static str, item_size: usize) -> Result<usize, DecodeError> {
        let start = self.position;
        let count = self.u32(field)?;
        let needed = u64::from(count) * item_size as u64;
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

/// Writes fields into a growing body.
#[derive(Clone, Debug, Default)]
pub struct Writer {
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
        Self { buffer: Vec::new() }
    }

    /// An empty body with room for `size` bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Self {
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
    pub const fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The body.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.buffer)
    }

    /// The body, to be extended.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.buffer
    }
}
