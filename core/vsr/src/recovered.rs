//! What is on a replica's disk when it starts.

use alloc::vec::Vec;

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
        let (prepares, dropped) = newest_by_op(prepares, &superblock, checkpoint.op, config)?;

        let mut head = checkpoint.anchor().point;
        let mut gap = None;
        for prepare in &prepares {
            let header = &prepare.header;
            let (op, checksum) = (header.op(), header.checksum);
            if op != head.op.next() {
                gap = Some(head.op.next());
                break;
            }
            let is_other = op == named.op && checksum != named.checksum;
            if header.parent != head.checksum || is_other {
                return Err(OutOfService::PrepareUnchained { op });
            }
            head = ChainPoint { op, checksum };
        }

        if head.op < named.op {
            return Err(OutOfService::CheckpointMissing { op: named.op });
        }
        if let Some(op) = rotten.into_iter().filter(|op| *op > head.op).min() {
            return Err(OutOfService::PrepareRotten { op });
        }
        let gap = gap.or_else(|| (head.op < superblock.head).then(|| head.op.next()));
        if let Some(op) = gap {
            return Err(OutOfService::PrepareMissing { op });
        }
        if head_uncertain {
            return Err(OutOfService::HeadUncertain { op: head.op });
        }
        Ok(Chain {
            superblock,
            checkpoint,
            prepares,
            dropped,
        })
    }
}

/// The prepares above the checkpoint in the order of their ops; of several with one op, the one written
/// last. Those that the install of `log_view` truncated are told apart.
fn newest_by_op(
    mut prepares: Vec<Prepare>,
    superblock: &Superblock,
    checkpoint: Op,
    config: &Config,
) -> Result<(Vec<Prepare>, Vec<Op>), OutOfService> {
    prepares.retain(|prepare| prepare.header.op() > checkpoint);
    let is_foreign = |prepare: &&Prepare| {
        let header = &prepare.header;
        !header.is_valid() || header.cluster != config.cluster.0 || header.group() != config.group
    };
    if let Some(foreign) = prepares.iter().find(is_foreign) {
        let op = foreign.header.op();
        return Err(OutOfService::PrepareRotten { op });
    }

    let mut dropped = Vec::new();
    prepares.retain(|prepare| {
        let header = &prepare.header;
        let is_truncated = header.op() > superblock.head && header.view() < superblock.log_view;
        if is_truncated {
            dropped.push(header.op());
        }
        !is_truncated
    });

    // Nearly always they are in order.
    if !prepares.is_sorted_by_key(|prepare| prepare.header.op) {
        prepares.sort_by_key(|prepare| prepare.header.op);
    }
    prepares.dedup_by(|later, kept| {
        let is_same = later.header.op == kept.header.op;
        if is_same {
            core::mem::swap(later, kept);
        }
        is_same
    });
    Ok((prepares, dropped))
}
