//! Every metadata op, held against the rules of ownership: one owner, epochs that only rise and belong to
//! one session each, fences before grants, balance at rest.

use std::collections::{BTreeMap, BTreeSet};

use catalog::{Catalog, Change, GroupKey, Operation};
use coordinator::{ConsumerGroup, Holding, MemberState, Ownership};
use partition::EpochHolder;
use wire::{Epoch, MemberId, Op, PartitionId, SessionNumber};

use super::{Group, Groups, Membership, Moving, Planned, Span, Tenure};
use crate::{
    checks::partition::Step,
    run::{MILLISECOND, Run},
};

/// A metadata op that was executed, and the catalog after it.
pub(crate) struct Committed<'a> {
    pub(crate) step: Step,
    pub(crate) op: Op,
    pub(crate) operation: &'a Operation,
    pub(crate) changes: &'a [Change],
    pub(crate) catalog: &'a Catalog,
}

impl Groups {
    /// An op was executed.
    pub(crate) fn on_op(&mut self, run: &mut Run, committed: &Committed<'_>) {
        let mut changed = BTreeSet::new();
        for change in committed.changes {
            match change {
                Change::ConsumerGroupCreated {
                    stream,
                    topic,
                    group,
                } => {
                    let key = GroupKey {
                        stream: *stream,
                        topic: *topic,
                        group: group.id(),
                    };
                    self.created(run, committed.step, key);
                    changed.insert(key);
                }
                Change::ConsumerGroupChanged {
                    stream,
                    topic,
                    change,
                } => {
                    changed.insert(GroupKey {
                        stream: *stream,
                        topic: *topic,
                        group: change.group,
                    });
                }
                Change::ConsumerGroupDeleted {
                    stream,
                    topic,
                    group,
                    ..
                } => {
                    let key = GroupKey {
                        stream: *stream,
                        topic: *topic,
                        group: *group,
                    };
                    changed.remove(&key);
                    self.deleted_by(run, committed, key);
                }
                _ => {}
            }
        }
        for key in changed {
            match committed.catalog.consumer_group(&key) {
                Some(group) => self.changed(run, committed, (key, group)),
                None => run.fail(format!("{key:?} has changed and is not there")),
            }
        }
        if let Operation::ResetConsumerOffset { .. } = committed.operation {
            run.counts.group_resets += 1;
        }
    }

    fn created(&mut self, run: &mut Run, step: Step, key: GroupKey) {
        run.counts.groups_created += 1;
        let last = self.ids.insert((key.stream, key.topic), key.group);
        if last.is_some_and(|last| last >= key.group) {
            run.fail(format!("{key:?} follows on group {last:?}"));
        }
        self.groups.insert(key, Group::new(step));
    }

    fn deleted_by(&mut self, run: &mut Run, committed: &Committed<'_>, key: GroupKey) {
        run.counts.groups_deleted += 1;
        let Some(group) = self.groups.get_mut(&key) else {
            return run.fail(format!("{key:?} is deleted and was never there"));
        };
        group.deleted = Some(committed.step);
        group.disturbed = None;
        let end = (committed.step, committed.op);
        for tenure in group.tenures.values_mut().filter_map(|all| all.last_mut()) {
            tenure.end_polls(end);
            tenure.end_stores(end);
        }
        for spans in group.memberships.values_mut() {
            close(spans, end);
        }
    }

    fn changed(
        &mut self,
        run: &mut Run,
        committed: &Committed<'_>,
        (key, now): (GroupKey, &ConsumerGroup),
    ) {
        let Some(group) = self.groups.get_mut(&key) else {
            return run.fail(format!("{key:?} has changed and was never created"));
        };
        if let Err(wrong) = group.follow(run, committed, (key, now)) {
            run.fail(format!(
                "{key:?}, op {} {:?}: {wrong}",
                committed.op, committed.operation
            ));
        }
    }
}

impl Group {
    fn new(created: Step) -> Self {
        Self {
            created,
            ..Self::default()
        }
    }

