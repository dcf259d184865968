//! Applies the requests of consumer groups, and answers what a group has in a partition.

use wire::{ConsumerGroupId, Incarnation, Offset, Op, PartitionKey, Timestamp};

use crate::{Absent, DataGroup, DataResult, Grant, GroupCommand, GroupRecord, PollRight, Refusal};

/// The record that a request is about, and the metadata op that it rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordName {
    pub(crate) key: PartitionKey,
    pub(crate) incarnation: Incarnation,
    pub(crate) admitted: Op,
    pub(crate) group: ConsumerGroupId,
}

impl DataGroup {
    /// What a consumer group has in a partition; all empty when it has nothing there.
    ///
    /// # Errors
    /// When the partition is not here with this incarnation.
    pub fn group_record(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
        group: ConsumerGroupId,
    ) -> Result<GroupRecord, Absent> {
        let partition = self.partition(key, incarnation)?;
        let record = partition.consumer_groups.find(group).unwrap_or_default();
        Ok(record.shown())
    }

    /// The message that a consumer group goes on with, for those who look from outside: not before the
    /// partition's start, and the first of the segment where the group starts at a time within one.
    /// `None` while it is not resolved where the group starts.
    ///
    /// # Errors
    /// When the partition is not here with this incarnation.
    pub fn group_next(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
        group: ConsumerGroupId,
    ) -> Result<Option<Offset>, Absent> {
        let partition = self.partition(key, incarnation)?;
        let record = partition.consumer_groups.find(group).unwrap_or_default();
        let next = record.shown().next();
        Ok(next.map(|start| partition.earliest_of(start)))
    }

    /// The consumer groups that have a record in a partition, in the order of their ids.
    pub fn group_records(
        &self,
        key: PartitionKey,
    ) -> impl Iterator<Item = (ConsumerGroupId, GroupRecord)> {
        let partition = self.partitions.get(&key).into_iter();
        partition.flat_map(|partition| partition.consumer_groups.iter())
    }

    /// Whether the holder of a grant may poll; asked when a poll begins and again when its answer is
    /// built.
    ///
    /// # Errors
    /// When the partition is not here with this incarnation, and when the grant is stale or somebody
    /// else's.
    pub fn poll_right(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
        group: ConsumerGroupId,
        grant: Grant,
    ) -> Result<PollRight, Refusal> {
        let partition = self.partition(key, incarnation)?;
        let record = partition.consumer_groups.find(group).unwrap_or_default();
        record.judge(grant)?;
        let shown = record.shown();
        Ok(if grant.epoch > shown.fence {
            PollRight::FenceFirst
        } else {
            PollRight::Holds(shown)
        })
    }

    pub(crate) fn apply_group(
        &mut self,
        name: RecordName,
        command: GroupCommand,
        now: Timestamp,
    ) -> Result<DataResult, Refusal> {
        let RecordName {
            key,
            incarnation,
            admitted,
            group,
        } = name;
        let dropped = self.dropped;
        let partition = self.partition_mut(key, incarnation)?;
        let before = partition.consumer_groups.find(group);
        if before.is_none() && admitted < dropped {
            return Err(Refusal::GroupGone { admitted, dropped });
        }
        let before = before.unwrap_or_default();
        let mut record = before;
        let result = match command {
            GroupCommand::Fence {
                epoch,
                holder,
                offset,
            } => {
                record.fence((epoch, holder), offset, partition, now);
                Ok(())
            }
            GroupCommand::Store { grant, offset } => record.store(grant, offset, partition),
            GroupCommand::Release { grant, offset, to } => {
                record.release(grant, offset, to, partition)
            }
        };
        if record != before {
            partition.consumer_groups.put(group, record);
        }
        result.map(|()| DataResult::Record {
            group,
            record: record.shown(),
        })
    }

    /// Forgets a deleted group. Its id is never used again, so the incarnation does not matter.
    pub(crate) fn drop_group(
        &mut self,
        key: PartitionKey,
        group: ConsumerGroupId,
        dropped: Op,
    ) -> DataResult {
        self.dropped = self.dropped.max(dropped);
        if let Some(partition) = self.partitions.get_mut(&key) {
            partition.consumer_groups.remove(group);
        }
        DataResult::ConsumerGroupDropped { group }
    }
}
