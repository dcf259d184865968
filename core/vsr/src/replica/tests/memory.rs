//! What stays in memory.

use wire::Op;

use super::{EMPTY, Fixture, chain, heartbeat, point, prepare_message};
use crate::{
    Message,
    constants::{KEPT_BYTES_MAX, KEPT_PREPARES_MAX},
};

#[test]
fn replica_alone_keeps_no_prepare_that_is_applied() {
    let mut alone = Fixture::alone();
    let first = alone.prepare(1);
    let second = alone.prepare(2);
    alone.durable(&first);
    assert!(alone.replica.journal.prepare(Op(1)).is_some());
    alone.applied(1, "");
    assert_eq!(alone.replica.journal.prepare(Op(1)), None);
    alone.durable(&second);
    alone.applied(2, "");
    assert_eq!(alone.replica.journal.prepare(Op(2)), None);
    assert_eq!(alone.replica.op(), Op(2));
}

#[test]
fn replica_with_backups_keeps_a_bounded_number_of_prepares() {
    let mut backup = Fixture::started(1, 3);
    let count = KEPT_PREPARES_MAX as u64 + 10;
    for prepare in chain(count) {
        backup.message(prepare_message(&prepare, EMPTY));
        backup.durable(&prepare);
        let op = prepare.header.op;
        backup.message(Message::Commit(heartbeat(op, point(&prepare))));
        backup.applied(op, "");
    }
    let journal = &backup.replica.journal;
    assert_eq!(journal.base(), Op(10));
    assert!(journal.prepare(Op(11)).is_some());
}

#[test]
fn replica_with_backups_keeps_a_bounded_number_of_bytes() {
    let mut backup = Fixture::started(1, 3);
    let body = bytes::Bytes::from(std::vec![0; KEPT_BYTES_MAX / 4]);
    let mut head = EMPTY;
    for op in 1..=8 {
        let mut prepare = super::prepare_at(head, super::START + op, "");
        prepare.body = body.clone();
        prepare.header = prepare.header.sealed(&prepare.body);
        head = point(&prepare);
        backup.message(prepare_message(&prepare, EMPTY));
        backup.durable(&prepare);
        backup.message(Message::Commit(heartbeat(op, head)));
        backup.applied(op, "");
    }
    // Four with their headers are too many.
    assert_eq!(backup.replica.journal.base(), Op(5));
}

#[test]
fn prepare_that_is_not_durable_or_not_applied_is_kept() {
    let mut backup = Fixture::started(1, 3);
    let count = KEPT_PREPARES_MAX as u64 + 10;
    let prepares = chain(count);
    for prepare in &prepares {
        backup.message(prepare_message(prepare, EMPTY));
        let op = prepare.header.op;
        backup.message(Message::Commit(heartbeat(op, point(prepare))));
        backup.applied(op, "");
    }
    assert_eq!(backup.replica.journal.base(), Op(0));
    for prepare in &prepares {
        backup.durable(prepare);
    }
    assert_eq!(backup.replica.journal.base(), Op(10));
}
