//! Who had better lead, where several can.

use std::{vec, vec::Vec};

use wire::{Op, ReplicaId, View};

use super::{
    EMPTY, Fixture, committed, heartbeat, prepare_ok, refuse, send, view_change_started,
    view_wished, wish,
};
use crate::{CommitOk, Effect, Input, Message, Note, Origin, Refusal};

const fn commit_ok(replica: u8) -> CommitOk {
    CommitOk {
        replica: ReplicaId(replica),
        view: View(0),
        commit_min: Op(0),
        checkpoint: Op(0),
        is_willing: true,
    }
}

fn wishes_for_a_view(effects: &[Effect]) -> bool {
    effects
        .iter()
        .any(|it| matches!(it, Effect::Note(Note::ViewWished { .. })))
}

/// A backup that has had a tick, so that the next is not the first.
fn backup() -> Fixture {
    let mut backup = Fixture::started(2, 3);
    backup.tick_after(10);
    backup.message(Message::Commit(heartbeat(0, EMPTY)));
    backup
}

/// Backups that follow in the view, as they answer heartbeats.
fn follow(primary: &mut Fixture, willing: &[u8]) -> Vec<Effect> {
    let mut effects = vec![];
    for replica in 1..3 {
        let is_willing = willing.contains(&replica);
        let commit_min = primary.replica.commit_min();
        effects.extend(primary.message(Message::CommitOk(CommitOk {
            is_willing,
            commit_min,
            ..commit_ok(replica)
        })));
    }
    effects
}

/// What a primary does within a second, its backups answering.
fn within_a_second(primary: &mut Fixture, willing: &[u8]) -> Vec<Effect> {
    let mut effects = vec![];
    for _ in 0..100 {
        effects.extend(primary.wait(10));
        effects.extend(follow(primary, willing));
    }
    effects
}

fn offered(view: u32, to: u8) -> Effect {
    Effect::Note(Note::LeadOffered {
        view: View(view),
        to: ReplicaId(to),
    })
}

/// The first view that somebody is to lead who is willing, not the next one.
#[test]
fn primary_that_would_rather_not_lead_hands_over_to_whoever_would() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    assert!(!wishes_for_a_view(&within_a_second(&mut primary, &[2])));
    primary.handle(Input::Reluctant(true));
    let effects = within_a_second(&mut primary, &[2]);
    let start = effects.iter().position(|it| *it == offered(2, 2));
    let start = start.expect("it hands over");
    let expected = [
        offered(2, 2),
        Effect::StatusChanged,
        view_wished(2),
        send(1, wish(0, 2, 0)),
        send(2, wish(0, 2, 0)),
    ];
    assert_eq!(effects[start..start + expected.len()], expected);
    assert!(!primary.replica.is_serving());
    // The others follow at once.
    let mut backup = backup();
    backup.message(wish(0, 2, 0));
    assert_eq!(backup.replica.view(), View(2));
}

/// Availability comes first: what nobody else would lead it leads on, and takes requests.
#[test]
fn primary_that_would_rather_not_lead_goes_on_where_nobody_would() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    primary.handle(Input::Reluctant(true));
    let effects = within_a_second(&mut primary, &[]);
    assert!(!wishes_for_a_view(&effects));
    assert!(!effects.contains(&Effect::StatusChanged));
    assert!(primary.replica.is_serving());
    // It can be taken back.
    primary.handle(Input::Reluctant(false));
    assert!(!wishes_for_a_view(&within_a_second(&mut primary, &[1, 2])));
    assert!(primary.replica.is_serving());
}

/// Who lacks what is committed would have to fetch it first.
#[test]
fn lead_is_not_offered_to_whoever_is_behind() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    for token in 0..40 {
        let prepare = primary.prepare(token);
        primary.durable(&prepare);
        primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
        primary.applied(prepare.header.op, "");
    }
    primary.handle(Input::Reluctant(true));
    let behind = |primary: &mut Fixture, commit_min: u64| {
        let mut effects = vec![];
        for _ in 0..50 {
            effects.extend(primary.wait(10));
            let commit_min = Op(commit_min);
            effects.extend(primary.message(Message::CommitOk(CommitOk {
                commit_min,
                ..commit_ok(1)
            })));
        }
        effects
    };
    assert!(!wishes_for_a_view(&behind(&mut primary, 7)));
    assert!(behind(&mut primary, 8).contains(&offered(1, 1)));
}

