//! Clients that mean harm, or do not know better: right frames with wrong contents, and none at all.

use std::{
    fs::File,
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use bytes::Bytes;
use integration::{Connection, PATIENCE, Site, batch, poll, repetitions, send, store, until};
use wire::{
    Acknowledgement, Batch, Command, Consumer, CreatePartitions, CreateStream, CreateTopic,
    DeleteConsumerOffset, ErrorCode, FRAME_HEADER_SIZE, Failure, GetConsumerOffset, GetStream,
    GetStreams, GetTopic, GetTopics, GetUsers, Identifier, Offset, PartitionId, PartitionTarget,
    Plane, PollMessages, PollResult, PollSection, PollStrategy, ProducerId, Reply, Request,
    SendMessages, SendSection, StreamId, Timestamp, TopicDetails, TopicId, UserId, checksum64,
};

const MIB: u64 = 1 << 20;

/// Closes the connections of silent clients soon.
fn impatient() -> Site {
    Site::new()
        .with("cluster.timeouts.heartbeat_interval", "\"300 ms\"")
        .with("cluster.timeouts.poll_wait_max", "\"500 ms\"")
        .with("node.connections.idle_timeout", "\"1 s\"")
}

/// Bytes keep coming, whole frames never.
#[test]
fn client_that_drips_bytes_is_closed_like_a_silent_one() {
    let site = impatient();
    let server = site.start();
    let mut witness = Connection::login(server.address());
    let mut drip = Connection::open(server.address());
    let frame = drip.frame(&Request::Ping);
    let end = Instant::now() + PATIENCE;
    let start = Instant::now();
    let mut position = 0;
    // Each byte goes when the witness has been answered, so the drip needs no clock.
    while drip.write(&frame[position..=position]).is_ok() {
        assert!(Instant::now() < end, "it is never closed");
        // Never the last byte.
        position = (position + 1).min(frame.len() - 2);
        let pause = start.elapsed() + Duration::from_millis(20);
        until("some time has passed", || {
            witness.ping();
            (start.elapsed() > pause).then_some(())
        });
    }
    witness.ping();
    server.stop();
}

/// A large frame is announced on many connections, and hardly a byte of it comes.
#[test]
fn announced_frames_that_never_come_cost_no_memory() {
    const COUNT: u64 = 200;
    let site = Site::new();
    let server = site.start();
    let mut witness = Connection::login(server.address());
    let topic = witness.create_topic("orders", 1);
    let rest = server.resident();
    let large = batch(&[Bytes::from(vec![1; 6 << 20])]);
    let announced: Vec<Connection> = (0..COUNT)
        .map(|_| {
            let mut connection = witness.attach();
            let request = send(&topic, 0, large.clone(), Acknowledgement::Quorum);
            let frame = connection.frame(&request.into());
            connection.write(&frame[..100]).expect("it is open");
            connection
        })
        .collect();
    witness.ping();
    let peak = server.resident_peak();
    assert!(
        peak < rest + 96 * MIB,
        "{} MiB, then {}",
        rest / MIB,
        peak / MIB
    );
    drop(announced);
    witness.ping();
    server.stop();
}

/// Connections come and go, closed in every way there is; afterwards there is room for all again.
#[test]
fn thousands_of_connects_leave_nothing_behind() {
    const ROOM: u32 = 50;
    let site = Site::new()
        .with("node.shards", "1")
        .with("node.connections.per_shard", &ROOM.to_string());
    let mut server = site.start();
    let address = server.address();
    for number in 0..repetitions(2_000, 20_000) {
        let Ok(socket) = TcpStream::connect(address) else {
            panic!("connection {number} is not taken");
        };
        match number % 4 {
            0 => drop(socket),
            1 => socket.shutdown(Shutdown::Both).unwrap_or_default(),
            2 => {
                // Half open: nothing more is sent, and the answers are not read.
                let mut connection = Connection::open(address);
                let _ = connection.post(Request::Ping);
                connection.finish();
            }
            _ => {
                use std::io::Write;
                let _ = (&socket).write_all(&[0xFF; 40]);
            }
        }
    }
    assert!(server.is_running());
    until("there is room for all", || {
        let mut connections: Vec<Connection> =
            (0..ROOM).map(|_| Connection::open(address)).collect();
        let answered = connections
            .iter_mut()
            .all(|connection| matches!(connection.try_ask(Request::Ping), Some(Ok(_))));
        answered.then_some(())
    });
    server.stop();
}

/// A client whose end is half closed gets its answers.
#[test]
fn answers_reach_a_client_that_has_closed_its_own_end() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let append = send(
        &topic,
        0,
        batch(&[Bytes::from("last words")]),
        Acknowledgement::Quorum,
    );
    connection.post(append).expect("it is open");
    connection.finish();
    // The write may have been dropped with the connection, but is never half done: either it is answered and
    // there, or the connection ends.
    let answered = connection.receive().is_some();
    let page = Connection::login(server.address()).read_from(&topic, 0, Offset(0));
    let count = page.expect("it can be read").messages.len();
    assert!(count == 1 || !answered, "{count}");
    server.stop();
}

