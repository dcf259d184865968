//! `join`: from joining a consumer group to owning partitions.

use std::time::{Duration, Instant};

use wire::{DeleteConsumerGroup, Reply};

use crate::{
    bench::Bench,
    connection::{Connection, unexpected},
    error::Error,
    figure::Section,
    flush::{Budget, Series},
    latency::Latency,
    member::Member,
    producer::{self, Load},
    target::{Group, Server, Topic},
};

/// Partitions of the topic.
const PARTITIONS: u32 = 8;

/// A grant of what nobody has owned takes one op of the metadata.
const FIRST: Budget = Budget {
    flushes: 1.5,
    rest: Duration::from_millis(1),
    text: "1.5 x 4-KiB write and flush + 1 ms",
};

/// A move takes three ops, each of which follows from the one before: the join, the fence, the new owner.
const NEWCOMER: Budget = Budget {
    flushes: 4.0,
    rest: Duration::from_millis(5),
    text: "4 x 4-KiB write and flush + 5 ms",
};

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

/// Joins groups without members, then one with a member that has nothing left to do.
///
/// # Errors
/// What stops a member or a probe.
pub(crate) fn measure(bench: &mut Bench, server: &mut Server) -> Result<Vec<Section>, Error> {
    Ok(vec![first(bench, server)?, newcomer(bench, server)?])
}

fn first(bench: &mut Bench, server: &mut Server) -> Result<Section, Error> {
    let joins = bench.pick(30, 200);
    let mut series = Series::begin(bench)?;
    for _ in 0..bench.rounds() {
        // A session of its own for every round: it is silent while the disk is measured.
        let mut connection = server.log_in()?;
        let topic = server.create_topic(&mut connection, PARTITIONS)?;
        let mut latency = Latency::new();
        for _ in 0..joins {
            let group = server.create_group(&mut connection, &topic)?;
            let begin = Instant::now();
            let mut member = Member::join(connection, &group)?;
            member.wait_until_owns(PARTITIONS)?;
            latency.record(begin.elapsed());
            connection = member.leave()?;
            delete(&mut connection, &group)?;
        }
        series.add(bench, &latency)?;
    }
    let name = format!("join: first member of a new group, {PARTITIONS} partitions");
    let mut section = Section::new(name);
    let target = "first member of a group, join to assignment";
    series.report(&mut section, "owns all of them after", target, FIRST);
    Ok(section)
}

fn newcomer(bench: &mut Bench, server: &mut Server) -> Result<Section, Error> {
    let joins = bench.pick(15, 100);
    let mut series = Series::begin(bench)?;
    for _ in 0..bench.rounds() {
        let mut connection = server.log_in()?;
        let topic = server.create_topic(&mut connection, PARTITIONS)?;
        supply(server, &connection, &topic, joins)?;
        let group = server.create_group(&mut connection, &topic)?;
        let mut latency = Latency::new();
        let mut member = Member::join(connection, &group)?;
        let mut newcomer = server.log_in()?;
        for _ in 0..joins {
            member.wait_until_owns(PARTITIONS)?;
            member.process_one_of_each()?;
            let begin = Instant::now();
            let mut joined = Member::join(newcomer, &group)?;
            joined.wait_until_owns(PARTITIONS / 2)?;
            latency.record(begin.elapsed());
            // It has to know of its loss before it can wait for what it gets back.
            member.wait_until_owns(PARTITIONS / 2)?;
            newcomer = joined.leave()?;
        }
        series.add(bench, &latency)?;
    }
    let name = format!("join: newcomer, takes half of {PARTITIONS} drained partitions");
    let mut section = Section::new(name);
    let target = "newcomer to a drained group, join to share";
    series.report(&mut section, "owns its share after", target, NEWCOMER);
    Ok(section)
}

/// Sends so many messages to each partition, each as a batch of its own: one poll serves one.
///
/// # Errors
/// What stops a producer.
pub(crate) fn supply(
    server: &Server,
    connection: &Connection,
    topic: &Topic,
    count: u32,
) -> Result<(), Error> {
    const SIZE: u64 = 100;
    let load = Load {
        producers: topic.partitions,
        batch: 1,
        message_size: SIZE,
        window: 64,
        total: SIZE * u64::from(topic.partitions) * u64::from(count),
        idempotent: false,
    };
    producer::run(server, connection.session(), topic, &load).map(|_| ())
}

fn delete(connection: &mut Connection, group: &Group) -> Result<(), Error> {
    let reply = connection.call(DeleteConsumerGroup {
        stream: group.topic.stream.clone(),
        topic: group.topic.identifier(),
        group: group.id.into(),
        force: false,
    })?;
    match reply {
        Reply::Done => Ok(()),
        other => Err(unexpected("DeleteConsumerGroup", &other)),
    }
}
