//! A member of a consumer group: membership, assignment, messages fetched ahead, stored offsets, hand-over.

mod config;
mod event;
mod fetching;
mod holding;
mod leaving;
mod membership;
mod storing;

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use wire::{
    ConsumerGroupId, Epoch, ErrorCode, Generation, Identifier, MemberId, Offset, PartitionId,
    ReplicaId, Reply, Request, StreamId, Time, TopicId,
};

use crate::{
    Call, ClientError, ConsumerError, Delivery, StoreMode, consumer::refused, nanoseconds,
    random::Random, turns::Turn,
};

pub use config::GroupConsumerConfig;
pub use event::{FencingToken, GroupEffect, GroupEvent, GroupInput, LossReason};
use holding::{Holding, State};
use leaving::Leaving;

/// A partition that a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPartition {
    /// The ownership.
    pub token: FencingToken,
    /// The offset that is handed out next, when it is known.
    pub next: Option<Offset>,
    /// The last message processed, as stored; `None`: not known, or nothing is.
    pub stored: Option<Offset>,
    /// The offset behind the newest message, as of the latest answer.
    pub end: Option<Offset>,
    /// Whether it is to be given up.
    pub revoking: bool,
    /// Whether the application has paused it.
    pub paused: bool,
}

/// The client side of one member of a consumer group. See the crate's documentation for how it is driven.
///
/// A session has at most one membership in a group, so there must be one of these per session and group.
///
/// Every message of the group is handed out at least once, in order within its partition, and, as long as
/// partitions are given up in time, exactly once; with [`StoreMode::BeforeDelivery`] at most once.
/// [`GroupEvent`] tells what it has, and what it has lost.
#[derive(Debug)]
pub struct GroupConsumer {
    config: GroupConsumerConfig,
    random: Random,
    now: u64,
    phase: Phase,
    membership: Option<Membership>,
    /// By partition.
    held: BTreeMap<PartitionId, Holding>,
    /// Epochs that a server has refused for good, each until when an assignment that names it is taken for
    /// an old one.
    dead: BTreeMap<PartitionId, (Epoch, u64)>,
    /// What the unanswered requests are for.
    calls: BTreeMap<Call, Asked>,
    sync: Sync,
    /// The partition that comes first in the next poll.
    poll_cursor: PartitionId,
    /// The partition that messages are handed out from.
    turn: Turn,
    /// The message handed out last, until it counts as processed.
    unsettled: Option<(PartitionId, Epoch, Offset)>,
    /// Bytes of batches fetched ahead.
    buffered: usize,
    /// Since when the application could have asked for a message, and has not. `None`: it waits for one, or
    /// there is none.
    idle_since: Option<u64>,
    /// When something is due.
    due: Option<u64>,
    next_call: u64,
    effects: VecDeque<GroupEffect>,
}

#[derive(Debug)]
enum Phase {
    /// On the way into the group.
    Joining {
        /// The unanswered join, or creation of the group.
        call: Option<Call>,
        /// When the next one is sent.
        at: u64,
        failures: u32,
        /// Whether a join was ever sent.
        sent: bool,
    },
    Member,
    Leaving(Leaving),
    /// Not a member, until the application asks for a message.
    Away,
    Ended,
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Membership {
    stream: StreamId,
    topic: TopicId,
    group: ConsumerGroupId,
    member: MemberId,
    /// Of the assignment at hand.
    generation: Generation,
}

/// Keeping up with the assignment.
#[derive(Debug, Default)]
struct Sync {
    call: Option<Call>,
    /// When to ask although nothing tells of a change.
    at: u64,
    /// Whether an answer said that the assignment at hand is old.
    wanted: bool,
    /// The highest generation that an event has told of.
    generation: Generation,
    failures: u32,
    blocked_until: u64,
}

/// What a request is for.
#[derive(Clone, Debug)]
enum Asked {
    Create,
    Join,
    Sync,
    /// The node that is asked, partitions, and where the poll begins in each.
    Messages(Option<ReplicaId>, Vec<(PartitionId, Option<Offset>)>),
    Store(Vec<(PartitionId, Offset)>),
    /// Partitions with the epoch that names the ownership, and what is stored.
    Release(Vec<(PartitionId, Epoch, Option<Offset>)>),
    Leave,
}

impl GroupConsumer {
    /// A member-to-be that joins when it is first given an input.
    ///
    /// # Panics
    /// When a limit of the configuration is 0, or nothing is ever to be stored.
    #[must_use]
    pub fn new(now: Time, config: GroupConsumerConfig) -> Self {
        assert!(config.poll_messages_max > 0);
        assert!(config.polls_max > 0);
        assert!(config.buffer_size_max > 0);
        assert!(config.store != StoreMode::Never);
        Self {
            random: Random::new(config.seed),
            now: now.monotonic,
            phase: Phase::joining(now.monotonic),
            membership: None,
            held: BTreeMap::new(),
            dead: BTreeMap::new(),
            calls: BTreeMap::new(),
            sync: Sync::default(),
            poll_cursor: PartitionId(0),
            turn: Turn::FIRST,
            unsettled: None,
            buffered: 0,
            idle_since: None,
            due: Some(now.monotonic),
            next_call: 0,
            effects: VecDeque::new(),
            config,
        }
    }

