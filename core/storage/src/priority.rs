//! How the journal's thread gets a core when all are busy.
#![expect(
    unsafe_code,
    reason = "the scheduler's calls have no safe form in the standard library"
)]

use std::fmt;

/// What the operating system has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// SCHED_FIFO: runs before everything that is not real-time.
    RealTime,
    /// Nice −20.
    Raised,
    /// As everybody.
    Normal,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RealTime => "SCHED_FIFO",
            Self::Raised => "nice -20",
            Self::Normal => "normal",
        })
    }
}

/// Raises the calling thread as far as the operating system lets it. Threads that it starts afterwards
/// inherit that.
#[must_use]
pub fn raise() -> Priority {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 names the calling thread, and the parameters outlive the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } == 0 {
        return Priority::RealTime;
    }
    // SAFETY: plain numbers; 0 names the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0 {
        return Priority::Raised;
    }
    Priority::Normal
}
