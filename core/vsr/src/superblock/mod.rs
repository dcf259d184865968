//! What a replica has promised, as it lies on the disk.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{DecodeError, Op, PREPARE_HEADER_SIZE, PrepareHeader, Problem, Reader, View, Writer};

use crate::mutation;

/// The version of the encoding. Version 1 had no `since`, version 2 no `is_rejoining`.
const VERSION: u32 = 3;

/// A point of the hash chain: names an op and, by its checksum, everything before it (V9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainPoint {
    /// The op; 0 is the empty state.
    pub op: Op,
    /// Checksum of its prepare; 0 for op 0.
    pub checksum: u128,
}

/// One uncommitted op of a superblock: what a do_view_change reports of it, at every resend alike (V5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixEntry {
    /// The op.
    pub op: Op,
    /// Its header, if known here.
    pub header: Option<PrepareHeader>,
    /// It was provably never prepared here (V12).
    pub nack: bool,
}

/// The promises of one replica. The newest replaces the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Counts the superblocks of this replica, from 1.
    pub sequence: u64,
    /// The highest view that the replica may speak in (V1). Never falls.
    pub view: View,
    /// The last view whose journal was installed here; it advances in the same write as that install
    /// (V2). Invariant: `log_view <= view`.
    pub log_view: View,
    /// The local checkpoint.
    pub checkpoint: ChainPoint,
    /// A checkpoint at this op or above is durable on a quorum (V15).
    pub checkpoint_quorum: Op,
    /// The last op of the journal when `log_view` was installed. A prepare above it that is older than
    /// `log_view` was truncated by that install.
    pub head: Op,
    /// The uncommitted ops up to `head`, in order, and before them committed ones that nothing else names.
    /// Invariant: each is above `checkpoint`.
    pub suffix: Vec<SuffixEntry>,
    /// Every prepare of the journal of `log_view` above the head that it was installed with is at this position
    /// of the disk's journal or behind it: one before it that cannot be read is none of these (V12).
    pub since: u64,
    /// The replica has lost its disk, and has not been taken back: it has forgotten what it promised (V13).
    pub is_rejoining: bool,
}

impl Superblock {
    /// Prepares up to this op are needed by nobody: they are in the local checkpoint and in one that is
    /// durable on a quorum (V15).
    #[must_use]
    pub fn recyclable(&self) -> Op {
        if mutation::V15 {
            return self.checkpoint.op;
        }
        self.checkpoint.op.min(self.checkpoint_quorum)
    }

    /// The bytes for the disk; whoever stores them guards them with a checksum.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new();
        writer
            .u32(VERSION)
            .u64(self.sequence)
            .u32(self.view.0)
            .u32(self.log_view.0)
            .u64(self.checkpoint.op.0)
            .u128(self.checkpoint.checksum)
            .u64(self.checkpoint_quorum.0)
            .u64(self.head.0)
            .count(self.suffix.len());
        for entry in &self.suffix {
            writer
                .u64(entry.op.0)
                .u8(u8::from(entry.nack))
                .u8(u8::from(entry.header.is_some()));
            if let Some(header) = &entry.header {
                writer.bytes(bytemuck::bytes_of(header));
            }
        }
        writer.u64(self.since).u8(u8::from(self.is_rejoining));
        writer.into_bytes()
    }

    /// Reads what [`Superblock::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are those of another version, cut short, or contradict themselves.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u32("version")?;
        if !(1..=VERSION).contains(&version) {
            return Err(invalid(&reader, "version", u64::from(version)));
        }
        let sequence = reader.u64("sequence")?;
        let view = View(reader.u32("view")?);
        let log_view = View(reader.u32("log_view")?);
        if log_view > view {
            return Err(invalid(&reader, "log_view", u64::from(log_view.0)));
        }
        let checkpoint = ChainPoint {
            op: Op(reader.u64("checkpoint op")?),
            checksum: reader.u128("checkpoint checksum")?,
        };
        let checkpoint_quorum = Op(reader.u64("checkpoint quorum")?);
        let head = Op(reader.u64("head")?);
        let count = reader.count("suffix count", 10)?;
        let mut suffix = Vec::with_capacity(count);
        for _ in 0..count {
            suffix.push(decode_entry(&mut reader)?);
        }
        let since = if version == 1 {
            0
        } else {
            reader.u64("since")?
        };
        let is_rejoining = version > 2 && decode_flag(&mut reader, "is_rejoining")?;
        reader.finish()?;
        Ok(Self {
            sequence,
            view,
            log_view,
            checkpoint,
            checkpoint_quorum,
            head,
            suffix,
            since,
            is_rejoining,
        })
    }
}

fn decode_entry(reader: &mut Reader) -> Result<SuffixEntry, DecodeError> {
    let op = Op(reader.u64("suffix op")?);
    let nack = decode_flag(reader, "suffix nack")?;
    let header = if decode_flag(reader, "suffix has header")? {
        let bytes = reader.bytes("suffix header", PREPARE_HEADER_SIZE)?;
        let header: PrepareHeader = bytemuck::pod_read_unaligned(&bytes);
        if !header.is_valid() || header.op() != op {
            return Err(reader.error("suffix header", Problem::Checksum));
        }
        Some(header)
    } else {
        None
    };
    Ok(SuffixEntry { op, header, nack })
}

fn decode_flag(reader: &mut Reader, field: &'static str) -> Result<bool, DecodeError> {
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(invalid(reader, field, u64::from(value))),
    }
}

const fn invalid(reader: &Reader, field: &'static str, value: u64) -> DecodeError {
    reader.error(field, Problem::Invalid { value })
}

#[cfg(test)]
mod tests;
