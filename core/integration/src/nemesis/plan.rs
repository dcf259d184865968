//! Which faults come in which order. From a seed alone: which node leads is only known when a fault comes.

use std::{fmt, time::Duration};

use crate::{NODES, Passage};

/// Consensus groups of the cluster, the metadata group included.
pub(super) const GROUPS: u16 = 7;

/// Random numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.below(NODES as u64)).expect("there are few")
    }

    fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(last, usize::try_from(other).expect("it is an index"));
        }
    }
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A node is killed, and started when the others have gone on.
    Kill,
    /// All nodes are killed at once.
    KillAll,
    /// A node stands still.
    Pause,
    /// A node and the others hear nothing from each other.
    Isolate,
    /// Nobody hears a node, which hears everybody.
    Mute,
    /// A node hears nobody, and is heard by everybody.
    Deafen,
    /// Two nodes hear nothing from each other; the third hears both.
    Part,
    /// All that a node sends and is sent comes late.
    Slow,
    /// A node loses all its clients.
    Disconnect,
    /// A node that the others are in step with is killed and loses its disk; when they have gone on, it is recovered
    /// and started.
    Wipe,
}

/// All of them.
pub(super) const KINDS: [Kind; 10] = [
    Kind::Kill,
    Kind::KillAll,
    Kind::Pause,
    Kind::Isolate,
    Kind::Mute,
    Kind::Deafen,
    Kind::Part,
    Kind::Slow,
    Kind::Disconnect,
    Kind::Wipe,
];

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// The node that leads this consensus group by then.
    Primary(u16),
    Node(usize),
}

/// Faults of a round: every kind hits a primary once, and some hit just any node.
pub(super) const ROUND: usize = KINDS.len() + ANY.len();

const ANY: [Kind; 3] = [Kind::Kill, Kind::Pause, Kind::Part];

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) victim: Victim,
    /// The other end of a link, counted from the victim; the order in which nodes are started.
    pub(super) other: usize,
    /// What becomes of links.
    pub(super) passage: Passage,
    /// How long it lasts when the others have gone on.
    pub(super) lasts: Duration,
    /// This member of a consumer group is killed meanwhile.
    pub(super) member: Option<usize>,
    /// This node loses its clients meanwhile.
    pub(super) disconnected: Option<usize>,
    /// How long nothing happens afterwards.
    pub(super) rest: Duration,
}

/// The faults of a seed, without end.
#[derive(Debug)]
pub(super) struct Plan {
    draw: Draw,
    bag: Vec<(Kind, bool)>,
    members: u64,
}

impl Plan {
    pub(super) const fn new(seed: u64, members: u64) -> Self {
        Self {
            draw: Draw::new(seed),
            bag: Vec::new(),
            members,
        }
    }
}

impl Iterator for Plan {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        if self.bag.is_empty() {
            self.bag.extend(KINDS.map(|kind| (kind, true)));
            self.bag.extend(ANY.map(|kind| (kind, false)));
            self.draw.shuffle(&mut self.bag);
        }
        let (kind, hits_primary) = self.bag.pop()?;
        let draw = &mut self.draw;
        let group = u16::try_from(draw.below(u64::from(GROUPS))).expect("there are few");
        let node = draw.node();
        let passage = match (kind, draw.below(2)) {
            (Kind::Slow, _) => Passage::Slow(draw.time(5, 80)),
            (_, 0) => Passage::Silent,
            _ => Passage::Closed,
        };
        let members = self.members;
        let member = (draw.below(3) == 0).then(|| draw.below(members));
        let disconnects = draw.below(4) == 0;
        Some(Fault {
            kind,
            victim: match hits_primary {
                true => Victim::Primary(group),
                false => Victim::Node(node),
            },
            other: 1 + usize::try_from(draw.below(2)).expect("it is small"),
            passage,
            lasts: draw.time(0, 3_000),
            member: member.map(|member| usize::try_from(member).expect("there are few")),
            disconnected: disconnects.then(|| draw.node()),
            rest: draw.time(0, 1_000),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)?;
        match self.victim {
            Victim::Primary(group) => write!(f, " the primary of group {group}")?,
            Victim::Node(node) => write!(f, " node {node}")?,
        }
        match (self.kind, self.passage) {
            (Kind::Slow, Passage::Slow(delay)) => write!(f, " by {} ms", delay.as_millis())?,
            (Kind::Isolate | Kind::Mute | Kind::Deafen | Kind::Part, passage) => {
                write!(f, ", links {passage:?}")?;
            }
            _ => {}
        }
        write!(f, ", {} ms", self.lasts.as_millis())?;
        if let Some(member) = self.member {
            write!(f, ", and kill member {member}")?;
        }
        if let Some(node) = self.disconnected {
            write!(f, ", and cut the clients of node {node}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{KINDS, Plan, ROUND, Victim};

    #[test]
    fn same_seed_gives_the_same_faults_and_another_one_others() {
        let faults = |seed| Plan::new(seed, 6).take(40).collect::<Vec<_>>();
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn every_kind_hits_a_primary_in_every_round() {
        let faults: Vec<_> = Plan::new(3, 6).take(ROUND).collect();
        for kind in KINDS {
            let mut of_kind = faults.iter().filter(|fault| fault.kind == kind);
            assert!(of_kind.any(|fault| matches!(fault.victim, Victim::Primary(_))));
        }
    }
}
