//! Sessions end only when their time is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::{ClientId, EvictionReason, SessionNumber};

use crate::{
    network::LinkId,
    run::{MILLISECOND, Run},
    scenario::SessionTimes,
};

/// What a node may be late by when it passes on a sign of life, and clocks that drift.
const SLACK: u64 = 60 * MILLISECOND;

/// Frames that come closer than this to the one before do not count, nanoseconds.
const SEEN_STEP: u64 = 5 * MILLISECOND;

/// How many are remembered.
const SEEN_MAX: usize = 200;

/// The sessions, as the network saw them. What comes to a node that does not lead the metadata group may be
/// lost on its way to the one that does, so that every node's own connections are looked at alone.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    lives: BTreeMap<(SessionNumber, usize), Life>,
    /// When each node began to lead the metadata group: from then on everybody has a full timeout.
    leads_since: BTreeMap<usize, u64>,
    /// The prepares that proposed an end, by checksum.
    proposed: BTreeSet<u128>,
    /// Connections that carry a session, each with the node at its other end.
    bound: BTreeMap<LinkId, (usize, SessionNumber)>,
}

#[derive(Debug, Default)]
struct Life {
    /// When frames of it were taken; not further back than it matters.
    seen: VecDeque<u64>,
    /// Connections that carry it, and since when.
    open: BTreeMap<LinkId, u64>,
    /// When the last of them was closed.
    closed: u64,
}

impl Life {
    fn see(&mut self, now: u64) {
        if self.seen.back().is_some_and(|last| now < last + SEEN_STEP) {
            return;
        }
        self.seen.push_back(now);
        if self.seen.len() > SEEN_MAX {
            self.seen.pop_front();
        }
    }
}

impl Sessions {
    /// A node has taken a frame. It is a sign of life of the session that its connection carries; whatever
    /// session it names, anybody could have sent it before.
    pub(crate) fn on_frame(&mut self, now: u64, link: LinkId) {
        if let Some((node, session)) = self.bound.get(&link) {
            self.lives.entry((*session, *node)).or_default().see(now);
        }
    }

    /// A connection carries the session from now on.
    pub(crate) fn on_bound(
        &mut self,
        now: u64,
        (node, link): (usize, LinkId),
        session: SessionNumber,
    ) {
        let life = self.lives.entry((session, node)).or_default();
        life.open.insert(link, now);
        life.see(now);
        self.bound.insert(link, (node, session));
    }

    /// A connection is gone.
    pub(crate) fn on_closed(&mut self, now: u64, link: LinkId) {
        let bound = self.bound.remove(&link);
        if let Some(life) = bound.and_then(|(node, session)| self.lives.get_mut(&(session, node))) {
            life.open.remove(&link);
            life.closed = now;
        }
    }

    /// A process is gone, and with it its ends of all connections.
    pub(crate) fn on_crash(&mut self, now: u64, node: usize) {
        let bound = self.bound.iter();
        let gone: Vec<LinkId> = bound
            .filter(|(_, (at, _))| *at == node)
            .map(|(link, _)| *link)
            .collect();
        for link in gone {
            self.on_closed(now, link);
        }
    }

    /// A node leads the metadata group from now on: everybody has a full timeout.
    pub(crate) fn on_start(&mut self, now: u64, node: usize) {
        self.leads_since.insert(node, now);
    }

    /// Whether a prepare is a proposal, and not one that its proposer has had back from others, whose disk was lost
    /// or rotten.
    pub(crate) fn is_new(&mut self, checksum: u128) -> bool {
        self.proposed.insert(checksum)
    }

    /// A node proposes the end of sessions: their time must be over by now.
    pub(crate) fn on_proposed(
        &self,
        run: &mut Run,
        (times, node): (&SessionTimes, usize),
        (sessions, reason): (&[(ClientId, SessionNumber)], EvictionReason),
    ) {
        let since = self.leads_since.get(&node).copied().unwrap_or(0);
        for (_, session) in sessions {
            let none = Life::default();
            let life = self.lives.get(&(*session, node)).unwrap_or(&none);
            match reason {
                EvictionReason::Expired => check_expired(run, times, *session, (life, since)),
                EvictionReason::Disconnected => {
                    check_disconnected(run, times, *session, (life, since));
                }
                EvictionReason::LoggedOut
                | EvictionReason::Replaced
                | EvictionReason::TableFull
                | EvictionReason::UserChanged
                | EvictionReason::Removed => {}
            }
        }
    }

    /// Sessions have ended.
    pub(crate) fn on_ended(&mut self, run: &mut Run, ended: &[(SessionNumber, EvictionReason)]) {
        for (session, reason) in ended {
            let nodes = (*session, 0)..=(*session, usize::MAX);
            let lives = self.lives.extract_if(nodes, |_, _| true);
            let links = lives.flat_map(|(_, life)| life.open.into_keys());
            let links: BTreeSet<LinkId> = links.collect();
            self.bound.retain(|link, _| !links.contains(link));
            match reason {
                EvictionReason::Expired | EvictionReason::Disconnected => {
                    run.counts.sessions_expired += 1;
                }
                EvictionReason::LoggedOut => run.counts.sessions_logged_out += 1,
                EvictionReason::Replaced
                | EvictionReason::TableFull
                | EvictionReason::UserChanged
                | EvictionReason::Removed => {}
            }
        }
    }
}

/// Signs of life are reported in intervals, so the last ones may not be known where it is decided.
fn check_expired(
    run: &mut Run,
    times: &SessionTimes,
    session: SessionNumber,
    (life, since): (&Life, u64),
) {
    let known = run
        .now
        .saturating_sub(times.liveness_interval + times.liveness_interval / 16 + SLACK);
    let last = life.seen.iter().rev().find(|time| **time <= known);
    let silent = run.now - last.copied().unwrap_or(0).max(since);
    if silent + silent / 16 + SLACK < times.session_timeout {
        run.fail(format!(
            "session {session} expires after {silent} ns of silence"
        ));
    }
}

fn check_disconnected(
    run: &mut Run,
    times: &SessionTimes,
    session: SessionNumber,
    (life, since): (&Life, u64),
) {
    let open = life.open.values().min();
    if open.is_some_and(|open| run.now.saturating_sub(*open) > SLACK) {
        return run.fail(format!(
            "session {session} ends as disconnected and is connected"
        ));
    }
    let lost = run.now.saturating_sub(life.closed.max(since));
    if lost + lost / 16 + SLACK < times.disconnect_grace.min(times.session_timeout) {
        run.fail(format!(
            "session {session} ends {lost} ns after its last connection"
        ));
    }
}

#[cfg(test)]
mod tests {
    use wire::SessionNumber;

    use super::Sessions;
    use crate::{network::LinkId, run::SECOND};

    #[test]
    fn frame_is_a_sign_of_the_session_that_its_connection_carries() {
        let mut sessions = Sessions::default();
        let last =
            |sessions: &Sessions| sessions.lives[&(SessionNumber(3), 0)].seen.back().copied();
        sessions.on_bound(SECOND, (0, LinkId(45)), SessionNumber(3));
        // Somebody repeats what was sent over a connection that is not attached yet.
        sessions.on_frame(2 * SECOND, LinkId(95));
        assert_eq!(last(&sessions), Some(SECOND));
        sessions.on_frame(3 * SECOND, LinkId(45));
        assert_eq!(last(&sessions), Some(3 * SECOND));
    }

    #[test]
    fn what_its_proposer_has_back_from_others_is_no_proposal() {
        let mut sessions = Sessions::default();
        assert!(sessions.is_new(1) && sessions.is_new(2));
        assert!(!sessions.is_new(1));
    }
}
