//! What is on a replica's disk when it starts.

use alloc::{collections::BTreeMap, vec::Vec};

use serde::{Deserialize, Serialize};
use wire::{Op, Timestamp, View};

use crate::{
    ChainPoint, ClientSessions, Config, OutOfService, Prepare, Superblock,
    journal::{Anchor, anchor},
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
    /// Chosen anew at each start: names this incarnation (V11).
    pub nonce: u128,
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
    /// The checksums of the ops up to the checkpoint that are still on the disk, in order.
    pub(crate) older: Vec<u128>,
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
            nonce: _,
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
            older: Vec::new(),
        })
    }
}

impl Recovered {
    /// Of several replicas: the journal that was installed last, and what was prepared in its view since.
    /// The superblock names the last ops of the install, so that what was only laid aside for another view
    /// is not taken for part of it. With an uncertain head nothing above the checkpoint is kept: all of it
    /// is fetched.
    pub(crate) fn chain_among_others(self, config: &Config) -> Result<Chain, OutOfService> {
        let superblock = self.superblock.ok_or(OutOfService::SuperblockMissing)?;
        let named = superblock.checkpoint;
        let checkpoint = self.checkpoint.unwrap_or_default();
        if checkpoint.op == named.op && checkpoint.checksum != named.checksum {
            return Err(OutOfService::CheckpointMissing { op: named.op });
        }
        if self.head_uncertain {
            return Ok(Chain {
                superblock,
                checkpoint,
                prepares: Vec::new(),
                dropped: Vec::new(),
                older: Vec::new(),
            });
        }
        let mut frames = Frames::new(self.prepares, self.rotten, config)?;
        let installed = superblock.suffix.last().and_then(|entry| entry.header);
        let installed = installed.map_or(named, |header| ChainPoint {
            op: header.op(),
            checksum: header.checksum,
        });
        let base = checkpoint.anchor().point;
        let mut prepares = match frames.back_from(installed, base) {
            // A checkpoint of another replica is here, and the superblock that installs it is not: what was
            // in its way came to nothing.
            Err(OutOfService::PrepareUnchained { .. }) if base.op > named.op => Vec::new(),
            found => found?,
        };
        if superblock.view == superblock.log_view {
            let head = prepares.last().map_or(checkpoint.anchor(), anchor);
            frames.forward_from(head.point, superblock.view, &mut prepares)?;
        }
        let older = frames.older_than(base);
        let dropped = frames.by_point.into_keys().map(|(op, _)| op);
        let dropped = dropped.filter(|op| *op > checkpoint.op).collect();
        Ok(Chain {
            superblock,
            checkpoint,
            prepares,
            dropped,
            older,
        })
    }
}

/// The readable prepares, by op and checksum.
struct Frames {
    by_point: BTreeMap<(Op, u128), Prepare>,
    rotten: Vec<Op>,
}

impl Frames {
    fn new(prepares: Vec<Prepare>, rotten: Vec<Op>, config: &Config) -> Result<Self, OutOfService> {
        let mut by_point = BTreeMap::new();
        for prepare in prepares {
            let header = &prepare.header;
            let op = header.op();
            let is_ours = header.is_valid()
                && header.cluster == config.cluster.0
                && header.group() == config.group;
            if !is_ours {
                return Err(OutOfService::PrepareRotten { op });
            }
            by_point.insert((op, header.checksum), prepare);
        }
        Ok(Self { by_point, rotten })
    }

    /// The prepares after `base` up to `head`, along the chain (V9).
    fn back_from(
        &mut self,
        head: ChainPoint,
        base: ChainPoint,
    ) -> Result<Vec<Prepare>, OutOfService> {
        let mut prepares = Vec::new();
        let mut point = head;
        while point.op > base.op {
            let op = point.op;
            let Some(prepare) = self.by_point.remove(&(op, point.checksum)) else {
                return Err(self.missing(op));
            };
            point = ChainPoint {
                op: Op(op.0 - 1),
                checksum: prepare.header.parent,
            };
            prepares.push(prepare);
        }
        if point.op == base.op && point.checksum != base.checksum {
            return Err(OutOfService::PrepareUnchained { op: base.op.next() });
        }
        prepares.reverse();
        Ok(prepares)
    }

    /// The checksums of the prepares up to `point`, as far back as they are here.
    fn older_than(&self, mut point: ChainPoint) -> Vec<u128> {
        let mut checksums = Vec::new();
        while let Some(prepare) = self.by_point.get(&(point.op, point.checksum)) {
            checksums.push(point.checksum);
            point = ChainPoint {
                op: Op(point.op.0 - 1),
                checksum: prepare.header.parent,
            };
        }
        checksums.reverse();
        checksums
    }

    /// What was prepared in `view` after `head`; it was written in the order of its ops.
    fn forward_from(
        &mut self,
        mut head: ChainPoint,
        view: View,
        prepares: &mut Vec<Prepare>,
    ) -> Result<(), OutOfService> {
        loop {
            let op = head.op.next();
            let mut found = self.by_point.range((op, 0)..=(op, u128::MAX));
            let follows = |prepare: &Prepare| {
                prepare.header.parent == head.checksum && prepare.header.view() == view
            };
            let Some((_, prepare)) = found.find(|(_, prepare)| follows(prepare)) else {
                break;
            };
            let checksum = prepare.header.checksum;
            prepares.extend(self.by_point.remove(&(op, checksum)));
            head = ChainPoint { op, checksum };
        }
        // Others above it are of no gap: they were laid aside for a later view.
        if let Some(op) = self.rotten.iter().filter(|op| **op > head.op).min() {
            return Err(OutOfService::PrepareRotten { op: *op });
        }
        Ok(())
    }

    fn missing(&self, op: Op) -> OutOfService {
        match self.rotten.iter().filter(|rotten| **rotten >= op).min() {
            Some(rotten) => OutOfService::PrepareRotten { op: *rotten },
            None => OutOfService::PrepareMissing { op },
        }
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
