//! A well-behaved member of a consumer group, by hand: it joins, polls, processes, stores, gives up what is
//! revoked, and leaves, in one life after the other. `PROTOCOL.md` tells what it does.

use std::{collections::BTreeMap, time::Duration};

use catalog::GroupKey;
use client::{ClientError, Retry, Route, Ticket};
use wire::{
    Consumer, ConsumerGroupAssignment, ConsumerGroupOptionsUpdate, CreateConsumerGroup, Epoch,
    ErrorCode, Event, Failure, Generation, GroupStart, Identifier, JoinConsumerGroup,
    LeaveConsumerGroup, MemberId, Offset, PartitionId, PollMessages, PollSection, PollStrategy,
    ReleasePartition, ReleaseSection, Reply, Request, StoreConsumerOffset, StoreSection, StreamId,
    SyncConsumerGroup, Timestamp, TopicId,
};

use super::{Answer, Desk, processed::Ownership};
use crate::run::MILLISECOND;

/// A member.
#[derive(Debug, Default)]
pub(super) struct Member {
    life: Option<Life>,
    asked: BTreeMap<Ticket, Asked>,
    lives: u64,
    next_at: u64,
}

/// One life: from the first request about a group until the last.
#[derive(Debug)]
struct Life {
    number: u64,
    habits: Habits,
    stream: StreamId,
    topic: TopicId,
    name: String,
    instance: Option<String>,
    phase: Phase,
    inside: Option<Inside>,
    held: BTreeMap<PartitionId, Held>,
    /// Something has changed that is not known yet.
    stale: bool,
    syncs: bool,
    sync_at: u64,
    leaves_at: u64,
}

/// How a member goes about it.
#[derive(Clone, Copy, Debug)]
struct Habits {
    /// Messages that it processes at once, at the most.
    pace: u64,
    pause: u64,
    poll_messages: u32,
    poll_wait_ms: u32,
    /// It stores after so many messages.
    store_after: u64,
    /// It releases what is revoked; else it only stores.
    releases: bool,
    /// It does nothing about what is revoked.
    stalls: bool,
    /// It drops what it has not processed when a partition is revoked.
    drops: bool,
    /// It goes without a last store.
    forgets: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Creating,
    Joining,
    Inside,
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Inside {
    key: GroupKey,
    member: MemberId,
    generation: Generation,
}

/// A partition that the member has.
#[derive(Debug)]
struct Held {
    epoch: Epoch,
    held_since: Epoch,
    /// What the next poll begins with; `None`: what the node says.
    position: Option<u64>,
    /// Polled and not processed.
    waiting: Option<(u64, u64)>,
    processed: Option<u64>,
    stored: Option<u64>,
    polls: bool,
    stores: bool,
    revoking: Option<Epoch>,
    /// No more polls until the next sync.
    closed: bool,
    /// The epoch of the move that it was given up for.
    released: Option<Epoch>,
}

#[derive(Debug)]
struct Asked {
    life: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Create,
    Join,
    Sync,
    Leave,
    Poll(Vec<(PartitionId, Epoch, PollStrategy)>),
    Store(Vec<(PartitionId, Epoch, u64)>),
    Release(PartitionId, Epoch, Epoch),
}

impl Member {
    pub(super) const fn deadline(&self) -> u64 {
        self.next_at
    }

    /// Whether it has nothing left to do; it may still be a member.
    pub(super) const fn is_done(&self) -> bool {
        self.life.is_none()
    }

    /// The session is gone, and the membership with it.
    pub(super) fn on_session_lost(&mut self) {
        self.life = None;
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        let Some(life) = &mut self.life else {
            return;
        };
        let key = life.inside.map(|inside| inside.key);
        match event {
            Event::AssignmentChanged(changed) => {
                let about = GroupKey {
                    stream: changed.stream,
                    topic: changed.topic,
                    group: changed.group,
                };
                let is_news = life
                    .inside
                    .is_some_and(|inside| changed.generation > inside.generation);
                life.stale |= Some(about) == key && is_news;
            }
            Event::MembershipEnded(_, ended) => {
                let about = GroupKey {
                    stream: ended.stream,
                    topic: ended.topic,
                    group: ended.group,
                };
                // The event of a membership that it has left may come late.
                let member = life.inside.map(|inside| inside.member);
                if Some(about) == key && Some(ended.member) == member {
                    self.life = None;
                }
            }
            Event::Evicted(_) | Event::ServerStopping(_) | Event::PrimaryChanged(_) => {}
        }
    }

