//! What every shard of a node keeps of the catalog.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use coordinator::{GroupChange, GroupName, GroupNotFound, GroupProjection};
use wire::{
    ClientId, ConsumerGroupId, Failure, Identifier, Op, PartitionId, PartitionKey, SessionNumber,
    StreamId, TopicId, UserId,
};

use crate::{
    Catalog, Change, GroupKey, Placement,
    directory::{Directory, Named},
    failure,
};

/// Names, ids and placements, and who is logged in, after some op. It is built once from a [`Catalog`]
/// and then follows by the changes of every op; it may lag behind, so safety never rests on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    applied: Op,
    streams: Directory<StreamId, StreamView>,
    sessions: BTreeMap<ClientId, SessionView>,
}

/// A stream, as far as a shard needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StreamView {
    name: String,
    topics: Directory<TopicId, TopicView>,
}

/// A topic, as far as a shard needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Its stream.
    pub stream: StreamId,
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// Its partitions, by id. Invariant: dense from 0, never empty.
    pub partitions: Vec<Placement>,
    groups: GroupsView,
}

/// A session, as far as a shard needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its number.
    pub number: SessionNumber,
    /// Who logged in.
    pub user: UserId,
}

impl Named for StreamView {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

impl Named for TopicView {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

/// The consumer groups of a topic.
/// Invariant: ids and names lead to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupsView {
    groups: BTreeMap<ConsumerGroupId, GroupProjection>,
    ids: BTreeMap<String, ConsumerGroupId>,
}

impl GroupsView {
    fn insert(&mut self, group: GroupProjection) {
        let GroupName { id, name } = group.name();
        let older = self.ids.insert(name, id);
        assert!(older.is_none(), "a name is taken once");
        let older = self.groups.insert(id, group);
        assert!(older.is_none(), "an id is used once");
    }

    fn follow(&mut self, change: &GroupChange) {
        let group = self.groups.get_mut(&change.group);
        group.expect("a changed group is there").follow(change);
    }

    fn remove(&mut self, id: ConsumerGroupId) {
        let removed = self.groups.remove(&id).expect("a deleted group was there");
        let indexed = self.ids.remove(&removed.name().name);
        assert!(indexed == Some(id), "the index by name is out of step");
    }
}

impl TopicView {
    /// A consumer group by what a client calls it.
    ///
    /// # Errors
    /// `ConsumerGroupNotFound`.
    pub fn find_group(&self, group: &Identifier) -> Result<&GroupProjection, Failure> {
        let id = match group {
            Identifier::Number(id) => Some(ConsumerGroupId(*id)),
            Identifier::Name(name) => self.groups.ids.get(name).copied(),
        };
        let found = id.and_then(|id| self.group(id));
        found.ok_or_else(|| {
            let group = group.clone();
            GroupNotFound { group }.into()
        })
    }

    /// A consumer group by its id.
    #[must_use]
    pub fn group(&self, group: ConsumerGroupId) -> Option<&GroupProjection> {
        self.groups.groups.get(&group)
    }

    /// Its consumer groups, in order of ids.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &GroupProjection> {
        self.groups.groups.values()
    }

    /// Where a partition lives.
    ///
    /// # Errors
    /// `PartitionNotFound`.
    pub fn placement(&self, partition: PartitionId) -> Result<&Placement, Failure> {
        let index = usize::try_from(partition.0).expect("a u32 fits a usize");
        self.partitions.get(index).ok_or_else(|| {
            failure::partition_not_found(&self.name, partition, self.partitions.len())
        })
    }

    /// The name of a partition in the whole cluster.
    #[must_use]
    pub const fn key(&self, partition: PartitionId) -> PartitionKey {
        PartitionKey {
            stream: self.stream,
            topic: self.id,
            partition,
        }
    }

    /// How many partitions it has, at least one.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("partitions of a topic fit a u32")
    }
}

impl Default for Projection {
    /// Of the catalog before the first op.
    fn default() -> Self {
        Self {
            applied: Op(0),
            streams: Directory::default(),
            sessions: BTreeMap::new(),
        }
    }
}

