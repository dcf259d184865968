//! One blocking connection that speaks frames.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher, RandomState},
    io::{BufReader, IoSlice, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use bytes::Bytes;
use wire::{
    AssignmentChanged, Attach, ClientId, ClusterMetadata, Command, CorrelationId, Event,
    FRAME_HEADER_SIZE, FRAME_SIZE_MAX, Failure, FrameHeader, FrameKind, Login, Op, Password, Plane,
    Reply, Request, SessionNumber, SessionSecret,
};

use crate::error::{During, Error};

/// Small answers are read together; a large one is read past this buffer.
const READ_BUFFER: usize = 16 * 1024;

/// How long an answer may take before the measurement is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A session that was logged in, for further connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) client: ClientId,
    pub(crate) number: SessionNumber,
    secret: SessionSecret,
    /// The highest metadata op seen.
    pub(crate) seen: Op,
}

/// One blocking connection.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
    session: Session,
    correlation: u64,
    request: u64,
    frame: Vec<u8>,
    /// What was told of assignments while something else was awaited.
    changes: VecDeque<AssignmentChanged>,
}

/// A reply's header and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) header: FrameHeader,
    pub(crate) body: Bytes,
}

impl Connection {
    /// A connection without a session, for a client id of its own.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Error> {
        let socket = TcpStream::connect(address).during(format!("connect to {address}"))?;
        socket
            .set_nodelay(true)
            .and_then(|()| socket.set_read_timeout(Some(ANSWER_TIMEOUT)))
            .during("configure a connection")?;
        Ok(Self {
            reader: BufReader::with_capacity(READ_BUFFER, socket),
            session: Session {
                client: random_client(),
                number: SessionNumber(0),
                secret: SessionSecret([0; 32]),
                seen: Op(0),
            },
            correlation: 0,
            request: 0,
            frame: Vec::new(),
            changes: VecDeque::new(),
        })
    }

    /// Begins a session.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let login = Login {
            name: user.into(),
            password: Password(password.into()),
        };
        self.send(&login.into())?;
        self.take_login()
    }

    /// Takes the answer to a login that was sent.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn take_login(&mut self) -> Result<(), Error> {
        match self.receive()?.decode(Command::Login)? {
            Reply::LoggedIn(logged_in) => {
                self.session.number = logged_in.session;
                self.session.secret = logged_in.secret;
                self.session.seen = self.session.seen.max(Op(logged_in.session.0));
                Ok(())
            }
            other => Err(unexpected("Login", &other)),
        }
    }

    /// Another connection of a session.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn attach(address: SocketAddr, session: Session) -> Result<Self, Error> {
        let mut connection = Self::open(address)?;
        connection.session = session;
        let secret = session.secret;
        match connection.call(Attach { secret })? {
            Reply::Done => Ok(connection),
            other => Err(unexpected("Attach", &other)),
        }
    }

    pub(crate) const fn session(&self) -> Session {
        self.session
    }

    /// The socket, when no answer is expected on it.
    pub(crate) fn into_socket(self) -> TcpStream {
        self.reader.into_inner()
    }

    /// The views of all consensus groups, added up: as many more as there were view changes, or attempts.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub(crate) fn views(&mut self) -> Result<u64, Error> {
        match self.call(Request::GetClusterMetadata)? {
            Reply::ClusterMetadata(ClusterMetadata { groups, .. }) => {
                Ok(groups.iter().map(|group| u64::from(group.view.0)).sum())
            }
            other => Err(unexpected("GetClusterMetadata", &other)),
        }
    }

    /// Sends a request and waits for its answer; none may be in flight.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn call(&mut self, request: impl Into<Request>) -> Result<Reply, Error> {
        let request = request.into();
        let command = request.command();
        let correlation = self.send(&request)?;
        let answer = self.receive()?;
        if answer.header.correlation != correlation.0 {
            return Err(Error::answer(command.name(), "another correlation id"));
        }
        if command.plane() != Plane::Data {
            self.session.seen = self.session.seen.max(answer.header.op());
        }
        answer.decode(command)
    }

    /// Sends a request; the answer is to be received later.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn send(&mut self, request: &Request) -> Result<CorrelationId, Error> {
        let command = request.command();
        self.correlation += 1;
        let correlation = CorrelationId(self.correlation);
        let mut header = FrameHeader::request(command.code(), correlation, self.session.client);
        header.session = self.session.number.0;
        header.request = match command.plane() {
            Plane::Metadata => {
                self.request += 1;
                self.request
            }
            Plane::Connection | Plane::Query | Plane::Data => self.session.seen.0,
        };
        let parts = header.frame_of_parts(request.encode_parts());
        write_all(self.reader.get_ref(), &parts).during(format!("send {}", command.name()))?;
        Ok(correlation)
    }

    /// Waits for the next answer. The checksum is not looked at, see [`Answer::verify`]: the receiver's
    /// cost is not what is measured.
    ///
    /// # Errors
    /// `Io`, `Answer`; `Server` when the session or a membership has ended.
    pub(crate) fn receive(&mut self) -> Result<Answer, Error> {
        loop {
            let answer = self.receive_frame()?;
            match answer.header.frame_kind() {
                Some(FrameKind::Reply) => return Ok(answer),
                Some(FrameKind::Event) => self.note(answer)?,
                kind => return Err(Error::answer("a request", format!("kind {kind:?}"))),
            }
        }
    }

    /// Waits for the next event that tells of a changed assignment; nothing may be in flight.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub(crate) fn next_change(&mut self) -> Result<AssignmentChanged, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let frame = self.receive_frame()?;
            match frame.header.frame_kind() {
                Some(FrameKind::Event) => self.note(frame)?,
                kind => return Err(Error::answer("no request", format!("kind {kind:?}"))),
            }
        }
    }

    /// The events that tell of a changed assignment and have come with answers.
    pub(crate) fn take_changes(&mut self) -> impl Iterator<Item = AssignmentChanged> + '_ {
        self.changes.drain(..)
    }

    /// Says that the session lives.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub(crate) fn give_sign(&mut self) -> Result<(), Error> {
        match self.call(Request::Ping)? {
            Reply::Done => Ok(()),
            other => Err(unexpected("Ping", &other)),
        }
    }

    /// Keeps an event about an assignment; passes over those that concern nobody here.
    fn note(&mut self, frame: Answer) -> Result<(), Error> {
        let event = Event::decode(&frame.header, frame.body)
            .map_err(|error| Error::decode("no request: an event", &error))?;
        match event {
            Some(Event::AssignmentChanged(change)) => self.changes.push_back(change),
            Some(event @ (Event::Evicted(_) | Event::MembershipEnded(..))) => {
                return Err(Error::Server(format!("the server ends it: {event:?}")));
            }
            Some(Event::ServerStopping(_) | Event::PrimaryChanged(_)) | None => {}
        }
        Ok(())
    }

    fn receive_frame(&mut self) -> Result<Answer, Error> {
        let mut header = [0; FRAME_HEADER_SIZE];
        self.reader
            .read_exact(&mut header)
            .during("receive an answer")?;
        let header =
            FrameHeader::read(&header).map_err(|error| Error::decode("a request", &error))?;
        header
            .check(FRAME_SIZE_MAX)
            .map_err(|error| Error::decode("a request", &error))?;
        let mut body = std::mem::take(&mut self.frame);
        body.resize(header.body_size(), 0);
        self.reader
            .read_exact(&mut body)
            .during("receive an answer")?;
        Ok(Answer {
            header,
            body: Bytes::from(body),
        })
    }

    /// Gives the memory of an answer back, so that the next one needs none. Without effect when parts of
    /// the answer are still in use.
    pub(crate) fn reuse(&mut self, body: Bytes) {
        if let Ok(body) = body.try_into_mut() {
            self.frame = body.into();
        }
    }
}