    /// Feeds one event.
    pub fn handle(&mut self, now: Time, input: GroupInput) {
        self.now = self.now.max(now.monotonic);
        match input {
            GroupInput::Answered { call, result } => self.on_answer(call, result),
            GroupInput::Told(event) => self.on_told(event),
            GroupInput::SessionLost => self.on_session_lost(),
            GroupInput::Flush => self.on_flush(),
            GroupInput::Close { timeout } => self.on_close(timeout),
            GroupInput::Detach { timeout } => self.on_detach(timeout),
            GroupInput::Tick => {}
        }
        self.drive();
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<GroupEffect> {
        self.effects.pop_front()
    }

    /// The monotonic time at which [`GroupInput::Tick`] is wanted if nothing else happens before.
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        self.due
    }

    /// The next message, if one is there. Asking for it says that the one before is processed
    /// ([`StoreMode::Processed`]), and that the application is not stalled.
    pub fn next_message(&mut self, now: Time) -> Option<Delivery> {
        self.now = self.now.max(now.monotonic);
        let settled = self.settle_last();
        self.on_asked();
        let buffered = self.buffered;
        let delivery = match self.phase {
            Phase::Member => self.take_message(),
            Phase::Joining { .. }
            | Phase::Leaving(_)
            | Phase::Away
            | Phase::Ended
            | Phase::Failed => None,
        };
        if let Some(delivery) = &delivery {
            self.on_delivered(delivery);
        }
        self.idle_since = delivery.is_some().then_some(self.now);
        // Most messages leave nothing to do: no room was made, and there is time to store.
        let due = settled.is_some_and(|partition| self.is_due(partition));
        if delivery.is_none() || due || self.buffered != buffered {
            self.drive();
        } else if let Some(stall) = self.stall_deadline() {
            self.due = self.due.into_iter().chain([stall]).min();
        }
        delivery
    }

    /// A message is processed, whatever its order among the others. Says whether that was news: under an
    /// ownership that has ended it changes nothing.
    pub fn acknowledge(&mut self, now: Time, token: FencingToken, offset: Offset) -> bool {
        self.now = self.now.max(now.monotonic);
        let Some(holding) = self.held.get_mut(&token.partition) else {
            return false;
        };
        if !holding.is_under(token.epoch) || !holding.frontier.acknowledge(offset) {
            return false;
        }
        self.note_progress(token.partition);
        if self.is_due(token.partition) {
            self.drive();
        }
        true
    }

    /// The message handed out last is processed as well ([`StoreMode::Processed`]). Gives its partition.
    pub fn settle_last(&mut self) -> Option<PartitionId> {
        let (partition, epoch, offset) = self.unsettled.take()?;
        let holding = self.held.get_mut(&partition)?;
        if !holding.is_under(epoch) {
            return None;
        }
        holding.frontier.acknowledge(offset);
        self.note_progress(partition);
        Some(partition)
    }

