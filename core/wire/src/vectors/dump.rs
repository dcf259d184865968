//! Frames as text, field by field:
//!
//! ```text
//! 0008  48 00 00 00                                      size = 72
//! ```

use std::{format, string::String, vec::Vec};

use bytes::Bytes;

use crate::{
    BATCH_HEADER_SIZE, Batch, FRAME_HEADER_SIZE, FrameHeader, FrameKind, MESSAGE_HEADER_SIZE,
    Message, PREPARE_HEADER_SIZE,
    trace::{self, Read},
    vectors::decode_body,
};

/// Where the label starts in a line.
const LABEL_COLUMN: usize = 55;

/// Bytes in one line.
const LINE_BYTES: usize = 16;

/// A field and where it lies.
pub(super) struct Line {
    pub(super) position: usize,
    pub(super) size: usize,
    pub(super) label: String,
    format: Format,
}

/// How a value is shown.
#[derive(Clone, Copy)]
enum Format {
    Decimal,
    Hex,
    Text,
    Hidden,
}

/// A field of a fixed layout: offset, size, name, format.
type Fixed = (usize, usize, &'static str, Format);

use Format::{Decimal, Hex, Hidden, Text};

const REQUEST_HEADER: &[Fixed] = &[
    (0, 8, "checksum", Hidden),
    (8, 4, "size", Decimal),
    (12, 1, "kind", Decimal),
    (13, 1, "version", Decimal),
    (14, 2, "flags", Decimal),
    (16, 4, "code", Decimal),
    (20, 4, "status", Decimal),
    (24, 8, "correlation", Decimal),
    (32, 16, "client", Hex),
    (48, 8, "session", Decimal),
    (56, 8, "request", Decimal),
];

const REPLY_HEADER: &[Fixed] = &[
    (0, 8, "checksum", Hidden),
    (8, 4, "size", Decimal),
    (12, 1, "kind", Decimal),
    (13, 1, "version", Decimal),
    (14, 2, "flags", Decimal),
    (16, 4, "code", Decimal),
    (20, 4, "status", Decimal),
    (24, 8, "correlation", Decimal),
    (32, 8, "op", Decimal),
    (40, 4, "primary", Decimal),
    (44, 4, "view", Decimal),
    (48, 8, "session", Decimal),
    (56, 8, "request", Decimal),
];

const EVENT_HEADER: &[Fixed] = &[
    (0, 8, "checksum", Hidden),
    (8, 4, "size", Decimal),
    (12, 1, "kind", Decimal),
    (13, 1, "version", Decimal),
    (14, 2, "flags", Decimal),
    (16, 4, "code", Decimal),
    (20, 4, "reason", Decimal),
    (24, 8, "correlation", Decimal),
    (32, 16, "reserved", Decimal),
    (48, 8, "session", Decimal),
    (56, 8, "request", Decimal),
];

const BATCH_HEADER: &[Fixed] = &[
    (0, 8, "base_offset", Decimal),
    (8, 8, "timestamp", Decimal),
    (16, 8, "stamp_checksum", Hidden),
    (24, 8, "checksum", Hidden),
    (32, 4, "size", Decimal),
    (36, 4, "count", Decimal),
    (40, 8, "sequence", Decimal),
    (48, 16, "producer", Hex),
    (64, 8, "first_timestamp", Decimal),
    (72, 8, "last_timestamp", Decimal),
    (80, 4, "uncompressed_size", Decimal),
    (84, 1, "compression", Decimal),
    (85, 1, "flags", Decimal),
    (86, 10, "reserved", Hidden),
];

const MESSAGE_HEADER: &[Fixed] = &[
    (0, 4, "message size", Decimal),
    (4, 2, "key_length", Decimal),
    (6, 2, "headers_length", Decimal),
    (8, 8, "timestamp", Decimal),
    (16, 16, "id", Hex),
];

const PREPARE_HEADER: &[Fixed] = &[
    (0, 16, "checksum", Hidden),
    (16, 16, "checksum_body", Hidden),
    (32, 16, "parent", Hidden),
    (48, 16, "cluster", Hex),
    (64, 16, "client", Hex),
    (80, 8, "session", Decimal),
    (88, 8, "request", Decimal),
    (96, 8, "op", Decimal),
    (104, 8, "timestamp", Decimal),
    (112, 4, "view", Decimal),
    (116, 4, "size", Decimal),
    (120, 2, "group", Decimal),
    (122, 2, "operation", Decimal),
    (124, 4, "version", Decimal),
];

/// The fields of a request's header, for the table in PROTOCOL.md.
pub(super) fn header_fields(kind: FrameKind) -> Vec<Line> {
    let table = match kind {
        FrameKind::Request | FrameKind::Peer => REQUEST_HEADER,
        FrameKind::Reply => REPLY_HEADER,
        FrameKind::Event => EVENT_HEADER,
    };
    fixed(table, 0)
}

/// The fields of a batch's header, for the table in PROTOCOL.md.
pub(super) fn batch_fields() -> Vec<Line> {
    fixed(BATCH_HEADER, 0)
}

/// The fields of a message's header, for the table in PROTOCOL.md.
pub(super) fn message_fields() -> Vec<Line> {
    fixed(MESSAGE_HEADER, 0)
}

/// The fields of a prepare's header, for the table in PROTOCOL.md.
pub(super) fn prepare_fields() -> Vec<Line> {
    fixed(PREPARE_HEADER, 0)
}

fn fixed(table: &[Fixed], base: usize) -> Vec<Line> {
    table
        .iter()
        .map(|&(offset, size, name, format)| Line {
            position: base + offset,
            size,
            label: String::from(name),
            format,
        })
        .collect()
}

/// Writes a frame, batch or prepare down.
pub(super) fn dump(bytes: &[u8]) -> String {
    let lines = lines_of(bytes);
    let mut text = String::new();
    let mut position = 0;
    for line in lines {
        assert_eq!(
            line.position, position,
            "a field is missing before {}",
            line.label
        );
        position += line.size;
        line.write(bytes, &mut text);
    }
    assert_eq!(position, bytes.len(), "fields are missing at the end");
    text
}

/// The bytes of a text that [`dump`] has written; lines without an offset are passed over.
pub(super) fn parse(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let Some((offset, rest)) = line.split_once("  ") else {
            continue;
        };
        let Ok(offset) = usize::from_str_radix(offset, 16) else {
            continue;
        };
        assert_eq!(offset, bytes.len(), "offsets are not dense: {line}");
        let hex = rest.get(..LABEL_COLUMN - 6).unwrap_or(rest);
        for byte in hex.split_whitespace() {
            bytes.push(u8::from_str_radix(byte, 16).unwrap());
        }
    }
    bytes
}

