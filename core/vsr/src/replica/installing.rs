//! A replica brings its journal to that of a new view, and installs it (VRR §4.2, step 3 to 5).
//!
//! What is committed is fetched in order, goes into the journal at once and is applied. What is not yet
//! committed is laid aside until all of it is durable: only the install, one superblock, makes it part of
//! the journal and drops what it replaces (V2, V3). So a replica that is interrupted still has the journal
//! that it voted with.

use alloc::{collections::BTreeMap, vec::Vec};

use wire::{Op, PrepareHeader, ReplicaId};

use super::Replica;
use crate::{
    ChainPoint, Effect, Ignore, Message, Prepare, RequestPrepare, RequestStartView, StartView,
    Status,
    constants::{REPAIR_WINDOW, REPEAT_INTERVAL, REPEAT_INTERVAL_MAX, VIEW_MAX},
    mutation,
    timeout::Timeout,
};

/// The journal of the view that is about to begin.
#[derive(Debug)]
pub(super) struct Target {
    /// What is committed at least.
    commit: ChainPoint,
    /// The ops after it.
    headers: Vec<PrepareHeader>,
    /// An op of this replica's own journal turned out not to be the committed one: every op after the last
    /// that is known to be committed is compared anew.
    is_diverged: bool,
    /// Committed prepares that came before their turn.
    arrived: BTreeMap<Op, Prepare>,
    /// Prepares of `headers` that are not in the own journal, and whether they are durable.
    laid_aside: BTreeMap<Op, (Prepare, bool)>,
    /// The last op that was asked for.
    requested: Op,
    /// How often somebody was asked: every time somebody else.
    asked: u8,
    /// Runs once something was asked for, anew with every answer.
    late: Timeout,
    /// The sequence number of the superblock that installs it, once that is on its way.
    installing: Option<u64>,
}

impl Target {
    pub(super) const fn new(commit: ChainPoint, headers: Vec<PrepareHeader>) -> Self {
        Self {
            commit,
            headers,
            is_diverged: false,
            arrived: BTreeMap::new(),
            laid_aside: BTreeMap::new(),
            requested: Op(0),
            asked: 0,
            late: Timeout::stopped(REPEAT_INTERVAL),
            installing: None,
        }
    }

    /// What is committed at the beginning of the view.
    pub(super) const fn commit(&self) -> Op {
        self.commit.op
    }

    /// Whether the superblock with this sequence number, or one before it, has installed it.
    pub(super) fn is_installed(&self, sequence: u64) -> bool {
        self.installing.is_some_and(|written| written <= sequence)
    }

    /// The last op.
    pub(super) fn head(&self) -> Op {
        self.headers.last().map_or(self.commit.op, |it| it.op())
    }

    /// Whether the superblock that installs it is on its way.
    pub(super) const fn is_being_installed(&self) -> bool {
        self.installing.is_some()
    }

    /// What was asked for before is of no use any more.
    pub(super) fn asked_for_nothing(mut self) -> Self {
        self.requested = Op(0);
        self.arrived.clear();
        self
    }

    /// Whether it goes through a committed op, or begins behind it.
    pub(super) fn contains(&self, point: ChainPoint) -> bool {
        let header = self.header(point.op);
        point.op < self.commit.op
            || self.commit == point
            || header.is_some_and(|header| header.checksum == point.checksum)
    }

    /// The ops after what is committed.
    pub(super) fn headers(&self) -> &[PrepareHeader] {
        &self.headers
    }

    fn header(&self, op: Op) -> Option<&PrepareHeader> {
        self.headers.iter().find(|header| header.op() == op)
    }
}

impl Replica {
    /// VRR §4.2, step 5: a backup learns the journal of the view.
    pub(super) fn on_start_view(&mut self, message: StartView) {
        if let Some(reason) = self.ignore_start_view(&message) {
            return self.count_ignored(reason);
        }
        if self.status == Status::RecoveringHead {
            // V11: it stays without a vote until the journal of this view is its own.
            self.view = message.view;
            self.view_change.target = None;
        } else {
            if message.view > self.view {
                self.leave_view(message.view);
            }
            self.view_change.timeout.start(self.now);
        }
        self.learn_checkpoint_quorum(message.checkpoint_quorum);
        self.pursue(Target::new(message.commit, message.suffix));
    }