    pub(super) fn on_answer(&mut self, desk: &mut Desk<'_>, ticket: Ticket, answer: Answer) {
        let Some(asked) = self.asked.remove(&ticket) else {
            return;
        };
        let Some(life) = &mut self.life else {
            return;
        };
        if life.number != asked.life {
            return;
        }
        let is_over = match answer {
            Ok(reply) => life.on_reply(desk, asked.what, reply),
            Err(ClientError::Refused(failure)) => life.on_refused(asked.what, &failure),
            Err(_) => life.on_lost(asked.what),
        };
        if is_over {
            self.end(desk);
        }
    }

    fn end(&mut self, desk: &mut Desk<'_>) {
        self.life = None;
        let pause = desk.random.around(40 * MILLISECOND);
        self.next_at = desk.after(pause);
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        let is_due = desk.now.monotonic >= self.next_at;
        let is_hurried = self.life.as_ref().is_some_and(|life| life.stale);
        if !is_due && !is_hurried {
            return;
        }
        if is_due {
            let pause = self
                .life
                .as_ref()
                .map_or(10 * MILLISECOND, |life| life.habits.pause);
            let pause = desk.random.around(pause);
            self.next_at = desk.after(pause);
        }
        if self.life.is_none() {
            if !desk.may_begin() {
                return;
            }
            self.lives += 1;
            self.life = Life::new(desk, self.lives);
        }
        let Some(life) = &mut self.life else {
            return;
        };
        let mut requests = Vec::new();
        life.drive(desk, is_due, &mut requests);
        for (what, request) in requests {
            let timeout = Duration::from_millis(desk.random.between(200, 1_500));
            let lane = u16::try_from(desk.random.below(4)).unwrap_or(0);
            let ticket = desk.submit_on(Route::any(lane), request, timeout, Retry::Session);
            let life = life.number;
            self.asked.insert(ticket, Asked { life, what });
        }
    }
}

impl Habits {
    fn new(desk: &mut Desk<'_>) -> Self {
        let random = &mut *desk.random;
        Self {
            pace: *random.pick(&[1, 5, 20, 200]),
            pause: random.between(2, 12) * MILLISECOND,
            poll_messages: u32::try_from(random.between(1, 60)).unwrap_or(1),
            poll_wait_ms: *random.pick(&[0, 20, 200]),
            store_after: *random.pick(&[1, 1, 10, 50]),
            releases: random.chance(700),
            stalls: random.chance(100),
            drops: random.chance(500),
            forgets: random.chance(200),
        }
    }
}

impl Life {
    fn new(desk: &mut Desk<'_>, number: u64) -> Option<Self> {
        let (stream, topic, _) = desk.pick_topic()?;
        let names = 1 + desk.random.below(2);
        let name = format!("group-{}", desk.random.below(names));
        let instance = desk
            .random
            .chance(250)
            .then(|| format!("instance-{}", desk.random.below(3)));
        let stays = desk.random.between(50, 3_000) * MILLISECOND;
        let (client, topic_id) = (desk.client as u64, topic.0);
        desk.run.note(&[51, client, number, topic_id], || {
            format!("client {client}: life {number} in {name} of {stream}/{topic}: {instance:?}")
        });
        Some(Self {
            number,
            habits: Habits::new(desk),
            stream,
            topic,
            name,
            instance,
            phase: Phase::Creating,
            inside: None,
            held: BTreeMap::new(),
            stale: true,
            syncs: false,
            sync_at: 0,
            leaves_at: desk.after(stays),
        })
    }

    fn names(&self) -> (Identifier, Identifier, Identifier) {
        let group = match self.inside {
            Some(inside) => Identifier::Number(inside.key.group.0),
            None => Identifier::Name(self.name.clone()),
        };
        (self.stream.into(), self.topic.into(), group)
    }

