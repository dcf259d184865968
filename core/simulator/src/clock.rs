//! Clocks that drift and jump.

use wire::{Time, Timestamp};

/// The wall clock's time at the beginning of every run, microseconds.
const WALL_START: u64 = 1_700_000_000_000_000;

const MILLION: u64 = 1_000_000;

/// The clocks of one machine or process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The true time at which the monotonic clock was 0.
    origin: u64,
    /// How far it goes in a million of true nanoseconds.
    rate: u64,
    /// What jumps have added to the wall clock, microseconds.
    wall_offset: i64,
}

impl Clock {
    /// A clock that starts at `origin` and is wrong by `drift` parts in a million.
    #[must_use]
    pub(crate) fn new(origin: u64, drift: i64) -> Self {
        let rate = MILLION.saturating_add_signed(drift).max(1);
        Self {
            origin,
            rate,
            wall_offset: 0,
        }
    }

    /// What it shows at the true time `now`.
    #[must_use]
    pub(crate) fn read(&self, now: u64) -> Time {
        let wall = WALL_START + scale(now, self.rate, MILLION) / 1_000;
        Time {
            monotonic: scale(now.saturating_sub(self.origin), self.rate, MILLION),
            wall: Timestamp(wall.saturating_add_signed(self.wall_offset)),
        }
    }

    /// The true time at which the monotonic clock shows `monotonic`.
    #[must_use]
    pub(crate) fn when(&self, monotonic: u64) -> u64 {
        let after = scale(monotonic, MILLION, self.rate).saturating_add(1);
        self.origin.saturating_add(after)
    }

    /// The process starts again: its monotonic clock is 0 now.
    pub(crate) const fn restart(&mut self, now: u64) {
        self.origin = now;
    }

    /// Somebody sets the wall clock, by so many microseconds.
    pub(crate) const fn jump(&mut self, by: i64) {
        self.wall_offset = self.wall_offset.saturating_add(by);
    }
}

fn scale(time: u64, factor: u64, divisor: u64) -> u64 {
    let scaled = u128::from(time) * u128::from(factor) / u128::from(divisor);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn monotonic_time_drifts_and_begins_anew_with_the_process() {
        let mut clock = Clock::new(1_000, 500);
        assert_eq!(clock.read(1_000).monotonic, 0);
        assert_eq!(clock.read(2_001_000).monotonic, 2_001_000);
        clock.restart(2_001_000);
        assert_eq!(clock.read(2_001_000).monotonic, 0);
    }

    #[test]
    fn wall_clock_jumps_and_the_monotonic_one_does_not() {
        let mut clock = Clock::new(0, -20);
        let before = clock.read(1_000_000);
        clock.jump(-5_000_000);
        let after = clock.read(1_000_000);
        assert_eq!(before.monotonic, after.monotonic);
        assert_eq!(before.wall.0 - after.wall.0, 5_000_000);
    }

    #[test]
    fn moment_of_a_deadline_is_not_too_early() {
        for drift in [-50_000, -3, 0, 7, 50_000] {
            let clock = Clock::new(123, drift);
            for deadline in [0, 1, 999, 1_000_000_007] {
                assert!(clock.read(clock.when(deadline)).monotonic >= deadline);
            }
        }
        assert_eq!(Clock::new(0, 0).when(u64::MAX), u64::MAX);
    }
}
