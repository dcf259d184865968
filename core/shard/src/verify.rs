//! Verification after a start: each partition's open segment is read once and judged.

use alloc::{
    collections::{BTreeMap, VecDeque},
    string::ToString,
    vec::Vec,
};

use bytes::Bytes;
use partition::{Scan, SegmentFile, SegmentId, Verdict};
use wire::ConsensusGroup;

use crate::{Effect, IoTicket, Note, desk::Desk, poll::DataHosts};

/// The segments that are still to be verified, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    waiting: BTreeMap<ConsensusGroup, VecDeque<SegmentId>>,
    current: Option<(IoTicket, Scan)>,
}

impl Verifier {
    /// Adds the open ones among the files of a snapshot. Full segments are verified when they are read.
    pub(crate) fn add(&mut self, files: Vec<SegmentFile>) {
        for file in files.into_iter().filter(|file| file.open) {
            let of_group = self.waiting.entry(file.id.group).or_default();
            of_group.push_back(file.id);
        }
    }

    /// Goes on with the next segment, if none is being read. Those of a group whose state is behind its disk wait:
    /// what has been deleted since is not damaged.
    pub(crate) fn go_on(&mut self, hosts: &mut DataHosts, desk: &mut Desk) {
        while self.current.is_none() {
            let Some(segment) = self.next(hosts) else {
                return;
            };
            let scan = hosts
                .get(&segment.group)
                .and_then(|host| host.state.scan(segment));
            if let Some(scan) = scan {
                self.advance(hosts, desk, scan);
            }
        }
    }

    fn next(&mut self, hosts: &DataHosts) -> Option<SegmentId> {
        self.waiting.retain(|_, segments| !segments.is_empty());
        let is_due = |group: &ConsensusGroup| {
            let host = hosts.get(group);
            host.is_none_or(|host| !host.member.is_behind_its_disk())
        };
        let mut waiting = self.waiting.iter_mut();
        let (_, segments) = waiting.find(|(group, _)| is_due(group))?;
        segments.pop_front()
    }

    /// A range was read.
    pub(crate) fn on_read(
        &mut self,
        hosts: &mut DataHosts,
        desk: &mut Desk,
        ticket: IoTicket,
        bytes: Option<&Bytes>,
    ) {
        if self
            .current
            .as_ref()
            .is_none_or(|(current, _)| *current != ticket)
        {
            return;
        }
        if let Some((_, mut scan)) = self.current.take() {
            match bytes {
                Some(bytes) => scan.feed(bytes),
                None => scan.fail(),
            }
            self.advance(hosts, desk, scan);
        }
        self.go_on(hosts, desk);
    }

    fn advance(&mut self, hosts: &mut DataHosts, desk: &mut Desk, scan: Scan) {
        let segment = scan.id();
        if let Some(range) = scan.next_read() {
            let ticket = desk.next_io_ticket();
            desk.push(Effect::Read {
                ticket,
                segment,
                file: partition::FileKind::Segment,
                position: range.position,
                length: range.length,
            });
            self.current = Some((ticket, scan));
            return;
        }
        let Some(host) = hosts.get_mut(&segment.group) else {
            return;
        };
        match scan.finish() {
            Verdict::Damaged(damage) => {
                let reason = damage.to_string();
                // It may have been deleted while it was read.
                if host.state.mark_damaged(segment, damage) {
                    desk.note(Note::Damaged { segment, reason });
                }
            }
            whole @ Verdict::Whole(_) => host.state.verified(segment, whole),
        }
        host.take_changes(desk);
    }
}
