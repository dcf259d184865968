//! `cohort consume`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use cohort::{Id, Start, Timestamp};

use super::{StartPolicy, TopicArguments, When, duration};

const EXAMPLES: &str = "\
Where to begin (--from):
  first       at the oldest message
  last, last:N
              at the last message, or the last N, of each partition
  end         behind the last message: only what is sent from now on, with --follow
  next        behind what the consumer has stored; at the oldest message when nothing is stored
  offset:N    at offset N, also written `--from offset N`
  time:T      at the first message stored at or after T, also written `--from time T`:
              2026-03-01T12:00:00Z, or how long ago: 15m, 2h, 1d
  The default is next with --consumer, first without.

What is stored for a consumer is the offset of the last message that was written out; `next` is the one
behind it. Nothing stored is not offset 0 stored. A message counts as processed when it has been written,
so after a crash some come again, and none is left out.

Output (-o):
  text  one line each: partition:offset, key, payload, between tabs, control characters escaped
  json  one object each
  raw   the payload as it is, and a line end

Without --follow it ends with the messages that are there at the start. Ctrl-C and SIGTERM end it
cleanly: what was written is stored for the consumer. With --follow the exit code is then 0.

Consumer groups (--group):
  It becomes a member, and gets a share of the partitions; they come and go while other members do. What
  was written is stored for the group, and whoever gets the partition goes on behind it. One that is to be
  given up is given up when everything that was read of it is written and stored. The end, ctrl-C and
  SIGTERM store and leave: nothing comes twice. With --instance, ctrl-C and SIGTERM store and do not leave:
  the partitions stay for the server's session timeout, for whoever is started with the same ID; `cohort
  group remove-member` sets them free before. Where it begins is up to the group (group create --start,
  group reset). Without --follow it ends when it has read all of its partitions, none is on its way
  to it, and nothing has come for --idle.
  In JSON, each message has the epoch under which its partition was owned, and --events adds objects with
  the key \"event\": joined, assigned, revoking, retained, revoked, lost, left, detached and others.

Examples:
  cohort consume shop orders --from last:10
  cohort consume shop orders --consumer billing --follow -o json
  cohort consume shop orders --group billing --create --follow";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConsumeArguments {
    #[command(flatten)]
    pub(crate) topic: TopicArguments,
    /// Where to begin: first, last[:N], end, next, offset:N, time:T
    #[arg(long, value_name = "WHERE", value_parser = From::parse)]
    pub(crate) from: Option<From>,
    /// Only this partition; may be repeated
    #[arg(long, short = 'p', value_name = "N", allow_negative_numbers = true)]
    pub(crate) partition: Vec<u32>,
    /// End after so many messages
    #[arg(long, short = 'c', value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Wait for messages to come
    #[arg(long)]
    pub(crate) follow: bool,
    /// Store how far it has got under this name, and go on there the next time
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// Read as a member of this consumer group, NAME or #ID
    #[arg(
        long,
        short = 'g',
        value_name = "NAME",
        value_parser = Id::parse,
        conflicts_with_all = ["consumer", "from", "partition"]
    )]
    pub(crate) group: Option<Id>,
    /// Make the group if there is none of this name
    #[arg(long, requires = "group")]
    pub(crate) create: bool,
    /// Where a group that is made starts: earliest, latest, or a time [default: earliest]
    #[arg(long, value_name = "WHERE", requires = "create", value_parser = StartPolicy::parse)]
    pub(crate) start: Option<StartPolicy>,
    /// Be a static member: it keeps its partitions when it is stopped and started again, and takes over from
    /// whoever has this id
    #[arg(long, value_name = "ID", requires = "group")]
    pub(crate) instance: Option<String>,
    /// How long nothing must come before a member ends that does not follow [default: 1s]
    #[arg(long, value_name = "TIME", requires = "group", conflicts_with = "follow", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Write what happens to the member among the messages, with -o json
    #[arg(long, requires = "group")]
    pub(crate) events: bool,
    /// Tell on standard error what happens to the member; always so when that is a terminal
    #[arg(long, short = 'v', requires = "group")]
    pub(crate) verbose: bool,
    /// How messages are written
    #[arg(
        long,
        short = 'o',
        value_enum,
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(crate) output: MessageFormat,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// The payload alone
    Raw,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Behind what is stored.
    Next,
    /// Here, whatever is stored.
    At(Start),
    /// At the first message stored since.
    Since(When),
}

impl From {
    fn parse(text: &str) -> Result<Self, String> {
        let number = |digits: &str| {
            let wrong = || format!("{digits:?} is not a number from 0");
            if digits.bytes().all(|byte| byte.is_ascii_digit()) {
                digits.parse::<u64>().map_err(|_| wrong())
            } else {
                Err(wrong())
            }
        };
        match text.split_once(':') {
            None => match text {
                "first" => Ok(Self::At(Start::First)),
                "last" => Ok(Self::At(Start::Last(1))),
                "end" => Ok(Self::At(Start::Last(0))),
                "next" => Ok(Self::Next),
                _ => Err("use one of first, last, last:N, end, next, offset:N, time:T".to_string()),
            },
            Some(("last", count)) => Ok(Self::At(Start::Last(number(count)?))),
            Some(("offset", offset)) => Ok(Self::At(Start::Offset(number(offset)?.into()))),
            Some(("time", when)) => When::parse(when).map(Self::Since),
            Some(_) => {
                Err("use one of first, last, last:N, end, next, offset:N, time:T".to_string())
            }
        }
    }

    /// Where that is, at this time.
    pub(crate) fn start(self, now: Timestamp) -> Start {
        match self {
            Self::Next => Start::First,
            Self::At(start) => start,
            Self::Since(when) => Start::Timestamp(when.at(now)),
        }
    }
}
