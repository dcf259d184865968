//! Stored offsets, and partitions that are given up.

use alloc::{vec, vec::Vec};
use core::time::Duration;

use wire::{
    Epoch, ErrorCode, Failure, Offset, PartitionId, ReleasePartition, ReleaseResult,
    ReleaseSection, ReplicaId, Reply, StoreConsumerOffset, StoreResult, StoreSection,
};

use super::{
    Asked, Call, ClientError, GroupConsumer, GroupEvent, Holding, Refusal, State, StoreMode,
    nanoseconds, refused,
};
use crate::{lead::common, storing::Pace, turns::SECTIONS_MAX};

impl GroupConsumer {
    pub(super) fn on_flush(&mut self) {
        for holding in self.held.values_mut() {
            holding.storing.hurry(holding.frontier.processed());
        }
    }

    /// Something may be there to be stored, or a partition to be given up, from now on.
    pub(super) fn note_progress(&mut self, partition: PartitionId) {
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        holding.storing.note(self.now, holding.frontier.processed());
        let holding = self.held.get(&partition);
        let store = holding.and_then(|holding| self.store_deadline(holding));
        self.due = self.due.into_iter().chain(store).min();
    }

    /// Whether something of a partition is to be stored, or it is to be given up, at once.
    pub(super) fn is_due(&self, partition: PartitionId) -> bool {
        let Some(holding) = self.held.get(&partition) else {
            return false;
        };
        let times = [self.store_deadline(holding), self.release_deadline(holding)];
        times.into_iter().flatten().any(|time| time <= self.now) || !self.is_reading()
    }

    /// What is processed in a partition is stored then; `None` when nothing is to be, or a request is under
    /// way.
    pub(super) fn store_deadline(&self, holding: &Holding) -> Option<u64> {
        if !holding.may_store() {
            return None;
        }
        let pace = Pace {
            interval: nanoseconds(self.config.store_interval),
            messages: self.config.store_messages,
        };
        let processed = holding.frontier.processed();
        holding.storing.deadline(self.now, processed, pace)
    }

    /// Whether partitions that share their requests wait for one already.
    pub(super) fn is_storing(&self) -> bool {
        let mut held = self.held.values();
        held.any(|holding| !holding.lead.is_alone(self.now) && holding.storing.call.is_some())
    }

    /// Stores what is due, and with it what would be due soon.
    pub(super) fn store_due(&mut self) {
        let busy = self.is_storing();
        let times = self.held.values().filter_map(|holding| {
            let time = self.store_deadline(holding)?;
            (!busy || holding.lead.is_alone(self.now)).then_some((holding, time))
        });
        let ready = times
            .filter(|(holding, _)| holding.storing.blocked_until <= self.now)
            .map(|(holding, time)| {
                let alone = holding.lead.is_alone(self.now);
                (holding.partition, alone, time <= self.now)
            })
            .collect::<Vec<_>>();
        let shared = ready.iter().filter(|(_, alone, _)| !alone);
        if shared.clone().any(|(.., due)| *due) {
            let partitions = shared.map(|(partition, ..)| *partition);
            self.submit_store(partitions.take(SECTIONS_MAX).collect());
        }
        for (partition, alone, due) in ready {
            if alone && due {
                self.submit_store(vec![partition]);
            }
        }
    }

    fn submit_store(&mut self, partitions: Vec<PartitionId>) {
        let held = partitions
            .iter()
            .filter_map(|partition| self.held.get(partition));
        let sections = held
            .filter_map(|holding| {
                Some(StoreSection {
                    partition: holding.partition,
                    epoch: holding.epoch,
                    offset: holding.to_store()?,
                })
            })
            .collect::<Vec<_>>();
        let stored = sections
            .iter()
            .map(|section| (section.partition, section.offset))
            .collect::<Vec<_>>();
        let (stream, topic, group) = self.names();
        let request = StoreConsumerOffset {
            stream,
            topic,
            consumer: wire::Consumer::Group(group),
            sections,
        };
        let asked = Asked::Store(stored.clone());
        let node = self.common_lead(&partitions);
        let call = self.submit_to(node, request.into(), asked, Duration::ZERO);
        for (partition, offset) in stored {
            if let Some(holding) = self.held.get_mut(&partition) {
                holding.storing.begin(call, offset);
            }
        }
    }