    fn follow(
        &mut self,
        run: &mut Run,
        committed: &Committed<'_>,
        (key, now): (GroupKey, &ConsumerGroup),
    ) -> Result<(), String> {
        let is_new = self.created == committed.step && self.ownership.is_empty();
        self.follow_members(run, committed, now)?;
        let before = std::mem::take(&mut self.ownership);
        let after: Vec<Ownership> = now.ownerships().collect();
        let at =
            |all: &[Ownership], index: usize| all.get(index).copied().unwrap_or(Ownership::NEVER);
        let expected =
            (0..before.len().max(after.len())).any(|index| at(&before, index) != at(&after, index));
        let rise = now.generation().0 - self.generation.0.min(now.generation().0);
        if rise != u64::from(expected) && !is_new {
            return Err(format!(
                "the generation goes from {} to {}, and ownership changes: {expected}",
                self.generation,
                now.generation()
            ));
        }
        self.generation = now.generation();
        let topic = catalog_partitions(committed.catalog, &key);
        if topic != after.len() {
            return Err(format!("{} partitions; the topic has {topic}", after.len()));
        }
        for index in 0..before.len().max(after.len()) {
            let partition = partition_id(index);
            let old = before.get(index).copied();
            let new = after.get(index).copied();
            if old != new {
                self.move_on(run, committed, (partition, old, new))?;
            }
        }
        self.ownership = after;
        let options = now.options();
        let timeout = u64::from(options.rebalance_timeout_ms) * MILLISECOND;
        if timeout != self.rebalance_timeout {
            (self.rebalance_timeout, self.options_changed) = (timeout, run.now);
        }
        self.look_for_rest(run, committed, now)
    }

    fn follow_members(
        &mut self,
        run: &mut Run,
        committed: &Committed<'_>,
        now: &ConsumerGroup,
    ) -> Result<(), String> {
        let end = (committed.step, committed.op);
        let mut members = BTreeMap::new();
        for member in now.members() {
            if member.id > self.last_member {
                self.last_member = member.id;
                run.counts.members_joined += 1;
            } else if !self.members.contains_key(&member.id) {
                return Err(format!("member {} comes back", member.id));
            }
            let lives = committed
                .catalog
                .session(member.client, member.session)
                .is_some();
            if member.state == MemberState::Active && !lives {
                return Err(format!("member {} has no session", member.id));
            }
            let membership = Membership {
                session: member.session,
                weight: member.weight.0,
            };
            let before = self.members.get(&member.id);
            if before.is_none_or(|before| before.session != member.session) {
                if let Some(before) = before {
                    run.counts.members_taken_over += 1;
                    close(self.memberships.entry(before.session).or_default(), end);
                }
                let spans = self.memberships.entry(member.session).or_default();
                spans.push(Span::open(committed.step));
            }
            if member.state == MemberState::Detached {
                // It keeps what it owns, and its session is over.
                close(self.memberships.entry(member.session).or_default(), end);
            }
            members.insert(member.id, membership);
        }
        for (id, gone) in &self.members {
            if !members.contains_key(id) {
                run.counts.members_gone += 1;
                close(self.memberships.entry(gone.session).or_default(), end);
            }
        }
        self.members = members;
        Ok(())
    }

    fn holder(&self, member: MemberId) -> Result<EpochHolder, String> {
        let found = self.members.get(&member);
        let session = found
            .map(|membership| membership.session)
            .ok_or_else(|| format!("{member} owns something and is no member"))?;
        Ok(EpochHolder { member, session })
    }

    /// The ownership of a partition has changed.
    fn move_on(
        &mut self,
        run: &mut Run,
        committed: &Committed<'_>,
        (partition, old, new): (PartitionId, Option<Ownership>, Option<Ownership>),
    ) -> Result<(), String> {
        let end = (committed.step, committed.op);
        let Some(new) = new else {
            // The partition is gone.
            if let Some(tenure) = self.tenure_mut(partition) {
                tenure.end_polls(end);
                tenure.end_stores(end);
            }
            self.moving.remove(&partition);
            return Ok(());
        };
        let old = old.unwrap_or(Ownership::NEVER);
        let wrong = |text: &str| Err(format!("partition {partition}: {text}: {old:?} to {new:?}"));
        if new.epoch < old.epoch {
            return wrong("an epoch falls");
        }
        let is_known = self.epochs.contains_key(&(partition, highest(&new)));
        if new.epoch.0 > 0 && !is_known && highest(&new) != Epoch(committed.op.0) {
            return wrong("an epoch is not its op");
        }
        self.note_epochs(partition, &old, &new)?;
        self.note_move(run, partition, &new);
        let owner = match new.owner() {
            Some(owner) => Some(self.holder(owner)?),
            None => None,
        };
        let may_poll = matches!(new.holding, Holding::Owned { .. });
        self.count_end(run, partition, &old, &new);
        let is_granted = may_poll && old.owner() != new.owner();
        if is_granted && old != Ownership::NEVER {
            if Some(new.epoch) != old.moving().map(|moving| moving.epoch) {
                return wrong("granted without a move");
            }
            if !self.fenced.contains(&(partition, new.epoch)) {
                return wrong("granted before the fence is committed");
            }
        }
        self.follow_tenure(committed, (partition, &new), owner);
        Ok(())
    }

