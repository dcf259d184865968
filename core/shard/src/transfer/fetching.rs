//! A checkpoint of another node is fetched, and made durable.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use bytes::Bytes;
use catalog::Catalog;
use partition::{DataGroup, Mark, Range, Scan, SegmentChange, SegmentFile, SegmentId, Verdict};
use wire::{ConsensusGroup, Op, ReplicaId, checksum64, checksum128};

use super::{
    FilePart, PART_SIZE, Restored, SnapshotOffer, TransferFile, TransferMessage, next_node, send,
};
use crate::{Effect, GroupSnapshot, IoTicket, Shard, StateSnapshot, desk::Desk};

/// Nanoseconds after which somebody else is asked.
const PATIENCE: u64 = 300_000_000;

/// Nanoseconds until a newer snapshot is asked for.
const PAUSE: u64 = 50_000_000;

/// Segments that are fetched at the same time, one part each.
const SEGMENTS_AT_ONCE: usize = 4;

/// A snapshot that is larger is not believed in.
const SNAPSHOT_SIZE_MAX: u64 = 1024 * 1024 * 1024;

/// A checkpoint that is on its way here.
#[derive(Debug)]
pub(super) struct Fetch {
    group: ConsensusGroup,
    at_least: Op,
    /// Who is asked at this moment.
    from: ReplicaId,
    /// Monotonic time when somebody else is asked.
    until: u64,
    /// How many in a row were of no help.
    failures: usize,
    /// As much of a snapshot as is here.
    offered: Option<(SnapshotOffer, Vec<u8>)>,
    /// What is in files here of segments that the own state does not have, or not as much of.
    here: BTreeMap<SegmentId, Mark>,
    stage: Stage,
}

/// How far it has got.
#[derive(Debug)]
enum Stage {
    /// A snapshot is asked for.
    Asking,
    /// Its parts are.
    Snapshot,
    /// It is here, and is read.
    Decoding(IoTicket),
    /// Ranges of the segments that it lists are asked for.
    Segments(Box<Segments>),
    /// Waits until what was written is in its files.
    Changing(IoTicket, Box<Whole>),
    /// Waits until those are flushed.
    Flushing(IoTicket, Box<Whole>),
    /// Waits until the snapshot is on the disk.
    Writing(Box<Ready>),
}

/// A snapshot whose segments are not all here.
#[derive(Debug)]
struct Segments {
    whole: Whole,
    waiting: VecDeque<SegmentFile>,
    running: Vec<Running>,
}

/// A segment of which the next part is asked for.
#[derive(Debug)]
struct Running {
    file: SegmentFile,
    scan: Scan,
    /// The part is not asked for yet: what came before waits for its files, or there is time.
    is_held: bool,
}

/// A snapshot whose segments are here.
#[derive(Debug)]
struct Whole {
    snapshot: Box<GroupSnapshot>,
    restored: Restored,
    files: Vec<SegmentFile>,
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Ready {
    checkpoint: vsr::Checkpoint,
    restored: Restored,
}

/// A checkpoint that is durable here.
pub(super) type Durable = (vsr::Checkpoint, Restored);

impl Fetch {
    fn ask(&mut self, desk: &mut Desk) {
        self.until = desk.now.after(PATIENCE);
        match &self.stage {
            Stage::Asking => {
                let at_least = self.at_least;
                self.send(desk, TransferMessage::Ask { at_least });
            }
            Stage::Snapshot => self.ask_snapshot(desk),
            Stage::Segments(segments) => {
                let asked = segments.running.iter().filter(|running| !running.is_held);
                for Running { file, scan, .. } in asked {
                    self.ask_segment(desk, file, scan);
                }
            }
            Stage::Decoding(_) | Stage::Changing(..) | Stage::Flushing(..) | Stage::Writing(_) => {}
        }
    }

    fn ask_snapshot(&self, desk: &mut Desk) {
        let Some((offer, bytes)) = &self.offered else {
            return;
        };
        let position = bytes.len() as u64;
        self.ask_part(
            desk,
            TransferFile::Snapshot(offer.op),
            Range {
                position,
                length: (offer.size - position).min(PART_SIZE),
            },
        );
    }

