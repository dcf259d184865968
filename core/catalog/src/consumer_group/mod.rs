//! The consumer groups of the topics: every op on them, with what it means for the rest of the catalog.

mod deletion;
mod membership;
mod memberships;
mod query;

use alloc::{borrow::ToOwned, boxed::Box, collections::BTreeMap, string::String, vec::Vec};

use coordinator::{
    ConsumerGroup, ConsumerGroups, GroupChange, GroupOptions, GroupProjection, NewGroup,
    OptionsUpdate, Reset, ResetTo,
};
use wire::{
    ConsumerGroupId, Epoch, Failure, Identifier, OffsetsReset, Op, PartitionId, Reply, StreamId,
    TopicId,
};

use crate::{Catalog, Change, Topic, apply::Step};

pub use membership::Membership;
pub(crate) use memberships::Memberships;
pub use query::{GroupTimer, Observed};

/// A consumer group in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// The stream of its topic.
    pub stream: StreamId,
    /// Its topic.
    pub topic: TopicId,
    /// The group within its topic.
    pub group: ConsumerGroupId,
}

wire::fields! {
    GroupKey {
        stream: StreamId,
        topic: TopicId,
        group: ConsumerGroupId,
    }
}

/// What a client calls a consumer group.
pub(crate) struct GroupPath<'a> {
    pub(crate) stream: &'a Identifier,
    pub(crate) topic: &'a Identifier,
    pub(crate) group: &'a Identifier,
}

/// What becomes of the stored offsets of a group.
pub(crate) struct OffsetReset<'a> {
    pub(crate) partitions: &'a [(PartitionId, ResetTo)],
    pub(crate) others: Option<ResetTo>,
    pub(crate) force: bool,
}

impl Catalog {
    fn topic_mut(&mut self, stream: StreamId, topic: TopicId) -> Option<&mut Topic> {
        self.streams.get_mut(stream)?.topics.get_mut(topic)
    }

    fn groups_mut(&mut self, key: &GroupKey) -> Option<&mut ConsumerGroups> {
        let topic = self.topic_mut(key.stream, key.topic)?;
        Some(&mut topic.groups)
    }

    fn group_mut(&mut self, key: &GroupKey) -> Option<&mut ConsumerGroup> {
        self.groups_mut(key)?.group_mut(key.group)
    }

    /// # Panics
    /// When there is no such group: the caller has found it.
    fn found_group_mut(&mut self, key: &GroupKey) -> &mut ConsumerGroup {
        self.group_mut(key).expect("the group was found")
    }

    pub(crate) fn find_group(
        &self,
        path: &GroupPath<'_>,
    ) -> Result<(GroupKey, &Topic, &ConsumerGroup), Failure> {
        let (stream, topic) = self.find_topic(path.stream, path.topic)?;
        let group = topic.groups.find(path.group)?;
        let key = GroupKey {
            stream: stream.id,
            topic: topic.id,
            group: group.id(),
        };
        Ok((key, topic, group))
    }

    pub(crate) fn group_key(&self, path: &GroupPath<'_>) -> Result<GroupKey, Failure> {
        self.find_group(path).map(|(key, ..)| key)
    }

    /// Tells what an op has done to a group, and keeps the index of memberships in step.
    pub(crate) fn group_changed(&mut self, step: &mut Step, key: GroupKey, change: GroupChange) {
        if change.is_empty() {
            return;
        }
        let topic = self
            .streams
            .get(key.stream)
            .and_then(|it| it.topics.get(key.topic));
        let group = topic.and_then(|it| it.groups.group(key.group));
        let group = group.expect("a group that changed is there");
        self.memberships.follow(key, group, &change.members);
        step.changes.push(Change::ConsumerGroupChanged {
            stream: key.stream,
            topic: key.topic,
            change,
        });
    }

