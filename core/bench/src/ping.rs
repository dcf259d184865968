//! `ping`: the smallest request on many connections.

use wire::FrameKind;

use crate::{
    bench::Bench,
    connection::Connection,
    error::Error,
    figure::{Section, Side, Target, Unit, median},
    latency::Latency,
    probe::{IN_FLIGHT, PINGERS, bare_echo},
    process::Usage,
    produce::{cpu_figures, means_of_neighbours, ratios},
    requests::{self, Load, Outcome},
    target::Server,
};

/// Starts a server and measures it.
///
/// # Errors
/// What stops a connection or a probe.
pub(crate) fn run(bench: &mut Bench) -> Result<Section, Error> {
    let (server, _own) = bench.server()?;
    let section = measure(bench, &server)?;
    server.stop()?;
    Ok(section)
}

/// Pings a server, and the bare echo before and after.
///
/// # Errors
/// What stops a connection or a probe.
pub(crate) fn measure(bench: &Bench, server: &Server) -> Result<Section, Error> {
    let connections = bench.options.connections.unwrap_or(PINGERS);
    let in_flight = bench.options.in_flight.unwrap_or(IN_FLIGHT);
    let echo = || bare_echo(bench.shards, connections, in_flight, bench.length());
    let (mut rates, mut latency, mut usages) = (Vec::new(), Latency::new(), Vec::new());
    let (mut echoes, mut answered) = (vec![echo()?], 0);
    for _ in 0..bench.rounds() {
        let (outcome, usage) = round(server, connections, in_flight, bench)?;
        rates.push(outcome.rate);
        latency.merge(&outcome.latency);
        answered += outcome.answered;
        usages.extend(usage);
        echoes.push(echo()?);
    }
    let bare: Vec<_> = echoes.iter().map(|(outcome, _)| outcome.rate).collect();
    let mut section = Section::new(format!(
        "ping: {connections} connections, {in_flight} in flight each"
    ));
    let measured = median(ratios(&rates, &means_of_neighbours(&bare)));
    section.figure("pings", median(rates), Unit::PerSecond);
    section.latency("answered after", latency);
    if !usages.is_empty() {
        let usages: Vec<_> = usages.iter().collect();
        cpu_figures(&mut section, &usages, answered as f64, "ping");
    }
    section.figure("bare echo next to it", median(bare), Unit::PerSecond);
    let cpu: u64 = echoes.iter().map(|(_, cpu)| cpu).sum();
    let echoed: u64 = echoes.iter().map(|(outcome, _)| outcome.answered).sum();
    let name = "bare echo's CPU per request";
    section.figure(name, cpu as f64 / echoed as f64, Unit::Nanoseconds);
    section.target(Target {
        name: "pings".into(),
        of: "bare echo on as many threads",
        side: Side::AtLeast,
        limit: 0.5,
        measured,
        unit: Unit::Ratio,
    });
    Ok(section)
}

fn round(
    server: &Server,
    connections: u32,
    in_flight: usize,
    bench: &Bench,
) -> Result<(Outcome, Option<Usage>), Error> {
    let login = server.log_in()?;
    let session = login.session();
    let mut sockets = Vec::new();
    for _ in 0..connections {
        sockets.push(Connection::attach(server.address(), session)?.into_socket());
    }
    let load = Load {
        in_flight,
        length: bench.length(),
        answers: FrameKind::Reply,
        session: Some(session),
    };
    let before = server.usage()?;
    let outcome = requests::run(sockets, load)?;
    Ok((outcome, server.usage_since(before.as_ref())?))
}
