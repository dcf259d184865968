//! A model of a broker, as simple as the protocol allows.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use bytes::Bytes;
use wire::{
    Batch, ClientId, ClusterId, ClusterMetadata, Command, ConsensusGroup, Consumer, ErrorCode,
    FRAME_SIZE_MAX, Failure, FrameHeader, GetConsumerOffset, GroupPrimary, Incarnation, LoggedIn,
    Node, Offset, OffsetResult, Offsets, OffsetsStored, Op, PartitionDetails, PartitionId,
    PartitionTarget, PollMessages, PollResult, PollStrategy, Polled, ProducerId, ReplicaId, Reply,
    Request, SendMessages, SendResult, Sent, SessionNumber, SessionSecret, StoreConsumerOffset,
    StoreResult, StreamId, Timestamp, TopicDetails, TopicId, UserId, View,
};

use super::MS;
use crate::Frame;

/// Batches of a producer that a partition remembers.
const BATCHES_KEPT: usize = 5;

#[derive(Default)]
pub(super) struct Broker {
    op: u64,
    /// The nodes in front of what is stored, and who leads.
    pub(super) nodes: Nodes,
    /// Polls that were refused for a partition that another node leads.
    pub(super) refused_elsewhere: u64,
    sessions: BTreeMap<ClientId, SessionNumber>,
    pub(super) partitions: Vec<Partition>,
    pub(super) logins: u64,
}

#[derive(Default)]
pub(super) struct Partition {
    /// Where reading starts.
    pub(super) start: u64,
    /// Stamped batches by their base offset.
    pub(super) batches: BTreeMap<u64, Batch>,
    pub(super) next: u64,
    producers: BTreeMap<ProducerId, Vec<(u64, u64)>>,
    pub(super) stored: BTreeMap<String, Offset>,
    /// Every offset that was stored, in order.
    pub(super) stores: Vec<Offset>,
}

/// Where each node takes clients.
pub(super) const ADDRESSES: [&str; 3] = ["a:1", "b:1", "c:1"];

/// Three nodes. One of those that are up leads everything, after a while in which nobody does.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) up: [bool; 3],
    pub(super) view: u32,
    /// Nobody leads before a time.
    pub(super) leads_from: u64,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            up: [true; 3],
            view: 0,
            leads_from: 0,
        }
    }
}

impl Nodes {
    /// The node that leads a partition: neighbours are led by different ones where that is possible.
    pub(super) fn lead(&self, partition: u32) -> u8 {
        let up = (0..3_u8).filter(|node| self.up[usize::from(*node)]);
        let up: Vec<u8> = up.collect();
        let place = usize::try_from(partition + self.view).unwrap() % up.len();
        up[place]
    }
}

impl Broker {
    pub(super) fn new(partitions: u32) -> Self {
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        Self {
            partitions,
            ..Self::default()
        }
    }

    pub(super) fn forget_sessions(&mut self) {
        self.sessions.clear();
    }

    pub(super) fn add_partition(&mut self) {
        self.partitions.push(Partition::default());
    }

    /// Forgets the producers of a partition, as one that has seen too many does.
    pub(super) fn forget_producers(&mut self, partition: usize) {
        self.partitions[partition].producers.clear();
    }

    pub(super) fn outcome_unknown(request: &FrameHeader) -> Frame {
        refuse(request, ErrorCode::OutcomeUnknown)
    }

    /// The reply of a node, and how long it takes, nanoseconds. `busy` says whether something is refused for
    /// now.
    pub(super) fn handle(
        &mut self,
        (now, node): (u64, u8),
        frame: Frame,
        mut busy: impl FnMut() -> bool,
    ) -> (u64, Frame) {
        let header = frame.header;
        let client = header.client();
        let command = Command::from_code(header.code).expect("a known command");
        let request = Request::decode(command, frame.body).expect("a sound body");
        let known = self.sessions.get(&client) == Some(&header.session());
        if let Request::Login(_) = request {
            return (0, self.login(&header, client));
        }
        if let Request::Ping = request {
            return (0, answer(&header, &Reply::Done, self.op));
        }
        if !known {
            return (0, refuse(&header, ErrorCode::SessionNotFound));
        }
        if let Request::Attach(attach) = request {
            assert_eq!(attach.secret, secret(header.session()));
            return (0, answer(&header, &Reply::Done, self.op));
        }
        if let Request::GetClusterMetadata = request {
            return (0, answer(&header, &self.cluster(node), 0));
        }
        if busy() || now < self.nodes.leads_from {
            return (0, refuse(&header, ErrorCode::NotReady));
        }
        let (wait, op, reply) = self.execute(node, request, busy);
        (wait, answer(&header, &reply, op))
    }

    /// How long the reply takes, the metadata op it rests on, the reply.
    fn execute(
        &mut self,
        node: u8,
        request: Request,
        busy: impl FnMut() -> bool,
    ) -> (u64, u64, Reply) {
        if let Request::PollMessages(poll) = request {
            let (wait, reply) = self.poll(node, &poll);
            (wait, 0, reply)
        } else if let Request::SendMessages(send) = request {
            (0, 0, self.send(send, busy))
        } else if let Request::GetConsumerOffset(get) = request {
            (0, 0, self.offsets(&get))
        } else if let Request::StoreConsumerOffset(store) = request {
            (0, 0, self.store(&store, busy))
        } else {
            assert!(matches!(request, Request::GetTopic(_)), "{request:?}");
            (0, self.op, self.topic())
        }
    }

