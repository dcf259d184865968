//! A replica that cannot read prepares of its own journal (V5, V10, V12).

use std::{slice, vec, vec::Vec};

use wire::{Op, View};

use super::{
    EMPTY, Fixture, START, apply, chain, committed, config, disk_between, heartbeat, ok_in, point,
    prepare_in, request_prepare, requested_prepare, rotten, send, view_entered, vote, wish,
};
use crate::{
    Barriers, Checkpoint, ClientSessions, Commit, DoViewChange, Effect, Gone, Input, Message, Note,
    Prepare, Recovered, Rotten, Status, SuffixReport, Superblock,
};

const fn damaged(first: u64, last: u64) -> Effect {
    Effect::Note(Note::Damaged {
        first: Op(first),
        last: Op(last),
    })
}

const fn recovered(op: u64) -> Effect {
    Effect::Note(Note::Recovered {
        checkpoint: Op(0),
        op: Op(op),
    })
}

/// A disk with the journal of `log_view` that was left for `view`, of which these ops cannot be read.
fn disk_without(log_view: u32, view: u32, prepares: &[Prepare], lost: &[u64]) -> Recovered {
    let mut disk = disk_between(log_view, view, prepares);
    disk.prepares.retain(|it| !lost.contains(&it.header.op));
    disk.rotten = lost.iter().map(|op| rotten(*op)).collect();
    disk
}

fn without(mut vote: DoViewChange, lost: &[u64]) -> DoViewChange {
    for report in vote.suffix.iter_mut() {
        report.present &= !lost.contains(&report.op.0);
    }
    vote
}

const fn unknown(op: u64) -> SuffixReport {
    SuffixReport {
        op: Op(op),
        header: None,
        nack: false,
        present: false,
    }
}

fn votes(effects: &[Effect]) -> Vec<DoViewChange> {
    let mut found = Vec::new();
    for effect in effects {
        if let Effect::Send {
            message: Message::DoViewChange(vote),
            ..
        } = effect
        {
            found.push(vote.clone());
        }
    }
    found
}

/// The superblock that the effects write last.
fn written(effects: &[Effect]) -> Superblock {
    let mut found = None;
    for effect in effects {
        if let Effect::WriteSuperblock(superblock) = effect {
            found = Some(superblock.clone());
        }
    }
    found.expect("a superblock is written")
}

/// The view is left by the wishes of the others; returns the superblock that says so.
fn leave(fixture: &mut Fixture, view: u32) -> Superblock {
    let mut effects = fixture.message(wish(0, view, 0));
    effects.extend(fixture.message(wish(1, view, 0)));
    written(&effects)
}

/// V10: what was flushed and cannot be read is not what was never there. It is fetched by its checksum, and
/// nothing from there on is acknowledged or applied before it is here.
#[test]
fn v10_unreadable_prepare_is_fetched_by_its_checksum() {
    let prepares = chain(3);
    let second = &prepares[1];
    let disk = disk_without(4, 4, &prepares, &[2]);
    let (mut backup, effects) = Fixture::starting(config(2, 3), disk);
    let request = request_prepare(2, 4, 2, Some(second.header.checksum));
    let expected = [
        recovered(1),
        damaged(2, 3),
        view_entered(4),
        Effect::StatusChanged,
        send(0, request.clone()),
    ];
    assert_eq!(effects, expected);

    // All is committed.
    let heartbeat = Message::Commit(Commit {
        replica: super::ReplicaId(1),
        view: View(4),
        ..heartbeat(3, point(&prepares[2]))
    });
    let effects = backup.message(heartbeat);
    assert!(!effects.iter().any(|it| matches!(it, Effect::Apply { .. })));
    // Nobody answers: somebody else is asked.
    assert!(backup.wait(60).contains(&send(1, request)));

    let copy = requested_prepare(0, 4, true, second);
    assert_eq!(backup.message(copy), [Effect::WritePrepare(second.clone())]);
    let effects = backup.durable(second);
    let expected = [
        Effect::Note(Note::Repaired { op: Op(2) }),
        committed(3),
        apply(prepares[0].clone(), None),
        apply(prepares[1].clone(), None),
        apply(prepares[2].clone(), None),
        send(1, Message::PrepareOk(ok_in(2, 4, &prepares[1]))),
        send(1, Message::PrepareOk(ok_in(2, 4, &prepares[2]))),
    ];
    assert_eq!(effects, expected);
}

