//! Puts a frame together in a buffer that is used again for the next one.

use alloc::vec::Vec;

use bytemuck::{Pod, Zeroable};

use crate::{
    FileId, UnitSize,
    layout::{FRAME_ALIGNMENT, FRAME_SIZE_MAX, TRAILER_SIZE, seal},
};

/// The buffer is made of these, so that it lies where a driver may write it to the disk past the page cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; FRAME_ALIGNMENT]);

const _: () = assert!(align_of::<Page>() == FRAME_ALIGNMENT);

impl core::fmt::Debug for Page {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Page")
    }
}

/// Bytes of a frame, cut into sealed units. Every byte is copied once, and its checksum is computed while
/// it is in the cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameBuilder {
    unit_size: UnitSize,
    buffer: Vec<Page>,
    /// Bytes of the frame, trailers and padding included.
    size: usize,
    file: FileId,
    /// Index in the file of the frame's first unit.
    first_index: u32,
    /// Units that are sealed.
    sealed: usize,
    /// Bytes of payload in the unit that is being filled.
    filled: usize,
    trailers: Vec<u8>,
}

impl FrameBuilder {
    pub(crate) fn new(unit_size: UnitSize) -> Self {
        Self {
            unit_size,
            ..Self::default()
        }
    }

    /// Begins a frame of `size` bytes at `position` of the file.
    pub(crate) fn begin(&mut self, file: FileId, position: u64, size: usize) {
        assert!(size <= FRAME_SIZE_MAX);
        self.reserve(size);
        self.size = size;
        self.file = file;
        self.first_index = unit_index(self.unit_size, position);
        self.sealed = 0;
        self.filled = 0;
        self.trailers.clear();
    }

    fn reserve(&mut self, size: usize) {
        let pages = size.div_ceil(FRAME_ALIGNMENT);
        if self.buffer.len() < pages {
            self.buffer.resize(pages, Page::zeroed());
        }
    }

    /// Appends bytes of payload.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        let payload = self.unit_size.payload();
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(payload - self.filled));
            let at = self.sealed * self.unit_size.bytes() + self.filled;
            self.buffer_mut()[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            if self.filled == payload {
                self.seal();
            }
            bytes = later;
        }
    }

    /// Fills the rest with zeros; returns the frame's hash, that of its units' trailers.
    pub(crate) fn finish(&mut self) -> u64 {
        let unit = self.unit_size.bytes();
        while self.sealed * unit < self.size {
            let at = self.sealed * unit;
            let filled = self.filled;
            self.buffer_mut()[at + filled..at + unit].fill(0);
            self.seal();
        }
        assert!(self.sealed * unit == self.size);
        wire::checksum64(&self.trailers)
    }

    fn seal(&mut self) {
        let unit = self.unit_size.bytes();
        let at = self.sealed * unit;
        let sealed = u32::try_from(self.sealed).expect("a frame has at most 16 MiB");
        let index = self.first_index + sealed;
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut self.buffer);
        let bytes = &mut buffer[at..at + unit];
        seal(bytes, self.file, index, sealed == 0);
        self.trailers
            .extend_from_slice(&bytes[unit - TRAILER_SIZE..]);
        self.sealed += 1;
        self.filled = 0;
    }

    /// The frame as it is to be written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.buffer)[..self.size]
    }

    /// Takes over a frame that was written before.
    pub(crate) fn load(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.size = bytes.len();
        self.buffer_mut()[..bytes.len()].copy_from_slice(bytes);
    }

    fn buffer_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.buffer)
    }
}

/// The index in its file of the unit at `position`.
pub(crate) fn unit_index(unit_size: UnitSize, position: u64) -> u32 {
    u32::try_from(position / unit_size.bytes() as u64).expect("a file has at most 2 TiB")
}

/// The hash of a frame that was read back, as [`FrameBuilder::finish`] computes it.
pub(crate) fn frame_hash(unit_size: UnitSize, frame: &[u8]) -> u64 {
    let mut trailers = Vec::with_capacity(frame.len() / unit_size.bytes() * TRAILER_SIZE);
    for unit in frame.chunks_exact(unit_size.bytes()) {
        trailers.extend_from_slice(&unit[unit_size.payload()..]);
    }
    wire::checksum64(&trailers)
}
