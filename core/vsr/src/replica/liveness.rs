//! Who is believed to be alive. Nothing here matters for what is safe.

use alloc::{vec, vec::Vec};

use wire::{ReplicaId, Time, View};

use super::Replica;
use crate::{
    Commit, Effect, Note, Refusal, Status,
    constants::{
        ABDICATION_INTERVAL, HAND_OVER_INTERVAL, HEARTBEAT_INTERVAL, RECEIVING_MAX,
        SILENCE_INTERVALS, SILENCE_MAX, SILENCE_MIN, TICK_INTERVAL_MAX, TICK_LATE, VIEW_MAX,
    },
    mutation,
    progress::{Progress, slowest},
    quorum::Votes,
    timeout::Timeout,
};

/// What was heard, and when, in monotonic nanoseconds.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Of a backup in normal status: the primary is silent.
    silence: Timeout,
    /// The last sign of life of the primary.
    sign: u64,
    /// Its usual interval between two signs.
    interval: u64,
    /// Of a backup in normal status: since when it suspects the primary, which the others do not.
    suspected_since: Option<u64>,
    /// When it was last answered something that it may not have asked yet.
    answered: u64,
    /// Of a primary: when each replica was heard in this view.
    heard: Vec<u64>,
    /// Of a primary: when bytes of each node last arrived that are no whole message yet.
    receiving: Vec<u64>,
    /// How what is in flight goes on. Outlives views: the disks and links stay the same.
    progress: Progress,
    /// Of a primary: it leads no more (V17).
    is_abdicated: bool,
    /// The process is about to end, since then; only where there are others.
    stopping_since: Option<u64>,
    last_tick: Option<u64>,
}

impl Liveness {
    pub(super) fn new(replica_count: u8) -> Self {
        Self {
            silence: Timeout::stopped(SILENCE_MIN),
            sign: 0,
            interval: 0,
            suspected_since: None,
            answered: 0,
            heard: vec![0; usize::from(replica_count)],
            receiving: vec![0; usize::from(replica_count)],
            progress: Progress::default(),
            is_abdicated: false,
            stopping_since: None,
            last_tick: None,
        }
    }

    /// Nanoseconds since the tick before; none if this is the first.
    fn since_tick(&mut self, now: Time) -> Option<u64> {
        let last = self.last_tick.replace(now.monotonic);
        last.map(|last| now.monotonic.saturating_sub(last))
    }

    /// Whether a primary hears from a backup: of late, or it is about to.
    fn hears(&self, replica: ReplicaId, now: u64) -> bool {
        let index = usize::from(replica.0);
        let silent = now.saturating_sub(self.heard[index]);
        let is_receiving = now.saturating_sub(self.receiving[index]) < SILENCE_MIN;
        silent < ABDICATION_INTERVAL || is_receiving && silent < RECEIVING_MAX
    }

    /// Whether a replica was heard within so many nanoseconds.
    pub(super) fn has_heard(&self, replica: ReplicaId, now: u64, limit: u64) -> bool {
        now.saturating_sub(self.heard[usize::from(replica.0)]) < limit
    }

    fn limit(&self) -> u64 {
        (SILENCE_INTERVALS * self.interval).clamp(SILENCE_MIN, SILENCE_MAX)
    }

    pub(super) const fn is_abdicated(&self) -> bool {
        self.is_abdicated
    }

    pub(super) const fn suspected_since(&self) -> Option<u64> {
        self.suspected_since
    }

    /// A backup wishes for another view.
    pub(super) fn suspect(&mut self, now: u64) {
        self.suspected_since = self.suspected_since.or(Some(now));
    }

    /// It does no more.
    pub(super) const fn trust(&mut self) {
        self.suspected_since = None;
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.stopping_since.is_some()
    }

    pub(super) const fn stop(&mut self) {
        self.silence.stop();
        self.suspected_since = None;
        self.is_abdicated = false;
    }
}

impl Replica {
    pub(super) fn on_tick(&mut self) {
        match self.liveness.since_tick(self.now) {
            Some(since) if since <= TICK_LATE => {
                self.forgive(since.saturating_sub(TICK_INTERVAL_MAX));
            }
            Some(_) | None => self.be_patient(),
        }
        self.note_in_flight();
        if self.heartbeat.fires(self.now) {
            self.send_heartbeat();
            self.repeat_probes();
        }
        if self.repair.timeout.fires(self.now) {
            self.repair_again();
        }
        match self.status {
            Status::Normal if self.is_primary() => {
                self.abdicate_if_alone();
                self.consider_hand_over();
            }
            Status::Normal => {
                if self.liveness.silence.fires(self.now) {
                    self.wish();
                }
            }
            Status::ViewChange => {
                if self.view_change.timeout.fires(self.now) {
                    self.wish();
                }
            }
            Status::RecoveringHead => {
                if self.view_change.repeat.fires(self.now) {
                    self.repeat_recovery();
                }
                return;
            }
            Status::Recovering | Status::StateTransfer | Status::OutOfService(_) => return,
        }
        if self.view_change.repeat.fires(self.now) {
            self.repeat_view_change();
        }
        self.repair_damaged_again();
    }

