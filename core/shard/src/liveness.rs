//! Which sessions are alive, by monotonic time alone: a step of the wall clock expires nobody.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use wire::{ClientId, EvictionReason, ReplicaId, SessionNumber};

/// What a shard has seen of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A connection carries it.
    Connected(ClientId, SessionNumber),
    /// A connection that carried it is gone.
    Disconnected(SessionNumber),
    /// It sent something.
    Seen(SessionNumber),
}

/// Collects signs on one shard, and hands them over in batches.
#[derive(Debug)]
pub(crate) struct Signs {
    /// Connections made and lost, in order: they are reported at once.
    changes: Vec<Sign>,
    seen: BTreeSet<SessionNumber>,
    interval: u64,
    due: u64,
}

impl Signs {
    pub(crate) const fn new(interval: u64) -> Self {
        Self {
            changes: Vec::new(),
            seen: BTreeSet::new(),
            interval,
            due: 0,
        }
    }

    pub(crate) fn connected(&mut self, client: ClientId, session: SessionNumber) {
        self.changes.push(Sign::Connected(client, session));
    }

    pub(crate) fn disconnected(&mut self, session: SessionNumber) {
        // What it sent before must not count as a sign of life after.
        self.seen.remove(&session);
        self.changes.push(Sign::Disconnected(session));
    }

    pub(crate) fn seen(&mut self, session: SessionNumber) {
        self.seen.insert(session);
    }

    /// Whether the next report tells who was seen.
    pub(crate) const fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// What is to be reported now, if anything.
    pub(crate) fn report(&mut self, now: u64) -> Option<Vec<Sign>> {
        if self.changes.is_empty() && (!self.is_due(now) || self.seen.is_empty()) {
            return None;
        }
        if self.is_due(now) {
            self.due = now.saturating_add(self.interval);
            self.changes
                .extend(core::mem::take(&mut self.seen).into_iter().map(Sign::Seen));
        }
        Some(core::mem::take(&mut self.changes))
    }
}

/// How long a session may live without a sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Without a connection, nanoseconds.
    pub(crate) disconnect_grace: u64,
    /// Without a sign, nanoseconds.
    pub(crate) session_timeout: u64,
}

impl Timeouts {
    /// Without a connection: never longer than with one.
    fn lost(&self) -> u64 {
        self.disconnect_grace.min(self.session_timeout)
    }
}

#[derive(Clone, Debug)]
struct Clock {
    client: ClientId,
    /// Its connections, by node; none is 0.
    connections: BTreeMap<ReplicaId, u32>,
    /// Its last connection was lost, here and not before a restart.
    lost: bool,
    /// When it last gave a sign, or lost its last connection.
    since: u64,
}

impl Clock {
    fn change(&mut self, node: ReplicaId, change: i32) {
        let count = self.connections.entry(node).or_default();
        *count = count.saturating_add_signed(change);
        if *count == 0 {
            self.connections.remove(&node);
        }
    }
}

/// The sessions of the cluster, as the primary of the metadata group sees them.
#[derive(Debug)]
pub(crate) struct Clocks {
    timeouts: Timeouts,
    sessions: BTreeMap<SessionNumber, Clock>,
    /// Sessions without a connection, by the time when they lost the last one.
    /// Invariant: exactly those whose clock says `lost`.
    lost: BTreeSet<(u64, SessionNumber)>,
    /// Whose end was proposed and is not committed yet.
    expiring: BTreeSet<SessionNumber>,
}

