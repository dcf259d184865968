//! Pseudo-random numbers from a seed that the caller chooses.

/// SplitMix64: enough for jitter and for ids that only have to differ, never for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `low..=high`.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(span) => low + self.next() % span,
            None => self.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let (mut a, mut b, mut c) = (Random::new(1), Random::new(1), Random::new(2));
        let first = a.next();
        assert_eq!(first, b.next());
        assert_ne!(first, c.next());
    }

    #[test]
    fn numbers_stay_between_their_bounds() {
        let mut random = Random::new(7);
        let mut seen = [false; 3];
        for _ in 0..200 {
            let number = random.between(5, 7);
            seen[usize::try_from(number - 5).unwrap()] = true;
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(random.between(9, 9), 9);
        random.between(0, u64::MAX);
    }
}
