//! The batches of one partition, in the order in which they were begun.

use alloc::collections::VecDeque;

use wire::{Batch, BatchBuilder, Message, ProducerId, ReplicaId};

use super::BatchId;
use crate::ClientError;

/// Batches of a producer whose offsets a partition keeps.
pub(super) const BATCHES_KEPT: u64 = 5;

/// One partition's part of a producer.
///
/// Order is kept by the partition itself: it refuses a batch whose sequence skips one. So batches are sent
/// in order, several may be unanswered, and after a failure nothing more is sent until everything that was
/// is answered; then it goes on from the earliest.
#[derive(Debug)]
pub(super) struct Queue {
    /// Under which the next batches are numbered. A batch that fails for good leaves a gap in its
    /// sequence; those behind it go on under another identity.
    pub(super) identity: ProducerId,
    /// The sequence of the batch that is numbered next.
    next_sequence: u64,
    /// The batch that takes messages.
    pub(super) open: Option<Open>,
    /// Closed batches without a final answer, in order.
    pub(super) batches: VecDeque<Sealed>,
    /// The node that leads the partition, as far as known.
    pub(super) lead: Option<ReplicaId>,
    /// The node that what is unanswered was sent to: nothing goes to another one before that is answered, or
    /// it could come first there.
    via: Option<ReplicaId>,
    /// Nothing is sent before this time.
    pub(super) blocked_until: u64,
    /// Whether the pause may be over as soon as a consensus group has another primary.
    pub(super) awaits_primary: bool,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Whether something failed and nothing has succeeded since: one batch at a time.
    pub(super) cautious: bool,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: BatchId,
    pub(super) builder: BatchBuilder,
    /// When its first message came.
    pub(super) since: u64,
    /// Whether it is to be sent without more linger.
    pub(super) flushed: bool,
}

#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) id: BatchId,
    pub(super) since: u64,
    pub(super) count: u32,
    pub(super) size: usize,
    content: Content,
    pub(super) in_flight: bool,
    /// Whether an earlier sending may have been appended.
    pub(super) unknown: bool,
    /// Why it was not answered well the last time.
    pub(super) error: Option<ClientError>,
}

#[derive(Debug)]
enum Content {
    /// Never sent: not numbered yet.
    Fresh(BatchBuilder),
    /// Numbered, and sent at least once.
    Numbered(Batch),
    /// Sent and certainly not appended: to be numbered anew.
    Unnumbered(Batch),
    /// Between two of the others.
    Taken,
}

impl Queue {
    pub(super) const fn new(identity: ProducerId) -> Self {
        Self {
            identity,
            next_sequence: 1,
            open: None,
            batches: VecDeque::new(),
            lead: None,
            via: None,
            blocked_until: 0,
            awaits_primary: false,
            failures: 0,
            cautious: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none() && self.batches.is_empty()
    }

    /// Adds a message to the open batch, which is begun under `id` if there is none.
    pub(super) fn push(&mut self, message: &Message, id: BatchId, now: u64) -> (BatchId, u32) {
        let open = self.open.get_or_insert_with(|| Open {
            id,
            builder: BatchBuilder::new(),
            since: now,
            flushed: false,
        });
        let index = open.builder.count();
        open.builder.push(message);
        (open.id, index)
    }

    /// Closes the open batch.
    pub(super) fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.batches.push_back(Sealed {
            id: open.id,
            since: open.since,
            count: open.builder.count(),
            size: open.builder.size(),
            content: Content::Fresh(open.builder),
            in_flight: false,
            unknown: false,
            error: None,
        });
    }

