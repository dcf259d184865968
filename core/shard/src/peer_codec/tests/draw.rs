//! What nodes say to each other, by chance.

use std::{borrow::ToOwned, string::String, vec, vec::Vec};

use bytes::Bytes;
use catalog::{CachedReply, GroupKey};
use partition::{
    Absent, DataRequest, DataResult, EpochHolder, FenceOffset, Grant, GroupCommand, GroupRecord,
    Refusal, StartAt,
};
use wire::{
    Batch, BatchBuilder, ClientId, ConsensusGroup, ConsumerGroupId, CreateStream, Epoch, ErrorCode,
    Failure, GetTopic, GroupPrimary, Incarnation, MemberId, Message, MoveWait, Offset, Op,
    PartitionId, PartitionKey, Password, PollResult, PollStrategy, PrepareHeader, ProducerId,
    ReplicaId, Reply, Request, RequestNumber, SessionNumber, SessionSecret, ShardId, StreamId,
    Timestamp, TopicId, UserId, View,
};

use crate::{
    Answer, Binding, FilePart, Origin, Output, PartitionAddress, PeerMessage, Sign, Slot,
    SnapshotOffer, TransferFile, TransferMessage, Work,
    work::{
        AttachWork, Caller, CatalogWork, GroupReader, GroupStanding, GroupWrite, GroupWriteSection,
        LoginWork, OffsetsOf, PartitionOffsets, PollSectionWork, PollWork, Reader,
    },
};

/// Every kind of message, work and output that goes from node to node.
pub(super) const VARIANTS: &[&str] = &[
    "Replica",
    "Login",
    "Attach",
    "Catalog",
    "Write",
    "Poll",
    "GroupWrite",
    "Offsets",
    "Failure",
    "Reply",
    "Executed",
    "Bound",
    "Written",
    "Polled",
    "Told",
    "Hurry",
    "Moved",
    "Liveness",
    "Connections",
    "Commits",
    "CommitOks",
    "Ask",
    "Offer",
    "AskPart",
    "Part",
    "Gone",
];

pub(super) fn variant(message: &PeerMessage) -> &'static str {
    match message {
        PeerMessage::Replica { .. } => "Replica",
        PeerMessage::Work { work, .. } => match **work {
            Work::Login(_) => "Login",
            Work::Attach(_) => "Attach",
            Work::Catalog(_) => "Catalog",
            Work::Write { .. } => "Write",
            Work::Poll(_) => "Poll",
            Work::GroupWrite(_) => "GroupWrite",
            Work::Offsets { .. } => "Offsets",
            Work::Groups | Work::Counters | Work::Verify(_) | Work::Replicas { .. } => {
                panic!("it concerns one node")
            }
        },
        PeerMessage::Answer { answer, .. } => match &answer.outcome {
            Err(_) => "Failure",
            Ok(Output::Reply(_)) => "Reply",
            Ok(Output::Executed(_)) => "Executed",
            Ok(Output::Bound(..)) => "Bound",
            Ok(Output::Written(_)) => "Written",
            Ok(Output::Polled { .. }) => "Polled",
            Ok(Output::Offsets(_)) => "Told",
            Ok(
                Output::Groups(_) | Output::Counters(_) | Output::Verified | Output::Replicas(_),
            ) => panic!("it concerns one node"),
        },
        PeerMessage::Hurry { .. } => "Hurry",
        PeerMessage::Moved(_) => "Moved",
        PeerMessage::Liveness(_) => "Liveness",
        PeerMessage::Connections(_) => "Connections",
        PeerMessage::Commits(_) => "Commits",
        PeerMessage::CommitOks(_) => "CommitOks",
        PeerMessage::Transfer { message, .. } => match message {
            TransferMessage::Ask { .. } => "Ask",
            TransferMessage::Offer(_) => "Offer",
            TransferMessage::AskPart(_) => "AskPart",
            TransferMessage::Part { .. } => "Part",
            TransferMessage::Gone(_) => "Gone",
        },
    }
}

