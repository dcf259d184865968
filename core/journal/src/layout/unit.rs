//! The unit: what the device writes whole or not at all.

use super::TRAILER_SIZE;
use crate::FileId;

/// Set in the generation of a frame's first unit.
const STARTS: u32 = 1 << 31;

/// What a unit turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitState {
    /// Filled with zeros before its file was used.
    Zero,
    /// Written when the file had an older generation.
    Older,
    /// Written in this generation.
    Current {
        /// Whether a frame begins with it.
        starts: bool,
    },
    /// Neither: damaged, or of another place.
    Bad,
}

/// Writes the trailer of the unit with this index in the file.
pub(crate) fn seal(unit: &mut [u8], file: FileId, index: u32, starts: bool) {
    let end = unit.len();
    let generation = if starts { file.0 | STARTS } else { file.0 };
    unit[end - TRAILER_SIZE..end - 4].copy_from_slice(&generation.to_le_bytes());
    let checksum = crc32c::crc32c_append(index, &unit[..end - 4]);
    unit[end - 4..].copy_from_slice(&checksum.to_le_bytes());
}

/// Judges the unit with this index in the file.
pub(crate) fn inspect(unit: &[u8], file: FileId, index: u32) -> UnitState {
    let end = unit.len();
    let word = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&unit[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    let generation = word(end - TRAILER_SIZE);
    let checksum = word(end - 4);
    if generation == 0 && checksum == 0 && is_zero(unit) {
        return UnitState::Zero;
    }
    let number = generation & !STARTS;
    if number == 0 || number > file.0 || checksum != crc32c::crc32c_append(index, &unit[..end - 4])
    {
        return UnitState::Bad;
    }
    if number < file.0 {
        return UnitState::Older;
    }
    UnitState::Current {
        starts: generation & STARTS != 0,
    }
}

/// In strides that compile to vector instructions.
fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(64)
        .all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::{UnitState, inspect, seal};
    use crate::FileId;

    #[test]
    fn unit_proves_file_and_place() {
        for size in [512, 4096] {
            let mut unit = std::vec![7; size];
            seal(&mut unit, FileId(5), 3, true);
            let current = UnitState::Current { starts: true };
            assert_eq!(inspect(&unit, FileId(5), 3), current);
            assert_eq!(inspect(&unit, FileId(5), 4), UnitState::Bad);
            assert_eq!(inspect(&unit, FileId(4), 3), UnitState::Bad);
            assert_eq!(inspect(&unit, FileId(6), 3), UnitState::Older);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut unit = std::vec![0; 512];
        seal(&mut unit, FileId(1), 0, false);
        for bit in 0..512 * 8 {
            unit[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(inspect(&unit, FileId(1), 0), UnitState::Bad, "bit {bit}");
            unit[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn zeros_are_no_unit() {
        assert_eq!(inspect(&[0; 512], FileId(1), 0), UnitState::Zero);
        let mut unit = [0; 512];
        unit[100] = 1;
        assert_eq!(inspect(&unit, FileId(1), 0), UnitState::Bad);
    }
}
