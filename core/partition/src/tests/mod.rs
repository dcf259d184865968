//! A node's shell in a map: what the tests share.

mod consumer_groups;
mod damage;
mod idempotence;
mod memory;
mod model;
mod partitions;
mod reading;
mod requests;
mod retention;
mod snapshots;
mod stored_offsets;

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use bytes::Bytes;
use wire::{
    Batch, BatchBuilder, ConsensusGroup, ConsumerGroupId, Epoch, Incarnation, MemberId, Message,
    Offset, Op, PartitionId, PartitionKey, PollStrategy, ProducerId, SessionNumber, StreamId,
    Timestamp, TopicId,
};

use crate::{
    Batches, DataConfig, DataGroup, DataRequest, DataResult, DataSnapshot, FileKind, FileRead,
    PollError, Range, Read, ReadQuery, Scan, SegmentChange, SegmentId, encode_requests, files_at,
    verify::to_index,
};

/// The first incarnation of every partition in these tests.
const FIRST: Incarnation = Incarnation(7);

fn key(partition: u32) -> PartitionKey {
    PartitionKey {
        stream: StreamId(1),
        topic: TopicId(2),
        partition: PartitionId(partition),
    }
}

fn config() -> DataConfig {
    DataConfig::new(ConsensusGroup(3))
}

/// A batch with these payloads.
fn batch_of(payloads: &[&str], producer: u128, sequence: u64) -> Batch {
    let mut builder = BatchBuilder::new();
    for payload in payloads {
        builder.push(&Message {
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            ..Message::default()
        });
    }
    builder.build(ProducerId(producer), sequence)
}

/// A batch of one message of `size` bytes.
fn batch_of_size(size: usize, fill: u8) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: Bytes::from(vec![fill; size]),
        ..Message::default()
    });
    builder.build(ProducerId(0), 0)
}

/// The files of a node, as far as changes have been carried out.
#[derive(Clone, Debug, Default)]
struct Files {
    segments: BTreeMap<SegmentId, Vec<u8>>,
    indexes: BTreeMap<SegmentId, Bytes>,
    done: BTreeMap<SegmentId, Done>,
    /// The bytes ever asked to be at a place of a segment; they never differ.
    asked: BTreeMap<SegmentId, Vec<Option<u8>>>,
}

/// What is written of a segment.
#[derive(Clone, Debug, Default)]
struct Done {
    /// Without holes up to here.
    through: u64,
    /// Ranges behind that, positions with ends.
    ranges: BTreeMap<u64, u64>,
}

/// A data group with its files.
#[derive(Debug)]
struct Node {
    group: DataGroup,
    files: Files,
    /// Changes that are not carried out yet.
    queue: Vec<SegmentChange>,
    op: u64,
    time: u64,
    /// Files read so far.
    reads: usize,
}

impl Node {
    fn new(config: DataConfig) -> Self {
        Self {
            group: DataGroup::new(config),
            files: Files::default(),
            queue: Vec::new(),
            op: 0,
            time: 1_000,
            reads: 0,
        }
    }

    /// With partition 0.
    fn with_partition(config: DataConfig) -> Self {
        let mut node = Self::new(config);
        assert_eq!(node.create(0), DataResult::Created);
        node
    }

    /// Applies one prepare with these requests, ten microseconds after the one before.
    fn apply(&mut self, requests: &[DataRequest]) -> Vec<DataResult> {
        self.op += 1;
        self.time += 10;
        self.apply_body(&encode_requests(requests))
    }

    fn apply_body(&mut self, body: &Bytes) -> Vec<DataResult> {
        let applied = self
            .group
            .apply_prepare(Op(self.op), Timestamp(self.time), body)
            .expect("the body was encoded here");
        self.pull();
        applied.into_iter().map(|applied| applied.result).collect()
    }

    fn apply_one(&mut self, request: DataRequest) -> DataResult {
        self.apply(&[request])[0]
    }

    fn create(&mut self, partition: u32) -> DataResult {
        self.apply_one(DataRequest::CreatePartition {
            key: key(partition),
            incarnation: FIRST,
            admitted: Op(7),
        })
    }

