//! Exact effects of a consumer.

use alloc::{string::ToString, vec, vec::Vec};

use bytes::Bytes;
use wire::{
    BatchBuilder, Command, Compression, ErrorCode, Failure, Identifier, Message, Offset,
    OffsetResult, Offsets, OffsetsStored, PartitionId, PollMessages, PollResult, PollStrategy,
    Polled, ProducerId, ReplicaId, Reply, Request, StoreResult, Time, Timestamp,
};

use super::{
    Call, Consumer, ConsumerConfig, ConsumerEffect, ConsumerError, ConsumerEvent, ConsumerInput,
    Start, StoreMode,
};
use crate::ClientError;

const MS: u64 = 1_000_000;
const P0: PartitionId = PartitionId(0);
const P1: PartitionId = PartitionId(1);

struct Driver {
    consumer: Consumer,
    now: u64,
}

/// A partition as the server tells of it: id, start, end, stored.
type Told = (PartitionId, u64, u64, Option<u64>);

impl Driver {
    fn new(partitions: &[PartitionId], change: impl FnOnce(&mut ConsumerConfig)) -> Self {
        let id = Identifier::Number(1);
        let mut config = ConsumerConfig::new(id.clone(), id, "reader".to_string(), 1);
        config.partitions = Some(partitions.to_vec());
        change(&mut config);
        let mut driver = Self {
            consumer: Consumer::new(Time::default(), config),
            now: 0,
        };
        driver.input(ConsumerInput::Tick);
        driver
    }

    /// A consumer of one partition that has asked for its offsets and was told.
    fn told(told: Told, change: impl FnOnce(&mut ConsumerConfig)) -> (Self, Call, PollMessages) {
        let mut driver = Self::new(&[told.0], change);
        driver.tell(&[told]);
        let (call, poll) = driver.polled();
        (driver, call, poll)
    }

    fn tell(&mut self, told: &[Told]) {
        let (call, request) = self.submitted();
        assert_eq!(request.command(), Command::GetConsumerOffset);
        let sections = told
            .iter()
            .map(|(partition, start, end, stored)| OffsetResult {
                partition: *partition,
                status: Ok(()),
                primary: ReplicaId(0),
                start: Offset(*start),
                end: Offset(*end),
                stored: stored.map(Offset),
            });
        self.answer(
            call,
            Reply::Offsets(Offsets {
                sections: sections.collect(),
            }),
        );
    }

    fn time(&self) -> Time {
        Time {
            monotonic: self.now,
            wall: Timestamp(0),
        }
    }

    fn input(&mut self, input: ConsumerInput) {
        self.consumer.handle(self.time(), input);
    }

    fn answer(&mut self, call: Call, reply: Reply) {
        self.input(ConsumerInput::Answered {
            call,
            result: Ok(reply),
        });
    }

    fn fail(&mut self, call: Call, error: ClientError) {
        self.input(ConsumerInput::Answered {
            call,
            result: Err(error),
        });
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms * MS;
        self.input(ConsumerInput::Tick);
    }

    fn wait(&mut self) -> u64 {
        let before = self.now;
        self.now = self.consumer.deadline().expect("something is due");
        assert!(self.now > before, "the deadline is over");
        self.input(ConsumerInput::Tick);
        (self.now - before) / MS
    }

    fn effects(&mut self) -> Vec<ConsumerEffect> {
        core::iter::from_fn(|| self.consumer.next_effect()).collect()
    }

    fn submitted(&mut self) -> (Call, Request) {
        let mut effects = self.effects();
        assert_eq!(effects.len(), 1, "{effects:?}");
        let effect = effects.remove(0);
        let ConsumerEffect::Submit { call, request, .. } = effect else {
            panic!("{effect:?}")
        };
        (call, request)
    }

    fn polled(&mut self) -> (Call, PollMessages) {
        let (call, request) = self.submitted();
        let Request::PollMessages(poll) = request else {
            panic!("{request:?}")
        };
        (call, poll)
    }

    /// What is to be stored, by partition.
    fn storing(&mut self) -> (Call, Vec<(PartitionId, u64)>) {
        let (call, request) = self.submitted();
        let Request::StoreConsumerOffset(store) = request else {
            panic!("{request:?}")
        };
        (
            call,
            store
                .sections
                .iter()
                .map(|section| (section.partition, section.offset.0))
                .collect(),
        )
    }

