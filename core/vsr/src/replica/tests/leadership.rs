//! Who had better lead, where several can.

use std::{vec, vec::Vec};

use wire::{Op, ReplicaId, View};

use super::{
    EMPTY, Fixture, backup, committed, heartbeat, prepare_ok, refuse, send, view_change_started,
    view_wished, vote, wish, wishes_for_a_view,
};
use crate::{
    CommitOk, DoViewChange, Effect, Input, Message, Note, Origin, PrepareOk, Refusal, Token,
    ViewProbeOk,
};

const fn commit_ok(replica: u8) -> CommitOk {
    CommitOk {
        replica: ReplicaId(replica),
        view: View(0),
        commit_min: Op(0),
        checkpoint: Op(0),
        is_willing: true,
    }
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

/// What was led elsewhere for a while comes back to whoever is to lead it, once that has followed long enough.
#[test]
fn group_goes_back_to_whoever_is_to_lead_it() {
    let mut primary = Fixture::starting_in_view_1();
    assert!(!wishes_for_a_view(&primary.within(4_900, &[0, 2])));
    let effects = primary.within(400, &[0, 2]);
    assert!(effects.contains(&offered(3, 0)), "{effects:?}");
}

/// Not to one that is not there, is not willing, or has just come.
#[test]
fn group_stays_where_it_is_if_whoever_is_to_lead_it_cannot() {
    let mut primary = Fixture::starting_in_view_1();
    assert!(!wishes_for_a_view(&primary.within(12_000, &[2])));
    assert!(!wishes_for_a_view(&primary.within(4_700, &[0, 2])));
    // It was away for a moment: its time begins anew.
    assert!(!wishes_for_a_view(&primary.within(200, &[2])));
    assert!(!wishes_for_a_view(&primary.within(4_900, &[0, 2])));
    assert!(primary.replica.is_serving());
}

/// Nobody loses by it: while something is in flight all is taken and answered, and it happens at the first moment
/// when nothing is.
#[test]
fn group_goes_back_without_a_refusal() {
    let mut primary = Fixture::starting_in_view_1();
    primary.within(4_900, &[0, 2]);
    let first = primary.prepare(7);
    let effects = primary.within(400, &[0, 2]);
    assert!(!wishes_for_a_view(&effects));
    assert!(primary.replica.is_serving());
    let second = primary.prepare(8);
    for prepare in [&first, &second] {
        assert!(primary.replica.is_serving());
        primary.durable(prepare);
        primary.message(Message::PrepareOk(PrepareOk {
            view: View(1),
            ..prepare_ok(2, prepare)
        }));
    }
    assert!(!wishes_for_a_view(&primary.applied(1, "")));
    let effects = primary.applied(2, "");
    assert!(effects.contains(&offered(3, 0)), "{effects:?}");
    let is_refusal = |it: &Effect| matches!(it, Effect::Refuse { .. });
    assert!(!effects.iter().any(is_refusal), "{effects:?}");
}

/// A reader that waits for the view to be confirmed would be refused, too.
#[test]
fn group_does_not_go_back_while_a_reader_waits() {
    let mut primary = Fixture::starting_in_view_1();
    primary.within(4_900, &[0, 2]);
    primary.handle(Input::ConfirmView { token: Token(7) });
    assert!(!wishes_for_a_view(&primary.within(400, &[0, 2])));
    let effects = primary.message(Message::ViewProbeOk(ViewProbeOk {
        replica: ReplicaId(2),
        view: View(1),
        round: 1,
    }));
    assert_eq!(effects[0], Effect::ViewConfirmed { token: Token(7) });
    assert!(effects.contains(&offered(3, 0)), "{effects:?}");
}

/// Whoever is to lead cannot: the lead would go to and fro for as long as that lasts.
#[test]
fn group_goes_back_ever_more_rarely() {
    let mut primary = Fixture::starting_in_view_1();
    assert!(primary.within(5_300, &[0, 2]).contains(&offered(3, 0)));
    // Nothing comes of it, and this replica leads the next view that it can.
    primary.lead_again(4);
    let effects = primary.within(24_000, &[0, 2]);
    assert!(!wishes_for_a_view(&effects));
    assert!(primary.within(6_500, &[0, 2]).contains(&offered(6, 0)));
    primary.lead_again(7);
    let effects = primary.within(59_000, &[0, 2]);
    assert!(!wishes_for_a_view(&effects));
    assert!(primary.within(1_500, &[0, 2]).contains(&offered(9, 0)));
    // It was well for long: that is forgotten.
    primary.lead_again(10);
    primary.within(1_100_000, &[2]);
    assert!(primary.within(5_300, &[0, 2]).contains(&offered(12, 0)));
    primary.lead_again(13);
    assert!(primary.within(30_500, &[0, 2]).contains(&offered(15, 0)));
}

/// A node that has groups to bring up to date is given no others. What it leads it keeps.
#[test]
fn replica_of_a_node_that_catches_up_takes_nothing_and_keeps_what_it_leads() {
    let mut backup = backup();
    backup.handle(Input::CatchingUp(true));
    assert!(!backup.replica.is_willing());
    let mut next = Fixture::started(1, 3);
    next.tick_after(10);
    next.message(Message::Commit(heartbeat(0, EMPTY)));
    next.handle(Input::CatchingUp(true));
    let effects = next.wait(150);
    assert!(effects.contains(&view_wished(1)), "it is its turn");
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    primary.handle(Input::CatchingUp(true));
    assert!(!wishes_for_a_view(&within_a_second(&mut primary, &[1, 2])));
    primary.handle(Input::CatchingUp(false));
    assert!(primary.replica.is_willing());
}

/// Who leads what it is to lead keeps it.
#[test]
fn primary_that_is_to_lead_its_group_keeps_it() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let mut effects = vec![];
    for _ in 0..12 {
        effects.extend(within_a_second(&mut primary, &[1, 2]));
    }
    assert!(!wishes_for_a_view(&effects));
}

