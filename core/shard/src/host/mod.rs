//! The consensus groups that live on this shard: a replica and the state machine that it feeds.

mod checkpoint;
mod contention;
mod data;
mod group_work;
mod metadata;
mod operation;
mod password;

use alloc::{
    collections::{BTreeMap, VecDeque},
    format,
};

use vsr::{Prepare, Refusal, Replica, Status, Token};
use wire::{
    ClientId, ConsensusGroup, ErrorCode, Failure, GroupPrimary, Op, ReplicaId, SessionNumber,
};

use crate::{
    Answer, Effect, Note, Output, desk::Desk, forward::ReadId, poll::PollId, transfer::Restored,
};

pub(crate) use checkpoint::Checkpoints;
pub(crate) use data::{DataHost, Waiter};
pub(crate) use metadata::{MetadataHost, Settings};

/// This node's part in one consensus group, without the state machine.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) group: ConsensusGroup,
    pub(crate) replica: Replica,
    tokens: u64,
    pub(crate) confirmations: Confirmations,
    /// The op of the newest snapshot on the disk.
    pub(crate) snapshot: Op,
    /// The last op that the journal held at the start.
    pub(crate) found: Op,
    /// The state of a checkpoint that is handed to the replica: it takes its place if that takes it.
    pub(crate) restored: Option<Restored>,
}

/// What waits until it is certain that this node leads a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    /// A poll that is about to be answered.
    Poll(PollId),
    /// Work that is about to be done.
    Work(ReadId),
}

/// It is certain, or it is not so.
pub(crate) type Confirmed = (Asker, ConsensusGroup, Result<(), Failure>);

/// Asks the replica whether it still leads, and keeps the answers.
#[derive(Debug)]
pub(crate) struct Confirmations {
    asked: BTreeMap<Token, Asker>,
    done: VecDeque<Confirmed>,
}

impl Confirmations {
    const fn new() -> Self {
        Self {
            asked: BTreeMap::new(),
            done: VecDeque::new(),
        }
    }

    /// The replica has answered this, if it was asked.
    pub(crate) fn answer(
        &mut self,
        group: ConsensusGroup,
        token: Token,
        outcome: Result<(), Failure>,
    ) {
        if let Some(asker) = self.asked.remove(&token) {
            self.done.push_back((asker, group, outcome));
        }
    }

    /// The answers that have come.
    pub(crate) fn take(&mut self) -> VecDeque<Confirmed> {
        core::mem::take(&mut self.done)
    }
}

/// What a replica asks of its state machine's host.
#[derive(Debug)]
pub(crate) enum Event {
    Apply {
        prepare: Prepare,
        token: Option<Token>,
    },
    Reply {
        token: Token,
        op: Op,
        body: bytes::Bytes,
    },
    Refuse {
        token: Token,
        reason: Refusal,
    },
    Evict {
        client: ClientId,
        session: SessionNumber,
    },
    /// The state is the one that was fetched.
    ReplaceState {
        op: Op,
    },
    StatusChanged,
}

impl Member {
    pub(crate) const fn new(group: ConsensusGroup, replica: Replica) -> Self {
        Self {
            group,
            replica,
            tokens: 0,
            confirmations: Confirmations::new(),
            snapshot: Op(0),
            found: Op(0),
            restored: None,
        }
    }

    pub(crate) const fn next_token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Asks whether this node still leads the group: a deposed primary must not tell what its successor has
    /// changed.
    pub(crate) fn confirm(&mut self, desk: &Desk, asker: Asker) {
        let token = self.next_token();
        self.confirmations.asked.insert(token, asker);
        self.handle(desk, vsr::Input::ConfirmView { token });
    }

    pub(crate) fn handle(&mut self, desk: &Desk, input: vsr::Input) {
        self.replica.handle(desk.now, input);
    }

    /// The next thing that the host has to see to; what concerns journal and network is laid down.
    pub(crate) fn next_event(&mut self, desk: &mut Desk) -> Option<Event> {
        while let Some(effect) = self.replica.next_effect() {
            match effect {
                vsr::Effect::Send { to, message } => desk.send(to, self.group, message),
                vsr::Effect::WritePrepare(prepare) => desk.journal_prepare(self.group, prepare),
                vsr::Effect::WriteSuperblock(superblock) => {
                    desk.journal_superblock(self.group, &superblock);
                }
                vsr::Effect::ReadPrepare { op, checksum, to } => {
                    desk.push(Effect::ReadPrepare {
                        group: self.group,
                        op,
                        checksum,
                        to,
                    });
                }
                vsr::Effect::Note(note) => desk.note(Note::Replica {
                    group: self.group,
                    note,
                }),
                vsr::Effect::Apply { prepare, token } => {
                    return Some(Event::Apply { prepare, token });
                }
                vsr::Effect::Reply { token, op, body } => {
                    return Some(Event::Reply { token, op, body });
                }
                vsr::Effect::Refuse { token, reason }
                    if self.confirmations.asked.contains_key(&token) =>
                {
                    let failure = self.refusal(reason);
                    self.confirmations.answer(self.group, token, Err(failure));
                }
                vsr::Effect::Refuse { token, reason } => {
                    return Some(Event::Refuse { token, reason });
                }
                vsr::Effect::Evict { client, session } => {
                    return Some(Event::Evict { client, session });
                }
                vsr::Effect::ViewConfirmed { token } => {
                    self.confirmations.answer(self.group, token, Ok(()));
                }
                vsr::Effect::FetchCheckpoint { at_least, from } => {
                    desk.fetches.push((self.group, at_least, from));
                }
                vsr::Effect::ReplaceState { op } => return Some(Event::ReplaceState { op }),
                vsr::Effect::StatusChanged => return Some(Event::StatusChanged),
            }
        }
        None
    }

