//! The clients that are connected to this shard, and how much of theirs is in flight.

use alloc::{collections::BTreeMap, vec::Vec};
use core::net::SocketAddr;

use wire::{ClientId, SessionNumber, UserId};

use crate::{ConnectionId, config::Limits};

/// Whose requests a connection carries, once it is logged in or attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionNumber,
    /// Its user.
    pub user: UserId,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) binding: Option<Binding>,
    requests: u32,
    bytes: u64,
    paused: bool,
}

/// The connections of a shard.
///
/// Invariant: `bytes` is the sum over the connections, and a connection is paused exactly while it, or
/// the shard when it last sent something, is over a limit.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    by_id: BTreeMap<ConnectionId, Connection>,
    by_session: BTreeMap<SessionNumber, Vec<ConnectionId>>,
    bytes: u64,
    /// Paused for the sake of the whole shard, in that order.
    paused_for_shard: Vec<ConnectionId>,
}

/// What the network has to be told after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Pause(ConnectionId),
    Resume(ConnectionId),
}

impl Connections {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            by_id: BTreeMap::new(),
            by_session: BTreeMap::new(),
            bytes: 0,
            paused_for_shard: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether one more is over the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.by_id.len() >= self.limits.connections as usize
    }

    pub(crate) fn open(&mut self, id: ConnectionId, peer: SocketAddr) {
        let connection = Connection {
            peer,
            binding: None,
            requests: 0,
            bytes: 0,
            paused: false,
        };
        let old = self.by_id.insert(id, connection);
        assert!(old.is_none());
    }

    pub(crate) fn find(&self, id: ConnectionId) -> Option<&Connection> {
        self.by_id.get(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.by_id.keys().copied()
    }

    /// The connections that carry a session.
    pub(crate) fn bound(&self) -> Vec<ConnectionId> {
        self.by_session.values().flatten().copied().collect()
    }

    /// Forgets a connection; what it had in flight is given back. Returns whose it was.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Option<Binding> {
        let connection = self.by_id.remove(&id)?;
        self.bytes -= connection.bytes;
        let binding = connection.binding?;
        self.forget(binding.session, id);
        Some(binding)
    }

    /// Makes a connection carry a session's requests; returns the session that it carried before.
    pub(crate) fn bind(&mut self, id: ConnectionId, binding: Binding) -> Option<Binding> {
        let connection = self.by_id.get_mut(&id)?;
        let before = connection.binding.replace(binding);
        if let Some(before) = before {
            self.forget(before.session, id);
        }
        self.by_session.entry(binding.session).or_default().push(id);
        before
    }

    /// The connections that carry a session.
    pub(crate) fn of_session(&self, session: SessionNumber) -> Vec<ConnectionId> {
        self.by_session.get(&session).cloned().unwrap_or_default()
    }

    /// Takes the session away from all its connections and names them.
    pub(crate) fn unbind(&mut self, session: SessionNumber) -> Vec<ConnectionId> {
        let ids = self.by_session.remove(&session).unwrap_or_default();
        for id in &ids {
            if let Some(connection) = self.by_id.get_mut(id) {
                connection.binding = None;
            }
        }
        ids
    }

    fn forget(&mut self, session: SessionNumber, id: ConnectionId) {
        if let Some(ids) = self.by_session.get_mut(&session) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// Counts a request that is now in flight.
    pub(crate) fn charge(&mut self, id: ConnectionId, bytes: u64) -> Option<Flow> {
        let connection = self.by_id.get_mut(&id)?;
        connection.requests += 1;
        connection.bytes += bytes;
        self.bytes += bytes;
        if connection.paused {
            return None;
        }
        let own = connection.is_over(&self.limits);
        let shard = self.bytes > self.limits.bytes_in_flight_shard;
        if !own && !shard {
            return None;
        }
        connection.paused = true;
        if !own {
            self.paused_for_shard.push(id);
        }
        Some(Flow::Pause(id))
    }

    /// Counts a request that is answered; names the connections that may be read again.
    pub(crate) fn discharge(&mut self, id: ConnectionId, bytes: u64) -> Vec<Flow> {
        let mut flow = Vec::new();
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.requests -= 1;
            connection.bytes -= bytes;
            self.bytes -= bytes;
            let waits_for_shard = self.bytes > self.limits.bytes_in_flight_shard;
            if connection.paused && !connection.is_over(&self.limits) {
                if waits_for_shard {
                    self.paused_for_shard.push(id);
                } else {
                    connection.paused = false;
                    flow.push(Flow::Resume(id));
                }
            }
        }
        if self.bytes <= self.limits.bytes_in_flight_shard && !self.paused_for_shard.is_empty() {
            for id in core::mem::take(&mut self.paused_for_shard) {
                let Some(connection) = self.by_id.get_mut(&id) else {
                    continue;
                };
                if connection.paused && !connection.is_over(&self.limits) {
                    connection.paused = false;
                    flow.push(Flow::Resume(id));
                }
            }
        }
        flow
    }
}

impl Connection {
    const fn is_over(&self, limits: &Limits) -> bool {
        self.requests >= limits.requests_in_flight || self.bytes >= limits.bytes_in_flight
    }
}
