//! Somebody who reads and stores by the client crate's consumer, in one life after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::{
    Call, Consumer, ConsumerConfig, ConsumerEffect, ConsumerInput, Delivery, Retry, Route, Start,
    StoreMode, Ticket,
};
use wire::{
    Batch, Identifier, Offset, Offsets, PartitionId, PartitionKey, Reply, StreamId, Time,
    Timestamp, TopicId,
};

use super::{Answer, Desk, backoff};
use crate::{checks::partition::PartitionModel, run::MILLISECOND};

/// A reader. What it has got so far outlives its consumers.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The topic that it reads for good, and how.
    plan: Option<Plan>,
    life: Option<Life>,
    delivered: Delivered,
    lives: u64,
    next_at: u64,
    /// The last life has ended.
    done: bool,
}

/// What all lives of a reader have had.
#[derive(Debug, Default)]
struct Delivered {
    highest: BTreeMap<PartitionKey, u64>,
    /// Where a life has begun as its start says, and nothing has come since.
    anew: BTreeSet<PartitionKey>,
}

#[derive(Clone, Debug)]
struct Plan {
    stream: StreamId,
    topic: TopicId,
    name: String,
    store: StoreMode,
    start: Start,
    acknowledges_late: bool,
}

#[derive(Debug)]
struct Life {
    consumer: Consumer,
    calls: BTreeMap<Ticket, Call>,
    /// The offset that comes next in each partition, once one has come.
    next: BTreeMap<PartitionId, u64>,
    /// Partitions in which it knows where to begin.
    begun: BTreeSet<PartitionId>,
    /// Delivered and not acknowledged, for those who do it late.
    waiting: Vec<(PartitionId, Offset)>,
    left: u64,
    ends: Option<u64>,
}

impl Reading {
    /// A consensus group has another primary.
    pub(super) fn on_primary_changed(&mut self, now: Time) {
        if let Some(life) = &mut self.life {
            life.consumer.handle(now, ConsumerInput::PrimaryChanged);
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done || self.plan.is_none()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let consumer = self.life.as_ref().map(|life| &life.consumer);
        let deadline = consumer.and_then(Consumer::deadline);
        Some(deadline.map_or(self.next_at, |deadline| deadline.min(self.next_at)))
    }

    pub(super) fn on_answer(&mut self, desk: &mut Desk<'_>, ticket: Ticket, result: Answer) {
        if let Some(life) = &mut self.life
            && let Some(call) = life.calls.remove(&ticket)
        {
            if let (Some(plan), Ok(Reply::Offsets(told))) = (&self.plan, &result) {
                for partition in life.begun_anew(plan, told) {
                    self.delivered.begin_anew(plan.key(partition));
                }
            }
            let input = ConsumerInput::Answered { call, result };
            life.consumer.handle(desk.now, input);
            life.pump(desk);
        }
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        if self.done {
            return;
        }
        let may_begin = desk.may_begin();
        if self.plan.is_none() && may_begin {
            self.plan = Plan::new(desk);
        }
        let Some(plan) = self.plan.clone() else {
            self.next_at = desk.after(20 * MILLISECOND);
            return;
        };
        if self.life.is_none() && desk.now.monotonic >= self.next_at {
            self.lives += 1;
            self.life = Some(Life::new(desk, &plan));
            let (client, lives) = (desk.client as u64, self.lives);
            desk.run.note(&[32, client, lives], || {
                format!("client {client}: life {lives} begins: {plan:?}")
            });
        }
        let Some(life) = &mut self.life else {
            return;
        };
        life.consumer.handle(desk.now, ConsumerInput::Tick);
        if desk.now.monotonic >= self.next_at {
            Self::read_some(&mut self.delivered, life, desk, &plan);
            let pause = desk.random.around(4 * MILLISECOND);
            self.next_at = desk.after(pause);
        }
        life.pump(desk);
        if life.is_over(desk) {
            let (client, lives) = (desk.client as u64, self.lives);
            desk.run.note(&[33, client, lives], || {
                let progress: Vec<_> = life.consumer.progress().collect();
                format!("client {client}: life {lives} ends: {progress:?}")
            });
            self.life = None;
            self.done = !may_begin;
            let pause = desk.random.around(30 * MILLISECOND);
            self.next_at = desk.after(pause);
        }
    }

    fn read_some(delivered: &mut Delivered, life: &mut Life, desk: &mut Desk<'_>, plan: &Plan) {
        for _ in 0..desk.random.between(1, 60) {
            if life.left == 0 {
                break;
            }
            let Some(delivery) = life.consumer.next_message(desk.now) else {
                break;
            };
            life.left -= 1;
            desk.run.counts.messages_consumed += 1;
            let key = plan.key(delivery.partition);
            check_content(desk, key, &delivery);
            let offset = delivery.message.offset;
            check_place(desk, plan, (key, offset.0), (life, delivered));
            life.next.insert(delivery.partition, offset.0 + 1);
            if plan.store == StoreMode::Manual {
                life.waiting.push((delivery.partition, offset));
            }
            delivered.add(key, offset.0);
        }
        life.acknowledge_some(desk, plan);
    }
}

impl Delivered {
    /// A life begins where its start says, wherever that is.
    fn begin_anew(&mut self, key: PartitionKey) {
        self.anew.insert(key);
    }

