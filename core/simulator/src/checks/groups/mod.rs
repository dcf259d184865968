//! Consumer groups: who may own, poll and store what, by what was committed.
//!
//! [`Groups`] follows the ownership that the metadata group commits and the fences that the data groups
//! commit, and holds one against the other: `plan` looks at every metadata op, `record` is the model of
//! what a data group keeps, `hand_over` tells how a partition went from one member to the next, `answers`
//! judges what members are told.

mod answers;
mod hand_over;
mod plan;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use catalog::{Catalog, GroupKey};
use coordinator::{ConsumerGroup, Ownership};
use partition::EpochHolder;
use wire::{
    ConsumerGroupId, Epoch, Generation, MemberId, Op, PartitionId, SessionNumber, StreamId,
    Timestamp, TopicId,
};

pub(crate) use self::{
    answers::{
        Served, check_details, check_joined, check_offsets_told, check_polled, check_refused,
        check_released, check_reset, check_stored, without_time_left,
    },
    hand_over::Done,
    plan::Committed,
    record::{Reached, Record, State, Verdict},
};
use super::partition::Step;

/// Every consumer group that there ever was.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<GroupKey, Group>,
    /// The highest id in each topic.
    ids: BTreeMap<(StreamId, TopicId), ConsumerGroupId>,
    /// When each node was last known to be down: its deadlines begin anew after that.
    down_at: BTreeMap<usize, u64>,
}

/// One group, also after its end.
#[derive(Debug, Default)]
struct Group {
    generation: Generation,
    ownership: Vec<Ownership>,
    members: BTreeMap<MemberId, Membership>,
    /// The highest member's id that there was.
    last_member: MemberId,
    /// Who each epoch was planned for.
    epochs: BTreeMap<(PartitionId, Epoch), Option<EpochHolder>>,
    /// Who owned each partition, one after the other.
    tenures: BTreeMap<PartitionId, Vec<Tenure>>,
    /// What led to each epoch.
    planned: BTreeMap<(PartitionId, Epoch), Planned>,
    /// Fences that were committed for their holders.
    fenced: BTreeSet<(PartitionId, Epoch)>,
    /// The highest offset that was served, by the ownership it was served in.
    served: BTreeMap<(PartitionId, Epoch), u64>,
    /// Ownerships that ended with everything stored that was processed, each with what was stored.
    clean: BTreeMap<(PartitionId, Epoch), Clean>,
    /// When the moves began that are under way.
    moving: BTreeMap<PartitionId, Moving>,
    rebalance_timeout: u64,
    options_changed: u64,
    /// Since when it is not at rest, and that not by its own doing.
    disturbed: Option<u64>,
    memberships: BTreeMap<SessionNumber, Vec<Span>>,
    created: Step,
    deleted: Option<Step>,
}

/// A member as it was after the last op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Membership {
    session: SessionNumber,
    weight: u16,
}

/// A time during which something held; with the metadata op that ended it.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Step,
    to: Option<(Step, Op)>,
}

/// The unbroken ownership of a partition.
#[derive(Clone, Debug)]
struct Tenure {
    holder: EpochHolder,
    held_since: Epoch,
    /// Its highest epoch, and from which metadata op on: a cancelled revocation gives it a new one.
    tops: Vec<(Op, Epoch)>,
    /// When it might poll.
    polls: Vec<Span>,
    /// When it might store.
    stores: Span,
}

/// How an epoch came about.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Whom the partition was to be taken from, and since when that one had it.
    source: Option<(EpochHolder, Epoch)>,
}

/// How an ownership ended that had stored all.
#[derive(Clone, Copy, Debug)]
struct Clean {
    stored: Option<u64>,
    /// By a release; else it was drained.
    released: bool,
}

/// Who counts the time of a move.
#[derive(Clone, Copy, Debug)]
struct Clock {
    node: usize,
    /// When it was last known to be down.
    down_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Moving {
    since: Timestamp,
    /// When it was first seen, nanoseconds.
    seen: u64,
    /// The nodes in whose processes that are gone its time was over: they may have proposed its fence.
    was_over: u8,
}

impl Span {
    const fn open(from: Step) -> Self {
        Self { from, to: None }
    }

    const fn is_open(&self) -> bool {
        self.to.is_none()
    }

    /// Whether it reaches over all of the time between two steps.
    fn covers(&self, from: Step, to: Step) -> bool {
        self.from <= from && self.to.is_none_or(|(end, _)| end > to)
    }
}

impl Groups {
    /// A node is down from now on.
    pub(crate) fn on_crash(&mut self, now: u64, node: usize) {
        let clock = self.clock_of(node);
        for group in self.groups.values_mut() {
            group.on_crash(now, clock);
        }
        self.down_at.insert(node, now);
    }

    fn clock_of(&self, node: usize) -> Clock {
        Clock {
            node,
            down_at: self.down_at.get(&node).copied().unwrap_or(0),
        }
    }

    /// All epochs that there are or were of a partition in a group, the latest last.
    pub(crate) fn epochs(&self, key: &GroupKey, partition: PartitionId) -> Vec<Epoch> {
        let all = (partition, Epoch(0))..=(partition, Epoch(u64::MAX));
        let group = self.groups.get(key).into_iter();
        let epochs = group.flat_map(|group| group.epochs.range(all.clone()));
        epochs.map(|((_, epoch), _)| *epoch).collect()
    }

    /// Groups that there were, and are no more.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = GroupKey> {
        let groups = self.groups.iter();
        groups
            .filter(|(_, group)| group.deleted.is_some())
            .map(|(key, _)| *key)
    }

    /// The ownership that a grant followed on, if that one ended with everything stored that it had
    /// processed: the first message of the grant is the one behind.
    pub(crate) fn follows(
        &self,
        key: &GroupKey,
        partition: PartitionId,
        epoch: Epoch,
    ) -> Option<Epoch> {
        let group = self.groups.get(key)?;
        let planned = group.planned.get(&(partition, epoch))?;
        let (_, held_since) = planned.source?;
        let is_clean = group.clean.contains_key(&(partition, held_since));
        is_clean.then_some(held_since)
    }

    /// The first group that should be at rest by now and is not. Nothing has gone wrong since `healed`.
    pub(crate) fn restless(&self, now: u64, healed: u64, slack: u64) -> Result<bool, String> {
        let mut all_at_rest = true;
        for (key, group) in &self.groups {
            let Some(disturbed) = group.disturbed else {
                continue;
            };
            all_at_rest = false;
            let since = disturbed.max(healed);
            let allowed = group.rebalance_timeout + group.rebalance_timeout / 16 + slack;
            if now.saturating_sub(since) > allowed {
                return Err(format!(
                    "{key:?} is not at rest {} ns after its last disturbance; {allowed} are allowed: {:?}",
                    now - since,
                    group.ownership
                ));
            }
        }
        Ok(!all_at_rest)
    }
}

/// Every consumer group of a catalog.
pub(crate) fn all_groups(catalog: &Catalog) -> Vec<(GroupKey, &ConsumerGroup)> {
    let projection = catalog::Projection::from(catalog);
    let keys: Vec<GroupKey> = projection.groups().map(|(key, _)| key).collect();
    let found = keys.into_iter().filter_map(|key| {
        let group = catalog.consumer_group(&key)?;
        Some((key, group))
    });
    found.collect()
}