/// A backup that alone does not hear its primary knows since when; a sign of life ends that.
#[test]
fn backup_knows_since_when_it_suspects_its_primary() {
    let mut backup = backup();
    backup.wait(140);
    assert_eq!(backup.replica.suspects_since(), None);
    backup.wait(10);
    let since = backup.now.monotonic;
    backup.wait(2_000);
    assert_eq!(backup.replica.suspects_since(), Some(since));
    backup.message(Message::Commit(heartbeat(0, EMPTY)));
    assert_eq!(backup.replica.suspects_since(), None);
}

impl Fixture {
    /// Replica 1 as the primary of view 1.
    fn starting_in_view_1() -> Self {
        let mut primary = Self::started(1, 3);
        primary.tick_after(10);
        primary.message(wish(0, 1, 0));
        primary.message(wish(2, 1, 0));
        assert_eq!(primary.replica.view(), View(1));
        primary.handle(Input::SuperblockWritten { sequence: 2 });
        primary.message(Message::DoViewChange(vote(2, 1, 0, EMPTY, &[])));
        primary.handle(Input::SuperblockWritten { sequence: 3 });
        assert!(primary.replica.is_serving());
        primary
    }

    /// Replica 1 leads a later view.
    fn lead_again(&mut self, view: u32) {
        let sequence = self.replica.promises.newest().sequence;
        self.message(wish(0, view, 0));
        self.message(wish(2, view, 0));
        assert_eq!(self.replica.view(), View(view));
        self.handle(Input::SuperblockWritten {
            sequence: sequence + 1,
        });
        self.message(Message::DoViewChange(DoViewChange {
            log_view: View(1),
            ..vote(2, view, 0, EMPTY, &[])
        }));
        self.handle(Input::SuperblockWritten {
            sequence: sequence + 2,
        });
        assert!(self.replica.is_serving());
    }

    /// Time passes, and all of these answer and are willing.
    fn within(&mut self, milliseconds: u64, willing: &[u8]) -> Vec<Effect> {
        let mut effects = vec![];
        for _ in 0..milliseconds / 10 {
            effects.extend(self.wait(10));
            for replica in willing {
                effects.extend(self.message(Message::CommitOk(CommitOk {
                    view: self.replica.view(),
                    ..commit_ok(*replica)
                })));
            }
        }
        effects
    }
}
