//! Stored offsets.

use alloc::vec::Vec;
use core::time::Duration;

use wire::{ErrorCode, Offset, PartitionId, Reply, StoreConsumerOffset, StoreResult, StoreSection};

use super::{
    Asked, Call, ClientError, Consumer, ConsumerError, ConsumerEvent, StoreMode,
    assignment::Assignment, nanoseconds,
};
use crate::{lead::common, storing::Pace, turns::SECTIONS_MAX};

impl Consumer {
    pub(super) fn identity(&self) -> wire::Consumer {
        wire::Consumer::Single(self.config.name.clone())
    }

    pub(super) fn on_flush(&mut self) {
        for assignment in self.assignments.values_mut() {
            assignment.storing.hurry(assignment.processed());
        }
    }

    /// Something may be there to be stored from now on.
    pub(super) fn note_progress(&mut self, partition: PartitionId) {
        if let Some(assignment) = self.assignments.get_mut(&partition) {
            assignment.storing.note(self.now, assignment.processed());
        }
        let assignment = self.assignments.get(&partition);
        let store = assignment.and_then(|own| self.store_deadline(own));
        self.due = self.due.into_iter().chain(store).min();
    }

    /// Whether something of a partition is to be stored at once.
    pub(super) fn is_store_due(&self, partition: PartitionId) -> bool {
        let assignment = self.assignments.get(&partition);
        let time = assignment.and_then(|assignment| self.store_deadline(assignment));
        time.is_some_and(|time| time <= self.now)
    }

    /// When what is processed in a partition is stored; `None` when nothing is to be, or a request is
    /// under way.
    pub(super) fn store_deadline(&self, assignment: &Assignment) -> Option<u64> {
        if self.config.store == StoreMode::Never {
            return None;
        }
        let pace = Pace {
            interval: nanoseconds(self.config.store_interval),
            messages: self.config.store_messages,
        };
        let processed = assignment.processed();
        assignment.storing.deadline(self.now, processed, pace)
    }

    /// Stores what is due, and with it what would be due soon.
    pub(super) fn store_due(&mut self) {
        let due = |partition: &PartitionId| self.is_store_due(*partition);
        if !self.assignments.keys().any(due) {
            return;
        }
        let ready = self.assignments.values().filter(|assignment| {
            self.store_deadline(assignment).is_some()
                && assignment.storing.blocked_until <= self.now
        });
        let sections = ready.filter_map(|assignment| {
            let offset = assignment.storing.to_store(assignment.processed())?;
            Some(StoreSection {
                partition: assignment.partition,
                epoch: assignment.epoch,
                offset,
            })
        });
        let sections = sections.take(SECTIONS_MAX).collect::<Vec<_>>();
        let stored = sections
            .iter()
            .map(|section| (section.partition, section.offset))
            .collect::<Vec<_>>();
        let request = StoreConsumerOffset {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
            consumer: self.identity(),
            sections,
        };
        let leads = stored.iter().filter_map(|(partition, _)| {
            let assignment = self.assignments.get(partition)?;
            Some(&assignment.lead)
        });
        let node = common(leads);
        let call = self.submit(request.into(), Duration::ZERO, node);
        for (partition, offset) in &stored {
            if let Some(assignment) = self.assignments.get_mut(partition) {
                assignment.storing.begin(call, *offset);
            }
        }
        self.calls.insert(call, Asked::Store(stored));
        self.store_due();
    }

    pub(super) fn on_stored(
        &mut self,
        call: Call,
        asked: &[(PartitionId, Offset)],
        result: Result<Reply, ClientError>,
    ) {
        let mut held = Vec::new();
        for (partition, offset) in asked {
            if let Some(assignment) = self.assignments.get_mut(partition)
                && assignment.storing.end(call, *offset)
            {
                held.push((*partition, *offset));
            }
        }
        match result {
            Ok(Reply::OffsetsStored(stored)) => {
                for section in stored.sections {
                    if let Some((_, offset)) = held.iter().find(|(id, _)| *id == section.partition)
                    {
                        self.on_store_section(*offset, section);
                    }
                }
            }
            Ok(_) => {}
            // Whether it was stored is not known: it is stored again.
            Err(error) if error.is_retryable() => {
                for (partition, _) in held {
                    self.block_store(partition, error.refusal());
                }
                self.event(ConsumerEvent::Retrying { error });
            }
            Err(error) => self.fail(ConsumerError::Request(error)),
        }
    }

    fn on_store_section(&mut self, offset: Offset, section: StoreResult) {
        let partition = section.partition;
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return;
        };
        match section.status {
            Ok(()) => {
                assignment.storing.succeed(section.stored);
                self.note_progress(partition);
            }
            Err(failure) if failure.code.retryable() => {
                self.block_store(partition, Some(failure.code));
                self.event(ConsumerEvent::Retrying {
                    error: ClientError::Refused(failure),
                });
            }
            Err(failure) => {
                assignment.storing.refused = assignment.storing.refused.max(Some(offset));
                self.event(ConsumerEvent::StoreRefused {
                    partition,
                    offset,
                    failure,
                });
            }
        }
    }

    fn block_store(&mut self, partition: PartitionId, refusal: Option<ErrorCode>) {
        if let Some(assignment) = self.assignments.get_mut(&partition) {
            let pace = (&self.config.backoff, &mut self.random);
            assignment.storing.fail(self.now, refusal, pace);
        }
    }
}
