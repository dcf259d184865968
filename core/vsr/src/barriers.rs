//! Barriers: the ops by which replicas that lost their disks come back (V13).

use alloc::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wire::{ClientId, Op, PrepareHeader, ReplicaId, RequestNumber};

use crate::{ChainPoint, Prepare, constants::BARRIER};

/// An op that says: whatever this replica has said before it was said by another disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The op.
    pub op: Op,
    /// Checksum of its prepare.
    pub checksum: u128,
    /// The incarnation of the replica that asked for it.
    pub nonce: u128,
}

/// The last barrier of each replica that has one. Changes at commit only, alike on every replica; its serde
/// form is part of every snapshot: new fields only at the end, with `serde(default)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barriers {
    by_replica: BTreeMap<ReplicaId, Barrier>,
}

impl Barriers {
    /// The last barrier of a replica.
    #[must_use]
    pub fn of(&self, replica: ReplicaId) -> Option<&Barrier> {
        self.by_replica.get(&replica)
    }

    /// The last barriers, by replica.
    pub fn iter(&self) -> impl Iterator<Item = (ReplicaId, &Barrier)> {
        self.by_replica.iter().map(|(replica, it)| (*replica, it))
    }

    /// A barrier is committed.
    pub(crate) fn set(&mut self, replica: ReplicaId, barrier: Barrier) {
        self.by_replica.insert(replica, barrier);
    }
}

impl Barrier {
    /// The op and what names it.
    pub(crate) const fn point(&self) -> ChainPoint {
        ChainPoint {
            op: self.op,
            checksum: self.checksum,
        }
    }

    /// Which replica's barrier the prepare is, if it is one.
    pub(crate) fn read(prepare: &Prepare) -> Option<(ReplicaId, Self)> {
        let replica = replica_of(&prepare.header)?;
        let nonce = prepare.body.first_chunk::<16>();
        let barrier = Self {
            op: prepare.header.op(),
            checksum: prepare.header.checksum,
            nonce: nonce.map_or(0, |it| u128::from_le_bytes(*it)),
        };
        Some((replica, barrier))
    }
}

/// Which replica's barrier the header is that of, if it is one: no state machine gets to see it.
pub(crate) fn replica_of(header: &PrepareHeader) -> Option<ReplicaId> {
    let is_barrier = header.operation == BARRIER && header.client() == ClientId(0);
    let RequestNumber(replica) = header.request();
    let replica = u8::try_from(replica).ok()?;
    is_barrier.then_some(ReplicaId(replica))
}

/// Header and body of the barrier of a replica, without its place in the journal.
pub(crate) fn barrier_for(replica: ReplicaId, nonce: u128) -> (PrepareHeader, Bytes) {
    let header = PrepareHeader {
        request: u64::from(replica.0),
        operation: BARRIER,
        ..PrepareHeader::default()
    };
    (header, Bytes::copy_from_slice(&nonce.to_le_bytes()))
}
