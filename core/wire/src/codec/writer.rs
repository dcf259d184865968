//! Writing fields.

use alloc::vec::Vec;

use bytes::Bytes;

/// Byte strings from this size on are passed on as they are; smaller ones are cheaper to copy.
pub(super) const SHARED_SIZE_MIN: usize = 1024;

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
