//! One session over its connections: login, attach, retries, heartbeats.

mod cluster;
mod config;
mod connecting;
mod link;
mod linking;
mod request;
mod requests;
mod routes;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    vec::Vec,
};
use core::time::Duration;

use bytes::Bytes;
use wire::{
    CorrelationId, Event, Op, Reply, RequestNumber, SessionNumber, SessionSecret, Time, UserId,
};

use crate::{ClientError, Frame, nanoseconds, random::Random};

use cluster::Cluster;
pub use config::{Credentials, SessionConfig};
use link::{Link, LinkId, Queue};
use request::{Pending, RequestKey};
pub use request::{Retry, Route, Submission};

/// Names one attempt to connect and the connection that comes of it. Never used twice by a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The caller's name for a request. The session gives it back and does not look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One event for a session.
#[derive(Clone, Debug)]
pub enum Input {
    /// A request is to be sent. Answered by exactly one [`Effect::Completed`].
    Submit(Submission),
    /// An [`Effect::Connect`] succeeded.
    Connected {
        /// The attempt.
        connection: ConnectionId,
    },
    /// An attempt failed, or a connection is gone, whoever ended it. Not expected after [`Effect::Close`].
    Disconnected {
        /// The attempt or connection.
        connection: ConnectionId,
        /// Why, for people.
        reason: String,
    },
    /// A frame came in.
    Frame {
        /// From this connection.
        connection: ConnectionId,
        /// The frame, its checksum verified.
        frame: Frame,
    },
    /// Time has passed, see [`Session::deadline`].
    Tick,
    /// Ends the session: what is not answered yet ends with an error, then the server is told.
    Close(Close),
    /// Ends the connections and everything that waits, without logging out: the session, and what hangs on it,
    /// lives on at the server until its time is over. It is done with [`Effect::Closed`].
    Detach,
}

/// How to end a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// How long the server may take to answer the logout.
    pub timeout: Duration,
}

/// What the shell has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Connect, then report [`Input::Connected`] or [`Input::Disconnected`].
    Connect {
        /// The attempt.
        connection: ConnectionId,
        /// Where to.
        address: String,
    },
    /// Write these bytes, one frame. If that fails, report [`Input::Disconnected`].
    Send {
        /// To this connection.
        connection: ConnectionId,
        /// The frame in pieces.
        frame: Vec<Bytes>,
    },
    /// End this connection or attempt. What was sent before should still go out.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// A request has ended.
    Completed {
        /// The request.
        ticket: Ticket,
        /// Its reply, or why there is none.
        result: Result<Reply, ClientError>,
    },
    /// The server told something unasked.
    Event(Event),
    /// A session is registered, at first or after the one before was lost.
    LoggedIn {
        /// The session.
        session: SessionNumber,
        /// The user.
        user: UserId,
        /// Bytes of the largest frame that the server takes.
        frame_size_max: u32,
    },
    /// The session is gone: memberships and whatever else hung on it. The next login is under way, unless
    /// [`Effect::Failed`] follows.
    SessionLost {
        /// The session that is gone.
        session: SessionNumber,
        /// Why, for people.
        reason: String,
    },
    /// Every address was tried in vain. The session goes on trying.
    Unreachable {
        /// The address tried last.
        address: String,
        /// Why it could not be reached.
        reason: String,
    },
    /// The login was refused for good. Every request is answered with this error from now on.
    Failed(ClientError),
    /// The session has ended as [`Input::Close`] or [`Input::Detach`] asked.
    Closed,
}

/// The client side of a session. See the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    random: Random,
    /// The monotonic time of the current input.
    now: u64,
    phase: Phase,
    registered: Option<Registered>,
    cluster: Cluster,
    links: BTreeMap<LinkId, Link>,
    requests: BTreeMap<RequestKey, Pending>,
    /// When each request's time is up.
    deadlines: BTreeSet<(u64, RequestKey)>,
    /// Requests that wait to be sent, in the order of their submission. No queue is empty.
    waiting: BTreeMap<Route, Queue>,
    /// The link of each route that keeps its order, and how many of its requests are unanswered there. None has
    /// none.
    bound: BTreeMap<Route, (LinkId, usize)>,
    /// Requests that are queued again later.
    delayed: BTreeSet<(u64, RequestKey)>,
    /// Metadata commands that wait, in the order of their submission.
    metadata_queue: BTreeSet<RequestKey>,
    /// The metadata command that is numbered and not ended: at most one per session.
    metadata_current: Option<RequestKey>,
    /// The number of the session's latest metadata command.
    number: RequestNumber,
    /// The highest metadata op that an answer rested on: what is read later is not older.
    seen: Op,
    /// The latest attempt to connect that failed: address and reason.
    last_failure: Option<(String, String)>,
    next_key: u64,
    next_correlation: u64,
    next_connection: u64,
    effects: VecDeque<Effect>,
}

