//! The choice of a view's journal where prepares cannot be read (V12).

use std::{slice, vec, vec::Vec};

use wire::Op;

use super::{EMPTY, START, chain, point, prepare_in, vote};
use crate::{
    DoViewChange, Prepare, SuffixReport,
    replica::choice::{Choice, choose},
};

/// The vote of a replica that cannot read one of its prepares, and perhaps not tell which it was.
fn without(mut vote: DoViewChange, op: u64, has_header: bool) -> DoViewChange {
    for report in vote.suffix.iter_mut().filter(|it| it.op == Op(op)) {
        report.present = false;
        report.header = report.header.filter(|_| has_header);
    }
    vote
}

fn chosen(votes: &[DoViewChange], replica_count: u8) -> Choice {
    let votes: Vec<&DoViewChange> = votes.iter().collect();
    choose(&votes, replica_count)
}

fn journal(prepares: &[Prepare], truncated: Option<(u64, u8)>) -> Choice {
    Choice::Journal {
        commit: EMPTY,
        headers: prepares.iter().map(|it| it.header).collect(),
        truncated: truncated.map(|(op, nacks)| (Op(op), nacks)),
    }
}

/// One good copy is enough, of whatever `log_view` the replica that has it.
#[test]
fn v12_op_with_a_header_and_a_copy_is_kept() {
    let prepares = chain(3);
    let damaged = without(vote(0, 4, 3, EMPTY, &prepares), 2, true);
    for log_view in [1, 3] {
        let whole = vote(1, 4, log_view, EMPTY, &prepares[..2]);
        let choice = chosen(&[damaged.clone(), whole], 3);
        assert_eq!(choice, journal(&prepares, None));
    }
}

/// Where the header is not known the op after it tells the checksum, and the copy the header.
#[test]
fn v12_copy_is_found_by_the_checksum_that_the_next_op_names() {
    let prepares = chain(3);
    let damaged = without(vote(0, 4, 3, EMPTY, &prepares), 2, false);
    let whole = vote(1, 4, 1, EMPTY, &prepares[..2]);
    assert_eq!(chosen(&[damaged, whole], 3), journal(&prepares, None));
}

/// V12: it was prepared, so a quorum may have acknowledged it: the one that cannot read it, and one that has
/// not voted.
#[test]
fn v12_what_cannot_be_read_is_no_nack() {
    let prepares = chain(2);
    for has_header in [true, false] {
        let damaged = without(vote(0, 4, 3, EMPTY, &prepares), 2, has_header);
        let shorter = vote(1, 4, 3, EMPTY, &prepares[..1]);
        let choice = chosen(&[damaged.clone(), shorter.clone()], 3);
        assert_eq!(choice, Choice::Undecided(Op(2)));
        // Nobody can read it.
        let other = DoViewChange {
            replica: super::ReplicaId(2),
            ..damaged.clone()
        };
        let choice = chosen(&[damaged, shorter, other], 3);
        assert_eq!(choice, Choice::Undecided(Op(2)));
    }
}

/// V12: n - quorum + 1 replicas that certainly never prepared it are enough, and one less is not.
#[test]
fn v12_op_is_dropped_on_enough_nacks() {
    let prepares = chain(3);
    for (replica_count, needed) in [(3, 2), (5, 3)] {
        let mut votes = vec![without(vote(0, 4, 3, EMPTY, &prepares), 2, true)];
        for replica in 1..needed {
            votes.push(vote(replica, 4, 3, EMPTY, &prepares[..1]));
            assert_eq!(chosen(&votes, replica_count), Choice::Undecided(Op(2)));
        }
        votes.push(vote(needed, 4, 3, EMPTY, &prepares[..1]));
        let expected = journal(&prepares[..1], Some((2, needed)));
        assert_eq!(chosen(&votes, replica_count), expected);
    }
}

/// Another op in the place of the canonical one is a nack, and so is one that is named as never prepared.
#[test]
fn v12_other_op_in_its_place_is_a_nack() {
    let prepares = chain(2);
    let other = prepare_in(1, point(&prepares[0]), START + 9);
    let damaged = without(vote(0, 4, 3, EMPTY, &prepares), 2, true);
    let diverged = vote(1, 4, 1, EMPTY, &[prepares[0].clone(), other]);
    let mut nacking = vote(2, 4, 3, EMPTY, &prepares[..1]);
    nacking.op = Op(2);
    nacking.suffix.push(SuffixReport {
        op: Op(2),
        header: None,
        nack: true,
        present: false,
    });
    let choice = chosen(&[damaged, diverged, nacking], 3);
    assert_eq!(choice, journal(&prepares[..1], Some((2, 2))));
}

/// V12: an op of which the canonical votes know nothing was prepared in their `log_view` itself, so older
/// journals do not have it. Those of the same view may.
#[test]
fn v12_older_journal_nacks_an_unknown_op() {
    let prepares = chain(2);
    let damaged = without(vote(0, 4, 3, EMPTY, &prepares), 2, false);
    let shorter = vote(1, 4, 3, EMPTY, &prepares[..1]);
    let older = vote(2, 4, 2, EMPTY, &prepares);
    let choice = chosen(&[damaged.clone(), shorter.clone(), older], 3);
    assert_eq!(choice, journal(&prepares[..1], Some((2, 2))));
    let same = without(vote(2, 4, 3, EMPTY, &prepares), 2, false);
    let choice = chosen(&[damaged, shorter, same], 3);
    assert_eq!(choice, Choice::Undecided(Op(2)));
}

/// What a vote knows to be committed is no question.
#[test]
fn v12_committed_op_is_kept_whatever_is_damaged() {
    let prepares = chain(3);
    let damaged = without(vote(0, 4, 3, EMPTY, &prepares), 2, false);
    let knowing = vote(1, 4, 3, point(&prepares[1]), slice::from_ref(&prepares[2]));
    let expected = Choice::Journal {
        commit: point(&prepares[1]),
        headers: vec![prepares[2].header],
        truncated: None,
    };
    assert_eq!(chosen(&[damaged, knowing], 3), expected);
}
