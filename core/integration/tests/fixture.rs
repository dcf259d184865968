//! Data that tests damage: a topic of four partitions, two in each of two data groups, three segments in
//! each partition.

use std::{collections::BTreeMap, fs, path::PathBuf};

use bytes::Bytes;
use integration::{Connection, Server, Site, Tag, batch, payload, send};
use wire::{
    Acknowledgement, ConsensusGroup, Failure, Offset, Op, PartitionId, PollStrategy, Timestamp,
    TopicDetails,
};

/// Partitions of the topic.
pub(crate) const PARTITIONS: u32 = 4;

/// Bytes of a message.
const MESSAGE: usize = 1_000;

/// Messages of a batch, of which 16 fill a segment.
const BATCH: u64 = 64;

/// Batches of a partition.
const BATCHES: u64 = 40;

/// The consumer that has stored an offset in each partition.
pub(crate) const CONSUMER: &str = "billing";

/// What it has stored.
pub(crate) const STORED: Offset = Offset(1_234);

/// A stopped server's data, and what is known of it.
pub(crate) struct Fixture {
    pub(crate) site: Site,
    pub(crate) topic: TopicDetails,
    /// Messages of each partition.
    counts: BTreeMap<u32, u64>,
    /// The broker's time of each batch, by partition.
    times: BTreeMap<u32, Vec<(Offset, Timestamp)>>,
}

impl Fixture {
    /// Segments that the journal can write again.
    pub(crate) fn without_checkpoints() -> Self {
        Self::with_checkpoints(0)
    }

    /// Segments that are covered by checkpoints, so that the journal does not hold their messages any more,
    /// or need not. `count` checkpoints of each group, with equally many messages before each.
    pub(crate) fn with_checkpoints(count: u64) -> Self {
        let site = Site::new();
        let server = site.start();
        let mut connection = Connection::login(server.address());
        let topic = connection.create_topic("orders", PARTITIONS);
        let filler = connection.create_topic("filler", 2);
        let parts = count.max(1);
        for part in 0..parts {
            let batches = BATCHES * part / parts..BATCHES * (part + 1) / parts;
            append_batches(&mut connection, &topic, batches);
            let stored = Offset(STORED.0 * (part + 1) / parts);
            let mut ops = BTreeMap::new();
            for partition in &topic.partitions {
                let answer = connection.store(&topic, partition.id.0, CONSUMER, stored);
                assert_eq!(answer, Ok(Some(stored)));
                ops.insert(partition.group, connection.answered());
            }
            if part < count {
                fill_journal(&server, &mut connection, &filler, &ops);
            }
        }
        drop(connection);
        server.stop();
        let mut fixture = Self {
            site,
            topic,
            counts: (0..PARTITIONS).map(|id| (id, BATCHES * BATCH)).collect(),
            times: BTreeMap::new(),
        };
        fixture.learn_times();
        fixture
    }

    fn learn_times(&mut self) {
        let server = self.site.start();
        let mut connection = Connection::login(server.address());
        for partition in 0..PARTITIONS {
            let page = connection.read_from(&self.topic, partition, Offset(0));
            self.times
                .insert(partition, page.expect("it is whole").batches);
        }
        drop(connection);
        server.stop();
    }

    /// The partition in the same data group as partition 0.
    pub(crate) fn neighbour(&self) -> u32 {
        let group = self.topic.partitions[0].group;
        let mut others = self.topic.partitions[1..].iter();
        let neighbour = others.find(|partition| partition.group == group);
        neighbour.expect("four partitions in two groups").id.0
    }

