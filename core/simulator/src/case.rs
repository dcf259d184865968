//! One run by name: a seed, a number of nodes, and what is left out of what they stand for.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::{random::Random, run::MILLISECOND, scenario::Scenario};

/// One run, the same every time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// Nodes: 1, 3 or 5.
    pub replicas: u8,
    /// What is left out.
    pub without: Without,
}

impl Case {
    /// A whole run of a seed.
    #[must_use]
    pub fn whole(seed: u64, replicas: u8) -> Self {
        Self {
            seed,
            replicas,
            without: Without::default(),
        }
    }
}

impl Case {
    /// What can be left out of it beside times: kinds that make a difference, then clients, the last first.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let whole = Scenario::new(&mut Random::new(self.seed), self.replicas);
        let is_there = |part: &Part| {
            let mut scenario = whole.clone();
            part.apply(&mut scenario);
            // Nothing else tells all of it.
            format!("{scenario:?}") != format!("{whole:?}")
        };
        let clients = (0..whole.clients.len()).rev().map(Part::Client);
        Part::kinds().filter(is_there).chain(clients).collect()
    }
}

/// How to run it again.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "make sim SEED={} REPLICAS={}", self.seed, self.replicas)?;
        if self.without.is_empty() {
            return Ok(());
        }
        write!(f, " ARGS=\"--without {}\"", self.without)
    }
}

/// What is left out of a run, so that one that fails becomes short enough to be understood. What is left
/// happens mostly as before: faults and clients draw from sources of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Without {
    parts: BTreeSet<Part>,
}

/// Something that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A kind of fault or of variety: an index into [`KINDS`].
    Kind(usize),
    /// A client, by its place in the scenario.
    Client(usize),
    /// Faults after so many milliseconds.
    FaultsAfter(u64),
    /// Work of clients after so many milliseconds.
    WorkAfter(u64),
}

type LeaveOut = fn(&mut Scenario);

/// The kinds by name, each with how it is left out.
const KINDS: &[(&str, LeaveOut)] = &[
    ("rot", |it| {
        it.faults.rot = None;
        it.peers.rot = 0;
        it.peers.rot_segments = 0;
        it.peers.rot_end = 0;
        it.peers.rot_snapshots = 0;
    }),
    ("slow-disks", |it| it.disks.slow = 0),
    ("failing-disks", |it| it.disks.fail = 0),
    ("failing-reads", |it| it.disks.fail_reads = 0),
    ("failing-starts", |it| it.disks.fail_start = 0),
    ("full-disks", |it| it.disks.full = 0),
    ("lost-disks", |it| it.disks.lose = 0),
    ("lost-records", |it| it.disks.forget = 0),
    ("stops", |it| it.faults.stop = 0),
    ("garbage", |it| it.faults.garble = 0),
    ("jumps", |it| it.faults.jump = 0),
    ("drift", |it| it.faults.drift = 0),
    ("cuts", |it| it.faults.cut = 0),
    ("pauses", |it| it.peers.pause = 0),
    ("checkpoints", |it| it.peers.checkpoint = 0),
    ("peer-cuts", |it| it.peers.cut = 0),
    ("peer-losses", |it| it.peers.loss = 0),
    ("peer-repeats", |it| it.peers.repeats = 0),
    ("peer-delays", |it| {
        it.peers.delay = it.peers.delay.min(it.latency.network)
    }),
    ("crashes", |it| it.faults.crash = 0),
    ("crashes-at-start", |it| it.faults.at_start = 0),
    ("crashes-in-checkpoints", |it| it.faults.at_checkpoint = 0),
    ("power-failures", |it| it.faults.power = 0),
    ("shards", |it| it.shards_max = 1),
];

impl Part {
    /// The kinds that there are.
    pub(crate) fn kinds() -> impl Iterator<Item = Self> {
        (0..KINDS.len()).map(Self::Kind)
    }

