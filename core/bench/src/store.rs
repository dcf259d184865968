//! `store`: offsets stored per second, by one member of a consumer group and by many.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::{
    bench::Bench,
    connection::{Connection, Session},
    error::Error,
    figure::{Section, Side, Target, Unit, median},
    flush::flushed_write,
    latency::Latency,
    member::Member,
    probe::bare_echo,
    process::Usage,
    produce::{cpu_figures, means_of_neighbours, ratios},
    producer::{self, Load},
    requests::{self, Outcome},
    start::IdleSessions,
    storer::{self, Storer},
    target::{Server, Topic},
};

/// Members of the many, each with a partition.
const MEMBERS: u32 = 100;

/// Stores per second that they are expected to do together.
const MANY: f64 = 20_000.0;

/// Share of the disk's flushes per second that one member is expected to store.
const ONE: f64 = 0.8;

/// What a member polls at once, messages.
const POLLED: u32 = 1_000;

/// Starts a server and measures it.
///
/// # Errors
/// What stops a member or a probe.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let (mut server, _own) = bench.server()?;
    let sections = measure(bench, &mut server)?;
    server.stop()?;
    Ok(sections)
}

/// One member that stores after every message, then many.
///
/// # Errors
/// What stops a member or a probe.
pub(crate) fn measure(bench: &mut Bench, server: &mut Server) -> Result<Vec<Section>, Error> {
    Ok(vec![one(bench, server)?, many(bench, server)?])
}

fn one(bench: &mut Bench, server: &mut Server) -> Result<Section, Error> {
    let mut connection = server.log_in()?;
    let topic = server.create_topic(&mut connection, 1)?;
    let group = server.create_group(&mut connection, &topic)?;
    let mut member = Member::join(connection, &group)?;
    member.wait_until_owns(1)?;
    let (mut rates, mut all) = (Vec::new(), Latency::new());
    let mut flushes = vec![flushes_per_second(&flushed_write(bench)?)];
    for _ in 0..bench.rounds() {
        // More than can be stored one by one.
        supply(server, member.session(), &topic, bench.pick(50, 100))?;
        let (rate, latency) = store_each(&mut member, bench.length())?;
        rates.push(rate);
        all.merge(&latency);
        flushes.push(flushes_per_second(&flushed_write(bench)?));
    }
    let measured = median(ratios(&rates, &means_of_neighbours(&flushes)));
    let mut section = Section::new("store: 1 member, after every message");
    section.figure("stores", median(rates), Unit::PerSecond);
    section.latency("stored after", all);
    let name = "writes and flushes of 4 KiB next to it";
    section.figure(name, median(flushes), Unit::PerSecond);
    section.target(Target {
        name: "one member stores after every message".into(),
        of: "4-KiB writes and flushes, one after the other",
        side: Side::AtLeast,
        limit: ONE,
        measured,
        unit: Unit::Ratio,
    });
    Ok(section)
}

/// A rate is held against a rate: the mean counts, not the median.
fn flushes_per_second(flush: &Latency) -> f64 {
    1e9 / flush.mean()
}

/// Polls ahead and stores after each message; gives the stores per second, polls included, and how long
/// each store took.
fn store_each(member: &mut Member, length: Duration) -> Result<(f64, Latency), Error> {
    let partition = member.owned()[0].clone();
    let mut latency = Latency::new();
    let begin = Instant::now();
    'polls: loop {
        for offset in member.poll(&partition, POLLED)? {
            if begin.elapsed() >= length {
                break 'polls;
            }
            let sent = Instant::now();
            member.store(&partition, offset)?;
            latency.record(sent.elapsed());
        }
    }
    let rate = latency.count() as f64 / begin.elapsed().as_secs_f64();
    Ok((rate, latency))
}

fn many(bench: &Bench, server: &mut Server) -> Result<Section, Error> {
    let count = bench.options.connections.unwrap_or(MEMBERS);
    let mut connection = server.log_in()?;
    let topic = server.create_topic(&mut connection, count)?;
    let mut members = join_all(server, connection, &topic)?;
    let echo = || bare_echo(bench.shards, count, 1, bench.length());
    let mut echoes = vec![echo()?.0.rate];
    let (mut rates, mut latency, mut usages) = (Vec::new(), Latency::new(), Vec::new());
    let mut answered = 0;
    // More than one member can store of its partition.
    let batches = bench.pick(1, 4);
    for round in 0..bench.rounds() as u64 {
        let session = members[0].session();
        let each = supply(server, session, &topic, batches)?;
        let offsets = round * each..(round + 1) * each;
        let (outcome, usage) = round_of_many(server, &mut members, &offsets, bench.length())?;
        rates.push(outcome.rate);
        latency.merge(&outcome.latency);
        answered += outcome.answered;
        usages.extend(usage);
        echoes.push(echo()?.0.rate);
    }
    let mut section = Section::new(format!("store: {count} members, one store in flight each"));
    let stores = median(rates);
    section.figure("stores", stores, Unit::PerSecond);
    section.latency("stored after", latency);
    if !usages.is_empty() {
        let usages: Vec<_> = usages.iter().collect();
        cpu_figures(&mut section, &usages, answered as f64, "store");
    }
    let name = "bare echo next to it";
    section.figure(name, median(echoes), Unit::PerSecond);
    section.target(Target {
        name: format!("{count} members store"),
        of: "stores per second",
        side: Side::AtLeast,
        limit: MANY,
        measured: stores,
        unit: Unit::PerSecond,
    });
    Ok(section)
}

/// Sends so many batches of small messages to each partition; gives the number of messages of each.
fn supply(server: &Server, session: Session, topic: &Topic, batches: u64) -> Result<u64, Error> {
    let load = Load {
        producers: topic.partitions,
        batch: POLLED,
        message_size: 16,
        window: 4,
        total: batches * u64::from(POLLED) * 16 * u64::from(topic.partitions),
        idempotent: false,
    };
    producer::run(server, session, topic, &load)?;
    Ok(batches * u64::from(POLLED))
}

/// Members with sessions of their own; each owns one partition in the end.
fn join_all(
    server: &mut Server,
    mut connection: Connection,
    topic: &Topic,
) -> Result<Vec<Member>, Error> {
    let group = server.create_group(&mut connection, topic)?;
    let mut sessions = IdleSessions::new(server);
    sessions.grow(topic.partitions as usize)?;
    let mut members = Vec::new();
    for connection in sessions.into_connections() {
        members.push(Member::join(connection, &group)?);
    }
    for member in &mut members {
        // What it was told before the last one had joined is not its share.
        member.sync()?;
        member.wait_until_owns(1)?;
    }
    Ok(members)
}

fn round_of_many(
    server: &Server,
    members: &mut [Member],
    offsets: &Range<u64>,
    length: Duration,
) -> Result<(Outcome, Option<Usage>), Error> {
    let mut storers = Vec::new();
    for member in members {
        member.give_sign()?;
        let session = member.session();
        let store = member.store_request(&member.owned()[0], 0);
        storers.push(Storer {
            socket: Connection::attach(server.address(), session)?.into_socket(),
            session,
            store,
            offsets: offsets.clone(),
        });
    }
    let before = server.usage()?;
    let outcome = requests::count(length, move |tally| storer::drive(storers, tally))?;
    Ok((outcome, server.usage_since(before.as_ref())?))
}