    fn append(&mut self, batch: Batch) -> DataResult {
        self.apply_one(append(0, batch))
    }

    /// Appends one message of text and expects success.
    fn send(&mut self, payload: &str) -> Offset {
        let result = self.append(batch_of(&[payload], 0, 0));
        let DataResult::Appended { base_offset, .. } = result else {
            panic!("{result:?}");
        };
        base_offset
    }

    fn store(&mut self, consumer: &str, offset: u64) -> DataResult {
        self.apply_one(DataRequest::StoreOffset {
            key: key(0),
            incarnation: FIRST,
            admitted: Op(7),
            consumer: consumer.to_string(),
            offset: Offset(offset),
        })
    }

    fn truncate(&mut self, offset: u64) -> DataResult {
        self.apply_one(DataRequest::TruncateHead {
            key: key(0),
            incarnation: FIRST,
            offset: Offset(offset),
        })
    }

    fn pull(&mut self) {
        while let Some(change) = self.group.next_change() {
            self.queue.push(change);
        }
    }

    /// Carries out the change at a place of the queue, and tells of appends.
    fn carry_out(&mut self, index: usize) {
        let change = self.queue.remove(index);
        if let Some((segment, through)) = self.files.carry_out(change) {
            self.group.appended(segment, through);
        }
    }

    /// Carries out every change.
    fn settle(&mut self) {
        self.pull();
        while !self.queue.is_empty() {
            self.carry_out(0);
        }
        assert_eq!(self.group.unwritten(), 0);
    }

    /// Takes a checkpoint.
    fn checkpoint(&mut self) -> DataSnapshot {
        self.settle();
        let snapshot = self.group.snapshot();
        self.group.checkpointed(Op(self.op));
        self.settle();
        snapshot
    }

    /// Reads, with whatever files that needs.
    fn read(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        query: &ReadQuery<'_>,
    ) -> Result<Batches, PollError> {
        let mut read = self.group.read(key, incarnation, query)?;
        for _ in 0..100 {
            let file = match read {
                Read::Batches(batches) => return Ok(batches),
                Read::File(file) => file,
            };
            self.reads += 1;
            let bytes = self.files.read(&file);
            read = self.group.finish_read(file, bytes.as_ref())?;
            self.pull();
        }
        panic!("the read does not end");
    }

    fn poll(&mut self, strategy: PollStrategy) -> Result<Batches, PollError> {
        self.read(key(0), FIRST, &query(strategy, "reader"))
    }

    /// The payloads from a position to the end, as text.
    fn texts(&mut self, strategy: PollStrategy) -> Vec<String> {
        let mut texts = Vec::new();
        let mut answer = self.poll(strategy).expect("the partition is served");
        while answer.next > answer.from {
            for message in messages(&answer) {
                let text = String::from_utf8(message.payload.to_vec());
                texts.push(text.expect("the tests send text"));
            }
            let next = PollStrategy::Offset(answer.next);
            answer = self.poll(next).expect("the partition is served");
        }
        texts
    }

    /// A crash, and a start from `snapshot` with the journal's prepares after it.
    fn restart(&mut self, snapshot: &DataSnapshot, journal: &[(u64, u64, Bytes)]) {
        let config = self.group.config;
        self.queue.clear();
        self.files.restore(snapshot);
        self.group =
            DataGroup::restore(config, snapshot.clone()).expect("the snapshot was taken here");
        for file in files_at(snapshot) {
            if file.open {
                let mut scan = Scan::new(&file);
                self.files.scan(&mut scan);
                self.group.verified(file.id, scan.finish());
            }
        }
        for (op, time, body) in journal {
            (self.op, self.time) = (*op, *time);
            self.apply_body(body);
        }
    }
}

