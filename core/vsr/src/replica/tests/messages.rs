//! Messages that are ignored, each for its reason.

use std::{vec, vec::Vec};

use wire::{Op, ReplicaId, View};

use super::{EMPTY, Fixture, chain, config, heartbeat, prepare_message, prepare_ok, superblock};
use crate::{
    Commit, CommitOk, Effect, Ignore, Message, Note, Recovered, ViewProbe,
    replica::promises::Promises,
};

fn ignored(reason: Ignore) -> Vec<Effect> {
    vec![Effect::Note(Note::Ignored(reason))]
}

const fn probe(replica: u8, view: u32) -> Message {
    Message::ViewProbe(ViewProbe {
        replica: ReplicaId(replica),
        view: View(view),
        round: 1,
    })
}

#[test]
fn messages_of_strangers_are_ignored() {
    let mut backup = Fixture::started(1, 3);
    assert_eq!(backup.message(probe(3, 0)), ignored(Ignore::UnknownReplica));
    assert_eq!(
        backup.message(probe(200, 0)),
        ignored(Ignore::UnknownReplica)
    );
    assert_eq!(backup.message(probe(1, 0)), ignored(Ignore::FromSelf));
    let mut alone = Fixture::alone();
    assert_eq!(alone.message(probe(1, 0)), ignored(Ignore::UnknownReplica));
}

#[test]
fn messages_of_another_view_are_ignored() {
    let mut backup = Fixture::started(1, 3);
    assert_eq!(backup.message(probe(0, 3)), ignored(Ignore::NewerView));
    assert_eq!(backup.replica.view(), View(0));
}

#[test]
fn backup_ignores_prepare_from_older_view() {
    let mut backup = Fixture::started(1, 3);
    // As a view change leaves it.
    backup.replica.view = View(3);
    backup.replica.promises = Promises::recovered(superblock(2, 3, 0), 0);
    let message = prepare_message(&chain(1)[0], EMPTY);
    assert_eq!(backup.message(message), ignored(Ignore::OlderView));
    assert_eq!(backup.replica.op(), Op(0));
}

#[test]
fn nothing_is_answered_before_the_replica_is_in_its_view() {
    let (mut starting, _) = Fixture::starting(config(1, 3), Recovered::default());
    assert_eq!(starting.message(probe(0, 0)), ignored(Ignore::NotNormal));
    let commit = Message::Commit(heartbeat(0, EMPTY));
    assert_eq!(starting.message(commit), ignored(Ignore::NotNormal));
}

#[test]
fn roles_are_told_apart() {
    let mut primary = Fixture::started(0, 3);
    let mut backup = Fixture::started(1, 3);
    let from_backup = Message::Commit(Commit {
        replica: ReplicaId(2),
        ..heartbeat(0, EMPTY)
    });
    assert_eq!(
        primary.message(from_backup.clone()),
        ignored(Ignore::NotBackup)
    );
    assert_eq!(backup.message(from_backup), ignored(Ignore::FromBackup));
    assert_eq!(backup.message(probe(2, 0)), ignored(Ignore::FromBackup));

    let ok = Message::PrepareOk(prepare_ok(2, &chain(1)[0]));
    assert_eq!(backup.message(ok), ignored(Ignore::NotPrimary));
    let ok = Message::CommitOk(CommitOk {
        replica: ReplicaId(2),
        view: View(0),
        commit_min: Op(0),
        checkpoint: Op(0),
        is_willing: true,
    });
    assert_eq!(backup.message(ok), ignored(Ignore::NotPrimary));
}
