//! Applies committed requests. Every decision here depends on replicated state alone.

use alloc::{string::String, vec::Vec};

use bytes::Bytes;
use wire::{
    BATCH_HEADER_SIZE, Batch, DecodeError, Incarnation, Offset, Op, PartitionKey, Timestamp,
};

use crate::{
    Absent, Applied, DataGroup, DataRequest, DataResult, Refusal, SegmentId, decode_requests,
    fencing::RecordName, group::Partition, index::Index, producers::Novelty, segments::Place,
    tail::TailBatch,
};

impl DataGroup {
    /// Applies one committed data prepare: all requests of its body, in their order.
    ///
    /// Batches of the body are kept as slices of it. It should own its memory: a slice of a larger
    /// buffer keeps that alive, uncounted.
    ///
    /// # Errors
    /// When the body cannot be read; nothing is applied then, and the replica cannot go on.
    pub fn apply_prepare(
        &mut self,
        op: Op,
        timestamp: Timestamp,
        body: &Bytes,
    ) -> Result<Vec<Applied>, DecodeError> {
        let requests = decode_requests(body.clone())?;
        let mut applied = Vec::with_capacity(requests.len());
        for request in requests {
            let (key, incarnation) = (request.key(), request.incarnation());
            let result = self.apply(op, timestamp, request);
            applied.push(Applied {
                key,
                incarnation,
                result,
            });
        }
        self.tail.charge_buffer(op, body.len() as u64);
        self.tail.evict();
        Ok(applied)
    }

    /// Applies one request of the committed op. Ops come in their order, each request once.
    pub fn apply(&mut self, op: Op, timestamp: Timestamp, request: DataRequest) -> DataResult {
        assert!(op > self.restored);
        assert!(op >= self.op);
        self.op = op;
        let key = request.key();
        let result = match request {
            DataRequest::CreatePartition {
                key,
                incarnation,
                admitted,
            } => self.create(key, incarnation, admitted),
            DataRequest::DropPartition {
                key,
                incarnation,
                dropped,
            } => Ok(self.drop_partition(key, incarnation, dropped)),
            DataRequest::Append {
                key,
                incarnation,
                batch,
                ..
            } => self.append(key, incarnation, timestamp, batch),
            DataRequest::StoreOffset {
                key,
                incarnation,
                consumer,
                offset,
                ..
            } => self.store_offset(key, incarnation, consumer, offset),
            DataRequest::DeleteOffset {
                key,
                incarnation,
                consumer,
                ..
            } => self.delete_offset(key, incarnation, &consumer),
            DataRequest::TruncateHead {
                key,
                incarnation,
                offset,
            } => self.truncate_head(key, incarnation, offset),
            DataRequest::ConsumerGroup {
                key,
                incarnation,
                admitted,
                group,
                command,
            } => {
                let name = RecordName {
                    key,
                    incarnation,
                    admitted,
                    group,
                };
                self.apply_group(name, command, timestamp)
            }
            DataRequest::DropConsumerGroup {
                key,
                dropped,
                group,
                ..
            } => Ok(self.drop_group(key, group, dropped)),
        };
        if let Some(partition) = self.partitions.get(&key) {
            partition.assert_invariants();
        }
        self.tail.evict();
        result.unwrap_or_else(DataResult::Failed)
    }

    fn create(
        &mut self,
        key: PartitionKey,
        named: Incarnation,
        admitted: Op,
    ) -> Result<DataResult, Refusal> {
        let begin = match self.incarnation(key) {
            // Proposed from metadata that did not know of a drop yet, perhaps this one's: a late op
            // never revives what was deleted.
            None if admitted < self.dropped => return Err(Absent::NotHere.into()),
            None => Offset(0),
            Some(here) if here == named => return Ok(DataResult::Created),
            Some(here) if here > named => {
                return Err(Absent::OtherIncarnation { here, named }.into());
            }
            // Purged: the offsets go on, so that none that anybody remembers ever names another message.
            Some(_) => {
                let end = self.end(key).expect("it is here");
                self.remove(key);
                end
            }
        };
        self.partitions.insert(key, Partition::new(named, begin));
        Ok(DataResult::Created)
    }

