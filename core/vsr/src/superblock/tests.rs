//! Bytes of the superblock.

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
        since: 7,
        is_rejoining: true,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// These bytes are on disks: they change together with the version only.
#[test]
fn encoding_is_what_it_was() {
    let fixed = concat!(
        "03000000",                         // version
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
    let since = "0700000000000000";
    let rejoining = "01";
    let expected = [fixed, header, blank, since, rejoining].concat();
    assert_eq!(hex(&example().encode()), expected);
}

/// What the version before has written can be read: whatever is lost may belong to its journal.
#[test]
fn superblock_of_version_1_knows_no_position() {
    let mut bytes = example().encode().to_vec();
    bytes.truncate(bytes.len() - 9);
    bytes[0] = 1;
    let expected = Superblock {
        since: 0,
        is_rejoining: false,
        ..example()
    };
    assert_eq!(Superblock::decode(Bytes::from(bytes)), Ok(expected));
}

/// What the version before has written is that of a replica that never lost its disk.
#[test]
fn superblock_of_version_2_is_not_rejoining() {
    let mut bytes = example().encode().to_vec();
    bytes.truncate(bytes.len() - 1);
    bytes[0] = 2;
    let expected = Superblock {
        is_rejoining: false,
        ..example()
    };
    assert_eq!(Superblock::decode(Bytes::from(bytes)), Ok(expected));
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
    assert_eq!(wrong(0, 4), Err("version"));
    assert_eq!(wrong(0, 0), Err("version"));
    assert_eq!(wrong(16, 4), Err("log_view"));
    // A count that the bytes do not back.
    assert_eq!(wrong(63, 0xff), Err("suffix count"));
    assert_eq!(wrong(72, 2), Err("suffix nack"));
    assert_eq!(wrong(73, 2), Err("suffix has header"));
    assert_eq!(wrong(80, 0xff), Err("suffix header"));
    let last = example().encode().len() - 1;
    assert_eq!(wrong(last, 2), Err("is_rejoining"));
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
