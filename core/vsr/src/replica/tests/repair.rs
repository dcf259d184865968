//! Prepares that were lost on the way.

use std::vec::Vec;

use wire::{Op, ReplicaId, View};

use bytes::Bytes;

use super::{
    EMPTY, Fixture, START, chain, committed, heartbeat, point, prepare_at, prepare_message, send,
};
use crate::{
    ChainPoint, Effect, Ignore, Message, Note, Prepare, RequestPrepare, RequestedPrepare,
    constants::{KEPT_BYTES_MAX, REPAIR_WINDOW},
};

const fn request(op: u64) -> RequestPrepare {
    RequestPrepare {
        replica: ReplicaId(1),
        view: View(0),
        op: Op(op),
        checksum: None,
    }
}

fn requested(replica: u8, prepare: &Prepare) -> Message {
    Message::RequestedPrepare(RequestedPrepare {
        is_committed: false,
        replica: ReplicaId(replica),
        view: View(0),
        prepare: prepare.clone(),
    })
}

fn requests(effects: &[Effect]) -> Vec<u64> {
    let mut ops = Vec::new();
    for effect in effects {
        if let Effect::Send {
            to,
            message: Message::RequestPrepare(request),
        } = effect
        {
            assert_eq!(*to, ReplicaId(0));
            ops.push(request.op.0);
        }
    }
    ops
}

#[test]
fn backup_asks_for_the_prepares_before_one_that_is_ahead() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(3);
    let effects = backup.message(prepare_message(&prepares[2], EMPTY));
    let (first, last) = (Op(1), Op(3));
    assert_eq!(
        effects,
        [
            Effect::Note(Note::Ignored(Ignore::PrepareAhead)),
            Effect::Note(Note::RepairRequested { first, last }),
            send(0, Message::RequestPrepare(request(1))),
            send(0, Message::RequestPrepare(request(2))),
            send(0, Message::RequestPrepare(request(3))),
        ]
    );
    for prepare in &prepares {
        let effects = backup.message(requested(0, prepare));
        assert_eq!(effects, [Effect::WritePrepare(prepare.clone())]);
    }
    assert_eq!(backup.replica.op(), Op(3));
    assert_eq!(backup.tick_after(1_000), []);
}

#[test]
fn backup_asks_once_until_the_answers_are_late() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(4);
    backup.message(prepare_message(&prepares[1], EMPTY));
    let effects = backup.message(prepare_message(&prepares[3], EMPTY));
    assert_eq!(requests(&effects), []);
    assert_eq!(requests(&backup.tick_after(49)), []);
    assert_eq!(requests(&backup.tick_after(1)), [1, 2, 3, 4]);
    backup.message(requested(0, &prepares[0]));
    assert_eq!(requests(&backup.tick_after(99)), []);
    assert_eq!(requests(&backup.tick_after(1)), [2, 3, 4]);
}

#[test]
fn heartbeat_tells_of_prepares_that_never_arrived() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(2);
    let effects = backup.message(Message::Commit(heartbeat(2, point(&prepares[0]))));
    assert_eq!(requests(&effects), [1, 2]);
    let effects = backup.message(requested(0, &prepares[0]));
    assert_eq!(effects[1], committed(1));
}

#[test]
fn backup_that_is_far_behind_asks_window_by_window() {
    let mut backup = Fixture::started(1, 3);
    let count = REPAIR_WINDOW + 8;
    let prepares = chain(count);
    let last = prepares.last().map(point).unwrap();
    let effects = backup.message(Message::Commit(heartbeat(count, last)));
    let window: Vec<u64> = (1..=REPAIR_WINDOW).collect();
    assert_eq!(requests(&effects), window);
    for prepare in &prepares[..window.len() - 1] {
        let effects = backup.message(requested(0, prepare));
        assert_eq!(requests(&effects), []);
    }
    let effects = backup.message(requested(0, &prepares[window.len() - 1]));
    let rest: Vec<u64> = (REPAIR_WINDOW + 1..=count).collect();
    assert_eq!(requests(&effects), rest);
    let mut effects = Vec::new();
    for prepare in &prepares[window.len()..] {
        effects = backup.message(requested(0, prepare));
    }
    assert!(effects.contains(&committed(count)));
}

#[test]
fn answers_that_come_in_another_order_are_all_taken() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(4);
    backup.message(Message::Commit(heartbeat(4, EMPTY)));
    for prepare in [&prepares[3], &prepares[1], &prepares[1], &prepares[2]] {
        assert_eq!(backup.message(requested(0, prepare)), []);
    }
    let effects = backup.message(requested(0, &prepares[0]));
    let written = prepares.iter().cloned().map(Effect::WritePrepare);
    assert_eq!(effects, written.collect::<Vec<_>>());
    assert_eq!(requests(&backup.tick_after(1_000)), []);
}

#[test]
fn answer_that_is_held_is_not_asked_for_again() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(4);
    backup.message(Message::Commit(heartbeat(4, EMPTY)));
    backup.message(requested(0, &prepares[2]));
    assert_eq!(requests(&backup.tick_after(50)), [1, 2, 4]);
    // What it follows may come as it comes the first time, too.
    backup.message(prepare_message(&prepares[0], EMPTY));
    backup.message(prepare_message(&prepares[1], EMPTY));
    assert_eq!(backup.replica.op(), Op(3));
    assert_eq!(requests(&backup.tick_after(99)), []);
    assert_eq!(requests(&backup.tick_after(1)), [4]);
}

