//! Executing committed operations.

use alloc::vec::Vec;

use bytes::Bytes;
use coordinator::{At, Join};
use wire::{
    ClientId, DecodeError, EvictionReason, Failure, Identifier, Op, Reader, Reply, SessionNumber,
    StreamId, Timestamp, TopicId, UserId, Writer,
};

use crate::{
    Catalog, Change, Limits, Membership, Operation, SecretHash, Session,
    consumer_group::{GroupPath, OffsetReset},
};

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to who asked.
    pub result: Result<Reply, Failure>,
    /// What it changed, in order.
    pub changes: Vec<Change>,
    /// Clients whose session it ended and who have none after it: the client table forgets them.
    pub ended: Vec<ClientId>,
    /// What a join came to that succeeded; `result` is `Done` then.
    pub joined: Option<Membership>,
}

/// An answer as the client table keeps it for retries: status and body of the reply's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedReply {
    /// 0, or the number of a [`wire::ErrorCode`].
    pub status: u32,
    /// The reply's body, or the text of the failure. To a join with status 0: a [`Membership`]; to the
    /// creation of a topic: its name, as [`CachedReply::topic`] reads it. Those answers grow with their
    /// topic, so whoever answers reads them from the catalog.
    pub body: Bytes,
}

impl CachedReply {
    /// Stream and topic of the answer to the creation of a topic that succeeded.
    ///
    /// # Errors
    /// It is another answer.
    pub fn topic(&self) -> Result<(StreamId, TopicId), DecodeError> {
        let mut reader = Reader::new(self.body.clone());
        let stream = StreamId(reader.u64("stream")?);
        let topic = TopicId(reader.u64("topic")?);
        reader.finish()?;
        Ok((stream, topic))
    }
}

impl Outcome {
    /// The answer, for the client table. Small, however large the topic is.
    #[must_use]
    pub fn encode_result(&self) -> Bytes {
        let (status, body) = match &self.result {
            Ok(reply) => match (&self.joined, reply) {
                (Some(membership), _) => (0, membership.encode()),
                (None, Reply::Topic(topic)) => {
                    let mut writer = Writer::with_capacity(2 * 8);
                    writer.u64(topic.stream.0).u64(topic.id.0);
                    (0, writer.into_bytes())
                }
                (None, reply) => (0, reply.to_bytes()),
            },
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
    pub(crate) joined: Option<Membership>,
}

impl Step {
    pub(crate) const fn at(&self) -> At {
        At {
            op: self.op,
            timestamp: self.timestamp,
        }
    }

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
            joined: None,
        };
        let result = self.execute(&mut step, operation);
        // A client that replaced its session has one still.
        step.ended
            .retain(|client| !self.sessions.contains_key(client));
        Outcome {
            result,
            changes: step.changes,
            ended: step.ended,
            joined: step.joined,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per operation")]
    fn execute(&mut self, step: &mut Step, operation: &Operation) -> Result<Reply, Failure> {
        use Operation as O;
        if let Some(by) = operation.asker() {
            self.active_user(by)?;
        }
        match operation {
            O::SetFormerLimits { limits } => Ok(self.set_limits((*limits).into())),
            O::SetLimits { limits } => Ok(self.set_limits(*limits)),
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
            O::PurgeStream { stream, .. } => self.purge_stream(step, stream),
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
            O::PurgeTopic { stream, topic, .. } => self.purge_topic(step, stream, topic),
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
            O::CreateConsumerGroup {
                stream,
                topic,
                name,
                options,
                ..
            } => self.create_group(step, (stream, topic), name, options),
            O::DeleteConsumerGroup {
                stream,
                topic,
                group,
                force,
                ..
            } => self.delete_group(step, &path(stream, topic, group), *force),
            O::UpdateConsumerGroup {
                stream,
                topic,
                group,
                options,
                ..
            } => self.update_group(step, &path(stream, topic, group), options),
            O::JoinConsumerGroup {
                client,
                session,
                stream,
                topic,
                group,
                instance,
                weight,
                address,
            } => {
                let join = Join {
                    client: *client,
                    session: *session,
                    instance: instance.clone(),
                    weight: *weight,
                    address: address.clone(),
                };
                self.join_group(step, &path(stream, topic, group), join)
            }
            O::LeaveConsumerGroup {
                client,
                session,
                stream,
                topic,
                group,
            } => self.leave_group(step, &path(stream, topic, group), (*client, *session)),
            O::RemoveMember {
                stream,
                topic,
                group,
                member,
                ..
            } => self.remove_member(step, &path(stream, topic, group), *member),
            O::ResetConsumerOffset {
                stream,
                topic,
                group,
                partitions,
                others,
                force,
                ..
            } => {
                let reset = OffsetReset {
                    partitions,
                    others: *others,
                    force: *force,
                };
                self.reset_offsets(step, &path(stream, topic, group), &reset)
            }
            O::PlanGroups { groups } => Ok(self.plan_groups(step, groups)),
            O::CompleteMoves { groups } => Ok(self.complete_moves(step, groups)),
            O::ExpireMembers { groups } => Ok(self.expire_members(step, groups)),
            O::ExpireGroups { groups } => Ok(self.expire_groups(step, groups)),
        }
    }

    fn set_limits(&mut self, limits: Limits) -> Reply {
        self.limits = limits;
        Reply::Done
    }
}

const fn path<'a>(
    stream: &'a Identifier,
    topic: &'a Identifier,
    group: &'a Identifier,
) -> GroupPath<'a> {
    GroupPath {
        stream,
        topic,
        group,
    }
}
