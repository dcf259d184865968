//! What a seed stands for: sizes, speeds, clients, faults.

use std::collections::BTreeSet;

use catalog::CatalogConfig;
use journal::UnitSize;
use partition::DataConfig;
use wire::{ClusterId, ConsensusGroup, ReplicaId};

use crate::{
    random::Random,
    run::{MILLISECOND, SECOND},
};

/// The cluster of every run.
pub(crate) const CLUSTER: ClusterId = ClusterId(0x00c0_4027);

/// The password of `root`, and what the simulated hashing makes of it.
pub(crate) const ROOT_PASSWORD: &str = "correct horse battery";

const KIB: u64 = 1024;

/// Bytes of the largest prepare that a shard makes, with what a frame of the journal holds beside it.
const LARGEST_RECORD: u64 = (1024 + 192) * KIB;

/// Everything about a run that is decided before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Nodes of the cluster.
    pub(crate) replicas: u8,
    /// Data groups of the cluster.
    pub(crate) data_groups: u16,
    /// Shards of a node at the most; every start draws anew.
    pub(crate) shards_max: u16,
    /// Bytes that the disk writes whole or not at all.
    pub(crate) sector: usize,
    pub(crate) journal: journal::Config,
    pub(crate) segment_size: u64,
    pub(crate) tail_budget: u64,
    pub(crate) index_budget: u64,
    /// Bytes a second that a shard reads back.
    pub(crate) scrub_rate: u64,
    /// Bytes a second that a shard fetches from others to catch up.
    pub(crate) fetch_rate: u64,
    pub(crate) producers_max: u32,
    pub(crate) consumers_max: u32,
    pub(crate) limits: shard::Limits,
    pub(crate) sessions: SessionTimes,
    /// Clients in the client table of the metadata group.
    pub(crate) clients_max: u32,
    pub(crate) latency: Latency,
    pub(crate) faults: FaultPlan,
    pub(crate) peers: PeerFaults,
    pub(crate) disks: DiskFaults,
    pub(crate) clients: Vec<ClientKind>,
    /// Those of them that never come, by their place.
    pub(crate) absent: BTreeSet<usize>,
    /// When clients begin nothing new.
    pub(crate) work_until: u64,
}

/// How long sessions live, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTimes {
    pub(crate) disconnect_grace: u64,
    pub(crate) session_timeout: u64,
    pub(crate) liveness_interval: u64,
    pub(crate) park_timeout: u64,
}

/// How long things take, nanoseconds, about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// From an input to the shard's turn.
    pub(crate) turn: u64,
    pub(crate) mesh: u64,
    pub(crate) network: u64,
    pub(crate) write: u64,
    pub(crate) flush: u64,
    pub(crate) read: u64,
    pub(crate) password: u64,
}

/// What goes wrong, and how often: mean nanoseconds between two of a kind, 0 for never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultPlan {
    /// No fault after this.
    pub(crate) until: u64,
    pub(crate) crash: u64,
    /// How many in a thousand crashes are power failures; the others only end the process.
    pub(crate) power: u64,
    /// How many in a thousand starts are crashed in the middle.
    pub(crate) at_start: u64,
    /// How many in a thousand steps of checkpoints are followed by a crash.
    pub(crate) at_checkpoint: u64,
    pub(crate) stop: u64,
    /// How long a node stays down.
    pub(crate) down: u64,
    pub(crate) cut: u64,
    pub(crate) jump: u64,
    pub(crate) garble: u64,
    /// When bits begin to flip, if they do.
    pub(crate) rot: Option<u64>,
    /// Parts in a million that a clock may be wrong.
    pub(crate) drift: u64,
}

/// What happens between nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerFaults {
    /// How many of a thousand messages between replicas are lost, and come twice.
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    /// How long a message takes, about, nanoseconds.
    pub(crate) delay: u64,
    /// Mean nanoseconds between two cuts, 0 for never, and how long one lasts, about.
    pub(crate) cut: u64,
    pub(crate) cut_for: u64,
    /// Mean nanoseconds between two times that a node stands still (SIGSTOP), 0 for never.
    pub(crate) pause: u64,
    /// How many of a thousand frames arrive as other bytes.
    pub(crate) garble: u64,
    /// Mean nanoseconds between two times that all are to take a checkpoint of some group, 0 for never.
    pub(crate) checkpoint: u64,
    /// How many of a thousand times that a node goes down a bit of its journal flips; on a minority of nodes.
    pub(crate) rot: u64,
    /// How many of a thousand times that a node goes down one of its segments rots; on a minority of nodes.
    pub(crate) rot_segments: u64,
    /// How many of a thousand times that a node goes down one of the last frames of its journal rots; on a minority
    /// of nodes, and where no write is torn.
    pub(crate) rot_end: u64,
    /// How many of a thousand times that a node goes down a snapshot rots or is gone; on a minority of nodes.
    pub(crate) rot_snapshots: u64,
}

