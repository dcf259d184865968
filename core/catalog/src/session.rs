//! Sessions: which client is logged in as whom.

use alloc::vec::Vec;

use wire::{
    ClientId, EvictionReason, Failure, Op, Reply, SessionNumber, Timestamp, UserId, Writer,
};

use crate::{Catalog, Change, Limit, SecretHash, apply::Step, failure};

/// A logged-in client, in snapshots as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Session {
    /// The client; has one session at most.
    pub client: ClientId,
    /// The op that registered it.
    pub number: SessionNumber,
    /// Who logged in. Invariant: exists and is active.
    pub user: UserId,
    /// Of the secret that further connections attach with.
    pub secret_hash: SecretHash,
    /// When it was registered.
    pub registered: Timestamp,
}

impl Session {
    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            client,
            number,
            user,
            secret_hash,
            registered,
        } = self;
        writer
            .u128(client.0)
            .u64(number.0)
            .u64(user.0)
            .bytes(&secret_hash.0)
            .u64(registered.0);
    }
}

impl Catalog {
    /// The session of `client`, if it is the one with `number`. Another connection may attach to it when
    /// the hash of the secret that it shows [matches](SecretHash::matches).
    #[must_use]
    pub fn session(&self, client: ClientId, number: SessionNumber) -> Option<&Session> {
        self.sessions
            .get(&client)
            .filter(|session| session.number == number)
    }

    /// Every session, in order of client ids.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = &Session> {
        self.sessions.values()
    }

    /// Answers `Done`: the number of the session is the op, and the rest of what its client is told only
    /// the shell knows.
    ///
    /// `verified` is the op of the password that the shell has checked: a login that was on its way while
    /// the password changed must not outlive the sessions that the change ended.
    pub(crate) fn register(
        &mut self,
        step: &mut Step,
        session: Session,
        verified: Op,
    ) -> Result<Reply, Failure> {
        self.admit_session(&session, verified)?;
        if let Some(older) = self.sessions.insert(session.client, session) {
            let reason = EvictionReason::Replaced;
            step.session_ended(&older, reason);
            self.end_memberships(step, &[(older.client, older.number)], reason);
        }
        step.changes.push(Change::SessionRegistered {
            client: session.client,
            session: session.number,
            user: session.user,
        });
        Ok(Reply::Done)
    }

    fn admit_session(&self, session: &Session, verified: Op) -> Result<(), Failure> {
        let user = self.active_user(session.user)?;
        if user.password_op != verified {
            return Err(failure::password_replaced(&user.name));
        }
        if !self.sessions.contains_key(&session.client) {
            let sessions = self.sessions.len() as u64 + 1;
            self.limits.admit(Limit::Sessions, sessions)?;
        }
        Ok(())
    }

    pub(crate) fn log_out(
        &mut self,
        step: &mut Step,
        client: ClientId,
        number: SessionNumber,
    ) -> Result<Reply, Failure> {
        if self.session(client, number).is_none() {
            return Err(failure::session_not_found(number));
        }
        Ok(self.end_sessions(step, &[(client, number)], EvictionReason::LoggedOut))
    }

    /// Skips those that are not there any more: who asked for it may have been slow.
    pub(crate) fn end_sessions(
        &mut self,
        step: &mut Step,
        sessions: &[(ClientId, SessionNumber)],
        reason: EvictionReason,
    ) -> Reply {
        let mut ended = Vec::new();
        for &(client, number) in sessions {
            if self.session(client, number).is_some() {
                let session = self.sessions.remove(&client).expect("the session is there");
                step.session_ended(&session, reason);
                ended.push((client, number));
            }
        }
        self.end_memberships(step, &ended, reason);
        Reply::Done
    }

    pub(crate) fn end_sessions_of(
        &mut self,
        step: &mut Step,
        user: UserId,
        reason: EvictionReason,
    ) {
        let sessions = self
            .sessions
            .extract_if(.., |_, session| session.user == user);
        let mut ended = Vec::new();
        for (_, session) in sessions {
            step.session_ended(&session, reason);
            ended.push((session.client, session.number));
        }
        self.end_memberships(step, &ended, reason);
    }
}
