//! The replicated state as it is written to a snapshot.

use alloc::{collections::BTreeSet, string::String, vec::Vec};

use wire::{
    ConsensusGroup, ConsumerGroupId, Epoch, Incarnation, MemberId, Offset, Op, PartitionKey,
    ProducerId, SessionNumber, Timestamp, Writer, checksum128,
};

use crate::{EpochHolder, GroupRecord, Segment, SegmentFile, SegmentId, StartAt};

/// The version that this crate writes.
pub const SNAPSHOT_VERSION: u16 = 2;

/// The state of a data group after an op.
///
/// Encoded by position: a field's place and meaning never change, and new ones come at the end with
/// `serde(default)`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DataSnapshot {
    /// [`SNAPSHOT_VERSION`] when it was written.
    pub version: u16,
    /// The data group.
    pub group: ConsensusGroup,
    /// The last op that changed or refused anything.
    pub op: Op,
    /// The highest metadata op that dropped a partition of the data group, or a consumer group.
    pub dropped: Op,
    /// The partitions, in the order of their keys.
    pub partitions: Vec<PartitionSnapshot>,
}

/// One partition in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PartitionSnapshot {
    /// The partition.
    pub key: PartitionKey,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The first offset that is served.
    pub start: Offset,
    /// The offset of the next message.
    pub next: Offset,
    /// The segments, in the order of their bases; without holes up to `next`.
    pub segments: Vec<Segment>,
    /// The producers, in the order of their ids.
    pub producers: Vec<ProducerSnapshot>,
    /// Offsets stored by single consumers, in the order of the names.
    pub consumers: Vec<(String, Offset)>,
    /// What consumer groups have, in the order of their ids; none before version 2.
    #[serde(default)]
    pub groups: Vec<GroupSnapshot>,
}

/// What a consumer group has in a partition, in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupSnapshot {
    /// The consumer group.
    pub group: ConsumerGroupId,
    /// The fence, above 0.
    pub fence: Epoch,
    /// Whose it is; 0: nobody's.
    pub member: MemberId,
    /// The holder's session; 0 where there is no holder.
    pub session: SessionNumber,
    /// The offset stored.
    pub stored: Option<Offset>,
    /// Where the group starts, if that is known by offset and nothing is stored.
    pub start: Option<Offset>,
    /// Where the group starts, if that is known by time only and nothing is stored.
    pub start_time: Option<Timestamp>,
}

/// One producer of a partition in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProducerSnapshot {
    /// Its id.
    pub id: ProducerId,
    /// The sequence of its last batch.
    pub sequence: u64,
    /// Base offset and checksum of its last batches, the newest last; sequences count without holes.
    pub batches: Vec<(Offset, u64)>,
}

/// Why a snapshot cannot be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Written by a newer version.
    #[error("snapshot version {version} is newer than {SNAPSHOT_VERSION}")]
    Version {
        /// The version.
        version: u16,
    },
    /// Of another data group.
    #[error("snapshot of group {found}, not of {wanted}")]
    Group {
        /// The group in the snapshot.
        found: ConsensusGroup,
        /// The group that it was given to.
        wanted: ConsensusGroup,
    },
    /// Something in a partition contradicts itself.
    #[error("snapshot of partition {key}: {what}")]
    Partition {
        /// The partition.
        key: PartitionKey,
        /// What is wrong.
        what: &'static str,
    },
}

/// The segment files that a snapshot rests on. At start the shell cuts each to its length, deletes what
/// else it finds in the group's directory, and verifies those that are open (see [`crate::Scan`]);
/// replaying the journal writes the rest again.
#[must_use]
pub fn files_at(snapshot: &DataSnapshot) -> Vec<SegmentFile> {
    let mut files = Vec::new();
    for partition in &snapshot.partitions {
        let open = partition.segments.len().saturating_sub(1);
        for (index, segment) in partition.segments.iter().enumerate() {
            files.push(SegmentFile {
                id: SegmentId {
                    group: snapshot.group,
                    partition: partition.key,
                    incarnation: partition.incarnation,
                    base: segment.base,
                },
                segment: *segment,
                open: index == open,
            });
        }
    }
    files
}

