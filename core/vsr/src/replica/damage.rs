//! What of this replica's own journal cannot be read (V10, V12): said to be there, fetched by its checksum
//! from whoever has it, and put back in its place.
//!
//! A replica with a damaged journal goes on. In normal status it is a backup that is behind: it acknowledges
//! and applies what follows from its checkpoint without a gap, and no more. When it leaves the view its vote
//! names all ops up to the last that may have been in its journal; what cannot be read is not present, and
//! never counts as not prepared.

use alloc::vec::Vec;

use wire::Op;

use super::Replica;
use crate::{
    ChainPoint, DoViewChange, Effect, Message, Note, Prepare, RequestPrepare, Status, SuffixReport,
    constants::{KEPT_PREPARES_MAX, REPEAT_INTERVAL_MAX, SUFFIX_MAX},
    damaged::Damaged,
};

impl Replica {
    /// The last op that may have been in the journal: that of the journal, unless its end is damaged.
    pub(super) fn last_op(&self) -> Op {
        match &self.damaged {
            Some(damaged) => damaged.last(),
            None => self.op(),
        }
    }

    /// The highest op that the last certain one of the journal shows to be committed.
    pub(super) fn far_behind(&self) -> Op {
        let certain = self.damaged.as_ref().and_then(Damaged::last_certain);
        let last = certain.unwrap_or(self.op());
        Op(last.0.saturating_sub(SUFFIX_MAX as u64))
    }

    /// What is known to be committed, though it may not be readable here: a primary prepares an op only when
    /// the one [`SUFFIX_MAX`] before it is applied. None where its checksum is not known: there is no vote
    /// then (V10).
    pub(super) fn commit_known(&self) -> Option<ChainPoint> {
        let op = self.far_behind();
        if op <= self.commit_chained {
            return Some(self.commit_point());
        }
        let damaged = self.damaged.as_ref().and_then(|it| it.checksum(op));
        let checksum = self.journal.checksum(op).or(damaged)?;
        Some(ChainPoint { op, checksum })
    }

    /// The ops after `after`, for a vote.
    pub(super) fn reports_after(&self, after: Op) -> Vec<SuffixReport> {
        let headers = self.journal.headers_after(after);
        let mut reports: Vec<SuffixReport> = headers
            .map(|header| SuffixReport {
                op: header.op(),
                header: Some(header),
                nack: false,
                present: true,
            })
            .collect();
        let damaged = self.damaged.iter().flat_map(|it| it.after(after));
        reports.extend(damaged.map(|(op, known, present)| SuffixReport {
            op,
            header: known.header,
            nack: false,
            present,
        }));
        reports
    }

    /// The committed ops that only their headers name, since that of the op after each is not known: what is
    /// certain now would not be so after a restart.
    pub(super) fn reports_before_gaps(&self) -> Vec<SuffixReport> {
        let Some(damaged) = &self.damaged else {
            return Vec::new();
        };
        let before = Op(self.op().0.saturating_sub(1));
        let far_behind = self.far_behind();
        let mut reports = self.reports_after(before);
        reports.retain(|report| {
            let after = damaged.known(report.op.next());
            let is_gap = after.is_some_and(|known| known.header.is_none());
            report.op <= far_behind && report.header.is_some() && is_gap
        });
        reports
    }

    /// The journal goes on with `prepare`; if that was damaged here, it is no more.
    pub(super) fn extend(&mut self, prepare: Prepare, is_durable: bool) {
        let header = &prepare.header;
        let (op, checksum) = (header.op(), header.checksum);
        if let Some(damaged) = &mut self.damaged
            && damaged.first() == op
        {
            let is_other = damaged.checksum(op).is_some_and(|it| it != checksum);
            damaged.drop_first();
            if is_other || damaged.is_empty() {
                // Another op is committed in its place, so none of those behind it are.
                self.damaged = None;
            }
        }
        self.journal.append(prepare, is_durable);
        self.connect();
    }

    /// The journal begins anew behind a checkpoint: what is damaged up to there is needed no more. What comes
    /// behind may have been acknowledged, unless another op was in the place of the checkpoint's last.
    pub(super) fn keep_damaged_after(&mut self, point: ChainPoint) {
        let is_other = point.op <= self.op() || self.contradicts_damaged(point.op, point.checksum);
        let damaged = self.damaged.take().filter(|_| !is_other);
        self.damaged = damaged.and_then(|it| it.after_checkpoint(point.op));
    }