    fn ask_segment(&self, desk: &mut Desk, file: &SegmentFile, scan: &Scan) {
        if let Some(range) = scan.next_read() {
            desk.note_asked(range.length);
            self.ask_part(desk, TransferFile::of_segment(file.id), range);
        }
    }

    fn ask_part(&self, desk: &mut Desk, file: TransferFile, range: Range) {
        let part = FilePart {
            file,
            position: range.position,
            length: range.length,
        };
        self.send(desk, TransferMessage::AskPart(part));
    }

    fn send(&self, desk: &mut Desk, message: TransferMessage) {
        send(desk, self.from, self.group, message);
    }

    /// Asks the next node. When none has what is missing, somebody may have a newer snapshot.
    fn ask_another(&mut self, desk: &mut Desk, nodes: usize) {
        self.failures += 1;
        self.from = next_node(self.from, desk.node, nodes);
        let begins_anew = match &self.stage {
            // Nobody else has just this one, as a rule; if somebody does, the rest is asked for.
            Stage::Snapshot => true,
            Stage::Segments(_) => self.failures >= nodes - 1,
            Stage::Asking
            | Stage::Decoding(_)
            | Stage::Changing(..)
            | Stage::Flushing(..)
            | Stage::Writing(_) => false,
        };
        if begins_anew && self.begin_anew() {
            // A newer snapshot is taken first.
            self.until = desk.now.after(PAUSE);
        } else {
            self.ask(desk);
        }
    }

    /// Tells whether the snapshot was here, and nobody has its segments any more.
    fn begin_anew(&mut self) -> bool {
        let Stage::Segments(segments) = core::mem::replace(&mut self.stage, Stage::Asking) else {
            return false;
        };
        for Running { file, scan, .. } in segments.running {
            self.here.insert(file.id, scan.reached());
        }
        true
    }

    /// Whether it waits for another node.
    fn is_asking(&self) -> bool {
        match &self.stage {
            Stage::Asking | Stage::Snapshot => true,
            Stage::Segments(segments) => segments.running.iter().any(|running| !running.is_held),
            Stage::Decoding(_) | Stage::Changing(..) | Stage::Flushing(..) | Stage::Writing(_) => {
                false
            }
        }
    }

    /// Parts that had to wait are asked for, as far as may be.
    fn go_on(&mut self, desk: &mut Desk) {
        while desk.may_fetch()
            && let Some((file, scan)) = self.next_held()
        {
            self.until = desk.now.after(PATIENCE);
            self.ask_segment(desk, &file, &scan);
        }
    }

    fn next_held(&mut self) -> Option<(SegmentFile, Scan)> {
        let Stage::Segments(segments) = &mut self.stage else {
            return None;
        };
        let mut running = segments.running.iter_mut();
        let held = running.find(|running| running.is_held)?;
        held.is_held = false;
        Some((held.file, held.scan.clone()))
    }

    /// The next part of a segment: is asked for, unless too much waits for its files.
    fn run(&mut self, desk: &mut Desk, file: SegmentFile, scan: Scan) {
        let is_held = !desk.may_fetch();
        if !is_held {
            self.ask_segment(desk, &file, &scan);
        }
        if let Stage::Segments(segments) = &mut self.stage {
            segments.running.push(Running {
                file,
                scan,
                is_held,
            });
        }
    }

    fn on_offer(&mut self, desk: &mut Desk, offer: SnapshotOffer) {
        let is_sound = offer.op >= self.at_least && offer.size <= SNAPSHOT_SIZE_MAX;
        if !matches!(self.stage, Stage::Asking) || !is_sound {
            return;
        }
        if self.offered.as_ref().is_none_or(|(it, _)| *it != offer) {
            self.offered = Some((offer, Vec::new()));
        }
        self.stage = Stage::Snapshot;
        self.ask(desk);
    }

    /// A part of the snapshot. False when it is of no use.
    fn on_snapshot_part(
        &mut self,
        desk: &mut Desk,
        (op, position): (Op, u64),
        bytes: &Bytes,
    ) -> bool {
        let Some((offer, here)) = &mut self.offered else {
            return true;
        };
        let is_next = matches!(self.stage, Stage::Snapshot)
            && offer.op == op
            && position == here.len() as u64;
        if !is_next {
            return true;
        }
        let size = here.len() as u64 + bytes.len() as u64;
        if bytes.is_empty() || size > offer.size {
            return false;
        }
        here.extend_from_slice(bytes);
        if size < offer.size {
            self.failures = 0;
            self.ask(desk);
            return true;
        }
        let whole = Bytes::from(core::mem::take(here));
        let is_right = checksum128(&whole) == offer.checksum;
        self.offered = None;
        if !is_right {
            return false;
        }
        let ticket = desk.next_io_ticket();
        let group = self.group;
        self.stage = Stage::Decoding(ticket);
        desk.push(Effect::DecodeSnapshot {
            ticket,
            group,
            bytes: whole,
        });
        true
    }

