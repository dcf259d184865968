//! The bytes of one file: what a process sees, what survives.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::random::Random;

/// One file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What survives for sure.
    durable: Vec<u8>,
    /// What a process reads.
    current: Vec<u8>,
    /// The changes from one to the other, oldest first.
    pending: VecDeque<(u64, Change)>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { position: usize, bytes: Bytes },
    Size(usize),
}

impl File {
    pub(super) fn size(&self) -> u64 {
        self.current.len() as u64
    }

    pub(super) fn read(&self, position: u64, length: u64) -> Bytes {
        let start = index(position).min(self.current.len());
        let end = start.saturating_add(index(length)).min(self.current.len());
        Bytes::copy_from_slice(&self.current[start..end])
    }

    pub(super) fn write(&mut self, number: u64, position: u64, bytes: Bytes) {
        let position = index(position);
        self.change(number, Change::Write { position, bytes });
    }

    pub(super) fn set_size(&mut self, number: u64, size: u64) {
        self.change(number, Change::Size(index(size)));
    }

    fn change(&mut self, number: u64, change: Change) {
        change.apply(&mut self.current);
        self.pending.push_back((number, change));
    }

    pub(super) fn flushed(&mut self, through: u64) {
        while let Some((_, change)) = self.pending.pop_front_if(|(number, _)| *number <= through) {
            change.apply(&mut self.durable);
        }
    }

    pub(super) fn lose_power(&mut self, random: &mut Random, sector: usize) {
        if self.pending.is_empty() {
            return;
        }
        match random.below(5) {
            0 => {}
            1 => self.durable.clone_from(&self.current),
            2 => self.keep_beginning(random, sector),
            _ => self.keep_sectors(random, sector),
        }
        self.current.clone_from(&self.durable);
        self.pending.clear();
    }

    /// The first changes survive, and some sectors of the next one.
    fn keep_beginning(&mut self, random: &mut Random, sector: usize) {
        let whole = random.index(self.pending.len() + 1);
        for (_, change) in self.pending.iter().take(whole) {
            change.apply(&mut self.durable);
        }
        let Some((_, Change::Write { position, bytes })) = self.pending.get(whole) else {
            return;
        };
        let mut start = 0;
        while start < bytes.len() {
            let end = (sector - (position + start) % sector + start).min(bytes.len());
            if random.chance(500) {
                write_at(&mut self.durable, position + start, &bytes[start..end]);
            }
            start = end;
        }
    }

    /// Of every sector one of the states that it went through survives, and one of the sizes.
    fn keep_sectors(&mut self, random: &mut Random, sector: usize) {
        let mut sizes = vec![self.durable.len()];
        let mut touched: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, (_, change)) in self.pending.iter().enumerate() {
            let before = *sizes.last().expect("there is the first");
            let (start, end, size) = match change {
                Change::Write { position, bytes } => {
                    let end = position + bytes.len();
                    (*position, end, before.max(end))
                }
                Change::Size(size) => (*size, before.max(*size), *size),
            };
            sizes.push(size);
            for index in start / sector..end.div_ceil(sector) {
                touched.entry(index).or_default().push(number);
            }
        }
        let size = *random.pick(&sizes);
        let mut survived = self.durable.clone();
        survived.resize(size, 0);
        for (index, changes) in touched {
            let start = index * sector;
            if start >= size {
                break;
            }
            let mut bytes = vec![0; sector];
            let held = self.durable.get(start..).unwrap_or_default();
            let held = &held[..held.len().min(sector)];
            bytes[..held.len()].copy_from_slice(held);
            let count = random.index(changes.len() + 1);
            for number in &changes[..count] {
                self.pending[*number].1.apply_to_sector(&mut bytes, start);
            }
            let end = (start + sector).min(size);
            survived[start..end].copy_from_slice(&bytes[..end - start]);
        }
        self.durable = survived;
    }

    /// Ranges of bytes that no pending change touches.
    pub(super) fn flushed_ranges(&self) -> Vec<(u64, u64)> {
        let mut dirty: Vec<(usize, usize)> = self
            .pending
            .iter()
            .map(|(_, change)| match change {
                Change::Write { position, bytes } => (*position, position + bytes.len()),
                Change::Size(size) => (*size, usize::MAX),
            })
            .collect();
        dirty.sort_unstable();
        let end = self.durable.len().min(self.current.len());
        let mut ranges = Vec::new();
        let mut from = 0;
        for (start, behind) in dirty {
            if from < start.min(end) {
                ranges.push((from as u64, start.min(end) as u64));
            }
            from = from.max(behind);
        }
        if from < end {
            ranges.push((from as u64, end as u64));
        }
        ranges
    }

    pub(super) fn flip(&mut self, position: u64, bit: u8) {
        for bytes in [&mut self.durable, &mut self.current] {
            if let Some(byte) = bytes.get_mut(index(position)) {
                *byte ^= 1 << bit;
            }
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { position, bytes } => write_at(content, *position, bytes),
            Self::Size(size) => content.resize(*size, 0),
        }
    }

    /// Applies the part that concerns the sector which begins at `start`.
    fn apply_to_sector(&self, sector: &mut [u8], start: usize) {
        let end = start + sector.len();
        match self {
            Self::Write { position, bytes } => {
                let from = (*position).max(start);
                let to = (position + bytes.len()).min(end);
                if from < to {
                    sector[from - start..to - start]
                        .copy_from_slice(&bytes[from - position..to - position]);
                }
            }
            Self::Size(size) => {
                let from = (*size).clamp(start, end);
                sector[from - start..].fill(0);
            }
        }
    }
}

fn write_at(content: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[position..end].copy_from_slice(bytes);
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("a simulated file fits the memory")
}
