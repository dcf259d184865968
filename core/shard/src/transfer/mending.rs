//! A segment that is damaged here is fetched from another node.
//!
//! What a segment holds up to some offset is the same everywhere, and its chain is replicated: whoever has it can
//! give it, and nobody has to be believed. All of it is fetched, one part after the other, judged, and written over
//! what is in the file. Once the chain is that of the state, and the file is flushed, the partition is in service
//! again on this node. A part that is not right, not there or late is left for another node, from the beginning.
//! One segment at a time: what is damaged is rare, and the rest of the node has to go on.

use bytes::Bytes;
use partition::{Index, Range, Scan, SegmentChange, SegmentId, Verdict};
use wire::{ConsensusGroup, ReplicaId, checksum64};

use super::{FilePart, TransferFile, TransferMessage, next_node, send};
use crate::{Effect, IoTicket, Note, Shard, desk::Desk};

/// Nanoseconds after which somebody else is asked.
const PATIENCE: u64 = 300_000_000;

/// Nanoseconds until all damaged segments are looked at once more.
const PAUSE: u64 = 200_000_000;

/// The damaged segments of a shard, which are looked at in turn.
#[derive(Debug, Default)]
pub(super) struct Mending {
    current: Option<Mend>,
    /// The segment that this round has come to, and when the next round begins: monotonic time.
    last: Option<SegmentId>,
    due: u64,
}

/// A segment that is on its way here.
#[derive(Debug)]
struct Mend {
    segment: SegmentId,
    /// Who is asked at this moment.
    from: ReplicaId,
    /// Monotonic time when somebody else is asked.
    until: u64,
    /// How many were of no help.
    failures: usize,
    stage: Stage,
}

/// How far it has got.
#[derive(Debug)]
enum Stage {
    /// Parts of it are asked for.
    Parts(Scan),
    /// Waits until what was written is in its file.
    Changing(IoTicket, Index),
    /// Waits until that is flushed.
    Flushing(IoTicket, Index),
}

impl Mend {
    /// The part that it waits for.
    fn wanted(&self) -> Option<FilePart> {
        let Stage::Parts(scan) = &self.stage else {
            return None;
        };
        let Range { position, length } = scan.next_read()?;
        Some(FilePart {
            file: TransferFile::of_segment(self.segment),
            position,
            length,
        })
    }

    fn ask(&mut self, desk: &mut Desk) {
        self.until = desk.now.after(PATIENCE);
        if let Some(part) = self.wanted() {
            let message = TransferMessage::AskPart(part);
            send(desk, self.from, self.segment.group, message);
        }
    }
}

impl Shard {
    /// Looks for damaged segments that others may have, and at the one that is being fetched.
    pub(crate) fn watch_mending(&mut self) {
        if !self.desk.has_peers {
            return;
        }
        let now = self.desk.now.monotonic;
        match &self.transfers.mending.current {
            Some(mend) if !self.may_mend(mend.segment) => self.transfers.mending.current = None,
            Some(mend) if mend.wanted().is_some() && mend.until <= now => self.mend_from_another(),
            Some(_) => {}
            None if self.transfers.mending.due <= now => self.mend_next(),
            None => {}
        }
    }

    /// Whether the segment is here and damaged, and stays what it is.
    fn may_mend(&self, segment: SegmentId) -> bool {
        let host = self.data.get(&segment.group);
        host.is_some_and(|host| {
            host.state.scan_anew(segment).is_some() && !host.member.is_out_of_service()
        }) && !self.transfers.fetches.contains_key(&segment.group)
    }

    fn mend_next(&mut self) {
        let last = self.transfers.mending.last;
        let from = last.map_or(ConsensusGroup::METADATA, |last| last.group);
        let hosts = self.data.range(from..);
        let mut damaged = hosts.filter_map(|(_, host)| host.state.next_damaged(last));
        let next = damaged.find(|segment| self.may_mend(*segment));
        self.transfers.mending.last = next;
        let host = next.and_then(|next| self.data.get(&next.group));
        let Some((segment, host)) = next.zip(host) else {
            self.transfers.mending.due = self.desk.now.after(PAUSE);
            return;
        };
        let Some(scan) = host.state.scan_anew(segment) else {
            return;
        };
        let primary = host.member.replica.primary();
        let from = if primary == self.desk.node {
            next_node(primary, self.desk.node, self.config.nodes.len())
        } else {
            primary
        };
        let mut mend = Mend {
            segment,
            from,
            until: 0,
            failures: 0,
            stage: Stage::Parts(scan),
        };
        mend.ask(&mut self.desk);
        self.transfers.mending.current = Some(mend);
    }