/// What login has given.
#[derive(Clone, Copy, Debug)]
struct Registered {
    number: SessionNumber,
    secret: SessionSecret,
    user: UserId,
    /// Bytes of the largest frame that the server takes.
    frame_size_max: u32,
    /// Nanoseconds after which a silent connection gets a heartbeat.
    heartbeat_interval: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Open,
    /// The logout is under way.
    Closing {
        deadline: u64,
    },
    Closed,
    /// The login was refused.
    Failed(ClientError),
}

impl Session {
    /// A session that connects as soon as it is first given an input.
    ///
    /// # Panics
    /// Without an address or with no connection allowed: the caller checks its users' input.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        assert!(!config.addresses.is_empty());
        assert!(config.connections > 0);
        assert!(config.in_flight_max > 0);
        Self {
            random: Random::new(config.seed),
            cluster: Cluster::new(&config.addresses),
            config,
            now: 0,
            phase: Phase::Open,
            registered: None,
            links: BTreeMap::new(),
            requests: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waiting: BTreeMap::new(),
            bound: BTreeMap::new(),
            delayed: BTreeSet::new(),
            metadata_queue: BTreeSet::new(),
            metadata_current: None,
            number: RequestNumber(0),
            seen: Op(0),
            last_failure: None,
            next_key: 0,
            next_correlation: 0,
            next_connection: 0,
            effects: VecDeque::new(),
        }
    }

    /// Feeds one event.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now.monotonic);
        match input {
            Input::Submit(submission) => self.on_submit(submission),
            Input::Connected { connection } => self.on_connected(connection),
            Input::Disconnected { connection, reason } => self.on_disconnected(connection, &reason),
            Input::Frame { connection, frame } => self.on_frame(connection, frame),
            Input::Tick => {}
            Input::Close(close) => self.on_close(close),
            Input::Detach => self.on_detach(),
        }
        self.on_time();
        self.dispatch();
        self.assert_invariants();
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The monotonic time at which [`Input::Tick`] is wanted if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let links = self.links.iter();
        let links = links.filter_map(|(id, link)| self.link_deadline(*id, link));
        let requests = self.deadlines.first().map(|(time, _)| *time);
        let delayed = self.delayed.first().map(|(time, _)| *time);
        let closing = match self.phase {
            Phase::Closing { deadline } => Some(deadline),
            Phase::Open | Phase::Closed | Phase::Failed(_) => None,
        };
        let own = [requests, delayed, closing, self.opening_deadline()];
        links.chain(own.into_iter().flatten()).min()
    }

    /// The session, while there is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionNumber> {
        self.registered.map(|registered| registered.number)
    }

    /// The user, while there is a session.
    #[must_use]
    pub fn user(&self) -> Option<UserId> {
        self.registered.map(|registered| registered.user)
    }

    /// The highest metadata op that an answer rested on.
    #[must_use]
    pub const fn seen(&self) -> Op {
        self.seen
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    fn on_time(&mut self) {
        if let Phase::Closing { deadline } = self.phase
            && self.now >= deadline
        {
            self.finish_close();
        }
        if matches!(self.phase, Phase::Open | Phase::Closing { .. }) {
            self.drive_links();
        }
        self.expire_requests();
        self.requeue_delayed();
    }

    fn on_close(&mut self, close: Close) {
        if self.phase != Phase::Open {
            return;
        }
        self.end_all_requests();
        if self.registered.is_some() && self.links.values().any(Link::is_ready) {
            let deadline = self.now.saturating_add(nanoseconds(close.timeout));
            self.phase = Phase::Closing { deadline };
            self.submit_logout(close.timeout);
        } else {
            self.finish_close();
        }
    }

    fn on_detach(&mut self) {
        if self.phase == Phase::Open {
            self.finish_close();
        }
    }

    /// Closes every connection and ends what is left.
    fn finish_close(&mut self) {
        self.phase = Phase::Closed;
        self.registered = None;
        self.close_links("the client was closed");
        self.end_all_requests();
        self.effects.push_back(Effect::Closed);
    }

    fn correlation(&mut self) -> CorrelationId {
        self.next_correlation += 1;
        CorrelationId(self.next_correlation)
    }

    fn assert_invariants(&self) {
        assert!(self.deadlines.len() == self.requests.len());
        if let Some(current) = self.metadata_current {
            assert!(self.requests.contains_key(&current));
            assert!(!self.metadata_queue.contains(&current));
        }
        let open = matches!(self.phase, Phase::Open | Phase::Closing { .. });
        assert!(open || self.requests.is_empty());
        assert!(open || self.links.values().all(|link| link.connection().is_none()));
        if self.registered.is_none() {
            assert!(!self.links.values().any(Link::is_ready));
        }
        for link in self.links.values() {
            assert!(link.in_flight.len() <= self.config.in_flight_max);
            assert!(link.is_ready() || link.in_flight.is_empty());
        }
        debug_assert!(self.places_are_exact());
        debug_assert!(self.order_is_kept());
    }
}

#[cfg(test)]
mod tests;
