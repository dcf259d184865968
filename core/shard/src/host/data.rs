//! A data group on this shard: collects requests into prepares, applies what is committed.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use partition::{DataGroup, DataRequest, DataResult, SegmentChange, SegmentId, encode_requests};
use vsr::{Prepare, Status, Token};
use wire::{ConsumerGroupId, Failure, Incarnation, Op, PartitionKey};

use crate::{
    Output, StateSnapshot,
    desk::Desk,
    fencing::ViewMemory,
    host::{Asker, Checkpoints, Event, Member},
    poll::PollId,
    transfer::{Restored, superfluous, touch_all},
    work::Origin,
};

/// A prepare is closed at this size; a larger request is a prepare of its own.
const PREPARE_BYTES: usize = 1024 * 1024;

/// What kind of op a data prepare is: there is one.
const REQUESTS: u16 = 1;

/// Who waits for the result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// Nobody: the shard itself asked.
    Nobody,
    /// A write, with the section of the client's request.
    Write(WriteId, u16),
    /// A poll that stores what it serves, or needs a fence first, with its section.
    Poll(PollId, u16),
    /// The reconciler, which has asked for a fence of this consumer group.
    Fence(ConsumerGroupId),
}

/// A write that is being replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

#[derive(Debug)]
struct Write {
    origin: Origin,
    left: usize,
    results: Vec<(u16, Result<DataResult, Failure>)>,
}

/// A data group that lives on this shard.
///
/// Invariant: `queued_bytes` is the encoded size of `queue`.
#[derive(Debug)]
pub(crate) struct DataHost {
    pub(crate) member: Member,
    pub(crate) state: DataGroup,
    queue: VecDeque<(DataRequest, Waiter)>,
    queued_bytes: usize,
    in_flight: BTreeMap<Token, Vec<Waiter>>,
    writes: BTreeMap<WriteId, Write>,
    write_count: u64,
    /// Segments changed since the last checkpoint began.
    dirty: BTreeSet<SegmentId>,
    pub(crate) checkpoints: Checkpoints,
    /// What was proposed for partitions and is not applied yet, so that a pass does not repeat it.
    proposed: BTreeSet<(PartitionKey, Incarnation)>,
    /// What it remembers of consumer groups since the view began.
    pub(crate) memory: ViewMemory,
    /// Results for polls that store what they serve.
    pub(crate) poll_results: VecDeque<(PollId, u16, Result<DataResult, Failure>)>,
    /// What goes once the state that was fetched is installed for good.
    leftovers: Vec<SegmentChange>,
    /// Whether status, view or primary changed since this was last looked at.
    pub(crate) status_changed: bool,
}

impl DataHost {
    pub(crate) fn new(member: Member, state: DataGroup) -> Self {
        Self {
            member,
            state,
            queue: VecDeque::new(),
            queued_bytes: 0,
            in_flight: BTreeMap::new(),
            writes: BTreeMap::new(),
            write_count: 0,
            dirty: BTreeSet::new(),
            checkpoints: Checkpoints::default(),
            proposed: BTreeSet::new(),
            memory: ViewMemory::default(),
            poll_results: VecDeque::new(),
            leftovers: Vec::new(),
            status_changed: true,
        }
    }

    /// Whether nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// Queues the requests of a client's write that are admitted.
    pub(crate) fn write(
        &mut self,
        desk: &mut Desk,
        origin: Origin,
        requests: Vec<(u16, DataRequest)>,
    ) {
        let mut admitted = Vec::with_capacity(requests.len());
        let mut refused = Vec::new();
        for (index, request) in requests {
            match self.state.admit(&request) {
                // The other nodes keep what is appended, too, and this one gets back what it lacks.
                Err(error) if !desk.has_peers => refused.push((index, Err(error.failure()))),
                Ok(()) | Err(_) => admitted.push((index, request)),
            }
        }
        self.write_rest(desk, origin, admitted, refused);
    }

    /// Queues what is left of a client's write, of which some is refused already. If nothing is left, it
    /// is answered.
    pub(crate) fn write_rest(
        &mut self,
        desk: &mut Desk,
        origin: Origin,
        requests: Vec<(u16, DataRequest)>,
        refused: Vec<(u16, Result<DataResult, Failure>)>,
    ) {
        if requests.is_empty() {
            let answer = self
                .member
                .answer(self.state.op(), Ok(Output::Written(refused)));
            return desk.answer(origin, answer);
        }
        self.write_count += 1;
        let id = WriteId(self.write_count);
        let write = Write {
            origin,
            left: requests.len(),
            results: refused,
        };
        self.writes.insert(id, write);
        for (index, request) in requests {
            self.queue(request, Waiter::Write(id, index));
        }
    }