    fn add(&mut self, key: PartitionKey, offset: u64) {
        self.anew.remove(&key);
        let highest = self.highest.entry(key).or_insert(offset);
        *highest = offset.max(*highest);
    }

    /// The last message that the next one of another life follows on. What an earlier life has stored may
    /// reach the node late: then it is the highest one that counts, not that of the last life.
    fn last(&self, key: &PartitionKey) -> Option<u64> {
        let highest = self.highest.get(key).copied();
        highest.filter(|_| !self.anew.contains(key))
    }
}

impl Plan {
    fn new(desk: &mut Desk<'_>) -> Option<Self> {
        let (stream, topic, _) = desk.pick_topic()?;
        let store = match desk.random.below(10) {
            0..5 => StoreMode::Processed,
            5..7 => StoreMode::Manual,
            7..9 => StoreMode::BeforeDelivery,
            _ => StoreMode::Never,
        };
        let start = match desk.random.below(10) {
            0..7 => Start::First,
            7 => Start::Last(desk.random.below(20)),
            8 => Start::Offset(Offset(desk.random.below(20))),
            _ => Start::Timestamp(Timestamp(desk.now.wall.0 - desk.random.below(1_000_000))),
        };
        Some(Self {
            stream,
            topic,
            name: format!("reader-{}", desk.client),
            store,
            start,
            acknowledges_late: desk.random.chance(500),
        })
    }
}

impl Plan {
    const fn key(&self, partition: PartitionId) -> PartitionKey {
        PartitionKey {
            stream: self.stream,
            topic: self.topic,
            partition,
        }
    }

    /// Whether a new life may begin elsewhere than behind what was delivered before: only what is stored
    /// is kept. Where nothing is, the start counts again, which in a partition that was added while the
    /// reader read was not what it began with: there it was the first message.
    fn begins_anew(&self, stored: Option<Offset>) -> bool {
        let keeps = matches!(self.store, StoreMode::Processed | StoreMode::Manual);
        keeps && stored.is_none() && self.start != Start::First
    }
}

impl Life {
    fn new(desk: &mut Desk<'_>, plan: &Plan) -> Self {
        let random = &mut *desk.random;
        let config = ConsumerConfig {
            start: plan.start,
            store: plan.store,
            poll_messages_max: u32::try_from(random.between(1, 60)).unwrap_or(1),
            poll_size_max: u32::try_from(random.between(1, 12_000)).unwrap_or(1),
            poll_size_min: u32::try_from(random.between(1, 400)).unwrap_or(1),
            poll_wait_max: Duration::from_millis(random.below(500)),
            polls_max: random.index(3) + 1,
            buffer_size_max: random.index(30_000) + 1,
            store_interval: Duration::from_millis(random.below(60)),
            store_messages: random.between(1, 50),
            request_timeout: Duration::from_millis(random.between(200, 1_500)),
            backoff: backoff(random),
            refresh_interval: Duration::from_millis(random.between(200, 2_000)),
            ..ConsumerConfig::new(
                Identifier::Number(plan.stream.0),
                Identifier::Number(plan.topic.0),
                plan.name.clone(),
                random.number(),
            )
        };
        Self {
            left: random.between(10, 400),
            consumer: Consumer::new(desk.now, config),
            calls: BTreeMap::new(),
            next: BTreeMap::new(),
            begun: BTreeSet::new(),
            waiting: Vec::new(),
            ends: None,
        }
    }

    /// Partitions in which the life begins where its start says, for nothing is stored.
    fn begun_anew(&mut self, plan: &Plan, told: &Offsets) -> Vec<PartitionId> {
        let sections = told.sections.iter().filter(|it| it.status.is_ok());
        let first_told = sections.filter(|it| self.begun.insert(it.partition));
        first_told
            .filter(|it| plan.begins_anew(it.stored))
            .map(|it| it.partition)
            .collect()
    }

    fn acknowledge_some(&mut self, desk: &mut Desk<'_>, plan: &Plan) {
        while !self.waiting.is_empty() {
            if plan.acknowledges_late && desk.random.chance(300) {
                return;
            }
            let index = match plan.acknowledges_late {
                true => desk.random.index(self.waiting.len()),
                false => 0,
            };
            let (partition, offset) = self.waiting.swap_remove(index);
            self.consumer.acknowledge(desk.now, partition, offset);
        }
    }

    fn pump(&mut self, desk: &mut Desk<'_>) {
        while let Some(effect) = self.consumer.next_effect() {
            match effect {
                ConsumerEffect::Submit {
                    call,
                    request,
                    timeout,
                    node,
                } => {
                    let route = Route {
                        node,
                        ..Route::any(0)
                    };
                    let ticket = desk.submit_on(route, request, timeout, Retry::Session);
                    self.calls.insert(ticket, call);
                }
                ConsumerEffect::Event(event) => {
                    desk.run
                        .note(&[31], || format!("client {}: {event:?}", desk.client));
                }
            }
        }
    }

