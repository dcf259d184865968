//! The change from one view to the next: wishes, votes, and the choice of the journal (V1, V2, V4 to V6, V8).

use std::{slice, vec, vec::Vec};

use wire::{Op, ReplicaId, Timestamp, View};

use super::{
    CLIENT, EMPTY, Fixture, START, apply, chain, committed, config, disk_between, heartbeat, ok_in,
    point, prepare_in, prepare_message, prepare_ok, refuse, request_prepare, requested_prepare,
    send, session, start_view, superblock_between, view_change_started, view_entered, view_wished,
    vote, wish, written,
};
use crate::{
    ChainPoint, DoViewChange, Effect, Ignore, Input, Message, Note, Origin, Prepare, Refusal,
    Status,
};

fn ignored(reason: Ignore) -> Vec<Effect> {
    vec![Effect::Note(Note::Ignored(reason))]
}

fn votes(effects: &[Effect]) -> Vec<(u8, DoViewChange)> {
    let mut found = Vec::new();
    for effect in effects {
        if let Effect::Send {
            to,
            message: Message::DoViewChange(vote),
        } = effect
        {
            found.push((to.0, vote.clone()));
        }
    }
    found
}

fn written_superblock(sequence: u64) -> Input {
    Input::SuperblockWritten { sequence }
}

/// V6: who suspects its primary says so, and goes on as before.
#[test]
fn v6_wish_alone_leaves_no_view() {
    let prepares = chain(2);
    let mut backup = Fixture::backup_with(2, 3, &prepares[..1]);
    let effects = backup.handle(Input::PrimaryLost);
    let expected = [
        view_wished(1),
        send(0, wish(2, 1, 0)),
        send(1, wish(2, 1, 0)),
    ];
    assert_eq!(effects, expected);
    assert_eq!(backup.replica.status(), Status::Normal);
    assert_eq!(backup.replica.view(), View(0));

    backup.message(prepare_message(&prepares[1], EMPTY));
    let ok = Message::PrepareOk(prepare_ok(2, &prepares[1]));
    assert_eq!(backup.durable(&prepares[1]), [send(0, ok)]);
}

/// V6: nor does somebody else's.
#[test]
fn v6_wish_of_another_moves_nobody() {
    let mut backup = Fixture::started(2, 3);
    assert_eq!(backup.message(wish(1, 1, 0)), []);
    assert_eq!(backup.replica.status(), Status::Normal);
    let mut primary = Fixture::started(0, 3);
    assert_eq!(primary.message(wish(1, 1, 0)), []);
    assert!(primary.replica.is_serving());
}

/// V6: a quorum of wishes for one view ends the one before.
#[test]
fn v6_quorum_of_wishes_leaves_the_view() {
    let prepares = chain(1);
    let mut backup = Fixture::backup_with(2, 3, &prepares);
    backup.handle(Input::PrimaryLost);
    let effects = backup.message(wish(1, 1, 0));
    let superblock = superblock_between(2, 0, 1, &prepares);
    let expected = [
        view_change_started(1),
        Effect::StatusChanged,
        Effect::WriteSuperblock(superblock),
    ];
    assert_eq!(effects, expected);
    assert_eq!(backup.replica.status(), Status::ViewChange);
    assert_eq!(backup.replica.view(), View(1));
}

/// V5: wishes count per distinct replica, and for exactly one view.
#[test]
fn v5_wishes_count_distinct_replicas_and_one_view() {
    let mut backup = Fixture::started(2, 5);
    backup.handle(Input::PrimaryLost);
    for message in [wish(3, 1, 0), wish(3, 1, 0), wish(3, 1, 0)] {
        assert_eq!(backup.message(message), []);
    }
    // Of another view: this replica wishes for that now, too.
    let effects = backup.message(wish(4, 2, 0));
    assert_eq!(effects[0], view_wished(2));
    assert_eq!(backup.replica.status(), Status::Normal);
    let effects = backup.message(wish(3, 2, 0));
    assert_eq!(effects[0], view_change_started(2));
}

/// V5: a wish counts for a while only.
#[test]
fn v5_old_wish_does_not_count() {
    for (milliseconds, expected) in [(400, Status::ViewChange), (500, Status::Normal)] {
        let mut backup = Fixture::started(2, 3);
        backup.message(wish(1, 1, 0));
        for _ in 0..milliseconds / 10 {
            backup.tick_after(10);
            backup.message(Message::Commit(heartbeat(0, EMPTY)));
        }
        backup.handle(Input::PrimaryLost);
        assert_eq!(backup.replica.status(), expected, "after {milliseconds} ms");
    }
}

