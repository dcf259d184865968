//! What is on a replica's disk when it starts.

use alloc::{collections::BTreeMap, vec::Vec};

use serde::{Deserialize, Serialize};
use wire::{Op, Timestamp, View};

use crate::{
    ChainPoint, ClientSessions, Config, OutOfService, Prepare, Superblock, journal::Anchor,
};

/// The replica's part of a snapshot: stored beside the state machine of the same op. New fields only at
/// the end, with `serde(default)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The last op that it contains; 0 is the empty state.
    pub op: Op,
    /// Checksum of that op's prepare: the chain goes on from there (V9).
    pub checksum: u128,
    /// Timestamp of that op: the next one is later (V16).
    pub timestamp: Timestamp,
    /// The view in which that op was prepared.
    pub view: View,
    /// The client table.
    pub client_sessions: ClientSessions,
}

/// What the disk holds of one consensus group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The newest superblock. None only on a disk that was formatted and never used: a lost superblock
    /// makes a replica a wiped one (V13).
    pub superblock: Option<Superblock>,
    /// The newest checkpoint that can be read whole.
    pub checkpoint: Option<Checkpoint>,
    /// The prepares in the order in which they were written, their bodies checked. Those up to the
    /// checkpoint may be left out.
    pub prepares: Vec<Prepare>,
    /// Ops of prepares that were flushed and cannot be read. A frame that was torn and cut counts as
    /// never written.
    pub rotten: Vec<Op>,
    /// A fault may hide the last prepares (V11).
    pub head_uncertain: bool,
}

/// The history that a disk proves.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) superblock: Superblock,
    pub(crate) checkpoint: Checkpoint,
    /// From the op after the checkpoint, without gaps.
    pub(crate) prepares: Vec<Prepare>,
    /// Prepares that the last installed journal does not contain.
    pub(crate) dropped: Vec<Op>,
}

impl Checkpoint {
    pub(crate) const fn anchor(&self) -> Anchor {
        Anchor {
            point: ChainPoint {
                op: self.op,
                checksum: self.checksum,
            },
            timestamp: self.timestamp,
            view: self.view,
        }
    }
}

impl Recovered {
    /// Nothing was ever promised or prepared here.
    pub(crate) fn is_fresh(&self) -> bool {
        self.superblock.is_none()
            && self.checkpoint.as_ref().is_none_or(|it| it.op == Op(0))
            && self.prepares.is_empty()
            && self.rotten.is_empty()
            && !self.head_uncertain
    }

    /// Of n = 1: the one history that follows from the checkpoint, or why there is none that can be
    /// trusted. Whatever was acknowledged is in it, since a torn frame is the only thing that may be
    /// missing.
    pub(crate) fn chain(self, config: &Config) -> Result<Chain, OutOfService> {
        let Self {
            superblock,
            checkpoint,
            prepares,
            rotten,
            head_uncertain,
        } = self;
        let superblock = superblock.ok_or(OutOfService::SuperblockMissing)?;
        let named = superblock.checkpoint;
        let checkpoint = checkpoint.unwrap_or_default();
        if checkpoint.op == named.op && checkpoint.checksum != named.checksum {
            return Err(OutOfService::CheckpointMissing { op: named.op });
        }
        let (mut found, dropped) = newest_by_op(prepares, &superblock, &checkpoint, config)?;

        let mut chain = Vec::with_capacity(found.len());
        let mut head = checkpoint.anchor().point;
        while let Some(prepare) = found.remove(&head.op.next()) {
            let op = prepare.header.op();
            let checksum = prepare.header.checksum;
            let is_other = op == named.op && checksum != named.checksum;
            if prepare.header.parent != head.checksum || is_other {
                return Err(OutOfService::PrepareUnchained { op });
            }
            head = ChainPoint { op, checksum };
            chain.push(prepare);
        }

        if head.op < named.op {
            return Err(OutOfService::CheckpointMissing { op: named.op });
        }
        if let Some(op) = rotten.into_iter().filter(|op| *op > head.op).min() {
            return Err(OutOfService::PrepareRotten { op });
        }
        if !found.is_empty() || head.op < superblock.head {
            return Err(OutOfService::PrepareMissing { op: head.op.next() });
        }
        if head_uncertain {
            return Err(OutOfService::HeadUncertain { op: head.op });
        }
        Ok(Chain {
            superblock,
            checkpoint,
            prepares: chain,
            dropped,
        })
    }
}

/// The prepares above the checkpoint by op; of several with one op, the one written last. Those that the
/// install of `log_view` truncated are told apart.
fn newest_by_op(
    prepares: Vec<Prepare>,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    config: &Config,
) -> Result<(BTreeMap<Op, Prepare>, Vec<Op>), OutOfService> {
    let mut found = BTreeMap::new();
    let mut dropped = Vec::new();
    for prepare in prepares {
        let header = &prepare.header;
        let op = header.op();
        if op <= checkpoint.op {
            continue;
        }
        let is_ours = header.cluster == config.cluster.0 && header.group() == config.group;
        if !header.is_valid() || !is_ours {
            return Err(OutOfService::PrepareRotten { op });
        }
        if op > superblock.head && header.view() < superblock.log_view {
            dropped.push(op);
        } else {
            found.insert(op, prepare);
        }
    }
    Ok((found, dropped))
}
