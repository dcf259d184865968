//! View change (VRR §4.2): wishes, votes, and the choice of the new view's journal.
//!
//! Unlike in the paper a replica leaves its view only when a quorum wishes for the same later one (V6), and
//! its vote says only what is durable (V1, V5): the prepares first, then the superblock that names them,
//! then the vote.

use alloc::{vec, vec::Vec};

use wire::{Op, PrepareHeader, ReplicaId, View};

use super::{
    Replica,
    choice::{Choice, choose},
    installing::Target,
};
use crate::{
    ChainPoint, DoViewChange, Effect, Ignore, Message, Note, Refusal, StartView, StartViewChange,
    Status, SuffixEntry, SuffixReport,
    constants::{
        REPEAT_INTERVAL, STAGGER, SUFFIX_MAX, VIEW_CHANGE_DOUBLINGS_MAX, VIEW_CHANGE_INTERVAL,
        VIEW_MAX, VOTE_OPS_MAX, WISH_INTERVAL,
    },
    mutation,
    quorum::Votes,
    timeout::Timeout,
};

/// A view that a replica wishes for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    view: View,
    /// Monotonic nanoseconds from which it does not count any more (V5).
    until: u64,
}

/// What happens between two views.
#[derive(Debug)]
pub(super) struct ViewChange {
    /// The newest wish of each replica, by replica, this one's included.
    wishes: Vec<Option<Wish>>,
    /// This replica's vote. Set once everything in it is durable; never changes for a view (V5).
    pub(super) vote: Option<DoViewChange>,
    /// The votes for this view, by replica, where this replica is to lead it.
    pub(super) votes: Vec<Option<DoViewChange>>,
    /// The journal of this view, while it is fetched.
    pub(super) target: Option<Target>,
    /// View changes in a row without a view that was entered.
    attempts: u32,
    /// Runs in [`Status::ViewChange`].
    pub(super) timeout: Timeout,
    /// Runs while something is asked for again and again: a wish, a vote, a prepare, a start_view.
    pub(super) repeat: Timeout,
}

impl ViewChange {
    pub(super) fn new(replica_count: u8) -> Self {
        let count = usize::from(replica_count);
        Self {
            wishes: vec![None; count],
            vote: None,
            votes: vec![None; count],
            target: None,
            attempts: 0,
            timeout: Timeout::stopped(VIEW_CHANGE_INTERVAL),
            repeat: Timeout::stopped(REPEAT_INTERVAL),
        }
    }

    /// A view begins to change: nothing that was said about an earlier one counts any more.
    fn begin(&mut self) {
        self.vote = None;
        self.votes.fill(None);
        self.target = None;
        self.attempts = self.attempts.saturating_add(1);
    }

    /// A view was entered.
    pub(super) fn end(&mut self, this: ReplicaId) {
        self.begin();
        self.attempts = 0;
        self.wishes[usize::from(this.0)] = None;
        self.timeout.stop();
        self.repeat.stop();
    }
}

impl Replica {
    /// This replica wishes for a later view: its primary is suspected, or the view change takes too long.
    /// It goes on as before until a quorum wishes for the same (V6).
    pub(super) fn wish(&mut self) {
        assert!(matches!(self.status, Status::Normal | Status::ViewChange));
        let next = self.view.next();
        let view = self.heard_wish().unwrap_or(next).max(next);
        self.wish_for(self.view_after(view));
    }

    /// The latest view that somebody wishes for.
    fn heard_wish(&self) -> Option<View> {
        let now = self.now.monotonic;
        let heard = self.view_change.wishes.iter().flatten();
        let heard = heard.filter(|wish| wish.until > now).map(|wish| wish.view);
        heard.max()
    }

    /// This replica wishes for a view, or for a later one that somebody else wishes for.
    pub(super) fn wish_for(&mut self, view: View) {
        assert!(view > self.view);
        if self.status == Status::Normal && !self.is_primary() {
            self.liveness.suspect(self.now.monotonic);
        }
        let view = self.heard_wish().map_or(view, |heard| heard.max(view));
        self.view_change.repeat.start(self.now);
        let this = self.config.replica;
        if self.record_wish(this, view) {
            self.note(Note::ViewWished { view });
        }
        self.broadcast_wish(view);
        self.leave_if_wished(view);
    }

    pub(super) fn broadcast_wish(&mut self, view: View) {
        let Some(promised) = self.promises.durable_view() else {
            return;
        };
        self.broadcast(&Message::StartViewChange(StartViewChange {
            replica: self.config.replica,
            view,
            promised,
        }));
    }