    pub(super) fn on_stored(
        &mut self,
        call: Call,
        asked: &[(PartitionId, Offset)],
        result: Result<Reply, ClientError>,
    ) {
        let mut waiting = Vec::new();
        for (partition, offset) in asked {
            if let Some(holding) = self.held.get_mut(partition)
                && holding.storing.end(call, *offset)
            {
                waiting.push((*partition, *offset));
            }
        }
        match result {
            Ok(Reply::OffsetsStored(stored)) => {
                for section in stored.sections {
                    let own = |(partition, _): &&(PartitionId, _)| *partition == section.partition;
                    if let Some((_, offset)) = waiting.iter().find(own) {
                        self.on_store_section(*offset, section);
                    }
                }
            }
            Ok(_) => self.block_stores(&waiting, None),
            // Whether it was stored is not known: it is stored again.
            Err(error) => {
                let refusal = error.refusal();
                if self.on_failed(error) {
                    self.block_stores(&waiting, refusal);
                }
            }
        }
    }

    fn on_store_section(&mut self, offset: Offset, section: StoreResult) {
        let partition = section.partition;
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        match section.status {
            Ok(()) => {
                holding.storing.succeed(section.stored);
                self.note_progress(partition);
            }
            Err(failure) => {
                self.on_store_refused(partition, (Some(offset), section.primary), failure);
            }
        }
    }

    /// A store, or a release, was refused for one partition.
    fn on_store_refused(
        &mut self,
        partition: PartitionId,
        (offset, primary): (Option<Offset>, ReplicaId),
        failure: Failure,
    ) {
        match Refusal::of(failure.code) {
            Refusal::Fenced => self.on_fenced(partition, failure),
            Refusal::NotMember => self.on_membership_ended(failure),
            Refusal::Final => self.fail(refused(failure)),
            refusal @ (Refusal::Elsewhere | Refusal::Passing) => {
                if refusal == Refusal::Elsewhere
                    && let Some(holding) = self.held.get_mut(&partition)
                {
                    holding.lead.elsewhere(self.now, primary);
                }
                self.block_store(partition, Some(failure.code));
                let error = ClientError::Refused(failure);
                self.event(GroupEvent::Retrying { error });
            }
            Refusal::Behind | Refusal::Other => {
                if let (Some(holding), Some(offset)) = (self.held.get_mut(&partition), offset) {
                    holding.storing.refused = holding.storing.refused.max(Some(offset));
                    self.event(GroupEvent::StoreRefused {
                        partition,
                        offset,
                        failure,
                    });
                }
                self.sync.wanted = true;
                self.block_store(partition, None);
            }
        }
    }

    /// The node that leads all of these partitions, if that is one.
    fn common_lead(&self, partitions: &[PartitionId]) -> Option<ReplicaId> {
        let held = partitions
            .iter()
            .filter_map(|partition| self.held.get(partition));
        common(held.map(|holding| &holding.lead))
    }

    fn block_stores(&mut self, partitions: &[(PartitionId, Offset)], refusal: Option<ErrorCode>) {
        for (partition, _) in partitions {
            self.block_store(*partition, refusal);
        }
    }

    fn block_store(&mut self, partition: PartitionId, refusal: Option<ErrorCode>) {
        if let Some(holding) = self.held.get_mut(&partition) {
            let pace = (&self.config.backoff, &mut self.random);
            holding.storing.fail(self.now, refusal, pace);
        }
    }

    /// When a partition is given up: at once when everything of it is processed.
    pub(super) fn release_deadline(&self, holding: &Holding) -> Option<u64> {
        let revoking = matches!(holding.state, State::Revoking { .. });
        (revoking && holding.is_finished(self.config.store))
            .then_some(self.now.max(holding.storing.blocked_until))
    }

    /// Gives up what is to be given up and processed.
    pub(super) fn release(&mut self) {
        let held = self.held.values().filter(|holding| {
            self.release_deadline(holding)
                .is_some_and(|time| time <= self.now)
        });
        let ready = held
            .map(|holding| (holding.partition, holding.lead.is_alone(self.now)))
            .collect::<Vec<_>>();
        let shared = ready.iter().filter(|(_, alone)| !alone);
        let shared = shared.map(|(partition, _)| *partition).collect::<Vec<_>>();
        for partitions in shared.chunks(SECTIONS_MAX) {
            self.submit_release(partitions);
        }
        for (partition, alone) in ready {
            if alone {
                self.submit_release(&[partition]);
            }
        }
    }

