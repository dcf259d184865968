//! Streams, topics, partitions.

use std::vec::Vec;

use wire::{
    ConsensusGroup, ErrorCode, GetStreams, GetTopics, Identifier, Incarnation, PartitionId,
    PartitionKey, Reply, StreamId, TopicId, UserId,
};

use super::{Run, create_stream, create_topic, groups, named, time_of};
use crate::{Change, Limits, Operation, PAGE_MAX, Placement};

const BY: UserId = UserId::ROOT;

fn delete_stream(stream: impl Into<Identifier>) -> Operation {
    Operation::DeleteStream {
        by: BY,
        stream: stream.into(),
    }
}

fn rename_stream(stream: impl Into<Identifier>, name: &str) -> Operation {
    Operation::UpdateStream {
        by: BY,
        stream: stream.into(),
        name: name.into(),
    }
}

fn delete_topic(stream: &str, topic: impl Into<Identifier>) -> Operation {
    Operation::DeleteTopic {
        by: BY,
        stream: named(stream),
        topic: topic.into(),
    }
}

fn rename_topic(stream: &str, topic: &str, name: &str) -> Operation {
    Operation::UpdateTopic {
        by: BY,
        stream: named(stream),
        topic: named(topic),
        name: name.into(),
    }
}

fn create_partitions(stream: &str, topic: &str, count: u32) -> Operation {
    Operation::CreatePartitions {
        by: BY,
        stream: named(stream),
        topic: named(topic),
        count,
    }
}

fn delete_partitions(stream: &str, topic: &str, count: u32) -> Operation {
    Operation::DeletePartitions {
        by: BY,
        stream: named(stream),
        topic: named(topic),
        count,
    }
}

fn placement(partition: u32, incarnation: u64, group: u16) -> Placement {
    Placement {
        partition: PartitionId(partition),
        incarnation: Incarnation(incarnation),
        group: ConsensusGroup(group),
    }
}

#[test]
fn created_stream_is_told_and_published() {
    let mut run = Run::new();
    let outcome = run.create_stream("orders");
    let Ok(Reply::Stream(details)) = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(details.id, StreamId(1));
    assert_eq!(details.name, "orders");
    assert_eq!(details.created, time_of(run.op()));
    assert_eq!(
        outcome.changes,
        [Change::StreamCreated {
            stream: StreamId(1),
            name: "orders".into(),
        }]
    );
    assert_eq!(run.catalog.stream_details(&named("orders")), Ok(details));
}

#[test]
fn existing_stream_is_named_and_never_replaced() {
    let mut run = Run::new();
    run.create_stream("other");
    run.create_stream("orders");
    run.create_topic("orders", "payments", 2);
    let text = run.refuse(ErrorCode::StreamAlreadyExists, create_stream("orders"));
    assert_eq!(text, "stream \"orders\" exists already, with id 2");
    let text = run.refuse(
        ErrorCode::TopicAlreadyExists,
        create_topic("orders", "payments", 5),
    );
    assert_eq!(
        text,
        "topic \"payments\" exists already in stream \"orders\", with id 1"
    );
    assert_eq!(groups(&run, "orders", "payments"), [1, 2]);
}

#[test]
fn number_is_an_id_and_name_is_a_name() {
    let mut run = Run::new();
    run.create_stream("a");
    run.create_stream("b");
    let text = run.refuse(ErrorCode::InvalidName, create_stream("2"));
    assert_eq!(text, "\"2\": a name must not consist of digits only");
    run.refuse(ErrorCode::InvalidName, rename_stream(named("a"), "2"));
    // "2" as a name names nothing, although there is a stream with id 2.
    let text = run.refuse(ErrorCode::StreamNotFound, delete_stream(named("2")));
    assert_eq!(text, "stream \"2\" does not exist");
    run.accept(delete_stream(StreamId(2)));
    assert!(run.catalog.stream_details(&named("b")).is_err());
    assert!(run.catalog.stream_details(&named("a")).is_ok());
}

