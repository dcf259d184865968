//! Somebody who polls, stores and asks by hand, in every way there is.

use std::{collections::BTreeSet, time::Duration};

use client::{Retry, Ticket};
use wire::{
    Consumer, DeleteConsumerOffset, Epoch, GetConsumerOffset, GetStream, GetStreams, GetTopic,
    GetTopics, GetUser, GetUsers, Identifier, Offset, PartitionId, PartitionKey, PollMessages,
    PollSection, PollStrategy, Request, StoreConsumerOffset, StoreSection, StreamId, Timestamp,
    TopicId, UserId,
};

use super::Desk;
use crate::run::MILLISECOND;

/// A prober.
#[derive(Debug, Default)]
pub(super) struct Prober {
    asked: BTreeSet<Ticket>,
    next_at: u64,
}

/// The topic of a request.
struct Subject {
    stream: Identifier,
    topic: Identifier,
    ids: (StreamId, TopicId),
    partitions: u32,
}

impl Prober {
    pub(super) fn on_answer(&mut self, ticket: Ticket) {
        self.asked.remove(&ticket);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) const fn deadline(&self) -> u64 {
        self.next_at
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        if desk.now.monotonic < self.next_at {
            return;
        }
        let pause = desk.random.around(6 * MILLISECOND);
        self.next_at = desk.after(pause);
        if !desk.may_begin() || self.asked.len() >= 5 {
            return;
        }
        let Some((stream, topic, partitions)) = desk.pick_topic() else {
            return;
        };
        let mut subject = Subject {
            stream: Identifier::Number(stream.0),
            topic: Identifier::Number(topic.0),
            ids: (stream, topic),
            partitions,
        };
        subject.use_names(desk);
        let request = match desk.random.below(100) {
            0..45 => poll(desk, subject),
            45..70 => store(desk, subject),
            70..78 => get_offsets(desk, subject),
            78..82 => delete_offsets(desk, subject),
            _ => query(desk, subject),
        };
        let timeout = Duration::from_millis(desk.random.between(100, 3_000));
        let retry = match desk.random.chance(600) {
            true => Retry::Session,
            false => Retry::Caller,
        };
        let ticket = desk.submit(request, timeout, retry);
        self.asked.insert(ticket);
    }
}

impl Subject {
    /// Now and then things are called by their names, and sometimes by names that nothing has.
    fn use_names(&mut self, desk: &mut Desk<'_>) {
        if desk.random.chance(850) {
            return;
        }
        let details = desk
            .ledger
            .catalog()
            .topic_details(&self.stream, &self.topic);
        let stream = desk.ledger.catalog().stream_details(&self.stream);
        if let (Ok(topic), Ok(stream)) = (details, stream) {
            self.stream = Identifier::Name(stream.name);
            self.topic = match desk.random.chance(100) {
                true => Identifier::Name("nothing has this name".into()),
                false => Identifier::Name(topic.name),
            };
        }
    }

    /// Some of the partitions, each once, sometimes one that is not there.
    fn some_partitions(&self, desk: &mut Desk<'_>) -> Vec<PartitionId> {
        let count = u64::from(self.partitions);
        let beyond = u64::from(desk.random.chance(30));
        let mut chosen = BTreeSet::new();
        for _ in 0..desk.random.between(1, 4) {
            let partition = desk.random.below(count + beyond);
            chosen.insert(PartitionId(u32::try_from(partition).unwrap_or(0)));
        }
        let mut chosen: Vec<PartitionId> = chosen.into_iter().collect();
        if desk.random.chance(500) {
            chosen.reverse();
        }
        chosen
    }

    /// The end of a partition, as it is now.
    fn end(&self, desk: &Desk<'_>, partition: PartitionId) -> u64 {
        let key = PartitionKey {
            stream: self.ids.0,
            topic: self.ids.1,
            partition,
        };
        let mut live = desk.ledger.live_partitions();
        live.find(|(at, _)| *at == key)
            .map_or(0, |(_, model)| model.end())
    }
}

fn consumer(desk: &mut Desk<'_>) -> Consumer {
    match desk.random.chance(10) {
        true => Consumer::Group(Identifier::Number(1)),
        false => Consumer::Single(format!("prober-{}", desk.random.below(6))),
    }
}

