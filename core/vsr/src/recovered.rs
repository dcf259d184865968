//! What is on a replica's disk when it starts.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use serde::{Deserialize, Serialize};
use wire::{Op, PrepareHeader, Timestamp, View};

use crate::{
    Barriers, ChainPoint, ClientSessions, Config, OutOfService, Prepare, Superblock,
    constants::{SUFFIX_MAX, VOTE_OPS_MAX},
    damaged::{Damaged, Known},
    journal::{Anchor, anchor},
    mutation,
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
    /// The barriers of replicas that lost their disks (V13). Older checkpoints have none.
    #[serde(default)]
    pub barriers: Barriers,
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
    /// Prepares that were flushed and cannot be read. A frame that was torn and cut counts as never written.
    pub rotten: Vec<Rotten>,
    /// Before this position of the journal prepares were flushed that cannot be read, and nothing tells how
    /// many. For one of several that is an uncertain head, unless its journal was installed since.
    pub rotten_unbounded: Option<u64>,
    /// Whatever is written from now on is at this position of the journal or behind it. Positions rise with
    /// what is written, whatever the unit.
    pub position: u64,
    /// A fault may hide the last prepares (V11).
    pub head_uncertain: bool,
    /// Chosen anew at each start: names this incarnation (V11).
    pub nonce: u128,
    /// If there is no superblock, that is because the disk was lost: the cluster has seen this replica before
    /// (V13). Where there is one, that tells.
    pub is_rejoining: bool,
}

/// A prepare that was flushed and cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotten {
    /// Its op; where that is not known, there is an entry for each that it may be.
    pub op: Op,
    /// Its header, if that can be read.
    pub header: Option<PrepareHeader>,
    /// It was written before this position of the journal.
    pub before: u64,
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
    /// What comes behind the first prepare that cannot be read.
    pub(crate) damaged: Option<Damaged>,
    /// A fault may hide the last prepares (V11).
    pub(crate) head_uncertain: bool,
    /// The checkpoint that the superblock names, if only an older one can be read. With an uncertain head the
    /// journal does not lead there from the older one.
    pub(crate) lost: Option<ChainPoint>,
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
    /// The replica has lost its disk, and was not taken back since (V13).
    pub(crate) fn is_rejoining(&self) -> bool {
        let superblock = self.superblock.as_ref();
        superblock.map_or(self.is_rejoining, |it| it.is_rejoining) && !mutation::V13
    }

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
            rotten_unbounded: _,
            position: _,
            nonce: _,
            is_rejoining: _,
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
        if let Some(op) = rotten
            .iter()
            .map(|it| it.op)
            .filter(|op| *op > head.op)
            .min()
        {
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
            damaged: None,
            head_uncertain: false,
            lost: None,
        })
    }
}

impl Recovered {
    /// Of several replicas: the journal that was installed last, and what was prepared in its view since.
    /// The superblock names the last ops of the install, so that what was only laid aside for another view
    /// is not taken for part of it. Where a prepare cannot be read the journal ends, and what comes behind it
    /// is damaged. With an uncertain head nothing above the checkpoint is kept: all of it is fetched. So it is where
    /// the checkpoint that the superblock names is lost, and the journal does not lead to it from an older one.
    pub(crate) fn chain_among_others(self, config: &Config) -> Result<Chain, OutOfService> {
        let superblock = self.superblock.ok_or(OutOfService::SuperblockMissing)?;
        let named = superblock.checkpoint;
        let checkpoint = self.checkpoint.unwrap_or_default();
        if checkpoint.op == named.op && checkpoint.checksum != named.checksum {
            return Err(OutOfService::CheckpointMissing { op: named.op });
        }
        let lost = Some(named).filter(|named| named.op > checkpoint.op);
        // What the journal may give up at any time leads nowhere.
        let has_no_bridge = lost.is_some() && superblock.recyclable() > checkpoint.op;
        // What was lost since the journal was installed may have been the last ops of it.
        let is_lost = |before| before > superblock.since;
        if superblock.is_rejoining
            || self.head_uncertain
            || has_no_bridge && !mutation::V10_CHECKPOINT
            || self.rotten_unbounded.is_some_and(is_lost)
        {
            return Ok(Chain::without_head(superblock, checkpoint, lost));
        }
        let mut by_point = by_point(self.prepares, config)?;
        let base = checkpoint.anchor();
        let older = older_than(&by_point, base.point);
        let above = by_point.split_off(&(base.point.op.next(), 0));
        let rotten = Lost::new(&self.rotten, superblock.since);
        let above = JournalAbove::find(base, &superblock, above, &rotten)?;
        if above.is_vague() || above.is_cut_off {
            return Ok(Chain::without_head(superblock, checkpoint, lost));
        }
        Ok(Chain {
            superblock,
            checkpoint,
            prepares: above.prepares,
            dropped: above.left_over,
            older,
            damaged: above.damaged,
            head_uncertain: false,
            lost,
        })
    }
}