#[test]
fn ids_of_streams_and_topics_are_not_used_again() {
    let mut run = Run::new();
    run.create_stream("a");
    run.create_stream("b");
    run.accept(delete_stream(named("b")));
    run.create_stream("b");
    assert_eq!(
        run.catalog.stream_details(&named("b")).unwrap().id,
        StreamId(3)
    );

    run.create_topic("a", "t", 1);
    run.accept(delete_topic("a", named("t")));
    run.create_topic("a", "t", 1);
    let topic = run.catalog.topic_details(&named("a"), &named("t")).unwrap();
    assert_eq!(topic.id, TopicId(2));
    run.create_topic("b", "t", 1);
    let topic = run.catalog.topic_details(&named("b"), &named("t")).unwrap();
    assert_eq!(topic.id, TopicId(1), "each stream counts for itself");
}

#[test]
fn created_topic_tells_where_its_partitions_live() {
    let mut run = Run::new();
    run.create_stream("orders");
    let outcome = run.create_topic("orders", "payments", 4);
    let op = run.op().0;
    let placed = [
        placement(0, op, 1),
        placement(1, op, 2),
        placement(2, op, 3),
        placement(3, op, 1),
    ];
    assert_eq!(
        outcome.changes,
        [Change::TopicCreated {
            stream: StreamId(1),
            topic: TopicId(1),
            name: "payments".into(),
            partitions: placed.to_vec(),
        }]
    );
    let Ok(Reply::Topic(details)) = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(details.partitions.len(), 4);
    assert_eq!(details.partitions[3].group, ConsensusGroup(1));
    assert_eq!(details.partitions[3].incarnation, Incarnation(op));
    assert_eq!(details.stream, StreamId(1));
}

#[test]
fn deleting_a_stream_drops_everything_below() {
    let mut run = Run::new();
    run.create_stream("orders");
    run.create_topic("orders", "a", 1);
    run.create_topic("orders", "b", 1);
    let outcome = run.accept(delete_stream(named("orders")));
    let deleted = |topic, incarnation, group| Change::TopicDeleted {
        stream: StreamId(1),
        topic: TopicId(topic),
        partitions: [placement(0, incarnation, group)].to_vec(),
    };
    assert_eq!(
        outcome.changes,
        [
            deleted(1, 3, 1),
            deleted(2, 4, 2),
            Change::StreamDeleted {
                stream: StreamId(1),
            },
        ]
    );
    assert_eq!(run.catalog.partitions_per_group().sum::<u32>(), 0);
    assert_eq!(run.projection.placements().count(), 0);
    run.refuse(ErrorCode::StreamNotFound, create_topic("orders", "c", 1));
}

#[test]
fn renamed_things_are_found_by_the_new_name_only() {
    let mut run = Run::new();
    run.create_stream("a");
    run.create_topic("a", "t", 2);
    run.accept(rename_stream(named("a"), "b"));
    run.accept(rename_topic("b", "t", "u"));
    let resolve = |stream: &str, topic: &str| run.projection.resolve(&named(stream), &named(topic));
    assert!(resolve("b", "u").is_ok());
    let failure = resolve("a", "u").unwrap_err();
    assert_eq!(failure.code, ErrorCode::StreamNotFound);
    let failure = resolve("b", "t").unwrap_err();
    assert_eq!(failure.code, ErrorCode::TopicNotFound);
    assert_eq!(failure.text, "topic \"t\" does not exist in stream \"b\"");
    // The old names are free.
    run.create_stream("a");
    run.create_topic("b", "t", 1);
}

#[test]
fn name_of_another_is_refused_and_its_own_is_kept() {
    let mut run = Run::new();
    run.create_stream("a");
    run.create_stream("b");
    run.create_topic("a", "t", 1);
    run.create_topic("a", "u", 1);
    run.refuse(
        ErrorCode::StreamAlreadyExists,
        rename_stream(named("a"), "b"),
    );
    run.refuse(ErrorCode::TopicAlreadyExists, rename_topic("a", "t", "u"));
    assert_eq!(run.accept(rename_stream(named("a"), "a")).changes, []);
    assert_eq!(run.accept(rename_topic("a", "t", "t")).changes, []);
}

#[test]
fn new_partitions_follow_the_highest_with_an_incarnation_of_their_own() {
    let mut run = Run::new();
    run.create_stream("s");
    run.create_topic("s", "t", 2);
    let outcome = run.accept(create_partitions("s", "t", 2));
    let op = run.op().0;
    assert_eq!(
        outcome.changes,
        [Change::PartitionsCreated {
            stream: StreamId(1),
            topic: TopicId(1),
            partitions: [placement(2, op, 3), placement(3, op, 1)].to_vec(),
        }]
    );
    let Ok(Reply::PartitionsChanged(changed)) = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(changed.partitions, 4);
}