    /// Asks the next node for all of it: who knows where it goes wrong. When all were asked, another segment may
    /// be luckier.
    fn mend_from_another(&mut self) {
        let nodes = self.config.nodes.len();
        let Some(mut mend) = self.transfers.mending.current.take() else {
            return;
        };
        mend.failures += 1;
        let host = self.data.get(&mend.segment.group);
        let scan = host.and_then(|host| host.state.scan_anew(mend.segment));
        let Some(scan) = scan.filter(|_| mend.failures < nodes - 1) else {
            return;
        };
        mend.from = next_node(mend.from, self.desk.node, nodes);
        mend.stage = Stage::Parts(scan);
        mend.ask(&mut self.desk);
        self.transfers.mending.current = Some(mend);
    }

    fn is_mending(&self, (from, group): (ReplicaId, ConsensusGroup), part: FilePart) -> bool {
        let current = self.transfers.mending.current.as_ref();
        current.is_some_and(|mend| {
            mend.from == from && mend.segment.group == group && mend.wanted() == Some(part)
        }) && !self.transfers.fetches.contains_key(&group)
    }

    /// A part has come. Tells whether it is one of a damaged segment.
    pub(super) fn on_mending_part(
        &mut self,
        from: (ReplicaId, ConsensusGroup),
        part: FilePart,
        (checksum, bytes): (u64, &Bytes),
    ) -> bool {
        if !self.is_mending(from, part) {
            return false;
        }
        let Some(mut mend) = self.transfers.mending.current.take() else {
            return true;
        };
        let segment = mend.segment;
        if !self.may_mend(segment) {
            return true;
        }
        let Stage::Parts(mut scan) = mend.stage else {
            unreachable!("it waits for the part");
        };
        if checksum64(bytes) == checksum {
            scan.feed(bytes);
        } else {
            scan.fail();
        }
        let taken = scan.reached().position - part.position;
        let taken = usize::try_from(taken).expect("it was in memory");
        if taken > 0 {
            self.desk.change_fetched(SegmentChange::Append {
                segment,
                position: part.position,
                parts: [bytes.slice(..taken)].to_vec(),
            });
        }
        if scan.next_read().is_some() {
            mend.stage = Stage::Parts(scan);
            mend.ask(&mut self.desk);
            self.transfers.mending.current = Some(mend);
            return true;
        }
        match scan.clone().finish() {
            Verdict::Whole(index) => {
                let through = self.desk.last_change();
                let through = through.expect("the last part is on its way to the file");
                mend.stage = Stage::Changing(through, index);
                self.transfers.mending.current = Some(mend);
            }
            Verdict::Damaged(_) => {
                mend.stage = Stage::Parts(scan);
                self.transfers.mending.current = Some(mend);
                self.mend_from_another();
            }
        }
        true
    }

    /// Tells whether the part is one of a damaged segment.
    pub(super) fn on_mending_gone(
        &mut self,
        from: (ReplicaId, ConsensusGroup),
        part: FilePart,
    ) -> bool {
        let is_mending = self.is_mending(from, part);
        if is_mending {
            self.mend_from_another();
        }
        is_mending
    }

    pub(crate) fn changed_for_mending(&mut self, done: IoTicket) {
        let Some(mend) = &mut self.transfers.mending.current else {
            return;
        };
        if let Stage::Changing(through, index) = &mend.stage
            && *through <= done
        {
            let ticket = self.desk.next_io_ticket();
            let segments = [mend.segment].to_vec();
            self.desk.push(Effect::Flush { ticket, segments });
            mend.stage = Stage::Flushing(ticket, index.clone());
        }
    }

    pub(crate) fn flushed_for_mending(&mut self, done: IoTicket) {
        let mending = &mut self.transfers.mending.current;
        let is_done = |mend: &mut Mend| matches!(mend.stage, Stage::Flushing(it, _) if it == done);
        let Some(mend) = mending.take_if(is_done) else {
            return;
        };
        let Stage::Flushing(_, index) = mend.stage else {
            return;
        };
        let segment = mend.segment;
        let Some(host) = self.data.get_mut(&segment.group) else {
            return;
        };
        if host.state.mended(segment, index) {
            host.take_changes(&mut self.desk);
            self.polls.on_mended(segment);
            self.desk.note(Note::Mended { segment });
        }
    }
}