/// V12: a vote names what cannot be read, never as not prepared; where nothing tells the header, by its
/// number. V5: the superblock has it first, and a restart says the same.
#[test]
fn v12_vote_names_what_cannot_be_read() {
    let prepares = chain(3);
    // The second was inherited; the fourth was prepared in the view, and is lost altogether.
    let disk = disk_without(4, 4, &prepares, &[2, 4]);
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    let superblock = leave(&mut backup, 6);
    assert_eq!(superblock.head, Op(4));
    assert_eq!(superblock.suffix[1].header, Some(prepares[1].header));
    assert_eq!(superblock.suffix[3].header, None);

    let effects = backup.handle(Input::SuperblockWritten {
        sequence: superblock.sequence,
    });
    let mut expected = without(vote(2, 6, 4, EMPTY, &prepares), &[2]);
    expected.op = Op(4);
    expected.suffix.push(unknown(4));
    assert_eq!(votes(&effects), slice::from_ref(&expected));

    let restarted = Recovered {
        superblock: Some(superblock),
        ..disk_without(4, 4, &prepares, &[2, 4])
    };
    let (_, effects) = Fixture::starting(config(2, 3), restarted);
    assert_eq!(votes(&effects), [expected]);
}

/// V5: only what is present changes, once a copy is durable; the vote is sent again at once.
#[test]
fn v5_vote_changes_only_in_what_is_present() {
    let prepares = chain(3);
    let disk = disk_without(4, 5, &prepares, &[2]);
    let (mut voter, effects) = Fixture::starting(config(1, 3), disk);
    let expected = without(vote(1, 5, 4, EMPTY, &prepares), &[2]);
    assert_eq!(votes(&effects), slice::from_ref(&expected));
    let effects = voter.message(requested_prepare(0, 4, false, &prepares[1]));
    assert_eq!(votes(&effects), []);
    assert_eq!(votes(&voter.wait(50)), [expected]);
    let expected = vote(1, 5, 4, EMPTY, &prepares);
    assert_eq!(votes(&voter.durable(&prepares[1])), [expected]);
}

/// What was lost before the journal was installed cannot be above its head.
#[test]
fn v12_what_was_lost_before_the_install_is_no_part_of_the_journal() {
    let prepares = chain(2);
    for (since, expected) in [(7, Op(2)), (6, Op(3))] {
        let mut disk = disk_between(4, 4, &prepares);
        if let Some(superblock) = &mut disk.superblock {
            superblock.since = since;
        }
        disk.rotten = vec![Rotten {
            before: 7,
            ..rotten(3)
        }];
        let (mut backup, _) = Fixture::starting(config(2, 3), disk);
        assert_eq!(leave(&mut backup, 5).head, expected);
    }
}

/// The install remembers where the journal on the disk went on.
#[test]
fn v12_install_names_the_position_of_its_disk() {
    let (_, effects) = Fixture::starting(
        config(0, 3),
        Recovered {
            position: 12,
            ..Recovered::default()
        },
    );
    assert_eq!(written(&effects).since, 12);
}

/// A header that can be read without its body tells the op before it, too.
#[test]
fn header_without_its_body_names_the_op() {
    let inherited = chain(1);
    let second = prepare_in(4, point(&inherited[0]), START + 7);
    let third = prepare_in(4, point(&second), START + 8);
    let mut disk = disk_between(4, 4, &inherited);
    disk.rotten = vec![
        Rotten {
            header: Some(third.header),
            ..rotten(3)
        },
        Rotten {
            header: Some(second.header),
            ..rotten(2)
        },
    ];
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    let suffix = leave(&mut backup, 5).suffix;
    let headers: Vec<_> = suffix.iter().filter_map(|it| it.header).collect();
    assert_eq!(headers, [inherited[0].header, second.header, third.header]);
}

