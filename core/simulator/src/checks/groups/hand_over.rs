//! How partitions go from one member to the next: what the data groups commit, held against the plan.

use catalog::GroupKey;
use partition::{DataResult, EpochHolder, Grant, GroupCommand, Refusal};
use wire::{Epoch, PartitionId};

use super::{Clean, Clock, Group, Groups, Served, record::State};
use crate::{
    checks::partition::Step,
    run::{MILLISECOND, Run},
};

/// What a node may be early by, nanoseconds, beside clocks that drift.
const EARLY: u64 = 2 * MILLISECOND;

/// A command of a consumer group that a data group has executed.
pub(crate) struct Done<'a> {
    pub(crate) key: GroupKey,
    pub(crate) partition: PartitionId,
    pub(crate) command: &'a GroupCommand,
    pub(crate) result: DataResult,
    /// The node that proposed it.
    pub(crate) proposer: usize,
    /// What the group had before, and has now.
    pub(crate) states: (State, State),
}

impl Groups {
    /// A data group has executed a command.
    pub(crate) fn on_command(&mut self, run: &mut Run, done: &Done<'_>) {
        let clock = self.clock_of(done.proposer);
        let Done { key, partition, .. } = *done;
        let Some(group) = self.groups.get_mut(&key) else {
            return run.fail(format!("a command of {key:?}, which never was"));
        };
        for (epoch, holder) in grants(done.command) {
            let planned = group.epochs.get(&(partition, epoch)).copied();
            if planned != Some(holder) {
                run.fail(format!(
                    "{key:?}, partition {partition}: epoch {epoch} of {holder:?} comes to a data group; planned for: {planned:?}"
                ));
            }
        }
        let (before, now) = done.states;
        if now.fence != before.fence {
            // Also by a store that is refused for its offset.
            group.fenced.insert((partition, now.fence));
        }
        if let DataResult::Failed(refusal) = done.result {
            return count_refusal(run, done.command, refusal);
        }
        if now.fence == before.fence {
            return;
        }
        if let Err(wrong) = group.on_raised(run, done, clock) {
            run.fail(format!("{key:?}, partition {partition}: {wrong}"));
        }
    }

    /// A poll was answered with messages.
    pub(crate) fn on_served(&mut self, run: &mut Run, served: &Served) {
        let Some(group) = self.groups.get_mut(&served.key) else {
            return;
        };
        run.counts.group_messages_served += 1;
        let place = (served.partition, served.held_since);
        let highest = group.served.entry(place).or_insert(served.last);
        *highest = served.last.max(*highest);
        if let Some(clean) = group.clean.get(&place)
            && !clean.released
            && clean.stored < Some(served.last)
        {
            run.fail(format!(
                "{served:?} is served, and the partition was handed over as drained with {:?} stored",
                clean.stored
            ));
        }
    }
}

impl Group {
    /// The fence was raised: the next owner's turn has come, and that must not be too early.
    fn on_raised(&mut self, run: &mut Run, done: &Done<'_>, clock: Clock) -> Result<(), String> {
        let partition = done.partition;
        let (before, now) = done.states;
        let Some(planned) = self.planned.get(&(partition, now.fence)).copied() else {
            return Ok(());
        };
        let is_first = self.tenures.get(&partition).is_some_and(|tenures| {
            let mut tenures = tenures.iter();
            tenures.any(|it| it.top() == now.fence && it.held_since == now.fence)
        });
        let index = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let now_owned = self.ownership.get(index).copied();
        let has_owner = now_owned.is_some_and(|it| it.owner().is_some());
        let moving = now_owned.and_then(|it| it.moving());
        if moving.is_none_or(|moving| moving.epoch != now.fence) && !is_first {
            // The plan has changed before its fence was committed.
            run.counts.moves_fenced_late += 1;
            return Ok(());
        }
        let Some((source, held_since)) = planned.source.filter(|_| has_owner) else {
            run.counts.moves_from_nobody += u64::from(!is_first);
            return Ok(());
        };
        let clean = Clean {
            stored: now.reached.stored(),
            released: matches!(done.command, GroupCommand::Release { .. }),
        };
        let tenures = self.tenures.get(&partition).into_iter().flatten();
        let epoch = tenures
            .filter(|it| it.held_since == held_since)
            .map(super::Tenure::top)
            .next_back();
        if clean.released {
            run.counts.moves_released += 1;
            self.clean.insert((partition, held_since), clean);
        } else if epoch.is_some_and(|epoch| before.fence > epoch) {
            run.counts.moves_fenced_before += 1;
        } else if clean.stored >= self.served.get(&(partition, held_since)).copied() {
            run.counts.moves_drained += 1;
            // Where its time is over, too, it may have ended by that: an answer may still be on its way.
            if self.time_that_lasted(run.now, partition, clock).is_some() {
                self.clean.insert((partition, held_since), clean);
            }
        } else {
            run.counts.moves_timed_out += 1;
            self.check_time(run, (partition, source), clock)?;
        }
        Ok(())
    }

    /// Only when its time is over a partition is taken from somebody who has not stored all.
    fn check_time(
        &self,
        run: &Run,
        (partition, source): (PartitionId, EpochHolder),
        clock: Clock,
    ) -> Result<(), String> {
        match self.time_that_lasted(run.now, partition, clock) {
            Some(lasted) => Err(format!(
                "taken from {source} after {lasted} ns; it has {} and has not stored all",
                self.rebalance_timeout
            )),
            None => Ok(()),
        }
    }