impl Answer {
    /// The body of a success.
    ///
    /// # Errors
    /// `Refused` for an error reply, `Answer` for what is none.
    pub(crate) fn decode(&self, command: Command) -> Result<Reply, Error> {
        if self.header.code != command.code() {
            return Err(Error::answer(
                command.name(),
                format!("an answer to command {}", self.header.code),
            ));
        }
        if self.header.status != 0 {
            let failure = Failure::decode(self.header.status, &self.body);
            return Err(Error::Refused {
                what: command.name().into(),
                failure,
            });
        }
        Reply::decode(command, self.body.clone())
            .map_err(|error| Error::decode(command.name(), &error))
    }

    /// Checks the frame's checksum.
    ///
    /// # Errors
    /// `Answer`.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let mut frame = Vec::with_capacity(FRAME_HEADER_SIZE + self.body.len());
        frame.extend_from_slice(self.header.as_bytes());
        frame.extend_from_slice(&self.body);
        self.header
            .body(&Bytes::from(frame))
            .map(|_| ())
            .map_err(|error| Error::decode("a request", &error))
    }
}

pub(crate) fn unexpected(command: &str, reply: &Reply) -> Error {
    let mut text = format!("{reply:?}");
    text.truncate(text.floor_char_boundary(200));
    Error::answer(command, text)
}

/// Writes all parts with as few calls as possible.
fn write_all(mut socket: &TcpStream, parts: &[Bytes]) -> std::io::Result<()> {
    let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        let written = socket.write_vectored(left)?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

fn random_client() -> ClientId {
    // Every RandomState has keys of its own.
    let random = || u128::from(RandomState::new().build_hasher().finish());
    ClientId((random() << 64 | random()).max(1))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use wire::{ConsumerGroupId, EvictionReason, Generation, StreamId, TopicId};

    use super::*;

    /// A connection on which these frames have come in.
    fn told(frames: &[Vec<u8>]) -> Connection {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&frames.concat()).unwrap();
        connection
    }

    fn event(event: &Event) -> Vec<u8> {
        event.header(SessionNumber(1)).frame(&event.encode())
    }

    fn changed(generation: u64) -> Event {
        Event::AssignmentChanged(AssignmentChanged {
            stream: StreamId(1),
            topic: TopicId(2),
            group: ConsumerGroupId(3),
            generation: Generation(generation),
        })
    }

    fn reply() -> Vec<u8> {
        let request = FrameHeader::request(Command::Ping.code(), CorrelationId(7), ClientId(1));
        FrameHeader::reply(&request, 0).frame(b"")
    }

    #[test]
    fn change_that_comes_before_an_answer_is_not_lost() {
        let mut connection = told(&[event(&changed(4)), reply(), event(&changed(5))]);
        assert_eq!(connection.receive().unwrap().header.correlation, 7);
        for generation in [4, 5] {
            let change = connection.next_change().unwrap();
            assert_eq!(change.generation, Generation(generation));
        }
    }

    #[test]
    fn end_of_the_session_is_an_error() {
        let evicted = event(&Event::Evicted(EvictionReason::Expired));
        let error = told(&[evicted.clone(), reply()]).receive().unwrap_err();
        assert!(error.to_string().contains("Expired"), "{error}");
        assert!(told(&[evicted]).next_change().is_err());
    }

    #[test]
    fn answer_where_a_change_is_awaited_is_an_error() {
        assert!(told(&[reply()]).next_change().is_err());
    }
}
