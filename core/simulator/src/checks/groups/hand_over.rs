//! How partitions go from one member to the next: what the data groups commit, held against the plan.

use catalog::GroupKey;
use partition::{DataResult, EpochHolder, Grant, GroupCommand, Refusal};
use wire::{Epoch, PartitionId};

use super::{Clean, Group, Groups, Served, record::State};
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
    /// What the group had before, and has now.
    pub(crate) states: (State, State),
}

impl Groups {
    /// A data group has executed a command.
    pub(crate) fn on_command(&mut self, run: &mut Run, done: &Done<'_>) {
        let down_at = self.down_at;
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
        if let DataResult::Failed(refusal) = done.result {
            return count_refusal(run, done.command, refusal);
        }
        let (before, now) = done.states;
        if now.fence == before.fence {
            return;
        }
        group.fenced.insert((partition, now.fence));
        if let Err(wrong) = group.on_raised(run, done, down_at) {
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
    fn on_raised(&mut self, run: &mut Run, done: &Done<'_>, down_at: u64) -> Result<(), String> {
        let partition = done.partition;
        let (before, now) = done.states;
        let Some(planned) = self.planned.get(&(partition, now.fence)).copied() else {
            return Ok(());
        };
        let is_first = self.tenures.get(&partition).is_some_and(|tenures| {
            let mut tenures = tenures.iter();
            tenures.any(|it| it.top == now.fence && it.held_since == now.fence)
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
            .map(|it| it.top)
            .next_back();
        if clean.released {
            run.counts.moves_released += 1;
            self.clean.insert((partition, held_since), clean);
        } else if epoch.is_some_and(|epoch| before.fence > epoch) {
            run.counts.moves_fenced_before += 1;
        } else if clean.stored >= self.served.get(&(partition, held_since)).copied() {
            run.counts.moves_drained += 1;
            self.clean.insert((partition, held_since), clean);
        } else {
            run.counts.moves_timed_out += 1;
            self.check_time(run, (partition, source), down_at)?;
        }
        Ok(())
    }

    /// Only when its time is over a partition is taken from somebody who has not stored all.
    fn check_time(
        &self,
        run: &Run,
        (partition, source): (PartitionId, EpochHolder),
        down_at: u64,
    ) -> Result<(), String> {
        let Some(moving) = self.moving.get(&partition) else {
            return Ok(());
        };
        let began = moving.seen.max(down_at);
        let lasted = run.now.saturating_sub(began);
        let is_old_option = self.options_changed > began;
        if !is_old_option && lasted + lasted / 16 + EARLY < self.rebalance_timeout {
            return Err(format!(
                "taken from {source} after {lasted} ns; it has {} and has not stored all",
                self.rebalance_timeout
            ));
        }
        Ok(())
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
        own.find(|it| it.held_since <= epoch && epoch <= it.top)
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
