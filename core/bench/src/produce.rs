//! `produce`: latency of one producer, throughput of several.

use std::collections::BTreeMap;

use crate::{
    bench::Bench,
    cluster::NODES,
    disk::latency_of_several,
    error::Error,
    failover_broker::until_ok,
    figure::{Section, Side, Target, Unit, median},
    latency::Latency,
    loopback,
    probe::{SMALL_WRITE, journal_frame},
    process::Usage,
    producer::{self, Load, Outcome},
    target::{Server, Topic},
};

/// Bytes of the messages that the targets speak of.
const MESSAGE: u64 = 1024;

/// Producers, and messages of a batch, of the target for throughput.
const PRODUCERS: u32 = 8;
const BATCH: u32 = 1000;

/// Batches of a producer in flight: enough that the disk never waits for a producer.
const WINDOW: usize = 4;

/// The standard loads, or the one of the command line.
///
/// # Errors
/// What stops a producer or a probe.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let (mut server, _own) = bench.server()?;
    let sections = if bench.options.has_own_load() {
        let load = own_load(bench);
        vec![throughput(bench, &mut server, &load)?.0]
    } else {
        let load = standard_load(bench);
        vec![
            one_by_one(bench, &mut server)?,
            throughput(bench, &mut server, &load)?.0,
        ]
    };
    server.stop()?;
    Ok(sections)
}

/// What the target for throughput speaks of.
pub(crate) fn standard_load(bench: &Bench) -> Load {
    Load {
        producers: PRODUCERS,
        batch: BATCH,
        message_size: MESSAGE,
        window: WINDOW,
        total: bench.pick(1 << 30, 4 << 30),
        idempotent: bench.options.idempotent,
    }
}

fn own_load(bench: &Bench) -> Load {
    let standard = standard_load(bench);
    let options = &bench.options;
    Load {
        producers: options.producers.unwrap_or(standard.producers),
        batch: options.batch.unwrap_or(standard.batch),
        message_size: options.message_size.unwrap_or(standard.message_size),
        window: options.window.unwrap_or(standard.window),
        total: options.total.unwrap_or(standard.total),
        ..standard
    }
}

/// One producer, one message at a time, each acknowledged before the next.
///
/// # Errors
/// What stops the producer or a probe.
pub(crate) fn one_by_one(bench: &mut Bench, server: &mut Server) -> Result<Section, Error> {
    let load = Load {
        producers: 1,
        batch: 1,
        message_size: MESSAGE,
        window: 1,
        total: bench.pick(2_000, 5_000) * MESSAGE,
        idempotent: bench.options.idempotent,
    };
    let mut connection = server.log_in()?;
    let topic = server.create_topic(&mut connection, 1)?;
    let floor = match server.is_cluster() {
        true => Floor::OF_CLUSTER,
        false => Floor::OF_NODE,
    };
    let mut floors = vec![floor.take(bench)?];
    let mut medians = Vec::new();
    let mut all = Latency::new();
    let mut usages = Vec::new();
    for _ in 0..bench.rounds() {
        let Round { outcome, usage } = round(server, &topic, &load)?;
        medians.push(outcome.latency.median());
        all.merge(&outcome.latency);
        usages.extend(usage);
        floors.push(floor.take(bench)?);
    }
    let count = all.count();
    let mut section = Section::new("produce: 1 producer, 1 KiB at a time");
    section.latency("acknowledged after", all);
    if !usages.is_empty() {
        let usages: Vec<_> = usages.iter().collect();
        cpu_figures(&mut section, &usages, count as f64, "message");
    }
    let neighbours = means_of_neighbours(&floors);
    let name = format!("{}, p50", floor.text);
    section.figure(name, median(floors), Unit::Nanoseconds);
    section.target(Target {
        name: "one producer, 1 KiB at a time, p50".into(),
        of: floor.text,
        side: Side::AtMost,
        limit: floor.limit,
        measured: median(ratios(&medians, &neighbours)),
        unit: Unit::Ratio,
    });
    Ok(section)
}

/// What an acknowledgement is held against.
#[derive(Clone, Copy, Debug)]
struct Floor {
    text: &'static str,
    /// Who writes and flushes at once.
    writers: usize,
    flushes: f64,
    round_trips: f64,
    /// How many times that it may take.
    limit: f64,
}

impl Floor {
    /// The least that it can take: one write with its flush, and one round trip.
    const OF_NODE: Self = Self {
        text: "4-KiB write and flush + loopback round trip",
        writers: 1,
        flushes: 1.0,
        round_trips: 1.0,
        limit: 1.6,
    };

    /// All nodes have one disk here, and flush at about the same time.
    const OF_CLUSTER: Self = Self {
        text: "2 x 4-KiB write and flush of 3 writers + 3 loopback round trips",
        writers: NODES,
        flushes: 2.0,
        round_trips: 3.0,
        limit: 1.0,
    };

    /// By medians, nanoseconds.
    fn take(&self, bench: &mut Bench) -> Result<f64, Error> {
        let length = bench.length() / 2;
        let write = match self.writers {
            1 => bench.probe_files()?.latency(SMALL_WRITE, length)?,
            several => latency_of_several(bench.writers(several)?, SMALL_WRITE, length)?,
        };
        let trip = loopback::round_trip(length / 2)?;
        Ok(self.flushes * write.median() + self.round_trips * trip.median())
    }
}

/// What is measured of a throughput's round.
struct Round {
    outcome: Outcome,
    usage: Option<Usage>,
}