/// A write of one batch.
pub(super) fn write_of(group: ConsensusGroup, batch: Batch) -> Work {
    Draw(1).write(group, batch)
}

/// Small and reproducible: xorshift64*.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    fn u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn u32(&mut self) -> u32 {
        u32::try_from(self.u64() >> 32).expect("half of it")
    }

    fn u16(&mut self) -> u16 {
        u16::try_from(self.u64() >> 48).expect("a quarter of it")
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.u64() % end as u64).expect("a usize has 64 bits")
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn some<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| draw(self))
    }

    fn list<T>(&mut self, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| draw(self)).collect()
    }

    fn text(&mut self) -> String {
        ["", "a", "grüße", "a consumer with a longer name"][self.below(4)].to_owned()
    }

    fn op(&mut self) -> Op {
        Op(self.u64())
    }

    fn offset(&mut self) -> Offset {
        Offset(self.u64())
    }

    fn epoch(&mut self) -> Epoch {
        Epoch(self.u64())
    }

    fn session(&mut self) -> SessionNumber {
        SessionNumber(self.u64())
    }

    fn client(&mut self) -> ClientId {
        ClientId(u128::from(self.u64()) << 64 | u128::from(self.u64()))
    }

    fn group(&mut self) -> ConsensusGroup {
        ConsensusGroup(self.u16())
    }

    pub(super) fn origin(&mut self) -> Origin {
        Origin {
            node: ReplicaId(self.u16().to_le_bytes()[0]),
            shard: ShardId(self.u16()),
            slot: Slot(self.u64()),
        }
    }

    fn binding(&mut self) -> Binding {
        Binding {
            client: self.client(),
            session: self.session(),
            user: UserId(self.u64()),
        }
    }

    pub(super) fn caller(&mut self) -> Caller {
        Caller {
            binding: self.binding(),
            request: RequestNumber(self.u64()),
        }
    }

    fn key(&mut self) -> PartitionKey {
        PartitionKey {
            stream: StreamId(self.u64()),
            topic: TopicId(self.u64()),
            partition: PartitionId(self.u32()),
        }
    }

    fn group_key(&mut self) -> GroupKey {
        GroupKey {
            stream: StreamId(self.u64()),
            topic: TopicId(self.u64()),
            group: ConsumerGroupId(self.u64()),
        }
    }

    fn address(&mut self, group: ConsensusGroup) -> PartitionAddress {
        PartitionAddress {
            key: self.key(),
            incarnation: Incarnation(self.u64()),
            group,
        }
    }

    fn reader(&mut self) -> GroupReader {
        GroupReader {
            key: self.group_key(),
            client: self.client(),
            session: self.session(),
        }
    }

    /// A batch of so many messages.
    pub(super) fn batch(&mut self, count: usize) -> Batch {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            let payload: Vec<u8> = (0..8).flat_map(|_| self.u64().to_le_bytes()).collect();
            builder.push(&Message {
                payload: payload.into(),
                ..Message::default()
            });
        }
        let producer = self.some(|draw| ProducerId(u128::from(draw.u64()) | 1));
        let sequence = producer.map_or(0, |_| 1 + self.u64() / 2);
        builder.build(producer.unwrap_or_default(), sequence)
    }

    pub(super) fn write(&mut self, group: ConsensusGroup, batch: Batch) -> Work {
        let append = DataRequest::Append {
            key: self.key(),
            incarnation: Incarnation(self.u64()),
            admitted: self.op(),
            batch,
        };
        Work::Write {
            group,
            admitted: self.op(),
            requests: vec![(self.u16(), append)],
        }
    }

    fn holder(&mut self) -> EpochHolder {
        EpochHolder {
            member: MemberId(self.u64() | 1),
            session: self.session(),
        }
    }

    fn grant(&mut self) -> Grant {
        Grant {
            epoch: self.epoch(),
            holder: self.holder(),
        }
    }

    fn command(&mut self) -> GroupCommand {
        match self.below(3) {
            0 => GroupCommand::Fence {
                epoch: self.epoch(),
                holder: self.some(Self::holder),
                offset: FenceOffset::Keep,
            },
            1 => GroupCommand::Store {
                grant: self.grant(),
                offset: self.offset(),
            },
            _ => GroupCommand::Release {
                grant: self.grant(),
                offset: self.some(Self::offset),
                to: self.grant(),
            },
        }
    }

    fn request(&mut self) -> DataRequest {
        let (key, incarnation, admitted) = (self.key(), Incarnation(self.u64()), self.op());
        match self.below(8) {
            0 => DataRequest::CreatePartition {
                key,
                incarnation,
                admitted,
            },
            1 => DataRequest::DropPartition {
                key,
                incarnation,
                dropped: admitted,
            },
            2 => {
                let count = [1, 30][self.below(2)];
                DataRequest::Append {
                    key,
                    incarnation,
                    admitted,
                    batch: self.batch(count),
                }
            }
            3 => DataRequest::StoreOffset {
                key,
                incarnation,
                admitted,
                consumer: self.text(),
                offset: self.offset(),
            },
            4 => DataRequest::DeleteOffset {
                key,
                incarnation,
                admitted,
                consumer: self.text(),
            },
            5 => DataRequest::TruncateHead {
                key,
                incarnation,
                offset: self.offset(),
            },
            6 => DataRequest::ConsumerGroup {
                key,
                incarnation,
                admitted,
                group: ConsumerGroupId(self.u64()),
                command: self.command(),
            },
            _ => DataRequest::DropConsumerGroup {
                key,
                incarnation,
                dropped: admitted,
                group: ConsumerGroupId(self.u64()),
            },
        }
    }

    fn strategy(&mut self) -> PollStrategy {
        match self.below(5) {
            0 => PollStrategy::Offset(self.offset()),
            1 => PollStrategy::Timestamp(Timestamp(self.u64())),
            2 => PollStrategy::First,
            3 => PollStrategy::Last,
            _ => PollStrategy::Next,
        }
    }

    /// A poll of one partition.
    pub(super) fn poll(&mut self, group: ConsensusGroup) -> PollWork {
        let reader = match self.flag() {
            true => Reader::Single(self.text()),
            false => Reader::Group(self.reader()),
        };
        PollWork {
            admitted: self.op(),
            reader,
            max_messages: self.u32(),
            max_bytes: self.u32(),
            min_bytes: self.u32(),
            deadline: self.u64(),
            commit_on_poll: self.flag(),
            sections: vec![PollSectionWork {
                index: self.u16(),
                address: self.address(group),
                epoch: self.epoch(),
                strategy: self.strategy(),
            }],
        }
    }

    fn catalog_work(&mut self) -> CatalogWork {
        let request = match self.below(3) {
            0 => Request::GetMe,
            1 => Request::CreateStream(CreateStream { name: self.text() }),
            _ => Request::GetTopic(GetTopic {
                stream: StreamId(self.u64()).into(),
                topic: TopicId(self.u64()).into(),
            }),
        };
        let address = ["192.0.2.1:40000", "[2001:db8::1%3]:40001"][self.below(2)];
        CatalogWork {
            caller: self.caller(),
            peer: address.parse().expect("addresses of documentation"),
            request,
        }
    }

    fn work(&mut self) -> (ConsensusGroup, Work) {
        let group = self.group();
        match self.below(7) {
            0 => {
                let work = LoginWork {
                    client: self.client(),
                    name: self.text(),
                    password: Password(self.text()),
                };
                (ConsensusGroup::METADATA, Work::Login(work))
            }
            1 => {
                let mut secret = [0; 32];
                secret[..8].copy_from_slice(&self.u64().to_le_bytes());
                let work = AttachWork {
                    client: self.client(),
                    session: self.session(),
                    secret: SessionSecret(secret),
                };
                (ConsensusGroup::METADATA, Work::Attach(work))
            }
            2 => (ConsensusGroup::METADATA, Work::Catalog(self.catalog_work())),
            3 => {
                let work = Work::Write {
                    group,
                    admitted: self.op(),
                    requests: self.list(|draw| (draw.u16(), draw.request())),
                };
                (group, work)
            }
            4 => (group, Work::Poll(self.poll(group))),
            5 => (group, Work::GroupWrite(self.group_write(group))),
            _ => {
                let consumer = match self.below(3) {
                    0 => None,
                    1 => Some(OffsetsOf::Single(self.text())),
                    _ => Some(OffsetsOf::Group(self.group_key())),
                };
                let work = Work::Offsets {
                    group,
                    admitted: self.op(),
                    consumer,
                    partitions: self.list(|draw| (draw.u16(), draw.address(group))),
                };
                (group, work)
            }
        }
    }

    fn group_write(&mut self, group: ConsensusGroup) -> GroupWrite {
        GroupWrite {
            group,
            admitted: self.op(),
            reader: self.reader(),
            sections: self.list(|draw| GroupWriteSection {
                index: draw.u16(),
                address: draw.address(group),
                epoch: draw.epoch(),
                offset: draw.some(Self::offset),
                planned: draw.some(Self::epoch),
            }),
        }
    }

    fn failure(&mut self) -> Failure {
        let code = [ErrorCode::Retry, ErrorCode::Internal, ErrorCode::StaleEpoch][self.below(3)];
        Failure::new(code, self.text())
    }

    fn reply(&mut self) -> Reply {
        match self.below(3) {
            0 => Reply::Done,
            1 => Reply::Streams(wire::Streams {
                streams: Vec::new(),
                more: self.flag(),
            }),
            _ => Reply::OffsetsReset(wire::OffsetsReset {
                group: ConsumerGroupId(self.u64()),
                generation: wire::Generation(self.u64()),
                partition_count: self.u32(),
            }),
        }
    }

    fn refusal(&mut self) -> Refusal {
        let (offset, start, end) = (self.offset(), self.offset(), self.offset());
        let (sequence, other) = (self.u64(), self.u64());
        let (epoch, fence) = (self.epoch(), self.epoch());
        match self.below(12) {
            0 => Refusal::Absent(Absent::NotHere),
            1 => Refusal::Absent(Absent::OtherIncarnation {
                here: Incarnation(sequence),
                named: Incarnation(other),
            }),
            2 => Refusal::OffsetOutOfRange { offset, start, end },
            3 => Refusal::SequenceOutOfOrder {
                sequence,
                expected: other,
            },
            4 => Refusal::SequenceTooOld {
                sequence,
                last: other,
            },
            5 => Refusal::SequenceReused { sequence, offset },
            6 => Refusal::ProducerUnknown { sequence },
            7 => Refusal::TooManyConsumers { limit: other },
            8 => Refusal::OffsetNotStored,
            9 => Refusal::StaleEpoch { epoch, fence },
            10 => Refusal::NotHolder {
                epoch,
                here: self.some(Self::holder),
                asked: self.holder(),
            },
            _ => Refusal::GroupGone {
                admitted: self.op(),
                dropped: self.op(),
            },
        }
    }

    fn start_at(&mut self) -> StartAt {
        match self.flag() {
            true => StartAt::Offset(self.offset()),
            false => StartAt::Time(Timestamp(self.u64())),
        }
    }

    fn result(&mut self) -> DataResult {
        let group = ConsumerGroupId(self.u64());
        match self.below(9) {
            0 => DataResult::Created,
            1 => DataResult::Dropped,
            2 => DataResult::Appended {
                base_offset: self.offset(),
                repeated: self.flag(),
            },
            3 => DataResult::Stored {
                stored: self.offset(),
            },
            4 => DataResult::OffsetDeleted {
                stored: self.offset(),
            },
            5 => DataResult::HeadTruncated {
                start: self.offset(),
            },
            6 => DataResult::Record {
                group,
                record: GroupRecord {
                    fence: self.epoch(),
                    holder: self.some(Self::holder),
                    stored: self.some(Self::offset),
                    start: self.some(Self::start_at),
                },
            },
            7 => DataResult::ConsumerGroupDropped { group },
            _ => DataResult::Failed(self.refusal()),
        }
    }

    /// A section with so many batches.
    pub(super) fn poll_result(&mut self, batches: usize) -> PollResult {
        let mut next = Offset(self.u64() / 2);
        let from = Offset(next.0 + u64::from(batches > 0));
        let mut parts = Vec::new();
        for _ in 0..batches {
            let batch = self.batch(2).stamped(next, Timestamp(self.u64()));
            next = batch.last_offset().next();
            let bytes = [batch.header.as_bytes(), &batch.body].concat();
            parts.push(Bytes::from(bytes));
        }
        PollResult {
            partition: PartitionId(self.u32()),
            status: match batches {
                0 => Err(self.failure()),
                _ => Ok(()),
            },
            primary: ReplicaId(2),
            start: self.offset(),
            end: self.offset(),
            stored: self.some(Self::offset),
            from,
            next,
            batches: parts,
        }
    }

    fn offsets(&mut self) -> PartitionOffsets {
        PartitionOffsets {
            start: self.offset(),
            end: self.offset(),
            stored: self.some(Self::offset),
            group: self.some(|draw| GroupStanding {
                next: draw.offset(),
                last_polled: draw.some(Self::offset),
                fence: draw.epoch(),
                polled_ms_ago: draw.some(Self::u32),
                stored_ms_ago: draw.some(Self::u32),
                stalled_ms: draw.some(Self::u32),
                waits_for: draw.some(|draw| (MoveWait::Drain, draw.some(Self::u32))),
                is_damaged: draw.flag(),
            }),
        }
    }

    fn output(&mut self) -> Output {
        match self.below(6) {
            0 => Output::Reply(self.reply()),
            1 => Output::Executed(CachedReply {
                status: self.u32(),
                body: self.text().into(),
            }),
            2 => Output::Bound(self.binding(), self.reply()),
            3 => Output::Written(self.list(|draw| {
                let result = match draw.below(4) {
                    0 => Err(draw.failure()),
                    _ => Ok(draw.result()),
                };
                (draw.u16(), result)
            })),
            4 => Output::Polled {
                sections: self.list(|draw| {
                    let batches = draw.below(3);
                    (draw.u16(), draw.poll_result(batches))
                }),
                satisfied: self.flag(),
            },
            _ => Output::Offsets(self.list(|draw| {
                let told = match draw.flag() {
                    true => Err(draw.failure()),
                    false => Ok(draw.offsets()),
                };
                (draw.u16(), told)
            })),
        }
    }

    fn answer(&mut self) -> Answer {
        Answer {
            outcome: match self.below(5) {
                0 => Err(self.failure()),
                _ => Ok(self.output()),
            },
            op: self.op(),
            primary: GroupPrimary {
                group: self.group(),
                view: View(self.u32()),
                primary: ReplicaId(1),
            },
        }
    }

    fn replica_message(&mut self) -> vsr::Message {
        let (replica, view) = (ReplicaId(1), View(self.u32()));
        if self.flag() {
            return vsr::Message::PrepareOk(vsr::PrepareOk {
                replica,
                view,
                op: self.op(),
                checksum: 7,
                checkpoint: self.op(),
            });
        }
        let body = Bytes::from(self.text());
        let header = PrepareHeader {
            op: self.u64(),
            ..PrepareHeader::default()
        };
        vsr::Message::Prepare(vsr::PrepareMessage {
            replica,
            view,
            commit: vsr::ChainPoint::default(),
            prepare: vsr::Prepare {
                header: header.sealed(&body),
                body,
            },
        })
    }

    fn commit(&mut self) -> vsr::Commit {
        vsr::Commit {
            replica: ReplicaId(1),
            view: View(self.u32()),
            op: self.op(),
            commit: vsr::ChainPoint {
                op: self.op(),
                checksum: u128::from(self.u64()) << 7,
            },
            checkpoint_quorum: self.op(),
        }
    }

    fn commit_ok(&mut self) -> vsr::CommitOk {
        vsr::CommitOk {
            replica: ReplicaId(2),
            view: View(self.u32()),
            commit_min: self.op(),
            checkpoint: self.op(),
            is_willing: self.flag(),
        }
    }

    fn transfer(&mut self) -> TransferMessage {
        let file = match self.below(2) {
            0 => TransferFile::Snapshot(Op(self.u64())),
            _ => TransferFile::Segment {
                partition: self.key(),
                incarnation: Incarnation(self.u64()),
                base: Offset(self.u64()),
            },
        };
        let part = FilePart {
            file,
            position: self.u64(),
            length: self.u64(),
        };
        match self.below(5) {
            0 => TransferMessage::Ask {
                at_least: Op(self.u64()),
            },
            1 => TransferMessage::Offer(SnapshotOffer {
                op: Op(self.u64()),
                size: self.u64(),
                checksum: u128::from(self.u64()),
            }),
            2 => TransferMessage::AskPart(part),
            3 => TransferMessage::Part {
                part,
                checksum: self.u64(),
                bytes: Bytes::from(vec![7; self.below(40)]),
            },
            _ => TransferMessage::Gone(part),
        }
    }

    pub(super) fn message(&mut self) -> PeerMessage {
        match self.below(20) {
            17 | 18 => PeerMessage::Transfer {
                group: self.group(),
                message: self.transfer(),
            },
            0 => PeerMessage::Replica {
                group: self.group(),
                message: self.replica_message(),
            },
            1..=7 => {
                let (group, work) = self.work();
                PeerMessage::Work {
                    origin: self.origin(),
                    group,
                    work: work.into(),
                }
            }
            8..=11 => PeerMessage::Answer {
                origin: self.origin(),
                answer: self.answer().into(),
            },
            12 => PeerMessage::Hurry {
                origin: self.origin(),
                group: self.group(),
            },
            13 => PeerMessage::Moved(self.list(|draw| {
                let partition = PartitionId(draw.u32());
                (draw.group_key(), partition, draw.epoch())
            })),
            14 => PeerMessage::Liveness(self.list(|draw| match draw.below(3) {
                0 => Sign::Connected(draw.client(), draw.session()),
                1 => Sign::Disconnected(draw.session()),
                _ => Sign::Seen(draw.session()),
            })),
            15 => PeerMessage::Commits(self.list(|draw| (draw.group(), draw.commit()))),
            16 => PeerMessage::CommitOks(self.list(|draw| (draw.group(), draw.commit_ok()))),
            _ => PeerMessage::Connections(
                self.list(|draw| (draw.client(), draw.session(), draw.u32())),
            ),
        }
    }

    /// The bytes, changed in one of the ways in which lengths, counts and kinds go wrong.
    pub(super) fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        // Kinds and counts come early.
        let end = [bytes.len(), bytes.len().min(60)][self.below(2)];
        let at = self.below(end);
        match self.below(6) {
            0 => damaged[at] ^= 1 << self.below(8),
            1 => damaged[at] = [0, 1, 2, 3, 9, 0x7f, 0x80, 0xff][self.below(8)],
            2 => {
                let number = [0, 1, u32::MAX, 1 << 31, 0x00ff_ffff][self.below(5)];
                let end = bytes.len().min(at + 4);
                damaged[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            3 => {
                let added = vec![self.u64().to_le_bytes()[0]; self.below(9)];
                damaged.splice(at..at, added);
            }
            4 => {
                let end = bytes.len().min(at + self.below(9));
                damaged.drain(at..end);
            }
            _ => damaged.truncate(at),
        }
        damaged
    }
}
