//! A backup in normal status fetches prepares that were lost on the way from its primary, and whoever has
//! a prepare hands it out.

use alloc::collections::BTreeMap;

use wire::{Op, ReplicaId};

use super::Replica;
use crate::{
    Effect, Gone, Ignore, Message, Note, Prepare, RequestPrepare, RequestedPrepare, Status,
    constants::{KEPT_BYTES_MAX, REPAIR_WINDOW, REPEAT_INTERVAL, REPEAT_INTERVAL_MAX},
    journal::{anchor, size_of_prepare},
    timeout::Timeout,
};

/// What is missing between the journal's head and the highest op that was heard of.
#[derive(Debug)]
pub(super) struct Repair {
    /// The highest op that was heard of in this view.
    wanted: Op,
    /// The last op that was asked for.
    requested: Op,
    /// Answers that came before one that they follow: they come in any order, as the links and whoever reads
    /// them from a disk have it.
    held: BTreeMap<Op, Prepare>,
    /// Runs while something is missing.
    pub(super) timeout: Timeout,
}

impl Repair {
    pub(super) const fn new() -> Self {
        Self {
            wanted: Op(0),
            requested: Op(0),
            held: BTreeMap::new(),
            timeout: Timeout::stopped(REPEAT_INTERVAL),
        }
    }

    /// What was heard of in a view that is over counts no more.
    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Nothing is asked for any more, until something is found missing again.
    pub(super) fn stop(&mut self) {
        self.requested = Op(0);
        self.held.clear();
        self.timeout.stop();
    }

    /// Whether `op` is known to exist in this view.
    pub(super) fn is_wanted(&self, op: Op) -> bool {
        op <= self.wanted
    }

    /// The highest op that was heard of in this view.
    pub(super) const fn wanted(&self) -> Op {
        self.wanted
    }

    /// `op` exists in this view.
    pub(super) fn want(&mut self, op: Op) {
        self.wanted = self.wanted.max(op);
    }

    /// Keeps an answer for when what it follows is here. False if it was not asked for, or there is no room.
    fn hold(&mut self, prepare: &Prepare) -> bool {
        let op = prepare.header.op();
        let others = self.held.iter().filter(|(held, _)| **held != op);
        let size: usize = others.map(|(_, prepare)| size_of_prepare(prepare)).sum();
        let has_room = size + size_of_prepare(prepare) <= KEPT_BYTES_MAX;
        if op > self.requested || !has_room {
            return false;
        }
        self.held.insert(op, prepare.clone());
        true
    }

    /// The answer that comes next in a journal with this head, if it is held. Those before it are let go.
    fn take_held(&mut self, head: Op) -> Option<Prepare> {
        self.held.retain(|op, _| *op > head);
        self.held.remove(&head.next())
    }
}

impl Replica {
    /// Asks for what is missing, once: again when that has arrived, or its time is over.
    pub(super) fn repair_on(&mut self) {
        while self.status == Status::Normal
            && let Some(prepare) = self.repair.take_held(self.op())
        {
            self.accept(prepare);
        }
        if self.repair.wanted <= self.op() || self.wanted_checkpoint().is_some() {
            self.repair.timeout.stop();
        } else if self.op() >= self.repair.requested || !self.repair.timeout.is_running() {
            self.repair.timeout.relax(REPEAT_INTERVAL);
            self.request_missing();
        }
    }

    /// The answers are late: asks anew.
    pub(super) fn repair_again(&mut self) {
        assert!(self.repair.wanted > self.op());
        if self.repair.requested > self.op() {
            self.repair.timeout.back_off(REPEAT_INTERVAL_MAX);
        }
        self.request_missing();
    }

    fn request_missing(&mut self) {
        let head = self.op().0;
        let first = Op(head + 1);
        let last = self.repair.wanted.min(Op(head + REPAIR_WINDOW));
        self.repair.requested = last;
        self.repair.timeout.start(self.now);
        self.note(Note::RepairRequested { first, last });
        for op in first.0..=last.0 {
            if self.repair.held.contains_key(&Op(op)) {
                continue;
            }
            let request = RequestPrepare {
                replica: self.config.replica,
                view: self.view,
                op: Op(op),
                checksum: None,
            };
            self.send(self.primary(), Message::RequestPrepare(request));
        }
    }