impl Files {
    /// Returns how far the segment is written without holes, if the change was an append to it.
    fn carry_out(&mut self, change: SegmentChange) -> Option<(SegmentId, u64)> {
        match change {
            SegmentChange::Append {
                segment,
                position,
                parts,
            } => {
                let bytes = parts.concat();
                let begin = to_index(position);
                let end = begin + bytes.len();
                let file = self.segments.entry(segment).or_default();
                let asked = self.asked.entry(segment).or_default();
                file.resize(file.len().max(end), 0);
                asked.resize(asked.len().max(end), None);
                for (asked, byte) in asked[begin..end].iter_mut().zip(&bytes) {
                    assert!(asked.is_none_or(|asked| asked == *byte));
                    *asked = Some(*byte);
                }
                file[begin..end].copy_from_slice(&bytes);
                let done = self.done.entry(segment).or_default();
                done.ranges.insert(begin as u64, end as u64);
                while let Some(end) = done.ranges.remove(&done.through) {
                    done.through = end;
                }
                Some((segment, done.through))
            }
            SegmentChange::WriteIndex { segment, bytes } => {
                self.indexes.insert(segment, bytes);
                None
            }
            SegmentChange::Delete { segment } => {
                self.segments.remove(&segment);
                self.indexes.remove(&segment);
                None
            }
            SegmentChange::DeletePartition {
                group,
                partition,
                incarnation,
            } => {
                let stays = |segment: &SegmentId| {
                    (segment.group, segment.partition, segment.incarnation)
                        != (group, partition, incarnation)
                };
                self.segments.retain(|segment, _| stays(segment));
                self.indexes.retain(|segment, _| stays(segment));
                None
            }
        }
    }

    fn read(&self, read: &FileRead) -> Option<Bytes> {
        let file: &[u8] = match read.file {
            FileKind::Segment => self.segments.get(&read.segment)?,
            FileKind::Index => self.indexes.get(&read.segment)?,
        };
        let range = Range {
            position: read.position,
            length: read.length,
        };
        Some(slice(file, range))
    }

    fn scan(&self, scan: &mut Scan) {
        while let Some(range) = scan.next_read() {
            match self.segments.get(&scan.id()) {
                Some(file) => scan.feed(&slice(file, range)),
                None => scan.fail(),
            }
        }
    }

    /// What a start does with the files: cuts them to what the snapshot knows, deletes the rest.
    fn restore(&mut self, snapshot: &DataSnapshot) {
        let known = files_at(snapshot);
        let lengths: BTreeMap<_, _> = known.iter().map(|file| (file.id, file)).collect();
        self.segments.retain(|id, _| lengths.contains_key(id));
        self.indexes
            .retain(|id, _| lengths.get(id).is_some_and(|file| !file.open));
        self.done.clear();
        for (id, file) in lengths {
            let length = file.segment.length;
            if let Some(bytes) = self.segments.get_mut(&id) {
                bytes.truncate(to_index(length));
            }
            let ranges = BTreeMap::new();
            let through = length;
            self.done.insert(id, Done { through, ranges });
        }
    }
}

fn slice(file: &[u8], range: Range) -> Bytes {
    let size = file.len() as u64;
    let (from, to) = (
        range.position.min(size),
        (range.position + range.length).min(size),
    );
    Bytes::copy_from_slice(&file[to_index(from)..to_index(to)])
}

fn append(partition: u32, batch: Batch) -> DataRequest {
    DataRequest::Append {
        key: key(partition),
        incarnation: FIRST,
        admitted: Op(7),
        batch,
    }
}

/// As much as there is.
fn query(strategy: PollStrategy, consumer: &str) -> ReadQuery<'_> {
    ReadQuery {
        strategy,
        consumer,
        max_messages: 1_000,
        max_bytes: 10_000_000,
    }
}

/// The stored batches of an answer; every one is a whole and right one.
fn stored_batches(answer: &Batches) -> Vec<Batch> {
    let mut bytes = Bytes::from(answer.parts.concat());
    assert_eq!(bytes.len() as u64, answer.size);
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let batch = Batch::read(&bytes).expect("a whole batch");
        assert!(batch.is_stamped());
        bytes = bytes.slice(batch.header.size as usize..);
        batches.push(batch);
    }
    batches
}

/// The messages of an answer from the wanted one on.
fn messages(answer: &Batches) -> Vec<Message> {
    let mut messages = Vec::new();
    for batch in stored_batches(answer) {
        for message in batch.messages() {
            let message = message.expect("the batch was checked");
            if message.offset >= answer.from {
                messages.push(message);
            }
        }
    }
    messages
}
