//! Snapshot files: length and checksum, then the snapshot as rmp-serde writes it.

use bytes::{Buf, Bytes};
use shard::GroupSnapshot;
use wire::{ConsensusGroup, checksum128};

/// Bytes before the snapshot.
const HEADER_SIZE: usize = 8 + 16;

/// The bytes of a snapshot's file.
pub(super) fn encode(snapshot: &GroupSnapshot) -> Bytes {
    let body = rmp_serde::to_vec(snapshot).expect("a snapshot is plain data");
    let mut bytes = (body.len() as u64).to_le_bytes().to_vec();
    bytes.extend(checksum128(&body).to_le_bytes());
    bytes.extend(body);
    Bytes::from(bytes)
}

/// What a file is said to hold, length and checksum, and what it does; `None` when not even that is there.
/// Whoever sends a part of it to another node compares nothing: that takes all of it.
pub(super) fn open(bytes: &Bytes) -> Option<(u64, u128, Bytes)> {
    if bytes.len() < HEADER_SIZE {
        return None;
    }
    let mut body = bytes.clone();
    let (size, checksum) = (body.get_u64_le(), body.get_u128_le());
    Some((size, checksum, body))
}

/// Reads what another node has sent of its snapshot.
pub(super) fn read(body: &[u8]) -> Option<Box<GroupSnapshot>> {
    rmp_serde::from_slice(body).ok()
}

/// Reads a snapshot's file; `None` when it is not what was written.
pub(super) fn decode(bytes: &Bytes, group: ConsensusGroup) -> Option<GroupSnapshot> {
    let (size, checksum, body) = open(bytes)?;
    if size != body.len() as u64 || checksum != checksum128(&body) {
        return None;
    }
    let snapshot: GroupSnapshot = rmp_serde::from_slice(&body).ok()?;
    (snapshot.group == group).then_some(snapshot)
}
