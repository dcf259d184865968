//! Who comes and who goes.

use alloc::{collections::BTreeMap, vec::Vec};

use bytes::Bytes;
use coordinator::Join;
use wire::{
    ClientId, ConsumerGroupId, DecodeError, EvictionReason, Failure, Generation, MemberId, Op,
    Reader, Reply, SessionNumber, StreamId, TopicId, Writer,
};

use super::{GroupKey, GroupPath, merged};
use crate::{Catalog, Limit, apply::Step, failure};

/// What a join came to. The answer to it is the member's assignment, which whoever answers reads from a
/// catalog or projection at `op` or later; only this is kept for retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub key: GroupKey,
    /// The member.
    pub member: MemberId,
    /// The group's generation after the join.
    pub generation: Generation,
    /// The op of the join.
    pub op: Op,
}

impl Membership {
    pub(crate) fn encode(&self) -> Bytes {
        let Self {
            key:
                GroupKey {
                    stream,
                    topic,
                    group,
                },
            member,
            generation,
            op,
        } = self;
        let mut writer = Writer::with_capacity(6 * 8);
        writer.u64(stream.0).u64(topic.0).u64(group.0);
        writer.u64(member.0).u64(generation.0).u64(op.0);
        writer.into_bytes()
    }

    /// Reads the body of a [`CachedReply`](crate::CachedReply) to a join with status 0.
    ///
    /// # Errors
    /// It is longer or shorter than such a body.
    pub fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let membership = Self {
            key: GroupKey {
                stream: StreamId(reader.u64("stream")?),
                topic: TopicId(reader.u64("topic")?),
                group: ConsumerGroupId(reader.u64("group")?),
            },
            member: MemberId(reader.u64("member")?),
            generation: Generation(reader.u64("generation")?),
            op: Op(reader.u64("op")?),
        };
        reader.finish()?;
        Ok(membership)
    }
}

/// Whether static members stay for a while when their session ends for this reason: their process may
/// come back with another session. One that was silent for the whole session timeout has been away long
/// enough; one that logged out does not come back; one that is not to be there must not hold partitions.
const fn keeps_static(reason: EvictionReason) -> bool {
    match reason {
        EvictionReason::Disconnected | EvictionReason::Replaced | EvictionReason::TableFull => true,
        EvictionReason::Expired
        | EvictionReason::LoggedOut
        | EvictionReason::UserChanged
        | EvictionReason::Removed => false,
    }
}

impl Catalog {
    pub(crate) fn join_group(
        &mut self,
        step: &mut Step,
        path: &GroupPath<'_>,
        join: Join,
    ) -> Result<Reply, Failure> {
        if self.session(join.client, join.session).is_none() {
            return Err(failure::session_not_found(join.session));
        }
        let key = self.group_key(path)?;
        if !self.memberships.contains(join.client, &key) {
            let memberships = self.memberships.count(join.client) as u64 + 1;
            self.limits
                .admit(Limit::MembershipsPerSession, memberships)?;
        }
        let members_max = self.limits.members_per_group;
        let group = self.found_group_mut(&key);
        let (joined, change) = group.join(step.at(), join, members_max)?;
        self.group_changed(step, key, change);
        step.joined = Some(Membership {
            key,
            member: joined.member,
            generation: joined.generation,
            op: step.op,
        });
        Ok(Reply::Done)
    }

    pub(crate) fn leave_group(
        &mut self,
        step: &mut Step,
        path: &GroupPath<'_>,
        (client, session): (ClientId, SessionNumber),
    ) -> Result<Reply, Failure> {
        if self.session(client, session).is_none() {
            return Err(failure::session_not_found(session));
        }
        let key = self.group_key(path)?;
        let group = self.found_group_mut(&key);
        let change = group.leave(step.at(), client, session)?;
        self.group_changed(step, key, change);
        Ok(Reply::Done)
    }

    pub(crate) fn remove_member(
        &mut self,
        step: &mut Step,
        path: &GroupPath<'_>,
        member: MemberId,
    ) -> Result<Reply, Failure> {
        let key = self.group_key(path)?;
        let group = self.found_group_mut(&key);
        let change = group.remove(step.at(), member)?;
        self.group_changed(step, key, change);
        Ok(Reply::Done)
    }

    pub(crate) fn expire_members(
        &mut self,
        step: &mut Step,
        groups: &[(GroupKey, Vec<(MemberId, SessionNumber)>)],
    ) -> Reply {
        for (key, members) in merged(groups) {
            if let Some(group) = self.group_mut(&key) {
                let change = group.expire(step.at(), &members);
                self.group_changed(step, key, change);
            }
        }
        Reply::Done
    }

    /// Ends the memberships of sessions that this op has ended, with one plan for each group.
    pub(crate) fn end_memberships(
        &mut self,
        step: &mut Step,
        ended: &[(ClientId, SessionNumber)],
        reason: EvictionReason,
    ) {
        let mut groups: BTreeMap<GroupKey, Vec<(ClientId, SessionNumber)>> = BTreeMap::new();
        for (client, session) in ended {
            for key in self.memberships.of(*client) {
                groups.entry(*key).or_default().push((*client, *session));
            }
        }
        for (key, sessions) in groups {
            let group = self.found_group_mut(&key);
            let change = group.end_sessions(step.at(), &sessions, keeps_static(reason));
            self.group_changed(step, key, change);
        }
    }
}
