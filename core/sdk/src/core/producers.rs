//! Producers of a client, and who waits for their batches.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use client::{
    BatchId, Producer, ProducerEffect, ProducerInput, PushError, Pushed, Retry, Route, Submission,
    Target, Ticket,
};
use tokio::sync::{Notify, mpsc};
use wire::{Message, Offset, PartitionId, Time};

use super::{Core, MachineId, Owner, Shared};
use crate::{Error, producer::BatchReceipt};

#[derive(Debug)]
pub(crate) struct ProducerEntry {
    machine: Producer,
    pub(super) deadline: Option<u64>,
    /// Batches that have not ended, with those who wait for them.
    cells: BTreeMap<BatchId, Arc<BatchCell>>,
    /// Told whenever a batch has ended.
    room: Arc<Notify>,
    receipts: Option<mpsc::UnboundedSender<BatchReceipt>>,
    /// The first batch that failed since the latest flush.
    failed: Option<Error>,
    /// The connection that its requests take, modulo the number of connections.
    lane: u16,
}

/// The end of a batch, for all who wait for it.
#[derive(Debug, Default)]
pub(crate) struct BatchCell(Mutex<CellState>);

#[derive(Debug)]
enum CellState {
    Waiting(Vec<Option<Waker>>),
    Ended(Result<(PartitionId, Offset), Error>),
}

impl Default for CellState {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

impl BatchCell {
    /// How the batch ended; `slot` is the caller's place among those who wait.
    pub(crate) fn poll(
        &self,
        context: &Context<'_>,
        slot: &mut Option<usize>,
    ) -> Poll<Result<(PartitionId, Offset), Error>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            CellState::Ended(result) => Poll::Ready(result.clone()),
            CellState::Waiting(wakers) => {
                let index = *slot.get_or_insert_with(|| {
                    wakers.push(None);
                    wakers.len() - 1
                });
                let waker = context.waker();
                match &mut wakers[index] {
                    Some(known) if known.will_wake(waker) => {}
                    place @ (Some(_) | None) => *place = Some(waker.clone()),
                }
                Poll::Pending
            }
        }
    }

    fn end(&self, result: Result<(PartitionId, Offset), Error>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let CellState::Waiting(wakers) = mem::replace(&mut *state, CellState::Ended(result)) {
            drop(state);
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }
}

impl ProducerEntry {
    pub(crate) fn new(
        machine: Producer,
        receipts: Option<mpsc::UnboundedSender<BatchReceipt>>,
        lane: u16,
    ) -> Self {
        let deadline = machine.deadline();
        Self {
            machine,
            deadline,
            cells: BTreeMap::new(),
            room: Arc::new(Notify::new()),
            receipts,
            failed: None,
            lane,
        }
    }

    pub(crate) fn room(&self) -> Arc<Notify> {
        Arc::clone(&self.room)
    }

    pub(crate) const fn partitions(&self) -> u32 {
        self.machine.partitions()
    }

    /// The batches that have not ended.
    pub(crate) fn waiting(&self) -> Vec<Arc<BatchCell>> {
        self.cells.values().map(Arc::clone).collect()
    }

    /// The first failure since it was asked last.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    fn end(&mut self, batch: BatchId, result: Result<(PartitionId, Offset), Error>) {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.clone());
        }
        if let Some(cell) = self.cells.remove(&batch) {
            cell.end(result);
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn abandon(&mut self) {
        for cell in mem::take(&mut self.cells).into_values() {
            cell.end(Err(Error::Closed));
        }
        self.receipts = None;
        self.room.notify_waiters();
    }
}

impl Core {
    /// Takes a message into a batch.
    pub(crate) fn push(
        &mut self,
        shared: &Arc<Shared>,
        id: MachineId,
        target: Target,
        message: &Message,
    ) -> Result<(Pushed, Arc<BatchCell>), Error> {
        if self.stopped {
            return Err(Error::Closed);
        }
        let now = shared.now();
        let entry = self.producers.get_mut(&id).ok_or(Error::Closed)?;
        let pushed = entry.machine.push(now, target, message)?;
        let cell = Arc::clone(entry.cells.entry(pushed.batch).or_default());
        // Only a batch that is begun or sent changes what the clock has to wait for.
        if self.drain_producer(now, id) || pushed.index == 0 {
            self.note_deadline(id);
            self.pump(shared, now);
        }
        Ok((pushed, cell))
    }

    /// Why a message is not taken now, if that is a matter of room.
    pub(crate) const fn is_full(error: &Error) -> bool {
        matches!(error, Error::Message(PushError::Full { .. }))
    }

    pub(crate) fn flush_producer(&mut self, shared: &Arc<Shared>, id: MachineId) {
        let now = shared.now();
        self.feed_producer(now, id, ProducerInput::Flush);
        self.pump(shared, now);
    }

    pub(crate) fn remove_producer(&mut self, id: MachineId) {
        if let Some(mut entry) = self.producers.remove(&id) {
            entry.abandon();
        }
    }

    pub(super) fn feed_producer(&mut self, now: Time, id: MachineId, input: ProducerInput) {
        if let Some(entry) = self.producers.get_mut(&id) {
            entry.machine.handle(now, input);
            self.drain_producer(now, id);
            self.note_deadline(id);
        }
    }

    fn note_deadline(&mut self, id: MachineId) {
        if let Some(entry) = self.producers.get_mut(&id) {
            entry.deadline = entry.machine.deadline();
        }
    }

    /// Carries out what a producer wants; says whether that was anything.
    fn drain_producer(&mut self, now: Time, id: MachineId) -> bool {
        let mut any = false;
        while let Some(entry) = self.producers.get_mut(&id) {
            let Some(effect) = entry.machine.next_effect() else {
                break;
            };
            any = true;
            match effect {
                ProducerEffect::Submit {
                    call,
                    request,
                    timeout,
                    node,
                } => {
                    let route = Route {
                        lane: entry.lane,
                        node,
                        ordered: true,
                    };
                    let (ticket, retry) = (Ticket(0), Retry::Caller);
                    let submission = Submission {
                        ticket,
                        request,
                        timeout,
                        retry,
                        route,
                    };
                    self.submit(now, Owner::Producer(id, call), submission);
                }
                ProducerEffect::Delivered {
                    batch,
                    partition,
                    base_offset,
                    count,
                } => {
                    entry.end(batch, Ok((partition, base_offset)));
                    let last = Offset(base_offset.0 + u64::from(count) - 1);
                    let receipt = BatchReceipt {
                        partition,
                        first: base_offset,
                        last,
                    };
                    if let Some(receipts) = &entry.receipts {
                        let _nobody_reads = receipts.send(receipt);
                    }
                    entry.room.notify_waiters();
                }
                ProducerEffect::Failed {
                    batch,
                    error,
                    may_be_stored,
                    ..
                } => {
                    let mut error = Error::from(error);
                    if may_be_stored {
                        error = Error::InDoubt {
                            error: Box::new(error),
                        };
                    }
                    entry.end(batch, Err(error));
                    entry.room.notify_waiters();
                }
            }
        }
        any
    }
}