/// What happens to disks beside rot: mean nanoseconds between two of a kind, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskFaults {
    /// A disk is slow for a while.
    pub(crate) slow: u64,
    /// A write or a flush fails.
    pub(crate) fail: u64,
    /// Reads fail for a while, on a minority of nodes.
    pub(crate) fail_reads: u64,
    /// How many of a thousand starts cannot read a sector, where nothing else is wrong at that time.
    pub(crate) fail_start: u64,
    /// A disk has no space for a while.
    pub(crate) full: u64,
    /// A node loses its disk, where none is damaged otherwise.
    pub(crate) lose: u64,
    /// How many of a thousand of them only lose a record with both its copies, till an operator gives the rest up.
    pub(crate) forget: u64,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// Makes and removes streams, topics and partitions.
    Admin,
    /// Sends by the client crate's producer.
    Producer,
    /// Reads and stores by the client crate's consumer.
    Consumer,
    /// Polls, stores and asks by hand, in every way there is.
    Prober,
    /// Sends by hand: repeats, gaps, keys, balanced and unnumbered batches.
    Sender,
    /// A member of consumer groups, as it should be.
    Member,
    /// A member of consumer groups, as it should not be, and whatever else can be done to groups.
    Rogue,
    /// Reads everything when all others have gone.
    Auditor,
}

/// Where a node takes clients.
pub(crate) fn address_of(node: u8) -> String {
    format!("node-{node}")
}

impl Scenario {
    /// The first so many nodes have disks that rot: less than a majority.
    pub(crate) fn rotting(&self) -> usize {
        usize::from(self.replicas) / 2
    }

    /// Whether segments of those may rot, or reads of them fail.
    pub(crate) const fn segments_may_rot(&self) -> bool {
        self.peers.rot_segments > 0 || self.disks.fail_reads > 0
    }

    /// Whether a write may be torn, be it by a power failure or a disk that fails.
    pub(crate) const fn tears(&self) -> bool {
        self.faults.power > 0 || self.disks.fail > 0
    }

    /// The node that takes clients at an address.
    pub(crate) fn node_at(&self, address: &str) -> Option<usize> {
        let node = (0..self.replicas).find(|node| address_of(*node) == address)?;
        Some(usize::from(node))
    }

    /// The scenario of a seed.
    pub(crate) fn new(random: &mut Random, replicas: u8) -> Self {
        let scenario = Self::of_one(random);
        match replicas {
            1 => scenario,
            _ => scenario.of_several(random, replicas),
        }
    }

    /// The same for several nodes. Journals and segments rot. A node that is behind has room for what the others keep for
    /// it: it cannot recycle before a majority has its checkpoint.
    fn of_several(mut self, random: &mut Random, replicas: u8) -> Self {
        self.replicas = replicas;
        self.journal.live_max *= 64;
        self.journal.checkpoint_at = self.journal.live_max;
        self.faults.rot = None;
        self.faults.stop = 0;
        self.disks.fail_reads = *random.aside(21).pick(&[0, 0, 500]) * MILLISECOND;
        // What these draw moves nothing else.
        let mut garbles = random.clone().fork();
        let mut absences = garbles.clone().fork();
        // Now and then a node is away for as long as others take several checkpoints.
        self.faults.down *= *absences.pick(&[1, 1, 4, 12]);
        self.peers = PeerFaults {
            loss: *random.pick(&[0, 0, 10, 50]),
            repeats: *random.pick(&[0, 20, 100]),
            delay: *random.pick(&[1, 1, 10, 100]) * self.latency.network,
            cut: *random.pick(&[0, 400, 1_500]) * MILLISECOND,
            cut_for: random.between(50, 900) * MILLISECOND,
            pause: *random.pick(&[0, 0, 700, 2_000]) * MILLISECOND,
            garble: *garbles.pick(&[0, 0, 0, 1]),
            checkpoint: *absences.pick(&[0, 40, 40, 200]) * MILLISECOND,
            rot: *garbles.pick(&[0, 0, 800, 800]),
            rot_segments: *garbles.pick(&[0, 0, 0, 700]),
            rot_end: 0,
            rot_snapshots: *random.aside(25).pick(&[0, 0, 300, 900]),
        };
        self.disks.fail_start = *random.aside(26).pick(&[0, 300]);
        match random.aside(22).below(10) {
            0..3 => self.rot_ends(&mut random.aside(23)),
            3..5 => self.lose_disks(&mut random.aside(24)),
            _ => {}
        }
        // A primary that is gone is missed for a while.
        self.sessions.session_timeout += 2 * SECOND;
        self.sessions.liveness_interval = self.sessions.session_timeout / random.between(3, 8);
        self.sessions.disconnect_grace += 300 * MILLISECOND;
        self
    }

