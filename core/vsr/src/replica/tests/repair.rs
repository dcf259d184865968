//! Prepares that were lost on the way.

use std::vec::Vec;

use wire::{Op, ReplicaId, View};

use super::{EMPTY, Fixture, chain, committed, heartbeat, point, prepare_message, send};
use crate::{
    Effect, Ignore, Message, Note, Prepare, RequestPrepare, RequestedPrepare,
    constants::REPAIR_WINDOW,
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
    assert_eq!(requests(&backup.tick_after(50)), [2, 3, 4]);
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
