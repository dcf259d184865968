//! The sparse index of a segment, by offset and by time.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use bytes::Bytes;
use wire::{
    BatchHeader, DecodeError, Offset, PartitionKey, Problem, Reader, Timestamp, Writer, checksum64,
};

use crate::{Mark, Segment, SegmentId};

/// Bytes of a segment between two entries, at least; less than one batch more.
pub(crate) const INDEX_INTERVAL: u64 = 64 * 1024;

/// The first bytes of an index file.
const MAGIC: u32 = u32::from_le_bytes(*b"CIDX");

/// Version of the file's layout.
const VERSION: u32 = 1;

/// Bytes before the entries.
const HEADER_SIZE: usize = 4 + 4 + 8 + 8 + 8 + 8 + 4;

/// Bytes of an entry.
const ENTRY_SIZE: usize = 8 + 8 + 8;

/// Bytes that an index costs in memory besides its entries.
const OVERHEAD: u64 = 128;

/// Where a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Offset of its first message.
    pub(crate) offset: Offset,
    /// Its broker time.
    pub(crate) timestamp: Timestamp,
    /// Its position in the segment.
    pub(crate) position: u64,
}

/// A stretch of a segment, from the beginning of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The first batch of it.
    pub(crate) first: IndexEntry,
    /// Its end, the beginning or end of a batch too.
    pub(crate) end: u64,
}

/// The index of a segment, or of its beginning.
///
/// File, little-endian: `magic u32, version u32, base u64, length u64, messages u64, segment checksum
/// u64, count u32`, then per entry `offset u64, timestamp u64, position u64`, then XXH3-64 of all before.
/// Length and checksum tie it to the segment's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The first batch of the segment, and then the first batch of every interval.
    entries: Vec<IndexEntry>,
    /// Bytes of the segment that are covered; the end of a batch.
    covered: u64,
    /// The offset after the last message covered.
    next: Offset,
    /// Chain over the headers covered.
    checksum: u64,
}

impl Index {
    /// Of a segment that holds nothing yet.
    pub(crate) const fn new(base: Offset) -> Self {
        Self {
            entries: Vec::new(),
            covered: 0,
            next: base,
            checksum: 0,
        }
    }

    /// Of a segment whose beginning, up to `mark`, is not looked at: without entries for it.
    pub(crate) const fn behind(mark: Mark) -> Self {
        Self {
            entries: Vec::new(),
            covered: mark.position,
            next: mark.next,
            checksum: mark.checksum,
        }
    }

    /// Takes in the next batch, after which the chain is `checksum`.
    pub(crate) fn push(&mut self, header: &BatchHeader, checksum: u64) {
        let due = match self.entries.last() {
            Some(last) => self.covered - last.position >= INDEX_INTERVAL,
            None => true,
        };
        if due {
            self.entries.push(IndexEntry {
                offset: Offset(header.base_offset),
                timestamp: Timestamp(header.timestamp),
                position: self.covered,
            });
        }
        self.covered += u64::from(header.size);
        self.next = header.last_offset().next();
        self.checksum = checksum;
    }

    /// Bytes covered.
    pub(crate) const fn covered(&self) -> u64 {
        self.covered
    }

    /// The offset after the last message covered.
    pub(crate) const fn next(&self) -> Offset {
        self.next
    }

    /// Chain over the headers covered.
    pub(crate) const fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Whether it is the index of the whole segment as it is now.
    pub(crate) fn is_of(&self, segment: &Segment) -> bool {
        self.covered == segment.length
            && self.next == segment.next()
            && self.checksum == segment.checksum
    }

    /// The stretch that holds the message at `offset`, if it is covered.
    pub(crate) fn stretch_of(&self, offset: Offset) -> Option<Stretch> {
        if offset >= self.next {
            return None;
        }
        self.stretch(self.entries.partition_point(|entry| entry.offset <= offset))
    }

    /// The stretch that holds the first batch at `time` or later, if it is behind the first one and
    /// covered.
    pub(crate) fn stretch_reaching(&self, time: Timestamp) -> Option<Stretch> {
        self.stretch(self.entries.partition_point(|entry| entry.timestamp < time))
    }

    /// From the entry before the one numbered `after`, to that one or to the end, and with it.
    fn stretch(&self, after: usize) -> Option<Stretch> {
        let first = *self.entries.get(after.checked_sub(1)?)?;
        let end = match self.entries.get(after) {
            Some(entry) => entry.position,
            None => self.covered,
        };
        Some(Stretch { first, end })
    }

    /// How far to read for the batches that end at `limit` or before: between there and `limit` only a
    /// batch begins that ends behind it.
    pub(crate) fn worth_reading(&self, limit: u64) -> u64 {
        let after = self
            .entries
            .partition_point(|entry| entry.position <= limit);
        let last = after.checked_sub(1).and_then(|last| self.entries.get(last));
        match last {
            // The batch that crosses the interval is the last one before the next entry.
            Some(entry) if limit < self.covered => limit.min(entry.position + INDEX_INTERVAL),
            Some(_) | None => limit,
        }
    }

    /// Bytes that the index file of a segment of `length` bytes takes at the most.
    pub(crate) const fn file_size_max(length: u64) -> u64 {
        let entries = length / INDEX_INTERVAL + 1;
        (HEADER_SIZE + 8) as u64 + entries * ENTRY_SIZE as u64
    }

