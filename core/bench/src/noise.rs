//! Bytes that no disk and no file system can make smaller.

/// `size` bytes that follow from `seed`.
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        // Marsaglia's xorshift64: never 0 when it was not.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::noise;

    #[test]
    fn noise_follows_from_its_seed() {
        assert_eq!(noise(7, 1001), noise(7, 1001));
        assert_ne!(noise(7, 1001), noise(8, 1001));
        assert_eq!(noise(0, 1001).len(), 1001);
    }
}
