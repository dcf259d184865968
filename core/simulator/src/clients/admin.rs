//! Somebody who makes and removes streams, topics and partitions.

use std::{collections::BTreeSet, time::Duration};

use client::{Retry, Ticket};
use wire::{
    ChangePassword, CreatePartitions, CreateStream, CreateTopic, CreateUser, DeletePartitions,
    DeleteStream, DeleteTopic, DeleteUser, Identifier, Password, PurgeStream, PurgeTopic, Request,
    StreamId, UpdateStream, UpdateTopic, UpdateUser,
};

use super::{Desk, topics};
use crate::{run::MILLISECOND, scenario::ROOT_PASSWORD};

/// An administrator.
#[derive(Debug, Default)]
pub(super) struct Admin {
    asked: BTreeSet<Ticket>,
    next_at: u64,
}

impl Admin {
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
        let topics = topics(desk.ledger).len();
        let hurry = topics < 2;
        let pause = if hurry { 5 } else { 150 };
        let pause = desk.random.around(pause * MILLISECOND);
        self.next_at = desk.after(pause);
        if !desk.may_begin() || self.asked.len() > 3 {
            return;
        }
        let request = match topics {
            0 if self.asked.is_empty() => first_request(desk),
            0 => return,
            _ => any_request(desk, topics),
        };
        let timeout = Duration::from_millis(desk.random.between(300, 3_000));
        let retry = match desk.random.chance(850) {
            true => Retry::Session,
            false => Retry::Caller,
        };
        let ticket = desk.submit(request, timeout, retry);
        self.asked.insert(ticket);
    }
}

/// What leads to the first topic.
fn first_request(desk: &mut Desk<'_>) -> Request {
    match any_stream(desk) {
        None => create_stream(desk),
        Some(stream) => create_topic(desk, stream),
    }
}

fn any_request(desk: &mut Desk<'_>, topics: usize) -> Request {
    let Some((stream, topic, _)) = desk.pick_topic() else {
        return create_stream(desk);
    };
    let stream_name = Identifier::Number(stream.0);
    let topic_name = Identifier::Number(topic.0);
    match desk.random.below(100) {
        0..12 => create_stream(desk),
        12..40 => match any_stream(desk) {
            Some(stream) => create_topic(desk, stream),
            None => create_stream(desk),
        },
        40..55 => CreatePartitions {
            stream: stream_name,
            topic: topic_name,
            count: small(desk, 3),
        }
        .into(),
        55..67 => DeletePartitions {
            stream: stream_name,
            topic: topic_name,
            count: small(desk, 2),
        }
        .into(),
        67..75 if topics > 2 => DeleteTopic {
            stream: stream_name,
            topic: topic_name,
        }
        .into(),
        75..79 if topics > 3 => DeleteStream {
            stream: stream_name,
        }
        .into(),
        79..84 => UpdateStream {
            stream: stream_name,
            name: name(desk, "stream"),
        }
        .into(),
        84..88 => UpdateTopic {
            stream: stream_name,
            topic: topic_name,
            name: name(desk, "topic"),
        }
        .into(),
        88..92 => PurgeTopic {
            stream: stream_name,
            topic: topic_name,
        }
        .into(),
        92 => PurgeStream {
            stream: stream_name,
        }
        .into(),
        _ => user_request(desk),
    }
}

fn user_request(desk: &mut Desk<'_>) -> Request {
    let name = name(desk, "user");
    let user = Identifier::Name(name.clone());
    match desk.random.below(5) {
        0 | 1 => CreateUser {
            name,
            password: Password("a password of somebody".into()),
        }
        .into(),
        2 => DeleteUser { user }.into(),
        3 => UpdateUser {
            user,
            name: None,
            active: Some(desk.random.chance(500)),
        }
        .into(),
        _ => ChangePassword {
            user,
            current: Password(ROOT_PASSWORD.into()),
            new: Password("another password of somebody".into()),
        }
        .into(),
    }
}

fn create_stream(desk: &mut Desk<'_>) -> Request {
    CreateStream {
        name: name(desk, "stream"),
    }
    .into()
}

fn create_topic(desk: &mut Desk<'_>, stream: StreamId) -> Request {
    CreateTopic {
        stream: Identifier::Number(stream.0),
        name: name(desk, "topic"),
        partitions: small(desk, 6),
    }
    .into()
}

fn any_stream(desk: &mut Desk<'_>) -> Option<StreamId> {
    let all = wire::GetStreams {
        after: StreamId(0),
        limit: 0,
    };
    let streams = desk.ledger.catalog().streams_page(&all).streams;
    match streams.is_empty() {
        true => None,
        false => Some(desk.random.pick(&streams).id),
    }
}

/// Few names, so that they are taken now and then.
fn name(desk: &mut Desk<'_>, kind: &str) -> String {
    format!("{kind}-{}", desk.random.below(20))
}

fn small(desk: &mut Desk<'_>, high: u64) -> u32 {
    u32::try_from(desk.random.between(1, high)).unwrap_or(1)
}