impl DataSnapshot {
    /// XXH3-128 of the state; equal on replicas whose states are equal.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut writer = Writer::new();
        writer
            .u16(self.group.0)
            .u64(self.op.0)
            .u64(self.dropped.0)
            .count(self.partitions.len());
        for partition in &self.partitions {
            partition.write(&mut writer);
        }
        // At the end, and only where there are any: without groups the digest is that of version 1.
        for partition in &self.partitions {
            partition.write_groups(&mut writer);
        }
        checksum128(&writer.into_vec())
    }

    /// Checks what the state machine relies on.
    ///
    /// # Errors
    /// Names the first contradiction.
    pub(crate) fn check(&self, group: ConsensusGroup) -> Result<(), SnapshotError> {
        if self.version > SNAPSHOT_VERSION {
            let version = self.version;
            return Err(SnapshotError::Version { version });
        }
        if self.group != group {
            let (found, wanted) = (self.group, group);
            return Err(SnapshotError::Group { found, wanted });
        }
        let mut last = None;
        for partition in &self.partitions {
            let key = partition.key;
            let fail = |what| SnapshotError::Partition { key, what };
            if last.is_some_and(|last| last >= key) {
                return Err(fail("is not in the order of keys"));
            }
            partition.check().map_err(fail)?;
            last = Some(key);
        }
        Ok(())
    }
}

impl PartitionSnapshot {
    fn write(&self, writer: &mut Writer) {
        writer
            .u64(self.key.stream.0)
            .u64(self.key.topic.0)
            .u32(self.key.partition.0)
            .u64(self.incarnation.0)
            .u64(self.start.0)
            .u64(self.next.0)
            .count(self.segments.len());
        for segment in &self.segments {
            writer
                .u64(segment.base.0)
                .u64(segment.length)
                .u64(segment.messages)
                .u64(segment.first_timestamp.0)
                .u64(segment.last_timestamp.0)
                .u64(segment.checksum);
        }
        writer.count(self.producers.len());
        for producer in &self.producers {
            writer
                .u128(producer.id.0)
                .u64(producer.sequence)
                .count(producer.batches.len());
            for (offset, checksum) in &producer.batches {
                writer.u64(offset.0).u64(*checksum);
            }
        }
        writer.count(self.consumers.len());
        for (name, offset) in &self.consumers {
            writer.bytes32(name.as_bytes()).u64(offset.0);
        }
    }

    fn write_groups(&self, writer: &mut Writer) {
        if self.groups.is_empty() {
            return;
        }
        writer
            .u64(self.key.stream.0)
            .u64(self.key.topic.0)
            .u32(self.key.partition.0)
            .count(self.groups.len());
        for group in &self.groups {
            group.write(writer);
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        self.check_segments()?;
        self.check_groups()?;
        self.check_producers()?;
        if !self.consumers.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err("consumers are not in the order of names");
        }
        if self
            .consumers
            .iter()
            .any(|(_, offset)| *offset >= self.next)
        {
            return Err("a stored offset is beyond the end");
        }
        Ok(())
    }

