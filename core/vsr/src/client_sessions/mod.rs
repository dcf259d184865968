//! The client table: what makes a session's metadata requests execute at most once (V14).

use alloc::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wire::{ClientId, Op, RequestNumber, SessionNumber};

use crate::{Refusal, constants::CLIENT_REPLY_SIZE_MAX, mutation};

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

/// What a request gets instead of being executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The reply of its execution as `op`.
    Reply { op: Op, body: Bytes },
    /// A reason.
    Refusal(Refusal),
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
        self.clients
            .iter()
            .map(|(client, session)| (*client, session))
    }

    /// Whether the request is to be executed (V14), else what it gets.
    pub(crate) fn check(
        &self,
        client: ClientId,
        session: SessionNumber,
        request: RequestNumber,
    ) -> Result<(), Answer> {
        let entry = self.clients.get(&client);
        let Some(entry) = entry.filter(|entry| entry.session == session) else {
            return Err(Answer::Refusal(Refusal::NoSession));
        };
        if mutation::V14 || request > entry.request {
            return Ok(());
        }
        // Before its first request a session has executed none, and none is numbered 0.
        if request < entry.request || request == RequestNumber(0) {
            return Err(Answer::Refusal(Refusal::Stale));
        }
        let op = entry.op;
        Err(match entry.reply.clone() {
            Some(body) => Answer::Reply { op, body },
            None => Answer::Refusal(Refusal::ReplyNotKept { op }),
        })
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
        assert!(
            replaced.is_none_or(|old| old.op < op),
            "ops commit in order"
        );
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

#[cfg(test)]
mod tests;
