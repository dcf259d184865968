//! A disk in memory that can lose, tear and rot.

use std::{collections::BTreeMap, vec, vec::Vec};

use bytes::Bytes;
use wire::{ConsensusGroup, Op, PrepareHeader, ShardId};

use crate::{
    Config, Effect, FileId, FileSize, Input, Journal, Progress, Record, Scan, Scanned,
    SuperblockRecord, Uncertain, UnitSize,
};

/// Small files, so that a few records fill many.
pub(super) fn config(unit_size: UnitSize) -> Config {
    Config {
        identity: 7,
        unit_size,
        file_size: 64 * 1024,
        first_file_size: 32 * 1024,
        frame_size: 8 * 1024,
        live_max: 512 * 1024,
        checkpoint_at: 256 * 1024,
    }
}

/// A prepare whose body says which it is.
pub(super) fn prepare(group: u16, op: u64, size: usize) -> Record {
    let mut body = vec![u8::try_from(op % 251).expect("less"); size];
    let mark = [group.to_le_bytes().as_slice(), &op.to_le_bytes()].concat();
    let length = mark.len().min(size);
    body[..length].copy_from_slice(&mark[..length]);
    Record::Prepare {
        header: PrepareHeader {
            group,
            op,
            ..PrepareHeader::default()
        }
        .sealed(&body),
        body: Bytes::from(body),
    }
}

pub(super) fn superblock(group: u16, checkpoint: u64, mark: u64) -> Record {
    Record::Superblock(SuperblockRecord {
        group: ConsensusGroup(group),
        checkpoint: Op(checkpoint),
        body: Bytes::copy_from_slice(&mark.to_le_bytes()),
    })
}

/// What is on the disk, and what a journal was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub files: BTreeMap<FileId, Vec<u8>>,
    /// Written and not flushed.
    pub unflushed: Vec<(FileId, u64, Vec<u8>)>,
    pub progress: BTreeMap<ShardId, Progress>,
    pub wanted: Vec<ConsensusGroup>,
    pub flushes: usize,
    /// A frame that is being read back, and whether that takes until somebody finishes it.
    pub reading: Option<(FileId, u64, u32)>,
    pub reads_slowly: bool,
    /// Where each frame went.
    pub frames: Vec<(FileId, u64)>,
}

impl Disk {
    /// Carries out one effect; `false` when there is none.
    pub(super) fn step(&mut self, journal: &mut Journal) -> bool {
        let Some(effect) = journal.next_effect() else {
            return false;
        };
        match effect {
            Effect::Write { file, position } => {
                self.frames.push((file, position));
                self.unflushed
                    .push((file, position, journal.frame().to_vec()));
            }
            Effect::Zero {
                file,
                position,
                length,
            } => {
                let length = usize::try_from(length).expect("small");
                self.unflushed.push((file, position, vec![0; length]));
            }
            Effect::Flush { .. } => {
                for (file, position, bytes) in std::mem::take(&mut self.unflushed) {
                    self.place(file, position, &bytes);
                }
                self.flushes += 1;
                journal.handle(Input::Flushed);
            }
            Effect::Prepare { file, from, size } => {
                let bytes = match from {
                    Some(from) => self.files.remove(&from).expect("it is there"),
                    None => vec![0; usize::try_from(size).expect("small")],
                };
                assert_eq!(bytes.len() as u64, size);
                assert!(self.files.insert(file, bytes).is_none());
                journal.handle(Input::Prepared { file });
            }
            Effect::Delete { file } => {
                // A missing file may be given up too.
                self.files.remove(&file);
            }
            Effect::Read {
                file,
                position,
                length,
            } => {
                assert_eq!(self.reading, None);
                self.reading = Some((file, position, length));
                if !self.reads_slowly {
                    self.finish_read(journal);
                }
            }
            Effect::Progress { shard, progress } => {
                let before = self.progress.insert(shard, progress).unwrap_or_default();
                assert!(before.flushed <= progress.flushed);
                assert!(before.repeated <= progress.repeated);
                assert_ne!(before, progress);
            }
            Effect::CheckpointWanted { group, .. } => self.wanted.push(group),
        }
        true
    }

    /// The read that was begun ends.
    pub(super) fn finish_read(&mut self, journal: &mut Journal) {
        let (file, position, length) = self.reading.take().expect("a read was begun");
        let start = usize::try_from(position).expect("small");
        let bytes = &self.files[&file][start..start + length as usize];
        journal.handle(Input::Read {
            file,
            position,
            bytes: Bytes::copy_from_slice(bytes),
        });
    }

    /// Carries out everything.
    pub(super) fn run(&mut self, journal: &mut Journal) {
        while self.step(journal) {}
    }

    /// Hands records over and carries everything out.
    pub(super) fn write(&mut self, journal: &mut Journal, records: Vec<Record>) {
        for record in records {
            journal.handle(Input::Record {
                shard: ShardId(0),
                record,
            });
        }
        self.run(journal);
    }

    pub(super) fn quiet(&mut self, journal: &mut Journal) {
        while journal.wants_quiet() {
            journal.handle(Input::Quiet);
            self.run(journal);
        }
    }

    /// Loses what is not flushed, but for the units that `keeps` names by their number.
    pub(super) fn crash(&mut self, unit_size: UnitSize, mut keeps: impl FnMut(usize) -> bool) {
        let unit = unit_size.bytes();
        for (file, position, bytes) in std::mem::take(&mut self.unflushed) {
            for (index, unit_bytes) in bytes.chunks(unit).enumerate() {
                if keeps(index) {
                    self.place(file, position + (index * unit) as u64, unit_bytes);
                }
            }
        }
        self.progress.clear();
    }

    fn place(&mut self, file: FileId, position: u64, bytes: &[u8]) {
        let start = usize::try_from(position).expect("small");
        let file = self.files.get_mut(&file).expect("it is prepared");
        file[start..start + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn scan(&self, config: Config) -> Scanned {
        self.scan_with(config, Uncertain::Keep)
    }

    pub(super) fn scan_with(&self, config: Config, uncertain: Uncertain) -> Scanned {
        let files = self.files.iter().map(|(file, bytes)| FileSize {
            file: *file,
            size: bytes.len() as u64,
        });
        let mut scan = Scan::new(config, files.collect());
        while let Some(wanted) = scan.wanted() {
            let start = usize::try_from(wanted.position).expect("small");
            let length = usize::try_from(wanted.length).expect("small");
            // Less than was asked for is fine.
            let length = if length > 9_000 { 9_000 } else { length };
            scan.supply(&self.files[&wanted.file][start..start + length]);
        }
        scan.finish(uncertain)
    }

    /// A new journal on what is there.
    pub(super) fn restart(&mut self, config: Config) -> (Journal, Scanned) {
        let scanned = self.scan(config);
        self.progress.clear();
        let mut journal = Journal::resume(config, scanned.resume.clone());
        self.run(&mut journal);
        assert!(journal.is_ready());
        (journal, scanned)
    }
}

/// The ops of a group, as found.
pub(super) fn ops(scanned: &Scanned, group: u16) -> Vec<u64> {
    let group = scanned.groups.get(&ConsensusGroup(group));
    group.map_or_else(Vec::new, |group| {
        let headers = group.prepares.iter().map(|prepare| prepare.header.op);
        headers.collect()
    })
}
