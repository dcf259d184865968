//! The bytes of one file: what a process sees, what survives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// A flush has failed, and a process sees what it was to write, as if it were there.
    lies: bool,
    /// Bytes whose sector cannot be read until it is written again.
    unreadable: BTreeSet<usize>,
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
        let end = position + bytes.len();
        self.unreadable
            .retain(|spoiled| !(position..end).contains(spoiled));
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
            if std::mem::take(&mut self.lies) {
                self.current.clone_from(&self.durable);
            }
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

    /// A flush has failed. Of what it was to write anything is on the disk, and nothing of it will be written any
    /// more. What a process sees is what is there, or what it has written: the page cache lies (V18).
    pub(super) fn fail_flush(&mut self, random: &mut Random, sector: usize) {
        let written = self.current.clone();
        self.lose_power(random, sector);
        if random.chance(500) {
            self.current = written;
            self.lies = true;
        }
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

    /// The sector with this byte cannot be read from now on.
    pub(super) fn spoil(&mut self, position: u64) {
        self.unreadable.insert(index(position));
    }

    /// Where in a range the first byte is whose sector, of so many bytes, cannot be read.
    pub(super) fn unreadable(&self, position: u64, length: u64, sector: usize) -> Option<u64> {
        let (from, to) = (index(position), index(position.saturating_add(length)));
        let from_sector = from / sector * sector;
        let mut spoiled = self.unreadable.iter();
        let found = spoiled.find(|at| (from_sector..to).contains(&(**at / sector * sector)))?;
        Some((found / sector * sector).max(from) as u64)
    }

    pub(super) fn overwrite(&mut self, position: u64, new: &[u8]) {
        let start = index(position);
        for bytes in [&mut self.durable, &mut self.current] {
            let end = (start + new.len()).min(bytes.len());
            if start < end {
                bytes[start..end].copy_from_slice(&new[..end - start]);
            }
        }
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
