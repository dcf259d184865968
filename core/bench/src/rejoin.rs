//! `rejoin`: how fast a node that has lost its disk comes back, and what that costs those who send meanwhile.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use wire::{ConsensusGroup, GetNodeStatus, Op, Reply};

use crate::{
    bench::Bench,
    cluster::Cluster,
    connection::{Connection, unexpected},
    error::Error,
    failover_broker::{accepted, message, until_ok},
    figure::{Section, Side, Target, Unit},
    latency::Latency,
    produce,
    producer::{self, Load, Outcome},
    target::{Server, Topic},
};

/// The node whose disk is lost.
const VICTIM: usize = 2;

/// The node that the small messages are sent to.
const ENTRY: usize = 0;

/// Between two looks at the node.
const PAUSE: Duration = Duration::from_millis(20);

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Messages that are sent one after the other before the disk is lost.
const BEFORE: Duration = Duration::from_secs(5);

/// The limits: bytes per second, how much longer a message may take, resident bytes.
const RATE_MIN: f64 = 50e6;
const DELAY_MAX: f64 = 3.0;
const RESIDENT_MAX: f64 = 512.0 * 1024.0 * 1024.0;

/// How often a node is asked how far it is.
const LOOK: Duration = Duration::from_millis(400);

/// Fills a cluster, takes one node's disk away, and has it come back.
///
/// # Errors
/// `Usage` with a server that runs already; what stops a node or a client.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let mut launch = bench.launch()?;
    launch.is_cluster = true;
    let (mut server, _) = Server::start(&launch)?;
    let mut connection = server.log_in()?;
    let load = Load {
        total: bench
            .options
            .total
            .unwrap_or(bench.pick(256 << 20, 1 << 30)),
        ..produce::standard_load(bench)
    };
    let topic = server.create_topic(&mut connection, load.producers)?;
    let small = server.create_topic(&mut connection, 1)?;
    let filled = producer::run(&server, connection.session(), &topic, &load)?;
    drop(connection);

    let sender = Sender::start(&server, &small)?;
    thread::sleep(BEFORE);
    let before = sender.stop()?;
    let measured = lose_and_recover(&mut server, &small)?;
    server.stop()?;
    Bench::remove(&launch)?;
    Ok(vec![section(&filled, before, measured)])
}

/// What was seen while the node came back.
#[derive(Debug)]
struct Measured {
    /// From the start of its process until it had applied what was acknowledged by then.
    elapsed: Duration,
    /// Of the small messages meanwhile.
    sent: Latency,
    /// The most that the node, and the most that one of the others had resident.
    resident: u64,
    resident_of_others: u64,
}

fn section(filled: &Outcome, before: Latency, measured: Measured) -> Section {
    let payload = filled.payload;
    let mut section = Section::new("rejoin: a node has lost its disk and comes back");
    let seconds = measured.elapsed.as_secs_f64();
    let rate = payload as f64 / seconds;
    section.figure("payload of the lost disk", payload as f64, Unit::Bytes);
    if filled.again > 0 {
        let name = "batches that were sent again, filling";
        section.figure(name, filled.again as f64, Unit::Ratio);
    }
    section.figure("back after", seconds * 1e9, Unit::Nanoseconds);
    section.figure("payload fetched", rate, Unit::BytesPerSecond);
    let p99 = [&before, &measured.sent].map(|latency| latency.quantile(0.99));
    section.latency("small message before, acknowledged after", before);
    section.latency("small message meanwhile, acknowledged after", measured.sent);
    let resident = measured.resident as f64;
    section.figure("resident at most, the node", resident, Unit::Bytes);
    let others = measured.resident_of_others as f64;
    section.figure("resident at most, the others", others, Unit::Bytes);
    for (name, of, side, limit, measured, unit) in [
        (
            "lost disk, payload fetched per second",
            "from the start of the process until all is applied",
            Side::AtLeast,
            RATE_MIN,
            rate,
            Unit::BytesPerSecond,
        ),
        (
            "lost disk, small message meanwhile, p99",
            "the same before the disk was lost",
            Side::AtMost,
            DELAY_MAX,
            p99[1] / p99[0],
            Unit::Ratio,
        ),
        (
            "lost disk, resident memory of the node",
            "at most while it comes back",
            Side::AtMost,
            RESIDENT_MAX,
            resident,
            Unit::Bytes,
        ),
    ] {
        section.target(Target {
            name: name.into(),
            of,
            side,
            limit,
            measured,
            unit,
        });
    }
    section
}