    /// The snapshot is read: what it lists and is not here is asked for. `own` is what the own state has.
    fn on_decoded(
        &mut self,
        desk: &mut Desk,
        whole: Whole,
        own: impl Fn(SegmentId) -> Option<Mark>,
    ) {
        let mut waiting = VecDeque::new();
        for file in &whole.files {
            let end = Mark::end_of(&file.segment);
            let known = [own(file.id), self.here.get(&file.id).copied()];
            let mut known = known.into_iter().flatten();
            if !known.any(|mark| mark == end) {
                waiting.push_back(*file);
            }
        }
        self.failures = 0;
        let mut segments = Box::new(Segments {
            whole,
            waiting,
            running: Vec::new(),
        });
        while segments.running.len() < SEGMENTS_AT_ONCE
            && let Some(file) = segments.waiting.pop_front()
        {
            let scan = self.scan(&file, own(file.id));
            segments.running.push(Running {
                file,
                scan,
                is_held: false,
            });
        }
        if segments.running.is_empty() {
            return self.finish(desk, segments.whole);
        }
        self.stage = Stage::Segments(segments);
        self.ask(desk);
    }

    /// Of what is missing of a segment, behind what is here.
    fn scan(&self, file: &SegmentFile, own: Option<Mark>) -> Scan {
        let known = [own, self.here.get(&file.id).copied()];
        let known = known.into_iter().flatten();
        let known = known.filter(|mark| mark.position < file.segment.length);
        match known.max_by_key(|mark| mark.position) {
            Some(mark) => Scan::behind(file, mark),
            None => Scan::new(file),
        }
    }

    /// A part of a segment. False when it is not what it should be.
    fn on_segment_part(
        &mut self,
        desk: &mut Desk,
        (segment, range): (SegmentId, Range),
        bytes: &Bytes,
        own: impl Fn(SegmentId) -> Option<Mark>,
    ) -> bool {
        let Stage::Segments(segments) = &mut self.stage else {
            return true;
        };
        let asked = |running: &Running| {
            running.file.id == segment && running.scan.next_read() == Some(range)
        };
        let Some(index) = segments.running.iter().position(asked) else {
            return true;
        };
        let Running { file, mut scan, .. } = segments.running.swap_remove(index);
        scan.feed(bytes);
        let taken = scan.reached().position - range.position;
        let taken = usize::try_from(taken).expect("it was in memory");
        if taken > 0 {
            desk.change_fetched(SegmentChange::Append {
                segment,
                position: range.position,
                parts: [bytes.slice(..taken)].to_vec(),
            });
        }
        self.failures = 0;
        self.until = desk.now.after(PATIENCE);
        if scan.next_read().is_some() {
            self.run(desk, file, scan);
            return true;
        }
        let is_whole = matches!(scan.finish(), Verdict::Whole(_));
        if is_whole {
            self.here.insert(segment, Mark::end_of(&file.segment));
        } else {
            // From somebody else, and all of it: who knows where it goes wrong.
            self.here.remove(&segment);
            segments.running.push(Running {
                file,
                scan: Scan::new(&file),
                is_held: false,
            });
            return false;
        }
        self.next_segment(desk, own);
        true
    }

    fn next_segment(&mut self, desk: &mut Desk, own: impl Fn(SegmentId) -> Option<Mark>) {
        let Stage::Segments(segments) = &mut self.stage else {
            return;
        };
        if let Some(file) = segments.waiting.pop_front() {
            let scan = self.scan(&file, own(file.id));
            self.run(desk, file, scan);
        } else if segments.running.is_empty()
            && let Stage::Segments(segments) = core::mem::replace(&mut self.stage, Stage::Asking)
        {
            self.finish(desk, segments.whole);
        }
    }

