//! Bounded memory: whoever sends or asks for more than is taken is made to wait, or dropped.

use std::{
    io::{self, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use bytes::Bytes;
use integration::{
    Connection, PATIENCE, Server, Site, Volume, batch, poll, repetitions, send, until,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::{Acknowledgement, ErrorCode, Offset, PollMessages, PollStrategy, Reply, TopicDetails};

const MIB: u64 = 1 << 20;

/// A server that holds little: 8 MiB of unanswered requests on each of two shards, 16 MiB of newest messages,
/// and 24 polls of a connection at once, each of which may hold the 1 MiB that it has read.
fn small_site() -> Site {
    Site::new()
        .with("cluster.limits.batch_size", "\"1 MiB\"")
        .with("cluster.limits.poll_bytes", "\"1 MiB\"")
        .with("node.connections.requests_in_flight", "24")
        .with("node.connections.bytes_in_flight", "\"2 MiB\"")
        .with("node.connections.bytes_in_flight_per_shard", "\"8 MiB\"")
        .with("node.connections.queue_soft_max", "\"1 MiB\"")
        .with("node.connections.queue_hard_max", "\"8 MiB\"")
        .with("node.connections.slow_timeout", "\"1 s\"")
}

/// What such a server may have resident beyond what it has at rest: requests, newest messages, frames of the
/// journal, and what the allocator keeps.
const GROWTH_MAX: u64 = 128 * MIB;

fn expect_bounded(server: &Server, rest: u64) {
    let peak = server.resident_peak();
    assert!(
        peak < rest + GROWTH_MAX,
        "{} MiB at rest, {} MiB at the peak",
        rest / MIB,
        peak / MIB
    );
}

/// A producer that writes and never reads.
struct Flood {
    socket: TcpStream,
    frame: Vec<u8>,
    /// Bytes of `frame` that are written.
    written: usize,
    total: u64,
}

impl Flood {
    fn new(of: &Connection, topic: &TopicDetails, partition: u32, acknowledged: bool) -> Self {
        let mut connection = of.attach();
        let acknowledgement = if acknowledged {
            Acknowledgement::Quorum
        } else {
            Acknowledgement::None
        };
        let batch = batch(&vec![Bytes::from(vec![9; 1_000]); 100]);
        // The same frame again and again: nobody looks at the correlation.
        let frame = connection.frame(&send(topic, partition, batch, acknowledgement).into());
        let socket = connection.socket().try_clone().expect("a second handle");
        let timeout = Some(Duration::from_millis(200));
        socket.set_write_timeout(timeout).expect("set a timeout");
        Self {
            socket,
            frame,
            written: 0,
            total: 0,
        }
    }

    /// Writes until nothing is taken for a while, or `limit` bytes are; whether it is held back.
    fn pour(&mut self, limit: u64) -> bool {
        while self.total < limit {
            match self.socket.write(&self.frame[self.written..]) {
                Ok(written) => {
                    self.total += written as u64;
                    self.written = (self.written + written) % self.frame.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => panic!("the server closed the connection: {error}"),
            }
        }
        false
    }
}

#[test]
fn producers_that_outrun_the_server_are_held_back_and_memory_is_bounded() {
    let site = small_site();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 4);
    let rest = server.resident();
    let each = u64::from(repetitions(24, 400)) * MIB;
    std::thread::scope(|scope| {
        for number in 0..6 {
            let mut flood = Flood::new(&connection, &topic, number % 4, number % 2 == 0);
            // Their answers are not read, so that in the end nothing is taken any more.
            scope.spawn(move || {
                let deadline = Instant::now() + PATIENCE;
                while flood.pour(each) && Instant::now() < deadline {
                    if flood.total > each / 2 {
                        break;
                    }
                }
            });
        }
    });
    expect_bounded(&server, rest);
    connection.ping();
    assert_eq!(
        connection.store(&topic, 0, "billing", Offset(0)),
        Ok(Some(Offset(0))),
        "others are served"
    );
    server.stop();
}

/// The disk takes nothing at all: the file system is frozen.
#[test]
fn producers_are_held_back_while_the_disk_takes_nothing() {
    let Some(mut volume) = Volume::mount(512) else {
        return;
    };
    let site = small_site().with_data(&volume.path().join("data"));
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 4);
    let mut floods: Vec<Flood> = (0..8)
        .map(|number| Flood::new(&connection, &topic, number % 4, number % 2 == 0))
        .collect();
    let rest = server.resident();
    volume.freeze();
    for flood in &mut floods {
        assert!(flood.pour(400 * MIB), "it is held back");
    }
    let total: u64 = floods.iter().map(|flood| flood.total).sum();
    expect_bounded(&server, rest);
    // What needs no disk goes on.
    connection.ping();
    volume.thaw();
    let end = until("what was taken is stored", || {
        let counts = (0..4).map(|partition| {
            let page = connection.poll(&topic, partition, PollStrategy::Last);
            page.expect("it can be read").end.0
        });
        let stored = counts.sum::<u64>() * 1_000;
        // Not more than what was written, and most of what was not in the sockets' buffers.
        assert!(stored <= total);
        (stored > 0).then_some(stored)
    });
    assert!(end > 0);
    drop(floods);
    drop(connection);
    server.stop();
}

#[test]
fn reader_that_does_not_read_is_dropped_and_memory_is_bounded() {
    let site = small_site();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let batches = vec![Bytes::from(vec![9; 1_000]); 900];
    for _ in 0..20 {
        connection
            .append(&topic, 0, &batches)
            .expect("it is appended");
    }
    let rest = server.resident();
    let mut reader = connection.attach();
    let timeout = Some(Duration::from_millis(200));
    reader
        .socket()
        .set_write_timeout(timeout)
        .expect("set a timeout");
    let deadline = Instant::now() + PATIENCE;
    let mut asked = 0;
    loop {
        assert!(Instant::now() < deadline, "it is dropped in the end");
        let request = poll(&topic, 0, "reader", PollStrategy::First);
        match reader.post(request) {
            Ok(_) => asked += 1,
            // Nothing more is read from it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        // Others are served at once.
        connection.ping();
        if asked % 100 == 0 {
            expect_bounded(&server, rest);
        }
    }
    expect_bounded(&server, rest);
    let page = connection.read_from(&topic, 0, Offset(0));
    assert_eq!(page.expect("it can be read").messages.len(), 18_000);
    drop(connection);
    server.stop();
}

#[test]
fn thousand_connections_are_served_side_by_side() {
    const COUNT: u64 = 1_000;
    if !may_open(3 * COUNT) {
        return;
    }
    let site = Site::new();
    let server = site.start();
    let mut first = Connection::login(server.address());
    let topic = first.create_topic("orders", 4);
    let rest = server.resident();
    let mut connections: Vec<Connection> = (0..COUNT).map(|_| first.attach()).collect();
    // All wait for one message.
    let wait = PollMessages {
        min_bytes: 1,
        max_wait_ms: 30_000,
        ..poll(&topic, 0, "reader", PollStrategy::First)
    };
    for connection in &mut connections {
        connection.post(wait.clone()).expect("it is open");
    }
    let message = Bytes::from("to all");
    assert_eq!(
        first.append(&topic, 0, std::slice::from_ref(&message)),
        Ok(Offset(0))
    );
    for connection in &mut connections {
        let answer = connection.receive().expect("it is open");
        match answer.reply(wire::Command::PollMessages) {
            Ok(Reply::Polled(polled)) => assert_eq!(polled.sections[0].next, Offset(1)),
            other => panic!("{other:?}"),
        }
    }
    // All send at the same moment.
    for (number, connection) in (0..).zip(&mut connections) {
        let payload = Bytes::from(format!("from {number}"));
        let send = send(&topic, 1, batch(&[payload]), Acknowledgement::Quorum);
        connection.post(send).expect("it is open");
    }
    let mut offsets = Vec::new();
    for connection in &mut connections {
        let answer = connection.receive().expect("it is open");
        match answer.reply(wire::Command::SendMessages) {
            Ok(Reply::Sent(sent)) => offsets.push(sent.sections[0].base_offset),
            other => panic!("{other:?}"),
        }
    }
    offsets.sort_unstable();
    let expected: Vec<Option<Offset>> = (0..COUNT).map(Offset).map(Some).collect();
    assert_eq!(offsets, expected);
    let each = server.resident_peak().saturating_sub(rest) / COUNT;
    assert!(each < 128 * 1024, "{each} bytes for each connection");
    drop(connections);
    first.ping();
    drop(first);
    server.stop();
}

/// Whether so many files may be open, by this process and by those that it starts.
fn may_open(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("a soft limit may be raised");
    let may = limit.maximum.is_none_or(|maximum| maximum >= count);
    if !may {
        eprintln!(
            "SKIPPED: {count} open files are needed, {:?} are allowed",
            limit.maximum
        );
    }
    may
}

#[test]
fn connection_over_the_limit_is_told_and_closed() {
    let site = Site::new()
        .with("node.shards", "1")
        .with("node.connections.per_shard", "3");
    let server = site.start();
    let mut first = Connection::login(server.address());
    let second = first.attach();
    let third = Connection::open(server.address());
    let mut over = Connection::open(server.address());
    let told = over.receive().expect("it is told");
    assert_eq!(told.error(), Some(ErrorCode::TooManyConnections));
    assert_eq!(told.header.correlation, 0);
    assert!(over.receive().is_none(), "and closed");
    first.ping();
    drop((second, third));
    until("there is room again", || {
        let mut next = Connection::open(server.address());
        matches!(next.try_ask(wire::Request::Ping), Some(Ok(_))).then_some(())
    });
    drop(first);
    server.stop();
}
