//! Starting from a disk (V10, V11).

use std::{string::ToString, vec, vec::Vec};

use wire::{Op, Timestamp, View};

use super::{
    CLIENT, Fixture, START, apply, chain, committed, config, point, prepare_at, refuse, rotten,
    session, superblock, written,
};
use crate::{
    Barriers, ChainPoint, Checkpoint, ClientSessions, Effect, Ignore, Input, Note, Origin,
    OutOfService, Prepare, Recovered, Refusal, Status, Superblock,
};

fn disk(prepares: Vec<Prepare>) -> Recovered {
    Recovered {
        superblock: Some(superblock(1, 0, 0)),
        prepares,
        ..Recovered::default()
    }
}

fn checkpoint_after(prepare: &Prepare) -> Checkpoint {
    Checkpoint {
        op: prepare.header.op(),
        checksum: prepare.header.checksum,
        timestamp: prepare.header.timestamp(),
        view: prepare.header.view(),
        client_sessions: ClientSessions::default(),
        barriers: Barriers::default(),
    }
}

fn reason(recovered: Recovered) -> OutOfService {
    let (fixture, effects) = Fixture::starting(config(0, 1), recovered);
    let Status::OutOfService(reason) = fixture.replica.status() else {
        panic!("in service: {effects:?}");
    };
    assert_eq!(effects, [Effect::Note(Note::OutOfService(reason))]);
    reason
}

/// V10: a restarted primary of its own view starts the next one, durable first; all that is durable in the
/// chain is committed and applied.
#[test]
fn restarted_replica_enters_the_next_view_and_applies_its_journal() {
    let prepares = chain(3);
    let recovered = Recovered {
        superblock: Some(superblock(6, 4, 3)),
        ..disk(prepares.clone())
    };
    let (mut alone, effects) = Fixture::starting(config(0, 1), recovered);
    assert_eq!(
        effects,
        [
            Effect::Note(Note::Recovered {
                checkpoint: Op(0),
                op: Op(3),
            }),
            Effect::WriteSuperblock(superblock(7, 5, 3)),
        ]
    );
    assert_eq!(alone.replica.status(), Status::Recovering);
    let effects = alone.handle(Input::SuperblockWritten { sequence: 7 });
    let mut expected = vec![
        Effect::Note(Note::ViewEntered { view: View(5) }),
        Effect::StatusChanged,
        committed(3),
    ];
    expected.extend(prepares.into_iter().map(|prepare| apply(prepare, None)));
    assert_eq!(effects, expected);
}

/// V8: what was inherited is applied before anything is served.
#[test]
fn restarted_replica_serves_once_its_journal_is_applied() {
    let (mut alone, _) = Fixture::starting(config(0, 1), disk(chain(2)));
    alone.handle(Input::SuperblockWritten { sequence: 2 });
    for op in 1..=2 {
        let effects = alone.request(1, Origin::Internal, "");
        assert_eq!(effects, [refuse(1, Refusal::NotReady)]);
        let effects = alone.applied(op, "");
        let expected = if op == 2 {
            vec![Effect::StatusChanged]
        } else {
            vec![]
        };
        assert_eq!(effects, expected);
    }
    let prepare = alone.prepare(1);
    assert_eq!(prepare.header.op, 3);
    assert_eq!(prepare.header.parent, chain(2)[1].header.checksum);
    assert_eq!(prepare.header.view, 1);
}

/// The disk after five ops, with a checkpoint of the second.
fn disk_with_checkpoint(prepares: &[Prepare]) -> Recovered {
    Recovered {
        superblock: Some(Superblock {
            checkpoint: point(&chain(2)[1]),
            checkpoint_quorum: Op(2),
            ..superblock(3, 0, 0)
        }),
        checkpoint: Some(checkpoint_after(&chain(2)[1])),
        prepares: prepares.to_vec(),
        ..Recovered::default()
    }
}

