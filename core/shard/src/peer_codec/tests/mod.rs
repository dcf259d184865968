//! What nodes say to each other is what it was after it was bytes, its bytes never change unnoticed, and
//! bytes that are damaged, or would do harm, are refused.

mod draw;

use std::{collections::BTreeSet, format, string::String, vec};

use bytes::Bytes;
use partition::DataRequest;
use wire::{
    ConsensusGroup, ErrorCode, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, Failure, Field, FrameHeader,
    Limit, Offset, PEER_FRAME_SIZE_MAX, PrepareHeader, Problem, Request, ShardId, Writer,
};

use self::draw::Draw;
use crate::{
    Answer, Origin, Output, PEER_VERSION, PeerMessage, Work,
    work::{CatalogWork, PollWork},
};

/// Draws until every kind of message, work and answer has come many times.
const DRAWS: u64 = 3_000;

fn bytes_of(message: &PeerMessage) -> Bytes {
    Bytes::from(message.encode().concat())
}

#[test]
fn decode_reads_what_encode_wrote() {
    let mut draw = Draw(1);
    let mut variants = BTreeSet::new();
    for _ in 0..DRAWS {
        let message = draw.message();
        variants.insert(draw::variant(&message));
        let bytes = bytes_of(&message);
        assert_eq!(bytes[0], PEER_VERSION);
        assert_eq!(PeerMessage::decode(bytes), Ok(message));
    }
    assert_eq!(variants, draw::VARIANTS.iter().copied().collect());
}

/// The tables of kinds in PEERS.md, and what is found in the bytes.
#[test]
fn tables_of_kinds_are_those_of_the_code() {
    let text = include_str!("../../../../wire/PEERS.md");
    let table = |heading: &str| -> BTreeSet<(u8, String)> {
        let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
        let (section, _) = section.split_once("\n\nResults").unwrap_or((section, ""));
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| "));
        rows.skip(2)
            .map(|row| {
                let mut cells = row.split('|').map(str::trim).skip(1);
                let kind = cells.next().unwrap().parse().unwrap();
                (kind, cells.next().unwrap().into())
            })
            .collect()
    };
    let name = |shown: String| -> String {
        let end = shown.find(|it: char| !it.is_alphanumeric());
        shown[..end.unwrap_or(shown.len())].into()
    };
    let (mut messages, mut works, mut outputs) =
        <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
    let mut draw = Draw(12);
    for _ in 0..DRAWS {
        let message = draw.message();
        let bytes = bytes_of(&message);
        messages.insert((bytes[1], name(format!("{message:?}"))));
        if let PeerMessage::Work { work, .. } = &message {
            works.insert((bytes[1 + 1 + 2 + 11], name(format!("{work:?}"))));
        }
        if let PeerMessage::Answer { answer, .. } = &message
            && let Ok(output) = &answer.outcome
        {
            outputs.insert((bytes[1 + 1 + 11 + 8 + 7 + 4], name(format!("{output:?}"))));
        }
    }
    assert_eq!(table("Messages"), messages);
    assert_eq!(table("Work"), works);
    assert_eq!(table("Answers"), outputs);
}

/// Nodes of different builds understand each other: these bytes change together with the version only.
#[test]
fn encoding_is_what_it_was() {
    let mut variants = BTreeSet::new();
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
        let message = PeerMessage::decode(bytes.clone()).unwrap();
        assert_eq!(format!("{message:?}"), shown);
        assert_eq!(bytes_of(&message), bytes, "{shown}");
        variants.insert(draw::variant(&message));
    }
    assert_eq!(variants, draw::VARIANTS.iter().copied().collect());
}