/// The correlation is the client's matter: equal ones get an answer each.
#[test]
fn repeated_correlations_get_an_answer_each() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let frame = connection.frame(&Request::GetMe);
    for _ in 0..100 {
        connection.write(&frame).expect("it is open");
    }
    for _ in 0..100 {
        let answer = connection.receive().expect("an answer");
        assert!(answer.reply(Command::GetMe).is_ok());
    }
    connection.ping();
    server.stop();
}

/// Far more requests than may be in flight, written at once: all are answered, in the end.
#[test]
fn pipelining_beyond_the_limit_is_slowed_down_and_answered() {
    let site = Site::new().with("node.connections.requests_in_flight", "4");
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let count = 500;
    for number in 0..count {
        let batch = batch(&[Bytes::from(format!("{number}"))]);
        let send = send(&topic, 0, batch, Acknowledgement::Quorum);
        connection.post(send).expect("it is open");
    }
    for _ in 0..count {
        let answer = connection.receive().expect("an answer");
        assert!(answer.reply(Command::SendMessages).is_ok());
    }
    let page = connection.read_from(&topic, 0, Offset(0));
    let messages = page.expect("it can be read").messages;
    for (number, (_, payload)) in messages.iter().enumerate() {
        assert_eq!(*payload, format!("{number}"), "in the order sent");
    }
    assert_eq!(messages.len(), count);
    server.stop();
}

fn requests(topic: &TopicDetails) -> Vec<Request> {
    let by_id = (Identifier::from(topic.stream), Identifier::from(topic.id));
    let (stream, id) = by_id;
    let offsets = GetConsumerOffset {
        stream: stream.clone(),
        topic: id.clone(),
        consumer: Consumer::Single("billing".to_owned()),
        partitions: vec![PartitionId(0), PartitionId(1)],
    };
    let deleted = DeleteConsumerOffset {
        stream: stream.clone(),
        topic: id.clone(),
        consumer: Consumer::Single("billing".to_owned()),
        partitions: vec![PartitionId(0), PartitionId(1)],
    };
    let text = batch(&[Bytes::from("text"), Bytes::from("more text")]);
    vec![
        send(topic, 0, text.clone(), Acknowledgement::Quorum).into(),
        SendMessages {
            stream: Identifier::Name("orders".to_owned()),
            topic: Identifier::Name("orders".to_owned()),
            acknowledgement: Acknowledgement::Quorum,
            sections: vec![
                SendSection {
                    target: PartitionTarget::Key(Bytes::from("key")),
                    batch: text.clone(),
                },
                SendSection {
                    target: PartitionTarget::Balanced,
                    batch: text,
                },
            ],
        }
        .into(),
        poll(topic, 0, "billing", PollStrategy::Offset(Offset(0))).into(),
        poll(topic, 0, "billing", PollStrategy::Next).into(),
        store(topic, 0, "billing", Offset(0)).into(),
        offsets.into(),
        deleted.into(),
        GetStream { stream }.into(),
        GetStreams {
            after: StreamId(0),
            limit: 10,
        }
        .into(),
        GetTopic {
            stream: topic.stream.into(),
            topic: id,
        }
        .into(),
        GetTopics {
            stream: topic.stream.into(),
            after: TopicId(0),
            limit: 10,
        }
        .into(),
        GetUsers {
            after: UserId(0),
            limit: 10,
        }
        .into(),
        Request::GetMe,
        Request::GetStats,
        Request::GetClusterMetadata,
    ]
}

