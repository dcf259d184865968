//! Streams: the upper level of the name space.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use wire::{Failure, Identifier, Reply, StreamDetails, StreamId, Timestamp, TopicId, Writer};

use crate::{
    Catalog, Change, Limit, Topic,
    apply::Step,
    directory::{Directory, Named},
    failure,
};

/// A stream with its topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub(crate) id: StreamId,
    pub(crate) name: String,
    pub(crate) created: Timestamp,
    pub(crate) topics: Directory<TopicId, Topic>,
    /// Above the id of every topic that the stream has ever had.
    pub(crate) next_topic: TopicId,
}

impl Named for Stream {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

impl Stream {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Its name, unique.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its topics, in order of ids.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Topic> {
        self.topics.iter().map(|(_, topic)| topic)
    }

    pub(crate) fn details(&self) -> StreamDetails {
        StreamDetails {
            id: self.id,
            name: self.name.clone(),
            created: self.created,
            topics: u32::try_from(self.topics.len()).expect("topics of a stream fit a u32"),
        }
    }

    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            id,
            name,
            created,
            topics,
            next_topic,
        } = self;
        writer.u64(id.0).text16(name).u64(created.0);
        writer.u64(next_topic.0).count(topics.len());
        for (_, topic) in topics.iter() {
            topic.write_canonical(writer);
        }
    }
}

impl Catalog {
    pub(crate) fn find_stream(&self, stream: &Identifier) -> Result<&Stream, Failure> {
        let found = self.streams.find(stream);
        found.ok_or_else(|| failure::stream_not_found(stream))
    }

    /// # Panics
    /// When there is no such stream: the caller has found it.
    pub(crate) fn stream_mut(&mut self, id: StreamId) -> &mut Stream {
        self.streams.get_mut(id).expect("the stream was found")
    }

    pub(crate) fn create_stream(&mut self, step: &mut Step, name: &str) -> Result<Reply, Failure> {
        failure::legal_name(name)?;
        if let Some(id) = self.streams.id_of_name(name) {
            return Err(failure::stream_exists(name, id));
        }
        let streams = self.streams.len() as u64 + 1;
        self.limits.admit(Limit::Streams, streams)?;

        let id = self.next_stream;
        self.next_stream = StreamId(id.0 + 1);
        let stream = Stream {
            id,
            name: name.to_owned(),
            created: step.timestamp,
            topics: Directory::default(),
            next_topic: TopicId(1),
        };
        let reply = Reply::Stream(stream.details());
        self.streams.insert(id, stream);
        step.changes.push(Change::StreamCreated {
            stream: id,
            name: name.to_owned(),
        });
        Ok(reply)
    }

    pub(crate) fn delete_stream(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
    ) -> Result<Reply, Failure> {
        let id = self.find_stream(stream)?.id;
        let stream = self.streams.remove(id).expect("the stream was found");
        for (_, topic) in stream.topics.iter() {
            self.topic_deleted(step, id, topic);
        }
        step.changes.push(Change::StreamDeleted { stream: id });
        Ok(Reply::Done)
    }

    pub(crate) fn purge_stream(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
    ) -> Result<Reply, Failure> {
        let id = self.find_stream(stream)?.id;
        let topics = self.stream_mut(id).topics.iter();
        let topics: Vec<TopicId> = topics.map(|(topic, _)| topic).collect();
        for topic in topics {
            self.topic_purged(step, id, topic);
        }
        Ok(Reply::Done)
    }

    pub(crate) fn update_stream(
        &mut self,
        step: &mut Step,
        stream: &Identifier,
        name: &str,
    ) -> Result<Reply, Failure> {
        let id = self.find_stream(stream)?.id;
        failure::legal_name(name)?;
        match self.streams.id_of_name(name) {
            Some(other) if other != id => return Err(failure::stream_exists(name, other)),
            // It has this name already.
            Some(_) => {}
            None => {
                self.streams.rename(id, name);
                step.changes.push(Change::StreamRenamed {
                    stream: id,
                    name: name.to_owned(),
                });
            }
        }
        Ok(Reply::Done)
    }
}