#[test]
fn highest_partitions_are_deleted_and_come_back_as_others() {
    let mut run = Run::new();
    run.create_stream("s");
    run.create_topic("s", "t", 3);
    let created = run.op().0;
    let outcome = run.accept(delete_partitions("s", "t", 2));
    assert_eq!(
        outcome.changes,
        [Change::PartitionsDeleted {
            stream: StreamId(1),
            topic: TopicId(1),
            partitions: [placement(1, created, 2), placement(2, created, 3)].to_vec(),
        }]
    );
    run.accept(create_partitions("s", "t", 1));
    let topic = run.projection.resolve(&named("s"), &named("t")).unwrap();
    let again = topic.placement(PartitionId(1)).unwrap();
    assert_eq!(*again, placement(1, run.op().0, 2));
}

#[test]
fn purged_partitions_are_others_in_the_same_places() {
    let mut run = Run::new();
    run.create_stream("s");
    run.create_topic("s", "t", 2);
    run.create_topic("s", "u", 1);
    let created = run.op().0;
    let outcome = run.accept(Operation::PurgeTopic {
        by: UserId::ROOT,
        stream: named("s"),
        topic: named("t"),
    });
    let op = run.op().0;
    let purged = |topic, partitions: &[Placement]| Change::PartitionsPurged {
        stream: StreamId(1),
        topic: TopicId(topic),
        partitions: partitions.to_vec(),
    };
    let first = [placement(0, op, 1), placement(1, op, 2)];
    assert_eq!(outcome.changes, [purged(1, &first)]);
    let other = run.projection.resolve(&named("s"), &named("u")).unwrap();
    assert_eq!(other.partitions, [placement(0, created, 3)]);

    let outcome = run.accept(Operation::PurgeStream {
        by: UserId::ROOT,
        stream: named("s"),
    });
    let op = run.op().0;
    let first = [placement(0, op, 1), placement(1, op, 2)];
    let second = [placement(0, op, 3)];
    assert_eq!(outcome.changes, [purged(1, &first), purged(2, &second)]);
    run.refuse(
        ErrorCode::TopicNotFound,
        Operation::PurgeTopic {
            by: UserId::ROOT,
            stream: named("s"),
            topic: named("gone"),
        },
    );
}

#[test]
fn one_partition_remains() {
    let mut run = Run::new();
    run.create_stream("s");
    run.create_topic("s", "t", 3);
    for count in [3, 4, u32::MAX] {
        run.refuse(
            ErrorCode::InvalidPartitionCount,
            delete_partitions("s", "t", count),
        );
    }
    let text = run.refuse(
        ErrorCode::InvalidPartitionCount,
        delete_partitions("s", "t", 3),
    );
    assert_eq!(
        text,
        "3 partitions cannot be deleted from topic \"t\": it has 3, and 1 must remain"
    );
    run.accept(delete_partitions("s", "t", 2));
}

#[test]
fn no_partitions_are_no_request() {
    let mut run = Run::new();
    run.create_stream("s");
    let text = run.refuse(ErrorCode::InvalidPartitionCount, create_topic("s", "t", 0));
    assert_eq!(text, "0 partitions for topic \"t\"; at least 1 is needed");
    run.create_topic("s", "t", 1);
    run.refuse(
        ErrorCode::InvalidPartitionCount,
        create_partitions("s", "t", 0),
    );
    run.refuse(
        ErrorCode::InvalidPartitionCount,
        delete_partitions("s", "t", 0),
    );
}

