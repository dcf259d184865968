//! A server that speaks the protocol as far as connections need it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::BytesMut;
use client::{Frame, next_frame};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use wire::{
    AssignedPartition, BatchBuilder, Command, ConsensusGroup, ConsumerGroupAssignment,
    ConsumerGroupId, Epoch, ErrorCode, FRAME_SIZE_MAX, Failure, FrameHeader, Generation,
    GetConsumerOffset, Incarnation, LoggedIn, MemberId, Offset, OffsetResult, Offsets,
    OffsetsStored, Op, PartitionDetails, PartitionId, PartitionTarget, PollMessages, PollResult,
    PollSection, PollStrategy, Polled, ProducerId, ReplicaId, Reply, Request, SendResult, Sent,
    SessionNumber, SessionSecret, StoreConsumerOffset, StoreResult, StreamId, Timestamp,
    TopicDetails, TopicId, UserId, View,
};

pub(crate) const SECRET: SessionSecret = SessionSecret([3; 32]);

/// What a test sees of the server.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    /// Every request that came in, in order; `None` when a connection has ended.
    pub(crate) seen: mpsc::UnboundedReceiver<Option<(FrameHeader, Request)>>,
    rules: Arc<Mutex<Rules>>,
}

/// How the server behaves.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The connection is cut instead of an answer to this command, once.
    pub(crate) cut_at: Option<Command>,
    /// Answers to sends are held back.
    pub(crate) hold_sends: bool,
    /// Sessions are not known any more by who attaches.
    pub(crate) loses_sessions: bool,
    /// What is stored in each partition, for who asks; `None`: there is no answer.
    pub(crate) stored: Option<[Option<Offset>; 2]>,
    /// Messages that each partition has.
    ends: [u64; 2],
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::on(listener)
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("a bound listener");
        let rules = Arc::new(Mutex::new(Rules::default()));
        let (sender, seen) = mpsc::unbounded_channel();
        let shared = Arc::clone(&rules);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, sender.clone(), Arc::clone(&shared)));
            }
        });
        Self {
            address,
            seen,
            rules,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("cohort://ann:good-password@{}", self.address)
    }

    pub(crate) fn rules(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules.lock().expect("nobody panics with the rules"));
    }

    /// The next request, whatever connection it is on.
    pub(crate) async fn request(&mut self) -> (FrameHeader, Request) {
        loop {
            if let Some(request) = self.seen.recv().await.expect("the server runs") {
                return request;
            }
        }
    }

    /// Waits for a request of this command.
    pub(crate) async fn request_of(&mut self, command: Command) -> FrameHeader {
        loop {
            let (header, request) = self.request().await;
            if request.command() == command {
                return header;
            }
        }
    }

    /// Waits until a connection has ended.
    pub(crate) async fn ended(&mut self) {
        while self.seen.recv().await.expect("the server runs").is_some() {}
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: mpsc::UnboundedSender<Option<(FrameHeader, Request)>>,
    rules: Arc<Mutex<Rules>>,
) {
    let mut buffer = BytesMut::new();
    while matches!(stream.read_buf(&mut buffer).await, Ok(size) if size > 0) {
        while let Ok(Some(Frame { header, body })) = next_frame(&mut buffer, FRAME_SIZE_MAX) {
            let command = Command::from_code(header.code).expect("a known command");
            let request = Request::decode(command, body).expect("a sound body");
            // What the client asks for itself is nobody's concern.
            if command != Command::GetClusterMetadata {
                let _nobody_looks = seen.send(Some((header, request.clone())));
            }
            let Some(answer) = answer(&rules, &header, request) else {
                continue;
            };
            let Some(frame) = answer else {
                let _nobody_looks = seen.send(None);
                return;
            };
            if stream.write_all(&frame).await.is_err() {
                break;
            }
        }
    }
    let _nobody_looks = seen.send(None);
}

