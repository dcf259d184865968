//! The header of a prepare: the same on a replica link and in the journal.

#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};

use crate::{
    ClientId, ConsensusGroup, DecodeError, Op, Problem, RequestNumber, SessionNumber, Timestamp,
    View, checksum128,
};

/// Bytes of the header.
pub const PREPARE_HEADER_SIZE: usize = 128;

/// One op of a consensus group. Prepares form a hash chain (V9): `parent` is the checksum of the prepare
/// of the op before. A prepare keeps its original view for ever, so its bytes are equal on all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PrepareHeader {
    /// XXH3-128 of the header's other bytes; names the prepare.
    pub checksum: u128,
    /// XXH3-128 of the body.
    pub checksum_body: u128,
    /// `checksum` of the prepare of op - 1; 0 for op 1.
    pub parent: u128,
    /// The cluster, so that a journal of another one is never taken for ours.
    pub cluster: u128,
    /// Client of a metadata request; 0 for an op that no client asked for, and in data groups.
    pub client: u128,
    /// Its session.
    pub session: u64,
    /// Its request number.
    pub request: u64,
    /// The op.
    pub op: u64,
    /// The primary's `max(now, last + 1)` in microseconds (V16).
    pub timestamp: u64,
    /// The view it was prepared in.
    pub view: u32,
    /// Bytes of header and body.
    pub size: u32,
    /// The consensus group.
    pub group: u16,
    /// What kind of op it is; the state machine of the group names them.
    pub operation: u16,
    /// Format version of the body.
    pub version: u32,
}

const _: () = assert!(size_of::<PrepareHeader>() == PREPARE_HEADER_SIZE);

impl PrepareHeader {
    /// Sets size and both checksums for `body`.
    ///
    /// # Panics
    /// When the size does not fit a u32.
    #[must_use]
    pub fn sealed(mut self, body: &[u8]) -> Self {
        self.size =
            u32::try_from(PREPARE_HEADER_SIZE + body.len()).expect("a prepare fits a frame");
        self.checksum_body = checksum128(body);
        self.checksum = self.own_checksum();
        self
    }

    /// Whether the header is what was sealed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.checksum == self.own_checksum() && self.size as usize >= PREPARE_HEADER_SIZE
    }

    /// Whether `body` is what was sealed with it.
    #[must_use]
    pub fn is_valid_body(&self, body: &[u8]) -> bool {
        self.size as usize == PREPARE_HEADER_SIZE + body.len()
            && self.checksum_body == checksum128(body)
    }

    /// Reads the header at the front of `bytes`; [`PrepareHeader::is_valid`] judges it.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes.get(..PREPARE_HEADER_SIZE) {
            Some(header) => Ok(bytemuck::pod_read_unaligned(header)),
            None => Err(DecodeError {
                field: "prepare header",
                position: 0,
                problem: Problem::Truncated {
                    needed: PREPARE_HEADER_SIZE as u64,
                    left: bytes.len() as u64,
                },
            }),
        }
    }

    /// The header's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    fn own_checksum(&self) -> u128 {
        checksum128(&self.as_bytes()[16..])
    }

    /// The op.
    #[must_use]
    pub const fn op(&self) -> Op {
        Op(self.op)
    }

    /// The view it was prepared in.
    #[must_use]
    pub const fn view(&self) -> View {
        View(self.view)
    }

    /// The consensus group.
    #[must_use]
    pub const fn group(&self) -> ConsensusGroup {
        ConsensusGroup(self.group)
    }

    /// The client that asked for it.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        ClientId(self.client)
    }

    /// The session that asked for it.
    #[must_use]
    pub const fn session(&self) -> SessionNumber {
        SessionNumber(self.session)
    }

    /// The request's number in its session.
    #[must_use]
    pub const fn request(&self) -> RequestNumber {
        RequestNumber(self.request)
    }

    /// The primary's timestamp.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        Timestamp(self.timestamp)
    }
}
