//! What every part of a run shares: the time, what is to come, the trace, the counts, and the verdict.

use std::collections::BTreeMap;

use crate::{counts::Counts, event::Event, trace::Trace};

/// Milliseconds and seconds in nanoseconds, the unit of simulated time.
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;

/// The shared part of a run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The true time, nanoseconds since the run began.
    pub(crate) now: u64,
    pub(crate) trace: Trace,
    pub(crate) counts: Counts,
    /// What is to come, by time and order of planning.
    agenda: BTreeMap<(u64, u64), Event>,
    planned: u64,
    failure: Option<String>,
}

impl Run {
    pub(crate) const fn new(prints: bool) -> Self {
        Self {
            now: 0,
            trace: Trace::new(prints),
            counts: Counts::ZERO,
            agenda: BTreeMap::new(),
            planned: 0,
            failure: None,
        }
    }

    /// Plans an event.
    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.planned += 1;
        self.agenda
            .insert((time.max(self.now), self.planned), event);
    }

    /// Plans an event so many nanoseconds from now.
    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Goes on to the next event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let ((time, _), event) = self.agenda.pop_first()?;
        self.now = time;
        Some(event)
    }

    /// Notes something in the trace.
    pub(crate) fn note(&mut self, numbers: &[u64], text: impl FnOnce() -> String) {
        self.trace.event(self.now, numbers, text);
    }

    /// Something is wrong. The first such thing is the one that is told.
    pub(crate) fn fail(&mut self, text: impl Into<String>) {
        if self.failure.is_none() {
            self.failure = Some(text.into());
        }
    }

    pub(crate) const fn failure(&self) -> Option<&String> {
        self.failure.as_ref()
    }
}

/// Times of things that happen in order on the same way, each after a delay of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    last: u64,
}

impl Lane {
    /// The time of the next one.
    pub(crate) fn next(&mut self, now: u64, delay: u64) -> u64 {
        self.last = (now + delay).max(self.last + 1);
        self.last
    }
}