    /// Every byte is here: in its file, then on the disk, then the snapshot.
    fn finish(&mut self, desk: &mut Desk, whole: Whole) {
        if whole.files.is_empty() {
            return self.write(desk, whole);
        }
        match desk.last_change() {
            Some(through) => self.stage = Stage::Changing(through, Box::new(whole)),
            None => self.flush(desk, Box::new(whole)),
        }
    }

    fn flush(&mut self, desk: &mut Desk, whole: Box<Whole>) {
        let ticket = desk.next_io_ticket();
        let segments = whole.files.iter().map(|file| file.id).collect();
        desk.push(Effect::Flush { ticket, segments });
        self.stage = Stage::Flushing(ticket, whole);
    }

    fn write(&mut self, desk: &mut Desk, whole: Whole) {
        let Whole {
            snapshot, restored, ..
        } = whole;
        let checkpoint = snapshot.checkpoint.clone();
        desk.push(Effect::WriteSnapshot { snapshot });
        self.stage = Stage::Writing(Box::new(Ready {
            checkpoint,
            restored,
        }));
    }

    fn on_changed(&mut self, desk: &mut Desk, done: IoTicket) {
        if matches!(&self.stage, Stage::Changing(through, _) if *through <= done)
            && let Stage::Changing(_, whole) = core::mem::replace(&mut self.stage, Stage::Asking)
        {
            self.flush(desk, whole);
        }
    }

    fn on_flushed(&mut self, desk: &mut Desk, done: IoTicket) {
        if matches!(&self.stage, Stage::Flushing(ticket, _) if *ticket == done)
            && let Stage::Flushing(_, whole) = core::mem::replace(&mut self.stage, Stage::Asking)
        {
            self.write(desk, *whole);
        }
    }
}

impl Shard {
    /// A replica wants a checkpoint.
    pub(crate) fn begin_fetch(&mut self, group: ConsensusGroup, at_least: Op, from: ReplicaId) {
        let fetch = self.transfers.fetches.entry(group).or_insert(Fetch {
            group,
            at_least,
            from,
            until: 0,
            failures: 0,
            offered: None,
            here: BTreeMap::new(),
            stage: Stage::Asking,
        });
        fetch.at_least = fetch.at_least.max(at_least);
        if matches!(fetch.stage, Stage::Asking) {
            fetch.from = from;
            fetch.ask(&mut self.desk);
        }
    }

    /// Looks at the fetches: some are needed no more, others get no answer.
    pub(crate) fn watch_fetches(&mut self) {
        let groups: Vec<ConsensusGroup> = self.transfers.fetches.keys().copied().collect();
        for group in groups {
            let wanted = self
                .member(group)
                .and_then(|member| member.replica.wanted_checkpoint());
            let Some(fetch) = self.transfers.fetches.get_mut(&group) else {
                continue;
            };
            let Some(wanted) = wanted else {
                self.transfers.fetches.remove(&group);
                continue;
            };
            fetch.at_least = wanted;
            fetch.go_on(&mut self.desk);
            if fetch.is_asking() && fetch.until <= self.desk.now.monotonic {
                fetch.ask_another(&mut self.desk, self.config.nodes.len());
            }
        }
    }

    pub(super) fn on_offer(
        &mut self,
        from: ReplicaId,
        group: ConsensusGroup,
        offer: SnapshotOffer,
    ) {
        if let Some(fetch) = self.fetch_from(from, group) {
            let (fetch, desk) = fetch;
            fetch.on_offer(desk, offer);
        }
    }

    fn fetch_from(
        &mut self,
        from: ReplicaId,
        group: ConsensusGroup,
    ) -> Option<(&mut Fetch, &mut Desk)> {
        let fetch = self.transfers.fetches.get_mut(&group);
        let fetch = fetch.filter(|fetch| fetch.from == from)?;
        Some((fetch, &mut self.desk))
    }

