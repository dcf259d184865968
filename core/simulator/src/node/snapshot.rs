//! Snapshot files: a checksum, then the snapshot as rmp-serde writes it.

use bytes::Bytes;
use shard::GroupSnapshot;
use wire::{ConsensusGroup, checksum64};

/// The bytes of a snapshot's file.
pub(super) fn encode(snapshot: &GroupSnapshot) -> Bytes {
    let body = rmp_serde::to_vec(snapshot).expect("a snapshot is plain data");
    let mut bytes = checksum64(&body).to_le_bytes().to_vec();
    bytes.extend(body);
    Bytes::from(bytes)
}

/// What of a snapshot's file is the snapshot; `None` when it is not what was written.
pub(super) fn body(bytes: &Bytes) -> Option<Bytes> {
    let (checksum, body) = bytes.split_first_chunk()?;
    let is_right = checksum64(body) == u64::from_le_bytes(*checksum);
    is_right.then(|| bytes.slice(checksum.len()..))
}

/// Reads what another node has sent of its snapshot.
pub(super) fn read(body: &[u8]) -> Option<Box<GroupSnapshot>> {
    rmp_serde::from_slice(body).ok()
}

/// Reads a snapshot's file; `None` when it is not what was written.
pub(super) fn decode(bytes: &[u8], group: ConsensusGroup) -> Option<GroupSnapshot> {
    let (checksum, body) = bytes.split_first_chunk()?;
    if checksum64(body) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let snapshot: GroupSnapshot = rmp_serde::from_slice(body).ok()?;
    (snapshot.group == group).then_some(snapshot)
}