    fn drop_partition(&mut self, key: PartitionKey, named: Incarnation, dropped: Op) -> DataResult {
        self.dropped = self.dropped.max(dropped);
        if self.incarnation(key).is_some_and(|here| here <= named) {
            self.remove(key);
        }
        DataResult::Dropped
    }

    fn remove(&mut self, key: PartitionKey) {
        let partition = self.partitions.remove(&key).expect("the caller found it");
        self.unwritten -= partition.unwritten();
        self.tail.remove_partition(key);
        self.indexes.remove_partition(key);
        let (group, incarnation) = (self.config.group, partition.incarnation);
        self.changes
            .delete_partition(self.op, group, key, incarnation);
    }

    fn append(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        timestamp: Timestamp,
        batch: Batch,
    ) -> Result<DataResult, Refusal> {
        assert!(batch.header.size as usize == BATCH_HEADER_SIZE + batch.body.len());
        assert!(batch.header.count > 0);
        let config = self.config;
        let partition = self.partition_mut(key, incarnation)?;
        let base_offset = partition.next;
        if let Novelty::Repeated { base_offset } = partition.producers.check(&batch.header)? {
            let repeated = true;
            return Ok(DataResult::Appended {
                base_offset,
                repeated,
            });
        }
        let batch = batch.stamped(base_offset, timestamp);
        let size = batch.header.size;
        partition
            .producers
            .record(&batch.header, base_offset, config.producers_max);
        let place = partition
            .segments
            .place(size, base_offset, config.segment_size);
        partition.next = batch.last_offset().next();
        self.unwritten += u64::from(size);
        self.write(key, place, batch);
        let repeated = false;
        Ok(DataResult::Appended {
            base_offset,
            repeated,
        })
    }

    /// Puts a stamped batch at its place: into the segment's record, its index, the file, the tail.
    fn write(&mut self, key: PartitionKey, place: Place, batch: Batch) {
        let Self {
            config,
            op,
            partitions,
            tail,
            indexes,
            changes,
            ..
        } = self;
        let partition = partitions.get_mut(&key).expect("the caller found it");
        let id = |base| SegmentId {
            group: config.group,
            partition: key,
            incarnation: partition.incarnation,
            base,
        };
        let segment = id(place.base);
        if place.begins {
            // The segment before is full; its index is complete, unless it was never verified.
            let closed = partition.segments.open().map(|open| open.segment);
            let index = partition.index.replace(Index::new(place.base));
            if let (Some(closed), Some(index)) = (closed, index) {
                if index.is_of(&closed) {
                    changes.write_index(id(closed.base), index.encode(closed.base));
                }
                indexes.insert(id(closed.base), index);
            }
        }
        let end = partition.segments.append(place, &batch.header);
        if let Some(index) = &mut partition.index
            && index.covered() == place.position
        {
            index.push(&batch.header, end.checksum);
        }
        let held = TailBatch::new(*op, &batch.header, batch.body, place.base, end);
        let parts = [held.head.clone(), held.body.clone()];
        changes.append(segment, place.position, parts);
        tail.push(key, held);
    }

    fn store_offset(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        consumer: String,
        offset: Offset,
    ) -> Result<DataResult, Refusal> {
        let consumers_max = self.config.consumers_max;
        let partition = self.partition_mut(key, incarnation)?;
        if offset >= partition.next {
            return Err(partition.out_of_range(offset));
        }
        let stored = partition.consumers.store(consumer, offset, consumers_max)?;
        Ok(DataResult::Stored { stored })
    }

    fn delete_offset(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        consumer: &str,
    ) -> Result<DataResult, Refusal> {
        let partition = self.partition_mut(key, incarnation)?;
        match partition.consumers.delete(consumer) {
            Some(stored) => Ok(DataResult::OffsetDeleted { stored }),
            None => Err(Refusal::OffsetNotStored),
        }
    }
}

impl Partition {
    pub(crate) const fn out_of_range(&self, offset: Offset) -> Refusal {
        Refusal::OffsetOutOfRange {
            offset,
            start: self.start,
            end: self.next,
        }
    }
}