    /// V11: asks for the journal of the view, or for what is missing of it.
    fn repeat_recovery(&mut self) {
        if self.view_change.target.is_some() {
            self.pursue_again();
        } else if self.is_rejoining() {
            self.ask_to_rejoin();
        } else if !self.is_primary() {
            self.request_start_view(self.primary());
        }
    }

    /// This replica was held up: whoever seems silent gets another interval.
    pub(super) fn be_patient(&mut self) {
        if self.liveness.silence.is_running() {
            self.liveness.silence.start(self.now);
        }
        if self.view_change.timeout.is_running() {
            self.view_change.timeout.start(self.now);
        }
        self.hear_all();
    }

    /// A replica that comes to its ticks late comes to its messages late, too: what a tick took longer than it
    /// should is nobody's silence. A busy host has every tick a little late, and none late enough for patience.
    fn forgive(&mut self, held_up: u64) {
        if held_up == 0 {
            return;
        }
        let now = self.now.monotonic;
        self.liveness.silence.postpone(held_up);
        self.view_change.timeout.postpone(held_up);
        for heard in &mut self.liveness.heard {
            *heard = heard.saturating_add(held_up).min(now);
        }
        self.liveness.progress.forgive(held_up, now);
    }

    /// A view begins.
    pub(super) fn watch(&mut self) {
        self.liveness.stop();
        self.leadership.restart(self.now.monotonic);
        self.hear_all();
        if !self.is_primary() && self.config.replica_count > 1 {
            self.liveness.sign = self.now.monotonic;
            self.liveness.interval = 0;
            let limit = self.liveness.limit();
            self.liveness.silence.start_every(limit, self.now);
        }
    }

    fn hear_all(&mut self) {
        self.liveness.heard.fill(self.now.monotonic);
        self.liveness.progress.restart(self.now.monotonic);
    }

    /// A backup in normal status heard from its primary.
    pub(super) fn on_sign_of_life(&mut self) {
        let now = self.now.monotonic;
        let since = now.saturating_sub(self.liveness.sign);
        self.liveness.sign = now;
        // Forgotten by time, not by signs: many prepares say little of heartbeats.
        self.liveness.interval = slowest(self.liveness.interval, since).min(SILENCE_MAX);
        let limit = self.liveness.limit();
        self.liveness.silence.start_every(limit, self.now);
        self.liveness.trust();
        if self.wished().is_some() {
            self.withdraw_wish();
        }
    }

    /// A primary heard from a backup in its view.
    pub(super) fn on_heard(&mut self, replica: ReplicaId) {
        self.liveness.heard[usize::from(replica.0)] = self.now.monotonic;
    }

    pub(super) fn on_primary_lost(&mut self) {
        if self.status == Status::Normal && !self.is_primary() {
            self.wish();
        }
    }

    /// Bytes of another replica's node have arrived, of a message that is not whole yet. What it says to this
    /// group may be behind that: it is not silent, it is slow, for a bounded time. The node lives; whether the
    /// group does there is another question (V17), which only its own messages answer. So a wish stays. A backup
    /// answers the heartbeats that are on their way: its primary hears from it, and is not alone.
    pub(super) fn on_receiving(&mut self, from: ReplicaId) {
        if from.0 >= self.config.replica_count {
            return;
        }
        let now = self.now.monotonic;
        self.liveness.receiving[usize::from(from.0)] = now;
        let since = now.saturating_sub(self.liveness.sign);
        let follows = self.status == Status::Normal && from == self.primary();
        if !follows || since >= RECEIVING_MAX {
            return;
        }
        self.liveness.silence.defer(self.now);
        if now.saturating_sub(self.liveness.sign.max(self.liveness.answered)) >= HEARTBEAT_INTERVAL
        {
            self.liveness.answered = now;
            self.answer_heartbeat();
        }
    }

    /// What was given to this node's disk or to the links moves: that of this group may be behind it.
    pub(super) fn on_moving(&mut self) {
        self.liveness.progress.on_moving(self.now.monotonic);
    }

    /// Something that is in flight has come closer to its commit.
    pub(super) fn on_progress(&mut self) {
        if self.status == Status::Normal {
            self.liveness.progress.on_moved(self.now.monotonic);
        }
    }