    /// How long a move has lasted by now, while its time is not over by any clock. The fence that ends it
    /// may have been proposed before a crash, and be committed after it.
    fn time_that_lasted(&self, now: u64, partition: PartitionId, clock: Clock) -> Option<u64> {
        let moving = self.moving.get(&partition)?;
        let began = moving.seen.max(clock.down_at);
        let lasted = now.saturating_sub(began);
        let is_old_option = self.options_changed > began;
        let may_be_over = is_old_option || may_be_over(lasted, self.rebalance_timeout);
        let was_over = moving.was_over & (1 << clock.node) != 0;
        (!may_be_over && !was_over).then_some(lasted)
    }

    /// The process that counts the time of the moves is gone.
    pub(super) fn on_crash(&mut self, now: u64, clock: Clock) {
        for moving in self.moving.values_mut() {
            let began = moving.seen.max(clock.down_at);
            let is_old_option = self.options_changed > began;
            let lasted = now.saturating_sub(began);
            if is_old_option || may_be_over(lasted, self.rebalance_timeout) {
                moving.was_over |= 1 << clock.node;
            }
        }
    }

    /// The ownership of a session that an epoch belongs to.
    pub(super) fn tenure(
        &self,
        partition: PartitionId,
        session: wire::SessionNumber,
        epoch: Epoch,
    ) -> Option<&super::Tenure> {
        let tenures = self.tenures.get(&partition)?.iter().rev();
        let mut own = tenures.filter(|it| it.holder.session == session);
        own.find(|it| it.held_since <= epoch && epoch <= it.top())
    }

    /// Why a section of a release cannot have let its partition go.
    pub(super) fn why_not_released(
        &self,
        section: &wire::ReleaseSection,
        session: wire::SessionNumber,
    ) -> Option<String> {
        let wire::ReleaseSection {
            partition, planned, ..
        } = *section;
        if !self.fenced.contains(&(partition, planned)) {
            return Some(format!(
                "partition {partition} is released, and the fence of epoch {planned} is not committed"
            ));
        }
        let to = self.epochs.get(&(partition, planned)).copied().flatten();
        to.is_some_and(|to| to.session == session).then(|| {
            format!(
                "partition {partition} is released to epoch {planned}, which is its own session's"
            )
        })
    }

    /// When somebody else than the holder of an epoch was granted a later one.
    pub(super) fn granted_after(
        &self,
        partition: PartitionId,
        (holder, top): (EpochHolder, Epoch),
    ) -> Option<Step> {
        let tenures = self.tenures.get(&partition)?.iter();
        let mut later = tenures.filter(|it| it.holder != holder && it.held_since > top);
        later.next().map(|it| it.stores.from)
    }
}

/// Whether a time may be over by a clock that goes too fast.
const fn may_be_over(lasted: u64, timeout: u64) -> bool {
    lasted + lasted / 16 + EARLY >= timeout
}

/// The epochs of a command, each with the one that it is said to belong to.
fn grants(command: &GroupCommand) -> Vec<(Epoch, Option<EpochHolder>)> {
    let of = |grant: &Grant| (grant.epoch, Some(grant.holder));
    match command {
        GroupCommand::Fence { epoch, holder, .. } => vec![(*epoch, *holder)],
        GroupCommand::Store { grant, .. } => vec![of(grant)],
        GroupCommand::Release { grant, to, .. } => vec![of(grant), of(to)],
    }
}

fn count_refusal(run: &mut Run, command: &GroupCommand, refusal: Refusal) {
    let stores = !matches!(command, GroupCommand::Fence { .. });
    match refusal {
        Refusal::StaleEpoch { .. } | Refusal::NotHolder { .. } if stores => {
            run.counts.stale_stores_refused += 1;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use wire::{PartitionId, Timestamp};

    use super::{
        super::{Clock, Moving},
        Group,
    };
    use crate::run::MILLISECOND;

    const PARTITION: PartitionId = PartitionId(2);

    /// A group with a move that has 150 ms, and began at 10 ms.
    fn moving() -> Group {
        let mut group = Group {
            rebalance_timeout: 150 * MILLISECOND,
            ..Group::default()
        };
        let moving = Moving {
            since: Timestamp(1),
            seen: 10 * MILLISECOND,
            was_over: 0,
        };
        group.moving.insert(PARTITION, moving);
        group
    }

    /// The clock of a node that was down at this time, milliseconds.
    fn clock(down_at: u64) -> Clock {
        Clock {
            node: 1,
            down_at: down_at * MILLISECOND,
        }
    }

    #[test]
    fn move_has_its_time_anew_after_a_crash() {
        let mut group = moving();
        let at = |group: &Group, milliseconds, down_at| {
            let now = milliseconds * MILLISECOND;
            group.time_that_lasted(now, PARTITION, clock(down_at))
        };
        assert_eq!(at(&group, 60, 0), Some(50 * MILLISECOND));
        assert_eq!(at(&group, 170, 0), None, "it may be over");
        group.on_crash(100 * MILLISECOND, clock(0));
        assert_eq!(at(&group, 170, 100), Some(70 * MILLISECOND));
    }

    #[test]
    fn fence_of_a_time_that_was_over_may_be_committed_after_a_crash() {
        let mut group = moving();
        group.on_crash(170 * MILLISECOND, clock(0));
        let at = 200 * MILLISECOND;
        let lasted = group.time_that_lasted(at, PARTITION, clock(170));
        assert_eq!(lasted, None);
        // Another node cannot have proposed it before its own time was over.
        let other = Clock {
            node: 2,
            ..clock(170)
        };
        let lasted = group.time_that_lasted(at, PARTITION, other);
        assert_eq!(lasted, Some(30 * MILLISECOND));
    }
}
