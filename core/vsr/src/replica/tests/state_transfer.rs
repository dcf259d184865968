//! Checkpoints of other replicas (V3, V15).

use std::vec::Vec;

use wire::{Op, ReplicaId, View};

use super::{
    EMPTY, Fixture, START, chain, config, disk_between, heartbeat, ok_in, point, prepare_in,
    prepare_message, prepare_ok, send, start_view, superblock, superblock_between,
    view_change_started, vote, wish,
};
use crate::{
    Checkpoint, Commit, CommitOk, Effect, Gone, Ignore, Input, Message, Note, Prepare, Recovered,
    Status, Superblock,
};

const fn gone(from: u8, op: u64, checkpoint: u64) -> Message {
    Message::Gone(Gone {
        replica: ReplicaId(from),
        view: View(0),
        op: Op(op),
        checkpoint: Op(checkpoint),
    })
}

/// The checkpoint after `prepare`.
fn checkpoint_at(prepare: &Prepare) -> Checkpoint {
    Checkpoint {
        op: prepare.header.op(),
        checksum: prepare.header.checksum,
        timestamp: prepare.header.timestamp(),
        view: prepare.header.view(),
        ..Checkpoint::default()
    }
}

const fn ignored(reason: Ignore) -> Effect {
    Effect::Note(Note::Ignored(reason))
}

const fn fetch(at_least: u64, from: u8) -> Effect {
    Effect::FetchCheckpoint {
        at_least: Op(at_least),
        from: ReplicaId(from),
    }
}

/// A backup of view 0 with the first two of these ops, which has been told that the third is gone.
fn backup_in_transfer(prepares: &[Prepare]) -> Fixture {
    let mut backup = Fixture::backup_with(1, 3, &prepares[..2]);
    backup.message(Message::Commit(heartbeat(
        prepares.len() as u64,
        point(&prepares[1]),
    )));
    backup.applied(1, "");
    backup.applied(2, "");
    let effects = backup.message(gone(0, 3, 4));
    let wanted = Effect::Note(Note::CheckpointWanted { op: Op(3) });
    assert_eq!(effects, [wanted, fetch(3, 0)]);
    backup
}

#[test]
fn backup_whose_next_op_is_gone_fetches_a_checkpoint() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    assert_eq!(backup.replica.wanted_checkpoint(), Some(Op(3)));
    // Once, and it asks for prepares no more.
    assert_eq!(
        backup.message(gone(0, 4, 4)),
        [ignored(Ignore::GoneRepeated)]
    );
    let effects = backup.message(Message::Commit(heartbeat(6, point(&prepares[1]))));
    let is_request = |it: &Effect| matches!(it, Effect::Send { message, .. } if matches!(message, Message::RequestPrepare(_)));
    assert!(!effects.iter().any(is_request));
    assert!(!backup.wait(200).iter().any(is_request));
}

#[test]
fn what_is_said_to_be_gone_must_be_missing_and_in_a_checkpoint() {
    let prepares = chain(6);
    let mut backup = Fixture::backup_with(1, 3, &prepares[..2]);
    backup.message(Message::Commit(heartbeat(6, point(&prepares[1]))));
    for late in [
        gone(0, 2, 4),
        gone(0, 7, 9),
        gone(0, 3, 2),
        gone(0, u64::MAX, u64::MAX),
    ] {
        assert_eq!(backup.message(late), [ignored(Ignore::GoneUnwanted)]);
    }
    assert_eq!(backup.replica.wanted_checkpoint(), None);
    let mut primary = Fixture::started(0, 3);
    assert_eq!(primary.message(gone(1, 1, 4)), [ignored(Ignore::NotNormal)]);
}

/// V3: until the checkpoint is here and durable the replica has, and promises, what it had.
#[test]
fn v3_journal_stays_whole_until_the_checkpoint_is_durable() {
    let prepares = chain(6);
    let mut backup = Fixture::backup_with(1, 3, &prepares[..2]);
    // Op 2 is acknowledged, and not known to be committed.
    backup.message(Message::Commit(heartbeat(6, point(&prepares[0]))));
    backup.applied(1, "");
    backup.message(gone(0, 3, 4));
    assert_eq!(backup.replica.op(), Op(2));

    // A view change comes in between: it votes with all that it has.
    let effects = backup.message(wish(0, 1, 0));
    assert!(effects.contains(&view_change_started(1)));
    let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
    assert_eq!(effects, []);
    let effects = backup.message(Message::DoViewChange(vote(2, 1, 0, EMPTY, &prepares[..1])));
    assert_eq!(backup.replica.op(), Op(2));
    let installed = superblock_between(3, 1, 1, &prepares[..2]);
    assert_eq!(effects, [Effect::WriteSuperblock(installed)]);
}

