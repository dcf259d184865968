//! One connection's place in a session: it outlives the connections that fill it.

use alloc::collections::{BTreeMap, BTreeSet};

use wire::CorrelationId;

use super::{ConnectionId, request::RequestKey};

/// A lane of requests over one connection at a time. Requests of a lane are sent in the order in which
/// they were submitted.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) state: LaneState,
    /// Index of the address in use, or to be tried next.
    pub(super) address: usize,
    /// Attempts in a row that did not lead to a connection which lasted.
    pub(super) failures: u32,
    /// Requests that wait to be sent, in the order of their submission.
    pub(super) queue: BTreeSet<RequestKey>,
    /// Requests that wait for their answers.
    pub(super) in_flight: BTreeMap<CorrelationId, RequestKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    /// No connection before `until`; lanes other than the first also wait for a session.
    Idle { until: u64 },
    /// The shell has been asked to connect.
    Connecting {
        connection: ConnectionId,
        deadline: u64,
    },
    /// Login or attach is unanswered.
    Greeting {
        connection: ConnectionId,
        correlation: CorrelationId,
        deadline: u64,
    },
    /// Requests may be sent.
    Ready {
        connection: ConnectionId,
        activity: Activity,
    },
}

/// When a connection was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) ready_since: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// The heartbeat that is unanswered, and when it was sent.
    pub(super) ping: Option<(CorrelationId, u64)>,
}

impl Lane {
    pub(super) const fn new(address: usize) -> Self {
        Self {
            state: LaneState::Idle { until: 0 },
            address,
            failures: 0,
            queue: BTreeSet::new(),
            in_flight: BTreeMap::new(),
        }
    }

    pub(super) const fn connection(&self) -> Option<ConnectionId> {
        match self.state {
            LaneState::Idle { .. } => None,
            LaneState::Connecting { connection, .. }
            | LaneState::Greeting { connection, .. }
            | LaneState::Ready { connection, .. } => Some(connection),
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.state, LaneState::Ready { .. })
    }
}

impl Activity {
    pub(super) const fn new(now: u64) -> Self {
        Self {
            ready_since: now,
            sent: now,
            received: now,
            ping: None,
        }
    }

    /// When a heartbeat is due, or the connection is dead without an answer to it.
    pub(super) fn deadline(&self, interval: u64, timeout: u64) -> u64 {
        match self.ping {
            None => self.sent.min(self.received).saturating_add(interval),
            Some((_, since)) => self.received.max(since).saturating_add(timeout),
        }
    }
}