    /// An epoch belongs to one member and session.
    fn note_epochs(
        &mut self,
        partition: PartitionId,
        old: &Ownership,
        new: &Ownership,
    ) -> Result<(), String> {
        let mut epochs = Vec::new();
        if let Some(owner) = new.owner() {
            epochs.push((new.epoch, Some(self.holder(owner)?), None));
        }
        if let Some(moving) = new.moving() {
            let to = match moving.to {
                Some(to) => Some(self.holder(to)?),
                None => None,
            };
            let source = match (new.owner(), new.held_since()) {
                (Some(owner), Some(since)) => Some((self.holder(owner)?, since)),
                _ => None,
            };
            epochs.push((moving.epoch, to, source));
        }
        for (epoch, holder, source) in epochs {
            let known = self.epochs.entry((partition, epoch)).or_insert(holder);
            if *known != holder {
                return Err(format!(
                    "partition {partition}: epoch {epoch} is {known:?}'s and {holder:?}'s: {old:?} to {new:?}"
                ));
            }
            let planned = Planned { source };
            self.planned.entry((partition, epoch)).or_insert(planned);
        }
        Ok(())
    }

    fn note_move(&mut self, run: &Run, partition: PartitionId, new: &Ownership) {
        match new.moving() {
            None => {
                self.moving.remove(&partition);
            }
            Some(moving) => {
                let begins = Moving {
                    since: moving.since,
                    seen: run.now,
                    was_over: 0,
                };
                let known = self.moving.entry(partition).or_insert(begins);
                if known.since != moving.since {
                    *known = begins;
                }
            }
        }
    }

    fn count_end(
        &mut self,
        run: &mut Run,
        partition: PartitionId,
        old: &Ownership,
        new: &Ownership,
    ) {
        let (Holding::Revoking { owner, .. }, Holding::Owned { owner: now, .. }) =
            (old.holding, new.holding)
        else {
            return;
        };
        if owner == now {
            run.counts.moves_cancelled += 1;
            if let Some(since) = new.held_since() {
                self.clean.remove(&(partition, since));
            }
        }
    }

    fn follow_tenure(
        &mut self,
        committed: &Committed<'_>,
        (partition, new): (PartitionId, &Ownership),
        owner: Option<EpochHolder>,
    ) {
        let (step, end) = (committed.step, (committed.step, committed.op));
        let may_poll = matches!(new.holding, Holding::Owned { .. });
        let held_since = new.held_since().unwrap_or_default();
        if let Some(tenure) = self.tenure_mut(partition) {
            let is_same = tenure.stores.is_open()
                && Some(tenure.holder) == owner
                && tenure.held_since == held_since;
            if is_same {
                tenure.rise(committed.op, new.epoch);
                match may_poll {
                    true if !tenure.polls.last().is_some_and(Span::is_open) => {
                        tenure.polls.push(Span::open(step));
                    }
                    true => {}
                    false => tenure.end_polls(end),
                }
                return;
            }
            tenure.end_polls(end);
            tenure.end_stores(end);
        }
        if let Some(holder) = owner {
            let polls = may_poll.then_some(Span::open(step)).into_iter();
            self.tenures.entry(partition).or_default().push(Tenure {
                holder,
                held_since,
                tops: vec![(committed.op, new.epoch)],
                polls: polls.collect(),
                stores: Span::open(step),
            });
        }
    }

    fn tenure_mut(&mut self, partition: PartitionId) -> Option<&mut Tenure> {
        self.tenures.get_mut(&partition)?.last_mut()
    }