    fn apply(&self, scenario: &mut Scenario) {
        match self {
            Self::Kind(kind) => KINDS[*kind].1(scenario),
            Self::Client(place) => {
                scenario.absent.insert(*place);
            }
            Self::FaultsAfter(time) => {
                scenario.faults.until = scenario.faults.until.min(time * MILLISECOND);
            }
            Self::WorkAfter(time) => {
                scenario.work_until = scenario.work_until.min(time * MILLISECOND);
            }
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(KINDS[*kind].0),
            Self::Client(place) => write!(f, "client-{place}"),
            Self::FaultsAfter(time) => write!(f, "faults-after-{time}ms"),
            Self::WorkAfter(time) => write!(f, "work-after-{time}ms"),
        }
    }
}

impl Without {
    /// Whether nothing is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The same without one more.
    pub(crate) fn and(&self, part: Part) -> Self {
        let mut parts = self.parts.clone();
        parts.insert(part);
        Self { parts }
    }

    /// Leaves in again what is meant.
    pub(crate) fn forget(&mut self, is_meant: impl Fn(&Part) -> bool) {
        self.parts.retain(|part| !is_meant(part));
    }

    pub(crate) fn apply(&self, scenario: &mut Scenario) {
        for part in &self.parts {
            part.apply(scenario);
        }
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{part}")?;
        }
        Ok(())
    }
}

impl FromStr for Without {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(part).collect::<Result<_, _>>()?;
        Ok(Self { parts })
    }
}

fn part(text: &str) -> Result<Part, String> {
    let number = |prefix: &str, suffix: &str| -> Option<u64> {
        let number = text.strip_prefix(prefix)?.strip_suffix(suffix)?;
        number.parse().ok()
    };
    if let Some(kind) = KINDS.iter().position(|(name, _)| *name == text) {
        return Ok(Part::Kind(kind));
    }
    let client = number("client-", "").and_then(|place| usize::try_from(place).ok());
    client
        .map(Part::Client)
        .or_else(|| number("faults-after-", "ms").map(Part::FaultsAfter))
        .or_else(|| number("work-after-", "ms").map(Part::WorkAfter))
        .ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            format!(
                "--without {text}: nothing of that name; there are {}, client-N, faults-after-Nms and work-after-Nms",
                names.join(", ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::{Case, Part, Without};
    use crate::{random::Random, scenario::Scenario};

    #[test]
    fn what_is_left_out_is_read_as_it_is_written() {
        let mut without = Without::default();
        for part in
            Part::kinds().chain([Part::Client(3), Part::FaultsAfter(812), Part::WorkAfter(7)])
        {
            without = without.and(part);
        }
        assert_eq!(without.to_string().parse(), Ok(without));
        for wrong in [
            "",
            "crash",
            "client-",
            "client-x",
            "faults-after-5",
            "rot,,cuts",
        ] {
            let told = wrong.parse::<Without>().unwrap_err();
            assert!(told.contains("crashes-at-start"), "{told}");
        }
    }

    #[test]
    fn everything_can_be_left_out() {
        for replicas in [1, 3] {
            let mut scenario = Scenario::new(&mut Random::new(5), replicas);
            let mut without = Without::default();
            for part in Part::kinds().chain([Part::Client(0), Part::FaultsAfter(20)]) {
                without = without.and(part);
            }
            without.apply(&mut scenario);
            let faults = scenario.faults;
            assert_eq!((faults.crash, faults.cut, faults.jump), (0, 0, 0));
            assert_eq!(faults.until, 20_000_000);
            assert!(scenario.absent.contains(&0));
        }
    }

    #[test]
    fn only_what_is_there_can_be_left_out() {
        let parts = Case::whole(5, 1).parts();
        assert!(parts.contains(&Part::Client(0)), "{parts:?}");
        let of_several: Vec<String> = Case::whole(5, 3)
            .parts()
            .iter()
            .map(ToString::to_string)
            .collect();
        let peers = |parts: &[String]| parts.iter().any(|part| part.starts_with("peer"));
        assert!(peers(&of_several), "{of_several:?}");
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert!(!peers(&parts), "{parts:?}");
    }

    #[test]
    fn case_tells_how_to_run_it_again() {
        let mut case = Case::whole(7, 3);
        assert_eq!(case.to_string(), "make sim SEED=7 REPLICAS=3");
        case.without = "cuts,client-2".parse().unwrap();
        let again = "make sim SEED=7 REPLICAS=3 ARGS=\"--without cuts,client-2\"";
        assert_eq!(case.to_string(), again);
    }
}