    fn drive(&mut self, desk: &mut Desk<'_>, is_due: bool, requests: &mut Vec<(What, Request)>) {
        match self.phase {
            Phase::Creating | Phase::Joining => {
                if std::mem::take(&mut self.stale) {
                    requests.push(self.enter(desk));
                }
            }
            Phase::Leaving => {}
            Phase::Inside => {
                self.sync(desk, requests);
                if is_due {
                    self.process(desk);
                    self.store(requests);
                    self.release(requests);
                    self.poll(desk, requests);
                    self.leave(desk, requests);
                }
            }
        }
    }

    fn enter(&self, desk: &mut Desk<'_>) -> (What, Request) {
        let (stream, topic, group) = self.names();
        if self.phase == Phase::Creating {
            let create = CreateConsumerGroup {
                stream,
                topic,
                name: self.name.clone(),
                options: options(desk),
            };
            return (What::Create, create.into());
        }
        let join = JoinConsumerGroup {
            stream,
            topic,
            group,
            instance: self.instance.clone(),
            weight: 1,
        };
        (What::Join, join.into())
    }

    fn sync(&mut self, desk: &mut Desk<'_>, requests: &mut Vec<(What, Request)>) {
        let is_late = desk.now.monotonic >= self.sync_at;
        if self.syncs || !(self.stale || is_late) {
            return;
        }
        self.stale = false;
        self.syncs = true;
        let pause = desk.random.between(200, 1_500) * MILLISECOND;
        self.sync_at = desk.after(pause);
        let (stream, topic, group) = self.names();
        let sync = SyncConsumerGroup {
            stream,
            topic,
            group,
        };
        requests.push((What::Sync, sync.into()));
    }

    /// The application has its messages.
    fn process(&mut self, desk: &mut Desk<'_>) {
        let Some(inside) = self.inside else {
            return;
        };
        for (partition, held) in &mut self.held {
            let Some((from, next)) = held.waiting else {
                continue;
            };
            if held.released.is_some() {
                held.waiting = None;
                continue;
            }
            let end = next.min(from + self.habits.pace);
            desk.run.counts.messages_processed += end - from;
            held.processed = Some(end - 1);
            held.waiting = (end < next).then_some((end, next));
            let ownership = (inside.key, *partition, held.held_since);
            if desk.shared.processed.advance(ownership, end - 1) {
                check_first(desk, ownership, from);
            }
        }
    }

    fn store(&mut self, requests: &mut Vec<(What, Request)>) {
        let mut stores = Vec::new();
        for (partition, held) in &mut self.held {
            let Some(processed) = held.processed else {
                continue;
            };
            let is_revoked = held.revoking.is_some() || held.closed;
            if held.stores || held.released.is_some() || is_revoked && self.habits.stalls {
                continue;
            }
            let behind = match held.stored {
                Some(stored) => processed.saturating_sub(stored),
                None => processed + 1,
            };
            let is_due = behind >= self.habits.store_after || is_revoked || held.waiting.is_none();
            if behind > 0 && is_due {
                held.stores = true;
                stores.push((*partition, held.epoch, processed));
            }
        }
        if stores.is_empty() {
            return;
        }
        let (stream, topic, group) = self.names();
        let sections = stores
            .iter()
            .map(|(partition, epoch, offset)| StoreSection {
                partition: *partition,
                epoch: *epoch,
                offset: Offset(*offset),
            });
        let request = StoreConsumerOffset {
            stream,
            topic,
            consumer: Consumer::Group(group),
            sections: sections.collect(),
        };
        requests.push((What::Store(stores), request.into()));
    }

