//! Full segments are read back from time to time, at a limited rate: damage is found while there may be
//! somebody who has them whole, and not by the first consumer that needs them.

use alloc::string::ToString;

use bytes::Bytes;
use partition::{FileKind, Scan, SegmentId, Verdict};

use crate::{Effect, IoTicket, Note, counters::Counters, desk::Desk, poll::DataHosts};

/// From the beginning of one round over all segments to that of the next, nanoseconds, at least.
const ROUND: u64 = 3_600 * SECOND;

const SECOND: u64 = 1_000_000_000;

/// The segment that is being read back, and when it goes on.
#[derive(Debug)]
pub(crate) struct Scrub {
    /// Bytes a second; 0: nothing is read back.
    rate: u64,
    /// The segment that this round has come to.
    last: Option<SegmentId>,
    current: Option<Scan>,
    /// What was asked for and has not come.
    ticket: Option<IoTicket>,
    /// When the next bytes may be read, and when this round began: monotonic time.
    due: u64,
    began: u64,
}

impl Scrub {
    pub(crate) const fn new(rate: u64) -> Self {
        Self {
            rate,
            last: None,
            current: None,
            ticket: None,
            due: 0,
            began: 0,
        }
    }

    /// Reads on if it is time.
    pub(crate) fn on_time(&mut self, hosts: &DataHosts, desk: &mut Desk) {
        let now = desk.now.monotonic;
        if self.rate == 0 || self.ticket.is_some() || now < self.due {
            return;
        }
        // A group that catches up would be left out, and this round with it.
        if hosts.values().any(|host| host.member.catches_up()) {
            return;
        }
        if self.current.is_none() {
            if self.last.is_none() {
                self.began = now;
            }
            let next = next_full(hosts, self.last);
            self.last = next.as_ref().map(Scan::id);
            self.current = next;
        }
        let range = self.current.as_ref().and_then(|scan| {
            let range = scan.next_read()?;
            Some((scan.id(), range))
        });
        let Some((segment, range)) = range else {
            // The round is over, or the segment is.
            self.due = if self.last.is_none() {
                self.began.saturating_add(ROUND)
            } else {
                now
            };
            self.current = None;
            return;
        };
        let took = u128::from(range.length) * u128::from(SECOND) / u128::from(self.rate);
        self.due = now.saturating_add(u64::try_from(took).unwrap_or(u64::MAX));
        let ticket = desk.next_io_ticket();
        self.ticket = Some(ticket);
        desk.push(Effect::Read {
            ticket,
            segment,
            file: FileKind::Segment,
            position: range.position,
            length: range.length,
        });
    }

    /// A range was read. Says whether it was asked for here.
    pub(crate) fn on_read(
        &mut self,
        (hosts, counters): (&mut DataHosts, &mut Counters),
        desk: &mut Desk,
        ticket: IoTicket,
        bytes: Option<&Bytes>,
    ) -> bool {
        if self.ticket != Some(ticket) {
            return false;
        }
        self.ticket = None;
        let Some(mut scan) = self.current.take() else {
            return true;
        };
        counters.bytes_scrubbed += bytes.map_or(0, |bytes| bytes.len() as u64);
        match bytes {
            Some(bytes) => scan.feed(bytes),
            None => scan.fail(),
        }
        if scan.next_read().is_some() {
            self.current = Some(scan);
            return true;
        }
        let segment = scan.id();
        let host = hosts.get_mut(&segment.group);
        if let (Verdict::Damaged(damage), Some(host)) = (scan.finish(), host) {
            let reason = damage.to_string();
            // It may have been deleted while it was read.
            if host.state.mark_damaged(segment, damage) {
                desk.note(Note::Damaged { segment, reason });
            }
        }
        true
    }
}

/// The full segment that comes after `last`, from its beginning.
fn next_full(hosts: &DataHosts, last: Option<SegmentId>) -> Option<Scan> {
    let from = last.map_or(wire::ConsensusGroup::METADATA, |last| last.group);
    let mut hosts = hosts.range(from..);
    hosts.find_map(|(_, host)| match host.member.is_behind_its_disk() {
        true => None,
        false => host.state.next_full(last),
    })
}
