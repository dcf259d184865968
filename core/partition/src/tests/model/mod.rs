//! The state machine beside a naive model of it: lists in memory.

mod consumer_groups;
mod reference;

use proptest::prelude::*;

use super::*;
use crate::{Absent, files_at};
use consumer_groups::GroupAsk;
use reference::Model;

const PARTITIONS: u32 = 2;

/// An incarnation that no partition has.
const WRONG: Incarnation = Incarnation(5);

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
    Group(GroupAsk),
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
        30 => consumer_groups::group_ask().prop_map(Ask::Group),
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
        let results = self.node.apply_body(&body);
        assert_eq!(results.len(), expected.len());
        for ((request, result), expected) in requests.iter().zip(results).zip(expected) {
            let shown = |result| self.model.shown(request, result, self.node.time);
            assert_eq!(shown(result), shown(expected), "{request:?}");
        }
        self.check_groups();
        for partition in 0..PARTITIONS {
            let model = self.model.partitions.get(&partition);
            let end = model.map(|model| Offset(model.messages.len() as u64));
            let start = model.map(|model| Offset(model.start));
            assert_eq!(self.node.group.end(key(partition)), end);
            assert_eq!(self.node.group.start(key(partition)), start);
        }
    }

    fn request(&mut self, ask: Ask) -> DataRequest {
        let admitted = Op(self.metadata_op);
        match ask {
            Ask::Create {
                partition,
                newer,
                late,
            } => {
                self.metadata_op += 1;
                let op = self.metadata_op;
                let here = self.here(partition).filter(|_| !newer);
                DataRequest::CreatePartition {
                    key: key(partition),
                    incarnation: here.unwrap_or(Incarnation(op)),
                    admitted: if late { Op(op / 2) } else { Op(op) },
                }
            }
            Ask::Drop { partition } => {
                self.metadata_op += 1;
                DataRequest::DropPartition {
                    key: key(partition),
                    incarnation: self.here(partition).unwrap_or(WRONG),
                    dropped: Op(self.metadata_op),
                }
            }
            Ask::Append {
                partition,
                sizes,
                sequence,
                wrong,
            } => {
                let here = self.here(partition).filter(|_| !wrong);
                DataRequest::Append {
                    key: key(partition),
                    incarnation: here.unwrap_or(WRONG),
                    admitted,
                    batch: self.batch(partition, &sizes, sequence),
                }
            }
            Ask::Store {
                partition,
                consumer,
                at,
            } => DataRequest::StoreOffset {
                key: key(partition),
                incarnation: self.here(partition).unwrap_or(WRONG),
                admitted,
                consumer: consumer.to_string(),
                offset: Offset(self.place(partition, at)),
            },
            Ask::Delete {
                partition,
                consumer,
            } => DataRequest::DeleteOffset {
                key: key(partition),
                incarnation: self.here(partition).unwrap_or(WRONG),
                admitted,
                consumer: consumer.to_string(),
            },
            Ask::Truncate { partition, at } => DataRequest::TruncateHead {
                key: key(partition),
                incarnation: self.here(partition).unwrap_or(WRONG),
                offset: Offset(self.place(partition, at)),
            },
            Ask::Group(ask) => self.group_request(&ask),
        }
    }

    fn here(&self, partition: u32) -> Option<Incarnation> {
        let model = self.model.partitions.get(&partition);
        model.map(|model| model.incarnation)
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
            let answer = self.node.read(key(partition), WRONG, &query);
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
