//! Reads the journal back and judges what cannot be read.

mod frame;
mod history;
mod report;
mod tail;
mod window;

use alloc::{collections::BTreeMap, vec::Vec};

use wire::{ConsensusGroup, Op};

pub(crate) use self::frame::FrameView;
pub use self::report::{Affected, Damage, GroupScan, LostPrepares, ScannedPrepare, Verdict};
use self::{
    history::{Found, History},
    tail::Region,
    window::Window,
};
use crate::{
    Config, FRAME_ALIGNMENT, FileId, FileSize, Resume,
    frame::unit_index,
    layout::{FrameHeader, UnitState, inspect},
};

const BLOCK: u64 = FRAME_ALIGNMENT as u64;

/// Bytes of a file that the scan asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The file.
    pub file: FileId,
    /// Where they begin.
    pub position: u64,
    /// How many.
    pub length: u64,
}

/// What to do with a tail of which nobody can say whether it was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertain {
    /// Leave it as it is and write behind it, so that later starts know that something is lost.
    Keep,
    /// Give it up: the operator said so.
    Cut,
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Per consensus group that has a record.
    pub groups: BTreeMap<ConsensusGroup, GroupScan>,
    /// What is not as it was written, in the order of the journal.
    pub damage: Vec<Damage>,
    /// For [`crate::Journal::resume`].
    pub resume: Resume,
}

/// Reads all files of a journal, once each, from the oldest to the newest.
///
/// Ask [`Scan::wanted`], answer with [`Scan::supply`], [`Scan::supply_unreadable`] or
/// [`Scan::supply_unreadable_block`] until it wants nothing
/// more, then [`Scan::finish`].
#[derive(Clone, Debug)]
pub struct Scan {
    config: Config,
    /// Ascending.
    files: Vec<FileSize>,
    phase: Phase,
    window: Window,
    position: u64,
    region: Region,
    history: History,
}

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first frame of this file, counted from the newest: it tells what is no longer needed.
    Peek(usize),
    /// This file, counted from the oldest.
    Walk(usize),
    Done,
}

impl Scan {
    /// Begins; `files` are all that the journal's directory holds.
    #[must_use]
    pub fn new(config: Config, mut files: Vec<FileSize>) -> Self {
        files.sort_by_key(|file| file.file);
        let mut scan = Self {
            config,
            history: History::new(config),
            files,
            phase: Phase::Done,
            window: Window::default(),
            position: 0,
            region: Region::default(),
        };
        scan.enter(Phase::Peek(0));
        scan.advance();
        scan
    }

