//! Who is believed to be alive (V6, V17).

use std::{vec, vec::Vec};

use wire::{Op, ReplicaId, View};

use super::{
    EMPTY, Fixture, backup, chain, committed, heartbeat, point, prepare_message, prepare_ok,
    refuse, send, view_wished, wish, wishes_for_a_view,
};
use crate::{CommitOk, Effect, Input, Message, Note, Origin, Refusal, Status, Token};

/// The answer of a backup to a heartbeat.
const fn commit_ok(replica: u8) -> Message {
    Message::CommitOk(CommitOk {
        replica: ReplicaId(replica),
        view: View(0),
        commit_min: Op(0),
        checkpoint: Op(0),
        is_willing: true,
    })
}

fn is_heartbeat(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Send {
            message: Message::Commit(_),
            ..
        }
    )
}

#[test]
fn silent_primary_is_suspected() {
    let mut backup = backup();
    assert_eq!(backup.wait(140), []);
    let wished = [
        view_wished(1),
        send(0, wish(2, 1, 0)),
        send(1, wish(2, 1, 0)),
    ];
    assert_eq!(backup.wait(10), wished);
    // It says so again and again, as a wish counts for a while only (V5).
    assert_eq!(backup.wait(50), wished[1..]);
}

#[test]
fn sign_of_life_takes_the_wish_back() {
    for sign in [
        Message::Commit(heartbeat(0, EMPTY)),
        prepare_message(&chain(1)[0], EMPTY),
    ] {
        let mut backup = backup();
        assert!(wishes_for_a_view(&backup.wait(150)));
        backup.message(sign);
        assert!(!wishes_for_a_view(&backup.wait(100)));
        backup.message(wish(1, 1, 0));
        assert_eq!(backup.replica.status(), Status::Normal);
    }
}

/// A primary whose heartbeats are slow is given three times their interval.
#[test]
fn slow_primary_is_given_more_time() {
    let mut backup = backup();
    for _ in 0..3 {
        backup.wait(100);
        backup.message(Message::Commit(heartbeat(0, EMPTY)));
    }
    assert!(!wishes_for_a_view(&backup.wait(290)));
    assert!(wishes_for_a_view(&backup.wait(10)));
}

/// A replica that was itself held up blames nobody for the time.
#[test]
fn late_tick_suspects_nobody() {
    let mut backup = backup();
    assert_eq!(backup.tick_after(1_000), []);
    assert!(!wishes_for_a_view(&backup.wait(140)));
    assert!(wishes_for_a_view(&backup.wait(10)));
}

/// A link that has ended is enough for a suspicion, of a backup, in normal status.
#[test]
fn lost_link_raises_suspicion_at_once() {
    let mut backup = backup();
    let effects = backup.handle(Input::PrimaryLost);
    assert_eq!(effects[0], view_wished(1));
    let mut primary = Fixture::started(0, 3);
    assert_eq!(primary.handle(Input::PrimaryLost), []);
    let mut alone = Fixture::alone();
    assert_eq!(alone.handle(Input::PrimaryLost), []);
}

/// V17: a primary that hears from no quorum leads no more: no heartbeat keeps the others in its view, and it
/// serves nobody.
#[test]
fn v17_primary_that_hears_nobody_abdicates() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    primary.handle(Input::ConfirmView { token: Token(5) });
    let effects = primary.wait(590);
    assert!(effects.iter().any(is_heartbeat));
    assert!(!wishes_for_a_view(&effects));
    let effects: Vec<Effect> = primary.wait(10);
    let expected = [
        Effect::Note(Note::Abdicated { view: View(0) }),
        Effect::StatusChanged,
        refuse(5, Refusal::NotReady),
        view_wished(1),
        send(1, wish(0, 1, 0)),
        send(2, wish(0, 1, 0)),
    ];
    let start = effects.len() - expected.len();
    assert_eq!(effects[start..], expected);
    assert!(!primary.wait(1_000).iter().any(is_heartbeat));
    assert!(!primary.replica.is_serving());
    let effects = primary.request(1, Origin::Internal, "");
    assert_eq!(effects, [refuse(1, Refusal::NotReady)]);
}

/// V17: one that is heard and answered, but gets nothing committed, stands in the way, too.
#[test]
fn v17_primary_that_commits_nothing_abdicates() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    let abdicated = Effect::Note(Note::Abdicated { view: View(0) });
    let mut effects = vec![];
    for _ in 0..119 {
        effects.extend(primary.wait(10));
        effects.extend(primary.message(commit_ok(1)));
    }
    assert!(!effects.contains(&abdicated));
    assert!(primary.wait(10).contains(&abdicated));
}

/// Time passes, and the backups answer heartbeats.
fn answered_for(primary: &mut Fixture, milliseconds: u64) -> Vec<Effect> {
    let mut effects = vec![];
    for _ in 0..milliseconds / 10 {
        effects.extend(primary.wait(10));
        for backup in 1..3 {
            effects.extend(primary.message(commit_ok(backup)));
        }
    }
    effects
}

