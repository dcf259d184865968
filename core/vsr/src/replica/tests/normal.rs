//! Requests, prepares, acknowledgements and commits.

use std::{vec, vec::Vec};

use bytes::Bytes;
use wire::{Op, PrepareHeader, ReplicaId, Timestamp, View};

use super::{
    CLUSTER, EMPTY, Fixture, OPERATION, START, apply, chain, committed, heartbeat, point,
    prepare_at, prepare_message, prepare_ok, refuse, send, written,
};
use crate::{
    ChainPoint, CommitOk, Effect, Ignore, Input, Message, Note, Origin, PIPELINE_BYTES_MAX,
    PIPELINE_PREPARES_MAX, Prepare, PrepareMessage, PrepareOk, Refusal, Request, Room, Status,
    Token,
};

fn ignored(reason: Ignore) -> Vec<Effect> {
    vec![Effect::Note(Note::Ignored(reason))]
}

#[test]
fn one_replica_writes_then_commits_then_applies() {
    let mut alone = Fixture::alone();
    let expected = Prepare {
        header: PrepareHeader {
            parent: 0,
            cluster: CLUSTER.0,
            op: 1,
            timestamp: START,
            operation: OPERATION,
            version: 1,
            ..PrepareHeader::default()
        }
        .sealed(b"hello"),
        body: Bytes::from_static(b"hello"),
    };
    let effects = alone.request(4, Origin::Internal, "hello");
    assert_eq!(effects, [Effect::WritePrepare(expected.clone())]);
    assert_eq!(alone.replica.commit_max(), Op(0));

    let effects = alone.durable(&expected);
    assert_eq!(effects, [committed(1), apply(expected, Some(4))]);
    assert_eq!(alone.replica.commit_max(), Op(1));
    assert_eq!(alone.replica.commit_min(), Op(0));

    assert_eq!(alone.applied(1, "done"), []);
    assert_eq!(alone.replica.commit_min(), Op(1));
}

#[test]
fn primary_sends_a_prepare_to_every_backup_and_to_its_disk() {
    let mut primary = Fixture::started(0, 3);
    let effects = primary.request(4, Origin::Internal, "body");
    let prepare = written(&effects);
    assert_eq!(
        effects,
        [
            send(1, prepare_message(&prepare, EMPTY)),
            send(2, prepare_message(&prepare, EMPTY)),
            Effect::WritePrepare(prepare),
        ]
    );
}

#[test]
fn primary_commits_with_a_quorum_and_tells_it_with_the_next_prepare() {
    let mut primary = Fixture::started(0, 3);
    let first = primary.prepare(1);
    assert_eq!(primary.durable(&first), []);
    let effects = primary.message(Message::PrepareOk(prepare_ok(2, &first)));
    assert_eq!(effects, [committed(1), apply(first.clone(), Some(1))]);

    let effects = primary.request(2, Origin::Internal, "body");
    let second = written(&effects);
    assert_eq!(effects[0], send(1, prepare_message(&second, point(&first))));
}

#[test]
fn primary_commits_by_its_backups_before_its_own_disk_is_done() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    let effects = primary.message(Message::PrepareOk(prepare_ok(2, &prepare)));
    assert_eq!(effects, [committed(1), apply(prepare.clone(), Some(1))]);
    primary.applied(1, "");
    assert_eq!(primary.durable(&prepare), []);
}

#[test]
fn ops_commit_in_order_whatever_the_order_of_the_acknowledgements() {
    let mut primary = Fixture::started(0, 3);
    let prepares: Vec<Prepare> = (1..=3).map(|token| primary.prepare(token)).collect();
    for prepare in prepares.iter().rev() {
        assert_eq!(primary.durable(prepare), []);
    }
    for prepare in [&prepares[2], &prepares[1]] {
        assert_eq!(
            primary.message(Message::PrepareOk(prepare_ok(1, prepare))),
            []
        );
    }
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &prepares[0])));
    assert_eq!(
        effects,
        [
            committed(3),
            apply(prepares[0].clone(), Some(1)),
            apply(prepares[1].clone(), Some(2)),
            apply(prepares[2].clone(), Some(3)),
        ]
    );
}

/// V5: a repeated acknowledgement is one vote.
#[test]
fn primary_counts_a_backup_once() {
    let mut primary = Fixture::started(0, 5);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    let ok = Message::PrepareOk(prepare_ok(3, &prepare));
    assert_eq!(primary.message(ok.clone()), []);
    assert_eq!(primary.message(ok), ignored(Ignore::PrepareOkRepeated));
    assert_eq!(primary.replica.commit_max(), Op(0));
    let effects = primary.message(Message::PrepareOk(prepare_ok(4, &prepare)));
    assert_eq!(effects[0], committed(1));
}

