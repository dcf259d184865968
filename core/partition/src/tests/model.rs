//! The state machine beside a naive model of it: lists in memory.

use proptest::prelude::*;

use super::*;
use crate::{Absent, Refusal, files_at};

const PARTITIONS: u32 = 2;

/// What a partition must be.
#[derive(Clone, Debug)]
struct ModelPartition {
    incarnation: Incarnation,
    start: u64,
    /// Time and payload by offset, removed ones too.
    messages: Vec<(u64, Bytes)>,
    /// Every batch of a producer: sequence, checksum, offset; the last sent producer is the last.
    producers: Vec<(u128, Vec<(u64, u64, u64)>)>,
    consumers: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Model {
    dropped: u64,
    partitions: BTreeMap<u32, ModelPartition>,
}

#[derive(Clone, Debug)]
enum Step {
    Prepare(Vec<Ask>),
    CarryOut(prop::sample::Index),
    Settle,
    Checkpoint,
    Crash,
    LoseIndexes,
    Read(Question),
}

/// A request, with what depends on the state left open.
#[derive(Clone, Debug)]
enum Ask {
    Create {
        partition: u32,
        newer: bool,
        late: bool,
    },
    Drop {
        partition: u32,
    },
    Append {
        partition: u32,
        sizes: Vec<u16>,
        sequence: Option<(u128, Sequence)>,
        wrong: bool,
    },
    Store {
        partition: u32,
        consumer: u8,
        at: u8,
    },
    Delete {
        partition: u32,
        consumer: u8,
    },
    Truncate {
        partition: u32,
        at: u8,
    },
}

#[derive(Clone, Copy, Debug)]
enum Sequence {
    Next,
    Back(u64),
    Gap,
    First,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    partition: u32,
    strategy: u8,
    at: u8,
    consumer: u8,
    max_messages: u32,
    max_bytes: u32,
}

fn partition() -> impl Strategy<Value = u32> {
    0..PARTITIONS
}

fn ask() -> impl Strategy<Value = Ask> {
    let sizes = prop_oneof![
        6 => proptest::collection::vec(0..200_u16, 1..5),
        1 => proptest::collection::vec(20_000..50_000_u16, 1..3),
    ];
    let sequence = prop_oneof![
        6 => Just(Sequence::Next),
        3 => (0..8_u64).prop_map(Sequence::Back),
        1 => Just(Sequence::Gap),
        1 => Just(Sequence::First),
    ];
    let producer = proptest::option::of((1..6_u128, sequence));
    let wrong = proptest::bool::weighted(0.03);
    prop_oneof![
        2 => (partition(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.2))
            .prop_map(|(partition, newer, late)| Ask::Create { partition, newer, late }),
        1 => partition().prop_map(|partition| Ask::Drop { partition }),
        40 => (partition(), sizes, producer, wrong).prop_map(|(partition, sizes, sequence, wrong)| {
            Ask::Append { partition, sizes, sequence, wrong }
        }),
        8 => (partition(), 0..4_u8, any::<u8>())
            .prop_map(|(partition, consumer, at)| Ask::Store { partition, consumer, at }),
        2 => (partition(), 0..4_u8).prop_map(|(partition, consumer)| Ask::Delete { partition, consumer }),
        2 => (partition(), any::<u8>()).prop_map(|(partition, at)| Ask::Truncate { partition, at }),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    (
        partition(),
        0..5_u8,
        any::<u8>(),
        0..4_u8,
        0..8_u32,
        prop_oneof![0..500_u32, 0..200_000_u32],
    )
        .prop_map(
            |(partition, strategy, at, consumer, max_messages, max_bytes)| Question {
                partition,
                strategy,
                at,
                consumer,
                max_messages,
                max_bytes,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => proptest::collection::vec(ask(), 1..4).prop_map(Step::Prepare),
        10 => any::<prop::sample::Index>().prop_map(Step::CarryOut),
        2 => Just(Step::Settle),
        2 => Just(Step::Checkpoint),
        2 => Just(Step::Crash),
        1 => Just(Step::LoseIndexes),
        20 => question().prop_map(Step::Read),
    ]
}

fn any_config() -> impl Strategy<Value = DataConfig> {
    let segment_size = prop::sample::select(alloc::vec![1, 900, 150_000, 1_000_000]);
    let tail_budget = prop::sample::select(alloc::vec![0, 3_000, 200_000]);
    let index_budget = prop::sample::select(alloc::vec![0, 100_000]);
    (segment_size, tail_budget, index_budget).prop_map(
        |(segment_size, tail_budget, index_budget)| DataConfig {
            segment_size,
            tail_budget,
            index_budget,
            producers_max: 3,
            consumers_max: 3,
            ..config()
        },
    )
}

/// A node beside its model.
struct Pair {
    node: Node,
    model: Model,
    snapshot: DataSnapshot,
    /// Prepares after the snapshot.
    journal: Vec<(u64, u64, Bytes)>,
    metadata_op: u64,
    fill: u8,
}

impl Pair {
    fn new(config: DataConfig) -> Self {
        let node = Node::new(config);
        Self {
            snapshot: node.group.snapshot(),
            node,
            model: Model::default(),
            journal: Vec::new(),
            metadata_op: 10,
            fill: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Prepare(asks) => self.prepare(asks),
            Step::CarryOut(index) => {
                if !self.node.queue.is_empty() {
                    let index = index.index(self.node.queue.len());
                    self.node.carry_out(index);
                }
            }
            Step::Settle => {
                self.node.settle();
                assert!(self.node.group.memory() <= self.node.group.config.tail_budget);
            }
            Step::Checkpoint => {
                self.snapshot = self.node.checkpoint();
                self.journal.clear();
            }
            Step::Crash => {
                let digest = self.node.group.digest();
                self.node.restart(&self.snapshot, &self.journal);
                assert_eq!(self.node.group.digest(), digest);
            }
            Step::LoseIndexes => self.node.files.indexes.clear(),
            Step::Read(question) => self.question(question),
        }
    }

    fn prepare(&mut self, asks: Vec<Ask>) {
        self.node.op += 1;
        self.node.time += 1 + u64::from(self.fill % 3);
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for ask in asks {
            let request = self.request(ask);
            expected.push(self.model.apply(self.node.time, &request));
            requests.push(request);
        }
        let body = encode_requests(&requests);
        self.journal
            .push((self.node.op, self.node.time, body.clone()));
        assert_eq!(self.node.apply_body(&body), expected);
        for partition in 0..PARTITIONS {
            let model = self.model.partitions.get(&partition);
            let end = model.map(|model| Offset(model.messages.len() as u64));
            let start = model.map(|model| Offset(model.start));
            assert_eq!(self.node.group.end(key(partition)), end);
            assert_eq!(self.node.group.start(key(partition)), start);
        }
    }

    fn request(&mut self, ask: Ask) -> DataRequest {
        let here = |model: &Model, partition| {
            model
                .partitions
                .get(&partition)
                .map(|model| model.incarnation)
        };
        let (incarnation, admitted) = (Incarnation(5), Op(self.metadata_op));
        match ask {
            Ask::Create {
                partition,
                newer,
                late,
            } => {
                let current = here(&self.model, partition).filter(|_| !newer);
                self.metadata_op += 1;
                let admitted = if late {
                    Op(self.metadata_op / 2)
                } else {
                    Op(self.metadata_op)
                };
                let incarnation = current.unwrap_or(Incarnation(self.metadata_op));
                DataRequest::CreatePartition {
                    key: key(partition),
                    incarnation,
                    admitted,
                }
            }
            Ask::Drop { partition } => {
                self.metadata_op += 1;
                let incarnation = here(&self.model, partition).unwrap_or(incarnation);
                let dropped = Op(self.metadata_op);
                DataRequest::DropPartition {
                    key: key(partition),
                    incarnation,
                    dropped,
                }
            }
            Ask::Append {
                partition,
                sizes,
                sequence,
                wrong,
            } => {
                let current = here(&self.model, partition).filter(|_| !wrong);
                let batch = self.batch(partition, &sizes, sequence);
                let incarnation = current.unwrap_or(incarnation);
                DataRequest::Append {
                    key: key(partition),
                    incarnation,
                    admitted,
                    batch,
                }
            }
            Ask::Store {
                partition,
                consumer,
                at,
            } => DataRequest::StoreOffset {
                key: key(partition),
                incarnation: here(&self.model, partition).unwrap_or(incarnation),
                admitted,
                consumer: consumer.to_string(),
                offset: Offset(self.place(partition, at)),
            },
            Ask::Delete {
                partition,
                consumer,
            } => DataRequest::DeleteOffset {
                key: key(partition),
                incarnation: here(&self.model, partition).unwrap_or(incarnation),
                admitted,
                consumer: consumer.to_string(),
            },
            Ask::Truncate { partition, at } => DataRequest::TruncateHead {
                key: key(partition),
                incarnation: here(&self.model, partition).unwrap_or(incarnation),
                offset: Offset(self.place(partition, at)),
            },
        }
    }

    /// An offset of the partition, or a little beyond its end.
    fn place(&self, partition: u32, at: u8) -> u64 {
        let end = self
            .model
            .partitions
            .get(&partition)
            .map_or(0, |model| model.messages.len() as u64);
        (end + 2) * u64::from(at) / 256
    }

    fn batch(
        &mut self,
        partition: u32,
        sizes: &[u16],
        sequence: Option<(u128, Sequence)>,
    ) -> Batch {
        let mut builder = BatchBuilder::new();
        self.fill = self.fill.wrapping_add(1);
        let (producer, sequence) = match sequence {
            Some((producer, sequence)) => {
                let sent = self.model.partitions.get(&partition);
                let sent =
                    sent.and_then(|model| model.producers.iter().find(|(id, _)| *id == producer));
                let last = sent
                    .and_then(|(_, batches)| batches.last())
                    .map_or(0, |(sequence, ..)| *sequence);
                let number = match sequence {
                    Sequence::Next => last + 1,
                    Sequence::Back(count) => last.saturating_sub(count).max(1),
                    Sequence::Gap => last + 2,
                    Sequence::First => 1,
                };
                (producer, number)
            }
            None => (0, 0),
        };
        // A producer's batch is known by its sequence, so that a repeated one has the same bytes, mostly.
        let fill = if sequence == 0 {
            self.fill
        } else {
            u8::try_from(sequence % 200).expect("small")
        };
        let sizes = if sequence == 0 { sizes } else { &sizes[..1] };
        for size in sizes {
            let size = if sequence == 0 {
                usize::from(*size)
            } else {
                usize::from(*size % 2)
            };
            builder.push(&Message {
                payload: Bytes::from(vec![fill; size]),
                ..Message::default()
            });
        }
        builder.build(ProducerId(producer), sequence)
    }

    fn question(&mut self, question: Question) {
        let Question {
            partition,
            at,
            max_messages,
            max_bytes,
            ..
        } = question;
        let consumer = question.consumer.to_string();
        let time = self.node.time * u64::from(at) / 255;
        let time = if at.is_multiple_of(2) {
            self.node.time.saturating_sub(u64::from(at) / 8)
        } else {
            time
        };
        let place = self.place(partition, at);
        let strategy = match question.strategy {
            0 => PollStrategy::First,
            1 => PollStrategy::Last,
            2 => PollStrategy::Next,
            3 => PollStrategy::Timestamp(Timestamp(time)),
            _ => PollStrategy::Offset(Offset(place)),
        };
        let query = ReadQuery {
            strategy,
            consumer: &consumer,
            max_messages,
            max_bytes,
        };
        let Some(model) = self.model.partitions.get(&partition) else {
            let answer = self.node.read(key(partition), Incarnation(5), &query);
            assert_eq!(answer, Err(PollError::Absent(Absent::NotHere)));
            return;
        };
        let answer = self.node.read(key(partition), model.incarnation, &query);
        let end = model.messages.len() as u64;
        let Some((from, skipped)) = model.position(&query) else {
            let (offset, start, end) = (Offset(place), Offset(model.start), Offset(end));
            assert_eq!(
                answer,
                Err(PollError::OffsetOutOfRange { offset, start, end })
            );
            return;
        };
        let answer = answer.expect("served");
        assert_eq!((answer.from, answer.skipped), (Offset(from), skipped));
        assert_eq!(
            (answer.start, answer.end),
            (Offset(model.start), Offset(end))
        );
        model.check_messages(&answer, &query);
    }
}

impl ModelPartition {
    /// Where a read begins and what it skips; `None` beyond the end.
    fn position(&self, query: &ReadQuery<'_>) -> Option<(u64, u64)> {
        let end = self.messages.len() as u64;
        let from = match query.strategy {
            PollStrategy::First => self.start,
            PollStrategy::Last => end
                .saturating_sub(u64::from(query.max_messages.max(1)))
                .max(self.start),
            PollStrategy::Next => self
                .consumers
                .get(query.consumer)
                .map_or(self.start, |stored| stored + 1),
            PollStrategy::Timestamp(time) => {
                let late = |(_, (sent, _)): &(u64, &(u64, Bytes))| *sent >= time.0;
                let served = (0..)
                    .zip(&self.messages)
                    .filter(|(offset, _)| *offset >= self.start);
                served
                    .into_iter()
                    .find(late)
                    .map_or(end, |(offset, _)| offset)
            }
            PollStrategy::Offset(offset) => offset.0,
        };
        let skipped = self.start.saturating_sub(from);
        (from <= end).then_some((from.max(self.start), skipped))
    }

    fn check_messages(&self, answer: &Batches, query: &ReadQuery<'_>) {
        let found = messages(answer);
        let batches = stored_batches(answer);
        if answer.from == answer.end {
            assert!(batches.is_empty());
            return;
        }
        assert!(!found.is_empty());
        for (expected, message) in (answer.from.0..).zip(&found) {
            assert_eq!(message.offset, Offset(expected));
            assert_eq!(message.payload, self.messages[message.offset.0 as usize].1);
        }
        for batch in &batches {
            let (time, _) = self.messages[batch.header.base_offset as usize];
            assert_eq!(batch.header.timestamp, time);
        }
        assert_eq!(answer.next, Offset(answer.from.0 + found.len() as u64));
        // Without its last batch the answer is within both limits.
        let last = batches.last().expect("there are messages");
        if batches.len() > 1 {
            assert!(answer.size <= u64::from(query.max_bytes));
            let before = last.header.base_offset - answer.from.0;
            assert!(before < u64::from(query.max_messages.max(1)));
        }
    }
}

impl Model {
    fn apply(&mut self, time: u64, request: &DataRequest) -> DataResult {
        self.try_apply(time, request)
            .unwrap_or_else(DataResult::Failed)
    }

    fn named(&mut self, request: &DataRequest) -> Result<&mut ModelPartition, Refusal> {
        let partition = request.key().partition.0;
        let model = self.partitions.get_mut(&partition).ok_or(Absent::NotHere)?;
        let (here, named) = (model.incarnation, request.incarnation());
        if here == named {
            Ok(model)
        } else {
            Err(Absent::OtherIncarnation { here, named }.into())
        }
    }

    fn try_apply(&mut self, time: u64, request: &DataRequest) -> Result<DataResult, Refusal> {
        let partition = request.key().partition.0;
        match request {
            DataRequest::CreatePartition {
                incarnation,
                admitted,
                ..
            } => {
                let here = self
                    .partitions
                    .get(&partition)
                    .map(|model| model.incarnation);
                match here {
                    None if admitted.0 < self.dropped => return Err(Absent::NotHere.into()),
                    Some(here) if here > *incarnation => {
                        let named = *incarnation;
                        return Err(Absent::OtherIncarnation { here, named }.into());
                    }
                    Some(here) if here == *incarnation => {}
                    None | Some(_) => {
                        let model = ModelPartition {
                            incarnation: *incarnation,
                            start: 0,
                            messages: Vec::new(),
                            producers: Vec::new(),
                            consumers: BTreeMap::new(),
                        };
                        self.partitions.insert(partition, model);
                    }
                }
                Ok(DataResult::Created)
            }
            DataRequest::DropPartition {
                incarnation,
                dropped,
                ..
            } => {
                self.dropped = self.dropped.max(dropped.0);
                if self
                    .partitions
                    .get(&partition)
                    .is_some_and(|model| model.incarnation <= *incarnation)
                {
                    self.partitions.remove(&partition);
                }
                Ok(DataResult::Dropped)
            }
            DataRequest::Append { batch, .. } => self.named(request)?.append(time, batch),
            DataRequest::StoreOffset {
                consumer, offset, ..
            } => self.named(request)?.store(consumer, *offset),
            DataRequest::DeleteOffset { consumer, .. } => {
                let deleted = self.named(request)?.consumers.remove(consumer);
                let stored = Offset(deleted.ok_or(Refusal::OffsetNotStored)?);
                Ok(DataResult::OffsetDeleted { stored })
            }
            DataRequest::TruncateHead { offset, .. } => {
                let model = self.named(request)?;
                if offset.0 > model.messages.len() as u64 {
                    return Err(model.out_of_range(*offset));
                }
                model.start = model.start.max(offset.0);
                let start = Offset(model.start);
                Ok(DataResult::HeadTruncated { start })
            }
        }
    }
}

impl ModelPartition {
    fn out_of_range(&self, offset: Offset) -> Refusal {
        let (start, end) = (Offset(self.start), Offset(self.messages.len() as u64));
        Refusal::OffsetOutOfRange { offset, start, end }
    }

    fn append(&mut self, time: u64, batch: &Batch) -> Result<DataResult, Refusal> {
        let (producer, sequence) = (batch.header.producer, batch.header.sequence);
        let offset = self.messages.len() as u64;
        if producer != 0 {
            let place = self.producers.iter().position(|(id, _)| *id == producer);
            let mut sent = match place {
                Some(place) => self.producers[place].1.clone(),
                None if sequence == 1 => Vec::new(),
                None => return Err(Refusal::ProducerUnknown { sequence }),
            };
            let last = sent.last().map_or(0, |(sequence, ..)| *sequence);
            if sequence > last + 1 {
                let expected = last + 1;
                return Err(Refusal::SequenceOutOfOrder { sequence, expected });
            }
            if let Some((_, checksum, offset)) =
                sent.iter().find(|(number, ..)| *number == sequence)
            {
                let base_offset = Offset(*offset);
                return if last - sequence >= 5 {
                    Err(Refusal::SequenceTooOld { sequence, last })
                } else if *checksum == batch.header.checksum {
                    Ok(DataResult::Appended {
                        base_offset,
                        repeated: true,
                    })
                } else {
                    Err(Refusal::SequenceReused {
                        sequence,
                        offset: base_offset,
                    })
                };
            }
            sent.push((sequence, batch.header.checksum, offset));
            self.producers.retain(|(id, _)| *id != producer);
            self.producers.push((producer, sent));
            if self.producers.len() > 3 {
                self.producers.remove(0);
            }
        }
        for message in batch.messages() {
            self.messages
                .push((time, message.expect("built here").payload));
        }
        Ok(DataResult::Appended {
            base_offset: Offset(offset),
            repeated: false,
        })
    }

    fn store(&mut self, consumer: &str, offset: Offset) -> Result<DataResult, Refusal> {
        if offset.0 >= self.messages.len() as u64 {
            return Err(self.out_of_range(offset));
        }
        if !self.consumers.contains_key(consumer) && self.consumers.len() == 3 {
            return Err(Refusal::TooManyConsumers { limit: 3 });
        }
        let stored = self
            .consumers
            .entry(consumer.to_string())
            .or_insert(offset.0);
        *stored = offset.0.max(*stored);
        Ok(DataResult::Stored {
            stored: Offset(*stored),
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn state_machine_equals_its_model(
        config in any_config(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(config);
        let create = |partition| Ask::Create { partition, newer: false, late: false };
        pair.take(Step::Prepare((0..PARTITIONS).map(create).collect()));
        for step in steps {
            pair.take(step);
        }
        // In the end every message is read once more, from files alone.
        pair.take(Step::Checkpoint);
        pair.take(Step::Crash);
        let known = files_at(&pair.snapshot);
        prop_assert_eq!(known.len(), pair.node.files.segments.len());
        for partition in 0..PARTITIONS {
            let Some(model) = pair.model.partitions.get(&partition).cloned() else { continue };
            let mut offset = model.start;
            while offset < model.messages.len() as u64 {
                let strategy = PollStrategy::Offset(Offset(offset));
                let query = query(strategy, "");
                let answer = pair.node.read(key(partition), model.incarnation, &query).expect("served");
                model.check_messages(&answer, &query);
                offset = answer.next.0;
            }
        }
    }
}
