//! The links between nodes: what replicas say is lost, repeated, late and out of order; the rest arrives in
//! order, as over one connection, or is lost with it. All of it is bytes on the way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use shard::{PeerMessage, TransferMessage};
use wire::{DecodeError, FrameHeader, PEER_FRAME_SIZE_MAX};

use crate::{
    event::Event,
    node::Node,
    random::Random,
    run::{Lane, MILLISECOND, Run, SECOND},
    scenario::{PeerFaults, Scenario},
};

/// From one node to another.
pub(crate) type Way = (usize, usize);

fn message_of(frame: &Bytes) -> Result<PeerMessage, DecodeError> {
    let header = FrameHeader::read(frame)?;
    header.check(PEER_FRAME_SIZE_MAX)?;
    PeerMessage::decode(header.body(frame)?)
}

/// All links between nodes.
#[derive(Debug)]
pub(crate) struct Peers {
    count: usize,
    lanes: BTreeMap<Way, Lane>,
    cut: BTreeSet<Way>,
    faults: PeerFaults,
    latency: u64,
    random: Random,
    /// Decides which frames are garbled, and how.
    garbles: Random,
}

impl Peers {
    pub(crate) fn new(scenario: &Scenario, random: &mut Random) -> Self {
        let random = match scenario.replicas {
            1 => Random::new(0),
            _ => random.fork(),
        };
        Self {
            count: usize::from(scenario.replicas),
            lanes: BTreeMap::new(),
            cut: BTreeSet::new(),
            faults: scenario.peers,
            latency: scenario.latency.network,
            garbles: random.clone().fork(),
            random,
        }
    }

    /// No more faults.
    pub(crate) fn calm(&mut self, run: &mut Run) {
        self.faults = PeerFaults {
            delay: self.latency,
            ..PeerFaults::default()
        };
        self.heal(run, None);
    }

    /// A node sends something to another one.
    pub(crate) fn send(&mut self, run: &mut Run, nodes: &[Node], way: Way, message: PeerMessage) {
        let (from, to) = way;
        if self.cut.contains(&way) || nodes[to].process().is_none() {
            run.counts.peer_messages_lost += 1;
            return;
        }
        let boots = (nodes[from].boot, nodes[to].boot);
        run.counts.peer_messages += 1;
        let is_between_replicas = matches!(
            message,
            PeerMessage::Replica { .. }
                | PeerMessage::Commits(_)
                | PeerMessage::CommitOks(_)
                | PeerMessage::Transfer { .. }
        );
        let is_part = matches!(
            message,
            PeerMessage::Transfer {
                message: TransferMessage::Part { .. },
                ..
            }
        );
        run.counts.parts_sent += u64::from(is_part);
        let frame = FrameHeader::peer(0).frame_of_parts(message.encode());
        let frame = Bytes::from(frame.concat());
        run.counts.peer_bytes += frame.len() as u64;
        if is_between_replicas {
            let copies = match self.random.chance(self.faults.loss) {
                true => 0,
                false => 1 + u64::from(self.random.chance(self.faults.repeats)),
            };
            run.counts.peer_messages_lost += u64::from(copies == 0);
            for _ in 0..copies {
                let event = self.on_the_way(way, boots, frame.clone());
                let delay = self.random.around(self.faults.delay);
                run.after(delay, event);
            }
            return;
        }
        let event = self.on_the_way(way, boots, frame);
        let delay = self.random.around(self.latency);
        let time = self.lanes.entry(way).or_default().next(run.now, delay);
        run.at(time, event);
    }

    fn on_the_way(&mut self, way: Way, boots: (u64, u64), frame: Bytes) -> Event {
        let is_whole = !self.garbles.chance(self.faults.garble);
        let mut frame = frame;
        if !is_whole {
            let mut bytes = frame.to_vec();
            let at = self.garbles.index(bytes.len());
            bytes[at] ^= 1 << self.garbles.below(8);
            frame = Bytes::from(bytes);
        }
        Event::Peer {
            way,
            boots,
            frame,
            is_whole,
        }
    }

