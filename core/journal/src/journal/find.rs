//! Where a prepare lies that was written before, and what is there.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{ConsensusGroup, Op, PrepareHeader};

use super::{FileNotes, Journal};
use crate::{Config, FileId, scan::FrameView};

/// A frame of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLocation {
    /// The file.
    pub file: FileId,
    /// Position in the file, bytes.
    pub position: u64,
    /// Bytes of the frame.
    pub length: u32,
}

impl Journal {
    /// Frames that may hold this op of a group, the newest first. They are there until their files are
    /// recycled, which what is read from them shows.
    #[must_use]
    pub fn locate(&self, group: ConsensusGroup, op: Op) -> Vec<FrameLocation> {
        let closed = self.files.closed.iter().map(|(file, notes)| (*file, notes));
        let current = self.files.current.iter();
        let all = closed.chain(current.map(|current| (current.file, &current.notes)));
        let mut found: Vec<FrameLocation> = all
            .flat_map(|(file, notes)| frames_of(file, notes, group, op))
            .collect();
        found.reverse();
        found.dedup();
        found
    }

    /// What the journal was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}

fn frames_of(
    file: FileId,
    notes: &FileNotes,
    group: ConsensusGroup,
    op: Op,
) -> impl Iterator<Item = FrameLocation> + '_ {
    let holds =
        move |need: &&super::Need| need.group == group && (need.first..=need.op).contains(&op);
    notes
        .needs
        .iter()
        .filter(holds)
        .map(move |need| FrameLocation {
            file,
            position: need.frame.position,
            length: need.frame.size,
        })
}

impl FrameLocation {
    /// Takes the prepare with this checksum out of the bytes that are at this place. `None` when it is not
    /// there, or any of it is not what was written.
    #[must_use]
    pub fn prepare(
        self,
        config: &Config,
        bytes: &[u8],
        (group, op, checksum): (ConsensusGroup, Op, u128),
    ) -> Option<(PrepareHeader, Bytes)> {
        let view = FrameView::new(config.unit_size, self.file, self.position, bytes)?;
        let head = view.head(config.identity)?;
        let mut entries = head.prepares.iter().zip(head.prepare_ranges());
        let (entry, range) = entries.find(|(entry, _)| {
            let header = &entry.header;
            header.group() == group && header.op() == op && header.checksum == checksum
        })?;
        let body = view.payload(range)?;
        let is_right = entry.header.is_valid() && entry.header.is_valid_body(&body);
        is_right.then(|| (entry.header, Bytes::from(body)))
    }
}
