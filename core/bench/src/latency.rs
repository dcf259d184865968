//! Latencies as a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency told apart, nanoseconds; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

/// Latencies with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    nanoseconds: Histogram<u64>,
}

impl Latency {
    pub(crate) fn new() -> Self {
        Self {
            nanoseconds: Histogram::new_with_bounds(1, LONGEST, 3)
                .expect("the bounds are in order"),
        }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST);
        self.nanoseconds.saturating_record(nanoseconds.max(1));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.nanoseconds
            .add(&other.nanoseconds)
            .expect("the bounds are equal");
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// In nanoseconds, what a share of `quantile` does not exceed; 0 when there are none.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        self.nanoseconds.value_at_quantile(quantile) as f64
    }

    /// In nanoseconds; 0 when there are none.
    pub(crate) fn mean(&self) -> f64 {
        self.nanoseconds.mean()
    }

    /// In nanoseconds.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_latencies_are_those_of_both() {
        let (mut one, mut other) = (Latency::new(), Latency::new());
        (1..=50).for_each(|n| one.record(Duration::from_micros(n)));
        (51..=100).for_each(|n| other.record(Duration::from_micros(n)));
        one.merge(&other);
        assert_eq!(one.count(), 100);
        assert!((one.median() - 50_000.0).abs() < 100.0);
        assert!((one.quantile(0.99) - 99_000.0).abs() < 100.0);
    }

    #[test]
    fn endless_latency_counts_as_the_longest() {
        let mut latency = Latency::new();
        latency.record(Duration::MAX);
        latency.record(Duration::ZERO);
        assert_eq!(latency.count(), 2);
        assert!(latency.quantile(1.0) >= LONGEST as f64);
    }
}
