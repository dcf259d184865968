//! A replica that lost its disk comes back (V13).
//!
//! It has forgotten what it promised and what it acknowledged. As a fresh one it would say that it never had
//! what was acknowledged with its help, and a quorum of such would drop it. So it says nothing at all: no vote,
//! no acknowledgement, no wish, no answer to a probe. It is in [`Status::RecoveringHead`], its superblock says so
//! before anything is sent, and it asks every primary that it hears to take it back ([`Rejoin`]), under the nonce of
//! this incarnation. One that serves prepares a *barrier*: an op of the journal that names the replica and the
//! nonce, and that no state machine sees. Once that is committed, and not before, it answers with the journal of
//! its view under that nonce. Nothing else takes the replica back: its durable view is 0, so that any start_view
//! is of a later one. It fetches the journal, and a checkpoint if need be, and one superblock makes that its own
//! and takes the flag away. Whatever stops it before, it begins anew, with another nonce.
//!
//! *Call the replica R, its barrier b, prepared in view u.* What the lost disk knew is of no use, so all that can
//! go wrong is that something which the old incarnation has said is still on its way, and does not hold for the
//! new one. Until b is committed R says nothing, and its old messages are those of a replica that has crashed.
//! After that:
//!
//! - **prepare_ok.** An old one is of an op before b: b was prepared when the old incarnation was gone. R never
//!   acknowledges b before it is back, so a quorum Q of the others has, and each of Q has all ops before b
//!   durable (a replica acknowledges without gaps). Whatever an old acknowledgement commits, Q has.
//! - **do_view_change.** The old incarnation may have promised view w > u, and the new one acknowledges in u all
//!   the same. An old vote for w together with the votes of those that have not heard of this would start w
//!   without what R has helped to commit. The design lets R come back two views on, so that no old vote is for a
//!   view to come; but it may have voted for any. Instead **a vote of R that does not contain the last barrier of R
//!   in the journal that is chosen does not count** ([`Replica::drop_old_votes`]); see below.
//! - **commit_ok.** It certifies a checkpoint that is lost. Whoever applies b forgets that one (V15); one that
//!   arrives later lets others recycle what is in their own checkpoints, and R has it from them.
//! - **view_probe_ok.** It says that R was in the view after the question, which is true of the old incarnation:
//!   it had promised no later one by then.
//! - **start_view_change** is a wish: it moves nobody alone, and what it moves is judged by votes.
//! - **prepare, commit, start_view** of a view that R led: it never leads that again. A quorum voted for that view,
//!   and none of them acknowledges b in an earlier one; so u is a later one, and R begins there or behind.
//! - **rejoin** of an older incarnation names the view and the commit that this one had heard. It is heeded in that
//!   view only, and not once a barrier of R is behind that commit. b was prepared after whatever an older incarnation
//!   had heard, and R goes on from b in u or a later view: so no barrier of R comes after that by which R is back,
//!   and R is not held to be without its disk for nothing. One that comes before b makes another barrier, whose
//!   answer R ignores; R is heeded again when that is committed.
//! - **requested_prepare, gone** are true, or ask for what somebody else has.
//!
//! *Which votes are old.* A vote contains b if it is known from it that the journal of R goes through b: its
//! commit is at b or behind, or its suffix has that very header. Every vote of the new incarnation contains b,
//! since R begins with a journal in which b is committed. No vote of the old one does: the last op that it knew to
//! be committed, and every header that it had, is older than b.
//!
//! *Why whoever chooses learns of b.* Let the votes for w be enough, one of them an old one of R. Without that one
//! they are quorum - 1 at least, and Q is a quorum of the n - 1 others, so that some Z is among both. Z had b when
//! it voted: it acknowledged b in u, which it would not do having voted for w. Its `log_view` is u at least. So the
//! journal that is chosen contains b, be it committed there or in the suffix: that is V4 for all views from u to
//! w - 1, each of which began by this rule. If Z's vote is an old one, too, from before it was wiped and
//! acknowledged b, then Z's barrier was committed before b, in a view before w: take the first of all barriers of
//! which there is an old vote in b's place, and there is none such. Nor can an old vote be of a `log_view` above u:
//! the quorum that voted for that had promised it before R lost its disk, and Q acknowledges in u after that.
//!
//! b need not be named by any vote: it may be committed, far back, and those that know may have lost it from their
//! disks and remember only its number. But before the new primary installs the journal it has all of it: what is
//! committed it has applied or holds in order (or has from a checkpoint, which remembers the barriers), and of the
//! rest it has the headers. So it looks again then, when nothing that it chose has been said yet; and once before
//! it fetches anything, with what it knows. If a vote turns out to be old it is dropped, and the choice is made
//! again from the others: they are a quorum, or it waits for more. With an old vote dropped, the argument above is
//! about the others.
//!
//! A vote that is dropped without need costs nothing but time.

