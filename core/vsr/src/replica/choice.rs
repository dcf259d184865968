//! The choice of a new view's journal from the votes (V4, V12).
//!
//! **V4.** The journal of the highest `log_view` among the votes is the one: the votes that have it are the
//! *canonical* ones, and cannot differ in an op that they both name. It goes as far as the longest of them.
//! Not the view of the newest entry counts: prepares keep their view when they are inherited.
//!
//! **V12** (Protocol-Aware Recovery, Alagappan et al. 2018). A disk may lose prepares that it has flushed, so a
//! vote names every op that its journal may have had, and says of each whether it can be read. Op by op, from
//! the highest known commit on, an op is
//!
//! - *kept*, if a vote names its header and one can be read: the header whose checksum the canonical votes tell,
//!   in its place or as the parent of the next;
//! - else *dropped*, and everything behind it, if n - quorum + 1 votes nack it;
//! - else undecided: more votes are waited for, or for a copy that is repaired. When all have voted, that is
//!   said aloud.
//!
//! A vote *nacks* an op that its journal certainly does not have: one above its last, one in whose place it has
//! another than the canonical one, one that it names as never prepared. What cannot be read is no nack. A
//! journal here has no holes, so this replica's own nacks are what is above the last op of its vote; that is in
//! the superblock before the vote is sent, with all headers (V5), and whatever was lost below it, or may have
//! been lost above it, was counted in (`recovered.rs`).
//!
//! *Why n - quorum + 1 nacks prove that an op was not acknowledged, whatever the `log_view` of those votes.* Let
//! a vote have the journal of view l and nack op k with checksum c. Suppose that a quorum acknowledged c in some
//! view v.
//!
//! - v < l: then every journal installed for l has c (V4), and so had this one. It has not.
//! - v = l: this replica is none of the quorum: what it acknowledges in l is in its journal of l, which is that
//!   of the vote.
//! - v > l: nor then: it acknowledges in v only with the journal of v (V7), and its `log_view` would be v (V2).
//!
//! So the quorum is among those that do not nack: n - (n - quorum + 1) = quorum - 1 at most. And none of them
//! acknowledges in an older view any more, having promised this one.
//!
//! *Where the canonical votes tell no checksum* the op was prepared in their `log_view` itself: the headers of
//! what they inherited are in their superblocks since the install, as far as it was not committed. So a vote of
//! an older `log_view` cannot have it, whatever it has in its place, and nacks it; one of the same nacks it if
//! it ends before.
//!
//! For odd n that many nacks are a quorum: votes that would be enough without the damaged one are enough with it
//! (V17). So a vote that has nothing above its commit names no header and no copy, but its last op counts. That a
//! blank disk does not vote is another rule's (V13).

use alloc::{collections::BTreeMap, vec::Vec};

use wire::{Op, PrepareHeader, View};

use crate::{ChainPoint, DoViewChange, SuffixReport, mutation, quorum};

/// What the votes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This is the journal.
    Journal {
        /// What is committed at least.
        commit: ChainPoint,
        /// The ops after it.
        headers: Vec<PrepareHeader>,
        /// The first op that is dropped, and by how many nacks.
        truncated: Option<(Op, u8)>,
    },
    /// It depends on a vote that is not there, or on a copy, whether this op was acknowledged.
    Undecided(Op),
    /// The votes contradict each other: nothing is guessed.
    Contradiction,
}

/// Chooses from the votes of a quorum or more.
pub(super) fn choose(votes: &[&DoViewChange], replica_count: u8) -> Choice {
    let log_view = |vote: &DoViewChange| if mutation::V4 { View(0) } else { vote.log_view };
    let best = votes.iter().max_by_key(|vote| (log_view(vote), vote.op));
    let commit = votes.iter().map(|vote| vote.commit).max_by_key(|it| it.op);
    let (Some(best), Some(commit)) = (best, commit) else {
        return Choice::Contradiction;
    };
    // Nothing at or below a known commit is dropped.
    let canonical = canonical(votes, best.log_view);
    let Some(canonical) = canonical.filter(|it| is_in(it, commit) && commit.op <= best.op) else {
        return Choice::Contradiction;
    };
    let mut headers: Vec<PrepareHeader> = Vec::new();
    let mut truncated = None;
    for op in (commit.op.0..best.op.0).map(|before| Op(before + 1)) {
        let checksum = canonical.get(&op).copied();
        if let Some(header) = checksum.and_then(|it| header_with_copy(votes, op, it)) {
            headers.push(header);
            continue;
        }
        let nacks = votes.iter().filter(|vote| {
            let is_older = log_view(vote) < log_view(best);
            nacks(vote, op, checksum, is_older)
        });
        let nacks = u8::try_from(nacks.count()).expect("one of each replica");
        if nacks < replica_count - quorum(replica_count) + 1 {
            return Choice::Undecided(op);
        }
        truncated = Some((op, nacks));
        break;
    }
    let mut parent = commit.checksum;
    let is_chain = headers.iter().all(|header| {
        let follows = header.parent == parent;
        parent = header.checksum;
        follows
    });
    if is_chain {
        Choice::Journal {
            commit,
            headers,
            truncated,
        }
    } else {
        Choice::Contradiction
    }
}

/// The checksums of the journal of `log_view`, as far as its votes tell them; none if they tell several.
fn canonical(votes: &[&DoViewChange], log_view: View) -> Option<BTreeMap<Op, u128>> {
    let mut checksums = BTreeMap::new();
    let mut learn = |op, checksum| *checksums.entry(op).or_insert(checksum) == checksum;
    for vote in votes.iter().filter(|vote| vote.log_view == log_view) {
        let mut agree = learn(vote.commit.op, vote.commit.checksum);
        for header in vote.suffix.iter().filter_map(|it| it.header) {
            agree &= learn(header.op(), header.checksum);
            agree &= learn(Op(header.op.saturating_sub(1)), header.parent);
        }
        if !agree {
            return None;
        }
    }
    Some(checksums)
}

fn is_in(canonical: &BTreeMap<Op, u128>, commit: ChainPoint) -> bool {
    let known = canonical.get(&commit.op);
    known.is_none_or(|it| *it == commit.checksum)
}

/// The header of this checksum, if somebody names it and somebody can read it.
fn header_with_copy(votes: &[&DoViewChange], op: Op, checksum: u128) -> Option<PrepareHeader> {
    let reports = votes.iter().filter_map(|vote| report(vote, op));
    let mut named = reports.filter_map(|it| Some((it.header?, it.present)));
    let found = named.find(|(header, present)| *present && header.checksum == checksum);
    found.map(|(header, _)| header)
}

/// Whether the canonical op is certainly not in the journal of the vote, whose `log_view` may be older.
fn nacks(vote: &DoViewChange, op: Op, checksum: Option<u128>, is_older: bool) -> bool {
    let Some(report) = report(vote, op) else {
        return vote.op < op;
    };
    let is_other = match checksum {
        Some(checksum) => report.header.is_some_and(|it| it.checksum != checksum),
        None => is_older,
    };
    report.nack || is_other || mutation::V12 && !report.present
}

fn report(vote: &DoViewChange, op: Op) -> Option<&SuffixReport> {
    vote.suffix.iter().find(|it| it.op == op)
}