/// V7: an acknowledgement of another op with the same number does not count.
#[test]
fn primary_does_not_count_an_acknowledgement_of_another_checksum() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    let ok = PrepareOk {
        checksum: prepare.header.checksum ^ 1,
        ..prepare_ok(1, &prepare)
    };
    let effects = primary.message(Message::PrepareOk(ok));
    assert_eq!(effects, ignored(Ignore::PrepareOkChecksum));
    assert_eq!(primary.replica.commit_max(), Op(0));
}

/// V7: an acknowledgement counts in its view only.
#[test]
fn primary_does_not_count_an_acknowledgement_of_another_view() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    let ok = PrepareOk {
        view: View(3),
        ..prepare_ok(1, &prepare)
    };
    let effects = primary.message(Message::PrepareOk(ok));
    assert_eq!(effects, ignored(Ignore::NewerView));
    assert_eq!(primary.replica.commit_max(), Op(0));
}

#[test]
fn primary_ignores_an_acknowledgement_of_an_op_that_it_never_prepared() {
    let mut primary = Fixture::started(0, 3);
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &chain(1)[0])));
    assert_eq!(effects, ignored(Ignore::PrepareOkNotInFlight));
}

#[test]
fn late_acknowledgements_of_committed_ops_are_nothing_special() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    assert_eq!(
        primary.message(Message::PrepareOk(prepare_ok(2, &prepare))),
        []
    );
    primary.applied(1, "");
    assert_eq!(
        primary.message(Message::PrepareOk(prepare_ok(2, &prepare))),
        []
    );
}

/// V7: a backup acknowledges what is on its disk, and nothing before.
#[test]
fn backup_acknowledges_when_the_prepare_is_durable() {
    let mut backup = Fixture::started(1, 3);
    let prepare = &chain(1)[0];
    let effects = backup.message(prepare_message(prepare, EMPTY));
    assert_eq!(effects, [Effect::WritePrepare(prepare.clone())]);

    let ok = Message::PrepareOk(prepare_ok(1, prepare));
    assert_eq!(backup.durable(prepare), [send(0, ok)]);
}

/// V7: the acknowledgement of an op stands for those before it, so it waits for them.
#[test]
fn backup_acknowledges_no_op_behind_a_gap_of_its_disk() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(3);
    for prepare in &prepares {
        backup.message(prepare_message(prepare, EMPTY));
    }
    assert_eq!(backup.durable(&prepares[2]), []);
    assert_eq!(backup.durable(&prepares[1]), []);
    let oks = |index: usize| send(0, Message::PrepareOk(prepare_ok(1, &prepares[index])));
    assert_eq!(backup.durable(&prepares[0]), [oks(0), oks(1), oks(2)]);
}

#[test]
fn completion_of_a_write_of_something_else_acknowledges_nothing() {
    let mut backup = Fixture::started(1, 3);
    let prepare = &chain(1)[0];
    backup.message(prepare_message(prepare, EMPTY));
    let effects = backup.handle(Input::PrepareWritten {
        op: Op(1),
        checksum: prepare.header.checksum ^ 1,
    });
    assert_eq!(effects, ignored(Ignore::WriteUnknown));
}

#[test]
fn backup_applies_what_a_later_prepare_says_is_committed() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(2);
    backup.message(prepare_message(&prepares[0], EMPTY));
    let effects = backup.message(prepare_message(&prepares[1], point(&prepares[0])));
    assert_eq!(
        effects,
        [
            Effect::WritePrepare(prepares[1].clone()),
            committed(1),
            apply(prepares[0].clone(), None),
        ]
    );
}

#[test]
fn backup_answers_a_heartbeat_and_applies_what_it_says_is_committed() {
    let mut backup = Fixture::started(1, 3);
    let prepare = &chain(1)[0];
    backup.message(prepare_message(prepare, EMPTY));
    let effects = backup.message(Message::Commit(heartbeat(1, point(prepare))));
    let ok = |commit_min| {
        Message::CommitOk(CommitOk {
            replica: ReplicaId(1),
            view: View(0),
            commit_min: Op(commit_min),
            checkpoint: Op(0),
            is_willing: true,
        })
    };
    assert_eq!(
        effects,
        [committed(1), apply(prepare.clone(), None), send(0, ok(0))]
    );
    backup.applied(1, "");
    let effects = backup.message(Message::Commit(heartbeat(1, point(prepare))));
    assert_eq!(effects, [send(0, ok(1))]);
}

