//! Topics and their partitions.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use coordinator::ConsumerGroups;
use wire::{
    Failure, Identifier, Incarnation, PartitionDetails, PartitionId, PartitionsChanged, Reply,
    StreamId, Timestamp, TopicDetails, TopicId, TopicSummary, Writer,
};

use crate::{
    Catalog, Change, Limit, Limits, Placement, Stream, apply::Step, directory::Named, failure,
    placement::Load,
};

/// A topic with its partitions and consumer groups: they end with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub(crate) id: TopicId,
    pub(crate) name: String,
    pub(crate) created: Timestamp,
    /// By partition id. Invariant: dense from 0, never empty.
    pub(crate) partitions: Vec<Placement>,
    /// Invariant: each has as many partitions as the topic.
    pub(crate) groups: ConsumerGroups,
}

impl Named for Topic {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

impl Topic {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> TopicId {
        self.id
    }

    /// Its name, unique in the stream.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its partitions, by id.
    #[must_use]
    pub fn partitions(&self) -> &[Placement] {
        &self.partitions
    }

    /// Its consumer groups.
    #[must_use]
    pub const fn groups(&self) -> &ConsumerGroups {
        &self.groups
    }

    pub(crate) fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("partitions of a topic fit a u32")
    }

    fn partitions_changed(&self) -> Reply {
        Reply::PartitionsChanged(PartitionsChanged {
            partitions: self.partition_count(),
        })
    }

    /// Start and end are known to the data groups only.
    pub(crate) fn details(&self, stream: StreamId) -> TopicDetails {
        let partitions = self.partitions.iter().map(|placement| PartitionDetails {
            id: placement.partition,
            incarnation: placement.incarnation,
            group: placement.group,
            start: None,
            end: None,
        });
        TopicDetails {
            stream,
            id: self.id,
            name: self.name.clone(),
            created: self.created,
            partitions: partitions.collect(),
        }
    }

    pub(crate) fn summary(&self) -> TopicSummary {
        TopicSummary {
            id: self.id,
            name: self.name.clone(),
            created: self.created,
            partitions: self.partition_count(),
        }
    }

    /// Without the consumer groups: see [`Catalog::digest`].
    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            id,
            name,
            created,
            partitions,
            groups: _,
        } = self;
        writer.u64(id.0).text16(name).u64(created.0);
        writer.count(partitions.len());
        for placement in partitions {
            let Placement {
                partition,
                incarnation,
                group,
            } = placement;
            writer.u32(partition.0).u64(incarnation.0).u16(group.0);
        }
    }
}

/// Refuses `count` more partitions for a topic that has `present`.
fn admit_partitions(
    limits: &Limits,
    load: &Load,
    (name, present): (&str, usize),
    count: u32,
) -> Result<(), Failure> {
    if count == 0 {
        return Err(failure::no_partitions_asked(name));
    }
    let count = u64::from(count);
    limits.admit(Limit::PartitionsPerTopic, present as u64 + count)?;
    limits.admit(Limit::Partitions, u64::from(load.total()) + count)?;
    Ok(())
}

/// Places partitions `first..first + count`; they were admitted.
fn place_partitions(load: &mut Load, step: &Step, first: usize, count: u32) -> Vec<Placement> {
    let first = u32::try_from(first).expect("partitions of a topic fit a u32");
    (first..first + count)
        .map(|partition| Placement {
            partition: PartitionId(partition),
            incarnation: Incarnation(step.op.0),
            group: load.place(),
        })
        .collect()
}

