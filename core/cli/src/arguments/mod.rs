//! What can be said on the command line.

mod consume;
mod group;
mod send;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use cohort::Id;

pub(crate) use consume::{ConsumeArguments, From, MessageFormat};
pub(crate) use group::{GroupArguments, GroupCommand, ResetArguments, ResetTo, StartPolicy, When};
pub(crate) use send::{InputFormat, KeyFrom, SendArguments};

const NAMING: &str = "\
Naming:
  A bare word is a name: `orders`. An id is written `#7` or `id:7` (in a shell: '#7').
  A name never consists of digits alone, so a bare 7 is refused, not guessed.

Environment:
  COHORT_ADDRESS, COHORT_USER, COHORT_PASSWORD   used where no flag says otherwise
  COHORT_CONFIG                                  in place of ~/.config/cohort/config.toml

Configuration file (flag before environment before file):
  address = \"127.0.0.1:5100\"
  user = \"root\"
  password-file = \"/home/ann/.config/cohort/password\"

  A relative password-file starts at the working directory.

In JSON, times are microseconds since 1970-01-01T00:00:00Z.

Exit codes:
  0    did all that was asked
  1    failed: the server cannot be reached or refuses it, a file cannot be read
  2    the command line, the environment or the configuration file is wrong
  130  ended by ctrl-C or SIGTERM before it was done

Example:
  COHORT_PASSWORD=… cohort --user root stream list";

const USERS: &str = "\
Root makes, lists, changes and deletes users; every other user may read and rename itself and change
its own password. Streams, topics and messages are open to all of them.

Example:
  cohort user create ann --new-password-file ann.txt";

/// The command line of the Cohort message broker.
#[derive(Debug, Parser)]
#[command(name = "cohort", version, after_long_help = NAMING, max_term_width = 100, infer_long_args = false)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) context: ContextArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where to connect and as whom.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ContextArguments {
    /// Addresses of the cluster, host:port[,host:port…] [default: 127.0.0.1:5100]
    #[arg(
        long,
        short = 'a',
        global = true,
        value_name = "ADDRESS",
        display_order = 100
    )]
    pub(crate) address: Option<String>,
    /// User to log in as [default: root]
    #[arg(
        id = "login-user",
        long = "user",
        short = 'u',
        global = true,
        value_name = "NAME",
        display_order = 100
    )]
    pub(crate) user: Option<String>,
    /// File whose first line is the password, - for standard input; without it COHORT_PASSWORD, the configuration file or
    /// a prompt
    #[arg(long, global = true, value_name = "FILE", display_order = 100)]
    pub(crate) password_file: Option<PathBuf>,
    /// Configuration file [default: ~/.config/cohort/config.toml]
    #[arg(long, global = true, value_name = "FILE", display_order = 100)]
    pub(crate) config: Option<PathBuf>,
    /// How long to wait for the server, such as 500ms, 10s, 2m [default: 10s to connect, 30s for an answer]
    #[arg(long, global = true, value_name = "TIME", value_parser = some_time, display_order = 100)]
    pub(crate) timeout: Option<Duration>,
}

/// How results are shown.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArguments {
    /// How results are shown
    #[arg(
        long,
        short = 'o',
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
}

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the time to a server and back
    #[command(after_help = "Example:\n  cohort ping --count 10")]
    Ping(PingArguments),
    /// Streams: the name space of topics
    #[command(subcommand, after_help = "Example:\n  cohort stream create shop")]
    Stream(StreamCommand),
    /// Topics and their partitions
    #[command(
        subcommand,
        after_help = "Example:\n  cohort topic create shop orders --partitions 4"
    )]
    Topic(TopicCommand),
    /// Consumer groups: members that share the partitions of a topic
    #[command(
        subcommand,
        after_help = "Example:\n  cohort group create shop orders billing"
    )]
    Group(GroupCommand),
    /// The cluster: its nodes and who leads what
    #[command(subcommand, after_help = "Example:\n  cohort cluster status")]
    Cluster(ClusterCommand),
    /// Users
    #[command(subcommand, after_help = USERS)]
    User(UserCommand),
    /// Send messages from standard input or files
    Send(SendArguments),
    /// Read messages, alone or as a member of a consumer group
    Consume(ConsumeArguments),
    /// Show the counters of a server, summed over its shards
    #[command(after_help = "Example:\n  cohort stats -o json")]
    Stats {
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes, and of every consensus group view, primary, and how far each replica has got
    ///
    /// Every node is asked for itself, without a session, so that a cluster without a majority answers, too.
    /// The exit code is 0 when a majority answers and every consensus group has its primary, else 1.
    #[command(after_help = "Example:\n  cohort cluster status -o json")]
    Status {
        /// Show a digest of each replica's state: equal where as many ops are applied. Reads all of it
        #[arg(long)]
        digests: bool,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Args, Debug)]