impl Chain {
    /// Nothing above the checkpoint is kept.
    const fn without_head(
        superblock: Superblock,
        checkpoint: Checkpoint,
        lost: Option<ChainPoint>,
    ) -> Self {
        Self {
            superblock,
            checkpoint,
            prepares: Vec::new(),
            dropped: Vec::new(),
            older: Vec::new(),
            damaged: None,
            head_uncertain: true,
            lost,
        }
    }
}

/// What was flushed and cannot be read.
struct Lost {
    /// The highest op of all.
    last: Op,
    /// Those without a header that may have been prepared since the journal was installed. What was written
    /// before that is no part of it if it is above its head.
    unknown: BTreeSet<Op>,
    headers: Vec<PrepareHeader>,
}

impl Lost {
    fn new(rotten: &[Rotten], since: u64) -> Self {
        let ops = rotten.iter().map(|it| it.op);
        let unknown = rotten
            .iter()
            .filter(|it| it.header.is_none() && it.before > since);
        Self {
            last: ops.max().unwrap_or_default(),
            unknown: unknown.map(|it| it.op).collect(),
            headers: rotten.iter().filter_map(|it| it.header).collect(),
        }
    }
}

type Prepares = BTreeMap<(Op, u128), Prepare>;

/// The readable prepares, by op and checksum.
fn by_point(prepares: Vec<Prepare>, config: &Config) -> Result<Prepares, OutOfService> {
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
    Ok(by_point)
}

/// The checksums of the prepares up to `point`, as far back as they are here.
fn older_than(by_point: &Prepares, mut point: ChainPoint) -> Vec<u128> {
    let mut checksums = Vec::new();
    while let Some(prepare) = by_point.get(&(point.op, point.checksum)) {
        checksums.push(point.checksum);
        point = ChainPoint {
            op: Op(point.op.0 - 1),
            checksum: prepare.header.parent,
        };
    }
    checksums.reverse();
    checksums
}

/// The journal above the checkpoint.
struct JournalAbove {
    /// What follows from the checkpoint without a gap.
    prepares: Vec<Prepare>,
    /// What comes behind the first that cannot be read.
    damaged: Option<Damaged>,
    /// The ops of what belongs to neither.
    left_over: Vec<Op>,
    /// It does not lead as far as the checkpoint that the superblock names.
    is_cut_off: bool,
}

impl JournalAbove {
    fn find(
        base: Anchor,
        superblock: &Superblock,
        above: Prepares,
        rotten: &Lost,
    ) -> Result<Self, OutOfService> {
        let mut known = installed(base.point.op, superblock);
        if is_contradicted(base.point, superblock, &above) {
            if base.point.op < superblock.checkpoint.op {
                let op = base.point.op.next();
                return Err(OutOfService::PrepareUnchained { op });
            }
            // A checkpoint of another replica is here, which was installed without the head, or the superblock that
            // installs it is not: what was in its way came to nothing.
            known.clear();
        }
        if superblock.view == superblock.log_view {
            prepared_since(base.point, superblock.view, &above, rotten, &mut known);
        }
        let headers = rotten.headers.clone();
        let mut damaged = Damaged::new(base.point.op.next(), known, above, headers);
        let mut prepares: Vec<Prepare> = Vec::new();
        let mut head = base;
        while let Some(prepare) = damaged.take_next(head) {
            head = anchor(&prepare);
            prepares.push(prepare);
        }
        if damaged.is_empty() {
            return Ok(Self {
                prepares,
                left_over: damaged.left_over(),
                damaged: None,
                is_cut_off: false,
            });
        }
        if head.point.op < superblock.checkpoint.op {
            return Ok(Self {
                prepares,
                left_over: Vec::new(),
                damaged: None,
                is_cut_off: !mutation::V10_CHECKPOINT,
            });
        }
        if damaged.contradicts(head.point) {
            let op = damaged.first();
            return Err(OutOfService::PrepareUnchained { op });
        }
        // What only may have been there is told by the superblock alone once a checkpoint has let the journal
        // give up what was rotten.
        if let Some(op) = damaged.last_unreadable().filter(|op| *op > rotten.last) {
            return Err(OutOfService::PrepareMissing { op });
        }
        Ok(Self {
            prepares,
            left_over: Vec::new(),
            damaged: Some(damaged).filter(|_| !mutation::V10_UNREADABLE),
            is_cut_off: false,
        })
    }

