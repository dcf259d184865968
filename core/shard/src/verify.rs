//! Verification after a start: each partition's open segment is read once and judged.

use alloc::{collections::VecDeque, string::ToString, vec::Vec};

use bytes::Bytes;
use partition::{Scan, SegmentFile, SegmentId, Verdict};

use crate::{Effect, IoTicket, Note, desk::Desk, poll::DataHosts};

/// The segments that are still to be verified, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    waiting: VecDeque<SegmentId>,
    current: Option<(IoTicket, Scan)>,
}

impl Verifier {
    /// Adds the open ones among the files of a snapshot. Full segments are verified when they are read.
    pub(crate) fn add(&mut self, files: Vec<SegmentFile>) {
        self.waiting.extend(
            files
                .into_iter()
                .filter(|file| file.open)
                .map(|file| file.id),
        );
    }

    /// Goes on with the next segment, if none is being read.
    pub(crate) fn go_on(&mut self, hosts: &mut DataHosts, desk: &mut Desk) {
        while self.current.is_none() {
            let Some(segment) = self.waiting.pop_front() else {
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
        let verdict = scan.finish();
        if let Verdict::Damaged(damage) = &verdict {
            desk.note(Note::Damaged {
                segment,
                reason: damage.to_string(),
            });
        }
        if let Some(host) = hosts.get_mut(&segment.group) {
            host.state.verified(segment, verdict);
            host.take_changes(desk);
        }
    }
}
