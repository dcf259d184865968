//! Who is believed to be alive. Nothing here matters for what is safe.

use alloc::{vec, vec::Vec};

use wire::{Op, ReplicaId, Time};

use super::Replica;
use crate::{
    Commit, Effect, Note, Refusal, Status,
    constants::{
        ABDICATION_INTERVAL, HAND_OVER_INTERVAL, SILENCE_INTERVALS, SILENCE_MAX, SILENCE_MIN,
        TICK_LATE, VIEW_MAX,
    },
    mutation,
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
    /// Of a primary: when each replica was heard in this view.
    heard: Vec<u64>,
    /// Of a primary: the first op that is not committed, and since when that is so.
    stuck: (Op, u64),
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
            heard: vec![0; usize::from(replica_count)],
            stuck: (Op(0), 0),
            is_abdicated: false,
            stopping_since: None,
            last_tick: None,
        }
    }

    /// Whether this replica itself was held up since the tick before.
    fn is_late(&mut self, now: Time) -> bool {
        let last = self.last_tick.replace(now.monotonic);
        last.is_none_or(|last| now.monotonic.saturating_sub(last) > TICK_LATE)
    }

    fn limit(&self) -> u64 {
        (SILENCE_INTERVALS * self.interval).clamp(SILENCE_MIN, SILENCE_MAX)
    }

    pub(super) const fn is_abdicated(&self) -> bool {
        self.is_abdicated
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.stopping_since.is_some()
    }

    pub(super) const fn stop(&mut self) {
        self.silence.stop();
        self.is_abdicated = false;
    }
}

impl Replica {
    pub(super) fn on_tick(&mut self) {
        if self.liveness.is_late(self.now) {
            self.be_patient();
        }
        if self.heartbeat.fires(self.now) {
            self.send_heartbeat();
            self.repeat_probes();
        }
        if self.repair.timeout.fires(self.now) {
            self.repair_again();
        }
        match self.status {
            Status::Normal if self.is_primary() => self.abdicate_if_alone(),
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

    /// A view begins.
    pub(super) fn watch(&mut self) {
        self.liveness.stop();
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
        self.liveness.stuck.1 = self.now.monotonic;
    }

    /// A backup in normal status heard from its primary.
    pub(super) fn on_sign_of_life(&mut self) {
        let now = self.now.monotonic;
        let since = now.saturating_sub(self.liveness.sign);
        self.liveness.sign = now;
        // Only what is slower than usual is remembered for long: many prepares say little of heartbeats.
        let usual = self.liveness.interval;
        self.liveness.interval = since.max(usual - usual / 8).min(SILENCE_MAX);
        let limit = self.liveness.limit();
        self.liveness.silence.start_every(limit, self.now);
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

    /// V17: whoever hears from no quorum, or gets nothing committed, stands in nobody's way.
    fn abdicate_if_alone(&mut self) {
        if mutation::V17 || self.config.replica_count == 1 || self.liveness.is_abdicated {
            return;
        }
        let now = self.now.monotonic;
        let mut heard = Votes::default();
        heard.add(self.config.replica);
        for replica in self.others() {
            if now.saturating_sub(self.liveness.heard[usize::from(replica.0)]) < ABDICATION_INTERVAL
            {
                heard.add(replica);
            }
        }
        let next = self.commit_chained.next();
        if self.op() < next || self.liveness.stuck.0 != next {
            self.liveness.stuck = (next, now);
        }
        let is_stuck = now.saturating_sub(self.liveness.stuck.1) >= ABDICATION_INTERVAL;
        if is_stuck || !heard.is_quorum(self.config.replica_count) {
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
            self.lead_no_more();
        }
    }

    /// What is in flight may be committed yet, here or elsewhere. But others may lead, of whom this replica
    /// cannot hear: whoever waits is to ask them.
    fn lead_no_more(&mut self) {
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
        self.wish();
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
