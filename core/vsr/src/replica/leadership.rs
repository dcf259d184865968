//! Who had better lead, where several can. Nothing here matters for what is safe: a hand-over is a wish of the
//! primary, which all follow at once, and the view changes by the same votes as ever.
//!
//! Two reasons there are to hand over. The node would rather not lead ([`Input::Reluctant`]); then whoever is willing
//! and has what is committed may have the lead at once. Or the group is led elsewhere than it was meant to be, so that
//! the groups of a node that was away come back to it; then that replica must have followed for a while, and it has
//! time until nobody waits for anything. In both cases there is somebody to hand over to: with nobody willing, whoever
//! leads goes on leading.
//!
//! [`Input::Reluctant`]: crate::Input::Reluctant

use alloc::{vec, vec::Vec};

use wire::{ReplicaId, View};

use super::Replica;
use crate::{
    CommitOk, Effect, Note, Status,
    constants::{
        FOLLOWS_BEHIND_MAX, HAND_OVER_INTERVAL, HAND_OVER_PAUSE, OFFER_DOUBLINGS_MAX,
        OFFER_INTERVAL, SILENCE_MIN, SPREAD_INTERVAL,
    },
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
    /// The node has other groups to bring up to date: whatever it leads it goes on with, and it needs no more.
    is_catching_up: bool,
    /// Before this it gives no group back, having done so; monotonic nanoseconds. Outlives views.
    next_offer: u64,
    /// How often it has done so, of late.
    offers: u32,
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
            is_catching_up: false,
            next_offer: 0,
            offers: 0,
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

    /// A group is given back. If it comes here again soon it was of no use, and the next time is later: so the lead does
    /// not go to and fro for as long as whoever is to lead cannot.
    fn give_back(&mut self, now: u64) {
        if now.saturating_sub(self.next_offer) >= OFFER_INTERVAL << OFFER_DOUBLINGS_MAX {
            self.offers = 0;
        }
        self.next_offer =
            now.saturating_add(OFFER_INTERVAL << self.offers.min(OFFER_DOUBLINGS_MAX));
        self.offers = self.offers.saturating_add(1);
    }

    /// Whether it would take the lead from another one.
    const fn is_willing(&self) -> bool {
        !self.is_reluctant && !self.is_catching_up
    }
}

impl Replica {
    /// The node would rather have others lead, or does not mind any more.
    pub(super) fn on_reluctant(&mut self, is_reluctant: bool) {
        self.leadership.is_reluctant = is_reluctant;
    }

    /// The node has other groups to bring up to date, or has done so.
    pub(super) const fn on_catching_up(&mut self, is_catching_up: bool) {
        self.leadership.is_catching_up = is_catching_up;
    }

    /// What a backup says of itself.
    pub(super) const fn is_willing(&self) -> bool {
        self.leadership.is_willing()
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

    /// A primary in normal status: whether it would rather not lead, and to whom it can hand over.
    pub(super) fn consider_hand_over(&mut self) {
        let now = self.now.monotonic;
        for replica in self.others() {
            if !self.liveness.has_heard(replica, now, SILENCE_MIN) {
                self.leadership.follows_since[usize::from(replica.0)] = None;
            }
        }
        let is_due = self.leadership.is_reluctant && self.led_for() >= HAND_OVER_PAUSE;
        if !is_due || !self.is_serving() {
            return;
        }
        if let Some(to) = self.best_follower() {
            self.leadership.hand_over = Some(HandOver { to, since: now });
            self.effects.push_back(Effect::StatusChanged);
        }
    }

    /// Gives the group back to whoever is to lead it. Nothing is wrong with the view that there is, so nobody is to
    /// lose by it: it comes to that only where nothing is in flight and no reader waits, and nothing is refused
    /// before. Under such a load that there is no such moment, all stays as it is.
    pub(super) fn spread(&mut self) {
        let to = self.preferred();
        let now = self.now.monotonic;
        let is_due = self.led_for() >= SPREAD_INTERVAL && now >= self.leadership.next_offer;
        if to == self.config.replica || !is_due || !self.is_serving() {
            return;
        }
        let followed = self.follows_for(to);
        let is_stable = followed.is_some_and(|followed| followed >= SPREAD_INTERVAL);
        if is_stable && self.pipeline.first().is_none() && self.read_index.is_empty() {
            self.leadership.give_back(now);
            self.offer_lead(to);
        }
    }

    /// The replica that leads the group's first view: there each node has its share of the groups.
    fn preferred(&self) -> ReplicaId {
        primary_of(self.config.group, View(0), self.config.replica_count)
    }

    const fn led_for(&self) -> u64 {
        self.now.monotonic.saturating_sub(self.leadership.since)
    }

    fn offer_lead(&mut self, to: ReplicaId) {
        let view = self.next_view_of(to);
        self.note(Note::LeadOffered { view, to });
        self.lead_no_more_before(view);
    }

    /// Who is willing and has what is committed: whoever is to lead the group, then whoever has followed for the
    /// longest.
    pub(super) fn best_follower(&self) -> Option<ReplicaId> {
        let preferred = self.preferred();
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
            self.offer_lead(to);
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
        let lets_pass = self.status == Status::Normal && self.leadership.is_reluctant;
        match is_own && lets_pass && self.config.replica_count > 1 {
            true => view.next(),
            false => view,
        }
    }
}