    fn login(&mut self, header: &FrameHeader, client: ClientId) -> Frame {
        self.op += 1;
        self.logins += 1;
        let session = SessionNumber(self.op);
        self.sessions.insert(client, session);
        let reply = Reply::LoggedIn(LoggedIn {
            session,
            secret: secret(session),
            user: UserId(1),
            session_timeout_ms: 10_000,
            frame_size_max: FRAME_SIZE_MAX,
        });
        answer(header, &reply, self.op)
    }

    fn cluster(&self, node: u8) -> Reply {
        let nodes = (0..).zip(ADDRESSES).map(|(node, address)| Node {
            replica: ReplicaId(node),
            address: address.to_string(),
        });
        Reply::ClusterMetadata(ClusterMetadata {
            cluster: ClusterId(1),
            node: ReplicaId(node),
            nodes: nodes.collect(),
            groups: vec![self.primary()],
        })
    }

    /// Who leads the group of the first partition.
    pub(super) fn primary(&self) -> GroupPrimary {
        GroupPrimary {
            group: ConsensusGroup(1),
            view: View(self.nodes.view),
            primary: ReplicaId(self.nodes.lead(0)),
        }
    }

    fn topic(&self) -> Reply {
        let partitions = (0..self.partitions.len()).map(|index| PartitionDetails {
            id: PartitionId(u32::try_from(index).unwrap()),
            incarnation: Incarnation(1),
            group: ConsensusGroup(1),
            start: None,
            end: None,
        });
        Reply::Topic(TopicDetails {
            stream: StreamId(1),
            id: TopicId(1),
            name: "t".to_string(),
            created: Timestamp(0),
            partitions: partitions.collect(),
        })
    }

    fn partition(&mut self, id: PartitionId) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(id.0).unwrap())
    }

    fn send(&mut self, send: SendMessages, mut busy: impl FnMut() -> bool) -> Reply {
        let mut sections = Vec::new();
        for section in send.sections {
            let PartitionTarget::Explicit(partition) = section.target else {
                panic!("sequences count per partition: {:?}", section.target)
            };
            let appended = match self.partition(partition) {
                None => Err(ErrorCode::PartitionNotFound),
                Some(_) if busy() => Err(ErrorCode::Busy),
                Some(model) => model.append(section.batch),
            };
            sections.push(SendResult {
                partition,
                status: appended
                    .map(|_| ())
                    .map_err(|code| Failure::new(code, "no")),
                primary: ReplicaId(self.nodes.lead(partition.0)),
                base_offset: appended.ok(),
            });
        }
        Reply::Sent(Sent { sections })
    }

    fn poll(&mut self, node: u8, poll: &PollMessages) -> (u64, Reply) {
        let Consumer::Single(name) = &poll.consumer else {
            panic!("{:?}", poll.consumer)
        };
        let mut left = i64::from(poll.max_bytes);
        let mut sections = Vec::new();
        for section in &poll.sections {
            let id = section.partition;
            let primary = ReplicaId(self.nodes.lead(id.0));
            // One that is alone is passed on.
            if primary != ReplicaId(node) && poll.sections.len() > 1 {
                self.refused_elsewhere += 1;
                sections.push(PollResult {
                    primary,
                    ..poll_failure(id, ErrorCode::NotPrimary)
                });
                continue;
            }
            let Some(partition) = self.partition(id) else {
                sections.push(poll_failure(id, ErrorCode::PartitionNotFound));
                continue;
            };
            let result = partition.poll(id, section.strategy, &mut left);
            if poll.commit_on_poll && result.next > result.from {
                partition.store(name, Offset(result.next.0 - 1));
            }
            let stored = partition.stored.get(name).copied();
            sections.push(PollResult {
                stored,
                primary,
                ..result
            });
        }
        let empty = sections
            .iter()
            .all(|section| section.status.is_ok() && section.batches.is_empty());
        let wait = if empty {
            u64::from(poll.max_wait_ms) * MS
        } else {
            0
        };
        (wait, Reply::Polled(Polled { sections }))
    }

    fn offsets(&mut self, get: &GetConsumerOffset) -> Reply {
        let Consumer::Single(name) = &get.consumer else {
            panic!("{:?}", get.consumer)
        };
        let mut sections = Vec::new();
        for id in &get.partitions {
            let (status, start, end, stored) = match self.partition(*id) {
                None => (Err(ErrorCode::PartitionNotFound), 0, 0, None),
                Some(partition) => (
                    Ok(()),
                    partition.start,
                    partition.next,
                    partition.stored.get(name).copied(),
                ),
            };
            sections.push(OffsetResult {
                partition: *id,
                status: status.map_err(|code| Failure::new(code, "no")),
                primary: ReplicaId(self.nodes.lead(id.0)),
                start: Offset(start),
                end: Offset(end),
                stored,
            });
        }
        Reply::Offsets(Offsets { sections })
    }

    fn store(&mut self, store: &StoreConsumerOffset, mut busy: impl FnMut() -> bool) -> Reply {
        let Consumer::Single(name) = &store.consumer else {
            panic!("{:?}", store.consumer)
        };
        let mut sections = Vec::new();
        for section in &store.sections {
            let stored = match self.partition(section.partition) {
                None => Err(ErrorCode::PartitionNotFound),
                Some(_) if busy() => Err(ErrorCode::Busy),
                Some(partition) if section.offset.0 >= partition.next => {
                    Err(ErrorCode::OffsetOutOfRange)
                }
                Some(partition) => Ok(partition.store(name, section.offset)),
            };
            sections.push(StoreResult {
                partition: section.partition,
                status: stored.map(|_| ()).map_err(|code| Failure::new(code, "no")),
                primary: ReplicaId(self.nodes.lead(section.partition.0)),
                stored: stored.ok(),
            });
        }
        Reply::OffsetsStored(OffsetsStored { sections })
    }
}