/// Every four bytes of every request, made giant or nothing: counts, lengths, ids, offsets, times, sizes.
#[test]
fn giant_and_missing_numbers_anywhere_are_answered_and_cost_nothing() {
    let site = Site::new().with("cluster.timeouts.poll_wait_max", "\"1 ms\"");
    let mut server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 2);
    connection
        .append(&topic, 0, &[Bytes::from("first")])
        .expect("it is appended");
    let rest = server.resident();
    let mut answers = 0;
    for request in requests(&topic) {
        let length = connection.frame(&request).len();
        for position in FRAME_HEADER_SIZE..length {
            for filling in [0xFF, 0x7F, 0x00] {
                for width in [1, 4, 8] {
                    let mut frame = connection.frame(&request);
                    let end = (position + width).min(length);
                    frame[position..end].fill(filling);
                    let checksum = checksum64(&frame[8..]);
                    frame[..8].copy_from_slice(&checksum.to_le_bytes());
                    connection.write(&frame).expect("it is open");
                    let answer = connection.receive();
                    assert!(
                        answer.is_some(),
                        "{:?}, {filling:#x} in {position}..{end}",
                        request.command()
                    );
                    answers += 1;
                }
            }
        }
    }
    assert!(answers > 5_000, "{answers}");
    assert!(server.is_running());
    let peak = server.resident_peak();
    assert!(
        peak < rest + 96 * MIB,
        "{} MiB, then {}",
        rest / MIB,
        peak / MIB
    );
    for partition in 0..2 {
        // Whatever was taken can be read: batches and messages as the decoder wants them.
        let page = connection.read_from(&topic, partition, Offset(0));
        page.expect("it can be read");
    }
    server.stop();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    for partition in 0..2 {
        let page = connection.read_from(&topic, partition, Offset(0));
        page.expect("it can be read");
    }
    server.stop();
}