    /// Whether the group takes requests here.
    pub(crate) fn serves(&self) -> bool {
        self.replica.is_serving()
    }

    /// Whether it serves, or follows the one that does, or will not before something from outside happens.
    pub(crate) fn is_settled(&self) -> bool {
        self.serves() || self.follows().is_some() || self.is_out_of_service()
    }

    /// Who leads the group, where that is another node as far as is known here.
    pub(crate) fn follows(&self) -> Option<ReplicaId> {
        let is_backup = self.replica.status() == Status::Normal && !self.replica.is_primary();
        is_backup.then(|| self.replica.primary())
    }

    /// Whether it is in a view that this node leads, though it may take no requests.
    pub(crate) fn leads(&self) -> bool {
        self.replica.status() == Status::Normal && self.replica.is_primary()
    }

    /// Whether it takes no part until somebody repairs its disk.
    pub(crate) const fn is_out_of_service(&self) -> bool {
        matches!(self.replica.status(), Status::OutOfService(_))
    }

    /// Whether its state can be stored as a checkpoint. In between two views, too: those whom a new primary needs
    /// may need a newer checkpoint of it first.
    pub(crate) fn may_checkpoint(&self) -> bool {
        self.is_settled() || matches!(self.replica.status(), Status::Normal | Status::ViewChange)
    }

    /// Whether the state may be older than what is on the disk: where the newest checkpoint was lost, it begins with
    /// an older one, some of whose segments were deleted since.
    pub(crate) fn is_behind_its_disk(&self) -> bool {
        let found = self.found.min(self.replica.op());
        self.replica.lost_checkpoint().is_some()
            || !self.is_settled()
            || self.replica.commit_min() < found
    }

    /// Whether the state is behind the disk and on its way: a group that is out of service stays there.
    pub(crate) fn catches_up(&self) -> bool {
        self.is_behind_its_disk() && !self.is_out_of_service()
    }

    /// Whether ops were applied since the last checkpoint.
    pub(crate) const fn has_new_ops(&self) -> bool {
        self.replica.commit_min().0 > self.replica.checkpoint_op().0
    }

    /// What is answered while it does not.
    pub(crate) fn why_not_serving(&self) -> Refusal {
        match self.replica.status() {
            Status::OutOfService(why) => Refusal::OutOfService(why),
            Status::Normal if !self.replica.is_primary() => Refusal::NotPrimary {
                primary: self.replica.primary(),
            },
            Status::Normal
            | Status::Recovering
            | Status::ViewChange
            | Status::RecoveringHead
            | Status::StateTransfer => Refusal::NotReady,
        }
    }

    pub(crate) fn primary(&self) -> GroupPrimary {
        GroupPrimary {
            group: self.group,
            view: self.replica.view(),
            primary: self.replica.primary(),
        }
    }

    pub(crate) fn answer(&self, op: Op, outcome: Result<Output, Failure>) -> Answer {
        Answer {
            outcome,
            op,
            primary: self.primary(),
        }
    }

    pub(crate) fn refusal(&self, reason: Refusal) -> Failure {
        let group = self.group;
        let (code, text) = match reason {
            Refusal::NotPrimary { primary } => (
                ErrorCode::NotPrimary,
                format!("node {primary} leads consensus group {group}"),
            ),
            Refusal::NotReady => (
                ErrorCode::NotReady,
                format!("consensus group {group} has no primary at this moment"),
            ),
            Refusal::OutOfService(why) => (
                ErrorCode::OutOfService,
                format!("consensus group {group} is out of service on this node: {why}"),
            ),
            Refusal::Busy => (
                ErrorCode::Busy,
                format!("consensus group {group} has as much in flight as it takes"),
            ),
            Refusal::NoSession => (
                ErrorCode::SessionNotFound,
                "the session has ended, or never was".into(),
            ),
            Refusal::Stale => (
                ErrorCode::StaleRequest,
                "the request number is below the last one of the session".into(),
            ),
            Refusal::ReplyNotKept { op } => (
                ErrorCode::StaleRequest,
                format!("the request was executed as op {op}; its answer is no longer kept"),
            ),
            Refusal::InFlight => (
                ErrorCode::RequestInFlight,
                "another metadata request of the session has no answer yet".into(),
            ),
            Refusal::Superseded => (
                ErrorCode::Retry,
                "the request was sent again; the later one is answered".into(),
            ),
            Refusal::Unknown => (
                ErrorCode::OutcomeUnknown,
                format!("the view of consensus group {group} changed before the op was committed"),
            ),
        };
        Failure::new(code, text)
    }
}
