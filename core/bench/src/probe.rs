//! `probe`: the machine alone.

use std::{net::TcpStream, time::Duration};

use wire::FrameKind;

use crate::{
    bare::{BareServer, Duty},
    bench::Bench,
    disk::file_system,
    error::{During, Error},
    figure::{Section, Unit},
    loopback,
    requests::{self, Load, Outcome},
};

/// The smallest frame of a journal.
pub(crate) const SMALL_WRITE: usize = 4 << 10;

/// Larger ones, to show how the time grows with the size.
const LARGER_WRITES: [(usize, &str); 3] =
    [(64 << 10, "64 KiB"), (1 << 20, "1 MiB"), (4 << 20, "4 MiB")];

/// Connections of a consumer's load and of the bare transfer that it is held against.
pub(crate) const CONSUMERS: u32 = 8;

/// Connections of the load of pings.
pub(crate) const PINGERS: u32 = 64;

/// Requests in flight on each of them.
pub(crate) const IN_FLIGHT: usize = 16;

/// What a loaded journal writes and flushes at once, bytes.
pub(crate) fn journal_frame() -> usize {
    let config = journal::Config::new(0, journal::UnitSize::Bytes4096);
    usize::try_from(config.frame_size).expect("a frame fits memory")
}

/// Everything that the other measurements are held against.
///
/// # Errors
/// `Io`.
pub(crate) fn run(bench: &mut Bench) -> Result<Section, Error> {
    let mut section = Section::new("probe");
    let length = bench.length();
    disk(bench, &mut section, length)?;
    section.latency("loopback round trip, 64 B", loopback::round_trip(length)?);
    let connections = bench.options.connections.unwrap_or(CONSUMERS);
    let (transfer, _) = loopback::transfer(bench.shards, connections, length)?;
    let name = format!("loopback transfer, {connections} connections");
    section.figure(name, transfer.rate, Unit::BytesPerSecond);
    let connections = bench.options.connections.unwrap_or(PINGERS);
    let in_flight = bench.options.in_flight.unwrap_or(IN_FLIGHT);
    let (echo, _) = bare_echo(bench.shards, connections, in_flight, length)?;
    let name = format!("bare echo, {connections} connections, {in_flight} in flight");
    section.figure(format!("{name}, requests"), echo.rate, Unit::PerSecond);
    section.latency(&name, echo.latency);
    Ok(section)
}

fn disk(bench: &mut Bench, section: &mut Section, length: Duration) -> Result<(), Error> {
    if let Some(kind @ ("tmpfs" | "ramfs")) = file_system(bench.directory()).as_deref() {
        section.name = format!("probe (the directory is on {kind}: flushing costs nothing there)");
    }
    let total = bench.pick(512 << 20, 2 << 30);
    let files = bench.probe_files()?;
    let small = files.latency(SMALL_WRITE, length)?;
    section.latency("write and flush 4 KiB", small);
    for (size, name) in LARGER_WRITES {
        let latency = files.latency(size, length / 2)?;
        section.latency(&format!("write and flush {name}"), latency);
    }
    let frame = journal_frame();
    let bandwidth = files.bandwidth(frame, total)?;
    let name = format!("flushed bandwidth, {} MiB at once", frame >> 20);
    section.figure(name, bandwidth, Unit::BytesPerSecond);
    Ok(())
}

/// The load of pings against a server that only echoes; gives also the CPU time of that server's threads,
/// nanoseconds.
///
/// # Errors
/// `Io`.
pub(crate) fn bare_echo(
    threads: u16,
    connections: u32,
    in_flight: usize,
    length: Duration,
) -> Result<(Outcome, u64), Error> {
    let server = BareServer::start(threads, Duty::Echo)?;
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let socket = TcpStream::connect(server.address()).during("connect to a bare server")?;
        socket.set_nodelay(true).during("configure a connection")?;
        sockets.push(socket);
    }
    let load = Load {
        in_flight,
        length,
        answers: FrameKind::Request,
        session: None,
    };
    let outcome = requests::run(sockets, load)?;
    Ok((outcome, server.cpu()?))
}
