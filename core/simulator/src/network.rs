//! Connections between clients and nodes: frames in order, late, and lost when a connection is.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use shard::{ConnectionId, Input};
use wire::{DecodeError, FrameHeader};

use crate::{
    event::{Event, NetworkEvent},
    node::Node,
    random::Random,
    run::{Lane, MILLISECOND, Run, SECOND},
    scenario::Scenario,
};

/// A connection, or an attempt at one; never used twice. A shard knows it by the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u64);

/// All connections.
#[derive(Debug)]
pub(crate) struct Network {
    links: BTreeMap<LinkId, Link>,
    count: u64,
    random: Random,
    latency: u64,
    frame_size: u32,
}

#[derive(Debug)]
struct Link {
    client: usize,
    node: usize,
    /// The process and shard at the other end, once it is accepted.
    accepted: Option<(u64, usize)>,
    to_node: Lane,
    to_client: Lane,
    client_open: bool,
    node_open: bool,
    /// Nothing gets through any more.
    cut: bool,
    /// The node reads nothing at the moment.
    paused: bool,
    /// The node reads nothing any more.
    deaf: bool,
    /// What has arrived and was not read.
    held: VecDeque<Bytes>,
}

/// What reaches a client.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    Connected,
    Refused,
    Frame(Bytes),
    Ended,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario, random: &mut Random) -> Self {
        Self {
            links: BTreeMap::new(),
            count: 0,
            random: random.fork(),
            latency: scenario.latency.network,
            frame_size: scenario.limits.frame_size,
        }
    }

    /// A client tries to connect.
    pub(crate) fn connect(&mut self, run: &mut Run, client: usize, node: usize) -> LinkId {
        self.count += 1;
        let link = LinkId(self.count);
        let mut state = Link {
            client,
            node,
            accepted: None,
            to_node: Lane::default(),
            to_client: Lane::default(),
            client_open: true,
            node_open: false,
            cut: false,
            paused: false,
            deaf: false,
            held: VecDeque::new(),
        };
        let time = state
            .to_node
            .next(run.now, self.random.around(self.latency));
        self.links.insert(link, state);
        run.at(time, Event::Network(NetworkEvent::Arrive { link }));
        link
    }

    /// A client sends bytes.
    pub(crate) fn send_to_node(&mut self, run: &mut Run, link: LinkId, bytes: Bytes) {
        let delay = self.random.around(self.latency);
        if let Some(state) = self.links.get_mut(&link)
            && state.client_open
        {
            let time = state.to_node.next(run.now, delay);
            run.at(time, Event::Network(NetworkEvent::ToNode { link, bytes }));
        }
    }

    /// A node sends a frame.
    pub(crate) fn send_to_client(&mut self, run: &mut Run, link: LinkId, bytes: Bytes) {
        let delay = self.random.around(self.latency);
        if let Some(state) = self.links.get_mut(&link)
            && state.node_open
        {
            let time = state.to_client.next(run.now, delay);
            run.at(time, Event::Network(NetworkEvent::ToClient { link, bytes }));
        }
    }

    /// A client closes its end.
    pub(crate) fn close_by_client(&mut self, run: &mut Run, link: LinkId) {
        let delay = self.random.around(self.latency);
        if let Some(state) = self.links.get_mut(&link)
            && std::mem::replace(&mut state.client_open, false)
        {
            let time = state.to_node.next(run.now, delay);
            run.at(time, Event::Network(NetworkEvent::NodeEnd { link }));
        }
    }

    /// A node closes its end, behind what it has sent.
    pub(crate) fn close_by_node(&mut self, run: &mut Run, link: LinkId) {
        let delay = self.random.around(self.latency);
        if let Some(state) = self.links.get_mut(&link)
            && state.node_open
        {
            state.deaf = true;
            let time = state.to_client.next(run.now, delay);
            run.at(time, Event::Network(NetworkEvent::ClientEnd { link }));
            run.at(time, Event::Network(NetworkEvent::NodeEnd { link }));
        }
    }

    /// A node stops reading, or goes on.
    pub(crate) fn set_paused(
        &mut self,
        run: &mut Run,
        nodes: &mut [Node],
        scenario: &Scenario,
        (link, paused): (LinkId, bool),
    ) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        state.paused = paused;
        run.counts.connections_paused += u64::from(paused);
        while !self.links[&link].paused {
            let held = self
                .links
                .get_mut(&link)
                .and_then(|state| state.held.pop_front());
            let Some(bytes) = held else {
                return;
            };
            self.read(run, nodes, scenario, (link, bytes));
        }
    }

    /// A connection breaks without a word: what is on its way is lost, and each side learns of it when it
    /// does.
    pub(crate) fn cut(&mut self, run: &mut Run, link: LinkId) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        if std::mem::replace(&mut state.cut, true) {
            return;
        }
        run.counts.connections_cut += 1;
        run.note(&[20, link.0], || {
            format!("network: connection {} is cut", link.0)
        });
        let delay = self.random.between(1, 2 * SECOND);
        run.after(delay, Event::Network(NetworkEvent::NodeEnd { link }));
        if self.random.chance(700) {
            let delay = self.random.between(1, 300 * MILLISECOND);
            run.after(delay, Event::Network(NetworkEvent::ClientEnd { link }));
        }
    }

    /// The process of a node is gone, and so are its ends of all connections.
    pub(crate) fn on_crash(&mut self, run: &mut Run, node: usize) {
        for (link, state) in &mut self.links {
            if state.node != node || state.accepted.is_none() || !state.node_open {
                continue;
            }
            state.node_open = false;
            state.cut = true;
            if self.random.chance(800) {
                let delay = self.random.around(self.latency);
                let link = *link;
                run.after(delay, Event::Network(NetworkEvent::ClientEnd { link }));
            }
        }
        self.forget_closed();
    }

    /// Connections that are open at both ends, for faults.
    pub(crate) fn open(&self) -> Vec<LinkId> {
        let open = self.links.iter();
        open.filter(|(_, state)| state.client_open && state.node_open && !state.cut)
            .map(|(link, _)| *link)
            .collect()
    }

    /// Something has got somewhere. Returns what reaches a client.
    pub(crate) fn on_event(
        &mut self,
        run: &mut Run,
        nodes: &mut [Node],
        scenario: &Scenario,
        event: NetworkEvent,
    ) -> Option<(usize, LinkId, Arrival)> {
        match event {
            NetworkEvent::Arrive { link } => {
                self.arrive(run, nodes, scenario, link);
                None
            }
            NetworkEvent::Answer { link, accepted } => match accepted {
                true => self.reach_client(link, Arrival::Connected),
                false => {
                    let reached = self.reach_client(link, Arrival::Refused);
                    self.links.remove(&link);
                    reached
                }
            },
            NetworkEvent::ToNode { link, bytes } => {
                self.on_bytes(run, nodes, scenario, (link, bytes));
                None
            }
            NetworkEvent::ToClient { link, bytes } => {
                let cut = self.links.get(&link).is_none_or(|state| state.cut);
                match cut {
                    true => None,
                    false => self.reach_client(link, Arrival::Frame(bytes)),
                }
            }
            NetworkEvent::NodeEnd { link } => {
                self.end_node(run, nodes, scenario, link);
                None
            }
            NetworkEvent::ClientEnd { link } => {
                let reached = self.reach_client(link, Arrival::Ended);
                if let Some(state) = self.links.get_mut(&link) {
                    state.client_open = false;
                }
                self.forget_closed();
                reached
            }
        }
    }

    fn arrive(&mut self, run: &mut Run, nodes: &mut [Node], scenario: &Scenario, link: LinkId) {
        let delay = self.random.around(self.latency);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let node = &mut nodes[state.node];
        // Each shard takes connections from the beginning, whether the others are ready or not.
        let process = node.process();
        let accepted = process.map(|process| process.threads.len());
        if let Some(shards) = accepted {
            // The kernel spreads connections over the shards' listeners.
            let shard = self.random.index(shards);
            state.accepted = Some((node.boot, shard));
            state.node_open = true;
            let number = link.0;
            let port = u16::try_from(number % 60_000).expect("it is below 60,000");
            let input = Input::Opened {
                connection: ConnectionId(number),
                peer: ([127, 0, 0, 1], port).into(),
            };
            node.give(run, scenario, shard, input);
        } else if self.random.chance(300) {
            // Nobody answers; the client gives up by itself.
            return;
        }
        let time = state.to_client.next(run.now, delay);
        let accepted = accepted.is_some();
        run.at(
            time,
            Event::Network(NetworkEvent::Answer { link, accepted }),
        );
    }

    fn on_bytes(
        &mut self,
        run: &mut Run,
        nodes: &mut [Node],
        scenario: &Scenario,
        (link, bytes): (LinkId, Bytes),
    ) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        if state.cut || state.deaf || !state.node_open {
            return;
        }
        if state.paused || !state.held.is_empty() {
            state.held.push_back(bytes);
            return;
        }
        self.read(run, nodes, scenario, (link, bytes));
    }

    /// The node reads what has come: one frame, or something that is none.
    fn read(
        &mut self,
        run: &mut Run,
        nodes: &mut [Node],
        scenario: &Scenario,
        (link, bytes): (LinkId, Bytes),
    ) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let Some((boot, shard)) = state.accepted else {
            return;
        };
        let node = &mut nodes[state.node];
        if node.boot != boot || state.deaf {
            return;
        }
        let connection = ConnectionId(link.0);
        let input = match decode(&bytes, self.frame_size) {
            Ok((header, body)) => Input::Frame {
                connection,
                header,
                body,
            },
            Err((header, error)) => {
                state.deaf = true;
                run.counts.frames_garbled += 1;
                Input::BadFrame {
                    connection,
                    header,
                    error,
                }
            }
        };
        node.give(run, scenario, shard, input);
    }

    fn end_node(&mut self, run: &mut Run, nodes: &mut [Node], scenario: &Scenario, link: LinkId) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        if std::mem::replace(&mut state.node_open, false)
            && let Some((boot, shard)) = state.accepted
            && nodes[state.node].boot == boot
        {
            let connection = ConnectionId(link.0);
            nodes[state.node].give(run, scenario, shard, Input::Closed { connection });
        }
        self.forget_closed();
    }

    fn reach_client(&self, link: LinkId, arrival: Arrival) -> Option<(usize, LinkId, Arrival)> {
        let state = self.links.get(&link)?;
        state.client_open.then_some((state.client, link, arrival))
    }

    fn forget_closed(&mut self) {
        self.links
            .retain(|_, state| state.client_open || state.node_open);
    }
}

type Decoded = Result<(FrameHeader, Bytes), (Option<FrameHeader>, DecodeError)>;

/// What a connection's reader makes of bytes.
fn decode(bytes: &Bytes, size_max: u32) -> Decoded {
    let header = FrameHeader::read(bytes).map_err(|error| (None, error))?;
    let body = header
        .check(size_max)
        .and_then(|()| header.body(bytes))
        .map_err(|error| (Some(header), error))?;
    Ok((header, body))
}