    /// Ends of journals rot, and checkpoints are rare enough that they matter. No write is torn: whether the frame
    /// before a torn one is damaged nobody could tell.
    fn rot_ends(&mut self, random: &mut Random) {
        self.peers.rot_end = 900;
        self.peers.rot = 0;
        self.peers.checkpoint = *random.pick(&[0, 400]) * MILLISECOND;
        self.faults.power = 0;
        self.faults.crash = random.between(80, 600) * MILLISECOND;
        self.disks.fail = 0;
    }

    /// Disks are lost, one at a time, and nothing else of what they hold.
    fn lose_disks(&mut self, random: &mut Random) {
        self.peers.rot = 0;
        self.peers.rot_segments = 0;
        self.peers.rot_snapshots = 0;
        self.disks.fail_reads = 0;
        self.disks.fail_start = 0;
        self.disks.lose = *random.pick(&[300, 800, 2_000]) * MILLISECOND;
        self.disks.forget = *random.pick(&[0, 500, 800]);
    }

    fn of_one(random: &mut Random) -> Self {
        let sector = *random.pick(&[512, 4096]);
        let work_until = random.between(3, 7) * SECOND;
        Self {
            replicas: 1,
            peers: PeerFaults::default(),
            data_groups: u16_between(random, 1, 8),
            shards_max: u16_between(random, 1, 4),
            sector,
            journal: journal_config(random, sector),
            segment_size: random.between(1, 16) * random.between(1, 8) * KIB,
            tail_budget: *random.pick(&[0, 4 * KIB, 32 * KIB, 1024 * KIB]),
            index_budget: *random.pick(&[0, 512, 1024 * KIB]),
            scrub_rate: *random.pick(&[0, 64 * KIB, 1024 * KIB]),
            fetch_rate: *random.aside(27).pick(&[0, 512 * KIB, 8 * 1024 * KIB]),
            producers_max: *random.pick(&[1_024, 1_024, 1_024, 3]),
            consumers_max: *random.pick(&[10_000, 10_000, 4]),
            limits: limits(random),
            sessions: session_times(random),
            clients_max: u32_between(random, 6, 40),
            latency: latency(random),
            faults: fault_plan(random, work_until),
            disks: disk_faults(&mut random.aside(20)),
            clients: clients(random),
            absent: BTreeSet::new(),
            work_until,
        }
    }

    /// The same with so much less time that a test can afford many.
    #[cfg(test)]
    pub(crate) fn shortened(mut self) -> Self {
        self.work_until /= 8;
        self.faults.until = self.work_until;
        self.faults.rot = self.faults.rot.map(|time| time / 8);
        for mean in [&mut self.faults.crash, &mut self.faults.cut] {
            *mean /= 4;
        }
        self
    }

    /// What the journal of a node is told.
    pub(crate) fn journal_of(&self, replica: ReplicaId) -> journal::Config {
        journal::Config {
            identity: journal::identity(CLUSTER, replica),
            ..self.journal
        }
    }

    /// What every catalog is told.
    pub(crate) const fn catalog(&self) -> CatalogConfig {
        CatalogConfig {
            data_groups: self.data_groups,
            limits: catalog::Limits {
                streams: 12,
                topics_per_stream: 4,
                partitions_per_topic: 6,
                partitions: 40,
                ..catalog::Limits::INITIAL
            },
        }
    }

    /// What every state machine of a data group is told.
    pub(crate) const fn data(&self, group: ConsensusGroup) -> DataConfig {
        DataConfig {
            segment_size: self.segment_size,
            tail_budget: self.tail_budget,
            index_budget: self.index_budget,
            producers_max: self.producers_max as usize,
            consumers_max: self.consumers_max as usize,
            ..DataConfig::new(group)
        }
    }
}

fn journal_config(random: &mut Random, sector: usize) -> journal::Config {
    let unit_size = match sector {
        4096 if random.chance(700) => UnitSize::Bytes4096,
        _ => UnitSize::Bytes512,
    };
    let file_size = LARGEST_RECORD + random.below(16) * 32 * KIB;
    let first_file_size = match random.below(3) {
        0 => file_size,
        _ => random.between(4, 64) * 4 * KIB,
    };
    let live_max = file_size * random.between(2, 6);
    journal::Config {
        file_size,
        first_file_size,
        frame_size: u32_between(random, 4, 256) * 1024,
        live_max,
        checkpoint_at: random.between(file_size / 4, live_max / 2),
        ..journal::Config::new(journal::identity(CLUSTER, ReplicaId(0)), unit_size)
    }
}