/// A batch whose bytes were changed, with checksums that are right again: refused, or read back as it is.
#[test]
fn changed_batches_are_refused_or_read_back() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let good = batch(&[Bytes::from("text"), Bytes::from("more text")]);
    let bytes = good.to_bytes();
    let frame = connection.frame(&send(&topic, 0, good, Acknowledgement::Quorum).into());
    let at = frame.len() - bytes.len();
    assert_eq!(frame[at..], bytes[..], "the batch is the last of the frame");
    let (mut taken, mut refused) = (0, 0);
    for position in 0..bytes.len() {
        for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
            let mut frame = connection.frame(
                &send(
                    &topic,
                    0,
                    batch(&[Bytes::from("text"), Bytes::from("more text")]),
                    Acknowledgement::Quorum,
                )
                .into(),
            );
            frame[at + position] = value;
            // The checksum of the batch covers what is behind it.
            let inner = checksum64(&frame[at + 32..]);
            frame[at + 24..at + 32].copy_from_slice(&inner.to_le_bytes());
            let outer = checksum64(&frame[8..]);
            frame[..8].copy_from_slice(&outer.to_le_bytes());
            connection.write(&frame).expect("it is open");
            let answer = connection.receive().expect("an answer");
            match answer.reply(Command::SendMessages) {
                Ok(Reply::Sent(sent)) if sent.sections[0].status.is_ok() => taken += 1,
                Ok(Reply::Sent(_)) | Err(_) => refused += 1,
                Ok(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
    let page = connection.read_from(&topic, 0, Offset(0));
    assert!(page.expect("it can be read").end.0 >= taken);
    server.stop();
}

fn section(outcome: Result<Reply, Failure>) -> Result<PollResult, Failure> {
    match outcome? {
        Reply::Polled(polled) => {
            let section = polled.sections[0].clone();
            section.status.clone()?;
            Ok(section)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_at_their_limits_are_refused_or_mean_what_they_say() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 2);
    let payloads: Vec<Bytes> = (0..10).map(|number| Bytes::from(vec![number])).collect();
    connection
        .append(&topic, 0, &payloads)
        .expect("it is appended");
    // Partitions that there are not.
    for partition in [2, 1_000_000, u32::MAX] {
        let missing = Some(ErrorCode::PartitionNotFound);
        let code = |failure: Option<Failure>| failure.map(|failure| failure.code);
        let sent = connection.append(&topic, partition, &payloads);
        assert_eq!(code(sent.err()), missing);
        let polled = connection.poll(&topic, partition, PollStrategy::First);
        assert_eq!(code(polled.err()), missing);
        let stored = connection.store(&topic, partition, "billing", Offset(0));
        assert_eq!(code(stored.err()), missing);
        let asked = connection.stored(&topic, partition, "billing");
        assert_eq!(code(asked.err()), missing);
    }
    // Offsets beyond the end.
    for offset in [10, 11, u64::MAX - 1, u64::MAX] {
        let stored = connection.store(&topic, 0, "billing", Offset(offset));
        assert_eq!(
            stored.map_err(|failure| failure.code),
            Err(ErrorCode::OffsetOutOfRange),
            "{offset}"
        );
        match connection.poll(&topic, 0, PollStrategy::Offset(Offset(offset))) {
            Ok(page) => assert!(
                page.messages.is_empty() && page.end == Offset(10),
                "{offset}"
            ),
            Err(failure) => assert_eq!(failure.code, ErrorCode::OffsetOutOfRange, "{offset}"),
        }
    }
    // Times.
    let page = connection.poll(&topic, 0, PollStrategy::Timestamp(Timestamp(0)));
    assert_eq!(page.expect("the first").messages.len(), 10);
    let page = connection.poll(&topic, 0, PollStrategy::Timestamp(Timestamp(u64::MAX)));
    assert_eq!(page.expect("nothing").messages.len(), 0);
    server.stop();
}

#[test]
fn sizes_and_waits_at_their_limits_are_refused_or_mean_what_they_say() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 2);
    let payloads: Vec<Bytes> = (0..10).map(|number| Bytes::from(vec![number])).collect();
    connection
        .append(&topic, 0, &payloads)
        .expect("it is appended");
    let first = poll(&topic, 0, "reader", PollStrategy::First);
    let most = PollMessages {
        max_messages: u32::MAX,
        max_bytes: u32::MAX,
        min_bytes: u32::MAX,
        max_wait_ms: 1,
        ..first.clone()
    };
    let result = section(connection.ask(most)).expect("all there is");
    assert_eq!(result.next, Offset(10));
    let least = PollMessages {
        max_messages: 1,
        max_bytes: 0,
        ..first.clone()
    };
    let result = section(connection.ask(least)).expect("a batch at least");
    assert!(result.next > Offset(0));
    let long = PollMessages {
        min_bytes: 1,
        max_wait_ms: u32::MAX,
        ..first.clone()
    };
    let refused = section(connection.ask(long)).expect_err("too long");
    assert_eq!(refused.code, ErrorCode::InvalidArgument);
    assert!(refused.text.contains("4294967295"), "{refused}");
    let none = PollMessages {
        max_messages: 0,
        ..first.clone()
    };
    let refused = section(connection.ask(none)).expect_err("nothing");
    assert_eq!(refused.code, ErrorCode::InvalidArgument);
    // The last messages, more than there are.
    let last = PollMessages {
        max_messages: u32::MAX,
        ..poll(&topic, 0, "reader", PollStrategy::Last)
    };
    assert_eq!(section(connection.ask(last)).expect("all").from, Offset(0));
    // More sections than there may be, and the same one twice.
    let many = PollMessages {
        sections: (0..1_025)
            .map(|partition| PollSection {
                partition: PartitionId(partition),
                ..first.sections[0].clone()
            })
            .collect(),
        ..first.clone()
    };
    let refused = section(connection.ask(many)).expect_err("too many");
    assert_eq!(refused.code, ErrorCode::TooManySections);
    server.stop();
}

#[test]
fn sequences_at_their_limits_end_nothing() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    for (producer, sequence) in [
        (1, u64::MAX),
        (1, u64::MAX - 1),
        (1, 1),
        (u128::MAX, 1),
        (u128::MAX, 2),
        (u128::MAX, u64::MAX),
        (2, 2),
    ] {
        let batch: Batch = batch(&[Bytes::from("x")]).numbered(ProducerId(producer), sequence);
        // Taken, repeated or out of sequence: an answer.
        let sent = connection.ask(send(&topic, 0, batch, Acknowledgement::Quorum));
        assert!(matches!(sent, Ok(Reply::Sent(_))), "{sent:?}");
    }
    connection.ping();
    server.stop();
    let server = site.start();
    Connection::login(server.address()).ping();
    server.stop();
}

