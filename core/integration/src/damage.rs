//! Damaging files of a stopped server.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
};

/// Takes `bytes` off the end of a file.
///
/// # Panics
/// When the file cannot be changed or has fewer.
pub fn cut(path: &Path, bytes: u64) {
    let length = fs::metadata(path).expect("look at the file").len();
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .expect("open the file");
    file.set_len(length.checked_sub(bytes).expect("it has as many"))
        .expect("cut the file");
}

/// Adds bytes to the end of a file.
///
/// # Panics
/// When the file cannot be changed.
pub fn append(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(path)
        .expect("open the file");
    file.write_all(bytes).expect("write the file");
}

/// Writes over bytes of a file.
///
/// # Panics
/// When the file cannot be changed.
pub fn overwrite(path: &Path, position: u64, bytes: &[u8]) {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .expect("open the file");
    file.write_all_at(bytes, position).expect("write the file");
}

/// Changes one bit of the byte at `position`.
///
/// # Panics
/// When the file has no such byte or cannot be changed.
pub fn flip_bit(path: &Path, position: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("open the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)
        .expect("read the byte");
    file.write_all_at(&[byte[0] ^ 0x10], position)
        .expect("write the byte");
}

/// The position behind the last byte that is not 0, rounded up to a block of 4 KiB; 0 when there is none.
///
/// # Panics
/// When the file cannot be read.
#[must_use]
pub fn last_written(path: &Path) -> u64 {
    let bytes = fs::read(path).expect("read the file");
    let blocks = bytes.chunks(4096).rposition(|block| !is_zero(block));
    blocks.map_or(0, |index| (index as u64 + 1) * 4096)
}

/// Whether all bytes are 0.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks(64);
    chunks.all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}