impl Partition {
    fn append(&mut self, batch: Batch) -> Result<Offset, ErrorCode> {
        let (id, sequence) = (batch.header.producer(), batch.header.sequence);
        assert_ne!(id.0, 0);
        let last = self
            .producers
            .get(&id)
            .and_then(|batches| batches.last())
            .map(|(last, _)| *last);
        match last {
            None if sequence != 1 => return Err(ErrorCode::ProducerUnknown),
            Some(last) if sequence > last + 1 => return Err(ErrorCode::SequenceOutOfOrder),
            Some(last) if sequence <= last => {
                let kept = self.producers[&id]
                    .iter()
                    .find(|(kept, _)| *kept == sequence);
                return kept
                    .map(|(_, base)| Offset(*base))
                    .ok_or(ErrorCode::SequenceTooOld);
            }
            None | Some(_) => {}
        }
        let base = self.next;
        let batches = self.producers.entry(id).or_default();
        batches.push((sequence, base));
        if batches.len() > BATCHES_KEPT {
            batches.remove(0);
        }
        self.next += u64::from(batch.header.count);
        self.batches
            .insert(base, batch.stamped(Offset(base), Timestamp(base)));
        Ok(Offset(base))
    }

    fn poll(&self, partition: PartitionId, strategy: PollStrategy, left: &mut i64) -> PollResult {
        let PollStrategy::Offset(wanted) = strategy else {
            panic!("{strategy:?}")
        };
        if wanted.0 > self.next {
            return poll_failure(partition, ErrorCode::OffsetOutOfRange);
        }
        let from = wanted.0.max(self.start);
        let first = self
            .batches
            .range(..=from)
            .next_back()
            .map_or(0, |(base, _)| *base);
        let mut batches = Vec::new();
        let mut next = from;
        if from < self.next {
            for batch in self.batches.range(first..).map(|(_, batch)| batch) {
                let bytes = batch.to_bytes();
                if *left <= 0 && !batches.is_empty() {
                    break;
                }
                *left -= i64::try_from(bytes.len()).unwrap();
                next = batch.last_offset().0 + 1;
                batches.push(bytes);
            }
        }
        PollResult {
            partition,
            status: Ok(()),
            primary: ReplicaId(0),
            start: Offset(self.start),
            end: Offset(self.next),
            stored: None,
            from: Offset(from),
            next: Offset(next),
            batches,
        }
    }

    fn store(&mut self, name: &str, offset: Offset) -> Offset {
        let stored = self
            .stored
            .get(name)
            .copied()
            .max(Some(offset))
            .expect("the greater is there");
        self.stored.insert(name.to_string(), stored);
        self.stores.push(offset);
        stored
    }

    /// Offset and payload of every message.
    pub(super) fn messages(&self) -> Vec<(Offset, Bytes)> {
        let messages = self
            .batches
            .values()
            .flat_map(|batch| batch.messages().flatten());
        messages
            .map(|message| (message.offset, message.payload))
            .collect()
    }
}

fn secret(session: SessionNumber) -> SessionSecret {
    let mut secret = [9; 32];
    secret[..8].copy_from_slice(&session.0.to_le_bytes());
    SessionSecret(secret)
}

fn poll_failure(partition: PartitionId, code: ErrorCode) -> PollResult {
    PollResult {
        partition,
        status: Err(Failure::new(code, "no")),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(0),
        stored: None,
        from: Offset(0),
        next: Offset(0),
        batches: Vec::new(),
    }
}

fn answer(request: &FrameHeader, reply: &Reply, op: u64) -> Frame {
    let header = FrameHeader::reply(request, 0).with_primary(Op(op), ReplicaId(0), View(0));
    Frame {
        header,
        body: reply.to_bytes(),
    }
}

fn refuse(request: &FrameHeader, code: ErrorCode) -> Frame {
    let header = FrameHeader::reply(request, code.code());
    Frame {
        header,
        body: Failure::new(code, "not now").encode(),
    }
}