/// V11: where nothing tells how many prepares were lost, the head is uncertain; unless it was installed since.
#[test]
fn v11_loss_without_a_bound_hides_the_head() {
    for (since, expected) in [(6, Status::RecoveringHead), (7, Status::Normal)] {
        let mut disk = disk_between(4, 4, &chain(2));
        if let Some(superblock) = &mut disk.superblock {
            superblock.since = since;
        }
        disk.rotten_unbounded = Some(7);
        let (backup, _) = Fixture::starting(config(2, 3), disk);
        assert_eq!(backup.replica.status(), expected);
    }
    // More than a vote can name.
    let mut disk = disk_between(4, 4, &chain(2));
    disk.rotten = (3..200).map(rotten).collect();
    let (backup, _) = Fixture::starting(config(2, 3), disk);
    assert_eq!(backup.replica.status(), Status::RecoveringHead);
}

/// What can be read behind a gap is handed out, by its checksum; with its number alone if it is committed.
#[test]
fn prepare_behind_a_gap_is_handed_out() {
    let prepares = chain(40);
    let mut disk = disk_without(4, 4, &prepares[8..], &[]);
    disk.prepares.clone_from(&prepares);
    disk.prepares.remove(1);
    disk.rotten = vec![rotten(2)];
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    let checksum = prepares[19].header.checksum;
    let answer =
        |op: usize, is_committed| send(0, requested_prepare(2, 4, is_committed, &prepares[op - 1]));
    let effects = backup.message(request_prepare(0, 4, 20, Some(checksum)));
    assert_eq!(effects, [answer(20, false)]);
    let effects = backup.message(request_prepare(0, 4, 8, None));
    assert_eq!(effects, [answer(8, true)]);
    let effects = backup.message(request_prepare(0, 4, 20, None));
    assert!(!effects.contains(&answer(20, false)));
}

/// The vote knows what is committed, though it cannot be read: the op 32 before the last certain one.
#[test]
fn v10_committed_ops_need_not_be_readable_for_a_vote() {
    let prepares = chain(40);
    let mut disk = disk_between(4, 5, &prepares[8..]);
    disk.prepares.clone_from(&prepares);
    disk.prepares.remove(1);
    disk.rotten = vec![rotten(2)];
    let (_, effects) = Fixture::starting(config(1, 3), disk);
    let expected = vote(1, 5, 4, point(&prepares[7]), &prepares[8..]);
    assert_eq!(votes(&effects), [expected]);
}

/// An op that may have been there, or not, says nothing of those before it (first found in a group of three).
#[test]
fn v12_op_that_may_not_have_been_there_shows_nothing_to_be_committed() {
    let prepares = chain(33);
    let mut disk = disk_between(0, 0, &[]);
    disk.prepares.clone_from(&prepares);
    disk.rotten = vec![rotten(34), rotten(35)];
    let (backup, _) = Fixture::starting(config(2, 3), disk);
    assert_eq!(backup.replica.commit_max(), Op(1));
}

/// V10: without the checksum of what is committed there is no vote, until a copy tells it.
#[test]
fn v10_no_vote_before_the_committed_op_is_known() {
    let prepares = chain(40);
    let mut disk = disk_between(4, 5, &prepares[8..]);
    disk.prepares.clone_from(&prepares);
    disk.prepares.remove(8);
    disk.rotten = vec![rotten(9)];
    if let Some(superblock) = &mut disk.superblock {
        superblock.suffix[0].header = None;
    }
    let (mut voter, effects) = Fixture::starting(config(1, 3), disk);
    assert_eq!(votes(&effects), []);
    voter.message(requested_prepare(0, 4, false, &prepares[8]));
    let effects = voter.durable(&prepares[8]);
    assert_eq!(
        votes(&effects),
        [vote(1, 5, 4, point(&prepares[7]), &prepares[8..])]
    );
}