/// V1: the vote waits until the view that it is for is durable.
#[test]
fn v1_vote_waits_for_the_superblock() {
    let prepares = chain(2);
    let mut backup = Fixture::backup_with(0, 3, &[]);
    // The primary of the view before votes like the others.
    let first = backup.prepare(1);
    backup.durable(&first);
    backup.message(wish(1, 1, 0));
    let effects = backup.message(wish(2, 1, 0));
    assert_eq!(votes(&effects), []);
    assert_eq!(votes(&backup.wait(100)), []);
    let effects = backup.handle(written_superblock(2));
    let expected = vote(0, 1, 0, EMPTY, slice::from_ref(&first));
    assert_eq!(effects, [send(1, Message::DoViewChange(expected))]);
    assert_ne!(first, prepares[0]);
}

/// V1: the completion of an earlier superblock is not the one that is waited for.
#[test]
fn v1_vote_does_not_go_by_an_older_superblock() {
    let mut backup = Fixture::started(2, 3);
    backup.handle(Input::PrimaryLost);
    backup.message(wish(1, 1, 0));
    assert_eq!(backup.handle(written_superblock(1)), []);
    assert_eq!(votes(&backup.handle(written_superblock(2))).len(), 1);
}

/// V5: what a vote names is durable first, the prepares before the superblock that names them.
#[test]
fn v5_vote_waits_for_its_prepares() {
    let prepares = chain(2);
    let mut backup = Fixture::backup_with(2, 3, &prepares[..1]);
    backup.message(prepare_message(&prepares[1], EMPTY));
    backup.handle(Input::PrimaryLost);
    let effects = backup.message(wish(1, 1, 0));
    assert_eq!(effects, [view_change_started(1), Effect::StatusChanged]);
    let superblock = superblock_between(2, 0, 1, &prepares);
    let effects = backup.durable(&prepares[1]);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
    let effects = backup.handle(written_superblock(2));
    assert_eq!(votes(&effects), [(1, vote(2, 1, 0, EMPTY, &prepares))]);
}

/// V5: a vote never changes: not by what arrives later, nor at a resend, nor by a restart.
#[test]
fn v5_vote_is_the_same_at_every_resend_and_after_a_restart() {
    let prepares = chain(3);
    let mut backup = Fixture::backup_with(2, 3, &prepares[..2]);
    backup.handle(Input::PrimaryLost);
    backup.message(wish(1, 1, 0));
    let first = votes(&backup.handle(written_superblock(2)));
    assert_eq!(first, [(1, vote(2, 1, 0, EMPTY, &prepares[..2]))]);

    let late = prepare_message(&prepares[2], point(&prepares[0]));
    assert_eq!(backup.message(late), ignored(Ignore::NotNormal));
    let late = requested_prepare(0, 0, true, &prepares[2]);
    assert_eq!(backup.message(late), ignored(Ignore::PrepareUnwanted));
    assert_eq!(votes(&backup.wait(50)), first);

    let disk = disk_between(0, 1, &prepares[..2]);
    let (mut restarted, effects) = Fixture::starting(config(2, 3), disk);
    assert_eq!(votes(&effects), first);
    assert_eq!(votes(&restarted.wait(150))[0], first[0]);
}

/// V2: log_view stays until the journal of the view is installed, though the view is left.
#[test]
fn v2_left_view_keeps_its_log_view() {
    let prepares = chain(1);
    let mut backup = Fixture::backup_with(2, 3, &prepares);
    backup.handle(Input::PrimaryLost);
    backup.message(wish(1, 1, 0));
    backup.handle(written_superblock(2));
    // The view comes to nothing, and another one begins.
    let effects = backup.message(wish(0, 2, 1));
    let superblock = superblock_between(3, 0, 2, &prepares);
    assert!(effects.contains(&Effect::WriteSuperblock(superblock)));
}

/// The primary of view 4 of three (replica 1) with this journal, which has voted.
fn candidate(log_view: u32, prepares: &[Prepare]) -> Fixture {
    let disk = disk_between(log_view, 4, prepares);
    let (candidate, _) = Fixture::starting(config(1, 3), disk);
    assert_eq!(candidate.replica.status(), Status::ViewChange);
    assert!(candidate.replica.is_primary());
    candidate
}

/// The prepares that it asks for once it has this vote, by op and checksum.
fn asked_for(candidate: &mut Fixture, vote: DoViewChange) -> Vec<(u64, Option<u128>)> {
    let mut found = Vec::new();
    for effect in candidate.message(Message::DoViewChange(vote)) {
        if let Effect::Send {
            message: Message::RequestPrepare(request),
            ..
        } = effect
        {
            found.push((request.op.0, request.checksum));
        }
    }
    found
}

