//! Exact effects of a session.

use alloc::{
    collections::{BTreeMap, VecDeque},
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::time::Duration;
use std::format;

use bytes::{Bytes, BytesMut};
use wire::{
    Acknowledgement, Attach, Batch, BatchBuilder, ChangePassword, ClientId, ClusterId,
    ClusterMetadata, Command, ConsensusGroup, CreateStream, ErrorCode, Event, EvictionReason,
    FRAME_SIZE_MAX, Failure, FrameHeader, GetStream, GroupPrimary, Identifier, LoggedIn, Login,
    Message, Node, Op, PartitionId, PartitionTarget, Password, PrimaryChanged, ProducerId,
    ReplicaId, Reply, Request, SendMessages, SendSection, SessionNumber, SessionSecret,
    StreamDetails, StreamId, Time, Timestamp, UserId, View,
};

use super::{
    Close, ConnectionId, Credentials, Effect, Input, Retry, Route, Session, SessionConfig,
    Submission, Ticket,
};
use crate::{ClientError, ErrorClass, Frame, next_frame};

mod cluster;
mod connections;
mod requests;

const MS: u64 = 1_000_000;
const SECRET: SessionSecret = SessionSecret([7; 32]);

/// A session and the clock that it is shown.
struct Driver {
    session: Session,
    now: u64,
    /// What nodes tell of the cluster, by address; one that is not here is alone.
    told: BTreeMap<String, ClusterMetadata>,
    /// Whether questions for the cluster are answered without a word to the test.
    answers_questions: bool,
    /// Where each connection leads.
    addresses: BTreeMap<ConnectionId, String>,
}

/// A request as the server sees it.
#[derive(Debug)]
struct Seen {
    connection: ConnectionId,
    header: FrameHeader,
    request: Request,
}

impl Seen {
    fn of(connection: ConnectionId, frame: &[Bytes]) -> Self {
        let mut bytes = BytesMut::new();
        frame.iter().for_each(|part| bytes.extend_from_slice(part));
        let Frame { header, body } = next_frame(&mut bytes, FRAME_SIZE_MAX).unwrap().unwrap();
        let command = Command::from_code(header.code).unwrap();
        Self {
            connection,
            header,
            request: Request::decode(command, body).unwrap(),
        }
    }
}

/// What a node tells of a cluster with nodes at these addresses. The first leads the metadata group.
fn cluster(node: u8, addresses: &[&str]) -> ClusterMetadata {
    let nodes = (0..).zip(addresses).map(|(replica, address)| Node {
        replica: ReplicaId(replica),
        address: (*address).to_string(),
    });
    let groups = vec![GroupPrimary {
        group: ConsensusGroup::METADATA,
        view: View(0),
        primary: ReplicaId(0),
    }];
    ClusterMetadata {
        cluster: ClusterId(1),
        node: ReplicaId(node),
        nodes: nodes.collect(),
        groups,
    }
}

impl Driver {
    fn new(change: impl FnOnce(&mut SessionConfig)) -> Self {
        let credentials = Credentials {
            name: "ann".into(),
            password: Password("secret".into()),
        };
        let mut config = SessionConfig::new(vec!["a:1".into()], credentials, ClientId(5), 1);
        change(&mut config);
        Self {
            session: Session::new(config),
            now: 0,
            told: BTreeMap::new(),
            answers_questions: true,
            addresses: BTreeMap::new(),
        }
    }

    /// A session that is logged in over its first connection.
    fn logged_in(change: impl FnOnce(&mut SessionConfig)) -> Self {
        let mut driver = Self::new(change);
        let connection = driver.connecting();
        driver.input(Input::Connected { connection });
        let login = driver.sent();
        driver.reply(&login, &logged_in(100));
        driver.effects();
        driver
    }

    fn input(&mut self, input: Input) {
        let time = Time {
            monotonic: self.now,
            wall: Timestamp(0),
        };
        self.session.handle(time, input);
    }

    /// What the session wants; its questions for the cluster are answered.
    fn effects(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(effect) = self.session.next_effect() {
            if let Effect::Connect {
                connection,
                address,
            } = &effect
            {
                self.addresses.insert(*connection, address.clone());
            }
            if let Effect::Send { connection, frame } = &effect {
                let seen = Seen::of(*connection, frame);
                if seen.request == Request::GetClusterMetadata && self.answers_questions {
                    self.tell(&seen);
                    continue;
                }
            }
            effects.push(effect);
        }
        effects
    }

    fn tell(&mut self, question: &Seen) {
        let address = &self.addresses[&question.connection];
        let alone = cluster(0, &[address.as_str()]);
        let told = self.told.get(address).cloned().unwrap_or(alone);
        self.reply(question, &Reply::ClusterMetadata(told));
    }

    fn effect(&mut self) -> Effect {
        let mut effects = self.effects();
        assert_eq!(effects.len(), 1, "{effects:?}");
        effects.remove(0)
    }

    /// Lets time pass until the session wants to be called.
    fn wait(&mut self) {
        self.now = self
            .now
            .max(self.session.deadline().expect("something is due"));
        self.input(Input::Tick);
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms * MS;
        self.input(Input::Tick);
    }

    /// Ticks until the session asks for a connection.
    fn connecting(&mut self) -> ConnectionId {
        self.input(Input::Tick);
        for _ in 0..10 {
            for effect in self.effects() {
                if let Effect::Connect { connection, .. } = effect {
                    return connection;
                }
            }
            self.wait();
        }
        panic!("the session does not connect");
    }

    /// Brings the first lane back after a lost connection.
    fn reattach(&mut self) -> ConnectionId {
        let connection = self.connecting();
        self.input(Input::Connected { connection });
        let attach = self.sent();
        assert_eq!(attach.request, Request::Attach(Attach { secret: SECRET }));
        self.reply(&attach, &Reply::Done);
        connection
    }

    fn submit(&mut self, ticket: u64, request: impl Into<Request>) {
        self.submit_with(ticket, request, |_| {});
    }

    fn submit_with(
        &mut self,
        ticket: u64,
        request: impl Into<Request>,
        change: impl FnOnce(&mut Submission),
    ) {
        let mut submission = Submission {
            ticket: Ticket(ticket),
            request: request.into(),
            timeout: Duration::from_secs(30),
            retry: Retry::Session,
            route: Route::any(0),
        };
        change(&mut submission);
        self.input(Input::Submit(submission));
    }

    fn all_sent(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for effect in self.effects() {
            let Effect::Send { connection, frame } = effect else {
                panic!("{effect:?}")
            };
            seen.push(Seen::of(connection, &frame));
        }
        seen
    }

    fn sent(&mut self) -> Seen {
        let mut seen = self.all_sent();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0)
    }

    fn reply(&mut self, seen: &Seen, reply: &Reply) {
        self.reply_at(seen, reply, Op(0));
    }

    fn reply_at(&mut self, seen: &Seen, reply: &Reply, op: Op) {
        let header = FrameHeader::reply(&seen.header, 0).with_primary(op, ReplicaId(0), View(0));
        self.frame(seen.connection, header, reply.to_bytes());
    }

    fn refuse(&mut self, seen: &Seen, code: ErrorCode) {
        let failure = Failure::new(code, "no");
        let header = FrameHeader::reply(&seen.header, code.code());
        self.frame(seen.connection, header, failure.encode());
    }

    fn frame(&mut self, connection: ConnectionId, header: FrameHeader, body: Bytes) {
        self.input(Input::Frame {
            connection,
            frame: Frame { header, body },
        });
    }

    fn lose(&mut self, connection: ConnectionId) {
        self.input(Input::Disconnected {
            connection,
            reason: "cut".into(),
        });
    }

    fn completed(&mut self) -> (u64, Result<Reply, ClientError>) {
        let effect = self.effect();
        let Effect::Completed { ticket, result } = effect else {
            panic!("{effect:?}")
        };
        (ticket.0, result)
    }
}

fn logged_in(session: u64) -> Reply {
    Reply::LoggedIn(LoggedIn {
        session: SessionNumber(session),
        secret: SECRET,
        user: UserId(1),
        session_timeout_ms: 30_000,
        frame_size_max: FRAME_SIZE_MAX,
    })
}

fn create(name: &str) -> CreateStream {
    CreateStream {
        name: name.to_string(),
    }
}

fn query() -> GetStream {
    GetStream {
        stream: Identifier::Number(1),
    }
}

fn stream() -> Reply {
    Reply::Stream(StreamDetails {
        id: StreamId(1),
        name: "s".into(),
        created: Timestamp(0),
        topics: 0,
    })
}

fn send(producer: u128) -> SendMessages {
    let mut builder = BatchBuilder::new();
    builder.push(&Message::default());
    let batch: Batch = builder.build(ProducerId(producer), u64::from(producer != 0));
    SendMessages {
        stream: Identifier::Number(1),
        topic: Identifier::Number(1),
        acknowledgement: Acknowledgement::Quorum,
        sections: vec![SendSection {
            target: PartitionTarget::Explicit(PartitionId(0)),
            batch,
        }],
    }
}
