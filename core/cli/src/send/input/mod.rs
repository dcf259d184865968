//! Messages out of lines.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use cohort::{Message, PartitionId, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    arguments::{InputFormat, KeyFrom},
    problem::Problem,
    text::from_base64,
};

/// A message with the number of its line, counted over all input from 1.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) message: Message,
    /// Bytes of the line with its end.
    pub(super) size: u64,
}

/// How lines become messages.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) format: InputFormat,
    pub(super) key: Option<String>,
    pub(super) key_from: Option<KeyFrom>,
    pub(super) partition: Option<u32>,
    pub(super) ignore_partitions: bool,
}

/// Lines in one piece of what the reading thread hands over.
const CHUNK_LINES_MAX: usize = 512;

/// Bytes of lines in one piece.
const CHUNK_SIZE_MAX: u64 = 256 * 1024;

/// Bytes that one read asks for.
const READ_SIZE: usize = 256 * 1024;

/// The longest line. No message is that long; the server's limit is told when it is sent.
const LINE_SIZE_MAX: u64 = 64 * 1024 * 1024;

/// Pieces that may wait.
const CHUNKS_MAX: usize = 4;

pub(super) type Chunk = Result<Vec<Line>, Problem>;

/// Reads files, or standard input, in a thread of its own.
pub(super) fn read(files: Vec<PathBuf>, rules: Rules) -> mpsc::Receiver<Chunk> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    std::thread::spawn(move || {
        let mut reading = Reading {
            rules,
            sender,
            number: 0,
        };
        let files = if files.is_empty() {
            vec![PathBuf::from("-")]
        } else {
            files
        };
        for file in &files {
            if let Err(problem) = reading.read_file(file) {
                // The other side may have gone, and then nobody is interested.
                let _sent = reading.sender.blocking_send(Err(problem));
                return;
            }
            if reading.sender.is_closed() {
                return;
            }
        }
    });
    receiver
}

/// Bytes of all files together; `None` when that cannot be known before they are read.
pub(super) fn size(files: &[PathBuf]) -> Option<u64> {
    if files.is_empty() {
        return None;
    }
    files.iter().try_fold(0_u64, |sum, path| {
        let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        sum.checked_add(metadata.len())
    })
}

struct Reading {
    rules: Rules,
    sender: mpsc::Sender<Chunk>,
    number: u64,
}

impl Reading {
    fn read_file(&mut self, path: &Path) -> Result<(), Problem> {
        if path.as_os_str() == "-" {
            return self.read_lines(io::stdin().lock(), Path::new("standard input"));
        }
        let file = File::open(path).map_err(|error| Problem::file(path, &error))?;
        self.read_lines(file, path)
    }

    /// Hands lines over as soon as no more of them are at hand, so that a slow input is sent at once.
    fn read_lines(&mut self, input: impl Read, path: &Path) -> Result<(), Problem> {
        let mut input = BufReader::with_capacity(READ_SIZE, input);
        let mut lines = Vec::new();
        let mut size = 0;
        let mut in_file = 0_u64;
        let mut line = Vec::new();
        loop {
            line.clear();
            // A byte more than a line may have tells one that is too long.
            let mut limited = (&mut input).take(LINE_SIZE_MAX + 1);
            let read = limited.read_until(b'\n', &mut line);
            let read = read.map_err(|error| Problem::file(path, &error))?;
            if read == 0 {
                break;
            }
            in_file += 1;
            self.number += 1;
            let at = |text: String| Problem::new(format!("{}:{in_file}: {text}", path.display()));
            let read = u64::try_from(read).unwrap_or(u64::MAX);
            if read > LINE_SIZE_MAX {
                self.hand_over(&mut lines);
                return Err(at(format!(
                    "the line exceeds the limit of {LINE_SIZE_MAX} bytes"
                )));
            }
            let content = line.strip_suffix(b"\n").unwrap_or(&line);
            let message = match self.rules.message(content) {
                Ok(message) => message,
                Err(text) => {
                    self.hand_over(&mut lines);
                    return Err(at(text));
                }
            };
            lines.push(Line {
                number: self.number,
                message,
                size: read,
            });
            size += read;
            if input.buffer().is_empty() || lines.len() == CHUNK_LINES_MAX || size >= CHUNK_SIZE_MAX
            {
                size = 0;
                if !self.hand_over(&mut lines) {
                    return Ok(());
                }
            }
        }
        self.hand_over(&mut lines);
        Ok(())
    }

