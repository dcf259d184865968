//! Over which connection a request goes.

use alloc::vec::Vec;

use wire::{ConsensusGroup, ReplicaId};

use super::{
    Route, Session,
    link::{Link, LinkId},
    request::{Place, RequestKey},
};

/// How long a request waits for the connection to the node that leads it, nanoseconds. Then any other node
/// passes it on.
const OPENING_WAIT: u64 = 100_000_000;

/// What a route has to do with the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It may go over this link.
    Over(LinkId),
    /// There is no room, no connection, or something has to be answered first.
    Wait,
    /// It waits for a connection that is being opened, until then.
    Opening(u64),
}

impl Session {
    /// Sends what may be sent.
    pub(super) fn dispatch(&mut self) {
        self.open_wanted();
        while let Way::Over(id) = self.metadata_way()
            && let Some(key) = self.next_metadata()
        {
            self.send_request(id, key);
        }
        while let Some((id, key)) = self.next_request() {
            self.send_request(id, key);
        }
    }

    /// When a request has waited long enough for a connection that is being opened.
    pub(super) fn opening_deadline(&self) -> Option<u64> {
        let routes = self.waiting.keys().map(|route| self.way(*route));
        let metadata = (!self.metadata_queue.is_empty() || self.is_metadata_queued())
            .then(|| self.metadata_way());
        let ways = routes.chain(metadata);
        let deadlines = ways.filter_map(|way| match way {
            Way::Opening(until) => Some(until),
            Way::Over(_) | Way::Wait => None,
        });
        deadlines.min()
    }

    /// Connects to the nodes that lead what waits.
    fn open_wanted(&mut self) {
        if self.registered.is_none() || !self.cluster.has_several() {
            return;
        }
        let mut wanted: Vec<ReplicaId> = self
            .waiting
            .keys()
            .filter_map(|route| self.goal(*route))
            .collect();
        if !self.metadata_queue.is_empty() || self.is_metadata_queued() {
            wanted.extend(self.cluster.primary(ConsensusGroup::METADATA));
        }
        for node in wanted {
            self.want_node(node);
        }
    }

    fn is_metadata_queued(&self) -> bool {
        let current = self
            .metadata_current
            .and_then(|key| self.requests.get(&key));
        current.is_some_and(|pending| pending.place == Place::Queued)
    }

    /// The node that a route's requests are for.
    fn goal(&self, route: Route) -> Option<ReplicaId> {
        route.node.filter(|node| self.cluster.knows(*node))
    }

    /// The oldest request that may be sent, and where.
    fn next_request(&mut self) -> Option<(LinkId, RequestKey)> {
        let has_room = |link: &Link| link.is_ready() && self.has_room(link);
        if self.waiting.is_empty() || !self.links.values().any(has_room) {
            return None;
        }
        let ready = self.waiting.iter().filter_map(|(route, queue)| {
            let key = *queue.first()?;
            match self.way(*route) {
                Way::Over(id) => Some((key, id, *route)),
                Way::Wait | Way::Opening(_) => None,
            }
        });
        let (key, id, route) = ready.min()?;
        self.take_waiting(route, key);
        Some((id, key))
    }

    pub(super) fn take_waiting(&mut self, route: Route, key: RequestKey) {
        if let Some(queue) = self.waiting.get_mut(&route) {
            queue.remove(&key);
            if queue.is_empty() {
                self.waiting.remove(&route);
            }
        }
    }

    fn has_room(&self, link: &Link) -> bool {
        link.in_flight.len() < self.config.in_flight_max
    }

    fn metadata_way(&self) -> Way {
        let goal = self.cluster.primary(ConsensusGroup::METADATA);
        self.way_to(goal, 0)
    }

    /// What is unanswered of a route that keeps its order holds it where it is. It moves when all of that is
    /// answered, and is held back for that as soon as there is a better place.
    fn way(&self, route: Route) -> Way {
        let goal = self.goal(route);
        let bound = self.bound.get(&route).filter(|_| route.ordered);
        let Some((id, _)) = bound else {
            return self.way_to(goal, route.lane);
        };
        let Some(link) = self.links.get(id) else {
            return Way::Wait;
        };
        let moves = goal.is_some() && link.node != goal && self.good_link(goal, 0).is_some();
        if moves || !self.has_room(link) {
            Way::Wait
        } else {
            Way::Over(*id)
        }
    }

    /// The way to a node, or over any other one that passes the request on.
    fn way_to(&self, goal: Option<ReplicaId>, lane: u16) -> Way {
        let direct = goal.and_then(|_| self.good_link(goal, lane));
        if direct.is_none()
            && let Some(since) = self.opening_since(goal)
            && self.links.values().any(Link::is_ready)
        {
            let until = since.saturating_add(OPENING_WAIT);
            if self.now < until {
                return Way::Opening(until);
            }
        }
        let id = direct.or_else(|| self.good_link(None, lane));
        let id = id.or_else(|| {
            self.links
                .iter()
                .find(|(_, link)| link.is_ready())
                .map(|(id, _)| *id)
        });
        match id {
            Some(id) if self.has_room(&self.links[&id]) => Way::Over(id),
            Some(_) | None => Way::Wait,
        }
    }

    /// Since when the connection to a node is being opened.
    fn opening_since(&self, goal: Option<ReplicaId>) -> Option<u64> {
        let goal = goal?;
        let links = self.links.values().filter(|link| link.node == Some(goal));
        links.filter_map(Link::opening_since).max()
    }

    /// A link that nothing speaks against, to a node or to any; lanes are spread over them.
    fn good_link(&self, node: Option<ReplicaId>, lane: u16) -> Option<LinkId> {
        let good = self.links.iter();
        let good = good.filter(|(_, link)| link.is_good() && (node.is_none() || link.node == node));
        let count = good.clone().count();
        let place = usize::from(lane).checked_rem(count)?;
        good.map(|(id, _)| *id).nth(place)
    }

    /// Whether every request is where it says that it is, and nowhere else.
    pub(super) fn places_are_exact(&self) -> bool {
        let mut held = self.delayed.len() + self.metadata_queue.len();
        held += self
            .waiting
            .values()
            .map(alloc::collections::BTreeSet::len)
            .sum::<usize>();
        let in_flight = self.links.values().map(|link| link.in_flight.len());
        held += in_flight.sum::<usize>();
        held += usize::from(self.is_metadata_queued());
        held == self.requests.len()
            && self
                .requests
                .iter()
                .all(|(key, pending)| match pending.place {
                    Place::Queued if !pending.is_metadata() => {
                        let queue = self.waiting.get(&pending.route);
                        queue.is_some_and(|queue| queue.contains(key))
                    }
                    Place::Queued => {
                        self.metadata_queue.contains(key) || self.metadata_current == Some(*key)
                    }
                    Place::InFlight(id, correlation) => {
                        let link = self.links.get(&id);
                        link.is_some_and(|link| link.in_flight.get(&correlation) == Some(key))
                    }
                    Place::Delayed(time) => self.delayed.contains(&(time, *key)),
                })
    }

    /// Whether what is unanswered of each route that keeps its order is on one link.
    pub(super) fn order_is_kept(&self) -> bool {
        let mut counts = alloc::collections::BTreeMap::new();
        for pending in self.requests.values() {
            if let (Some(route), Place::InFlight(id, _)) = (pending.order(), pending.place) {
                counts.entry(route).or_insert((id, 0)).1 += 1;
                if counts[&route].0 != id {
                    return false;
                }
            }
        }
        counts == self.bound
    }
}