    pub(super) fn on_part(
        &mut self,
        from: ReplicaId,
        group: ConsensusGroup,
        (part, checksum, bytes): (FilePart, u64, Bytes),
    ) {
        if self.on_mending_part((from, group), part, (checksum, &bytes)) {
            return;
        }
        let Self {
            transfers,
            desk,
            data,
            config,
            ..
        } = self;
        let fetch = transfers.fetches.get_mut(&group);
        let Some(fetch) = fetch.filter(|fetch| fetch.from == from) else {
            return;
        };
        let own = |segment| data.get(&group)?.state.end_of_segment(segment);
        let is_useful = checksum64(&bytes) == checksum
            && match part.file {
                TransferFile::Snapshot(op) => {
                    fetch.on_snapshot_part(desk, (op, part.position), &bytes)
                }
                TransferFile::Segment {
                    partition,
                    incarnation,
                    base,
                } => {
                    let segment = SegmentId {
                        group,
                        partition,
                        incarnation,
                        base,
                    };
                    let range = Range {
                        position: part.position,
                        length: part.length,
                    };
                    bytes.len() as u64 == part.length
                        && fetch.on_segment_part(desk, (segment, range), &bytes, own)
                }
            };
        if !is_useful {
            fetch.ask_another(desk, config.nodes.len());
        }
    }

    pub(super) fn on_part_gone(&mut self, from: ReplicaId, group: ConsensusGroup, part: FilePart) {
        if self.on_mending_gone((from, group), part) {
            return;
        }
        let nodes = self.config.nodes.len();
        if let Some((fetch, desk)) = self.fetch_from(from, group)
            && matches!(fetch.stage, Stage::Snapshot | Stage::Segments(_))
        {
            fetch.ask_another(desk, nodes);
        }
    }

    /// A snapshot was read, unless it is none.
    pub(crate) fn on_snapshot_decoded(
        &mut self,
        ticket: IoTicket,
        snapshot: Option<Box<GroupSnapshot>>,
    ) {
        let found =
            self.transfers.fetches.values().find(
                |fetch| matches!(fetch.stage, Stage::Decoding(decoding) if decoding == ticket),
            );
        let Some(group) = found.map(|fetch| fetch.group) else {
            return;
        };
        let whole = snapshot.and_then(|snapshot| self.restore(group, snapshot));
        let Self {
            transfers,
            desk,
            data,
            config,
            ..
        } = self;
        let Some(fetch) = transfers.fetches.get_mut(&group) else {
            return;
        };
        let own = |segment| data.get(&group)?.state.end_of_segment(segment);
        match whole {
            Some(whole) => fetch.on_decoded(desk, whole, own),
            None => {
                fetch.stage = Stage::Asking;
                fetch.ask_another(desk, config.nodes.len());
            }
        }
    }

    /// The state machine of a snapshot, if it is one of this group.
    fn restore(&self, group: ConsensusGroup, snapshot: Box<GroupSnapshot>) -> Option<Whole> {
        if snapshot.group != group {
            return None;
        }
        let (restored, files) = match &snapshot.state {
            StateSnapshot::Metadata(state) if group == ConsensusGroup::METADATA => {
                let catalog = Catalog::restore(self.catalog_config(), state.clone()).ok()?;
                (Restored::Metadata(catalog), Vec::new())
            }
            StateSnapshot::Data(state) if group != ConsensusGroup::METADATA => {
                let restored = DataGroup::restore(self.data_config(group), state.clone()).ok()?;
                (Restored::Data(restored), partition::files_at(state))
            }
            StateSnapshot::Metadata(_) | StateSnapshot::Data(_) => return None,
        };
        Some(Whole {
            snapshot,
            restored,
            files,
        })
    }

    pub(crate) fn changed_for_fetches(&mut self, done: IoTicket) {
        for fetch in self.transfers.fetches.values_mut() {
            fetch.on_changed(&mut self.desk, done);
            fetch.go_on(&mut self.desk);
        }
    }

    pub(crate) fn flushed_for_fetches(&mut self, done: IoTicket) {
        for fetch in self.transfers.fetches.values_mut() {
            fetch.on_flushed(&mut self.desk, done);
        }
    }

    /// Takes out the checkpoint of this op, if it is the one that was being written.
    pub(super) fn take_durable(&mut self, group: ConsensusGroup, op: Op) -> Option<Durable> {
        let fetch = self.transfers.fetches.get(&group)?;
        if !matches!(&fetch.stage, Stage::Writing(ready) if ready.checkpoint.op == op) {
            return None;
        }
        let Stage::Writing(ready) = self.transfers.fetches.remove(&group)?.stage else {
            return None;
        };
        Some((ready.checkpoint, ready.restored))
    }
}