/// V4: the journal of the highest log_view, though another one is longer.
#[test]
fn v4_highest_log_view_is_chosen_before_the_longest_journal() {
    let prepares = chain(3);
    let other = prepare_in(3, point(&prepares[0]), START + 9);
    let mut candidate = candidate(2, &prepares);
    let asked = asked_for(
        &mut candidate,
        vote(2, 4, 3, point(&prepares[0]), slice::from_ref(&other)),
    );
    assert_eq!(asked, [(2, Some(other.header.checksum))]);
}

/// V4: not that of the newest entry: prepares keep their view when they are inherited.
#[test]
fn v4_view_of_the_last_prepare_says_nothing() {
    let prepares = chain(2);
    let newer = prepare_in(2, point(&prepares[0]), START + 9);
    let mut candidate = candidate(2, &[prepares[0].clone(), newer]);
    let asked = asked_for(&mut candidate, vote(2, 4, 3, EMPTY, &prepares));
    assert_eq!(asked, [(2, Some(prepares[1].header.checksum))]);
}

/// V4: of equal log_view the longest.
#[test]
fn v4_longest_journal_of_the_highest_log_view_is_chosen() {
    let prepares = chain(3);
    let mut shorter = candidate(3, &prepares[..2]);
    let asked = asked_for(&mut shorter, vote(2, 4, 3, EMPTY, &prepares));
    assert_eq!(asked, [(3, Some(prepares[2].header.checksum))]);

    let mut longer = candidate(3, &prepares);
    let effects = longer.message(Message::DoViewChange(vote(2, 4, 3, EMPTY, &prepares[..1])));
    let superblock = superblock_between(10, 4, 4, &prepares);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
}

/// V4: nothing at or below a commit that the quorum knows of is dropped, and two journals of one view do
/// not contradict each other: else nothing is chosen.
#[test]
fn v4_votes_that_contradict_each_other_choose_nothing() {
    let prepares = chain(3);
    let other = prepare_in(2, point(&prepares[0]), START + 9);
    // A committed op that the journal of the highest log_view does not have.
    let mut one = candidate(2, &prepares);
    let shorter = vote(2, 4, 3, EMPTY, &[prepares[0].clone(), other.clone()]);
    one.replica.commit_up_to(Op(3));
    one.drain();
    let effects = one.message(Message::DoViewChange(shorter.clone()));
    assert!(
        !effects
            .iter()
            .any(|it| matches!(it, Effect::WriteSuperblock(_)))
    );
    let mut one = candidate(3, &[prepares[0].clone(), other.clone()]);
    let knows = vote(2, 4, 2, point(&prepares[2]), &[]);
    let effects = one.message(Message::DoViewChange(knows));
    assert_eq!(effects, ignored(Ignore::VotesContradict));
    // Two ops in one place, in one view.
    let mut two = candidate(3, &prepares);
    let effects = two.message(Message::DoViewChange(shorter));
    assert_eq!(effects, ignored(Ignore::VotesContradict));
}

/// V5: the vote of a replica counts once, however often it comes.
#[test]
fn v5_votes_count_distinct_replicas() {
    let (mut candidate, _) = Fixture::starting(config(1, 5), disk_between(0, 1, &[]));
    let again = Message::DoViewChange(vote(2, 1, 0, EMPTY, &[]));
    assert_eq!(candidate.message(again.clone()), []);
    let repeated = ignored(Ignore::DoViewChangeRepeated);
    assert_eq!(candidate.message(again), repeated);
    let other = Message::DoViewChange(vote(3, 1, 0, EMPTY, &[]));
    let effects = candidate.message(other);
    assert!(matches!(effects[..], [Effect::WriteSuperblock(_)]));
}

/// V5: votes count for exactly their view: those for the one before do not help the next.
#[test]
fn v5_votes_count_for_their_view() {
    let (mut candidate, _) = Fixture::starting(config(1, 3), disk_between(0, 4, &[]));
    let older = Message::DoViewChange(vote(2, 1, 0, EMPTY, &[]));
    assert_eq!(candidate.message(older), ignored(Ignore::OlderView));
    let foreign = Message::DoViewChange(vote(2, 5, 0, EMPTY, &[]));
    assert_eq!(candidate.message(foreign), ignored(Ignore::NotPrimary));
    assert_eq!(candidate.replica.status(), Status::ViewChange);
}

