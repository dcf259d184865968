//! The fixed header of every frame on a socket.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

use crate::{
    ClientId, CorrelationId, DecodeError, Op, Problem, ReplicaId, RequestNumber, SessionNumber,
    View, checksum64, hash::checksum64_of_parts,
};

/// Bytes of the header.
pub const FRAME_HEADER_SIZE: usize = 64;

/// The largest frame, header included. It holds the largest batch beside as many other sections as a
/// request may have.
pub const FRAME_SIZE_MAX: u32 = 8 * 1024 * 1024 + 64 * 1024;

/// The largest frame between nodes, header included: the largest request of a client, passed on with as many
/// sections as there may be, and the largest prepare.
pub const PEER_FRAME_SIZE_MAX: u32 = FRAME_SIZE_MAX + 64 * 1024;

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

    /// The header of a frame between nodes; size and checksum are set by [`FrameHeader::frame_of_parts`].
    #[must_use]
    pub fn peer(code: u32) -> Self {
        Self {
            kind: FrameKind::Peer as u8,
            version: PROTOCOL_VERSION,
            code,
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
    /// When the frame would exceed [`FRAME_SIZE_MAX`], or [`PEER_FRAME_SIZE_MAX`] between nodes.
    #[must_use]
    pub fn frame_of_parts(mut self, parts: Vec<Bytes>) -> Vec<Bytes> {
        let size = FRAME_HEADER_SIZE + parts.iter().map(Bytes::len).sum::<usize>();
        self.size = u32::try_from(size).expect("a frame's size fits a u32");
        assert!(self.size <= self.size_max());
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

    fn size_max(&self) -> u32 {
        match self.frame_kind() {
            Some(FrameKind::Peer) => PEER_FRAME_SIZE_MAX,
            Some(FrameKind::Request | FrameKind::Reply | FrameKind::Event) | None => FRAME_SIZE_MAX,
        }
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
