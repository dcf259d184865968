//! Stretches without a whole frame, and the verdict on the journal's end.

use alloc::{collections::BTreeMap, vec::Vec};

use wire::{ConsensusGroup, Op};

use super::{
    Affected, Damage, GroupScan, LostPrepares, Scanned, Uncertain, Verdict,
    history::{GroupHistory, History, Last, MANY},
};
use crate::{
    FRAME_ALIGNMENT, FRAME_SIZE_MAX, FileId, FileSize, Resume,
    journal::{Current, GroupState, Groups, Zeroed},
    layout::UnitState,
};

const BLOCK: u64 = FRAME_ALIGNMENT as u64;

/// Blocks of one file in which no frame begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Region {
    pub file: FileId,
    pub start: u64,
    /// Where the next frame begins.
    pub end: u64,
    /// Where the damaged frame ends that begins before `start`; what lies before it is judged with it.
    pub extent: u64,
    /// Units of this generation, which are no part of a frame that is known.
    pub has_current: bool,
    /// Units that are valid for no generation, where a frame may have been.
    pub has_bad: bool,
    /// The same, but farther away than a frame reaches.
    pub has_far_bad: bool,
    /// The first and the last block with any of those that count.
    first: Option<u64>,
    last: u64,
    /// Blocks whose first unit cannot be read: only there can a flushed frame have begun.
    starts: u64,
}

impl Region {
    pub(super) fn new(file: FileId, start: u64) -> Self {
        Self {
            file,
            start,
            end: start,
            extent: start,
            ..Self::default()
        }
    }

    /// Notes a unit of the block at `position`.
    pub(super) fn note(&mut self, position: u64, state: UnitState, is_first: bool) {
        if position < self.extent {
            return;
        }
        match state {
            UnitState::Zero | UnitState::Older => return,
            UnitState::Current { starts: false } => self.has_current = true,
            // The start of a frame that cannot follow is as good as no unit.
            UnitState::Current { starts: true } | UnitState::Bad => {
                if position - self.start.max(self.extent) >= FRAME_SIZE_MAX as u64 {
                    self.has_far_bad = true;
                    return;
                }
                self.has_bad = true;
                self.starts += u64::from(is_first);
            }
        }
        self.first.get_or_insert(position);
        self.last = position;
    }

    const fn is_suspicious(&self) -> bool {
        self.has_current || self.has_bad
    }

    /// Bytes up to the last block that counts, or of the damaged frame.
    fn length(&self) -> u64 {
        match self.first {
            Some(_) => self.last + BLOCK - self.start,
            None => self.extent - self.start,
        }
    }

    /// Flushed frames that may have been here, at most.
    fn frames(&self) -> u64 {
        self.starts.max(1)
    }

    /// Where frames that are missing before a frame most likely were.
    pub(super) fn most_suspicious(regions: &[Self], file: FileId, position: u64) -> Self {
        let suspicious = regions.iter().find(|region| region.is_suspicious());
        match suspicious.or(regions.last()) {
            Some(region) => region.clone(),
            None => Self::new(file, position),
        }
    }
}

/// Damage, and whether it is known whose prepares are lost.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub damage: Damage,
    /// The number behind that of the last frame in it.
    pub end: u64,
    /// A later table may tell.
    pub is_open: bool,
}

impl Stretch {
    /// Frames `first..end` are missing.
    pub(super) fn rotten(region: &Region, first: u64, end: u64) -> Self {
        let length = match region.end {
            u64::MAX => region.length(),
            end => end - region.start,
        };
        Self {
            damage: Damage {
                verdict: Verdict::Rotten,
                file: region.file,
                position: region.start,
                length,
                sequence: first,
                affected: Affected::Any,
            },
            end,
            is_open: true,
        }
    }

    pub(super) fn close(&mut self, lost: BTreeMap<ConsensusGroup, LostPrepares>) {
        self.damage.affected = Affected::Groups(lost);
        self.is_open = false;
    }

    fn is_unknown(&self) -> bool {
        self.damage.affected == Affected::Any && self.damage.verdict != Verdict::Torn
    }
}