    fn check_segments(&self) -> Result<(), &'static str> {
        if self.start > self.next {
            return Err("the start is behind the end");
        }
        let mut expected = None;
        let mut time = None;
        for segment in &self.segments {
            if segment.length == 0 || segment.messages == 0 {
                return Err("a segment is empty");
            }
            if segment.base.0.checked_add(segment.messages).is_none() {
                return Err("a segment's offsets overflow");
            }
            if expected.is_some_and(|expected| expected != segment.base) {
                return Err("segments leave a hole or overlap");
            }
            if segment.first_timestamp > segment.last_timestamp
                || time.is_some_and(|time| time > segment.first_timestamp)
            {
                return Err("segments' times fall");
            }
            expected = Some(segment.next());
            time = Some(segment.last_timestamp);
        }
        match self.segments.first() {
            Some(first) if self.start < first.base || self.start >= first.next() => {
                Err("the start is not in the first segment")
            }
            Some(_) if expected != Some(self.next) => Err("segments do not reach the end"),
            None if self.start != self.next => Err("messages are in no segment"),
            Some(_) | None => Ok(()),
        }
    }

    fn check_groups(&self) -> Result<(), &'static str> {
        if !self.groups.is_sorted_by(|a, b| a.group < b.group) {
            return Err("consumer groups are not in the order of ids");
        }
        self.groups.iter().try_for_each(|group| group.check(self))
    }

    fn check_producers(&self) -> Result<(), &'static str> {
        if !self.producers.is_sorted_by(|a, b| a.id < b.id) {
            return Err("producers are not in the order of ids");
        }
        let mut lasts = BTreeSet::new();
        for producer in &self.producers {
            let batches = &producer.batches;
            if batches.is_empty() || batches.len() as u64 > producer.sequence {
                return Err("a producer's batches do not fit its sequence");
            }
            if !batches.is_sorted_by(|(a, _), (b, _)| a < b)
                || batches.iter().any(|(offset, _)| *offset >= self.next)
            {
                return Err("a producer's batches are out of order");
            }
            if batches.last().is_some_and(|(last, _)| !lasts.insert(*last)) {
                return Err("two producers have sent one batch");
            }
        }
        Ok(())
    }
}

impl GroupSnapshot {
    pub(crate) fn of((group, record): (ConsumerGroupId, GroupRecord)) -> Self {
        let (start, start_time) = match record.start {
            Some(StartAt::Offset(offset)) => (Some(offset), None),
            Some(StartAt::Time(time)) => (None, Some(time)),
            None => (None, None),
        };
        let holder = record.holder;
        Self {
            group,
            fence: record.fence,
            member: holder.map_or(MemberId(0), |holder| holder.member),
            session: holder.map_or(SessionNumber(0), |holder| holder.session),
            stored: record.stored,
            start,
            start_time,
        }
    }

    pub(crate) fn record(&self) -> (ConsumerGroupId, GroupRecord) {
        let holder = EpochHolder {
            member: self.member,
            session: self.session,
        };
        let time = self.start_time.map(StartAt::Time);
        let record = GroupRecord {
            fence: self.fence,
            holder: (self.member != MemberId(0)).then_some(holder),
            stored: self.stored,
            start: self.start.map(StartAt::Offset).or(time),
        };
        (self.group, record)
    }

    fn write(&self, writer: &mut Writer) {
        let Self {
            group,
            fence,
            member,
            session,
            stored,
            start,
            start_time,
        } = self;
        writer
            .u64(group.0)
            .u64(fence.0)
            .u64(member.0)
            .u64(session.0);
        let time = start_time.map(|time| time.0);
        for number in [
            stored.map(|offset| offset.0),
            start.map(|offset| offset.0),
            time,
        ] {
            writer.u8(u8::from(number.is_some()));
            writer.u64(number.unwrap_or_default());
        }
    }

    fn check(&self, partition: &PartitionSnapshot) -> Result<(), &'static str> {
        if self.fence == Epoch(0) {
            return Err("a consumer group has no fence");
        }
        if self.member == MemberId(0) && self.session != SessionNumber(0) {
            return Err("a consumer group's fence has a session and no member");
        }
        let reached = [
            self.stored.is_some(),
            self.start.is_some(),
            self.start_time.is_some(),
        ];
        if reached.into_iter().filter(|there| *there).count() > 1 {
            return Err("a consumer group is at two places");
        }
        if self.stored.is_some_and(|stored| stored >= partition.next) {
            return Err("a consumer group's stored offset is beyond the end");
        }
        if self.start.is_some_and(|start| start > partition.next) {
            return Err("a consumer group's start is beyond the end");
        }
        Ok(())
    }
}
