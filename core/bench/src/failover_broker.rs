//! `failover-broker`: how soon a cluster goes on when the node that leads a partition dies.

use std::{
    net::SocketAddr,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;
use wire::{
    Acknowledgement, BatchBuilder, ConsensusGroup, Consumer, Epoch, ErrorCode, GetTopic, Message,
    Offset, PartitionId, PartitionTarget, ProducerId, Reply, Request, SendMessages, SendSection,
    StoreConsumerOffset, StoreSection,
};

use crate::{
    bench::Bench,
    cluster::{Cluster, NODES},
    connection::{Connection, unexpected},
    error::Error,
    figure::{Section, Side, Target, Unit},
    latency::Latency,
    noise::noise,
    target::{Server, Topic},
};

/// Bytes of a message.
const MESSAGE: usize = 1024;

/// Messages sent before each fault, so that all nodes have caught up with the one before.
const WARM_UP: usize = 50;

/// Between two attempts at a node that does not serve.
const PAUSE: Duration = Duration::from_micros(500);

/// How long a cluster may take to go on.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients of the node that dies that log in at each of the others.
const CROWD: usize = 50;

/// The limits, nanoseconds: median and 99th percentile of a death, and how much a crowd may cost.
const DEATH: (f64, f64) = (50e6, 150e6);
const CROWD_FACTOR: f64 = 2.0;

/// The same for a node that only stands still: it has to be suspected first.
const SUSPICION: f64 = 150e6;
const PAUSED: (f64, f64) = (SUSPICION + 100e6, SUSPICION + 300e6);

/// What happens to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Paused,
}

/// Starts a cluster and lets its primaries die.
///
/// # Errors
/// `Usage` with a server that runs already; what stops a node or a client.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let mut launch = bench.launch()?;
    launch.is_cluster = true;
    let (mut server, _) = Server::start(&launch)?;
    let mut connection = server.log_in()?;
    let topic = server.create_topic(&mut connection, 1)?;
    drop(connection);
    let kills = bench.options.kills.unwrap_or(bench.pick(10, 50));
    let mut sections = Vec::new();
    for (name, fault, crowd) in [
        ("a primary is killed", Fault::Killed, 0),
        (
            "a primary is killed, 50 clients come to each of the others",
            Fault::Killed,
            CROWD,
        ),
        ("a primary stands still", Fault::Paused, 0),
    ] {
        let mut measured = Measured::default();
        for _ in 0..kills {
            fail_over(&mut server, &topic, (fault, crowd), &mut measured)?;
        }
        sections.push(section(name, measured, limits(fault, crowd)));
    }
    server.stop()?;
    Ok(sections)
}

/// How long it took from the fault on.
#[derive(Debug)]
struct Measured {
    /// Until the next message was acknowledged.
    sent: Latency,
    /// Until the next offset was stored after it.
    stored: Latency,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            sent: Latency::new(),
            stored: Latency::new(),
        }
    }
}

fn limits(fault: Fault, crowd: usize) -> (f64, f64) {
    match fault {
        Fault::Paused => PAUSED,
        Fault::Killed if crowd > 0 => (DEATH.0 * CROWD_FACTOR, DEATH.1 * CROWD_FACTOR),
        Fault::Killed => DEATH,
    }
}

fn section(name: &str, measured: Measured, (median, p99): (f64, f64)) -> Section {
    let mut section = Section::new(format!("failover of a broker: {name}"));
    let both = measured.stored.clone();
    section.figure("times", measured.sent.count() as f64, Unit::Ratio);
    section.latency("next message acknowledged after", measured.sent);
    section.latency("and an offset stored after", measured.stored);
    for (quantile, text, limit) in [(0.5, "p50", median), (0.99, "p99", p99)] {
        section.target(Target {
            name: format!("{name}, {text}"),
            of: "until the next message is acknowledged and an offset stored",
            side: Side::AtMost,
            limit,
            measured: both.quantile(quantile),
            unit: Unit::Nanoseconds,
        });
    }
    section
}

/// One fault of the node that leads the topic's partition, seen by a client of another node.
fn fail_over(
    server: &mut Server,
    topic: &Topic,
    (fault, crowd): (Fault, usize),
    measured: &mut Measured,
) -> Result<(), Error> {
    let first = server.address();
    let leader = leader(&mut until_ok(|| server.log_in_at(first))?, topic)?;
    let survivors = [(leader + 1) % NODES, (leader + 2) % NODES];
    let addresses = survivors.map(|id| cluster(server).address(id));
    let victim = cluster(server).address(leader);
    let mut client = until_ok(|| server.log_in_at(addresses[0]))?;
    let message = message(topic);
    for _ in 0..WARM_UP {
        until_ok(|| client.call(message.clone()))?;
    }
    let crowd = gather(server, crowd, victim, addresses)?;
    let begin = Instant::now();
    match fault {
        Fault::Killed => cluster(server).kill(leader)?,
        Fault::Paused => cluster(server).pause(leader)?,
    }
    let reply = until_ok(|| accepted(client.call(message.clone())?))?;
    measured.sent.record(begin.elapsed());
    let store = store(topic, offset_of(&reply)?);
    until_ok(|| stored(client.call(store.clone())?))?;
    measured.stored.record(begin.elapsed());
    match fault {
        Fault::Killed => cluster(server).start_again(leader)?,
        Fault::Paused => cluster(server).resume(leader)?,
    }
    for member in crowd {
        member
            .join()
            .map_err(|_| Error::Server("a client's thread ended".into()))?;
    }
    Ok(())
}