    fn submit_release(&mut self, partitions: &[PartitionId]) {
        let mut sections = Vec::new();
        let mut asked = Vec::new();
        for partition in partitions {
            let Some(holding) = self.held.get(partition) else {
                continue;
            };
            let State::Revoking { planned, .. } = holding.state else {
                continue;
            };
            let offset = holding.unstored().or(holding.storing.stored);
            // What is served at once is stored at once.
            let offset = offset.filter(|_| self.config.store != StoreMode::BeforeDelivery);
            asked.push((*partition, holding.held_since, offset));
            sections.push(ReleaseSection {
                partition: *partition,
                epoch: holding.epoch,
                planned,
                offset,
            });
        }
        let (stream, topic, group) = self.names();
        let request = ReleasePartition {
            stream,
            topic,
            group,
            sections,
        };
        let node = self.common_lead(partitions);
        let asked = Asked::Release(asked);
        let sent = self.submit_to(node, request.into(), asked, Duration::ZERO);
        for partition in partitions {
            if let Some(holding) = self.held.get_mut(partition)
                && let State::Revoking { planned, deadline } = holding.state
            {
                holding.state = State::Releasing {
                    planned,
                    deadline,
                    call: sent,
                };
                // It may come after the release, and be refused then.
                holding.storing.call = None;
            }
        }
    }

    pub(super) fn on_released(
        &mut self,
        call: Call,
        asked: &[(PartitionId, Epoch, Option<Offset>)],
        result: Result<Reply, ClientError>,
    ) {
        let sections = match result {
            Ok(Reply::PartitionsReleased(released)) => released.sections,
            Ok(_) => return self.release_again(call, asked, None),
            Err(error) => {
                let refusal = error.refusal();
                if self.on_failed(error) {
                    self.release_again(call, asked, refusal);
                }
                return;
            }
        };
        for section in sections {
            let own = asked
                .iter()
                .find(|(partition, ..)| *partition == section.partition);
            if let Some((_, held_since, offset)) = own {
                self.on_release_section(call, (*held_since, *offset), section);
            }
        }
        // Nothing was said of these.
        self.release_again(call, asked, None);
    }

    /// How it went is not known, or it did not: all who still wait for this release send it again.
    fn release_again(
        &mut self,
        call: Call,
        asked: &[(PartitionId, Epoch, Option<Offset>)],
        refusal: Option<ErrorCode>,
    ) {
        for (partition, ..) in asked {
            if self.reopen(*partition, call) {
                self.block_store(*partition, refusal);
            }
        }
    }

    /// The release has ended without success. Says whether the partition still waited for it.
    fn reopen(&mut self, partition: PartitionId, ended: Call) -> bool {
        let Some(holding) = self.held.get_mut(&partition) else {
            return false;
        };
        let State::Releasing {
            planned,
            deadline,
            call,
        } = holding.state
        else {
            return false;
        };
        if call == ended {
            holding.state = State::Revoking { planned, deadline };
        }
        call == ended
    }

    fn on_release_section(
        &mut self,
        call: Call,
        (held_since, offset): (Epoch, Option<Offset>),
        section: ReleaseResult,
    ) {
        let partition = section.partition;
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        if holding.held_since != held_since {
            return;
        }
        let stored = match &section.status {
            Ok(()) => true,
            Err(failure) => failure.code == ErrorCode::RevocationChanged,
        };
        if stored {
            let answered = section.stored.max(offset);
            holding.storing.stored = holding.storing.stored.max(answered);
        }
        let waits = matches!(holding.state, State::Releasing { call: own, .. } if own == call);
        match section.status {
            Ok(()) if waits => {
                holding.state = State::Released;
                if holding.told {
                    self.event(GroupEvent::Revoked { partition });
                }
            }
            Ok(()) => {}
            Err(_) if stored => {
                self.reopen(partition, call);
                self.block_store(partition, None);
                self.sync.wanted = true;
            }
            Err(failure) => {
                if self.reopen(partition, call) {
                    self.on_store_refused(partition, (offset, section.primary), failure);
                }
            }
        }
    }
}
