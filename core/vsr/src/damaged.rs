//! The end of a journal from its first prepare on that cannot be read (V10, V12).
//!
//! What is known of such an op is its header, where the superblock or the prepare itself still tells it; or
//! only its checksum, from the op after it (V9); or nothing but that something may have been there. A prepare
//! of this checksum, whoever has it, repairs it, and tells the checksum of the op before.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use wire::{Op, PrepareHeader};

use crate::{ChainPoint, Prepare, constants::REPEAT_INTERVAL, journal::Anchor, timeout::Timeout};

/// What is known of one op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) header: Option<PrepareHeader>,
    /// Invariant: that of the header, if there is one.
    pub(crate) checksum: Option<u128>,
}

impl Known {
    pub(crate) const fn by_header(header: PrepareHeader) -> Self {
        Self {
            header: Some(header),
            checksum: Some(header.checksum),
        }
    }
}

/// The ops behind the last one of the journal that follows from the checkpoint without a gap.
#[derive(Debug)]
pub(crate) struct Damaged {
    /// The first op.
    first: Op,
    /// The ops from `first` on. Invariant: never empty while a replica has it.
    entries: VecDeque<Known>,
    /// Prepares of these ops that can be read, whether they are durable, and perhaps of others: those of
    /// views that came to nothing are here, too, as long as it is not known which belong.
    readable: BTreeMap<(Op, u128), (Prepare, bool)>,
    /// Headers that can be read without their bodies.
    headers: Vec<PrepareHeader>,
    /// The copies that were asked for and have not come.
    requested: BTreeSet<(Op, u128)>,
    /// How often somebody was asked: every time somebody else.
    pub(crate) asked: u8,
    /// The copies are late.
    pub(crate) repeat: Timeout,
}

impl Damaged {
    /// The ops from `first` on, and whatever can be read from there on, with or without a body; all of that is
    /// durable.
    pub(crate) fn new(
        first: Op,
        entries: VecDeque<Known>,
        readable: BTreeMap<(Op, u128), Prepare>,
        headers: Vec<PrepareHeader>,
    ) -> Self {
        let readable = readable
            .into_iter()
            .map(|(point, prepare)| (point, (prepare, true)));
        let mut damaged = Self {
            first,
            entries,
            readable: readable.collect(),
            headers,
            requested: BTreeSet::new(),
            asked: 0,
            repeat: Timeout::stopped(REPEAT_INTERVAL),
        };
        for index in (0..damaged.entries.len()).rev() {
            damaged.learn_at(index);
        }
        damaged
    }

    /// The first op.
    pub(crate) const fn first(&self) -> Op {
        self.first
    }

    /// The last op that may have been in the journal.
    pub(crate) fn last(&self) -> Op {
        Op(self.first.0 + self.entries.len() as u64 - 1)
    }

    /// The last op that was certainly in the journal; none if no checksum is known.
    pub(crate) fn last_certain(&self) -> Option<Op> {
        let index = self.entries.iter().rposition(|it| it.checksum.is_some())?;
        Some(Op(self.first.0 + index as u64))
    }

    /// What is known of an op.
    pub(crate) fn known(&self, op: Op) -> Option<&Known> {
        self.entries.get(self.index(op)?)
    }

    /// The checksum of an op, if it is known.
    pub(crate) fn checksum(&self, op: Op) -> Option<u128> {
        self.known(op)?.checksum
    }

    /// What is known of the ops after `after`, in order, and whether each can be read.
    pub(crate) fn after(&self, after: Op) -> impl Iterator<Item = (Op, Known, bool)> {
        let first = self.first.0;
        let numbered = self.entries.iter().zip(first..);
        numbered
            .map(|(known, op)| (Op(op), *known))
            .skip_while(move |(op, _)| *op <= after)
            .map(|(op, known)| {
                let checksum = known.checksum;
                let is_present = checksum.is_some_and(|it| self.readable(op, it).is_some());
                (op, known, is_present)
            })
    }

    /// The prepare with this op and checksum, if it is durable here and can be read.
    pub(crate) fn readable(&self, op: Op, checksum: u128) -> Option<&Prepare> {
        let (prepare, is_durable) = self.readable.get(&(op, checksum))?;
        is_durable.then_some(prepare)
    }

