//! Lays out the next frame.

use alloc::vec::Vec;

use super::{Flight, Journal, Placed, Queued, Source, groups::COPIES};
use crate::{
    Effect, FileId,
    layout::{
        FILE_ENTRY_SIZE, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, FileEntry, FrameHeader,
        GROUP_ENTRY_SIZE, PREPARE_ENTRY_SIZE, PrepareEntry, STATES_ALL, SUPERBLOCK_ENTRY_SIZE,
        SuperblockEntry, TABLE_FRAMES,
    },
};

/// What the next frame takes, and where.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// It is the first of the next file.
    switches: bool,
    /// Prepares may go into it.
    with_prepares: bool,
}

impl Journal {
    /// Lays out a frame if one is due and there is room for it.
    pub(super) fn assemble(&mut self) {
        let Some(plan) = self.plan() else {
            return;
        };
        if plan.switches {
            self.files.switch();
            self.prepare_next();
        }
        self.sequence += 1;
        let states_all = self.states_all();
        self.take_superblocks(states_all);
        if plan.with_prepares {
            self.take_prepares();
            assert!(!self.taken.is_empty(), "a record must fit into a file");
        }
        let released = self.releasable();
        self.fill_tables(states_all, &released);
        let size = self.build();
        self.note_prepares(size);
        for state in self.shards.values_mut() {
            state.superblock_twice = state.superblock_once;
            state.superblock_once = state.superblock;
        }
        if states_all {
            self.stated = self.sequence;
            self.must_state = false;
        }
        if !self.head.prepares.is_empty() || !self.head.superblocks.is_empty() {
            self.relied_on = self.sequence;
        }
        self.is_quiet = false;
        self.launch(size, released);
    }

    fn launch(&mut self, size: usize, released: Vec<FileId>) {
        let current = self.files.current.as_ref().expect("a frame is laid out");
        let (file, position) = (current.file, current.position);
        self.effects.push_back(Effect::Write { file, position });
        self.effects.push_back(Effect::Flush { file });
        self.flight = Some(Flight::Frame {
            size: size as u64,
            released,
        });
    }

    /// Decides whether a frame is due, and where it goes.
    fn plan(&self) -> Option<Plan> {
        let is_full = self.live() > self.config.live_max;
        let next = match self.moves.front() {
            Some(moved) => Some(moved),
            None => self.queue.front().filter(|_| !is_full),
        };
        let is_due = self.owes_copies() || self.is_quiet && self.is_unsettled();
        if next.is_none() && !is_due {
            return None;
        }
        let here = |bytes: usize| Plan {
            switches: false,
            with_prepares: bytes > 0,
        };
        let bytes = next.map_or(0, Queued::size);
        if self.fits_here(bytes) {
            return Some(here(bytes));
        }
        let ready = self.files.ready;
        let may_switch = !self.moves.is_empty()
            || ready.is_some_and(|file| self.live() + file.size <= self.config.live_max);
        if ready.is_some() && may_switch {
            return Some(Plan {
                switches: true,
                with_prepares: bytes > 0,
            });
        }
        if !is_due {
            return None;
        }
        match self.fits_here(0) {
            true => Some(here(0)),
            false => ready.map(|_| Plan {
                switches: true,
                with_prepares: false,
            }),
        }
    }

    /// Whether a frame with what is due and prepares of `bytes` bytes fits into the current file.
    fn fits_here(&self, bytes: usize) -> bool {
        let Some(current) = &self.files.current else {
            return false;
        };
        let payload = self.payload_bound(self.states_all()) + bytes;
        self.config.unit_size.frame_bytes(payload) as u64 <= current.room()
    }

    /// Whether the frame at the current position holds the superblock records of all groups.
    fn states_all(&self) -> bool {
        self.must_state || self.files.current.as_ref().is_none_or(|c| c.position == 0)
    }

    /// At least the payload of a frame without prepares.
    fn payload_bound(&self, states_all: bool) -> usize {
        let superblocks: usize = self
            .groups
            .values()
            .filter(|group| states_all || group.owes_copy())
            .filter_map(|group| group.record.as_ref())
            .map(|record| SUPERBLOCK_ENTRY_SIZE + record.body.len())
            .sum();
        FRAME_HEADER_SIZE + superblocks + self.tables_bound()
    }

    /// At least the bytes of the tables of files and groups.
    fn tables_bound(&self) -> usize {
        self.files.closed.len() * FILE_ENTRY_SIZE + self.groups.len() * GROUP_ENTRY_SIZE
    }

