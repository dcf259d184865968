//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use lexopt::{
    Arg::{Long, Short, Value},
    Parser, ValueExt,
};

use crate::error::Error;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Measures a Cohort server against what its disk, network and runtime can do.

Usage: cohort-bench COMMAND [OPTIONS]

Commands:
  probe     The machine alone: flushed writes, loopback, a bare echo
  produce   Latency of one producer, throughput of several, bytes written per byte sent
  consume   Throughput from memory and from the page cache
  ping      The smallest request on many connections
  start     Time to start, resident memory, memory of idle sessions
  join      Consumer groups: from a join to the first partitions, and to a newcomer's share
  handover  Consumer groups: from a newcomer's join to its first message
  failover-consumer
            Consumer groups: from a consumer's death to its messages elsewhere
  store     Offsets stored one after the other, and by a hundred consumers
  failover-broker
            Three nodes: from a primary's death to the next message and the next stored offset
  rejoin    Three nodes: one has lost its disk and comes back from the others
  rebalance
            Consumer groups: ten members at work on 900 partitions, a thousand on a thousand
  idle      Three nodes with 10,000 partitions and 1,000 consumer groups, and nothing to do
  all       Everything, with a table of targets

How long the plan of a large consumer group takes needs no server: cargo bench -p coordinator

Where:
  --dir DIR            Directory for data and probe files [the system's temporary directory]
  --server PATH        The server program [cohort-server beside this program]
  --shards N           Shards of the server, threads of the bare servers [one per core]
  --address ADDR       Measure a server that runs already; user and password are taken from
                       COHORT_USER and COHORT_PASSWORD. --shards must be what it runs with

  --cluster            Three nodes on this machine, for produce, consume, ping, join, handover, store

How much:
  --quick              About a minute and a half for everything
  --rounds N           How often each test is repeated between its probes
  --producers N        produce: this load instead of the standard ones
  --batch N            produce: messages per batch
  --message-size SIZE  produce: bytes of a message
  --window N           produce: batches of a producer that are not acknowledged
  --total SIZE         produce, rejoin: bytes of messages in all
  --idempotent         produce: number the batches of each producer
  --connections N      consume, ping: connections; store: consumers
  --poll-size SIZE     consume: bytes asked for at once
  --verify             consume: check every checksum and every offset
  --in-flight N        ping: requests of a connection that are not answered
  --sessions N         start: idle sessions
  --kills N            failover-broker: primaries killed

Output:
  --json               JSON instead of tables
  --plot FILE.svg      Latencies by percentile
  -h, --help           This text

Sizes are bytes, or with a unit: 64KiB, 512MiB, 4GiB. Example:
  cohort-bench produce --producers 4 --batch 100 --message-size 1KiB --total 1GiB
";

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Probe,
    Produce,
    Consume,
    Ping,
    Start,
    Join,
    Handover,
    FailoverConsumer,
    Store,
    FailoverBroker,
    Rejoin,
    Idle,
    Rebalance,
    All,
}

/// The command line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) command: Command,
    pub(crate) directory: PathBuf,
    pub(crate) server: Option<PathBuf>,
    pub(crate) shards: Option<u16>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) cluster: bool,
    pub(crate) quick: bool,
    pub(crate) rounds: Option<usize>,
    pub(crate) producers: Option<u32>,
    pub(crate) batch: Option<u32>,
    pub(crate) message_size: Option<u64>,
    pub(crate) window: Option<usize>,
    pub(crate) total: Option<u64>,
    pub(crate) idempotent: bool,
    pub(crate) connections: Option<u32>,
    pub(crate) poll_size: Option<u32>,
    pub(crate) verify: bool,
    pub(crate) in_flight: Option<usize>,
    pub(crate) sessions: Option<usize>,
    pub(crate) kills: Option<usize>,
    pub(crate) json: bool,
    pub(crate) plot: Option<PathBuf>,
}

impl Options {
    fn new(command: Command) -> Self {
        Self {
            command,
            directory: std::env::temp_dir(),
            server: None,
            shards: None,
            address: None,
            cluster: false,
            quick: false,
            rounds: None,
            producers: None,
            batch: None,
            message_size: None,
            window: None,
            total: None,
            idempotent: false,
            connections: None,
            poll_size: None,
            verify: false,
            in_flight: None,
            sessions: None,
            kills: None,
            json: false,
            plot: None,
        }
    }

    /// Whether `produce` is to carry one load of the user's making.
    pub(crate) const fn has_own_load(&self) -> bool {
        self.producers.is_some()
            || self.batch.is_some()
            || self.message_size.is_some()
            || self.window.is_some()
            || self.total.is_some()
    }
}

