//! A request on its way through a session.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use wire::{Command, CorrelationId, Failure, Password, Plane, ReplicaId, Request, RequestNumber};

use super::{Ticket, link::LinkId};

/// Orders requests by their submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey(pub(super) u64);

/// Who sends a request again when its answer does not come or is a retryable refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The session, until the request's time is up: a metadata command under its request number, a send
    /// only if all its batches carry a producer, so that nothing is executed twice.
    Session,
    /// The caller: the first refusal or lost connection ends the request.
    Caller,
}

/// A request for a session.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Comes back with the answer.
    pub ticket: Ticket,
    /// What is asked. Login, attach and logout are the session's own.
    pub request: Request,
    /// How long it may take in all, waiting and repetitions included.
    pub timeout: Duration,
    /// Who sends it again.
    pub retry: Retry,
    /// Which way it takes. Metadata commands have a way of their own: one at a time, to the node that leads
    /// the metadata group, under one request number whatever happens to connections.
    pub route: Route,
}

/// The way of a request through the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Where there is a choice between connections that are as good, lanes are spread over them.
    pub lane: u16,
    /// The node that is believed to lead what is asked for. The session connects to it if it can; every other
    /// node passes the request on. `None`: it is not known.
    pub node: Option<ReplicaId>,
    /// Whether requests of this route keep their order: as long as any of them is unanswered the next ones
    /// take the same connection. When that is lost all that may be repeated is sent again over another one,
    /// in order.
    pub ordered: bool,
}

impl Route {
    /// A way over whatever node is at hand.
    #[must_use]
    pub const fn any(lane: u16) -> Self {
        Self {
            lane,
            node: None,
            ordered: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Pending {
    /// `None`: the session's own logout.
    pub(super) ticket: Option<Ticket>,
    pub(super) command: Command,
    /// In pieces, so that batches are not copied.
    pub(super) body: Vec<Bytes>,
    pub(super) route: Route,
    pub(super) repeat: Repeat,
    pub(super) deadline: u64,
    pub(super) timeout: Duration,
    /// Times that it was sent.
    pub(super) attempts: u32,
    /// Times that it was refused for the moment, since something changed that may help.
    pub(super) refusals: u32,
    /// The number of a metadata command, from its first sending on.
    /// Invariant: `Some` names a number of the current session.
    pub(super) number: Option<RequestNumber>,
    /// Whether an earlier sending may have been executed.
    pub(super) unknown: bool,
    pub(super) place: Place,
    /// The latest retryable refusal, to be told if time runs out.
    pub(super) refusal: Option<Failure>,
    /// The password with which the session's user logs in once the request is executed.
    pub(super) password: Option<Password>,
}

/// What may be done when the answer stays away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Sent again by the session, whatever became of it before.
    Freely,
    /// Sent again by the session after a refusal, not after a lost connection.
    UnlessUnknown,
    /// Never sent twice by the session.
    Never,
}

/// Where a request is. Each is in exactly one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In its route's queue, or in the queue of metadata commands.
    Queued,
    /// Unanswered on a link.
    InFlight(LinkId, CorrelationId),
    /// To be queued again at this time.
    Delayed(u64),
}

impl Pending {
    pub(super) const fn is_metadata(&self) -> bool {
        matches!(self.command.plane(), Plane::Metadata)
    }

    /// The route whose order it is part of.
    pub(super) fn order(&self) -> Option<Route> {
        Some(self.route).filter(|route| route.ordered && !self.is_metadata())
    }
}

impl Repeat {
    pub(super) fn of(request: &Request, retry: Retry) -> Self {
        match (retry, request) {
            (Retry::Caller, _) => Self::Never,
            (Retry::Session, Request::SendMessages(send)) => {
                if send
                    .sections
                    .iter()
                    .all(|section| section.batch.header.producer != 0)
                {
                    Self::Freely
                } else {
                    Self::UnlessUnknown
                }
            }
            (Retry::Session, _) => Self::Freely,
        }
    }
}