    /// Whether more ops may have been there than a vote can name.
    fn is_vague(&self) -> bool {
        self.damaged.as_ref().is_some_and(|damaged| {
            let before = Op(damaged.first().0 - 1);
            let certain = damaged.last_certain().unwrap_or(before);
            damaged.last().0 - certain.0 > (VOTE_OPS_MAX - SUFFIX_MAX) as u64
        })
    }
}

/// Whether the superblock, or the chain back from its head, names another op than `base` in its place.
fn is_contradicted(base: ChainPoint, superblock: &Superblock, above: &Prepares) -> bool {
    let named = |op| superblock.suffix.iter().find(|it| it.op == op)?.header;
    let mut point = superblock.checkpoint;
    if let Some(header) = superblock.suffix.last().and_then(|it| it.header) {
        point = ChainPoint {
            op: header.op(),
            checksum: header.checksum,
        };
    }
    while point.op > base.op {
        let found = above.get(&(point.op, point.checksum));
        let header = found.map(|it| it.header).or(named(point.op));
        let Some(header) = header else {
            break;
        };
        point = ChainPoint {
            op: Op(point.op.0 - 1),
            checksum: header.parent,
        };
    }
    let at_base = named(base.op).is_some_and(|it| it.checksum != base.checksum);
    at_base || point.op == base.op && point.checksum != base.checksum
}

/// What the superblock tells of the ops above the checkpoint.
fn installed(base: Op, superblock: &Superblock) -> VecDeque<Known> {
    let named = superblock.checkpoint;
    let head = superblock.suffix.last().map_or(named.op, |entry| entry.op);
    let count = head.0.saturating_sub(base.0);
    let mut known: VecDeque<Known> = (0..count).map(|_| Known::default()).collect();
    let index = |op: Op| usize::try_from(op.0.checked_sub(base.0 + 1)?).ok();
    if let Some(known) = index(named.op).and_then(|index| known.get_mut(index)) {
        known.checksum = Some(named.checksum);
    }
    for entry in &superblock.suffix {
        let known = index(entry.op).and_then(|index| known.get_mut(index));
        if let (Some(known), Some(header)) = (known, entry.header) {
            *known = Known::by_header(header);
        }
    }
    known
}

/// What was prepared in `view` after its journal was installed; it was written in the order of its ops, and
/// the primary of the view gave each number once. What cannot be read and has no header may be any of them.
/// Others are of no gap: they were laid aside for a later view.
fn prepared_since(
    base: ChainPoint,
    view: View,
    above: &Prepares,
    rotten: &Lost,
    known: &mut VecDeque<Known>,
) {
    loop {
        let op = Op(base.op.0 + known.len() as u64 + 1);
        let before = known.back();
        let before = before.map_or(Some(base.checksum), |known| known.checksum);
        let follows = |header: &PrepareHeader| {
            let is_next = before.is_none_or(|it| it == header.parent);
            header.view() == view && header.op() == op && is_next
        };
        let readable = above.range((op, 0)..=(op, u128::MAX));
        let mut headers = readable.map(|(_, it)| &it.header).chain(&rotten.headers);
        if let Some(header) = headers.find(|header| follows(header)) {
            known.push_back(Known::by_header(*header));
        } else if rotten.unknown.contains(&op) {
            known.push_back(Known::default());
        } else {
            return;
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