    pub(crate) fn groups_changed(
        &mut self,
        step: &mut Step,
        (stream, topic): (StreamId, TopicId),
        changes: Vec<GroupChange>,
    ) {
        for change in changes {
            let group = change.group;
            let key = GroupKey {
                stream,
                topic,
                group,
            };
            self.group_changed(step, key, change);
        }
    }

    pub(crate) fn create_group(
        &mut self,
        step: &mut Step,
        (stream, topic): (&Identifier, &Identifier),
        name: &str,
        options: &GroupOptions,
    ) -> Result<Reply, Failure> {
        let (stream, topic) = self.topic_ids(stream, topic)?;
        let groups_max = self.limits.consumer_groups_per_topic;
        let found = self.streams.get_mut(stream).expect("the stream was found");
        let found = found.topics.get_mut(topic).expect("the topic was found");
        let new = NewGroup {
            name: name.to_owned(),
            options: *options,
            partitions: found.partition_count(),
        };
        let group = found.groups.create(step.at(), new, groups_max)?;
        step.changes.push(Change::ConsumerGroupCreated {
            stream,
            topic,
            group: Box::new(GroupProjection::from(group)),
        });
        Ok(Reply::ConsumerGroup(query::summary(group)))
    }

    pub(crate) fn update_group(
        &mut self,
        step: &mut Step,
        path: &GroupPath<'_>,
        options: &OptionsUpdate,
    ) -> Result<Reply, Failure> {
        let key = self.group_key(path)?;
        let group = self.found_group_mut(&key);
        let change = group.update(step.at(), options)?;
        let reply = Reply::ConsumerGroup(query::summary(group));
        self.group_changed(step, key, change);
        Ok(reply)
    }

    pub(crate) fn reset_offsets(
        &mut self,
        step: &mut Step,
        path: &GroupPath<'_>,
        reset: &OffsetReset<'_>,
    ) -> Result<Reply, Failure> {
        let key = self.group_key(path)?;
        let group = self.found_group_mut(&key);
        let mut partitions = reset.partitions.to_vec();
        if let Some(to) = reset.others {
            let mut named: Vec<_> = partitions.iter().map(|(named, _)| *named).collect();
            named.sort_unstable();
            let all = (0..group.partition_count()).map(PartitionId);
            let others = all.filter(|partition| named.binary_search(partition).is_err());
            partitions.extend(others.map(|partition| (partition, to)));
        }
        let count = partitions.len();
        let reset = Reset {
            partitions,
            force: reset.force,
        };
        let change = group.reset(step.at(), &reset)?;
        let reply = Reply::OffsetsReset(OffsetsReset {
            group: key.group,
            generation: group.generation(),
            partition_count: u32::try_from(count).expect("partitions of a topic fit a u32"),
        });
        self.group_changed(step, key, change);
        Ok(reply)
    }

    pub(crate) fn plan_groups(&mut self, step: &mut Step, groups: &[(GroupKey, Op)]) -> Reply {
        for (key, pending) in groups {
            if let Some(group) = self.group_mut(key) {
                let change = group.plan(step.at(), *pending);
                self.group_changed(step, *key, change);
            }
        }
        Reply::Done
    }

    pub(crate) fn complete_moves(
        &mut self,
        step: &mut Step,
        groups: &[(GroupKey, Vec<(PartitionId, Epoch)>)],
    ) -> Reply {
        for (key, moves) in merged(groups) {
            if let Some(group) = self.group_mut(&key) {
                let change = group.complete(step.at(), &moves);
                self.group_changed(step, key, change);
            }
        }
        Reply::Done
    }
}

/// The same with every group once: a group changes its generation by one in an op.
fn merged<T: Clone>(groups: &[(GroupKey, Vec<T>)]) -> BTreeMap<GroupKey, Vec<T>> {
    let mut merged: BTreeMap<GroupKey, Vec<T>> = BTreeMap::new();
    for (key, entries) in groups {
        merged.entry(*key).or_default().extend_from_slice(entries);
    }
    merged
}

/// A text, if there is one.
fn present(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