/// V17 is for those who are cut off. Where an op takes long and comes on, another primary would wait for the same
/// disks.
#[test]
fn primary_whose_commits_are_slow_keeps_leading() {
    let mut primary = Fixture::started(0, 5);
    primary.tick_after(10);
    let mut effects = vec![];
    for token in 0..5 {
        let prepare = primary.prepare(token);
        effects.extend(answered_for(&mut primary, 1_100));
        effects.extend(primary.durable(&prepare));
        for backup in 1..3 {
            effects.extend(answered_for(&mut primary, 1_100));
            effects.extend(primary.message(Message::PrepareOk(prepare_ok(backup, &prepare))));
        }
        effects.extend(primary.applied(prepare.header.op, ""));
    }
    assert!(!wishes_for_a_view(&effects));
    assert!(primary.replica.is_serving());
    assert_eq!(primary.replica.commit_max(), Op(5));
}

/// The time that is given follows the time that is needed: once it was slow, it may be slow again.
#[test]
fn primary_that_was_slow_of_late_is_given_more_time() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    answered_for(&mut primary, 1_000);
    primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    primary.applied(prepare.header.op, "");
    let prepare = primary.prepare(2);
    primary.durable(&prepare);
    assert!(!wishes_for_a_view(&answered_for(&mut primary, 2_000)));
    // Not for ever (V17).
    assert!(wishes_for_a_view(&answered_for(&mut primary, 2_100)));
}

/// Its ops may be behind those of other groups, on the way to the disk or to the others; for a bounded time.
#[test]
fn primary_whose_node_moves_other_things_keeps_leading_for_a_while() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    let mut waited = 0;
    let mut effects = vec![];
    while !wishes_for_a_view(&effects) {
        effects = primary.handle(Input::Moving);
        effects.extend(answered_for(&mut primary, 10));
        waited += 10;
        assert!(waited < 10_000);
    }
    assert!((4_000..6_000).contains(&waited), "{waited}");
}

/// V17: what moves is no excuse for one that hears nobody.
#[test]
fn v17_primary_that_hears_nobody_abdicates_whatever_moves() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(1);
    let mut effects = primary.durable(&prepare);
    for _ in 0..59 {
        effects.extend(primary.handle(Input::Moving));
        effects.extend(primary.wait(10));
    }
    assert!(!wishes_for_a_view(&effects));
    primary.handle(Input::Moving);
    assert!(wishes_for_a_view(&primary.wait(10)));
}

/// What a backup answers may be behind something large that it sends; again for a bounded time.
#[test]
fn primary_that_is_receiving_from_a_backup_hears_it_for_a_while() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let mut waited = 0;
    let mut effects = vec![];
    while !wishes_for_a_view(&effects) {
        let from = ReplicaId(1);
        effects = primary.handle(Input::Receiving { from });
        effects.extend(primary.wait(10));
        waited += 10;
        assert!(waited < 10_000);
    }
    assert_eq!(waited, 2_000);
}

/// A primary is not silent while something large comes from it.
#[test]
fn backup_that_is_receiving_from_its_primary_does_not_suspect_it_for_a_while() {
    let receiving = |backup: &mut Fixture, from: u8| {
        let mut waited = 0;
        let mut effects = vec![];
        while !wishes_for_a_view(&effects) {
            let from = ReplicaId(from);
            effects = backup.handle(Input::Receiving { from });
            effects.extend(backup.wait(10));
            waited += 10;
            assert!(waited < 10_000);
        }
        waited
    };
    // The node may live and the group there be dead.
    let waited = receiving(&mut backup(), 0);
    assert!((2_000..2_200).contains(&waited), "{waited}");
    // What another backup sends says nothing of the primary, nor does one that is none.
    assert_eq!(receiving(&mut backup(), 1), 150);
    assert_eq!(receiving(&mut backup(), 7), 150);
    // When the bytes stop, there is one interval as after any sign.
    let mut backup = backup();
    for _ in 0..30 {
        backup.handle(Input::Receiving { from: ReplicaId(0) });
        assert!(!wishes_for_a_view(&backup.wait(10)));
    }
    assert!(!wishes_for_a_view(&backup.wait(130)));
    assert!(wishes_for_a_view(&backup.wait(20)));
}

/// Its primary hears from it meanwhile, though the heartbeats that it would answer are behind what it receives.
#[test]
fn backup_that_is_receiving_answers_the_heartbeats_that_are_to_come() {
    let mut backup = backup();
    let mut answers = 0;
    for _ in 0..100 {
        let effects = backup.handle(Input::Receiving { from: ReplicaId(0) });
        answers += usize::from(effects == [send(0, commit_ok(2))]);
        assert!(answers > 0 || effects.is_empty());
        backup.wait(10);
    }
    // As many as heartbeats fit into that time, ticks being what they are.
    assert_eq!(answers, 33);
    assert_eq!(backup.handle(Input::Receiving { from: ReplicaId(1) }), []);
}

