//! Real sockets on the loopback interface, with both drivers.

use std::{
    io::{Read, Write},
    net::TcpStream as Client,
    sync::mpsc::{Receiver, channel},
    thread::{self, JoinHandle},
    time::Instant,
};

use wire::{ClientId, CorrelationId, FrameHeader, Problem};

use super::*;
use crate::{InboxSender, bind, build_runtime, choose_driver, inbox};

const PATIENCE: Duration = Duration::from_secs(20);

type Command = Box<dyn FnOnce(&Connections) -> bool + Send>;

/// A shard's thread: hands every event to the test, or echoes frames, and does what the test asks.
struct Server {
    address: SocketAddr,
    events: Receiver<Event>,
    commands: InboxSender<Command>,
    thread: Option<JoinHandle<()>>,
}

/// What the loop does with an event before the test sees it.
type Handler = fn(&Connections, &Event);

impl Server {
    fn start(limits: Limits, force_polling: bool, handler: Handler) -> Self {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.address();
        let (sender, events) = channel();
        let notify = Notify::new();
        let (commands, mut inbox) = inbox::<Command>(notify.clone());
        let driver = choose_driver(force_polling).driver;
        let thread = thread::spawn(move || {
            let runtime = build_runtime(driver).unwrap();
            runtime.block_on(async move {
                let connections = Connections::new(limits, notify.clone());
                connections.listen(listener).unwrap();
                let mut runs = true;
                while runs {
                    notify.notified().await;
                    while let Some(event) = connections.next_event() {
                        handler(&connections, &event);
                        let _ = sender.send(event);
                    }
                    inbox.drain(|command| runs &= command(&connections));
                }
            });
        });
        let thread = Some(thread);
        Self {
            address,
            events,
            commands,
            thread,
        }
    }

