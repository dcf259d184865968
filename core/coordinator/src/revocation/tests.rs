//! Every step of the table, from every state.

use std::{panic::catch_unwind, vec::Vec};

use wire::{Epoch, MemberId, Offset, Op, Timestamp};

use super::At;
use crate::{Holding, Ownership, ResetTo};

const M: MemberId = MemberId(1);
const T: MemberId = MemberId(2);
const U: MemberId = MemberId(3);
const SINCE: Timestamp = Timestamp(500);
const RESET: Option<ResetTo> = Some(ResetTo::Offset(Offset(7)));

const AT: At = At {
    op: Op(30),
    timestamp: Timestamp(900),
};

const fn entry(epoch: u64, holding: Holding) -> Ownership {
    Ownership {
        epoch: Epoch(epoch),
        holding,
    }
}

const NEVER: Ownership = Ownership::NEVER;
const NO_OWNER: Ownership = entry(10, Holding::Nobody);
const OWNED: Ownership = entry(10, owned(M, 5));
const REVOKING: Ownership = entry(10, revoking(T, 20, SINCE));
const FENCING: Ownership = entry(10, fencing(Some(T), 20, SINCE, RESET));
const CLEARING: Ownership = entry(10, fencing(None, 20, SINCE, RESET));
const PURGING: Ownership = entry(0, fencing(None, 20, SINCE, None));

const ALL: [Ownership; 7] = [NEVER, NO_OWNER, OWNED, REVOKING, FENCING, CLEARING, PURGING];

const fn owned(owner: MemberId, held_since: u64) -> Holding {
    Holding::Owned {
        owner,
        held_since: Epoch(held_since),
    }
}

const fn revoking(to: MemberId, epoch: u64, since: Timestamp) -> Holding {
    Holding::Revoking {
        owner: M,
        held_since: Epoch(5),
        to,
        epoch: Epoch(epoch),
        since,
    }
}

const fn fencing(
    to: Option<MemberId>,
    epoch: u64,
    since: Timestamp,
    reset: Option<ResetTo>,
) -> Holding {
    Holding::Fencing {
        to,
        epoch: Epoch(epoch),
        since,
        reset,
    }
}

fn after(mut ownership: Ownership, step: impl FnOnce(&mut Ownership)) -> Ownership {
    assert!(ownership.is_consistent());
    step(&mut ownership);
    assert!(ownership.is_consistent());
    ownership
}

/// The states from which a step panics.
fn refused(step: impl Fn(&mut Ownership) + Copy + std::panic::UnwindSafe) -> Vec<Ownership> {
    let refuses = |ownership: &Ownership| {
        let mut ownership = *ownership;
        catch_unwind(move || step(&mut ownership)).is_err()
    };
    ALL.into_iter().filter(refuses).collect()
}

#[test]
fn assign_grants_at_once_only_what_was_never_owned() {
    let assigned = |from| after(from, |it| it.assign(AT, U));
    let now = AT.timestamp;
    assert_eq!(assigned(NEVER), entry(30, owned(U, 30)));
    assert_eq!(
        assigned(NO_OWNER),
        entry(10, fencing(Some(U), 30, now, None))
    );
    assert_eq!(assigned(OWNED), entry(10, revoking(U, 30, now)));
    assert_eq!(assigned(REVOKING), entry(10, revoking(U, 30, SINCE)));
    assert_eq!(
        assigned(FENCING),
        entry(10, fencing(Some(U), 30, SINCE, RESET))
    );
    assert_eq!(
        assigned(CLEARING),
        entry(10, fencing(Some(U), 30, SINCE, RESET))
    );
    assert_eq!(
        assigned(PURGING),
        entry(0, fencing(Some(U), 30, SINCE, None))
    );
    assert_eq!(refused(|it| it.assign(AT, M)), [OWNED, REVOKING]);
}

#[test]
fn cancel_gives_the_owner_a_new_epoch_and_its_old_beginning() {
    let cancelled = after(REVOKING, |it| it.cancel(AT));
    assert_eq!(cancelled, entry(30, owned(M, 5)));
    let others = [NEVER, NO_OWNER, OWNED, FENCING, CLEARING, PURGING];
    assert_eq!(refused(|it| it.cancel(AT)), others);
}

