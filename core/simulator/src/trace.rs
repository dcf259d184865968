//! What happened in a run, as a hash of everything and, if asked for, as lines to be read.

use std::fmt;

/// Follows a run. Runs of one seed have equal hashes, or chance came in from somewhere else.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    prints: bool,
    lines: Vec<String>,
}

impl Trace {
    /// An empty trace that keeps its lines, or only their hash.
    #[must_use]
    pub(crate) const fn new(prints: bool) -> Self {
        Self {
            hash: 0,
            events: 0,
            prints,
            lines: Vec::new(),
        }
    }

    /// Notes an event: `numbers` go into the hash, `text` is asked for only if lines are kept.
    pub(crate) fn event(&mut self, time: u64, numbers: &[u64], text: impl FnOnce() -> String) {
        self.events += 1;
        self.mix(time);
        for number in numbers {
            self.mix(*number);
        }
        if self.prints {
            self.lines.push(format!("{} {}", Moment(time), text()));
        }
    }

    /// Whether lines are kept.
    pub(crate) const fn prints(&self) -> bool {
        self.prints
    }

    /// The hash of all events so far.
    #[must_use]
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// How many events there were.
    #[must_use]
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// The lines since they were last taken.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    const fn mix(&mut self, number: u64) {
        let mixed = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = (mixed ^ (mixed >> 29)).rotate_left(23);
    }
}

/// A simulated time, for people: seconds and microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(pub u64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>3}.{:06}",
            self.0 / 1_000_000_000,
            self.0 / 1_000 % 1_000_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    #[test]
    fn hash_follows_from_every_number_and_the_order() {
        let hash = |events: &[(u64, u64)]| {
            let mut trace = Trace::new(false);
            for (time, number) in events {
                trace.event(*time, &[*number], || unreachable!("no lines are kept"));
            }
            trace.hash()
        };
        assert_eq!(hash(&[(1, 2), (3, 4)]), hash(&[(1, 2), (3, 4)]));
        assert_ne!(hash(&[(1, 2), (3, 4)]), hash(&[(3, 4), (1, 2)]));
        assert_ne!(hash(&[(1, 2)]), hash(&[(1, 3)]));
    }

    #[test]
    fn lines_tell_the_time() {
        let mut trace = Trace::new(true);
        trace.event(12_345_678_901, &[], || "something".into());
        assert_eq!(trace.take_lines(), [" 12.345678 something"]);
        assert_eq!(trace.take_lines(), [""; 0]);
    }
}
