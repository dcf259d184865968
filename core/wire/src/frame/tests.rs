//! Frames and their headers.

use std::{vec, vec::Vec};

use super::{
    Bytes, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, FrameHeader, FrameKind, JOINED_SIZE_MAX,
    PEER_FRAME_SIZE_MAX, PROTOCOL_VERSION,
};
use crate::{ClientId, CorrelationId, Op, Problem, ReplicaId, SessionNumber, View};

const CLIENT: ClientId = ClientId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

fn request() -> FrameHeader {
    let header = FrameHeader::request(101, CorrelationId(7), CLIENT);
    FrameHeader {
        session: 4,
        request: 5,
        size: 64,
        ..header
    }
}

#[test]
fn request_carries_the_whole_client_id() {
    assert_eq!(request().client(), CLIENT);
    assert_eq!(request().frame_kind(), Some(FrameKind::Request));
}

#[test]
fn reply_answers_its_request_and_says_who_leads() {
    let reply = FrameHeader::reply(&request(), 1101);
    let reply = reply.with_primary(Op(u64::MAX - 1), ReplicaId(4), View(9));
    assert_eq!((reply.code, reply.status), (101, 1101));
    assert_eq!((reply.correlation, reply.session, reply.request), (7, 4, 5));
    assert_eq!(reply.op(), Op(u64::MAX - 1));
    assert_eq!(reply.primary(), (4, View(9)));
    assert_eq!(reply.frame_kind(), Some(FrameKind::Reply));
}

#[test]
fn event_names_reason_and_session() {
    let event = FrameHeader::event(901, 3, SessionNumber(4));
    assert_eq!(
        (event.code, event.status, event.session()),
        (901, 3, SessionNumber(4))
    );
    assert_eq!((event.correlation, event.low, event.high), (0, 0, 0));
}

#[test]
fn frame_is_read_back() {
    let frame = Bytes::from(request().frame(b"body"));
    let header = FrameHeader::read(&frame).unwrap();
    assert_eq!(header.check(FRAME_SIZE_MAX), Ok(()));
    assert_eq!((header.size, header.body_size()), (68, 4));
    assert_eq!(header.body(&frame).unwrap(), "body");
    // What follows a frame is not part of it.
    let longer = Bytes::from([&frame[..], b"next"].concat());
    assert_eq!(header.body(&longer).unwrap(), "body");
}

#[test]
fn frame_of_parts_is_the_frame_of_their_whole() {
    for size in [
        0,
        1,
        500,
        JOINED_SIZE_MAX - 64,
        JOINED_SIZE_MAX - 63,
        100_000,
    ] {
        let body: Vec<u8> = (0..size).map(|n| n.to_le_bytes()[0]).collect();
        let body = Bytes::from(body);
        let cut = size / 3;
        let parts = vec![body.slice(..cut), body.slice(cut..)];
        let frame = request().frame_of_parts(parts);
        assert_eq!(frame.concat(), request().frame(&body));
        let joined = size + 64 <= JOINED_SIZE_MAX;
        assert_eq!(frame.len(), if joined { 1 } else { 3 });
        assert!(joined || frame[2].as_ptr() == body[cut..].as_ptr());
    }
}

#[test]
fn header_is_checked_before_the_body_is_there() {
    let refused = |header: FrameHeader| {
        let error = header.check(1_000).unwrap_err();
        (error.field, error.position, error.problem)
    };
    let invalid = |value| Problem::Invalid { value };
    let header = request();
    assert_eq!(header.check(1_000), Ok(()));
    let (value, limit) = (1_001, 1_000);
    let too_large = Problem::TooLarge { value, limit };
    assert_eq!(
        refused(FrameHeader {
            size: 1_001,
            ..header
        }),
        ("size", 8, too_large)
    );
    assert_eq!(
        refused(FrameHeader { size: 63, ..header }),
        ("size", 8, invalid(63))
    );
    assert_eq!(
        refused(FrameHeader {
            version: 2,
            ..header
        }),
        ("version", 13, invalid(2))
    );
    assert_eq!(
        refused(FrameHeader { kind: 5, ..header }),
        ("kind", 12, invalid(5))
    );
    assert_eq!(
        refused(FrameHeader { flags: 8, ..header }),
        ("flags", 14, invalid(8))
    );
    assert_eq!(
        refused(FrameHeader {
            status: 9,
            ..header
        }),
        ("status", 20, invalid(9))
    );
    let reply = FrameHeader::reply(&header, 9);
    assert_eq!(FrameHeader { size: 64, ..reply }.check(1_000), Ok(()));
}

#[test]
fn kinds_and_version_are_numbered() {
    let kind = |kind| FrameHeader { kind, ..request() }.frame_kind();
    assert_eq!(kind(3), Some(FrameKind::Event));
    assert_eq!(kind(4), Some(FrameKind::Peer));
    assert_eq!(kind(0), None);
    assert_eq!(PROTOCOL_VERSION, 1);
}

#[test]
fn body_shorter_than_its_size_is_refused() {
    let frame = Bytes::from(request().frame(b"body"));
    let mut header = FrameHeader::read(&frame).unwrap();
    let error = header.body(&frame.slice(..67)).unwrap_err();
    let (needed, left) = (68, 67);
    assert_eq!(error.problem, Problem::Truncated { needed, left });
    header.size = 3;
    assert!(header.body(&frame).is_err());
    assert_eq!(header.body_size(), 0);
}

#[test]
#[should_panic(expected = "size_max")]
fn frame_above_the_maximum_is_not_built() {
    let part = Bytes::from(vec![0; FRAME_SIZE_MAX as usize]);
    let _frame = request().frame_of_parts(vec![part]);
}

/// A client's largest request is passed on with more around it.
#[test]
fn frame_between_nodes_may_be_larger() {
    let part = Bytes::from(vec![0; PEER_FRAME_SIZE_MAX as usize - FRAME_HEADER_SIZE]);
    let frame = FrameHeader::peer(7).frame_of_parts(vec![part]);
    let header = FrameHeader::read(&frame[0]).unwrap();
    assert_eq!(header.frame_kind(), Some(FrameKind::Peer));
    assert_eq!(
        (header.code, header.check(PEER_FRAME_SIZE_MAX)),
        (7, Ok(()))
    );
    assert!(header.check(FRAME_SIZE_MAX).is_err());
}

#[test]
#[should_panic(expected = "size_max")]
fn frame_between_nodes_above_its_maximum_is_not_built() {
    let part = Bytes::from(vec![0; PEER_FRAME_SIZE_MAX as usize]);
    let _frame = FrameHeader::peer(7).frame_of_parts(vec![part]);
}
