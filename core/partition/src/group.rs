//! The state of one data group.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Bound;

use wire::{ConsensusGroup, Incarnation, Offset, Op, PartitionKey};

use crate::{
    Absent, Damage, DataConfig, DataSnapshot, GroupSnapshot, PartitionSnapshot, SNAPSHOT_VERSION,
    Scan, Segment, SegmentChange, SegmentFile, SegmentId, SnapshotError, Verdict,
    changes::Changes,
    index::{Index, IndexCache},
    offsets::Offsets,
    producers::Producers,
    record::Records,
    segments::{Mark, Segments, TrackedSegment},
    tail::Tail,
};

/// One data group: its replicated state, and what this node keeps about its files.
#[derive(Debug)]
pub struct DataGroup {
    pub(crate) config: DataConfig,
    /// The last op applied.
    pub(crate) op: Op,
    /// The op of the snapshot that this began with: a replay starts behind it.
    pub(crate) restored: Op,
    /// The highest metadata op that dropped a partition or a consumer group.
    pub(crate) dropped: Op,
    pub(crate) partitions: BTreeMap<PartitionKey, Partition>,

    // This node's own; in no snapshot and no digest.
    pub(crate) tail: Tail,
    pub(crate) indexes: IndexCache,
    pub(crate) changes: Changes,
    /// Bytes of all segments that are not known to be in their files.
    pub(crate) unwritten: u64,
}

/// One partition.
///
/// Invariant: the segments hold exactly the messages up to `next`, and `start` is in the first of them,
/// or equal to `next` when there is none.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) incarnation: Incarnation,
    /// The first offset that is served.
    pub(crate) start: Offset,
    /// The offset of the next message. Comes from snapshot and journal, never from a file's length.
    pub(crate) next: Offset,
    pub(crate) segments: Segments,
    pub(crate) producers: Producers,
    pub(crate) consumers: Offsets,
    pub(crate) consumer_groups: Records,

    // This node's own.
    /// Index of the open segment, or of its beginning; `None` until it is verified after a start.
    pub(crate) index: Option<Index>,
    /// Damaged segments by base. Committed appends go on, for the sake of equal state; nothing is served,
    /// and no append is admitted.
    pub(crate) damage: BTreeMap<Offset, Damage>,
}

/// Where a partition stands, and what a consumer has stored in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The first offset that is served.
    pub start: Offset,
    /// The offset of the next message.
    pub end: Offset,
    /// The last message that the consumer has processed, if it has stored one.
    pub stored: Option<Offset>,
}

impl DataGroup {
    /// A group without partitions.
    #[must_use]
    pub const fn new(config: DataConfig) -> Self {
        Self {
            config,
            op: Op(0),
            restored: Op(0),
            dropped: Op(0),
            partitions: BTreeMap::new(),
            tail: Tail::new(config.tail_budget),
            indexes: IndexCache::new(config.index_budget),
            changes: Changes::new(),
            unwritten: 0,
        }
    }

    /// The group as a snapshot tells. Its files are in order when they are those of
    /// [`crate::files_at`]; the open ones are to be verified (see [`DataGroup::verified`]), then the ops
    /// after the snapshot applied.
    ///
    /// # Errors
    /// When the snapshot is not one of this group that could have been taken.
    pub fn restore(config: DataConfig, snapshot: DataSnapshot) -> Result<Self, SnapshotError> {
        snapshot.check(config.group)?;
        let mut group = Self::new(config);
        group.op = snapshot.op;
        group.restored = snapshot.op;
        group.dropped = snapshot.dropped;
        for partition in snapshot.partitions {
            group
                .partitions
                .insert(partition.key, Partition::restore(partition));
        }
        Ok(group)
    }

    /// The replicated state, to be written once every change asked for so far is carried out and
    /// flushed; see [`DataGroup::checkpointed`].
    #[must_use]
    pub fn snapshot(&self) -> DataSnapshot {
        let partitions = self.partitions.iter();
        DataSnapshot {
            version: SNAPSHOT_VERSION,
            group: self.config.group,
            op: self.op,
            dropped: self.dropped,
            partitions: partitions
                .map(|(key, partition)| partition.snapshot(*key))
                .collect(),
        }
    }