/// Where writing goes on.
#[derive(Clone, Debug)]
struct End {
    file: FileId,
    position: u64,
    last: Option<Last>,
    /// Numbers that frames nobody can read may have used.
    skipped: u64,
    /// Damage stays of which nobody knows whose prepares it held.
    keeps_unknown: bool,
    zeroed: Vec<Zeroed>,
}

impl History {
    pub(super) fn finish(mut self, files: &[FileSize], uncertain: Uncertain) -> Scanned {
        let end = self.judge_end(uncertain);
        self.find_missing(files);
        self.drop_unlisted();
        let misses = self.may_miss_superblocks();
        let groups: BTreeMap<_, _> = core::mem::take(&mut self.groups);
        let scanned = groups
            .iter()
            .map(|(group, state)| (*group, self.report(*group, state, misses)));
        let mut scanned: BTreeMap<_, _> = scanned.collect();
        let resume = self.resume(files, end, &groups);
        for scan in scanned.values_mut() {
            scan.next_frame = resume.sequence + 1;
        }
        let mut damage: Vec<Damage> = self.stretches.into_iter().map(|s| s.damage).collect();
        damage.sort_by_key(|damage| (damage.file, damage.position));
        Scanned {
            groups: scanned,
            damage,
            resume,
        }
    }

    /// Decides what the damage behind the last whole frame is.
    fn judge_end(&mut self, uncertain: Uncertain) -> End {
        let regions = core::mem::take(&mut self.open);
        let mut end = End {
            file: self.last.map_or(FileId(0), |last| last.file),
            position: self.last.map_or(0, |last| last.position + last.size),
            last: self.last,
            skipped: 0,
            keeps_unknown: false,
            zeroed: Vec::new(),
        };
        self.judge_pending(&regions, &mut end, uncertain);
        for (index, region) in regions.iter().enumerate() {
            if !region.is_suspicious() {
                continue;
            }
            let is_followed = regions[index + 1..].iter().any(|later| later.has_current);
            let verdict = match (region.has_bad, is_followed) {
                (true, _) => Verdict::Uncertain,
                (false, true) => Verdict::Rotten,
                (false, false) => Verdict::Torn,
            };
            self.judge_region(region, verdict, &mut end, uncertain);
        }
        end
    }

    /// A damaged frame at the end is torn if every unit of it is as it was before or as it should be, and
    /// nothing hints at a later one.
    fn judge_pending(&mut self, regions: &[Region], end: &mut End, uncertain: Uncertain) {
        let Some(content) = self.pending.take() else {
            return;
        };
        let is_torn = !content.has_bad && !regions.iter().any(Region::is_suspicious);
        if !is_torn && uncertain == Uncertain::Keep {
            end.keeps_unknown = content.head.is_none();
            return self.conclude(content, Verdict::Uncertain);
        }
        let verdict = if is_torn {
            Verdict::Torn
        } else {
            Verdict::Uncertain
        };
        let size = u64::from(content.header.size);
        let mut groups: BTreeMap<_, LostPrepares> = BTreeMap::new();
        for entry in content.head.iter().flat_map(|head| &head.prepares) {
            let group = entry.header.group();
            let after = self.groups.get(&group).map_or(Op(0), |state| state.met);
            groups
                .entry(group)
                .or_insert_with(|| LostPrepares::none(after))
                .add(entry.header);
        }
        self.stretches.push(Stretch {
            damage: Damage {
                verdict,
                file: content.file,
                position: content.position,
                length: size,
                sequence: content.header.sequence,
                affected: match content.head {
                    Some(_) => Affected::Groups(groups),
                    None => Affected::Any,
                },
            },
            end: content.header.sequence + 1,
            is_open: false,
        });
        end.zero(content.file, content.position, size);
        end.go_back(content.file, content.position, content.before);
    }

    fn judge_region(
        &mut self,
        region: &Region,
        verdict: Verdict,
        end: &mut End,
        uncertain: Uncertain,
    ) {
        let sequence = end.last.map_or(0, |last| last.sequence) + end.skipped + 1;
        let mut stretch = Stretch::rotten(region, sequence, sequence + region.frames());
        stretch.damage.verdict = verdict;
        self.stretches.push(stretch);
        let is_cut = match verdict {
            Verdict::Torn => true,
            Verdict::Rotten => false,
            Verdict::Uncertain => uncertain == Uncertain::Cut,
        };
        if is_cut {
            end.zero(region.file, region.start, region.length());
            if end.zeroed.len() == 1 {
                end.go_back(region.file, region.start, end.last);
            }
        } else {
            end.file = region.file;
            end.position = region.start + region.length();
            end.skipped += region.frames();
            end.keeps_unknown = true;
            self.notes.entry(region.file).or_default().last = sequence + region.frames() - 1;
        }
    }