#[test]
fn journal_goes_on_from_the_checkpoint_whether_older_prepares_are_there_or_not() {
    let prepares = chain(5);
    for found in [&prepares[2..], &prepares[..]] {
        let (mut alone, effects) = Fixture::starting(config(0, 1), disk_with_checkpoint(found));
        let expected = Superblock {
            checkpoint: point(&prepares[1]),
            checkpoint_quorum: Op(2),
            ..superblock(4, 1, 5)
        };
        assert_eq!(effects[1..], [Effect::WriteSuperblock(expected)]);
        assert_eq!(alone.replica.checkpoint_op(), Op(2));
        let effects = alone.handle(Input::SuperblockWritten { sequence: 4 });
        let mut expected = vec![committed(5)];
        expected.extend(prepares[2..].iter().map(|it| apply(it.clone(), None)));
        assert_eq!(effects[2..], expected);
    }
}

/// V9 and V16: with nothing behind the checkpoint, chain and time go on from it.
#[test]
fn checkpoint_alone_is_enough_to_go_on() {
    let last = chain(2).remove(1);
    let mut recovered = disk_with_checkpoint(&[]);
    let (mut alone, _) = Fixture::starting(config(0, 1), recovered.clone());
    alone.handle(Input::SuperblockWritten { sequence: 4 });
    alone.now.wall = Timestamp(0);
    let next = alone.prepare(1);
    assert_eq!(next.header.op, 3);
    assert_eq!(next.header.parent, last.header.checksum);
    assert_eq!(next.header.timestamp, last.header.timestamp + 1);

    // It may be newer than the superblock knows: the crash came between the two.
    recovered.superblock = Some(superblock(3, 0, 0));
    let (alone, _) = Fixture::starting(config(0, 1), recovered);
    assert_eq!(alone.replica.status(), Status::Recovering);
    assert_eq!(alone.replica.checkpoint_op(), Op(2));
}

/// An older snapshot does as well while the prepares in between are there.
#[test]
fn older_checkpoint_serves_if_the_journal_reaches_over_the_newer() {
    let prepares = chain(5);
    let mut recovered = disk_with_checkpoint(&prepares);
    recovered.checkpoint = Some(checkpoint_after(&prepares[0]));
    let (alone, _) = Fixture::starting(config(0, 1), recovered.clone());
    assert_eq!(alone.replica.status(), Status::Recovering);
    assert_eq!(alone.replica.checkpoint_op(), Op(1));

    recovered.prepares = prepares[2..].to_vec();
    let op = Op(2);
    assert_eq!(reason(recovered), OutOfService::CheckpointMissing { op });
}

/// V14: retries are answered after a restart, from the journal and from a snapshot.
#[test]
fn restarted_replica_answers_repeated_requests() {
    let mut before = Fixture::alone();
    let number = before.register(CLIENT);
    let register = before.replica.begin_checkpoint();
    let prepare = written(&before.request(1, session(CLIENT, number, 1), "body"));
    before.durable(&prepare);
    before.applied(2, "one");
    let repeated = |alone: &mut Fixture| {
        let effects = alone.request(2, session(CLIENT, number, 1), "body");
        assert!(matches!(&effects[..], [Effect::Reply { op: Op(2), .. }]));
    };

    let (mut alone, _) = Fixture::starting(
        config(0, 1),
        Recovered {
            checkpoint: Some(register),
            ..disk(vec![prepare])
        },
    );
    alone.handle(Input::SuperblockWritten { sequence: 2 });
    alone.applied(2, "one");
    repeated(&mut alone);

    let (mut alone, _) = Fixture::starting(
        config(0, 1),
        Recovered {
            checkpoint: Some(before.replica.begin_checkpoint()),
            ..disk(vec![])
        },
    );
    alone.handle(Input::SuperblockWritten { sequence: 2 });
    repeated(&mut alone);
}