impl Clocks {
    pub(crate) const fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            sessions: BTreeMap::new(),
            lost: BTreeSet::new(),
            expiring: BTreeSet::new(),
        }
    }

    /// A session is there; it has a full timeout before it must give a sign, and before it must be
    /// attached to.
    pub(crate) fn begin(&mut self, client: ClientId, session: SessionNumber, now: u64) {
        self.sessions.entry(session).or_insert(Clock {
            client,
            connections: BTreeMap::new(),
            lost: false,
            since: now,
        });
    }

    pub(crate) fn end(&mut self, session: SessionNumber) {
        if let Some(clock) = self.sessions.remove(&session) {
            self.lost.remove(&(clock.since, session));
        }
        self.expiring.remove(&session);
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn on_sign(&mut self, node: ReplicaId, sign: Sign, now: u64) {
        let (session, change) = match sign {
            Sign::Connected(client, session) => {
                self.begin(client, session, now);
                (session, 1)
            }
            Sign::Disconnected(session) => (session, -1),
            Sign::Seen(session) => (session, 0),
        };
        if let Some(clock) = self.sessions.get_mut(&session) {
            self.lost.remove(&(clock.since, session));
            clock.change(node, change);
            clock.lost = match sign {
                Sign::Connected(..) => false,
                Sign::Disconnected(_) => clock.connections.is_empty(),
                Sign::Seen(_) => clock.lost,
            };
            clock.since = now;
            if clock.lost {
                self.lost.insert((now, session));
            }
        }
    }

    /// These are all connections that a node has. A session that has none any more has lost them now.
    pub(crate) fn on_connections(
        &mut self,
        node: ReplicaId,
        sessions: &[(ClientId, SessionNumber, u32)],
        now: u64,
    ) {
        let named: BTreeMap<SessionNumber, u32> = sessions
            .iter()
            .map(|(_, session, count)| (*session, *count))
            .collect();
        for (client, session, _) in sessions {
            self.begin(*client, *session, now);
        }
        for (session, clock) in &mut self.sessions {
            let before = clock.connections.remove(&node).is_some();
            if let Some(count) = named.get(session).filter(|count| **count > 0) {
                clock.connections.insert(node, *count);
                self.lost.remove(&(clock.since, *session));
                (clock.lost, clock.since) = (false, now);
            } else if before && clock.connections.is_empty() {
                self.lost.remove(&(clock.since, *session));
                (clock.lost, clock.since) = (true, now);
                self.lost.insert((now, *session));
            }
        }
    }

    /// The connections of the sessions that a node carries.
    pub(crate) fn connections_of(&self, node: ReplicaId) -> Vec<(ClientId, SessionNumber, u32)> {
        let sessions = self.sessions.iter();
        let carried = sessions.filter_map(|(session, clock)| {
            let count = clock.connections.get(&node)?;
            Some((clock.client, *session, *count))
        });
        carried.collect()
    }

    /// When the time of the session that has been without a connection for the longest is over.
    pub(crate) fn lost_due(&self) -> Option<u64> {
        let (since, _) = self.lost.first()?;
        Some(since.saturating_add(self.timeouts.lost()))
    }

    /// Everybody gets a full timeout: this node does not know how long they were silent. Connections
    /// that are open stay counted, for their ends are reported later.
    pub(crate) fn restart(&mut self, now: u64) {
        for clock in self.sessions.values_mut() {
            clock.since = now;
            clock.lost = false;
        }
        self.lost.clear();
        self.expiring.clear();
    }

    /// Nobody was listened to for so long: that does not count as silence.
    pub(crate) fn forgive(&mut self, unwatched: u64, now: u64) {
        self.lost.clear();
        for (session, clock) in &mut self.sessions {
            clock.since = clock.since.saturating_add(unwatched).min(now);
            if clock.lost {
                self.lost.insert((clock.since, *session));
            }
        }
    }

    /// Sessions whose time is over for this reason and whose end was not proposed yet, at most `count`.
    pub(crate) fn expired(
        &mut self,
        now: u64,
        reason: EvictionReason,
        count: usize,
    ) -> Vec<(ClientId, SessionNumber)> {
        let mut expired = Vec::new();
        let mut take = |session: SessionNumber, clock: &Clock| {
            if expired.len() < count && self.expiring.insert(session) {
                expired.push((clock.client, session));
            }
        };
        if reason == EvictionReason::Disconnected {
            let limit = self.timeouts.lost();
            let over = self
                .lost
                .iter()
                .take_while(|(since, _)| now.saturating_sub(*since) >= limit);
            for (_, session) in over {
                take(*session, &self.sessions[session]);
            }
        } else {
            let limit = self.timeouts.session_timeout;
            for (session, clock) in &self.sessions {
                if !clock.lost && now.saturating_sub(clock.since) >= limit {
                    take(*session, clock);
                }
            }
        }
        expired
    }

    /// The proposal of these ends came to nothing.
    pub(crate) fn unexpire(&mut self, sessions: &[(ClientId, SessionNumber)]) {
        for (_, session) in sessions {
            self.expiring.remove(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_opened_before_a_restart_of_the_clocks_keeps_its_session() {
        let session = SessionNumber(4);
        let mut clocks = Clocks::new(Timeouts {
            disconnect_grace: 10,
            session_timeout: 1_000,
        });
        clocks.on_sign(ReplicaId(0), Sign::Connected(ClientId(9), session), 0);
        clocks.on_sign(ReplicaId(0), Sign::Connected(ClientId(9), session), 1);
        clocks.restart(2);
        clocks.on_sign(ReplicaId(0), Sign::Disconnected(session), 3);
        assert_eq!(clocks.expired(500, EvictionReason::Disconnected, 8), []);
        clocks.on_sign(ReplicaId(0), Sign::Disconnected(session), 501);
        assert_eq!(
            clocks.expired(512, EvictionReason::Disconnected, 8),
            [(ClientId(9), session)]
        );
    }

    #[test]
    fn standstill_of_whoever_listens_is_nobodys_silence() {
        let (silent, lost) = (SessionNumber(4), SessionNumber(5));
        let mut clocks = Clocks::new(Timeouts {
            disconnect_grace: 100,
            session_timeout: 1_000,
        });
        clocks.on_sign(ReplicaId(0), Sign::Connected(ClientId(9), silent), 0);
        clocks.on_sign(ReplicaId(0), Sign::Connected(ClientId(8), lost), 0);
        clocks.on_sign(ReplicaId(0), Sign::Disconnected(lost), 950);
        clocks.forgive(5_000, 5_960);
        assert_eq!(clocks.lost_due(), Some(6_050));
        assert_eq!(clocks.expired(5_999, EvictionReason::Expired, 8), []);
        assert_eq!(clocks.expired(6_049, EvictionReason::Disconnected, 8), []);
        // What was left to them before is left to them after.
        assert_eq!(
            clocks.expired(6_000, EvictionReason::Expired, 8),
            [(ClientId(9), silent)]
        );
        assert_eq!(
            clocks.expired(6_050, EvictionReason::Disconnected, 8),
            [(ClientId(8), lost)]
        );
    }
}
