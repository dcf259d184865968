//! A backup in normal status fetches prepares that were lost on the way from its primary.

use wire::Op;

use super::Replica;
use crate::{
    Ignore, Message, Note, RequestPrepare, RequestedPrepare,
    constants::{REPAIR_WINDOW, REPEAT_INTERVAL},
    timeout::Timeout,
};

/// What is missing between the journal's head and the highest op that was heard of.
#[derive(Debug)]
pub(super) struct Repair {
    /// The highest op that was heard of in this view.
    wanted: Op,
    /// The last op that was asked for.
    requested: Op,
    /// Runs while something is missing.
    pub(super) timeout: Timeout,
}

impl Repair {
    pub(super) const fn new() -> Self {
        Self {
            wanted: Op(0),
            requested: Op(0),
            timeout: Timeout::stopped(REPEAT_INTERVAL),
        }
    }

    /// `op` exists in this view.
    pub(super) fn want(&mut self, op: Op) {
        self.wanted = self.wanted.max(op);
    }
}

impl Replica {
    /// Asks for what is missing, once: again when that has arrived, or its time is over.
    pub(super) fn repair_on(&mut self) {
        if self.repair.wanted <= self.op() {
            self.repair.timeout.stop();
        } else if self.op() >= self.repair.requested || !self.repair.timeout.is_running() {
            self.request_missing();
        }
    }

    /// The answers are late: asks anew.
    pub(super) fn repair_again(&mut self) {
        assert!(self.repair.wanted > self.op());
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
            let request = RequestPrepare {
                replica: self.config.replica,
                view: self.view,
                op: Op(op),
                checksum: None,
            };
            self.send(self.primary(), Message::RequestPrepare(request));
        }
    }

    /// Whoever has the prepare in memory hands it out.
    pub(super) fn on_request_prepare(&mut self, request: RequestPrepare) {
        let prepare = self.journal.prepare(request.op).filter(|prepare| {
            request
                .checksum
                .is_none_or(|checksum| checksum == prepare.header.checksum)
        });
        let Some(prepare) = prepare else {
            return self.count_ignored(Ignore::PrepareNotKept);
        };
        let answer = RequestedPrepare {
            replica: self.config.replica,
            view: self.view,
            prepare: prepare.clone(),
        };
        self.send(request.replica, Message::RequestedPrepare(answer));
    }

    pub(super) fn on_requested_prepare(&mut self, answer: RequestedPrepare) {
        if self.is_primary() {
            return self.count_ignored(Ignore::NotBackup);
        }
        self.accept(answer.prepare);
        self.repair_on();
    }
}
