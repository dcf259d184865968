//! The segments of one partition.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{BatchHeader, Offset, Timestamp, checksum64};

use crate::Segment;

/// The segments of one partition, oldest first, without holes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    list: VecDeque<TrackedSegment>,
}

/// The end of a batch in its segment: names everything before it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its position.
    pub position: u64,
    /// The offset after the last message.
    pub next: Offset,
    /// The chain up to here.
    pub checksum: u64,
}

/// A segment and how much of it this node has written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackedSegment {
    /// What is replicated.
    pub(crate) segment: Segment,
    /// How far it is known to be in its file.
    pub(crate) written: Mark,
}

/// Where a batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The segment's base.
    pub(crate) base: Offset,
    /// Position of the batch in it.
    pub(crate) position: u64,
    /// Whether the batch begins the segment.
    pub(crate) begins: bool,
}

/// Extends the chain over a segment's headers by one. The stamped header names the batch: it holds its
/// offset, its time, and the checksum of its messages.
pub(crate) fn chain(checksum: u64, header: &BatchHeader) -> u64 {
    let mut link = [0; 8 + size_of::<BatchHeader>()];
    link[..8].copy_from_slice(&checksum.to_le_bytes());
    link[8..].copy_from_slice(header.as_bytes());
    checksum64(&link)
}

impl Segments {
    /// Where a batch of `size` bytes with base offset `next` goes. A segment is closed before it would
    /// exceed `segment_size`, never in the middle of a batch.
    pub(crate) fn place(&self, size: u32, next: Offset, segment_size: u64) -> Place {
        match self.list.back() {
            Some(TrackedSegment { segment, .. })
                if segment.length + u64::from(size) <= segment_size =>
            {
                Place {
                    base: segment.base,
                    position: segment.length,
                    begins: false,
                }
            }
            Some(_) | None => Place {
                base: next,
                position: 0,
                begins: true,
            },
        }
    }

    /// Appends a stamped batch at its place. Returns where it ends.
    pub(crate) fn append(&mut self, place: Place, header: &BatchHeader) -> Mark {
        let timestamp = Timestamp(header.timestamp);
        let base_offset = Offset(header.base_offset);
        if place.begins {
            assert!(place.base == base_offset);
            self.list.push_back(TrackedSegment {
                segment: Segment {
                    base: base_offset,
                    length: 0,
                    messages: 0,
                    first_timestamp: timestamp,
                    last_timestamp: timestamp,
                    checksum: 0,
                },
                written: Mark {
                    position: 0,
                    next: base_offset,
                    checksum: 0,
                },
            });
        }
        let last = self.list.back_mut().expect("the place's segment");
        let segment = &mut last.segment;
        assert!(segment.base == place.base);
        assert!(segment.length == place.position);
        assert!(segment.next() == base_offset);
        // Timestamps of prepares only rise (V16).
        assert!(segment.last_timestamp <= timestamp);
        segment.length += u64::from(header.size);
        segment.messages += u64::from(header.count);
        segment.last_timestamp = timestamp;
        segment.checksum = chain(segment.checksum, header);
        Mark::end_of(segment)
    }

    /// The segment that is appended to.
    pub(crate) fn open(&self) -> Option<&TrackedSegment> {
        self.list.back()
    }

    /// The oldest segment.
    pub(crate) fn first(&self) -> Option<&TrackedSegment> {
        self.list.front()
    }

    /// The segment with this base.
    pub(crate) fn find(&self, base: Offset) -> Option<&TrackedSegment> {
        let index = self.index(base)?;
        self.list.get(index)
    }

    /// The segment with this base.
    pub(crate) fn find_mut(&mut self, base: Offset) -> Option<&mut TrackedSegment> {
        let index = self.index(base)?;
        self.list.get_mut(index)
    }

    fn index(&self, base: Offset) -> Option<usize> {
        let search = |tracked: &TrackedSegment| tracked.segment.base.cmp(&base);
        self.list.binary_search_by(search).ok()
    }

    /// The segment that holds the message at `offset`.
    pub(crate) fn containing(&self, offset: Offset) -> Option<&TrackedSegment> {
        let after = self
            .list
            .partition_point(|tracked| tracked.segment.base <= offset);
        let tracked = self.list.get(after.checked_sub(1)?)?;
        (offset < tracked.segment.next()).then_some(tracked)
    }

    /// The first segment with a batch at `time` or later.
    pub(crate) fn reaching(&self, time: Timestamp) -> Option<&TrackedSegment> {
        let index = self
            .list
            .partition_point(|tracked| tracked.segment.last_timestamp < time);
        self.list.get(index)
    }

    /// Removes the segments all of whose messages are before `offset`.
    pub(crate) fn remove_before(&mut self, offset: Offset) -> Vec<TrackedSegment> {
        let count = self
            .list
            .partition_point(|tracked| tracked.segment.next() <= offset);
        self.list.drain(..count).collect()
    }

    /// All segments, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TrackedSegment> {
        self.list.iter()
    }

    pub(crate) fn snapshot(&self) -> Vec<Segment> {
        self.list.iter().map(|tracked| tracked.segment).collect()
    }

    /// Those to which nothing is appended any more and that are in their files.
    pub(crate) fn full(&self) -> impl Iterator<Item = Segment> {
        let count = self.list.len().saturating_sub(1);
        let full = self.list.iter().take(count);
        let written = full.filter(|it| it.written == Mark::end_of(&it.segment));
        written.map(|tracked| tracked.segment)
    }

    /// The segments of a snapshot: it is durable only after they are.
    pub(crate) fn restore(segments: Vec<Segment>) -> Self {
        let tracked = segments.into_iter().map(|segment| TrackedSegment {
            segment,
            written: Mark::end_of(&segment),
        });
        Self {
            list: tracked.collect(),
        }
    }
}

impl Mark {
    /// The end of the segment as it is now.
    #[must_use]
    pub const fn end_of(segment: &Segment) -> Self {
        Self {
            position: segment.length,
            next: segment.next(),
            checksum: segment.checksum,
        }
    }
}

impl TrackedSegment {
    /// Bytes that are not known to be in the file.
    pub(crate) const fn unwritten(&self) -> u64 {
        self.segment.length - self.written.position
    }
}
