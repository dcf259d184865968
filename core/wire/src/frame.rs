//! The fixed header of every frame on a socket.

use alloc::vec::Vec;

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

use crate::{
    ClientId, CorrelationId, DecodeError, Op, Problem, ReplicaId, RequestNumber, SessionNumber,
    View, checksum64, hash::checksum64_of_parts,
};

/// Bytes of the header.
pub const FRAME_HEADER_SIZE: usize = 64;

/// The largest frame, header included, that a server can be configured to take: 8 MiB and the headers
/// around a batch of that size.
pub const FRAME_SIZE_MAX: u32 = 8 * 1024 * 1024 + 64 * 1024;

/// Where the checksum starts to count: behind itself.
const CHECKSUM_START: usize = 8;

/// Frames up to this size are put together by copying.
const JOINED_SIZE_MAX: usize = 16 * 1024;

/// The version that this crate speaks.
pub const PROTOCOL_VERSION: u8 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// From a client to a node.
    Request = 1,
    /// The answer to one request.
    Reply = 2,
    /// From a node to a client, unasked.
    Event = 3,
    /// Between nodes.
    Peer = 4,
}

/// The header: 64 bytes, little-endian. The meaning of some fields depends on the kind; the accessors
/// name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FrameHeader {
    /// XXH3-64 of everything after this field, body included.
    pub checksum: u64,
    /// Bytes of the frame, this header included.
    pub size: u32,
    /// A [`FrameKind`].
    pub kind: u8,
    /// [`PROTOCOL_VERSION`].
    pub version: u8,
    /// 0: none is defined, and a frame with any is refused.
    pub flags: u16,
    /// Command code of a request or reply, event code of an event.
    pub code: u32,
    /// 0 in a request; the error code of a reply (0: success); the reason of an event.
    pub status: u32,
    /// Echoed in the reply; 0 in an event.
    pub correlation: u64,
    /// The client id of a request, low half; of a reply the op.
    pub low: u64,
    /// The client id of a request, high half; of a reply the primary's node id (low 32 bits) and view.
    pub high: u64,
    /// The session number, 0 before login.
    pub session: u64,
    /// Request number of a metadata command; else the highest metadata op that the client has seen.
    pub request: u64,
}

const _: () = assert!(size_of::<FrameHeader>() == FRAME_HEADER_SIZE);

impl FrameHeader {
    /// A request's header; size and checksum are set by [`FrameHeader::frame`].
    #[must_use]
    pub fn request(code: u32, correlation: CorrelationId, client: ClientId) -> Self {
        let (low, high) = split(client.0);
        Self {
            kind: FrameKind::Request as u8,
            version: PROTOCOL_VERSION,
            code,
            correlation: correlation.0,
            low,
            high,
            ..Self::default()
        }
    }

    /// The header that answers `request` with `status`.
    #[must_use]
    pub fn reply(request: &Self, status: u32) -> Self {
        Self {
            kind: FrameKind::Reply as u8,
            version: PROTOCOL_VERSION,
            status,
            low: 0,
            high: 0,
            flags: 0,
            ..*request
        }
    }

    /// An event's header.
    #[must_use]
    pub fn event(code: u32, reason: u32, session: SessionNumber) -> Self {
        Self {
            kind: FrameKind::Event as u8,
            version: PROTOCOL_VERSION,
            code,
            status: reason,
            session: session.0,
            ..Self::default()
        }
    }

    /// Says in a reply which op it rests on and who is the primary of the consensus group asked.
    #[must_use]
    pub fn with_primary(mut self, op: Op, primary: ReplicaId, view: View) -> Self {
        self.low = op.0;
        self.high = u64::from(primary.0) | u64::from(view.0) << 32;
        self
    }

    /// The client id of a request.
    #[must_use]
    pub fn client(&self) -> ClientId {
        ClientId(u128::from(self.low) | u128::from(self.high) << 64)
    }

    /// The op of a reply.
    #[must_use]
    pub const fn op(&self) -> Op {
        Op(self.low)
    }

    /// The primary that a reply names, and its view.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the field apart")]
    pub const fn primary(&self) -> (u32, View) {
        (self.high as u32, View((self.high >> 32) as u32))
    }

    /// The session number.
    #[must_use]
    pub const fn session(&self) -> SessionNumber {
        SessionNumber(self.session)
    }

    /// The request number of a metadata command.
    #[must_use]
    pub const fn request_number(&self) -> RequestNumber {
        RequestNumber(self.request)
    }

