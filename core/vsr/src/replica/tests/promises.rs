//! What is said only once it is durable.

use std::vec;

use wire::{ReplicaId, View};

use super::{Fixture, chain, config, prepare_message, prepare_ok, send, superblock};
use crate::{
    Effect, Input, Message, Note, Origin, Recovered, Refusal, RequestStartView, Status, Superblock,
    replica::promises::Promises,
};

/// V1: before its view is durable a replica says and serves nothing.
#[test]
fn replica_enters_its_view_when_the_superblock_is_durable() {
    let (mut backup, effects) = Fixture::starting(config(1, 3), Recovered::default());
    assert_eq!(effects, [Effect::WriteSuperblock(superblock(1, 0, 0))]);
    assert_eq!(backup.replica.status(), Status::Recovering);
    assert_eq!(backup.tick_after(1_000), []);

    let effects = backup.handle(Input::SuperblockWritten { sequence: 1 });
    let view = View(0);
    assert_eq!(
        effects,
        [
            Effect::Note(Note::ViewEntered { view }),
            Effect::StatusChanged
        ]
    );
    assert_eq!(backup.replica.status(), Status::Normal);
}

/// V1: the completion of a superblock of an earlier view lets nobody into the next.
#[test]
fn replica_does_not_enter_its_view_by_an_older_superblock() {
    let recovered = Recovered {
        superblock: Some(superblock(6, 4, 0)),
        ..Recovered::default()
    };
    let (mut alone, effects) = Fixture::starting(config(0, 1), recovered);
    assert_eq!(effects[1], Effect::WriteSuperblock(superblock(7, 5, 0)));
    assert_eq!(alone.handle(Input::SuperblockWritten { sequence: 6 }), []);
    assert_eq!(alone.replica.status(), Status::Recovering);
    alone.handle(Input::SuperblockWritten { sequence: 7 });
    assert_eq!(alone.replica.status(), Status::Normal);
}

/// V1: a primary's first heartbeat waits for its disk.
#[test]
fn primary_says_nothing_before_its_view_is_durable() {
    let (mut primary, effects) = Fixture::starting(config(0, 3), Recovered::default());
    assert_eq!(effects, [Effect::WriteSuperblock(superblock(1, 0, 0))]);
    let effects = primary.request(1, Origin::Internal, "");
    assert_eq!(effects, [super::refuse(1, Refusal::NotReady)]);
    assert!(!primary.replica.is_serving());
    let effects = primary.handle(Input::SuperblockWritten { sequence: 1 });
    let heartbeat = Message::Commit(super::heartbeat(0, super::EMPTY));
    assert_eq!(
        effects[2..],
        [send(1, heartbeat.clone()), send(2, heartbeat)]
    );
    assert!(primary.replica.is_serving());
}

/// V1: the superblock on the disk, not the one on its way, says what may be said.
#[test]
fn view_counts_when_its_own_superblock_is_durable() {
    let mut promises = Promises::recovered(superblock(4, 7, 0), 0);
    promises.install(View(8), super::Op(0), vec![]);
    let first = promises.write();
    promises.install(View(9), super::Op(0), vec![]);
    let second = promises.write();
    assert_eq!((first.sequence, second.sequence), (5, 6));
    assert!(promises.is_durable(View(7)));
    assert!(!promises.is_durable(View(8)));
    promises.set_durable(5);
    assert!(promises.is_durable(View(8)));
    assert!(!promises.is_durable(View(9)));
    promises.set_durable(6);
    assert!(promises.is_durable(View(9)));
}

#[test]
fn one_completion_stands_for_all_superblocks_before_it() {
    let mut promises = Promises::default();
    promises.write();
    promises.install(View(3), super::Op(0), vec![]);
    promises.write();
    promises.set_durable(2);
    assert!(promises.is_durable(View(3)));
    // A late completion takes nothing back (V2).
    promises.set_durable(1);
    assert!(promises.is_durable(View(3)));
}

/// V1: the check itself.
#[test]
#[should_panic(expected = "message.view() <= durable.view")]
fn message_above_the_durable_view_is_not_said() {
    let mut promises = Promises::recovered(superblock(4, 7, 0), 0);
    promises.install(View(8), super::Op(0), vec![]);
    promises.write();
    let mut ok = prepare_ok(0, &chain(1)[0]);
    ok.view = View(8);
    promises.assert_may_say(&Message::PrepareOk(ok));
}

/// V1: an acknowledgement waits for the durable log_view, too.
#[test]
#[should_panic(expected = "message.view() == durable.log_view")]
fn acknowledgement_above_the_durable_log_view_is_not_said() {
    let promises = Promises::recovered(
        Superblock {
            log_view: View(6),
            ..superblock(4, 7, 0)
        },
        0,
    );
    let mut ok = prepare_ok(0, &chain(1)[0]);
    ok.view = View(7);
    promises.assert_may_say(&Message::PrepareOk(ok));
}

/// V2: the view never falls.
#[test]
#[should_panic(expected = "view >= self.newest.view")]
fn view_never_falls() {
    let mut promises = Promises::recovered(superblock(4, 7, 0), 0);
    promises.install(View(6), super::Op(0), vec![]);
}

/// V2: log_view advances together with the head of the journal that was installed.
#[test]
fn log_view_advances_in_the_same_write_as_its_journal() {
    let mut promises = Promises::recovered(superblock(4, 7, 12), 0);
    promises.install(View(8), super::Op(10), vec![]);
    assert_eq!(promises.write(), superblock(5, 8, 10));
}

/// A backup that has installed the journal of its view goes on in it.
#[test]
fn restarted_backup_goes_on_in_its_view() {
    let recovered = Recovered {
        superblock: Some(superblock(4, 7, 0)),
        ..Recovered::default()
    };
    let (backup, effects) = Fixture::starting(config(2, 3), recovered);
    let view = View(7);
    assert_eq!(
        effects[1..],
        [
            Effect::Note(Note::ViewEntered { view }),
            Effect::StatusChanged
        ]
    );
    assert_eq!(backup.replica.status(), Status::Normal);
    assert_eq!(backup.replica.view(), view);
    assert_eq!(backup.replica.primary(), ReplicaId(1));
}

/// V11: with an uncertain head there is no vote and no acknowledgement, only the question for a start_view.
#[test]
fn replica_of_several_with_an_uncertain_head_only_asks() {
    let recovered = Recovered {
        superblock: Some(superblock(4, 7, 0)),
        head_uncertain: true,
        nonce: 99,
        ..Recovered::default()
    };
    let (mut backup, _) = Fixture::starting(config(2, 3), recovered);
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
    let question = Message::RequestStartView(RequestStartView {
        replica: ReplicaId(2),
        view: View(7),
        nonce: 99,
    });
    assert_eq!(backup.tick_after(1_000), [send(1, question)]);
    let effects = backup.request(1, Origin::Internal, "");
    assert_eq!(effects, [super::refuse(1, Refusal::NotReady)]);
    let prepare = prepare_message(&chain(1)[0], super::EMPTY);
    let ignored = Effect::Note(Note::Ignored(crate::Ignore::NotNormal));
    assert_eq!(backup.message(prepare), vec![ignored]);
}
