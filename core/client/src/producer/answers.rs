//! What becomes of batches: delivered, sent again, given up.

use alloc::vec::Vec;

use wire::{ErrorCode, Offset, Reply, SendResult};

use super::{BatchId, Call, Producer, ProducerEffect, identity, partition_id};
use crate::{ClientError, ErrorClass, backoff::passes_with_primary, nanoseconds};

impl Producer {
    pub(super) fn on_answer(&mut self, call: Call, result: Result<Reply, ClientError>) {
        if self.refresh == Some(call) {
            self.refresh = None;
            return self.on_topic(result);
        }
        let Some(batches) = self.calls.remove(&call) else {
            return;
        };
        match result {
            Ok(Reply::Sent(sent)) if sent.sections.len() == batches.len() => {
                for ((index, id), section) in batches.into_iter().zip(sent.sections) {
                    self.on_section(index, id, section);
                }
            }
            Ok(_) => self.on_batches_failed(&batches, &unexpected()),
            Err(error) => self.on_batches_failed(&batches, &error),
        }
    }

    /// The topic was asked for. If that failed, it is asked for again at the next interval; sends tell
    /// by themselves what is wrong.
    fn on_topic(&mut self, result: Result<Reply, ClientError>) {
        self.refresh_at = self
            .now
            .saturating_add(nanoseconds(self.config.refresh_interval));
        if let Ok(Reply::Topic(topic)) = result
            && let Ok(count) = u32::try_from(topic.partitions.len())
            && count > 0
        {
            self.partitions = count;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            self.sticky %= count;
        }
    }

    fn on_section(&mut self, index: usize, id: BatchId, section: SendResult) {
        let names_primary = match &section.status {
            Ok(()) => true,
            Err(failure) => failure.code == ErrorCode::NotPrimary,
        };
        if names_primary {
            self.queues[index].lead = Some(section.primary);
        }
        match (section.status, section.base_offset) {
            (Ok(()), Some(base_offset)) => self.on_delivered(index, id, base_offset),
            (Ok(()), None) => self.on_batch_failed(index, id, &unexpected()),
            (Err(failure), _) => self.on_batch_failed(index, id, &ClientError::Refused(failure)),
        }
    }

    fn on_delivered(&mut self, index: usize, id: BatchId, base_offset: Offset) {
        let queue = &mut self.queues[index];
        let Some(position) = queue.position(id) else {
            return;
        };
        let Some(sealed) = queue.batches.remove(position) else {
            return;
        };
        queue.cautious = false;
        queue.failures = 0;
        queue.blocked_until = 0;
        self.held -= sealed.size;
        self.effects.push_back(ProducerEffect::Delivered {
            batch: id,
            partition: partition_id(index),
            base_offset,
            count: sealed.count,
        });
        self.settle(index);
    }

    fn on_batches_failed(&mut self, batches: &[(usize, BatchId)], error: &ClientError) {
        for (index, id) in batches {
            self.on_batch_failed(*index, *id, error);
        }
    }

    fn on_batch_failed(&mut self, index: usize, id: BatchId, error: &ClientError) {
        let queue = &mut self.queues[index];
        let Some(position) = queue.position(id) else {
            return;
        };
        let sealed = &mut queue.batches[position];
        sealed.in_flight = false;
        sealed.unknown |= error.may_have_happened();
        sealed.error = Some(error.clone());
        match judge(error) {
            Verdict::Gap if position > 0 => self.hold(index, error),
            Verdict::Gap => self.on_gap(index, error),
            Verdict::SendAgain => self.hold(index, error),
            Verdict::GiveUp => {
                if error.refusal() == Some(ErrorCode::PartitionNotFound) {
                    self.refresh_at = self.now;
                }
                self.give_up(index, id, error.clone());
            }
        }
    }

    /// The partition misses a batch before the first one that is not answered, or does not know the
    /// producer: what was numbered goes on under another identity, unless it may be there already.
    fn on_gap(&mut self, index: usize, error: &ClientError) {
        let forgotten = error.refusal() == Some(ErrorCode::ProducerUnknown);
        let first = &self.queues[index].batches[0];
        if forgotten && first.unknown {
            return self.give_up(index, first.id, error.clone());
        }
        if first.identity() == Some(self.queues[index].identity) {
            self.renumber(index);
        }
        let queue = &mut self.queues[index];
        queue.batches[0].unnumber();
        // Numbered anew it fits, so a second gap in a row is the server's fault: do not press it.
        if queue.failures > 0 {
            self.pause(index, None);
        } else {
            queue.failures = 1;
        }
    }