/// Replica 1 of three as the primary of view 1, with two ops that it has inherited and nobody has committed.
fn new_primary(prepares: &[Prepare]) -> Fixture {
    let (mut primary, _) = Fixture::starting(config(1, 3), disk_between(0, 1, prepares));
    let effects = primary.message(Message::DoViewChange(vote(2, 1, 0, EMPTY, &[])));
    // V2: the install, and only that, advances log_view.
    let superblock = superblock_between(10, 1, 1, prepares);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
    primary.now.wall = Timestamp(0);
    let start = Message::StartView(start_view(1, 1, EMPTY, prepares));
    // V1: start_view waits for that superblock.
    let effects = primary.handle(written_superblock(10));
    let expected = [
        view_entered(1),
        Effect::StatusChanged,
        send(0, start.clone()),
        send(2, start),
    ];
    assert_eq!(effects, expected);
    primary
}

/// V8: the ops of the journal are committed in the new view, and applied, before anything is served.
#[test]
fn v8_new_primary_serves_once_what_it_inherited_is_applied() {
    let prepares = chain(2);
    let mut primary = new_primary(&prepares);
    let not_ready = [refuse(7, Refusal::NotReady)];
    assert_eq!(primary.request(7, Origin::Internal, ""), not_ready);
    // V7: only what is acknowledged in this view counts, its own disk included.
    let older = Message::PrepareOk(prepare_ok(2, &prepares[0]));
    assert_eq!(primary.message(older), ignored(Ignore::OlderView));
    let effects = primary.message(Message::PrepareOk(ok_in(2, 1, &prepares[0])));
    assert_eq!(effects, [committed(1), apply(prepares[0].clone(), None)]);
    let effects = primary.message(Message::PrepareOk(ok_in(2, 1, &prepares[1])));
    assert_eq!(effects, [committed(2), apply(prepares[1].clone(), None)]);
    primary.applied(1, "");
    assert_eq!(primary.request(7, Origin::Internal, ""), not_ready);
    assert!(!primary.replica.is_serving());
    assert_eq!(primary.applied(2, ""), [Effect::StatusChanged]);
    assert!(primary.replica.is_serving());

    // V9 and V16: chain and time go on, though its clock is behind.
    let next = primary.prepare(8);
    assert_eq!(next.header.parent, prepares[1].header.checksum);
    assert_eq!(next.header.timestamp, prepares[1].header.timestamp + 1);
    assert_eq!(next.header.view, 1);
}

/// V7: an acknowledgement of another op with this number does not count in the new view either.
#[test]
fn v7_new_primary_counts_the_op_of_its_own_journal() {
    let prepares = chain(1);
    let other = prepare_in(0, EMPTY, START + 9);
    let mut primary = new_primary(&prepares);
    let effects = primary.message(Message::PrepareOk(ok_in(2, 1, &other)));
    assert_eq!(effects, ignored(Ignore::PrepareOkChecksum));
    assert_eq!(primary.replica.commit_max(), Op(0));
}

/// V14: whoever waits for an op when its view ends hears that nobody knows, and the same request at the next
/// primary finds the op that it inherited.
#[test]
fn v14_request_that_was_inherited_is_not_prepared_again() {
    let mut old = Fixture::started(0, 3);
    let register = Origin::Register { client: CLIENT };
    let opened = written(&old.request(1, register, ""));
    old.durable(&opened);
    old.message(Message::PrepareOk(prepare_ok(1, &opened)));
    old.applied(1, "");
    let origin = session(CLIENT, wire::SessionNumber(1), 1);
    let asked = written(&old.request(2, origin, "body"));
    old.message(wish(1, 1, 0));
    let effects = old.message(wish(2, 1, 0));
    assert_eq!(effects[0], refuse(2, Refusal::Unknown));

    let prepares = [opened, asked];
    let mut primary = new_primary(&prepares);
    primary.message(Message::PrepareOk(ok_in(2, 1, &prepares[0])));
    primary.applied(1, "");
    // Not served yet, and nothing is prepared; nor afterwards.
    let effects = primary.request(3, origin, "body");
    assert_eq!(effects, [refuse(3, Refusal::NotReady)]);
    primary.message(Message::PrepareOk(ok_in(2, 1, &prepares[1])));
    primary.applied(2, "done");
    let effects = primary.request(4, origin, "body");
    assert!(matches!(effects[..], [Effect::Reply { op: Op(2), .. }]));
    assert_eq!(primary.replica.op(), Op(2));
}