    fn release(&mut self, requests: &mut Vec<(What, Request)>) {
        if self.habits.stalls || !self.habits.releases {
            return;
        }
        let (stream, topic, group) = self.names();
        for (partition, held) in &mut self.held {
            let Some(planned) = held.revoking else {
                continue;
            };
            if held.released == Some(planned) {
                continue;
            }
            if self.habits.drops {
                held.waiting = None;
            }
            if held.waiting.is_some() {
                continue;
            }
            held.released = Some(planned);
            let section = ReleaseSection {
                partition: *partition,
                epoch: held.epoch,
                planned,
                offset: held.processed.map(Offset),
            };
            let request = ReleasePartition {
                stream: stream.clone(),
                topic: topic.clone(),
                group: group.clone(),
                sections: vec![section],
            };
            let what = What::Release(*partition, held.epoch, planned);
            requests.push((what, request.into()));
        }
    }

    fn poll(&mut self, desk: &mut Desk<'_>, requests: &mut Vec<(What, Request)>) {
        let mut polls = Vec::new();
        for (partition, held) in &mut self.held {
            let is_busy = held.polls || held.waiting.is_some();
            if is_busy || held.closed || held.revoking.is_some() || polls.len() >= 4 {
                continue;
            }
            held.polls = true;
            let strategy = match held.position {
                Some(position) => PollStrategy::Offset(Offset(position)),
                None => PollStrategy::Next,
            };
            polls.push((*partition, held.epoch, strategy));
        }
        if polls.is_empty() {
            return;
        }
        if desk.random.chance(500) {
            polls.reverse();
        }
        let (stream, topic, group) = self.names();
        let sections = polls
            .iter()
            .map(|(partition, epoch, strategy)| PollSection {
                partition: *partition,
                epoch: *epoch,
                strategy: *strategy,
            });
        let waits = self.habits.poll_wait_ms;
        let request = PollMessages {
            stream,
            topic,
            consumer: Consumer::Group(group),
            max_messages: self.habits.poll_messages,
            max_bytes: 20_000,
            min_bytes: u32::from(waits > 0),
            max_wait_ms: waits,
            commit_on_poll: false,
            sections: sections.collect(),
        };
        requests.push((What::Poll(polls), request.into()));
    }

    fn leave(&mut self, desk: &Desk<'_>, requests: &mut Vec<(What, Request)>) {
        let wants = match desk.may_begin() {
            true => desk.now.monotonic >= self.leaves_at,
            false => desk.shared.members_leave,
        };
        let is_stored = self
            .held
            .values()
            .all(|held| held.processed <= held.stored || held.released.is_some());
        let over = desk.now.monotonic >= self.leaves_at.saturating_add(200 * MILLISECOND);
        if wants && (is_stored || self.habits.forgets || over) {
            self.phase = Phase::Leaving;
            let (stream, topic, group) = self.names();
            let request = LeaveConsumerGroup {
                stream,
                topic,
                group,
            };
            requests.push((What::Leave, request.into()));
        }
    }

    /// Returns whether the life is over.
    fn on_reply(&mut self, desk: &mut Desk<'_>, what: What, reply: Reply) -> bool {
        match (what, reply) {
            (What::Create, _) => {
                self.phase = Phase::Joining;
                self.stale = true;
            }
            (What::Join | What::Sync, Reply::Assignment(assignment)) => {
                self.syncs = false;
                if self.phase == Phase::Joining {
                    self.phase = Phase::Inside;
                }
                self.on_assignment(desk, &assignment);
            }
            (What::Leave, _) => return true,
            (What::Poll(polls), Reply::Polled(polled)) => {
                for (asked, result) in polls.into_iter().zip(polled.sections) {
                    let outcome = match result.status {
                        Ok(()) => Ok((result.from.0, result.next.0)),
                        Err(failure) => Err(failure),
                    };
                    if self.on_polled(asked, outcome) {
                        return true;
                    }
                }
            }
            (What::Store(stores), Reply::OffsetsStored(stored)) => {
                for (asked, result) in stores.into_iter().zip(stored.sections) {
                    if self.on_stored(asked, result.status) {
                        return true;
                    }
                }
            }
            (What::Release(partition, epoch, planned), Reply::PartitionsReleased(released)) => {
                for result in released.sections {
                    if self.on_released((partition, epoch, planned), result.status) {
                        return true;
                    }
                }
            }
            (what, reply) => desk
                .run
                .fail(format!("client {}: {what:?}: {reply:?}", desk.client)),
        }
        false
    }