    fn ignore_start_view(&self, message: &StartView) -> Option<Ignore> {
        if message.view < self.view {
            Some(Ignore::OlderView)
        } else if message.view >= VIEW_MAX {
            Some(Ignore::ViewInvalid)
        } else if self.primary_of(message.view) != message.replica {
            Some(Ignore::FromBackup)
        } else if !self.is_suffix(message.view, message.commit, message.op, &message.suffix) {
            Some(Ignore::SuffixInvalid)
        } else if message.op < self.commit_chained {
            // It was long on its way.
            Some(Ignore::OlderView)
        } else {
            self.ignore_start_view_in(self.status, message)
        }
    }

    fn ignore_start_view_in(&self, status: Status, message: &StartView) -> Option<Ignore> {
        if self.lacks_checkpoint() {
            return Some(Ignore::CheckpointLacking);
        }
        let is_this_view = message.view == self.view;
        let is_asked = message.nonce == Some(self.nonce);
        // V13: whoever has forgotten its view does not know what is later.
        let durable_view = self.promises.durable_view();
        let is_later =
            !self.is_rejoining() && durable_view.is_some_and(|durable| message.view > durable);
        match status {
            Status::Normal if is_this_view => Some(Ignore::StartViewRepeated),
            Status::ViewChange | Status::RecoveringHead
                if is_this_view && self.view_change.target.is_some() =>
            {
                Some(Ignore::StartViewRepeated)
            }
            // V11: only an answer to this incarnation, or a later view.
            Status::RecoveringHead if !is_asked && !is_later && !mutation::V11 => {
                Some(Ignore::StartViewNotAsked)
            }
            Status::Normal | Status::ViewChange | Status::RecoveringHead => None,
            Status::Recovering | Status::StateTransfer | Status::OutOfService(_) => {
                Some(Ignore::NotNormal)
            }
        }
    }

    /// Asks the primary of a later view, or of the view in which the own head is lost, for its journal.
    pub(super) fn request_start_view(&mut self, to: ReplicaId) {
        let Some(view) = self.promises.durable_view() else {
            return;
        };
        assert!(!self.is_rejoining(), "it asks for a barrier first");
        let request = RequestStartView {
            replica: self.config.replica,
            view,
            nonce: self.nonce,
        };
        self.send(to, Message::RequestStartView(request));
    }

    pub(super) fn on_request_start_view(&mut self, request: RequestStartView) {
        if self.status != Status::Normal {
            self.count_ignored(Ignore::NotNormal);
        } else if !self.is_primary() {
            self.count_ignored(Ignore::NotPrimary);
        } else if request.view > self.view {
            self.count_ignored(Ignore::NewerView);
        } else {
            self.send_start_view(request.replica, Some(request.nonce));
        }
    }

    pub(super) fn pursue(&mut self, mut target: Target) {
        assert!(matches!(
            self.status,
            Status::ViewChange | Status::RecoveringHead
        ));
        assert!(self.view_change.target.is_none());
        if !target.contains(self.commit_point()) {
            // A checkpoint has brought what a later view has committed.
            return self.count_ignored(Ignore::VotesContradict);
        }
        if mutation::V3 {
            self.damaged = None;
            self.journal.truncate(self.commit_chained);
        }
        self.lay_aside_readable(&mut target);
        self.view_change.target = Some(target);
        self.advance_target();
    }

    /// What of the target is behind a damaged prepare of the own journal, and can be read, need not be
    /// fetched.
    fn lay_aside_readable(&self, target: &mut Target) {
        let Some(damaged) = &self.damaged else {
            return;
        };
        for header in &target.headers {
            if let Some(prepare) = damaged.readable(header.op(), header.checksum) {
                let readable = (prepare.clone(), true);
                target.laid_aside.insert(header.op(), readable);
            }
        }
    }