    fn stored(&mut self, call: Call, stored: &[(PartitionId, Result<u64, ErrorCode>)]) {
        let sections = stored.iter().map(|(partition, result)| StoreResult {
            partition: *partition,
            status: result.map(|_| ()).map_err(|code| Failure::new(code, "no")),
            primary: ReplicaId(0),
            stored: result.ok().map(Offset),
        });
        self.answer(
            call,
            Reply::OffsetsStored(OffsetsStored {
                sections: sections.collect(),
            }),
        );
    }

    /// Answers a poll with one batch per partition: base offset and count.
    fn serve(&mut self, call: Call, batches: &[(PartitionId, u64, u32)]) {
        let sections = batches
            .iter()
            .map(|(partition, base, count)| section(*partition, *base, *base, *count));
        self.answer(
            call,
            Reply::Polled(Polled {
                sections: sections.collect(),
            }),
        );
    }

    fn next(&mut self) -> Option<(PartitionId, u64)> {
        let delivery = self.consumer.next_message(self.time())?;
        Some((delivery.partition, delivery.message.offset.0))
    }

    fn event(&mut self) -> ConsumerEvent {
        let events = self
            .effects()
            .into_iter()
            .filter_map(|effect| match effect {
                ConsumerEffect::Event(event) => Some(event),
                ConsumerEffect::Submit { .. } => None,
            });
        let mut events = events.collect::<Vec<_>>();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

/// A batch of `count` messages from `base`, of which those before `from` are not wanted.
fn section(partition: PartitionId, from: u64, base: u64, count: u32) -> PollResult {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(&Message::default());
    }
    let end = base + u64::from(count);
    let batch = (count > 0).then(|| {
        builder
            .build(ProducerId(0), 0)
            .stamped(Offset(base), Timestamp(7))
            .to_bytes()
    });
    PollResult {
        partition,
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(end),
        stored: None,
        from: Offset(from),
        next: Offset(end),
        batches: batch.into_iter().collect(),
    }
}

fn refused_section(partition: PartitionId, code: ErrorCode) -> PollResult {
    PollResult {
        status: Err(Failure::new(code, "no")),
        ..section(partition, 0, 0, 0)
    }
}

fn timed_out() -> ClientError {
    ClientError::TimedOut {
        command: Command::StoreConsumerOffset,
        waited_ms: 1,
        sent: true,
    }
}

#[test]
fn nothing_stored_and_offset_0_stored_are_different() {
    // R32: 100 messages; what is stored, where reading goes on.
    for (stored, next) in [(None, 0), (Some(0), 1), (Some(98), 99), (Some(99), 100)] {
        let (driver, _, poll) = Driver::told((P0, 0, 100, stored), |_| {});
        assert_eq!(
            poll.sections[0].strategy,
            PollStrategy::Offset(Offset(next))
        );
        let progress = driver.consumer.progress().next().unwrap();
        assert_eq!(progress.next, Some(Offset(next)));
        assert_eq!(progress.stored, stored.map(Offset));
        assert_eq!(progress.end.unwrap().0 - next, 100 - next);
    }
}

#[test]
fn the_start_counts_when_nothing_is_stored() {
    let offset = |offset| PollStrategy::Offset(Offset(offset));
    let cases = [
        (Start::First, offset(10)),
        (Start::Offset(Offset(5)), offset(10)),
        (Start::Offset(Offset(50)), offset(50)),
        (Start::Last(1), offset(99)),
        (Start::Last(1_000), offset(10)),
        (
            Start::Timestamp(Timestamp(77)),
            PollStrategy::Timestamp(Timestamp(77)),
        ),
    ];
    for (start, strategy) in cases {
        let told = (P0, 10, 100, None);
        let mut driver = Driver::new(&[P0], |config| {
            config.start = start;
            config.store = StoreMode::Never;
        });
        driver.tell(&[told]);
        assert_eq!(driver.polled().1.sections[0].strategy, strategy);
        // What is stored comes first, unless it is not asked for.
        let (_, _, poll) = Driver::told((P0, 10, 100, Some(20)), |config| config.start = start);
        assert_eq!(poll.sections[0].strategy, offset(21));
        let (_, _, poll) = Driver::told((P0, 10, 100, Some(20)), |config| {
            config.start = start;
            config.resume = false;
        });
        assert_eq!(poll.sections[0].strategy, strategy);
    }
}

#[test]
fn an_offset_that_is_not_there_yet_is_waited_for() {
    let start = |config: &mut ConsumerConfig| config.start = Start::Offset(Offset(12));
    let (mut driver, call, poll) = Driver::told((P0, 0, 10, None), start);
    assert_eq!(poll.sections[0].strategy, PollStrategy::Offset(Offset(10)));
    assert_eq!(
        driver.consumer.progress().next().unwrap().next,
        Some(Offset(12))
    );
    driver.serve(call, &[(P0, 10, 1)]);
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 11, 3)]);
    let offsets = core::iter::from_fn(|| driver.next())
        .map(|(_, offset)| offset)
        .collect::<Vec<_>>();
    assert_eq!(offsets, [12, 13]);
}

