//! The checksums of frames, prepares and batches, and the placement of keys.

use core::hash::Hasher;

use twox_hash::{XxHash3_64, XxHash3_128};

use crate::PartitionId;

/// XXH3-64 with seed 0: frames and batches.
#[must_use]
pub fn checksum64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// [`checksum64`] of parts as if they were one piece, without joining them.
pub(crate) fn checksum64_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = XxHash3_64::with_seed(0);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish()
}

/// XXH3-128 with seed 0: the hash chain of prepares.
#[must_use]
pub fn checksum128(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// The partition of a message with `key` in a topic of `partition_count` partitions: XXH3-64 of the key
/// modulo the count. Part of the protocol: every client places a key alike.
///
/// # Panics
/// When `partition_count` is 0.
#[must_use]
pub fn partition_of_key(key: &[u8], partition_count: u32) -> PartitionId {
    assert!(partition_count > 0);
    let index = checksum64(key) % u64::from(partition_count);
    PartitionId(u32::try_from(index).expect("a remainder of a u32 fits a u32"))
}
