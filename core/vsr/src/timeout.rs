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
    fn fires_no_more_once_stopped() {
        let mut timeout = Timeout::stopped(10);
        timeout.start(at(0));
        assert!(timeout.is_running());
        timeout.stop();
        assert!(!timeout.is_running());
        assert!(!timeout.fires(at(100)));
    }
}