    /// At rest everything is owned, and as evenly as may be.
    fn look_for_rest(
        &mut self,
        run: &Run,
        committed: &Committed<'_>,
        now: &ConsumerGroup,
    ) -> Result<(), String> {
        let is_moving = self.ownership.iter().any(|it| it.moving().is_some());
        let is_pending = now.plan_pending().is_some();
        let is_at_rest = !is_moving && !is_pending;
        if is_at_rest && !self.members.is_empty() {
            let mut counts: BTreeMap<MemberId, usize> =
                self.members.keys().map(|member| (*member, 0)).collect();
            for entry in &self.ownership {
                match entry.owner().and_then(|owner| counts.get_mut(&owner)) {
                    Some(count) => *count += 1,
                    None => return Err(format!("nobody owns a partition: {:?}", self.ownership)),
                }
            }
            let weights: BTreeSet<u16> = self.members.values().map(|it| it.weight).collect();
            let (least, most) = (counts.values().min(), counts.values().max());
            let is_even = least
                .zip(most)
                .is_none_or(|(least, most)| most - least <= 1);
            if weights.len() == 1 && !is_even {
                return Err(format!("not shared out evenly: {counts:?}"));
            }
        }
        let completes = matches!(committed.operation, Operation::CompleteMoves { .. });
        self.disturbed = match (is_at_rest, self.disturbed) {
            (true, _) => None,
            (false, Some(since)) if completes => Some(since),
            (false, _) => Some(run.now + pending_delay(now)),
        };
        Ok(())
    }

    /// Whether a session was a member all the time between two steps.
    pub(super) fn was_member(&self, session: SessionNumber, from: Step, to: Step) -> bool {
        let spans = self.memberships.get(&session).into_iter().flatten();
        spans.clone().any(|span| span.covers(from, to))
    }
}

impl Tenure {
    /// The highest epoch that it has.
    pub(super) fn top(&self) -> Epoch {
        let (_, top) = self.tops.last().expect("it begins with an epoch");
        *top
    }

    /// The highest epoch that it had after a metadata op; if it was not granted by then, its first one.
    pub(super) fn top_after(&self, op: Op) -> Epoch {
        let mut tops = self.tops.iter().rev();
        let found = tops.find(|(since, _)| *since <= op);
        let (_, top) = found.unwrap_or(&self.tops[0]);
        *top
    }

    fn rise(&mut self, op: Op, epoch: Epoch) {
        if epoch > self.top() {
            self.tops.push((op, epoch));
        }
    }

    fn end_polls(&mut self, end: (Step, Op)) {
        close(&mut self.polls, end);
    }

    fn end_stores(&mut self, end: (Step, Op)) {
        self.stores.to.get_or_insert(end);
    }
}

fn close(spans: &mut [Span], end: (Step, Op)) {
    if let Some(span) = spans.last_mut() {
        span.to.get_or_insert(end);
    }
}

/// How long the group waits for more members before it shares anything out, nanoseconds.
fn pending_delay(group: &ConsumerGroup) -> u64 {
    let is_pending = group.plan_pending().is_some();
    u64::from(is_pending) * u64::from(group.options().initial_delay_ms) * MILLISECOND
}

fn highest(ownership: &Ownership) -> Epoch {
    ownership
        .moving()
        .map_or(ownership.epoch, |moving| moving.epoch)
}

fn catalog_partitions(catalog: &Catalog, key: &GroupKey) -> usize {
    let details = catalog.topic_details(&key.stream.into(), &key.topic.into());
    details.map_or(0, |details| details.partitions.len())
}

fn partition_id(index: usize) -> PartitionId {
    PartitionId(u32::try_from(index).expect("a topic has few partitions"))
}

#[cfg(test)]
mod tests {
    use partition::EpochHolder;
    use wire::{Epoch, MemberId, Op, SessionNumber};

    use super::{Span, Tenure};

    #[test]
    fn epoch_of_a_cancelled_revocation_is_the_owners_from_its_op_on() {
        let holder = EpochHolder {
            member: MemberId(1),
            session: SessionNumber(3),
        };
        let mut tenure = Tenure {
            holder,
            held_since: Epoch(19),
            tops: vec![(Op(21), Epoch(19))],
            polls: Vec::new(),
            stores: Span::open(5),
        };
        tenure.rise(Op(27), Epoch(27));
        let after = |op| tenure.top_after(Op(op));
        assert_eq!([after(19), after(26)], [Epoch(19); 2]);
        assert_eq!((after(27), tenure.top()), (Epoch(27), Epoch(27)));
    }
}
