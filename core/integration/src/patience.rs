//! Waiting for a condition.

use std::{
    thread,
    time::{Duration, Instant},
};

use wire::Failure;

/// How long a test waits for something that must happen: far longer than it takes, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Tries again what is answered that it may be.
///
/// # Panics
/// At any other refusal, and as [`until`].
pub fn again<T>(what: &str, mut ask: impl FnMut() -> Result<T, Failure>) -> T {
    until(what, || match ask() {
        Ok(answer) => Some(answer),
        Err(failure) => {
            assert!(failure.code.retryable(), "{what}: {failure}");
            None
        }
    })
}

/// Asks until there is an answer.
///
/// # Panics
/// When there is none within [`PATIENCE`]; `what` says what was waited for.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain: {what}"
        );
        thread::sleep(PAUSE);
    }
}