    /// Notes files, and ends of files, that the newest frame lists and that are not there.
    fn find_missing(&mut self, files: &[FileSize]) {
        for entry in core::mem::take(&mut self.listed) {
            let file = FileId(entry.file);
            let found = self.notes.get(&file).map_or(0, |notes| notes.last);
            let is_there = files.iter().any(|known| known.file == file);
            let is_known = self
                .stretches
                .iter()
                .any(|s| s.damage.file == file && s.end > entry.last);
            if !is_there || found < entry.last && !is_known {
                let region = Region::new(file, 0);
                self.stretches
                    .push(Stretch::rotten(&region, found + 1, entry.last + 1));
            }
            self.listed.push(entry);
        }
    }

    /// Damage in a file that nobody needs any more does not matter.
    fn drop_unlisted(&mut self) {
        let stretches = core::mem::take(&mut self.stretches);
        let needed = |stretch: &Stretch| self.is_needed(stretch.damage.file);
        let stretches = stretches.into_iter().filter(needed).collect();
        self.stretches = stretches;
    }

    /// Whether two frames in a row are lost of which nothing tells what was in them, and no later frame
    /// names the newest records of all groups.
    fn may_miss_superblocks(&self) -> bool {
        let is_newest = |s: &&Stretch| s.is_unknown() && s.end > self.stated;
        let unknown = || self.stretches.iter().filter(is_newest);
        unknown().any(|stretch| {
            let first = stretch.damage.sequence;
            stretch.end > first + 1 || unknown().any(|other| other.end == first)
        })
    }

    fn report(
        &self,
        group: ConsensusGroup,
        state: &GroupHistory,
        misses_superblocks: bool,
    ) -> GroupScan {
        let mut prepares = state.prepares.clone();
        // Prepares that were written again keep their place.
        prepares.sort_by_key(|(number, _)| *number);
        prepares.dedup_by(|(b, again), (a, first)| {
            a == b && again.header.checksum == first.header.checksum
        });
        let mut scan = GroupScan {
            superblock: state.superblock.clone(),
            superblock_lost: misses_superblocks
                || state.entry.superblock_frame > state.superblock_copy,
            prepares: prepares
                .into_iter()
                .map(|(_, prepare)| prepare)
                .filter(|prepare| prepare.header.op() > self.floor(group))
                .collect(),
            ..GroupScan::default()
        };
        for stretch in &self.stretches {
            let lost = match &stretch.damage.affected {
                Affected::Any => Some(LostPrepares::unknown(state.met)),
                Affected::Groups(groups) => groups.get(&group).cloned(),
            };
            let Some(mut lost) = lost.filter(|lost| lost.last > self.floor(group)) else {
                continue;
            };
            lost.before_frame = stretch.end;
            match stretch.damage.verdict {
                Verdict::Torn => {}
                Verdict::Rotten => scan.rotten.push(lost),
                Verdict::Uncertain => scan.uncertain.push(lost),
            }
        }
        scan
    }

    fn resume(
        &mut self,
        files: &[FileSize],
        end: End,
        groups: &BTreeMap<ConsensusGroup, GroupHistory>,
    ) -> Resume {
        let is_kept = end.zeroed.is_empty() && end.last.is_some();
        let tail = core::mem::take(&mut self.tail);
        let mut resume = Resume {
            sequence: end.last.map_or(0, |last| last.sequence) + end.skipped,
            hash: match end.skipped {
                0 => end.last.map_or(0, |last| last.hash),
                _ => 0,
            },
            tail: match (is_kept, end.last) {
                (true, Some(last)) if !tail.is_empty() => Some((last.file, last.position, tail)),
                _ => None,
            },
            zeroed: end.zeroed.clone(),
            ..Resume::default()
        };
        let kept = end.keeps_unknown.then_some(resume.sequence);
        let misses = self.may_miss_superblocks().then_some(resume.sequence);
        resume.groups = group_states(groups, kept, misses);
        self.pin_damage(groups);
        for file in files {
            self.sort_file(*file, &end, &mut resume);
        }
        for entry in &self.listed {
            let file = FileId(entry.file);
            if !files.iter().any(|known| known.file == file) {
                let mut notes = self.notes.remove(&file).unwrap_or_default();
                notes.last = entry.last;
                notes.is_damaged = true;
                resume.newest = resume.newest.max(file);
                resume.closed.insert(file, notes);
            }
        }
        resume
    }