/// What the install of the last view truncated stays truncated, though its bytes are still there.
#[test]
fn prepare_that_the_last_view_truncated_is_dropped() {
    let prepares = chain(3);
    let recovered = Recovered {
        superblock: Some(superblock(2, 1, 2)),
        ..disk(prepares.clone())
    };
    let (alone, effects) = Fixture::starting(config(0, 1), recovered.clone());
    assert_eq!(alone.replica.op(), Op(2));
    assert_eq!(effects[1], Effect::Note(Note::Dropped { op: Op(3) }));

    // The op that took its number was written later, in the new view.
    let mut third = prepare_at(point(&prepares[1]), START + 50, "new");
    third.header.view = 1;
    third.header = third.header.sealed(&third.body);
    for order in [vec![0, 1, 2, 3], vec![0, 1, 3, 2]] {
        let all = [&prepares[..], &[third.clone()]].concat();
        let mut recovered = recovered.clone();
        recovered.prepares = order.iter().map(|index| all[*index].clone()).collect();
        let (alone, _) = Fixture::starting(config(0, 1), recovered);
        assert_eq!(alone.replica.op(), Op(3));
        assert_eq!(alone.replica.journal.head().point, point(&third));
    }
}

#[test]
fn of_two_prepares_with_one_op_the_one_written_last_counts() {
    let prepares = chain(3);
    let second = prepare_at(point(&prepares[0]), START + 50, "new");
    let found = vec![prepares[0].clone(), prepares[1].clone(), second.clone()];
    let (alone, _) = Fixture::starting(config(0, 1), disk(found));
    assert_eq!(alone.replica.journal.head().point, point(&second));
}

/// V11: what was flushed and cannot be read is not guessed.
#[test]
fn rotten_prepare_above_the_checkpoint_takes_the_replica_out_of_service() {
    let prepares = chain(4);
    let middle = Recovered {
        rotten: vec![rotten(2)],
        ..disk(vec![prepares[0].clone(), prepares[2].clone()])
    };
    let op = Op(2);
    assert_eq!(reason(middle), OutOfService::PrepareRotten { op });
    let last = Recovered {
        rotten: vec![rotten(6), rotten(5)],
        ..disk(prepares)
    };
    let op = Op(5);
    assert_eq!(reason(last), OutOfService::PrepareRotten { op });
}

/// V11: below the checkpoint nobody needs it, and a good copy is as good.
#[test]
fn rotten_prepare_that_is_not_needed_does_no_harm() {
    let prepares = chain(5);
    let mut recovered = disk_with_checkpoint(&prepares);
    recovered.rotten = vec![rotten(1), rotten(2), rotten(4)];
    let (alone, _) = Fixture::starting(config(0, 1), recovered);
    assert_eq!(alone.replica.status(), Status::Recovering);
    assert_eq!(alone.replica.op(), Op(5));
}

#[test]
fn damaged_header_counts_as_rotten() {
    for damage in [
        |it: &mut Prepare| it.header.timestamp += 1,
        |it: &mut Prepare| {
            it.header.group = 3;
            it.header = it.header.sealed(&it.body);
        },
        |it: &mut Prepare| {
            it.header.cluster += 1;
            it.header = it.header.sealed(&it.body);
        },
    ] {
        let mut prepares = chain(2);
        damage(&mut prepares[1]);
        let op = Op(2);
        assert_eq!(reason(disk(prepares)), OutOfService::PrepareRotten { op });
    }
}

#[test]
fn gap_takes_the_replica_out_of_service() {
    let mut prepares = chain(4);
    prepares.remove(1);
    let op = Op(2);
    assert_eq!(reason(disk(prepares)), OutOfService::PrepareMissing { op });
}

/// All that the journal held when its view began was committed.
#[test]
fn journal_that_ends_before_its_view_began_is_missing_something() {
    let recovered = Recovered {
        superblock: Some(superblock(2, 1, 4)),
        ..disk(chain(3))
    };
    let op = Op(4);
    assert_eq!(reason(recovered), OutOfService::PrepareMissing { op });
}

/// V9: a prepare that does not follow from the one before it is not applied.
#[test]
fn broken_chain_takes_the_replica_out_of_service() {
    let mut prepares = chain(3);
    let stranger = ChainPoint {
        op: Op(1),
        checksum: prepares[0].header.checksum ^ 1,
    };
    prepares[1] = prepare_at(stranger, START + 2, "body");
    let op = Op(2);
    assert_eq!(
        reason(disk(prepares)),
        OutOfService::PrepareUnchained { op }
    );
}