const REFUSED: &[&str] = &[
    "",
    " ",
    " a",
    "a ",
    "\u{a0}a",
    "a\0b",
    "a\nb",
    "a\rb",
    "a\tb",
    "\u{1b}[2J",
    "\u{7f}",
    "\u{85}x",
    "7",
    "007",
];

const TAKEN: &[&str] = &[
    "../../etc/passwd",
    "/",
    "..",
    "con",
    "a/b",
    "%s%n",
    "{}",
    "'; drop",
    "ключ",
    "名前",
    "e\u{301}",
    "\u{e9}",
    "🦀",
    "\u{202e}gnp",
    "a b",
    "-1",
    "7a",
    "null",
];

#[test]
fn names_are_taken_as_they_are_or_refused_and_never_become_paths_or_lines() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let long = "x".repeat(255);
    let taken: Vec<&str> = TAKEN.iter().copied().chain([long.as_str()]).collect();
    for name in REFUSED.iter().chain(&taken) {
        let is_right = taken.contains(name);
        let stream = connection.ask(CreateStream {
            name: (*name).to_owned(),
        });
        let made = connection.ask(CreateTopic {
            stream: topic.stream.into(),
            name: (*name).to_owned(),
            partitions: 1,
        });
        // Nothing is in the partition: a right name is refused for that.
        let stored = connection.store(&topic, 0, name, Offset(0));
        for (outcome, right) in [
            (stream.map(|_| ()), Ok(())),
            (made.map(|_| ()), Ok(())),
            (stored.map(|_| ()), Err(ErrorCode::OffsetOutOfRange)),
        ] {
            let expected = if is_right {
                right
            } else {
                Err(ErrorCode::InvalidName)
            };
            if let Err(failure) = &outcome {
                assert!(!failure.text.contains(char::is_control), "{failure}");
            }
            let outcome = outcome.map_err(|failure| failure.code);
            assert_eq!(outcome, expected, "{name:?}");
        }
    }
    for name in taken {
        let found = connection.ask(GetTopic {
            stream: Identifier::Name(name.to_owned()),
            topic: Identifier::Name(name.to_owned()),
        });
        let code = found.expect_err("its stream is empty").code;
        assert_eq!(code, ErrorCode::TopicNotFound, "{name:?}");
        let found = connection.ask(GetTopic {
            stream: topic.stream.into(),
            topic: Identifier::Name(name.to_owned()),
        });
        let Ok(Reply::Topic(found)) = found else {
            panic!("{name:?}: {found:?}");
        };
        assert_eq!(found.name, name);
    }
    for line in server.log().lines() {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    assert!(!site.path().join("etc").exists());
    server.stop();
    site.start().stop();
}