impl From<&Catalog> for Projection {
    fn from(catalog: &Catalog) -> Self {
        let mut projection = Self {
            applied: catalog.applied,
            ..Self::default()
        };
        for (stream, state) in catalog.streams.iter() {
            projection.stream_created(stream, &state.name);
            for (topic, state) in state.topics.iter() {
                projection.topic_created(stream, topic, &state.name, &state.partitions);
                for group in state.groups.iter() {
                    projection.groups_mut(stream, topic).insert(group.into());
                }
            }
        }
        for session in catalog.sessions.values() {
            let (number, user) = (session.number, session.user);
            let view = SessionView { number, user };
            projection.sessions.insert(session.client, view);
        }
        projection
    }
}

impl Projection {
    /// The last op whose changes are in here.
    #[must_use]
    pub const fn applied(&self) -> Op {
        self.applied
    }

    /// A topic by what a client calls it. Numbers are ids and names are names.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`.
    pub fn resolve(&self, stream: &Identifier, topic: &Identifier) -> Result<&TopicView, Failure> {
        let Some(found) = self.streams.find(stream) else {
            return Err(failure::stream_not_found(stream));
        };
        let topic_found = found.topics.find(topic);
        topic_found.ok_or_else(|| failure::topic_not_found(&found.name, topic))
    }

    /// A topic by its ids.
    #[must_use]
    pub fn topic(&self, stream: StreamId, topic: TopicId) -> Option<&TopicView> {
        self.streams.get(stream)?.topics.get(topic)
    }

    /// Where a partition lives, if it exists.
    #[must_use]
    pub fn placement(&self, key: &PartitionKey) -> Option<&Placement> {
        let index = usize::try_from(key.partition.0).expect("a u32 fits a usize");
        self.topic(key.stream, key.topic)?.partitions.get(index)
    }

    /// A consumer group, if it exists.
    #[must_use]
    pub fn group(&self, key: &GroupKey) -> Option<&GroupProjection> {
        self.topic(key.stream, key.topic)?.group(key.group)
    }

