//! One connection's place in a session: what is under way over it.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
};

use wire::{ConsensusGroup, CorrelationId, ReplicaId, View};

use super::{ConnectionId, request::RequestKey};

/// Names a place for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkId {
    /// One of those that are always kept, each to another node where there are several. The first logs in.
    Kept(u16),
    /// One to this node, opened because it leads what a request is for. It goes with its connection.
    Wanted(ReplicaId),
}

impl LinkId {
    pub(super) const FIRST: Self = Self::Kept(0);
}

/// A place for a connection, which it outlives if it is to be kept.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: LinkState,
    /// The address in use, or that was in use last.
    pub(super) address: String,
    /// The node at the other end, as far as known.
    pub(super) node: Option<ReplicaId>,
    /// Requests that wait for their answers.
    pub(super) in_flight: BTreeMap<CorrelationId, RequestKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// No connection.
    Idle,
    /// The shell has been asked to connect.
    Connecting {
        connection: ConnectionId,
        since: u64,
        deadline: u64,
    },
    /// Login or attach is unanswered.
    Greeting {
        connection: ConnectionId,
        correlation: CorrelationId,
        /// Since when the connection is being opened.
        since: u64,
        /// When login or attach was sent.
        sent: u64,
        deadline: u64,
    },
    /// Requests may be sent.
    Ready {
        connection: ConnectionId,
        activity: Activity,
    },
}

/// When a connection was last used, and what the session has asked over it for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) ready_since: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// The heartbeat that is unanswered, and when it was sent.
    pub(super) ping: Option<(CorrelationId, u64)>,
    /// The unanswered question for the cluster's nodes.
    pub(super) question: Option<CorrelationId>,
    /// Whether the node has told of the cluster, or that it does not.
    pub(super) told: bool,
    /// Another node has taken over what this one led, and it has not been heard since: when it is given up.
    pub(super) doubted: Option<u64>,
    /// Another node has taken over what this one led, in this view, and this one has not said that it knows: it
    /// may be cut off from the others, and still take itself for the one that leads.
    pub(super) behind: Option<(ConsensusGroup, View)>,
    /// The node has said that it stops.
    pub(super) stopping: bool,
    /// Nanoseconds that login or attach took.
    pub(super) greeting: u64,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self {
            state: LinkState::Idle,
            address: String::new(),
            node: None,
            in_flight: BTreeMap::new(),
        }
    }

    pub(super) const fn connection(&self) -> Option<ConnectionId> {
        match self.state {
            LinkState::Idle => None,
            LinkState::Connecting { connection, .. }
            | LinkState::Greeting { connection, .. }
            | LinkState::Ready { connection, .. } => Some(connection),
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.state, LinkState::Ready { .. })
    }

    /// Whether it is ready, and nothing speaks against its node.
    pub(super) const fn is_good(&self) -> bool {
        match self.state {
            LinkState::Ready { activity, .. } => {
                activity.doubted.is_none() && activity.behind.is_none() && !activity.stopping
            }
            LinkState::Idle | LinkState::Connecting { .. } | LinkState::Greeting { .. } => false,
        }
    }

    /// Since when it is being opened.
    pub(super) const fn opening_since(&self) -> Option<u64> {
        match self.state {
            LinkState::Connecting { since, .. } | LinkState::Greeting { since, .. } => Some(since),
            LinkState::Idle | LinkState::Ready { .. } => None,
        }
    }

    pub(super) const fn activity_mut(&mut self) -> Option<&mut Activity> {
        match &mut self.state {
            LinkState::Ready { activity, .. } => Some(activity),
            LinkState::Idle | LinkState::Connecting { .. } | LinkState::Greeting { .. } => None,
        }
    }
}

impl Activity {
    pub(super) const fn new(now: u64, greeting: u64) -> Self {
        Self {
            ready_since: now,
            sent: now,
            received: now,
            ping: None,
            question: None,
            told: false,
            doubted: None,
            behind: None,
            stopping: false,
            greeting,
        }
    }

    /// Something has come: the node lives.
    pub(super) const fn note_received(&mut self, now: u64) {
        self.received = now;
        self.doubted = None;
    }

    /// The node knows this view of a group.
    pub(super) fn note_view(&mut self, group: ConsensusGroup, view: View) {
        if self
            .behind
            .is_some_and(|(of, newer)| of == group && newer <= view)
        {
            self.behind = None;
        }
    }

    /// When a heartbeat is due, or the connection is dead without an answer to it.
    pub(super) fn deadline(&self, interval: u64, timeout: u64) -> u64 {
        let due = match self.ping {
            None => self.sent.min(self.received).saturating_add(interval),
            Some((_, since)) => self.received.max(since).saturating_add(timeout),
        };
        self.doubted.map_or(due, |until| due.min(until))
    }
}

/// Requests that wait to be sent on one route.
pub(super) type Queue = BTreeSet<RequestKey>;