    fn on_assignment(&mut self, desk: &mut Desk<'_>, told: &ConsumerGroupAssignment) {
        let key = GroupKey {
            stream: told.stream,
            topic: told.topic,
            group: told.group,
        };
        let old = self.inside.map(|inside| inside.generation);
        if old.is_some_and(|old| told.generation < old) {
            return;
        }
        self.inside = Some(Inside {
            key,
            member: told.member,
            generation: told.generation,
        });
        let mut before = std::mem::take(&mut self.held);
        let owned = told.owned.iter();
        let owned = owned.map(|it| (it.partition, it.epoch, it.held_since, None));
        let revoking = told.revoking.iter();
        let revoking = revoking.map(|it| (it.partition, it.epoch, it.held_since, Some(it.planned)));
        for (partition, epoch, held_since, planned) in owned.chain(revoking) {
            let known = before
                .remove(&partition)
                .filter(|held| held.held_since == held_since);
            let mut held = known.unwrap_or_else(|| {
                desk.shared.processed.begin((key, partition, held_since));
                Held::new(epoch, held_since)
            });
            if held.released.is_some() && held.released != planned {
                // Given up for a move that is planned no more: it goes on behind what is processed.
                held.released = None;
                held.waiting = None;
                held.position = held.processed.map(|processed| processed + 1);
            }
            held.closed &= held.epoch == epoch && planned.is_none();
            (held.epoch, held.revoking) = (epoch, planned);
            self.held.insert(partition, held);
        }
    }

    /// The partition, if it is still held as it was asked for.
    fn held(&mut self, (partition, epoch): (PartitionId, Epoch)) -> Option<&mut Held> {
        let held = self.held.get_mut(&partition)?;
        (held.held_since <= epoch && epoch <= held.epoch).then_some(held)
    }

    fn on_polled(
        &mut self,
        (partition, epoch, strategy): (PartitionId, Epoch, PollStrategy),
        outcome: Result<(u64, u64), Failure>,
    ) -> bool {
        let Some(held) = self.held((partition, epoch)) else {
            return false;
        };
        held.polls = false;
        if held.released.is_some() {
            return false;
        }
        match outcome {
            Ok((from, next)) => {
                let expected = match strategy {
                    PollStrategy::Offset(offset) => offset.0,
                    _ => from,
                };
                // An answer to a poll of before the position was set anew.
                let is_at = held.position.is_none_or(|position| position == expected);
                if from == expected && is_at && held.waiting.is_none() {
                    held.position = Some(next);
                    held.waiting = (from < next).then_some((from, next));
                }
                false
            }
            Err(failure) => self.on_section_refused((partition, epoch), failure.code),
        }
    }

    fn on_stored(
        &mut self,
        (partition, epoch, offset): (PartitionId, Epoch, u64),
        status: Result<(), Failure>,
    ) -> bool {
        let Some(held) = self.held((partition, epoch)) else {
            return false;
        };
        held.stores = false;
        match status {
            Ok(()) => {
                held.stored = held.stored.max(Some(offset));
                false
            }
            Err(failure) => self.on_section_refused((partition, epoch), failure.code),
        }
    }

    fn on_released(
        &mut self,
        (partition, epoch, planned): (PartitionId, Epoch, Epoch),
        status: Result<(), Failure>,
    ) -> bool {
        let Err(failure) = status else {
            self.stale = true;
            return false;
        };
        if failure.code == ErrorCode::RevocationChanged {
            self.stale = true;
            return false;
        }
        if let Some(held) = self.held((partition, epoch))
            && held.released == Some(planned)
        {
            held.released = None;
            held.closed = true;
            held.waiting = None;
        }
        self.on_section_refused((partition, epoch), failure.code)
    }

