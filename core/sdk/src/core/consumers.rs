//! Consumers of a client, and who waits for their messages.

use std::{mem, sync::Arc, task::Context};

use client::{Consumer, ConsumerEffect, ConsumerEvent, ConsumerInput, Progress, Route};
use tokio::sync::oneshot;
use wire::{Offset, PartitionId, Time};

use super::{
    Core, MachineId, Owner, Shared,
    inbox::{Inbox, Next},
};
use crate::Error;

#[derive(Debug)]
pub(crate) struct ConsumerEntry {
    machine: Consumer,
    pub(super) deadline: Option<u64>,
    /// Not told yet.
    inbox: Inbox<ConsumerEvent>,
    /// Stores that the application waits for.
    stores: Vec<Store>,
    /// Who waits until everything is stored.
    settled: Option<oneshot::Sender<Result<(), Error>>>,
    /// What the server refused for good since the consumer was flushed last.
    refused: Option<Error>,
    /// Why the consumer cannot go on.
    failed: Option<Error>,
    /// Spreads consumers over connections that are as good.
    lane: u16,
}

#[derive(Debug)]
struct Store {
    partition: PartitionId,
    offset: Offset,
    sender: oneshot::Sender<Result<(), Error>>,
}

impl ConsumerEntry {
    pub(crate) fn new(machine: Consumer, lane: u16) -> Self {
        let deadline = machine.deadline();
        Self {
            machine,
            deadline,
            inbox: Inbox::new(),
            stores: Vec::new(),
            settled: None,
            refused: None,
            failed: None,
            lane,
        }
    }

    pub(crate) fn progress(&self) -> Vec<Progress> {
        self.machine.progress().collect()
    }

    fn on_event(&mut self, event: ConsumerEvent) {
        if let ConsumerEvent::StoreRefused {
            partition,
            offset,
            failure,
        } = &event
        {
            let error = Error::NotStored {
                partition: *partition,
                offset: *offset,
                code: failure.code,
                text: failure.text.clone(),
            };
            let (ended, left) = mem::take(&mut self.stores)
                .into_iter()
                .partition(|store| store.partition == *partition && store.offset <= *offset);
            self.stores = left;
            answer(ended, &Err(error.clone()));
            self.refused = Some(error);
        }
        if let ConsumerEvent::Failed(error) = &event {
            self.failed = Some(error.clone().into());
        }
        self.inbox.push(event);
    }

    /// Tells who waits for what has come about.
    fn settle(&mut self) {
        if let Some(error) = &self.failed {
            answer(mem::take(&mut self.stores), &Err(error.clone()));
        }
        self.stores.retain(|store| !store.sender.is_closed());
        if !self.stores.is_empty() {
            let progress = self.progress();
            let stored = |store: &Store| {
                let own = progress
                    .iter()
                    .find(|progress| progress.partition == store.partition);
                own.is_some_and(|progress| progress.stored >= Some(store.offset))
            };
            let (ended, left) = mem::take(&mut self.stores).into_iter().partition(stored);
            self.stores = left;
            answer(ended, &Ok(()));
        }
        if self.settled.is_some()
            && (self.failed.is_some() || self.machine.is_stored())
            && let Some(sender) = self.settled.take()
        {
            let failed = self.failed.clone().or_else(|| self.refused.take());
            let _nobody_waits = sender.send(failed.map_or(Ok(()), Err));
        }
        let over = self.machine.is_finished();
        self.inbox.wake_if(self.machine.has_message() || over);
    }

    /// Nothing is waited for any more.
    pub(super) fn abandon(&mut self) {
        self.failed.get_or_insert(Error::Closed);
        answer(mem::take(&mut self.stores), &Err(Error::Closed));
        if let Some(sender) = self.settled.take() {
            let _nobody_waits = sender.send(Err(Error::Closed));
        }
        self.inbox.wake_if(true);
    }
}

fn answer(stores: Vec<Store>, result: &Result<(), Error>) {
    for store in stores {
        let _nobody_waits = store.sender.send(result.clone());
    }
}

impl Core {
    /// The next message or event of a consumer; asking says that the message before is processed.
    pub(crate) fn next(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        context: &Context<'_>,
    ) -> Next<ConsumerEvent> {
        let Some(entry) = self.consumers.get_mut(&id) else {
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
        self.after_consumer(now, id);
        self.pump(shared, now);
        let Some(entry) = self.consumers.get_mut(&id) else {
            return Next::End;
        };
        entry.inbox.next(delivery, entry.machine.is_finished())
    }

    /// Changes a consumer and carries out what comes of it.
    pub(crate) fn with_consumer<T>(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        change: impl FnOnce(&mut Consumer, Time) -> T,
    ) -> Option<T> {
        let now = shared.now();
        let entry = self.consumers.get_mut(&id)?;
        let result = change(&mut entry.machine, now);
        self.after_consumer(now, id);
        self.pump(shared, now);
        Some(result)
    }

    /// Stores an offset; the receiver is told when that is done.
    pub(crate) fn store(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        partition: PartitionId,
        offset: Offset,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let (sender, receiver) = oneshot::channel();
        let entry = self.consumers.get_mut(&id)?;
        entry.stores.push(Store {
            partition,
            offset,
            sender,
        });
        let stored = self.with_consumer(shared, id, |consumer, now| {
            consumer.store(now, partition, offset)
        })?;
        stored.then_some(receiver)
    }

    /// Stores all that is processed; the receiver is told when that is done.
    pub(crate) fn flush_consumer(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        last_too: bool,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let (sender, receiver) = oneshot::channel();
        let entry = self.consumers.get_mut(&id)?;
        entry.settled = Some(sender);
        entry.refused = None;
        self.with_consumer(shared, id, |consumer, now| {
            if last_too {
                consumer.settle_last();
            }
            consumer.handle(now, ConsumerInput::Flush);
        })?;
        Some(receiver)
    }

    pub(crate) fn remove_consumer(&mut self, id: MachineId) {
        if let Some(mut entry) = self.consumers.remove(&id) {
            entry.abandon();
        }
    }

    pub(super) fn feed_consumer(&mut self, now: Time, id: MachineId, input: ConsumerInput) {
        if let Some(entry) = self.consumers.get_mut(&id) {
            entry.machine.handle(now, input);
            self.after_consumer(now, id);
        }
    }

    fn after_consumer(&mut self, now: Time, id: MachineId) {
        while let Some(entry) = self.consumers.get_mut(&id) {
            match entry.machine.next_effect() {
                Some(ConsumerEffect::Submit {
                    call,
                    request,
                    timeout,
                    node,
                }) => {
                    let route = Route {
                        node,
                        ..Route::any(entry.lane)
                    };
                    self.ask(now, Owner::Consumer(id, call), (request, timeout, route));
                }
                Some(ConsumerEffect::Event(event)) => entry.on_event(event),
                None => {
                    entry.deadline = entry.machine.deadline();
                    return entry.settle();
                }
            }
        }
    }
}
