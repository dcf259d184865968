//! How much of other nodes' segments is on its way here: no more than the files take, nor faster than leaves the
//! disks and links of all to those who are served meanwhile.

const SECOND: u64 = 1_000_000_000;

/// What was not asked for in so many nanoseconds is made up for: ticks are coarse.
const SLACK: u64 = 100_000_000;

/// The bytes that are fetched by one shard.
#[derive(Debug)]
pub(crate) struct Inflow {
    /// Bytes that are not in their files, and how many may be.
    waiting: u64,
    waiting_max: u64,
    /// Bytes a second; 0: as many as come.
    rate: u64,
    /// When more may be asked for, monotonic time.
    due: u64,
}

impl Inflow {
    pub(crate) const fn new(waiting_max: u64, rate: u64) -> Self {
        Self {
            waiting: 0,
            waiting_max,
            rate,
            due: 0,
        }
    }

    /// Whether more may be asked for.
    pub(crate) const fn is_open(&self, now: u64) -> bool {
        self.waiting < self.waiting_max && self.due <= now
    }

    /// So many bytes are asked for.
    pub(crate) fn ask(&mut self, bytes: u64, now: u64) {
        if self.rate == 0 {
            return;
        }
        let time = u128::from(bytes) * u128::from(SECOND) / u128::from(self.rate);
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        let from = self.due.max(now.saturating_sub(SLACK));
        self.due = from.saturating_add(time);
    }

    /// So many have come, and go to their files.
    pub(crate) const fn take(&mut self, bytes: u64) {
        self.waiting += bytes;
    }

    /// So many are in their files.
    pub(crate) const fn put_away(&mut self, bytes: u64) {
        self.waiting -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{Inflow, SECOND, SLACK};

    /// Bytes that are asked for in some seconds, looked at every 10 ms, 100 at a time.
    fn asked(inflow: &mut Inflow, seconds: u64) -> u64 {
        let mut asked = 0;
        for tick in 0..100 * seconds {
            let now = tick * SECOND / 100;
            while inflow.is_open(now) && asked < 1_000_000 {
                inflow.ask(100, now);
                asked += 100;
            }
        }
        asked
    }

    #[test]
    fn no_more_is_asked_for_than_the_rate_says_and_not_much_less() {
        for rate in [100, 1_000, 70_000] {
            let asked = asked(&mut Inflow::new(1, rate), 5);
            let most = 5 * rate + rate * SLACK / SECOND + 100;
            assert!((5 * rate - rate / 10..=most).contains(&asked), "{asked}");
        }
        assert_eq!(asked(&mut Inflow::new(1, 0), 1), 1_000_000);
    }

    #[test]
    fn time_in_which_nothing_was_asked_for_is_not_made_up_for() {
        let mut inflow = Inflow::new(1, 1_000);
        inflow.ask(1_000, 0);
        assert!(!inflow.is_open(SECOND / 2));
        inflow.ask(1_000, 60 * SECOND);
        assert!(!inflow.is_open(60 * SECOND + SECOND / 2));
        assert!(inflow.is_open(61 * SECOND));
    }

    #[test]
    fn nothing_is_asked_for_while_much_waits_for_its_files() {
        let mut inflow = Inflow::new(10, 0);
        inflow.take(12);
        assert!(!inflow.is_open(0));
        inflow.put_away(5);
        assert!(inflow.is_open(0));
    }
}
