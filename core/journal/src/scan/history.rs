//! What the frames say, taken in their order.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use bytes::Bytes;
use wire::{ConsensusGroup, Op};

use super::{
    Affected, Damage, FrameView, LostPrepares, ScannedPrepare, Verdict,
    tail::{Region, Stretch},
};
use crate::{
    Config, FileId, SuperblockRecord,
    frame::frame_hash,
    journal::{FileNotes, Placed},
    layout::{FileEntry, FrameHeader, GroupEntry, Head, STATES_ALL, TABLE_FRAMES},
};

/// Counted for a group of which nobody knows how many prepares it lost.
pub(super) const MANY: u64 = 1 << 32;

/// A frame whose first unit is what was written.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub file: FileId,
    pub file_size: u64,
    pub position: u64,
    pub header: FrameHeader,
    pub head: Option<Head>,
    pub view: FrameView<'a>,
}

impl Found<'_> {
    pub(super) fn is_whole(&self) -> bool {
        self.view.is_whole() && self.head.is_some()
    }
}

/// What could be read of a frame.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub file: FileId,
    pub position: u64,
    pub header: FrameHeader,
    pub head: Option<Head>,
    /// A unit is valid for no generation.
    pub has_bad: bool,
    superblocks: Vec<Option<Bytes>>,
    prepares: Vec<Body>,
    /// The newest frame before.
    pub before: Option<Last>,
}

/// The body of a prepare.
#[derive(Clone, Debug)]
enum Body {
    /// Below the checkpoint: not looked at.
    NotNeeded,
    Read(Bytes),
    Lost,
}

/// The newest frame so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    pub file: FileId,
    pub position: u64,
    pub size: u64,
    pub sequence: u64,
    /// 0: not known.
    pub hash: u64,
}

/// What is known of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupHistory {
    /// [`GroupEntry`] of the newest table that names the group.
    pub entry: GroupEntry,
    /// `entry.written`, if it may be compared with the next one.
    seen: Option<u64>,
    /// The op of the newest prepare met.
    pub met: Op,
    pub superblock: Option<SuperblockRecord>,
    /// The newest frame with a copy of it.
    pub superblock_copy: u64,
    /// With their numbers, in the order met.
    pub prepares: Vec<(u64, ScannedPrepare)>,
}

/// Everything so far.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub config: Config,
    pub floors: BTreeMap<ConsensusGroup, Op>,
    /// The newest file that begins with a frame; from it on the last frame's bytes are kept.
    pub newest_file: FileId,
    pub last: Option<Last>,
    /// The frame of `last`, if it is damaged and nothing newer was met.
    pub pending: Option<Content>,
    /// What lies behind the newest frame, file by file.
    pub open: Vec<Region>,
    pub groups: BTreeMap<ConsensusGroup, GroupHistory>,
    /// A table that names all groups was met, and no frame is missing since, or it is known.
    is_base_known: bool,
    /// The newest frame whose tables name all groups.
    pub stated: u64,
    pub stretches: Vec<Stretch>,
    pub notes: BTreeMap<FileId, FileNotes>,
    /// Files with bytes that are no unit.
    pub damaged: BTreeSet<FileId>,
    /// The older files that the newest tables list, and the file that these are in.
    pub listed: Vec<FileEntry>,
    pub listed_by: FileId,
    /// The bytes of the last frame, if it is whole.
    pub tail: Vec<u8>,
}

