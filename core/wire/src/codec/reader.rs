//! Reading fields.

use alloc::string::String;

use bytes::Bytes;

use super::{DecodeError, Problem};
use crate::Batch;

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
