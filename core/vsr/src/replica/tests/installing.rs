//! How a replica comes from its journal to that of a new view (V2, V3, V7, V9, V11).

use std::{slice, vec, vec::Vec};

use wire::{Op, View};

use super::{
    EMPTY, Fixture, START, apply, chain, committed, config, disk_between, heartbeat, ok_in, point,
    prepare_at, prepare_in, prepare_message, request_prepare, requested_prepare, send, start_view,
    superblock_between, view_change_started, view_entered, vote, wish,
};
use crate::{
    Effect, Ignore, Input, Message, Note, Prepare, Recovered, RequestStartView, StartView, Status,
};

fn ignored(reason: Ignore) -> Vec<Effect> {
    vec![Effect::Note(Note::Ignored(reason))]
}

/// What replica 0 of view 0 has committed, an op that it has prepared for nobody but replica 2, and two ops
/// of view 1 in its place.
struct Fork {
    common: Prepare,
    old: Prepare,
    new: [Prepare; 2],
}

fn fork() -> Fork {
    let common = chain(1).remove(0);
    let old = prepare_at(point(&common), START + 5, "old");
    let second = prepare_in(1, point(&common), START + 6);
    let third = prepare_in(1, point(&second), START + 7);
    Fork {
        common,
        old,
        new: [second, third],
    }
}

/// Replica 2 of three with the old journal, and what it does on the start_view of view 1.
fn learning(fork: &Fork) -> (Fixture, Vec<Effect>) {
    let journal = [fork.common.clone(), fork.old.clone()];
    let mut backup = Fixture::backup_with(2, 3, &journal);
    let message = start_view(1, 1, point(&fork.common), &fork.new);
    let effects = backup.message(Message::StartView(message));
    (backup, effects)
}

fn requests(view: u32, prepares: &[Prepare]) -> Vec<Effect> {
    let request = |prepare: &Prepare| {
        let header = &prepare.header;
        send(
            1,
            request_prepare(2, view, header.op, Some(header.checksum)),
        )
    };
    prepares.iter().map(request).collect()
}

/// V3: nothing of the own journal goes before all that comes in its place is durable. V2: then journal and
/// log_view become this replica's in one write. V7: then it acknowledges, in the new view.
#[test]
fn v2_v3_v7_journal_is_replaced_in_one_write_when_all_of_it_is_durable() {
    let fork = fork();
    let [second, third] = &fork.new;
    let (mut backup, effects) = learning(&fork);
    let mut expected = vec![
        view_change_started(1),
        Effect::StatusChanged,
        committed(1),
        apply(fork.common.clone(), None),
    ];
    expected.extend(requests(0, &fork.new));
    assert_eq!(effects, expected);

    // In any order; laid aside, the journal stays.
    for prepare in [third, second] {
        let effects = backup.message(requested_prepare(1, 1, false, prepare));
        assert_eq!(effects, [Effect::WritePrepare(prepare.clone())]);
    }
    assert_eq!(backup.durable(third), []);
    assert_eq!(backup.replica.journal.head().point, point(&fork.old));
    let effects = backup.durable(second);
    let journal = [fork.common.clone(), second.clone(), third.clone()];
    let superblock = superblock_between(2, 1, 1, &journal);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
    assert_eq!(backup.replica.status(), Status::ViewChange);

    let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
    let expected = [
        view_entered(1),
        Effect::StatusChanged,
        send(1, Message::PrepareOk(ok_in(2, 1, second))),
        send(1, Message::PrepareOk(ok_in(2, 1, third))),
    ];
    assert_eq!(effects, expected);
    assert_eq!(backup.replica.status(), Status::Normal);
    assert_eq!(backup.replica.op(), Op(3));
}

/// V3: a replica that is interrupted on the way still has, and votes with, the journal that it had. (VRR
/// §5.2 cuts it first, and an acknowledged op is gone when a view change comes in between.)
#[test]
fn v3_interrupted_replica_votes_with_the_journal_it_had() {
    let fork = fork();
    let (mut backup, _) = learning(&fork);
    backup.message(requested_prepare(1, 1, false, &fork.new[0]));
    backup.durable(&fork.new[0]);
    let effects = backup.message(wish(1, 3, 1));
    let journal = [fork.common.clone(), fork.old.clone()];
    let superblock = superblock_between(2, 0, 3, &journal);
    assert!(effects.contains(&Effect::WriteSuperblock(superblock)));
    let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
    let expected = vote(2, 3, 0, point(&fork.common), slice::from_ref(&fork.old));
    assert_eq!(effects, [send(0, Message::DoViewChange(expected))]);

    // The same after a restart: what was laid aside is not taken for part of the journal, nor for a gap.
    let recovered = Recovered {
        prepares: vec![
            fork.common.clone(),
            fork.old.clone(),
            fork.new[1].clone(),
            fork.new[0].clone(),
        ],
        ..disk_between(0, 3, &journal)
    };
    let (restarted, effects) = Fixture::starting(config(2, 3), recovered);
    assert_eq!(restarted.replica.journal.head().point, point(&fork.old));
    let expected = vote(2, 3, 0, EMPTY, &journal);
    assert!(effects.contains(&send(0, Message::DoViewChange(expected))));
}