/// V5: what was certain when the view was left is so after a restart: the header of an op is written down when
/// nothing else would name it (first found in a group of three).
#[test]
fn v5_committed_op_before_a_gap_is_not_forgotten() {
    let prepares = chain(35);
    let mut disk = disk_between(0, 0, &[]);
    disk.prepares.clone_from(&prepares);
    disk.prepares.remove(3);
    disk.rotten = vec![rotten(4)];
    let (mut backup, _) = Fixture::starting(config(2, 3), disk.clone());
    let superblock = leave(&mut backup, 1);
    assert_eq!(superblock.suffix[0].header, Some(prepares[2].header));
    disk.superblock = Some(superblock);
    let (_, effects) = Fixture::starting(config(2, 3), disk);
    let expected = vote(2, 1, 0, point(&prepares[2]), &prepares[3..]);
    let mut expected = without(expected, &[4]);
    expected.suffix[0].header = None;
    assert_eq!(votes(&effects), [expected]);
}

/// What may have been behind a checkpoint is named by the superblock alone, once that checkpoint has let the
/// journal give up what was rotten: no prepare is missed for that, and the vote is the same.
#[test]
fn v12_op_that_may_have_been_there_is_not_missed_behind_a_checkpoint() {
    let prepares = chain(3);
    let mut disk = disk_without(0, 0, &prepares, &[3]);
    disk.rotten.push(rotten(4));
    let (mut backup, _) = Fixture::starting(config(2, 3), disk.clone());
    disk.superblock = Some(leave(&mut backup, 1));
    disk.checkpoint = Some(Checkpoint {
        op: Op(3),
        checksum: prepares[2].header.checksum,
        timestamp: prepares[2].header.timestamp(),
        ..Checkpoint::default()
    });
    disk.prepares.clear();
    disk.rotten.clear();
    let (mut backup, effects) = Fixture::starting(config(2, 3), disk);
    let Superblock { sequence, head, .. } = written(&effects);
    assert_eq!(head, Op(4));
    let effects = backup.handle(Input::SuperblockWritten { sequence });
    let expected = DoViewChange {
        op: Op(4),
        checkpoint: Op(3),
        suffix: vec![unknown(4)],
        ..vote(2, 1, 0, point(&prepares[2]), &[])
    };
    assert_eq!(votes(&effects), [expected]);
    assert_eq!(backup.replica.status(), Status::ViewChange);
}

/// What is behind the checkpoint that is fetched may have been acknowledged, and stays.
#[test]
fn v3_checkpoint_of_another_replica_keeps_what_is_behind_it() {
    let prepares = chain(40);
    let mut disk = disk_between(4, 4, &prepares[8..]);
    disk.prepares.clone_from(&prepares);
    disk.prepares.remove(1);
    disk.rotten = vec![rotten(2)];
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    let gone = Message::Gone(Gone {
        replica: super::ReplicaId(0),
        view: View(4),
        op: Op(2),
        checkpoint: Op(5),
    });
    let effects = backup.message(gone);
    assert!(effects.contains(&Effect::Note(Note::CheckpointWanted { op: Op(2) })));
    let fifth = &prepares[4].header;
    let effects = backup.handle(Input::CheckpointFetched(Checkpoint {
        op: Op(5),
        checksum: fifth.checksum,
        timestamp: fifth.timestamp(),
        view: fifth.view(),
        client_sessions: ClientSessions::default(),
        barriers: Barriers::default(),
    }));
    let written = written(&effects);
    assert_eq!((written.checkpoint.op, written.head), (Op(5), Op(40)));
    assert_eq!(written.suffix.len(), 32);
    backup.handle(Input::SuperblockWritten {
        sequence: written.sequence,
    });
    assert_eq!(backup.replica.op(), Op(40));
}

/// The primary of view 5 of three (replica 2), which has voted without being able to read its second op.
fn candidate(prepares: &[Prepare]) -> Fixture {
    let disk = disk_without(4, 5, prepares, &[2]);
    let (candidate, _) = Fixture::starting(config(2, 3), disk);
    assert!(candidate.replica.is_primary());
    candidate
}