fn poll(desk: &mut Desk<'_>, subject: Subject) -> Request {
    let mut partitions = subject.some_partitions(desk);
    let commit_on_poll = desk.random.chance(120);
    if commit_on_poll {
        partitions.truncate(1);
    }
    let strategy_of = |desk: &mut Desk<'_>, partition| strategy(desk, &subject, partition);
    let sections = partitions.into_iter().map(|partition| PollSection {
        partition,
        epoch: Epoch(0),
        strategy: strategy_of(desk, partition),
    });
    let sections = sections.collect();
    let waits = desk.random.chance(500);
    PollMessages {
        stream: subject.stream,
        topic: subject.topic,
        consumer: consumer(desk),
        max_messages: small(desk, 0, 80),
        max_bytes: small(desk, 1, 20_000),
        min_bytes: if waits { small(desk, 1, 1_500) } else { 0 },
        max_wait_ms: if waits { small(desk, 1, 700) } else { 0 },
        commit_on_poll,
        sections,
    }
    .into()
}

fn strategy(desk: &mut Desk<'_>, subject: &Subject, partition: PartitionId) -> PollStrategy {
    let end = subject.end(desk, partition);
    match desk.random.below(10) {
        0..3 => PollStrategy::Next,
        3 => PollStrategy::First,
        4 => PollStrategy::Last,
        // Where nothing is yet.
        5 | 6 => PollStrategy::Offset(Offset(end)),
        7 => PollStrategy::Offset(Offset(desk.random.below(end + 1))),
        8 => PollStrategy::Offset(Offset(end + desk.random.below(5))),
        _ => {
            let back = desk.random.below(4_000_000);
            PollStrategy::Timestamp(Timestamp(desk.now.wall.0.saturating_sub(back)))
        }
    }
}

fn store(desk: &mut Desk<'_>, subject: Subject) -> Request {
    let partitions = subject.some_partitions(desk);
    let sections = partitions.into_iter().map(|partition| {
        let end = subject.end(desk, partition);
        let offset = match desk.random.below(10) {
            0 => end + desk.random.below(10),
            1 | 2 => desk.random.below(end + 1),
            _ => end.saturating_sub(desk.random.below(20) + 1),
        };
        StoreSection {
            partition,
            epoch: Epoch(0),
            offset: Offset(offset),
        }
    });
    let sections = sections.collect();
    StoreConsumerOffset {
        stream: subject.stream,
        topic: subject.topic,
        consumer: consumer(desk),
        sections,
    }
    .into()
}

fn get_offsets(desk: &mut Desk<'_>, subject: Subject) -> Request {
    GetConsumerOffset {
        partitions: subject.some_partitions(desk),
        stream: subject.stream,
        topic: subject.topic,
        consumer: consumer(desk),
    }
    .into()
}

fn delete_offsets(desk: &mut Desk<'_>, subject: Subject) -> Request {
    DeleteConsumerOffset {
        partitions: subject.some_partitions(desk),
        stream: subject.stream,
        topic: subject.topic,
        consumer: consumer(desk),
    }
    .into()
}

fn query(desk: &mut Desk<'_>, subject: Subject) -> Request {
    let Subject { stream, topic, .. } = subject;
    match desk.random.below(9) {
        0 => GetStreams {
            after: StreamId(desk.random.below(5)),
            limit: small(desk, 0, 4),
        }
        .into(),
        1 => GetStream { stream }.into(),
        2 | 3 => GetTopic { stream, topic }.into(),
        4 => GetTopics {
            stream,
            after: TopicId(0),
            limit: small(desk, 0, 3),
        }
        .into(),
        5 => Request::GetMe,
        6 => Request::GetStats,
        7 => GetUsers {
            after: UserId(0),
            limit: small(desk, 0, 3),
        }
        .into(),
        _ => match desk.random.chance(500) {
            true => Request::GetClusterMetadata,
            false => GetUser {
                user: Identifier::Name("root".into()),
            }
            .into(),
        },
    }
}

fn small(desk: &mut Desk<'_>, low: u64, high: u64) -> u32 {
    u32::try_from(desk.random.between(low, high)).unwrap_or(u32::MAX)
}
