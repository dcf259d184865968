//! Going on where a scan ended.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{Current, FileNotes, Files, Flight, Groups, Journal};
use crate::{Config, Effect, FileId, FileSize};

/// Bytes that are overwritten with zeros, since what was in them is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zeroed {
    pub file: FileId,
    pub position: u64,
    pub length: u64,
}

/// Where writing goes on, and what is known of groups and files.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// The highest number that a frame may have.
    pub(crate) sequence: u64,
    /// Of that frame; 0: not known.
    pub(crate) hash: u64,
    /// The frame found last: it may be in the page cache only.
    pub(crate) tail: Option<(FileId, u64, Vec<u8>)>,
    pub(crate) zeroed: Vec<Zeroed>,
    pub(crate) groups: Groups,
    pub(crate) current: Option<Current>,
    pub(crate) closed: BTreeMap<FileId, FileNotes>,
    pub(crate) free: Vec<FileId>,
    pub(crate) useless: Vec<FileId>,
    pub(crate) ready: Option<FileSize>,
    pub(crate) newest: FileId,
}

impl Resume {
    /// Keeps a file that nothing is needed from for later, or gives it up.
    pub(crate) fn spare(&mut self, file: FileId, is_usable: bool) {
        match is_usable {
            true => self.free.push(file),
            false => self.useless.push(file),
        }
    }
}

impl Journal {
    /// Goes on where a scan ended. Nothing of what it found may be relied on before
    /// [`Journal::is_ready`]: the last frame and all superblock records are written once more first.
    ///
    /// # Panics
    /// When the sizes of `config` contradict each other.
    #[must_use]
    pub fn resume(config: Config, resume: Resume) -> Self {
        let mut journal = Self::new(config);
        journal.effects.clear();
        journal.groups = resume.groups;
        journal.sequence = resume.sequence;
        journal.flushed = resume.sequence;
        journal.relied_on = resume.sequence;
        journal.hash = resume.hash;
        journal.stated = resume.sequence;
        journal.files = Files {
            current: resume.current,
            closed: resume.closed,
            free: resume.free,
            ready: resume.ready,
            preparing: None,
            newest: resume.newest,
        };
        journal.heal(resume.tail, &resume.zeroed);
        for file in resume.useless {
            journal.effects.push_back(Effect::Delete { file });
        }
        journal.prepare_next();
        journal
    }

    fn heal(&mut self, tail: Option<(FileId, u64, Vec<u8>)>, zeroed: &[Zeroed]) {
        let mut healed: Vec<FileId> = zeroed.iter().map(|zeroed| zeroed.file).collect();
        if let Some((file, position, bytes)) = tail {
            healed.push(file);
            self.builder.load(&bytes);
            self.effects.push_back(Effect::Write { file, position });
        }
        for zeroed in zeroed {
            self.effects.push_back(Effect::Zero {
                file: zeroed.file,
                position: zeroed.position,
                length: zeroed.length,
            });
        }
        healed.sort_unstable();
        healed.dedup();
        for file in &healed {
            self.effects.push_back(Effect::Flush { file: *file });
        }
        if !healed.is_empty() {
            self.flight = Some(Flight::Healing {
                flushes: healed.len(),
            });
        }
    }
}
