//! A network that cuts, delays and reorders, with the broker at its end.

use alloc::{collections::BTreeMap, vec::Vec};

use bytes::{Bytes, BytesMut};
use wire::{Command, FRAME_SIZE_MAX, PrimaryChanged, SessionNumber};

use super::{
    MS,
    broker::{ADDRESSES, Broker},
};
use crate::{ConnectionId, Frame, next_frame, random::Random};

/// How often things go wrong, per mille.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// An attempt to connect fails.
    pub(super) refuse_connection: u64,
    /// A connection is cut when a frame is sent; what is on its way to the client is lost, what is on its
    /// way to the broker perhaps.
    pub(super) cut: u64,
    /// The broker refuses a request, or a section, for the moment.
    pub(super) busy: u64,
    /// The broker executes a request and says that it does not know.
    pub(super) unknown: u64,
    /// The broker never answers a request; perhaps it executes it.
    pub(super) ignore: u64,
    /// The broker forgets every session.
    pub(super) forget_sessions: u64,
    /// The longest delay of a frame, milliseconds.
    pub(super) delay_ms: u64,
    /// A node dies when a frame is sent, and comes back after a while; others lead what it led.
    pub(super) kill: u64,
}

/// How long nobody leads after a death, and how long a node is dead, milliseconds.
const ELECTION_MS: u64 = 150;
const DEAD_MS: u64 = 1_500;

/// What comes back to the client.
#[derive(Debug)]
pub(super) enum Arrival {
    Connected(ConnectionId),
    Gone(ConnectionId),
    Frame(ConnectionId, Frame),
}

#[derive(Debug)]
enum Event {
    ToClient(Arrival),
    ToBroker(ConnectionId, Frame),
    Elected,
    Restart(usize),
}

pub(super) struct Network {
    pub(super) broker: Broker,
    pub(super) faults: Faults,
    /// How much later than other frames the next logins reach the broker, nanoseconds, the next one last.
    pub(super) late_logins: Vec<u64>,
    random: Random,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    /// Connections that are up: to which node, with the time of the last frame towards the client: frames of
    /// one connection arrive in order.
    open: BTreeMap<ConnectionId, (u8, u64)>,
    /// Where each connection leads.
    nodes: BTreeMap<ConnectionId, u8>,
    pub(super) cuts: u64,
    pub(super) deaths: u64,
}

impl Network {
    pub(super) fn new(seed: u64, partitions: u32, faults: Faults) -> Self {
        Self {
            broker: Broker::new(partitions),
            faults,
            late_logins: Vec::new(),
            random: Random::new(seed ^ 0xfeed),
            events: BTreeMap::new(),
            next_event: 0,
            open: BTreeMap::new(),
            nodes: BTreeMap::new(),
            cuts: 0,
            deaths: 0,
        }
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        self.events.first_key_value().map(|((time, _), _)| *time)
    }

