//! The protocol on a plain socket.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use wire::{
    Acknowledgement, Batch, BatchBuilder, ClientId, Command, Consumer, CorrelationId, CreateStream,
    CreateTopic, ErrorCode, FRAME_HEADER_SIZE, Failure, FrameHeader, FrameKind, GetConsumerOffset,
    GetTopic, Identifier, LoggedIn, Login, Message, Offset, OffsetResult, PartitionId,
    PartitionTarget, Password, Plane, PollMessages, PollResult, PollSection, PollStrategy,
    ProducerId, Reply, Request, SendMessages, SendSection, SessionNumber, StoreConsumerOffset,
    StoreSection, Timestamp, TopicDetails,
};

use crate::{PATIENCE, ROOT_PASSWORD, until};

/// Client ids need not be random in a test, only different.
static NEXT_CLIENT: AtomicU64 = AtomicU64::new(1);

/// A connection that sends what it is told to, right or wrong, and waits for nothing by itself.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    client: ClientId,
    session: SessionNumber,
    secret: Option<wire::SessionSecret>,
    correlation: u64,
    /// The number of the last metadata request.
    request: u64,
    /// The highest metadata op seen.
    seen: u64,
    /// The op that the last reply named.
    answered: u64,
}

/// A frame that was received; its checksum holds.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The header.
    pub header: FrameHeader,
    /// The body.
    pub body: Bytes,
}

/// What a poll of one partition gave, the messages taken apart and trimmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The offset of the oldest message.
    pub start: Offset,
    /// The offset behind the newest message.
    pub end: Offset,
    /// Where the next poll begins.
    pub next: Offset,
    /// Offsets and payloads.
    pub messages: Vec<(Offset, Bytes)>,
    /// The first offset and the broker's time of each batch.
    pub batches: Vec<(Offset, Timestamp)>,
}

