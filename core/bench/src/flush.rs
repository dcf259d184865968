//! Latencies that are held against a number of flushes.

use std::time::Duration;

use crate::{
    bench::Bench,
    error::Error,
    figure::{Section, Side, Target, Unit, median},
    latency::Latency,
    probe::SMALL_WRITE,
    produce::{means_of_neighbours, ratios},
};

/// What something may take: so many flushes, and what else there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Writes of 4 KiB, each flushed, one after the other.
    pub(crate) flushes: f64,
    /// On top of them.
    pub(crate) rest: Duration,
    /// Both, for people.
    pub(crate) text: &'static str,
}

impl Budget {
    /// Nanoseconds, when a flush takes so many.
    fn when_a_flush_takes(&self, flush: f64) -> f64 {
        self.flushes * flush + self.rest.as_secs_f64() * 1e9
    }
}

/// Latencies in rounds, with the disk's flush before, between and after.
#[derive(Debug)]
pub(crate) struct Series {
    all: Latency,
    medians: Vec<f64>,
    /// Medians, nanoseconds.
    flushes: Vec<f64>,
}

impl Series {
    /// Takes the flush before the first round.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn begin(bench: &mut Bench) -> Result<Self, Error> {
        Ok(Self {
            all: Latency::new(),
            medians: Vec::new(),
            flushes: vec![flushed_write(bench)?.median()],
        })
    }

    /// Adds a round, and takes the flush after it.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn add(&mut self, bench: &mut Bench, round: &Latency) -> Result<(), Error> {
        self.all.merge(round);
        self.medians.push(round.median());
        self.flushes.push(flushed_write(bench)?.median());
        Ok(())
    }

    /// The median of the rounds' medians, each as a share of what the budget is by the flushes next to it.
    fn share_of(&self, budget: &Budget) -> f64 {
        let budgets: Vec<_> = means_of_neighbours(&self.flushes)
            .into_iter()
            .map(|flush| budget.when_a_flush_takes(flush))
            .collect();
        median(ratios(&self.medians, &budgets))
    }

    /// The figures, and the budget as a target.
    pub(crate) fn report(self, section: &mut Section, name: &str, target: &str, budget: Budget) {
        let measured = self.share_of(&budget);
        let flush = median(self.flushes);
        let in_flushes = self.all.median() / flush;
        section.latency(name, self.all);
        section.figure(
            "write and flush 4 KiB next to it, p50",
            flush,
            Unit::Nanoseconds,
        );
        section.figure(format!("{name}, p50, in flushes"), in_flushes, Unit::Ratio);
        section.target(Target {
            name: format!("{target}, p50"),
            of: budget.text,
            side: Side::AtMost,
            limit: 1.0,
            measured,
            unit: Unit::Ratio,
        });
    }
}

/// Latencies of the smallest write of a journal with its flush.
///
/// # Errors
/// `Io`.
pub(crate) fn flushed_write(bench: &mut Bench) -> Result<Latency, Error> {
    let length = bench.length() / 2;
    bench.probe_files()?.latency(SMALL_WRITE, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        flushes: 1.5,
        rest: Duration::from_millis(1),
        text: "1.5 flushes + 1 ms",
    };

    #[test]
    fn budget_grows_with_the_flush_and_keeps_its_rest() {
        assert!((BUDGET.when_a_flush_takes(0.0) - 1e6).abs() < 1.0);
        assert!((BUDGET.when_a_flush_takes(2e6) - 4e6).abs() < 1.0);
    }

    #[test]
    fn every_round_is_held_against_the_flushes_around_it() {
        let series = Series {
            all: Latency::new(),
            medians: vec![4e6, 2.5e6, 14e6],
            flushes: vec![1e6, 3e6, 1e6, 3e6],
        };
        // Each flush is 2 ms, each budget 4 ms: 1, 0.625 and 3.5 of it.
        assert!((series.share_of(&BUDGET) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn target_is_missed_when_the_budget_is_exceeded() {
        for (latency, is_met) in [(4_000_000, true), (4_100_000, false)] {
            let mut all = Latency::new();
            all.record(Duration::from_nanos(latency));
            let series = Series {
                all,
                medians: vec![latency as f64],
                flushes: vec![2e6, 2e6],
            };
            let mut section = Section::new("flight");
            series.report(&mut section, "landed after", "landing", BUDGET);
            assert_eq!(section.targets[0].is_met(), is_met);
            let in_flushes = section.figures.last().unwrap().value;
            assert!((in_flushes - 2.0).abs() < 0.1, "{in_flushes}");
        }
    }
}