    fn connect(&self) -> Client {
        let client = Client::connect(self.address).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// Connects and waits for the event.
    fn open(&self) -> (Client, ConnectionId) {
        let client = self.connect();
        let Event::Opened { connection, peer } = self.next() else {
            panic!("no connection was opened");
        };
        assert_eq!(peer, client.local_addr().unwrap());
        (client, connection)
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }

    fn closed(&self) -> (ConnectionId, CloseReason) {
        loop {
            if let Event::Closed { connection, reason } = self.next() {
                return (connection, reason);
            }
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connections) -> T + Send + 'static,
    ) -> T {
        let (sender, answer) = channel();
        self.commands.send(Box::new(move |connections| {
            sender.send(question(connections)).is_ok()
        }));
        answer.recv_timeout(PATIENCE).expect("the loop runs")
    }

    fn wait_until(&self, condition: impl Fn(&Connections) -> bool + Send + Copy + 'static) {
        let start = Instant::now();
        while !self.ask(condition) {
            assert!(start.elapsed() < PATIENCE, "waited in vain");
            thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.commands.send(Box::new(|_| false));
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn quick() -> Limits {
    Limits {
        frame_size_before_login: FRAME_SIZE_MAX,
        sweep_interval: Duration::from_millis(20),
        ..Limits::default()
    }
}

/// With io_uring where the machine has it, and with polling.
fn on_both_drivers(limits: &Limits, handler: Handler, test: impl Fn(&Server)) {
    for force_polling in [false, true] {
        test(&Server::start(limits.clone(), force_polling, handler));
    }
}

fn watch(_: &Connections, _: &Event) {}

fn echo(connections: &Connections, event: &Event) {
    if let Event::Frame {
        connection,
        header,
        body,
    } = event
    {
        let reply = FrameHeader::reply(header, 0).frame_of_parts(vec![body.clone()]);
        connections.send(*connection, reply);
    }
}

fn echo_once(connections: &Connections, event: &Event) {
    echo(connections, event);
    if let Event::Frame { connection, .. } = event {
        connections.pause(*connection);
    }
}

/// As a shard does it: one error reply where there is somebody to address, then the end.
fn echo_and_refuse(connections: &Connections, event: &Event) {
    echo(connections, event);
    if let Event::BadFrame {
        connection,
        header,
        error,
    } = event
    {
        if let Some(header) = header {
            let text = Bytes::from(error.to_string());
            let reply = FrameHeader::reply(header, 77).frame_of_parts(vec![text]);
            connections.send(*connection, reply);
        }
        connections.close(*connection);
    }
}

fn request(correlation: u64, body: &[u8]) -> Vec<u8> {
    FrameHeader::request(1, CorrelationId(correlation), ClientId(5)).frame(body)
}

fn receive(client: &mut Client) -> (FrameHeader, Bytes) {
    let mut frame = vec![0; FRAME_HEADER_SIZE];
    client.read_exact(&mut frame).unwrap();
    let header = FrameHeader::read(&frame).unwrap();
    frame.resize(header.size as usize, 0);
    client.read_exact(&mut frame[FRAME_HEADER_SIZE..]).unwrap();
    let body = header.body(&Bytes::from(frame)).unwrap();
    (header, body)
}

fn assert_ends(client: &mut Client) {
    let mut rest = Vec::new();
    client
        .read_to_end(&mut rest)
        .expect("an orderly end, not a reset");
    assert!(rest.is_empty(), "{} bytes before the end", rest.len());
}

fn ping(client: &mut Client, correlation: u64) {
    client.write_all(&request(correlation, b"ping")).unwrap();
    let (header, body) = receive(client);
    assert_eq!((header.correlation, &body[..]), (correlation, &b"ping"[..]));
}

#[test]
fn frames_cut_at_every_byte_arrive_whole() {
    on_both_drivers(&quick(), watch, |server| {
        let bytes = [request(1, b""), request(2, b"a body"), request(3, &[7; 20])].concat();
        let (mut client, _) = server.open();
        for cut in 1..bytes.len() {
            let received = server.ask(|connections| connections.statistics().bytes_received);
            client.write_all(&bytes[..cut]).unwrap();
            let goal = received + cut as u64;
            let start = Instant::now();
            while server.ask(|connections| connections.statistics().bytes_received) < goal {
                assert!(start.elapsed() < PATIENCE);
            }
            client.write_all(&bytes[cut..]).unwrap();
            for expected in [&b""[..], b"a body", &[7; 20]] {
                let Event::Frame { body, .. } = server.next() else {
                    panic!("cut at {cut}");
                };
                assert_eq!(body, expected);
            }
        }
    });
}

#[test]
fn pipelined_frames_of_all_sizes_come_back_in_order() {
    on_both_drivers(&quick(), echo, |server| {
        let sizes = [
            0,
            1,
            100,
            4_000,
            8_128,
            9_000,
            70_000,
            256 * 1024,
            300_000,
            3 << 20,
        ];
        let (mut client, _) = server.open();
        let mut writer = client.try_clone().unwrap();
        let sender = thread::spawn(move || {
            let mut bytes = Vec::new();
            for number in 0..400_usize {
                let size = sizes[number % sizes.len()];
                bytes.extend(request(number as u64, &vec![number.to_le_bytes()[0]; size]));
                if bytes.len() > 500_000 || number % 7 == 0 {
                    writer.write_all(&bytes).unwrap();
                    bytes.clear();
                }
            }
            writer.write_all(&bytes).unwrap();
        });
        for number in 0..400_usize {
            let (header, body) = receive(&mut client);
            assert_eq!(header.correlation, number as u64);
            assert_eq!(body.len(), sizes[number % sizes.len()]);
            assert!(body.iter().all(|&byte| byte == number.to_le_bytes()[0]));
        }
        sender.join().unwrap();
        let statistics = server.ask(Connections::statistics);
        assert_eq!(
            (statistics.frames_received, statistics.frames_sent),
            (400, 400)
        );
        assert_eq!(statistics.bytes_received, statistics.bytes_sent);
    });
}

#[test]
fn burst_of_small_frames_is_answered_whole() {
    on_both_drivers(&quick(), echo, |server| {
        let (mut client, _) = server.open();
        let mut writer = client.try_clone().unwrap();
        let bytes: Vec<u8> = (0..20_000)
            .flat_map(|number| request(number, b"x"))
            .collect();
        let sender = thread::spawn(move || writer.write_all(&bytes).unwrap());
        for number in 0..20_000 {
            assert_eq!(receive(&mut client).0.correlation, number);
        }
        sender.join().unwrap();
    });
}

#[test]
fn bad_frame_gets_one_answer_and_an_end_and_nobody_else_notices() {
    let limits = Limits {
        frame_size_before_login: 1_000,
        frame_size_max: 1_000,
        ..quick()
    };
    let garbled = |position: usize, value: u8| {
        let mut frame = request(9, b"some body");
        frame[position] ^= value;
        frame
    };
    on_both_drivers(&limits, echo_and_refuse, |server| {
        let (mut bystander, _) = server.open();
        ping(&mut bystander, 1);
        let cases = [
            ("size", request(9, &[0; 1_000]), true),
            ("size", garbled(8, 0x41), true),
            ("checksum", garbled(70, 1), true),
            ("checksum", garbled(0, 1), true),
            ("version", garbled(13, 2), false),
            ("kind", garbled(12, 0x10), false),
            (
                "version",
                b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".repeat(3),
                false,
            ),
        ];
        for (field, bytes, answered) in cases {
            let mut client = server.connect();
            client.write_all(&bytes).unwrap();
            // More than anybody reads, so that a hasty close would reset the connection.
            client.write_all(&vec![1; 300_000]).unwrap();
            if answered {
                let (header, body) = receive(&mut client);
                assert_eq!((header.status, header.correlation), (77, 9));
                assert!(body.starts_with(field.as_bytes()), "{field}: {body:?}");
            }
            assert_ends(&mut client);
            ping(&mut bystander, 2);
        }
        assert_eq!(
            server.ask(|connections| connections.statistics().bad_frames),
            7
        );
        server.wait_until(|connections| connections.count() == 1);
    });
}

#[test]
fn frame_without_its_end_is_reported_when_the_client_leaves() {
    on_both_drivers(&quick(), watch, |server| {
        let (mut client, id) = server.open();
        client.write_all(&request(4, &[1; 100])[..120]).unwrap();
        drop(client);
        let Event::BadFrame {
            connection,
            header,
            error,
        } = server.next()
        else {
            panic!("nothing was reported");
        };
        assert_eq!((connection, header.unwrap().correlation), (id, 4));
        assert_eq!(
            error.problem,
            Problem::Truncated {
                needed: 164,
                left: 120
            }
        );
        assert_eq!(server.closed(), (id, CloseReason::Peer));
    });
}

#[test]
fn frame_size_is_small_until_the_connection_is_admitted() {
    let limits = Limits {
        frame_size_before_login: 200,
        ..quick()
    };
    on_both_drivers(&limits, watch, |server| {
        let (mut client, id) = server.open();
        server.ask(move |connections| connections.admit(id));
        client.write_all(&request(1, &[0; 100_000])).unwrap();
        assert!(matches!(server.next(), Event::Frame { body, .. } if body.len() == 100_000));
        let (mut client, _) = server.open();
        client.write_all(&request(1, &[0; 137])).unwrap();
        assert!(matches!(server.next(), Event::BadFrame { .. }));
    });
}

#[test]
fn paused_connection_hands_over_nothing_until_it_is_resumed() {
    on_both_drivers(&quick(), watch, |server| {
        let (mut paused, id) = server.open();
        let (mut other, other_id) = server.open();
        server.ask(move |connections| connections.pause(id));
        paused
            .write_all(&[request(1, b"one"), request(2, b"two")].concat())
            .unwrap();
        for round in 0..200 {
            other.write_all(&request(round, b"")).unwrap();
            assert!(
                matches!(server.next(), Event::Frame { connection, .. } if connection == other_id)
            );
        }
        server.ask(move |connections| connections.resume(id));
        for expected in [1, 2] {
            let Event::Frame {
                connection, header, ..
            } = server.next()
            else {
                panic!("no frame after resume");
            };
            assert_eq!((connection, header.correlation), (id, expected));
        }
        server.ask(|connections| connections.pause_all(true));
        other.write_all(&request(3, b"")).unwrap();
        paused.write_all(&request(4, b"")).unwrap();
        assert_eq!(
            server.ask(|connections| connections.statistics().frames_received),
            202
        );
        server.ask(|connections| connections.pause_all(false));
        assert!(matches!(server.next(), Event::Frame { .. }));
        assert!(matches!(server.next(), Event::Frame { .. }));
    });
}

#[test]
fn client_that_does_not_read_is_held_back_and_then_dropped() {
    let limits = Limits {
        queue_soft_max: 1 << 20,
        queue_hard_max: 8 << 20,
        slow_timeout: Duration::from_millis(200),
        ..quick()
    };
    on_both_drivers(&limits, echo, |server| {
        let (mut bystander, _) = server.open();
        let (mut client, id) = server.open();
        let flood = thread::spawn(move || {
            let frame = request(1, &vec![3; 256 * 1024]);
            let mut sent: u64 = 0;
            while client.write_all(&frame).is_ok() {
                sent += frame.len() as u64;
            }
            (client, sent)
        });
        let mut most = 0;
        let start = Instant::now();
        while server.ask(Connections::count) == 2 {
            assert!(start.elapsed() < PATIENCE, "still there");
            most = most.max(server.ask(move |connections| connections.queued(id)));
            ping(&mut bystander, 1);
        }
        assert!(most > 1 << 20, "only {most} bytes were queued");
        assert!(most <= (1 << 20) + (600 << 10), "{most} bytes were queued");
        let (gone, reason) = server.closed();
        assert_eq!(gone, id);
        assert!(matches!(reason, CloseReason::Slow { queued } if queued <= most + (600 << 10)));
        drop(flood.join().unwrap());
        ping(&mut bystander, 2);
        assert_eq!(server.ask(|connections| connections.statistics().slow), 1);
    });
}

#[test]
fn client_that_resets_while_much_is_queued_harms_nobody() {
    // One frame is read from each connection, so that it is a write that notices the reset.
    on_both_drivers(&quick(), echo_once, |server| {
        let (mut bystander, _) = server.open();
        let (mut client, id) = server.open();
        client
            .write_all(&request(1, b"the last that is read"))
            .unwrap();
        assert!(matches!(server.next(), Event::Frame { .. }));
        server.ask(move |connections| {
            // Many writes: one fails, and the others are still to come.
            for _ in 0..15 {
                connections.send(id, vec![Bytes::from(vec![0; 1 << 20])]);
            }
        });
        server.wait_until(move |connections| connections.queued(id) < 15 << 20);
        // It has not read what has arrived.
        drop(client);
        let (gone, reason) = server.closed();
        assert_eq!(gone, id);
        assert!(matches!(reason, CloseReason::Failed(_)), "{reason:?}");
        ping(&mut bystander, 1);
        drop(bystander);
        server.ask(Connections::close_all);
        server.wait_until(Connections::is_quiet);
    });
}

#[test]
fn client_above_the_hard_limit_is_dropped_at_once() {
    let limits = Limits {
        queue_soft_max: 1 << 20,
        queue_hard_max: 2 << 20,
        ..quick()
    };
    on_both_drivers(&limits, watch, |server| {
        let (_client, id) = server.open();
        let outcomes = server.ask(move |connections| {
            let part = Bytes::from(vec![0; 700 * 1024]);
            [1, 2, 3, 4].map(|_| connections.send(id, vec![part.clone()]))
        });
        let size = 700 * 1024;
        let slow = SendOutcome::Slow { queued: 2 * size };
        assert_eq!(
            outcomes,
            [
                SendOutcome::Queued,
                slow,
                SendOutcome::Gone,
                SendOutcome::Gone
            ]
        );
        assert_eq!(
            server.closed(),
            (id, CloseReason::Slow { queued: 3 * size })
        );
    });
}

#[test]
fn stuck_reader_below_the_soft_limit_is_dropped_too() {
    let limits = Limits {
        queue_soft_max: 64 << 20,
        queue_hard_max: 64 << 20,
        slow_timeout: Duration::from_millis(200),
        ..quick()
    };
    on_both_drivers(&limits, watch, |server| {
        let (_client, id) = server.open();
        server.ask(move |connections| {
            connections.send(id, vec![Bytes::from(vec![0; 32 << 20])]);
        });
        assert!(matches!(server.closed(), (gone, CloseReason::Slow { .. }) if gone == id));
    });
}

#[test]
fn silent_connection_is_closed_and_a_talking_one_is_not() {
    let limits = Limits {
        idle_timeout: Duration::from_millis(1_500),
        ..quick()
    };
    on_both_drivers(&limits, echo, |server| {
        let (mut silent, silent_id) = server.open();
        let (mut talking, talking_id) = server.open();
        let mut round = 0;
        while server.ask(Connections::count) == 2 {
            ping(&mut talking, round);
            round += 1;
        }
        assert_eq!(server.closed(), (silent_id, CloseReason::Idle));
        assert_ends(&mut silent);
        ping(&mut talking, round);
        assert!(server.ask(move |connections| connections.peer(talking_id).is_some()));
    });
}

#[test]
fn everything_queued_is_written_before_a_requested_close() {
    on_both_drivers(&quick(), watch, |server| {
        let (mut client, id) = server.open();
        server.ask(move |connections| {
            for number in 0..64 {
                let body = vec![Bytes::from(vec![number; 200_000])];
                let frame = FrameHeader::default().frame_of_parts(body);
                connections.send(id, frame);
            }
            connections.close(id);
            assert_eq!(
                connections.send(id, vec![Bytes::from_static(b"late")]),
                SendOutcome::Gone
            );
        });
        assert_eq!(server.closed(), (id, CloseReason::Requested));
        for number in 0..64 {
            let (_, body) = receive(&mut client);
            assert!(body.len() == 200_000 && body.iter().all(|&byte| byte == number));
        }
        assert_ends(&mut client);
        drop(client);
        server.wait_until(Connections::is_quiet);
    });
}

#[test]
fn client_that_never_closes_its_end_is_cut_off() {
    let limits = Limits {
        linger_timeout: Duration::from_millis(100),
        ..quick()
    };
    on_both_drivers(&limits, watch, |server| {
        let (mut client, _) = server.open();
        server.ask(Connections::close_all);
        assert_ends(&mut client);
        server.wait_until(Connections::is_quiet);
        assert!(
            Client::connect(server.address).is_err(),
            "nobody listens any more"
        );
    });
}

#[test]
fn connection_over_the_limit_is_told_and_the_others_go_on() {
    let refusal = Bytes::from(FrameHeader::default().frame(b"too many"));
    let limits = Limits {
        connections_max: 2,
        refusal,
        ..quick()
    };
    on_both_drivers(&limits, echo, |server| {
        let (mut first, _) = server.open();
        let (second, _) = server.open();
        let mut third = server.connect();
        assert_eq!(receive(&mut third).1, "too many");
        assert_ends(&mut third);
        ping(&mut first, 1);
        drop(second);
        server.closed();
        ping(&mut server.connect(), 2);
        assert_eq!(
            server.ask(|connections| connections.statistics().refused),
            1
        );
    });
}

#[test]
fn thousand_connections_are_served_and_their_ids_are_not_used_again() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Two descriptors a connection; the usual soft limit is 1,024.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .unwrap();
    on_both_drivers(&quick(), echo, |server| {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            let mut clients: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
            server.wait_until(|connections| connections.count() == 1_000);
            for round in 0..3 {
                for client in &mut clients {
                    client.write_all(&request(round, b"ping")).unwrap();
                }
                for client in &mut clients {
                    assert_eq!(receive(client).0.correlation, round);
                }
            }
            drop(clients);
            server.wait_until(Connections::is_quiet);
        }
        let opened = server.events.try_iter().filter_map(|event| match event {
            Event::Opened { connection, .. } => Some(connection),
            Event::Frame { .. } | Event::BadFrame { .. } | Event::Closed { .. } => None,
        });
        opened.for_each(|connection| assert!(seen.insert(connection)));
        assert_eq!(seen.len(), 2_000);
    });
}