    /// Whether one more batch may be sent: the waiting one that comes first, or a new one.
    pub(super) fn may_send(&self, now: u64, window: usize) -> bool {
        let window = if self.cautious { 1 } else { window };
        let waiting = self.batches.iter().find(|batch| !batch.in_flight);
        let (identity, sequence) = waiting
            .and_then(Sealed::number)
            .unwrap_or((self.identity, self.next_sequence));
        let mut in_flight = self.batches.iter().filter(|batch| batch.in_flight);
        let count = in_flight.clone().count();
        let moves = count > 0 && self.lead.is_some() && self.via != self.lead;
        if now < self.blocked_until || count >= window || moves {
            return false;
        }
        // Under another identity the partition could not tell the order; and a repetition of the oldest
        // batch must still find its offset kept.
        in_flight.all(|batch| {
            let number = batch.number();
            number.is_some_and(|(other, oldest)| {
                other == identity && sequence < oldest + BATCHES_KEPT
            })
        })
    }

    /// The index of the batch to be sent next, if one waits and may be sent.
    pub(super) fn next_to_send(&self, now: u64, window: usize) -> Option<usize> {
        if self.may_send(now, window) {
            self.batches.iter().position(|batch| !batch.in_flight)
        } else {
            None
        }
    }

    /// The node that the next batch has to be sent to, `Some(None)` being any; `None`: along with whatever else
    /// is sent, for nothing is known and nothing is unanswered.
    fn course(&self) -> Option<Option<ReplicaId>> {
        if self.batches.iter().any(|batch| batch.in_flight) {
            Some(self.via)
        } else {
            self.lead.map(Some)
        }
    }

    /// Whether the next batch may be part of a request on this course, which it may settle.
    pub(super) fn joins(&self, course: &mut Option<Option<ReplicaId>>) -> bool {
        match self.course() {
            None => true,
            Some(own) => *course.get_or_insert(own) == own,
        }
    }

    /// What is unanswered was sent to this node.
    pub(super) const fn bind(&mut self, node: Option<ReplicaId>) {
        self.via = node;
    }

    /// Numbers the batch if it is not, and marks it as sent.
    pub(super) fn send(&mut self, index: usize) -> Batch {
        let sealed = &mut self.batches[index];
        assert!(!sealed.in_flight);
        let batch = match core::mem::replace(&mut sealed.content, Content::Taken) {
            Content::Numbered(batch) => batch,
            Content::Fresh(builder) => builder.build(self.identity, self.next_sequence),
            Content::Unnumbered(batch) => batch.numbered(self.identity, self.next_sequence),
            Content::Taken => unreachable!("content is put back at once"),
        };
        if batch.header.producer() == self.identity && batch.header.sequence == self.next_sequence {
            self.next_sequence += 1;
        }
        sealed.content = Content::Numbered(batch.clone());
        sealed.in_flight = true;
        batch
    }

    pub(super) fn position(&self, id: BatchId) -> Option<usize> {
        self.batches.iter().position(|batch| batch.id == id)
    }

    /// A batch is out of the queue without having been appended under its number: what follows it is
    /// numbered anew under `identity`. Batches that may have been appended keep their numbers until the
    /// partition has said so.
    pub(super) fn renumber(&mut self, identity: ProducerId) {
        self.identity = identity;
        self.next_sequence = 1;
        self.cautious = true;
        for sealed in &mut self.batches {
            if !sealed.in_flight && !sealed.unknown {
                sealed.unnumber();
            }
        }
    }
}

impl Sealed {
    /// Identity and sequence under which it was sent last.
    fn number(&self) -> Option<(ProducerId, u64)> {
        match &self.content {
            Content::Numbered(batch) => Some((batch.header.producer(), batch.header.sequence)),
            Content::Fresh(_) | Content::Unnumbered(_) | Content::Taken => None,
        }
    }

    /// The identity under which it was sent last.
    pub(super) fn identity(&self) -> Option<ProducerId> {
        self.number().map(|(identity, _)| identity)
    }

    /// It was certainly not appended: its number is free.
    pub(super) fn unnumber(&mut self) {
        self.unknown = false;
        self.content = match core::mem::replace(&mut self.content, Content::Taken) {
            Content::Numbered(batch) => Content::Unnumbered(batch),
            other @ (Content::Fresh(_) | Content::Unnumbered(_)) => other,
            Content::Taken => unreachable!("content is put back at once"),
        };
    }
}
