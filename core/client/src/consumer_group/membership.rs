//! Joining, and keeping up with the assignment.

use alloc::{collections::BTreeSet, format, vec::Vec};
use core::time::Duration;

use wire::{
    AssignedPartition, ConsumerGroupAssignment, CreateConsumerGroup, Epoch, ErrorCode, Event,
    Failure, Identifier, JoinConsumerGroup, MembershipEndReason, MembershipEnded, PartitionId,
    Reply, RevokingPartition, SyncConsumerGroup,
};

use super::{
    Asked, ClientError, ConsumerError, GroupConsumer, GroupEvent, Holding, LossReason, Membership,
    Phase, State, StoreMode, nanoseconds, refused,
};

/// An assignment without a partition that was refused as no longer owned should come within a few of these
/// syncs; after that the refusal counts as a mistake.
const DEAD_SYNCS: u32 = 3;

/// What an assignment brings, for the application.
#[derive(Default)]
struct News {
    assigned: Vec<PartitionId>,
    retained: Vec<PartitionId>,
    revoking: Vec<PartitionId>,
    /// Nanoseconds.
    time_left: Option<u64>,
}

impl GroupConsumer {
    pub(super) fn join(&mut self) {
        let Phase::Joining { call: None, at, .. } = &self.phase else {
            return;
        };
        if self.now < *at {
            return;
        }
        let (stream, topic, group) = self.names();
        let request = JoinConsumerGroup {
            stream,
            topic,
            group,
            instance: self.config.instance.clone(),
            weight: self.config.weight,
        };
        let sent = self.submit(request.into(), Asked::Join, Duration::ZERO);
        if let Phase::Joining {
            call, sent: ever, ..
        } = &mut self.phase
        {
            *call = Some(sent);
            *ever = true;
        }
    }

    fn create(&mut self, name: alloc::string::String) {
        let Some(options) = self.config.create.clone() else {
            return;
        };
        let request = CreateConsumerGroup {
            stream: self.config.stream.clone(),
            topic: self.config.topic.clone(),
            name,
            options,
        };
        let sent = self.submit(request.into(), Asked::Create, Duration::ZERO);
        if let Phase::Joining { call, .. } = &mut self.phase {
            *call = Some(sent);
        }
    }

    pub(super) fn on_created(&mut self, result: Result<Reply, ClientError>) {
        match result {
            Err(error) if error.refusal() != Some(ErrorCode::ConsumerGroupAlreadyExists) => {
                self.on_join_failed(error);
            }
            // Whoever has made it.
            Ok(_) | Err(_) => {
                if let Phase::Joining { call, at, .. } = &mut self.phase {
                    (*call, *at) = (None, self.now);
                }
            }
        }
    }

    pub(super) fn on_joined(&mut self, result: Result<Reply, ClientError>) {
        if !matches!(self.phase, Phase::Joining { .. }) {
            return;
        }
        match result {
            Ok(Reply::Assignment(assignment)) => {
                self.phase = Phase::Member;
                self.sync.at = self.next_sync();
                self.membership = Some(Membership {
                    stream: assignment.stream,
                    topic: assignment.topic,
                    group: assignment.group,
                    member: assignment.member,
                    generation: assignment.generation,
                });
                self.event(GroupEvent::Joined {
                    group: assignment.group,
                    member: assignment.member,
                });
                self.apply(&assignment);
            }
            Ok(_) => {
                if let Phase::Joining { call, .. } = &mut self.phase {
                    *call = None;
                }
                self.delay_join();
            }
            Err(error) => match (&self.config.create, &self.config.group) {
                // A group of which it was a member is never replaced by another one of the same name.
                (Some(_), Identifier::Name(name))
                    if self.membership.is_none()
                        && error.refusal() == Some(ErrorCode::ConsumerGroupNotFound) =>
                {
                    self.create(name.clone());
                }
                _ => self.on_join_failed(error),
            },
        }
    }

    fn on_join_failed(&mut self, error: ClientError) {
        if !error.is_retryable() {
            return self.fail(ConsumerError::Request(error));
        }
        self.event(GroupEvent::Retrying { error });
        self.delay_join();
    }

    fn delay_join(&mut self) {
        let failures = match &self.phase {
            Phase::Joining { failures, .. } => failures.saturating_add(1),
            Phase::Member | Phase::Leaving(_) | Phase::Away | Phase::Ended | Phase::Failed => {
                return;
            }
        };
        let later = self.backoff(failures);
        if let Phase::Joining {
            call,
            at,
            failures: own,
            ..
        } = &mut self.phase
        {
            (*call, *at, *own) = (None, later, failures);
        }
    }

    fn next_sync(&self) -> u64 {
        self.now
            .saturating_add(nanoseconds(self.config.sync_interval))
    }

    /// Whether the assignment at hand is known to be old.
    fn is_behind(&self) -> bool {
        self.sync.wanted
            || self
                .membership
                .is_some_and(|membership| membership.generation < self.sync.generation)
    }

    pub(super) fn sync_deadline(&self) -> Option<u64> {
        let due = if self.is_behind() {
            self.now
        } else {
            self.sync.at
        };
        self.sync
            .call
            .is_none()
            .then_some(due.max(self.sync.blocked_until))
    }

