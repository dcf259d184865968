//! Finds what a query wants: in memory, or where in which file.

use alloc::boxed::Box;

use wire::{BATCH_HEADER_SIZE, Offset, PartitionKey, Timestamp};

use super::{
    FileKind, FileRead, Purpose, Read,
    goal::{Floor, Goal, Wanted},
};
use crate::{
    DataGroup, Range, Scan, SegmentId,
    group::Partition,
    index::{Index, IndexEntry, Stretch},
};

impl DataGroup {
    pub(super) fn plan(&self, key: PartitionKey, partition: &Partition, mut goal: Goal) -> Read {
        goal.skip_to_start(partition);
        match goal.wanted {
            Wanted::Offset(from) => self.plan_offset(key, partition, goal, from),
            Wanted::Time { time, floor } => self.plan_time(key, partition, goal, (time, floor)),
        }
    }

    fn plan_offset(
        &self,
        key: PartitionKey,
        partition: &Partition,
        mut goal: Goal,
        from: Offset,
    ) -> Read {
        let mut batches = goal.answer(partition, from);
        for batch in self.tail.run(key, from) {
            if !goal.takes(&batches, batch.size()) {
                break;
            }
            batches.next = batch.end.next;
            batches.size += batch.size();
            batches
                .parts
                .extend([batch.head.clone(), batch.body.clone()]);
        }
        if batches.next != from || from == partition.next {
            return Read::Batches(batches);
        }
        let tracked = partition.segments.containing(from);
        let tracked = tracked.expect("segments hold every message from the start to the end");
        let id = self.segment_id(key, partition, tracked.segment.base);
        // The position asked for has been moved into the segments, whatever it was.
        goal.wanted = Wanted::Offset(from);
        let found = self
            .index(id, partition)
            .and_then(|index| Some((index, index.stretch_of(from)?)));
        match found {
            Some((index, stretch)) => {
                let written = tracked.written.position;
                FileRead::of_stretch(id, goal, index, stretch, written)
            }
            None => self.find_index(id, partition, goal),
        }
    }

    fn plan_time(
        &self,
        key: PartitionKey,
        partition: &Partition,
        goal: Goal,
        (time, floor): (Timestamp, Option<Floor>),
    ) -> Read {
        let Some(tracked) = partition.segments.reaching(time) else {
            return self.plan_offset(key, partition, goal, partition.next);
        };
        let segment = tracked.segment;
        if segment.first_timestamp >= time {
            let from = segment.base.max(partition.start);
            return self.plan_offset(key, partition, goal, from);
        }
        let id = self.segment_id(key, partition, segment.base);
        let index = self
            .index(id, partition)
            .filter(|index| index.is_of(&segment));
        let found = index.and_then(|index| Some((index, index.stretch_reaching(time)?)));
        let Some((index, stretch)) = found else {
            return self.find_index(id, partition, goal);
        };
        let mut first = stretch.first;
        if let Some(floor) = floor
            && floor.segment == segment.base
            && floor.position > first.position
        {
            let Floor {
                offset, position, ..
            } = floor;
            first = IndexEntry {
                offset,
                position,
                ..first
            };
        }
        // The batch that is wanted begins in the stretch or at its end.
        while first.position < stretch.end {
            match self.tail.at(key, first.offset) {
                Some(batch) if batch.timestamp >= time => break,
                Some(batch) => {
                    first.offset = batch.end.next;
                    first.position = batch.end.position;
                }
                None => {
                    let stretch = Stretch { first, ..stretch };
                    let written = tracked.written.position;
                    return FileRead::of_stretch(id, goal, index, stretch, written);
                }
            }
        }
        let from = first.offset.max(partition.start);
        self.plan_offset(key, partition, goal, from)
    }

    /// Loads the index of a full segment; builds that of the open one, which has no file.
    fn find_index(&self, segment: SegmentId, partition: &Partition, goal: Goal) -> Read {
        if self.index(segment, partition).is_some() || partition.is_open(segment.base) {
            return self.build_index(segment, goal);
        }
        let tracked = partition.segments.find(segment.base);
        let tracked = tracked.expect("the caller found the segment");
        Read::File(FileRead {
            segment,
            file: FileKind::Index,
            position: 0,
            length: Index::file_size_max(tracked.segment.length),
            goal,
            purpose: Purpose::LoadIndex,
        })
    }

    pub(super) fn build_index(&self, segment: SegmentId, goal: Goal) -> Read {
        let scan = self.scan(segment).expect("the caller found the segment");
        FileRead::of_scan(goal, Box::new(scan))
    }
}

impl FileRead {
    /// Reads what a scan needs. A scan that needs nothing ends with no bytes.
    pub(super) fn of_scan(goal: Goal, scan: Box<Scan>) -> Read {
        let none = Range {
            position: 0,
            length: 0,
        };
        let Range { position, length } = scan.next_read().unwrap_or(none);
        Read::File(Self {
            segment: scan.id(),
            file: FileKind::Segment,
            position,
            length,
            goal,
            purpose: Purpose::BuildIndex(scan),
        })
    }

    /// Reads a stretch and what may be served behind it, as far as it is in the file. The batch that is
    /// wanted is not in memory, so it is in the file as a whole.
    fn of_stretch(
        segment: SegmentId,
        goal: Goal,
        index: &Index,
        stretch: Stretch,
        written: u64,
    ) -> Read {
        let position = stretch.first.position;
        // The latest place where what is served may begin.
        let begin = match goal.wanted {
            Wanted::Offset(from) if from == stretch.first.offset => position,
            Wanted::Offset(_) | Wanted::Time { .. } => stretch.end,
        };
        let end = index.worth_reading(begin.saturating_add(goal.max_bytes));
        let end = end.max(stretch.end).min(written);
        // Never nothing, so that an index that leads astray shows as damage.
        let length = end.saturating_sub(position).max(BATCH_HEADER_SIZE as u64);
        Read::File(Self {
            segment,
            file: FileKind::Segment,
            position,
            length,
            goal,
            purpose: Purpose::Serve(stretch.first.offset),
        })
    }
}
