//! What the primary of the metadata group does for consumer groups of its own accord: it completes the moves
//! that the data groups have fenced, and ends what has its time.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use catalog::{Catalog, Change, GroupKey, GroupTimer, Operation};
use wire::{Epoch, PartitionId};

use crate::hand_over::Completed;

/// Moves that one op completes at the most: a body of some 100 KiB.
const COMPLETE_AT_ONCE: usize = 8_192;

/// Timers that one op ends at the most.
const END_AT_ONCE: usize = 1_024;

/// What is to be proposed for consumer groups.
#[derive(Debug, Default)]
pub(super) struct GroupWork {
    completed: BTreeSet<Completed>,
    /// Such an op is on its way; what comes meanwhile goes into the next one.
    completing: bool,
    timers: BTreeMap<GroupKey, Vec<Timer>>,
    due: BTreeSet<(u64, GroupKey)>,
}

/// Something that has its time, and when that is over: monotonic time.
#[derive(Clone, Debug)]
struct Timer {
    timer: GroupTimer,
    due: u64,
}

impl GroupWork {
    /// A data group has committed the fences of these moves.
    pub(super) fn on_completed(&mut self, completed: &[Completed]) {
        self.completed.extend(completed);
    }

    /// The op that completes what is fenced, unless one is on its way.
    pub(super) fn complete(&mut self, catalog: &Catalog) -> Option<Operation> {
        if self.completing || self.completed.is_empty() {
            return None;
        }
        let mut groups: Vec<(GroupKey, Vec<(PartitionId, Epoch)>)> = Vec::new();
        let mut count = 0;
        while count < COMPLETE_AT_ONCE
            && let Some((key, partition, epoch)) = self.completed.pop_first()
        {
            // Told again after it was done: a fence is told until its move is seen to be complete.
            let group = catalog.consumer_group(&key);
            let ownership = group.and_then(|group| group.ownership(partition));
            let moving = ownership.and_then(|ownership| ownership.moving());
            if moving.is_none_or(|moving| moving.epoch != epoch) {
                continue;
            }
            count += 1;
            match groups.last_mut() {
                Some((last, moves)) if *last == key => moves.push((partition, epoch)),
                Some(_) | None => groups.push((key, [(partition, epoch)].to_vec())),
            }
        }
        self.completing = count > 0;
        (count > 0).then_some(Operation::CompleteMoves { groups })
    }

    /// The op that completes moves is applied, or came to nothing.
    pub(super) const fn on_proposed(&mut self) {
        self.completing = false;
    }

    /// This node leads the metadata group from now on: everything gets its full time.
    pub(super) fn restart(&mut self, catalog: &Catalog, session_timeout: u64, now: u64) {
        self.timers.clear();
        self.due.clear();
        self.completing = false;
        let keys: BTreeSet<GroupKey> = catalog.group_timers().map(|it| key_of(&it)).collect();
        for key in keys {
            self.look(catalog, key, (session_timeout, now));
        }
    }

    /// Follows the changes of an op.
    pub(super) fn follow(
        &mut self,
        catalog: &Catalog,
        changes: &[Change],
        (session_timeout, now): (u64, u64),
    ) {
        for change in changes {
            let (stream, topic, group) = match change {
                Change::ConsumerGroupCreated {
                    stream,
                    topic,
                    group,
                } => (*stream, *topic, group.name().id),
                Change::ConsumerGroupChanged {
                    stream,
                    topic,
                    change,
                } => (*stream, *topic, change.group),
                Change::ConsumerGroupDeleted {
                    stream,
                    topic,
                    group,
                    ..
                } => (*stream, *topic, *group),
                Change::StreamCreated { .. }
                | Change::StreamRenamed { .. }
                | Change::StreamDeleted { .. }
                | Change::TopicCreated { .. }
                | Change::TopicRenamed { .. }
                | Change::TopicDeleted { .. }
                | Change::PartitionsCreated { .. }
                | Change::PartitionsDeleted { .. }
                | Change::PartitionsPurged { .. }
                | Change::SessionRegistered { .. }
                | Change::SessionEnded { .. } => continue,
            };
            let key = GroupKey {
                stream,
                topic,
                group,
            };
            self.look(catalog, key, (session_timeout, now));
        }
    }

    /// Keeps the timers of a group that still run, begins new ones and drops the others.
    fn look(&mut self, catalog: &Catalog, key: GroupKey, (session_timeout, now): (u64, u64)) {
        let before = self.timers.remove(&key).unwrap_or_default();
        for timer in &before {
            self.due.remove(&(timer.due, key));
        }
        let timers: Vec<Timer> = catalog
            .timers_of(key)
            .map(|timer| {
                let running = before.iter().find(|it| it.timer == timer);
                let begin = || now.saturating_add(time_of(&timer, session_timeout));
                let due = running.map_or_else(begin, |it| it.due);
                Timer { timer, due }
            })
            .collect();
        self.due.extend(timers.iter().map(|timer| (timer.due, key)));
        if !timers.is_empty() {
            self.timers.insert(key, timers);
        }
    }

    /// The ops that end what has had its time. Each is tried again after `again` unless it is done by then.
    pub(super) fn due(&mut self, now: u64, again: u64) -> Vec<Operation> {
        let mut over = Vec::new();
        while over.len() < END_AT_ONCE
            && let Some((due, key)) = self.due.first().copied()
            && due <= now
        {
            self.due.pop_first();
            for timer in self.timers.get_mut(&key).into_iter().flatten() {
                if timer.due == due {
                    timer.due = now.saturating_add(again);
                    self.due.insert((timer.due, key));
                    over.push(timer.timer);
                }
            }
        }
        operations(&over)
    }
}

fn operations(over: &[GroupTimer]) -> Vec<Operation> {
    let mut plans = Vec::new();
    let mut members = Vec::new();
    let mut empty = Vec::new();
    for timer in over {
        match *timer {
            GroupTimer::Plan { key, pending, .. } => plans.push((key, pending)),
            GroupTimer::Detached {
                key,
                member,
                session,
            } => members.push((key, [(member, session)].to_vec())),
            GroupTimer::Empty { key, since, .. } => empty.push((key, since)),
        }
    }
    let plans = (!plans.is_empty()).then_some(Operation::PlanGroups { groups: plans });
    let members = (!members.is_empty()).then_some(Operation::ExpireMembers { groups: members });
    let empty = (!empty.is_empty()).then_some(Operation::ExpireGroups { groups: empty });
    plans.into_iter().chain(members).chain(empty).collect()
}

/// How long it takes, nanoseconds.
fn time_of(timer: &GroupTimer, session_timeout: u64) -> u64 {
    match timer {
        GroupTimer::Plan { delay_ms, .. } => u64::from(*delay_ms) * 1_000_000,
        GroupTimer::Detached { .. } => session_timeout,
        GroupTimer::Empty { expiry_ms, .. } => expiry_ms.saturating_mul(1_000_000),
    }
}

const fn key_of(timer: &GroupTimer) -> GroupKey {
    match timer {
        GroupTimer::Plan { key, .. }
        | GroupTimer::Detached { key, .. }
        | GroupTimer::Empty { key, .. } => *key,
    }
}