    /// The kind, if it is one.
    #[must_use]
    pub const fn frame_kind(&self) -> Option<FrameKind> {
        match self.kind {
            1 => Some(FrameKind::Request),
            2 => Some(FrameKind::Reply),
            3 => Some(FrameKind::Event),
            4 => Some(FrameKind::Peer),
            _ => None,
        }
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn body_size(&self) -> usize {
        (self.size as usize).saturating_sub(FRAME_HEADER_SIZE)
    }

    /// The whole frame: sets size and checksum.
    ///
    /// # Panics
    /// When the frame would exceed [`FRAME_SIZE_MAX`].
    #[must_use]
    pub fn frame(mut self, body: &[u8]) -> Vec<u8> {
        let size = FRAME_HEADER_SIZE + body.len();
        self.size = u32::try_from(size).expect("a frame's size fits a u32");
        assert!(self.size <= FRAME_SIZE_MAX);
        let mut frame = Vec::with_capacity(size);
        frame.extend_from_slice(self.as_bytes());
        frame.extend_from_slice(body);
        let checksum = checksum64(&frame[CHECKSUM_START..]);
        frame[..CHECKSUM_START].copy_from_slice(&checksum.to_le_bytes());
        frame
    }

    /// The whole frame in pieces, so that a large body is hashed but not copied. A small one is joined
    /// with its header: one piece is cheaper to send than several.
    ///
    /// # Panics
    /// When the frame would exceed [`FRAME_SIZE_MAX`].
    #[must_use]
    pub fn frame_of_parts(mut self, parts: Vec<Bytes>) -> Vec<Bytes> {
        let size = FRAME_HEADER_SIZE + parts.iter().map(Bytes::len).sum::<usize>();
        self.size = u32::try_from(size).expect("a frame's size fits a u32");
        assert!(self.size <= FRAME_SIZE_MAX);
        if size <= JOINED_SIZE_MAX {
            return alloc::vec![self.joined(&parts)];
        }
        let header = &self.as_bytes()[CHECKSUM_START..];
        let body = parts.iter().map(|part| &part[..]);
        self.checksum = checksum64_of_parts(core::iter::once(header).chain(body));
        let mut frame = Vec::with_capacity(1 + parts.len());
        frame.push(Bytes::copy_from_slice(self.as_bytes()));
        frame.extend(parts);
        frame
    }

    fn joined(&self, parts: &[Bytes]) -> Bytes {
        let mut frame = Vec::with_capacity(self.size as usize);
        frame.extend_from_slice(self.as_bytes());
        for part in parts {
            frame.extend_from_slice(part);
        }
        let checksum = checksum64(&frame[CHECKSUM_START..]);
        frame[..CHECKSUM_START].copy_from_slice(&checksum.to_le_bytes());
        Bytes::from(frame)
    }

    /// The header's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// Reads a header without judging more than its length, so that a reply can be addressed.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes.get(..FRAME_HEADER_SIZE) {
            Some(header) => Ok(bytemuck::pod_read_unaligned(header)),
            None => {
                let (needed, left) = (FRAME_HEADER_SIZE as u64, bytes.len() as u64);
                Err(error("header", 0, Problem::Truncated { needed, left }))
            }
        }
    }

    /// Checks what can be checked before the body is there: size within `size_max`, version, kind, flags,
    /// and that a request has no status.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn check(&self, size_max: u32) -> Result<(), DecodeError> {
        if self.size > size_max {
            let (value, limit) = (u64::from(self.size), u64::from(size_max));
            return Err(error("size", 8, Problem::TooLarge { value, limit }));
        }
        if (self.size as usize) < FRAME_HEADER_SIZE {
            return Err(invalid("size", 8, self.size));
        }
        if self.version != PROTOCOL_VERSION {
            return Err(invalid("version", 13, self.version));
        }
        let Some(kind) = self.frame_kind() else {
            return Err(invalid("kind", 12, self.kind));
        };
        if self.flags != 0 {
            return Err(invalid("flags", 14, self.flags));
        }
        if kind == FrameKind::Request && self.status != 0 {
            return Err(invalid("status", 20, self.status));
        }
        Ok(())
    }

    /// Checks a whole frame's checksum and gives its body, a slice of `frame`.
    ///
    /// # Errors
    /// `Truncated` or `Checksum`.
    pub fn body(&self, frame: &Bytes) -> Result<Bytes, DecodeError> {
        let size = self.size as usize;
        if frame.len() < size || size < FRAME_HEADER_SIZE {
            let (needed, left) = (size as u64, frame.len() as u64);
            return Err(error(
                "body",
                FRAME_HEADER_SIZE,
                Problem::Truncated { needed, left },
            ));
        }
        if checksum64(&frame[CHECKSUM_START..size]) == self.checksum {
            Ok(frame.slice(FRAME_HEADER_SIZE..size))
        } else {
            Err(error("checksum", 0, Problem::Checksum))
        }
    }
}

fn invalid(field: &'static str, position: usize, value: impl Into<u64>) -> DecodeError {
    let value = value.into();
    error(field, position, Problem::Invalid { value })
}

const fn error(field: &'static str, position: usize, problem: Problem) -> DecodeError {
    DecodeError {
        field,
        position,
        problem,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes the number apart")]
const fn split(value: u128) -> (u64, u64) {
    (value as u64, (value >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use super::{Bytes, FRAME_SIZE_MAX, FrameHeader, FrameKind, JOINED_SIZE_MAX, PROTOCOL_VERSION};
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
    #[should_panic(expected = "FRAME_SIZE_MAX")]
    fn frame_above_the_maximum_is_not_built() {
        let part = Bytes::from(vec![0; FRAME_SIZE_MAX as usize]);
        let _frame = request().frame_of_parts(vec![part]);
    }
}
