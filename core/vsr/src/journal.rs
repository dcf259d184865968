//! The part of a replica's journal that it holds in memory: a piece of the hash chain without gaps.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{Op, PrepareHeader, Timestamp, View};

use crate::{
    ChainPoint, Prepare,
    constants::{KEPT_BYTES_MAX, KEPT_PREPARES_MAX},
};

/// An op together with what the ops after it depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) point: ChainPoint,
    /// The next op has a later one (V16).
    pub(crate) timestamp: Timestamp,
    /// The view in which it was prepared.
    pub(crate) view: View,
}

#[derive(Debug)]
struct Entry {
    prepare: Prepare,
    is_durable: bool,
}

/// The prepares from the one after `base` to the head, each the parent of the next (V9).
#[derive(Debug)]
pub(crate) struct Journal {
    /// The op before the first entry. Invariant: `base.point.op <= durable`.
    base: Anchor,
    /// The checksums of the last ops up to `base`: those that others may ask for. On the disk there may be
    /// several prepares with one op, and the one written last need not be the one of this journal.
    trimmed: VecDeque<u128>,
    entries: VecDeque<Entry>,
    /// Bytes of the entries, headers included.
    size: usize,
    /// Every op up to here is durable.
    durable: Op,
    /// How many applied prepares may stay, and how many bytes; none when there are no backups.
    kept_prepares_max: usize,
    kept_bytes_max: usize,
}

impl Journal {
    /// An empty journal behind `base`; it keeps applied prepares if `has_backups`.
    pub(crate) const fn new(base: Anchor, has_backups: bool) -> Self {
        Self {
            base,
            trimmed: VecDeque::new(),
            entries: VecDeque::new(),
            size: 0,
            durable: base.point.op,
            kept_prepares_max: if has_backups { KEPT_PREPARES_MAX } else { 0 },
            kept_bytes_max: if has_backups { KEPT_BYTES_MAX } else { 0 },
        }
    }

    /// The ops up to the base whose prepares are on the disk, by checksum.
    pub(crate) fn set_trimmed(&mut self, checksums: Vec<u128>) {
        assert!(self.entries.is_empty() && self.trimmed.is_empty());
        self.trimmed = checksums.into();
    }

    /// The op before those in memory.
    pub(crate) const fn base(&self) -> Op {
        self.base.point.op
    }

    /// The last op.
    pub(crate) fn head(&self) -> Anchor {
        match self.entries.back() {
            Some(entry) => anchor(&entry.prepare),
            None => self.base,
        }
    }

    /// Every op up to here is durable.
    pub(crate) const fn durable(&self) -> Op {
        self.durable
    }

    /// The prepare of `op`, if it is in memory.
    pub(crate) fn prepare(&self, op: Op) -> Option<&Prepare> {
        self.index(op).map(|index| &self.entries[index].prepare)
    }

    /// The checksum of `op`, if it is known.
    pub(crate) fn checksum(&self, op: Op) -> Option<u128> {
        if op == self.base.point.op {
            return Some(self.base.point.checksum);
        }
        self.prepare(op).map(|prepare| prepare.header.checksum)
    }

    /// The chain goes on with `prepare`, which is durable or about to be.
    pub(crate) fn append(&mut self, prepare: Prepare, is_durable: bool) {
        let head = self.head();
        assert!(prepare.header.op() == head.point.op.next());
        assert!(prepare.header.parent == head.point.checksum);
        assert!(prepare.header.timestamp() > head.timestamp);
        self.size += size_of_prepare(&prepare);
        self.entries.push_back(Entry {
            prepare,
            is_durable,
        });
        self.advance_durable();
    }

    /// Drops every op after `op`.
    ///
    /// # Panics
    /// When `op` is before those in memory.
    pub(crate) fn truncate(&mut self, op: Op) {
        assert!(op >= self.base());
        while self.head().point.op > op {
            if let Some(last) = self.entries.pop_back() {
                self.size -= size_of_prepare(&last.prepare);
            }
        }
        self.durable = self.durable.min(op);
    }

