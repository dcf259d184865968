//! A replica that lost its disk (V13).

use super::{Fixture, View, config, heartbeat, start_view};
use crate::{
    Effect, Ignore, Input, Message, Note, OutOfService, Recovered, Status, Superblock,
    replica::tests::EMPTY,
};

const NONCE: u128 = 99;

fn wiped() -> Recovered {
    Recovered {
        is_rejoining: true,
        nonce: NONCE,
        ..Recovered::default()
    }
}

/// The superblock of a replica that has forgotten what it promised.
fn forgotten() -> Superblock {
    Superblock {
        sequence: 1,
        is_rejoining: true,
        ..Superblock::default()
    }
}

#[test]
fn replica_without_its_disk_writes_that_down_and_says_nothing_before() {
    let (mut wiped, effects) = Fixture::starting(config(1, 3), wiped());
    assert_eq!(wiped.replica.status(), Status::RecoveringHead);
    assert_eq!(effects, [Effect::WriteSuperblock(forgotten())]);
    let effects = wiped.wait(500);
    assert_eq!(effects, []);
    let effects = wiped.message(Message::Commit(heartbeat(0, EMPTY)));
    let is_send = |effect: &Effect| matches!(effect, Effect::Send { .. });
    assert!(!effects.iter().any(is_send), "{effects:?}");
}

/// The disk may come back a second time before the replica is taken back.
#[test]
fn replica_that_was_not_taken_back_starts_without_its_disk_again() {
    let recovered = Recovered {
        superblock: Some(forgotten()),
        ..Recovered::default()
    };
    let (again, _) = Fixture::starting(config(1, 3), recovered);
    assert_eq!(again.replica.status(), Status::RecoveringHead);
    assert_eq!(again.replica.view(), View(0));
}

/// Whoever has a superblock remembers, whatever is said of the disk.
#[test]
fn superblock_tells_whether_the_disk_was_lost() {
    let recovered = Recovered {
        superblock: Some(Superblock {
            is_rejoining: false,
            ..forgotten()
        }),
        ..wiped()
    };
    let (backup, _) = Fixture::starting(config(1, 3), recovered);
    assert_eq!(backup.replica.status(), Status::Normal);
}

#[test]
fn single_replica_has_nobody_to_take_it_back() {
    let (mut alone, effects) = Fixture::starting(config(0, 1), wiped());
    let reason = OutOfService::NothingToRejoin;
    assert_eq!(alone.replica.status(), Status::OutOfService(reason));
    assert_eq!(effects, [Effect::Note(Note::OutOfService(reason))]);
    assert_eq!(alone.handle(Input::Tick), []);
}

/// Its durable view is 0, so that any view is later: what nobody sent to this incarnation says nothing.
#[test]
fn start_view_that_does_not_answer_takes_nobody_back() {
    let (mut wiped, _) = Fixture::starting(config(1, 3), wiped());
    wiped.handle(Input::SuperblockWritten { sequence: 1 });
    let message = Message::StartView(start_view(0, 3, EMPTY, &[]));
    let expected = [Effect::Note(Note::Ignored(Ignore::StartViewNotAsked))];
    assert_eq!(wiped.message(message), expected);
}
