//! Partitions, start positions, polls.

use alloc::vec::Vec;
use core::time::Duration;

use wire::{
    ErrorCode, Failure, GetConsumerOffset, GetTopic, Offset, OffsetResult, PartitionId,
    PollMessages, PollResult, PollSection, PollStrategy, ReplicaId, Reply,
};

use super::{
    Asked, Call, ClientError, Consumer, ConsumerError, ConsumerEvent, Start, StoreMode,
    assignment::{Assignment, Position},
    nanoseconds, refused,
};
use crate::{
    chunk::chunks,
    turns::{LAST_WAIT, SECTIONS_MAX, Wish, polled_next, share},
};

impl Consumer {
    /// Whether the topic's partitions are to be followed, and not being asked for.
    pub(super) const fn wants_refresh(&self) -> bool {
        let settled = self.config.stop_at_end && self.partitions_known;
        self.config.partitions.is_none() && self.refresh.is_none() && !settled
    }

    pub(super) fn refresh(&mut self) {
        if !self.wants_refresh() || self.now < self.refresh_at {
            return;
        }
        let request = GetTopic {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
        };
        self.refresh = Some(self.submit(request.into(), Duration::ZERO, None));
    }

    pub(super) fn on_topic(&mut self, result: Result<Reply, ClientError>) {
        self.refresh_at = self
            .now
            .saturating_add(nanoseconds(self.config.refresh_interval));
        match result {
            Ok(Reply::Topic(topic)) => {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| partition.id)
                    .collect();
                self.on_partitions(partitions);
            }
            Ok(_) => {}
            Err(error) if error.is_retryable() => {
                let wait = self.config.backoff.wait(1, &mut self.random);
                self.refresh_at = self.now.saturating_add(wait);
                self.event(ConsumerEvent::Retrying { error });
            }
            Err(error) => self.fail(ConsumerError::Request(error)),
        }
    }

    /// Partitions that were added begin at their first message: nobody could have seen it before.
    fn on_partitions(&mut self, partitions: Vec<PartitionId>) {
        let start = if self.partitions_known {
            Start::First
        } else {
            self.config.start
        };
        self.partitions_known = true;
        let gone = self
            .assignments
            .keys()
            .filter(|id| !partitions.contains(id));
        for partition in gone.copied().collect::<Vec<_>>() {
            self.remove(partition);
        }
        for partition in partitions {
            self.assign(partition, start);
        }
    }

    /// Asks for the offsets of partitions whose position is not known.
    pub(super) fn ask_offsets(&mut self) {
        let now = self.now;
        let wanting = self.assignments.values().filter(|assignment| {
            assignment.position == Position::Unknown && assignment.fetching.may_begin(now)
        });
        let partitions = wanting
            .map(|assignment| assignment.partition)
            .take(SECTIONS_MAX);
        let partitions = partitions.collect::<Vec<_>>();
        if partitions.is_empty() {
            return;
        }
        let request = GetConsumerOffset {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
            consumer: self.identity(),
            partitions: partitions.clone(),
        };
        let call = self.submit(request.into(), Duration::ZERO, None);
        self.mark_fetching(partitions.iter().copied(), call);
        self.calls.insert(call, Asked::Offsets(partitions));
        self.ask_offsets();
    }

    fn mark_fetching(&mut self, partitions: impl Iterator<Item = PartitionId>, call: Call) {
        for partition in partitions {
            if let Some(assignment) = self.assignments.get_mut(&partition) {
                assignment.fetching.begin(call);
            }
        }
    }

    pub(super) fn on_offsets(
        &mut self,
        call: Call,
        partitions: &[PartitionId],
        result: Result<Reply, ClientError>,
    ) {
        let held = self.end_fetch(call, partitions.iter().copied());
        match result {
            Ok(Reply::Offsets(offsets)) => {
                for section in offsets.sections {
                    if held.contains(&section.partition) {
                        self.on_offset(section);
                    }
                }
                self.block_unanswered(&held);
            }
            Ok(_) => self.block_all(&held, None),
            Err(error) => self.on_fetch_failed(&held, error),
        }
    }

    /// The request `call` has ended: the partitions that still wait for it.
    fn end_fetch(
        &mut self,
        call: Call,
        asked: impl Iterator<Item = PartitionId>,
    ) -> Vec<PartitionId> {
        let mut held = Vec::new();
        for partition in asked {
            if let Some(assignment) = self.assignments.get_mut(&partition)
                && assignment.fetching.end(call)
            {
                held.push(partition);
            }
        }
        held
    }

    /// An answer that says nothing of a partition whose offsets were asked for is not pressed.
    fn block_unanswered(&mut self, partitions: &[PartitionId]) {
        for partition in partitions {
            if let Some(assignment) = self.assignments.get(partition)
                && assignment.position == Position::Unknown
                && assignment.fetching.may_begin(self.now)
            {
                self.block(*partition, None);
            }
        }
    }

    fn block_all(&mut self, partitions: &[PartitionId], refusal: Option<ErrorCode>) {
        for partition in partitions {
            self.block(*partition, refusal);
        }
    }

    fn on_fetch_failed(&mut self, partitions: &[PartitionId], error: ClientError) {
        if partitions.is_empty() {
            return;
        }
        if !error.is_retryable() {
            return self.fail(ConsumerError::Request(error));
        }
        self.block_all(partitions, error.refusal());
        self.event(ConsumerEvent::Retrying { error });
    }

    fn on_offset(&mut self, section: OffsetResult) {
        let partition = section.partition;
        if let Err(failure) = section.status {
            return self.on_section_failed(partition, section.primary, failure);
        }
        let resume = self.config.resume;
        let stop_at_end = self.config.stop_at_end;
        let keeps = self.config.store != StoreMode::Never;
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return;
        };
        assignment.fetching.succeed();
        assignment.lead.told(section.primary);
        assignment.end = Some(section.end);
        assignment.stop = stop_at_end.then_some(section.end);
        assignment.storing.stored = section.stored;
        let stored = section.stored.filter(|_| resume && !assignment.sought);
        if let Some(stored) = stored {
            assignment.position = Position::At(stored.next());
            return;
        }
        assignment.position = match assignment.start {
            Start::First => Position::At(section.start),
            Start::Offset(offset) => {
                assignment.floor = offset;
                Position::At(offset.clamp(section.start, section.end.max(section.start)))
            }
            Start::Timestamp(time) => Position::Since(time),
            Start::Last(count) => {
                let from = Offset(section.end.0.saturating_sub(count)).max(section.start);
                // Resolved once and for all: the next start goes on from here.
                if keeps && resume && !assignment.sought && from.0 > 0 {
                    assignment.named = Some(Offset(from.0 - 1));
                    assignment.storing.urgent = true;
                }
                Position::At(from)
            }
        };
        self.note_progress(partition);
    }

    /// Sends the polls that the buffers have room for.
    pub(super) fn poll(&mut self) {
        while self.buffered < self.config.buffer_size_max {
            let sections = self.next_sections();
            let Some((first, _)) = sections.first() else {
                return;
            };
            let node = self.assignments[first].lead.node();
            let polls = self.polls_at(node);
            let last = self.config.polls_max > 1 && polls + 1 == self.config.polls_max;
            self.submit_poll(node, sections, last);
        }
    }

    /// Polls that a node has not answered yet.
    fn polls_at(&self, node: Option<ReplicaId>) -> usize {
        let asked = self.calls.values();
        asked
            .filter(|asked| matches!(asked, Asked::Messages(own, _) if *own == node))
            .count()
    }

    /// The partitions to be polled now, beginning with the one whose turn it is.
    fn next_sections(&mut self) -> Vec<(PartitionId, Position)> {
        let (store, size_max) = (self.config.store, self.config.buffer_size_max);
        let share = share(store, size_max, self.assignments.len());
        let now = self.now;
        let wish = |assignment: &Assignment| {
            let wanted = assignment.position != Position::Unknown && !assignment.is_fetched();
            let (fetching, lead) = (&assignment.fetching, &assignment.lead);
            if !wanted
                || !fetching.may_begin(now)
                || fetching.size() >= share
                || self.polls_at(lead.node()) >= self.config.polls_max
            {
                Wish::None
            } else if lead.is_alone(now) {
                Wish::PolledAlone
            } else {
                Wish::Polled(lead.node())
            }
        };
        let mut cursor = self.poll_cursor;
        let polled = polled_next(&self.assignments, &mut cursor, wish);
        self.poll_cursor = cursor;
        let polled = polled.into_iter().filter_map(|partition| {
            let assignment = self.assignments.get(&partition)?;
            Some((partition, assignment.position))
        });
        polled.collect()
    }

    fn submit_poll(
        &mut self,
        node: Option<ReplicaId>,
        sections: Vec<(PartitionId, Position)>,
        last: bool,
    ) {
        let wait = if self.config.stop_at_end {
            Duration::ZERO
        } else if last {
            LAST_WAIT.min(self.config.poll_wait_max)
        } else {
            self.config.poll_wait_max
        };
        let min_bytes = if wait.is_zero() {
            0
        } else {
            self.config.poll_size_min
        };
        let polled = sections.iter().filter_map(|(partition, position)| {
            let epoch = self.assignments.get(partition)?.epoch;
            let strategy = match position {
                Position::Unknown => return None,
                Position::At(offset) => PollStrategy::Offset(*offset),
                Position::Since(time) => PollStrategy::Timestamp(*time),
            };
            Some(PollSection {
                partition: *partition,
                epoch,
                strategy,
            })
        });
        let request = PollMessages {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
            consumer: self.identity(),
            max_messages: self.config.poll_messages_max,
            max_bytes: self.config.poll_size_max,
            min_bytes,
            max_wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            commit_on_poll: self.config.store == StoreMode::BeforeDelivery,
            sections: polled.collect(),
        };
        let call = self.submit(request.into(), wait, node);
        self.mark_fetching(sections.iter().map(|(partition, _)| *partition), call);
        self.calls.insert(call, Asked::Messages(node, sections));
    }

    pub(super) fn on_polled(
        &mut self,
        call: Call,
        asked: &[(PartitionId, Position)],
        result: Result<Reply, ClientError>,
    ) {
        let held = self.end_fetch(call, asked.iter().map(|(partition, _)| *partition));
        let sections = match result {
            Ok(Reply::Polled(polled)) => polled.sections,
            Ok(_) => return self.block_all(&held, None),
            Err(error) => return self.on_fetch_failed(&held, error),
        };
        for section in sections {
            let position = asked
                .iter()
                .find(|(partition, _)| *partition == section.partition);
            if let Some((partition, position)) = position
                && held.contains(partition)
            {
                self.on_poll_section(*position, section);
            }
        }
    }

    fn on_poll_section(&mut self, asked: Position, section: PollResult) {
        let partition = section.partition;
        if let Err(failure) = section.status {
            return self.on_section_failed(partition, section.primary, failure);
        }
        let chunks = match chunks(&section) {
            Ok(chunks) => chunks,
            Err(error) => return self.fail_partition(partition, error),
        };
        if let Position::At(wanted) = asked
            && section.from > wanted
        {
            let (from, to) = (wanted, section.from);
            self.event(ConsumerEvent::Skipped {
                partition,
                from,
                to,
            });
        }
        let stop_at_end = self.config.stop_at_end;
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return;
        };
        assignment.fetching.succeed();
        assignment.lead.told(section.primary);
        assignment.end = Some(section.end);
        assignment.storing.stored = assignment.storing.stored.max(section.stored);
        // Until there is a message the place of a time is open: the next one may still be too early.
        if section.next > section.from || matches!(asked, Position::At(_)) || stop_at_end {
            assignment.position = Position::At(section.next);
        }
        // There should have been something: do not press for it.
        let starved = stop_at_end && section.next == section.from && !assignment.is_fetched();
        self.buffered += assignment.extend(chunks);
        if starved {
            self.block(partition, None);
        }
    }

    fn on_section_failed(&mut self, partition: PartitionId, primary: ReplicaId, failure: Failure) {
        let follows = self.config.partitions.is_none() && !self.config.stop_at_end;
        let Some(assignment) = self.assignments.get_mut(&partition) else {
            return;
        };
        if failure.code == ErrorCode::NotPrimary
            && assignment.lead.elsewhere(self.now, primary)
            && assignment.fetching.stumble()
        {
            // Asked again at once, in another way.
        } else if failure.code == ErrorCode::PartitionNotFound && follows {
            // Removed, perhaps: the topic will tell.
            self.refresh_at = self.now;
            self.block(partition, None);
        } else if failure.code.retryable() {
            self.block(partition, Some(failure.code));
            let error = ClientError::Refused(failure);
            self.event(ConsumerEvent::Retrying { error });
        } else {
            self.fail_partition(partition, refused(failure));
        }
    }
}