use alloc::collections::BTreeMap;

use wire::{Op, ReplicaId, View};

use super::{Replica, installing::Target};
use crate::{
    ChainPoint, DoViewChange, Ignore, Message, Note, Rejoin, Status,
    barriers::{Barrier, barrier_for, replica_of},
    mutation,
};

/// How often a replica asks to be taken back before it says aloud that nobody answers.
const ASKED_MANY: u32 = 100;

/// How a replica comes back.
#[derive(Debug, Default)]
pub(super) struct Rejoining {
    /// It has lost its disk, and is not in a view yet.
    pub(super) is_under_way: bool,
    /// How often it has asked.
    asked: u32,
    /// The newest view of which this incarnation has heard the primary, and what was committed in it.
    heard: Option<(View, Op)>,
}

impl Replica {
    /// Asks again to be taken back.
    pub(super) fn ask_to_rejoin(&mut self) {
        if self.promises.durable_view().is_none() {
            return;
        }
        match self.rejoining.asked {
            0 => self.note(Note::Rejoining),
            ASKED_MANY => self.note(Note::RejoinUnanswered),
            _ => {}
        }
        self.rejoining.asked = self.rejoining.asked.saturating_add(1);
        self.ask_primary_to_rejoin();
    }

    /// The primary of a view is at work.
    pub(super) fn hear_primary(&mut self, view: View, commit: Op) {
        self.rejoining.heard = self.rejoining.heard.max(Some((view, commit)));
    }

    /// Asks the primary that was heard last, if there is one.
    pub(super) fn ask_primary_to_rejoin(&mut self) {
        assert!(self.status == Status::RecoveringHead && self.is_rejoining());
        // That it has lost its disk is durable first.
        let view = self.promises.durable_view();
        let (Some(view), Some((heard_view, heard_commit))) = (view, self.rejoining.heard) else {
            return;
        };
        let to = self.primary_of(heard_view);
        if to == self.config.replica {
            return;
        }
        let rejoin = Rejoin {
            replica: self.config.replica,
            view,
            heard_view,
            heard_commit,
            nonce: self.nonce,
        };
        self.send(to, Message::Rejoin(rejoin));
    }

    /// It is in a view.
    pub(super) fn finish_rejoining(&mut self) {
        if core::mem::take(&mut self.rejoining).is_under_way {
            self.note(Note::Rejoined { view: self.view });
        }
    }

    /// A replica has lost its disk. The primary prepares its barrier, and answers once that is applied.
    pub(super) fn on_rejoin(&mut self, message: Rejoin) {
        let Rejoin { replica, nonce, .. } = message;
        if let Some(reason) = self.ignore_rejoin(&message) {
            return self.count_ignored(reason);
        }
        let barrier = self.barriers.of(replica);
        if barrier.is_some_and(|barrier| barrier.nonce == nonce) {
            return self.send_start_view(replica, Some(nonce));
        }
        let (header, body) = barrier_for(replica, nonce);
        self.replicate(header, body, None);
    }