/// Every metadata command with a number that is wrong for its session.
#[test]
fn request_numbers_at_their_limits_do_not_lock_a_session_up_for_others() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let request = Request::from(CreateStream {
        name: "greedy".to_owned(),
    });
    assert_eq!(request.command().plane(), Plane::Metadata);
    let mut number = |request: &Request, value: u64| {
        let mut frame = connection.frame(request);
        frame[56..64].copy_from_slice(&value.to_le_bytes());
        let checksum = checksum64(&frame[8..]);
        frame[..8].copy_from_slice(&checksum.to_le_bytes());
        connection.write(&frame).expect("it is open");
        let answer = connection.receive().expect("an answer");
        answer
            .reply(request.command())
            .map(|_| ())
            .map_err(|failure| failure.code)
    };
    assert_eq!(number(&request, 0), Err(ErrorCode::InvalidRequestNumber));
    assert_eq!(number(&request, u64::MAX), Ok(()));
    assert_eq!(number(&request, u64::MAX), Ok(()), "the same answer again");
    assert_eq!(number(&request, 1), Err(ErrorCode::StaleRequest));
    // A query that names an op from the future waits, and is told to come again.
    assert_eq!(
        number(&Request::GetMe, u64::MAX),
        Err(ErrorCode::Retry),
        "the op never comes"
    );
    let mut other = Connection::login(server.address());
    other.create_topic("orders", 1);
    server.stop();
}

/// The answer to a large creation is more than is kept of one; who sends it again gets it all the same.
#[test]
fn repeated_creation_of_a_large_topic_is_answered() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let stream = CreateStream {
        name: "orders".to_owned(),
    };
    connection.ask(stream).expect("make a stream");
    let large = Request::from(CreateTopic {
        stream: Identifier::Name("orders".to_owned()),
        name: "orders".to_owned(),
        partitions: 1_024,
    });
    let frame = connection.frame(&large);
    connection.write(&frame).expect("it is open");
    let first = connection.receive().expect("an answer");
    assert!(first.error().is_none(), "{first:?}");
    connection.write(&frame).expect("it is open");
    let second = connection.receive().expect("an answer");
    let Ok(Reply::Topic(again)) = second.reply(Command::CreateTopic) else {
        panic!("{second:?}");
    };
    assert_eq!(again.partitions.len(), 1_024);
    let found = connection.ask(GetTopic {
        stream: Identifier::Name("orders".to_owned()),
        topic: Identifier::Name("orders".to_owned()),
    });
    let Ok(Reply::Topic(found)) = found else {
        panic!("{found:?}");
    };
    assert_eq!(found.partitions.len(), 1_024);
    let more = CreatePartitions {
        stream: found.stream.into(),
        topic: found.id.into(),
        count: u32::MAX,
    };
    let refused = connection.ask(more).expect_err("too many");
    assert_eq!(refused.code, ErrorCode::TooManyPartitions);
    server.stop();
}

/// Whoever reads the events is gone, or its disk is full: that is no reason to end.
#[test]
fn server_goes_on_when_nobody_takes_its_events() {
    let site = Site::new();
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("there is one");
    let mut server = site.start_saying_to(full);
    // The session is an event.
    Connection::login(server.address()).create_topic("orders", 1);
    Connection::login(server.address()).ping();
    assert!(server.is_running());
    server.stop();
}