    /// The headers of the ops after `after`, of those in memory.
    pub(crate) fn headers_after(&self, after: Op) -> impl Iterator<Item = PrepareHeader> {
        self.entries
            .iter()
            .map(|entry| entry.prepare.header)
            .skip_while(move |header| header.op() <= after)
    }

    /// The prepares of the ops after `after`, of those in memory.
    pub(crate) fn prepares_after(&self, after: Op) -> impl Iterator<Item = &Prepare> {
        let prepares = self.entries.iter().map(|entry| &entry.prepare);
        prepares.skip_while(move |prepare| prepare.header.op() <= after)
    }

    /// The prepare with this op and checksum is durable; false when it is not one of this journal's.
    pub(crate) fn set_durable(&mut self, op: Op, checksum: u128) -> bool {
        let Some(index) = self.index(op) else {
            return false;
        };
        let entry = &mut self.entries[index];
        if entry.prepare.header.checksum != checksum {
            return false;
        }
        entry.is_durable = true;
        self.advance_durable();
        true
    }

    /// Forgets what nobody needs: prepares that are durable and applied, beyond what is kept for backups.
    pub(crate) fn trim(&mut self, applied: Op) {
        while let Some(first) = self.entries.front() {
            let is_needed = !first.is_durable || first.prepare.header.op() > applied;
            let fits =
                self.entries.len() <= self.kept_prepares_max && self.size <= self.kept_bytes_max;
            if is_needed || fits {
                break;
            }
            self.base = anchor(&first.prepare);
            if self.kept_prepares_max > 0 {
                self.trimmed.push_back(self.base.point.checksum);
            }
            self.size -= size_of_prepare(&first.prepare);
            self.entries.pop_front();
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(KEPT_PREPARES_MAX);
        }
    }

    /// The checksum of an op that is not in memory any more, if others may ask for it.
    pub(crate) fn trimmed_checksum(&self, op: Op) -> Option<u128> {
        let behind = self.base.point.op.0.checked_sub(op.0)?;
        let behind = usize::try_from(behind).ok()?;
        let index = self.trimmed.len().checked_sub(1)?.checked_sub(behind)?;
        self.trimmed.get(index).copied()
    }

    /// The prepares up to `op` may leave the disk: nobody can ask for them.
    pub(crate) fn recycle(&mut self, op: Op) {
        let first = self.base.point.op.0 + 1 - self.trimmed.len() as u64;
        for _ in first..=op.0.min(self.base.point.op.0) {
            self.trimmed.pop_front();
        }
    }

    /// Walks a bounded part of the chain.
    pub(crate) fn is_chained(&self) -> bool {
        let mut parent = self.base;
        let mut first = self.entries.iter().take(KEPT_PREPARES_MAX);
        first.all(|entry| {
            let header = &entry.prepare.header;
            let follows = header.parent == parent.point.checksum
                && header.op() == parent.point.op.next()
                && header.timestamp() > parent.timestamp;
            parent = anchor(&entry.prepare);
            follows
        })
    }

    fn advance_durable(&mut self) {
        while let Some(index) = self.index(self.durable.next()) {
            if !self.entries[index].is_durable {
                break;
            }
            self.durable = self.durable.next();
        }
    }

    fn index(&self, op: Op) -> Option<usize> {
        let index = op.0.checked_sub(self.base.point.op.0)?.checked_sub(1)?;
        let index = usize::try_from(index).ok()?;
        (index < self.entries.len()).then_some(index)
    }
}

/// What the ops after `prepare` depend on.
pub(crate) const fn anchor(prepare: &Prepare) -> Anchor {
    let header = &prepare.header;
    Anchor {
        point: ChainPoint {
            op: header.op(),
            checksum: header.checksum,
        },
        timestamp: header.timestamp(),
        view: header.view(),
    }
}

pub(crate) const fn size_of_prepare(prepare: &Prepare) -> usize {
    prepare.header.size as usize
}