#[test]
fn message_that_is_cut_anywhere_or_too_long_is_refused() {
    let mut draw = Draw(2);
    for _ in 0..500 {
        let message = draw.message();
        let bytes = bytes_of(&message);
        for size in (0..bytes.len()).filter(|size| *size < 600 || size % 97 == 0) {
            let read = PeerMessage::decode(bytes.slice(..size));
            assert!(read.is_err(), "{message:?} of {size} bytes: {read:?}");
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        let problem = PeerMessage::decode(longer).unwrap_err().problem;
        assert_eq!(problem, Problem::Trailing { left: 1 });
    }
}

/// Whatever the bytes are, reading ends in a message that can be passed on, or in an error.
#[test]
fn damaged_bytes_are_refused_or_are_another_message() {
    let mut draw = Draw(3);
    let mut refused = BTreeSet::new();
    for _ in 0..16 * DRAWS {
        let message = draw.message();
        let damaged = Bytes::from(draw.damage(&bytes_of(&message)));
        match PeerMessage::decode(damaged) {
            Ok(read) => assert_eq!(PeerMessage::decode(bytes_of(&read)), Ok(read)),
            Err(error) => {
                refused.insert(error.field);
            }
        }
    }
    let fields = [
        "version",
        "kind",
        "message kind",
        "work kind",
        "output kind",
        "requests",
        "sections",
        "moves",
        "signs",
        "sign",
        "command",
        "address kind",
        "work of another group",
        "next",
        "reader kind",
        "consumer kind",
        "result",
        "refusal",
        "satisfied",
        "text",
        "reply",
        "batch",
        "prepare header",
    ];
    for field in fields {
        assert!(refused.contains(field), "{field} is not among {refused:?}");
    }
}

#[test]
fn bytes_of_another_version_are_refused_as_such() {
    let mut bytes = bytes_of(&Draw(4).message()).to_vec();
    bytes[0] = PEER_VERSION + 1;
    let error = PeerMessage::decode(Bytes::from(bytes)).unwrap_err();
    assert_eq!((error.field, error.position), ("version", 0));
}

fn appended(body: &Bytes, message: &PeerMessage) -> bool {
    let parts = message.encode();
    parts.iter().any(|part| part.as_ptr() == body.as_ptr())
}

#[test]
fn bodies_of_batches_and_prepares_are_not_copied() {
    let mut draw = Draw(5);
    let batch = draw.batch(50);
    assert!(batch.body.len() > 1_024);
    let group = ConsensusGroup(3);
    let work = draw.write(group, batch.clone()).into();
    let origin = draw.origin();
    let message = PeerMessage::Work {
        origin,
        group,
        work,
    };
    assert!(appended(&batch.body, &message));

    let frame = bytes_of(&message);
    let Ok(PeerMessage::Work { work, .. }) = PeerMessage::decode(frame.clone()) else {
        panic!("it is work");
    };
    let Work::Write { requests, .. } = *work else {
        panic!("it is a write");
    };
    let [(_, DataRequest::Append { batch: read, .. })] = requests.as_slice() else {
        panic!("it is one batch");
    };
    assert_eq!(read, &batch);
    let range = frame.as_ptr_range();
    assert!(range.contains(&read.body.as_ptr()));

    let body = Bytes::from(vec![7; 5_000]);
    let header = PrepareHeader::default().sealed(&body);
    let message = vsr::Message::Prepare(vsr::PrepareMessage {
        replica: origin.node,
        view: wire::View(1),
        commit: vsr::ChainPoint::default(),
        prepare: vsr::Prepare {
            header,
            body: body.clone(),
        },
    });
    assert!(appended(&body, &PeerMessage::Replica { group, message }));
}

/// What is done goes to the shard of its group: work for several groups, or for one that it is not for, is
/// not taken.
#[test]
fn work_of_another_group_is_refused() {
    let mut draw = Draw(6);
    let (group, origin) = (ConsensusGroup(3), draw.origin());
    let mut work = draw.poll(group);
    let message = PeerMessage::Work {
        origin,
        group,
        work: Work::Poll(work.clone()).into(),
    };
    let mut bytes = bytes_of(&message).to_vec();
    bytes[2] = 4;
    let error = PeerMessage::decode(Bytes::from(bytes)).unwrap_err();
    assert_eq!(error.field, "work of another group");

    work.sections.push(work.sections[0]);
    let mut writer = Writer::new();
    writer.u8(PEER_VERSION).u8(2).u16(group.0);
    origin.write(&mut writer);
    writer.u8(5);
    PollWork::write(&work, &mut writer);
    let error = PeerMessage::decode(writer.into_bytes()).unwrap_err();
    assert_eq!(error.field, "work of another group");
}

/// Polls are trimmed and counted by offsets: those of an answer rise, and belong to its batches.
#[test]
fn poll_whose_offsets_contradict_each_other_is_refused() {
    let mut draw = Draw(7);
    let origin = draw.origin();
    let sections = vec![(0, draw.poll_result(3))];
    let changed = |change: fn(&mut wire::PollResult)| {
        let mut sections = sections.clone();
        change(&mut sections[0].1);
        let outcome = Ok(Output::Polled {
            sections,
            satisfied: true,
        });
        let answer = Answer::without_group(outcome).into();
        PeerMessage::decode(bytes_of(&PeerMessage::Answer { origin, answer }))
    };
    assert!(changed(|_| ()).is_ok());
    assert_eq!(changed(|it| it.next.0 += 1).unwrap_err().field, "next");
    assert_eq!(changed(|it| it.from = it.next).unwrap_err().field, "next");
    assert_eq!(
        changed(|it| it.batches.swap(0, 1)).unwrap_err().field,
        "next"
    );
    assert_eq!(changed(|it| it.batches.clear()).unwrap_err().field, "next");
    let behind = |it: &mut wire::PollResult| {
        it.batches.clear();
        it.from = Offset(it.next.0 + 1);
    };
    assert_eq!(changed(behind).unwrap_err().field, "next");
}

/// A request that is passed on is judged as if it came from the client.
#[test]
fn request_that_its_command_does_not_have_is_refused() {
    let mut draw = Draw(8);
    let work = CatalogWork {
        caller: draw.caller(),
        peer: "[2001:db8::7]:5100".parse().unwrap(),
        request: Request::GetMe,
    };
    let group = ConsensusGroup::METADATA;
    let message = PeerMessage::Work {
        origin: draw.origin(),
        group,
        work: Work::Catalog(work).into(),
    };
    let bytes = bytes_of(&message).to_vec();
    let at = bytes.len() - 8;
    let changed = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        PeerMessage::decode(Bytes::from(bytes)).unwrap_err()
    };
    let unknown = changed(at, 999);
    assert_eq!((unknown.field, unknown.position), ("command", at));
    let login = changed(at, wire::Command::Login.code());
    assert_eq!((login.field, login.position), ("name", at + 8));
    let longer = changed(at + 4, 1);
    assert!(matches!(longer.problem, Problem::Truncated { .. }));
}