    /// Whoever has the prepare hands it out: one that is named by its checksum, or of which it is certain
    /// that it is in the journal of the asker's view.
    pub(super) fn on_request_prepare(&mut self, request: RequestPrepare) {
        let is_known = matches!(self.status, Status::Normal | Status::ViewChange);
        if !is_known {
            return self.count_ignored(Ignore::NotNormal);
        }
        let RequestPrepare {
            replica: to, op, ..
        } = request;
        let is_committed = op <= self.commit_chained;
        let is_same_view = self.status == Status::Normal && request.view == self.view;
        if op > Op(0) && is_committed && op <= self.journal.base() {
            return self.read_prepare(op, to);
        }
        let prepare = self.journal.prepare(op).filter(|prepare| {
            let checksum = prepare.header.checksum;
            request
                .checksum
                .map_or(is_committed || is_same_view, |named| named == checksum)
        });
        let kept = prepare.cloned().map(|prepare| (prepare, is_committed));
        match kept.or_else(|| self.damaged_prepare(op, request.checksum)) {
            Some((prepare, is_committed)) => self.send_prepare(to, prepare, is_committed),
            None => self.count_ignored(Ignore::PrepareNotKept),
        }
    }

    fn read_prepare(&mut self, op: Op, to: ReplicaId) {
        match self.journal.trimmed_checksum(op) {
            Some(checksum) => self
                .effects
                .push_back(Effect::ReadPrepare { op, checksum, to }),
            None => self.send_gone(op, to),
        }
    }

    fn send_prepare(&mut self, to: ReplicaId, prepare: Prepare, is_committed: bool) {
        // While the journal of another view is being installed it is nobody's for a moment.
        let Some(view) = self.promises.journal_view() else {
            return self.count_ignored(Ignore::PrepareNotKept);
        };
        let answer = RequestedPrepare {
            replica: self.config.replica,
            view,
            is_committed,
            prepare,
        };
        self.send(to, Message::RequestedPrepare(answer));
    }

    /// A committed prepare was read from the disk for another replica.
    pub(super) fn on_prepare_read(&mut self, op: Op, to: ReplicaId, prepare: Option<Prepare>) {
        assert!(op <= self.commit_chained, "only committed ops are read");
        match prepare {
            Some(prepare) => self.send_prepare(to, prepare, true),
            None => self.send_gone(op, to),
        }
    }

    fn send_gone(&mut self, op: Op, to: ReplicaId) {
        let Some(view) = self.promises.durable_view() else {
            return;
        };
        let gone = Gone {
            replica: self.config.replica,
            view,
            op,
            checkpoint: self.checkpoint_op(),
        };
        self.send(to, Message::Gone(gone));
    }

    pub(super) fn on_requested_prepare(&mut self, answer: RequestedPrepare) {
        let RequestedPrepare {
            view,
            is_committed,
            prepare,
            ..
        } = answer;
        if self.fill(&prepare) {
            if let Some(damaged) = &mut self.damaged {
                damaged.repeat.relax(REPEAT_INTERVAL);
                damaged.repeat.defer(self.now);
            }
            self.repair_damaged();
            if self.view_change.target.is_none() {
                return;
            }
        }
        match self.status {
            Status::ViewChange | Status::RecoveringHead => {
                self.on_missing_prepare(prepare, is_committed);
            }
            Status::Normal if self.is_primary() => self.count_ignored(Ignore::NotBackup),
            Status::Normal if view == self.view || is_committed => {
                let point = anchor(&prepare).point;
                let is_ahead = prepare.header.op() > self.op().next();
                if prepare.header.op() > self.op() {
                    self.repair.timeout.defer(self.now);
                }
                if !(is_ahead && self.is_sound(&prepare) && self.repair.hold(&prepare)) {
                    self.accept(prepare);
                }
                if is_committed {
                    self.learn_commit(point);
                }
                self.repair_on();
            }
            Status::Normal => self.count_ignored(Ignore::OlderView),
            Status::Recovering | Status::StateTransfer | Status::OutOfService(_) => {
                self.count_ignored(Ignore::NotNormal);
            }
        }
    }
}