    /// Every consumer group, in order of keys.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &GroupProjection)> {
        self.topics().flat_map(|topic| {
            topic.groups().map(|group| {
                let key = GroupKey {
                    stream: topic.stream,
                    topic: topic.id,
                    group: group.id(),
                };
                (key, group)
            })
        })
    }

    /// Every partition, in order of keys: what the data groups should hold.
    pub fn placements(&self) -> impl Iterator<Item = (PartitionKey, &Placement)> {
        self.topics().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|placement| (topic.key(placement.partition), placement))
        })
    }

    /// Every topic, in order of ids.
    pub fn topics(&self) -> impl Iterator<Item = &TopicView> {
        let streams = self.streams.iter();
        streams.flat_map(|(_, stream)| stream.topics.iter().map(|(_, topic)| topic))
    }

    /// The session of a client.
    #[must_use]
    pub fn session(&self, client: ClientId) -> Option<&SessionView> {
        self.sessions.get(&client)
    }

    /// Every session, in order of client ids.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = (ClientId, &SessionView)> {
        self.sessions.iter().map(|(client, view)| (*client, view))
    }

    /// Follows the catalog by one op; `changes` are all that it changed, perhaps nothing.
    ///
    /// # Panics
    /// When `op` is not above the last one, or a change does not fit: an op in between is missing.
    pub fn apply(&mut self, op: Op, changes: &[Change]) {
        assert!(op > self.applied, "changes are followed in order, once");
        self.applied = op;
        for change in changes {
            self.follow(change);
        }
    }

    fn follow(&mut self, change: &Change) {
        match change {
            Change::StreamCreated { stream, name } => self.stream_created(*stream, name),
            Change::StreamRenamed { stream, name } => self.streams.rename(*stream, name),
            Change::StreamDeleted { stream } => self.stream_deleted(*stream),
            Change::TopicCreated {
                stream,
                topic,
                name,
                partitions,
            } => self.topic_created(*stream, *topic, name, partitions),
            Change::TopicRenamed {
                stream,
                topic,
                name,
            } => self.topics_mut(*stream).rename(*topic, name),
            Change::TopicDeleted { stream, topic, .. } => self.topic_deleted(*stream, *topic),
            Change::PartitionsCreated {
                stream,
                topic,
                partitions,
            } => {
                let present = self.partitions_mut(*stream, *topic);
                present.extend_from_slice(partitions);
            }
            Change::PartitionsDeleted {
                stream,
                topic,
                partitions,
            } => self.partitions_deleted((*stream, *topic), partitions),
            Change::PartitionsPurged {
                stream,
                topic,
                partitions,
            } => self.partitions_purged((*stream, *topic), partitions),
            Change::SessionRegistered {
                client,
                session,
                user,
            } => {
                let (number, user) = (*session, *user);
                self.session_registered(*client, SessionView { number, user });
            }
            Change::SessionEnded {
                client, session, ..
            } => self.session_ended(*client, *session),
            Change::ConsumerGroupCreated {
                stream,
                topic,
                group,
            } => self
                .groups_mut(*stream, *topic)
                .insert(group.as_ref().clone()),
            Change::ConsumerGroupChanged {
                stream,
                topic,
                change,
            } => self.groups_mut(*stream, *topic).follow(change),
            Change::ConsumerGroupDeleted {
                stream,
                topic,
                group,
                ..
            } => self.groups_mut(*stream, *topic).remove(*group),
        }
    }

    fn groups_mut(&mut self, stream: StreamId, topic: TopicId) -> &mut GroupsView {
        let topic = self.topics_mut(stream).get_mut(topic);
        &mut topic.expect("a changed topic is there").groups
    }

    fn partitions_deleted(
        &mut self,
        (stream, topic): (StreamId, TopicId),
        partitions: &[Placement],
    ) {
        let present = self.partitions_mut(stream, topic);
        let remaining = present.len().checked_sub(partitions.len());
        let remaining = remaining.expect("deleted partitions were there");
        assert!(present[remaining..] == *partitions, "the highest ones go");
        present.truncate(remaining);
    }

    fn partitions_purged(
        &mut self,
        (stream, topic): (StreamId, TopicId),
        partitions: &[Placement],
    ) {
        let present = self.partitions_mut(stream, topic);
        assert!(present.len() == partitions.len(), "all of them are purged");
        present.copy_from_slice(partitions);
    }

    fn topic_deleted(&mut self, stream: StreamId, topic: TopicId) {
        let removed = self.topics_mut(stream).remove(topic);
        let removed = removed.expect("a deleted topic was there");
        assert!(
            removed.groups().len() == 0,
            "its groups were deleted before"
        );
    }

    fn stream_deleted(&mut self, stream: StreamId) {
        let removed = self.streams.remove(stream);
        let removed = removed.expect("a deleted stream was there");
        assert!(removed.topics.len() == 0, "its topics were deleted before");
    }

    fn session_registered(&mut self, client: ClientId, session: SessionView) {
        let older = self.sessions.insert(client, session);
        assert!(older.is_none(), "the client's older session has ended");
    }

    fn session_ended(&mut self, client: ClientId, session: SessionNumber) {
        let ended = self.sessions.remove(&client);
        assert!(
            ended.is_some_and(|ended| ended.number == session),
            "an ended session was there"
        );
    }

    fn stream_created(&mut self, stream: StreamId, name: &str) {
        let view = StreamView {
            name: name.into(),
            topics: Directory::default(),
        };
        self.streams.insert(stream, view);
    }

    fn topic_created(
        &mut self,
        stream: StreamId,
        topic: TopicId,
        name: &str,
        partitions: &[Placement],
    ) {
        let view = TopicView {
            stream,
            id: topic,
            name: name.into(),
            partitions: partitions.to_vec(),
            groups: GroupsView::default(),
        };
        self.topics_mut(stream).insert(topic, view);
    }

    fn topics_mut(&mut self, stream: StreamId) -> &mut Directory<TopicId, TopicView> {
        let stream = self.streams.get_mut(stream);
        &mut stream.expect("a changed stream is there").topics
    }

    fn partitions_mut(&mut self, stream: StreamId, topic: TopicId) -> &mut Vec<Placement> {
        let topic = self.topics_mut(stream).get_mut(topic);
        &mut topic.expect("a changed topic is there").partitions
    }
}