fn lose_and_recover(server: &mut Server, small: &Topic) -> Result<Measured, Error> {
    let survivor = cluster(server).address(ENTRY);
    let (victim, others) = (cluster(server).address(VICTIM), [0, 1]);
    cluster(server).lose_disk(VICTIM)?;
    // What it led goes on elsewhere before anything is measured.
    let mut witness = until_ok(|| server.log_in_at(survivor))?;
    until_ok(|| accepted(witness.call(message(small))?))?;
    let wanted = applied(server, survivor)?;
    let sender = Sender::start(server, small)?;
    let begin = Instant::now();
    cluster(server).recover(VICTIM)?;
    let mut measured = Measured {
        elapsed: Duration::ZERO,
        sent: Latency::new(),
        resident: 0,
        resident_of_others: 0,
    };
    let mut looked = begin;
    loop {
        let resident = cluster(server).resident(VICTIM)?;
        measured.resident = measured.resident.max(resident);
        for other in others {
            let resident = cluster(server).resident(other)?;
            measured.resident_of_others = measured.resident_of_others.max(resident);
        }
        // It answers once it knows who may ask. Every look takes a password check.
        if looked.elapsed() >= LOOK {
            if applied(server, victim).is_ok_and(|applied| contains(&applied, &wanted)) {
                break;
            }
            looked = Instant::now();
        }
        if begin.elapsed() > PATIENCE {
            let text = format!("the node is not back after {PATIENCE:?}");
            return Err(Error::Server(text));
        }
        thread::sleep(PAUSE);
    }
    measured.elapsed = begin.elapsed();
    measured.sent = sender.stop()?;
    Ok(measured)
}

fn cluster(server: &mut Server) -> &mut Cluster {
    server.cluster_mut().expect("it was started as one")
}

/// The op that each consensus group of a node has applied.
type Applied = BTreeMap<ConsensusGroup, Op>;

fn applied(server: &Server, address: SocketAddr) -> Result<Applied, Error> {
    let login = server.login();
    let reply = Connection::open(address)?.call(GetNodeStatus {
        name: login.name,
        password: login.password,
        digests: false,
    })?;
    match reply {
        Reply::NodeStatus(status) => {
            let replicas = status.replicas.iter();
            Ok(replicas
                .map(|replica| (replica.group, replica.applied))
                .collect())
        }
        other => Err(unexpected("GetNodeStatus", &other)),
    }
}

/// Whether every group has come as far as it should.
fn contains(applied: &Applied, wanted: &Applied) -> bool {
    wanted
        .iter()
        .all(|(group, op)| applied.get(group) >= Some(op))
}

/// Sends one small message after the other, on a thread of its own.
struct Sender {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Latency, Error>>,
}

impl Sender {
    fn start(server: &Server, topic: &Topic) -> Result<Self, Error> {
        let mut connection = until_ok(|| server.log_in())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, message) = (Arc::clone(&is_over), message(topic));
        let thread = thread::spawn(move || {
            let mut latency = Latency::new();
            while !over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                // A view change in between is part of what a message takes.
                until_ok(|| accepted(connection.call(message.clone())?))?;
                latency.record(begin.elapsed());
            }
            Ok(latency)
        });
        Ok(Self { is_over, thread })
    }

    fn stop(self) -> Result<Latency, Error> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = || Error::Server("the sender's thread ended".into());
        self.thread.join().map_err(|_| ended())?
    }
}
