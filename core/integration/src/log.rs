//! What a process says, line by line.

use std::{
    io::{BufRead, BufReader, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use crate::PATIENCE;

/// The lines of an output of a process, as they come.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    has_ended: bool,
}

impl Log {
    /// Reads `output` to its end, on a thread of its own.
    pub(crate) fn follow(output: impl Read + Send + 'static) -> Self {
        let log = Self::default();
        let own = log.clone();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while matches!(output.read_until(b'\n', &mut line), Ok(size) if size > 0) {
                let text = String::from_utf8_lossy(&line);
                own.lock().lines.push(text.trim_end().to_owned());
                own.0.grown.notify_all();
                line.clear();
            }
            own.lock().has_ended = true;
            own.0.grown.notify_all();
        });
        log
    }

    /// All lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// All lines so far, in one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// The first line with `part` that is there by now.
    #[must_use]
    pub fn find(&self, part: &str) -> Option<String> {
        find(&self.lock(), part)
    }

    /// Waits for a line with `part`; `None` when the output ends without one.
    ///
    /// # Panics
    /// When neither comes within [`PATIENCE`].
    #[must_use]
    pub fn wait_for(&self, part: &str) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        loop {
            if let Some(line) = find(&state, part) {
                return Some(line);
            }
            if state.has_ended {
                return None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no line with {part:?} in:\n{}",
                state.lines.join("\n")
            );
            let waited = self.0.grown.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the output has ended: the process and all that have inherited it are gone.
    pub(crate) fn wait_for_end(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            state = self
                .0
                .grown
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(state: &State, part: &str) -> Option<String> {
    state.lines.iter().find(|line| line.contains(part)).cloned()
}