#[test]
fn backup_acknowledges_again_when_a_heartbeat_shows_that_nothing_moved() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(2);
    backup.message(Message::Commit(heartbeat(0, EMPTY)));
    for prepare in &prepares {
        backup.message(prepare_message(prepare, EMPTY));
        backup.durable(prepare);
    }
    let effects = backup.message(Message::Commit(heartbeat(2, EMPTY)));
    assert_eq!(
        effects[1..],
        [
            send(0, Message::PrepareOk(prepare_ok(1, &prepares[0]))),
            send(0, Message::PrepareOk(prepare_ok(1, &prepares[1]))),
        ]
    );
    // Something moved since: the acknowledgements arrive.
    let effects = backup.message(Message::Commit(heartbeat(2, point(&prepares[0]))));
    assert!(!effects.iter().any(|effect| matches!(
        effect,
        Effect::Send {
            message: Message::PrepareOk(_),
            ..
        }
    )));
}

/// V9: an op is applied only if it is the very op that the primary says is committed.
#[test]
fn backup_applies_nothing_when_the_committed_op_is_another() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(2);
    for prepare in &prepares {
        backup.message(prepare_message(prepare, EMPTY));
    }
    let other = ChainPoint {
        op: Op(2),
        checksum: prepares[1].header.checksum ^ 1,
    };
    let effects = backup.message(Message::Commit(heartbeat(2, other)));
    assert_eq!(
        effects[0],
        Effect::Note(Note::Ignored(Ignore::CommitUnchained))
    );
    assert!(!effects.iter().any(|it| matches!(it, Effect::Apply { .. })));
    assert_eq!(backup.replica.commit_min(), Op(0));
}

/// V9: while the committed op itself is missing, the ops before it are not known to be those of the view.
#[test]
fn backup_applies_nothing_before_it_has_the_committed_op() {
    let mut backup = Fixture::started(1, 3);
    let prepares = chain(2);
    backup.message(prepare_message(&prepares[0], EMPTY));
    backup.message(Message::Commit(heartbeat(2, point(&prepares[1]))));
    assert_eq!(backup.replica.commit_max(), Op(2));
    assert_eq!(backup.replica.status(), Status::Normal);
    let effects = backup.message(prepare_message(&prepares[1], EMPTY));
    assert_eq!(
        effects,
        [
            Effect::WritePrepare(prepares[1].clone()),
            committed(2),
            apply(prepares[0].clone(), None),
            apply(prepares[1].clone(), None),
        ]
    );
}

/// V9: an op that does not follow from the one before it does not enter the journal.
#[test]
fn backup_ignores_a_prepare_that_is_not_chained() {
    let mut backup = Fixture::started(1, 3);
    let first = &chain(1)[0];
    backup.message(prepare_message(first, EMPTY));
    let stranger = ChainPoint {
        op: Op(1),
        checksum: first.header.checksum ^ 1,
    };
    let second = prepare_at(stranger, START + 2, "body");
    let effects = backup.message(prepare_message(&second, EMPTY));
    assert_eq!(effects, ignored(Ignore::PrepareUnchained));
    assert_eq!(backup.replica.op(), Op(1));
}

#[test]
fn backup_ignores_damaged_and_foreign_prepares() {
    let mut backup = Fixture::started(1, 3);
    let good = chain(1).remove(0);
    let mut variants = vec![good.clone(), good.clone(), good.clone(), good.clone(), good];
    variants[0].header.timestamp += 1;
    variants[1].body = Bytes::from_static(b"bodY");
    variants[2].header.cluster += 1;
    variants[3].header.group += 1;
    variants[4].header.view += 1;
    for variant in &mut variants[2..] {
        variant.header = variant.header.sealed(&variant.body);
    }
    for prepare in variants {
        let effects = backup.message(prepare_message(&prepare, EMPTY));
        assert_eq!(effects, ignored(Ignore::PrepareInvalid));
    }
    assert_eq!(backup.replica.op(), Op(0));
}

#[test]
fn backup_ignores_a_prepare_that_it_has() {
    let mut backup = Fixture::started(1, 3);
    let prepare = &chain(1)[0];
    backup.message(prepare_message(prepare, EMPTY));
    let effects = backup.message(prepare_message(prepare, EMPTY));
    assert_eq!(effects, ignored(Ignore::PrepareRepeated));
    let other = prepare_at(EMPTY, START + 9, "other");
    let effects = backup.message(prepare_message(&other, EMPTY));
    assert_eq!(effects, ignored(Ignore::PrepareConflicts));
}

#[test]
fn only_the_primary_of_the_view_prepares() {
    let mut backup = Fixture::started(1, 3);
    let message = Message::Prepare(PrepareMessage {
        replica: ReplicaId(2),
        view: View(0),
        commit: EMPTY,
        prepare: chain(1).remove(0),
    });
    assert_eq!(backup.message(message), ignored(Ignore::FromBackup));
}