/// What the bytes are is told by their first fields.
fn lines_of(bytes: &[u8]) -> Vec<Line> {
    let is_frame = bytes.len() >= FRAME_HEADER_SIZE
        && FrameHeader::read(bytes).is_ok_and(|header| header.size as usize == bytes.len());
    let is_batch =
        Batch::read_header(bytes).is_ok_and(|header| header.size as usize == bytes.len());
    if is_frame {
        frame_lines(bytes)
    } else if is_batch {
        batch_lines(bytes, 0)
    } else {
        let mut lines = prepare_fields();
        lines.push(Line::rest(PREPARE_HEADER_SIZE, bytes.len(), "body", Text));
        lines
    }
}

fn frame_lines(bytes: &[u8]) -> Vec<Line> {
    let header = FrameHeader::read(bytes).unwrap();
    let kind = header.frame_kind().unwrap();
    let mut lines = header_fields(kind);
    if kind == FrameKind::Reply && header.status != 0 {
        lines.push(Line::rest(FRAME_HEADER_SIZE, bytes.len(), "text", Text));
        return lines;
    }
    lines.extend(body_lines(bytes));
    lines
}

/// What the decoder of a frame's body reads.
pub(super) fn body_reads(bytes: &[u8]) -> Vec<Read> {
    let header = FrameHeader::read(bytes).unwrap();
    let body = Bytes::copy_from_slice(&bytes[FRAME_HEADER_SIZE..]);
    let (decoded, reads) = trace::reads_of(|| decode_body(&header, body));
    assert_eq!(decoded, Ok(()));
    reads
}

