//! What may happen in a state: the metadata plane, the copies of it, the consumers.

use core::fmt;

use super::{
    data,
    machine::{Claim, DataOp, Position},
    metadata::{Assigned, Command, Node, OpNumber, Plane, SESSIONS, Session, moving},
    mutation::{Floor, Mutation, violation},
    state::{NOTHING, State},
};

/// A step from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A join or leave is committed in the metadata group.
    Plan(Command),
    /// A completion is committed there that a primary has told.
    Complete(OpNumber),
    /// The current primary applies one metadata op more, or the deposed one does.
    Follow { deposed: bool },
    /// A consumer syncs and is told the state after this op.
    Sync(Session, OpNumber),
    /// A poll arrives and is held.
    Poll { claim: Claim, deposed: bool },
    /// A poll arrives; a fence has to be committed before it is served.
    FenceForPoll(Claim),
    /// The poll that is held is answered, or refused.
    Answer { served: bool },
    /// A consumer has the answer and has processed the message.
    Process(Session),
    /// A store arrives and is prepared.
    Store { claim: Claim, stored: Position },
    /// A consumer releases the partition.
    SendRelease(Session),
    /// Its release arrives and is prepared.
    Release(Session),
    /// The reconciler proposes the fence of the move that it sees.
    Fence { timed_out: bool },
    /// The reconciler tells that the move that it sees is complete.
    Tell(OpNumber),
    /// The first op that is prepared in the data group is committed.
    Commit,
    /// The other replica leads the data group, with so many of the ops that were prepared, and with this
    /// copy of the metadata.
    ViewChange { kept: u8, copy: OpNumber },
}

/// As it is written in a trace.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |session: Session| ["nobody", "A", "B", "C"][usize::from(session)];
        match *self {
            Self::Plan(Command::Join(session)) => write!(f, "{} joins", name(session)),
            Self::Plan(Command::Leave(session)) => write!(f, "{} leaves", name(session)),
            Self::Plan(Command::Complete) => write!(f, "the move is complete"),
            Self::Complete(epoch) => write!(f, "the completion of {epoch} is committed"),
            Self::Follow { deposed: false } => write!(f, "the primary applies a metadata op"),
            Self::Follow { deposed: true } => write!(f, "the deposed primary applies one"),
            Self::Sync(session, op) => write!(f, "{} syncs, as of op {op}", name(session)),
            Self::Poll { claim, deposed } => {
                let (who, at) = (name(claim.session), ["", " at the deposed primary"]);
                let at = at[usize::from(deposed)];
                write!(f, "{who} polls under {}{at}", claim.epoch)
            }
            Self::FenceForPoll(Claim { session, epoch }) => {
                write!(f, "{} polls, which prepares fence {epoch}", name(session))
            }
            Self::Answer { served: true } => write!(f, "the poll is served"),
            Self::Answer { served: false } => write!(f, "the poll is refused"),
            Self::Process(session) => write!(f, "{} processes what it has", name(session)),
            Self::Store { claim, stored } => {
                let Claim { session, epoch } = claim;
                write!(
                    f,
                    "{} stores {stored} under {epoch}: prepared",
                    name(session)
                )
            }
            Self::SendRelease(session) => write!(f, "{} sends its release", name(session)),
            Self::Release(session) => write!(f, "{}'s release is prepared", name(session)),
            Self::Fence { timed_out: false } => write!(f, "the reconciler prepares the fence"),
            Self::Fence { timed_out: true } => write!(f, "time is over: it prepares the fence"),
            Self::Tell(epoch) => write!(f, "it tells that the move to {epoch} is complete"),
            Self::Commit => write!(f, "the data group commits"),
            Self::ViewChange { kept, copy } => {
                write!(
                    f,
                    "view change: {kept} prepared ops live, metadata as of {copy}"
                )
            }
        }
    }
}

pub(crate) struct Successor {
    pub(crate) action: Action,
    pub(crate) state: State,
    pub(crate) violation: Option<&'static str>,
}

/// The rules, perhaps without one of them.
pub(crate) struct Model<'a> {
    pub(crate) plane: &'a Plane,
    pub(crate) mutation: Option<Mutation>,
    /// Violations that are let pass, to see what comes of them.
    pub(crate) ignored: &'a [&'static str],
    pub(crate) bounds: Bounds,
}

/// How large a model is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// View changes of the data group.
    pub(crate) views: u8,
    /// Ops of the data group that are prepared at once; two at the most.
    pub(crate) prepared: usize,
    /// Messages of the partition, all there from the beginning; two at the most.
    pub(crate) messages: Position,
}

impl Model<'_> {
    pub(crate) fn lacks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) fn minds(&self, violation: &str) -> bool {
        !self.ignored.contains(&violation)
    }
}

/// All steps out of one state.
pub(crate) struct Steps<'a> {
    pub(crate) model: &'a Model<'a>,
    pub(crate) from: State,
    /// The newest metadata.
    pub(crate) latest: &'a Node,
    /// The current primary's copy of it.
    pub(crate) copy: &'a Node,
    pub(crate) successors: &'a mut Vec<Successor>,
    pub(crate) reached: &'a mut [u64; Floor::ALL.len()],
}

