//! What happens to partitions: they come and go, are handed over, reset and purged.

use alloc::collections::BTreeSet;

use wire::{Epoch, PartitionId};

use super::{ConsumerGroup, Step, index};
use crate::{At, GroupChange, Ownership, Reset, ResetRefused};

impl ConsumerGroup {
    /// The topic has `count` more partitions, above the highest one. Members get them at once.
    pub(crate) fn partitions_created(&mut self, at: At, count: u32) -> GroupChange {
        let mut step = Step::new(at);
        let partitions = self.partition_count() + count;
        self.ownership
            .resize(index(PartitionId(partitions)), Ownership::NEVER);
        step.partitions = count > 0;
        self.replan(&mut step);
        self.finish(step)
    }

    /// The topic has `count` partitions less, the highest ones.
    ///
    /// # Panics
    /// When there are not as many.
    pub(crate) fn partitions_deleted(&mut self, at: At, count: u32) -> GroupChange {
        let mut step = Step::new(at);
        let remaining = self.partition_count().checked_sub(count);
        let remaining = index(PartitionId(
            remaining.expect("deleted partitions were there"),
        ));
        for entry in remaining..self.ownership.len() {
            self.touch(&mut step, entry);
        }
        self.ownership.truncate(remaining);
        step.partitions = count > 0;
        self.replan(&mut step);
        self.finish(step)
    }

    /// The partitions have a new incarnation without messages or stored offsets. Whoever polls them
    /// begins anew, once the data group has raised the fence there.
    ///
    /// # Panics
    /// When there is no such partition.
    pub(crate) fn purge(&mut self, at: At, partitions: &[PartitionId]) -> GroupChange {
        let mut step = Step::new(at);
        let partitions: BTreeSet<PartitionId> = partitions.iter().copied().collect();
        for partition in partitions {
            self.touch(&mut step, index(partition)).restart(at, None);
        }
        self.finish(step)
    }

    /// Sets stored offsets, backwards too: the fence of each partition carries it out, so it is done when
    /// the moves are complete. Polls and stores under older epochs are refused from then on.
    ///
    /// # Errors
    /// The group has members, and it is not forced; a partition does not exist or is named twice.
    pub fn reset(&mut self, at: At, reset: &Reset) -> Result<GroupChange, ResetRefused> {
        self.admit_without_members(reset.force)?;
        let mut named = BTreeSet::new();
        for (partition, _) in &reset.partitions {
            if self.ownership.get(index(*partition)).is_none() {
                return Err(ResetRefused::PartitionNotFound {
                    group: self.group_name(),
                    partition: *partition,
                    partitions: self.partition_count(),
                });
            }
            if !named.insert(*partition) {
                return Err(ResetRefused::NamedTwice {
                    group: self.group_name(),
                    partition: *partition,
                });
            }
        }
        let mut step = Step::new(at);
        for (partition, to) in &reset.partitions {
            let entry = self.touch(&mut step, index(*partition));
            entry.restart(at, Some(*to));
        }
        Ok(self.finish(step))
    }

    /// The data groups have raised the fences of these moves, each named by its epoch. A partition that
    /// is not moving to that epoch, not any more or done already, is skipped: the same completion may
    /// come late and more than once. Needs no plan: the
    /// one that there is stays right (see `assignment`).
    pub fn complete(&mut self, at: At, moves: &[(PartitionId, Epoch)]) -> GroupChange {
        let mut step = Step::new(at);
        for (partition, epoch) in moves {
            let entry = index(*partition);
            let Some(ownership) = self.ownership.get(entry) else {
                continue;
            };
            if ownership.moving().is_some_and(|to| to.epoch == *epoch) {
                let completed = self.touch(&mut step, entry).complete(*epoch);
                assert!(completed, "the move was looked up before");
            }
        }
        self.finish(step)
    }
}
