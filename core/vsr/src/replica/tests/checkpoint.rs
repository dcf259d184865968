//! Checkpoints, and what they let the journal recycle (V15).

use wire::{Op, ReplicaId, Timestamp, View};

use super::{
    CLIENT, EMPTY, Fixture, START, chain, heartbeat, point, prepare_message, prepare_ok, superblock,
};
use crate::{
    Barriers, Checkpoint, Commit, CommitOk, Effect, Ignore, Input, Message, Note, PrepareOk,
    Superblock,
};

fn recyclable(effects: &[Effect]) -> Option<Op> {
    effects.iter().find_map(|effect| {
        if let Effect::WriteSuperblock(superblock) = effect {
            Some(superblock.recyclable())
        } else {
            None
        }
    })
}

#[test]
fn checkpoint_names_the_op_that_is_applied() {
    let mut alone = Fixture::alone();
    alone.register(CLIENT);
    let prepare = alone.prepare(1);
    alone.durable(&prepare);
    alone.applied(2, "");
    let unapplied = alone.prepare(2);
    alone.durable(&unapplied);
    assert_eq!(
        alone.replica.begin_checkpoint(),
        Checkpoint {
            op: Op(2),
            checksum: prepare.header.checksum,
            timestamp: Timestamp(START + 1),
            view: View(0),
            client_sessions: alone.replica.client_sessions().clone(),
            barriers: Barriers::default(),
        }
    );
}

#[test]
fn checkpoint_of_the_only_replica_lets_its_journal_recycle() {
    let mut alone = Fixture::alone();
    let prepare = alone.prepare(1);
    alone.durable(&prepare);
    alone.applied(1, "");
    alone.replica.begin_checkpoint();
    // Ops go on while it is written.
    let next = alone.prepare(2);
    alone.durable(&next);
    alone.applied(2, "");
    let effects = alone.handle(Input::CheckpointWritten { op: Op(1) });
    let expected = Superblock {
        checkpoint: point(&prepare),
        checkpoint_quorum: Op(1),
        ..superblock(2, 0, 0)
    };
    assert_eq!(expected.recyclable(), Op(1));
    assert_eq!(effects, [Effect::WriteSuperblock(expected)]);
    assert_eq!(alone.replica.checkpoint_op(), Op(1));
}

#[test]
fn completion_of_a_checkpoint_that_was_begun_anew_changes_nothing() {
    let mut alone = Fixture::alone();
    alone.replica.begin_checkpoint();
    let prepare = alone.prepare(1);
    alone.durable(&prepare);
    alone.applied(1, "");
    alone.replica.begin_checkpoint();
    let effects = alone.handle(Input::CheckpointWritten { op: Op(0) });
    let ignored = Effect::Note(Note::Ignored(Ignore::CheckpointUnknown));
    assert_eq!(effects, [ignored]);
    assert_eq!(alone.replica.checkpoint_op(), Op(0));
}

/// V15: the primary's own checkpoint is not enough.
#[test]
fn journal_waits_for_the_checkpoints_of_a_quorum() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    primary.applied(1, "");
    primary.replica.begin_checkpoint();
    let effects = primary.handle(Input::CheckpointWritten { op: Op(1) });
    assert_eq!(recyclable(&effects), Some(Op(0)));

    let ok = CommitOk {
        replica: ReplicaId(2),
        view: View(0),
        commit_min: Op(1),
        checkpoint: Op(1),
        is_willing: true,
    };
    let effects = primary.message(Message::CommitOk(ok));
    assert_eq!(recyclable(&effects), Some(Op(1)));
    // Said once, and told to the backups.
    assert_eq!(primary.message(Message::CommitOk(ok)), []);
    let effects = primary.tick_after(25);
    let expected = Commit {
        checkpoint_quorum: Op(1),
        ..heartbeat(1, point(&prepare))
    };
    assert_eq!(effects[0], super::send(1, Message::Commit(expected)));
}

/// V15: the quorum's checkpoints alone are not enough either; prepare_ok tells of them, too.
#[test]
fn journal_waits_for_the_local_checkpoint() {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    for replica in [1, 2] {
        let ok = PrepareOk {
            checkpoint: Op(1),
            ..prepare_ok(replica, &prepare)
        };
        let effects = primary.message(Message::PrepareOk(ok));
        assert_eq!(recyclable(&effects), None);
    }
    primary.applied(1, "");
    primary.replica.begin_checkpoint();
    let effects = primary.handle(Input::CheckpointWritten { op: Op(1) });
    assert_eq!(recyclable(&effects), Some(Op(1)));
}

/// V15: a backup learns from the heartbeat what is durable on a quorum, and says what it has.
#[test]
fn backup_recycles_what_the_quorum_has() {
    let mut backup = Fixture::started(1, 3);
    let prepare = &chain(1)[0];
    backup.message(prepare_message(prepare, EMPTY));
    backup.durable(prepare);
    backup.message(Message::Commit(heartbeat(1, point(prepare))));
    backup.applied(1, "");
    backup.replica.begin_checkpoint();
    let effects = backup.handle(Input::CheckpointWritten { op: Op(1) });
    assert_eq!(recyclable(&effects), Some(Op(0)));

    let commit = Commit {
        checkpoint_quorum: Op(1),
        ..heartbeat(1, point(prepare))
    };
    let effects = backup.message(Message::Commit(commit));
    assert_eq!(recyclable(&effects), Some(Op(1)));
    let ok = CommitOk {
        replica: ReplicaId(1),
        view: View(0),
        commit_min: Op(1),
        checkpoint: Op(1),
        is_willing: true,
    };
    assert!(effects.contains(&super::send(0, Message::CommitOk(ok))));
}
