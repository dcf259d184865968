//! Deadlines by monotonic time.

use wire::Time;

/// Fires every `interval` nanoseconds while it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout {
    interval: u64,
    deadline: Option<u64>,
}

impl Timeout {
    pub(crate) const fn stopped(interval: u64) -> Self {
        Self {
            interval,
            deadline: None,
        }
    }

    /// Starts it anew, to fire after one interval.
    pub(crate) const fn start(&mut self, now: Time) {
        self.deadline = Some(now.after(self.interval));
    }

    /// Starts it anew, to fire after `interval` nanoseconds, and every so many after that.
    pub(crate) const fn start_every(&mut self, interval: u64, now: Time) {
        self.interval = interval;
        self.start(now);
    }

    /// What it waits for is coming: from now on it has one interval again, if it runs.
    pub(crate) const fn defer(&mut self, now: Time) {
        if self.is_running() {
            self.start(now);
        }
    }

    /// Nobody could look for so many nanoseconds: it has those, too, if it runs.
    pub(crate) const fn postpone(&mut self, nanoseconds: u64) {
        if let Some(deadline) = self.deadline {
            self.deadline = Some(deadline.saturating_add(nanoseconds));
        }
    }

    /// It fired before what it waits for could come: the intervals after this one are twice as long, up to `most`
    /// nanoseconds.
    pub(crate) const fn back_off(&mut self, most: u64) {
        let doubled = self.interval.saturating_mul(2);
        self.interval = if doubled < most { doubled } else { most };
    }

    /// All that it waited for has come: the intervals after this one are half as long, not below `least`
    /// nanoseconds.
    pub(crate) const fn relax(&mut self, least: u64) {
        let halved = self.interval / 2;
        self.interval = if halved > least { halved } else { least };
    }

    pub(crate) const fn stop(&mut self) {
        self.deadline = None;
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.deadline.is_some()
    }

    /// Whether the deadline has passed; if so, the next one is an interval from now: a late tick fires once.
    pub(crate) const fn fires(&mut self, now: Time) -> bool {
        match self.deadline {
            Some(deadline) if deadline <= now.monotonic => {
                self.start(now);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timeout;
    use wire::{Time, Timestamp};

    const fn at(monotonic: u64) -> Time {
        Time {
            monotonic,
            wall: Timestamp(0),
        }
    }

    #[test]
    fn fires_once_an_interval_however_late_the_tick() {
        let mut timeout = Timeout::stopped(10);
        assert!(!timeout.fires(at(1_000)));
        timeout.start(at(1_000));
        assert!(!timeout.fires(at(1_009)));
        assert!(timeout.fires(at(1_055)));
        assert!(!timeout.fires(at(1_060)));
        assert!(timeout.fires(at(1_065)));
    }

    #[test]
    fn waits_longer_for_what_is_slow_and_less_for_what_has_come() {
        let mut timeout = Timeout::stopped(10);
        timeout.defer(at(0));
        assert!(!timeout.is_running(), "it does not begin by that");
        timeout.start(at(0));
        timeout.defer(at(9));
        assert!(!timeout.fires(at(18)));
        assert!(timeout.fires(at(19)));
        timeout.back_off(30);
        timeout.start(at(20));
        assert!(!timeout.fires(at(39)));
        assert!(timeout.fires(at(40)));
        timeout.back_off(30);
        timeout.start(at(40));
        assert!(!timeout.fires(at(69)));
        assert!(timeout.fires(at(70)));
        timeout.relax(12);
        timeout.start(at(70));
        assert!(!timeout.fires(at(84)));
        assert!(timeout.fires(at(85)));
        timeout.relax(12);
        timeout.start(at(85));
        assert!(!timeout.fires(at(96)));
        assert!(timeout.fires(at(97)));
    }

    #[test]
    fn has_the_time_in_which_nobody_looked() {
        let mut timeout = Timeout::stopped(10);
        timeout.postpone(5);
        assert!(!timeout.is_running(), "it does not begin by that");
        timeout.start(at(0));
        timeout.postpone(5);
        assert!(!timeout.fires(at(14)));
        assert!(timeout.fires(at(15)));
        assert!(timeout.fires(at(25)));
    }

    #[test]
    fn fires_no_more_once_stopped() {
        let mut timeout = Timeout::stopped(10);
        timeout.start(at(0));
        assert!(timeout.is_running());
        timeout.stop();
        assert!(!timeout.is_running());
        assert!(!timeout.fires(at(100)));
    }
}