/// V9: a commit is known by its checksum. An op of the own journal with that number is not it, and is not
/// applied; what is committed is fetched, and replaces it at once.
#[test]
fn v9_op_that_is_not_the_committed_one_is_not_applied() {
    let old = prepare_at(EMPTY, START + 5, "old");
    let first = prepare_in(1, EMPTY, START + 6);
    let mut backup = Fixture::backup_with(2, 3, slice::from_ref(&old));
    let effects = backup.message(Message::StartView(start_view(1, 1, point(&first), &[])));
    let expected = [
        view_change_started(1),
        Effect::StatusChanged,
        send(1, request_prepare(2, 0, 1, None)),
    ];
    assert_eq!(effects, expected);
    assert_eq!(backup.replica.journal.head().point, point(&old));

    // One that nobody says is committed is not it.
    let uncommitted = requested_prepare(1, 1, false, &first);
    let unwanted = ignored(Ignore::PrepareUnwanted);
    assert_eq!(backup.message(uncommitted), unwanted);
    let effects = backup.message(requested_prepare(1, 1, true, &first));
    let expected = [
        Effect::WritePrepare(first.clone()),
        committed(1),
        apply(first.clone(), None),
    ];
    assert_eq!(effects, expected);
    let superblock = superblock_between(2, 1, 1, slice::from_ref(&first));
    assert_eq!(
        backup.durable(&first),
        [Effect::WriteSuperblock(superblock)]
    );
}

/// V9: of committed ops that do not follow from what is known to be committed none is taken.
#[test]
fn v9_committed_op_of_another_history_is_not_taken() {
    let prepares = chain(2);
    let stranger = prepare_in(1, point(&prepare_at(EMPTY, START + 5, "other")), START + 9);
    let mut backup = Fixture::backup_with(2, 3, &prepares[..1]);
    backup.message(Message::Commit(heartbeat(1, point(&prepares[0]))));
    backup.message(Message::StartView(start_view(1, 1, point(&stranger), &[])));
    let effects = backup.message(requested_prepare(1, 1, true, &stranger));
    assert_eq!(effects, ignored(Ignore::PrepareUnchained));
    assert_eq!(backup.replica.op(), Op(1));
}

/// Before that superblock is durable nothing is acknowledged, and nobody is told that this is the view (V1).
#[test]
fn v1_acknowledgement_waits_for_the_install() {
    let prepares = chain(1);
    let mut backup = Fixture::backup_with(2, 3, &prepares);
    let message = Message::StartView(start_view(1, 1, EMPTY, &prepares));
    let effects = backup.message(message);
    let superblock = superblock_between(2, 1, 1, &prepares);
    let expected = [
        view_change_started(1),
        Effect::StatusChanged,
        Effect::WriteSuperblock(superblock),
    ];
    assert_eq!(effects, expected);
    let effects = backup.wait(100);
    let is_wish = |it: &Effect| {
        matches!(
            it,
            Effect::Send {
                message: Message::StartViewChange(_),
                ..
            }
        )
    };
    assert!(effects.iter().all(is_wish), "{effects:?}");
    let effects = backup.handle(Input::SuperblockWritten { sequence: 2 });
    let ok = send(1, Message::PrepareOk(ok_in(2, 1, &prepares[0])));
    assert_eq!(effects[2..], [ok]);
}

/// V5: what makes the vote of a later view is not changed by the journal of an earlier one.
#[test]
fn start_view_of_an_earlier_view_is_late() {
    let (mut backup, _) = Fixture::starting(config(2, 3), disk_between(0, 4, &[]));
    let message = Message::StartView(start_view(1, 1, EMPTY, &chain(1)));
    assert_eq!(backup.message(message), ignored(Ignore::OlderView));
}