/// A host that is busy has each tick a little late. What a replica could not hear in that time is no silence.
#[test]
fn late_ticks_in_a_row_are_no_silence() {
    let mut backup = backup();
    let mut waited = 0;
    let mut effects = vec![];
    while !wishes_for_a_view(&effects) {
        effects = backup.tick_after(60);
        waited += 60;
    }
    // Of each tick 20 ms count.
    assert_eq!(waited, 8 * 60);
}

/// One slow interval is remembered, however many prepares come after it.
#[test]
fn slow_interval_is_not_hidden_by_prepares() {
    let mut backup = backup();
    backup.wait(140);
    backup.message(Message::Commit(heartbeat(0, EMPTY)));
    let mut commit = EMPTY;
    for prepare in chain(30) {
        backup.message(prepare_message(&prepare, commit));
        backup.durable(&prepare);
        commit = point(&prepare);
    }
    assert!(!wishes_for_a_view(&backup.wait(400)));
    assert!(wishes_for_a_view(&backup.wait(20)));
}

/// V17: with a quorum that answers, and commits, it stays; an idle one, too.
#[test]
fn primary_that_is_answered_stays() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let mut effects = vec![];
    for token in 0..20 {
        effects.extend(primary.wait(100));
        effects.extend(primary.message(commit_ok(2)));
        if token % 2 == 0 {
            let prepare = primary.prepare(token);
            primary.durable(&prepare);
            primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
            primary.applied(prepare.header.op, "");
        }
    }
    assert!(!wishes_for_a_view(&effects));
    assert!(primary.replica.is_serving());
}

/// V17: who waits for what it cannot commit is told so, and may ask those who lead elsewhere.
#[test]
fn who_waits_for_an_abdicated_primary_is_told_that_nothing_is_known() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(7);
    primary.durable(&prepare);
    assert!(!primary.wait(590).contains(&refuse(7, Refusal::Unknown)));
    assert!(primary.wait(20).contains(&refuse(7, Refusal::Unknown)));
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    assert_eq!(effects[0], committed(1));
}

/// What a primary does that is to stop.
fn handed_over() -> Vec<Effect> {
    vec![
        Effect::Note(Note::HandsOver { view: View(0) }),
        Effect::StatusChanged,
        view_wished(1),
        send(1, wish(0, 1, 0)),
        send(2, wish(0, 1, 0)),
    ]
}

/// A primary whose process is about to end is followed into the next view at once, without a suspicion.
#[test]
fn primary_that_is_to_stop_gives_its_view_up() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let effects = primary.handle(Input::Stop);
    assert_eq!(effects[0], Effect::StatusChanged);
    assert_eq!(effects[1..], handed_over());
    assert_eq!(primary.handle(Input::Stop), []);
    let mut backup = backup();
    backup.message(wish(0, 1, 0));
    assert_eq!(backup.replica.status(), Status::ViewChange);
    // The one that it is followed by needs no tick either.
    primary.message(wish(2, 1, 0));
    assert_eq!(primary.replica.status(), Status::ViewChange);
}

/// It takes nothing new, and finishes what is in flight first.
#[test]
fn primary_that_is_to_stop_finishes_what_is_in_flight() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(7);
    primary.durable(&prepare);
    assert_eq!(primary.handle(Input::Stop), [Effect::StatusChanged]);
    let refused = primary.request(8, Origin::Internal, "");
    assert_eq!(refused, [refuse(8, Refusal::NotReady)]);
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    assert_eq!(effects[0], committed(1));
    assert!(!wishes_for_a_view(&effects));
    let effects = primary.applied(prepare.header.op, "");
    assert!(effects.ends_with(&handed_over()), "{effects:?}");
}

/// It waits for what does not get committed only so long.
#[test]
fn primary_that_is_to_stop_and_commits_nothing_tells_who_waits() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(7);
    primary.durable(&prepare);
    primary.handle(Input::Stop);
    assert!(!wishes_for_a_view(&primary.wait(290)));
    let effects = primary.wait(10);
    assert!(effects.contains(&refuse(7, Refusal::Unknown)));
    assert!(wishes_for_a_view(&effects));
}

/// Who leads nothing wishes for nothing, and a single replica has nobody to hand over to.
#[test]
fn stop_moves_no_backup_and_no_single_replica() {
    assert_eq!(backup().handle(Input::Stop), [Effect::StatusChanged]);
    let mut alone = Fixture::alone();
    assert_eq!(alone.handle(Input::Stop), []);
    assert!(alone.replica.is_serving());
}

/// What still commits in the view that it has given up is applied and answered.
#[test]
fn abdicated_primary_still_takes_acknowledgements() {
    let mut primary = Fixture::started(0, 3);
    primary.tick_after(10);
    let prepare = primary.prepare(1);
    primary.durable(&prepare);
    primary.wait(610);
    assert!(!primary.replica.is_serving());
    let effects = primary.message(Message::PrepareOk(prepare_ok(1, &prepare)));
    assert_eq!(effects[0], committed(1));
    assert_eq!(primary.replica.commit_max(), point(&prepare).op);
}
