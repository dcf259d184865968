//! Messages are what they were after they were bytes, their bytes never change unnoticed, and bytes that
//! are damaged are refused.

mod draw;

use std::{collections::BTreeSet, format, string::String, vec::Vec};

use bytes::Bytes;
use wire::{PREPARE_HEADER_SIZE, Problem};

use self::draw::Draw;
use crate::Message;

/// One message of every kind, in the order of the kinds.
fn each_kind(draw: &mut Draw) -> Vec<Message> {
    let kinds = Message::KINDS.iter();
    kinds.map(|(kind, _)| draw.message(*kind)).collect()
}

fn bytes_of(message: &Message) -> Bytes {
    Bytes::from(message.encode().concat())
}

#[test]
fn kinds_are_dense_and_every_message_has_its_own() {
    let kinds: Vec<u8> = Message::KINDS.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, (1..=14).collect::<Vec<u8>>());
    let messages = each_kind(&mut Draw(1));
    assert_eq!(
        kinds,
        messages.iter().map(Message::kind).collect::<Vec<_>>()
    );
}

#[test]
fn table_of_messages_is_that_of_the_code() {
    let text = include_str!("../../../../wire/PEERS.md");
    let (_, section) = text.split_once("\n## Between replicas\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<(&str, &str)> = rows
        .skip(2)
        .map(|row| {
            let mut cells = row.split('|').map(str::trim).skip(1);
            (cells.next().unwrap(), cells.next().unwrap())
        })
        .collect();
    let kinds = Message::KINDS.iter();
    let kinds: Vec<(String, &str)> = kinds
        .map(|(kind, name)| (format!("{kind}"), *name))
        .collect();
    let kinds: Vec<(&str, &str)> = kinds
        .iter()
        .map(|(kind, name)| (&kind[..], *name))
        .collect();
    assert_eq!(rows, kinds);
}

#[test]
fn decode_reads_what_encode_wrote() {
    for seed in 1..=500 {
        for message in each_kind(&mut Draw(seed)) {
            assert_eq!(Message::decode(bytes_of(&message)), Ok(message));
        }
    }
}

/// Nodes of different builds understand each other: these bytes change together with the version that the
/// frame names only.
#[test]
fn encoding_is_what_it_was() {
    let mut kinds = Vec::new();
    for vector in include_str!("vectors.txt").split("\n\n") {
        let (shown, lines) = vector.split_once('\n').expect("bytes follow the message");
        let hex: String = lines.split_whitespace().collect();
        let digits = hex
            .as_bytes()
            .chunks(2)
            .map(|it| str::from_utf8(it).unwrap());
        let bytes: Bytes = digits
            .map(|it| u8::from_str_radix(it, 16).unwrap())
            .collect();
        let message = Message::decode(bytes.clone()).unwrap();
        assert_eq!(format!("{message:?}"), shown);
        assert_eq!(bytes_of(&message), bytes, "{shown}");
        kinds.push(message.kind());
    }
    kinds.dedup();
    assert_eq!(kinds, (1..=14).collect::<Vec<u8>>());
}

#[test]
fn bodies_are_neither_copied_nor_cut() {
    let mut draw = Draw(3);
    let prepare = draw.prepare(5_000);
    let body = prepare.body.as_ptr();
    let parts = draw.prepare_message(prepare).encode();
    assert!(parts.iter().any(|part| part.as_ptr() == body));

    let frame = Bytes::from(parts.concat());
    let Ok(Message::Prepare(read)) = Message::decode(frame.clone()) else {
        panic!("it is a prepare");
    };
    let body = read.prepare.body;
    assert_eq!(body.len(), 5_000);
    assert_eq!(body.as_ptr(), frame[frame.len() - 5_000..].as_ptr());
}

#[test]
fn message_that_is_cut_anywhere_or_too_long_is_refused() {
    for seed in 1..=20 {
        for message in each_kind(&mut Draw(seed)) {
            let bytes = bytes_of(&message);
            for size in 0..bytes.len() {
                let read = Message::decode(bytes.slice(..size));
                assert!(read.is_err(), "{message:?} of {size} bytes: {read:?}");
            }
            let longer = Bytes::from([&bytes[..], &[0]].concat());
            let problem = Message::decode(longer).unwrap_err().problem;
            assert_eq!(problem, Problem::Trailing { left: 1 });
        }
    }
}

/// Whatever the bytes are, reading ends in a message, which would be written so, or in an error.
#[test]
fn damaged_bytes_are_refused_or_are_another_message() {
    let mut draw = Draw(11);
    let mut refused = BTreeSet::new();
    for _ in 0..3_000 {
        for message in each_kind(&mut draw) {
            let damaged = Bytes::from(draw.damage(&bytes_of(&message)));
            match Message::decode(damaged.clone()) {
                Ok(read) => assert_eq!(bytes_of(&read), damaged),
                Err(error) => {
                    refused.insert(error.field);
                }
            }
        }
    }
    for field in ["message kind", "prepare header", "suffix", "suffix nack"] {
        assert!(refused.contains(field), "{field} is not among {refused:?}");
    }
}

#[test]
fn header_that_does_not_match_its_checksum_is_refused() {
    let mut draw = Draw(5);
    let prepare = draw.prepare(10);
    let bytes = bytes_of(&draw.prepare_message(prepare));
    let header = bytes.len() - 10 - PREPARE_HEADER_SIZE;
    for at in header..header + PREPARE_HEADER_SIZE {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1;
        let error = Message::decode(Bytes::from(damaged)).unwrap_err();
        assert_eq!((error.field, error.position), ("prepare header", header));
        assert_eq!(error.problem, Problem::Checksum);
    }
}

#[test]
fn suffix_with_the_header_of_another_op_is_refused() {
    let mut message = Draw(9).do_view_change();
    let report = message.suffix.iter_mut().find(|it| it.header.is_some());
    report.expect("one is there").op.0 += 1;
    let error = Message::decode(bytes_of(&Message::DoViewChange(message))).unwrap_err();
    assert_eq!(error.field, "suffix header");
}

/// What is allocated for a suffix is backed by as many bytes.
#[test]
fn count_that_the_bytes_do_not_back_is_refused() {
    let mut message = Draw(9).do_view_change();
    message.suffix.clear();
    let mut bytes = bytes_of(&Message::DoViewChange(message)).to_vec();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = Message::decode(Bytes::from(bytes)).unwrap_err();
    assert_eq!((error.field, error.position), ("suffix", at));
    assert!(matches!(error.problem, Problem::Truncated { .. }));
}