    /// The index file.
    pub(crate) fn encode(&self, base: Offset) -> Bytes {
        let size = HEADER_SIZE + self.entries.len() * ENTRY_SIZE + 8;
        let mut writer = Writer::with_capacity(size);
        writer
            .u32(MAGIC)
            .u32(VERSION)
            .u64(base.0)
            .u64(self.covered)
            .u64(self.next.0 - base.0)
            .u64(self.checksum)
            .count(self.entries.len());
        for entry in &self.entries {
            writer
                .u64(entry.offset.0)
                .u64(entry.timestamp.0)
                .u64(entry.position);
        }
        let mut file = writer.into_vec();
        let checksum = checksum64(&file);
        file.extend_from_slice(&checksum.to_le_bytes());
        Bytes::from(file)
    }

    /// Reads the index file of `segment`.
    ///
    /// # Errors
    /// Names the first field that is wrong; the index must be built from the segment then.
    pub(crate) fn decode(file: &Bytes, segment: &Segment) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(file.clone());
        expect(&mut reader, "index magic", u64::from(MAGIC), |r, f| {
            r.u32(f).map(u64::from)
        })?;
        expect(&mut reader, "index version", u64::from(VERSION), |r, f| {
            r.u32(f).map(u64::from)
        })?;
        expect(&mut reader, "index base", segment.base.0, Reader::u64)?;
        expect(&mut reader, "index length", segment.length, Reader::u64)?;
        expect(&mut reader, "index messages", segment.messages, Reader::u64)?;
        expect(
            &mut reader,
            "index segment checksum",
            segment.checksum,
            Reader::u64,
        )?;
        let count = reader.count("index count", ENTRY_SIZE)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(IndexEntry {
                offset: Offset(reader.u64("index offset")?),
                timestamp: Timestamp(reader.u64("index timestamp")?),
                position: reader.u64("index position")?,
            });
        }
        let checksum = checksum64(&file[..reader.position()]);
        expect(&mut reader, "index checksum", checksum, Reader::u64)?;
        let end = reader.clone();
        reader.finish()?;
        if !is_plausible(&entries, segment) {
            return Err(end.error("index entries", Problem::Checksum));
        }
        Ok(Self {
            entries,
            covered: segment.length,
            next: segment.next(),
            checksum: segment.checksum,
        })
    }

    /// Bytes that it takes in memory.
    fn size(&self) -> u64 {
        OVERHEAD + (self.entries.len() * size_of::<IndexEntry>()) as u64
    }
}

fn expect(
    reader: &mut Reader,
    field: &'static str,
    wanted: u64,
    read: impl FnOnce(&mut Reader, &'static str) -> Result<u64, DecodeError>,
) -> Result<(), DecodeError> {
    let start = reader.clone();
    let value = read(reader, field)?;
    if value == wanted {
        Ok(())
    } else {
        Err(start.error(field, Problem::Invalid { value }))
    }
}

/// Whether the entries could be those of `segment`: a look-up must not go astray, whoever wrote the file.
fn is_plausible(entries: &[IndexEntry], segment: &Segment) -> bool {
    let Some(first) = entries.first() else {
        return false;
    };
    let rises = entries.windows(2).all(|pair| {
        pair[0].offset < pair[1].offset
            && pair[0].position < pair[1].position
            && pair[0].timestamp <= pair[1].timestamp
    });
    let inside = entries.iter().all(|entry| {
        entry.offset < segment.next()
            && entry.position < segment.length
            && entry.timestamp <= segment.last_timestamp
    });
    let begins = first.offset == segment.base
        && first.position == 0
        && first.timestamp == segment.first_timestamp;
    begins && rises && inside
}

/// Indexes of segments that are full, within a budget; the one that came first goes first.
#[derive(Clone, Debug)]
pub(crate) struct IndexCache {
    budget: u64,
    size: u64,
    by_segment: BTreeMap<SegmentId, Index>,
    /// In the order in which they came.
    order: VecDeque<SegmentId>,
}

impl IndexCache {
    pub(crate) const fn new(budget: u64) -> Self {
        Self {
            budget,
            size: 0,
            by_segment: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(crate) fn find(&self, segment: SegmentId) -> Option<&Index> {
        self.by_segment.get(&segment)
    }

    /// Keeps an index; the newest stays even if it exceeds the budget by itself.
    pub(crate) fn insert(&mut self, segment: SegmentId, index: Index) {
        self.remove(segment);
        self.size += index.size();
        self.by_segment.insert(segment, index);
        self.order.push_back(segment);
        while self.size > self.budget && self.order.len() > 1 {
            let oldest = self.order.pop_front().expect("there is more than one");
            self.forget(oldest);
        }
    }

    pub(crate) fn remove(&mut self, segment: SegmentId) {
        if self.forget(segment) {
            self.order.retain(|other| *other != segment);
        }
    }

    /// Removes all of a partition, whatever the incarnation.
    pub(crate) fn remove_partition(&mut self, partition: PartitionKey) {
        self.by_segment
            .retain(|segment, _| segment.partition != partition);
        self.order.retain(|segment| segment.partition != partition);
        self.size = self.by_segment.values().map(Index::size).sum();
    }

    fn forget(&mut self, segment: SegmentId) -> bool {
        match self.by_segment.remove(&segment) {
            Some(index) => {
                self.size -= index.size();
                true
            }
            None => false,
        }
    }
}
