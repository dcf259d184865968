//! What is repeated until it succeeds is not waited for for ever.

use std::time::Duration;

use tokio::sync::oneshot;
use wire::Command;

use crate::Error;

/// What comes within the time; `None` when that is over.
pub(crate) async fn in_time<T>(
    timeout: Duration,
    done: oneshot::Receiver<T>,
) -> Option<Result<T, Error>> {
    let done = tokio::time::timeout(timeout, done).await.ok()?;
    Some(done.map_err(|_| Error::Closed))
}

/// That it goes on being tried, and nobody waits any more.
pub(crate) fn timed_out(command: Command, timeout: Duration) -> Error {
    Error::TimedOut {
        command,
        waited_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        sent: true,
    }
}
