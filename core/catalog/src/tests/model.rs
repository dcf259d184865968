//! The same rules once more, as simply as they can be written: lists that are searched from the front.

use std::{
    string::{String, ToString},
    vec::Vec,
};

use coordinator::ResetTo;
use wire::{ErrorCode, EvictionReason, Identifier, Op, PartitionId, UserId, check_name};

use super::{
    group_model::{Candidate, Group, Groups},
    time_of,
};
use crate::{CatalogSnapshot, GroupKey, Limits, Operation};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    groups: u16,
    limits: Limits,
    users: Vec<User>,
    next_user: u64,
    /// Client, number, user.
    sessions: Vec<(u128, u64, u64)>,
    streams: Vec<Stream>,
    next_stream: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    id: u64,
    name: String,
    password: String,
    password_op: u64,
    active: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    id: u64,
    name: String,
    topics: Vec<Topic>,
    next_topic: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Topic {
    id: u64,
    name: String,
    /// Incarnation and group, by partition.
    partitions: Vec<(u64, u16)>,
    groups: Groups,
}

pub(super) fn matches(identifier: &Identifier, id: u64, name: &str) -> bool {
    match identifier {
        Identifier::Number(number) => *number == id,
        Identifier::Name(text) => text == name,
    }
}

pub(super) fn within(count: usize, limit: u32, code: ErrorCode) -> Result<(), ErrorCode> {
    if count as u64 <= u64::from(limit) {
        Ok(())
    } else {
        Err(code)
    }
}

pub(super) fn legal(name: &str) -> Result<(), ErrorCode> {
    check_name(name).map_err(|_| ErrorCode::InvalidName)
}

fn time(op: u64) -> u64 {
    time_of(Op(op)).0
}

impl Model {
    pub(super) fn new(groups: u16) -> Self {
        Self {
            groups,
            limits: Limits::INITIAL,
            users: Vec::new(),
            next_user: 2,
            sessions: Vec::new(),
            streams: Vec::new(),
            next_stream: 1,
        }
    }