#[test]
fn streams_topics_and_partitions_are_limited() {
    let mut run = Run::new();
    run.accept(Operation::SetLimits {
        limits: Limits {
            streams: 2,
            topics_per_stream: 2,
            partitions_per_topic: 4,
            partitions: 6,
            ..Limits::INITIAL
        },
    });
    run.create_stream("a");
    run.create_stream("b");
    run.refuse(ErrorCode::TooManyStreams, create_stream("c"));
    run.create_topic("a", "t", 2);
    run.create_topic("a", "u", 1);
    run.refuse(ErrorCode::TooManyTopics, create_topic("a", "v", 1));
    let text = run.refuse(ErrorCode::TooManyPartitions, create_topic("b", "t", 5));
    assert_eq!(
        text,
        "this would make 5 partitions in one topic; the limit is 4 (cluster.limits.partitions_per_topic)"
    );
    run.refuse(ErrorCode::TooManyPartitions, create_partitions("a", "t", 3));
    run.refuse(
        ErrorCode::TooManyPartitions,
        create_partitions("a", "t", u32::MAX),
    );
    let text = run.refuse(ErrorCode::TooManyPartitions, create_topic("b", "t", 4));
    assert_eq!(
        text,
        "this would make 7 partitions in all topics; the limit is 6 (cluster.limits.partitions)"
    );
    run.accept(create_partitions("a", "t", 2));
    run.create_topic("b", "t", 1);
}

#[test]
fn lowered_limit_keeps_what_is_there() {
    let mut run = Run::new();
    run.create_stream("a");
    run.create_stream("b");
    run.accept(Operation::SetLimits {
        limits: Limits {
            streams: 1,
            ..Limits::INITIAL
        },
    });
    run.accept(delete_stream(named("a")));
    run.refuse(ErrorCode::TooManyStreams, create_stream("a"));
    run.accept(delete_stream(named("b")));
    run.create_stream("a");
}

#[test]
fn partition_is_found_by_its_key_or_named_as_missing() {
    let mut run = Run::new();
    run.create_stream("s");
    run.create_topic("s", "t", 2);
    let topic = run
        .projection
        .resolve(&named("s"), &TopicId(1).into())
        .unwrap();
    let key = topic.key(PartitionId(1));
    assert_eq!(
        key,
        PartitionKey {
            stream: StreamId(1),
            topic: TopicId(1),
            partition: PartitionId(1),
        }
    );
    assert_eq!(
        run.projection.placement(&key),
        topic.placement(PartitionId(1)).ok()
    );
    assert_eq!(topic.partition_count(), 2);
    let failure = topic.placement(PartitionId(2)).unwrap_err();
    assert_eq!(failure.code, ErrorCode::PartitionNotFound);
    assert_eq!(
        failure.text,
        "partition 2 does not exist in topic \"t\", which has 2"
    );
    let beyond = PartitionKey {
        partition: PartitionId(u32::MAX),
        ..key
    };
    assert_eq!(run.projection.placement(&beyond), None);
}

#[test]
fn lists_are_paged_by_id() {
    let mut run = Run::new();
    for name in ["c", "a", "b"] {
        run.create_stream(name);
        run.create_topic("c", name, 2);
    }
    let page = |after, limit| {
        let request = GetStreams {
            after: StreamId(after),
            limit,
        };
        let page = run.catalog.streams_page(&request);
        let ids = page
            .streams
            .iter()
            .map(|stream| stream.id.0)
            .collect::<Vec<_>>();
        (ids, page.more)
    };
    assert_eq!(page(0, 2), ([1, 2].to_vec(), true));
    assert_eq!(page(2, 2), ([3].to_vec(), false));
    assert_eq!(page(0, 3), ([1, 2, 3].to_vec(), false));
    assert_eq!(page(3, 0), ([].to_vec(), false));
    assert_eq!(page(u64::MAX, 0), ([].to_vec(), false));

    let request = GetTopics {
        stream: named("c"),
        after: TopicId(1),
        limit: u32::MAX,
    };
    let topics = run.catalog.topics_page(&request).unwrap();
    let names = topics
        .topics
        .iter()
        .map(|topic| (topic.name.as_str(), topic.partitions));
    assert_eq!(names.collect::<Vec<_>>(), [("a", 2), ("b", 2)]);
    assert_eq!(run.catalog.stream_details(&named("c")).unwrap().topics, 3);
}

#[test]
fn page_has_an_end_even_when_none_is_asked_for() {
    let mut run = Run::new();
    for stream in 0..=PAGE_MAX {
        run.catalog.apply(
            run.catalog.applied().next(),
            time_of(run.catalog.applied()),
            &create_stream(&std::format!("stream {stream}")),
        );
    }
    for limit in [0, u32::MAX] {
        let request = GetStreams {
            after: StreamId(0),
            limit,
        };
        let page = run.catalog.streams_page(&request);
        assert_eq!(u32::try_from(page.streams.len()), Ok(PAGE_MAX));
        assert!(page.more);
    }
}
