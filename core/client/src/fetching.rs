//! What is fetched of one partition ahead of the application, and the request for more.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{Epoch, ErrorCode, Offset, PartitionId};

use crate::{Backoff, Call, Delivery, backoff::passes_with_primary, chunk::Chunk, random::Random};

/// Messages fetched ahead, and when more may be asked for.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    chunks: VecDeque<Chunk>,
    /// Bytes of the batches in `chunks`.
    size: usize,
    /// The unanswered request. An answer to any other is dropped.
    call: Option<Call>,
    /// Nothing is fetched before this time.
    pub(crate) blocked_until: u64,
    /// Failures in a row.
    failures: u32,
    /// Whether the pause may be over as soon as a consensus group has another primary.
    awaits_primary: bool,
    /// Nothing is fetched any more; the application was told why.
    pub(crate) faulty: bool,
}

impl Fetching {
    /// Bytes of batches that are here.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Whether nothing is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether nothing is here, nor on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.chunks.is_empty() && self.call.is_none()
    }

    /// The offset that is handed out next, if it is here.
    pub(crate) fn next_offset(&self) -> Option<Offset> {
        self.chunks.front().map(|chunk| chunk.next)
    }

    /// Whether it may be asked for now.
    pub(crate) const fn may_begin(&self, now: u64) -> bool {
        self.call.is_none() && !self.faulty && now >= self.blocked_until
    }

    pub(crate) const fn begin(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// A request has ended; says whether it was waited for.
    pub(crate) fn end(&mut self, call: Call) -> bool {
        let own = self.call == Some(call);
        if own {
            self.call = None;
        }
        own
    }

    pub(crate) const fn succeed(&mut self) {
        self.failures = 0;
        self.blocked_until = 0;
        self.awaits_primary = false;
    }

    /// Leaves the partition alone for a while.
    pub(crate) fn fail(
        &mut self,
        now: u64,
        refusal: Option<ErrorCode>,
        (backoff, random): (&Backoff, &mut Random),
    ) {
        self.failures = self.failures.saturating_add(1);
        let wait = backoff.after(refusal).wait(self.failures, random);
        self.blocked_until = now.saturating_add(wait);
        self.awaits_primary = refusal.is_some_and(passes_with_primary);
    }

    /// The first failure in a row needs no pause when what comes next is another way. Says whether it was.
    pub(crate) const fn stumble(&mut self) -> bool {
        let first = self.failures == 0;
        if first {
            self.failures = 1;
        }
        first
    }

    /// A consensus group has another primary: tries again what waits for one.
    pub(crate) const fn wake(&mut self) {
        if self.awaits_primary {
            self.succeed();
        }
    }

    /// Adds what has come. Gives the bytes that it takes.
    pub(crate) fn extend(&mut self, chunks: Vec<Chunk>) -> usize {
        let size = chunks.iter().map(|chunk| chunk.size).sum::<usize>();
        self.size += size;
        self.chunks.extend(chunks);
        size
    }

    /// The next message, and the bytes of batches that are done with. There can be batches without a message
    /// that is wanted.
    pub(crate) fn take(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
    ) -> (Option<Delivery>, usize) {
        let mut freed = 0;
        while let Some(chunk) = self.chunks.front_mut() {
            if let Some(message) = chunk.next_message() {
                let delivery = Delivery {
                    partition,
                    epoch,
                    appended: chunk.appended,
                    message,
                };
                return (Some(delivery), freed);
            }
            freed += chunk.size;
            self.size -= chunk.size;
            self.chunks.pop_front();
        }
        (None, freed)
    }

    /// Forgets what is here and on its way. Gives the bytes that it took.
    pub(crate) fn clear(&mut self) -> usize {
        self.chunks.clear();
        self.call = None;
        core::mem::take(&mut self.size)
    }

    /// Goes on with what another has.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        self.chunks = core::mem::take(&mut other.chunks);
        self.size = core::mem::take(&mut other.size);
    }
}