fn cluster(server: &mut Server) -> &mut Cluster {
    server.cluster_mut().expect("it was started as one")
}

/// Clients that lose their connection to a node and log in at the others, as fast as these let them.
fn gather(
    server: &Server,
    per_survivor: usize,
    victim: SocketAddr,
    survivors: [SocketAddr; 2],
) -> Result<Vec<JoinHandle<()>>, Error> {
    let mut crowd = Vec::new();
    for address in survivors.into_iter().cycle().take(2 * per_survivor) {
        let mut connection = Connection::open(victim)?;
        let login = server.login();
        crowd.push(thread::spawn(move || {
            // Nothing comes but the end.
            while connection.receive().is_ok() {}
            let again = || {
                let mut connection = Connection::open(address)?;
                connection.log_in(&login.name, &login.password.0)
            };
            // One that does not get in has done its part: it kept the node busy.
            let _ = until_ok(again);
        }));
    }
    Ok(crowd)
}

/// The node that leads the partition, once every consensus group is known to be led.
fn leader(connection: &mut Connection, topic: &Topic) -> Result<usize, Error> {
    let get = GetTopic {
        stream: topic.stream.clone(),
        topic: topic.identifier(),
    };
    let group = match until_ok(|| connection.call(get.clone()))? {
        Reply::Topic(details) => details.partitions.first().map(|partition| partition.group),
        other => return Err(unexpected("GetTopic", &other)),
    };
    let group = group.ok_or_else(|| Error::answer("GetTopic", "the topic has no partition"))?;
    // Whoever answers a message leads the group, or knows who does.
    until_ok(|| accepted(connection.call(message(topic))?))?;
    match connection.call(Request::GetClusterMetadata)? {
        Reply::ClusterMetadata(metadata) => {
            let is_it = |known: ConsensusGroup| known == group;
            let primary = metadata.groups.iter().find(|found| is_it(found.group));
            let primary = primary.ok_or_else(|| Error::answer("GetClusterMetadata", "no group"))?;
            Ok(usize::from(primary.primary.0))
        }
        other => Err(unexpected("GetClusterMetadata", &other)),
    }
}

/// Tries until it succeeds; what cannot succeed later is an error at once.
///
/// # Errors
/// The last attempt's.
pub(crate) fn until_ok<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if begin.elapsed() > PATIENCE || !is_passing(&error) => return Err(error),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Whether it may be another thing a moment later.
pub(crate) fn is_passing(error: &Error) -> bool {
    match error {
        // A message that is there twice does no harm here.
        Error::Refused { failure, .. } => {
            failure.code.retryable() || failure.code == ErrorCode::OutcomeUnknown
        }
        Error::Io { .. } => true,
        Error::Usage(_) | Error::Answer { .. } | Error::Server(_) => false,
    }
}

pub(crate) fn message(topic: &Topic) -> SendMessages {
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: Bytes::from(noise(7, MESSAGE)),
        ..Message::default()
    });
    SendMessages {
        stream: topic.stream.clone(),
        topic: topic.identifier(),
        acknowledgement: Acknowledgement::Quorum,
        sections: vec![SendSection {
            target: PartitionTarget::Explicit(PartitionId(0)),
            batch: builder.build(ProducerId(0), 0),
        }],
    }
}

fn store(topic: &Topic, offset: Offset) -> StoreConsumerOffset {
    StoreConsumerOffset {
        stream: topic.stream.clone(),
        topic: topic.identifier(),
        consumer: Consumer::Single("bench".into()),
        sections: vec![StoreSection {
            partition: PartitionId(0),
            epoch: Epoch(0),
            offset,
        }],
    }
}

pub(crate) fn accepted(reply: Reply) -> Result<Reply, Error> {
    if let Reply::Sent(sent) = &reply
        && let Some(Err(failure)) = sent.sections.first().map(|section| &section.status)
    {
        return Err(refused("SendMessages", failure));
    }
    Ok(reply)
}

fn stored(reply: Reply) -> Result<(), Error> {
    match &reply {
        Reply::OffsetsStored(stored) => match stored.sections.first().map(|it| &it.status) {
            Some(Err(failure)) => Err(refused("StoreConsumerOffset", failure)),
            Some(Ok(())) | None => Ok(()),
        },
        other => Err(unexpected("StoreConsumerOffset", other)),
    }
}

fn refused(what: &str, failure: &wire::Failure) -> Error {
    Error::Refused {
        what: what.into(),
        failure: failure.clone(),
    }
}

fn offset_of(reply: &Reply) -> Result<Offset, Error> {
    let Reply::Sent(sent) = reply else {
        return Err(unexpected("SendMessages", reply));
    };
    let offset = sent
        .sections
        .first()
        .and_then(|section| section.base_offset);
    offset.ok_or_else(|| Error::answer("SendMessages", "no offset"))
}