    /// Whether this replica wishes for a later view.
    pub(super) fn has_wish(&self) -> bool {
        self.view_change.wishes[usize::from(self.config.replica.0)].is_some()
    }

    /// The primary of the view has given a sign of life.
    pub(super) fn withdraw_wish(&mut self) {
        self.view_change.wishes[usize::from(self.config.replica.0)] = None;
        if self.status == Status::Normal {
            self.view_change.repeat.stop();
        }
    }

    /// The view that this replica wishes for.
    pub(super) fn wished(&self) -> Option<View> {
        self.view_change.wishes[usize::from(self.config.replica.0)].map(|wish| wish.view)
    }

    /// Whether the wish is another one than before.
    fn record_wish(&mut self, replica: ReplicaId, view: View) -> bool {
        let until = self.now.after(WISH_INTERVAL);
        let slot = &mut self.view_change.wishes[usize::from(replica.0)];
        let before = slot.replace(Wish { view, until });
        before.is_none_or(|wish| wish.view != view)
    }

    /// VRR §4.2, step 1 and 2, with V6: a wish alone moves nobody.
    pub(super) fn on_start_view_change(&mut self, wish: StartViewChange) {
        if let Some(reason) = self.ignore_in_view_change(wish.view) {
            return self.count_ignored(reason);
        }
        if wish.view == self.view {
            return self.count_ignored(Ignore::OlderView);
        }
        self.record_wish(wish.replica, wish.view);
        let is_given_up = self.status == Status::Normal && wish.replica == self.primary();
        let is_raised = self.wished().is_some_and(|wished| wished < wish.view);
        if is_given_up || is_raised || wish.promised > self.view {
            // The primary itself has restarted or abdicated; or others are further on.
            self.wish();
        } else {
            self.leave_if_wished(wish.view);
        }
    }

    /// What holds for all messages of a view change.
    fn ignore_in_view_change(&self, view: View) -> Option<Ignore> {
        if !matches!(self.status, Status::Normal | Status::ViewChange) {
            Some(Ignore::NotNormal)
        } else if view < self.view {
            Some(Ignore::OlderView)
        } else if view >= VIEW_MAX {
            Some(Ignore::ViewInvalid)
        } else {
            None
        }
    }

    /// V5 and V6: distinct replicas, exactly this view, and none of the wishes too old.
    fn leave_if_wished(&mut self, view: View) {
        if view <= self.view {
            return;
        }
        let now = self.now.monotonic;
        let mut votes = Votes::default();
        for replica in (0..self.config.replica_count).map(ReplicaId) {
            let wish = self.view_change.wishes[usize::from(replica.0)];
            if wish.is_some_and(|wish| wish.view == view && wish.until > now) {
                votes.add(replica);
            }
        }
        if mutation::V6 || votes.is_quorum(self.config.replica_count) {
            self.leave_view(view);
            self.promise_view();
        }
    }

    /// Takes part in its view no more. What comes next is a vote for `view`, or its start_view.
    pub(super) fn leave_view(&mut self, view: View) {
        assert!(view > self.view);
        self.refuse_waiting();
        self.heartbeat.stop();
        self.view = view;
        self.status = Status::ViewChange;
        self.view_change.begin();
        self.repair.reset();
        self.liveness.stop();
        self.leadership.restart(self.now.monotonic);
        let doublings = self.view_change.attempts.min(VIEW_CHANGE_DOUBLINGS_MAX);
        let interval = (VIEW_CHANGE_INTERVAL << doublings.saturating_sub(1))
            + STAGGER * u64::from(self.config.replica.0);
        self.view_change.timeout.start_every(interval, self.now);
        self.view_change.repeat.start(self.now);
        let this = self.config.replica;
        if self.wished().is_none_or(|wished| wished < view) {
            self.record_wish(this, view);
        }
        self.note(Note::ViewChangeStarted { view });
        self.effects.push_back(Effect::StatusChanged);
    }

    /// Whoever waits for an op, or for a confirmation of the view, is told that this is over.
    fn refuse_waiting(&mut self) {
        for token in self.pipeline.clear() {
            let reason = Refusal::Unknown;
            self.effects.push_back(Effect::Refuse { token, reason });
        }
        for token in self.read_index.clear() {
            let reason = Refusal::NotReady;
            self.effects.push_back(Effect::Refuse { token, reason });
        }
    }

