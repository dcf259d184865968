//! `cohort send`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{OutputArguments, TopicArguments, duration, some_time};

const EXAMPLES: &str = "\
Input:
  lines  each line is one message, without its line end
  json   each line is an object, as `cohort consume -o json` writes it: payload or payload_base64,
         and where wanted key or key_base64, headers, partition, id, timestamp; offset, appended
         and epoch are passed over

Keys decide the partition: messages with equal keys stay in order. Without a key messages
are spread batch by batch, so that a short input may end up in few partitions.
  --key-from prefix:SEP   what stands before the first SEP is the key, the rest is the payload
  --key-from field:N:SEP  the Nth field (from 1) between SEPs is the key, the line is the payload
  --key-from json:NAME    the member NAME of the object in the payload is the key

Every message is stored once and in order within its partition, through reconnects and restarts of the
server. The exit code is 0 only when every message is stored. Lines are counted over all files.
After ctrl-C what was sent has 5 s to be stored; the summary says how many got no answer.

Examples:
  cohort send shop orders < orders.txt
  cohort send shop orders --file a.csv --key-from field:1:, --acknowledged -o json > ledger.jsonl";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SendArguments {
    #[command(flatten)]
    pub(crate) topic: TopicArguments,
    /// File to read, - for standard input; may be repeated [default: standard input]
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// What the input is
    #[arg(long, value_enum, default_value = "lines", value_name = "FORMAT")]
    pub(crate) format: InputFormat,
    /// Key of every message
    #[arg(long, value_name = "TEXT", conflicts_with = "key_from")]
    pub(crate) key: Option<String>,
    /// Where keys come from: prefix:SEP, field:N:SEP, json:NAME
    #[arg(long, value_name = "HOW", value_parser = KeyFrom::parse)]
    pub(crate) key_from: Option<KeyFrom>,
    /// Partition of every message
    #[arg(long, short = 'p', value_name = "N", allow_negative_numbers = true)]
    pub(crate) partition: Option<u32>,
    /// Place messages anew, whatever partition the json input names
    #[arg(long, conflicts_with = "partition")]
    pub(crate) ignore_partitions: bool,
    /// Show each acknowledged range: partition, first and last offset, first and last input line
    #[arg(long)]
    pub(crate) acknowledged: bool,
    /// Bytes at which a batch is closed; beyond 7 MiB they count as 7 MiB
    #[arg(long, value_name = "BYTES", default_value_t = 1024 * 1024, value_parser = positive)]
    pub(crate) batch_size: usize,
    /// Messages at which a batch is closed
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_messages: u32,
    /// How long a batch waits for more messages
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration)]
    pub(crate) linger: Duration,
    /// How long a message may take until it is stored
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = some_time)]
    pub(crate) delivery_timeout: Duration,
    /// No progress bar and no summary
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// What the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// One message a line
    Lines,
    /// One object a line
    Json,
}

/// Where keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyFrom {
    /// Before the first separator; the payload is what stands behind it.
    Prefix(String),
    /// The field of this number, from 1, between separators.
    Field(usize, String),
    /// The member of this name of the object that the payload is.
    Json(String),
}

impl KeyFrom {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is none of prefix:SEP, field:N:SEP, json:NAME");
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        match kind {
            "prefix" if !rest.is_empty() => Ok(Self::Prefix(rest.to_string())),
            "json" if !rest.is_empty() => Ok(Self::Json(rest.to_string())),
            "field" => {
                let (number, separator) = rest.split_once(':').ok_or_else(wrong)?;
                match number.parse() {
                    Ok(number) if number > 0 && !separator.is_empty() => {
                        Ok(Self::Field(number, separator.to_string()))
                    }
                    Ok(_) | Err(_) => Err(wrong()),
                }
            }
            _ => Err(wrong()),
        }
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(format!("{text:?} is not a number from 1")),
    }
}
