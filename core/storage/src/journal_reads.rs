//! Reads single prepares back from the journal, for other nodes that lack them.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::mpsc::Receiver};

use bytes::Bytes;
use journal::{Config, FrameLocation};
use wire::{ConsensusGroup, Op, PrepareHeader};

use crate::journal_files::path_of;

/// Told what was found; on the reading thread.
pub(crate) type PrepareAnswer = Box<dyn FnOnce(Option<(PrepareHeader, Bytes)>) + Send>;

/// A prepare to be read.
pub(crate) struct PrepareRead {
    /// Frames that may hold it.
    pub(crate) places: Vec<FrameLocation>,
    /// Group, op and checksum.
    pub(crate) wanted: (ConsensusGroup, Op, u128),
    pub(crate) answer: PrepareAnswer,
}

/// Answers until nobody can ask any more. The frame read last is kept: who lacks a prepare mostly lacks the
/// next one, too.
pub(crate) fn read_prepares(directory: &Path, config: &Config, reads: &Receiver<PrepareRead>) {
    let mut kept: Option<(FrameLocation, Vec<u8>)> = None;
    for PrepareRead {
        places,
        wanted,
        answer,
    } in reads
    {
        let found = places.into_iter().find_map(|place| {
            if kept.as_ref().is_none_or(|(at, _)| *at != place) {
                kept = read_frame(directory, place).map(|bytes| (place, bytes));
            }
            let (_, bytes) = kept.as_ref()?;
            place.prepare(config, bytes, wanted)
        });
        answer(found);
    }
}

/// The bytes of a frame; none when its file is recycled, which is no fault.
fn read_frame(directory: &Path, place: FrameLocation) -> Option<Vec<u8>> {
    let path = path_of(directory, place.file);
    let mut bytes = vec![0; place.length as usize];
    let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, place.position));
    match read {
        Ok(()) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let position = place.position;
            tracing::warn!(path = %path.display(), position, "read journal: {error}");
            None
        }
    }
}
