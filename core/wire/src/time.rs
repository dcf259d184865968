//! Time, always an argument.

use core::fmt;

/// Microseconds since the Unix epoch, by the broker's wall clock unless said otherwise.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What both clocks of a machine read when an event is handed in.
///
/// Durations and deadlines use `monotonic` only; `wall` becomes the timestamp of a prepare (V16) and
/// nothing else, so that a step of the wall clock expires nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Nanoseconds since some fixed moment of this process; never falls.
    pub monotonic: u64,
    /// The wall clock.
    pub wall: Timestamp,
}

impl Time {
    /// The monotonic moment `nanoseconds` later.
    #[must_use]
    pub const fn after(self, nanoseconds: u64) -> u64 {
        self.monotonic.saturating_add(nanoseconds)
    }
}
