//! Decoders are given damaged bytes: they refuse them, never panic, and never take one thing for
//! another.

use std::{string::String, vec::Vec};

use bytes::Bytes;

use super::{
    decode_body,
    samples::{Content, vectors},
};
use crate::{
    Batch, Command, DecodeError, ErrorCode, Event, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, Failure,
    FrameHeader, FrameKind, HeaderIter, Message, MessageIter, Offset, PrepareHeader, Problem,
    Reply, Request, checksum64,
};

/// Small and reproducible: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    fn bytes(&mut self, size: usize) -> Vec<u8> {
        (0..size).map(|_| self.byte()).collect()
    }
}

/// Changes bytes in one of the ways in which lengths, counts and kinds go wrong.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        let size = random.below(40);
        *bytes = random.bytes(size);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.byte(),
        2 => bytes[at] = [0, 1, 2, 3, 8, 0x7f, 0x80, 0xff][random.below(8)],
        3 => {
            let number = [0, 1, u32::MAX, 1 << 31, 0x00ff_ffff, 96, 255][random.below(7)];
            let end = bytes.len().min(at + 4);
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        4 => {
            let added = random.below(9);
            let added = random.bytes(added);
            bytes.splice(at..at, added);
        }
        5 => {
            let end = bytes.len().min(at + 1 + random.below(8));
            bytes.drain(at..end);
        }
        _ => {
            let from = random.below(bytes.len());
            let size = random.below(32).min(bytes.len() - from);
            let copied = bytes[from..from + size].to_vec();
            bytes.splice(at..at, copied);
        }
    }
}

