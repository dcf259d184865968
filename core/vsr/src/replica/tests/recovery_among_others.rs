//! Starting from a disk as one of several (V5, V10, V12).

use std::{slice, vec, vec::Vec};

use wire::{Op, View};

use super::{
    EMPTY, Fixture, START, chain, config, disk_between, heartbeat, point, prepare_at, prepare_in,
    prepare_message, request_prepare, rotten, send, superblock_between, view_change_started,
    view_entered, vote, wish,
};
use crate::{
    Barriers, Checkpoint, ClientSessions, DoViewChange, Effect, Input, Message, Note, OutOfService,
    Prepare, Recovered, Status, Superblock,
};

fn recovered(checkpoint: u64, op: u64) -> Effect {
    Effect::Note(Note::Recovered {
        checkpoint: Op(checkpoint),
        op: Op(op),
    })
}

const fn dropped(op: u64) -> Effect {
    Effect::Note(Note::Dropped { op: Op(op) })
}

/// V10: what it said as a primary before it stopped may still be on its way: it leads another view or none.
#[test]
fn v10_restarted_primary_leaves_its_view() {
    let prepares = chain(2);
    let (mut primary, effects) = Fixture::starting(config(1, 3), disk_between(4, 4, &prepares));
    let expected = [
        recovered(0, 2),
        view_change_started(5),
        Effect::StatusChanged,
        Effect::WriteSuperblock(superblock_between(10, 4, 5, &prepares)),
        send(0, wish(1, 5, 4)),
        send(2, wish(1, 5, 4)),
    ];
    assert_eq!(effects, expected);
    assert!(!primary.replica.is_serving());
    let effects = primary.handle(Input::SuperblockWritten { sequence: 10 });
    let expected = vote(1, 5, 4, EMPTY, &prepares);
    assert_eq!(effects, [send(2, Message::DoViewChange(expected))]);
}

/// V5: who had left its view, and may have voted, votes the same; it does not go back.
#[test]
fn v5_restarted_replica_votes_again() {
    let prepares = chain(2);
    let (mut backup, effects) = Fixture::starting(config(2, 3), disk_between(0, 4, &prepares));
    let expected = Message::DoViewChange(vote(2, 4, 0, EMPTY, &prepares));
    assert_eq!(effects, [recovered(0, 2), send(1, expected)]);
    assert_eq!(backup.replica.status(), Status::ViewChange);
    let old = Message::Commit(heartbeat(2, point(&prepares[1])));
    backup.message(old);
    assert_eq!(backup.replica.view(), View(4));
}

/// A backup goes on where it was, with what was prepared since the view began.
#[test]
fn restarted_backup_has_what_was_prepared_in_its_view() {
    let inherited = chain(2);
    let third = prepare_in(4, point(&inherited[1]), START + 7);
    // The one that was truncated, and the one that the next view wanted in its place.
    let truncated = prepare_at(point(&inherited[1]), START + 5, "old");
    let aside = prepare_in(2, point(&inherited[1]), START + 6);
    let mut disk = disk_between(4, 4, &inherited);
    disk.prepares = vec![
        inherited[0].clone(),
        inherited[1].clone(),
        truncated,
        third.clone(),
        aside,
    ];
    let (backup, effects) = Fixture::starting(config(2, 3), disk);
    let expected = [
        recovered(0, 3),
        dropped(3),
        dropped(3),
        view_entered(4),
        Effect::StatusChanged,
    ];
    assert_eq!(effects, expected);
    assert_eq!(backup.replica.journal.head().point, point(&third));
}

/// Prepares that were laid aside for a view that came to nothing are not part of the journal, and no gap in
/// it (first found in a group of five).
#[test]
fn prepares_laid_aside_for_a_view_that_came_to_nothing_are_no_gap() {
    let journal = chain(2);
    let aside: Vec<Prepare> = {
        let third = prepare_in(1, point(&journal[1]), START + 6);
        let fourth = prepare_in(1, point(&third), START + 7);
        let fifth = prepare_in(1, point(&fourth), START + 8);
        vec![fifth, third]
    };
    for (log_view, view) in [(0, 0), (0, 1), (0, 4)] {
        let mut disk = disk_between(log_view, view, &journal);
        disk.prepares.extend(aside.clone());
        let (backup, effects) = Fixture::starting(config(2, 3), disk);
        assert_eq!(effects[..3], [recovered(0, 2), dropped(3), dropped(5)]);
        assert_eq!(backup.replica.op(), Op(2));
    }
}

/// What is missing though nothing shows that it was lost: the disk cannot be trusted in anything.
#[test]
fn missing_prepare_without_a_trace_takes_the_replica_out_of_service() {
    let prepares = chain(3);
    let mut disk = disk_between(4, 4, &prepares);
    disk.prepares.remove(2);
    disk.rotten = vec![rotten(2)];
    let (mut out, effects) = Fixture::starting(config(2, 3), disk);
    let expected = OutOfService::PrepareMissing { op: Op(3) };
    assert_eq!(out.replica.status(), Status::OutOfService(expected));
    assert_eq!(effects, [Effect::Note(Note::OutOfService(expected))]);
    // No vote.
    out.message(wish(0, 5, 4));
    out.message(wish(1, 5, 4));
    assert_eq!(out.wait(300), []);
}

/// A disk on which a checkpoint of the last of these ops was written, and not the superblock that names it.
fn disk_with_unnamed(view: u32, prepares: &[Prepare]) -> Recovered {
    let last = &prepares[prepares.len() - 1].header;
    let mut disk = disk_between(4, view, prepares);
    disk.checkpoint = Some(Checkpoint {
        op: last.op(),
        checksum: last.checksum,
        timestamp: last.timestamp(),
        view: last.view(),
        ..Checkpoint::default()
    });
    disk
}

