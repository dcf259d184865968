//! Takes a frame apart.

use alloc::vec::Vec;
use core::ops::Range;

use crate::{
    FileId, UnitSize,
    frame::unit_index,
    layout::{FRAME_HEADER_SIZE, FrameHeader, Head, UnitState, inspect},
};

/// The bytes of a frame whose first unit is what was written; others may be damaged.
#[derive(Clone, Debug)]
pub(crate) struct FrameView<'a> {
    unit_size: UnitSize,
    file: FileId,
    bytes: &'a [u8],
    states: Vec<UnitState>,
}

impl<'a> FrameView<'a> {
    /// Judges every unit; `None` when the bytes are no whole units or the first one begins no frame.
    pub(crate) fn new(
        unit_size: UnitSize,
        file: FileId,
        position: u64,
        bytes: &'a [u8],
    ) -> Option<Self> {
        let size = unit_size.bytes();
        if bytes.is_empty() || !bytes.len().is_multiple_of(size) {
            return None;
        }
        let states: Vec<UnitState> = (unit_index(unit_size, position)..)
            .zip(bytes.chunks_exact(size))
            .map(|(index, unit)| inspect(unit, file, index))
            .collect();
        (states[0] == UnitState::Current { starts: true }).then_some(Self {
            unit_size,
            file,
            bytes,
            states,
        })
    }

    /// Whether every unit is what was written.
    pub(crate) fn is_whole(&self) -> bool {
        let continues = UnitState::Current { starts: false };
        self.states[1..].iter().all(|state| *state == continues)
    }

    /// Whether a unit is valid for no generation, or another frame's.
    pub(crate) fn has_bad(&self) -> bool {
        self.states[1..]
            .iter()
            .any(|state| matches!(state, UnitState::Bad | UnitState::Current { starts: true }))
    }

    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Header and tables; `None` when they are not what was written.
    pub(crate) fn head(&self, identity: u64) -> Option<Head> {
        let header = FrameHeader::read(self.bytes, identity, self.file.0)?;
        if header.size as usize != self.bytes.len() {
            return None;
        }
        let size = usize::try_from(header.head_size()).expect("it is at most the payload");
        Head::decode(header, &self.payload(0..size)?)
    }

    /// Bytes of the payload; `None` when a unit that holds some of them is not what was written.
    pub(crate) fn payload(&self, range: Range<usize>) -> Option<Vec<u8>> {
        let (unit, payload) = (self.unit_size.bytes(), self.unit_size.payload());
        let mut bytes = Vec::with_capacity(range.len());
        let mut at = range.start;
        while at < range.end {
            let (index, offset) = (at / payload, at % payload);
            if !matches!(self.states.get(index)?, UnitState::Current { .. }) {
                return None;
            }
            let length = (payload - offset).min(range.end - at);
            let start = index * unit + offset;
            bytes.extend_from_slice(&self.bytes[start..start + length]);
            at += length;
        }
        Some(bytes)
    }
}

// The header is readable as soon as the first unit is.
const _: () = assert!(FRAME_HEADER_SIZE <= UnitSize::Bytes512.payload());