    /// What a snapshot holds, in this form. Times are left out.
    pub(super) fn of(snapshot: &CatalogSnapshot, groups: u16) -> Self {
        let user = |user: &crate::User| User {
            id: user.id.0,
            name: user.name.clone(),
            password: user.password_hash.0.clone(),
            password_op: user.password_op.0,
            active: user.active,
        };
        let topic = |topic: &crate::TopicSnapshot| Topic {
            id: topic.id.0,
            name: topic.name.clone(),
            partitions: (0..)
                .zip(&topic.partitions)
                .map(|(partition, placement)| {
                    assert_eq!(placement.partition.0, partition);
                    (placement.incarnation.0, placement.group.0)
                })
                .collect(),
            groups: Groups::of(&topic.groups),
        };
        let stream = |stream: &crate::StreamSnapshot| Stream {
            id: stream.id.0,
            name: stream.name.clone(),
            topics: stream.topics.iter().map(topic).collect(),
            next_topic: stream.next_topic.0,
        };
        let session =
            |session: &crate::Session| (session.client.0, session.number.0, session.user.0);
        Self {
            groups,
            limits: snapshot.limits,
            users: snapshot.users.iter().map(user).collect(),
            next_user: snapshot.next_user.0,
            sessions: snapshot.sessions.iter().map(session).collect(),
            streams: snapshot.streams.iter().map(stream).collect(),
            next_stream: snapshot.next_stream.0,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per operation")]
    pub(super) fn apply(&mut self, op: u64, operation: &Operation) -> Result<(), ErrorCode> {
        use Operation as O;
        if let Some(by) = operation.asker() {
            self.active(by)?;
        }
        match operation {
            O::SetFormerLimits { limits } => {
                self.limits = (*limits).into();
                Ok(())
            }
            O::SetLimits { limits } => {
                self.limits = *limits;
                Ok(())
            }
            O::CreateRoot { password_hash } => self.create_root(op, &password_hash.0),
            O::CreateUser {
                by,
                name,
                password_hash,
            } => self.create_user(op, *by, name, &password_hash.0),
            O::DeleteUser { by, user } => self.delete_user(op, *by, user),
            O::UpdateUser {
                by,
                user,
                name,
                active,
            } => self.update_user(op, (*by, user), name.as_ref(), *active),
            O::ChangePassword {
                by,
                user,
                password_hash,
                verified,
            } => {
                let index = self.user_index(*by, user)?;
                self.change_password(op, index, &password_hash.0, (by.0, verified.0))
            }
            O::Register {
                client,
                user,
                verified,
                ..
            } => self.register(op, client.0, *user, verified.0),
            O::Logout { client, session } => {
                match self.end_session(op, (client.0, session.0), EvictionReason::LoggedOut) {
                    true => Ok(()),
                    false => Err(ErrorCode::SessionNotFound),
                }
            }
            O::EndSessions { sessions, reason } => {
                for (client, session) in sessions {
                    self.end_session(op, (client.0, session.0), *reason);
                }
                Ok(())
            }
            O::CreateStream { name, .. } => self.create_stream(name),
            O::DeleteStream { stream, .. } => {
                let index = self.stream_index(stream)?;
                self.streams.remove(index);
                Ok(())
            }
            O::UpdateStream { stream, name, .. } => self.rename_stream(stream, name),
            O::CreateTopic {
                stream,
                name,
                partitions,
                ..
            } => {
                let stream = self.stream_index(stream)?;
                self.create_topic(op, stream, name, *partitions)
            }
            O::DeleteTopic { stream, topic, .. } => {
                let (stream, topic) = self.topic_index(stream, topic)?;
                self.streams[stream].topics.remove(topic);
                Ok(())
            }
            O::UpdateTopic {
                stream,
                topic,
                name,
                ..
            } => self.rename_topic(stream, topic, name),
            O::CreatePartitions {
                stream,
                topic,
                count,
                ..
            } => {
                let topic = self.topic_index(stream, topic)?;
                self.create_partitions(op, topic, *count)
            }
            O::DeletePartitions {
                stream,
                topic,
                count,
                ..
            } => {
                let topic = self.topic_index(stream, topic)?;
                self.delete_partitions(topic, *count)
            }
            O::PurgeTopic { stream, topic, .. } => {
                let topic = self.topic_index(stream, topic)?;
                self.purge(op, topic);
                Ok(())
            }
            O::PurgeStream { stream, .. } => {
                let stream = self.stream_index(stream)?;
                for topic in 0..self.streams[stream].topics.len() {
                    self.purge(op, (stream, topic));
                }
                Ok(())
            }
            O::CreateConsumerGroup {
                stream,
                topic,
                name,
                options,
                ..
            } => {
                let (limits, sane) = (self.limits, options.check().is_ok());
                let groups = self.groups(stream, topic)?;
                groups.create(time(op), name, sane, &limits)
            }
            O::DeleteConsumerGroup {
                stream,
                topic,
                group,
                force,
                ..
            } => self.groups(stream, topic)?.delete(group, *force),
            O::UpdateConsumerGroup {
                stream,
                topic,
                group,
                options,
                ..
            } => {
                self.group([stream, topic, group])?;
                let updated = options.of(coordinator::GroupOptions::default());
                let code = ErrorCode::InvalidConsumerGroupOptions;
                updated.check().map_err(|_| code)
            }
            O::JoinConsumerGroup {
                client,
                session,
                stream,
                topic,
                group,
                instance,
                weight,
                ..
            } => {
                let candidate = Candidate {
                    client: client.0,
                    session: session.0,
                    instance: instance.as_ref(),
                    weight: weight.0,
                };
                self.join([stream, topic, group], &candidate)
            }
            O::LeaveConsumerGroup {
                client,
                session,
                stream,
                topic,
                group,
            } => {
                self.live(client.0, session.0)?;
                let group = self.group([stream, topic, group])?;
                group.leave(time(op), client.0, session.0)
            }
            O::RemoveMember {
                stream,
                topic,
                group,
                member,
                ..
            } => {
                let group = self.group([stream, topic, group])?;
                group.remove(time(op), member.0)
            }
            O::ResetConsumerOffset {
                stream,
                topic,
                group,
                partitions,
                force,
                ..
            } => self.reset([stream, topic, group], partitions, *force),
            O::PlanGroups { .. } | O::CompleteMoves { .. } => Ok(()),
            O::ExpireMembers { groups } => {
                for (key, members) in groups {
                    let Some(found) = self.groups_by_key(key) else {
                        continue;
                    };
                    let gone: Vec<_> = members.iter().map(|(id, it)| (id.0, it.0)).collect();
                    let mut groups = found.groups.iter_mut();
                    if let Some(group) = groups.find(|it| it.id == key.group.0) {
                        group.expire(time(op), &gone);
                    }
                }
                Ok(())
            }
            O::ExpireGroups { groups } => {
                for (key, since) in groups {
                    if let Some(found) = self.groups_by_key(key) {
                        found.expire(key.group.0, since.0);
                    }
                }
                Ok(())
            }
        }
    }

    fn active(&self, by: UserId) -> Result<&User, ErrorCode> {
        match self.users.iter().find(|user| user.id == by.0) {
            Some(user) if user.active => Ok(user),
            Some(_) => Err(ErrorCode::UserInactive),
            None => Err(ErrorCode::Unauthenticated),
        }
    }

    fn only_root(by: UserId) -> Result<(), ErrorCode> {
        if by.0 == 1 {
            Ok(())
        } else {
            Err(ErrorCode::Forbidden)
        }
    }

    fn check_user_name(&self, name: &str, except: u64) -> Result<(), ErrorCode> {
        legal(name)?;
        match self
            .users
            .iter()
            .any(|user| user.name == name && user.id != except)
        {
            true => Err(ErrorCode::UserAlreadyExists),
            false => Ok(()),
        }
    }

    /// The user named, for `root` and for itself.
    fn user_index(&self, by: UserId, user: &Identifier) -> Result<usize, ErrorCode> {
        let found = self.users.iter().position(|u| matches(user, u.id, &u.name));
        match found {
            Some(index) if by.0 == 1 || self.users[index].id == by.0 => Ok(index),
            None if by.0 == 1 => Err(ErrorCode::UserNotFound),
            Some(_) | None => Err(ErrorCode::Forbidden),
        }
    }

    fn add_user(&mut self, id: u64, name: &str, password: &str, op: u64) {
        self.users.push(User {
            id,
            name: name.to_string(),
            password: password.to_string(),
            password_op: op,
            active: true,
        });
        self.users.sort_by_key(|user| user.id);
    }

    fn create_root(&mut self, op: u64, password: &str) -> Result<(), ErrorCode> {
        if self.users.iter().any(|user| user.id == 1) {
            return Err(ErrorCode::UserAlreadyExists);
        }
        self.add_user(1, "root", password, op);
        Ok(())
    }

    fn create_user(
        &mut self,
        op: u64,
        by: UserId,
        name: &str,
        password: &str,
    ) -> Result<(), ErrorCode> {
        Self::only_root(by)?;
        self.check_user_name(name, 0)?;
        within(
            self.users.len() + 1,
            self.limits.users,
            ErrorCode::TooManyUsers,
        )?;
        self.add_user(self.next_user, name, password, op);
        self.next_user += 1;
        Ok(())
    }

    fn delete_user(&mut self, op: u64, by: UserId, user: &Identifier) -> Result<(), ErrorCode> {
        Self::only_root(by)?;
        let index = self.user_index(by, user)?;
        let id = self.users[index].id;
        if id == 1 {
            return Err(ErrorCode::RootProtected);
        }
        self.users.remove(index);
        self.end_sessions_of(op, id);
        Ok(())
    }

    fn update_user(
        &mut self,
        op: u64,
        (by, user): (UserId, &Identifier),
        name: Option<&String>,
        active: Option<bool>,
    ) -> Result<(), ErrorCode> {
        let index = self.user_index(by, user)?;
        let id = self.users[index].id;
        if active.is_some() {
            Self::only_root(by)?;
        }
        if active == Some(false) && id == 1 {
            return Err(ErrorCode::RootProtected);
        }
        if let Some(name) = name {
            self.check_user_name(name, id)?;
            self.users[index].name = name.clone();
        }
        if let Some(active) = active {
            self.users[index].active = active;
        }
        if active == Some(false) {
            self.end_sessions_of(op, id);
        }
        Ok(())
    }

    fn change_password(
        &mut self,
        op: u64,
        index: usize,
        password: &str,
        (by, verified): (u64, u64),
    ) -> Result<(), ErrorCode> {
        if self.active(UserId(by))?.password_op != verified {
            return Err(ErrorCode::InvalidCredentials);
        }
        self.users[index].password = password.to_string();
        self.users[index].password_op = op;
        let id = self.users[index].id;
        self.end_sessions_of(op, id);
        Ok(())
    }

    fn register(
        &mut self,
        op: u64,
        client: u128,
        user: UserId,
        verified: u64,
    ) -> Result<(), ErrorCode> {
        if self.active(user)?.password_op != verified {
            return Err(ErrorCode::InvalidCredentials);
        }
        if self.sessions.iter().all(|(c, _, _)| *c != client) {
            let sessions = self.sessions.len() + 1;
            within(sessions, self.limits.sessions, ErrorCode::TooManySessions)?;
        }
        let reason = EvictionReason::Replaced;
        self.end_sessions_where(op, |(c, _, _)| c == client, reason);
        self.sessions.push((client, op, user.0));
        self.sessions.sort_unstable();
        Ok(())
    }

    fn end_session(&mut self, op: u64, session: (u128, u64), reason: EvictionReason) -> bool {
        self.end_sessions_where(op, |(c, n, _)| (c, n) == session, reason)
    }

    fn end_sessions_of(&mut self, op: u64, user: u64) {
        self.end_sessions_where(op, |(_, _, u)| u == user, EvictionReason::UserChanged);
    }

    fn end_sessions_where(
        &mut self,
        op: u64,
        ends: impl Fn((u128, u64, u64)) -> bool,
        reason: EvictionReason,
    ) -> bool {
        let ended: Vec<_> = self
            .sessions
            .iter()
            .copied()
            .filter(|it| ends(*it))
            .collect();
        self.sessions.retain(|session| !ends(*session));
        for (client, number, _) in &ended {
            for group in self.all_groups().flat_map(|(_, groups)| &mut groups.groups) {
                group.session_ended(time(op), (*client, *number), reason);
            }
        }
        !ended.is_empty()
    }

    /// By stream and topic.
    fn all_groups(&mut self) -> impl Iterator<Item = ((u64, u64), &mut Groups)> {
        self.streams.iter_mut().flat_map(|stream| {
            let id = stream.id;
            let topics = stream.topics.iter_mut();
            topics.map(move |topic| ((id, topic.id), &mut topic.groups))
        })
    }

    fn groups(
        &mut self,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<&mut Groups, ErrorCode> {
        let (stream, topic) = self.topic_index(stream, topic)?;
        Ok(&mut self.streams[stream].topics[topic].groups)
    }

    fn group(&mut self, path: [&Identifier; 3]) -> Result<&mut Group, ErrorCode> {
        let [stream, topic, group] = path;
        let groups = self.groups(stream, topic)?;
        let index = groups.index(group)?;
        Ok(&mut groups.groups[index])
    }

    fn groups_by_key(&mut self, key: &GroupKey) -> Option<&mut Groups> {
        let ids = (key.stream.0, key.topic.0);
        let found = self.all_groups().find(|(found, _)| *found == ids);
        found.map(|(_, groups)| groups)
    }

    fn live(&self, client: u128, session: u64) -> Result<(), ErrorCode> {
        let live = |(c, n, _): &(u128, u64, u64)| (*c, *n) == (client, session);
        let found = self.sessions.iter().any(live);
        found.then_some(()).ok_or(ErrorCode::SessionNotFound)
    }

    fn join(&mut self, path: [&Identifier; 3], candidate: &Candidate<'_>) -> Result<(), ErrorCode> {
        let client = candidate.client;
        self.live(client, candidate.session)?;
        if !self.group(path)?.has(client) {
            let limit = self.limits.memberships_per_session;
            let groups = self.all_groups().flat_map(|(_, groups)| &groups.groups);
            let memberships = groups.filter(|group| group.has(client)).count() + 1;
            within(memberships, limit, ErrorCode::TooManyMemberships)?;
        }
        let members_max = self.limits.members_per_group;
        self.group(path)?.join(candidate, members_max)
    }

    fn reset(
        &mut self,
        path: [&Identifier; 3],
        partitions: &[(PartitionId, ResetTo)],
        force: bool,
    ) -> Result<(), ErrorCode> {
        let (stream, topic) = self.topic_index(path[0], path[1])?;
        let present = self.streams[stream].topics[topic].partitions.len();
        if !force && !self.group(path)?.members.is_empty() {
            return Err(ErrorCode::ConsumerGroupNotEmpty);
        }
        self.group(path)?;
        for (index, (partition, _)) in partitions.iter().enumerate() {
            if partition.0 as usize >= present {
                return Err(ErrorCode::PartitionNotFound);
            }
            if partitions[..index]
                .iter()
                .any(|(other, _)| other == partition)
            {
                return Err(ErrorCode::InvalidArgument);
            }
        }
        Ok(())
    }

    fn stream_index(&self, stream: &Identifier) -> Result<usize, ErrorCode> {
        let found = self
            .streams
            .iter()
            .position(|s| matches(stream, s.id, &s.name));
        found.ok_or(ErrorCode::StreamNotFound)
    }

    fn topic_index(
        &self,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<(usize, usize), ErrorCode> {
        let stream = self.stream_index(stream)?;
        let topics = &self.streams[stream].topics;
        let found = topics.iter().position(|t| matches(topic, t.id, &t.name));
        Ok((stream, found.ok_or(ErrorCode::TopicNotFound)?))
    }

    fn create_stream(&mut self, name: &str) -> Result<(), ErrorCode> {
        legal(name)?;
        if self.streams.iter().any(|stream| stream.name == name) {
            return Err(ErrorCode::StreamAlreadyExists);
        }
        let streams = self.streams.len() + 1;
        within(streams, self.limits.streams, ErrorCode::TooManyStreams)?;
        self.streams.push(Stream {
            id: self.next_stream,
            name: name.to_string(),
            topics: Vec::new(),
            next_topic: 1,
        });
        self.next_stream += 1;
        Ok(())
    }

    fn rename_stream(&mut self, stream: &Identifier, name: &str) -> Result<(), ErrorCode> {
        let index = self.stream_index(stream)?;
        legal(name)?;
        let id = self.streams[index].id;
        if self.streams.iter().any(|s| s.name == name && s.id != id) {
            return Err(ErrorCode::StreamAlreadyExists);
        }
        self.streams[index].name = name.to_string();
        Ok(())
    }

    fn create_topic(
        &mut self,
        op: u64,
        stream: usize,
        name: &str,
        partitions: u32,
    ) -> Result<(), ErrorCode> {
        legal(name)?;
        let topics = &self.streams[stream].topics;
        if topics.iter().any(|topic| topic.name == name) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        within(
            topics.len() + 1,
            self.limits.topics_per_stream,
            ErrorCode::TooManyTopics,
        )?;
        self.admit_partitions(0, partitions)?;
        let id = self.streams[stream].next_topic;
        self.streams[stream].next_topic += 1;
        self.streams[stream].topics.push(Topic {
            id,
            name: name.to_string(),
            partitions: Vec::new(),
            groups: Groups::new(),
        });
        let topic = self.streams[stream].topics.len() - 1;
        self.add_partitions(op, (stream, topic), partitions);
        Ok(())
    }

    fn rename_topic(
        &mut self,
        stream: &Identifier,
        topic: &Identifier,
        name: &str,
    ) -> Result<(), ErrorCode> {
        let (stream, topic) = self.topic_index(stream, topic)?;
        legal(name)?;
        let topics = &mut self.streams[stream].topics;
        let id = topics[topic].id;
        if topics.iter().any(|t| t.name == name && t.id != id) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        topics[topic].name = name.to_string();
        Ok(())
    }

    fn create_partitions(
        &mut self,
        op: u64,
        (stream, topic): (usize, usize),
        count: u32,
    ) -> Result<(), ErrorCode> {
        let present = self.streams[stream].topics[topic].partitions.len();
        self.admit_partitions(present, count)?;
        self.add_partitions(op, (stream, topic), count);
        Ok(())
    }

    fn delete_partitions(
        &mut self,
        (stream, topic): (usize, usize),
        count: u32,
    ) -> Result<(), ErrorCode> {
        let partitions = &mut self.streams[stream].topics[topic].partitions;
        if count == 0 || count as usize >= partitions.len() {
            return Err(ErrorCode::InvalidPartitionCount);
        }
        partitions.truncate(partitions.len() - count as usize);
        Ok(())
    }

    fn purge(&mut self, op: u64, (stream, topic): (usize, usize)) {
        for (incarnation, _) in &mut self.streams[stream].topics[topic].partitions {
            *incarnation = op;
        }
    }

    fn placed(&self) -> impl Iterator<Item = u16> {
        let topics = self.streams.iter().flat_map(|stream| &stream.topics);
        topics.flat_map(|topic| topic.partitions.iter().map(|(_, group)| *group))
    }

    fn admit_partitions(&self, present: usize, count: u32) -> Result<(), ErrorCode> {
        if count == 0 {
            return Err(ErrorCode::InvalidPartitionCount);
        }
        let count = count as usize;
        let code = ErrorCode::TooManyPartitions;
        within(present + count, self.limits.partitions_per_topic, code)?;
        within(self.placed().count() + count, self.limits.partitions, code)
    }

    fn add_partitions(&mut self, op: u64, (stream, topic): (usize, usize), count: u32) {
        for _ in 0..count {
            let load = |group: &u16| self.placed().filter(|placed| placed == group).count();
            let group = (1..=self.groups)
                .min_by_key(load)
                .expect("there is a group");
            self.streams[stream].topics[topic]
                .partitions
                .push((op, group));
        }
    }
}