/// Somebody votes for a view that this replica does not know of: a quorum wished for it.
#[test]
fn vote_for_a_later_view_takes_its_primary_along() {
    let mut backup = Fixture::started(1, 3);
    let effects = backup.message(Message::DoViewChange(vote(2, 4, 0, EMPTY, &[])));
    let superblock = superblock_between(2, 0, 4, &[]);
    let expected = [
        view_change_started(4),
        Effect::StatusChanged,
        Effect::WriteSuperblock(superblock),
    ];
    assert_eq!(effects, expected);
    // Its own vote makes the quorum, once it is durable.
    let effects = backup.handle(written_superblock(2));
    let superblock = superblock_between(3, 4, 4, &[]);
    assert_eq!(effects, [Effect::WriteSuperblock(superblock)]);
}

/// A replica that missed the start_view, and votes still, gets it again.
#[test]
fn late_vote_is_answered_with_the_journal_of_the_view() {
    let prepares = chain(1);
    let mut primary = new_primary(&prepares);
    let late = Message::DoViewChange(vote(0, 1, 0, EMPTY, &[]));
    let start = Message::StartView(start_view(1, 1, EMPTY, &prepares));
    assert_eq!(primary.message(late), [send(0, start)]);
}

/// A view change that comes to nothing is given up for the next view, later every time.
#[test]
fn view_change_that_takes_too_long_is_given_up() {
    let mut backup = Fixture::started(2, 3);
    backup.tick_after(10);
    backup.handle(Input::PrimaryLost);
    backup.message(wish(1, 1, 0));
    backup.handle(written_superblock(2));
    let wished = |effects: &[Effect], view| effects.contains(&view_wished(view));
    assert!(!wished(&backup.wait(220), 2));
    assert!(wished(&backup.wait(10), 2));
    assert_eq!(backup.replica.view(), View(1));
    backup.message(wish(1, 2, 1));
    assert_eq!(backup.replica.view(), View(2));
    backup.handle(written_superblock(3));
    assert!(!wished(&backup.wait(420), 3));
    assert!(wished(&backup.wait(10), 3));
}

/// A replica that has promised a later view cannot come back: the others, content in theirs, go along, or
/// it would be left out for good (first found in a group of five).
#[test]
fn others_go_along_with_one_that_has_promised_a_later_view() {
    let mut backup = Fixture::started(2, 5);
    // One that only suspects the primary moves nobody (V6).
    assert_eq!(backup.message(wish(3, 3, 0)), []);
    let effects = backup.message(wish(3, 4, 3));
    assert_eq!(effects[0], view_wished(4));
    assert!(effects.contains(&send(1, wish(2, 4, 0))));
    assert_eq!(backup.replica.status(), Status::Normal);
}

/// A primary that gives up its own view needs nobody's suspicion.
#[test]
fn primary_that_wishes_for_a_view_is_followed() {
    let mut backup = Fixture::started(2, 3);
    let effects = backup.message(wish(0, 1, 0));
    assert_eq!(effects[0], view_wished(1));
    assert!(effects.contains(&view_change_started(1)));
}

/// Views that cannot be are nobody's wish.
#[test]
fn absurd_view_is_not_believed() {
    let mut backup = Fixture::started(2, 3);
    let effects = backup.message(wish(0, u32::MAX, u32::MAX - 1));
    assert_eq!(effects, ignored(Ignore::ViewInvalid));
    let absurd = vote(0, u32::MAX - 1, 0, EMPTY, &[]);
    let effects = backup.message(Message::DoViewChange(absurd));
    assert_eq!(effects, ignored(Ignore::ViewInvalid));
    assert_eq!(backup.replica.view(), View(0));
}

/// While the view changes nobody is served, and nobody acknowledges (V7).
#[test]
fn v7_nothing_is_acknowledged_while_the_view_changes() {
    let prepares = chain(1);
    let mut backup = Fixture::started(2, 3);
    backup.message(prepare_message(&prepares[0], EMPTY));
    backup.handle(Input::PrimaryLost);
    backup.message(wish(1, 1, 0));
    let effects = backup.durable(&prepares[0]);
    assert!(matches!(effects[..], [Effect::WriteSuperblock(_)]));
    assert_eq!(
        backup.request(1, Origin::Internal, ""),
        [refuse(1, Refusal::NotReady)]
    );
    let _: ChainPoint = point(&prepares[0]);
    assert_eq!(backup.replica.primary(), ReplicaId(1));
    let request = request_prepare(0, 1, 1, Some(prepares[0].header.checksum));
    // What it has it hands out all the same, by name.
    let answer = requested_prepare(2, 0, false, &prepares[0]);
    assert_eq!(backup.message(request), [send(0, answer)]);
}