#[test]
fn a_start_at_the_end_is_resolved_once_and_stored() {
    let mut driver = Driver::new(&[P0], |config| config.start = Start::Last(0));
    driver.tell(&[(P0, 0, 100, None)]);
    let mut effects = driver.effects();
    let Some(ConsumerEffect::Submit { request, .. }) = effects.pop() else {
        panic!("{effects:?}")
    };
    let Request::StoreConsumerOffset(store) = request else {
        panic!("{request:?}")
    };
    assert_eq!(store.sections[0].offset, Offset(99));
    let Some(ConsumerEffect::Submit { request, .. }) = effects.pop() else {
        panic!("{effects:?}")
    };
    let Request::PollMessages(poll) = request else {
        panic!("{request:?}")
    };
    assert_eq!(poll.sections[0].strategy, PollStrategy::Offset(Offset(100)));
}

#[test]
fn whole_batches_are_trimmed_to_what_is_wanted() {
    let (mut driver, call, _) = Driver::told((P0, 0, 100, Some(11)), |_| {});
    let answer = Polled {
        sections: vec![section(P0, 12, 10, 5)],
    };
    driver.answer(call, Reply::Polled(answer));
    let (_, poll) = driver.polled();
    assert_eq!(poll.sections[0].strategy, PollStrategy::Offset(Offset(15)));
    let offsets = core::iter::from_fn(|| driver.next())
        .map(|(_, offset)| offset)
        .collect::<Vec<_>>();
    assert_eq!(offsets, [12, 13, 14]);
}

#[test]
fn a_message_counts_as_processed_when_the_next_one_is_asked_for() {
    let (mut driver, call, _) = Driver::told((P0, 0, 3, None), |_| {});
    driver.serve(call, &[(P0, 0, 3)]);
    driver.effects();
    assert_eq!(driver.next(), Some((P0, 0)));
    driver.advance(1_000);
    assert_eq!(
        driver.effects(),
        [],
        "the first message is still in its handler"
    );
    assert_eq!(driver.next(), Some((P0, 1)));
    assert_eq!(driver.next(), Some((P0, 2)));
    assert_eq!(driver.wait(), 100);
    let (call, stored) = driver.storing();
    assert_eq!(stored, [(P0, 1)]);
    driver.stored(call, &[(P0, Ok(1))]);
    driver.advance(1_000);
    assert_eq!(driver.effects(), []);

    driver.consumer.settle_last();
    driver.input(ConsumerInput::Flush);
    assert!(!driver.consumer.is_stored());
    let (call, stored) = driver.storing();
    assert_eq!(stored, [(P0, 2)]);
    driver.stored(call, &[(P0, Ok(2))]);
    assert!(driver.consumer.is_stored());
}

#[test]
fn many_processed_messages_are_stored_before_the_interval_is_over() {
    let (mut driver, call, _) =
        Driver::told((P0, 0, 10, Some(4)), |config| config.store_messages = 3);
    driver.serve(call, &[(P0, 5, 5)]);
    driver.effects();
    for _ in 0..3 {
        driver.next();
        assert_eq!(driver.effects(), []);
    }
    driver.next();
    assert_eq!(driver.storing().1, [(P0, 7)]);
}