/// V12: all have voted and nobody can read it: said aloud, nothing is served, and it goes on by itself when a
/// copy appears.
#[test]
fn v12_undecided_op_stops_the_view_until_a_copy_appears() {
    let prepares = chain(2);
    let mut candidate = candidate(&prepares);
    let undecided = Effect::Note(Note::Undecided {
        view: View(5),
        op: Op(2),
    });
    let damaged = without(vote(0, 5, 4, EMPTY, &prepares), &[2]);
    let effects = candidate.message(Message::DoViewChange(damaged));
    assert_eq!(effects, []);
    let shorter = vote(1, 5, 4, EMPTY, &prepares[..1]);
    let effects = candidate.message(Message::DoViewChange(shorter));
    assert_eq!(effects, [undecided]);
    assert_eq!(candidate.replica.status(), Status::ViewChange);

    // The first can read it again: it says so in the same vote.
    let whole = vote(0, 5, 4, EMPTY, &prepares);
    let effects = candidate.message(Message::DoViewChange(whole));
    let request = request_prepare(2, 5, 2, Some(prepares[1].header.checksum));
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Send { message, .. } if *message == request
    )));
    candidate.message(requested_prepare(0, 4, false, &prepares[1]));
    candidate.durable(&prepares[1]);
    assert_eq!(candidate.replica.op(), Op(2));
}

/// V12: on enough nacks the view does without it.
#[test]
fn v12_nacked_op_is_dropped() {
    let prepares = chain(2);
    let mut candidate = candidate(&prepares);
    for replica in [0, 1] {
        let shorter = vote(replica, 5, 4, EMPTY, &prepares[..1]);
        let effects = candidate.message(Message::DoViewChange(shorter));
        let truncated = Effect::Note(Note::Truncated {
            op: Op(2),
            nacks: 2,
        });
        assert_eq!(effects.contains(&truncated), replica == 1);
    }
    assert_eq!(candidate.replica.op(), Op(1));
}

/// V5: a vote again is not that of somebody else, and what it said before stays.
#[test]
fn v5_repeated_vote_takes_nothing_back() {
    let prepares = chain(2);
    let mut candidate = candidate(&prepares);
    let damaged = without(vote(0, 5, 4, EMPTY, &prepares), &[2]);
    candidate.message(Message::DoViewChange(damaged));
    let repeated = Effect::Note(Note::Ignored(crate::Ignore::DoViewChangeRepeated));
    for again in [
        vote(0, 5, 4, EMPTY, &prepares[..1]),
        vote(0, 5, 3, EMPTY, &prepares),
        without(vote(0, 5, 4, EMPTY, &prepares), &[2]),
    ] {
        let effects = candidate.message(Message::DoViewChange(again));
        assert_eq!(effects, slice::from_ref(&repeated));
    }
}

/// Votes that contradict themselves are not counted.
#[test]
fn vote_that_does_not_hang_together_is_ignored() {
    let prepares = chain(3);
    let mut candidate = candidate(&prepares);
    let whole = vote(0, 5, 4, EMPTY, &prepares);
    let change = |change: &dyn Fn(&mut DoViewChange)| {
        let mut vote = whole.clone();
        change(&mut vote);
        vote
    };
    let ignored = Effect::Note(Note::Ignored(crate::Ignore::SuffixInvalid));
    for vote in [
        change(&|it| it.suffix[1].header = None),
        change(&|it| it.suffix[1].nack = true),
        change(&|it| it.op = Op(4)),
        change(&|it| it.suffix[1].op = Op(3)),
        change(&|it| {
            it.suffix.remove(1);
        }),
        change(&|it| {
            it.suffix[0] = unknown(1);
            it.suffix[1].header = Some(prepares[2].header);
        }),
        change(&|it| it.log_view = View(6)),
    ] {
        let effects = candidate.message(Message::DoViewChange(vote));
        assert_eq!(effects, slice::from_ref(&ignored));
    }
}