    /// XXH3-128 of the replicated state; equal on replicas that have applied the same ops.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.snapshot().digest()
    }

    /// Which data group it is.
    #[must_use]
    pub const fn group(&self) -> ConsensusGroup {
        self.config.group
    }

    /// The last op applied.
    #[must_use]
    pub const fn op(&self) -> Op {
        self.op
    }

    /// What applied ops ask of the files, in any order. Files that ops have made superfluous are deleted
    /// only after a checkpoint: until then the snapshot of an earlier one may name them.
    pub fn next_change(&mut self) -> Option<SegmentChange> {
        self.changes.next()
    }

    /// A snapshot of the state after `op` is durable: what is in no segment then may be deleted.
    pub fn checkpointed(&mut self, op: Op) {
        self.changes.release(op);
    }

    /// All bytes of `segment` before `through` are in its file, if not yet on the disk: a read of the
    /// file returns them. What is not told so is served from memory, and kept there.
    pub fn appended(&mut self, segment: SegmentId, through: u64) {
        let key = segment.partition;
        let Some(partition) = self.named_mut(segment) else {
            return;
        };
        let Some(tracked) = partition.segments.find(segment.base) else {
            return;
        };
        let from = tracked.written.next;
        let reached = self.tail.mark_written(key, segment.base, from, through);
        if let Some(end) = reached
            && let Some(partition) = self.partitions.get_mut(&key)
            && let Some(tracked) = partition.segments.find_mut(segment.base)
        {
            assert!(end.position <= tracked.segment.length);
            self.unwritten -= end.position - tracked.written.position;
            tracked.written = end;
        }
        self.tail.evict();
    }

    /// Bytes of segments that are asked to be written and not told to be: they are held in memory, so a
    /// producer that outruns the disk must be slowed down by this.
    #[must_use]
    pub const fn unwritten(&self) -> u64 {
        self.unwritten
    }

    /// Bytes that recent batches take in memory, the whole bodies of their prepares included.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        self.tail.charged()
    }

    /// The partitions, with their incarnations, in the order of their keys.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionKey, Incarnation)> {
        let partitions = self.partitions.iter();
        partitions.map(|(key, partition)| (*key, partition.incarnation))
    }

    /// The highest metadata op that dropped a partition or a consumer group.
    #[must_use]
    pub const fn dropped(&self) -> Op {
        self.dropped
    }

    /// The incarnation that the partition has here.
    #[must_use]
    pub fn incarnation(&self, key: PartitionKey) -> Option<Incarnation> {
        self.partitions
            .get(&key)
            .map(|partition| partition.incarnation)
    }

    /// The first offset that the partition serves.
    #[must_use]
    pub fn start(&self, key: PartitionKey) -> Option<Offset> {
        self.partitions.get(&key).map(|partition| partition.start)
    }

    /// The offset of the partition's next message.
    #[must_use]
    pub fn end(&self, key: PartitionKey) -> Option<Offset> {
        self.partitions.get(&key).map(|partition| partition.next)
    }

    /// What a single consumer has stored.
    #[must_use]
    pub fn stored(&self, key: PartitionKey, consumer: &str) -> Option<Offset> {
        self.partitions.get(&key)?.consumers.stored(consumer)
    }

    /// Where the partition stands and what a single consumer has stored in it.
    ///
    /// # Errors
    /// When the partition is not here with this incarnation.
    pub fn position(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
        consumer: &str,
    ) -> Result<Position, Absent> {
        let partition = self.partition(key, incarnation)?;
        Ok(Position {
            start: partition.start,
            end: partition.next,
            stored: partition.consumers.stored(consumer),
        })
    }

    /// The segments of a partition, oldest first.
    #[must_use]
    pub fn segments(&self, key: PartitionKey) -> Vec<Segment> {
        let partition = self.partitions.get(&key);
        partition
            .map(|partition| partition.segments.snapshot())
            .unwrap_or_default()
    }

    /// The end of a segment, if it is here and not damaged.
    #[must_use]
    pub fn end_of_segment(&self, segment: SegmentId) -> Option<Mark> {
        let tracked = self.tracked(segment)?;
        Some(Mark::end_of(&tracked.segment))
    }

    /// How many bytes of a segment are in its file, if it is here and not damaged.
    #[must_use]
    pub fn written_of_segment(&self, segment: SegmentId) -> Option<u64> {
        Some(self.tracked(segment)?.written.position)
    }

    fn tracked(&self, id: SegmentId) -> Option<&TrackedSegment> {
        let partition = self.partition(id.partition, id.incarnation).ok()?;
        let is_sound = id.group == self.config.group && !partition.damage.contains_key(&id.base);
        partition.segments.find(id.base).filter(|_| is_sound)
    }

    /// Takes in what a scan of a segment has found: its index, or its damage, which takes the partition
    /// out of service on this node. Changes no replicated state.
    pub fn verified(&mut self, segment: SegmentId, verdict: Verdict) {
        match verdict {
            Verdict::Whole(index) => self.install_index(segment, index),
            Verdict::Damaged(damage) => {
                self.mark_damaged(segment, damage);
            }
        }
    }

    /// Takes the partition of a segment out of service on this node, until the segment is removed. Says
    /// whether that is new.
    pub fn mark_damaged(&mut self, segment: SegmentId, damage: Damage) -> bool {
        if let Some(partition) = self.named_mut(segment)
            && partition.segments.find(segment.base).is_some()
            && !partition.damage.contains_key(&segment.base)
        {
            partition.damage.insert(segment.base, damage);
            return true;
        }
        false
    }

    /// Whether a partition is out of service on this node.
    #[must_use]
    pub fn is_damaged(&self, key: PartitionKey) -> bool {
        let partition = self.partitions.get(&key);
        partition.is_some_and(|partition| !partition.damage.is_empty())
    }

    /// Every damaged segment that is known.
    pub fn damaged(&self) -> impl Iterator<Item = (SegmentId, &Damage)> {
        self.partitions.iter().flat_map(|(key, partition)| {
            let id = |base: &Offset| self.segment_id(*key, partition, *base);
            partition
                .damage
                .iter()
                .map(move |(base, damage)| (id(base), damage))
        })
    }

    /// The first damaged segment after `last`, in the order of their names.
    #[must_use]
    pub fn next_damaged(&self, last: Option<SegmentId>) -> Option<SegmentId> {
        let mut damaged = self.damaged().map(|(id, _)| id);
        damaged.find(|id| last.is_none_or(|last| *id > last))
    }

    /// A scan of what is written of a damaged segment, from its beginning: of bytes that are to take the place
    /// of those in the file. None when the segment is not here any more, or not damaged.
    #[must_use]
    pub fn scan_anew(&self, segment: SegmentId) -> Option<Scan> {
        let partition = self.partition(segment.partition, segment.incarnation);
        let partition = partition.ok()?;
        let is_damaged =
            segment.group == self.config.group && partition.damage.contains_key(&segment.base);
        let tracked = partition.segments.find(segment.base);
        let written = tracked.filter(|_| is_damaged)?.written;
        let has_bytes = written.position > 0;
        has_bytes.then(|| Scan::resume(segment, Index::new(segment.base), written))
    }

    /// Bytes that a scan of [`DataGroup::scan_anew`] has judged are in the segment's file, and on the disk: it is
    /// damaged no more, and its partition is in service again unless another segment is. Says whether it was.
    pub fn mended(&mut self, segment: SegmentId, index: Index) -> bool {
        if self.scan_anew(segment).is_none() {
            return false;
        }
        if let Some(partition) = self.named_mut(segment) {
            partition.damage.remove(&segment.base);
        }
        self.install_index(segment, index);
        true
    }

    /// A scan of what is written of a segment, if the partition has it. It begins where the index ends,
    /// if that is in memory: what an index was built from was judged then. [`Scan::new`] begins at the
    /// beginning.
    #[must_use]
    pub fn scan(&self, segment: SegmentId) -> Option<Scan> {
        let partition = self.partitions.get(&segment.partition)?;
        if partition.incarnation != segment.incarnation || segment.group != self.config.group {
            return None;
        }
        let tracked = partition.segments.find(segment.base)?;
        let written = tracked.written;
        let known = self.index(segment, partition);
        let index = known
            .filter(|index| index.covered() <= written.position)
            .cloned()
            .unwrap_or_else(|| Index::new(segment.base));
        Some(Scan::resume(segment, index, written))
    }

    /// A scan from its beginning of the first full segment after `last`, in the order of their names, that is
    /// whole in its file as far as known.
    #[must_use]
    pub fn next_full(&self, last: Option<SegmentId>) -> Option<Scan> {
        let group = self.config.group;
        let last = last.filter(|last| last.group == group);
        let from = last.map_or(Bound::Unbounded, |last| Bound::Included(last.partition));
        let mut partitions = self.partitions.range((from, Bound::Unbounded));
        partitions.find_map(|(key, partition)| {
            let mut files = partition.segments.full();
            let file = files.find_map(|segment| {
                let id = self.segment_id(*key, partition, segment.base);
                let is_whole = !partition.damage.contains_key(&segment.base);
                let is_next = last.is_none_or(|last| id > last);
                let open = false;
                (is_next && is_whole).then_some(SegmentFile { id, segment, open })
            })?;
            Some(Scan::new(&file))
        })
    }

    /// Keeps an index; one that ends too early is extended by what is in memory.
    pub(crate) fn install_index(&mut self, id: SegmentId, mut index: Index) {
        let Some(partition) = self.partitions.get_mut(&id.partition) else {
            return;
        };
        let tracked = partition.segments.find(id.base);
        let Some(tracked) = tracked.filter(|_| partition.incarnation == id.incarnation) else {
            return;
        };
        let known = if partition.is_open(id.base) {
            partition.index.as_ref()
        } else {
            self.indexes.find(id)
        };
        if known.is_some_and(|known| known.covered() > index.covered()) {
            return;
        }
        while let Some(batch) = self.tail.at(id.partition, index.next()) {
            if batch.segment != id.base {
                break;
            }
            let header = batch.header();
            index.push(&header, batch.end.checksum);
        }
        if partition.is_open(id.base) {
            partition.index = Some(index);
        } else {
            if index.is_of(&tracked.segment) {
                self.changes.write_index(id, index.encode(id.base));
            }
            self.indexes.insert(id, index);
        }
    }

    /// The index of a segment, as far as it is in memory.
    pub(crate) fn index<'a>(
        &'a self,
        id: SegmentId,
        partition: &'a Partition,
    ) -> Option<&'a Index> {
        if partition.is_open(id.base) {
            partition.index.as_ref()
        } else {
            self.indexes.find(id)
        }
    }

    /// The partition, if it has this incarnation.
    pub(crate) fn partition(
        &self,
        key: PartitionKey,
        incarnation: Incarnation,
    ) -> Result<&Partition, Absent> {
        let partition = self.partitions.get(&key).ok_or(Absent::NotHere)?;
        partition.check(incarnation)?;
        Ok(partition)
    }

    /// The partition, if it has this incarnation.
    pub(crate) fn partition_mut(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
    ) -> Result<&mut Partition, Absent> {
        let partition = self.partitions.get_mut(&key).ok_or(Absent::NotHere)?;
        partition.check(incarnation)?;
        Ok(partition)
    }

    /// The partition that a segment is named after.
    fn named_mut(&mut self, segment: SegmentId) -> Option<&mut Partition> {
        if segment.group == self.config.group {
            self.partition_mut(segment.partition, segment.incarnation)
                .ok()
        } else {
            None
        }
    }

    pub(crate) const fn segment_id(
        &self,
        key: PartitionKey,
        partition: &Partition,
        base: Offset,
    ) -> SegmentId {
        SegmentId {
            group: self.config.group,
            partition: key,
            incarnation: partition.incarnation,
            base,
        }
    }
}

