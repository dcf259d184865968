//! The stretch of a file that the scan looks at.

use alloc::vec::Vec;

use crate::{FRAME_ALIGNMENT, FileId, FileSize};

/// Bytes that are asked for at once.
const READ_SIZE: u64 = 1024 * 1024;

/// Bytes that are looked at and not yet dropped, at most.
const SLACK: usize = 4 * 1024 * 1024;

/// Stands for bytes that cannot be read: no unit, of no generation.
const UNREADABLE: u8 = 0xff;

/// Bytes of a file from some position on, as far as they are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub file: FileId,
    /// Bytes that the file has.
    actual: u64,
    /// Bytes that it should have; those between count as unreadable.
    pub size: u64,
    base: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Begins with a file that should have `size` bytes.
    pub(super) fn open(&mut self, file: FileSize, size: u64) {
        self.file = file.file;
        self.actual = file.size;
        self.size = size.next_multiple_of(FRAME_ALIGNMENT as u64);
        self.base = 0;
        self.bytes.clear();
        self.fill_missing();
    }

    /// Where the bytes end that are read so far.
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// The next bytes to read: position and length.
    pub(super) fn wanted(&self) -> (u64, u64) {
        let end = self.end();
        (end, READ_SIZE.min(self.actual.saturating_sub(end)))
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        assert!(self.end() <= self.actual);
        self.fill_missing();
    }

    pub(super) fn append_unreadable(&mut self, length: u64) {
        let length = length.min(self.actual - self.end());
        let length = usize::try_from(length).expect("no more was asked for");
        self.bytes.resize(self.bytes.len() + length, UNREADABLE);
        self.fill_missing();
    }

    fn fill_missing(&mut self) {
        if self.end() == self.actual && self.actual < self.size {
            let missing = usize::try_from(self.size - self.actual).expect("a file fits the memory");
            self.bytes.resize(self.bytes.len() + missing, UNREADABLE);
        }
    }

    /// The bytes of `position..position + length`; `None` when they are not read yet.
    pub(super) fn bytes(&self, position: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(position - self.base).ok()?;
        self.bytes.get(start..start + length)
    }

    /// Drops what lies before `position`, now and then.
    pub(super) fn discard(&mut self, position: u64) {
        let length = usize::try_from(position - self.base).expect("it is in the window");
        if length >= SLACK {
            self.bytes.drain(..length);
            self.base = position;
        }
    }
}