#[test]
fn acknowledgements_out_of_order_store_what_is_complete() {
    let manual = |config: &mut ConsumerConfig| config.store = StoreMode::Manual;
    let (mut driver, call, _) = Driver::told((P0, 0, 4, None), manual);
    driver.serve(call, &[(P0, 0, 4)]);
    driver.effects();
    while driver.next().is_some() {}
    driver.advance(1_000);
    assert_eq!(driver.effects(), []);
    let time = driver.time();
    assert!(driver.consumer.acknowledge(time, P0, Offset(1)));
    assert!(!driver.consumer.acknowledge(time, P0, Offset(1)));
    assert!(!driver.consumer.acknowledge(time, P1, Offset(0)));
    driver.advance(1_000);
    assert_eq!(driver.effects(), []);
    let time = driver.time();
    assert!(driver.consumer.acknowledge(time, P0, Offset(0)));
    driver.wait();
    let (call, stored) = driver.storing();
    assert_eq!(stored, [(P0, 1)]);
    // Named offsets need no acknowledgement and no interval, but wait for the store under way.
    let time = driver.time();
    assert!(driver.consumer.store(time, P0, Offset(3)));
    assert_eq!(driver.effects(), []);
    driver.stored(call, &[(P0, Ok(1))]);
    assert_eq!(driver.storing().1, [(P0, 3)]);
}

#[test]
fn a_store_in_doubt_is_repeated_and_one_that_is_refused_is_told() {
    let manual = |config: &mut ConsumerConfig| config.store = StoreMode::Manual;
    let (mut driver, _, _) = Driver::told((P0, 0, 4, None), manual);
    let time = driver.time();
    driver.consumer.store(time, P0, Offset(1));
    let (call, _) = driver.storing();
    driver.fail(call, timed_out());
    assert_eq!(
        driver.event(),
        ConsumerEvent::Retrying { error: timed_out() }
    );
    assert!(!driver.consumer.is_stored());
    driver.wait();
    let (call, stored) = driver.storing();
    assert_eq!(stored, [(P0, 1)]);
    driver.stored(call, &[(P0, Err(ErrorCode::OffsetOutOfRange))]);
    let failure = Failure::new(ErrorCode::OffsetOutOfRange, "no");
    let refused = ConsumerEvent::StoreRefused {
        partition: P0,
        offset: Offset(1),
        failure,
    };
    assert_eq!(driver.event(), refused);
    assert!(driver.consumer.is_stored());
    let time = driver.time();
    driver.consumer.store(time, P0, Offset(2));
    assert_eq!(driver.storing().1, [(P0, 2)]);
}

#[test]
fn a_busy_partition_does_not_starve_the_others() {
    let mut driver = Driver::new(&[P0, P1], |config| config.store = StoreMode::Never);
    driver.tell(&[(P0, 0, 500, None), (P1, 0, 1, None)]);
    let (call, poll) = driver.polled();
    assert_eq!(poll.sections.len(), 2);
    driver.serve(call, &[(P0, 0, 500), (P1, 0, 1)]);
    let order = core::iter::from_fn(|| driver.next()).collect::<Vec<_>>();
    assert_eq!(order.len(), 501);
    let turn = order
        .iter()
        .position(|(partition, _)| *partition == P1)
        .unwrap();
    assert!(turn <= 64, "{turn}");
}

#[test]
fn polls_stop_while_the_buffer_is_full_and_leave_full_partitions_out() {
    let mut driver = Driver::new(&[P0, P1], |config| {
        config.store = StoreMode::Never;
        config.buffer_size_max = 1_000;
    });
    driver.tell(&[(P0, 0, 500, None), (P1, 0, 500, None)]);
    let (call, _) = driver.polled();
    driver.serve(call, &[(P0, 0, 20), (P1, 0, 0)]);
    // The first partition has more than its half.
    let (call, poll) = driver.polled();
    assert_eq!(
        poll.sections
            .iter()
            .map(|section| section.partition)
            .collect::<Vec<_>>(),
        [P1]
    );
    driver.serve(call, &[(P1, 0, 20)]);
    assert_eq!(driver.effects(), []);
    let mut polls = 0;
    while driver.next().is_some() {
        polls += driver.effects().len();
    }
    assert!(polls > 0);
}

