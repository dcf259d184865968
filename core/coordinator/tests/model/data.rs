//! What may happen in a state: the data group, its primaries, polls, stores, and the reconciler.

use coordinator::{HandOver, Progress, hand_over};
use wire::Epoch;

use super::{
    machine::{Claim, DataOp, Position, Record, offset},
    metadata::{
        Granted, Node, OpNumber, SESSIONS, Session, Verdict, Wish, moving, owner, session_of,
    },
    mutation::{Floor, Mutation, violation},
    state::{Deposed, Memory, NOTHING, Poll, State},
    step::{Action, Steps},
};

pub(crate) fn steps(steps: &mut Steps<'_>) {
    steps.poll();
    steps.answer();
    for session in SESSIONS {
        steps.store(session);
        steps.release(session);
    }
    steps.reconcile();
    steps.commit();
    steps.change_view();
}

impl Steps<'_> {
    /// The epoch under which a claim goes on to the data group.
    fn admit(
        &self,
        copy: &Node,
        claim: Claim,
        wish: Wish,
    ) -> Option<(OpNumber, Option<(OpNumber, Session)>)> {
        let model = self.model;
        let planned = moving(&copy.view);
        let owner = owner(&copy.view).filter(|owner| owner.session == claim.session);
        let verdict = copy.verdict(claim.session, claim.epoch, wish);
        match verdict {
            Verdict::Right(epoch, to) => {
                let unnamed =
                    matches!(wish, Wish::Release(_)) && model.lacks(Mutation::ReleaseUnnamed);
                let to = to.or(planned.filter(|_| unnamed).map(|(to, epoch)| (epoch, to)));
                Some((epoch, to))
            }
            Verdict::Unapplied if model.lacks(Mutation::EpochUnparked) => Some((claim.epoch, None)),
            Verdict::Unapplied if model.lacks(Mutation::ReleaseUnnamed) => {
                let owner = owner?;
                let to = planned.map(|(to, epoch)| (epoch, to));
                (matches!(wish, Wish::Release(_)) && claim.epoch <= owner.epoch)
                    .then_some((owner.epoch, to))
            }
            Verdict::Coming if model.lacks(Mutation::TargetUnparked) => Some((claim.epoch, None)),
            Verdict::Revoking if model.lacks(Mutation::PollWhileRevoking) => {
                Some((owner?.epoch, None))
            }
            Verdict::Refused if model.lacks(Mutation::LiftAcross) => {
                let owner = owner?;
                let older = claim.epoch < owner.epoch && (planned.is_none() || wish == Wish::Store);
                older.then_some((owner.epoch, None))
            }
            Verdict::Unapplied | Verdict::Coming | Verdict::Revoking | Verdict::Refused => None,
        }
    }

    /// What is lifted was granted in the same unbroken ownership.
    fn judge_lift(&self, claim: Claim, epoch: OpNumber) -> Option<&'static str> {
        if claim.epoch == epoch {
            return None;
        }
        let own = |it: &Granted| it.session == claim.session;
        let from = self.latest.grant(claim.epoch).filter(own);
        let to = self.latest.grant(epoch).filter(own);
        let same = from.is_some_and(|from| to.is_some_and(|to| to.held_since == from.held_since));
        (!same).then_some(violation::LIFTED)
    }

    fn room(&self) -> Option<usize> {
        let prepared = &self.from.queue[..self.model.bounds.prepared];
        prepared.iter().position(Option::is_none)
    }

    /// Every epoch that somebody may come with: those that a session was granted, of which it is told;
    /// that of the move, which others know; and one that nobody has.
    fn claims(&self) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(16);
        for session in SESSIONS {
            let own = self.told(session).granted.iter();
            let own = own.filter(|it| it.session == session);
            let epochs = own.map(|it| it.epoch);
            let planned = moving(&self.latest.view).map(|(_, epoch)| epoch);
            let forged = planned.into_iter().chain([self.latest.op + 1]);
            claims.extend(epochs.chain(forged).map(|epoch| Claim { session, epoch }));
        }
        claims
    }

    fn poll(&mut self) {
        for claim in self.claims() {
            self.poll_current(claim);
            // Who comes to the deposed primary waits for a round that no majority answers.
            if self.model.lacks(Mutation::PollUnconfirmed)
                && let Some(deposed) = self.from.deposed
                && self.from.poll.is_none()
                && self.deposed_serves(claim, deposed)
            {
                self.hold(claim, true, None);
            }
        }
    }

    fn hold(&mut self, claim: Claim, deposed: bool, violation: Option<&'static str>) {
        let mut next = self.from;
        next.poll = Some(Poll {
            claim,
            deposed,
            others: self.latest.granted_to_others(claim.session),
        });
        self.push(Action::Poll { claim, deposed }, next, violation);
    }

    fn poll_current(&mut self, claim: Claim) {
        match self.copy.verdict(claim.session, claim.epoch, Wish::Poll) {
            Verdict::Unapplied => self.note(Floor::EpochParked),
            Verdict::Coming => self.note(Floor::TargetParked),
            Verdict::Right(..) | Verdict::Revoking | Verdict::Refused => {}
        }
        let Some((epoch, _)) = self.admit(self.copy, claim, Wish::Poll) else {
            return;
        };
        let violation = self.judge_lift(claim, epoch);
        let right = Claim { epoch, ..claim };
        let record = self.from.record;
        if !record.admits(right) && !self.model.lacks(Mutation::PollUnjudged) {
            return;
        }
        if epoch > record.fence && !self.model.lacks(Mutation::ReadUnfenced) {
            let op = DataOp::Fence {
                to: right,
                clean: false,
            };
            let queued = self.from.queue.contains(&Some(op));
            if let Some(room) = self.room().filter(|_| !queued) {
                let mut next = self.from;
                next.queue[room] = Some(op);
                self.push(Action::FenceForPoll(right), next, violation);
            }
            return;
        }
        if self.from.poll.is_none() {
            self.hold(claim, false, violation);
        }
    }

    /// Whether the deposed primary would serve a claim if it were asked to without a confirmation.
    fn deposed_serves(&self, claim: Claim, deposed: Deposed) -> bool {
        let copy = self.model.plane.copy(self.from.node, deposed.copy);
        let right = self.admit(copy, claim, Wish::Poll);
        right.is_some_and(|(epoch, _)| {
            deposed.record.admits(Claim { epoch, ..claim }) && epoch <= deposed.record.fence
        })
    }

    fn answer(&mut self) {
        let Some(poll) = self.from.poll else {
            return;
        };
        let mut next = self.from;
        next.poll = None;
        let claim = poll.claim;
        let (copy, record) = match self.from.deposed.filter(|_| poll.deposed) {
            Some(deposed) => {
                let copy = self.model.plane.copy(self.from.node, deposed.copy);
                (copy, deposed.record)
            }
            None => (self.copy, self.from.record),
        };
        let unjudged = self.model.lacks(Mutation::AnswerUnjudged);
        let right = match self.admit(copy, claim, Wish::Poll) {
            Some((epoch, _)) => Some(Claim { epoch, ..claim }),
            None => unjudged.then_some(claim),
        };
        let by_fence = |right: &Claim| {
            let held = right.epoch <= record.fence || self.model.lacks(Mutation::ReadUnfenced);
            let open = record.admits(*right) && held;
            open || unjudged || self.model.lacks(Mutation::PollUnjudged)
        };
        let Some(right) = right.filter(by_fence) else {
            self.note(Floor::AnswerRefused);
            return self.push(Action::Answer { served: false }, next, None);
        };
        let violation = self.judge_answer((poll, right), copy);
        self.serve(&mut next, (poll, right), (copy, record));
        let violation = violation.or_else(|| self.judge_start(poll));
        self.push(Action::Answer { served: true }, next, violation);
    }

    fn judge_answer(&self, (poll, right): (Poll, Claim), copy: &Node) -> Option<&'static str> {
        if poll.others > right.epoch {
            return Some(violation::SERVED_AFTER_GRANT);
        }
        if !poll.deposed && right.epoch < self.from.record.fence {
            return Some(violation::SERVED_BEHIND_FENCE);
        }
        let source = owner(&copy.view).filter(|_| moving(&copy.view).is_some());
        if source.is_some_and(|source| source.session == right.session) {
            return Some(violation::SOURCE_SERVED);
        }
        let granted = self.latest.grant(right.epoch);
        if granted.is_none_or(|granted| granted.session != right.session) {
            return Some(violation::SERVED_UNGRANTED);
        }
        None
    }

    /// Whether a poll is one that its session may still go on with, and how far it has processed then.
    fn processed(&self, poll: Poll) -> Option<Position> {
        let assigned = self.assigned(poll.claim.session)?;
        let named = self.told(poll.claim.session).grant(poll.claim.epoch)?;
        let same = named.session == poll.claim.session && named.held_since == assigned.held_since;
        same.then_some(self.from.client(poll.claim.session).processed)
    }

    /// Who begins an ownership begins where the fence has found the stored offset.
    fn judge_start(&self, poll: Poll) -> Option<&'static str> {
        let begins = self.processed(poll) == Some(NOTHING) && !poll.deposed;
        let moved = self.from.record.stored != self.from.raised_at;
        (begins && moved).then_some(violation::BEGINS_ELSEWHERE)
    }

    fn serve(
        &mut self,
        next: &mut State,
        (poll, right): (Poll, Claim),
        (copy, record): (&Node, Record),
    ) {
        if copy.op < self.latest.op && moving(&self.latest.view).is_some() && !poll.deposed {
            self.note(Floor::CopyBehind);
        }
        if poll.deposed {
            self.note(Floor::DeposedAnswers);
        }
        if right.epoch != poll.claim.epoch {
            self.note(Floor::Lifted);
        }
        let own = self.processed(poll);
        let from = own.filter(|it| *it != NOTHING).unwrap_or(record.stored);
        if from >= self.model.bounds.messages {
            return;
        }
        let to = from + 1;
        if own.is_some() {
            let client = next.client_mut(poll.claim.session);
            client.served = client.served.max(to);
        }
        let served_in = owner(&copy.view).map(|owner| {
            if self.model.lacks(Mutation::CancelForgetsPolls) {
                owner.epoch
            } else {
                owner.held_since
            }
        });
        if let Some(since) = served_in.filter(|_| !poll.deposed) {
            let memory = &mut next.memory;
            let before = if memory.since == since {
                memory.polled
            } else {
                0
            };
            (memory.since, memory.polled) = (since, before.max(to));
        }
    }

    /// Stores that are on their way: anything that a session has processed, under every epoch that it had
    /// there.
    fn store(&mut self, session: Session) {
        let Some(room) = self.room() else {
            return;
        };
        let client = *self.from.client(session);
        let told = self.told(session);
        let current = told.last_held(session);
        let mut claims = Vec::new();
        for granted in told.granted.iter().filter(|it| it.session == session) {
            let processed = if Some(granted.held_since) == current {
                client.processed
            } else {
                client.before
            };
            if processed != NOTHING {
                claims.extend((1..=processed).map(|stored| (granted.epoch, stored)));
            }
        }
        for (named, stored) in claims {
            let claim = Claim {
                session,
                epoch: named,
            };
            let Some((epoch, _)) = self.admit(self.copy, claim, Wish::Store) else {
                continue;
            };
            let violation = self.judge_lift(claim, epoch);
            if epoch != named {
                self.note(Floor::Lifted);
            }
            let mut next = self.from;
            next.queue[room] = Some(DataOp::Store {
                claim: Claim { epoch, ..claim },
                stored,
            });
            self.push(Action::Store { claim, stored }, next, violation);
        }
    }

    fn release(&mut self, session: Session) {
        let (planned, stored) = self.from.client(session).released;
        let Some(room) = self.room().filter(|_| planned > 0) else {
            return;
        };
        let plan = self.model.plane.copy(self.from.node, planned);
        let source = plan.grant_of_owner();
        let claim = Claim {
            session,
            epoch: source.epoch,
        };
        let Some((epoch, to)) = self.admit(self.copy, claim, Wish::Release(planned)) else {
            return;
        };
        if to.is_none() {
            self.note(Floor::ReleaseOfOldMove);
        }
        let mut next = self.from;
        let right = Claim { epoch, ..claim };
        next.queue[room] = match to {
            Some((epoch, session)) => Some(DataOp::Release {
                claim: right,
                stored,
                to: Claim { session, epoch },
            }),
            None if stored > 0 => Some(DataOp::Store {
                claim: right,
                stored,
            }),
            None => return,
        };
        let violation = self.judge_lift(claim, epoch);
        self.push(Action::Release(session), next, violation);
    }

    fn reconcile(&mut self) {
        let Some((to, epoch)) = moving(&self.copy.view) else {
            return self.resolve_start();
        };
        let record = self.from.record;
        if record.fence == epoch && record.holder == to {
            return self.tell(epoch);
        }
        if record.fence >= epoch {
            return self.note(Floor::PlanIsOld);
        }
        for timed_out in [false, true] {
            let Some(why) = hand_over(&self.copy.view, &self.progress(timed_out)) else {
                let source = owner(&self.copy.view);
                if source.is_some_and(|it| it.held_since <= self.from.memory.fence) {
                    self.note(Floor::PollsUnknown);
                }
                continue;
            };
            if timed_out && why != HandOver::TimedOut {
                continue;
            }
            let clean = match why {
                HandOver::Released | HandOver::Drained => true,
                HandOver::Fenced => self.from.clean,
                HandOver::TimedOut | HandOver::OwnerGone => false,
            };
            let to = Claim { session: to, epoch };
            let op = DataOp::Fence { to, clean };
            self.note_why(why);
            if self.model.lacks(Mutation::GrantUnfenced) {
                self.tell(epoch);
            }
            let queued = self.from.queue.contains(&Some(op));
            if let Some(room) = self.room().filter(|_| !queued) {
                let mut next = self.from;
                next.queue[room] = Some(op);
                self.push(Action::Fence { timed_out }, next, None);
            }
        }
    }

    /// What was granted at once is fenced before anybody polls, to resolve where the group starts.
    fn resolve_start(&mut self) {
        let Some(owner) = owner(&self.copy.view).filter(|_| self.from.record.fence == 0) else {
            return;
        };
        let Granted { session, epoch, .. } = owner;
        let to = Claim { session, epoch };
        let op = DataOp::Fence { to, clean: false };
        let queued = self.from.queue.contains(&Some(op));
        if let Some(room) = self.room().filter(|_| !queued) {
            let mut next = self.from;
            next.queue[room] = Some(op);
            self.push(Action::Fence { timed_out: false }, next, None);
        }
    }

    const fn note_why(&mut self, why: HandOver) {
        let floor = match why {
            HandOver::Drained => Floor::Drained,
            HandOver::TimedOut => Floor::TimedOut,
            HandOver::OwnerGone => Floor::OwnerGone,
            HandOver::Fenced => Floor::Fenced,
            HandOver::Released => return,
        };
        self.reached[floor.index()] += 1;
    }

    fn tell(&mut self, epoch: OpNumber) {
        if self.from.memory.fence >= epoch {
            self.note(Floor::FenceOfAnotherView);
        }
        let mut next = self.from;
        next.told |= 1 << epoch;
        if next.told != self.from.told {
            self.push(Action::Tell(epoch), next, None);
        }
    }

    /// What the reconciler knows, with the rules that are taken out.
    fn progress(&self, timed_out: bool) -> Progress {
        let State { memory, record, .. } = self.from;
        let owner = owner(&self.copy.view);
        let lacks = |mutation| self.model.lacks(mutation);
        let fence_at_view = match owner {
            _ if lacks(Mutation::DrainAssumed) => 0,
            Some(owner) if lacks(Mutation::DrainByEpoch) && memory.fence < owner.epoch => 0,
            Some(_) | None => memory.fence,
        };
        let served_in = owner.map(|owner| {
            if lacks(Mutation::CancelForgetsPolls) {
                owner.epoch
            } else {
                owner.held_since
            }
        });
        let known = served_in == Some(memory.since) && !lacks(Mutation::DrainUnstored);
        Progress {
            fence: Epoch(record.fence.into()),
            fence_at_view: Epoch(fence_at_view.into()),
            stored: offset(record.stored),
            last_polled: offset(if known { memory.polled } else { 0 }),
            released: false,
            timed_out,
        }
    }

    fn commit(&mut self) {
        let Some(op) = self.from.queue[0] else {
            return;
        };
        let mut next = self.from;
        next.queue = [next.queue[1], None];
        let violation = self.apply(&mut next, op);
        self.push(Action::Commit, next, violation);
    }

    fn change_view(&mut self) {
        if self.from.views == self.model.bounds.views {
            return;
        }
        let prepared = self.from.queue.iter().flatten().count();
        for kept in 0..=prepared {
            let mut begun = self.from;
            let mut violation = None;
            for (index, op) in self.from.queue.into_iter().flatten().enumerate() {
                let is_fence = matches!(op, DataOp::Fence { .. });
                if index < kept {
                    violation = violation.or(self.apply(&mut begun, op));
                }
                match (is_fence, index < kept) {
                    (true, true) => self.note(Floor::FenceInherited),
                    (true, false) => self.note(Floor::FenceLost),
                    (false, _) => {}
                }
            }
            begun.queue = [None; 2];
            begun.views += 1;
            begun.memory = Memory {
                fence: begun.record.fence,
                ..Memory::default()
            };
            begun.deposed = Some(Deposed {
                copy: self.from.copy,
                record: self.from.record,
            });
            // Polls at the primary that is deposed stay there; those at the one that leads now are over.
            begun.poll = self.from.poll.filter(|poll| !poll.deposed);
            let asked = |deposed| {
                let mut claims = self.claims().into_iter();
                claims.any(|claim| self.deposed_serves(claim, deposed))
            };
            if begun.deposed.is_some_and(asked) {
                self.note(Floor::DeposedAsked);
            }
            if let Some(poll) = &mut begun.poll {
                poll.deposed = true;
            }
            for copy in super::metadata::FIRST..=self.latest.op {
                let next = State { copy, ..begun };
                let kept = u8::try_from(kept).expect("two ops at the most");
                self.push(Action::ViewChange { kept, copy }, next, violation);
            }
        }
    }

    /// Applies a committed op of the data group.
    fn apply(&mut self, state: &mut State, op: DataOp) -> Option<&'static str> {
        let before = state.record;
        let violation = match op {
            DataOp::Fence { to, clean } => self.raise(state, to, clean),
            DataOp::Store { claim, stored } => self
                .apply_store(state, (claim, stored), Floor::StoreRefused)
                .unwrap_or(None),
            DataOp::Release { claim, stored, to } => {
                let store = (claim, stored);
                match self.apply_store(state, store, Floor::ReleaseRefused) {
                    Some(Some(violation)) => Some(violation),
                    None if !self.model.lacks(Mutation::ReleaseUnaccepted) => None,
                    Some(None) | None => {
                        self.note(Floor::Released);
                        self.raise(state, to, true)
                    }
                }
            }
        };
        assert!(self.model.mutation.is_some() || state.record == before.after(op));
        let falls = state.record.fence < before.fence || state.record.stored < before.stored;
        violation.or(falls.then_some(violation::FALLS))
    }

    fn raise(&self, state: &mut State, to: Claim, clean: bool) -> Option<&'static str> {
        if !state.record.raise(to) {
            return None;
        }
        (state.clean, state.raised_at) = (clean, state.record.stored);
        let given = self.latest.given.contains(&(to.epoch, to.session));
        (!given).then_some(violation::RAISED_UNPLANNED)
    }

    /// None: refused. Else what is wrong with it.
    #[expect(
        clippy::option_option,
        reason = "refused, accepted, and accepted wrongly"
    )]
    fn apply_store(
        &mut self,
        state: &mut State,
        (claim, stored): (Claim, Position),
        refused: Floor,
    ) -> Option<Option<&'static str>> {
        let record = state.record;
        if !record.admits(claim) && !self.model.lacks(Mutation::StoreUnjudged) {
            self.note(refused);
            return None;
        }
        let mut violation = self.raise(state, claim, false);
        if claim.epoch < record.fence {
            violation = Some(violation::STORED_BEHIND_FENCE);
        }
        if stored > 0 && (stored > record.stored || self.model.lacks(Mutation::StoreLowers)) {
            state.record.stored = stored;
        }
        Some(violation)
    }

    /// Nothing gets stuck: from here the reconciler alone, with time and without faults, ends the move; and
    /// where nothing moves, the owner is not fenced.
    pub(crate) fn converges(&mut self) -> bool {
        let mut state = self.from;
        for op in self.from.queue.into_iter().flatten() {
            self.apply(&mut state, op);
        }
        let node = self.latest;
        let Some((to, epoch)) = moving(&node.view) else {
            let owner = owner(&node.view);
            return owner.is_none_or(|owner| {
                let Granted { epoch, session, .. } = owner;
                state.record.admits(Claim { session, epoch })
            });
        };
        if state.record.fence < epoch {
            let progress = Progress {
                fence: Epoch(state.record.fence.into()),
                timed_out: true,
                ..Progress::default()
            };
            if hand_over(&node.view, &progress).is_none() {
                return false;
            }
            self.raise(&mut state, Claim { session: to, epoch }, false);
        }
        let target = node.view.moving().and_then(|moving| moving.to);
        let target = target.map(|target| session_of(target.session));
        state.record.fence == epoch && target == Some(state.record.holder)
    }
}