/// Makes the checksums of a batch right, so that what lies behind them is reached.
fn seal(batch: &mut [u8]) {
    if batch.len() >= 36 {
        let size = u32::try_from(batch.len()).unwrap();
        batch[32..36].copy_from_slice(&size.to_le_bytes());
        let checksum = checksum64(&batch[32..]);
        batch[24..32].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Name, header and body of every vector that is a frame.
fn frames() -> Vec<(String, FrameHeader, Bytes)> {
    let vectors = vectors().into_iter();
    let frames = vectors
        .filter(|vector| !matches!(vector.content, Content::Batch(_) | Content::Prepare(..)));
    frames
        .map(|vector| {
            let bytes = Bytes::from(vector.encode());
            let header = FrameHeader::read(&bytes).unwrap();
            (vector.file, header, bytes.slice(FRAME_HEADER_SIZE..))
        })
        .collect()
}

fn batches() -> Vec<(String, Bytes)> {
    let vectors = vectors().into_iter();
    let batches = vectors.filter(|vector| matches!(vector.content, Content::Batch(_)));
    batches
        .map(|vector| (vector.file.clone(), Bytes::from(vector.encode())))
        .collect()
}

fn is_refused(header: &FrameHeader) -> bool {
    header.frame_kind() == Some(FrameKind::Reply) && header.status != 0
}

#[test]
fn body_cut_at_any_byte_is_refused() {
    for (name, header, body) in frames() {
        // The text of an error reply may end anywhere.
        if is_refused(&header) {
            continue;
        }
        for size in 0..body.len() {
            let decoded = decode_body(&header, body.slice(..size));
            assert!(decoded.is_err(), "{name}: {size} of {} bytes", body.len());
        }
    }
}

#[test]
fn body_with_bytes_behind_its_end_is_refused() {
    for (name, header, body) in frames() {
        if is_refused(&header) {
            continue;
        }
        for added in [&[0_u8][..], &[1; 9], &body] {
            if added.is_empty() {
                continue;
            }
            let longer = [&body, added].concat();
            let error = decode_body(&header, longer.into()).unwrap_err();
            let left = added.len() as u64;
            assert_eq!(error.problem, Problem::Trailing { left }, "{name}");
        }
    }
}

#[test]
fn frame_cut_at_any_byte_is_refused() {
    for (name, header, body) in frames() {
        let frame = Bytes::from(header.frame(&body));
        for size in 0..frame.len() {
            let cut = frame.slice(..size);
            match FrameHeader::read(&cut) {
                Ok(header) => assert!(header.body(&cut).is_err(), "{name}: {size}"),
                Err(error) => {
                    assert!(size < FRAME_HEADER_SIZE);
                    assert!(matches!(error.problem, Problem::Truncated { .. }), "{name}");
                }
            }
        }
    }
}

#[test]
fn frame_with_any_byte_changed_is_refused() {
    for (name, header, body) in frames() {
        let frame = header.frame(&body);
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x10;
            let changed = Bytes::from(changed);
            let header = FrameHeader::read(&changed).unwrap();
            let read = header
                .check(FRAME_SIZE_MAX)
                .and_then(|()| header.body(&changed));
            assert!(read.is_err(), "{name}: byte {at}");
        }
    }
}

#[test]
fn batch_cut_at_any_byte_is_refused_and_sealed_again_too() {
    for (name, batch) in batches() {
        for size in 0..batch.len() {
            assert!(Batch::read(&batch.slice(..size)).is_err(), "{name}: {size}");
            let mut sealed = batch[..size].to_vec();
            seal(&mut sealed);
            // A compressed body is not looked into, so it may end anywhere.
            let compressed = size > 96 && batch[84] != 0;
            let read = Batch::read(&sealed.into());
            assert_eq!(read.is_ok(), compressed, "{name}: {size}");
        }
    }
}

#[test]
fn batch_with_any_byte_changed_is_refused_or_not_stamped() {
    for (name, batch) in batches() {
        let was_stamped = Batch::read(&batch).unwrap().is_stamped();
        for at in 0..batch.len() {
            let mut changed = batch.to_vec();
            changed[at] ^= 0x04;
            match Batch::read(&changed.into()) {
                Ok(read) => assert!(at < 24 && was_stamped != read.is_stamped() || !was_stamped),
                Err(_) => assert!(at >= 24, "{name}: byte {at}"),
            }
        }
    }
}

/// What a request decodes from is what it encodes to: no two bodies mean the same.
fn check_request(command: Command, body: &Bytes) -> Result<(), DecodeError> {
    let request = Request::decode(command, body.clone())?;
    assert_eq!(request.encode(), *body);
    assert_eq!(request.encode_parts().concat(), **body);
    Ok(())
}

/// What a reply encodes to decodes to the same reply. Texts and unknown codes of sections may differ
/// from the bytes that were read.
fn check_reply(command: Command, body: &Bytes) -> Result<(), DecodeError> {
    let reply = Reply::decode(command, body.clone())?;
    let again = Reply::decode(command, reply.to_bytes())?;
    assert_eq!(again.to_bytes(), reply.to_bytes());
    Ok(())
}

fn check_body(header: &FrameHeader, body: &Bytes) -> Result<(), DecodeError> {
    let command = Command::from_code(header.code);
    match (header.frame_kind(), command) {
        (Some(FrameKind::Request), Some(command)) => check_request(command, body),
        (Some(FrameKind::Reply), _) if header.status != 0 => {
            let failure = Failure::decode(header.status, body);
            assert_eq!(failure.code.code(), header.status);
            Ok(())
        }
        (Some(FrameKind::Reply), Some(command)) => check_reply(command, body),
        (Some(FrameKind::Event), _) => {
            if let Some(event) = Event::decode(header, body.clone())? {
                assert_eq!(event.encode(), *body);
            }
            Ok(())
        }
        _ => panic!("{header:?}"),
    }
}

#[test]
fn mutated_bodies_are_refused_or_mean_what_they_say() {
    let mut random = Random(0x00c0_ffee);
    let (mut refused, mut accepted) = (0_u32, 0_u32);
    for (_, header, body) in frames() {
        for _ in 0..2_000 {
            let mut mutated = body.to_vec();
            for _ in 0..=random.below(3) {
                mutate(&mut mutated, &mut random);
            }
            match check_body(&header, &mutated.into()) {
                Ok(()) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    }
    // Both happen often, so the decoders' insides are reached.
    assert!(
        refused > 10_000 && accepted > 10_000,
        "{refused} {accepted}"
    );
}

#[test]
fn mutated_batches_are_refused_or_can_be_walked() {
    let mut random = Random(0xba7c_4ed5);
    let (mut refused, mut accepted) = (0_u32, 0_u32);
    for (_, batch) in batches() {
        for _ in 0..20_000 {
            let mut mutated = batch.to_vec();
            mutate(&mut mutated, &mut random);
            seal(&mut mutated);
            let mutated = Bytes::from(mutated);
            match Batch::read(&mutated) {
                Ok(read) => {
                    accepted += 1;
                    assert_eq!(read.to_bytes(), mutated);
                    check_walk(&read);
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 10_000 && accepted > 1_000, "{refused} {accepted}");
}

/// Everything in an uncompressed batch that was admitted can be read.
fn check_walk(batch: &Batch) {
    if batch.header.compression == 0 {
        let messages: Result<Vec<Message>, DecodeError> = batch.messages().collect();
        let messages = messages.unwrap();
        assert_eq!(messages.len(), batch.header.count as usize);
        assert!(
            messages
                .iter()
                .flat_map(Message::headers)
                .all(|header| header.is_ok())
        );
    }
}

#[test]
fn noise_is_refused_by_every_decoder() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    for round in 0..40_000 {
        let size = random.below(if round % 10 == 0 { 2_000 } else { 120 });
        let noise = Bytes::from(random.bytes(size));
        let command = Command::ALL[random.below(Command::ALL.len())];
        if let Ok(request) = Request::decode(command, noise.clone()) {
            assert_eq!(request.encode(), noise, "{}", command.name());
        }
        let _read = Reply::decode(command, noise.clone());
        let code = u32::try_from(895 + random.below(12)).unwrap();
        let _read = Event::decode(&FrameHeader::event(code, 0, 0.into()), noise.clone());
        assert!(Batch::read(&noise).is_err());
        let messages = MessageIter::new(noise.clone(), Offset(u64::MAX));
        assert!(messages.count() <= size / 32 + 1);
        let headers = Message {
            headers: noise.clone(),
            ..Message::default()
        };
        assert!(HeaderIter::count(headers.headers()) <= size / 4 + 1);
        let prepare = PrepareHeader::read(&noise);
        assert!(!prepare.is_ok_and(|header| header.is_valid()));
        if let Ok(header) = FrameHeader::read(&noise) {
            let read = header
                .check(FRAME_SIZE_MAX)
                .and_then(|()| header.body(&noise));
            assert!(read.is_err());
        }
    }
}

#[test]
fn counts_and_lengths_beyond_the_bytes_are_refused_before_anything_is_allocated() {
    for (name, header, body) in frames() {
        for at in 0..body.len().saturating_sub(3) {
            let mut huge = body.to_vec();
            huge[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            // A count of 4 billion items that was believed would ask for at least 4 GiB.
            if let Err(error) = decode_body(&header, huge.into()) {
                let failure = Failure::from_body(&error);
                let expected = [
                    ErrorCode::MalformedBody,
                    ErrorCode::InvalidBatch,
                    ErrorCode::BatchTooLarge,
                ];
                assert!(expected.contains(&failure.code), "{name}: {failure}");
            }
        }
    }
}
