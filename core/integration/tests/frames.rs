//! Bytes that are no frames: the connection that they come on is told so and closed, others go on.

use bytes::Bytes;
use integration::{Connection, Frame, Server, Site, batch, repetitions, send};
use wire::{
    Acknowledgement, Command, ErrorCode, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, FrameHeader, FrameKind,
    Offset, PollStrategy, Request, checksum64,
};

/// A server with a connection that must not notice anything.
struct Witness {
    server: Server,
    connection: Connection,
    _site: Site,
}

impl Witness {
    fn new() -> Self {
        let site = Site::new();
        let server = site.start();
        let connection = Connection::login(server.address());
        Self {
            server,
            connection,
            _site: site,
        }
    }

    /// Sends `bytes` on a connection of its own, logged in or not; the answer must be one error, and the end.
    fn expect(&mut self, logged_in: bool, bytes: &[u8], code: ErrorCode) -> Frame {
        let mut connection = if logged_in {
            self.connection.attach()
        } else {
            Connection::open(self.server.address())
        };
        // The server may close while we still write.
        let _ = connection.write(bytes);
        let answer = connection.receive().expect("an error reply");
        assert_eq!(answer.error(), Some(code), "{answer:?}");
        assert!(connection.receive().is_none(), "the connection is closed");
        self.connection.ping();
        answer
    }
}

/// A frame of a Ping with one byte changed before the checksum is computed.
fn altered(position: usize, value: u8) -> Vec<u8> {
    let mut frame = ping();
    frame[position] = value;
    seal(&mut frame);
    frame
}

fn ping() -> Vec<u8> {
    let mut header = FrameHeader::request(Command::Ping.code(), 7.into(), 9.into());
    header.size = u32::try_from(FRAME_HEADER_SIZE).expect("it is small");
    header.frame(&[])
}

fn seal(frame: &mut [u8]) {
    let checksum = checksum64(&frame[8..]);
    frame[..8].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn headers_that_break_the_rules_are_answered_and_the_connection_is_closed() {
    let mut witness = Witness::new();
    for logged_in in [false, true] {
        // kind, version, flags, status
        for (position, value, code) in [
            (12, 0, ErrorCode::MalformedFrame),
            (12, 99, ErrorCode::MalformedFrame),
            (12, FrameKind::Reply as u8, ErrorCode::MalformedFrame),
            (12, FrameKind::Peer as u8, ErrorCode::MalformedFrame),
            (13, 2, ErrorCode::UnsupportedVersion),
            (14, 1, ErrorCode::MalformedFrame),
            (20, 1, ErrorCode::MalformedFrame),
        ] {
            witness.expect(logged_in, &altered(position, value), code);
        }
    }
}

#[test]
fn frame_with_a_wrong_checksum_is_refused_with_its_correlation() {
    let mut witness = Witness::new();
    let mut frame = ping();
    frame[40] ^= 1;
    let answer = witness.expect(true, &frame, ErrorCode::ChecksumMismatch);
    assert_eq!(answer.header.correlation, 7);
}

#[test]
fn oversized_frame_is_refused_by_its_header_alone() {
    let mut witness = Witness::new();
    let header = |size: u32| {
        let mut bytes = ping();
        bytes[8..12].copy_from_slice(&size.to_le_bytes());
        bytes
    };
    // Before login little is taken. The body never comes.
    for (logged_in, size) in [
        (false, 64 * 1024 + 1),
        (false, u32::MAX),
        (true, FRAME_SIZE_MAX + 1),
        (true, u32::MAX),
    ] {
        let answer = witness.expect(logged_in, &header(size), ErrorCode::FrameTooLarge);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains(&size.to_string()), "{text}");
    }
    for size in [0, 1, 63] {
        witness.expect(true, &header(size), ErrorCode::MalformedFrame);
    }
}

