//! Confirms that this replica is still the primary of its view (ReadIndex): what it then reads is not
//! older than the question.

use alloc::vec::Vec;

use wire::Op;

use super::Replica;
use crate::{Effect, Ignore, Message, Token, ViewProbe, ViewProbeOk, quorum::Votes};

/// Something that waits for the view to be confirmed.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: Token,
    /// The last op when it asked: the commit of a later one confirms, too.
    op: Op,
}

/// One round of questions at a time, shared by all that asked before it began.
#[derive(Debug, Default)]
pub(super) struct ReadIndex {
    round: u64,
    votes: Votes,
    /// What the round that is under way confirms; empty: none is.
    asked: Vec<Waiting>,
    /// What came later, and is for the next round.
    waiting: Vec<Waiting>,
}

impl ReadIndex {
    pub(super) const fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.waiting.is_empty()
    }

    /// The view is over: returns what waits.
    pub(super) fn clear(&mut self) -> Vec<Token> {
        let mut all = core::mem::take(&mut self.asked);
        all.append(&mut self.waiting);
        all.into_iter().map(|waiting| waiting.token).collect()
    }
}

impl Replica {
    pub(super) fn on_confirm_view(&mut self, token: Token) {
        if let Some(reason) = self.refuse_service() {
            return self.effects.push_back(Effect::Refuse { token, reason });
        }
        if self.config.replica_count == 1 {
            return self.effects.push_back(Effect::ViewConfirmed { token });
        }
        let op = self.op();
        self.read_index.waiting.push(Waiting { token, op });
        if self.read_index.asked.is_empty() {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        assert!(self.read_index.asked.is_empty());
        self.read_index.asked = core::mem::take(&mut self.read_index.waiting);
        if self.read_index.asked.is_empty() {
            return;
        }
        self.read_index.round += 1;
        self.read_index.votes = Votes::default();
        self.read_index.votes.add(self.config.replica);
        self.broadcast(&Message::ViewProbe(self.probe()));
    }

    /// Asks those again that have not answered yet.
    pub(super) fn repeat_probes(&mut self) {
        if self.read_index.asked.is_empty() {
            return;
        }
        for to in self.others() {
            if !self.read_index.votes.contains(to) {
                self.send(to, Message::ViewProbe(self.probe()));
            }
        }
    }

    /// Being asked in exactly this view and in normal status, which the filter of all messages has seen to,
    /// the replica says so.
    pub(super) fn on_view_probe(&mut self, probe: ViewProbe) {
        if let Some(reason) = self.ignore_from_backup(probe.replica) {
            return self.count_ignored(reason);
        }
        let ok = ViewProbeOk {
            replica: self.config.replica,
            view: self.view,
            round: probe.round,
        };
        self.send(probe.replica, Message::ViewProbeOk(ok));
    }

    pub(super) fn on_view_probe_ok(&mut self, ok: ViewProbeOk) {
        if !self.is_primary() {
            return self.count_ignored(Ignore::NotPrimary);
        }
        self.on_heard(ok.replica);
        if ok.round != self.read_index.round || self.read_index.asked.is_empty() {
            return self.count_ignored(Ignore::ProbeRoundOver);
        }
        self.read_index.votes.add(ok.replica);
        if self.read_index.votes.is_quorum(self.config.replica_count) {
            for Waiting { token, .. } in core::mem::take(&mut self.read_index.asked) {
                self.effects.push_back(Effect::ViewConfirmed { token });
            }
            self.begin_round();
        }
    }

    /// A quorum acknowledged `op` in this view: whatever asked before it was prepared is confirmed.
    pub(super) fn confirm_by_commit(&mut self, op: Op) {
        if !self.is_primary() {
            return;
        }
        let is_under_way = !self.read_index.asked.is_empty();
        let asked = core::mem::take(&mut self.read_index.asked);
        self.read_index.asked = self.confirm_before(asked, op);
        let waiting = core::mem::take(&mut self.read_index.waiting);
        self.read_index.waiting = self.confirm_before(waiting, op);
        if is_under_way && self.read_index.asked.is_empty() {
            self.begin_round();
        }
    }

    /// Confirms those of `all` that asked before `op`, and returns the others.
    fn confirm_before(&mut self, all: Vec<Waiting>, op: Op) -> Vec<Waiting> {
        let (before, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.op < op);
        for Waiting { token, .. } in before {
            self.effects.push_back(Effect::ViewConfirmed { token });
        }
        others
    }

    const fn probe(&self) -> ViewProbe {
        ViewProbe {
            replica: self.config.replica,
            view: self.view,
            round: self.read_index.round,
        }
    }
}