/// What every shard does itself has no bytes, so that nobody can ask another node for it.
#[test]
fn work_and_answers_of_one_node_have_no_bytes() {
    for (kind, is_known) in [(0, false), (1, true), (7, true), (8, false), (255, false)] {
        let mut writer = Writer::new();
        writer.u8(PEER_VERSION).u8(2).u16(0).u8(0).u16(0).u64(0);
        writer.u8(kind);
        let error = PeerMessage::decode(writer.into_bytes()).unwrap_err();
        assert_eq!(error.field != "work kind", is_known, "{kind}: {error}");
    }
}

#[test]
fn answer_to_a_shard_that_is_not_there_is_for_nobody() {
    let origin = Origin {
        shard: ShardId(2),
        ..Draw(9).origin()
    };
    let answer = Answer::without_group(Err(Failure::new(ErrorCode::Retry, ""))).into();
    let message = PeerMessage::Answer { origin, answer };
    assert_eq!(message.by_shard(3, 2), []);
}

/// A failure's text for people keeps its length on the way, up to that of a reply.
#[test]
fn text_of_a_failure_is_cut_as_in_a_reply() {
    let failure = Failure::new(ErrorCode::StreamNotFound, "x".repeat(9_000));
    let answer = Answer::without_group(Err(failure.clone())).into();
    let origin = Draw(10).origin();
    let message = PeerMessage::decode(bytes_of(&PeerMessage::Answer { origin, answer }));
    let Ok(PeerMessage::Answer { answer, .. }) = message else {
        panic!("it is an answer: {message:?}");
    };
    let text = answer.outcome.unwrap_err().text;
    assert_eq!(text.as_bytes(), failure.encode());
}

/// A client's largest frame with as many sections as there may be, passed on.
#[test]
fn largest_request_fits_a_frame_between_nodes() {
    let mut draw = Draw(11);
    let (group, origin) = (ConsensusGroup(1), draw.origin());
    let batch = draw.batch(1);
    let message = |count: u64| {
        let mut work = draw::write_of(group, batch.clone());
        if let Work::Write { requests, .. } = &mut work {
            let first = requests[0].clone();
            *requests = (0..count).map(|_| first.clone()).collect();
        }
        PeerMessage::Work {
            origin,
            group,
            work: work.into(),
        }
    };
    let size = |count| bytes_of(&message(count)).len();
    let batch_size = batch.header.size as usize;
    // A client's section has at least a byte beside its batch.
    let added = size(2) - size(1) - batch_size - 1;
    let sections = usize::try_from(Limit::SECTIONS.maximum).unwrap();
    let around = FRAME_HEADER_SIZE + size(1) - batch_size;
    assert!(around + added * sections <= (PEER_FRAME_SIZE_MAX - FRAME_SIZE_MAX) as usize);
    let frame = FrameHeader::peer(0).frame_of_parts(message(3).encode());
    let header = FrameHeader::read(&frame.concat()).unwrap();
    assert_eq!(header.check(PEER_FRAME_SIZE_MAX), Ok(()));
}