#[test]
fn what_follows_a_garbled_frame_is_not_executed() {
    let mut witness = Witness::new();
    let topic = witness.connection.create_topic("orders", 1);
    let mut connection = witness.connection.attach();
    let before = connection.append(&topic, 0, &[Bytes::from_static(b"before")]);
    assert_eq!(before, Ok(Offset(0)));
    let mut append = |text: &'static str| {
        let batch = batch(&[Bytes::from_static(text.as_bytes())]);
        connection.frame(&send(&topic, 0, batch, Acknowledgement::Quorum).into())
    };
    let mut bytes = append("garbled");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    bytes.extend(append("behind"));
    connection.write(&bytes).expect("the connection is open");
    let answer = connection.receive().expect("an error reply");
    assert_eq!(answer.error(), Some(ErrorCode::ChecksumMismatch));
    assert!(connection.receive().is_none(), "the connection is closed");
    let page = witness
        .connection
        .read_from(&topic, 0, Offset(0))
        .expect("the partition can be read");
    assert_eq!(page.messages, [(Offset(0), Bytes::from("before"))]);
}

#[test]
fn truncated_frame_ends_with_its_connection_and_changes_nothing() {
    let mut witness = Witness::new();
    let topic = witness.connection.create_topic("orders", 1);
    let batch = batch(&[Bytes::from_static(b"never whole")]);
    let request = Request::from(send(&topic, 0, batch, Acknowledgement::Quorum));
    let length = witness.connection.attach().frame(&request).len();
    for end in [1, 8, 12, 63, 64, 65, length - 1] {
        let mut connection = witness.connection.attach();
        let frame = connection.frame(&request);
        connection.write(&frame[..end]).expect("it is open");
        connection.finish();
        assert!(connection.receive().is_none(), "cut at {end}: no answer");
    }
    witness.connection.ping();
    let page = witness.connection.poll(&topic, 0, PollStrategy::First);
    assert_eq!(page.expect("it can be read").end, Offset(0));
}

#[test]
fn body_that_cannot_be_read_is_refused_and_the_connection_goes_on() {
    let mut witness = Witness::new();
    let topic = witness.connection.create_topic("orders", 1);
    let mut connection = witness.connection.attach();
    let request = Request::from(send(
        &topic,
        0,
        batch(&[Bytes::from_static(b"payload")]),
        Acknowledgement::Quorum,
    ));
    let whole = connection.frame(&request);
    for end in FRAME_HEADER_SIZE..whole.len() {
        let mut frame = connection.frame(&request);
        frame.truncate(end);
        let size = u32::try_from(end).expect("it is small");
        frame[8..12].copy_from_slice(&size.to_le_bytes());
        seal(&mut frame);
        connection.write(&frame).expect("it is open");
        let answer = connection.receive().expect("an answer");
        let code = answer.error().expect("an error");
        assert!(
            matches!(code, ErrorCode::MalformedBody | ErrorCode::InvalidBatch),
            "cut at {end}: {code:?}"
        );
    }
    connection.ping();
    assert_eq!(
        connection.append(&topic, 0, &[Bytes::from_static(b"right")]),
        Ok(Offset(0)),
        "nothing was appended before"
    );
}

#[test]
fn random_bytes_never_end_the_server() {
    let mut witness = Witness::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..repetitions(100, 2_000) {
        let mut connection = if round % 2 == 0 {
            Connection::open(witness.server.address())
        } else {
            witness.connection.attach()
        };
        let mut bytes = if round % 4 < 2 {
            Vec::new()
        } else {
            connection.frame(&Request::GetMe)
        };
        let length = random() % 300;
        bytes.extend((0..length).map(|_| random().to_le_bytes()[0]));
        if round % 4 >= 2 {
            // Changed somewhere behind the checksum, which is made right again.
            let position = 8 + usize::try_from(random() % 56).expect("it is small");
            bytes[position] = random().to_le_bytes()[0];
            seal(&mut bytes[..FRAME_HEADER_SIZE]);
        }
        // The server may close while we still write.
        let _ = connection.write(&bytes);
        connection.finish();
        while connection.receive().is_some() {}
    }
    witness.connection.ping();
    witness.server.stop();
}