#[test]
fn the_last_place_for_polls_is_not_taken_for_a_long_wait() {
    let partitions = [P0, P1, PartitionId(2)];
    let mut driver = Driver::new(&partitions, |config| {
        config.polls_max = 2;
        config.store = StoreMode::Never;
    });
    driver.tell(&partitions.map(|partition| (partition, 0, 0, None)));
    let (first, poll) = driver.polled();
    assert_eq!((poll.sections.len(), poll.max_wait_ms), (3, 5_000));
    let sections = vec![
        section(P0, 0, 0, 1),
        refused_section(P1, ErrorCode::Retry),
        section(PartitionId(2), 0, 0, 0),
    ];
    driver.answer(first, Reply::Polled(Polled { sections }));
    let mut effects = driver.effects();
    let Some(ConsumerEffect::Submit {
        request: Request::PollMessages(poll),
        ..
    }) = effects.pop()
    else {
        panic!("{effects:?}")
    };
    assert_eq!((poll.sections.len(), poll.max_wait_ms), (2, 5_000));
    driver.wait();
    let (_, poll) = driver.polled();
    assert_eq!((poll.sections[0].partition, poll.max_wait_ms), (P1, 20));
}

#[test]
fn what_was_removed_by_retention_is_told_and_passed_over() {
    let (mut driver, call, _) = Driver::told((P0, 0, 100, Some(9)), |_| {});
    let answer = Polled {
        sections: vec![section(P0, 40, 40, 2)],
    };
    driver.answer(call, Reply::Polled(answer));
    let (partition, from, to) = (P0, Offset(10), Offset(40));
    assert_eq!(
        driver.event(),
        ConsumerEvent::Skipped {
            partition,
            from,
            to
        }
    );
    assert_eq!(driver.next(), Some((P0, 40)));
}

/// The polls among what the consumer wants: call, node, partitions.
fn polls(driver: &mut Driver) -> Vec<(Call, Option<u8>, Vec<PartitionId>)> {
    let mut polls = Vec::new();
    for effect in driver.effects() {
        if let ConsumerEffect::Submit {
            call,
            request: Request::PollMessages(poll),
            node,
            ..
        } = effect
        {
            let sections = poll.sections.iter().map(|section| section.partition);
            polls.push((call, node.map(|node| node.0), sections.collect()));
        }
    }
    polls
}

fn answered_by(node: u8, section: PollResult) -> PollResult {
    PollResult {
        primary: ReplicaId(node),
        ..section
    }
}

#[test]
fn a_partition_of_another_node_is_polled_there() {
    let mut driver = Driver::new(&[P0, P1], |config| config.store = StoreMode::Never);
    driver.tell(&[(P0, 0, 5, None), (P1, 0, 5, None)]);
    let (call, _) = driver.polled();
    let sections = vec![
        answered_by(1, refused_section(P0, ErrorCode::NotPrimary)),
        section(P1, 0, 0, 1),
    ];
    driver.answer(call, Reply::Polled(Polled { sections }));
    let sent = polls(&mut driver);
    let mut sent: Vec<_> = sent
        .iter()
        .map(|(_, node, own)| (*node, &own[..]))
        .collect();
    sent.sort_unstable();
    assert_eq!(sent, [(Some(0), &[P1][..]), (Some(1), &[P0])]);
}

#[test]
fn a_partition_whose_node_cannot_be_asked_is_polled_alone_for_a_while() {
    let mut driver = Driver::new(&[P0, P1], |config| config.store = StoreMode::Never);
    driver.tell(&[(P0, 0, 5, None), (P1, 0, 5, None)]);
    let (call, _) = driver.polled();
    // They are refused by another node, for the one that was to be asked is out of reach.
    let refused = |partition| refused_section(partition, ErrorCode::NotPrimary);
    let sections = vec![refused(P0), refused(P1)];
    driver.answer(call, Reply::Polled(Polled { sections }));
    let alone = polls(&mut driver);
    let mut partitions: Vec<_> = alone.iter().map(|(.., own)| &own[..]).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [[P0], [P1]]);
    // Both are answered with nothing while the polls may wait no longer: then they go together again.
    driver.now += 1_000 * MS;
    for (call, ..) in &alone {
        let error = ClientError::Refused(Failure::new(ErrorCode::Busy, "no"));
        driver.fail(*call, error);
    }
    driver.effects();
    driver.advance(100);
    let together = polls(&mut driver);
    assert_eq!(together.len(), 1);
    assert_eq!(together[0].2.len(), 2);
}