impl Partition {
    /// An empty partition whose first message gets the offset `begin`.
    pub(crate) fn new(incarnation: Incarnation, begin: Offset) -> Self {
        Self {
            incarnation,
            start: begin,
            next: begin,
            segments: Segments::default(),
            producers: Producers::default(),
            consumers: Offsets::default(),
            consumer_groups: Records::default(),
            index: None,
            damage: BTreeMap::new(),
        }
    }

    fn restore(snapshot: PartitionSnapshot) -> Self {
        Self {
            incarnation: snapshot.incarnation,
            start: snapshot.start,
            next: snapshot.next,
            segments: Segments::restore(snapshot.segments),
            producers: Producers::restore(snapshot.producers),
            consumers: Offsets::restore(snapshot.consumers),
            consumer_groups: Records::restore(snapshot.groups.iter().map(GroupSnapshot::record)),
            index: None,
            damage: BTreeMap::new(),
        }
    }

    fn snapshot(&self, key: PartitionKey) -> PartitionSnapshot {
        PartitionSnapshot {
            key,
            incarnation: self.incarnation,
            start: self.start,
            next: self.next,
            segments: self.segments.snapshot(),
            producers: self.producers.snapshot(),
            consumers: self.consumers.snapshot(),
            groups: self.consumer_groups.iter().map(GroupSnapshot::of).collect(),
        }
    }

    const fn check(&self, named: Incarnation) -> Result<(), Absent> {
        let here = self.incarnation;
        if here.0 == named.0 {
            Ok(())
        } else {
            Err(Absent::OtherIncarnation { here, named })
        }
    }

    /// Whether the segment with this base is the one that is appended to.
    pub(crate) fn is_open(&self, base: Offset) -> bool {
        self.segments
            .open()
            .is_some_and(|open| open.segment.base == base)
    }

    /// Bytes that are not known to be in the files.
    pub(crate) fn unwritten(&self) -> u64 {
        self.segments
            .iter()
            .map(|tracked| tracked.unwritten())
            .sum()
    }

    pub(crate) fn assert_invariants(&self) {
        assert!(self.start <= self.next);
        match (self.segments.first(), self.segments.open()) {
            (Some(first), Some(last)) => {
                assert!(first.segment.base <= self.start);
                assert!(self.start < first.segment.next());
                assert!(last.segment.next() == self.next);
            }
            (None, None) => assert!(self.start == self.next),
            (Some(_), None) | (None, Some(_)) => unreachable!("a first segment is a last one"),
        }
    }
}
