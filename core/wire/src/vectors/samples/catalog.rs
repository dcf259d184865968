//! Streams, topics, partitions.

use std::{vec, vec::Vec};

use super::{MOMENT, Vector, add_exchange, stream, topic};
use crate::{
    ConsensusGroup, CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteStream,
    DeleteTopic, GetStream, GetStreams, GetTopic, GetTopics, Incarnation, Offset, PartitionDetails,
    PartitionId, PartitionsChanged, PurgeStream, PurgeTopic, Reply, StreamDetails, StreamId,
    Streams, Timestamp, TopicDetails, TopicId, TopicSummary, Topics, UpdateStream, UpdateTopic,
};

pub(super) fn add(vectors: &mut Vec<Vector>) {
    add_streams(vectors);
    add_topics(vectors);
    add_partitions(vectors);
}

fn add_streams(vectors: &mut Vec<Vector>) {
    let details = |id, name: &str, topics| StreamDetails {
        id: StreamId(id),
        name: name.into(),
        created: Timestamp(MOMENT),
        topics,
    };
    let get = GetStream { stream: stream() };
    add_exchange(vectors, "stream orders", get, details(1, "orders", 2));
    let page = GetStreams {
        after: StreamId(1),
        limit: 100,
    };
    let streams = Streams {
        streams: vec![details(4, "bücher", 0)],
        more: false,
    };
    add_exchange(vectors, "the last page", page, streams);
    let create = CreateStream {
        name: "orders".into(),
    };
    add_exchange(vectors, "stream orders", create, details(1, "orders", 0));
    let update = UpdateStream {
        stream: stream(),
        name: "sales".into(),
    };
    add_exchange(vectors, "another name", update, Reply::Done);
    let purge = PurgeStream { stream: stream() };
    add_exchange(vectors, "stream orders", purge, Reply::Done);
    let delete = DeleteStream { stream: stream() };
    add_exchange(vectors, "stream orders", delete, Reply::Done);
}

fn add_topics(vectors: &mut Vec<Vector>) {
    let get = GetTopic {
        stream: stream(),
        topic: topic(),
    };
    let known = partition(0, Some((10, 1002)));
    let details = details(vec![known, partition(1, None)]);
    add_exchange(vectors, "topic 2 of stream orders", get, details);
    let page = GetTopics {
        stream: stream(),
        after: TopicId(0),
        limit: 0,
    };
    let topics = Topics {
        topics: vec![TopicSummary {
            id: TopicId(2),
            name: "payments".into(),
            created: Timestamp(MOMENT),
            partitions: 2,
        }],
        more: false,
    };
    add_exchange(vectors, "the only page", page, topics);
    add_topic_changes(vectors);
}

fn add_topic_changes(vectors: &mut Vec<Vector>) {
    let create = CreateTopic {
        stream: stream(),
        name: "payments".into(),
        partitions: 2,
    };
    let created = details(vec![partition(0, None), partition(1, None)]);
    add_exchange(
        vectors,
        "topic payments with two partitions",
        create,
        created,
    );
    let update = UpdateTopic {
        stream: stream(),
        topic: topic(),
        name: "transfers".into(),
    };
    add_exchange(vectors, "another name", update, Reply::Done);
    let purge = PurgeTopic {
        stream: stream(),
        topic: topic(),
    };
    add_exchange(vectors, "topic 2 of stream orders", purge, Reply::Done);
    let delete = DeleteTopic {
        stream: stream(),
        topic: topic(),
    };
    add_exchange(vectors, "topic 2 of stream orders", delete, Reply::Done);
}

fn details(partitions: Vec<PartitionDetails>) -> TopicDetails {
    TopicDetails {
        stream: StreamId(1),
        id: TopicId(2),
        name: "payments".into(),
        created: Timestamp(MOMENT),
        partitions,
    }
}

fn partition(id: u32, range: Option<(u64, u64)>) -> PartitionDetails {
    PartitionDetails {
        id: PartitionId(id),
        incarnation: Incarnation(58),
        group: ConsensusGroup(1),
        start: range.map(|(start, _)| Offset(start)),
        end: range.map(|(_, end)| Offset(end)),
    }
}

fn add_partitions(vectors: &mut Vec<Vector>) {
    let create = CreatePartitions {
        stream: stream(),
        topic: topic(),
        count: 2,
    };
    let changed = |partitions| PartitionsChanged { partitions };
    add_exchange(vectors, "two more", create, changed(4));
    let delete = DeletePartitions {
        stream: stream(),
        topic: topic(),
        count: 1,
    };
    add_exchange(vectors, "one less", delete, changed(3));
}
