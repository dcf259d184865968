//! Polls.

use alloc::vec::Vec;

use wire::{
    ErrorCode, Failure, Offset, PartitionId, PollMessages, PollResult, PollSection, ReplicaId,
    Reply,
};

use super::{
    Asked, Call, ClientError, GroupConsumer, GroupEvent, Holding, Refusal, StoreMode, refused,
};
use crate::{
    chunk::chunks,
    turns::{LAST_WAIT, Wish, polled_next, share},
};

impl GroupConsumer {
    /// Sends the polls that the buffers have room for.
    pub(super) fn poll(&mut self) {
        while self.buffered < self.config.buffer_size_max {
            let sections = self.next_sections();
            let Some(first) = sections.first() else {
                return;
            };
            let node = self.held[first].lead.node();
            let polls = self.polls_at(node);
            let last = self.config.polls_max > 1 && polls + 1 == self.config.polls_max;
            self.submit_poll(node, &sections, last);
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
    fn next_sections(&mut self) -> Vec<PartitionId> {
        let (store, size_max) = (self.config.store, self.config.buffer_size_max);
        let share = share(store, size_max, self.held.len());
        let now = self.now;
        let wish = |holding: &Holding| {
            let lead = &holding.lead;
            if !holding.may_fetch(now)
                || holding.fetching.size() >= share
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
        let polled = polled_next(&self.held, &mut cursor, wish);
        self.poll_cursor = cursor;
        polled
    }

    fn submit_poll(&mut self, node: Option<ReplicaId>, partitions: &[PartitionId], last: bool) {
        let wait = if last {
            LAST_WAIT.min(self.config.poll_wait_max)
        } else {
            self.config.poll_wait_max
        };
        let held = partitions
            .iter()
            .filter_map(|partition| self.held.get(partition));
        let sections = held.clone().map(|holding| PollSection {
            partition: holding.partition,
            epoch: holding.epoch,
            strategy: holding.strategy(),
        });
        let (stream, topic, group) = self.names();
        let request = PollMessages {
            stream,
            topic,
            consumer: wire::Consumer::Group(group),
            max_messages: self.config.poll_messages_max,
            max_bytes: self.config.poll_size_max,
            min_bytes: u32::from(!wait.is_zero()),
            max_wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            commit_on_poll: self.config.store == StoreMode::BeforeDelivery,
            sections: sections.collect(),
        };
        let asked = held
            .map(|holding| (holding.partition, holding.position))
            .collect();
        let asked = Asked::Messages(node, asked);
        let call = self.submit_to(node, request.into(), asked, wait);
        for partition in partitions {
            if let Some(holding) = self.held.get_mut(partition) {
                holding.fetching.begin(call);
            }
        }
    }

    pub(super) fn on_polled(
        &mut self,
        call: Call,
        asked: &[(PartitionId, Option<Offset>)],
        result: Result<Reply, ClientError>,
    ) {
        // Of a partition that is being given up, or was given anew, the answer is an old one.
        let mut waiting = Vec::new();
        for (partition, position) in asked {
            if let Some(holding) = self.held.get_mut(partition)
                && holding.fetching.end(call)
            {
                waiting.push((*partition, *position));
            }
        }
        match result {
            Ok(Reply::Polled(polled)) => {
                for section in polled.sections {
                    let own = |(partition, _): &(PartitionId, _)| *partition == section.partition;
                    // Each section counts once.
                    if let Some(index) = waiting.iter().position(own) {
                        let (_, position) = waiting.swap_remove(index);
                        self.on_poll_section(position, section);
                    }
                }
            }
            Ok(_) => self.block_all(&waiting, None),
            Err(error) => {
                let refusal = error.refusal();
                if self.on_failed(error) {
                    self.block_all(&waiting, refusal);
                }
            }
        }
    }

    fn block_all(
        &mut self,
        partitions: &[(PartitionId, Option<Offset>)],
        refusal: Option<ErrorCode>,
    ) {
        for (partition, _) in partitions {
            self.block(*partition, refusal);
        }
    }

    /// Leaves a partition alone for a while after a failure.
    fn block(&mut self, partition: PartitionId, refusal: Option<ErrorCode>) {
        if let Some(holding) = self.held.get_mut(&partition) {
            let pace = (&self.config.backoff, &mut self.random);
            holding.fetching.fail(self.now, refusal, pace);
        }
    }

    fn on_poll_section(&mut self, asked: Option<Offset>, section: PollResult) {
        let partition = section.partition;
        if let Err(failure) = section.status {
            return self.on_poll_refused(partition, section.primary, failure);
        }
        let mut chunks = match chunks(&section) {
            Ok(chunks) => chunks,
            Err(error) => return self.fail_partition(partition, error),
        };
        for chunk in &mut chunks {
            chunk.from = chunk.from.max(asked.unwrap_or(chunk.from));
            chunk.next = chunk.next.max(chunk.from);
        }
        let wanted = asked.or_else(|| section.stored.map(Offset::next));
        if let Some(wanted) = wanted
            && section.from > wanted
        {
            let (from, to) = (wanted, section.from);
            self.event(GroupEvent::Skipped {
                partition,
                from,
                to,
            });
        }
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        holding.fetching.succeed();
        holding.lead.told(section.primary);
        holding.end = Some(section.end);
        holding.storing.stored = holding.storing.stored.max(section.stored);
        holding.position = Some(section.next);
        self.buffered += holding.fetching.extend(chunks);
        if self.buffered > 0 {
            self.idle_since.get_or_insert(self.now);
        }
    }

    fn on_poll_refused(&mut self, partition: PartitionId, primary: ReplicaId, failure: Failure) {
        match Refusal::of(failure.code) {
            Refusal::Fenced => self.on_fenced(partition, failure),
            Refusal::Behind => {
                self.block(partition, None);
                self.sync.wanted = true;
            }
            Refusal::NotMember => self.on_membership_ended(failure),
            Refusal::Final => self.fail(refused(failure)),
            Refusal::Elsewhere if self.finds_another_way(partition, primary) => {}
            Refusal::Elsewhere | Refusal::Passing => {
                self.block(partition, Some(failure.code));
                let error = ClientError::Refused(failure);
                self.event(GroupEvent::Retrying { error });
            }
            Refusal::Other => self.fail_partition(partition, refused(failure)),
        }
    }

    /// A node has named another one that leads the partition. Says whether it is to be asked again at once.
    fn finds_another_way(&mut self, partition: PartitionId, primary: ReplicaId) -> bool {
        let Some(holding) = self.held.get_mut(&partition) else {
            return false;
        };
        holding.lead.elsewhere(self.now, primary) && holding.fetching.stumble()
    }

    /// A consensus group has another primary: what waits for one need not wait any more.
    pub(super) fn on_primary_changed(&mut self) {
        for holding in self.held.values_mut() {
            holding.fetching.wake();
            holding.storing.wake();
        }
    }
}
