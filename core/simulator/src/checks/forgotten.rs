//! Sessions that a client table has no room for: their commands are not executed, and they end for that.

use std::collections::BTreeSet;

use wire::SessionNumber;

/// Sessions that live on in the catalog although the client table has forgotten them.
///
/// A register that fills the table makes it forget whoever was idle for longest. That one's end is an op of
/// its own: others may be executed before it, after which there are no longer too many sessions.
#[derive(Debug)]
pub(super) struct Forgotten {
    clients_max: usize,
    was_full: bool,
    sessions: BTreeSet<SessionNumber>,
}

impl Forgotten {
    pub(super) const fn new(clients_max: usize) -> Self {
        Self {
            clients_max,
            was_full: false,
            sessions: BTreeSet::new(),
        }
    }

    /// So many sessions are there after an op.
    pub(super) fn on_op(&mut self, sessions: usize) {
        self.was_full |= sessions > self.clients_max;
    }

    /// A command that nothing else forbids was not executed. Returns whether that may be.
    #[must_use]
    pub(super) fn on_skipped(&mut self, session: SessionNumber) -> bool {
        self.sessions.insert(session);
        self.was_full
    }

    pub(super) fn on_ended(&mut self, session: SessionNumber) {
        self.sessions.remove(&session);
    }

    /// Those that have not ended.
    pub(super) const fn sessions(&self) -> &BTreeSet<SessionNumber> {
        &self.sessions
    }
}

#[cfg(test)]
mod tests {
    use wire::SessionNumber;

    use super::Forgotten;

    #[test]
    fn session_that_was_forgotten_stays_it_until_it_ends_whoever_logs_out_before() {
        let mut forgotten = Forgotten::new(10);
        forgotten.on_op(10);
        assert!(!forgotten.on_skipped(SessionNumber(560)), "there was room");
        let mut forgotten = Forgotten::new(10);
        for sessions in [11, 10, 9] {
            forgotten.on_op(sessions);
        }
        assert!(forgotten.on_skipped(SessionNumber(560)));
        assert!(!forgotten.sessions().is_empty(), "its end is to come");
        forgotten.on_ended(SessionNumber(560));
        assert!(forgotten.sessions().is_empty());
    }
}