/// Reads the command line; nothing when help is asked for.
///
/// # Errors
/// `Usage`.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Option<Options>, Error> {
    let mut parser = Parser::from_args(arguments);
    let mut options = Options::new(Command::All);
    let mut command = None;
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(value) if command.is_none() => command = Some(parse_command(&value)?),
            Long(name) => {
                let name = name.to_owned();
                if !parse_switch(&mut options, &name) {
                    let value = parser.value().map_err(usage)?;
                    parse_option(&mut options, &name, value)?;
                }
            }
            Short(_) | Value(_) => return Err(usage(argument.unexpected())),
        }
    }
    let Some(command) = command else {
        return Err(Error::Usage("which command?".into()));
    };
    options.command = command;
    Ok(Some(options))
}

fn parse_command(value: &OsString) -> Result<Command, Error> {
    match value.to_str() {
        Some("probe") => Ok(Command::Probe),
        Some("produce") => Ok(Command::Produce),
        Some("consume") => Ok(Command::Consume),
        Some("ping") => Ok(Command::Ping),
        Some("start") => Ok(Command::Start),
        Some("join") => Ok(Command::Join),
        Some("handover") => Ok(Command::Handover),
        Some("failover-consumer") => Ok(Command::FailoverConsumer),
        Some("store") => Ok(Command::Store),
        Some("failover-broker") => Ok(Command::FailoverBroker),
        Some("rejoin") => Ok(Command::Rejoin),
        Some("idle") => Ok(Command::Idle),
        Some("rebalance") => Ok(Command::Rebalance),
        Some("all") => Ok(Command::All),
        Some(_) | None => Err(Error::Usage(format!("unknown command {}", value.display()))),
    }
}

fn parse_switch(options: &mut Options, name: &str) -> bool {
    let switch = match name {
        "quick" => &mut options.quick,
        "cluster" => &mut options.cluster,
        "idempotent" => &mut options.idempotent,
        "verify" => &mut options.verify,
        "json" => &mut options.json,
        _ => return false,
    };
    *switch = true;
    true
}

fn parse_option(options: &mut Options, name: &str, value: OsString) -> Result<(), Error> {
    match name {
        "dir" => options.directory = value.into(),
        "server" => options.server = Some(value.into()),
        "plot" => options.plot = Some(value.into()),
        "address" => options.address = Some(value.parse().map_err(usage)?),
        "shards" => options.shards = Some(positive(name, &value)?),
        "rounds" => options.rounds = Some(positive(name, &value)?),
        "producers" => options.producers = Some(positive(name, &value)?),
        "batch" => options.batch = Some(positive(name, &value)?),
        "message-size" => options.message_size = Some(positive(name, &value)?),
        "window" => options.window = Some(positive(name, &value)?),
        "total" => options.total = Some(positive(name, &value)?),
        "connections" => options.connections = Some(positive(name, &value)?),
        "poll-size" => options.poll_size = Some(positive(name, &value)?),
        "in-flight" => options.in_flight = Some(positive(name, &value)?),
        "sessions" => options.sessions = Some(positive(name, &value)?),
        "kills" => options.kills = Some(positive(name, &value)?),
        _ => return Err(Error::Usage(format!("unknown option --{name}"))),
    }
    Ok(())
}

/// A number above 0, perhaps with a unit of bytes.
fn positive<N: TryFrom<u64>>(name: &str, value: &OsString) -> Result<N, Error> {
    let refuse = || {
        let value = value.display();
        Error::Usage(format!(
            "--{name} {value} is not a number above 0 that fits"
        ))
    };
    let text = value.to_str().ok_or_else(refuse)?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(refuse()),
    };
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let number = number.checked_mul(factor).filter(|number| *number > 0);
    N::try_from(number.ok_or_else(refuse)?).map_err(|_| refuse())
}

fn usage(error: lexopt::Error) -> Error {
    Error::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Options>, Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn options_may_stand_on_both_sides_of_the_command() {
        let options = read("--quick produce --total 4GiB --message-size 512 --json")
            .unwrap()
            .unwrap();
        assert_eq!(options.command, Command::Produce);
        assert!(options.quick && options.json && options.has_own_load());
        assert_eq!(options.total, Some(4 << 30));
        assert_eq!(options.message_size, Some(512));
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for (line, part) in [
            ("--quick", "which command"),
            ("fly", "fly"),
            ("ping ping", "ping"),
            ("ping --shards 70000", "--shards 70000"),
            ("ping --shards 0", "--shards 0"),
            ("ping --shards 2MB", "2MB"),
            ("ping --speed 3", "--speed"),
            ("ping --address nowhere", "nowhere"),
            ("ping -x", "-x"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn every_command_of_the_help_is_known() {
        let mut parts = HELP.split("\n\n");
        let commands = parts.find(|part| part.starts_with("Commands:")).unwrap();
        let names: Vec<_> = commands
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
            .filter(|name| !name.is_empty())
            .collect();
        assert_eq!(names.len(), 14, "{names:?}");
        for name in names {
            assert!(read(name).unwrap().is_some(), "{name}");
        }
    }

    #[test]
    fn help_wins() {
        assert_eq!(read("ping -h --nonsense").unwrap(), None);
    }
}
