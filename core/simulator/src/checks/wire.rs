//! Every answer that a node gives, held against what was committed.
//!
//! An answer leaves the node at one step and its request came in at another: what the answer says must have
//! been true somewhere between the two. Answers count when they leave, whether or not they arrive.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use bytes::Bytes;
use wire::{
    Command, ErrorCode, Failure, FrameHeader, FrameKind, Op, PartitionKey, Plane, Reply, Request,
    SessionSecret,
};

use super::{
    commands,
    groups::{self, Served},
    ledger::Ledger,
    messages, offsets,
    partition::{Step, Window},
};
use crate::{network::LinkId, run::Run};

/// The requests that nodes have taken and not answered.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    asked: BTreeMap<(LinkId, u64), Asked>,
    /// Connections on which bytes came that are no frame.
    garbled: BTreeSet<LinkId>,
    /// What sessions proved themselves with when they began.
    secrets: BTreeMap<u64, SessionSecret>,
    /// The last metadata command of each session.
    commands: BTreeMap<u64, (FrameHeader, Bytes)>,
    /// The node was told to stop, so it ends every wait.
    pub(crate) stopping: bool,
}

/// A metadata command that a session has sent.
#[derive(Clone, Debug)]
pub(crate) struct KnownCommand {
    pub(crate) header: FrameHeader,
    pub(crate) body: Bytes,
    pub(crate) secret: SessionSecret,
}

/// A request that a node has taken.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The node that took it.
    node: usize,
    pub(crate) step: Step,
    /// By the node's monotonic clock.
    pub(crate) time: u64,
    pub(crate) header: FrameHeader,
    /// `None` when it cannot be read.
    pub(crate) request: Option<Request>,
    /// The metadata ops that the shards of the node had applied, where that matters.
    applied: Vec<Op>,
}

/// An answer and what it is held against.
pub(crate) struct Answered<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) header: FrameHeader,
    pub(crate) ledger: &'a Ledger,
    pub(crate) window: Window,
    /// Nanoseconds from the request to the answer, by the node's monotonic clock.
    pub(crate) took: u64,
    pub(crate) stopping: bool,
    /// Messages that members of consumer groups were served.
    pub(crate) served: RefCell<Vec<Served>>,
}

/// What is wrong with an answer.
pub(crate) type Wrong = String;

impl Wire {
    /// A shard takes a request.
    pub(crate) fn on_request(
        &mut self,
        (node, link): (usize, LinkId),
        (header, body): (&FrameHeader, &Bytes),
        (step, time, applied): (Step, u64, &[Op]),
    ) -> &Asked {
        let command = Command::from_code(header.code).filter(|command| command.supported());
        let request = command.and_then(|command| Request::decode(command, body.clone()).ok());
        if command.is_some_and(|command| command.plane() == Plane::Metadata) {
            self.commands
                .insert(header.session, (*header, body.clone()));
        }
        let asked = Asked {
            node,
            step,
            time,
            header: *header,
            applied: match command {
                Some(Command::PollMessages) => applied.to_vec(),
                _ => Vec::new(),
            },
            request,
        };
        self.asked
            .entry((link, header.correlation))
            .insert_entry(asked)
            .into_mut()
    }

    /// A shard is handed bytes that are no frame.
    pub(crate) fn on_bad_frame(&mut self, link: LinkId) {
        self.garbled.insert(link);
    }

    /// A connection is gone: what it asked is not answered any more.
    pub(crate) fn on_closed(&mut self, link: LinkId) {
        self.garbled.remove(&link);
        let range = (link, 0)..=(link, u64::MAX);
        let gone: Vec<(LinkId, u64)> = self.asked.range(range).map(|(key, _)| *key).collect();
        for key in gone {
            self.asked.remove(&key);
        }
    }

    /// A process is gone, and with it everything that it was asked.
    pub(crate) fn on_crash(&mut self, node: usize) {
        self.asked.retain(|_, asked| asked.node != node);
        self.stopping = false;
    }

    /// The last command of each session whose secret is known.
    pub(crate) fn commands(&self) -> Vec<KnownCommand> {
        let commands = self
            .commands
            .iter()
            .filter_map(|(session, (header, body))| {
                Some(KnownCommand {
                    header: *header,
                    body: body.clone(),
                    secret: *self.secrets.get(session)?,
                })
            });
        commands.collect()
    }

    /// Requests that are not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// A shard sends a frame.
    pub(crate) fn on_sent(
        &mut self,
        run: &mut Run,
        ledger: &Ledger,
        (link, frame): (LinkId, &Bytes),
        (step, time): (Step, u64),
    ) -> Result<Vec<Served>, Wrong> {
        let (header, body) = take_apart(frame)?;
        if header.code == Command::Login.code() && header.status == 0 {
            self.keep_secret(body.clone());
        }
        if header.frame_kind() == Some(FrameKind::Event) {
            return match wire::Event::decode(&header, body) {
                Ok(Some(_)) => Ok(Vec::new()),
                Ok(None) => Err(format!("event {} is none", header.code)),
                Err(error) => Err(format!("event {}: {error}", header.code)),
            };
        }
        let Some(asked) = self.asked.remove(&(link, header.correlation)) else {
            let refused = header.status != 0 && header.correlation == 0;
            return match refused || self.garbled.contains(&link) {
                true => Ok(Vec::new()),
                false => Err(format!("an answer to nothing: {header:?}")),
            };
        };
        let answered = Answered {
            window: Window {
                from: asked.step.saturating_sub(1),
                to: step,
            },
            took: time.saturating_sub(asked.time),
            stopping: self.stopping,
            asked: &asked,
            header,
            ledger,
            served: RefCell::default(),
        };
        let checked = answered.check(run, body);
        let served = answered.served.into_inner();
        checked
            .map(|()| served)
            .map_err(|wrong| format!("{wrong}; asked: {:?}", asked.request))
    }
}

