//! What consumer groups have in one partition: a fence, its holder, and a stored offset each.
//!
//! Ownership is decided in the metadata; here it is only made safe. A store is ordered either before a
//! fence, and the next owner starts behind it, or after it, and is refused.

use alloc::vec::Vec;
use core::fmt;

use wire::{
    ConsumerGroupId, Epoch, GroupStart, MemberId, Offset, PollStrategy, ResetTarget, SessionNumber,
    Timestamp,
};

use crate::{FenceOffset, Refusal, group::Partition, mutation};

/// The member and session that an epoch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochHolder {
    /// The member, from 1.
    pub member: MemberId,
    /// Its session: a static member keeps its id when another session takes it over.
    pub session: SessionNumber,
}

impl fmt::Display for EpochHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {} of session {}", self.member, self.session)
    }
}

/// An epoch and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The epoch.
    pub epoch: Epoch,
    /// To whom the metadata has granted it.
    pub holder: EpochHolder,
}

/// Where a group that has stored nothing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At this message, which need not be there yet.
    Offset(Offset),
    /// At the first message that the broker stamped at this time or later. Left so where the replicated
    /// state does not tell the offset; messages and their times never change, so it stays the same one.
    Time(Timestamp),
}

impl StartAt {
    /// The poll that begins there.
    #[must_use]
    pub const fn strategy(self) -> PollStrategy {
        match self {
            Self::Offset(offset) => PollStrategy::Offset(offset),
            Self::Time(time) => PollStrategy::Timestamp(time),
        }
    }
}

/// What a consumer group has in one incarnation of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRecord {
    /// The highest epoch that was fenced, stored or released under; 0: none.
    pub fence: Epoch,
    /// Whose epoch the fence is; `None` when it was raised for nobody.
    pub holder: Option<EpochHolder>,
    /// The last message processed. `None` is "none stored", which is not "0 stored".
    pub stored: Option<Offset>,
    /// Where the group begins while nothing is stored; `None` when something is, or when it was not
    /// resolved yet.
    pub start: Option<StartAt>,
}

impl GroupRecord {
    /// Where `next` begins; `None` when a fence with a start has to be committed first.
    #[must_use]
    pub fn next(&self) -> Option<StartAt> {
        let stored = self.stored.map(|stored| StartAt::Offset(stored.next()));
        stored.or(self.start)
    }
}

/// What a poll of a group may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollRight {
    /// The epoch is above the fence: a fence with it has to be committed before the poll begins.
    FenceFirst,
    /// The asker holds the fence.
    Holds(GroupRecord),
}

/// [`GroupRecord`] as it is kept: there are as many as partitions times groups.
///
/// Invariant: one that is kept has a fence above 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    fence: Epoch,
    /// 0: nobody.
    member: MemberId,
    session: SessionNumber,
    reached: Reached,
}

/// How far a group is. What is stored makes the start superfluous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reached {
    #[default]
    Unresolved,
    Start(StartAt),
    Stored(Offset),
}

impl Record {
    const fn holder(&self) -> Option<EpochHolder> {
        match self.member {
            MemberId(0) => None,
            member => Some(EpochHolder {
                member,
                session: self.session,
            }),
        }
    }

    fn is_held_by(&self, epoch: Epoch, holder: Option<EpochHolder>) -> bool {
        self.fence > Epoch(0) && self.fence == epoch && self.holder() == holder
    }

    pub(crate) const fn shown(&self) -> GroupRecord {
        let (stored, start) = match self.reached {
            Reached::Unresolved => (None, None),
            Reached::Start(start) => (None, Some(start)),
            Reached::Stored(offset) => (Some(offset), None),
        };
        GroupRecord {
            fence: self.fence,
            holder: self.holder(),
            stored,
            start,
        }
    }

    /// The record of a snapshot; of what is stored and the start, the first that is there counts.
    pub(crate) fn restore(record: GroupRecord) -> Self {
        let mut restored = Self::default();
        restored.raise(record.fence, record.holder);
        restored.reached = match (record.stored, record.start) {
            (Some(offset), _) => Reached::Stored(offset),
            (None, Some(start)) => Reached::Start(start),
            (None, None) => Reached::Unresolved,
        };
        restored
    }

    /// Raises the fence, and gives it to `holder` with that. Returns whether it was raised.
    fn raise(&mut self, epoch: Epoch, holder: Option<EpochHolder>) -> bool {
        if epoch <= self.fence {
            return false;
        }
        self.fence = epoch;
        self.member = holder.map_or(MemberId(0), |holder| holder.member);
        self.session = holder.map_or(SessionNumber(0), |holder| holder.session);
        true
    }

    /// Raises the fence, if it is not as high yet.
    pub(crate) fn fence(
        &mut self,
        (epoch, holder): (Epoch, Option<EpochHolder>),
        offset: FenceOffset,
        partition: &Partition,
        now: Timestamp,
    ) {
        let raised = self.raise(epoch, holder);
        match offset {
            FenceOffset::Keep => {}
            // A late fence must not resolve what a later reset has left open.
            FenceOffset::Start(start)
                if self.reached == Reached::Unresolved && self.is_held_by(epoch, holder) =>
            {
                self.reached = Reached::Start(partition.resolve(start, now));
            }
            FenceOffset::Start(_) => {}
            FenceOffset::Reset(target) if raised => {
                self.reached = partition.reached(target, now);
            }
            FenceOffset::Reset(_) => {}
        }
    }

    /// Whether the holder of a grant may go on; an epoch above the fence raises it, for admission has
    /// compared it with the metadata.
    fn enter(&mut self, grant: Grant) -> Result<(), Refusal> {
        self.judge(grant)?;
        self.raise(grant.epoch, Some(grant.holder));
        Ok(())
    }

