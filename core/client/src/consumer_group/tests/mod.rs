//! Exact effects of a member.

mod rules;

use alloc::{string::ToString, vec::Vec};
use core::time::Duration;

use bytes::Bytes;
use wire::{
    AssignedPartition, AssignmentChanged, BatchBuilder, ConsumerGroupAssignment, ConsumerGroupId,
    Epoch, ErrorCode, Event, Failure, Generation, Identifier, Incarnation, MemberId, Message,
    Offset, OffsetsStored, PartitionId, PartitionsReleased, PollMessages, PollResult, Polled,
    ProducerId, ReleasePartition, ReleaseResult, ReplicaId, Reply, Request, RevokingPartition,
    StoreConsumerOffset, StoreResult, StreamId, Time, Timestamp, TopicId,
};

use super::{Call, GroupConsumer, GroupConsumerConfig, GroupEffect, GroupEvent, GroupInput};
use crate::ClientError;

const MS: u64 = 1_000_000;
const P0: PartitionId = PartitionId(0);
const P1: PartitionId = PartitionId(1);

struct Driver {
    consumer: GroupConsumer,
    now: u64,
    requests: Vec<(Call, Request)>,
    /// The nodes that requests were for.
    nodes: Vec<Option<ReplicaId>>,
    events: Vec<GroupEvent>,
}

/// An assignment: generation, owned (partition, epoch, held since), revoking (partition, epoch, held since,
/// planned).
type Told<'a> = (u64, &'a [(u32, u64, u64)], &'a [(u32, u64, u64, u64)]);

impl Driver {
    fn new(change: impl FnOnce(&mut GroupConsumerConfig)) -> Self {
        let name = |name: &str| Identifier::Name(name.to_string());
        let mut config = GroupConsumerConfig::new(name("s"), name("t"), name("g"), 1);
        config.sync_interval = Duration::from_hours(1);
        change(&mut config);
        let mut driver = Self {
            consumer: GroupConsumer::new(Time::default(), config),
            now: 0,
            requests: Vec::new(),
            nodes: Vec::new(),
            events: Vec::new(),
        };
        driver.input(GroupInput::Tick);
        driver
    }

    /// A member with an assignment.
    fn member(told: Told<'_>, change: impl FnOnce(&mut GroupConsumerConfig)) -> Self {
        let mut driver = Self::new(change);
        driver.answer_join(told);
        driver
    }

    fn answer_join(&mut self, told: Told<'_>) {
        let (call, request) = self.requests.remove(0);
        assert!(
            matches!(request, Request::JoinConsumerGroup(_)),
            "{request:?}"
        );
        self.answer(call, assignment(told));
    }

    fn time(&self) -> Time {
        Time {
            monotonic: self.now,
            wall: Timestamp(0),
        }
    }

    fn input(&mut self, input: GroupInput) {
        self.consumer.handle(self.time(), input);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(effect) = self.consumer.next_effect() {
            match effect {
                GroupEffect::Submit {
                    call,
                    request,
                    node,
                    ..
                } => {
                    self.requests.push((call, request));
                    self.nodes.push(node);
                }
                GroupEffect::Event(event) => self.events.push(event),
            }
        }
    }

    fn answer(&mut self, call: Call, reply: Reply) {
        let result = Ok(reply);
        self.input(GroupInput::Answered { call, result });
    }

    fn fail(&mut self, call: Call, code: ErrorCode) {
        let result = Err(ClientError::Refused(Failure::new(
            code,
            "10.0.0.7:99 has it",
        )));
        self.input(GroupInput::Answered { call, result });
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms * MS;
        self.input(GroupInput::Tick);
    }

    /// Tells of a generation, answers the sync that comes of it.
    fn sync(&mut self, told: Told<'_>) {
        self.tell(told.0);
        let (call, request) = self.requests.pop().expect("it syncs");
        assert!(
            matches!(request, Request::SyncConsumerGroup(_)),
            "{request:?}"
        );
        self.answer(call, assignment(told));
    }

    fn tell(&mut self, generation: u64) {
        self.input(GroupInput::Told(Event::AssignmentChanged(
            AssignmentChanged {
                stream: StreamId(1),
                topic: TopicId(2),
                group: ConsumerGroupId(3),
                generation: Generation(generation),
            },
        )));
    }