impl Connection {
    /// Connects; nothing is sent.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).expect("connect")
    }

    /// Connects; nothing is sent.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let number = NEXT_CLIENT.fetch_add(1, Ordering::Relaxed);
        // Different in every process of a test run.
        let client = u128::from(std::process::id()) << 64 | u128::from(number);
        Ok(Self {
            socket,
            client: ClientId(client),
            session: SessionNumber(0),
            secret: None,
            correlation: 0,
            request: 0,
            seen: 0,
            answered: 0,
        })
    }

    /// Connects and logs in as `root`.
    ///
    /// # Panics
    /// When the login is refused.
    #[must_use]
    pub fn login(address: SocketAddr) -> Self {
        match Self::try_login(address) {
            Ok(connection) => connection,
            Err(refusal) => panic!("login: {refusal:?}"),
        }
    }

    /// Connects and logs in as `root`.
    ///
    /// # Errors
    /// The refusal; `None` when the server cannot be reached or closes the connection.
    ///
    /// # Panics
    /// When something else is answered.
    pub fn try_login(address: SocketAddr) -> Result<Self, Option<Failure>> {
        let mut connection = Self::try_open(address).map_err(|_| None)?;
        let login = Login {
            name: "root".to_owned(),
            password: Password(ROOT_PASSWORD.to_owned()),
        };
        match connection.try_ask(login) {
            Some(Ok(Reply::LoggedIn(LoggedIn {
                session, secret, ..
            }))) => {
                connection.session = session;
                connection.secret = Some(secret);
                Ok(connection)
            }
            Some(Err(failure)) => Err(Some(failure)),
            None => Err(None),
            Some(Ok(other)) => panic!("login: {other:?}"),
        }
    }

    /// Its session; 0 before it is logged in.
    #[must_use]
    pub const fn session(&self) -> SessionNumber {
        self.session
    }

    /// Another connection of the session. Metadata requests are numbered by this one alone.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn attach(&self) -> Self {
        let address = self.socket.peer_addr().expect("it is connected");
        self.try_attach(address).expect("the session is there")
    }

    /// Another connection of the session, to this address.
    ///
    /// # Errors
    /// The refusal; `None` when the server cannot be reached or closes the connection.
    pub fn try_attach(&self, address: SocketAddr) -> Result<Self, Option<Failure>> {
        let mut connection = Self::try_open(address).map_err(|_| None)?;
        connection.client = self.client;
        connection.session = self.session;
        connection.secret = self.secret;
        connection.seen = self.seen;
        connection.request = self.request;
        let secret = self.secret.expect("it is logged in");
        match connection.try_ask(wire::Attach { secret }) {
            Some(Ok(_)) => Ok(connection),
            Some(Err(failure)) => Err(Some(failure)),
            None => Err(None),
        }
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The op that the last reply named: of a data command, one of the data group.
    #[must_use]
    pub const fn answered(&self) -> wire::Op {
        wire::Op(self.answered)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// What the operating system says; the other side may have closed the connection.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        // Fails only when the other side was faster.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// The frame of a request, as it would be sent next.
    #[must_use]
    pub fn frame(&mut self, request: &Request) -> Vec<u8> {
        let command = request.command();
        self.correlation += 1;
        let correlation = CorrelationId(self.correlation);
        let mut header = FrameHeader::request(command.code(), correlation, self.client);
        header.session = self.session.0;
        header.request = match command.plane() {
            Plane::Metadata => {
                self.request += 1;
                self.request
            }
            Plane::Query | Plane::Data => self.seen,
            Plane::Connection if command == Command::Attach => self.seen.max(self.session.0),
            Plane::Connection => 0,
        };
        header.frame(&request.encode())
    }

    /// Sends a request and does not wait for its answer; gives its correlation id.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn post(&mut self, request: impl Into<Request>) -> io::Result<u64> {
        let frame = self.frame(&request.into());
        self.socket.write_all(&frame)?;
        Ok(self.correlation)
    }

    /// The next frame; `None` when the other side has closed or reset the connection.
    ///
    /// # Panics
    /// When neither comes within [`PATIENCE`], and when the frame is not as the protocol has it.
    pub fn receive(&mut self) -> Option<Frame> {
        let mut header = [0; FRAME_HEADER_SIZE];
        self.read(&mut header)?;
        let parsed = FrameHeader::read(&header).expect("a whole header");
        parsed.check(wire::FRAME_SIZE_MAX).expect("a right header");
        let mut frame = header.to_vec();
        frame.resize(FRAME_HEADER_SIZE + parsed.body_size(), 0);
        self.read(&mut frame[FRAME_HEADER_SIZE..])?;
        let body = parsed.body(&Bytes::from(frame)).expect("a right checksum");
        if parsed.kind == FrameKind::Reply as u8 {
            self.answered = parsed.op().0;
            let command = Command::from_code(parsed.code);
            // Replies to data commands name an op of a data group.
            if command.is_some_and(|command| command.plane() != Plane::Data) {
                self.seen = self.seen.max(parsed.op().0);
            }
        }
        Some(Frame {
            header: parsed,
            body,
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Option<()> {
        match self.socket.read_exact(buffer) {
            Ok(()) => Some(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    panic!("nothing came for {PATIENCE:?}")
                }
                _ => None,
            },
        }
    }

    /// Sends a request and waits for its answer; events are passed over.
    ///
    /// # Errors
    /// The server's refusal.
    ///
    /// # Panics
    /// When the connection is lost.
    pub fn ask(&mut self, request: impl Into<Request>) -> Result<Reply, Failure> {
        self.try_ask(request).expect("the connection is lost")
    }

    /// As [`Connection::ask`]; `None` when the connection is lost.
    pub fn try_ask(&mut self, request: impl Into<Request>) -> Option<Result<Reply, Failure>> {
        let request = request.into();
        let command = request.command();
        let correlation = self.post(request).ok()?;
        loop {
            let frame = self.receive()?;
            if frame.header.correlation == correlation {
                return Some(frame.reply(command));
            }
        }
    }

    /// Whether the server answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn ping(&mut self) {
        assert_eq!(self.ask(Request::Ping), Ok(Reply::Done));
    }

    /// Makes a stream of this name with a topic of the same name, and waits until its partitions are served:
    /// who polls one before is told to come again.
    ///
    /// # Panics
    /// When it is refused.
    pub fn create_topic(&mut self, name: &str, partitions: u32) -> TopicDetails {
        let stream = CreateStream {
            name: name.to_owned(),
        };
        self.ask(stream).expect("make a stream");
        let topic = CreateTopic {
            stream: Identifier::Name(name.to_owned()),
            name: name.to_owned(),
            partitions,
        };
        let topic = match self.ask(topic) {
            Ok(Reply::Topic(topic)) => topic,
            other => panic!("make a topic: {other:?}"),
        };
        until("the partitions are served", || {
            let request = GetTopic {
                stream: topic.stream.into(),
                topic: topic.id.into(),
            };
            match self.ask(request) {
                Ok(Reply::Topic(found)) => {
                    let served = found.partitions.iter().all(|one| one.end.is_some());
                    served.then_some(())
                }
                other => panic!("ask for a topic: {other:?}"),
            }
        });
        topic
    }

    /// Appends messages as one batch; gives the offset of the first.
    ///
    /// # Errors
    /// The refusal of the batch.
    pub fn append(
        &mut self,
        topic: &TopicDetails,
        partition: u32,
        payloads: &[Bytes],
    ) -> Result<Offset, Failure> {
        let send = send(topic, partition, batch(payloads), Acknowledgement::Quorum);
        match self.ask(send)? {
            Reply::Sent(sent) => {
                let [result] = &sent.sections[..] else {
                    panic!("one section was sent: {sent:?}");
                };
                result.status.clone()?;
                Ok(result.base_offset.expect("it succeeded"))
            }
            other => panic!("append: {other:?}"),
        }
    }

    /// Reads a partition for the single consumer `reader`; never waits.
    ///
    /// # Errors
    /// The refusal of the request or of the partition.
    pub fn poll(
        &mut self,
        topic: &TopicDetails,
        partition: u32,
        strategy: PollStrategy,
    ) -> Result<Page, Failure> {
        match self.ask(poll(topic, partition, "reader", strategy))? {
            Reply::Polled(polled) => {
                let [result] = &polled.sections[..] else {
                    panic!("one section was polled: {polled:?}");
                };
                result.status.clone()?;
                Ok(page(result))
            }
            other => panic!("poll: {other:?}"),
        }
    }

    /// Reads everything from an offset to the end.
    ///
    /// # Errors
    /// The refusal of a poll.
    pub fn read_from(
        &mut self,
        topic: &TopicDetails,
        partition: u32,
        from: Offset,
    ) -> Result<Page, Failure> {
        let mut whole = self.poll(topic, partition, PollStrategy::Offset(from))?;
        while whole.next < whole.end {
            let page = self.poll(topic, partition, PollStrategy::Offset(whole.next))?;
            assert!(
                page.next > whole.next,
                "a poll below the end gives something"
            );
            whole.end = page.end;
            whole.next = page.next;
            whole.messages.extend(page.messages);
            whole.batches.extend(page.batches);
        }
        Ok(whole)
    }

    /// Stores an offset for a single consumer; gives what is stored then.
    ///
    /// # Errors
    /// The refusal.
    pub fn store(
        &mut self,
        topic: &TopicDetails,
        partition: u32,
        consumer: &str,
        offset: Offset,
    ) -> Result<Option<Offset>, Failure> {
        match self.ask(store(topic, partition, consumer, offset))? {
            Reply::OffsetsStored(stored) => {
                stored.sections[0].status.clone()?;
                Ok(stored.sections[0].stored)
            }
            other => panic!("store: {other:?}"),
        }
    }

    /// What a single consumer has stored, and the bounds of the partition.
    ///
    /// # Errors
    /// The refusal.
    pub fn stored(
        &mut self,
        topic: &TopicDetails,
        partition: u32,
        consumer: &str,
    ) -> Result<OffsetResult, Failure> {
        let request = GetConsumerOffset {
            stream: topic.stream.into(),
            topic: topic.id.into(),
            consumer: Consumer::Single(consumer.to_owned()),
            partitions: vec![PartitionId(partition)],
        };
        match self.ask(request)? {
            Reply::Offsets(offsets) => {
                let result = &offsets.sections[0];
                result.status.clone()?;
                Ok(result.clone())
            }
            other => panic!("stored offset: {other:?}"),
        }
    }
}

impl Frame {
    /// What a reply to `command` says.
    ///
    /// # Errors
    /// The server's refusal.
    ///
    /// # Panics
    /// When it is no reply to it.
    pub fn reply(&self, command: Command) -> Result<Reply, Failure> {
        assert_eq!(self.header.kind, FrameKind::Reply as u8);
        assert_eq!(self.header.code, command.code());
        if self.header.status == 0 {
            return Ok(Reply::decode(command, self.body.clone()).expect("a right body"));
        }
        Err(Failure::decode(self.header.status, &self.body))
    }

    /// The code of an error reply; `None` when it is none.
    #[must_use]
    pub fn error(&self) -> Option<ErrorCode> {
        (self.header.kind == FrameKind::Reply as u8)
            .then(|| ErrorCode::from_code(self.header.status))
            .flatten()
    }
}

/// A batch that is not idempotent.
#[must_use]
pub fn batch(payloads: &[Bytes]) -> Batch {
    let mut builder = BatchBuilder::new();
    for payload in payloads {
        builder.push(&Message {
            payload: payload.clone(),
            ..Message::default()
        });
    }
    builder.build(ProducerId(0), 0)
}

/// A send of one batch.
#[must_use]
pub fn send(
    topic: &TopicDetails,
    partition: u32,
    batch: Batch,
    acknowledgement: Acknowledgement,
) -> SendMessages {
    SendMessages {
        stream: topic.stream.into(),
        topic: topic.id.into(),
        acknowledgement,
        sections: vec![SendSection {
            target: PartitionTarget::Explicit(PartitionId(partition)),
            batch,
        }],
    }
}

/// A poll of one partition that never waits.
#[must_use]
pub fn poll(
    topic: &TopicDetails,
    partition: u32,
    consumer: &str,
    strategy: PollStrategy,
) -> PollMessages {
    PollMessages {
        stream: topic.stream.into(),
        topic: topic.id.into(),
        consumer: Consumer::Single(consumer.to_owned()),
        max_messages: 100_000,
        max_bytes: 1 << 20,
        min_bytes: 0,
        max_wait_ms: 0,
        commit_on_poll: false,
        sections: vec![PollSection {
            partition: PartitionId(partition),
            epoch: wire::Epoch(0),
            strategy,
        }],
    }
}

/// A store of one offset.
#[must_use]
pub fn store(
    topic: &TopicDetails,
    partition: u32,
    consumer: &str,
    offset: Offset,
) -> StoreConsumerOffset {
    StoreConsumerOffset {
        stream: topic.stream.into(),
        topic: topic.id.into(),
        consumer: Consumer::Single(consumer.to_owned()),
        sections: vec![StoreSection {
            partition: PartitionId(partition),
            epoch: wire::Epoch(0),
            offset,
        }],
    }
}

pub(crate) fn page(result: &PollResult) -> Page {
    let mut messages = Vec::new();
    let mut batches = Vec::new();
    for bytes in &result.batches {
        let batch = Batch::read(bytes).expect("a batch as it was sent");
        assert!(batch.is_stamped(), "a batch as it was stamped");
        let (base, time) = (batch.header.base_offset, batch.header.timestamp);
        batches.push((Offset(base), Timestamp(time)));
        for message in batch.messages() {
            let message = message.expect("a message as it was sent");
            if result.from <= message.offset && message.offset < result.next {
                messages.push((message.offset, message.payload));
            }
        }
    }
    Page {
        start: result.start,
        end: result.end,
        next: result.next,
        messages,
        batches,
    }
}
