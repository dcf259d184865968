//! Polls on the shard that hosts the partitions: reading, waiting, storing what is served.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::ToString,
    vec::Vec,
};

use bytes::Bytes;
use partition::{
    Batches, DataRequest, DataResult, FileRead, PollError, Read, ReadQuery, SegmentId,
};
use wire::{ConsensusGroup, ErrorCode, Failure, Incarnation, Offset, Op, PartitionKey, PollResult};

use crate::{
    Answer, Effect, IoTicket, Note, Output, PollSectionWork, PollWork,
    counters::Counters,
    desk::Desk,
    host::{DataHost, Waiter},
    work::Origin,
};

/// A poll on this shard; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PollId(u64);

#[derive(Debug)]
struct Poll {
    origin: Origin,
    work: PollWork,
    stage: Stage,
    /// The wait is over: the deadline has passed, or another shard has enough.
    over: bool,
    results: Vec<(u16, PollResult)>,
    messages: u64,
    bytes: u64,
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Will be read from its first section.
    Ready,
    /// Waits for the file of a section.
    Reading,
    /// Waits for messages.
    Waiting,
    /// Waits until so many offsets are stored.
    Storing(usize),
}

/// The polls that this shard serves.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    polls: BTreeMap<PollId, Poll>,
    by_origin: BTreeMap<Origin, PollId>,
    waiting: BTreeSet<(PartitionKey, Incarnation, PollId)>,
    deadlines: BTreeSet<(u64, PollId)>,
    reads: BTreeMap<IoTicket, (PollId, FileRead)>,
    ready: VecDeque<PollId>,
    /// Segments whose damage a read has found, and which was noted: once, not at every poll.
    noted: BTreeSet<SegmentId>,
    count: u64,
}

/// The data groups of a shard.
pub(crate) type DataHosts = BTreeMap<ConsensusGroup, DataHost>;

/// What a poll needs of its shard.
pub(crate) struct Surroundings<'a> {
    pub(crate) desk: &'a mut Desk,
    pub(crate) hosts: &'a mut DataHosts,
    pub(crate) counters: &'a mut Counters,
}

impl Polls {
    pub(crate) fn is_empty(&self) -> bool {
        self.polls.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.polls.len()
    }

    /// Takes a poll; it is served by [`Polls::run`].
    pub(crate) fn begin(&mut self, origin: Origin, work: PollWork) {
        self.count += 1;
        let id = PollId(self.count);
        self.deadlines.insert((work.deadline, id));
        self.by_origin.insert(origin, id);
        let poll = Poll {
            origin,
            work,
            stage: Stage::Ready,
            over: false,
            results: Vec::new(),
            messages: 0,
            bytes: 0,
            refused: false,
        };
        self.polls.insert(id, poll);
        self.ready.push_back(id);
    }

    /// Ends the wait of a poll, if it waits.
    pub(crate) fn hurry(&mut self, origin: Origin) {
        if let Some(id) = self.by_origin.get(&origin).copied() {
            self.end_wait(id);
        }
    }

    /// Ends every wait.
    pub(crate) fn hurry_all(&mut self) {
        let ids: Vec<PollId> = self.polls.keys().copied().collect();
        for id in ids {
            self.end_wait(id);
        }
    }

    /// Ends the waits whose deadline has passed.
    pub(crate) fn on_time(&mut self, now: u64) {
        while let Some((deadline, id)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            self.end_wait(id);
        }
    }

    fn end_wait(&mut self, id: PollId) {
        if let Some(poll) = self.polls.get_mut(&id) {
            poll.over = true;
            self.wake(id);
        }
    }

    /// Partitions have changed.
    pub(crate) fn on_grown(&mut self, grown: BTreeSet<(PartitionKey, Incarnation)>) {
        for (key, incarnation) in grown {
            let range = (key, incarnation, PollId(0))..=(key, incarnation, PollId(u64::MAX));
            let ids: Vec<PollId> = self.waiting.range(range).map(|(_, _, id)| *id).collect();
            for id in ids {
                self.wake(id);
            }
        }
    }

    fn wake(&mut self, id: PollId) {
        let Some(poll) = self.polls.get_mut(&id) else {
            return;
        };
        if poll.stage != Stage::Waiting {
            return;
        }
        poll.stage = Stage::Ready;
        for section in &poll.work.sections {
            self.waiting
                .remove(&(section.address.key, section.address.incarnation, id));
        }
        self.ready.push_back(id);
    }

