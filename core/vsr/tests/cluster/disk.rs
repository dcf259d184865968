//! What one replica has on its disk, and what is on its way there.

use std::collections::VecDeque;

use vsr::{Checkpoint, Input, Prepare, Recovered, Rotten, Superblock};
use wire::{Op, PrepareHeader};

use crate::random::Random;

/// A write that was not completed.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Prepare(Prepare),
    Superblock(Superblock),
    Checkpoint(Checkpoint, Vec<u128>),
    /// Of another replica.
    Fetched(Checkpoint, Vec<u128>),
}

/// A prepare that was flushed and cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    header: PrepareHeader,
    /// Whether the header can be read.
    has_header: bool,
    /// If not: how many ops behind this one may be concerned, as far as the journal knows.
    vague: u64,
    /// Where it was written, at the latest.
    before: u64,
}

impl Lost {
    /// The ops that it may be.
    fn ops(&self) -> std::ops::RangeInclusive<u64> {
        self.header.op..=self.header.op + self.vague
    }
}

/// The disk of one replica. Prepares are written one after the other, as the journal does it; superblocks
/// and checkpoints in an order of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) prepares: Vec<Prepare>,
    /// Those that cannot be read any more, and what the journal tells of each.
    rotten: Vec<Lost>,
    /// How many prepares were written in all.
    written: u64,
    superblock: Option<Superblock>,
    /// With the ops that it was made of, by checksum.
    pub(crate) checkpoint: Option<(Checkpoint, Vec<u128>)>,
    /// The one that was the newest before it.
    before_newest: Option<(Checkpoint, Vec<u128>)>,
    /// The op of one that was lost, until there is one that contains it.
    lost_checkpoint: Op,
    writing_prepares: VecDeque<Prepare>,
    writing_others: VecDeque<Write>,
    /// Its last prepares are lost, and it is known that they may be (V11).
    pub(crate) is_head_uncertain: bool,
    /// It took the place of one that was lost, and its replica has not been taken back (V13).
    pub(crate) is_lost: bool,
    /// There was one that was lost before it.
    pub(crate) is_new: bool,
    /// Until then it completes nothing.
    pub(crate) stalled_until: u64,
    /// Percent of the times at which it could complete something and does not.
    pub(crate) slowness: u64,
}

impl Disk {
    /// In place of one that was lost.
    pub(crate) fn empty() -> Self {
        Self {
            is_lost: true,
            is_new: true,
            ..Self::default()
        }
    }

