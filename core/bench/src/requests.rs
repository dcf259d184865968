//! The smallest requests on many connections: the load for the server's ping and for the bare echo.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    net::TcpStream as StdStream,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use compio::{
    buf::BufResult,
    io::{AsyncRead, AsyncWriteExt},
    net::TcpStream,
    runtime::spawn,
};
use network::{build_runtime, choose_driver};
use wire::{Command, CorrelationId, FRAME_HEADER_SIZE, FrameHeader, FrameKind, checksum64};

use crate::{
    connection::Session,
    error::{During, Error},
    latency::Latency,
};

/// What is sent, on each of the connections, for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests of a connection that are not answered.
    pub(crate) in_flight: usize,
    /// How long.
    pub(crate) length: Duration,
    /// What comes back: replies, or the requests.
    pub(crate) answers: FrameKind,
    /// Whose requests they are.
    pub(crate) session: Option<Session>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Answers per second, once all connections are at work.
    pub(crate) rate: f64,
    /// Answers in all.
    pub(crate) answered: u64,
    /// From a request to its answer.
    pub(crate) latency: Latency,
}

/// Keeps `in_flight` pings unanswered on each of the connections, from one thread.
///
/// # Errors
/// `Io`; `Answer` when an answer is not a success, or nobody has asked for it.
pub(crate) fn run(sockets: Vec<StdStream>, load: Load) -> Result<Outcome, Error> {
    count(load.length, move |tally| drive(sockets, load, tally))
}

/// Runs a load on a thread of its own, as the runtime leaves its marks on the thread; gives what it has
/// counted.
///
/// # Errors
/// `Io`; those of the load.
pub(crate) fn count<L, F>(length: Duration, load: L) -> Result<Outcome, Error>
where
    L: FnOnce(SharedTally) -> F + Send + 'static,
    F: Future<Output = Result<(), Error>> + 'static,
{
    let driver = choose_driver(false).driver;
    let worker = thread::spawn(move || {
        let runtime = build_runtime(driver).during("build a runtime")?;
        runtime.block_on(async move {
            let tally = SharedTally::new(RefCell::new(Tally::begin(length)));
            spawn(load(SharedTally::clone(&tally)))
                .await
                .unwrap_or_else(|_| Err(Error::Server("the load's task ended".into())))?;
            Ok(tally.borrow().outcome())
        })
    });
    worker.join().expect("the load does not panic")
}

async fn drive(sockets: Vec<StdStream>, load: Load, tally: SharedTally) -> Result<(), Error> {
    let mut tasks = Vec::new();
    for socket in sockets {
        let socket = TcpStream::from_std(socket).during("hand a connection to the runtime")?;
        tasks.push(spawn(
            Talk::new(load, SharedTally::clone(&tally)).run(socket),
        ));
    }
    for task in tasks {
        task.await
            .unwrap_or_else(|_| Err(Error::Server("a connection's task ended".into())))?;
    }
    Ok(())
}

/// What all connections of a load count together.
pub(crate) type SharedTally = Rc<RefCell<Tally>>;

/// Answers, and how long they took.
#[derive(Debug)]
pub(crate) struct Tally {
    length: Duration,
    /// Answers count from here on.
    warm: Instant,
    /// No request is sent from here on.
    end: Instant,
    counted: u64,
    answered: u64,
    latency: Latency,
}

impl Tally {
    /// Counts for so long, after a fifth of it that does not count.
    fn begin(length: Duration) -> Self {
        let warm = Instant::now() + length / 5;
        Self {
            length,
            warm,
            end: warm + length,
            counted: 0,
            answered: 0,
            latency: Latency::new(),
        }
    }

    /// Whether no request is to be sent any more.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// An answer came, to a request that was sent then.
    pub(crate) fn record(&mut self, sent: Instant) {
        self.record_at(Instant::now(), sent);
    }

    fn record_at(&mut self, now: Instant, sent: Instant) {
        self.answered += 1;
        if self.warm <= now && now < self.end {
            self.counted += 1;
            self.latency.record(now - sent);
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            rate: self.counted as f64 / self.length.as_secs_f64(),
            answered: self.answered,
            latency: self.latency.clone(),
        }
    }
}

/// One connection's requests.
struct Talk {
    load: Load,
    tally: SharedTally,
    header: FrameHeader,
    /// When each request was sent that is not answered.
    sent: BTreeMap<u64, Instant>,
    correlation: u64,
    /// The front of an answer whose rest is not there.
    rest: Vec<u8>,
}