impl Catalog {
    pub(crate) fn find_topic(
        &self,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<(&Stream, &Topic), Failure> {
        let stream = self.find_stream(stream)?;
        match stream.topics.find(topic) {
            Some(found) => Ok((stream, found)),
            None => Err(failure::topic_not_found(&stream.name, topic)),
        }
    }

    pub(crate) fn create_topic(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        name: &str,
        partitions: u32,
    ) -> Result<Reply, Failure> {
        let stream = self.find_stream(stream)?.id;
        // Not `stream_mut`, which would borrow limits and load as well.
        let stream = self.streams.get_mut(stream).expect("the stream was found");
        failure::legal_name(name)?;
        if let Some(id) = stream.topics.id_of_name(name) {
            return Err(failure::topic_exists(&stream.name, name, id));
        }
        let topics = stream.topics.len() as u64 + 1;
        self.limits.admit(Limit::TopicsPerStream, topics)?;
        admit_partitions(&self.limits, &self.load, (name, 0), partitions)?;

        let id = stream.next_topic;
        stream.next_topic = TopicId(id.0 + 1);
        let topic = Topic {
            id,
            name: name.to_owned(),
            created: step.timestamp,
            partitions: place_partitions(&mut self.load, step, 0, partitions),
            groups: ConsumerGroups::default(),
        };
        step.changes.push(Change::TopicCreated {
            stream: stream.id,
            topic: id,
            name: name.to_owned(),
            partitions: topic.partitions.clone(),
        });
        let reply = Reply::Topic(topic.details(stream.id));
        stream.topics.insert(id, topic);
        Ok(reply)
    }

    pub(crate) fn delete_topic(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<Reply, Failure> {
        let (stream, topic) = self.topic_ids(stream, topic)?;
        let topics = &mut self.stream_mut(stream).topics;
        let topic = topics.remove(topic).expect("the topic was found");
        self.topic_deleted(step, stream, &topic);
        Ok(Reply::Done)
    }

    pub(crate) fn update_topic(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        topic: &Identifier,
        name: &str,
    ) -> Result<Reply, Failure> {
        let (stream, id) = self.topic_ids(stream, topic)?;
        failure::legal_name(name)?;
        let stream = self.stream_mut(stream);
        match stream.topics.id_of_name(name) {
            Some(other) if other != id => {
                return Err(failure::topic_exists(&stream.name, name, other));
            }
            // It has this name already.
            Some(_) => {}
            None => {
                stream.topics.rename(id, name);
                step.changes.push(Change::TopicRenamed {
                    stream: stream.id,
                    topic: id,
                    name: name.to_owned(),
                });
            }
        }
        Ok(Reply::Done)
    }

    pub(crate) fn create_partitions(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        topic: &Identifier,
        count: u32,
    ) -> Result<Reply, Failure> {
        let (stream, id) = self.topic_ids(stream, topic)?;
        let (limits, load) = (&self.limits, &mut self.load);
        let found = self.streams.get_mut(stream).expect("the stream was found");
        let topic = found.topics.get_mut(id).expect("the topic was found");
        let present = topic.partitions.len();
        admit_partitions(limits, load, (&topic.name, present), count)?;

        let partitions = place_partitions(load, step, present, count);
        topic.partitions.extend_from_slice(&partitions);
        step.changes.push(Change::PartitionsCreated {
            stream,
            topic: id,
            partitions,
        });
        let reply = topic.partitions_changed();
        let changes = topic.groups.partitions_created(step.at(), count);
        self.groups_changed(step, (stream, id), changes);
        Ok(reply)
    }

    pub(crate) fn delete_partitions(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        topic: &Identifier,
        count: u32,
    ) -> Result<Reply, Failure> {
        let (stream, id) = self.topic_ids(stream, topic)?;
        let found = self.streams.get_mut(stream).expect("the stream was found");
        let topic = found.topics.get_mut(id).expect("the topic was found");
        if count == 0 {
            return Err(failure::no_partitions_asked(&topic.name));
        }
        let present = topic.partition_count();
        if count >= present {
            return Err(failure::too_few_partitions(&topic.name, count, present));
        }
        let remaining = usize::try_from(present - count).expect("a u32 fits a usize");
        let partitions = topic.partitions.split_off(remaining);
        for placement in &partitions {
            self.load.remove(placement.group);
        }
        step.changes.push(Change::PartitionsDeleted {
            stream,
            topic: id,
            partitions,
        });
        let reply = topic.partitions_changed();
        let changes = topic.groups.partitions_deleted(step.at(), count);
        self.groups_changed(step, (stream, id), changes);
        Ok(reply)
    }

    pub(crate) fn purge_topic(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<Reply, Failure> {
        let (stream, topic) = self.topic_ids(stream, topic)?;
        self.topic_purged(step, stream, topic);
        Ok(Reply::Done)
    }

    /// Begins all partitions of a topic anew, where they are.
    ///
    /// # Panics
    /// When there is no such topic: the caller has found it.
    pub(crate) fn topic_purged(&mut self, step: &mut Step, stream: StreamId, id: TopicId) {
        let topic = self.stream_mut(stream).topics.get_mut(id);
        let topic = topic.expect("the topic was found");
        for placement in &mut topic.partitions {
            placement.incarnation = Incarnation(step.op.0);
        }
        step.changes.push(Change::PartitionsPurged {
            stream,
            topic: id,
            partitions: topic.partitions.clone(),
        });
        let all: Vec<PartitionId> = (0..topic.partition_count()).map(PartitionId).collect();
        let changes = topic.groups.purge(step.at(), &all);
        self.groups_changed(step, (stream, id), changes);
    }

    pub(crate) fn topic_ids(
        &self,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<(StreamId, TopicId), Failure> {
        let (stream, topic) = self.find_topic(stream, topic)?;
        Ok((stream.id, topic.id))
    }

    /// Lets go of what a topic that is no longer in its stream has held.
    pub(crate) fn topic_deleted(&mut self, step: &mut Step, stream: StreamId, topic: &Topic) {
        for placement in &topic.partitions {
            self.load.remove(placement.group);
        }
        self.drop_groups(step, stream, topic);
        step.changes.push(Change::TopicDeleted {
            stream,
            topic: topic.id,
            partitions: topic.partitions.clone(),
        });
    }
}