    fn polled(&mut self) -> (Call, PollMessages) {
        let (call, request) = self.requests.remove(0);
        let Request::PollMessages(poll) = request else {
            panic!("{request:?}")
        };
        (call, poll)
    }

    fn storing(&mut self) -> (Call, StoreConsumerOffset) {
        let (call, request) = self.requests.remove(0);
        let Request::StoreConsumerOffset(store) = request else {
            panic!("{request:?}")
        };
        (call, store)
    }

    fn releasing(&mut self) -> (Call, ReleasePartition) {
        let (call, request) = self.requests.remove(0);
        let Request::ReleasePartition(release) = request else {
            panic!("{request:?}")
        };
        (call, release)
    }

    /// Answers a poll with a batch of each partition: base offset and count.
    fn serve(&mut self, call: Call, batches: &[(PartitionId, u64, u32)]) {
        let sections = batches.iter();
        let sections = sections.map(|(partition, base, count)| section(*partition, *base, *count));
        self.answer(
            call,
            Reply::Polled(Polled {
                sections: sections.collect(),
            }),
        );
    }

    fn refuse_poll(&mut self, call: Call, partition: PartitionId, code: ErrorCode) {
        let refused = PollResult {
            status: Err(Failure::new(code, "no")),
            ..section(partition, 0, 0)
        };
        let sections = Vec::from([refused]);
        self.answer(call, Reply::Polled(Polled { sections }));
    }

    fn stored(&mut self, call: Call, results: &[(PartitionId, Result<u64, ErrorCode>)]) {
        let sections = results.iter().map(|(partition, result)| StoreResult {
            partition: *partition,
            status: result.map(|_| ()).map_err(|code| Failure::new(code, "no")),
            primary: ReplicaId(0),
            stored: result.ok().map(Offset),
        });
        let sections = sections.collect();
        self.answer(call, Reply::OffsetsStored(OffsetsStored { sections }));
    }

    fn released(&mut self, call: Call, partition: PartitionId, status: Result<(), ErrorCode>) {
        let sections = Vec::from([ReleaseResult {
            partition,
            status: status.map_err(|code| Failure::new(code, "no")),
            primary: ReplicaId(0),
            stored: None,
        }]);
        self.answer(
            call,
            Reply::PartitionsReleased(PartitionsReleased { sections }),
        );
    }

    fn next(&mut self) -> Option<(PartitionId, u64, u64)> {
        let delivery = self.consumer.next_message(self.time());
        self.collect();
        let delivery = delivery?;
        let offset = delivery.message.offset.0;
        Some((delivery.partition, delivery.epoch.0, offset))
    }

    fn events(&mut self) -> Vec<GroupEvent> {
        core::mem::take(&mut self.events)
    }
}

fn assignment((generation, owned, revoking): Told<'_>) -> Reply {
    let incarnation = Incarnation(1);
    let owned = owned
        .iter()
        .map(|(partition, epoch, held_since)| AssignedPartition {
            partition: PartitionId(*partition),
            incarnation,
            epoch: Epoch(*epoch),
            held_since: Epoch(*held_since),
        });
    let revoking = revoking.iter();
    let revoking = revoking.map(
        |(partition, epoch, held_since, planned)| RevokingPartition {
            partition: PartitionId(*partition),
            incarnation,
            epoch: Epoch(*epoch),
            held_since: Epoch(*held_since),
            planned: Epoch(*planned),
            time_left_ms: 500,
        },
    );
    Reply::Assignment(ConsumerGroupAssignment {
        stream: StreamId(1),
        topic: TopicId(2),
        group: ConsumerGroupId(3),
        member: MemberId(4),
        generation: Generation(generation),
        plan_pending: false,
        member_count: 1,
        partition_count: 2,
        owned: owned.collect(),
        revoking: revoking.collect(),
    })
}

fn section(partition: PartitionId, base: u64, count: u32) -> PollResult {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(&Message {
            payload: Bytes::from_static(b"0123456789"),
            ..Message::default()
        });
    }
    let end = base + u64::from(count);
    let batch = (count > 0).then(|| {
        let batch = builder.build(ProducerId(0), 0);
        batch.stamped(Offset(base), Timestamp(7)).to_bytes()
    });
    PollResult {
        partition,
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(end),
        stored: None,
        from: Offset(base),
        next: Offset(end),
        batches: batch.into_iter().collect(),
    }
}