    /// Damaged files, and the names of missing ones, stay until the checkpoints of the groups concerned have
    /// passed what is lost.
    fn pin_damage(&mut self, groups: &BTreeMap<ConsensusGroup, GroupHistory>) {
        for stretch in &self.stretches {
            if stretch.damage.verdict == Verdict::Torn {
                continue;
            }
            let notes = self.notes.entry(stretch.damage.file).or_default();
            for (group, state) in groups {
                let last = match &stretch.damage.affected {
                    Affected::Any => Some(Op(u64::MAX)),
                    Affected::Groups(lost) => lost.get(group).map(|lost| lost.last),
                };
                let floor = self.floors.get(group).copied().unwrap_or_default();
                let next = state.met.max(Op(state.entry.head)).max(floor).next();
                match last {
                    Some(Op(u64::MAX)) => notes.pin(*group, next),
                    Some(last) => notes.pin(*group, last),
                    None => {}
                }
            }
        }
    }

    /// Finds out what a file is good for.
    fn sort_file(&mut self, file: FileSize, end: &End, resume: &mut Resume) {
        let is_damaged = self.damaged.contains(&file.file);
        let is_usable = file.size == self.config.file_size && !is_damaged;
        let mut notes = self.notes.remove(&file.file).unwrap_or_default();
        notes.size = file.size;
        notes.is_damaged = is_damaged;
        resume.newest = resume.newest.max(file.file);
        if end.file == file.file {
            resume.current = Some(Current {
                file: file.file,
                position: end.position.min(file.size / BLOCK * BLOCK),
                notes,
            });
        } else if file.file > end.file {
            match resume.ready {
                None if !is_damaged && file.size >= self.config.first_file_size => {
                    resume.ready = Some(file);
                }
                _ => resume.spare(file.file, is_usable),
            }
        } else if self.is_needed(file.file) {
            // What is missing at its end is still missing at the next start.
            if let Some(entry) = self.listed.iter().find(|e| e.file == file.file.0) {
                notes.last = notes.last.max(entry.last);
            }
            resume.closed.insert(file.file, notes);
        } else {
            resume.spare(file.file, is_usable);
        }
    }

    /// Whether the newest tables list the file, or are in it or before it.
    fn is_needed(&self, file: FileId) -> bool {
        file >= self.listed_by || self.listed.iter().any(|entry| entry.file == file.0)
    }
}

impl End {
    fn zero(&mut self, file: FileId, position: u64, length: u64) {
        self.zeroed.push(Zeroed {
            file,
            position,
            length,
        });
    }

    fn go_back(&mut self, file: FileId, position: u64, last: Option<Last>) {
        self.file = file;
        self.position = position;
        self.last = last;
    }
}

/// Groups that may have lost prepares behind frame `kept` count some more, and stand as if they were in it,
/// so that the next start knows it too.
///
/// A record that is not the newest is not written again, and the tables go on to say that a newer one was.
fn group_states(
    groups: &BTreeMap<ConsensusGroup, GroupHistory>,
    kept: Option<u64>,
    misses: Option<u64>,
) -> Groups {
    groups
        .iter()
        .map(|(group, state)| {
            let entry = &state.entry;
            let superblock_frame = entry.superblock_frame.max(misses.unwrap_or(0));
            let is_newest = superblock_frame <= state.superblock_copy;
            let state = GroupState {
                record: state.superblock.clone().filter(|_| is_newest),
                written: entry.written + kept.map_or(0, |_| MANY),
                numbered: entry.numbered,
                head: Op(entry.head),
                last_frame: kept.unwrap_or(entry.last_frame),
                superblock_frame,
                ..GroupState::default()
            };
            (*group, state)
        })
        .collect()
}
