//! Whether what is in flight moves, and how long that usually takes.

use crate::constants::{PROGRESS_INTERVALS, PROGRESS_MAX, PROGRESS_MIN, SLOWNESS_MEMORY};

/// How the ops in flight of one replica go on, in monotonic nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// When something last moved, or nothing was in flight.
    moved: u64,
    /// When something before it in a queue last moved.
    /// Invariant: not more than [`PROGRESS_MAX`] behind `moved`.
    moving: u64,
    /// The longest time of late between two moves.
    usual: u64,
}

impl Progress {
    /// A replica has made an op durable, or acknowledged it, or it is committed: each of them counts once, and there
    /// are so many in flight and no more, so that without commits this comes to an end.
    pub(crate) fn on_moved(&mut self, now: u64) {
        let since = now.saturating_sub(self.moved);
        self.usual = slowest(self.usual, since).min(PROGRESS_MAX);
        self.moved = now;
    }

    /// Something else moves that may be before what is in flight. That goes for a bounded time: others' work may
    /// go on for ever.
    pub(crate) fn on_moving(&mut self, now: u64) {
        if now.saturating_sub(self.moved) <= PROGRESS_MAX {
            self.moving = now;
        }
    }

    /// Nothing is in flight.
    pub(crate) fn rest(&mut self, now: u64) {
        let since = now.saturating_sub(self.moved);
        self.usual = faded(self.usual, since);
        self.moved = now;
    }

    /// What was before does not count: a view begins, or this replica was held up.
    pub(crate) const fn restart(&mut self, now: u64) {
        self.moved = now;
    }

    /// Nobody looked for so long.
    pub(crate) fn forgive(&mut self, held_up: u64, now: u64) {
        self.moved = self.moved.saturating_add(held_up).min(now);
    }

    /// Whether nothing has moved for much longer than usual.
    pub(crate) fn is_stuck(&self, now: u64) -> bool {
        let limit = (PROGRESS_INTERVALS * self.usual).clamp(PROGRESS_MIN, PROGRESS_MAX);
        now.saturating_sub(self.moved.max(self.moving)) >= limit
    }
}

/// The longest interval of late, after another one. It is forgotten by and by, so that one burst of quick ones
/// does not hide the slow ones before it.
pub(crate) fn slowest(usual: u64, since: u64) -> u64 {
    since.max(faded(usual, since))
}

fn faded(usual: u64, since: u64) -> u64 {
    let left = SLOWNESS_MEMORY.saturating_sub(since);
    let kept = u128::from(usual) * u128::from(left) / u128::from(SLOWNESS_MEMORY);
    u64::try_from(kept).expect("not more than it was")
}

#[cfg(test)]
mod tests {
    use super::{Progress, slowest};
    use crate::constants::{PROGRESS_MAX, PROGRESS_MIN, SLOWNESS_MEMORY};

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn what_moves_is_not_stuck_however_long_it_takes() {
        let mut progress = Progress::default();
        for step in 1..100 {
            let now = step * 500 * MILLISECOND;
            assert!(!progress.is_stuck(now));
            progress.on_moved(now);
        }
    }

    #[test]
    fn limit_follows_what_is_usual_and_has_bounds() {
        let mut progress = Progress::default();
        assert!(!progress.is_stuck(PROGRESS_MIN - 1));
        assert!(progress.is_stuck(PROGRESS_MIN));
        progress.on_moved(500 * MILLISECOND);
        let limit = 2_000 * MILLISECOND;
        assert!(!progress.is_stuck(500 * MILLISECOND + limit - 1));
        assert!(progress.is_stuck(500 * MILLISECOND + limit));
        let late = 60_000 * MILLISECOND;
        progress.on_moved(late);
        assert!(!progress.is_stuck(late + PROGRESS_MAX - 1));
        assert!(progress.is_stuck(late + PROGRESS_MAX));
        // At rest the slowness is forgotten.
        let mut now = late;
        while now < late + 10 * SLOWNESS_MEMORY {
            now += 10 * MILLISECOND;
            progress.rest(now);
        }
        assert!(progress.is_stuck(now + PROGRESS_MIN));
    }

    #[test]
    fn work_of_others_excuses_for_a_bounded_time() {
        let mut progress = Progress::default();
        let mut now = 0;
        while !progress.is_stuck(now) {
            now += 10 * MILLISECOND;
            progress.on_moving(now);
        }
        assert_eq!(now, PROGRESS_MAX + PROGRESS_MIN);
    }

    #[test]
    fn slowness_is_forgotten_by_time_not_by_how_much_happens() {
        let fade = |step: u64| {
            let mut usual = 100 * MILLISECOND;
            for _ in 0..SLOWNESS_MEMORY / step {
                usual = slowest(usual, step);
            }
            usual
        };
        let (often, seldom) = (fade(MILLISECOND / 10), fade(10 * MILLISECOND));
        assert!(often.abs_diff(seldom) < 2 * MILLISECOND, "{often} {seldom}");
        assert!((30 * MILLISECOND..40 * MILLISECOND).contains(&often));
    }
}
