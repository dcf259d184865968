//! Other nodes read snapshots and segments of this one.

use alloc::collections::BTreeMap;

use bytes::Bytes;
use partition::{FileKind, SegmentId};
use wire::{ConsensusGroup, FRAME_SIZE_MAX, Op, ReplicaId, checksum64};

use super::{
    FilePart, PART_SIZE, SnapshotOffer, SnapshotPart, TransferFile, TransferMessage, send,
};
use crate::{Effect, IoTicket, Shard};

/// Reads for others that are under way at the most, on one shard. Who asks for more asks again.
const READS_MAX: usize = 16;

/// A read for another node.
#[derive(Clone, Copy, Debug)]
struct Reading {
    to: ReplicaId,
    group: ConsensusGroup,
    /// Without one, a snapshot is offered.
    part: Option<FilePart>,
    op: Op,
}

/// What is read for other nodes.
#[derive(Debug, Default)]
pub(crate) struct Offering {
    reads: BTreeMap<IoTicket, Reading>,
}

impl Shard {
    /// Another node asks for the newest snapshot. If that is too old a newer one is taken.
    pub(super) fn offer(&mut self, to: ReplicaId, group: ConsensusGroup, at_least: Op) {
        let member = self.member(group);
        let Some(member) = member.filter(|member| !member.is_out_of_service()) else {
            return;
        };
        let op = member.snapshot;
        if op < at_least {
            // One is taken, for when it is asked for again.
            if member.replica.commit_min() >= at_least {
                self.want_checkpoint(group);
            }
            return;
        }
        if self.transfers.offering.reads.len() >= READS_MAX {
            return;
        }
        let reading = Reading {
            to,
            group,
            part: None,
            op,
        };
        self.read_snapshot(reading, 0, 0);
    }

    /// Another node asks for a part of a file.
    pub(super) fn read_part(&mut self, to: ReplicaId, group: ConsensusGroup, part: FilePart) {
        let member = self.member(group);
        let is_sound = member.is_some_and(|member| !member.is_out_of_service());
        if !is_sound || self.transfers.offering.reads.len() >= READS_MAX {
            return;
        }
        let reading = Reading {
            to,
            group,
            part: Some(part),
            op: Op(0),
        };
        match part.file {
            TransferFile::Snapshot(op) => {
                let length = part.length.min(PART_SIZE);
                self.read_snapshot(Reading { op, ..reading }, part.position, length);
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
                // What is in the file of a segment that is here stays there until it is deleted.
                let host = self.data.get(&group);
                let written = host.and_then(|host| host.state.written_of_segment(segment));
                let end = part.position.checked_add(part.length);
                let is_there = end.zip(written).is_some_and(|(end, written)| {
                    end <= written && part.length <= u64::from(FRAME_SIZE_MAX)
                });
                if !is_there {
                    self.renew(segment);
                    let gone = TransferMessage::Gone(part);
                    return send(&mut self.desk, to, group, gone);
                }
                let ticket = self.desk.next_io_ticket();
                self.transfers.offering.reads.insert(ticket, reading);
                self.desk.push(Effect::Read {
                    ticket,
                    segment,
                    file: FileKind::Segment,
                    position: part.position,
                    length: part.length,
                });
            }
        }
    }

    /// The newest snapshot may name a segment that the state after it does not have any more: it is of no use
    /// to others, and another one takes its place.
    fn renew(&mut self, segment: SegmentId) {
        let Some(host) = self.data.get_mut(&segment.group) else {
            return;
        };
        let is_here = host.state.incarnation(segment.partition) == Some(segment.incarnation);
        let start = host.state.start(segment.partition);
        if !is_here || start.is_some_and(|start| start > segment.base) {
            host.checkpoints.want();
        }
    }

    fn read_snapshot(&mut self, reading: Reading, position: u64, length: u64) {
        let ticket = self.desk.next_io_ticket();
        self.transfers.offering.reads.insert(ticket, reading);
        self.desk.push(Effect::ReadSnapshot {
            ticket,
            group: reading.group,
            op: reading.op,
            position,
            length,
        });
    }

    /// A part of a snapshot was read, unless it is there no more.
    pub(crate) fn on_snapshot_read(&mut self, ticket: IoTicket, read: Option<SnapshotPart>) {
        let Some(reading) = self.transfers.offering.reads.remove(&ticket) else {
            return;
        };
        let Reading {
            to,
            group,
            part,
            op,
        } = reading;
        let message = match (part, read) {
            (None, Some(SnapshotPart { size, checksum, .. })) => {
                TransferMessage::Offer(SnapshotOffer { op, size, checksum })
            }
            (Some(part), Some(read)) if !read.bytes.is_empty() => part_of(part, read.bytes),
            (Some(part), Some(_) | None) => TransferMessage::Gone(part),
            // Another one takes its place at this moment, or it is lost; who asks asks again.
            (None, None) => return self.want_checkpoint(group),
        };
        send(&mut self.desk, to, group, message);
    }

    /// A part of a segment was read. Tells whether it is one for another node.
    pub(crate) fn on_part_read(&mut self, ticket: IoTicket, bytes: Option<&Bytes>) -> bool {
        let Some(reading) = self.transfers.offering.reads.remove(&ticket) else {
            return false;
        };
        let Some(part) = reading.part else {
            return true;
        };
        let bytes = bytes.filter(|bytes| bytes.len() as u64 == part.length);
        let message = bytes.map_or(TransferMessage::Gone(part), |bytes| {
            part_of(part, bytes.clone())
        });
        send(&mut self.desk, reading.to, reading.group, message);
        true
    }
}

fn part_of(part: FilePart, bytes: Bytes) -> TransferMessage {
    TransferMessage::Part {
        part,
        checksum: checksum64(&bytes),
        bytes,
    }
}
