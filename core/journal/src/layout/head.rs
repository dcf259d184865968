//! The header of a frame and its tables.

use alloc::vec::Vec;
use core::ops::Range;

use bytemuck::{Pod, Zeroable};
use wire::{PREPARE_HEADER_SIZE, PrepareHeader, checksum64};

use super::{FRAME_ALIGNMENT, FRAME_SIZE_MAX};

/// "COHJ".
const MAGIC: u32 = u32::from_le_bytes(*b"COHJ");

/// Of this layout.
const VERSION: u32 = 1;

/// The frame names all groups and holds the superblock records of all: the first of a file, and the first
/// after a start.
pub(crate) const STATES_ALL: u32 = 1;

pub(crate) const FRAME_HEADER_SIZE: usize = 80;
pub(crate) const FILE_ENTRY_SIZE: usize = 16;
pub(crate) const GROUP_ENTRY_SIZE: usize = 48;
pub(crate) const SUPERBLOCK_ENTRY_SIZE: usize = 24;
pub(crate) const PREPARE_ENTRY_SIZE: usize = PREPARE_HEADER_SIZE + 8;

/// The first bytes of a frame, all in its first unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FrameHeader {
    /// XXH3-64 of the rest of the header and of the tables.
    pub checksum: u64,
    pub magic: u32,
    pub version: u32,
    /// Of the node, so that a foreign journal is never taken for ours.
    pub identity: u64,
    /// Counts frames, from 1, across files.
    pub sequence: u64,
    /// The hash of the frame before, see `FrameBuilder::finish`; 0: not known.
    pub previous: u64,
    /// The highest frame that was known flushed when this one was written.
    pub durable_through: u64,
    /// Of the file.
    pub generation: u32,
    /// Bytes of the frame in the file.
    pub size: u32,
    /// Bytes of header, tables and bodies.
    pub payload: u32,
    /// Entries of each table.
    pub files: u32,
    pub groups: u32,
    pub superblocks: u32,
    pub prepares: u32,
    /// [`STATES_ALL`], or nothing.
    pub flags: u32,
}

/// An older file of which something is still needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FileEntry {
    /// The sequence number of its last frame.
    pub last: u64,
    pub file: u32,
    pub reserved: u32,
}

/// Where a group stands after this frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct GroupEntry {
    /// How many prepares of the group were ever written, again or for the first time.
    pub written: u64,
    /// How many were ever written for the first time.
    pub numbered: u64,
    /// The op of the newest.
    pub head: u64,
    /// The newest frame with a record of the group.
    pub last_frame: u64,
    /// The first frame that held the newest superblock record; 0: there is none.
    pub superblock_frame: u64,
    pub group: u16,
    pub reserved: [u16; 3],
}

/// A superblock record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SuperblockEntry {
    pub checkpoint: u64,
    /// XXH3-64 of the body.
    pub checksum: u64,
    /// Bytes of the body.
    pub length: u32,
    pub group: u16,
    pub reserved: u16,
}

/// A prepare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrepareEntry {
    /// Which of the group's prepares it is, in the order of their first writing, from 1.
    pub number: u64,
    pub header: PrepareHeader,
}

const _: () = {
    assert!(size_of::<FrameHeader>() == FRAME_HEADER_SIZE);
    assert!(size_of::<FileEntry>() == FILE_ENTRY_SIZE);
    assert!(size_of::<GroupEntry>() == GROUP_ENTRY_SIZE);
    assert!(size_of::<SuperblockEntry>() == SUPERBLOCK_ENTRY_SIZE);
};

impl FrameHeader {
    pub(crate) fn new(identity: u64, generation: u32) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            identity,
            generation,
            ..Self::default()
        }
    }

    /// Reads the header from a frame's first unit; `None` when it is none of ours.
    pub(crate) fn read(unit: &[u8], identity: u64, generation: u32) -> Option<Self> {
        let header: Self = bytemuck::pod_read_unaligned(unit.get(..FRAME_HEADER_SIZE)?);
        let size = header.size as usize;
        let is_ours = header.magic == MAGIC
            && header.version == VERSION
            && header.identity == identity
            && header.generation == generation
            && header.sequence > 0
            && size > 0
            && size <= FRAME_SIZE_MAX
            && size.is_multiple_of(FRAME_ALIGNMENT)
            && header.payload as usize <= size
            && header.head_size() <= u64::from(header.payload);
        is_ours.then_some(header)
    }

    /// Bytes of header and tables.
    pub(crate) fn head_size(&self) -> u64 {
        let table = |entries: u32, size: usize| u64::from(entries) * size as u64;
        FRAME_HEADER_SIZE as u64
            + table(self.files, FILE_ENTRY_SIZE)
            + table(self.groups, GROUP_ENTRY_SIZE)
            + table(self.superblocks, SUPERBLOCK_ENTRY_SIZE)
            + table(self.prepares, PREPARE_ENTRY_SIZE)
    }
}