    /// Returns whether the membership is over.
    fn on_section_refused(
        &mut self,
        (partition, epoch): (PartitionId, Epoch),
        code: ErrorCode,
    ) -> bool {
        use ErrorCode as E;
        match code {
            E::PartitionNotOwned | E::StaleEpoch => {
                self.stale = true;
                if self
                    .held((partition, epoch))
                    .is_some_and(|held| held.epoch == epoch)
                {
                    self.held.remove(&partition);
                }
            }
            E::PartitionRevoking => {
                self.stale = true;
                if let Some(held) = self.held((partition, epoch)) {
                    held.closed = true;
                }
            }
            E::OffsetOutOfRange => {
                if let Some(held) = self.held((partition, epoch)) {
                    held.position = None;
                    held.waiting = None;
                }
            }
            _ => return ends(code),
        }
        false
    }

    fn on_refused(&mut self, what: What, failure: &Failure) -> bool {
        let code = failure.code;
        match what {
            What::Create => {
                self.phase = Phase::Joining;
                self.stale = true;
                return code != ErrorCode::ConsumerGroupAlreadyExists;
            }
            What::Join => return true,
            What::Leave => return true,
            what => {
                self.on_lost(what);
            }
        }
        ends(code)
    }

    /// It is not known what became of a request.
    fn on_lost(&mut self, what: What) -> bool {
        match what {
            What::Create | What::Join => self.stale = true,
            What::Leave => return true,
            What::Sync => {
                self.syncs = false;
                self.stale = true;
            }
            What::Poll(polls) => {
                for (partition, epoch, _) in polls {
                    if let Some(held) = self.held((partition, epoch)) {
                        held.polls = false;
                    }
                }
            }
            What::Store(stores) => {
                for (partition, epoch, _) in stores {
                    if let Some(held) = self.held((partition, epoch)) {
                        held.stores = false;
                    }
                }
            }
            What::Release(partition, epoch, planned) => {
                if let Some(held) = self.held((partition, epoch))
                    && held.released == Some(planned)
                {
                    // Once more, with the same offset: nothing of it is processed any more.
                    held.released = None;
                    held.closed = true;
                    held.waiting = None;
                }
            }
        }
        false
    }
}

impl Held {
    const fn new(epoch: Epoch, held_since: Epoch) -> Self {
        Self {
            epoch,
            held_since,
            position: None,
            waiting: None,
            processed: None,
            stored: None,
            polls: false,
            stores: false,
            revoking: None,
            closed: false,
            released: None,
        }
    }
}

/// Answers after which the session is not a member.
const fn ends(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::ConsumerGroupMemberNotFound
            | E::FencedInstanceId
            | E::ConsumerGroupNotFound
            | E::TopicNotFound
            | E::StreamNotFound
    )
}

/// Where the one before has finished, the next one goes on: nothing comes twice, nothing is left out.
fn check_first(desk: &mut Desk<'_>, ownership: Ownership, first: u64) {
    let (key, partition, held_since) = ownership;
    let Some(before) = desk.ledger.groups().follows(&key, partition, held_since) else {
        return;
    };
    let Some(last) = desk.shared.processed.last(&(key, partition, before)) else {
        return;
    };
    desk.run.counts.hand_overs_seamless += 1;
    if first != last + 1 {
        desk.run.fail(format!(
            "client {}: {key:?}, partition {partition} of epoch {held_since} begins at {first}; the owner before, since epoch {before}, has processed {last} and given it up",
            desk.client
        ));
    }
}

/// Options of a group that somebody creates.
pub(super) fn options(desk: &mut Desk<'_>) -> ConsumerGroupOptionsUpdate {
    let random = &mut *desk.random;
    let timeout = *random.pick(&[20, 60, 150, 400, 800]);
    let delay = *random.pick(&[0, 0, 0, 10, 120]);
    let start = match random.below(5) {
        0 => Some(GroupStart::Latest),
        1 => {
            let back = random.below(4_000_000);
            let ahead = random.below(400_000);
            let time = desk.now.wall.0.saturating_sub(back) + ahead;
            Some(GroupStart::Timestamp(Timestamp(time)))
        }
        2 => Some(GroupStart::Earliest),
        _ => None,
    };
    let expiry = *random.pick(&[0, 0, 1_000]);
    ConsumerGroupOptionsUpdate {
        rebalance_timeout_ms: Some(timeout),
        initial_delay_ms: Some(delay),
        start,
        offset_expiry_ms: Some(expiry),
    }
}
