//! A replica that lost its disk (V13).

use std::vec::Vec;

use bytes::Bytes;
use wire::{Op, PrepareHeader, ReplicaId};

use super::{
    CLUSTER, EMPTY, Fixture, START, View, apply, chain, committed, config, heartbeat, ok_in, point,
    prepare_in, prepare_ok, request_prepare, requested_prepare, send, start_view, view_entered,
    vote, written,
};
use crate::{
    Barrier, ChainPoint, CommitOk, Effect, Ignore, Input, Message, Note, OutOfService, Prepare,
    Recovered, Rejoin, StartView, Status, Superblock,
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

const fn rejoin(replica: u8, nonce: u128) -> Message {
    rejoin_after(replica, nonce, 0, 1)
}

/// A rejoin of who has heard this of a primary.
const fn rejoin_after(replica: u8, nonce: u128, view: u32, commit: u64) -> Message {
    Message::Rejoin(Rejoin {
        replica: ReplicaId(replica),
        view: View(0),
        heard_view: View(view),
        heard_commit: Op(commit),
        nonce,
    })
}

/// The barrier of a replica as a primary of `view` prepares it, put together by hand.
fn barrier_at(view: u32, parent: ChainPoint, replica: u8, nonce: u128) -> Prepare {
    let body = Bytes::copy_from_slice(&nonce.to_le_bytes());
    let header = PrepareHeader {
        parent: parent.checksum,
        cluster: CLUSTER.0,
        request: u64::from(replica),
        op: parent.op.0 + 1,
        timestamp: START + parent.op.0 + 1,
        view,
        operation: u16::MAX,
        version: 1,
        ..PrepareHeader::default()
    };
    Prepare {
        header: header.sealed(&body),
        body,
    }
}

fn ignored(effects: &[Effect], reason: Ignore) -> bool {
    effects.contains(&Effect::Note(Note::Ignored(reason)))
}

/// What a replica without its disk asks, of whoever leads and until it is answered.
#[test]
fn replica_without_its_disk_asks_the_primary_that_it_hears_again_and_again() {
    let (mut wiped, _) = Fixture::starting(config(1, 3), wiped());
    wiped.handle(Input::SuperblockWritten { sequence: 1 });
    assert_eq!(wiped.wait(50), [Effect::Note(Note::Rejoining)]);
    assert_eq!(wiped.wait(50), [], "nobody was heard");
    let in_view = |view: u32, commit: ChainPoint| {
        Message::Commit(crate::Commit {
            replica: ReplicaId(u8::try_from(view % 3).expect("one of three")),
            view: View(view),
            ..heartbeat(commit.op.0, commit)
        })
    };
    let first = point(&chain(1)[0]);
    let ask = send(0, rejoin_after(1, NONCE, 0, 1));
    assert!(wiped.message(in_view(0, first)).contains(&ask));
    assert_eq!(wiped.wait(50), [ask]);
    // An older word changes nothing, a newer one does.
    wiped.message(in_view(0, EMPTY));
    let ask = send(2, rejoin_after(1, NONCE, 2, 0));
    assert!(wiped.message(in_view(2, EMPTY)).contains(&ask));
    assert_eq!(wiped.wait(50), [ask]);
    let effects = wiped.wait(10_000);
    let aloud = Effect::Note(Note::RejoinUnanswered);
    let count = effects.iter().filter(|effect| **effect == aloud).count();
    assert_eq!(count, 1);
}

/// It promises nothing: neither what is asked of it nor what it is told makes it say anything else.
#[test]
fn replica_without_its_disk_takes_no_part() {
    let (mut wiped, _) = Fixture::starting(config(1, 3), wiped());
    wiped.handle(Input::SuperblockWritten { sequence: 1 });
    let prepares = chain(1);
    for message in [
        super::prepare_message(&prepares[0], EMPTY),
        super::wish(0, 1, 0),
        super::wish(2, 1, 0),
        Message::DoViewChange(vote(0, 1, 0, EMPTY, &[])),
        Message::DoViewChange(vote(2, 1, 0, EMPTY, &[])),
        Message::ViewProbe(crate::ViewProbe {
            replica: ReplicaId(0),
            view: View(0),
            round: 1,
        }),
        request_prepare(2, 0, 1, None),
        rejoin(2, 5),
    ] {
        let effects = wiped.message(message);
        let is_ignored =
            |effect: &Effect| matches!(effect, Effect::Note(Note::Ignored(Ignore::NotNormal)));
        assert!(effects.iter().all(is_ignored), "{effects:?}");
    }
    assert_eq!(wiped.replica.status(), Status::RecoveringHead);
}

/// A primary of three with one op committed and applied, and a backup that has acknowledged it.
fn serving() -> (Fixture, Prepare) {
    let mut primary = Fixture::started(0, 3);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    primary.message(Message::PrepareOk(prepare_ok(2, &prepare)));
    primary.applied(1, "");
    (primary, prepare)
}

#[test]
fn primary_answers_once_the_barrier_is_committed() {
    let (mut primary, prepare) = serving();
    let effects = primary.message(rejoin(1, NONCE));
    let barrier = written(&effects);
    let mut expected = barrier_at(0, point(&prepare), 1, NONCE);
    expected.header.timestamp = barrier.header.timestamp;
    expected.header = expected.header.sealed(&expected.body);
    assert_eq!(barrier, expected);
    let has_answer = |effects: &[Effect]| {
        effects.iter().any(|effect| {
            let Effect::Send { to, message } = effect else {
                return false;
            };
            matches!(message, Message::StartView(it) if it.nonce == Some(NONCE))
                && *to == ReplicaId(1)
        })
    };
    // Asked again it prepares no other one.
    let effects = primary.message(rejoin(1, NONCE));
    assert!(ignored(&effects, Ignore::RejoinRepeated));
    assert!(!has_answer(&effects));
    primary.durable(&barrier);
    let effects = primary.message(rejoin(1, NONCE));
    assert!(!has_answer(&effects));

    // No state machine sees it.
    let effects = primary.message(Message::PrepareOk(prepare_ok(2, &barrier)));
    let passed = Note::Barrier {
        op: Op(2),
        replica: ReplicaId(1),
    };
    assert_eq!(effects, [committed(2), Effect::Note(passed)]);
    assert_eq!(primary.replica.commit_min(), Op(2));
    let effects = primary.message(rejoin(1, NONCE));
    assert!(has_answer(&effects));
    assert_eq!(effects.len(), 1);
    let checkpoint = primary.replica.begin_checkpoint();
    let known = checkpoint.barriers.of(ReplicaId(1)).copied();
    let (op, checksum) = (barrier.header.op(), barrier.header.checksum);
    let expected = Barrier {
        op,
        checksum,
        nonce: NONCE,
    };
    assert_eq!(known, Some(expected));

    // What an incarnation before it has asked is no question any more, nor is one of another view.
    for (view, commit) in [(0, 1), (1, 2), (1, 9)] {
        let effects = primary.message(rejoin_after(1, NONCE - 1, view, commit));
        let expected = [Effect::Note(Note::Ignored(Ignore::RejoinStale))];
        assert_eq!(effects, expected, "{view} {commit}");
    }
    // The one after it needs another one, and has to wait until that is committed.
    let effects = primary.message(rejoin_after(1, NONCE + 1, 0, 2));
    assert_eq!(written(&effects).header.op(), Op(3));
    let effects = primary.message(rejoin_after(1, NONCE + 2, 0, 2));
    assert!(ignored(&effects, Ignore::RejoinStale), "{effects:?}");
}

#[test]
fn barrier_waits_until_the_ops_before_it_are_applied() {
    let (mut primary, _) = serving();
    let third = primary.prepare(2);
    let barrier = written(&primary.message(rejoin(1, NONCE)));
    primary.durable(&third);
    primary.durable(&barrier);
    let effects = primary.message(Message::PrepareOk(prepare_ok(2, &third)));
    assert_eq!(effects, [committed(2), apply(third, Some(2))]);
    primary.message(Message::PrepareOk(prepare_ok(2, &barrier)));
    assert_eq!(primary.replica.commit_min(), Op(1));
    primary.applied(2, "");
    assert_eq!(primary.replica.commit_min(), Op(3));
}

#[test]
fn barrier_is_prepared_by_a_primary_that_serves_only() {
    let mut backup = Fixture::started(2, 3);
    let effects = backup.message(rejoin(1, NONCE));
    assert_eq!(effects, [Effect::Note(Note::Ignored(Ignore::NotPrimary))]);
    let mut leaving = Fixture::started(0, 3);
    leaving.handle(Input::Stop);
    let effects = leaving.message(rejoin(1, NONCE));
    assert!(ignored(&effects, Ignore::NotServing), "{effects:?}");
}

/// V15: what was in the checkpoint of the lost disk is not in it any more.
#[test]
fn barrier_takes_back_what_a_checkpoint_has_certified() {
    let (mut primary, _) = serving();
    let ok = Message::CommitOk(CommitOk {
        replica: ReplicaId(1),
        view: View(0),
        commit_min: Op(1),
        checkpoint: Op(1),
        is_willing: true,
    });
    primary.message(ok.clone());
    assert_eq!(primary.replica.checkpoints[1], Op(1));
    let barrier = written(&primary.message(rejoin(1, NONCE)));
    primary.durable(&barrier);
    primary.message(Message::PrepareOk(prepare_ok(2, &barrier)));
    assert_eq!(primary.replica.checkpoints[1], Op(0));
    // What it has from here on counts.
    primary.message(ok);
    assert_eq!(primary.replica.checkpoints[1], Op(1));
}

/// It takes over the journal of the answer; only the superblock that installs it takes the flag away.
#[test]
fn answer_takes_the_replica_back_once_its_journal_is_durable() {
    let (mut wiped, _) = Fixture::starting(config(1, 3), wiped());
    wiped.handle(Input::SuperblockWritten { sequence: 1 });
    wiped.wait(50);
    let first = prepare_in(3, EMPTY, START + 1);
    let barrier = barrier_at(3, point(&first), 1, NONCE);
    let answer = StartView {
        nonce: Some(NONCE),
        ..start_view(0, 3, point(&barrier), &[])
    };
    let effects = wiped.message(Message::StartView(answer));
    let asked: Vec<Effect> = (1..=2)
        .map(|op| send(0, request_prepare(1, 0, op, None)))
        .collect();
    assert_eq!(effects, asked);
    wiped.message(requested_prepare(0, 3, true, &first));
    wiped.message(requested_prepare(0, 3, true, &barrier));
    wiped.durable(&first);
    assert!(wiped.replica.is_rejoining());
    let effects = wiped.durable(&barrier);
    let superblock = effects.iter().find_map(|effect| {
        if let Effect::WriteSuperblock(superblock) = effect {
            Some(superblock.clone())
        } else {
            None
        }
    });
    let superblock = superblock.expect("the install");
    assert_eq!((superblock.view, superblock.log_view), (View(3), View(3)));
    assert!(!superblock.is_rejoining);
    assert_eq!(wiped.replica.status(), Status::RecoveringHead);

    let effects = wiped.handle(Input::SuperblockWritten { sequence: 2 });
    assert_eq!(wiped.replica.status(), Status::Normal);
    assert!(effects.contains(&view_entered(3)));
    assert!(effects.contains(&Effect::Note(Note::Rejoined { view: View(3) })));
    // It acknowledges like everybody.
    let next = prepare_in(3, point(&barrier), START + 9);
    let mut message = super::prepare_message(&next, point(&barrier));
    if let Message::Prepare(prepare) = &mut message {
        prepare.view = View(3);
    }
    wiped.message(message);
    let effects = wiped.durable(&next);
    assert_eq!(effects, [send(0, Message::PrepareOk(ok_in(1, 3, &next)))]);
}

/// The answer to an incarnation that was not taken back.
#[test]
fn answer_to_another_nonce_takes_nobody_back() {
    let (mut wiped, _) = Fixture::starting(config(1, 3), wiped());
    wiped.handle(Input::SuperblockWritten { sequence: 1 });
    let answer = StartView {
        nonce: Some(NONCE + 1),
        ..start_view(0, 3, EMPTY, &[])
    };
    let effects = wiped.message(Message::StartView(answer));
    assert!(ignored(&effects, Ignore::StartViewNotAsked));
}

fn is_chosen(chooser: &Fixture) -> bool {
    chooser.replica.view_change.target.is_some()
}

/// The old incarnation of replica 2 had promised view 1; the new one acknowledges in view 0. What it voted then
/// is no vote against what it has acknowledged since.
#[test]
fn vote_from_before_the_barrier_does_not_count() {
    let first = chain(1).remove(0);
    let barrier = barrier_at(0, point(&first), 2, NONCE);
    let old = Message::DoViewChange(vote(2, 1, 0, EMPTY, core::slice::from_ref(&first)));
    let known = [first.clone(), barrier.clone()];
    for is_committed in [false, true] {
        let mut chooser = Fixture::backup_with(1, 3, &known);
        if is_committed {
            chooser.message(Message::Commit(heartbeat(2, point(&barrier))));
            chooser.applied(1, "");
            assert_eq!(chooser.replica.commit_min(), Op(2));
        }
        chooser.message(old.clone());
        let effects = chooser.handle(Input::SuperblockWritten { sequence: 2 });
        assert!(ignored(&effects, Ignore::VoteOfLostDisk), "{effects:?}");
        assert!(!is_chosen(&chooser));

        // The new incarnation has the barrier, however it says so.
        let new = if is_committed {
            vote(2, 1, 0, point(&barrier), &[])
        } else {
            vote(2, 1, 0, EMPTY, &known)
        };
        let effects = chooser.message(Message::DoViewChange(new));
        assert!(!ignored(&effects, Ignore::VoteOfLostDisk), "{effects:?}");
        assert!(is_chosen(&chooser));
    }
}

/// Nobody names the barrier: it is committed, far back. Before it installs the journal the new primary knows.
#[test]
fn barrier_that_no_vote_names_is_found_before_the_journal_is_installed() {
    let first = chain(1).remove(0);
    let barrier = barrier_at(0, point(&first), 2, NONCE);
    let mut chooser = Fixture::started(1, 5);
    chooser.message(Message::DoViewChange(vote(2, 1, 0, EMPTY, &[])));
    chooser.handle(Input::SuperblockWritten { sequence: 2 });
    let knows = vote(3, 1, 0, point(&barrier), &[]);
    chooser.message(Message::DoViewChange(knows));
    assert!(is_chosen(&chooser), "with the old vote they are enough");

    chooser.message(requested_prepare(3, 0, true, &first));
    chooser.message(requested_prepare(3, 0, true, &barrier));
    chooser.durable(&first);
    let effects = chooser.durable(&barrier);
    assert!(ignored(&effects, Ignore::VoteOfLostDisk), "{effects:?}");
    assert!(!is_chosen(&chooser));
    let is_written = |effects: &[Effect]| {
        let mut all = effects.iter();
        all.any(|effect| matches!(effect, Effect::WriteSuperblock(_)))
    };
    assert!(!is_written(&effects), "nothing is installed");

    // Without it there are too few; another one makes them enough.
    let effects = chooser.message(Message::DoViewChange(vote(4, 1, 0, EMPTY, &[])));
    assert!(is_written(&effects), "{effects:?}");
}

/// A checkpoint that is taken over remembers the barriers.
#[test]
fn barriers_come_with_a_checkpoint() {
    let (mut primary, _) = serving();
    let barrier = written(&primary.message(rejoin(1, NONCE)));
    primary.durable(&barrier);
    primary.message(Message::PrepareOk(prepare_ok(2, &barrier)));
    let checkpoint = primary.replica.begin_checkpoint();
    let recovered = Recovered {
        superblock: Some(super::superblock(1, 0, 0)),
        checkpoint: Some(checkpoint.clone()),
        ..Recovered::default()
    };
    let (mut restarted, _) = Fixture::starting(config(2, 3), recovered);
    let again = restarted.replica.begin_checkpoint();
    assert_eq!(again.barriers, checkpoint.barriers);
    assert!(again.barriers.of(ReplicaId(1)).is_some());
}