/// Prepares that take longer than the interval are not asked for again and again meanwhile: those that are sent
/// twice would keep the others from ever being in time.
#[test]
fn slow_answers_are_asked_for_less_and_less_often() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(4);
    let effects = backup.message(Message::Commit(heartbeat(4, EMPTY)));
    assert_eq!(requests(&effects), [1, 2, 3, 4]);
    for late in [50, 100, 200, 400, 800, 800] {
        assert_eq!(requests(&backup.tick_after(late - 1)), []);
        assert_eq!(requests(&backup.tick_after(1)), [1, 2, 3, 4]);
    }
    // Every answer is a sign that the next one is under way.
    for prepare in &prepares[..3] {
        assert_eq!(requests(&backup.tick_after(799)), []);
        backup.message(requested(0, prepare));
    }
    assert_eq!(requests(&backup.tick_after(799)), []);
    assert_eq!(requests(&backup.tick_after(1)), [4]);
}

#[test]
fn answer_that_nobody_asked_for_or_that_was_altered_is_not_held() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(4);
    backup.message(Message::Commit(heartbeat(3, EMPTY)));
    let ignored = |reason| [Effect::Note(Note::Ignored(reason))];
    let effects = backup.message(requested(0, &prepares[3]));
    assert_eq!(effects, ignored(Ignore::PrepareAhead));
    let mut altered = prepares[1].clone();
    altered.body = Bytes::from_static(b"ydob");
    let effects = backup.message(requested(0, &altered));
    assert_eq!(effects, ignored(Ignore::PrepareInvalid));
    assert_eq!(requests(&backup.tick_after(50)), [1, 2, 3, 4]);
}

/// One that does not follow what comes before it is found out when that is there.
#[test]
fn held_answer_that_is_of_another_chain_is_asked_for_again() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(2);
    backup.message(Message::Commit(heartbeat(2, EMPTY)));
    let stranger = ChainPoint {
        op: Op(1),
        checksum: 1,
    };
    let other = prepare_at(stranger, START + 2, "other");
    assert_eq!(backup.message(requested(0, &other)), []);
    let effects = backup.message(requested(0, &prepares[0]));
    assert_eq!(
        effects,
        [
            Effect::WritePrepare(prepares[0].clone()),
            Effect::Note(Note::Ignored(Ignore::PrepareUnchained)),
        ]
    );
    assert_eq!(requests(&backup.tick_after(50)), [2]);
}

#[test]
fn answers_are_held_within_bounds() {
    static LARGE: [u8; KEPT_BYTES_MAX / 2] = [b'x'; KEPT_BYTES_MAX / 2];
    let large = core::str::from_utf8(&LARGE).unwrap();
    let mut backup = Fixture::started(1, 3);
    let mut head = ChainPoint::default();
    let mut prepares = Vec::new();
    for op in 1..=4 {
        let prepare = prepare_at(head, START + op, if op == 1 { "small" } else { large });
        head = point(&prepare);
        prepares.push(prepare);
    }
    backup.message(Message::Commit(heartbeat(4, EMPTY)));
    assert_eq!(backup.message(requested(0, &prepares[1])), []);
    for prepare in &prepares[2..] {
        let effects = backup.message(requested(0, prepare));
        assert_eq!(effects, [Effect::Note(Note::Ignored(Ignore::PrepareAhead))]);
    }
    backup.message(requested(0, &prepares[0]));
    assert_eq!(backup.replica.op(), Op(2));
    assert_eq!(requests(&backup.tick_after(50)), [3, 4]);
}

/// A message that names an op far beyond any real one costs one window of questions.
#[test]
fn absurd_op_is_asked_for_within_bounds() {
    let mut backup = Fixture::started(1, 3);
    let effects = backup.message(Message::Commit(heartbeat(u64::MAX, EMPTY)));
    assert_eq!(requests(&effects).len() as u64, REPAIR_WINDOW);
}

#[test]
fn replica_hands_out_what_it_has_in_memory() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    let effects = primary.message(Message::RequestPrepare(request(1)));
    assert_eq!(effects, [send(1, requested(0, &prepare))]);

    let mut by_name = request(1);
    by_name.checksum = Some(prepare.header.checksum);
    let effects = primary.message(Message::RequestPrepare(by_name));
    assert_eq!(effects, [send(1, requested(0, &prepare))]);

    let ignored = Effect::Note(Note::Ignored(Ignore::PrepareNotKept));
    by_name.checksum = Some(prepare.header.checksum ^ 1);
    for unknown in [by_name, request(0), request(2), request(u64::MAX)] {
        let effects = primary.message(Message::RequestPrepare(unknown));
        assert_eq!(effects, std::slice::from_ref(&ignored));
    }
}

#[test]
fn primary_takes_no_prepare_from_others() {
    let mut primary = Fixture::started(0, 3);
    let effects = primary.message(requested(1, &chain(1)[0]));
    assert_eq!(effects, [Effect::Note(Note::Ignored(Ignore::NotBackup))]);
}