    /// Goes on towards the journal of the view, as far as that is possible at this moment.
    pub(super) fn advance_target(&mut self) {
        if self.status == Status::StateTransfer {
            return;
        }
        let Some(mut target) = self.view_change.target.take() else {
            return;
        };
        if target.installing.is_none() {
            self.take_arrived(&mut target);
            if self.reaches(target.commit) {
                self.commit_up_to(target.commit.op);
                let matched = self.matched(&target);
                if self.has_all(&mut target, matched) {
                    if self.drop_old_votes(&target) {
                        // V13: all of the journal is here, and somebody's vote is older than its barrier.
                        return self.choose_journal();
                    }
                    self.install(&mut target, matched);
                }
            }
            if target.installing.is_none() {
                self.request_for(&mut target);
            }
        }
        self.view_change.target = Some(target);
    }

    /// Whether the own journal contains this committed op.
    fn reaches(&self, commit: ChainPoint) -> bool {
        commit.op <= self.commit_chained
            || mutation::V9 && commit.op <= self.op()
            || self.journal.checksum(commit.op) == Some(commit.checksum)
    }

    /// The next committed op that is not known to be in the own journal.
    fn next_committed(&self, target: &Target) -> Op {
        if target.is_diverged || target.commit.op <= self.op() {
            self.commit_chained.next()
        } else {
            self.op().next()
        }
    }

    fn take_arrived(&mut self, target: &mut Target) {
        while !self.reaches(target.commit) {
            let next = self.next_committed(target);
            let Some(prepare) = target.arrived.remove(&next) else {
                return;
            };
            let header = &prepare.header;
            if self.journal.checksum(next) == Some(header.checksum) {
                self.commit_up_to(next);
                continue;
            }
            let before = Op(next.0 - 1);
            if self.journal.checksum(before) != Some(header.parent) {
                if before <= self.commit_chained {
                    // Two histories of what is committed: nothing is guessed.
                    return self.count_ignored(Ignore::PrepareUnchained);
                }
                target.is_diverged = true;
                target.arrived.clear();
                target.requested = Op(0);
                continue;
            }
            if next <= self.op() {
                target.is_diverged = true;
                self.damaged = None;
                self.journal.truncate(before);
            }
            if header.timestamp() <= self.journal.head().timestamp {
                return self.count_ignored(Ignore::PrepareInvalid);
            }
            self.extend(prepare.clone(), false);
            self.effects.push_back(Effect::WritePrepare(prepare));
            self.commit_up_to(next);
            // It is alive, and whoever hands this out is, too.
            self.view_change.timeout.start(self.now);
        }
    }

    /// The last op of the target that is in the own journal; all before it are, then.
    fn matched(&self, target: &Target) -> Op {
        let is_here =
            |header: &&PrepareHeader| self.journal.checksum(header.op()) == Some(header.checksum);
        let last = target.headers.iter().rev().find(is_here);
        last.map_or(target.commit.op, |header| header.op())
            .max(self.commit_chained.min(target.head()))
    }

    /// Whether the rest of the target is durable, laid aside; and the own journal up to there.
    fn has_all(&self, target: &mut Target, matched: Op) -> bool {
        target.laid_aside.retain(|op, _| *op > matched);
        let is_durable = |header: &PrepareHeader| {
            let aside = target.laid_aside.get(&header.op());
            header.op() <= matched || aside.is_some_and(|(_, is_durable)| *is_durable)
        };
        let has_rest = target.headers.iter().all(is_durable);
        has_rest && self.journal.durable() >= matched
    }

    /// V2: the journal and its log_view become this replica's in one durable write.
    fn install(&mut self, target: &mut Target, matched: Op) {
        if self.commit_chained > target.head() {
            // Committed ops that the view does not have: nothing is guessed.
            return self.count_ignored(Ignore::VotesContradict);
        }
        self.damaged = None;
        self.journal.truncate(matched.max(self.journal.base()));
        for (op, (prepare, _)) in core::mem::take(&mut target.laid_aside) {
            assert!(op == self.op().next());
            let checksum = prepare.header.checksum;
            self.journal.append(prepare, false);
            self.journal.set_durable(op, checksum);
        }
        assert!(self.op() == target.head());
        assert!(self.journal.durable() == self.op());
        self.promises.install(self.view, self.op(), self.suffix());
        self.write_superblock();
        target.installing = Some(self.promises.newest().sequence);
    }

