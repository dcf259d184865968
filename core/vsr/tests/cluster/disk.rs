//! What one replica has on its disk, and what is on its way there.

use std::collections::VecDeque;

use vsr::{Checkpoint, Input, Prepare, Recovered, Superblock};
use wire::Op;

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

/// The disk of one replica. Prepares are written one after the other, as the journal does it; superblocks
/// and checkpoints in an order of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) prepares: Vec<Prepare>,
    superblock: Option<Superblock>,
    /// With the ops that it was made of, by checksum.
    pub(crate) checkpoint: Option<(Checkpoint, Vec<u128>)>,
    writing_prepares: VecDeque<Prepare>,
    writing_others: VecDeque<Write>,
    /// Its last prepares are lost, and it is known that they may be (V11).
    pub(crate) is_head_uncertain: bool,
    /// Until then it completes nothing.
    pub(crate) stalled_until: u64,
    /// Percent of the times at which it could complete something and does not.
    pub(crate) slowness: u64,
}

impl Disk {
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
            self.checkpoint = Some((checkpoint, ops));
        }
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

    pub(crate) fn read(&self, op: Op, checksum: u128) -> Option<Prepare> {
        let is_it = |it: &&Prepare| it.header.op() == op && it.header.checksum == checksum;
        self.prepares.iter().find(is_it).cloned()
    }

    pub(crate) fn recovered(&self, nonce: u128) -> Recovered {
        Recovered {
            superblock: self.superblock.clone(),
            checkpoint: self.checkpoint.clone().map(|(checkpoint, _)| checkpoint),
            prepares: self.prepares.clone(),
            head_uncertain: self.is_head_uncertain,
            nonce,
            ..Recovered::default()
        }
    }
}
