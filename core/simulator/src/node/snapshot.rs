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

/// Reads a snapshot's file; `None` when it is not what was written.
pub(super) fn decode(bytes: &[u8], group: ConsensusGroup) -> Option<GroupSnapshot> {
    let (checksum, body) = bytes.split_first_chunk()?;
    if checksum64(body) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let snapshot: GroupSnapshot = rmp_serde::from_slice(body).ok()?;
    (snapshot.group == group).then_some(snapshot)
}