    pub(super) fn sync(&mut self) {
        let due = self.sync_deadline().is_some_and(|time| time <= self.now);
        if !due || self.membership.is_none() {
            return;
        }
        let (stream, topic, group) = self.names();
        let request = SyncConsumerGroup {
            stream,
            topic,
            group,
        };
        self.sync.wanted = false;
        self.sync.call = Some(self.submit(request.into(), Asked::Sync, Duration::ZERO));
    }

    pub(super) fn on_synced(&mut self, result: Result<Reply, ClientError>) {
        self.sync.call = None;
        self.sync.at = self.next_sync();
        let behind = match result {
            Ok(Reply::Assignment(assignment)) => {
                self.apply(&assignment);
                // The node is older than the one that told of the change.
                assignment.generation < self.sync.generation
            }
            Ok(_) => true,
            Err(error) => self.on_failed(error),
        };
        if behind {
            self.sync.wanted = true;
            self.sync.failures = self.sync.failures.saturating_add(1);
            self.sync.blocked_until = self.backoff(self.sync.failures);
        } else {
            self.sync.failures = 0;
        }
    }

    pub(super) fn on_told(&mut self, event: Event) {
        let Some(membership) = self.membership.filter(|_| self.is_member()) else {
            return;
        };
        match event {
            Event::AssignmentChanged(changed) if changed.group == membership.group => {
                self.sync.generation = self.sync.generation.max(changed.generation);
            }
            Event::MembershipEnded(reason, ended)
                if ended.group == membership.group && ended.member == membership.member =>
            {
                self.on_told_of_end(reason, &ended);
            }
            Event::AssignmentChanged(_)
            | Event::MembershipEnded(..)
            | Event::Evicted(_)
            | Event::ServerStopping(_) => {}
            Event::PrimaryChanged(_) => self.on_primary_changed(),
        }
    }

    fn on_told_of_end(&mut self, reason: MembershipEndReason, ended: &MembershipEnded) {
        let member = ended.member;
        match reason {
            MembershipEndReason::FencedInstanceId => {
                let address = ended.address.as_deref().unwrap_or("an unknown address");
                let text = format!(
                    "another session, from {address}, has joined with the same instance id"
                );
                self.fail(refused(Failure::new(ErrorCode::FencedInstanceId, text)));
            }
            MembershipEndReason::Removed => {
                let text = format!("member {member} was removed from the consumer group");
                let code = ErrorCode::ConsumerGroupMemberNotFound;
                self.on_membership_ended(Failure::new(code, text));
            }
            MembershipEndReason::GroupDeleted => {
                let text = format!("consumer group #{} was deleted", ended.group);
                let code = ErrorCode::ConsumerGroupNotFound;
                self.fail(refused(Failure::new(code, text)));
            }
        }
    }

    /// The session lives, the membership does not.
    pub(super) fn on_membership_ended(&mut self, failure: Failure) {
        self.end_membership(&LossReason::MembershipEnded(failure));
    }

    pub(super) fn on_session_lost(&mut self) {
        match self.phase {
            Phase::Joining { .. } | Phase::Member | Phase::Leaving(_) => {
                self.end_membership(&LossReason::SessionLost);
            }
            Phase::Away | Phase::Ended | Phase::Failed => {}
        }
    }

    /// Drops everything of the membership, and joins again unless the group was to be left.
    fn end_membership(&mut self, reason: &LossReason) {
        self.lose_all(reason);
        match self.phase {
            Phase::Leaving(_) => self.on_left(),
            Phase::Joining { .. } | Phase::Member => self.phase = Phase::joining(self.now),
            Phase::Away | Phase::Ended | Phase::Failed => {}
        }
    }

    /// Takes over what the member owns and has to give up.
    fn apply(&mut self, assignment: &ConsumerGroupAssignment) {
        let Some(membership) = &mut self.membership else {
            return;
        };
        if assignment.group != membership.group
            || assignment.member != membership.member
            || assignment.generation < membership.generation
        {
            return;
        }
        membership.generation = assignment.generation;
        let mut news = News::default();
        let mut gone = self.held.keys().copied().collect::<BTreeSet<_>>();
        for owned in &assignment.owned {
            if self.is_dead(owned.partition, owned.epoch) {
                continue;
            }
            gone.remove(&owned.partition);
            self.on_owned(owned, &mut news);
        }
        for revoking in &assignment.revoking {
            if self.is_dead(revoking.partition, revoking.epoch) {
                continue;
            }
            gone.remove(&revoking.partition);
            self.on_revoking(revoking, &mut news);
        }
        for partition in gone {
            let state = self.held.get(&partition).map(|holding| holding.state);
            // The answer to the release tells how it went.
            let releasing = matches!(state, Some(State::Releasing { .. }));
            if !releasing && !self.keep_served(partition) {
                self.lose(partition, LossReason::Reassigned);
            }
        }
        self.tell(news);
    }

