//! The values that the vectors show.

mod catalog;
mod events;
mod groups;
mod messages;
mod offsets;
mod sessions;

use std::{format, string::String, vec::Vec};

use bytes::Bytes;

use crate::{
    Batch, ClientId, Command, CorrelationId, Event, Failure, FrameHeader, Identifier, Op, Plane,
    PrepareHeader, ReplicaId, Reply, Request, View,
};

pub(crate) use groups::largest_group;

/// The client of all samples.
pub(super) const CLIENT: ClientId = ClientId(0x100f_0e0d_0c0b_0a09_0807_0605_0403_0201);

/// Its session.
pub(super) const SESSION: u64 = 41;

/// The highest metadata op that it has seen.
const SEEN: u64 = 57;

/// A moment, microseconds: 2026-01-01 00:00:00 UTC.
pub(super) const MOMENT: u64 = 1_767_225_600_000_000;

/// One golden vector.
pub(super) struct Vector {
    /// The file's name.
    pub(super) file: String,
    /// What it shows, one line.
    pub(super) title: String,
    /// The value.
    pub(super) content: Content,
}

/// What a vector holds.
pub(super) enum Content {
    /// A request frame.
    Request(FrameHeader, Request),
    /// A reply frame to a command that succeeded.
    Reply(FrameHeader, Command, Reply),
    /// A reply frame to one that did not.
    Refused(FrameHeader, Failure),
    /// An event frame.
    Event(FrameHeader, Event),
    /// A batch.
    Batch(Batch),
    /// A prepare: header and body.
    Prepare(PrepareHeader, Bytes),
}

/// All vectors.
pub(super) fn vectors() -> Vec<Vector> {
    let mut vectors = Vec::new();
    sessions::add(&mut vectors);
    messages::add(&mut vectors);
    offsets::add(&mut vectors);
    catalog::add(&mut vectors);
    groups::add(&mut vectors);
    events::add(&mut vectors);
    vectors
}

/// Adds a request and its reply, as a session sends and gets them.
fn add_exchange(
    vectors: &mut Vec<Vector>,
    title: &str,
    request: impl Into<Request>,
    reply: impl Into<Reply>,
) {
    let request = request.into();
    let command = request.command();
    add_request(vectors, "", title, request);
    add_reply(vectors, "", title, (command, reply.into()));
}

/// Adds a request; `variant` tells it from others of its command.
fn add_request(vectors: &mut Vec<Vector>, variant: &str, title: &str, request: impl Into<Request>) {
    let request = request.into();
    let command = request.command();
    vectors.push(Vector {
        file: file_name(command, "request", variant),
        title: format!("{}, request: {title}", command.name()),
        content: Content::Request(request_header(command), request),
    });
}

/// Adds a reply; `variant` tells it from others of its command.
fn add_reply(
    vectors: &mut Vec<Vector>,
    variant: &str,
    title: &str,
    (command, reply): (Command, Reply),
) {
    vectors.push(Vector {
        file: file_name(command, "reply", variant),
        title: format!("{}, reply: {title}", command.name()),
        content: Content::Reply(reply_header(command), command, reply),
    });
}

/// `100-poll-messages-request-single.txt`.
fn file_name(command: Command, kind: &str, variant: &str) -> String {
    let mut name = format!("{:03}", command.code());
    for letter in command.name().chars() {
        if letter.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    let variant = if variant.is_empty() {
        String::new()
    } else {
        format!("-{variant}")
    };
    format!("{name}-{kind}{variant}.txt")
}

/// The header of a request of the sample session.
fn request_header(command: Command) -> FrameHeader {
    let logged_in = !matches!(
        command,
        Command::Ping | Command::Login | Command::GetNodeStatus
    );
    let request = match command.plane() {
        Plane::Metadata => 3,
        Plane::Connection | Plane::Query | Plane::Data if logged_in => SEEN,
        Plane::Connection | Plane::Query | Plane::Data => 0,
    };
    FrameHeader {
        session: if logged_in { SESSION } else { 0 },
        request,
        ..FrameHeader::request(
            command.code(),
            CorrelationId(u64::from(command.code()) + 1000),
            CLIENT,
        )
    }
}

/// The header of the answer.
fn reply_header(command: Command) -> FrameHeader {
    let request = request_header(command);
    let op = if command == Command::Login {
        Op(SESSION)
    } else if matches!(command, Command::Ping | Command::GetNodeStatus) {
        Op(0)
    } else {
        Op(SEEN + 1)
    };
    FrameHeader::reply(&request, 0).with_primary(op, ReplicaId(0), View(0))
}

/// The stream of the samples, by name.
fn stream() -> Identifier {
    Identifier::name("orders").unwrap()
}

/// The topic of the samples, by id.
fn topic() -> Identifier {
    Identifier::Number(2)
}