/// V3: one superblock, which begins the journal at the checkpoint.
#[test]
fn v3_checkpoint_is_installed_by_one_superblock() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    let effects = backup.handle(Input::CheckpointFetched(checkpoint_at(&prepares[3])));
    let expected = Superblock {
        checkpoint: point(&prepares[3]),
        ..superblock(2, 0, 4)
    };
    assert_eq!(
        effects,
        [
            Effect::WriteSuperblock(expected),
            Effect::Note(Note::CheckpointInstalled { op: Op(4) }),
            Effect::ReplaceState { op: Op(4) },
            Effect::StatusChanged,
        ]
    );
    assert_eq!(backup.replica.status(), Status::StateTransfer);
    assert_eq!(backup.replica.commit_min(), Op(4));
    assert_eq!(backup.replica.wanted_checkpoint(), None);
}

/// V15: what a restart might not find is neither acknowledged nor voted for, nor is the checkpoint named.
#[test]
fn v15_nothing_is_said_until_the_checkpoint_is_installed() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    backup.handle(Input::CheckpointFetched(checkpoint_at(&prepares[3])));
    let says_something = |effects: &[Effect]| {
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Send { .. } | Effect::WritePrepare(_)))
    };
    for message in [
        prepare_message(&prepares[4], point(&prepares[3])),
        Message::Commit(heartbeat(6, point(&prepares[3]))),
        wish(0, 1, 0),
        wish(2, 1, 0),
    ] {
        assert!(!says_something(&backup.message(message)));
    }
    assert!(!says_something(&backup.wait(300)));

    // Then it goes on where it was: it asks for the rest, and acknowledges it when that is durable.
    let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
    assert_eq!(backup.replica.status(), Status::Normal);
    assert!(says_something(&effects));
    backup.message(prepare_message(&prepares[4], point(&prepares[3])));
    let effects = backup.durable(&prepares[4]);
    let mut expected = prepare_ok(1, &prepares[4]);
    expected.checkpoint = Op(4);
    assert_eq!(effects, [send(0, Message::PrepareOk(expected))]);
    let commit = Commit {
        checkpoint_quorum: Op(4),
        ..heartbeat(5, point(&prepares[3]))
    };
    let effects = backup.message(Message::Commit(commit));
    let ok = CommitOk {
        replica: ReplicaId(1),
        view: View(0),
        commit_min: Op(4),
        checkpoint: Op(4),
        is_willing: true,
    };
    assert!(effects.contains(&send(0, Message::CommitOk(ok))));
}

/// V15: while a checkpoint is fetched, what comes after the gap is not acknowledged.
#[test]
fn v15_replica_that_fetches_acknowledges_nothing_behind_the_gap() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    for prepare in &prepares[3..] {
        let effects = backup.message(prepare_message(prepare, point(&prepares[1])));
        assert_eq!(effects, [ignored(Ignore::PrepareAhead)]);
        let effects = backup.durable(prepare);
        assert_eq!(effects, [ignored(Ignore::WriteUnknown)]);
    }
}

#[test]
fn checkpoint_that_goes_beyond_nothing_changes_nothing() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    let old = Input::CheckpointFetched(checkpoint_at(&prepares[1]));
    let unknown = [ignored(Ignore::CheckpointUnknown)];
    assert_eq!(backup.handle(old)[..1], unknown);
    assert_eq!(backup.replica.op(), Op(2));
    // A primary has whatever is committed.
    let mut primary = Fixture::started(0, 3);
    let late = Input::CheckpointFetched(checkpoint_at(&prepares[3]));
    assert_eq!(primary.handle(late), unknown);
}

/// What it was fetched for came late after all. It is here now, and what comes next may be gone, too.
#[test]
fn checkpoint_that_is_not_wanted_any_more_is_taken_if_it_goes_further() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    backup.message(prepare_message(&prepares[2], point(&prepares[2])));
    backup.durable(&prepares[2]);
    backup.applied(3, "");
    assert_eq!(backup.replica.wanted_checkpoint(), None);
    let effects = backup.handle(Input::CheckpointFetched(checkpoint_at(&prepares[4])));
    assert!(
        effects.contains(&Effect::ReplaceState { op: Op(5) }),
        "{effects:?}"
    );
    assert_eq!(backup.replica.status(), Status::StateTransfer);
}

/// The journal of a later view is here, but for an op that only a checkpoint of the others holds.
fn in_view_change(prepares: &[Prepare]) -> Fixture {
    let mut backup = Fixture::backup_with(2, 3, &prepares[..2]);
    let begun = start_view(1, 1, point(&prepares[5]), &prepares[6..7]);
    backup.message(Message::StartView(begun));
    assert_eq!(backup.replica.status(), Status::ViewChange);
    let effects = backup.message(gone(1, 3, 4));
    assert!(effects.contains(&fetch(3, 1)));
    backup
}

