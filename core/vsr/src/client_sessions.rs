//! The client table: what makes a session's metadata requests execute at most once (V14).

use alloc::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wire::{ClientId, Op, RequestNumber, SessionNumber};

use crate::constants::CLIENT_REPLY_SIZE_MAX;

/// The sessions of the metadata group. Changes at commit only, alike on every replica; its serde form is
/// part of every snapshot: new fields only at the end, with `serde(default)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSessions {
    clients: BTreeMap<ClientId, ClientSession>,
}

/// One client's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSession {
    /// The op of its register.
    pub session: SessionNumber,
    /// Its last executed request; 0 when there was none yet.
    pub request: RequestNumber,
    /// The op of that request or of the register: the session's last activity.
    pub op: Op,
    /// The reply of that request. None when it was larger than [`CLIENT_REPLY_SIZE_MAX`], or there was no
    /// request yet.
    pub reply: Option<Bytes>,
}

/// What the table says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not executed yet.
    New,
    /// The last one executed, and its reply.
    Repeated { op: Op, reply: Option<Bytes> },
    /// Older than the last one executed.
    Stale,
    /// The client has no session, or another one.
    NoSession,
}

impl ClientSessions {
    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The client's session.
    #[must_use]
    pub fn session(&self, client: ClientId) -> Option<&ClientSession> {
        self.clients.get(&client)
    }

    /// All sessions, by client.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &ClientSession)> {
        self.clients.iter().map(|(client, session)| (*client, session))
    }

    pub(crate) fn verdict(
        &self,
        client: ClientId,
        session: SessionNumber,
        request: RequestNumber,
    ) -> Verdict {
        let Some(entry) = self.clients.get(&client) else {
            return Verdict::NoSession;
        };
        if entry.session != session {
            Verdict::NoSession
        } else if request > entry.request {
            Verdict::New
        } else if request == entry.request && request != RequestNumber(0) {
            Verdict::Repeated {
                op: entry.op,
                reply: entry.reply.clone(),
            }
        } else {
            Verdict::Stale
        }
    }

    /// The register at `op` was executed: the client's session is the one numbered `op`. When that would
    /// make more than `clients_max`, the session that was idle for longest goes and is returned.
    pub(crate) fn register(
        &mut self,
        client: ClientId,
        op: Op,
        clients_max: usize,
    ) -> Option<(ClientId, SessionNumber)> {
        assert!(clients_max > 0);
        let is_full = self.clients.len() >= clients_max && !self.clients.contains_key(&client);
        let evicted = if is_full { self.evict_idle() } else { None };
        let entry = ClientSession {
            session: SessionNumber(op.0),
            request: RequestNumber(0),
            op,
            reply: None,
        };
        let replaced = self.clients.insert(client, entry);
        assert!(replaced.is_none_or(|old| old.op < op), "ops commit in order");
        evicted
    }

    /// The session's request was executed as `op`.
    pub(crate) fn executed(
        &mut self,
        client: ClientId,
        request: RequestNumber,
        op: Op,
        reply: Bytes,
    ) {
        let entry = self.clients.get_mut(&client);
        let entry = entry.expect("only a session's request is executed");
        assert!(request > entry.request, "a request is executed once");
        assert!(op > entry.op, "ops commit in order");
        entry.request = request;
        entry.op = op;
        entry.reply = (reply.len() <= CLIENT_REPLY_SIZE_MAX).then_some(reply);
    }

    pub(crate) fn end(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    fn evict_idle(&mut self) -> Option<(ClientId, SessionNumber)> {
        // Ops are unique, so there is one such client.
        let (&client, _) = self.clients.iter().min_by_key(|(_, entry)| entry.op)?;
        let entry = self.clients.remove(&client)?;
        Some((client, entry.session))
    }
}