    /// Whether a copy of what cannot be read is missing.
    pub(super) fn is_damaged(&self, op: Op) -> bool {
        let known = self.damaged.as_ref().and_then(|it| it.known(op));
        known.is_some()
    }

    /// Whether the damaged part says that another op than this belongs there.
    pub(super) fn contradicts_damaged(&self, op: Op, checksum: u128) -> bool {
        let damaged = self.damaged.as_ref().and_then(|it| it.checksum(op));
        damaged.is_some_and(|it| it != checksum)
    }

    /// What can be read again goes back to the journal, as far as it follows.
    pub(super) fn connect(&mut self) {
        let before = self.op();
        while let Some(damaged) = &mut self.damaged {
            if damaged.contradicts(self.journal.head().point) {
                // A checkpoint of another replica came before it: others are committed in their place.
                self.damaged = None;
                break;
            }
            let Some(prepare) = damaged.take_next(self.journal.head()) else {
                break;
            };
            if damaged.is_empty() {
                self.damaged = None;
            }
            self.journal.append(prepare, true);
        }
        if self.op() == before {
            return;
        }
        if self.status == Status::Normal {
            if let Some(ahead) = self.commit_ahead {
                self.learn_commit(ahead);
            }
            self.repair_on();
        }
        self.commit_behind_head();
    }

    /// A copy of what cannot be read here. False when that is not wanted.
    pub(super) fn fill(&mut self, prepare: &Prepare) -> bool {
        let is_sound = self.is_sound(prepare);
        let damaged = self.damaged.as_mut().filter(|_| is_sound);
        let is_wanted = damaged.is_some_and(|it| it.fill(prepare));
        if is_wanted {
            self.effects
                .push_back(Effect::WritePrepare(prepare.clone()));
        }
        is_wanted
    }

    /// A prepare is durable that was fetched in place of one that cannot be read.
    pub(super) fn set_filled_durable(&mut self, op: Op, checksum: u128) -> bool {
        let damaged = self.damaged.as_mut();
        let is_filled = damaged.is_some_and(|it| it.set_durable(op, checksum));
        if is_filled {
            self.note(Note::Repaired { op });
            self.connect();
            self.repair_damaged();
        }
        is_filled
    }

    /// Asks one of the others, each time another, for what cannot be read and has a name.
    pub(super) fn repair_damaged(&mut self) {
        let (Some(damaged), Some(view)) = (&mut self.damaged, self.promises.durable_view()) else {
            return;
        };
        if !damaged.repeat.is_running() {
            damaged.repeat.start(self.now);
        }
        let wanted = damaged.ask(KEPT_PREPARES_MAX);
        let asked = usize::from(damaged.asked % (self.config.replica_count - 1));
        let to = self.others().nth(asked).expect("there are others");
        for ChainPoint { op, checksum } in wanted {
            let request = RequestPrepare {
                replica: self.config.replica,
                view,
                op,
                checksum: Some(checksum),
            };
            self.send(to, Message::RequestPrepare(request));
        }
    }

    /// The copies that were asked for are late: asks somebody else.
    pub(super) fn repair_damaged_again(&mut self) {
        if let Some(damaged) = &mut self.damaged
            && damaged.repeat.fires(self.now)
        {
            damaged.ask_again();
            damaged.repeat.back_off(REPEAT_INTERVAL_MAX);
            damaged.asked = damaged.asked.wrapping_add(1);
            self.repair_damaged();
        }
    }

    /// A prepare that this replica can read, behind one that it cannot: of this checksum, or known to be
    /// committed.
    pub(super) fn damaged_prepare(
        &self,
        op: Op,
        checksum: Option<u128>,
    ) -> Option<(Prepare, bool)> {
        let damaged = self.damaged.as_ref()?;
        let own = damaged.checksum(op);
        let is_committed = op <= self.far_behind() && own.is_some();
        let named = checksum.or_else(|| own.filter(|_| is_committed))?;
        let prepare = damaged.readable(op, named)?;
        Some((prepare.clone(), is_committed && own == Some(named)))
    }

    /// V5: the vote stays what it is, except that what can be read again is present.
    pub(super) fn refresh_vote(&mut self) {
        let Some(vote) = &self.view_change.vote else {
            return;
        };
        if self.view_change.target.is_some() {
            return;
        }
        let fresh = DoViewChange {
            suffix: self.reports_after(vote.commit.op),
            ..vote.clone()
        };
        if fresh != *vote {
            self.view_change.vote = Some(fresh);
            self.send_vote();
        }
    }
}