    /// Files of partition 0 with this ending, in the order of their offsets.
    pub(crate) fn files(&self, extension: &str) -> Vec<PathBuf> {
        let directory = self.site.partition(&self.topic, PartitionId(0));
        let entries = fs::read_dir(directory).expect("list the partition");
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.expect("list the partition").path())
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect();
        files.sort();
        files
    }

    /// Requires that a partition serves every message, by offset and by time, and that its stored offset is
    /// there.
    pub(crate) fn expect_whole(&self, connection: &mut Connection, partition: u32) {
        let page = connection
            .read_from(&self.topic, partition, Offset(0))
            .unwrap_or_else(|failure| panic!("partition {partition}: {failure}"));
        let count = self.counts[&partition];
        assert_eq!(page.end, Offset(count), "partition {partition}");
        assert_eq!(page.messages.len() as u64, count, "partition {partition}");
        for (number, (offset, bytes)) in (0..).zip(&page.messages) {
            assert_eq!(offset.0, number);
            assert!(
                *bytes == message(partition, number),
                "{partition}: {offset}"
            );
        }
        for (offset, time) in self.times[&partition].iter().step_by(7) {
            let page = connection.poll(&self.topic, partition, PollStrategy::Timestamp(*time));
            let found = page.expect("it can be read").messages[0].0;
            // Batches may have equal times.
            let equal = self.times[&partition].iter();
            let first = equal.clone().find(|(_, other)| other == time);
            assert_eq!(Some(found), first.map(|(offset, _)| *offset), "at {offset}");
        }
        self.expect_stored(connection, partition);
    }

    /// Requires that the stored offset and the end of a partition are what they were, whatever became of its
    /// messages.
    pub(crate) fn expect_stored(&self, connection: &mut Connection, partition: u32) {
        let found = connection.stored(&self.topic, partition, CONSUMER);
        let found = found.unwrap_or_else(|failure| panic!("partition {partition}: {failure}"));
        assert_eq!(found.stored, Some(STORED), "partition {partition}");
        assert_eq!(found.end, Offset(self.counts[&partition]));
    }

    /// Appends one more message, whose offset must be the next one.
    pub(crate) fn append(&mut self, connection: &mut Connection, partition: u32) {
        let count = self.counts.get_mut(&partition).expect("a partition");
        let message = message(partition, *count);
        let appended = connection.append(&self.topic, partition, &[message]);
        assert_eq!(appended, Ok(Offset(*count)), "partition {partition}");
        *count += 1;
    }

    /// Reads all of a partition; the first refusal.
    pub(crate) fn read(&self, connection: &mut Connection, partition: u32) -> Result<u64, Failure> {
        let page = connection.read_from(&self.topic, partition, Offset(0))?;
        Ok(page.messages.len() as u64)
    }
}

fn append_batches(
    connection: &mut Connection,
    topic: &TopicDetails,
    batches: std::ops::Range<u64>,
) {
    for number in batches {
        for partition in 0..PARTITIONS {
            let range = number * BATCH..(number + 1) * BATCH;
            let messages: Vec<Bytes> = range.map(|n| message(partition, n)).collect();
            let appended = connection.append(topic, partition, &messages);
            assert_eq!(appended, Ok(Offset(number * BATCH)));
        }
    }
}

/// Fills the journal until each of these groups has a checkpoint of this op or a later one.
fn fill_journal(
    server: &Server,
    connection: &mut Connection,
    filler: &TopicDetails,
    ops: &BTreeMap<ConsensusGroup, Op>,
) {
    let megabyte = [Bytes::from(vec![7; 1 << 20])];
    for round in 0..200 {
        let log = server.log().lines();
        let has_checkpoint = |group: &ConsensusGroup, op: &Op| {
            let start = format!("checkpoint group={group} op=");
            let ops = log.iter().filter_map(|line| line.split_once(&start));
            let mut ops = ops.filter_map(|(_, found)| found.parse().ok());
            ops.any(|found: u64| found >= op.0)
        };
        if ops.iter().all(|(group, op)| has_checkpoint(group, op)) {
            return;
        }
        let send = send(filler, round % 2, batch(&megabyte), Acknowledgement::Quorum);
        connection.ask(send).expect("it is appended");
    }
    panic!("no checkpoint of {ops:?}:\n{}", server.log().text());
}

fn message(partition: u32, sequence: u64) -> Bytes {
    let tag = Tag {
        producer: partition,
        sequence,
    };
    payload(tag, MESSAGE)
}