    /// Stops, or goes on, reading a partition. Lasts while the partition is held. Says whether it is.
    pub fn pause(&mut self, now: Time, partition: PartitionId, paused: bool) -> bool {
        self.now = self.now.max(now.monotonic);
        let Some(holding) = self.held.get_mut(&partition) else {
            return false;
        };
        if paused && self.config.store != StoreMode::BeforeDelivery {
            self.buffered -= holding.drop_fetched();
        }
        holding.paused = paused;
        self.drive();
        true
    }

    /// Goes on at another offset of a partition. What was handed out of it and is not processed is not waited
    /// for any more; what is stored never goes back. Says whether the partition is held and not being given up.
    pub fn seek(&mut self, now: Time, partition: PartitionId, offset: Offset) -> bool {
        self.now = self.now.max(now.monotonic);
        let Some(holding) = self.held.get_mut(&partition) else {
            return false;
        };
        if holding.state != State::Owned {
            return false;
        }
        self.buffered -= holding.seek(offset);
        self.unsettled = self.unsettled.filter(|(own, ..)| *own != partition);
        self.drive();
        true
    }

    /// The membership and its group, while there is one.
    #[must_use]
    pub fn membership(&self) -> Option<(ConsumerGroupId, MemberId)> {
        let membership = self.membership.filter(|_| self.is_member())?;
        Some((membership.group, membership.member))
    }

    /// The partitions that the consumer has, in order.
    pub fn partitions(&self) -> impl Iterator<Item = HeldPartition> + '_ {
        let told = self
            .held
            .values()
            .filter(|holding| holding.told && !matches!(holding.state, State::Released));
        told.map(|holding| HeldPartition {
            token: self.token(holding),
            next: holding.next_offset(),
            stored: holding.storing.stored,
            end: holding.end,
            revoking: holding.state != State::Owned,
            paused: holding.paused,
        })
    }