    /// The view goes to the disk, and with it the names of the uncommitted ops: once these are durable
    /// themselves, so that a restart finds what was voted (V5).
    pub(super) fn promise_view(&mut self) {
        assert!(self.status == Status::ViewChange);
        let is_promised = self.promises.newest().view >= self.view;
        let is_durable = self.journal.durable() == self.op();
        if is_promised || !is_durable || self.view_change.target.is_some() {
            return;
        }
        let suffix = self.suffix();
        self.promises.leave(self.view, self.last_op(), suffix);
        self.write_superblock();
    }

    /// The last ops of the journal, for the superblock: those that may be uncommitted, and some more.
    pub(super) fn suffix(&self) -> Vec<SuffixEntry> {
        if self.config.replica_count == 1 {
            return Vec::new();
        }
        let entry = |report: SuffixReport| SuffixEntry {
            op: report.op,
            header: report.header,
            nack: report.nack,
        };
        let mut reports = self.reports_before_gaps();
        reports.extend(self.reports_after(self.far_behind()));
        reports.into_iter().map(entry).collect()
    }

    /// VRR §4.2, step 2: votes, once what the vote says is durable.
    pub(super) fn vote(&mut self) {
        let is_durable = self.promises.durable_view() == Some(self.view)
            && self.promises.newest().view == self.view;
        if !is_durable || self.view_change.vote.is_some() || self.view_change.target.is_some() {
            return;
        }
        assert!(self.journal.durable() == self.op());
        let Some(commit) = self.commit_known() else {
            // V10: no vote before it is repaired.
            return;
        };
        self.view_change.vote = Some(DoViewChange {
            replica: self.config.replica,
            view: self.view,
            log_view: self.promises.newest().log_view,
            op: self.last_op(),
            commit,
            checkpoint: self.checkpoint_op(),
            suffix: self.reports_after(commit.op),
        });
        self.send_vote();
    }

    pub(super) fn send_vote(&mut self) {
        let Some(vote) = self.view_change.vote.clone() else {
            return;
        };
        if self.is_primary() {
            self.count_do_view_change(vote);
        } else {
            self.send(self.primary(), Message::DoViewChange(vote));
        }
    }

    /// The view change goes on as long as nothing comes of it.
    pub(super) fn repeat_view_change(&mut self) {
        if let Some(view) = self.wished() {
            let this = self.config.replica;
            self.record_wish(this, view);
            self.broadcast_wish(view);
            self.leave_if_wished(view);
        }
        if self.status == Status::ViewChange {
            if self.view_change.target.is_some() {
                self.pursue_again();
            } else {
                self.vote();
                if !self.is_primary() {
                    self.send_vote();
                }
            }
        }
    }

    /// VRR §4.2, step 3: the primary to be collects votes. That somebody votes shows that a quorum wished
    /// for the view, or that the primary before it has restarted.
    pub(super) fn on_do_view_change(&mut self, vote: DoViewChange) {
        if let Some(reason) = self.ignore_in_view_change(vote.view) {
            return self.count_ignored(reason);
        }
        if self.primary_of(vote.view) != self.config.replica {
            return self.count_ignored(Ignore::NotPrimary);
        }
        if !self.is_whole(&vote) {
            return self.count_ignored(Ignore::SuffixInvalid);
        }
        if vote.view > self.view {
            self.leave_view(vote.view);
            self.promise_view();
        }
        if self.status == Status::Normal {
            // It has missed the start_view.
            return self.send_start_view(vote.replica, None);
        }
        self.count_do_view_change(vote);
    }

    fn count_do_view_change(&mut self, vote: DoViewChange) {
        assert!(vote.view == self.view);
        let votes = &mut self.view_change.votes;
        let own = usize::from(vote.replica.0);
        let free = votes.iter().position(Option::is_none);
        let free = free.filter(|_| mutation::V5 && votes[own].is_some());
        let is_new = match &mut votes[free.unwrap_or(own)] {
            Some(before) => refine(before, &vote),
            slot @ None => {
                *slot = Some(vote);
                true
            }
        };
        if !is_new {
            return self.count_ignored(Ignore::DoViewChangeRepeated);
        }
        self.choose_journal();
    }

    /// VRR §4.2, step 3: the journal of the view, once there are enough votes that count (V13).
    pub(super) fn choose_journal(&mut self) {
        let votes: Vec<&DoViewChange> = self.view_change.votes.iter().flatten().collect();
        let is_chosen = self.view_change.target.is_some();
        let has_quorum = votes.len() >= usize::from(crate::quorum(self.config.replica_count));
        // Its own vote comes last: then its journal and view are durable.
        if is_chosen || !has_quorum || self.view_change.vote.is_none() {
            return;
        }
        let is_complete = votes.len() == usize::from(self.config.replica_count);
        match choose(&votes, self.config.replica_count) {
            Choice::Journal {
                commit,
                headers,
                truncated,
            } => {
                let target = Target::new(commit, headers);
                if self.drop_old_votes(&target) {
                    return self.choose_journal();
                }
                if let Some((op, nacks)) = truncated {
                    self.note(Note::Truncated { op, nacks });
                }
                self.pursue(target);
            }
            Choice::Undecided(op) if is_complete => {
                let view = self.view;
                self.note(Note::Undecided { view, op });
            }
            Choice::Undecided(_) => {}
            Choice::Contradiction => self.count_ignored(Ignore::VotesContradict),
        }
    }