impl Talk {
    fn new(load: Load, tally: SharedTally) -> Self {
        let client = load
            .session
            .map_or(wire::ClientId(1), |session| session.client);
        let mut header = FrameHeader::request(Command::Ping.code(), CorrelationId(0), client);
        header.session = load.session.map_or(0, |session| session.number.0);
        header.size = u32::try_from(FRAME_HEADER_SIZE).expect("it is 64");
        Self {
            load,
            tally,
            header,
            sent: BTreeMap::new(),
            // Those of the requests before, if any, are below.
            correlation: 1 << 32,
            rest: Vec::new(),
        }
    }

    async fn run(mut self, mut socket: TcpStream) -> Result<(), Error> {
        let mut requests = Vec::with_capacity(self.load.in_flight * FRAME_HEADER_SIZE);
        let mut answers = Vec::with_capacity(self.load.in_flight * FRAME_HEADER_SIZE);
        loop {
            let now = Instant::now();
            if now < self.tally.borrow().end {
                self.ask(&mut requests, now);
            } else if self.sent.is_empty() {
                return Ok(());
            }
            if !requests.is_empty() {
                let BufResult(result, written) = socket.write_all(requests).await;
                result.during("send requests")?;
                requests = written;
                requests.clear();
            }
            answers.clear();
            let BufResult(count, filled) = socket.read(answers).await;
            if count.during("receive answers")? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof))
                    .during("receive answers");
            }
            answers = filled;
            self.take(&answers)?;
        }
    }

    /// Adds as many requests as may be in flight.
    fn ask(&mut self, requests: &mut Vec<u8>, now: Instant) {
        while self.sent.len() < self.load.in_flight {
            self.correlation += 1;
            self.header.correlation = self.correlation;
            self.header.checksum = checksum64(&self.header.as_bytes()[8..]);
            requests.extend_from_slice(self.header.as_bytes());
            self.sent.insert(self.correlation, now);
        }
    }

    /// Takes the answers that are whole.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if !self.rest.is_empty() {
            let mut all = std::mem::take(&mut self.rest);
            all.extend_from_slice(bytes);
            return self.take(&all);
        }
        let now = Instant::now();
        let mut tally = self.tally.borrow_mut();
        let frames = bytes.chunks_exact(FRAME_HEADER_SIZE);
        self.rest.extend_from_slice(frames.remainder());
        for frame in frames {
            let header = FrameHeader::read(frame).map_err(|error| Error::decode("Ping", &error))?;
            let is_answer = header.frame_kind() == Some(self.load.answers)
                && header.body_size() == 0
                && header.status == 0;
            let Some(sent) = self.sent.remove(&header.correlation).filter(|_| is_answer) else {
                return Err(Error::answer("Ping", format!("{header:?}")));
            };
            tally.record_at(now, sent);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bare::{BareServer, Duty};

    #[test]
    fn echoed_requests_are_answers() {
        let server = BareServer::start(1, Duty::Echo).unwrap();
        let sockets = (0..3)
            .map(|_| StdStream::connect(server.address()).unwrap())
            .collect();
        let load = Load {
            in_flight: 4,
            length: Duration::from_millis(50),
            answers: FrameKind::Request,
            session: None,
        };
        let outcome = run(sockets, load).unwrap();
        assert!(outcome.rate > 0.0 && outcome.latency.count() > 0);
    }

    #[test]
    fn only_answers_of_the_counted_time_make_the_rate() {
        let mut tally = Tally::begin(Duration::from_secs(10));
        let sent = tally.warm - Duration::from_millis(1);
        for after in [0, 1, 9_999, 10_000] {
            tally.record_at(tally.warm + Duration::from_millis(after), sent);
        }
        tally.record_at(sent, sent);
        let outcome = tally.outcome();
        assert_eq!((outcome.answered, outcome.latency.count()), (5, 3));
        assert!((outcome.rate - 0.3).abs() < 1e-9);
    }

    #[test]
    fn answer_of_another_kind_is_an_error() {
        let server = BareServer::start(1, Duty::Echo).unwrap();
        let sockets = vec![StdStream::connect(server.address()).unwrap()];
        let load = Load {
            in_flight: 1,
            length: Duration::from_millis(50),
            answers: FrameKind::Reply,
            session: None,
        };
        let error = run(sockets, load).unwrap_err().to_string();
        assert!(error.contains("Ping"), "{error}");
    }
}