impl History {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            floors: BTreeMap::new(),
            newest_file: FileId(0),
            last: None,
            pending: None,
            open: Vec::new(),
            groups: BTreeMap::new(),
            is_base_known: false,
            stated: 0,
            stretches: Vec::new(),
            notes: BTreeMap::new(),
            damaged: BTreeSet::new(),
            listed: Vec::new(),
            listed_by: FileId(0),
            tail: Vec::new(),
        }
    }

    /// Whether a frame with this number may come next.
    pub(super) fn may_follow(&self, sequence: u64) -> bool {
        self.last.is_none_or(|last| sequence > last.sequence)
    }

    /// Prepares up to `checkpoint` are not needed.
    pub(super) fn raise_floor(&mut self, group: ConsensusGroup, checkpoint: Op) {
        let floor = self.floors.entry(group).or_default();
        if checkpoint > *floor {
            *floor = checkpoint;
            if let Some(state) = self.groups.get_mut(&group) {
                state
                    .prepares
                    .retain(|(_, prepare)| prepare.header.op() > checkpoint);
            }
        }
    }

    pub(super) fn floor(&self, group: ConsensusGroup) -> Op {
        self.floors.get(&group).copied().unwrap_or_default()
    }

    /// Takes the next frame; `region` is what lies before it in its file, behind the frame before.
    pub(super) fn on_frame(&mut self, found: &Found<'_>, region: &Region) {
        self.close_region(region.clone());
        let notes = self.notes.entry(found.file);
        notes.or_default().size = found.file_size;
        let mut content = self.read(found);
        self.settle(&content);
        let before = self.last.replace(Last {
            file: found.file,
            position: found.position,
            size: u64::from(found.header.size),
            sequence: found.header.sequence,
            hash: match found.is_whole() {
                true => frame_hash(self.config.unit_size, found.view.bytes()),
                false => 0,
            },
        });
        self.tail.clear();
        if found.is_whole() {
            if found.file >= self.newest_file {
                self.tail.extend_from_slice(found.view.bytes());
            }
            self.apply(content, None);
        } else {
            content.before = before;
            self.pending = Some(content);
        }
    }

    /// Ends a file; `region` is what lies behind its last frame.
    pub(super) fn end_file(&mut self, mut region: Region) {
        region.end = u64::MAX;
        self.close_region(region);
    }

    fn close_region(&mut self, region: Region) {
        if region.has_far_bad || region.has_bad {
            self.damaged.insert(region.file);
        }
        if region.start < region.end {
            self.open.push(region);
        }
    }

    fn read(&self, found: &Found<'_>) -> Content {
        let mut content = Content {
            file: found.file,
            position: found.position,
            header: found.header,
            head: found.head.clone(),
            has_bad: found.view.has_bad() || found.view.is_whole(),
            superblocks: Vec::new(),
            prepares: Vec::new(),
            before: None,
        };
        let Some(head) = &found.head else {
            return content;
        };
        for (entry, range) in head.superblocks.iter().zip(head.superblock_ranges()) {
            let body = found.view.payload(range);
            let body = body.filter(|body| wire::checksum64(body) == entry.checksum);
            content.superblocks.push(body.map(Bytes::from));
        }
        for (entry, range) in head.prepares.iter().zip(head.prepare_ranges()) {
            let header = &entry.header;
            content.prepares.push(
                if header.op() <= self.floor(header.group()) && header.is_valid() {
                    Body::NotNeeded
                } else {
                    let body = found.view.payload(range);
                    body.filter(|body| header.is_valid() && header.is_valid_body(body))
                        .map_or(Body::Lost, |body| Body::Read(Bytes::from(body)))
                },
            );
        }
        content
    }

    /// A frame proves that all before it were flushed: what is missing of them is rotten.
    fn settle(&mut self, next: &Content) {
        let regions = core::mem::take(&mut self.open);
        if let Some(pending) = self.pending.take() {
            self.conclude(pending, Verdict::Rotten);
        }
        let sequence = next.header.sequence;
        let Some(last) = self.last else {
            return self.begin_range(next);
        };
        if sequence > last.sequence + 1 {
            if next.file.0 > last.file.0 + 1 {
                return self.begin_range(next);
            }
            let region = Region::most_suspicious(&regions, next.file, next.position);
            self.stretches
                .push(Stretch::rotten(&region, last.sequence + 1, sequence));
        } else if last.hash != 0 && next.header.previous != last.hash && next.header.previous != 0 {
            let region = Region::new(last.file, last.position);
            self.stretches
                .push(Stretch::rotten(&region, last.sequence, sequence));
        }
    }

    /// Files before this frame were recycled, so numbers before it prove nothing; but a file begins with a
    /// frame.
    fn begin_range(&mut self, next: &Content) {
        self.is_base_known = false;
        for group in self.groups.values_mut() {
            group.seen = None;
        }
        if next.position > 0 {
            let mut region = Region::new(next.file, 0);
            region.end = next.position;
            let blocks = next.position / crate::FRAME_ALIGNMENT as u64;
            let sequence = next.header.sequence;
            let first = sequence.saturating_sub(blocks).max(1);
            self.stretches
                .push(Stretch::rotten(&region, first, sequence));
        }
    }

    /// Takes a damaged frame for what it is.
    pub(super) fn conclude(&mut self, content: Content, verdict: Verdict) {
        self.damaged.insert(content.file);
        self.notes.entry(content.file).or_default().last = content.header.sequence;
        if content.head.is_some() {
            return self.apply(content, Some(verdict));
        }
        self.stretches.push(Stretch {
            damage: Damage {
                verdict,
                file: content.file,
                position: content.position,
                length: u64::from(content.header.size),
                sequence: content.header.sequence,
                affected: Affected::Any,
            },
            end: content.header.sequence + 1,
            is_open: true,
        });
    }

    fn apply(&mut self, content: Content, verdict: Option<Verdict>) {
        let head = content.head.as_ref().expect("the caller looked");
        self.resolve(head);
        self.enter_tables(head, verdict);
        self.take_superblocks(head, &content.superblocks);
        let lost = self.take_prepares(&content);
        if let Some(verdict) = verdict.or((!lost.is_empty()).then_some(Verdict::Rotten)) {
            self.stretches.push(Stretch {
                damage: Damage {
                    verdict,
                    file: content.file,
                    position: content.position,
                    length: u64::from(content.header.size),
                    sequence: content.header.sequence,
                    affected: Affected::Groups(lost),
                },
                end: content.header.sequence + 1,
                is_open: false,
            });
        }
    }

    /// Tells from a table whose prepares the missing frames before it held.
    fn resolve(&mut self, head: &Head) {
        let sequence = head.header.sequence;
        let states_all = head.header.flags & STATES_ALL != 0;
        let first = self.stretches.iter().find(|stretch| stretch.is_open);
        let first = first.map(|stretch| stretch.damage.sequence);
        let mut lost = BTreeMap::new();
        for entry in &head.groups {
            let group = ConsensusGroup(entry.group);
            let here = head
                .prepares
                .iter()
                .filter(|p| p.header.group == entry.group);
            let before = entry.written.saturating_sub(here.clone().count() as u64);
            let state = self.groups.entry(group).or_default();
            let seen = state.seen.or(self.is_base_known.then_some(0));
            let count = match seen {
                Some(seen) if before > seen => Some(before - seen),
                None if first.is_some_and(|first| before > 0 && entry.last_frame >= first) => None,
                Some(_) | None => continue,
            };
            let next = here.map(|entry| entry.header.op()).min();
            let is_counted = count.unwrap_or(before) < MANY;
            lost.insert(
                group,
                match is_counted {
                    true => lost_before(state.met, count, next, Op(entry.head)),
                    false => LostPrepares::unknown(state.met),
                },
            );
        }
        let is_exact = match first {
            None => true,
            Some(first) => sequence - first < TABLE_FRAMES || states_all && self.is_base_known,
        };
        self.close_stretches(head, lost, is_exact);
        self.is_base_known |= states_all;
    }

    fn close_stretches(
        &mut self,
        head: &Head,
        lost: BTreeMap<ConsensusGroup, LostPrepares>,
        is_exact: bool,
    ) {
        let mut open = self.stretches.iter_mut().filter(|s| s.is_open).peekable();
        if open.peek().is_none() && !lost.is_empty() {
            // Nothing is missing by number, and yet something is.
            let last = self.last.map_or(FileId(head.header.generation), |l| l.file);
            let region = Region::new(last, 0);
            let mut stretch = Stretch::rotten(&region, head.header.sequence, head.header.sequence);
            stretch.close(lost);
            self.stretches.push(stretch);
            return;
        }
        let mut lost = Some(lost);
        while let Some(stretch) = open.next() {
            if !is_exact {
                stretch.is_open = false;
            } else if open.peek().is_some() {
                stretch.close(BTreeMap::new());
            } else {
                stretch.close(lost.take().unwrap_or_default());
            }
        }
    }

    fn enter_tables(&mut self, head: &Head, verdict: Option<Verdict>) {
        self.listed.clone_from(&head.files);
        self.listed_by = FileId(head.header.generation);
        if head.header.flags & STATES_ALL != 0 {
            self.stated = head.header.sequence;
        }
        for entry in &head.groups {
            let state = self.groups.entry(ConsensusGroup(entry.group)).or_default();
            let mut entry = *entry;
            // A record of an uncertain frame is in no second one yet, so nobody relied on it.
            if verdict == Some(Verdict::Uncertain) && entry.superblock_frame == head.header.sequence
            {
                entry.superblock_frame = state.entry.superblock_frame;
            }
            state.seen = Some(entry.written);
            state.entry = entry;
        }
    }

    fn take_superblocks(&mut self, head: &Head, bodies: &[Option<Bytes>]) {
        for (entry, body) in head.superblocks.iter().zip(bodies) {
            let Some(body) = body else {
                continue;
            };
            let group = ConsensusGroup(entry.group);
            let state = self.groups.entry(group).or_default();
            state.superblock_copy = head.header.sequence;
            state.superblock = Some(SuperblockRecord {
                group,
                checkpoint: Op(entry.checkpoint),
                body: body.clone(),
            });
            self.raise_floor(group, Op(entry.checkpoint));
        }
    }

    /// Keeps the prepares; returns those that cannot be read.
    fn take_prepares(&mut self, content: &Content) -> BTreeMap<ConsensusGroup, LostPrepares> {
        let head = content.head.as_ref().expect("the caller looked");
        let notes = self.notes.entry(content.file).or_default();
        notes.last = content.header.sequence;
        let frame = Placed {
            position: content.position,
            size: content.header.size,
        };
        let mut lost: BTreeMap<ConsensusGroup, LostPrepares> = BTreeMap::new();
        for (entry, body) in head.prepares.iter().zip(&content.prepares) {
            let header = entry.header;
            let (group, op) = (header.group(), header.op());
            let state = self.groups.entry(group).or_default();
            notes.note(group, op, header.size, frame);
            match body {
                Body::NotNeeded => {}
                Body::Read(body) => state.prepares.push((
                    entry.number,
                    ScannedPrepare {
                        header,
                        body: body.clone(),
                    },
                )),
                Body::Lost => lost
                    .entry(group)
                    .or_insert_with(|| LostPrepares::none(state.met))
                    .add(header),
            }
            state.met = op;
        }
        lost
    }
}

/// Prepares that are missing behind the op `after`; `next` is the lowest op of the frame that shows it, and
/// `head` the group's newest op there.
fn lost_before(after: Op, count: Option<u64>, next: Option<Op>, head: Op) -> LostPrepares {
    let counted = Op(after.0.saturating_add(count.unwrap_or(1)));
    let is_gapless = count.is_some() && next == Some(counted.next());
    LostPrepares {
        last: if is_gapless {
            counted
        } else {
            counted.max(head)
        },
        count,
        ..LostPrepares::none(after)
    }
}