#[test]
fn backup_names_the_primary() {
    let mut backup = Fixture::started(1, 3);
    let primary = ReplicaId(0);
    let effects = backup.request(4, Origin::Internal, "body");
    assert_eq!(effects, [refuse(4, Refusal::NotPrimary { primary })]);
    assert_eq!(backup.replica.primary(), primary);
    assert_eq!(
        backup.replica.room(),
        Room {
            prepares: 0,
            bytes: 0
        }
    );
}

/// V16: time goes on by one when the clock stands still or goes back, and by the clock else.
#[test]
fn timestamps_rise_whatever_the_clock_does() {
    let mut alone = Fixture::alone();
    let timestamps: Vec<u64> = [START, START, START - 500, START + 7]
        .into_iter()
        .map(|wall| {
            alone.now.wall = Timestamp(wall);
            alone.prepare(1).header.timestamp
        })
        .collect();
    assert_eq!(timestamps, [START, START + 1, START + 2, START + 7]);
}

/// V16: a prepare that is not later than the one before it cannot come from a primary.
#[test]
fn backup_ignores_a_prepare_that_is_not_later_than_its_parent() {
    let mut backup = Fixture::started(1, 3);
    let first = &chain(1)[0];
    backup.message(prepare_message(first, EMPTY));
    let second = prepare_at(point(first), first.header.timestamp, "body");
    let effects = backup.message(prepare_message(&second, EMPTY));
    assert_eq!(effects, ignored(Ignore::PrepareInvalid));
}

#[test]
fn primary_sends_heartbeats_while_nothing_happens() {
    let mut primary = Fixture::started(0, 3);
    let expected = [
        send(1, Message::Commit(heartbeat(0, EMPTY))),
        send(2, Message::Commit(heartbeat(0, EMPTY))),
    ];
    assert_eq!(primary.tick_after(24), []);
    assert_eq!(primary.tick_after(1), expected);
    assert_eq!(primary.tick_after(10), []);
    assert_eq!(primary.tick_after(100), expected);
}

#[test]
fn one_replica_alone_needs_no_clock() {
    let mut alone = Fixture::alone();
    assert_eq!(alone.tick_after(10_000), []);
}

#[test]
fn pipeline_takes_its_number_of_ops() {
    let mut alone = Fixture::alone();
    let prepares: Vec<Prepare> = (0..PIPELINE_PREPARES_MAX as u64)
        .map(|token| alone.prepare(token))
        .collect();
    assert_eq!(alone.replica.room().prepares, 0);
    let effects = alone.request(99, Origin::Internal, "body");
    assert_eq!(effects, [refuse(99, Refusal::Busy)]);

    // Committed is not enough: what is not applied takes memory.
    alone.durable(&prepares[0]);
    let effects = alone.request(99, Origin::Internal, "body");
    assert_eq!(effects, [refuse(99, Refusal::Busy)]);
    alone.applied(1, "");
    assert_eq!(alone.replica.room().prepares, 1);
    assert_eq!(
        alone.prepare(100).header.op,
        PIPELINE_PREPARES_MAX as u64 + 1
    );
}

#[test]
fn pipeline_takes_its_bytes_or_a_single_larger_op() {
    let mut alone = Fixture::alone();
    let request = |token, size: usize| {
        Input::Request(Request {
            token: Token(token),
            origin: Origin::Internal,
            operation: OPERATION,
            body: Bytes::from(vec![0; size]),
        })
    };
    let effects = alone.handle(request(1, PIPELINE_BYTES_MAX));
    let large = written(&effects);
    assert_eq!(alone.replica.room().bytes, 0);
    assert_eq!(alone.handle(request(2, 0)), [refuse(2, Refusal::Busy)]);
    alone.durable(&large);
    alone.applied(1, "");
    assert_eq!(alone.replica.room().bytes, PIPELINE_BYTES_MAX);

    written(&alone.handle(request(3, PIPELINE_BYTES_MAX / 2)));
    let effects = alone.handle(request(4, PIPELINE_BYTES_MAX / 2));
    assert_eq!(effects, [refuse(4, Refusal::Busy)]);
    written(&alone.handle(request(5, PIPELINE_BYTES_MAX / 2 - 1024)));
}

/// Ops of the node itself wait for nothing but their order, and their answers may be late.
#[test]
fn ops_that_no_client_asked_for_are_applied_without_waiting() {
    let mut alone = Fixture::alone();
    let prepares: Vec<Prepare> = (1..=3).map(|token| alone.prepare(token)).collect();
    for (index, prepare) in prepares.iter().enumerate() {
        let token = Some(index as u64 + 1);
        let effects = alone.durable(prepare);
        assert_eq!(
            effects,
            [committed(prepare.header.op), apply(prepare.clone(), token)]
        );
    }
    for op in 1..=3 {
        assert_eq!(alone.applied(op, ""), []);
    }
}