fn body_lines(bytes: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    for read in body_reads(bytes) {
        let position = FRAME_HEADER_SIZE + read.position;
        if ["batch", "batches"].contains(&read.field) && read.part.is_none() {
            lines.extend(batch_lines(&bytes[..position + read.size], position));
        } else if read.size > 0 {
            lines.push(Line::of_read(&read, position));
        }
    }
    lines
}

/// The fields of the batch that fills `bytes` from `start` on.
fn batch_lines(bytes: &[u8], start: usize) -> Vec<Line> {
    let mut lines = fixed(BATCH_HEADER, start);
    let batch = Batch::read(&Bytes::copy_from_slice(&bytes[start..])).unwrap();
    let mut position = start + BATCH_HEADER_SIZE;
    if batch.header.compression != 0 {
        lines.push(Line::rest(
            position,
            bytes.len(),
            "compressed messages",
            Hidden,
        ));
        return lines;
    }
    for message in batch.messages() {
        let message = message.unwrap();
        lines.extend(fixed(MESSAGE_HEADER, position));
        position += MESSAGE_HEADER_SIZE;
        if !message.key.is_empty() {
            lines.push(Line::rest(
                position,
                position + message.key.len(),
                "key",
                Text,
            ));
        }
        position += message.key.len();
        lines.extend(header_lines(&message, position));
        position += message.headers.len();
        if !message.payload.is_empty() {
            let end = position + message.payload.len();
            lines.push(Line::rest(position, end, "payload", Text));
        }
        position += message.payload.len();
    }
    lines
}

/// The headers of a message, the first of which starts at `position`.
fn header_lines(message: &Message, mut position: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for header in message.headers() {
        let (name, value) = header.unwrap();
        for (label, size, format) in [
            ("header name length", 1, Decimal),
            ("header name", name.len(), Text),
            ("header value length", 2, Decimal),
            ("header value", value.len(), Text),
        ] {
            if size > 0 {
                lines.push(Line::rest(position, position + size, label, format));
            }
            position += size;
        }
    }
    lines
}

impl Line {
    fn rest(position: usize, end: usize, name: &str, format: Format) -> Self {
        Self {
            position,
            size: end - position,
            label: String::from(name),
            format,
        }
    }

    fn of_read(read: &Read, position: usize) -> Self {
        let label = match read.part {
            Some(part) => format!("{} {part}", read.field),
            None => String::from(read.field),
        };
        let format = match (read.part, read.size) {
            (Some(_), _) | (None, 1 | 2 | 4 | 8) => Decimal,
            (None, 16) => Hex,
            (None, _) => Text,
        };
        Self {
            position,
            size: read.size,
            label,
            format: if read.is_text { Text } else { format },
        }
    }

    /// The label and, where it says something, the value.
    fn describe(&self, bytes: &[u8]) -> String {
        let text = core::str::from_utf8(bytes).ok();
        let text = text.filter(|text| !text.contains(char::is_control));
        match self.format {
            Decimal if bytes.len() <= 8 => {
                let mut value = [0; 8];
                value[..bytes.len()].copy_from_slice(bytes);
                format!("{} = {}", self.label, u64::from_le_bytes(value))
            }
            Hex if bytes.len() == 16 => {
                let value = u128::from_le_bytes(bytes.try_into().unwrap());
                format!("{} = {value:#034x}", self.label)
            }
            Text => match text {
                Some(text) => format!("{} = {text:?}", self.label),
                None => self.label.clone(),
            },
            Decimal | Hex | Hidden => self.label.clone(),
        }
    }

    fn write(&self, bytes: &[u8], text: &mut String) {
        let bytes = &bytes[self.position..self.position + self.size];
        let mut label = self.describe(bytes);
        for (index, chunk) in bytes.chunks(LINE_BYTES).enumerate() {
            let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            let offset = self.position + index * LINE_BYTES;
            let line = format!("{offset:04x}  {:<49}{label}", hex.join(" "));
            text.push_str(line.trim_end());
            text.push('\n');
            label = String::new();
        }
    }
}

#[test]
fn dump_is_read_back() {
    let frame = FrameHeader::event(902, 0, crate::SessionNumber(7)).frame(&[1, 2, 0, 0]);
    assert_eq!(parse(&dump(&frame)), frame);
    let text =
        "A title\n\n0000  00 01\n0002  ff                                               last\n";
    assert_eq!(parse(text), [0, 1, 0xff]);
}