#[test]
fn a_node_where_nothing_happens_keeps_no_other_from_being_polled() {
    let mut driver = Driver::new(&[P0, P1], |config| {
        config.store = StoreMode::Never;
        config.polls_max = 1;
    });
    driver.tell(&[(P0, 0, 5, None), (P1, 0, 5, None)]);
    let (call, _) = driver.polled();
    let sections = vec![section(P0, 0, 0, 1), answered_by(1, section(P1, 0, 0, 1))];
    driver.answer(call, Reply::Polled(Polled { sections }));
    let sent = polls(&mut driver);
    assert_eq!(sent.len(), 2);
    // One of them waits; the other is answered and asked again, time after time.
    let mut call = sent.iter().find(|(_, node, _)| *node == Some(1)).unwrap().0;
    for base in 1..5 {
        let sections = vec![answered_by(1, section(P1, base, base, 1))];
        driver.answer(call, Reply::Polled(Polled { sections }));
        let sent = polls(&mut driver);
        let [(next, Some(1), own)] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!(own, &[P1]);
        call = *next;
    }
}

#[test]
fn another_primary_ends_the_pause_of_what_waits_for_one() {
    for (code, wakes) in [(ErrorCode::NotReady, true), (ErrorCode::Busy, false)] {
        let mut driver = Driver::new(&[P0], |config| config.store = StoreMode::Never);
        driver.tell(&[(P0, 0, 5, None)]);
        let (mut call, _) = driver.polled();
        for attempt in 0..5 {
            let sections = vec![refused_section(P0, code)];
            driver.answer(call, Reply::Polled(Polled { sections }));
            driver.effects();
            let waited = driver.wait();
            let longest = if wakes { 4 } else { 50 } << attempt;
            assert!(waited <= longest, "{waited} ms");
            call = driver.polled().0;
        }
        let sections = vec![refused_section(P0, code)];
        driver.answer(call, Reply::Polled(Polled { sections }));
        driver.effects();
        driver.input(ConsumerInput::PrimaryChanged);
        assert_eq!(driver.effects().len(), usize::from(wakes));
    }
}

#[test]
fn what_cannot_be_read_ends_its_partition_only() {
    let mut driver = Driver::new(&[P0, P1], |config| config.store = StoreMode::Never);
    driver.tell(&[(P0, 0, 5, None), (P1, 0, 5, None)]);
    let (call, _) = driver.polled();
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: Bytes::from_static(b"payload"),
        ..Message::default()
    });
    let batch = builder.build_compressed(ProducerId(0), 0, Compression::Lz4, vec![1, 2, 3]);
    let mut compressed = section(P0, 0, 0, 1);
    compressed.batches = vec![batch.stamped(Offset(0), Timestamp(0)).to_bytes()];
    let sections = vec![compressed, section(P1, 0, 0, 1)];
    driver.answer(call, Reply::Polled(Polled { sections }));
    let event = driver.event();
    let ConsumerEvent::PartitionFailed {
        partition: P0,
        error,
    } = event
    else {
        panic!("{event:?}")
    };
    assert!(matches!(
        error,
        ConsumerError::Compressed {
            compression: Compression::Lz4,
            ..
        }
    ));
    assert_eq!(driver.next(), Some((P1, 0)));
    assert!(!driver.consumer.is_finished());
}

#[test]
fn a_damaged_batch_is_not_delivered() {
    let (mut driver, call, _) = Driver::told((P0, 0, 5, None), |_| {});
    let mut damaged = section(P0, 0, 0, 1);
    let mut bytes = damaged.batches[0].to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    damaged.batches[0] = Bytes::from(bytes);
    driver.answer(
        call,
        Reply::Polled(Polled {
            sections: vec![damaged],
        }),
    );
    let event = driver.event();
    assert!(matches!(
        event,
        ConsumerEvent::PartitionFailed {
            error: ConsumerError::Damaged { .. },
            ..
        }
    ));
    assert_eq!(driver.next(), None);
}