/// Header and tables of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub header: FrameHeader,
    pub files: Vec<FileEntry>,
    pub groups: Vec<GroupEntry>,
    pub superblocks: Vec<SuperblockEntry>,
    pub prepares: Vec<PrepareEntry>,
}

impl Head {
    /// Empties the tables and keeps their room.
    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.groups.clear();
        self.superblocks.clear();
        self.prepares.clear();
    }

    /// Bytes of header, tables and bodies.
    pub(crate) fn payload_size(&self) -> usize {
        FRAME_HEADER_SIZE
            + self.files.len() * FILE_ENTRY_SIZE
            + self.groups.len() * GROUP_ENTRY_SIZE
            + self.superblocks.len() * SUPERBLOCK_ENTRY_SIZE
            + self.prepares.len() * PREPARE_ENTRY_SIZE
            + self.bodies_size()
    }

    fn bodies_size(&self) -> usize {
        let superblocks: usize = self.superblocks.iter().map(|e| e.length as usize).sum();
        let prepares: usize = self.prepares.iter().map(PrepareEntry::body_size).sum();
        superblocks + prepares
    }

    /// Where the bodies of the superblock records lie in the payload.
    pub(crate) fn superblock_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let tables = self.payload_size() - self.bodies_size();
        self.superblocks.iter().scan(tables, |at, entry| {
            let start = *at;
            *at += entry.length as usize;
            Some(start..*at)
        })
    }

    /// Where the bodies of the prepares lie in the payload.
    pub(crate) fn prepare_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let bodies: usize = self.prepares.iter().map(PrepareEntry::body_size).sum();
        self.prepares
            .iter()
            .scan(self.payload_size() - bodies, |at, entry| {
                let start = *at;
                *at += entry.body_size();
                Some(start..*at)
            })
    }

    /// Sets what the header says about tables and size, and the checksum; appends all to `bytes`.
    pub(crate) fn encode(&mut self, size: usize, bytes: &mut Vec<u8>) {
        let count = |length: usize| u32::try_from(length).expect("a frame has at most 16 MiB");
        self.header.files = count(self.files.len());
        self.header.groups = count(self.groups.len());
        self.header.superblocks = count(self.superblocks.len());
        self.header.prepares = count(self.prepares.len());
        self.header.size = count(size);
        self.header.payload = count(self.payload_size());
        let start = bytes.len();
        bytes.extend_from_slice(bytemuck::bytes_of(&self.header));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.files));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.groups));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.superblocks));
        for entry in &self.prepares {
            bytes.extend_from_slice(&entry.number.to_le_bytes());
            bytes.extend_from_slice(bytemuck::bytes_of(&entry.header));
        }
        self.header.checksum = checksum64(&bytes[start + 8..]);
        bytes[start..start + 8].copy_from_slice(&self.header.checksum.to_le_bytes());
    }

    /// Reads header and tables from `bytes`, which are as many as [`FrameHeader::head_size`] says; `None`
    /// when they are not what was written.
    pub(crate) fn decode(header: FrameHeader, bytes: &[u8]) -> Option<Self> {
        if checksum64(bytes.get(8..)?) != header.checksum {
            return None;
        }
        let mut rest = bytes.get(FRAME_HEADER_SIZE..)?;
        let head = Self {
            header,
            files: entries(&mut rest, header.files)?,
            groups: entries(&mut rest, header.groups)?,
            superblocks: entries(&mut rest, header.superblocks)?,
            prepares: rest
                .chunks_exact(PREPARE_ENTRY_SIZE)
                .map(PrepareEntry::read)
                .collect(),
        };
        let is_whole = head.prepares.len() == header.prepares as usize
            && head
                .prepares
                .iter()
                .all(|entry| entry.header.size as usize >= PREPARE_HEADER_SIZE)
            && head.payload_size() == header.payload as usize;
        is_whole.then_some(head)
    }
}

impl PrepareEntry {
    fn read(bytes: &[u8]) -> Self {
        let (number, header) = bytes.split_at(8);
        Self {
            number: bytemuck::pod_read_unaligned(number),
            header: bytemuck::pod_read_unaligned(header),
        }
    }

    /// Bytes of the body.
    pub(crate) const fn body_size(&self) -> usize {
        self.header.size as usize - PREPARE_HEADER_SIZE
    }
}

fn entries<T: Pod>(rest: &mut &[u8], count: u32) -> Option<Vec<T>> {
    let (table, behind) = rest.split_at_checked(count as usize * size_of::<T>())?;
    *rest = behind;
    Some(
        table
            .chunks_exact(size_of::<T>())
            .map(bytemuck::pod_read_unaligned)
            .collect(),
    )
}