impl Steps<'_> {
    pub(crate) fn all(&mut self) {
        self.plan();
        self.complete();
        self.follow();
        for session in SESSIONS {
            self.sync(session);
            self.process(session);
            self.send_release(session);
        }
        data::steps(self);
    }

    pub(crate) fn note(&mut self, floor: Floor) {
        self.reached[floor.index()] += 1;
    }

    pub(crate) fn push(
        &mut self,
        action: Action,
        mut state: State,
        violation: Option<&'static str>,
    ) {
        self.settle(&mut state);
        self.successors.push(Successor {
            action,
            state,
            violation,
        });
    }

    /// Forgets what makes no difference any more, so that fewer states are told apart.
    fn settle(&mut self, state: &mut State) {
        let model = self.model;
        let latest = model.plane.node(state.node);
        if !model.lacks(Mutation::CompletionUnnamed) && state.told > 0 {
            let moving = moving(&latest.view);
            state.told &= moving.map_or(0, |(_, epoch)| 1 << epoch);
        }
        let polls_matter = model.lacks(Mutation::DrainAssumed)
            || model.lacks(Mutation::DrainByEpoch)
            || model.lacks(Mutation::CancelForgetsPolls)
            || state.memory.since > state.memory.fence;
        if !polls_matter {
            (state.memory.since, state.memory.polled) = (0, 0);
        }
        let is_asked = model.lacks(Mutation::PollUnconfirmed);
        if !is_asked && state.poll.is_none_or(|poll| !poll.deposed) {
            state.deposed = None;
        }
        let late_matters = [
            Mutation::StoreUnjudged,
            Mutation::LiftAcross,
            Mutation::ReleaseUnaccepted,
        ];
        if !late_matters.into_iter().any(|it| model.lacks(it)) {
            self.forget_refused(state);
            for session in SESSIONS {
                self.forget_late(state, latest, session);
            }
        }
    }

    /// What is prepared and will be refused is as good as refused: the fence does not fall.
    fn forget_refused(&mut self, state: &mut State) {
        let fence = state.record.fence;
        for op in &mut state.queue {
            match op {
                Some(DataOp::Store { claim, .. }) if claim.epoch < fence => {
                    self.reached[Floor::StoreRefused.index()] += 1;
                    *op = None;
                }
                Some(DataOp::Release { claim, .. }) if claim.epoch < fence => {
                    self.reached[Floor::ReleaseRefused.index()] += 1;
                    *op = None;
                }
                Some(DataOp::Fence { to, .. }) if to.epoch <= fence => *op = None,
                Some(_) | None => {}
            }
        }
        if state.queue[0].is_none() {
            state.queue.swap(0, 1);
        }
    }

    /// Forgets what a session may still send of ownerships that are over and fenced.
    fn forget_late(&self, state: &mut State, latest: &Node, session: Session) {
        let fence = state.record.fence;
        let is_over = |held_since| {
            let owner = super::metadata::owner(&latest.view);
            let own = latest.granted.iter();
            owner.is_none_or(|owner| owner.session != session || owner.held_since != held_since)
                && own
                    .filter(|it| it.session == session && it.held_since == held_since)
                    .all(|it| it.epoch < fence)
        };
        let plane = self.model.plane;
        let client = *state.client(session);
        let told = plane.copy(state.node, client.told);
        let assigned = told.assigned[usize::from(session)];
        let (last, before) = told.last_two_held(session);
        if client.before != NOTHING && before.is_none_or(is_over) {
            state.client_mut(session).before = NOTHING;
        }
        if assigned.is_none() && client.processed != NOTHING && last.is_none_or(is_over) {
            state.client_mut(session).processed = NOTHING;
        }
        if assigned.is_none() {
            state.client_mut(session).served = 0;
        }
        let (planned, _) = client.released;
        if planned > 0 {
            let source = plane.copy(state.node, planned).grant_of_owner();
            let matters = assigned.is_some_and(|it| it.epoch == source.epoch);
            if !matters && is_over(source.held_since) {
                state.client_mut(session).released = (0, 0);
            }
        }
    }

    fn plan(&mut self) {
        for (command, child) in &self.latest.children {
            if *command == Command::Complete {
                continue;
            }
            let mut next = self.from;
            next.node = *child;
            let after = self.model.plane.node(*child);
            let raised =
                moving(&self.latest.view).is_some_and(|(_, epoch)| self.from.record.fence == epoch);
            if raised && self.latest.view.owner().is_some() && after.view.moving().is_none() {
                self.note(Floor::CancelledAfterFence);
            }
            let told = moving(&after.view).map_or(0, |(_, epoch)| 1 << epoch);
            if self.from.told & !told > 0 {
                self.note(Floor::CompletionLate);
            }
            self.push(Action::Plan(*command), next, None);
        }
    }

    fn complete(&mut self) {
        let planned = moving(&self.latest.view);
        let told = self.from.told;
        for epoch in (0..16).filter(|epoch| told & (1 << epoch) > 0) {
            let unnamed = self.model.lacks(Mutation::CompletionUnnamed);
            let Some((_, to)) = planned.filter(|(_, to)| unnamed || *to == epoch) else {
                continue;
            };
            let Some(child) = self.latest.children.get(&Command::Complete) else {
                continue;
            };
            let mut next = self.from;
            next.node = *child;
            let violation = self.judge_grant(to);
            self.push(Action::Complete(epoch), next, violation);
        }
    }

    /// What holds when the move to `epoch` is complete.
    fn judge_grant(&mut self, epoch: OpNumber) -> Option<&'static str> {
        let State {
            record,
            clean,
            raised_at,
            ..
        } = self.from;
        if record.fence < epoch {
            return Some(violation::GRANT_UNFENCED);
        }
        if record.fence > epoch || !clean {
            return None;
        }
        self.note(Floor::GrantedClean);
        let (source, held_since) = self.source(epoch)?;
        let client = self.from.client(source);
        let told = self.told(source);
        let same = told.last_held(source) == Some(held_since);
        let beyond = client.processed != NOTHING && client.processed > raised_at;
        (same && beyond).then_some(violation::REPEATED)
    }

    /// From whom a move was planned, and since when it owned the partition.
    fn source(&self, epoch: OpNumber) -> Option<(Session, OpNumber)> {
        let planned = self.model.plane.copy(self.from.node, epoch);
        let owner = super::metadata::owner(&planned.view)?;
        (owner.epoch < epoch).then_some((owner.session, owner.held_since))
    }

    fn follow(&mut self) {
        if self.from.copy < self.latest.op {
            let mut next = self.from;
            next.copy += 1;
            self.push(Action::Follow { deposed: false }, next, None);
        }
        let mut next = self.from;
        if let Some(deposed) = &mut next.deposed
            && deposed.copy < self.latest.op
        {
            deposed.copy += 1;
            self.push(Action::Follow { deposed: true }, next, None);
        }
    }

    /// The metadata as a session was told it last.
    pub(crate) fn told(&self, session: Session) -> &Node {
        let told = self.from.client(session).told;
        self.model.plane.copy(self.from.node, told)
    }

    pub(crate) fn assigned(&self, session: Session) -> Option<Assigned> {
        self.told(session).assigned[usize::from(session)]
    }

    /// Whether a client has released what it was told that it owns.
    pub(crate) fn has_released(&self, session: Session, assigned: Assigned) -> bool {
        let (planned, _) = self.from.client(session).released;
        planned > 0 && {
            let plan = self.model.plane.copy(self.from.node, planned);
            plan.view.epoch.0 == u64::from(assigned.epoch)
        }
    }

    fn sync(&mut self, session: Session) {
        let plane = self.model.plane;
        let before = self.from.client(session).told;
        let node = self.from.node;
        let held = |op| plane.copy(node, op).ownerships(session);
        for op in before + 1..=self.latest.op {
            if !plane.copy(self.from.node, op).is_news(session) {
                continue;
            }
            let mut next = self.from;
            let client = next.client_mut(session);
            client.told = op;
            let begun = held(op) - held(before);
            if begun > 0 {
                client.before = if begun == 1 {
                    client.processed
                } else {
                    NOTHING
                };
                client.processed = NOTHING;
                client.served = 0;
            }
            self.push(Action::Sync(session, op), next, None);
        }
    }

    fn process(&mut self, session: Session) {
        let Some(assigned) = self.assigned(session) else {
            return;
        };
        let client = self.from.client(session);
        let processed = client.processed;
        let waits = client.served > 0 && (processed == NOTHING || client.served > processed);
        let drops =
            self.has_released(session, assigned) && !self.model.lacks(Mutation::ReleaseNotDropped);
        if !waits || drops {
            return;
        }
        let mut next = self.from;
        let served = client.served;
        next.client_mut(session).processed = served;
        let violation = self.judge_processed(session, (assigned.held_since, served));
        self.push(Action::Process(session), next, violation);
    }

    /// After a clean hand-over that is complete, its source processes nothing that the target begins with.
    fn judge_processed(
        &self,
        session: Session,
        (held_since, processed): (OpNumber, u8),
    ) -> Option<&'static str> {
        let State {
            record,
            clean,
            raised_at,
            ..
        } = self.from;
        let granted = clean && self.latest.grant(record.fence).is_some();
        let own = granted && self.source(record.fence) == Some((session, held_since));
        (own && processed > raised_at).then_some(violation::REPEATED)
    }

    fn send_release(&mut self, session: Session) {
        let Some(planned) = self.assigned(session).and_then(|it| it.planned) else {
            return;
        };
        let client = self.from.client(session);
        let processed = match client.processed {
            NOTHING => 0,
            processed => processed,
        };
        if client.released == (planned, processed) {
            return;
        }
        let mut next = self.from;
        next.client_mut(session).released = (planned, processed);
        self.push(Action::SendRelease(session), next, None);
    }
}
