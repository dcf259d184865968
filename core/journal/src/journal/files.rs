//! The files of the journal: which is written, which are needed, which are free.

use alloc::{collections::BTreeMap, vec::Vec};

use wire::{ConsensusGroup, Op};

use super::groups::Groups;
use crate::{Config, Effect, FileId, FileSize};

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub position: u64,
    pub size: u32,
}

/// Prepares of one group in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub group: ConsensusGroup,
    /// The lowest of their ops.
    pub first: Op,
    /// The highest of their ops.
    pub op: Op,
    /// Bytes of all of them.
    pub bytes: u32,
    /// The frame.
    pub frame: Placed,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileNotes {
    pub size: u64,
    /// Sequence number of its last frame.
    pub last: u64,
    /// Each group's highest op in it.
    pub pins: BTreeMap<ConsensusGroup, Op>,
    /// Per frame, in order.
    pub needs: Vec<Need>,
    /// It holds bytes that are not what was written: it is deleted, not recycled.
    pub is_damaged: bool,
}

impl FileNotes {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Notes a prepare in the frame at `frame`.
    pub(crate) fn note(&mut self, group: ConsensusGroup, op: Op, bytes: u32, frame: Placed) {
        self.pin(group, op);
        match self.needs.last_mut() {
            Some(last) if last.group == group && last.frame == frame => {
                last.first = last.first.min(op);
                last.op = last.op.max(op);
                last.bytes = last.bytes.saturating_add(bytes);
            }
            _ => self.needs.push(Need {
                group,
                first: op,
                op,
                bytes,
                frame,
            }),
        }
    }

    /// Keeps the file until the group's checkpoint reaches `op`.
    pub(crate) fn pin(&mut self, group: ConsensusGroup, op: Op) {
        let pin = self.pins.entry(group).or_default();
        *pin = (*pin).max(op);
    }

    /// The groups in service that need the file.
    pub(crate) fn needed_by<'a>(
        &'a self,
        groups: &'a Groups,
    ) -> impl Iterator<Item = ConsensusGroup> + 'a {
        self.pins.iter().filter_map(|(group, op)| {
            let needs = groups
                .get(group)
                .is_none_or(|state| !state.is_suspended && *op > state.released);
            needs.then_some(*group)
        })
    }

    /// Whether nobody needs the file, in service or not.
    pub(crate) fn is_free(&self, groups: &Groups) -> bool {
        self.pins
            .iter()
            .all(|(group, op)| groups.get(group).is_some_and(|s| *op <= s.released))
    }
}

/// The file that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Current {
    pub file: FileId,
    /// Where the next frame goes.
    pub position: u64,
    pub notes: FileNotes,
}

impl Current {
    /// Bytes that are left.
    pub(crate) const fn room(&self) -> u64 {
        self.notes.size - self.position
    }
}

/// All files of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    pub current: Option<Current>,
    /// Older files of which something is, or may be, needed.
    pub closed: BTreeMap<FileId, FileNotes>,
    /// Older files that wait for a new number.
    pub free: Vec<FileId>,
    /// The file that comes next.
    pub ready: Option<FileSize>,
    /// The one that the driver makes ready.
    pub preparing: Option<FileSize>,
    /// The highest number in use.
    pub newest: FileId,
}

impl Files {
    /// Asks for the next file unless there is one.
    pub(crate) fn prepare(&mut self, config: &Config) -> Option<Effect> {
        if self.ready.is_some() || self.preparing.is_some() {
            return None;
        }
        let size = match self.newest {
            FileId(0) => config.first_file_size,
            _ => config.file_size,
        };
        let number = self.newest.0.checked_add(1).filter(|n| *n < 1 << 31);
        let file = FileId(number.expect("2^31 files are not used up in this century"));
        self.newest = file;
        self.preparing = Some(FileSize { file, size });
        Some(Effect::Prepare {
            file,
            from: self.free.pop(),
            size,
        })
    }

    /// Closes the current file and goes on at the beginning of the next one.
    pub(crate) fn switch(&mut self) {
        let next = self.ready.take().expect("the caller looked");
        let opened = Current {
            file: next.file,
            position: 0,
            notes: FileNotes::new(next.size),
        };
        if let Some(closed) = self.current.replace(opened) {
            assert!(closed.file < next.file);
            self.closed.insert(closed.file, closed.notes);
        }
    }

    /// Bytes of all files that a group in service needs, and of the current one.
    pub(crate) fn live(&self, groups: &Groups) -> u64 {
        let closed: u64 = self
            .closed
            .values()
            .filter(|notes| notes.needed_by(groups).next().is_some())
            .map(|notes| notes.size)
            .sum();
        closed + self.current.as_ref().map_or(0, |c| c.notes.size)
    }

    /// The oldest file that a group in service needs.
    pub(crate) fn oldest_needed(&self, groups: &Groups) -> Option<(FileId, &FileNotes)> {
        self.closed
            .iter()
            .find(|(_, notes)| notes.needed_by(groups).next().is_some())
            .map(|(file, notes)| (*file, notes))
    }

    /// Gives a closed file up; it is recycled, or deleted.
    pub(crate) fn release(&mut self, file: FileId, config: &Config) -> Option<Effect> {
        let notes = self.closed.remove(&file)?;
        if notes.is_damaged || notes.size != config.file_size {
            return Some(Effect::Delete { file });
        }
        self.free.push(file);
        None
    }
}