    /// The last ops that a copy is to be asked for, at most `count` at a time, the last first. Each is asked
    /// for once, until [`Damaged::ask_again`].
    pub(crate) fn ask(&mut self, count: usize) -> Vec<ChainPoint> {
        let mut points = Vec::new();
        for (index, known) in self.entries.iter().enumerate().rev() {
            let Some(checksum) = known.checksum else {
                continue;
            };
            let op = Op(self.first.0 + index as u64);
            if self.requested.len() >= count {
                break;
            }
            let is_here = self.readable.contains_key(&(op, checksum));
            if !is_here && self.requested.insert((op, checksum)) {
                points.push(ChainPoint { op, checksum });
            }
        }
        points
    }

    /// What was asked for is late.
    pub(crate) fn ask_again(&mut self) {
        self.requested.clear();
    }

    /// A copy of an op that cannot be read has come, and is about to be durable. False when none is wanted.
    pub(crate) fn fill(&mut self, prepare: &Prepare) -> bool {
        let op = prepare.header.op();
        let checksum = prepare.header.checksum;
        let is_wanted =
            self.checksum(op) == Some(checksum) && !self.readable.contains_key(&(op, checksum));
        if is_wanted {
            self.requested.remove(&(op, checksum));
            self.readable
                .insert((op, checksum), (prepare.clone(), false));
            let index = self.index(op).map_or(0, |index| index + 1);
            for index in (0..index).rev() {
                if !self.learn_at(index) {
                    break;
                }
            }
        }
        is_wanted
    }

    /// A copy is durable. False when it is none of these.
    pub(crate) fn set_durable(&mut self, op: Op, checksum: u128) -> bool {
        match self.readable.get_mut(&(op, checksum)) {
            Some((_, is_durable)) if !*is_durable => {
                *is_durable = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The first op, if it can be read and follows from `head`; it is not one of these any more.
    pub(crate) fn take_next(&mut self, head: Anchor) -> Option<Prepare> {
        let checksum = self.entries.front()?.checksum?;
        let header = self.readable(self.first, checksum)?.header;
        let follows = head.point.op.next() == self.first
            && header.parent == head.point.checksum
            && header.timestamp() > head.timestamp;
        if !follows {
            return None;
        }
        let taken = self.readable.remove(&(self.first, checksum));
        self.drop_first();
        taken.map(|(prepare, _)| prepare)
    }

    /// The journal goes on with another copy of the first op.
    pub(crate) fn drop_first(&mut self) {
        self.entries.pop_front();
        self.first = self.first.next();
    }

    /// What remains behind `op`, if something does.
    pub(crate) fn after_checkpoint(mut self, op: Op) -> Option<Self> {
        if self.first > op.next() || self.last() <= op {
            return None;
        }
        while self.first <= op {
            self.drop_first();
        }
        self.readable = self.readable.split_off(&(self.first, 0));
        Some(self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The ops of what can be read and is not part of the journal.
    pub(crate) fn left_over(&self) -> Vec<Op> {
        self.readable.keys().map(|(op, _)| *op).collect()
    }

    /// Whether the first op is known not to follow from `head`.
    pub(crate) fn contradicts(&self, head: ChainPoint) -> bool {
        let first = self.entries.front().and_then(|known| known.header);
        first.is_some_and(|header| header.parent != head.checksum)
    }

    /// The last op that was certainly in the journal and cannot be read.
    pub(crate) fn last_unreadable(&self) -> Option<Op> {
        let before = Op(self.first.0.saturating_sub(1));
        let certain = self
            .after(before)
            .filter(|(_, it, _)| it.checksum.is_some());
        let unreadable = certain.filter(|(_, _, is_present)| !is_present);
        unreadable.map(|(op, _, _)| op).last()
    }

    /// Looks at one op: what can be read of it names the op before it. False when it names none.
    fn learn_at(&mut self, index: usize) -> bool {
        let op = Op(self.first.0 + index as u64);
        let known = &mut self.entries[index];
        if let (None, Some(checksum)) = (known.header, known.checksum) {
            let readable = self.readable.get(&(op, checksum));
            let mut headers = self.headers.iter();
            let header = headers.find(|it| it.op() == op && it.checksum == checksum);
            known.header = readable.map(|(it, _)| it.header).or(header.copied());
        }
        let (Some(header), Some(before)) = (known.header, index.checked_sub(1)) else {
            return false;
        };
        self.entries[before].checksum.get_or_insert(header.parent);
        true
    }

    fn index(&self, op: Op) -> Option<usize> {
        let index = usize::try_from(op.0.checked_sub(self.first.0)?).ok()?;
        (index < self.entries.len()).then_some(index)
    }
}