impl Wire {
    fn keep_secret(&mut self, body: Bytes) {
        if let Ok(Reply::LoggedIn(logged_in)) = Reply::decode(Command::Login, body) {
            self.secrets.insert(logged_in.session.0, logged_in.secret);
        }
    }
}

impl Asked {
    /// For people, not at full length.
    pub(crate) fn describe(&self) -> String {
        let FrameHeader {
            correlation,
            session,
            request: number,
            ..
        } = self.header;
        let mut text = format!("{:?}", self.request);
        text.truncate(text.floor_char_boundary(400));
        format!("(correlation {correlation}, session {session}, {number}) {text}")
    }
}

impl Answered<'_> {
    /// The metadata op that the shard of a partition had applied when the request came.
    pub(crate) fn applied_for(&self, key: PartitionKey) -> Option<Op> {
        let mut models = self.ledger.partitions(key, self.window);
        let group = models.next()?.group;
        if models.next().is_some() {
            return None;
        }
        let shards = u16::try_from(self.asked.applied.len()).ok()?;
        if shards == 0 {
            return None;
        }
        let shard = shard::shard_of_group(group, 1, shards);
        self.asked.applied.get(usize::from(shard.0)).copied()
    }

    fn check(&self, run: &mut Run, body: Bytes) -> Result<(), Wrong> {
        let Some(command) = Command::from_code(self.header.code) else {
            return match self.header.status {
                0 => Err("an unknown command succeeded".into()),
                _ => Ok(()),
            };
        };
        if command.plane() == Plane::Metadata {
            return commands::check_command(run, self, &body);
        }
        if self.header.status != 0 {
            let failure = Failure::decode(self.header.status, &body);
            return self.check_refusal(command, &failure);
        }
        let Some(request) = &self.asked.request else {
            return Err(format!("{} cannot be read and succeeded", command.name()));
        };
        let reply = Reply::decode(command, body)
            .map_err(|error| format!("answer to {}: {error}", command.name()))?;
        match (request, reply) {
            (Request::Ping, Reply::Done) => Ok(()),
            (Request::SendMessages(send), Reply::Sent(sent)) => {
                messages::check_sent(self, send, &sent)
            }
            (Request::PollMessages(poll), Reply::Polled(polled)) => {
                messages::check_polled(run, self, poll, &polled)
            }
            (Request::StoreConsumerOffset(store), Reply::OffsetsStored(stored)) => {
                offsets::check_stored(run, self, store, &stored)
            }
            (Request::ReleasePartition(release), Reply::PartitionsReleased(released)) => {
                groups::check_released(run, self, release, &released)
            }
            (Request::GetConsumerOffset(get), Reply::Offsets(told)) => {
                offsets::check_told(self, get, &told)
            }
            (Request::DeleteConsumerOffset(delete), Reply::OffsetsDeleted(deleted)) => {
                offsets::check_deleted(self, delete, &deleted)
            }
            (request, reply) => commands::check_query(run, self, request, &reply),
        }
    }

    /// Whether a request as a whole may be refused so.
    fn check_refusal(&self, command: Command, failure: &Failure) -> Result<(), Wrong> {
        use ErrorCode as E;
        match failure.code {
            E::Internal => Err(format!("{}: {failure}", command.name())),
            // Names are looked up in a copy of the metadata that is at least as new as what the asker has
            // seen.
            E::StreamNotFound | E::TopicNotFound => self.check_not_found(failure),
            _ => groups::check_refused(self, failure),
        }
    }

    fn check_not_found(&self, failure: &Failure) -> Result<(), Wrong> {
        let Some((stream, topic)) = self.asked.request.as_ref().and_then(messages::names) else {
            return Ok(());
        };
        let seen = Op(self.asked.header.request);
        let found = |catalog: &catalog::Catalog| catalog.topic_details(&stream, &topic).is_ok();
        match self.ledger.catalogs_since(seen).all(found) {
            true => Err(format!("{failure}, and it was there all the time")),
            false => Ok(()),
        }
    }
}

/// A whole frame in one piece.
fn take_apart(frame: &Bytes) -> Result<(FrameHeader, Bytes), Wrong> {
    let parts = FrameHeader::read(frame).and_then(|header| {
        header.check(wire::FRAME_SIZE_MAX)?;
        Ok((header, header.body(frame)?))
    });
    parts.map_err(|error| format!("a frame that no client can read: {error}"))
}