    /// Serves what can be served. Returns whether anything was done.
    pub(crate) fn run(&mut self, around: &mut Surroundings<'_>) -> bool {
        let mut done = false;
        while let Some(id) = self.ready.pop_front() {
            done = true;
            if let Some(poll) = self.polls.get_mut(&id) {
                poll.restart();
                self.go_on(around, id);
            }
        }
        done
    }

    /// A file was read.
    pub(crate) fn on_read(
        &mut self,
        around: &mut Surroundings<'_>,
        ticket: IoTicket,
        bytes: Option<&Bytes>,
    ) -> bool {
        let Some((id, read)) = self.reads.remove(&ticket) else {
            return false;
        };
        let Some(poll) = self.polls.get_mut(&id) else {
            return true;
        };
        let section = poll.work.sections[poll.results.len()];
        let outcome = match around.hosts.get_mut(&section.address.group) {
            Some(host) => {
                let outcome = host.state.finish_read(read, bytes);
                // An index that was built is to be written.
                host.take_changes(around.desk);
                outcome
            }
            None => return true,
        };
        if let Err(PollError::Damaged { segment, damage }) = &outcome
            && self.noted.insert(*segment)
        {
            let (segment, reason) = (*segment, damage.to_string());
            around.desk.note(Note::Damaged { segment, reason });
        }
        self.on_outcome(around, id, &section, outcome);
        self.go_on(around, id);
        true
    }

    /// Serves sections until one has to wait for a file.
    fn go_on(&mut self, around: &mut Surroundings<'_>, id: PollId) {
        loop {
            let Some(poll) = self.polls.get_mut(&id) else {
                return;
            };
            if poll.stage == Stage::Reading {
                return;
            }
            let Some(section) = poll.work.sections.get(poll.results.len()).copied() else {
                return self.decide(around, id);
            };
            let query = ReadQuery {
                strategy: section.strategy,
                consumer: &poll.work.consumer,
                max_messages: poll.messages_left(),
                max_bytes: poll.bytes_left(),
            };
            let address = section.address;
            match around.hosts.get(&address.group) {
                Some(host) if host.member.serves() => {
                    let outcome = host.state.read(address.key, address.incarnation, &query);
                    self.on_outcome(around, id, &section, outcome);
                }
                Some(host) => {
                    let primary = host.member.primary().primary;
                    let failure = host.member.refusal(host.member.why_not_serving());
                    let result = failed(&section, primary, failure);
                    poll.push(result);
                }
                None => {
                    let text = "the shard does not host the partition's data group";
                    let failure = Failure::new(ErrorCode::Internal, text);
                    poll.push(failed(&section, wire::ReplicaId(0), failure));
                }
            }
        }
    }

    fn on_outcome(
        &mut self,
        around: &mut Surroundings<'_>,
        id: PollId,
        section: &PollSectionWork,
        outcome: Result<Read, PollError>,
    ) {
        let Some(poll) = self.polls.get_mut(&id) else {
            return;
        };
        let Some(host) = around.hosts.get(&section.address.group) else {
            return;
        };
        let primary = host.member.primary().primary;
        poll.stage = Stage::Ready;
        match outcome {
            Ok(Read::Batches(batches)) => {
                let stored = host.state.stored(section.address.key, &poll.work.consumer);
                let mut result = served(section, primary, stored, batches);
                poll.keep_within_limits(&mut result);
                poll.push(result);
            }
            Ok(Read::File(read)) => {
                poll.stage = Stage::Reading;
                around.counters.segment_reads += 1;
                let ticket = around.desk.next_io_ticket();
                around.desk.push(Effect::Read {
                    ticket,
                    segment: read.segment,
                    file: read.file,
                    position: read.position,
                    length: read.length,
                });
                self.reads.insert(ticket, (id, read));
            }
            Err(error) => {
                let failure = Failure::new(error.code(), error.to_string());
                poll.push(failed(section, primary, failure));
            }
        }
    }

    /// Every section was looked at: answer, or wait for more.
    fn decide(&mut self, around: &mut Surroundings<'_>, id: PollId) {
        let Some(poll) = self.polls.get_mut(&id) else {
            return;
        };
        if poll.is_satisfied() || poll.over {
            if poll.work.commit_on_poll && poll.messages > 0 {
                return self.store(around, id);
            }
            return self.answer(around, id);
        }
        around.counters.polls_waited += 1;
        poll.stage = Stage::Waiting;
        poll.results.clear();
        for section in &poll.work.sections {
            self.waiting
                .insert((section.address.key, section.address.incarnation, id));
        }
    }

