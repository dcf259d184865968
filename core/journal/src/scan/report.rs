//! What a scan found.

use alloc::{collections::BTreeMap, vec::Vec};
use core::fmt;

use bytes::Bytes;
use wire::{ConsensusGroup, Op, PrepareHeader};

use crate::{FileId, SuperblockRecord};

/// A prepare as it was read back; its checksums hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedPrepare {
    /// The header.
    pub header: PrepareHeader,
    /// The body.
    pub body: Bytes,
}

/// What the journal holds for one consensus group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupScan {
    /// The newest superblock record that could be read.
    pub superblock: Option<SuperblockRecord>,
    /// A newer one may have been lost in both copies: the group may have forgotten promises (V13).
    pub superblock_lost: bool,
    /// Prepares above the superblock's checkpoint, in the order written.
    pub prepares: Vec<ScannedPrepare>,
    /// Prepares above the checkpoint that were flushed and cannot be read: never nacked (V12).
    pub rotten: Vec<LostPrepares>,
    /// Prepares that cannot be read and may have been flushed: the head is uncertain (V11).
    pub uncertain: Vec<LostPrepares>,
    /// Whatever is written from now on is in frames from this number on.
    pub next_frame: u64,
}

/// Consecutive prepares of one group that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPrepares {
    /// The op of the group's prepare before them, as far as the scan saw one.
    pub after: Op,
    /// The highest op that may be among them.
    pub last: Op,
    /// How many; `None` when nothing tells.
    pub count: Option<u64>,
    /// The headers that could be read, in the order written.
    pub headers: Vec<PrepareHeader>,
    /// The frames that held them are before the one of this number.
    pub before_frame: u64,
}

impl LostPrepares {
    /// None so far, behind `after`.
    pub(super) const fn none(after: Op) -> Self {
        Self {
            after,
            last: after,
            count: Some(0),
            headers: Vec::new(),
            before_frame: u64::MAX,
        }
    }

    /// Nothing is known but what came before.
    pub(super) const fn unknown(after: Op) -> Self {
        Self {
            after,
            last: Op(u64::MAX),
            count: None,
            headers: Vec::new(),
            before_frame: u64::MAX,
        }
    }

    /// Counts one more, whose header was read.
    pub(super) fn add(&mut self, header: PrepareHeader) {
        self.count = self.count.map(|count| count + 1);
        self.last = self.last.max(header.op());
        if header.is_valid() {
            self.headers.push(header);
        } else {
            self.last = Op(u64::MAX);
        }
    }
}

/// What is wrong with a stretch of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A write that a crash cut short. Nobody relied on it; it is cut.
    Torn,
    /// It was flushed and cannot be read.
    Rotten,
    /// It cannot be read, and whether it was flushed cannot be known.
    Uncertain,
}

/// The groups that a damaged stretch holds records of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected {
    /// These.
    Groups(BTreeMap<ConsensusGroup, LostPrepares>),
    /// Nothing tells: it may be any.
    Any,
}

/// A stretch of the journal that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub verdict: Verdict,
    /// The file.
    pub file: FileId,
    /// Where it begins.
    pub position: u64,
    /// Bytes.
    pub length: u64,
    /// Sequence number of the first frame in it.
    pub sequence: u64,
    /// Whose prepares are lost.
    pub affected: Affected,
}

impl Damage {
    /// Whether a prepare is, or may be, lost. Damage that hit nothing but padding, or what is there a second
    /// time, loses none.
    #[must_use]
    pub fn loses_prepares(&self) -> bool {
        match &self.affected {
            Affected::Any => true,
            Affected::Groups(groups) => !groups.is_empty(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torn => "torn",
            Self::Rotten => "rotten",
            Self::Uncertain => "uncertain",
        })
    }
}

impl fmt::Display for LostPrepares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(first), Some(last)) = (self.headers.first(), self.headers.last())
            && self.count == Some(self.headers.len() as u64)
        {
            return match first.op == last.op {
                true => write!(f, "op {}", first.op),
                false => write!(f, "ops {} to {}", first.op, last.op),
            };
        }
        match self.count {
            Some(1) => write!(f, "the op after {}", self.after),
            Some(count) => write!(f, "{count} ops after {}", self.after),
            None => write!(f, "ops after {}", self.after),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frame {} in file {} at byte {} ({} bytes): ",
            self.verdict, self.sequence, self.file.0, self.position, self.length
        )?;
        match &self.affected {
            Affected::Any => f.write_str("which consensus groups it held cannot be told"),
            Affected::Groups(groups) if groups.is_empty() => f.write_str("no prepare is lost"),
            Affected::Groups(groups) => {
                for (index, (group, lost)) in groups.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}consensus group {group}: {lost}")?;
                }
                Ok(())
            }
        }
    }
}
