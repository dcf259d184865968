//! `start`: how long a server takes to serve, and what it holds when nobody asks.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::{Command, Reply, Request};

use crate::{
    bench::Bench,
    connection::{Connection, unexpected},
    error::{During, Error},
    figure::{Section, Side, Target, Unit, median},
    produce::standard_load,
    producer::{self, Load},
    server::{Launch, Startup},
    target::Server,
};

/// Bytes in segments at the restart that a target speaks of.
const FILLED: u64 = 1 << 30;

/// A server counts as idle so long after it has done something.
const REST: Duration = Duration::from_secs(1);

/// Logins that are sent before their answers are awaited: both threads that check passwords have work.
const LOGINS_AT_ONCE: usize = 8;

/// A session that is silent for longer may end.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// Everything of this command, each on a server of its own.
///
/// # Errors
/// `Usage` with a server that runs already; what stops a server or a producer.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let mut sections = vec![empty(bench)?, sessions(bench)?];
    let launch = bench.launch()?;
    let (mut server, _) = Server::start(&launch)?;
    let mut connection = server.log_in()?;
    let standard = standard_load(bench);
    let load = Load {
        total: FILLED + (64 << 20),
        ..standard
    };
    let topic = server.create_topic(&mut connection, load.producers)?;
    producer::run(&server, connection.session(), &topic, &load)?;
    server.settled_usage()?;
    sections.push(filled(bench, &launch, server)?);
    Ok(sections)
}

/// A server without messages: its first start, which formats the directory, later ones, and its memory.
///
/// # Errors
/// What stops a server.
pub(crate) fn empty(bench: &mut Bench) -> Result<Section, Error> {
    let launch = bench.launch()?;
    let (server, first) = Server::start(&launch)?;
    server.stop()?;
    let mut startups = Vec::new();
    let mut idle = 0;
    for _ in 0..bench.rounds() {
        let (server, startup) = Server::start(&launch)?;
        startups.push(startup);
        thread::sleep(REST);
        idle = server.resident()?.unwrap_or(0).max(idle);
        server.stop()?;
    }
    Bench::remove(&launch)?;
    let mut section = Section::new("start: no messages");
    section.figure(
        "first start, until a ping",
        nanoseconds(first.ping),
        Unit::Nanoseconds,
    );
    section.figure(
        "first start, until a login",
        nanoseconds(first.login),
        Unit::Nanoseconds,
    );
    let login = startup_figures(&mut section, &startups);
    section.figure("resident, idle", idle as f64, Unit::Bytes);
    section.target(Target {
        name: "start on a formatted directory".into(),
        of: "until the first login is answered",
        side: Side::AtMost,
        limit: 300e6,
        measured: login,
        unit: Unit::Nanoseconds,
    });
    section.target(Target {
        name: "idle server".into(),
        of: "resident memory",
        side: Side::AtMost,
        limit: 64.0 * 1024.0 * 1024.0,
        measured: idle as f64,
        unit: Unit::Bytes,
    });
    Ok(section)
}

/// Restarts a server with at least 1 GiB in segments: killed first, then stopped in order.
///
/// # Errors
/// What stops a server.
pub(crate) fn filled(bench: &Bench, launch: &Launch, server: Server) -> Result<Section, Error> {
    let mut section = Section::new("start: 1 GiB or more in segments");
    server.kill()?;
    let mut killed = Vec::new();
    for _ in 0..bench.rounds() {
        let (server, startup) = Server::start(launch)?;
        killed.push(startup);
        server.kill()?;
    }
    let measured = startup_figures(&mut section, &killed);
    section.target(Target {
        name: "restart with 1 GiB in segments, after SIGKILL".into(),
        of: "until the first login is answered",
        side: Side::AtMost,
        limit: 2e9,
        measured,
        unit: Unit::Nanoseconds,
    });
    Ok(section)
}

