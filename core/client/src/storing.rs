//! What is stored of one partition, and what is to be.

use wire::{ErrorCode, Offset};

use crate::{Backoff, Call, backoff::passes_with_primary, random::Random};

/// How soon what is processed is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Nanoseconds after processing.
    pub(crate) interval: u64,
    /// Messages after which it is stored, however short the time.
    pub(crate) messages: u64,
}

/// The offset that the server has, and the request that changes it. What is processed is an argument: the last
/// message up to which everything is.
#[derive(Debug, Default)]
pub(crate) struct Storing {
    /// The last message processed, as the server has it.
    pub(crate) stored: Option<Offset>,
    /// What an unanswered request stores.
    pub(crate) call: Option<(Call, Offset)>,
    /// Since when something is to be stored.
    since: Option<u64>,
    /// Whether it is to be stored without more delay.
    pub(crate) urgent: bool,
    /// Nothing is stored before this time.
    pub(crate) blocked_until: u64,
    /// Failures in a row.
    failures: u32,
    /// Whether the pause may be over as soon as a consensus group has another primary.
    awaits_primary: bool,
    /// What the server refused for good; only a higher offset is worth another try.
    pub(crate) refused: Option<Offset>,
}

impl Storing {
    /// What is processed and not known to be stored.
    pub(crate) fn unstored(&self, processed: Option<Offset>) -> Option<Offset> {
        processed.filter(|offset| Some(*offset) > self.stored.max(self.refused))
    }

    /// What is worth storing now: what is not being stored either.
    pub(crate) fn to_store(&self, processed: Option<Offset>) -> Option<Offset> {
        let underway = self.call.map(|(_, offset)| offset);
        let unstored = self.unstored(processed);
        unstored.filter(|offset| Some(*offset) > underway)
    }

    /// When it is stored; `None` when nothing is to be, or a request is under way.
    pub(crate) fn deadline(&self, now: u64, processed: Option<Offset>, pace: Pace) -> Option<u64> {
        if self.call.is_some() {
            return None;
        }
        let target = self.to_store(processed)?;
        let unstored = target.0 + 1 - self.stored.map_or(0, |stored| stored.0 + 1);
        let since = self.since.unwrap_or(now);
        let due = if self.urgent || unstored >= pace.messages {
            since
        } else {
            since.saturating_add(pace.interval)
        };
        Some(due.max(self.blocked_until))
    }

    /// Something may be there to be stored, from now on.
    pub(crate) fn note(&mut self, now: u64, processed: Option<Offset>) {
        if self.since.is_none() && self.to_store(processed).is_some() {
            self.since = Some(now);
        }
    }

    /// What there is to be stored is not to wait.
    pub(crate) fn hurry(&mut self, processed: Option<Offset>) {
        self.urgent |= self.to_store(processed).is_some();
    }

    pub(crate) const fn begin(&mut self, call: Call, offset: Offset) {
        self.call = Some((call, offset));
        self.since = None;
        self.urgent = false;
    }

    /// A request has ended; says whether it was waited for.
    pub(crate) fn end(&mut self, call: Call, offset: Offset) -> bool {
        let own = self.call == Some((call, offset));
        if own {
            self.call = None;
        }
        own
    }

    pub(crate) fn succeed(&mut self, stored: Option<Offset>) {
        self.stored = self.stored.max(stored);
        self.failures = 0;
    }

    /// Tries again as soon as it is due.
    pub(crate) const fn again(&mut self, now: u64) {
        self.since = Some(now);
        self.urgent = true;
    }

    /// Tries again after a while.
    pub(crate) fn fail(
        &mut self,
        now: u64,
        refusal: Option<ErrorCode>,
        (backoff, random): (&Backoff, &mut Random),
    ) {
        self.failures = self.failures.saturating_add(1);
        let wait = backoff.after(refusal).wait(self.failures, random);
        self.blocked_until = now.saturating_add(wait);
        self.awaits_primary = refusal.is_some_and(passes_with_primary);
        self.again(now);
    }

    /// A consensus group has another primary: tries again what waits for one.
    pub(crate) const fn wake(&mut self) {
        if self.awaits_primary {
            self.awaits_primary = false;
            self.failures = 0;
            self.blocked_until = 0;
        }
    }
}