    /// Whether nothing is left that could be stored, except what the server refused.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.held.values().all(|holding| {
            let releasing = matches!(holding.state, State::Releasing { .. });
            !releasing && holding.storing.call.is_none() && holding.unstored().is_none()
        })
    }

    /// Whether there will be no more messages: the group is left for good, the consumer has gone without
    /// leaving it, or an event told why it cannot go on.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended | Phase::Failed)
    }

    /// Whether a message is probably there to be taken.
    #[must_use]
    pub const fn has_message(&self) -> bool {
        matches!(self.phase, Phase::Member) && self.buffered > 0
    }

    /// Leaves without waiting for anything: the last request of a consumer that is dropped, unless it is not
    /// a member.
    #[must_use]
    pub fn farewell(&self) -> Option<Request> {
        match self.phase {
            Phase::Joining { sent: false, .. } | Phase::Away | Phase::Ended | Phase::Failed => None,
            Phase::Leaving(leaving) if leaving.keeps_membership() => None,
            Phase::Joining { .. } | Phase::Member | Phase::Leaving(_) => {
                Some(self.leave_request().into())
            }
        }
    }

    const fn is_member(&self) -> bool {
        matches!(self.phase, Phase::Member | Phase::Leaving(_))
    }

    /// Whether it goes on reading.
    const fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Member)
    }

    /// Whether it is a member and may act like one.
    const fn is_active(&self) -> bool {
        match &self.phase {
            Phase::Member => true,
            Phase::Leaving(leaving) => !leaving.is_told(),
            Phase::Joining { .. } | Phase::Away | Phase::Ended | Phase::Failed => false,
        }
    }

    fn token(&self, holding: &Holding) -> FencingToken {
        FencingToken {
            group: self
                .membership
                .map_or(ConsumerGroupId(0), |membership| membership.group),
            partition: holding.partition,
            epoch: holding.epoch,
        }
    }

    /// Stream, topic and group, by id as soon as they are known.
    fn names(&self) -> (Identifier, Identifier, Identifier) {
        match self.membership {
            Some(known) => (
                Identifier::Number(known.stream.0),
                Identifier::Number(known.topic.0),
                Identifier::Number(known.group.0),
            ),
            None => (
                self.config.stream.clone(),
                self.config.topic.clone(),
                self.config.group.clone(),
            ),
        }
    }

    /// Does whatever is due.
    fn drive(&mut self) {
        self.watch_stall();
        if matches!(self.phase, Phase::Joining { .. }) {
            self.join();
        }
        if self.is_active() {
            self.sync();
            self.release();
            self.store_due();
        }
        self.leave();
        if matches!(self.phase, Phase::Member) {
            self.poll();
        }
        self.due = self.next_due();
    }

    fn next_due(&self) -> Option<u64> {
        match &self.phase {
            Phase::Joining { call, at, .. } => return call.is_none().then_some(*at),
            Phase::Away | Phase::Ended | Phase::Failed => return None,
            Phase::Leaving(leaving) if leaving.is_told() => return leaving.due(),
            Phase::Member | Phase::Leaving(_) => {}
        }
        let leaving = match &self.phase {
            Phase::Leaving(leaving) => leaving.due(),
            Phase::Joining { .. } | Phase::Member | Phase::Away | Phase::Ended | Phase::Failed => {
                None
            }
        };
        let busy = self.is_storing();
        let holdings = self.held.values().filter_map(|holding| {
            let unblocked = Some(holding.fetching.blocked_until).filter(|time| *time > self.now);
            // What shares its requests waits for the one under way.
            let waits = busy && !holding.lead.is_alone(self.now);
            let store = self.store_deadline(holding).filter(|_| !waits);
            let release = self.release_deadline(holding);
            unblocked.into_iter().chain(store).chain(release).min()
        });
        let own = [leaving, self.sync_deadline(), self.stall_deadline()];
        holdings.chain(own.into_iter().flatten()).min()
    }

    fn take_message(&mut self) -> Option<Delivery> {
        let is_ready = |own: &Holding| !own.fetching.is_empty() && !own.paused;
        let partition = self.turn.pass(&self.held, is_ready)?;
        let holding = self.held.get_mut(&partition)?;
        let (delivery, freed) = holding.take();
        self.buffered -= freed;
        delivery.or_else(|| self.take_message())
    }

    fn on_delivered(&mut self, delivery: &Delivery) {
        let (partition, offset) = (delivery.partition, delivery.message.offset);
        let Some(holding) = self.held.get_mut(&partition) else {
            return;
        };
        match self.config.store {
            StoreMode::Processed => {
                holding.frontier.deliver(offset);
                self.unsettled = Some((partition, holding.epoch, offset));
            }
            StoreMode::Manual => holding.frontier.deliver(offset),
            StoreMode::BeforeDelivery | StoreMode::Never => {}
        }
    }

    fn on_answer(&mut self, call: Call, result: Result<Reply, ClientError>) {
        match self.calls.remove(&call) {
            // Of a membership that has ended.
            None => {}
            Some(Asked::Create) => self.on_created(result),
            Some(Asked::Join) => self.on_joined(result),
            Some(Asked::Sync) => self.on_synced(result),
            Some(Asked::Messages(_, sections)) => self.on_polled(call, &sections, result),
            Some(Asked::Store(sections)) => self.on_stored(call, &sections, result),
            Some(Asked::Release(sections)) => self.on_released(call, &sections, result),
            Some(Asked::Leave) => self.on_leave_answered(result),
        }
    }

    /// What is to be done when a request as a whole is refused or unanswered: says whether the same is worth
    /// another try.
    fn on_failed(&mut self, error: ClientError) -> bool {
        if let ClientError::Refused(failure) = &error
            && failure.code == ErrorCode::ConsumerGroupMemberNotFound
        {
            self.on_membership_ended(failure.clone());
            return false;
        }
        if !error.is_retryable() {
            self.fail(ConsumerError::Request(error));
            return false;
        }
        self.event(GroupEvent::Retrying { error });
        true
    }

    /// The consumer cannot go on.
    fn fail(&mut self, error: ConsumerError) {
        if self.is_ended() {
            return;
        }
        self.lose_all(&LossReason::Failed);
        self.phase = Phase::Failed;
        self.event(GroupEvent::Failed(error));
    }

    /// A partition cannot be read any more.
    fn fail_partition(&mut self, partition: PartitionId, error: ConsumerError) {
        if let Some(holding) = self.held.get_mut(&partition) {
            holding.fetching.faulty = true;
            self.event(GroupEvent::PartitionFailed { partition, error });
        }
    }

    /// The ownership has ended. What is still under way for it means nothing any more.
    fn lose(&mut self, partition: PartitionId, reason: LossReason) {
        let Some(holding) = self.held.remove(&partition) else {
            return;
        };
        self.buffered -= holding.fetching.size();
        let unsettled = self.unsettled.filter(|(own, ..)| *own != partition);
        self.unsettled = unsettled;
        if self.buffered == 0 && self.held.values().all(|own| own.frontier.is_settled()) {
            self.idle_since = None;
        }
        let unstored = holding.unstored();
        let unprocessed = !holding.frontier.is_settled();
        // A server may end a revocation by itself once all that it served is stored.
        let given_up = holding.state != State::Owned && !unprocessed;
        if !holding.told || matches!(holding.state, State::Released) {
            return;
        }
        self.event(if given_up && unstored.is_none() {
            GroupEvent::Revoked { partition }
        } else {
            GroupEvent::Lost {
                partition,
                reason,
                unstored,
                unprocessed,
            }
        });
    }

    /// Everything that hung on the membership is gone, and so are the answers that are still to come.
    fn lose_all(&mut self, reason: &LossReason) {
        for partition in self.held.keys().copied().collect::<Vec<_>>() {
            self.lose(partition, reason.clone());
        }
        self.calls.clear();
        self.dead.clear();
        self.idle_since = None;
        self.sync = Sync::default();
    }

    fn event(&mut self, event: GroupEvent) {
        self.effects.push_back(GroupEffect::Event(event));
    }

    fn submit(&mut self, request: Request, asked: Asked, wait: Duration) -> Call {
        self.submit_to(None, request, asked, wait)
    }

    fn submit_to(
        &mut self,
        node: Option<ReplicaId>,
        request: Request,
        asked: Asked,
        wait: Duration,
    ) -> Call {
        self.next_call += 1;
        let call = Call(self.next_call);
        let timeout = self.config.request_timeout.saturating_add(wait);
        self.calls.insert(call, asked);
        self.effects.push_back(GroupEffect::Submit {
            call,
            request,
            timeout,
            node,
        });
        call
    }

    fn backoff(&mut self, failures: u32) -> u64 {
        let wait = self.config.backoff.wait(failures, &mut self.random);
        self.now.saturating_add(wait)
    }
}