    /// Queues one request.
    pub(crate) fn queue(&mut self, request: DataRequest, waiter: Waiter) {
        self.queued_bytes += request.encoded_size();
        self.queue.push_back((request, waiter));
    }

    /// Proposes to create or drop a partition, unless that is on its way already.
    pub(crate) fn propose(&mut self, request: DataRequest) {
        if self.proposed.insert((request.key(), request.incarnation())) {
            self.queue(request, Waiter::Nobody);
        }
    }

    /// Asks whether this node still leads the group, for a poll that is about to be answered.
    pub(crate) fn confirm(&mut self, desk: &mut Desk, id: PollId) {
        self.member.confirm(desk, Asker::Poll(id));
        self.pump(desk);
    }

    /// Makes prepares of what is queued. While one is in flight the next one fills, so a prepare carries
    /// as much as has come in since; only a full one goes ahead.
    pub(crate) fn fill(&mut self, desk: &mut Desk) {
        while !self.queue.is_empty() {
            let room = self.member.replica.room();
            let waits = !self.in_flight.is_empty()
                && (self.queued_bytes < PREPARE_BYTES
                    || room.prepares == 0
                    || room.bytes < PREPARE_BYTES);
            if waits {
                return;
            }
            self.submit(desk);
        }
    }

    fn submit(&mut self, desk: &mut Desk) {
        let mut requests = Vec::new();
        let mut waiters = Vec::new();
        let mut size = 0;
        while let Some((request, _)) = self.queue.front() {
            let request_size = request.encoded_size();
            if !requests.is_empty() && size + request_size > PREPARE_BYTES {
                break;
            }
            size += request_size;
            if let Some((request, waiter)) = self.queue.pop_front() {
                requests.push(request);
                waiters.push(waiter);
            }
        }
        self.queued_bytes -= size;
        let token = self.member.next_token();
        self.in_flight.insert(token, waiters);
        let request = vsr::Request {
            token,
            origin: vsr::Origin::Internal,
            operation: REQUESTS,
            body: encode_requests(&requests),
        };
        self.member.handle(desk, vsr::Input::Request(request));
        self.pump(desk);
    }

    /// Carries out what the replica asks for.
    pub(crate) fn pump(&mut self, desk: &mut Desk) {
        while let Some(event) = self.member.next_event(desk) {
            match event {
                Event::Apply { prepare, token } => self.apply(desk, prepare, token),
                Event::Refuse { token, reason } => self.refuse(desk, token, reason),
                Event::ReplaceState { op } => self.replace_state(desk, op),
                Event::StatusChanged => {
                    self.status_changed = true;
                    if self.member.replica.status() != Status::StateTransfer {
                        for change in core::mem::take(&mut self.leftovers) {
                            desk.change(change);
                        }
                    }
                    if self.member.serves() {
                        let (view, now) = (self.member.primary().view, desk.now.monotonic);
                        self.memory.begin(view, &self.state, now);
                    }
                }
                // Data groups have no client table.
                Event::Reply { .. } | Event::Evict { .. } => {}
            }
        }
    }

    /// The state of another node takes the place of the own one; its files are on the disk.
    fn replace_state(&mut self, desk: &mut Desk, op: Op) {
        let Some(Restored::Data(state)) = self.member.restored.take() else {
            unreachable!("the replica was given a checkpoint of a data group")
        };
        assert!(state.op() <= op);
        let mut old = core::mem::replace(&mut self.state, state);
        self.leftovers.extend(superfluous(&mut old, &self.state));
        touch_all(desk, &old);
        touch_all(desk, &self.state);
        self.dirty.clear();
        self.proposed.clear();
        self.checkpoints.give_up();
    }

