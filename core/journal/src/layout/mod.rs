//! How a frame lies in a file.
//!
//! A file is a row of units. The last 8 bytes of a unit are its trailer: the file's generation, with the
//! highest bit set in a frame's first unit, and a CRC32C over all before it, salted with the unit's index
//! in the file. So every unit proves alone what it is and where it belongs. A frame begins at a 4-KiB
//! boundary and fills whole units up to one; the bytes before the trailers, taken together, are its
//! payload: header, tables of files, groups, superblock records and prepares, then the bodies of the
//! superblock records and of the prepares, then zeros.

mod head;
mod unit;

pub(crate) use head::{
    FILE_ENTRY_SIZE, FRAME_HEADER_SIZE, FileEntry, FrameHeader, GROUP_ENTRY_SIZE, GroupEntry, Head,
    PREPARE_ENTRY_SIZE, PrepareEntry, STATES_ALL, SUPERBLOCK_ENTRY_SIZE, SuperblockEntry,
};
pub(crate) use unit::{UnitState, inspect, seal};

use crate::UnitSize;

/// Frames begin and end at multiples of this many bytes.
pub const FRAME_ALIGNMENT: usize = 4096;

/// No frame has more bytes than this: a record of 8 MiB, with the superblock records of many groups.
pub const FRAME_SIZE_MAX: usize = 16 * 1024 * 1024;

/// Bytes of a unit's trailer.
pub(crate) const TRAILER_SIZE: usize = 8;

/// A frame's table names every group with a record in this many frames up to its own, so that whose
/// records a lost frame held is known from a later one.
pub(crate) const TABLE_FRAMES: u64 = 32;

impl UnitSize {
    /// Bytes of a unit before its trailer.
    pub(crate) const fn payload(self) -> usize {
        self.bytes() - TRAILER_SIZE
    }

    /// Bytes that a frame with `payload` bytes takes in a file.
    pub(crate) const fn frame_bytes(self, payload: usize) -> usize {
        let units = payload.div_ceil(self.payload());
        (units * self.bytes()).next_multiple_of(FRAME_ALIGNMENT)
    }

    /// Bytes of payload that fit into `bytes` bytes of a file.
    pub(crate) const fn payload_in(self, bytes: usize) -> usize {
        bytes / FRAME_ALIGNMENT * FRAME_ALIGNMENT / self.bytes() * self.payload()
    }
}
