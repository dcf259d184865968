//! What a replica has promised, as it lies on the disk.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{DecodeError, Op, PREPARE_HEADER_SIZE, PrepareHeader, Problem, Reader, View, Writer};

/// The version of the encoding.
const VERSION: u32 = 1;

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
    /// The uncommitted ops up to `head`, in order. Invariant: each is above `checkpoint`.
    pub suffix: Vec<SuffixEntry>,
}

impl Superblock {
    /// Prepares up to this op are needed by nobody: they are in the local checkpoint and in one that is
    /// durable on a quorum (V15).
    #[must_use]
    pub fn recyclable(&self) -> Op {
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
        writer.into_bytes()
    }

    /// Reads what [`Superblock::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are those of another version, cut short, or contradict themselves.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u32("version")?;
        if version != VERSION {
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
        reader.finish()?;
        Ok(Self {
            sequence,
            view,
            log_view,
            checkpoint,
            checkpoint_quorum,
            head,
            suffix,
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
mod tests {
    use std::{format, string::String, vec};

    use bytes::Bytes;
    use wire::{Op, PrepareHeader, View};

    use super::{ChainPoint, SuffixEntry, Superblock};

    fn example() -> Superblock {
        let header = PrepareHeader {
            parent: 0x11,
            cluster: 0x22,
            op: 12,
            timestamp: 0x33,
            view: 2,
            operation: 4,
            version: 1,
            ..PrepareHeader::default()
        };
        Superblock {
            sequence: 5,
            view: View(3),
            log_view: View(2),
            checkpoint: ChainPoint {
                op: Op(11),
                checksum: 0x0102,
            },
            checkpoint_quorum: Op(9),
            head: Op(13),
            suffix: vec![
                SuffixEntry {
                    op: Op(12),
                    header: Some(header.sealed(b"body")),
                    nack: false,
                },
                SuffixEntry {
                    op: Op(13),
                    header: None,
                    nack: true,
                },
            ],
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// These bytes are on disks: they change together with the version only.
    #[test]
    fn encoding_is_what_it_was() {
        let fixed = concat!(
            "01000000",                         // version
            "0500000000000000",                 // sequence
            "03000000",                         // view
            "02000000",                         // log_view
            "0b00000000000000",                 // checkpoint op
            "02010000000000000000000000000000", // checkpoint checksum
            "0900000000000000",                 // checkpoint quorum
            "0d00000000000000",                 // head
            "02000000",                         // suffix count
            "0c00000000000000",                 // op, not nacked, with header
            "00",
            "01",
        );
        let header = concat!(
            "bad40be43da6f677f556b511e1b888de", // checksum
            "106ec7ea97c4f1cb4af7a6ffccef7a17", // checksum of the body
            "11000000000000000000000000000000", // parent
            "22000000000000000000000000000000", // cluster
            "00000000000000000000000000000000", // client
            "0000000000000000",                 // session
            "0000000000000000",                 // request
            "0c00000000000000",                 // op
            "3300000000000000",                 // timestamp
            "02000000",                         // view
            "84000000",                         // size
            "0000",                             // group
            "0400",                             // operation
            "01000000",                         // version of the body
        );
        let blank = "0d000000000000000100"; // op, nacked, no header
        let expected = [fixed, header, blank].concat();
        assert_eq!(hex(&example().encode()), expected);
    }

    #[test]
    fn decode_reads_what_encode_wrote() {
        for superblock in [Superblock::default(), example()] {
            assert_eq!(Superblock::decode(superblock.encode()), Ok(superblock));
        }
    }

    #[test]
    fn decode_refuses_bytes_that_are_cut_anywhere_or_too_long() {
        let bytes = example().encode();
        for size in 0..bytes.len() {
            assert!(Superblock::decode(bytes.slice(..size)).is_err(), "{size}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Superblock::decode(Bytes::from(longer)).is_err());
    }

    #[test]
    fn decode_refuses_what_contradicts_itself() {
        let wrong = |position: usize, value: u8| {
            let mut bytes = example().encode().to_vec();
            bytes[position] = value;
            Superblock::decode(Bytes::from(bytes)).map_err(|error| error.field)
        };
        assert_eq!(wrong(0, 2), Err("version"));
        assert_eq!(wrong(16, 4), Err("log_view"));
        // A count that the bytes do not back.
        assert_eq!(wrong(63, 0xff), Err("suffix count"));
        assert_eq!(wrong(72, 2), Err("suffix nack"));
        assert_eq!(wrong(73, 2), Err("suffix has header"));
        assert_eq!(wrong(80, 0xff), Err("suffix header"));
        // A header under another op.
        assert_eq!(wrong(64, 9), Err("suffix header"));
    }

    /// V15: the journal may recycle what both the local checkpoint and a quorum's hold.
    #[test]
    fn lower_of_both_checkpoints_is_recyclable() {
        let mut superblock = example();
        assert_eq!(superblock.recyclable(), Op(9));
        superblock.checkpoint_quorum = Op(20);
        assert_eq!(superblock.recyclable(), Op(11));
    }
}
