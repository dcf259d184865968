//! Members of consumer groups, and who waits for their messages.

use std::{collections::BTreeMap, sync::Arc, task::Context, time::Duration};

use client::{
    GroupConsumer, GroupEffect, GroupEvent, GroupInput, HeldPartition, LossReason, Route,
};
use tokio::sync::{broadcast, oneshot};
use wire::{ConsumerGroupId, ErrorCode, MemberId, Offset, PartitionId, Time};

use super::{
    Core, MachineId, Owner, Shared,
    inbox::{EVENTS_MAX, Inbox, Next},
};
use crate::Error;

/// How long the leave of a consumer that was dropped is tried, as long as the client lives.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct MemberEntry {
    machine: GroupConsumer,
    pub(super) deadline: Option<u64>,
    /// Not told yet to who asks for messages.
    inbox: Inbox<GroupEvent>,
    /// Tells whoever listens at once.
    listeners: broadcast::Sender<GroupEvent>,
    /// Who waits for the membership.
    joined: Option<oneshot::Sender<Result<(), Error>>>,
    /// Who waits until everything is stored.
    stored: Vec<oneshot::Sender<Settled>>,
    /// Who waits until the group is left.
    ended: Option<oneshot::Sender<Settled>>,
    /// What was processed and is not known to be stored, since somebody waited for it last.
    unstored: BTreeMap<PartitionId, Unstored>,
    /// Why the consumer cannot go on.
    failed: Option<Error>,
    /// The connection that its requests take, modulo the number of connections.
    lane: u16,
}

/// What has come of storing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// Why the consumer cannot go on.
    pub(crate) failed: Option<Error>,
    /// What is not known to be stored, at most one of a partition.
    pub(crate) unstored: Vec<Unstored>,
}

/// What was processed and is not known to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Unstored {
    pub(crate) partition: PartitionId,
    pub(crate) offset: Offset,
    /// Why, for programs.
    pub(crate) code: ErrorCode,
    /// Why, for people.
    pub(crate) text: String,
}

/// How a member ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It leaves the group.
    Leave,
    /// Its membership stays, for whoever takes it over.
    Detach,
}