impl Phase {
    const fn joining(at: u64) -> Self {
        Self::Joining {
            call: None,
            at,
            failures: 0,
            sent: false,
        }
    }
}

/// What the refusal of one partition means for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The epoch is over: the partition is lost.
    Fenced,
    /// The assignment at hand is old.
    Behind,
    /// The membership has ended.
    NotMember,
    /// The membership has ended, and another one makes no sense.
    Final,
    /// Another node leads the partition.
    Elsewhere,
    /// The same may succeed later.
    Passing,
    /// It has nothing to do with the group, and repeating it does not help.
    Other,
}

impl Refusal {
    fn of(code: ErrorCode) -> Self {
        use ErrorCode as E;
        let table: &[(Self, &[ErrorCode])] = &[
            (Self::Fenced, &[E::PartitionNotOwned, E::StaleEpoch]),
            (Self::Behind, &[E::PartitionRevoking, E::PartitionNotFound]),
            (Self::NotMember, &[E::ConsumerGroupMemberNotFound]),
            (
                Self::Final,
                &[E::FencedInstanceId, E::ConsumerGroupNotFound],
            ),
            (Self::Elsewhere, &[E::NotPrimary]),
        ];
        let row = table.iter().find(|(_, codes)| codes.contains(&code));
        match row {
            Some((meaning, _)) => *meaning,
            None if code.retryable() => Self::Passing,
            None => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests;