fn limits(random: &mut Random) -> shard::Limits {
    let batch_size = u32_between(random, 8, 32) * 1024;
    shard::Limits {
        frame_size: shard::FRAME_RESERVE + batch_size,
        batch_size,
        connections: 100,
        requests_in_flight: u32_between(random, 3, 64),
        bytes_in_flight: random.between(16, 128) * KIB,
        bytes_in_flight_shard: random.between(64, 256) * KIB,
        batch_messages: 1_000,
        poll_wait: 5_000,
        poll_bytes: u32_between(random, 16, 64) * 1024,
        sections: 128,
        passwords: u32_between(random, 2, 16),
    }
}

fn session_times(random: &mut Random) -> SessionTimes {
    let session_timeout = random.between(800, 2_500) * MILLISECOND;
    SessionTimes {
        disconnect_grace: random.between(100, 700) * MILLISECOND,
        session_timeout,
        liveness_interval: session_timeout / random.between(3, 8),
        park_timeout: random.between(50, 500) * MILLISECOND,
    }
}

fn latency(random: &mut Random) -> Latency {
    const MICROSECOND: u64 = 1_000;
    let disk = *random.pick(&[1, 1, 1, 5, 20]);
    Latency {
        turn: random.between(1, 30) * MICROSECOND,
        mesh: random.between(1, 60) * MICROSECOND,
        network: random.between(30, 400) * MICROSECOND,
        write: 20 * MICROSECOND * disk,
        flush: random.between(150, 1_500) * MICROSECOND * disk,
        read: 40 * MICROSECOND * disk,
        password: random.between(200, 20_000) * MICROSECOND,
    }
}

fn fault_plan(random: &mut Random, work_until: u64) -> FaultPlan {
    let crash = match random.below(8) {
        0 => 0,
        1 | 2 => random.between(80, 300),
        _ => random.between(300, 2_500),
    };
    let rot = match random.below(5) {
        0 => Some(random.between(200 * MILLISECOND, work_until)),
        _ => None,
    };
    FaultPlan {
        until: work_until,
        crash: crash * MILLISECOND,
        power: *random.pick(&[0, 300, 600, 1_000]),
        at_start: *random.pick(&[0, 100, 400]),
        at_checkpoint: *random.pick(&[0, 0, 10, 50]),
        stop: *random.pick(&[0, 0, 1_500]) * MILLISECOND,
        down: random.between(1, 150) * MILLISECOND,
        cut: *random.pick(&[0, 100, 400, 1_500]) * MILLISECOND,
        jump: *random.pick(&[0, 300, 1_000]) * MILLISECOND,
        garble: *random.pick(&[0, 300]) * MILLISECOND,
        rot,
        drift: *random.pick(&[0, 100, 20_000]),
    }
}

fn disk_faults(random: &mut Random) -> DiskFaults {
    DiskFaults {
        slow: *random.pick(&[0, 0, 700, 2_000]) * MILLISECOND,
        fail: *random.pick(&[0, 0, 1_500]) * MILLISECOND,
        fail_reads: 0,
        fail_start: 0,
        full: *random.pick(&[0, 0, 0, 1_000]) * MILLISECOND,
        lose: 0,
        forget: 0,
    }
}

fn clients(random: &mut Random) -> Vec<ClientKind> {
    use ClientKind as K;
    let mut clients = vec![K::Admin, K::Producer, K::Consumer, K::Prober, K::Sender];
    for _ in 0..random.below(5) {
        clients.push(*random.pick(&[K::Producer, K::Consumer, K::Prober, K::Sender]));
    }
    // Now and then many of them, so that partitions go to and fro by the dozen.
    let members = match random.below(12) {
        0 => random.between(6, 10),
        _ => random.between(1, 4),
    };
    for _ in 0..members {
        clients.push(K::Member);
    }
    for _ in 0..random.below(3) {
        clients.push(K::Rogue);
    }
    clients
}

fn u16_between(random: &mut Random, low: u16, high: u16) -> u16 {
    let number = random.between(u64::from(low), u64::from(high));
    u16::try_from(number).expect("it is between two u16")
}

fn u32_between(random: &mut Random, low: u32, high: u32) -> u32 {
    let number = random.between(u64::from(low), u64::from(high));
    u32::try_from(number).expect("it is between two u32")
}