pub(crate) struct PingArguments {
    /// How many times
    #[arg(long, short = 'c', default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Pause between two of them, such as 200ms
    #[arg(long, short = 'i', default_value = "200ms", value_parser = duration)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// Make a stream
    #[command(after_help = "Example:\n  cohort stream create shop")]
    Create {
        /// Name of the stream
        #[arg(value_parser = new_name)]
        name: String,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List the streams
    #[command(after_help = "Example:\n  cohort stream list -o json")]
    List {
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Show one stream
    #[command(after_help = "Example:\n  cohort stream get '#1'")]
    Get {
        /// The stream, NAME or #ID
        #[arg(value_parser = Id::parse)]
        stream: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Delete a stream with its topics and their messages
    #[command(after_help = "Example:\n  cohort stream delete shop")]
    Delete {
        /// The stream, NAME or #ID
        #[arg(value_parser = Id::parse)]
        stream: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Remove the messages of all topics of a stream, and what consumers and groups have stored
    #[command(after_help = "Example:\n  cohort stream purge shop")]
    Purge {
        /// The stream, NAME or #ID
        #[arg(value_parser = Id::parse)]
        stream: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Rename a stream
    #[command(after_help = "Example:\n  cohort stream rename shop store")]
    Rename {
        /// The stream, NAME or #ID
        #[arg(value_parser = Id::parse)]
        stream: Id,
        /// Its new name
        #[arg(value_parser = new_name)]
        name: String,
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// A topic within its stream.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopicArguments {
    /// The stream, NAME or #ID
    #[arg(value_parser = Id::parse)]
    pub(crate) stream: Id,
    /// The topic, NAME or #ID
    #[arg(value_parser = Id::parse)]
    pub(crate) topic: Id,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Make a topic
    #[command(after_help = "Example:\n  cohort topic create shop orders --partitions 4")]
    Create {
        /// The stream, NAME or #ID
        #[arg(value_parser = Id::parse)]
        stream: Id,
        /// Name of the topic
        #[arg(value_parser = new_name)]
        name: String,
        /// Number of partitions
        #[arg(long, short = 'p', default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
        partitions: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List the topics of a stream
    #[command(after_help = "Example:\n  cohort topic list shop")]
    List {
        /// The stream, NAME or #ID
        #[arg(value_parser = Id::parse)]
        stream: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Show one topic with its partitions, and where a consumer stands in them
    #[command(after_help = "Example:\n  cohort topic get shop orders --consumer billing")]
    Get {
        #[command(flatten)]
        topic: TopicArguments,
        /// Show what this single consumer has stored (the last offset processed), where it goes on (next),
        /// and how many messages are left for it (lag)
        #[arg(long, value_name = "NAME")]
        consumer: Option<String>,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Delete a topic with its messages and stored offsets
    #[command(after_help = "Example:\n  cohort topic delete shop orders")]
    Delete {
        #[command(flatten)]
        topic: TopicArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Remove the messages of a topic, and what consumers and groups have stored; offsets go on
    #[command(after_help = "Example:\n  cohort topic purge shop orders")]
    Purge {
        #[command(flatten)]
        topic: TopicArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Rename a topic
    #[command(after_help = "Example:\n  cohort topic rename shop orders purchases")]
    Rename {
        #[command(flatten)]
        topic: TopicArguments,
        /// Its new name
        #[arg(value_parser = new_name)]
        name: String,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Add partitions to a topic; keys are placed anew from then on
    #[command(after_help = "Example:\n  cohort topic add-partitions shop orders 2")]
    AddPartitions {
        #[command(flatten)]
        topic: TopicArguments,
        /// How many to add
        #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Remove the last partitions of a topic with their messages
    #[command(after_help = "Example:\n  cohort topic remove-partitions shop orders 1")]
    RemovePartitions {
        #[command(flatten)]
        topic: TopicArguments,
        /// How many to remove
        #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user; the password comes from a file or a prompt
    #[command(after_help = "Example:\n  cohort user create ann --new-password-file ann.txt")]
    Create {
        /// Name of the user
        #[arg(value_parser = new_name)]
        name: String,
        /// File whose first line is the new password, 8 to 255 bytes, - for standard input
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List the users
    #[command(after_help = "Example:\n  cohort user list")]
    List {
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Delete a user and end its sessions
    #[command(after_help = "Example:\n  cohort user delete ann")]
    Delete {
        /// The user, NAME or #ID
        #[arg(value_parser = Id::parse)]
        user: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Change a password, one's own or another user's
    #[command(after_help = "Example:\n  cohort user password ann --new-password-file ann.txt")]
    Password {
        /// The user, NAME or #ID
        #[arg(value_parser = Id::parse)]
        user: Id,
        /// File whose first line is the new password, 8 to 255 bytes, - for standard input
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Rename a user
    #[command(after_help = "Example:\n  cohort user rename ann anna")]
    Rename {
        /// The user, NAME or #ID
        #[arg(value_parser = Id::parse)]
        user: Id,
        /// Its new name
        #[arg(value_parser = new_name)]
        name: String,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Let a user log in again
    #[command(after_help = "Example:\n  cohort user activate ann")]
    Activate {
        /// The user, NAME or #ID
        #[arg(value_parser = Id::parse)]
        user: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Keep a user from logging in, and end its sessions
    #[command(after_help = "Example:\n  cohort user deactivate ann")]
    Deactivate {
        /// The user, NAME or #ID
        #[arg(value_parser = Id::parse)]
        user: Id,
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// Reads the command line. `--from offset 10` and `--from time T` may be written as two words.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(join_from(words))
}

fn join_from(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        let two_words = match joined.as_slice() {
            [.., flag, kind] => {
                flag == "--from" && (kind == "offset" || kind == "time" || kind == "last")
            }
            _ => false,
        };
        let numeric = word
            .to_str()
            .is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        match joined.last_mut() {
            // The number behind `last` may be left out.
            Some(last) if two_words && (last != "last" || numeric) => {
                last.push(":");
                last.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// Reads a duration with its unit: `250ms`, `10s`, `2m`, `1h`, `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is not a duration: write a number and a unit, such as 500ms, 10s, 2m, 1h, 1d"
        )
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().map_err(|_| wrong())?;
    let unit = match unit.trim_start() {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

/// A name that is given to something. Whatever is taken for an id later would not be found under its name.
fn new_name(text: &str) -> Result<String, String> {
    if text.starts_with('#') || text.starts_with("id:") {
        Err("it would be taken for an id: begin a name neither with # nor with id:".to_string())
    } else {
        Ok(text.to_string())
    }
}

/// A duration in which something can happen.
fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than 0".to_string()),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests;
