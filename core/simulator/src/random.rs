//! The one source of chance in a run.

/// Xoshiro256**, seeded by SplitMix64: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose numbers follow from the seed alone.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        let mut mixed = seed;
        let state = [(); 4].map(|()| split_mix(&mut mixed));
        Self { state }
    }

    /// A generator of its own for one part of the run, so that what one part draws does not move the
    /// others.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.number())
    }

    /// A generator of its own that takes nothing from this one: what is added moves nothing that was there before.
    pub(crate) fn aside(&self, salt: u64) -> Self {
        let mut beside = self.clone();
        Self::new(beside.number() ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// 128 bits.
    pub(crate) fn wide(&mut self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }

    /// A number below `count`.
    ///
    /// # Panics
    /// When `count` is 0.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        assert!(count > 0);
        self.number() % count
    }

    /// A number in `low..=high`.
    ///
    /// # Panics
    /// When the range is empty.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index below `count`.
    ///
    /// # Panics
    /// When `count` is 0.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("it is below a usize")
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// True `per_mille` times in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A time around `mean` nanoseconds: mostly shorter, seldom much longer, never 0.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        let spread = match self.below(100) {
            0..50 => 500,
            50..85 => 1_000,
            85..98 => 2_000,
            _ => 8_000,
        };
        (mean * self.between(spread / 4, spread) / 1_000).max(1)
    }

    /// `size` bytes.
    pub(crate) fn bytes(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        while bytes.len() < size {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(size);
        bytes
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let (mut a, mut b, mut c) = (Random::new(7), Random::new(7), Random::new(8));
        let first = a.wide();
        assert_eq!(first, b.wide());
        assert_ne!(first, c.wide());
        assert_eq!(a.fork().number(), b.fork().number());
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(1);
        let mut seen = [false; 3];
        for _ in 0..300 {
            let number = random.between(5, 7);
            seen[usize::try_from(number - 5).unwrap()] = true;
            assert!(!random.chance(0));
            assert!(random.chance(1_000));
            assert!((1..=800).contains(&random.around(100)));
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(random.bytes(13).len(), 13);
    }
}