#[test]
fn release_leaves_the_move_that_was_planned() {
    assert_eq!(after(OWNED, Ownership::release), NO_OWNER);
    let moving = entry(10, fencing(Some(T), 20, SINCE, None));
    assert_eq!(after(REVOKING, Ownership::release), moving);
    assert_eq!(
        refused(Ownership::release),
        [NEVER, NO_OWNER, FENCING, CLEARING, PURGING]
    );
}

#[test]
fn strand_keeps_what_has_to_be_reset() {
    let stranded = |from| after(from, |it| it.strand(AT));
    assert_eq!(
        stranded(FENCING),
        entry(10, fencing(None, 30, SINCE, RESET))
    );
    let plain = entry(10, fencing(Some(T), 20, SINCE, None));
    assert_eq!(stranded(plain), NO_OWNER);
    let others = [NEVER, NO_OWNER, OWNED, REVOKING, CLEARING, PURGING];
    assert_eq!(refused(|it| it.strand(AT)), others);
}

#[test]
fn take_over_fences_the_old_session() {
    let taken = |from| after(from, |it| it.take_over(AT));
    assert_eq!(
        taken(OWNED),
        entry(10, fencing(Some(M), 30, AT.timestamp, None))
    );
    assert_eq!(
        taken(REVOKING),
        entry(10, fencing(Some(T), 20, SINCE, None))
    );
    assert_eq!(
        refused(|it| it.take_over(AT)),
        [NEVER, NO_OWNER, FENCING, CLEARING, PURGING]
    );
}

#[test]
fn restart_goes_to_target_then_owner_then_nobody() {
    let restarted = |from| after(from, |it| it.restart(AT, Some(ResetTo::Nothing)));
    let to = |to, since| fencing(to, 30, since, Some(ResetTo::Nothing));
    let now = AT.timestamp;
    assert_eq!(restarted(NEVER), entry(0, to(None, now)));
    assert_eq!(restarted(NO_OWNER), entry(10, to(None, now)));
    assert_eq!(restarted(OWNED), entry(10, to(Some(M), now)));
    assert_eq!(restarted(REVOKING), entry(10, to(Some(T), SINCE)));
    assert_eq!(restarted(FENCING), entry(10, to(Some(T), SINCE)));
    assert_eq!(restarted(CLEARING), entry(10, to(None, SINCE)));
    let purged = after(FENCING, |it| it.restart(AT, None));
    assert_eq!(purged, entry(10, fencing(Some(T), 30, SINCE, None)));
}

#[test]
fn complete_compares_and_sets() {
    for moving in [REVOKING, FENCING] {
        let done = after(moving, |it| assert!(it.complete(Epoch(20))));
        assert_eq!(done, entry(20, owned(T, 20)));
        let again = after(done, |it| assert!(!it.complete(Epoch(20))));
        assert_eq!(again, done);
    }
    for moving in [CLEARING, PURGING] {
        let done = after(moving, |it| assert!(it.complete(Epoch(20))));
        assert_eq!(done, entry(20, Holding::Nobody));
    }
    for ownership in ALL {
        for wrong in [0, 5, 10, 19, 21] {
            let same = after(ownership, |it| assert!(!it.complete(Epoch(wrong))));
            assert_eq!(same, ownership);
        }
    }
}

/// Also in the op that has just planned the move, but never below an epoch that is known.
#[test]
fn no_step_goes_back_in_epochs() {
    let older = At { op: Op(19), ..AT };
    let moving = [REVOKING, FENCING, CLEARING, PURGING];
    assert_eq!(refused(|it| it.assign(older, U)), moving);
    assert_eq!(refused(|it| it.restart(older, None)), moving);
    let same = At { op: Op(10), ..AT };
    let granted = [NO_OWNER, OWNED, REVOKING, FENCING, CLEARING, PURGING];
    assert_eq!(refused(|it| it.assign(same, U)), granted);
    let planned = At { op: Op(20), ..AT };
    let again = after(REVOKING, |it| it.assign(planned, U));
    assert_eq!(again, entry(10, revoking(U, 20, SINCE)));
}