/// Medians; gives that of the time until a login.
fn startup_figures(section: &mut Section, startups: &[Startup]) -> f64 {
    let of = |time: fn(&Startup) -> Duration| {
        let times = startups.iter().map(|startup| nanoseconds(time(startup)));
        median(times.collect())
    };
    let (ping, login) = (of(|startup| startup.ping), of(|startup| startup.login));
    section.figure("start, until a ping", ping, Unit::Nanoseconds);
    section.figure("start, until a login", login, Unit::Nanoseconds);
    login
}

/// What sessions hold that are logged in, each on a connection of its own, and silent but for their signs
/// of life.
///
/// # Errors
/// What stops a server or a session.
pub(crate) fn sessions(bench: &mut Bench) -> Result<Section, Error> {
    let count = bench.options.sessions.unwrap_or(bench.pick(400, 10_000));
    raise_file_limit(count + 1_000)?;
    let launch = bench.launch()?;
    let (server, _) = Server::start(&launch)?;
    // What the first ones need for all that follow is not theirs.
    let warm = 2 * LOGINS_AT_ONCE;
    let mut idle = IdleSessions::new(&server);
    idle.grow(warm)?;
    thread::sleep(REST);
    let before = server.resident()?;
    let begin = Instant::now();
    idle.grow(count)?;
    let took = begin.elapsed();
    idle.give_signs()?;
    thread::sleep(REST);
    let after = server.resident()?;
    drop(idle);
    server.stop()?;
    Bench::remove(&launch)?;
    let mut section = Section::new(format!("start: {count} idle sessions"));
    section.figure("all logins", nanoseconds(took), Unit::Nanoseconds);
    if let Some((after, before)) = after.zip(before) {
        let each = after.saturating_sub(before) as f64 / count as f64;
        section.figure("resident, with the sessions", after as f64, Unit::Bytes);
        section.target(Target {
            name: format!("{count} idle sessions"),
            of: "resident memory of each",
            side: Side::AtMost,
            limit: 16.0 * 1024.0,
            measured: each,
            unit: Unit::Bytes,
        });
    }
    Ok(section)
}

/// Sessions that do nothing but live, each on a connection of its own.
pub(crate) struct IdleSessions<'a> {
    server: &'a Server,
    connections: Vec<Connection>,
    last_sign: Instant,
}

impl<'a> IdleSessions<'a> {
    pub(crate) fn new(server: &'a Server) -> Self {
        Self {
            server,
            connections: Vec::new(),
            last_sign: Instant::now(),
        }
    }

    /// Logs so many more in.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), Error> {
        let goal = self.connections.len() + count;
        while self.connections.len() < goal {
            let start = self.connections.len();
            for _ in 0..LOGINS_AT_ONCE.min(goal - start) {
                let mut connection = Connection::open(self.server.address())?;
                connection.send(&self.server.login().into())?;
                self.connections.push(connection);
            }
            for connection in &mut self.connections[start..] {
                connection.take_login()?;
            }
            if self.last_sign.elapsed() > SIGN_OF_LIFE {
                self.give_signs()?;
            }
        }
        Ok(())
    }

    /// Their connections, for other uses.
    pub(crate) fn into_connections(self) -> Vec<Connection> {
        self.connections
    }

    fn give_signs(&mut self) -> Result<(), Error> {
        self.last_sign = Instant::now();
        for connection in &mut self.connections {
            connection.send(&Request::Ping)?;
        }
        for connection in &mut self.connections {
            match connection.receive()?.decode(Command::Ping)? {
                Reply::Done => {}
                other => return Err(unexpected("Ping", &other)),
            }
        }
        Ok(())
    }
}

/// One file for each connection.
fn raise_file_limit(count: usize) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    let needed = Some(count as u64);
    if limit.current.is_none() || limit.current >= needed {
        return Ok(());
    }
    let maximum = match limit.maximum {
        Some(maximum) if Some(maximum) < needed => needed,
        maximum => maximum,
    };
    let raised = Rlimit {
        current: needed,
        maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(std::io::Error::from)
        .during(format!("raise the limit of open files to {count}"))
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}