/// Nor to whoever is not heard any more.
#[test]
fn lead_is_not_offered_to_whoever_is_silent() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    within_a_second(&mut primary, &[1, 2]);
    primary.wait(150);
    primary.handle(Input::Reluctant(true));
    let effects = primary.wait(300);
    assert!(!wishes_for_a_view(&effects));
}

/// Nobody loses an answer by a hand-over: it waits for what is in flight, and takes nothing new meanwhile.
#[test]
fn lead_is_handed_over_when_nothing_is_in_flight() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    within_a_second(&mut primary, &[1]);
    let prepare = primary.prepare(7);
    primary.durable(&prepare);
    primary.handle(Input::Reluctant(true));
    let effects = primary.wait(10);
    assert_eq!(effects.last(), Some(&Effect::StatusChanged));
    assert!(!wishes_for_a_view(&effects));
    let refused = primary.request(8, Origin::Internal, "");
    assert_eq!(refused, [refuse(8, Refusal::NotReady)]);
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    assert_eq!(effects[0], committed(1));
    let effects = primary.applied(prepare.header.op, "");
    assert!(effects.contains(&offered(1, 1)));
}

/// What is in flight does not get committed: it is no time for a hand-over, and requests are taken again.
#[test]
fn hand_over_that_takes_too_long_comes_to_nothing() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    within_a_second(&mut primary, &[1]);
    let prepare = primary.prepare(7);
    primary.durable(&prepare);
    primary.handle(Input::Reluctant(true));
    let mut effects = primary.wait(10);
    assert!(!primary.replica.is_serving());
    for _ in 0..30 {
        effects.extend(primary.wait(10));
        effects.extend(follow(&mut primary, &[1]));
    }
    assert!(primary.replica.is_serving());
    assert!(!wishes_for_a_view(&effects));
    assert!(!effects.contains(&refuse(7, Refusal::Unknown)));
}

/// One that would rather not lead lets its turn pass when a view change begins, and not when it has come to nothing.
#[test]
fn replica_that_would_rather_not_lead_lets_its_turn_pass_once() {
    let mut backup = Fixture::started(1, 3);
    backup.tick_after(10);
    backup.message(Message::Commit(heartbeat(0, EMPTY)));
    backup.handle(Input::Reluctant(true));
    let effects = backup.wait(150);
    assert!(effects.contains(&view_wished(2)), "{effects:?}");
    // Whoever wished for its turn goes along with a later view.
    let effects = backup.message(wish(2, 2, 0));
    assert!(effects.contains(&view_change_started(2)));
    let effects = backup.wait(1_000);
    // Nobody leads view 2, nor replica 0 view 3: then it must.
    assert!(effects.contains(&view_wished(3)));
    backup.message(wish(2, 3, 0));
    assert_eq!(backup.replica.view(), View(3));
    assert!(backup.wait(2_000).contains(&view_wished(4)));
}

/// A stop, too, hands over to whoever is willing.
#[test]
fn primary_that_is_to_stop_hands_over_to_whoever_is_willing() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    within_a_second(&mut primary, &[2]);
    let effects = primary.handle(Input::Stop);
    assert!(effects.contains(&view_wished(2)), "{effects:?}");
}

/// A backup says whether it would lead.
#[test]
fn backup_says_whether_it_would_lead() {
    let mut backup = backup();
    let answer = |is_willing| {
        send(
            0,
            Message::CommitOk(CommitOk {
                is_willing,
                ..commit_ok(2)
            }),
        )
    };
    for is_reluctant in [true, false] {
        backup.handle(Input::Reluctant(is_reluctant));
        let effects = backup.message(Message::Commit(heartbeat(0, EMPTY)));
        assert_eq!(effects, [answer(!is_reluctant)]);
    }
}