#[test]
fn checkpoint_is_installed_between_views_and_the_rest_is_fetched() {
    let prepares = chain(7);
    let mut backup = in_view_change(&prepares);
    let effects = backup.handle(Input::CheckpointFetched(checkpoint_at(&prepares[3])));
    // log_view stays: the journal of view 1 is not here yet.
    let expected = Superblock {
        checkpoint: point(&prepares[3]),
        ..superblock(2, 0, 4)
    };
    assert_eq!(effects[0], Effect::WriteSuperblock(expected));
    let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
    assert_eq!(backup.replica.status(), Status::ViewChange);
    let asked: Vec<u64> = effects.iter().filter_map(asked_for).collect();
    assert_eq!(asked, [5, 6]);
    for prepare in &prepares[4..7] {
        backup.message(super::requested_prepare(1, 1, true, prepare));
        backup.durable(prepare);
    }
    let sequence = 3;
    let effects = backup.handle(Input::SuperblockWritten { sequence });
    assert_eq!(backup.replica.status(), Status::Normal);
    assert_eq!(backup.replica.view(), View(1));
    let mut last = ok_in(2, 1, &prepares[6]);
    last.checkpoint = Op(4);
    assert!(effects.contains(&send(1, Message::PrepareOk(last))));
}

fn asked_for(effect: &Effect) -> Option<u64> {
    if let Effect::Send {
        message: Message::RequestPrepare(request),
        ..
    } = effect
    {
        Some(request.op.0)
    } else {
        None
    }
}

/// A checkpoint of a view after the one that is about to begin: that one is over.
#[test]
fn journal_of_a_view_that_the_checkpoint_has_overtaken_is_given_up() {
    let prepares = chain(7);
    let other = prepare_in(3, point(&prepares[5]), START + 60);
    let beyond = prepare_in(3, point(&other), START + 70);
    for later in [&other, &beyond] {
        let mut backup = in_view_change(&prepares);
        backup.handle(Input::CheckpointFetched(checkpoint_at(later)));
        let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
        assert_eq!(effects.iter().filter_map(asked_for).count(), 0);
        assert_eq!(backup.replica.commit_min(), later.header.op());
        // And it is not taken up again.
        let begun = start_view(1, 1, point(&prepares[5]), &prepares[6..7]);
        let effects = backup.message(Message::StartView(begun));
        assert!(effects.iter().all(|it| asked_for(it).is_none()));
    }
}

/// A restart between the checkpoint's last byte and its superblock.
#[test]
fn restart_finds_a_checkpoint_that_was_not_installed_yet() {
    let own = chain(4);
    let committed = prepare_in(3, point(&own[1]), START + 60);
    let next = prepare_in(3, point(&committed), START + 70);
    // Its own ops 3 and 4 came to nothing.
    for (checkpoint, log_view, view) in [(&next, 0, 4), (&committed, 0, 4), (&next, 2, 2)] {
        let recovered = Recovered {
            checkpoint: Some(checkpoint_at(checkpoint)),
            ..disk_between(log_view, view, &own)
        };
        let (backup, effects) = Fixture::starting(config(0, 3), recovered);
        let op = checkpoint.header.op();
        let note = Note::Recovered { checkpoint: op, op };
        assert!(effects.contains(&Effect::Note(note)), "{effects:?}");
        assert_eq!(backup.replica.commit_min(), op);
    }
}

/// V11: what was promised of the lost head stays promised.
#[test]
fn replica_without_its_head_keeps_what_it_promised_of_it() {
    let prepares = chain(6);
    let mut disk = disk_between(0, 0, &prepares[..5]);
    disk.head_uncertain = true;
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    let mut begun = start_view(0, 0, point(&prepares[5]), &[]);
    begun.nonce = Some(99);
    backup.message(Message::StartView(begun));
    backup.message(gone(0, 1, 3));
    let effects = backup.handle(Input::CheckpointFetched(checkpoint_at(&prepares[2])));
    let mut expected = superblock_between(10, 0, 0, &prepares[..5]);
    expected.checkpoint = point(&prepares[2]);
    expected.suffix.drain(..3);
    assert_eq!(effects[0], Effect::WriteSuperblock(expected));
    backup.handle(Input::SuperblockWritten { sequence: 10 });
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
}

/// Another replica had the prepare still.
#[test]
fn checkpoint_is_not_wanted_once_the_missing_op_has_come_otherwise() {
    let prepares = chain(7);
    let mut backup = in_view_change(&prepares);
    for prepare in &prepares[2..4] {
        backup.message(super::requested_prepare(0, 1, true, prepare));
    }
    // Both are here, and the wanted one is committed: no checkpoint is needed.
    assert_eq!(backup.replica.wanted_checkpoint(), None);
    let effects = backup.handle(Input::CheckpointFetched(checkpoint_at(&prepares[3])));
    assert_eq!(effects, [ignored(Ignore::CheckpointUnknown)]);
    assert_eq!(backup.replica.op(), Op(4));
}

/// It was fetched for what was missing before, and more is missing by now. Nobody else would ask again: what is said to
/// be gone says nothing new.
#[test]
fn checkpoint_that_is_still_wanted_when_an_older_one_comes_is_fetched_again() {
    let prepares = chain(6);
    let mut backup = backup_in_transfer(&prepares);
    let older = checkpoint_at(&prepares[1]);
    let effects = backup.handle(Input::CheckpointFetched(older));
    assert_eq!(effects, [ignored(Ignore::CheckpointUnknown), fetch(3, 0)]);
    assert_eq!(backup.replica.wanted_checkpoint(), Some(Op(3)));
}