    /// Nothing in flight is no lack of progress.
    fn note_in_flight(&mut self) {
        if self.op() <= self.commit_chained {
            self.liveness.progress.rest(self.now.monotonic);
        }
    }

    /// V17: whoever hears from no quorum, or gets nothing committed, stands in nobody's way. These are two
    /// questions. Who does not hear is cut off, and the others may be able to do without it: that takes a fixed
    /// time. Who hears its backups and waits for their disks, or for its own, would be followed by somebody who
    /// waits for the same: that is given up only when nothing moves for longer than it usually takes.
    fn abdicate_if_alone(&mut self) {
        if mutation::V17 || self.config.replica_count == 1 || self.liveness.is_abdicated {
            return;
        }
        let now = self.now.monotonic;
        let mut heard = Votes::default();
        heard.add(self.config.replica);
        for replica in self.others() {
            if self.liveness.hears(replica, now) {
                heard.add(replica);
            }
        }
        if self.liveness.progress.is_stuck(now) {
            self.liveness.progress.on_moved(now);
            self.abdicate();
        } else if !heard.is_quorum(self.config.replica_count) {
            self.abdicate();
        }
    }

    fn abdicate(&mut self) {
        self.note(Note::Abdicated { view: self.view });
        self.lead_no_more();
    }

    /// The process is about to end. It takes nothing new, and whatever it leads goes to others.
    pub(super) fn on_stop(&mut self) {
        if self.config.replica_count > 1 && self.liveness.stopping_since.is_none() {
            self.liveness.stopping_since = Some(self.now.monotonic);
            self.effects.push_back(Effect::StatusChanged);
        }
    }

    /// A primary whose process is about to end does not wait until the others miss it: they follow its wish at
    /// once, as it is their primary's. What is in flight is finished before, unless that takes too long.
    pub(super) fn hand_over(&mut self) {
        let Some(since) = self.liveness.stopping_since else {
            return;
        };
        let leads = self.status == Status::Normal && self.is_primary();
        let waited = self.now.monotonic.saturating_sub(since);
        let is_due = self.pipeline.first().is_none() || waited >= HAND_OVER_INTERVAL;
        if leads && is_due && !self.liveness.is_abdicated {
            self.note(Note::HandsOver { view: self.view });
            let next = self.view.next();
            let view = self
                .best_follower()
                .map_or(next, |to| self.next_view_of(to));
            self.lead_no_more_before(view);
        }
    }

    /// What is in flight may be committed yet, here or elsewhere. But others may lead, of whom this replica
    /// cannot hear: whoever waits is to ask them.
    fn lead_no_more(&mut self) {
        self.lead_no_more_before(self.view.next());
    }

    /// The same, with a wish for a certain view.
    pub(super) fn lead_no_more_before(&mut self, view: View) {
        self.liveness.is_abdicated = true;
        self.heartbeat.stop();
        self.effects.push_back(Effect::StatusChanged);
        for token in self.pipeline.take_tokens() {
            let reason = Refusal::Unknown;
            self.effects.push_back(Effect::Refuse { token, reason });
        }
        for token in self.read_index.clear() {
            let reason = Refusal::NotReady;
            self.effects.push_back(Effect::Refuse { token, reason });
        }
        self.wish_for(view);
    }

    /// The others are content in a view before the one that this replica has promised: it can go back to
    /// none, and without its head it can ask for none. A wish is no vote (V11).
    fn call_for_later_view(&mut self) {
        let view = if self.is_primary() {
            self.view.next()
        } else {
            self.view
        };
        self.broadcast_wish(view);
    }

    /// A primary is at work in a view that this replica is not in.
    pub(super) fn on_primary_elsewhere(&mut self, heartbeat: &Commit) {
        let (sender, view) = (heartbeat.replica, heartbeat.view);
        if self.primary_of(view) != sender || view >= VIEW_MAX {
            return;
        }
        if view < self.view {
            if self.status == Status::RecoveringHead && !self.is_rejoining() {
                self.call_for_later_view();
            }
            return;
        }
        match self.status {
            Status::ViewChange if view == self.view && self.view_change.target.is_some() => {
                self.view_change.timeout.start(self.now);
                self.withdraw_wish();
            }
            Status::Normal | Status::ViewChange => self.request_start_view(sender),
            Status::RecoveringHead if self.is_rejoining() => {
                self.hear_primary(view, heartbeat.commit.op);
                if self.view_change.target.is_none() || view > self.view {
                    self.ask_primary_to_rejoin();
                }
            }
            Status::RecoveringHead if self.view_change.target.is_none() || view > self.view => {
                self.request_start_view(sender);
            }
            Status::RecoveringHead
            | Status::Recovering
            | Status::StateTransfer
            | Status::OutOfService(_) => {}
        }
    }
}