#[test]
fn stopping_at_the_end_delivers_what_was_there() {
    let mut driver = Driver::new(&[P0, P1], |config| config.stop_at_end = true);
    assert!(!driver.consumer.is_finished());
    driver.tell(&[(P0, 0, 2, None), (P1, 0, 0, None)]);
    let (call, poll) = driver.polled();
    assert_eq!(
        (poll.sections.len(), poll.max_wait_ms, poll.min_bytes),
        (1, 0, 0)
    );
    // A third message came meanwhile, in the same batch.
    driver.serve(call, &[(P0, 0, 3)]);
    assert_eq!(driver.next(), Some((P0, 0)));
    assert_eq!(driver.next(), Some((P0, 1)));
    assert!(!driver.consumer.is_finished());
    assert_eq!(driver.next(), None);
    assert!(driver.consumer.is_finished());
}

#[test]
fn a_time_without_messages_stays_the_position() {
    let since = |config: &mut ConsumerConfig| config.start = Start::Timestamp(Timestamp(50));
    let (mut driver, call, _) = Driver::told((P0, 0, 9, None), since);
    driver.answer(
        call,
        Reply::Polled(Polled {
            sections: vec![section(P0, 9, 9, 0)],
        }),
    );
    let (call, poll) = driver.polled();
    assert_eq!(
        poll.sections[0].strategy,
        PollStrategy::Timestamp(Timestamp(50))
    );
    driver.serve(call, &[(P0, 12, 1)]);
    assert_eq!(
        driver.polled().1.sections[0].strategy,
        PollStrategy::Offset(Offset(13))
    );
    assert_eq!(driver.next(), Some((P0, 12)));
}

#[test]
fn an_answer_from_before_a_seek_is_dropped() {
    let (mut driver, call, _) = Driver::told((P0, 0, 9, Some(5)), |_| {});
    let time = driver.time();
    assert!(driver.consumer.seek(time, P0, Start::First));
    assert!(!driver.consumer.seek(time, P1, Start::First));
    let (offsets, request) = driver.submitted();
    assert_eq!(request.command(), Command::GetConsumerOffset);
    driver.serve(call, &[(P0, 6, 2)]);
    assert_eq!(driver.next(), None);
    let told = OffsetResult {
        partition: P0,
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(9),
        stored: Some(Offset(5)),
    };
    driver.answer(
        offsets,
        Reply::Offsets(Offsets {
            sections: vec![told],
        }),
    );
    assert_eq!(
        driver.polled().1.sections[0].strategy,
        PollStrategy::Offset(Offset(0))
    );
}

#[test]
fn nothing_is_fetched_ahead_when_fetching_means_storing() {
    let (mut driver, call, poll) = Driver::told((P0, 0, 9, None), |config| {
        config.store = StoreMode::BeforeDelivery;
    });
    assert!(poll.commit_on_poll);
    driver.serve(call, &[(P0, 0, 2)]);
    for _ in 0..2 {
        assert_eq!(driver.effects(), []);
        assert!(driver.next().is_some());
    }
    assert_eq!(driver.next(), None);
    driver.polled();
    driver.advance(10_000);
    assert_eq!(driver.effects(), []);
}

#[test]
fn failures_that_pass_are_told_and_repeated_and_others_end_it() {
    let (mut driver, call, _) = Driver::told((P0, 0, 9, None), |_| {});
    driver.fail(call, timed_out());
    assert_eq!(
        driver.event(),
        ConsumerEvent::Retrying { error: timed_out() }
    );
    let waited = driver.wait();
    assert!((25..=50).contains(&waited), "{waited} ms");
    let (call, _) = driver.polled();
    let gone = ClientError::Refused(Failure::new(ErrorCode::TopicNotFound, "no such topic"));
    driver.fail(call, gone.clone());
    assert_eq!(
        driver.event(),
        ConsumerEvent::Failed(ConsumerError::Request(gone))
    );
    assert!(driver.consumer.is_finished() && driver.consumer.is_failed());
    assert_eq!(driver.consumer.deadline(), None);
}
