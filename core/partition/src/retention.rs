//! Removes the head of a partition.

use wire::{Incarnation, Offset, PartitionKey};

use crate::{DataGroup, DataResult, Refusal, SegmentId};

impl DataGroup {
    /// Moves the start up to `offset` exactly. Files go as whole segments, once all their messages are
    /// before the start; the end of the partition stays where it is.
    pub(crate) fn truncate_head(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        offset: Offset,
    ) -> Result<DataResult, Refusal> {
        let group = self.config.group;
        let op = self.op;
        let partition = self.partition_mut(key, incarnation)?;
        if offset > partition.next {
            return Err(partition.out_of_range(offset));
        }
        partition.start = offset.max(partition.start);
        let start = partition.start;
        let open = partition.segments.open().map(|open| open.segment.base);
        let removed = partition.segments.remove_before(start);
        for tracked in &removed {
            let base = tracked.segment.base;
            partition.damage.remove(&base);
            if Some(base) == open {
                partition.index = None;
            }
        }
        for tracked in removed {
            let segment = SegmentId {
                group,
                partition: key,
                incarnation,
                base: tracked.segment.base,
            };
            self.unwritten -= tracked.unwritten();
            self.tail.remove_before(key, tracked.segment.next());
            self.indexes.remove(segment);
            self.changes.delete(op, segment);
        }
        Ok(DataResult::HeadTruncated { start })
    }
}