#[test]
fn only_the_primary_of_a_view_starts_it() {
    let mut backup = Fixture::started(2, 3);
    let prepares = chain(2);
    let not_it = Message::StartView(start_view(0, 1, EMPTY, &prepares));
    assert_eq!(backup.message(not_it), ignored(Ignore::FromBackup));
    let damages: [fn(&mut StartView); 3] = [
        |it| it.op = Op(3),
        |it| it.suffix.swap(0, 1),
        |it| it.commit.checksum = 5,
    ];
    for damage in damages {
        let mut message = start_view(1, 1, EMPTY, &prepares);
        damage(&mut message);
        let effects = backup.message(Message::StartView(message));
        assert_eq!(effects, ignored(Ignore::SuffixInvalid));
    }
    assert_eq!(backup.replica.view(), View(0));
}

/// A prepare that was asked for while the view changed, and comes when it has changed, is not taken for one
/// of the new view: whoever sent it had left that of its journal. (Seed 2136 of a group of five: the replica
/// was stuck with it for good.)
#[test]
fn v9_prepare_of_a_replica_that_is_not_in_the_view_is_not_taken() {
    let prepares = chain(2);
    // Replica 2 has promised view 4; its journal is that of view 0.
    let disk = disk_between(0, 4, &prepares);
    let (mut other, _) = Fixture::starting(config(2, 3), disk);
    let request = request_prepare(0, 1, 2, Some(prepares[1].header.checksum));
    let effects = other.message(request);
    let answer = requested_prepare(2, 0, false, &prepares[1]);
    assert_eq!(effects, [send(0, answer.clone())]);

    // Replica 0 is in view 4 meanwhile, where the second op is not inherited.
    let (mut backup, _) = Fixture::starting(config(0, 3), disk_between(4, 4, &prepares[..1]));
    assert_eq!(backup.replica.status(), Status::Normal);
    assert_eq!(backup.message(answer), ignored(Ignore::OlderView));
    assert_eq!(backup.replica.op(), Op(1));
}

/// While it installs another journal, a replica hands out nothing that is uncommitted: neither view's.
#[test]
fn nothing_is_handed_out_while_a_journal_is_installed() {
    let prepares = chain(1);
    let mut backup = Fixture::backup_with(2, 3, &prepares);
    let request = request_prepare(0, 0, 1, Some(prepares[0].header.checksum));
    let answer = requested_prepare(2, 0, false, &prepares[0]);
    assert_eq!(backup.message(request.clone()), [send(0, answer)]);
    backup.message(Message::StartView(start_view(1, 1, EMPTY, &prepares)));
    let effects = backup.message(request.clone());
    assert_eq!(effects, ignored(Ignore::PrepareNotKept));
    backup.handle(Input::SuperblockWritten { sequence: 2 });
    let answer = requested_prepare(2, 1, false, &prepares[0]);
    assert_eq!(backup.message(request), [send(0, answer)]);
}

/// Answers that do not come are asked for again, of one replica after the other.
#[test]
fn missing_prepare_is_asked_for_elsewhere_when_the_answer_is_late() {
    let fork = fork();
    let (mut backup, _) = learning(&fork);
    let to = |effects: Vec<Effect>| {
        let mut asked = Vec::new();
        for effect in effects {
            if let Effect::Send {
                to,
                message: Message::RequestPrepare(request),
            } = effect
            {
                asked.push((to.0, request.op.0));
            }
        }
        asked
    };
    assert_eq!(to(backup.wait(60)), [(0, 2), (0, 3)]);
    backup.message(requested_prepare(0, 0, false, &fork.new[0]));
    // The answers were slow: the next ones have twice the time.
    assert_eq!(to(backup.wait(60)), []);
    assert_eq!(to(backup.wait(100)), [(1, 3)]);
}

/// Replica 2 of three, whose head is uncertain, in view 4.
fn recovering_head() -> Fixture {
    let recovered = Recovered {
        head_uncertain: true,
        ..disk_between(4, 4, &chain(2))
    };
    let (backup, _) = Fixture::starting(config(2, 3), recovered);
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
    assert_eq!(backup.replica.op(), Op(0));
    backup
}

/// V11: the answer to this incarnation's question ends it, once the journal is here, durable, and installed.
#[test]
fn v11_answer_with_the_nonce_ends_the_uncertainty() {
    let prepares = chain(1);
    let mut backup = recovering_head();
    let question = Message::RequestStartView(RequestStartView {
        replica: super::ReplicaId(2),
        view: View(4),
        nonce: 99,
    });
    assert_eq!(backup.wait(60), [send(1, question)]);
    let mut answer = start_view(1, 4, EMPTY, &prepares);
    answer.nonce = Some(99);
    let effects = backup.message(Message::StartView(answer));
    assert_eq!(effects, requests(4, &prepares));
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
    backup.message(requested_prepare(1, 4, false, &prepares[0]));
    let superblock = superblock_between(10, 4, 4, &prepares);
    let effects = backup.durable(&prepares[0]);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
    let effects = backup.handle(Input::SuperblockWritten { sequence: 10 });
    let ok = send(1, Message::PrepareOk(ok_in(2, 4, &prepares[0])));
    assert_eq!(effects, [view_entered(4), Effect::StatusChanged, ok]);
}