    /// The next bytes to read; `None` when all are.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        let (position, length) = self.window.wanted();
        (self.phase != Phase::Done).then_some(Wanted {
            file: self.window.file,
            position,
            length,
        })
    }

    /// Hands over the bytes at the position that was wanted; at least one, at most as many as wanted.
    pub fn supply(&mut self, bytes: &[u8]) {
        self.window.append(bytes);
        self.advance();
    }

    /// Says that the next `length` bytes of those wanted cannot be read.
    pub fn supply_unreadable(&mut self, length: u64) {
        self.window.append_unreadable(length);
        self.advance();
    }

    /// Says that what comes next cannot be read. No more is given up than the block that it is in: in the next one
    /// another frame may begin.
    pub fn supply_unreadable_block(&mut self) {
        self.supply_unreadable(BLOCK - self.window.end() % BLOCK);
    }

    /// Judges what was read.
    ///
    /// # Panics
    /// While something is wanted.
    #[must_use]
    pub fn finish(self, uncertain: Uncertain) -> Scanned {
        assert!(self.phase == Phase::Done);
        self.history.finish(&self.files, uncertain)
    }

    fn enter(&mut self, phase: Phase) {
        let count = self.files.len();
        self.phase = match phase {
            Phase::Peek(index) if index < count => Phase::Peek(index),
            Phase::Peek(_) if count > 0 => Phase::Walk(0),
            Phase::Walk(index) if index < count => Phase::Walk(index),
            Phase::Peek(_) | Phase::Walk(_) | Phase::Done => Phase::Done,
        };
        let file = match self.phase {
            Phase::Peek(index) => self.files[count - 1 - index],
            Phase::Walk(index) => self.files[index],
            Phase::Done => return,
        };
        self.window.open(file, self.full_size(file));
        self.position = 0;
        self.region = Region::new(file.file, 0);
    }

    /// Bytes that the file should have. Files get their full size before they get their name.
    fn full_size(&self, file: FileSize) -> u64 {
        let is_first = file.size == self.config.first_file_size;
        match is_first || file.size >= self.config.file_size {
            true => file.size,
            false => self.config.file_size,
        }
    }

    /// Goes on as far as the window reaches.
    fn advance(&mut self) {
        loop {
            let has_more = match self.phase {
                Phase::Peek(index) => self.peek(index),
                Phase::Walk(index) => self.step(index),
                Phase::Done => false,
            };
            if !has_more {
                return;
            }
        }
    }

    fn peek(&mut self, index: usize) -> bool {
        let Some(block) = self.window.bytes(0, FRAME_ALIGNMENT) else {
            return self.is_at_end() && self.next_peek(index);
        };
        let Some(header) = self.start(block, 0) else {
            return self.next_peek(index);
        };
        let Some(bytes) = self.window.bytes(0, header.size as usize) else {
            return false;
        };
        let view = FrameView::new(self.config.unit_size, self.window.file, 0, bytes);
        // Only a whole frame counts whatever comes behind it.
        let whole = view.filter(FrameView::is_whole);
        let Some(head) = whole.and_then(|view| view.head(self.config.identity)) else {
            return self.next_peek(index);
        };
        for entry in &head.superblocks {
            let group = ConsensusGroup(entry.group);
            self.history.raise_floor(group, Op(entry.checkpoint));
        }
        self.history.newest_file = self.window.file;
        self.enter(Phase::Walk(0));
        true
    }

    fn next_peek(&mut self, index: usize) -> bool {
        self.enter(Phase::Peek(index + 1));
        true
    }

    /// Looks at one block or frame; `false` when bytes must be read first.
    fn step(&mut self, index: usize) -> bool {
        if self.is_at_end() {
            self.history.end_file(self.region.clone());
            self.enter(Phase::Walk(index + 1));
            return true;
        }
        let Some(block) = self.window.bytes(self.position, FRAME_ALIGNMENT) else {
            return false;
        };
        let Some(header) = self.start(block, self.position) else {
            self.skip_block();
            return true;
        };
        let size = header.size as usize;
        let Some(bytes) = self.window.bytes(self.position, size) else {
            return false;
        };
        let file = self.window.file;
        let unit_size = self.config.unit_size;
        let view = FrameView::new(unit_size, file, self.position, bytes);
        let view = view.expect("its first unit begins a frame");
        let found = Found {
            file,
            file_size: self.window.size,
            position: self.position,
            head: view.head(self.config.identity),
            header,
            view,
        };
        // Behind a damaged frame the next one may begin at any block.
        let behind = match found.is_whole() {
            true => self.position + size as u64,
            false => self.position + BLOCK,
        };
        self.region.end = self.position;
        self.history.on_frame(&found, &self.region);
        self.region = Region::new(file, behind);
        if behind == self.position + BLOCK && size > FRAME_ALIGNMENT {
            self.region.extent = self.position + size as u64;
        }
        self.position = behind;
        self.window.discard(behind);
        true
    }

    /// The header of a frame that begins with this block.
    fn start(&self, block: &[u8], position: u64) -> Option<FrameHeader> {
        let unit = &block[..self.config.unit_size.bytes()];
        let index = unit_index(self.config.unit_size, position);
        if inspect(unit, self.window.file, index) != (UnitState::Current { starts: true }) {
            return None;
        }
        let header = FrameHeader::read(unit, self.config.identity, self.window.file.0)?;
        let fits = position + u64::from(header.size) <= self.window.size;
        (fits && self.history.may_follow(header.sequence)).then_some(header)
    }

    /// Notes what the units of a block are in which no frame begins.
    fn skip_block(&mut self) {
        let unit_size = self.config.unit_size;
        let block = self
            .window
            .bytes(self.position, FRAME_ALIGNMENT)
            .expect("the caller looked");
        let first = unit_index(unit_size, self.position);
        for (index, unit) in (first..).zip(block.chunks_exact(unit_size.bytes())) {
            let state = inspect(unit, self.window.file, index);
            self.region.note(self.position, state, index == first);
        }
        self.position += BLOCK;
        self.window.discard(self.position);
    }

    fn is_at_end(&self) -> bool {
        self.position >= self.window.size
    }
}