    /// Sends nothing of the partition until everything that was sent is answered and, after a refusal, a
    /// pause is over. While there is no connection the session holds what it is given.
    fn hold(&mut self, index: usize, error: &ClientError) {
        self.queues[index].cautious = true;
        if pauses(error) {
            self.pause(index, error.refusal());
        }
    }

    fn pause(&mut self, index: usize, refusal: Option<ErrorCode>) {
        let queue = &mut self.queues[index];
        queue.failures = queue.failures.saturating_add(1);
        let backoff = self.config.backoff.after(refusal);
        let wait = backoff.wait(queue.failures, &mut self.random);
        queue.blocked_until = self.now.saturating_add(wait);
        queue.awaits_primary = refusal.is_some_and(passes_with_primary);
    }

    /// A consensus group has another primary: what waits for one need not wait any more.
    pub(super) fn on_primary_changed(&mut self) {
        for index in &self.active {
            let queue = &mut self.queues[*index];
            if core::mem::take(&mut queue.awaits_primary) {
                queue.failures = 0;
                queue.blocked_until = 0;
            }
        }
    }

    /// Gives up what could not be delivered in time.
    pub(super) fn expire(&mut self) {
        let timeout = nanoseconds(self.config.delivery_timeout);
        for index in self.active.iter().copied().collect::<Vec<_>>() {
            while let Some(sealed) = self.queues[index].batches.front()
                && !sealed.in_flight
                && self.now >= sealed.since.saturating_add(timeout)
            {
                let (id, error) = (sealed.id, sealed.error.clone());
                self.give_up(index, id, error.unwrap_or_else(|| self.late()));
            }
        }
    }

    fn late(&self) -> ClientError {
        ClientError::TimedOut {
            command: wire::Command::SendMessages,
            waited_ms: u64::try_from(self.config.delivery_timeout.as_millis()).unwrap_or(u64::MAX),
            sent: false,
        }
    }

    fn give_up(&mut self, index: usize, id: BatchId, error: ClientError) {
        let queue = &mut self.queues[index];
        let Some(position) = queue.position(id) else {
            return;
        };
        let Some(sealed) = queue.batches.remove(position) else {
            return;
        };
        self.held -= sealed.size;
        if sealed.identity() == Some(queue.identity) {
            self.renumber(index);
        }
        self.effects.push_back(ProducerEffect::Failed {
            batch: id,
            partition: partition_id(index),
            count: sealed.count,
            error,
            may_be_stored: sealed.unknown,
        });
        self.settle(index);
    }

    fn renumber(&mut self, index: usize) {
        let identity = identity(self.config.producer, &mut self.random);
        self.queues[index].renumber(identity);
    }

    fn settle(&mut self, index: usize) {
        if self.queues[index].is_empty() {
            self.active.remove(&index);
        }
    }
}

/// What an error means for a batch.
enum Verdict {
    SendAgain,
    /// A batch is missing before it.
    Gap,
    GiveUp,
}

fn judge(error: &ClientError) -> Verdict {
    match error.refusal() {
        Some(ErrorCode::SequenceOutOfOrder | ErrorCode::ProducerUnknown) => return Verdict::Gap,
        Some(code) if code.retryable() => return Verdict::SendAgain,
        Some(_) | None => {}
    }
    match error.class() {
        ErrorClass::Retryable | ErrorClass::SessionLost => Verdict::SendAgain,
        ErrorClass::Fatal => Verdict::GiveUp,
    }
}

/// Whether sending again at once would be unkind, or in vain.
fn pauses(error: &ClientError) -> bool {
    match error.refusal() {
        Some(code) => !matches!(
            code,
            ErrorCode::SequenceOutOfOrder | ErrorCode::ProducerUnknown
        ),
        None => matches!(
            error,
            ClientError::QueueFull { .. } | ClientError::TimedOut { .. }
        ),
    }
}

/// The server answered something that does not fit the request.
fn unexpected() -> ClientError {
    ClientError::Unreadable {
        command: wire::Command::SendMessages,
        error: wire::DecodeError {
            field: "sections",
            position: 0,
            problem: wire::Problem::Invalid { value: 0 },
        },
    }
}
