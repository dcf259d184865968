//! Which nodes a session is connected to.

use core::time::Duration;

use alloc::{string::String, vec::Vec};

use wire::ReplicaId;

use super::{
    ConnectionId, Effect, Phase, Session,
    cluster::Target,
    link::{Link, LinkId, LinkState},
};
use crate::nanoseconds;

/// How long one attempt to connect, or to log in, may take while other addresses could be tried, nanoseconds;
/// twice as long for every time in a row that it was not enough.
const IMPATIENT: u64 = 1_000_000_000;

impl Session {
    /// Opens what is to be kept, and does what is due on each link.
    pub(super) fn drive_links(&mut self) {
        for index in 0..self.kept() {
            self.links
                .entry(LinkId::Kept(index))
                .or_insert_with(Link::new);
        }
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            self.drive_link(id);
        }
    }

    fn drive_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        match link.state {
            LinkState::Idle => {
                if self.may_connect(id)
                    && let Some(address) = self.next_address(id)
                {
                    self.connect(id, address);
                }
            }
            LinkState::Connecting {
                connection,
                deadline,
                ..
            } => {
                if self.now >= deadline {
                    self.effects.push_back(Effect::Close { connection });
                    self.on_link_failed(id, "the attempt to connect took too long");
                }
            }
            LinkState::Greeting {
                connection,
                deadline,
                ..
            } => {
                if self.now >= deadline {
                    self.effects.push_back(Effect::Close { connection });
                    self.on_link_failed(id, "the server did not answer the login");
                }
            }
            LinkState::Ready { activity, .. } => self.drive_heartbeat(id, activity),
        }
    }

    /// When something is due on a link.
    pub(super) fn link_deadline(&self, id: LinkId, link: &Link) -> Option<u64> {
        match link.state {
            LinkState::Idle if self.may_connect(id) => self.next_attempt(id),
            LinkState::Idle => None,
            LinkState::Connecting { deadline, .. } | LinkState::Greeting { deadline, .. } => {
                Some(deadline)
            }
            LinkState::Ready { activity, .. } => {
                Some(activity.deadline(self.heartbeat_interval(), self.heartbeat_timeout()))
            }
        }
    }

    /// How many links are to be kept: two nodes of a cluster, so that the loss of one costs nothing.
    fn kept(&self) -> u16 {
        let nodes = if self.cluster.has_several() { 2 } else { 1 };
        self.config.connections.max(nodes)
    }

    /// The first link logs in; the others attach to its session.
    fn may_connect(&self, id: LinkId) -> bool {
        matches!(self.phase, Phase::Open) && (id == LinkId::FIRST || self.registered.is_some())
    }

    /// The addresses that a link may be connected to, beginning with its own turn: no node has more than its
    /// share of those that are kept.
    pub(super) fn candidates(&self, id: LinkId) -> impl Iterator<Item = &Target> {
        let targets = self.cluster.targets();
        let LinkId::Kept(index) = id else {
            unreachable!("a link that was wanted goes with its connection");
        };
        let share = usize::from(self.kept()).div_ceil(self.cluster.size());
        let (before, after) = targets.split_at(usize::from(index) % targets.len());
        let turn = after.iter().chain(before);
        turn.filter(move |target| {
            let others = self.links.iter().filter(|(other, link)| {
                matches!(other, LinkId::Kept(_))
                    && **other != id
                    && link.state != LinkState::Idle
                    && target.is_same(&link.address, link.node)
            });
            others.count() < share
        })
    }

    /// Where to connect a link to now: the next address in turn, one without any link before others.
    fn next_address(&self, id: LinkId) -> Option<String> {
        let open = self
            .candidates(id)
            .filter(|target| target.is_open(self.now));
        let target = open.min_by_key(|target| {
            let links = self.links.values();
            let own = links.filter(|link| {
                link.state != LinkState::Idle && target.is_same(&link.address, link.node)
            });
            own.count()
        })?;
        Some(target.address.clone())
    }

    fn next_attempt(&self, id: LinkId) -> Option<u64> {
        self.candidates(id).map(|target| target.blocked_until).min()
    }

    /// Connects to a node that leads what a request is for, if that is possible and not under way.
    pub(super) fn want_node(&mut self, node: ReplicaId) {
        let mut links = self.links.values();
        let has_link = links.any(|link| link.node == Some(node) && link.state != LinkState::Idle);
        if has_link || !self.may_connect(LinkId::Wanted(node)) {
            return;
        }
        if let Some(target) = self.cluster.open_address_of(node, self.now) {
            let address = target.address.clone();
            self.links.insert(LinkId::Wanted(node), Link::new());
            self.connect(LinkId::Wanted(node), address);
        }
    }

    /// How long an address may take, of at most `whole`: one that hangs must not keep the session from the
    /// others.
    pub(super) fn patience(&self, address: &str, whole: Duration) -> u64 {
        let whole = nanoseconds(whole);
        let targets = self.cluster.targets();
        let is_own = |target: &&Target| target.address == address;
        let mut others = targets.iter().filter(|target| !is_own(target));
        if !others.any(|target| target.is_open(self.now)) {
            return whole;
        }
        let own = targets.iter().find(is_own);
        let failures = own.map_or(0, |target| target.failures).min(6);
        whole.min(IMPATIENT << failures)
    }

    fn connect(&mut self, id: LinkId, address: String) {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        let patience = self.patience(&address, self.config.connect_timeout);
        let node = self.cluster.node_at(&address);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.state = LinkState::Connecting {
            connection,
            since: self.now,
            deadline: self.now.saturating_add(patience),
        };
        link.node = node;
        link.address.clone_from(&address);
        self.effects.push_back(Effect::Connect {
            connection,
            address,
        });
    }
}
