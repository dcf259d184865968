//! The bytes of answers to work that was passed on.

use alloc::vec::Vec;

use catalog::CachedReply;
use partition::DataResult;
use wire::{
    Batch, Command, DecodeError, Epoch, Failure, Field, GroupPrimary, MoveWait, Offset, Op,
    PollResult, Reader, Reply, Writer, fields,
};

use crate::{
    Binding,
    work::{Answer, GroupStanding, Output, PartitionOffsets},
};

fields! {
    PartitionOffsets {
        start: Offset,
        end: Offset,
        stored: Option<Offset>,
        group: Option<GroupStanding>,
    }
    GroupStanding {
        next: Offset,
        last_polled: Option<Offset>,
        fence: Epoch,
        polled_ms_ago: Option<u32>,
        stored_ms_ago: Option<u32>,
        stalled_ms: Option<u32>,
        waits_for: Option<(MoveWait, Option<u32>)>,
        is_damaged: bool,
    }
}

/// A status like that of a reply: 0, which what came of the work follows; or an error code, which a u16
/// length and the text follow.
impl Field for Answer {
    const SIZE_MIN: usize = Op::SIZE_MIN + GroupPrimary::SIZE_MIN + 4 + 1;

    fn read(reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        let op = Op::read(reader, "op")?;
        let primary = GroupPrimary::read(reader, "primary")?;
        let outcome = match reader.u32("status")? {
            0 => Ok(Output::read(reader, "output kind")?),
            status => {
                let size = usize::from(reader.u16("text")?);
                let text = reader.bytes("text", size)?;
                Err(Failure::decode(status, &text))
            }
        };
        Ok(Self {
            outcome,
            op,
            primary,
        })
    }

    fn write(&self, writer: &mut Writer) {
        self.op.write(writer);
        self.primary.write(writer);
        match &self.outcome {
            Ok(output) => {
                writer.u32(0);
                output.write(writer);
            }
            Err(failure) => {
                let text = failure.encode();
                let size = u16::try_from(text.len()).expect("the texts of failures are cut off");
                writer.u32(failure.code.code()).u16(size).bytes(&text);
            }
        }
    }
}

/// The kinds of outputs, as they stand in the bytes.
mod kind {
    pub(super) const REPLY: u8 = 1;
    pub(super) const EXECUTED: u8 = 2;
    pub(super) const BOUND: u8 = 3;
    pub(super) const WRITTEN: u8 = 4;
    pub(super) const POLLED: u8 = 5;
    pub(super) const OFFSETS: u8 = 6;
}

impl Output {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Reply(reply) => {
                writer.u8(kind::REPLY);
                write_reply(reply, writer);
            }
            Self::Executed(CachedReply { status, body }) => {
                writer.u8(kind::EXECUTED).u32(*status).bytes32(body);
            }
            Self::Bound(binding, reply) => {
                writer.u8(kind::BOUND);
                binding.write(writer);
                write_reply(reply, writer);
            }
            Self::Written(results) => {
                writer.u8(kind::WRITTEN);
                results.write(writer);
            }
            Self::Polled {
                sections,
                satisfied,
            } => {
                writer.u8(kind::POLLED);
                satisfied.write(writer);
                sections.write(writer);
            }
            Self::Offsets(partitions) => {
                writer.u8(kind::OFFSETS);
                partitions.write(writer);
            }
            Self::Groups(_) | Self::Counters(_) | Self::Verified | Self::Replicas(_) => {
                unreachable!("every shard is asked by its own node only")
            }
        }
    }

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        Ok(match reader.u8(field)? {
            kind::REPLY => Self::Reply(read_reply(reader)?),
            kind::EXECUTED => Self::Executed(CachedReply {
                status: reader.u32("status")?,
                body: reader.bytes32("reply")?,
            }),
            kind::BOUND => Self::Bound(Binding::read(reader, "binding")?, read_reply(reader)?),
            kind::WRITTEN => Self::Written(
                <Vec<(u16, Result<DataResult, Failure>)> as Field>::read(reader, "results")?,
            ),
            kind::POLLED => Self::Polled {
                satisfied: reader.bool("satisfied")?,
                sections: read_sections(reader)?,
            },
            kind::OFFSETS => Self::Offsets(Field::read(reader, "partitions")?),
            kind => return Err(reader.invalid(field, start, kind)),
        })
    }
}

/// A command that is answered so, the length of the body, and the body.
fn write_reply(reply: &Reply, writer: &mut Writer) {
    writer
        .u32(reply.command().code())
        .bytes32(&reply.to_bytes());
}

fn read_reply(reader: &mut Reader) -> Result<Reply, DecodeError> {
    let start = reader.position();
    let code = reader.u32("command")?;
    let Some(command) = Command::from_code(code) else {
        return Err(reader.invalid("command", start, code));
    };
    let body = reader.bytes32("reply")?;
    let start = reader.position() - body.len();
    Reply::decode(command, body).map_err(|error| DecodeError {
        position: start + error.position,
        ..error
    })
}

/// What is trimmed and counted by its offsets has offsets that fit each other.
fn read_sections(reader: &mut Reader) -> Result<Vec<(u16, PollResult)>, DecodeError> {
    let start = reader.position();
    let sections: Vec<(u16, PollResult)> = Field::read(reader, "sections")?;
    for (_, section) in &sections {
        if !is_consistent(section)? {
            return Err(reader.invalid("next", start, section.next.0));
        }
    }
    Ok(sections)
}

/// Whether batches rise, and end where the next poll begins.
fn is_consistent(section: &PollResult) -> Result<bool, DecodeError> {
    let mut next = section.from;
    for batch in &section.batches {
        let last = Batch::read_header(batch)?.last_offset();
        if last < next {
            return Ok(false);
        }
        next = last.next();
    }
    Ok(next == section.next)
}
