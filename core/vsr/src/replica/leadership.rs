//! Who had better lead, where several can. Nothing here matters for what is safe: a hand-over is a wish of the
//! primary, which all follow at once, and the view changes by the same votes as ever.
//!
//! The node would rather not lead ([`Input::Reluctant`]): then whoever is willing and has what is committed may have
//! the lead. With nobody willing, whoever leads goes on leading.
//!
//! [`Input::Reluctant`]: crate::Input::Reluctant

use alloc::{vec, vec::Vec};

use wire::{ReplicaId, View};

use super::Replica;
use crate::{
    CommitOk, Effect, Note, Status,
    constants::{FOLLOWS_BEHIND_MAX, HAND_OVER_INTERVAL, HAND_OVER_PAUSE, SILENCE_MIN},
    primary_of,
};

/// A hand-over that waits until nothing is in flight.
#[derive(Clone, Copy, Debug)]
struct HandOver {
    to: ReplicaId,
    /// Monotonic nanoseconds.
    since: u64,
}

/// What bears on who had better lead.
#[derive(Debug)]
pub(super) struct Leadership {
    /// The node would rather have others lead.
    is_reluctant: bool,
    /// Of a primary: since when each replica follows it, being willing to lead; none of one that does not.
    follows_since: Vec<Option<u64>>,
    /// When the view began, or the last hand-over came to nothing.
    since: u64,
    /// Of a primary that takes nothing new until it has handed over.
    hand_over: Option<HandOver>,
}

impl Leadership {
    pub(super) fn new(replica_count: u8) -> Self {
        Self {
            is_reluctant: false,
            follows_since: vec![None; usize::from(replica_count)],
            since: 0,
            hand_over: None,
        }
    }

    /// A view begins or is left: nobody follows yet.
    pub(super) fn restart(&mut self, now: u64) {
        self.follows_since.fill(None);
        self.since = now;
        self.hand_over = None;
    }

    /// Whether it takes nothing new because it is about to hand over.
    pub(super) const fn is_handing_over(&self) -> bool {
        self.hand_over.is_some()
    }
}

impl Replica {
    /// The node would rather have others lead, or does not mind any more.
    pub(super) fn on_reluctant(&mut self, is_reluctant: bool) {
        self.leadership.is_reluctant = is_reluctant;
    }

    /// What a backup says of itself.
    pub(super) const fn is_willing(&self) -> bool {
        !self.leadership.is_reluctant
    }

    /// A backup in this view says how far it is.
    pub(super) fn note_follower(&mut self, ok: &CommitOk) {
        let now = self.now.monotonic;
        let has_committed =
            ok.commit_min.0.saturating_add(FOLLOWS_BEHIND_MAX) >= self.commit_min().0;
        let slot = &mut self.leadership.follows_since[usize::from(ok.replica.0)];
        match ok.is_willing && has_committed {
            true => *slot = slot.or(Some(now)),
            false => *slot = None,
        }
    }

    /// A primary in normal status: whether it had better hand over, and to whom.
    pub(super) fn consider_hand_over(&mut self) {
        let now = self.now.monotonic;
        for replica in self.others() {
            if !self.liveness.has_heard(replica, now, SILENCE_MIN) {
                self.leadership.follows_since[usize::from(replica.0)] = None;
            }
        }
        if self.leadership.is_handing_over() || !self.is_serving() {
            return;
        }
        if let Some(to) = self.successor() {
            self.leadership.hand_over = Some(HandOver { to, since: now });
            self.effects.push_back(Effect::StatusChanged);
        }
    }

    /// Who had better lead than this primary.
    fn successor(&self) -> Option<ReplicaId> {
        let now = self.now.monotonic;
        let led_for = now.saturating_sub(self.leadership.since);
        if self.leadership.is_reluctant && led_for >= HAND_OVER_PAUSE {
            return self.best_follower();
        }
        None
    }

    /// Who is willing and has what is committed: whoever is to lead the group, then whoever has followed for the
    /// longest.
    pub(super) fn best_follower(&self) -> Option<ReplicaId> {
        let preferred = primary_of(self.config.group, View(0), self.config.replica_count);
        let others = self.others().filter(|it| self.follows_for(*it).is_some());
        others.max_by_key(|it| (*it == preferred, self.follows_for(*it)))
    }

    /// For how long a replica has followed without a break, being willing to lead.
    fn follows_for(&self, replica: ReplicaId) -> Option<u64> {
        let since = self.leadership.follows_since[usize::from(replica.0)]?;
        Some(self.now.monotonic.saturating_sub(since))
    }

    /// What is in flight is finished first, so that nobody is left without an answer. If that takes too long, it
    /// goes on leading, and tries again later.
    pub(super) fn go_on_handing_over(&mut self) {
        let Some(HandOver { to, since }) = self.leadership.hand_over else {
            return;
        };
        let now = self.now.monotonic;
        let leads = self.status == Status::Normal && self.is_primary();
        if !leads || self.liveness.is_abdicated() {
            self.leadership.hand_over = None;
        } else if self.pipeline.first().is_none() {
            let view = self.next_view_of(to);
            self.note(Note::LeadOffered { view, to });
            self.lead_no_more_before(view);
        } else if now.saturating_sub(since) >= HAND_OVER_INTERVAL {
            self.leadership.hand_over = None;
            self.leadership.since = now;
            self.effects.push_back(Effect::StatusChanged);
        }
    }

    /// The next view that a replica is to lead.
    pub(super) fn next_view_of(&self, replica: ReplicaId) -> View {
        let mut view = self.view.next();
        while self.primary_of(view) != replica {
            view = view.next();
        }
        view
    }

    /// The view to wish for where nobody has wished for a later one. Whoever would rather not lead lets its turn
    /// pass; but once only, at the beginning of a view change: if the others cannot lead, it must.
    pub(super) fn view_after(&self, view: View) -> View {
        let is_own = self.primary_of(view) == self.config.replica;
        let lets_pass = self.status == Status::Normal && !self.is_willing();
        match is_own && lets_pass && self.config.replica_count > 1 {
            true => view.next(),
            false => view,
        }
    }
}