    /// A frame arrives. One that is not what was sent is refused, with a reason; the link that it came over ends,
    /// with all that is on its way there, and is made again.
    pub(crate) fn read(
        &mut self,
        run: &mut Run,
        (from, to): Way,
        (frame, is_whole): (&Bytes, bool),
    ) -> Option<PeerMessage> {
        match (message_of(frame), is_whole) {
            (Ok(message), true) => return Some(message),
            (Ok(message), false) => run.fail(format!(
                "node {to} takes garbled bytes of node {from} for {message:?}"
            )),
            (Err(error), true) => run.fail(format!(
                "node {to} cannot read what node {from} has sent it: {error}"
            )),
            (Err(error), false) => {
                run.counts.peer_frames_garbled += 1;
                run.note(&[52, from as u64, to as u64], || {
                    format!("peers: {to} ends its link to {from}: {error}")
                });
                let ways = BTreeSet::from([(from, to), (to, from)]);
                self.cut.extend(ways.iter().copied());
                let delay = self.garbles.around(10 * MILLISECOND);
                run.after(delay, Event::PeerHeal { ways });
            }
        }
        None
    }

    /// Whether what is on its way arrives.
    pub(crate) fn arrives(&self, nodes: &[Node], (from, to): Way, boots: (u64, u64)) -> bool {
        !self.cut.contains(&(from, to))
            && nodes[to].boot == boots.1
            && nodes[to].process().is_some()
    }

    /// A node has started: its links are new.
    pub(crate) fn on_start(&mut self, run: &mut Run, node: usize) {
        for other in (0..self.count).filter(|other| *other != node) {
            self.tell_up(run, (node, other));
            self.tell_up(run, (other, node));
        }
    }

    fn tell_up(&mut self, run: &mut Run, (at, other): Way) {
        let delay = self.random.around(self.latency);
        let time = self
            .lanes
            .entry((other, at))
            .or_default()
            .next(run.now, delay);
        let up = true;
        run.at(time, Event::PeerLink { at, other, up });
    }

    /// A node is gone: the others see their links end, at once or, when the machine is gone too, later.
    pub(crate) fn on_crash(&mut self, run: &mut Run, node: usize, power: bool) {
        for at in (0..self.count).filter(|at| *at != node) {
            let delay = match power {
                true => self.random.between(100 * MILLISECOND, SECOND),
                false => self.random.around(self.latency),
            };
            let (other, up) = (node, false);
            run.after(delay, Event::PeerLink { at, other, up });
        }
    }

    /// Some links lose everything for a while.
    pub(crate) fn cut_some(&mut self, run: &mut Run) {
        let node = self.random.index(self.count);
        let other = (node + 1 + self.random.index(self.count - 1)) % self.count;
        let mut ways = BTreeSet::new();
        match self.random.below(4) {
            0 => {
                ways.insert((node, other));
            }
            1 => ways.extend([(node, other), (other, node)]),
            kind => {
                for other in (0..self.count).filter(|other| *other != node) {
                    ways.insert((node, other));
                    if kind == 2 {
                        ways.insert((other, node));
                    }
                }
            }
        }
        run.counts.peer_cuts += 1;
        run.note(&[50, node as u64], || format!("peers: {ways:?} are cut"));
        self.cut.extend(ways.iter().copied());
        let delay = self.random.around(self.faults.cut_for);
        run.after(delay, Event::PeerHeal { ways });
    }

    /// A node is cut off for a while, both ways.
    pub(crate) fn isolate(&mut self, run: &mut Run, node: usize) {
        let others = (0..self.count).filter(|other| *other != node);
        let ways: BTreeSet<Way> = others
            .flat_map(|other| [(node, other), (other, node)])
            .collect();
        run.note(&[53, node as u64], || format!("peers: {node} is cut off"));
        self.cut.extend(ways.iter().copied());
        let delay = self.random.around(self.faults.cut_for);
        run.after(delay, Event::PeerHeal { ways });
    }

    /// Links work again: these, or all. Whatever was sent meanwhile is lost.
    pub(crate) fn heal(&mut self, run: &mut Run, ways: Option<&BTreeSet<Way>>) {
        let healed: Vec<Way> = match ways {
            Some(ways) => self.cut.intersection(ways).copied().collect(),
            None => self.cut.iter().copied().collect(),
        };
        for (from, to) in healed {
            self.cut.remove(&(from, to));
            run.note(&[51, from as u64], || {
                format!("peers: {from} to {to} is healed")
            });
            self.tell_up(run, (from, to));
            self.tell_up(run, (to, from));
        }
    }
}