    /// A life ends when it has had its messages, or nothing new may be begun; it stores what it can, but
    /// does not wait for ever, and seldom at all.
    fn is_over(&mut self, desk: &mut Desk<'_>) -> bool {
        if self.consumer.is_failed() {
            return true;
        }
        if self.left > 0 && desk.may_begin() {
            return false;
        }
        let until = match self.ends {
            Some(until) => until,
            None => {
                let patience = *desk.random.pick(&[0, 100, 2_000]) * MILLISECOND;
                let until = desk.after(patience);
                self.ends = Some(until);
                self.consumer.settle_last();
                self.consumer.handle(desk.now, ConsumerInput::Flush);
                self.pump(desk);
                until
            }
        };
        self.consumer.is_stored() || desk.now.monotonic >= until
    }
}

/// The message is the one that was committed at its offset.
fn check_content(desk: &mut Desk<'_>, key: PartitionKey, delivery: &Delivery) {
    let offset = delivery.message.offset.0;
    let is_it = |(at, model): (PartitionKey, &PartitionModel)| {
        at == key
            && model.batch_of(offset).is_some_and(|stored| {
                let batch = Batch::read_admitted(&stored.bytes);
                let batch = batch.expect("the ledger keeps whole batches");
                let mut messages = batch.messages().flatten();
                messages.any(|message| message == delivery.message)
            })
    };
    if !desk.ledger.all_partitions().any(is_it) {
        desk.run.fail(format!(
            "client {}: the message at {offset} of {key} is not the one that was sent",
            desk.client
        ));
    }
}

/// Offsets come one after the other, and a new life neither skips nor, where that is promised, repeats.
fn check_place(
    desk: &mut Desk<'_>,
    plan: &Plan,
    (key, offset): (PartitionKey, u64),
    (life, delivered): (&Life, &Delivered),
) {
    if incarnations(desk, key) > 1 {
        // Offsets begin anew with another incarnation.
        return;
    }
    let client = desk.client;
    if let Some(next) = life.next.get(&key.partition) {
        if offset != *next {
            desk.run.fail(format!(
                "client {client}: {offset} of {key} is delivered after {next}"
            ));
        }
        return;
    }
    let Some(last) = delivered.last(&key) else {
        if plan.start == Start::First && offset != 0 && plan.store != StoreMode::BeforeDelivery {
            desk.run.fail(format!(
                "client {client}: the first message of {key} is {offset}"
            ));
        }
        return;
    };
    match plan.store {
        StoreMode::Processed | StoreMode::Manual if offset > last + 1 => {
            desk.run.fail(format!(
                "client {client}: {offset} of {key} is delivered, and the last was {last}"
            ));
        }
        StoreMode::BeforeDelivery if offset <= last => desk.run.fail(format!(
            "client {client}: {offset} of {key} is delivered again, the last was {last}"
        )),
        StoreMode::Processed | StoreMode::Manual | StoreMode::BeforeDelivery | StoreMode::Never => {
        }
    }
}

fn incarnations(desk: &Desk<'_>, key: PartitionKey) -> usize {
    let all = desk.ledger.all_partitions();
    all.filter(|(at, _)| *at == key).count()
}

#[cfg(test)]
mod tests {
    use client::{Start, StoreMode};
    use wire::{Offset, PartitionId, PartitionKey, StreamId, TopicId};

    use super::{Delivered, Plan};

    #[test]
    fn nothing_but_what_is_stored_keeps_where_a_reader_began() {
        let plan = |start, store| Plan {
            stream: StreamId(1),
            topic: TopicId(1),
            name: "reader-5".into(),
            store,
            start,
            acknowledges_late: false,
        };
        let nine = plan(Start::Offset(Offset(9)), StoreMode::Manual);
        assert!(nine.begins_anew(None));
        assert!(!nine.begins_anew(Some(Offset(1))));
        let first = plan(Start::First, StoreMode::Manual);
        assert!(
            !first.begins_anew(None),
            "the first message stays the first"
        );
        let before = plan(Start::Last(4), StoreMode::BeforeDelivery);
        assert!(!before.begins_anew(None), "what is delivered is stored");
    }

    #[test]
    fn reader_that_begins_anew_is_compared_again_from_its_first_message_on() {
        let key = PartitionKey {
            stream: StreamId(1),
            topic: TopicId(1),
            partition: PartitionId(1),
        };
        let mut delivered = Delivered::default();
        delivered.add(key, 11);
        delivered.begin_anew(key);
        assert_eq!(delivered.last(&key), None, "also for the lives after");
        delivered.add(key, 5);
        // The first life's store of 11 comes late, and the third one goes on behind it.
        assert_eq!(delivered.last(&key), Some(11));
    }
}