/// A load in rounds, with the disk's own bandwidth before, between and after; gives also the topic that is
/// full of messages then.
///
/// # Errors
/// What stops a producer or a probe.
pub(crate) fn throughput(
    bench: &mut Bench,
    server: &mut Server,
    load: &Load,
) -> Result<(Section, Topic), Error> {
    let count = bench.options.rounds.unwrap_or(bench.pick(2, 4));
    let share = Load {
        total: load.total / count as u64,
        ..*load
    };
    let mut connection = server.log_in()?;
    let topic = server.create_topic(&mut connection, load.producers)?;
    let mut bandwidths = vec![bandwidth(bench)?];
    let mut rounds = Vec::new();
    let views = connection.views()?;
    for _ in 0..count {
        rounds.push(round(server, &topic, &share)?);
        bandwidths.push(bandwidth(bench)?);
    }
    let (size, batch, producers) = (load.message_size, load.batch, load.producers);
    let mut section = Section::new(format!(
        "produce: {producers} producers, {batch} x {size} B per batch, {} in flight each",
        load.window
    ));
    report(&mut section, &rounds, &bandwidths);
    if server.is_cluster() {
        let now = until_ok(|| server.log_in())?.views()?;
        section.target(Target {
            name: "several producers, view changes meanwhile".into(),
            of: "no node fails",
            side: Side::AtMost,
            limit: 0.0,
            measured: now.saturating_sub(views) as f64,
            unit: Unit::Ratio,
        });
    }
    Ok((section, topic))
}

fn bandwidth(bench: &mut Bench) -> Result<f64, Error> {
    let total = bench.pick(256 << 20, 1 << 30);
    bench.probe_files()?.bandwidth(journal_frame(), total)
}

fn round(server: &Server, topic: &Topic, load: &Load) -> Result<Round, Error> {
    let connection = server.log_in()?;
    let before = server.usage()?;
    let outcome = producer::run(server, connection.session(), topic, load)?;
    let after = server.settled_usage()?;
    let usage = after
        .zip(before)
        .map(|(after, before)| after.since(&before));
    Ok(Round { outcome, usage })
}

fn report(section: &mut Section, rounds: &[Round], bandwidths: &[f64]) {
    let mut latency = Latency::new();
    let (mut payload, mut seconds) = (0, 0.0);
    for Round { outcome, .. } in rounds {
        latency.merge(&outcome.latency);
        payload += outcome.payload;
        seconds += outcome.elapsed.as_secs_f64();
    }
    section.figure("payload", payload as f64 / seconds, Unit::BytesPerSecond);
    section.latency("batch acknowledged after", latency);
    let again: u64 = rounds.iter().map(|round| round.outcome.again).sum();
    if again > 0 {
        section.figure("batches that were sent again", again as f64, Unit::Ratio);
    }
    section.figure(
        "flushed bandwidth of the disk",
        median(bandwidths.to_vec()),
        Unit::BytesPerSecond,
    );
    let usages: Option<Vec<_>> = rounds.iter().map(|round| round.usage.as_ref()).collect();
    let Some(usages) = usages else {
        return;
    };
    let written: u64 = usages.iter().map(|usage| usage.written).sum();
    let name = "bytes written to disk per payload byte";
    section.figure(name, written as f64 / payload as f64, Unit::Ratio);
    cpu_figures(section, &usages, payload as f64 / 1e6, "MB of payload");
    let rates: Vec<_> = rounds
        .iter()
        .zip(&usages)
        .map(|(round, usage)| usage.written as f64 / round.outcome.elapsed.as_secs_f64())
        .collect();
    section.target(Target {
        name: "several producers, bytes to disk per second".into(),
        of: "flushed bandwidth of the disk",
        side: Side::AtLeast,
        limit: 0.6,
        measured: median(ratios(&rates, &means_of_neighbours(bandwidths))),
        unit: Unit::Ratio,
    });
}

/// CPU time of the server for each of what it has done, in all and by kinds of threads that matter.
pub(crate) fn cpu_figures(section: &mut Section, usages: &[&Usage], done: f64, what: &str) {
    let mut cpu: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, nanoseconds) in usages.iter().flat_map(|usage| &usage.cpu) {
        *cpu.entry(name).or_default() += nanoseconds;
    }
    let all: u64 = cpu.values().sum();
    section.figure(
        format!("server's CPU per {what}"),
        all as f64 / done,
        Unit::Nanoseconds,
    );
    for (name, nanoseconds) in cpu {
        if nanoseconds > all / 100 {
            section.figure(
                format!("  of it {name}"),
                nanoseconds as f64 / done,
                Unit::Nanoseconds,
            );
        }
    }
}

/// Of n + 1 probes around n tests, the mean of the two next to each test.
pub(crate) fn means_of_neighbours(probes: &[f64]) -> Vec<f64> {
    probes
        .windows(2)
        .map(|pair| f64::midpoint(pair[0], pair[1]))
        .collect()
}

/// Each test against its probes.
pub(crate) fn ratios(tests: &[f64], probes: &[f64]) -> Vec<f64> {
    tests
        .iter()
        .zip(probes)
        .map(|(test, probe)| test / probe)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_held_against_the_probes_around_it() {
        let means = means_of_neighbours(&[1.0, 3.0, 5.0]);
        assert_eq!(means, [2.0, 4.0]);
        assert_eq!(ratios(&[4.0, 2.0], &means), [2.0, 0.5]);
    }
}