/// `None`: no answer. `Some(None)`: the connection is cut.
fn answer(rules: &Mutex<Rules>, header: &FrameHeader, request: Request) -> Option<Option<Vec<u8>>> {
    let mut rules = rules.lock().expect("nobody panics with the rules");
    if rules.cut_at == Some(request.command()) {
        rules.cut_at = None;
        return Some(None);
    }
    let reply = match request {
        Request::Login(login) if login.password.0 != "good-password" => Err(Failure::new(
            ErrorCode::InvalidCredentials,
            "user \"ann\" and this password do not match",
        )),
        Request::Login(_) => Ok(Reply::LoggedIn(LoggedIn {
            session: SessionNumber(100),
            secret: SECRET,
            user: UserId(2),
            session_timeout_ms: 10_000,
            frame_size_max: FRAME_SIZE_MAX,
        })),
        Request::Attach(_) if rules.loses_sessions => Err(Failure::new(
            ErrorCode::SessionNotFound,
            "session 100 is not known",
        )),
        Request::GetConsumerOffset(get) => match rules.stored {
            Some(stored) => Ok(offsets(&get, stored)),
            None => return None,
        },
        Request::GetClusterMetadata => Err(Failure::new(
            ErrorCode::CommandNotSupported,
            "this node knows of no others",
        )),
        Request::GetTopic(_) => Ok(topic()),
        Request::SendMessages(_) if rules.hold_sends => return None,
        Request::SendMessages(send) => Ok(Reply::Sent(Sent {
            sections: send
                .sections
                .iter()
                .map(|section| {
                    let PartitionTarget::Explicit(partition) = section.target else {
                        panic!("{:?}", section.target)
                    };
                    let end =
                        &mut rules.ends[usize::try_from(partition.0).expect("two partitions")];
                    let base_offset = Some(Offset(*end));
                    *end += u64::from(section.batch.header.count);
                    SendResult {
                        partition,
                        status: Ok(()),
                        primary: ReplicaId(0),
                        base_offset,
                    }
                })
                .collect(),
        })),
        Request::JoinConsumerGroup(_) | Request::SyncConsumerGroup(_) => Ok(assignment()),
        Request::PollMessages(poll) => return polled(&poll).map(|reply| frame(header, Ok(reply))),
        Request::StoreConsumerOffset(store) => Ok(stored(&store)),
        Request::GetStream(_) => Err(Failure::new(
            ErrorCode::StreamNotFound,
            "no stream \"nowhere\"",
        )),
        _ => Ok(Reply::Done),
    };
    Some(frame(header, reply))
}

fn frame(request: &FrameHeader, reply: Result<Reply, Failure>) -> Option<Vec<u8>> {
    let (status, body) = match reply {
        Ok(reply) => (0, reply.to_bytes()),
        Err(failure) => (failure.code.code(), failure.encode()),
    };
    let header = FrameHeader::reply(request, status).with_primary(Op(100), ReplicaId(0), View(0));
    Some(header.frame(&body))
}

/// Member 8 of group 6 owns both partitions.
fn assignment() -> Reply {
    let owned = |id: u32| AssignedPartition {
        partition: PartitionId(id),
        incarnation: Incarnation(1),
        epoch: Epoch(40 + u64::from(id)),
        held_since: Epoch(40 + u64::from(id)),
    };
    Reply::Assignment(ConsumerGroupAssignment {
        stream: StreamId(4),
        topic: TopicId(5),
        group: ConsumerGroupId(6),
        member: MemberId(8),
        generation: Generation(7),
        plan_pending: false,
        member_count: 1,
        partition_count: 2,
        owned: vec![owned(0), owned(1)],
        revoking: Vec::new(),
    })
}

/// Each partition has three messages; whoever has read them waits.
fn polled(poll: &PollMessages) -> Option<Reply> {
    let fresh = |section: &PollSection| section.strategy == PollStrategy::Next;
    if !poll.sections.iter().any(fresh) {
        return None;
    }
    let sections = poll.sections.iter().map(|section| {
        let mut builder = BatchBuilder::new();
        for _ in 0..3 {
            builder.push(&wire::Message::default());
        }
        let batch = builder.build(ProducerId(0), 0);
        let batch = batch.stamped(Offset(0), Timestamp(1)).to_bytes();
        let served = fresh(section);
        PollResult {
            partition: section.partition,
            status: Ok(()),
            primary: ReplicaId(0),
            start: Offset(0),
            end: Offset(3),
            stored: None,
            from: Offset(if served { 0 } else { 3 }),
            next: Offset(3),
            batches: served.then_some(batch).into_iter().collect(),
        }
    });
    let sections = sections.collect();
    Some(Reply::Polled(Polled { sections }))
}

fn stored(store: &StoreConsumerOffset) -> Reply {
    let sections = store.sections.iter().map(|section| StoreResult {
        partition: section.partition,
        status: Ok(()),
        primary: ReplicaId(0),
        stored: Some(section.offset),
    });
    let sections = sections.collect();
    Reply::OffsetsStored(OffsetsStored { sections })
}

fn offsets(get: &GetConsumerOffset, stored: [Option<Offset>; 2]) -> Reply {
    let sections = get.partitions.iter().map(|partition| OffsetResult {
        partition: *partition,
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(3),
        stored: stored[usize::try_from(partition.0).expect("two partitions")],
    });
    let sections = sections.collect();
    Reply::Offsets(Offsets { sections })
}

fn topic() -> Reply {
    let partition = |id| PartitionDetails {
        id: PartitionId(id),
        incarnation: Incarnation(1),
        group: ConsensusGroup(1),
        start: None,
        end: None,
    };
    Reply::Topic(TopicDetails {
        stream: StreamId(4),
        id: TopicId(5),
        name: "t".to_string(),
        created: Timestamp(0),
        partitions: vec![partition(0), partition(1)],
    })
}