    /// Whether the vote names all ops above what it says is committed, and they hang together as far as their
    /// headers are known.
    fn is_whole(&self, vote: &DoViewChange) -> bool {
        let count = vote.suffix.len() as u64;
        let is_each_op = (0..).zip(&vote.suffix).all(|(index, it)| {
            let behind = it.op.0.checked_sub(vote.commit.op.0);
            behind == Some(index + 1)
        });
        let is_sound = |it: &SuffixReport| {
            let is_present = it.present && it.header.is_some() && !it.nack;
            is_present || !it.present
        };
        vote.log_view <= vote.view
            && vote.suffix.len() <= VOTE_OPS_MAX
            && is_each_op
            && vote.commit.op.0.checked_add(count) == Some(vote.op.0)
            && vote.suffix.iter().all(is_sound)
            && self.are_stretches(vote)
    }

    /// Whether the headers between two ops whose header is not known are a chain each.
    fn are_stretches(&self, vote: &DoViewChange) -> bool {
        let mut before = Some(vote.commit);
        vote.suffix
            .split_inclusive(|it| it.header.is_none())
            .all(|stretch| {
                let headers: Vec<PrepareHeader> =
                    stretch.iter().filter_map(|it| it.header).collect();
                let Some(first) = headers.first() else {
                    before = None;
                    return true;
                };
                let parent = before.unwrap_or(ChainPoint {
                    op: Op(first.op.saturating_sub(1)),
                    checksum: first.parent,
                });
                before = None;
                let end = Op(parent.op.0.saturating_add(headers.len() as u64));
                self.is_suffix(vote.view, parent, end, &headers)
            })
    }

    /// Whether these are the headers of all ops after `commit` up to `op`, as a journal of `view` may have
    /// them.
    pub(super) fn is_suffix(
        &self,
        view: View,
        commit: ChainPoint,
        op: Op,
        headers: &[PrepareHeader],
    ) -> bool {
        let mut parent = commit;
        let mut timestamp = None;
        headers.len() <= SUFFIX_MAX
            && headers.iter().all(|header| {
                let follows = header.is_valid()
                    && header.op.checked_sub(1) == Some(parent.op.0)
                    && header.parent == parent.checksum
                    && header.cluster == self.config.cluster.0
                    && header.group() == self.config.group
                    && header.view() <= view
                    && timestamp.is_none_or(|before| header.timestamp() > before);
                parent = ChainPoint {
                    op: header.op(),
                    checksum: header.checksum,
                };
                timestamp = Some(header.timestamp());
                follows
            })
            && parent.op == op
    }

    /// VRR §4.2, step 4: the journal of the view, to all or to one that has missed it.
    pub(super) fn send_start_view(&mut self, to: ReplicaId, nonce: Option<u128>) {
        let message = self.start_view(nonce);
        self.send(to, Message::StartView(message));
    }

    pub(super) fn start_view(&self, nonce: Option<u128>) -> StartView {
        assert!(self.status == Status::Normal);
        let commit = self.commit_point();
        StartView {
            replica: self.config.replica,
            view: self.view,
            op: self.op(),
            commit,
            checkpoint_quorum: self.promises.newest().checkpoint_quorum,
            suffix: self.journal.headers_after(commit.op).collect(),
            nonce,
        }
    }
}

/// V5: the same vote again may tell of what can be read by now, and of nothing else. Whether it does.
fn refine(before: &mut DoViewChange, again: &DoViewChange) -> bool {
    if before.log_view != again.log_view || before.op != again.op {
        return false;
    }
    let mut is_refined = false;
    for report in again.suffix.iter().filter(|it| it.present) {
        let known = before.suffix.iter_mut().find(|it| it.op == report.op);
        let is_news = |it: &&mut SuffixReport| {
            !it.present && !it.nack && (it.header.is_none() || it.header == report.header)
        };
        if let Some(known) = known.filter(is_news) {
            *known = *report;
            is_refined = true;
        }
    }
    is_refined
}