    pub(crate) fn write(&mut self, write: Write) {
        match write {
            Write::Prepare(prepare) => self.writing_prepares.push_back(prepare),
            Write::Superblock(_) | Write::Checkpoint(..) | Write::Fetched(..) => {
                self.writing_others.push_back(write)
            }
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.writing_prepares.is_empty() || !self.writing_others.is_empty()
    }

    /// Completes one write.
    pub(crate) fn finish_one(&mut self, random: &mut Random) -> Option<Input> {
        let takes_prepare = self.writing_others.is_empty()
            || !self.writing_prepares.is_empty() && random.percent(50);
        if takes_prepare {
            let prepare = self.writing_prepares.pop_front()?;
            let (op, checksum) = (prepare.header.op(), prepare.header.checksum);
            self.prepares.push(prepare);
            self.written += 1;
            return Some(Input::PrepareWritten { op, checksum });
        }
        Some(match self.writing_others.pop_front()? {
            Write::Superblock(superblock) => {
                let sequence = superblock.sequence;
                let recyclable = superblock.recyclable();
                self.prepares.retain(|it| it.header.op() > recyclable);
                self.superblock = Some(superblock);
                Input::SuperblockWritten { sequence }
            }
            Write::Checkpoint(checkpoint, ops) => {
                let op = checkpoint.op;
                self.keep(checkpoint, ops);
                Input::CheckpointWritten { op }
            }
            Write::Fetched(checkpoint, ops) => {
                self.keep(checkpoint.clone(), ops);
                Input::CheckpointFetched(checkpoint)
            }
            Write::Prepare(_) => unreachable!("prepares have a queue of their own"),
        })
    }

    /// The newest counts.
    fn keep(&mut self, checkpoint: Checkpoint, ops: Vec<u128>) {
        let newest = self.checkpoint.as_ref().map_or(Op(0), |(it, _)| it.op);
        if checkpoint.op > newest {
            self.before_newest = self.checkpoint.replace((checkpoint, ops));
        }
    }

    /// The newest one cannot be read any more, perhaps neither can the one before it.
    pub(crate) fn lose_checkpoint(&mut self, random: &mut Random) {
        self.lost_checkpoint = self.lost_checkpoint.max(self.checkpoint_op());
        self.checkpoint = self.before_newest.take().filter(|_| random.percent(70));
    }

    /// Whether it has lost a checkpoint and has none that contains it.
    pub(crate) fn lacks_checkpoint(&self) -> bool {
        self.lost_checkpoint > self.checkpoint_op()
    }

    /// The last op that was in one of its checkpoints.
    pub(crate) fn checkpoint_op_ever(&self) -> Op {
        self.checkpoint_op().max(self.lost_checkpoint)
    }

    /// The newest one is that of another replica, and of no use.
    pub(crate) fn forget_newest(&mut self) {
        self.checkpoint = self.before_newest.take();
    }

    /// The process is killed: of what is on its way the first pieces arrive, or none.
    pub(crate) fn crash(&mut self, random: &mut Random) {
        while self.is_busy() && random.percent(50) {
            self.finish_one(random);
        }
        self.writing_prepares.clear();
        self.writing_others.clear();
    }

    pub(crate) const fn is_fresh(&self) -> bool {
        self.superblock.is_none()
    }

    /// The last prepares are gone, acknowledged or not.
    pub(crate) fn lose_head(&mut self, random: &mut Random) {
        let lost = random.index(10).min(self.prepares.len());
        self.prepares.truncate(self.prepares.len() - lost);
        self.is_head_uncertain = true;
    }

    /// The last op that its checkpoint contains.
    pub(crate) fn checkpoint_op(&self) -> Op {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.map_or(Op(0), |(checkpoint, _)| checkpoint.op)
    }

    /// The prepares that would be missed if they could not be read, by place.
    pub(crate) fn needed(&self) -> Vec<usize> {
        let checkpoint = self.checkpoint_op();
        let all = self.prepares.iter().enumerate();
        let needed = all.filter(|(_, it)| it.header.op() > checkpoint);
        needed.map(|(index, _)| index).collect()
    }

    /// How the prepare at a place may be lost.
    pub(crate) fn loss_of(&self, index: usize, random: &mut Random) -> Lost {
        let has_header = random.percent(40);
        Lost {
            header: self.prepares[index].header,
            before: self.written + 1,
            has_header,
            vague: u64::from(!has_header && random.percent(25)),
        }
    }

    /// The prepare at a place cannot be read any more.
    pub(crate) fn rot(&mut self, index: usize, lost: Lost) {
        self.prepares.remove(index);
        self.rotten.push(lost);
    }

    /// Whether something was lost of the ops that `lost` concerns.
    pub(crate) fn has_lost_beside(&self, lost: &Lost) -> bool {
        let ops = lost.ops();
        let mut rotten = self.rotten.iter().map(Lost::ops);
        rotten.any(|it| it.start() <= ops.end() && ops.start() <= it.end())
    }

    /// Whether a prepare above the checkpoint was ever lost, though another copy may have come.
    pub(crate) fn is_suspect(&self) -> bool {
        let checkpoint = self.checkpoint_op();
        self.rotten.iter().any(|it| it.header.op() > checkpoint)
    }

    pub(crate) fn read(&self, op: Op, checksum: u128) -> Option<Prepare> {
        let is_it = |it: &&Prepare| it.header.op() == op && it.header.checksum == checksum;
        self.prepares.iter().find(is_it).cloned()
    }

    pub(crate) fn recovered(&self, nonce: u128) -> Recovered {
        let checkpoint = self.checkpoint_op();
        let rotten = self.rotten.iter();
        let rotten = rotten.filter(|it| it.header.op() > checkpoint);
        let named = |it: &Lost| {
            let (before, header) = (it.before, it.has_header.then_some(it.header));
            it.ops().map(move |op| Rotten {
                op: Op(op),
                header,
                before,
            })
        };
        Recovered {
            rotten: rotten.flat_map(named).collect(),
            position: self.written + 1,
            superblock: self.superblock.clone(),
            checkpoint: self.checkpoint.clone().map(|(checkpoint, _)| checkpoint),
            prepares: self.prepares.clone(),
            head_uncertain: self.is_head_uncertain,
            nonce,
            is_rejoining: self.is_new,
            ..Recovered::default()
        }
    }
}