    /// Whether a grant is stale or somebody else's.
    pub(crate) fn judge(&self, grant: Grant) -> Result<(), Refusal> {
        let Grant { epoch, holder } = grant;
        let fence = self.fence;
        if mutation::FENCE {
            return Ok(());
        }
        if epoch < fence {
            return Err(Refusal::StaleEpoch { epoch, fence });
        }
        let here = self.holder();
        let is_nobody = holder.member == MemberId(0);
        if is_nobody || epoch == fence && here != Some(holder) {
            return Err(Refusal::NotHolder {
                epoch,
                here,
                asked: holder,
            });
        }
        Ok(())
    }

    /// Stores an offset under a grant; a lower one than is stored changes nothing.
    ///
    /// # Errors
    /// When the grant is stale or somebody else's. When there is no such message; the fence is raised then
    /// all the same.
    pub(crate) fn store(
        &mut self,
        grant: Grant,
        offset: Offset,
        partition: &Partition,
    ) -> Result<(), Refusal> {
        self.enter(grant)?;
        if let Reached::Stored(stored) = self.reached
            && offset <= stored
        {
            return Ok(());
        }
        if offset >= partition.next {
            return Err(partition.out_of_range(offset));
        }
        self.reached = Reached::Stored(offset);
        Ok(())
    }

    /// Stores what the holder has processed last, if anything, and only if that was accepted raises the
    /// fence for the next holder.
    pub(crate) fn release(
        &mut self,
        grant: Grant,
        offset: Option<Offset>,
        to: Grant,
        partition: &Partition,
    ) -> Result<(), Refusal> {
        match offset {
            Some(offset) => self.store(grant, offset, partition)?,
            None => self.enter(grant)?,
        }
        self.raise(to.epoch, Some(to.holder));
        Ok(())
    }
}

impl Partition {
    /// What a start means now. Only replicated state is looked at, and no index is: a time within a
    /// segment stays a time.
    fn resolve(&self, start: GroupStart, now: Timestamp) -> StartAt {
        let time = match start {
            GroupStart::Earliest => return StartAt::Offset(self.start),
            GroupStart::Latest => return StartAt::Offset(self.next),
            GroupStart::Timestamp(time) => time,
        };
        match self.segments.reaching(time) {
            Some(tracked) if time <= tracked.segment.first_timestamp => {
                StartAt::Offset(self.start.max(tracked.segment.base))
            }
            // Timestamps of prepares only rise: whatever is appended from now on is late enough.
            None if time <= now => StartAt::Offset(self.next),
            Some(_) | None => StartAt::Time(time),
        }
    }

    /// The message that a start begins with; of one by time within a segment, the segment's first.
    pub(crate) fn earliest_of(&self, start: StartAt) -> Offset {
        let offset = match start {
            StartAt::Offset(offset) => offset,
            StartAt::Time(time) => {
                let reaching = self.segments.reaching(time);
                reaching.map_or(self.next, |tracked| tracked.segment.base)
            }
        };
        offset.max(self.start)
    }

    /// What a reset makes of a record. The metadata does not know the end, and a fence is never refused
    /// for an offset.
    fn reached(&self, target: ResetTarget, now: Timestamp) -> Reached {
        let start = match target {
            ResetTarget::Nothing => return Reached::Unresolved,
            ResetTarget::Offset(offset) => {
                return match self.next.0.checked_sub(1) {
                    Some(last) => Reached::Stored(offset.min(Offset(last))),
                    None => Reached::Start(StartAt::Offset(Offset(0))),
                };
            }
            ResetTarget::Earliest => GroupStart::Earliest,
            ResetTarget::Latest => GroupStart::Latest,
            ResetTarget::Timestamp(time) => GroupStart::Timestamp(time),
        };
        Reached::Start(self.resolve(start, now))
    }
}

/// The records of one partition, in the order of groups, without spare room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    list: Vec<(ConsumerGroupId, Record)>,
}

impl Records {
    pub(crate) fn find(&self, group: ConsumerGroupId) -> Option<Record> {
        let index = self.index(group).ok()?;
        Some(self.list[index].1)
    }

    /// Keeps a record in place of the group's old one.
    pub(crate) fn put(&mut self, group: ConsumerGroupId, record: Record) {
        assert!(record.fence > Epoch(0));
        match self.index(group) {
            Ok(index) => {
                assert!(
                    self.list[index].1.fence <= record.fence,
                    "a fence only rises"
                );
                self.list[index].1 = record;
            }
            Err(index) => {
                self.list.reserve_exact(1);
                self.list.insert(index, (group, record));
            }
        }
    }

    /// Forgets the group.
    pub(crate) fn remove(&mut self, group: ConsumerGroupId) {
        if let Ok(index) = self.index(group) {
            self.list.remove(index);
            self.list.shrink_to_fit();
        }
    }

    /// In the order of groups.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConsumerGroupId, GroupRecord)> {
        let records = self.list.iter();
        records.map(|(group, record)| (*group, record.shown()))
    }

    /// From records in the order of groups.
    pub(crate) fn restore(records: impl Iterator<Item = (ConsumerGroupId, GroupRecord)>) -> Self {
        let list = records.map(|(group, record)| (group, Record::restore(record)));
        Self {
            list: list.collect(),
        }
    }

    fn index(&self, group: ConsumerGroupId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&group, |(group, _)| *group)
    }
}

const _: () = assert!(size_of::<(ConsumerGroupId, Record)>() == 48);