impl MemberEntry {
    pub(crate) fn new(
        machine: GroupConsumer,
        joined: oneshot::Sender<Result<(), Error>>,
        lane: u16,
    ) -> Self {
        let deadline = machine.deadline();
        let (listeners, _) = broadcast::channel(EVENTS_MAX);
        Self {
            machine,
            deadline,
            inbox: Inbox::new(),
            listeners,
            joined: Some(joined),
            stored: Vec::new(),
            ended: None,
            unstored: BTreeMap::new(),
            failed: None,
            lane,
        }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<GroupEvent> {
        self.listeners.subscribe()
    }

    pub(crate) fn membership(&self) -> Option<(ConsumerGroupId, MemberId)> {
        self.machine.membership()
    }

    pub(crate) fn partitions(&self) -> Vec<HeldPartition> {
        self.machine.partitions().collect()
    }

    fn on_event(&mut self, event: GroupEvent) {
        match &event {
            GroupEvent::Joined { .. } => {
                if let Some(sender) = self.joined.take() {
                    let _nobody_waits = sender.send(Ok(()));
                }
            }
            GroupEvent::Lost {
                partition,
                reason,
                unstored: Some(offset),
                ..
            } => self.note_unstored(*partition, *offset, (code_of(reason), reason.to_string())),
            GroupEvent::StoreRefused {
                partition,
                offset,
                failure,
            } => self.note_unstored(*partition, *offset, (failure.code, failure.text.clone())),
            GroupEvent::Failed(error) => {
                self.failed = Some(error.clone().into());
            }
            GroupEvent::Lost { .. }
            | GroupEvent::Assigned { .. }
            | GroupEvent::Revoking { .. }
            | GroupEvent::Retained { .. }
            | GroupEvent::Revoked { .. }
            | GroupEvent::Stalled { .. }
            | GroupEvent::Skipped { .. }
            | GroupEvent::Retrying { .. }
            | GroupEvent::PartitionFailed { .. } => {}
        }
        let _nobody_listens = self.listeners.send(event.clone());
        self.inbox.push(event);
    }

    fn note_unstored(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        (code, text): (ErrorCode, String),
    ) {
        let unstored = Unstored {
            partition,
            offset,
            code,
            text,
        };
        self.unstored.insert(partition, unstored);
    }

    /// Tells who waits for what has come about.
    fn settle(&mut self) {
        if let Some(error) = &self.failed
            && let Some(sender) = self.joined.take()
        {
            let _nobody_waits = sender.send(Err(error.clone()));
        }
        let over = self.machine.is_ended();
        if !self.stored.is_empty() && (over || self.machine.is_stored()) {
            let settled = self.take_settled();
            for sender in self.stored.drain(..) {
                let _nobody_waits = sender.send(settled.clone());
            }
        }
        if over && let Some(sender) = self.ended.take() {
            let _nobody_waits = sender.send(self.take_settled());
        }
        self.inbox.wake_if(self.machine.has_message() || over);
    }

    /// What has come of storing so far.
    pub(crate) fn take_settled(&mut self) -> Settled {
        Settled {
            failed: self.failed.clone(),
            unstored: std::mem::take(&mut self.unstored).into_values().collect(),
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn abandon(&mut self) {
        self.failed.get_or_insert(Error::Closed);
        if let Some(sender) = self.joined.take() {
            let _nobody_waits = sender.send(Err(Error::Closed));
        }
        // Who waits for these learns it from their end.
        self.ended = None;
        self.stored.clear();
        self.inbox.wake_if(true);
    }
}

/// Why what was processed of a partition that is lost is not stored.
const fn code_of(reason: &LossReason) -> ErrorCode {
    match reason {
        LossReason::Fenced(failure) | LossReason::MembershipEnded(failure) => failure.code,
        LossReason::SessionLost => ErrorCode::SessionNotFound,
        LossReason::Reassigned => ErrorCode::PartitionNotOwned,
        LossReason::Left | LossReason::Detached | LossReason::Failed => {
            ErrorCode::ConsumerGroupMemberNotFound
        }
    }
}

impl Core {
    /// The next message or event of a member; asking says that the message before is processed.
    pub(crate) fn next_of_group(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        context: &Context<'_>,
    ) -> Next<GroupEvent> {
        let Some(entry) = self.members.get_mut(&id) else {
            return Next::End;
        };
        if let Some(event) = entry.inbox.pop() {
            return Next::Event(event);
        }
        if self.stopped {
            return Next::End;
        }
        let now = shared.now();
        let delivery = entry.machine.next_message(now);
        if delivery.is_none() {
            entry.inbox.wait(context);
        }
        self.after_member(now, id);
        self.pump(shared, now);
        let Some(entry) = self.members.get_mut(&id) else {
            return Next::End;
        };
        entry.inbox.next(delivery, entry.machine.is_ended())
    }

    /// Changes a member and carries out what comes of it.
    pub(crate) fn with_member<T>(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        change: impl FnOnce(&mut GroupConsumer, Time) -> T,
    ) -> Option<T> {
        let now = shared.now();
        let entry = self.members.get_mut(&id)?;
        let result = change(&mut entry.machine, now);
        self.after_member(now, id);
        self.pump(shared, now);
        Some(result)
    }

    /// Stores all that is processed; the receiver is told when that is done.
    pub(crate) fn store_of_group(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
    ) -> Option<oneshot::Receiver<Settled>> {
        let (sender, receiver) = oneshot::channel();
        self.members.get_mut(&id)?.stored.push(sender);
        self.with_member(shared, id, |member, now| {
            member.handle(now, GroupInput::Flush);
        })?;
        Some(receiver)
    }

    /// Ends a member; the receiver is told when that is done.
    pub(crate) fn end_member(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        (end, timeout): (End, Duration),
    ) -> Option<oneshot::Receiver<Settled>> {
        let (sender, receiver) = oneshot::channel();
        self.members.get_mut(&id)?.ended = Some(sender);
        self.keeps_session |= end == End::Detach;
        self.with_member(shared, id, |member, now| {
            member.settle_last();
            member.handle(
                now,
                match end {
                    End::Leave => GroupInput::Close { timeout },
                    End::Detach => GroupInput::Detach { timeout },
                },
            );
        })?;
        Some(receiver)
    }

    /// Forgets a member. With `leave` it leaves its group, if it still is in it, without waiting.
    pub(crate) fn remove_member(&mut self, shared: &Arc<Shared>, id: MachineId, leave: bool) {
        let Some(mut entry) = self.members.remove(&id) else {
            return;
        };
        entry.abandon();
        if let Some(request) = entry.machine.farewell().filter(|_| leave) {
            let now = shared.now();
            let (sender, _nobody_waits) = oneshot::channel();
            let owner = Owner::Caller(sender);
            self.ask(
                now,
                owner,
                (request, FAREWELL_TIMEOUT, Route::any(entry.lane)),
            );
            self.pump(shared, now);
        }
    }

    /// Whether another member of this client is in the group.
    pub(crate) fn is_member_twice(&self, id: MachineId) -> bool {
        let group = |entry: &MemberEntry| entry.membership().map(|(group, _)| group);
        let own = self.members.get(&id).and_then(group);
        let mut others = self.members.iter().filter(|(other, _)| **other != id);
        own.is_some() && others.any(|(_, entry)| group(entry) == own)
    }

    pub(super) fn feed_members(&mut self, now: Time, input: &GroupInput) {
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            self.feed_member(now, id, input.clone());
        }
    }

    pub(super) fn feed_member(&mut self, now: Time, id: MachineId, input: GroupInput) {
        if let Some(entry) = self.members.get_mut(&id) {
            entry.machine.handle(now, input);
            self.after_member(now, id);
        }
    }

    fn after_member(&mut self, now: Time, id: MachineId) {
        while let Some(entry) = self.members.get_mut(&id) {
            match entry.machine.next_effect() {
                Some(GroupEffect::Submit {
                    call,
                    request,
                    timeout,
                    node,
                }) => {
                    let route = Route {
                        node,
                        ..Route::any(entry.lane)
                    };
                    self.ask(now, Owner::Member(id, call), (request, timeout, route));
                }
                Some(GroupEffect::Event(event)) => entry.on_event(event),
                None => {
                    entry.deadline = entry.machine.deadline();
                    return entry.settle();
                }
            }
        }
    }
}