    fn take_superblocks(&mut self, states_all: bool) {
        self.head.clear();
        for (group, state) in &mut self.groups {
            let Some(record) = &state.record else {
                continue;
            };
            if !states_all && !state.owes_copy() {
                continue;
            }
            if state.copies == 0 {
                state.superblock_frame = self.sequence;
                state.last_frame = self.sequence;
            }
            state.copies = if states_all { 1 } else { state.copies + 1 };
            assert!(state.copies <= COPIES);
            self.head.superblocks.push(SuperblockEntry {
                checkpoint: record.checkpoint.0,
                checksum: wire::checksum64(&record.body),
                length: u32::try_from(record.body.len()).expect("a frame has at most 16 MiB"),
                group: group.0,
                reserved: 0,
            });
        }
    }

    /// Takes as many prepares as fit, those that free a file first.
    fn take_prepares(&mut self) {
        let current = self.files.current.as_ref().expect("a file was chosen");
        let unit_size = self.config.unit_size;
        let room = usize::try_from(current.room()).unwrap_or(usize::MAX);
        let room = unit_size.payload_in(room.min(FRAME_SIZE_MAX));
        let wished = unit_size.payload_in(self.config.frame_size as usize);
        let is_full = self.live() > self.config.live_max;
        let mut payload = self.head.payload_size() + self.tables_bound();
        loop {
            let from_moves = !self.moves.is_empty();
            let queue = if from_moves {
                &mut self.moves
            } else {
                &mut self.queue
            };
            let Some(size) = queue.front().map(Queued::size) else {
                break;
            };
            if !from_moves && is_full || payload + size > room {
                break;
            }
            if !self.taken.is_empty() && payload + size > wished {
                break;
            }
            payload += size;
            self.taken.extend(queue.pop_front());
        }
        self.number_prepares();
    }

    /// Enters the prepares taken into the table, and counts them.
    fn number_prepares(&mut self) {
        for queued in &self.taken {
            let state = self.groups.entry(queued.header.group()).or_default();
            state.written += 1;
            state.last_frame = self.sequence;
            let number = match queued.origin {
                Source::Move { number } => number,
                Source::Shard { shard, ticket } => {
                    self.shards.entry(shard).or_default().prepare = ticket;
                    state.numbered += 1;
                    state.head = queued.header.op();
                    state.numbered
                }
            };
            self.head.prepares.push(PrepareEntry {
                number,
                header: queued.header,
            });
        }
    }

    fn fill_tables(&mut self, states_all: bool, released: &[FileId]) {
        let current = self.files.current.as_ref().expect("a file was chosen");
        self.head.header = FrameHeader {
            flags: if states_all { STATES_ALL } else { 0 },
            sequence: self.sequence,
            previous: self.hash,
            durable_through: self.flushed,
            ..FrameHeader::new(self.config.identity, current.file.0)
        };
        for (file, notes) in &self.files.closed {
            if !released.contains(file) {
                self.head.files.push(FileEntry {
                    last: notes.last,
                    file: file.0,
                    reserved: 0,
                });
            }
        }
        for (group, state) in &self.groups {
            if states_all || state.last_frame + TABLE_FRAMES > self.sequence {
                self.head.groups.push(state.entry(*group));
            }
        }
    }

    /// Copies everything into the frame's buffer; returns the frame's size.
    fn build(&mut self) -> usize {
        let payload = self.head.payload_size();
        let size = self.config.unit_size.frame_bytes(payload);
        let current = self.files.current.as_ref().expect("a file was chosen");
        assert!(size as u64 <= current.room());
        self.head_bytes.clear();
        self.head.encode(size, &mut self.head_bytes);
        let builder = &mut self.builder;
        builder.begin(current.file, current.position, size);
        builder.put(&self.head_bytes);
        for entry in &self.head.superblocks {
            let group = wire::ConsensusGroup(entry.group);
            let record = self.groups.get(&group).and_then(|s| s.record.as_ref());
            builder.put(&record.expect("it was entered from there").body);
        }
        for queued in &self.taken {
            builder.put(&queued.body);
        }
        self.hash = builder.finish();
        size
    }

    /// Notes what the file is needed for from now on.
    fn note_prepares(&mut self, size: usize) {
        let current = self.files.current.as_mut().expect("a file was chosen");
        let frame = Placed {
            position: current.position,
            size: u32::try_from(size).expect("a frame has at most 16 MiB"),
        };
        current.notes.last = self.sequence;
        for queued in self.taken.drain(..) {
            let header = &queued.header;
            current
                .notes
                .note(header.group(), header.op(), header.size, frame);
        }
    }
}

impl Queued {
    /// Bytes of payload.
    pub(super) const fn size(&self) -> usize {
        PREPARE_ENTRY_SIZE + self.body.len()
    }
}
