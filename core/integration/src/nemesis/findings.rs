//! What is told, and what was found.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// What is wrong, by whoever found it. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Findings(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    began: Instant,
    ends: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

impl Findings {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            began: Instant::now(),
            ends: AtomicBool::new(false),
            wrong: Mutex::default(),
        }))
    }

    /// Tells what happens.
    #[expect(clippy::print_stdout, reason = "it is there to be read")]
    pub(super) fn tell(&self, what: impl fmt::Display) {
        let time = self.0.began.elapsed();
        println!("{:>9.3} {what}", time.as_secs_f64());
    }

    /// Something is wrong.
    pub(super) fn wrong(&self, what: impl fmt::Display) {
        let what = what.to_string();
        self.tell(format_args!("WRONG: {what}"));
        let mut wrong = self.0.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.push(what);
    }

    /// All that is wrong.
    pub(super) fn all(&self) -> Vec<String> {
        let wrong = self.0.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.clone()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// Ends those who watch.
    pub(super) fn end(&self) {
        self.0.ends.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.ends.load(Ordering::SeqCst)
    }
}