#[test]
fn journal_of_another_history_than_the_checkpoint_is_refused() {
    let prepares = chain(4);
    let mut recovered = disk_with_checkpoint(&prepares);
    recovered.checkpoint = Some(checkpoint_after(&prepares[0]));
    if let Some(superblock) = &mut recovered.superblock {
        superblock.checkpoint.checksum ^= 1;
    }
    let op = Op(2);
    assert_eq!(reason(recovered), OutOfService::PrepareUnchained { op });
}

#[test]
fn checkpoint_that_is_not_the_one_named_is_refused() {
    let prepares = chain(4);
    let op = Op(2);
    let mut recovered = disk_with_checkpoint(&prepares[2..]);
    recovered.checkpoint = None;
    assert_eq!(
        reason(recovered.clone()),
        OutOfService::CheckpointMissing { op }
    );
    recovered.checkpoint = Some(Checkpoint {
        checksum: 1,
        ..checkpoint_after(&prepares[1])
    });
    assert_eq!(reason(recovered), OutOfService::CheckpointMissing { op });
}

/// A replica whose promises are lost has forgotten them (V13).
#[test]
fn lost_superblock_is_not_a_fresh_disk() {
    let lost = |prepares, checkpoint| Recovered {
        prepares,
        checkpoint,
        ..Recovered::default()
    };
    let checkpoint = Some(checkpoint_after(&chain(1)[0]));
    for recovered in [lost(chain(1), None), lost(vec![], checkpoint)] {
        assert_eq!(reason(recovered.clone()), OutOfService::SuperblockMissing);
        let (fixture, _) = Fixture::starting(config(1, 3), recovered);
        let expected = Status::OutOfService(OutOfService::SuperblockMissing);
        assert_eq!(fixture.replica.status(), expected);
    }
}

/// V11: n = 1 has nobody to ask.
#[test]
fn uncertain_head_takes_the_only_replica_out_of_service() {
    let recovered = Recovered {
        head_uncertain: true,
        ..disk(chain(3))
    };
    let op = Op(3);
    assert_eq!(reason(recovered), OutOfService::HeadUncertain { op });
}

#[test]
fn replica_out_of_service_says_why_and_does_nothing() {
    let recovered = Recovered {
        superblock: Some(superblock(2, 5, 4)),
        ..disk(chain(3))
    };
    let (mut out, _) = Fixture::starting(config(0, 1), recovered);
    let why = OutOfService::PrepareMissing { op: Op(4) };
    assert_eq!(why.to_string(), "op 4 is missing");
    let refused = [refuse(1, Refusal::OutOfService(why))];
    assert_eq!(out.request(1, Origin::Internal, ""), refused);
    let effects = out.handle(Input::ConfirmView {
        token: crate::Token(1),
    });
    assert_eq!(effects, refused);
    assert_eq!(out.tick_after(1_000), []);
    let effects = out.handle(Input::CheckpointWritten { op: Op(1) });
    let ignored = Effect::Note(Note::Ignored(Ignore::CheckpointUnknown));
    assert_eq!(effects, [ignored]);
    assert!(!out.replica.is_serving());
}

/// A long journal is handed out piece by piece: what waits for the state machine is bounded.
#[test]
fn long_journal_is_applied_in_order_and_in_pieces() {
    let prepares = chain(1_000);
    let (mut alone, _) = Fixture::starting(config(0, 1), disk(prepares.clone()));
    let mut effects = alone.handle(Input::SuperblockWritten { sequence: 2 });
    let mut next = 0;
    let mut waiting_max = 0;
    while next < prepares.len() {
        let applies: Vec<Effect> = effects
            .drain(..)
            .filter(|it| matches!(it, Effect::Apply { .. }))
            .collect();
        waiting_max = applies.len().max(waiting_max);
        for effect in applies {
            assert_eq!(effect, apply(prepares[next].clone(), None));
            next += 1;
            effects.extend(alone.applied(next as u64, ""));
        }
    }
    assert!(alone.replica.is_serving());
    assert_eq!(alone.replica.commit_min(), Op(1_000));
    assert!(waiting_max <= crate::PIPELINE_PREPARES_MAX);
}
