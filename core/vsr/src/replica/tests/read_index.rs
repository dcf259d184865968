//! Confirmation of the view.

use std::{vec, vec::Vec};

use wire::{ReplicaId, View};

use super::{Fixture, committed, prepare_ok, refuse, send};
use crate::{Effect, Ignore, Input, Message, Note, Refusal, Token, ViewProbe, ViewProbeOk};

impl Fixture {
    fn confirm(&mut self, token: u64) -> Vec<Effect> {
        self.handle(Input::ConfirmView {
            token: Token(token),
        })
    }

    fn answer(&mut self, replica: u8, round: u64) -> Vec<Effect> {
        self.message(Message::ViewProbeOk(ViewProbeOk {
            replica: ReplicaId(replica),
            view: View(0),
            round,
        }))
    }
}

const fn probe(to: u8, round: u64) -> Effect {
    send(
        to,
        Message::ViewProbe(ViewProbe {
            replica: ReplicaId(0),
            view: View(0),
            round,
        }),
    )
}

const fn confirmed(token: u64) -> Effect {
    Effect::ViewConfirmed {
        token: Token(token),
    }
}

#[test]
fn one_replica_alone_has_nobody_to_ask() {
    let mut alone = Fixture::alone();
    assert_eq!(alone.confirm(1), [confirmed(1)]);
}

#[test]
fn backup_confirms_nothing() {
    let mut backup = Fixture::started(1, 3);
    let primary = ReplicaId(0);
    let refusal = Refusal::NotPrimary { primary };
    assert_eq!(backup.confirm(1), [refuse(1, refusal)]);
}

#[test]
fn view_is_confirmed_by_a_quorum() {
    let mut primary = Fixture::started(0, 5);
    assert_eq!(
        primary.confirm(1),
        [probe(1, 1), probe(2, 1), probe(3, 1), probe(4, 1)]
    );
    assert_eq!(primary.answer(3, 1), []);
    // The same replica again is no second answer.
    assert_eq!(primary.answer(3, 1), []);
    assert_eq!(primary.answer(2, 1), [confirmed(1)]);
}

/// The round must begin after the question arrived: an answer may have been on its way before.
#[test]
fn question_that_comes_during_a_round_waits_for_the_next() {
    let mut primary = Fixture::started(0, 3);
    primary.confirm(1);
    assert_eq!(primary.confirm(2), []);
    assert_eq!(primary.confirm(3), []);
    let effects = primary.answer(1, 1);
    assert_eq!(effects, [confirmed(1), probe(1, 2), probe(2, 2)]);
    let over = Effect::Note(Note::Ignored(Ignore::ProbeRoundOver));
    assert_eq!(primary.answer(2, 1), std::slice::from_ref(&over));
    assert_eq!(primary.answer(2, 2), [confirmed(2), confirmed(3)]);
    assert_eq!(primary.answer(1, 2), [over]);
}

#[test]
fn commit_of_an_op_prepared_after_the_question_confirms_it() {
    let mut primary = Fixture::started(0, 3);
    let before = primary.prepare(1);
    primary.confirm(7);
    let after = primary.prepare(2);
    for prepare in [&before, &after] {
        primary.durable(prepare);
    }
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &before)));
    assert_eq!(effects[0], committed(1));
    assert!(!effects.contains(&confirmed(7)));
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &after)));
    assert_eq!(effects[..2], [committed(2), confirmed(7)]);
    // Nothing waits: the round is over.
    let over = Effect::Note(Note::Ignored(Ignore::ProbeRoundOver));
    assert_eq!(primary.answer(1, 1), [over]);
}

#[test]
fn lost_probes_are_repeated_to_those_that_have_not_answered() {
    let mut primary = Fixture::started(0, 5);
    primary.confirm(1);
    primary.answer(2, 1);
    let effects = primary.tick_after(25);
    assert_eq!(effects[4..], [probe(1, 1), probe(3, 1), probe(4, 1)]);
    primary.answer(1, 1);
    assert_eq!(primary.tick_after(25).len(), 4);
}

#[test]
fn backup_answers_a_probe_of_its_view() {
    let mut backup = Fixture::started(2, 3);
    let message = Message::ViewProbe(ViewProbe {
        replica: ReplicaId(0),
        view: View(0),
        round: 9,
    });
    let ok = Message::ViewProbeOk(ViewProbeOk {
        replica: ReplicaId(2),
        view: View(0),
        round: 9,
    });
    assert_eq!(backup.message(message), vec![send(0, ok)]);
}
