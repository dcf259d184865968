//! `ping`: the smallest request on many connections.

use wire::FrameKind;

use crate::{
    bench::Bench,
    connection::Connection,
    error::Error,
    figure::{Section, Side, Target, Unit, median},
    latency::Latency,
    probe::{IN_FLIGHT, PINGERS, bare_echo},
    produce::{means_of_neighbours, ratios},
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
    let length = bench.length();
    let echo = || bare_echo(bench.shards, connections, in_flight, length);
    let mut echoes = vec![echo()?.rate];
    let mut rates = Vec::new();
    let mut latency = Latency::new();
    for _ in 0..bench.rounds() {
        let outcome = round(server, connections, in_flight, bench)?;
        rates.push(outcome.rate);
        latency.merge(&outcome.latency);
        echoes.push(echo()?.rate);
    }
    let mut section = Section::new(format!(
        "ping: {connections} connections, {in_flight} in flight each"
    ));
    let measured = median(ratios(&rates, &means_of_neighbours(&echoes)));
    section.figure("pings", median(rates), Unit::PerSecond);
    section.latency("answered after", latency);
    section.figure("bare echo next to it", median(echoes), Unit::PerSecond);
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
) -> Result<Outcome, Error> {
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
    requests::run(sockets, load)
}
