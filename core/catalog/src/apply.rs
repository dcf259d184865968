//! Executing committed operations.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{
    ClientId, DecodeError, EvictionReason, Failure, Op, Reader, Reply, SessionNumber, Timestamp,
    UserId, Writer,
};

use crate::{Catalog, Change, Limits, Operation, SecretHash, Session};

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to who asked.
    pub result: Result<Reply, Failure>,
    /// What it changed, in order.
    pub changes: Vec<Change>,
    /// Clients whose session it ended and who have none after it: the client table forgets them.
    pub ended: Vec<ClientId>,
}

/// An answer as the client table keeps it for retries: status and body of the reply's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedReply {
    /// 0, or the number of a [`wire::ErrorCode`].
    pub status: u32,
    /// The reply's body, or the text of the failure.
    pub body: Bytes,
}

impl Outcome {
    /// The answer, for the client table. Small: no answer to an operation carries messages.
    #[must_use]
    pub fn encode_result(&self) -> Bytes {
        let (status, body) = match &self.result {
            Ok(reply) => (0, reply.to_bytes()),
            Err(failure) => (failure.code.code(), failure.encode()),
        };
        let mut writer = Writer::with_capacity(4 + body.len());
        writer.u32(status).bytes(&body);
        writer.into_bytes()
    }

    /// Reads what [`Outcome::encode_result`] wrote. The body is a slice of `bytes`.
    ///
    /// # Errors
    /// `Truncated` when not even the status is there.
    pub fn decode_result(bytes: Bytes) -> Result<CachedReply, DecodeError> {
        let mut reader = Reader::new(bytes);
        let status = reader.u32("status")?;
        let body = reader.rest();
        Ok(CachedReply { status, body })
    }
}

/// One op while it is executed.
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) timestamp: Timestamp,
    pub(crate) changes: Vec<Change>,
    /// Clients that lost a session.
    pub(crate) ended: Vec<ClientId>,
}

impl Step {
    fn session(&self, client: ClientId, user: UserId, secret_hash: SecretHash) -> Session {
        Session {
            client,
            number: SessionNumber(self.op.0),
            user,
            secret_hash,
            registered: self.timestamp,
        }
    }

    pub(crate) fn session_ended(&mut self, session: &Session, reason: EvictionReason) {
        self.changes.push(Change::SessionEnded {
            client: session.client,
            session: session.number,
            reason,
        });
        self.ended.push(session.client);
    }
}

impl Catalog {
    /// Executes a committed op. A refused one changes nothing but [`Catalog::applied`].
    ///
    /// `timestamp` is the prepare's: the only clock there is (V16).
    ///
    /// # Panics
    /// When `op` is not above the last one applied: ops are applied in order, once.
    pub fn apply(&mut self, op: Op, timestamp: Timestamp, operation: &Operation) -> Outcome {
        assert!(op > self.applied, "ops are applied in order, once");
        self.applied = op;
        let mut step = Step {
            op,
            timestamp,
            changes: Vec::new(),
            ended: Vec::new(),
        };
        let result = self.execute(&mut step, operation);
        // A client that replaced its session has one still.
        step.ended
            .retain(|client| !self.sessions.contains_key(client));
        Outcome {
            result,
            changes: step.changes,
            ended: step.ended,
        }
    }

    fn execute(&mut self, step: &mut Step, operation: &Operation) -> Result<Reply, Failure> {
        use Operation as O;
        if let Some(by) = operation.asker() {
            self.active_user(by)?;
        }
        match operation {
            O::SetLimits { limits } => Ok(self.set_limits(limits)),
            O::CreateRoot { password_hash } => self.create_root(step, password_hash),
            O::CreateUser {
                by,
                name,
                password_hash,
            } => self.create_user(step, *by, name, password_hash),
            O::DeleteUser { by, user } => self.delete_user(step, *by, user),
            O::UpdateUser {
                by,
                user,
                name,
                active,
            } => self.update_user(step, *by, user, (name.as_deref(), *active)),
            O::ChangePassword {
                by,
                user,
                password_hash,
                verified,
            } => self.change_password(step, *by, user, (password_hash, *verified)),
            O::Register {
                client,
                user,
                verified,
                secret_hash,
            } => {
                let session = step.session(*client, *user, *secret_hash);
                self.register(step, session, *verified)
            }
            O::Logout { client, session } => self.log_out(step, *client, *session),
            O::EndSessions { sessions, reason } => Ok(self.end_sessions(step, sessions, *reason)),
            O::CreateStream { name, .. } => self.create_stream(step, name),
            O::DeleteStream { stream, .. } => self.delete_stream(step, stream),
            O::UpdateStream { stream, name, .. } => self.update_stream(step, stream, name),
            O::CreateTopic {
                stream,
                name,
                partitions,
                ..
            } => self.create_topic(step, stream, name, *partitions),
            O::DeleteTopic { stream, topic, .. } => self.delete_topic(step, stream, topic),
            O::UpdateTopic {
                stream,
                topic,
                name,
                ..
            } => self.update_topic(step, stream, topic, name),
            O::CreatePartitions {
                stream,
                topic,
                count,
                ..
            } => self.create_partitions(step, stream, topic, *count),
            O::DeletePartitions {
                stream,
                topic,
                count,
                ..
            } => self.delete_partitions(step, stream, topic, *count),
        }
    }

    fn set_limits(&mut self, limits: &Limits) -> Reply {
        self.limits = *limits;
        Reply::Done
    }
}
