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

#[cfg(test)]
mod tests {
    use super::{checksum64, checksum64_of_parts, checksum128, partition_of_key};
    use crate::PartitionId;

    #[test]
    fn checksums_are_those_of_the_reference() {
        assert_eq!(checksum64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(checksum64(b"customer-9"), 0x8af9_063c_b799_040f);
        assert_eq!(checksum128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    }

    #[test]
    fn parts_hash_like_their_whole_wherever_they_are_cut() {
        let whole: std::vec::Vec<u8> = (0..1_500_u32).map(|n| n.to_le_bytes()[0]).collect();
        for cut in 0..whole.len() {
            let (front, back) = whole.split_at(cut);
            assert_eq!(checksum64_of_parts([front, back]), checksum64(&whole));
        }
    }

    #[test]
    fn keys_are_placed_as_the_protocol_says() {
        for key in [b"a".as_slice(), b"customer-9", b"order-1234567890"] {
            let remainder = checksum64(key) % 8;
            assert_eq!(u64::from(partition_of_key(key, 8).0), remainder);
            assert_eq!(partition_of_key(key, 1), PartitionId(0));
        }
        assert_eq!(partition_of_key(b"customer-9", u32::MAX).0, 1_116_867_148);
    }
}
