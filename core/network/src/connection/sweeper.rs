//! Ends connections that took too long.

use std::rc::{Rc, Weak};

use super::{CloseReason, Connection, Shared};

/// Looks at all connections once per interval, as long as the shard has them.
///
/// Timeouts are not put on the reads and writes themselves: to time out a read is to drop it, and its bytes.
pub(super) async fn sweep(shared: Weak<Shared>) {
    while let Some(interval) = shared.upgrade().map(|shared| shared.limits.sweep_interval) {
        compio::time::sleep(interval).await;
        if let Some(shared) = shared.upgrade() {
            shared.sweep();
        }
    }
}

impl Shared {
    fn sweep(&self) {
        let now = self.sweeps.get() + 1;
        self.sweeps.set(now);
        self.pool.trim();
        let overdue: Vec<_> = self
            .slots
            .borrow()
            .iter()
            .filter_map(|connection| Some((Rc::clone(connection), self.overdue(connection, now)?)))
            .collect();
        for (connection, reason) in overdue {
            if reason == CloseReason::Idle {
                self.statistics.borrow_mut().idle += 1;
                self.finish(&connection, reason);
            } else {
                self.statistics.borrow_mut().slow += 1;
                self.abort(&connection, reason);
            }
        }
        self.sweep_closing(now);
    }

    /// What a connection is ended for.
    fn overdue(&self, connection: &Connection, now: u64) -> Option<CloseReason> {
        let queued = connection.queued.get();
        let slow_since = if queued > self.limits.queue_soft_max {
            Some(connection.slow_since.get().unwrap_or(now))
        } else {
            None
        };
        connection.slow_since.set(slow_since);

        let patience = self.limits.sweeps(self.limits.slow_timeout);
        let too_full = slow_since.is_some_and(|since| now - since >= patience);
        let stuck = queued > 0 && now - connection.written_at.get() > patience;
        if too_full || stuck {
            return Some(CloseReason::Slow { queued });
        }
        let silent = now - connection.read_at.get() > self.limits.sweeps(self.limits.idle_timeout);
        (silent && !self.holds_back(connection)).then_some(CloseReason::Idle)
    }

    fn sweep_closing(&self, now: u64) {
        let mut late = Vec::new();
        self.closing.borrow_mut().retain(|(deadline, connection)| {
            let Some(connection) = connection.upgrade() else {
                return false;
            };
            if now > *deadline {
                late.push(connection);
            }
            true
        });
        for connection in late {
            self.abort(&connection, CloseReason::Requested);
        }
    }
}