    pub(super) fn connect(&mut self, now: u64, connection: ConnectionId, address: &str) {
        let node = ADDRESSES.iter().position(|own| *own == address);
        let node = node.expect("an address of the cluster");
        if self.strikes(self.faults.refuse_connection) || !self.broker.nodes.up[node] {
            return self.later(now, Event::ToClient(Arrival::Gone(connection)));
        }
        let node = u8::try_from(node).unwrap();
        self.nodes.insert(connection, node);
        self.open.insert(connection, (node, now));
        self.later(now, Event::ToClient(Arrival::Connected(connection)));
    }

    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.open.remove(&connection);
    }

    pub(super) fn send(&mut self, now: u64, connection: ConnectionId, frame: &[Bytes]) {
        if self.strikes(self.faults.kill) {
            self.kill(now);
        }
        if !self.open.contains_key(&connection) {
            return;
        }
        let mut bytes = BytesMut::new();
        frame.iter().for_each(|part| bytes.extend_from_slice(part));
        let frame = next_frame(&mut bytes, FRAME_SIZE_MAX)
            .expect("a sound frame")
            .expect("a whole frame");
        let cut = self.strikes(self.faults.cut);
        if !cut || self.random.between(0, 1) == 0 {
            // The broker's shards take their time, so requests overtake each other behind the socket.
            let is_login = frame.header.code == Command::Login.code();
            let late = is_login.then(|| self.late_logins.pop()).flatten();
            let time = now + late.unwrap_or(0);
            self.later(time, Event::ToBroker(connection, frame));
        }
        if cut {
            self.cut(now, connection);
        }
    }

    /// A node dies, unless another one is dead: its connections are gone, and what was on the way to it may
    /// still have reached it.
    fn kill(&mut self, now: u64) {
        let node = usize::try_from(self.random.between(0, 2)).unwrap();
        if self.broker.nodes.up.contains(&false) {
            return;
        }
        self.deaths += 1;
        let nodes = &mut self.broker.nodes;
        nodes.up[node] = false;
        nodes.view += 1;
        nodes.leads_from = now + ELECTION_MS * MS;
        let own = self.open.iter();
        let own = own.filter(|(_, (other, _))| usize::from(*other) == node);
        for connection in own.map(|(connection, _)| *connection).collect::<Vec<_>>() {
            self.cut(now, connection);
        }
        self.at(now + ELECTION_MS * MS, Event::Elected);
        self.at(now + DEAD_MS * MS, Event::Restart(node));
    }

    /// Tells all connections who leads now.
    fn tell(&mut self, now: u64) {
        let primary = self.broker.primary();
        let event = wire::Event::PrimaryChanged(PrimaryChanged {
            group: primary.group,
            view: primary.view,
            primary: primary.primary,
        });
        for connection in self.open.keys().copied().collect::<Vec<_>>() {
            let header = event.header(SessionNumber(0));
            let body = event.encode();
            let frame = Frame { header, body };
            self.later(now, Event::ToClient(Arrival::Frame(connection, frame)));
        }
    }

    fn cut(&mut self, now: u64, connection: ConnectionId) {
        self.cuts += 1;
        self.open.remove(&connection);
        self.events.retain(|_, event| match event {
            Event::ToClient(
                Arrival::Frame(other, _) | Arrival::Connected(other) | Arrival::Gone(other),
            ) => *other != connection,
            Event::ToBroker(..) | Event::Elected | Event::Restart(_) => true,
        });
        self.later(now, Event::ToClient(Arrival::Gone(connection)));
    }

    /// What arrives at the client at this time; lets the broker work.
    pub(super) fn take(&mut self, now: u64) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Event::ToClient(arrival) => arrivals.push(arrival),
                Event::ToBroker(connection, frame) => self.execute(now, connection, frame),
                Event::Elected => self.tell(now),
                Event::Restart(node) => {
                    self.broker.nodes.up[node] = true;
                    self.broker.nodes.view += 1;
                    self.tell(now);
                }
            }
        }
        arrivals
    }

    fn execute(&mut self, now: u64, connection: ConnectionId, frame: Frame) {
        let node = self.nodes[&connection];
        if self.strikes(self.faults.forget_sessions) {
            self.broker.forget_sessions();
        }
        if self.strikes(self.faults.ignore) {
            if self.random.between(0, 1) == 0 {
                self.broker.handle((now, node), frame, || false);
            }
            return;
        }
        let busy = self.faults.busy;
        let unknown = self.strikes(self.faults.unknown);
        let mut random = Random::new(self.random.next());
        let header = frame.header;
        let (wait, reply) = self
            .broker
            .handle((now, node), frame, || random.between(0, 999) < busy);
        let reply = if unknown {
            Broker::outcome_unknown(&header)
        } else {
            reply
        };
        let Some((_, last)) = self.open.get_mut(&connection) else {
            return;
        };
        let delay = self.random.between(0, self.faults.delay_ms * MS);
        // A long poll does not hold up what comes after it.
        let time = (now + delay + wait).max(if wait == 0 { *last } else { 0 });
        if wait == 0 {
            *last = time;
        }
        self.at(time, Event::ToClient(Arrival::Frame(connection, reply)));
    }

    fn delay(&mut self) -> u64 {
        self.random.between(0, self.faults.delay_ms * MS) + MS / 10
    }

    fn later(&mut self, now: u64, event: Event) {
        let time = now + self.delay();
        self.at(time, event);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((time, self.next_event), event);
    }

    fn strikes(&mut self, per_mille: u64) -> bool {
        self.random.between(0, 999) < per_mille
    }
}