    /// Asks for the next piece of what is missing, once: again when that has arrived or is late.
    fn request_for(&mut self, target: &mut Target) {
        let (first, last) = if self.reaches(target.commit) {
            let matched = self.matched(target);
            (matched.next(), target.head())
        } else {
            let next = self.next_committed(target);
            let last = target.commit.op.min(Op(next.0 + REPAIR_WINDOW - 1));
            (next, last)
        };
        if first > last || first <= target.requested {
            return;
        }
        if target.requested > Op(0) {
            // What was asked for before has come.
            target.late.relax(REPEAT_INTERVAL);
        }
        target.requested = last;
        target.late.start(self.now);
        let to = self.whom_to_ask(target);
        let Some(view) = self.promises.durable_view() else {
            return;
        };
        for op in (first.0..=last.0).map(Op) {
            if target.laid_aside.contains_key(&op) || target.arrived.contains_key(&op) {
                continue;
            }
            let checksum = target.header(op).map(|header| header.checksum);
            let request = RequestPrepare {
                replica: self.config.replica,
                view,
                op,
                checksum,
            };
            self.send(to, Message::RequestPrepare(request));
        }
    }

    /// The primary of the view, at first; where that is this replica, or does not answer, one after the
    /// other.
    fn whom_to_ask(&self, target: &mut Target) -> ReplicaId {
        loop {
            let index = self.primary().0 + target.asked;
            target.asked = (target.asked + 1) % self.config.replica_count;
            let to = ReplicaId(index % self.config.replica_count);
            if to != self.config.replica {
                return to;
            }
        }
    }

    /// If the answers are late, asks somebody else.
    pub(super) fn pursue_again(&mut self) {
        if let Some(target) = &mut self.view_change.target
            && target.late.fires(self.now)
        {
            target.late.back_off(REPEAT_INTERVAL_MAX);
            target.requested = Op(0);
        }
        self.advance_target();
    }

    /// A prepare that was asked for while the view changes.
    pub(super) fn on_missing_prepare(&mut self, prepare: Prepare, is_committed: bool) {
        let op = prepare.header.op();
        let is_sound = self.is_sound(&prepare);
        let next = match &self.view_change.target {
            Some(target) if is_sound && target.installing.is_none() => self.next_committed(target),
            Some(_) | None => return self.count_ignored(Ignore::PrepareUnwanted),
        };
        let Some(target) = &mut self.view_change.target else {
            return;
        };
        if let Some(header) = target.header(op) {
            let is_wanted = header.checksum == prepare.header.checksum
                && !target.laid_aside.contains_key(&op)
                && self.journal.checksum(op) != Some(prepare.header.checksum);
            if !is_wanted {
                return self.count_ignored(Ignore::PrepareUnwanted);
            }
            target.laid_aside.insert(op, (prepare.clone(), false));
            self.effects.push_back(Effect::WritePrepare(prepare));
        } else if is_committed && op >= next && op.0 < next.0 + REPAIR_WINDOW {
            target.arrived.insert(op, prepare);
        } else {
            return self.count_ignored(Ignore::PrepareUnwanted);
        }
        target.late.defer(self.now);
        self.advance_target();
    }

    /// Whether a prepare that was laid aside is durable now.
    pub(super) fn set_aside_durable(&mut self, op: Op, checksum: u128) -> bool {
        let Some(target) = &mut self.view_change.target else {
            return false;
        };
        match target.laid_aside.get_mut(&op) {
            Some((prepare, is_durable)) if prepare.header.checksum == checksum => {
                *is_durable = true;
                true
            }
            Some(_) | None => false,
        }
    }
}
