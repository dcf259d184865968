//! What was said before, so that a fault that lasts, or somebody who knocks all day, does not fill a log.

use std::collections::BTreeMap;

/// Texts that are remembered; one more forgets all.
const REMEMBERED: usize = 64;

/// How often each complaint was made.
#[derive(Debug, Default)]
pub(super) struct Complaints(BTreeMap<String, u64>);

impl Complaints {
    /// Counts a complaint. Says how often it was made when that is a power of two: then it is worth telling.
    pub(super) fn is_worth_telling(&mut self, text: &str) -> Option<u64> {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(text) {
            self.0.clear();
        }
        let count = self.0.entry(text.to_owned()).or_default();
        *count += 1;
        count.is_power_of_two().then_some(*count)
    }

    /// Everything is well: what comes from now on is new.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaint_that_is_repeated_is_told_less_and_less_often() {
        let mut complaints = Complaints::default();
        let told: Vec<u64> = (0..100)
            .filter_map(|_| complaints.is_worth_telling("a"))
            .collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(complaints.is_worth_telling("b"), Some(1));
        complaints.forget();
        assert_eq!(complaints.is_worth_telling("a"), Some(1));
        for number in 0..1_000 {
            complaints.is_worth_telling(&number.to_string());
        }
        assert!(complaints.0.len() <= REMEMBERED);
    }
}