    fn ignore_rejoin(&self, message: &Rejoin) -> Option<Ignore> {
        let prepared = self.journal.prepares_after(self.commit_min());
        let prepared = prepared.filter_map(Barrier::read);
        let prepared = prepared.filter(|(of, _)| *of == message.replica).last();
        let prepared = prepared.map(|(_, barrier)| barrier);
        let committed = self.barriers.of(message.replica).copied();
        let is_it = |barrier: Option<Barrier>| barrier.is_some_and(|it| it.nonce == message.nonce);
        let last = prepared.or(committed).map_or(Op(0), |it| it.op);
        if self.status != Status::Normal {
            Some(Ignore::NotNormal)
        } else if !self.is_primary() {
            Some(Ignore::NotPrimary)
        } else if !self.is_serving() || !self.pipeline.fits(size_of::<u128>()) {
            Some(Ignore::NotServing)
        } else if is_it(prepared) {
            Some(Ignore::RejoinRepeated)
        } else if prepared.is_none() && is_it(committed) {
            None
        } else if message.heard_view != self.view || last > message.heard_commit {
            Some(Ignore::RejoinStale)
        } else {
            None
        }
    }

    /// A barrier is committed: what that replica has stored is not there any more (V15).
    pub(super) fn pass_barrier(&mut self, replica: ReplicaId, barrier: Barrier) {
        self.barriers.set(replica, barrier);
        let checkpoint = self.checkpoints.get_mut(usize::from(replica.0));
        if let Some(checkpoint) = checkpoint.filter(|_| replica != self.config.replica) {
            *checkpoint = Op(0);
        }
        let (op, nobody) = (barrier.op, self.finish(barrier.op));
        assert!(nobody.is_none(), "nobody waits for a barrier");
        self.note(Note::Barrier { op, replica });
    }

    /// Drops the votes of those that have lost their disks since. Whether there were any.
    pub(super) fn drop_old_votes(&mut self, target: &Target) -> bool {
        if mutation::V13_VOTES {
            return false;
        }
        let mut has_dropped = false;
        for (replica, barrier) in self.barriers_in(target) {
            let vote = self.view_change.votes.get_mut(usize::from(replica.0));
            if let Some(vote) = vote
                && vote.as_ref().is_some_and(|vote| !contains(vote, barrier))
            {
                *vote = None;
                has_dropped = true;
                self.count_ignored(Ignore::VoteOfLostDisk);
            }
        }
        has_dropped
    }

    /// The last barriers of a journal, as far as it is known here: all of them, once all of it is here.
    fn barriers_in(&self, target: &Target) -> BTreeMap<ReplicaId, ChainPoint> {
        let applied = self.barriers.iter();
        let applied = applied.map(|(replica, barrier)| (replica, barrier.point()));
        let committed = self.journal.headers_after(self.commit_min());
        let committed = committed.take_while(|header| header.op() <= self.commit_chained);
        let suffix = target.headers().iter().copied();
        let prepared = committed.chain(suffix).filter_map(|header| {
            let point = ChainPoint {
                op: header.op(),
                checksum: header.checksum,
            };
            Some((replica_of(&header)?, point))
        });
        // Of several the last one counts.
        let mut barriers: BTreeMap<ReplicaId, ChainPoint> = applied.collect();
        for (replica, point) in prepared {
            let last = barriers.entry(replica).or_default();
            if point.op > last.op {
                *last = point;
            }
        }
        barriers
    }
}

/// Whether it is certain that the journal of the vote goes through this op of the one that is chosen.
fn contains(vote: &DoViewChange, point: ChainPoint) -> bool {
    let mut headers = vote.suffix.iter().filter_map(|report| report.header);
    vote.commit.op >= point.op
        || headers.any(|it| it.op() == point.op && it.checksum == point.checksum)
}