    fn apply(&mut self, desk: &mut Desk, prepare: Prepare, token: Option<Token>) {
        let (op, timestamp) = (prepare.header.op(), prepare.header.timestamp());
        // An op of the replica itself carries no requests.
        let applied = if prepare.header.operation == REQUESTS {
            self.state
                .apply_prepare(op, timestamp, &prepare.body)
                .expect("the prepare's checksum covers what was encoded here")
        } else {
            Vec::new()
        };
        self.take_changes(desk);
        let waiters = token.and_then(|token| self.in_flight.remove(&token));
        let mut waiters = waiters.unwrap_or_default().into_iter();
        let now = desk.now.monotonic;
        for partition::Applied {
            key,
            incarnation,
            result,
        } in applied
        {
            let subject = (key, incarnation);
            match result {
                DataResult::Appended { .. } | DataResult::HeadTruncated { .. } => {
                    desk.grown.insert(subject);
                }
                DataResult::Dropped | DataResult::Created => {
                    match self.state.incarnation(key) {
                        Some(here) => self.memory.created(key, here),
                        None => self.memory.forget_partition(key),
                    }
                    desk.grown.insert(subject);
                    desk.begun.insert(key);
                }
                DataResult::Record { group, .. } => {
                    desk.touched.insert((key, group));
                }
                DataResult::ConsumerGroupDropped { group } => self.memory.forget(key, group),
                DataResult::Stored { .. }
                | DataResult::OffsetDeleted { .. }
                | DataResult::Failed(_) => {}
            }
            match waiters.next() {
                Some(Waiter::Write(id, index)) => {
                    if let DataResult::Record { group, .. } = result {
                        self.memory.activity.stored((key, group), now);
                    }
                    self.written(desk, op, id, (index, Ok(result)));
                }
                Some(Waiter::Poll(id, index)) => {
                    self.poll_results.push_back((id, index, Ok(result)));
                }
                Some(Waiter::Nobody) => {
                    self.proposed.remove(&subject);
                }
                Some(Waiter::Fence(_)) | None => {}
            }
        }
        let applied = vsr::Input::Applied {
            op,
            reply: bytes::Bytes::new(),
            ended: Vec::new(),
            registered: false,
        };
        self.member.handle(desk, applied);
    }

    /// Hands on what the state machine asks of the files.
    pub(crate) fn take_changes(&mut self, desk: &mut Desk) {
        while let Some(change) = self.state.next_change() {
            self.change(desk, change);
        }
    }

    fn change(&mut self, desk: &mut Desk, change: SegmentChange) {
        match &change {
            SegmentChange::Append { segment, .. } => {
                self.dirty.insert(*segment);
            }
            SegmentChange::Delete { segment } => {
                self.dirty.remove(segment);
            }
            SegmentChange::DeletePartition {
                partition,
                incarnation,
                ..
            } => {
                self.dirty.retain(|segment| {
                    (segment.partition, segment.incarnation) != (*partition, *incarnation)
                });
            }
            SegmentChange::WriteIndex { .. } => {}
        }
        desk.change(change);
    }

    fn written(
        &mut self,
        desk: &mut Desk,
        op: Op,
        id: WriteId,
        result: (u16, Result<DataResult, Failure>),
    ) {
        let Some(write) = self.writes.get_mut(&id) else {
            return;
        };
        write.results.push(result);
        write.left -= 1;
        if write.left == 0
            && let Some(write) = self.writes.remove(&id)
        {
            let answer = self.member.answer(op, Ok(Output::Written(write.results)));
            desk.answer(write.origin, answer);
        }
    }

    fn refuse(&mut self, desk: &mut Desk, token: Token, reason: vsr::Refusal) {
        for waiter in self.in_flight.remove(&token).unwrap_or_default() {
            match waiter {
                Waiter::Write(id, index) => {
                    let failure = self.member.refusal(reason);
                    self.written(desk, Op(0), id, (index, Err(failure)));
                }
                Waiter::Poll(id, index) => {
                    let failure = self.member.refusal(reason);
                    self.poll_results.push_back((id, index, Err(failure)));
                }
                Waiter::Nobody => self.proposed.clear(),
                // The next look at everything that is open asks again.
                Waiter::Fence(_) => {}
            }
        }
    }

    /// Begins a checkpoint that is wanted, if one can begin.
    pub(crate) fn begin_checkpoint(&mut self, desk: &mut Desk) {
        let Self {
            member,
            state,
            dirty,
            checkpoints,
            ..
        } = self;
        checkpoints.begin(member, desk, || {
            let segments = core::mem::take(dirty).into_iter().collect();
            (StateSnapshot::Data(state.snapshot()), segments)
        });
    }

    pub(crate) fn on_snapshot_written(&mut self, desk: &mut Desk, op: Op) {
        if self.checkpoints.on_written(&mut self.member, desk, op) {
            self.state.checkpointed(op);
            self.take_changes(desk);
            self.pump(desk);
        }
    }
}