    /// Says whether somebody still takes lines.
    fn hand_over(&self, lines: &mut Vec<Line>) -> bool {
        let lines = std::mem::take(lines);
        lines.is_empty() || self.sender.blocking_send(Ok(lines)).is_ok()
    }
}

impl Rules {
    /// The message of a line; what is wrong with it otherwise.
    fn message(&self, line: &[u8]) -> Result<Message, String> {
        let (message, mut payload) = match self.format {
            InputFormat::Lines => (Message::default(), line.to_vec()),
            InputFormat::Json => self.object(line)?,
        };
        let message = match self.key(&mut payload)? {
            Some(key) => message.key(key),
            None => message,
        };
        let message = message.payload(payload);
        Ok(match self.partition {
            Some(partition) => message.partition(partition),
            None => message,
        })
    }

    /// A message without its payload, and the payload.
    fn object(&self, line: &[u8]) -> Result<(Message, Vec<u8>), String> {
        let object: Object = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let payload = bytes_of("payload", object.payload, object.payload_base64)?
            .ok_or("the object has neither payload nor payload_base64")?;
        let mut message = Message::default();
        if let Some(key) = bytes_of("key", object.key, object.key_base64)? {
            message = message.key(key);
        }
        for header in object.headers {
            let value = bytes_of("value", header.value, header.value_base64)?
                .ok_or("a header has neither value nor value_base64")?;
            message = message
                .header(&header.name, value)
                .map_err(|error| error.to_string())?;
        }
        if let Some(id) = object.id {
            message = message.id(id
                .parse()
                .map_err(|_| format!("{id:?} is not an id: a u128 is expected"))?);
        }
        if let Some(timestamp) = object.timestamp {
            message = message.timestamp(Timestamp(timestamp));
        }
        if let Some(partition) = object.partition
            && !self.ignore_partitions
        {
            message = message.partition(PartitionId(partition));
        }
        Ok((message, payload))
    }

    /// Takes the key out of a payload, as the rules say; what stands before the payload's new start goes.
    fn key(&self, payload: &mut Vec<u8>) -> Result<Option<Vec<u8>>, String> {
        if let Some(key) = &self.key {
            return Ok(Some(key.as_bytes().to_vec()));
        }
        match &self.key_from {
            None => Ok(None),
            Some(KeyFrom::Prefix(separator)) => {
                let end = find(payload, separator.as_bytes())
                    .ok_or_else(|| format!("there is no {separator:?} behind a key"))?;
                let key = payload[..end].to_vec();
                payload.drain(..end + separator.len());
                Ok(Some(key))
            }
            Some(KeyFrom::Field(number, separator)) => {
                let key = field(payload, *number, separator.as_bytes())
                    .ok_or_else(|| format!("there is no field {number} between {separator:?}"))?;
                Ok(Some(key.to_vec()))
            }
            Some(KeyFrom::Json(name)) => {
                let object: Value =
                    serde_json::from_slice(payload).map_err(|error| error.to_string())?;
                let key = match object.get(name) {
                    Some(Value::String(text)) => text.clone(),
                    Some(number @ Value::Number(_)) => number.to_string(),
                    Some(_) => return Err(format!("member {name:?} is neither text nor a number")),
                    None => return Err(format!("there is no member {name:?}")),
                };
                Ok(Some(key.into_bytes()))
            }
        }
    }
}

/// One line of JSON input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    payload: Option<String>,
    payload_base64: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    #[serde(default)]
    headers: Vec<Header>,
    partition: Option<u32>,
    /// A u128, so as text.
    id: Option<String>,
    timestamp: Option<u64>,
    /// What `cohort consume` adds, and nobody can choose.
    #[serde(rename = "offset")]
    _offset: Option<u64>,
    #[serde(rename = "appended")]
    _appended: Option<u64>,
    #[serde(rename = "epoch")]
    _epoch: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    value: Option<String>,
    value_base64: Option<String>,
}

fn bytes_of(
    name: &str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("{name} and {name}_base64 exclude each other")),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => {
            let bytes =
                from_base64(&base64).ok_or_else(|| format!("{name}_base64 is not base64"))?;
            Ok(Some(bytes))
        }
        (None, None) => Ok(None),
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// The field of this number, from 1.
fn field<'a>(bytes: &'a [u8], number: usize, separator: &[u8]) -> Option<&'a [u8]> {
    let mut rest = bytes;
    for _ in 1..number {
        rest = &rest[find(rest, separator)? + separator.len()..];
    }
    Some(&rest[..find(rest, separator).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests;