/// V11: the journal of its own view that answers nobody, or an earlier incarnation, may be older than what
/// was acknowledged here.
#[test]
fn v11_stale_start_view_does_not_end_the_uncertainty() {
    for nonce in [None, Some(98)] {
        let mut backup = recovering_head();
        let mut stale = start_view(1, 4, EMPTY, &chain(1));
        stale.nonce = nonce;
        let effects = backup.message(Message::StartView(stale));
        assert_eq!(effects, ignored(Ignore::StartViewNotAsked));
        let mut older = start_view(0, 3, EMPTY, &chain(1));
        older.nonce = Some(99);
        let effects = backup.message(Message::StartView(older));
        assert_eq!(effects, ignored(Ignore::OlderView));
        assert_eq!(backup.replica.status(), Status::RecoveringHead);
    }
}

/// V11: the journal of a later view was chosen without this replica, whoever asked for it.
#[test]
fn v11_start_view_of_a_later_view_ends_the_uncertainty() {
    let mut backup = recovering_head();
    let effects = backup.message(Message::StartView(start_view(0, 6, EMPTY, &[])));
    let superblock = superblock_between(10, 6, 6, &[]);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
    backup.handle(Input::SuperblockWritten { sequence: 10 });
    assert_eq!(backup.replica.status(), Status::Normal);
    assert_eq!(backup.replica.view(), View(6));
}

/// V11: the others are content in a view before the one that it has promised. It can go back to none, and
/// nobody can give it the journal of a view that never began: it calls for that view. (Seed 31 of a group of
/// five: it was left out for good.) A wish is no vote.
#[test]
fn v11_replica_without_its_head_calls_for_the_view_that_it_has_promised() {
    let earlier = |replica: u8, view: u32| {
        let mut earlier = heartbeat(0, EMPTY);
        earlier.view = View(view);
        earlier.replica = super::ReplicaId(replica);
        Message::Commit(earlier)
    };
    let mut backup = recovering_head();
    let mut expected = ignored(Ignore::NotNormal);
    assert_eq!(backup.message(earlier(1, 3)), expected);
    expected.extend([send(0, wish(2, 4, 4)), send(1, wish(2, 4, 4))]);
    assert_eq!(backup.message(earlier(0, 3)), expected);
    assert_eq!(backup.replica.status(), Status::RecoveringHead);

    // Nor can it lead that view itself.
    let recovered = Recovered {
        head_uncertain: true,
        ..disk_between(4, 4, &chain(2))
    };
    let (mut primary, _) = Fixture::starting(config(1, 3), recovered);
    let mut expected = ignored(Ignore::NotNormal);
    expected.extend([send(0, wish(1, 5, 4)), send(2, wish(1, 5, 4))]);
    assert_eq!(primary.message(earlier(0, 3)), expected);
}

/// V11: wishes and votes of others never do; it votes for nothing and acknowledges nothing.
#[test]
fn v11_wishes_and_votes_do_not_end_the_uncertainty() {
    let mut backup = recovering_head();
    for message in [wish(0, 5, 4), wish(1, 5, 4)] {
        assert_eq!(backup.message(message), ignored(Ignore::NotNormal));
    }
    let its = Message::DoViewChange(vote(0, 5, 4, EMPTY, &[]));
    assert_eq!(backup.message(its), ignored(Ignore::NotNormal));
    let prepare = prepare_message(&chain(1)[0], EMPTY);
    assert_eq!(backup.message(prepare), ignored(Ignore::NotNormal));
    assert_eq!(backup.handle(Input::PrimaryLost), []);
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
    assert_eq!(backup.replica.view(), View(4));
}

/// The heartbeat of a later view shows whom to ask.
#[test]
fn heartbeat_of_a_later_view_is_answered_with_a_question() {
    let mut backup = Fixture::started(2, 3);
    let mut later = heartbeat(0, EMPTY);
    later.view = View(4);
    later.replica = super::ReplicaId(1);
    let effects = backup.message(Message::Commit(later));
    let question = Message::RequestStartView(RequestStartView {
        replica: super::ReplicaId(2),
        view: View(0),
        nonce: 0,
    });
    let mut expected = ignored(Ignore::NewerView);
    expected.push(send(1, question));
    assert_eq!(effects, expected);
}