    fn tell(&mut self, news: News) {
        if !news.retained.is_empty() {
            self.event(GroupEvent::Retained {
                partitions: news.retained,
            });
        }
        if !news.revoking.is_empty() {
            self.event(GroupEvent::Revoking {
                partitions: news.revoking,
                time_left: Duration::from_nanos(news.time_left.unwrap_or(0)),
            });
        }
        let assigned = news.assigned.iter();
        let assigned = assigned.filter_map(|partition| self.held.get(partition));
        let assigned = assigned
            .map(|holding| self.token(holding))
            .collect::<Vec<_>>();
        if !assigned.is_empty() {
            self.event(GroupEvent::Assigned {
                partitions: assigned,
            });
        }
    }

    /// Whether the epoch was refused as over, so that the assignment which names it must be an old one.
    fn is_dead(&self, partition: PartitionId, epoch: Epoch) -> bool {
        self.dead
            .get(&partition)
            .is_some_and(|(dead, until)| epoch <= *dead && self.now < *until)
    }

    /// The server said that the epoch is over.
    pub(super) fn on_fenced(&mut self, partition: PartitionId, failure: Failure) {
        let Some(holding) = self.held.get(&partition) else {
            return;
        };
        let wait = nanoseconds(self.config.sync_interval * DEAD_SYNCS);
        let dead = (holding.epoch, self.now.saturating_add(wait));
        self.dead.insert(partition, dead);
        self.sync.wanted = true;
        if !self.keep_served(partition) {
            self.lose(partition, LossReason::Fenced(failure));
        }
    }

    /// What was served and stored at once is nobody else's: it is still handed out when the partition is
    /// gone. Says whether there is any.
    fn keep_served(&mut self, partition: PartitionId) -> bool {
        let store = self.config.store;
        let Some(holding) = self.held.get_mut(&partition) else {
            return false;
        };
        if store != StoreMode::BeforeDelivery || holding.is_finished(store) {
            return false;
        }
        if holding.state == State::Owned {
            let (planned, deadline) = (Epoch(0), self.now);
            holding.state = State::Revoking { planned, deadline };
        }
        true
    }

    /// Whether the partition at hand is the one of an assignment, under the same unbroken ownership.
    fn holds(&self, partition: PartitionId, same: &AssignedPartition) -> bool {
        self.held.get(&partition).is_some_and(|holding| {
            holding.held_since == same.held_since && holding.incarnation == same.incarnation
        })
    }

    fn on_owned(&mut self, owned: &AssignedPartition, news: &mut News) {
        let partition = owned.partition;
        if !self.holds(partition, owned) {
            let mut holding = Holding::new(owned);
            if self.config.store == StoreMode::BeforeDelivery {
                self.move_served(partition, &mut holding);
            }
            self.lose(partition, LossReason::Reassigned);
            self.held.insert(partition, holding);
        }
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        holding.epoch = holding.epoch.max(owned.epoch);
        match holding.state {
            State::Owned => {}
            State::Revoking { .. } | State::Releasing { .. } if holding.told => {
                news.retained.push(partition);
            }
            State::Revoking { .. } | State::Releasing { .. } | State::Released => {
                holding.told = false;
            }
        }
        holding.state = State::Owned;
        if !holding.told {
            holding.told = true;
            news.assigned.push(partition);
        }
    }

    /// Hands what is still to be handed out of the partition's last ownership over to the next.
    fn move_served(&mut self, partition: PartitionId, next: &mut Holding) {
        if let Some(old) = self.held.get_mut(&partition) {
            next.fetching.take_over(&mut old.fetching);
        }
    }

    fn on_revoking(&mut self, revoking: &RevokingPartition, news: &mut News) {
        let partition = revoking.partition;
        let same = AssignedPartition {
            partition,
            incarnation: revoking.incarnation,
            epoch: revoking.epoch,
            held_since: revoking.held_since,
        };
        if !self.holds(partition, &same) {
            self.lose(partition, LossReason::Reassigned);
            // It was given and taken again while nothing was heard: there is nothing to finish.
            self.held.insert(partition, Holding::new(&same));
        }
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        holding.epoch = holding.epoch.max(revoking.epoch);
        let time_left = u64::from(revoking.time_left_ms) * 1_000_000;
        let deadline = self.now.saturating_add(time_left);
        let planned = revoking.planned;
        match holding.state {
            State::Owned => {
                holding.state = State::Revoking { planned, deadline };
                // What was served and stored at once is nobody else's any more.
                if self.config.store != StoreMode::BeforeDelivery {
                    self.buffered -= holding.drop_fetched();
                }
                if holding.told {
                    news.revoking.push(partition);
                    let least = news.time_left.map_or(time_left, |left| left.min(time_left));
                    news.time_left = Some(least);
                }
                // By then it is gone, whatever events were lost.
                self.sync.at = self.sync.at.min(deadline);
            }
            State::Revoking { .. } => holding.state = State::Revoking { planned, deadline },
            // Released for a plan that has changed.
            State::Releasing { planned: old, .. } if old != planned => {
                holding.state = State::Revoking { planned, deadline };
            }
            State::Releasing { .. } | State::Released => {}
        }
    }
}
