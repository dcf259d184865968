//! How long to wait before trying again.

use core::time::Duration;

use wire::ErrorCode;

use crate::{nanoseconds, random::Random};

/// The longest first pause before something is asked again that was refused because a consensus group
/// changes its primary: that takes milliseconds.
const BRIEF: Duration = Duration::from_millis(4);

/// Exponential back-off with jitter: the wait doubles with each failure up to a limit, and the upper half
/// of it is random, so that clients that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub min: Duration,
    /// The longest wait ever.
    pub max: Duration,
}

impl Default for Backoff {
    /// 50 ms to 1 s.
    fn default() -> Self {
        Self {
            min: Duration::from_millis(50),
            max: Duration::from_secs(1),
        }
    }
}

impl Backoff {
    /// The pauses after a failure: what passes with a change of primaries is asked again soon, at first.
    pub(crate) fn after(self, refusal: Option<ErrorCode>) -> Self {
        if refusal.is_some_and(passes_with_primary) {
            Self {
                min: self.min.min(BRIEF),
                ..self
            }
        } else {
            self
        }
    }

    /// Nanoseconds to wait after `failures` failures in a row.
    pub(crate) fn wait(&self, failures: u32, random: &mut Random) -> u64 {
        let doublings = failures.saturating_sub(1).min(32);
        let longest = nanoseconds(self.min)
            .saturating_mul(1 << doublings)
            .min(nanoseconds(self.max));
        random.between(longest / 2, longest)
    }
}

/// Whether a refusal may be over as soon as a consensus group has another primary.
pub(crate) const fn passes_with_primary(refusal: ErrorCode) -> bool {
    matches!(
        refusal,
        ErrorCode::Retry
            | ErrorCode::NotPrimary
            | ErrorCode::NotReady
            | ErrorCode::OutcomeUnknown
            | ErrorCode::RequestInFlight
    )
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::{Backoff, Random};

    const MS: u64 = 1_000_000;

    #[test]
    fn wait_doubles_up_to_the_limit_and_is_jittered() {
        let backoff = Backoff {
            min: Duration::from_millis(10),
            max: Duration::from_millis(45),
        };
        let mut random = Random::new(3);
        for (failures, longest) in [(1, 10), (2, 20), (3, 40), (4, 45), (60, 45), (u32::MAX, 45)] {
            let mut different = alloc::collections::BTreeSet::new();
            for _ in 0..50 {
                let wait = backoff.wait(failures, &mut random);
                assert!(
                    wait >= longest * MS / 2 && wait <= longest * MS,
                    "{wait} after {failures}"
                );
                different.insert(wait);
            }
            assert!(different.len() > 40);
        }
    }
}