    /// Stores what is served before it is served.
    fn store(&mut self, around: &mut Surroundings<'_>, id: PollId) {
        let Some(poll) = self.polls.get_mut(&id) else {
            return;
        };
        let mut left = 0;
        for (section, (index, result)) in poll.work.sections.iter().zip(&poll.results) {
            let Some(host) = around.hosts.get_mut(&section.address.group) else {
                continue;
            };
            if result.batches.is_empty() {
                continue;
            }
            let request = DataRequest::StoreOffset {
                key: section.address.key,
                incarnation: section.address.incarnation,
                admitted: poll.work.admitted,
                consumer: poll.work.consumer.clone(),
                offset: Offset(result.next.0 - 1),
            };
            host.queue(request, Waiter::Poll(id, *index));
            left += 1;
        }
        poll.stage = Stage::Storing(left);
    }

    /// An offset that was served is stored, or not.
    pub(crate) fn on_stored(
        &mut self,
        around: &mut Surroundings<'_>,
        id: PollId,
        index: u16,
        outcome: Result<DataResult, Failure>,
    ) {
        let Some(poll) = self.polls.get_mut(&id) else {
            return;
        };
        let Stage::Storing(left) = poll.stage else {
            return;
        };
        if let Some((_, result)) = poll
            .results
            .iter_mut()
            .find(|(section, _)| *section == index)
        {
            match outcome {
                Ok(DataResult::Stored { stored }) => result.stored = Some(stored),
                Ok(DataResult::Failed(refusal)) => refuse(result, refusal.failure()),
                Ok(_) => {}
                Err(failure) => refuse(result, failure),
            }
        }
        poll.stage = Stage::Storing(left - 1);
        if left == 1 {
            self.answer(around, id);
        }
    }

    fn answer(&mut self, around: &mut Surroundings<'_>, id: PollId) {
        let Some(poll) = self.polls.remove(&id) else {
            return;
        };
        self.by_origin.remove(&poll.origin);
        self.deadlines.remove(&(poll.work.deadline, id));
        let satisfied = poll.is_satisfied();
        let host = poll
            .work
            .sections
            .first()
            .and_then(|section| around.hosts.get(&section.address.group));
        let output = Ok(Output::Polled {
            sections: poll.results,
            satisfied,
        });
        let answer = match host {
            Some(host) => host.member.answer(host.state.op(), output),
            None => Answer {
                op: Op(0),
                ..Answer::without_group(output)
            },
        };
        around.desk.answer(poll.origin, answer);
    }
}

impl Poll {
    fn restart(&mut self) {
        self.stage = Stage::Ready;
        self.results.clear();
        (self.messages, self.bytes, self.refused) = (0, 0, false);
    }

    fn messages_left(&self) -> u32 {
        let left = u64::from(self.work.max_messages).saturating_sub(self.messages);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn bytes_left(&self) -> u32 {
        let left = u64::from(self.work.max_bytes).saturating_sub(self.bytes);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Only the first batch of a poll may exceed the limits.
    fn keep_within_limits(&self, result: &mut PollResult) {
        let size: u64 = result.batches.iter().map(|batch| batch.len() as u64).sum();
        let full = self.messages >= u64::from(self.work.max_messages);
        let exceeds = self.bytes.saturating_add(size) > u64::from(self.work.max_bytes);
        if self.bytes > 0 && (full || exceeds) {
            result.batches.clear();
            result.next = result.from;
        }
    }

    fn push(&mut self, result: PollResult) {
        self.messages += result.next.0 - result.from.0;
        self.bytes += result
            .batches
            .iter()
            .map(|batch| batch.len() as u64)
            .sum::<u64>();
        self.refused |= result.status.is_err();
        let index = self.work.sections[self.results.len()].index;
        self.results.push((index, result));
    }

    fn is_satisfied(&self) -> bool {
        self.refused || self.bytes >= u64::from(self.work.min_bytes)
    }
}

fn served(
    section: &PollSectionWork,
    primary: wire::ReplicaId,
    stored: Option<Offset>,
    batches: Batches,
) -> PollResult {
    PollResult {
        partition: section.address.key.partition,
        status: Ok(()),
        primary,
        start: batches.start,
        end: batches.end,
        stored,
        from: batches.from,
        next: batches.next,
        batches: batches.parts,
    }
}

fn failed(section: &PollSectionWork, primary: wire::ReplicaId, failure: Failure) -> PollResult {
    PollResult {
        primary,
        ..section.refused(failure)
    }
}

fn refuse(result: &mut PollResult, failure: Failure) {
    result.status = Err(failure);
    result.batches.clear();
    result.next = result.from;
}
