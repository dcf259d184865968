//! Frees files: recycles, asks for checkpoints, writes again what keeps an old file from being recycled.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use bytes::Bytes;
use wire::{ConsensusGroup, Op};

use super::{Groups, Journal, Placed, Queued, Source};
use crate::{Effect, FileId, layout::Head, scan::FrameView};

/// A file is written again only if at most one byte in so many is still needed.
const MOVE_SHARE: u64 = 4;

/// A closed file whose needed prepares are written again.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    file: FileId,
    /// Frames that are still to be read.
    frames: VecDeque<Placed>,
    /// The frame that is being read.
    reading: Option<Placed>,
}

impl Journal {
    /// Closed files that nothing is needed from, if the superblock records of all groups are flushed twice
    /// in newer frames. Not the one that is being moved: it may be read at this moment.
    pub(super) fn releasable(&self) -> Vec<FileId> {
        self.releases().collect()
    }

    pub(super) fn has_release(&self) -> bool {
        self.releases().next().is_some()
    }

    fn releases(&self) -> impl Iterator<Item = FileId> + '_ {
        let are_stated = self.flushed > self.stated;
        let moving = self.moving.as_ref().map(|moving| moving.file);
        let closed = self.files.closed.iter().filter(move |_| are_stated);
        closed
            .filter(move |(file, notes)| notes.is_free(&self.groups) && Some(**file) != moving)
            .map(|(file, _)| *file)
    }

    pub(super) fn after_flush(&mut self, released: Vec<FileId>) {
        for file in released {
            let delete = self.files.release(file, &self.config);
            self.effects.extend(delete);
        }
        self.prepare_next();
        self.skip_unneeded();
        self.finish_moving();
        self.start_moving();
        self.read_next();
        self.want_checkpoints();
    }

    pub(super) fn prepare_next(&mut self) {
        let prepare = self.files.prepare(&self.config);
        self.effects.extend(prepare);
    }

    fn want_checkpoints(&mut self) {
        if self.live() < self.config.checkpoint_at {
            return;
        }
        let Some((_, notes)) = self.files.oldest_needed(&self.groups) else {
            return;
        };
        let current = self.files.current.as_ref().map(|current| current.file);
        let pinning: Vec<ConsensusGroup> = notes.needed_by(&self.groups).collect();
        for group in pinning {
            let state = self.groups.entry(group).or_default();
            if state.asked != current {
                state.asked = current;
                self.effects.push_back(Effect::CheckpointWanted {
                    group,
                    shard: state.shard,
                });
            }
        }
    }

    /// When checkpoints did not free enough, moves what the oldest file still holds, if that is little.
    fn start_moving(&mut self) {
        let move_at = self.config.checkpoint_at.midpoint(self.config.live_max);
        if self.moving.is_some() || self.live() < move_at {
            return;
        }
        let Some((file, notes)) = self.files.oldest_needed(&self.groups) else {
            return;
        };
        let mut bytes = 0;
        let mut frames = VecDeque::new();
        for need in &notes.needs {
            if is_needed(&self.groups, need.group, need.op) {
                bytes += u64::from(need.bytes);
                if frames.back() != Some(&need.frame) {
                    frames.push_back(need.frame);
                }
            }
        }
        if bytes <= notes.size / MOVE_SHARE && !notes.is_damaged {
            self.moving = Some(Moving {
                file,
                frames,
                reading: None,
            });
        }
    }

    /// Checkpoints may free what is being moved: then the rest of it stays where it is.
    fn skip_unneeded(&mut self) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        let notes = self.files.closed.get(&moving.file);
        if notes.is_none_or(|notes| notes.is_free(&self.groups)) {
            moving.frames.clear();
        }
    }

    /// Reads one frame at a time, when those read before are written.
    fn read_next(&mut self) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        if moving.reading.is_none() && self.moves.is_empty() {
            moving.reading = moving.frames.pop_front();
            if let Some(frame) = moving.reading {
                self.effects.push_back(Effect::Read {
                    file: moving.file,
                    position: frame.position,
                    length: frame.size,
                });
            }
        }
    }

    pub(super) fn on_read(&mut self, file: FileId, bytes: &Bytes) {
        let moving = self.moving.as_mut().expect("a read was asked for");
        assert!(moving.file == file);
        assert!(
            self.files.closed.contains_key(&file),
            "what is read is kept"
        );
        let frame = moving.reading.take().expect("a read was asked for");
        let view = FrameView::new(self.config.unit_size, file, frame.position, bytes);
        let moved = view.and_then(|view| {
            let head = view.head(self.config.identity)?;
            needed_prepares(&self.groups, &head, &view)
        });
        match moved {
            Some(moved) => {
                self.moves.extend(moved);
                self.finish_moving();
                self.read_next();
            }
            None => self.stop_moving(file),
        }
    }

    /// What cannot be read cannot be moved: the file stays until checkpoints free it.
    fn stop_moving(&mut self, file: FileId) {
        self.moving = None;
        if let Some(notes) = self.files.closed.get_mut(&file) {
            notes.is_damaged = true;
        }
    }

    /// When everything is flushed in its new place the old file is needed only by groups out of service.
    fn finish_moving(&mut self) {
        let is_done = self.flight.is_none()
            && self.moves.is_empty()
            && self
                .moving
                .as_ref()
                .is_some_and(|moving| moving.reading.is_none() && moving.frames.is_empty());
        if !is_done {
            return;
        }
        let moving = self.moving.take().expect("it was looked at");
        let groups = &self.groups;
        let suspended = |group: &ConsensusGroup| groups.get(group).is_some_and(|g| g.is_suspended);
        if let Some(notes) = self.files.closed.get_mut(&moving.file) {
            notes.pins = core::mem::take(&mut notes.pins)
                .into_iter()
                .filter(|(group, _)| suspended(group))
                .collect::<BTreeMap<_, _>>();
        }
    }
}

fn is_needed(groups: &Groups, group: ConsensusGroup, op: Op) -> bool {
    groups
        .get(&group)
        .is_some_and(|state| !state.is_suspended && op > state.released)
}

/// The prepares of a frame that are still needed; `None` when one of them cannot be read.
fn needed_prepares(groups: &Groups, head: &Head, view: &FrameView<'_>) -> Option<Vec<Queued>> {
    let mut prepares = Vec::new();
    for (entry, range) in head.prepares.iter().zip(head.prepare_ranges()) {
        let header = entry.header;
        if is_needed(groups, header.group(), header.op()) {
            let body = view.payload(range)?;
            if !header.is_valid_body(&body) {
                return None;
            }
            prepares.push(Queued {
                header,
                body: Bytes::from(body),
                origin: Source::Move {
                    number: entry.number,
                },
            });
        }
    }
    Some(prepares)
}
