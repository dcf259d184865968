//! Polls on the shard that hosts the partitions: reading, waiting, storing what is served.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::ToString,
    vec::Vec,
};

use bytes::Bytes;
use catalog::Projection;
use partition::{
    Batches, DataRequest, DataResult, FileRead, PollError, Read, ReadQuery, SegmentId,
};
use wire::{
    ConsensusGroup, ErrorCode, Failure, Incarnation, Offset, Op, PartitionId, PartitionKey,
    PollResult, PollStrategy, StreamId, TopicId,
};

use crate::{
    Answer, Effect, GroupWriteSection, IoTicket, Note, Output, PollSectionWork, PollWork, Reader,
    counters::Counters,
    desk::Desk,
    fencing::{self, Gate},
    host::{DataHost, Waiter},
    mutation,
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
    /// A section can only be judged when the group has changed.
    unripe: bool,
    /// How often fences were committed before it.
    fenced: u32,
    /// It is certain that this node led the groups when what is in `results` was read.
    confirmed: bool,
}

/// How often a poll begins again because a fence has to be committed before it: once for every epoch that
/// its group has gone through meanwhile.
const FENCED_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Will be read from its first section.
    Ready,
    /// Waits for the file of a section.
    Reading,
    /// Waits for messages.
    Waiting,
    /// Waits until so many fences are raised.
    Fencing(usize),
    /// Waits until so many groups are certain to be led here.
    Confirming(usize),
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
    pub(crate) projection: &'a Projection,
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
            unripe: false,
            fenced: 0,
            confirmed: false,
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

    /// Somebody else may own a partition now: whoever waits for messages of it is judged again.
    pub(crate) fn on_reassigned(&mut self, key: PartitionKey) {
        let first = (key, Incarnation(0), PollId(0));
        let last = (key, Incarnation(u64::MAX), PollId(u64::MAX));
        let ids: Vec<PollId> = self
            .waiting
            .range(first..=last)
            .map(|(_, _, id)| *id)
            .collect();
        for id in ids {
            self.wake(id);
        }
    }

    /// A consumer group of the topic is gone.
    pub(crate) fn on_topic_changed(&mut self, (stream, topic): (StreamId, TopicId)) {
        let key = |partition| PartitionKey {
            stream,
            topic,
            partition: PartitionId(partition),
        };
        let first = (key(0), Incarnation(0), PollId(0));
        let last = (key(u32::MAX), Incarnation(u64::MAX), PollId(u64::MAX));
        let waiting = self.waiting.range(first..=last);
        let ids: BTreeSet<PollId> = waiting.map(|(_, _, id)| *id).collect();
        for id in ids {
            self.wake(id);
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
                if !self.raise_fences(around, id) {
                    self.go_on(around, id);
                }
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

    /// A damaged segment is whole again; further damage of it is news.
    pub(crate) fn on_mended(&mut self, segment: SegmentId) {
        self.noted.remove(&segment);
    }

    /// Commits the fences that a group's poll needs first, all at once. Returns whether there are any.
    fn raise_fences(&mut self, around: &mut Surroundings<'_>, id: PollId) -> bool {
        let Some(poll) = self.polls.get_mut(&id) else {
            return false;
        };
        if poll.fenced == FENCED_MAX {
            return false;
        }
        let mut left = 0;
        for section in &poll.work.sections {
            let Some(host) = around.hosts.get_mut(&section.address.group) else {
                continue;
            };
            if !host.member.serves() {
                continue;
            }
            if let Gate::Fence(request) = poll.gate(around.projection, host, section) {
                host.queue(request, Waiter::Poll(id, section.index));
                left += 1;
            }
        }
        if left > 0 {
            poll.fenced += 1;
            poll.stage = Stage::Fencing(left);
        }
        left > 0
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
            let address = section.address;
            match around.hosts.get(&address.group) {
                Some(host) if host.member.serves() => {
                    let primary = host.member.primary().primary;
                    match poll.gate(around.projection, host, &section) {
                        Gate::Open(strategy) => {
                            let query = poll.query(strategy);
                            let outcome = host.state.read(address.key, address.incarnation, &query);
                            self.on_outcome(around, id, &section, outcome);
                        }
                        Gate::Fence(_) => poll.push(failed(&section, primary, not_fenced())),
                        Gate::Waits(failure) => poll.put_off(failed(&section, primary, failure)),
                        Gate::Refused(failure) => {
                            around.counters.group_polls_refused += 1;
                            poll.push(failed(&section, primary, failure));
                        }
                    }
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
                let stored = poll.stored(host, section);
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
                let failure = refusal_of(&error, around.desk.has_peers);
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
            if !poll.judge_again(around) {
                self.ready.push_back(id);
                return;
            }
            // What is stored before it is served is confirmed by that.
            if poll.work.commit_on_poll && poll.messages > 0 {
                return self.store(around, id);
            }
            let asks = around.desk.has_peers && !mutation::CONFIRMATION;
            if asks && !poll.confirmed && self.confirm(around, id) {
                return;
            }
            return self.answer(around, id);
        }
        around.counters.polls_waited += 1;
        poll.note(around);
        poll.stage = Stage::Waiting;
        poll.results.clear();
        for section in &poll.work.sections {
            self.waiting
                .insert((section.address.key, section.address.incarnation, id));
        }
    }

    /// Makes certain that this node leads the groups of what was read. Returns whether that has to be
    /// waited for.
    fn confirm(&mut self, around: &mut Surroundings<'_>, id: PollId) -> bool {
        let Some(poll) = self.polls.get_mut(&id) else {
            return false;
        };
        // What is refused rests on what is known here, too; and what was read before the lead was lost is
        // refused by the asking.
        let sections = poll.work.sections.iter();
        let groups = sections.map(|section| section.address.group);
        let groups: BTreeSet<ConsensusGroup> = groups
            .filter(|group| around.hosts.contains_key(group))
            .collect();
        poll.stage = Stage::Confirming(groups.len());
        for group in &groups {
            if let Some(host) = around.hosts.get_mut(group) {
                host.confirm(around.desk, id);
            }
        }
        !groups.is_empty()
    }

    /// It is certain that this node leads a group, or it does not.
    pub(crate) fn on_confirmed(
        &mut self,
        around: &mut Surroundings<'_>,
        id: PollId,
        group: ConsensusGroup,
        outcome: Result<(), Failure>,
    ) {
        let Some(poll) = self.polls.get_mut(&id) else {
            return;
        };
        let Stage::Confirming(left) = poll.stage else {
            return;
        };
        if let Err(failure) = outcome {
            let sections = poll.work.sections.iter().zip(&mut poll.results);
            for (_, (_, result)) in sections.filter(|(it, _)| it.address.group == group) {
                refuse(result, failure.clone());
            }
            poll.recount();
        }
        poll.stage = Stage::Confirming(left - 1);
        if left == 1 {
            poll.confirmed = true;
            poll.stage = Stage::Ready;
            self.decide(around, id);
        }
    }

    /// A group is not led here any more: whoever waits for messages of it is told so.
    pub(crate) fn on_leader_lost(&mut self, group: ConsensusGroup) {
        let is_of_group = |poll: &Poll| {
            let mut sections = poll.work.sections.iter();
            sections.any(|section| section.address.group == group)
        };
        let polls = self.polls.iter().filter(|(_, poll)| is_of_group(poll));
        let ids: Vec<PollId> = polls.map(|(id, _)| *id).collect();
        for id in ids {
            self.wake(id);
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
            let last = Offset(result.next.0 - 1);
            if let Some(request) = poll.store_request(around.projection, section, last) {
                host.queue(request, Waiter::Poll(id, *index));
                left += 1;
            }
        }
        poll.stage = Stage::Storing(left);
        if left == 0 {
            // The partition has changed hands since it was looked at a moment before.
            self.ready.push_back(id);
        }
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
        let left = match poll.stage {
            Stage::Storing(left) => left,
            Stage::Fencing(left) => {
                poll.stage = Stage::Fencing(left - 1);
                if left == 1 {
                    poll.stage = Stage::Ready;
                    self.ready.push_back(id);
                }
                return;
            }
            Stage::Ready | Stage::Reading | Stage::Waiting | Stage::Confirming(_) => return,
        };
        if let Some((_, result)) = poll
            .results
            .iter_mut()
            .find(|(section, _)| *section == index)
        {
            match outcome {
                Ok(DataResult::Stored { stored }) => result.stored = Some(stored),
                Ok(DataResult::Record { record, .. }) => result.stored = record.stored,
                Ok(DataResult::Failed(refusal)) => refuse(result, refusal.failure()),
                Ok(_) => {}
                Err(failure) => refuse(result, failure),
            }
        }
        poll.stage = Stage::Storing(left - 1);
        if left == 1 {
            poll.take_back_what_moves(around);
            self.answer(around, id);
        }
    }

    fn answer(&mut self, around: &mut Surroundings<'_>, id: PollId) {
        let Some(poll) = self.polls.remove(&id) else {
            return;
        };
        self.by_origin.remove(&poll.origin);
        self.deadlines.remove(&(poll.work.deadline, id));
        poll.note(around);
        poll.remember(around);
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
        (self.messages, self.bytes) = (0, 0);
        (self.refused, self.unripe, self.confirmed) = (false, false, false);
    }

    /// Whether a section may be read. A single consumer always may.
    fn gate(&self, projection: &Projection, host: &DataHost, section: &PollSectionWork) -> Gate {
        match &self.work.reader {
            Reader::Single(_) => Gate::Open(section.strategy),
            Reader::Group(reader) => {
                let asked = (&section.address, section.epoch, section.strategy);
                fencing::gate(projection, &host.state, reader, asked)
            }
        }
    }

    fn query(&self, strategy: PollStrategy) -> ReadQuery<'_> {
        ReadQuery {
            strategy,
            consumer: match &self.work.reader {
                Reader::Single(name) => name,
                Reader::Group(_) => "",
            },
            max_messages: self.messages_left(),
            max_bytes: self.bytes_left(),
        }
    }

    fn stored(&self, host: &DataHost, section: &PollSectionWork) -> Option<Offset> {
        let address = section.address;
        match &self.work.reader {
            Reader::Single(name) => host.state.stored(address.key, name),
            Reader::Group(reader) => {
                let group = reader.key.group;
                let record = host
                    .state
                    .group_record(address.key, address.incarnation, group);
                record.ok()?.stored
            }
        }
    }

    fn store_request(
        &self,
        projection: &Projection,
        section: &PollSectionWork,
        offset: Offset,
    ) -> Option<DataRequest> {
        let PollSectionWork { address, epoch, .. } = *section;
        match &self.work.reader {
            Reader::Single(name) => Some(DataRequest::StoreOffset {
                key: address.key,
                incarnation: address.incarnation,
                admitted: self.work.admitted,
                consumer: name.clone(),
                offset,
            }),
            Reader::Group(reader) => {
                let section = GroupWriteSection {
                    index: section.index,
                    address,
                    epoch,
                    offset: Some(offset),
                    planned: None,
                };
                fencing::write(projection, reader, &section).ok()
            }
        }
    }

    /// Judges a group's sections again, now that their answer is built: what has been taken away meanwhile
    /// is refused. Returns false when the poll has to begin again, under a newer epoch.
    fn judge_again(&mut self, around: &mut Surroundings<'_>) -> bool {
        if matches!(self.work.reader, Reader::Single(_)) {
            return true;
        }
        for (at, section) in self.work.sections.iter().enumerate() {
            let Some(host) = around.hosts.get(&section.address.group) else {
                continue;
            };
            if self.results[at].1.status.is_err() {
                continue;
            }
            match self.gate(around.projection, host, section) {
                Gate::Open(_) => {}
                Gate::Fence(_) if self.fenced < FENCED_MAX => return false,
                Gate::Fence(_) => refuse(&mut self.results[at].1, not_fenced()),
                Gate::Waits(failure) | Gate::Refused(failure) => {
                    around.counters.group_polls_refused += 1;
                    refuse(&mut self.results[at].1, failure);
                }
            }
        }
        self.recount();
        true
    }

    /// What is being handed over by now is not served, although it is stored: who stores before it sees
    /// may lose, never repeat.
    fn take_back_what_moves(&mut self, around: &mut Surroundings<'_>) {
        if self.judge_again(around) {
            return;
        }
        // The ownership goes on under a newer epoch, and what is stored is this consumer's.
        self.recount();
    }

    fn recount(&mut self) {
        let results = || self.results.iter().map(|(_, result)| result);
        self.messages = results().map(|result| result.next.0 - result.from.0).sum();
        self.bytes = results()
            .flat_map(|result| &result.batches)
            .map(|batch| batch.len() as u64)
            .sum();
        self.refused |= results().any(|result| result.status.is_err());
    }

    /// Keeps in mind that the owners of a group's partitions ask for messages.
    fn note(&self, around: &mut Surroundings<'_>) {
        let Reader::Group(reader) = &self.work.reader else {
            return;
        };
        let now = around.desk.now.monotonic;
        for (section, (_, result)) in self.work.sections.iter().zip(&self.results) {
            let key = section.address.key;
            let group = around.projection.group(&reader.key);
            let view = group.and_then(|group| group.view(key.partition));
            let held_since = view.and_then(|view| view.held_since());
            if result.status.is_ok()
                && let Some(host) = around.hosts.get_mut(&section.address.group)
                && let Some(held_since) = held_since
            {
                let place = (key, reader.key.group);
                host.memory.activity.polled(place, held_since, now);
            }
        }
    }

    /// Keeps in mind what the group was served: a hand-over waits until that is stored.
    fn remember(&self, around: &mut Surroundings<'_>) {
        let Reader::Group(reader) = &self.work.reader else {
            return;
        };
        for (section, (_, result)) in self.work.sections.iter().zip(&self.results) {
            if result.batches.is_empty() {
                continue;
            }
            let key = section.address.key;
            let group = around.projection.group(&reader.key);
            let view = group.and_then(|group| group.view(key.partition));
            let held_since = view.and_then(|view| view.held_since());
            if let Some(host) = around.hosts.get_mut(&section.address.group)
                && let Some(held_since) = held_since
            {
                let last = Offset(result.next.0 - 1);
                host.memory
                    .served((key, reader.key.group), held_since, last);
            }
        }
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

    /// A section that cannot be judged yet: nothing is there, and nothing is refused.
    fn put_off(&mut self, result: PollResult) {
        let index = self.work.sections[self.results.len()].index;
        self.results.push((index, result));
        self.unripe = true;
    }

    fn is_satisfied(&self) -> bool {
        let waits = self.unripe && self.bytes == 0;
        self.refused || (!waits && self.bytes >= u64::from(self.work.min_bytes))
    }
}

/// What another node may still have is there again soon.
fn refusal_of(error: &PollError, has_peers: bool) -> Failure {
    match error {
        PollError::Damaged { .. } if has_peers => {
            let text = alloc::format!("{error} on this node; it is fetched from another one");
            Failure::new(ErrorCode::Retry, text)
        }
        PollError::Damaged { .. } | PollError::Absent(_) | PollError::OffsetOutOfRange { .. } => {
            error.failure()
        }
    }
}

fn not_fenced() -> Failure {
    let text = "the partition changes hands again and again; its fence is not raised yet";
    Failure::new(ErrorCode::Retry, text)
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