/// The superblocks that are written, and whether anything is said.
fn written(effects: &[Effect]) -> (Vec<Superblock>, bool) {
    let mut superblocks = Vec::new();
    for effect in effects {
        if let Effect::WriteSuperblock(superblock) = effect {
            superblocks.push(superblock.clone());
        }
    }
    let speaks = effects.iter().any(|it| matches!(it, Effect::Send { .. }));
    (superblocks, speaks)
}

/// V15: were it lost once something relies on it, nothing would tell that it was there.
#[test]
fn v15_checkpoint_that_has_no_name_gets_one_before_anything_relies_on_it() {
    let prepares = chain(2);
    for view in [4, 6] {
        let (mut backup, effects) =
            Fixture::starting(config(2, 3), disk_with_unnamed(view, &prepares));
        let expected = Superblock {
            checkpoint: point(&prepares[1]),
            suffix: vec![],
            ..superblock_between(10, 4, view, &prepares)
        };
        assert_eq!(written(&effects), (vec![expected], false));
        assert_eq!(backup.replica.status(), Status::Recovering);
        assert!(!written(&backup.wait(300)).1);
        let effects = backup.handle(Input::SuperblockWritten { sequence: 10 });
        if view == 4 {
            assert_eq!(effects[0], view_entered(4));
        } else {
            let vote = DoViewChange {
                checkpoint: Op(2),
                ..vote(2, 6, 4, point(&prepares[1]), &[])
            };
            assert_eq!(effects, [send(0, Message::DoViewChange(vote))]);
        }
    }
}

/// The superblock by which a primary leaves its view is the one that names it.
#[test]
fn v15_restarted_primary_names_its_checkpoint() {
    let prepares = chain(2);
    let disk = disk_with_unnamed(4, &prepares);
    let (_, effects) = Fixture::starting(config(1, 3), disk.clone());
    let (superblocks, _) = written(&effects);
    let [superblock] = &superblocks[..] else {
        panic!("{superblocks:?}");
    };
    assert_eq!(superblock.checkpoint, point(&prepares[1]));
    assert_eq!(superblock.view, View(5));

    let disk = Recovered {
        head_uncertain: true,
        ..disk
    };
    let (without_head, effects) = Fixture::starting(config(1, 3), disk);
    let (superblocks, _) = written(&effects);
    assert_eq!(superblocks.len(), 1);
    assert_eq!(superblocks[0].checkpoint, point(&prepares[1]));
    assert_eq!(without_head.replica.status(), Status::RecoveringHead);
}

/// A disk with a checkpoint of the second of three ops, and another second op that a view that came to
/// nothing has left there, written last.
fn disk_with_two_of_one_op(prepares: &[Prepare]) -> Recovered {
    let second = &prepares[1].header;
    let mut disk = disk_between(0, 0, &prepares[2..]);
    if let Some(superblock) = &mut disk.superblock {
        superblock.checkpoint = point(&prepares[1]);
    }
    disk.checkpoint = Some(Checkpoint {
        op: second.op(),
        checksum: second.checksum,
        timestamp: second.timestamp(),
        view: second.view(),
        client_sessions: ClientSessions::default(),
        barriers: Barriers::default(),
    });
    disk.prepares = prepares.to_vec();
    disk.prepares
        .push(prepare_at(point(&prepares[0]), START + 9, "other"));
    disk
}

/// A committed op is read from the disk by its checksum: the prepare written last with its number may be
/// another (first found in a group of three). And that checksum is known after a restart, for ops up to the
/// checkpoint, too.
#[test]
fn committed_op_is_read_from_the_disk_by_its_checksum() {
    let prepares = chain(3);
    let disk = disk_with_two_of_one_op(&prepares);
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    for (index, prepare) in prepares[..2].iter().enumerate() {
        let op = index as u64 + 1;
        let effects = backup.message(request_prepare(1, 0, op, None));
        let read = Effect::ReadPrepare {
            op: Op(op),
            checksum: prepare.header.checksum,
            to: super::ReplicaId(1),
        };
        assert_eq!(effects, [read]);
    }
    let found = Input::PrepareRead {
        op: Op(2),
        to: super::ReplicaId(1),
        prepare: Some(prepares[1].clone()),
    };
    let answer = super::requested_prepare(2, 0, true, &prepares[1]);
    assert_eq!(backup.handle(found), [send(1, answer)]);
}

/// The same while the process runs: what has left the memory is named by its checksum.
#[test]
fn op_that_has_left_the_memory_is_read_by_its_checksum() {
    let prepares = chain(100);
    let mut backup = Fixture::started(2, 3);
    for prepare in &prepares {
        backup.message(prepare_message(prepare, EMPTY));
        backup.durable(prepare);
    }
    backup.message(Message::Commit(heartbeat(100, point(&prepares[99]))));
    for op in 1..=100 {
        backup.applied(op, "");
    }
    let read = Effect::ReadPrepare {
        op: Op(7),
        checksum: prepares[6].header.checksum,
        to: super::ReplicaId(1),
    };
    assert_eq!(backup.message(request_prepare(1, 0, 7, None)), [read]);
}

/// An op this far behind the head is committed: its primary had applied it before it prepared the head.
#[test]
fn ops_far_behind_the_head_are_committed() {
    let prepares = chain(40);
    let mut disk = disk_between(0, 0, &prepares[8..]);
    disk.prepares.clone_from(&prepares);
    let (backup, _) = Fixture::starting(config(2, 3), disk);
    assert_eq!(backup.replica.commit_max(), Op(8));
    let disk = disk_between(0, 0, slice::from_ref(&prepares[0]));
    let (backup, _) = Fixture::starting(config(2, 3), disk);
    assert_eq!(backup.replica.commit_max(), Op(0));
}
