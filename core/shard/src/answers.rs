//! From the answers of consensus groups to the reply of a request.

use alloc::{boxed::Box, collections::VecDeque, format, vec, vec::Vec};

use bytes::Bytes;
use catalog::{CachedReply, GroupKey, Membership};
use partition::{DataResult, Refusal};
use wire::{
    Batch, ClusterMetadata, Command, Counter, DeleteResult, Epoch, ErrorCode, Event,
    FRAME_HEADER_SIZE, FRAME_SIZE_MAX, Failure, FrameHeader, GetTopic, GroupPrimary, NodeStatus,
    OffsetsDeleted, OffsetsStored, Op, PollResult, Polled, ReplicaId, Reply, Request,
    RequestNumber, SendResult, Sent, SessionNumber, Stats, StoreResult, View,
};

use crate::{
    Answer, ConnectionId, Effect, MeshMessage, Output, PartitionAddress, Shard, ShardId, Slot,
    counters::Counters,
    fencing::revocation_changed,
    offset_requests::OffsetsAsk,
    pending::{BatchSize, Gather, InFlight, ResetOf},
    shard::Parked,
    work::{Caller, CatalogWork, OffsetsOf, Origin, PartitionOffsets, Work},
};

impl Shard {
    /// Says how many answers a request waits for, and what becomes of them.
    pub(crate) fn gather(&mut self, slot: Slot, gather: Gather, left: usize) {
        if let Some(request) = self.pending.find(slot) {
            request.gather = gather;
            request.left = left;
        }
    }

    /// Replies to a request for which there is nothing to wait.
    pub(crate) fn finish_if_done(&mut self, slot: Slot) {
        if self
            .pending
            .find(slot)
            .is_some_and(|request| request.left == 0)
        {
            self.finish(slot, Op(0), None);
        }
    }

    /// Replies that a request as a whole is refused.
    pub(crate) fn fail(&mut self, slot: Slot, failure: Failure) {
        self.counters.requests_refused += 1;
        if let Some(request) = self.pending.close(slot) {
            self.send_reply(&request, Op(0), None, Err(failure));
            self.discharge(&request);
        }
    }

    /// Replies now; the answers that come later only end the charge.
    pub(crate) fn answer_early(&mut self, slot: Slot, reply: Reply) {
        if let Some(request) = self.pending.find(slot)
            && let Some(connection) = request.connection.take()
        {
            let header = request.header;
            self.reply(connection, &header, Ok(reply));
        }
    }

    /// One answer to a request that came in on this shard.
    pub(crate) fn on_answer(&mut self, origin: Origin, answer: Answer) {
        let slot = origin.slot;
        let Answer {
            outcome,
            op,
            primary,
        } = answer;
        let Some(request) = self.pending.find(slot) else {
            return;
        };
        request.left = request.left.saturating_sub(1);
        let left = request.left;
        match outcome {
            Err(failure) => self.finish_with(slot, op, primary, Err(failure)),
            Ok(Output::Bound(binding, reply)) if op > self.projection.applied() => {
                // Another node has registered the session; this one does not know of it yet.
                request.left += 1;
                let answer = Answer {
                    outcome: Ok(Output::Bound(binding, reply)),
                    op,
                    primary,
                };
                self.park(op, Parked::Answer { origin, answer });
            }
            Ok(Output::Bound(binding, reply)) => {
                if let Some(connection) = request.connection {
                    self.bind(connection, binding);
                }
                self.finish_with(slot, op, primary, Ok(reply));
            }
            Ok(Output::Reply(Reply::Topic(details)))
                if matches!(request.gather, Gather::Topic(None)) =>
            {
                self.on_topic(slot, op, details);
            }
            Ok(Output::Reply(Reply::ConsumerGroupDetails(details)))
                if matches!(request.gather, Gather::Group(None)) =>
            {
                self.on_group(slot, op, details);
            }
            Ok(Output::Verified) => {
                if let Gather::Status(digests, _) = &request.gather {
                    let digests = *digests;
                    self.ask_replicas(slot, digests);
                }
            }
            Ok(Output::Reply(reply)) => self.finish_with(slot, op, primary, Ok(reply)),
            Ok(Output::Executed(cached)) => self.on_executed(slot, (op, primary), cached),
            Ok(output) => {
                self.collect(slot, output, primary.primary);
                if left == 0 {
                    self.finish(slot, op, Some(primary));
                }
            }
        }
    }

    /// A metadata command was executed, now or before.
    fn on_executed(&mut self, slot: Slot, (op, primary): (Op, GroupPrimary), cached: CachedReply) {
        let Some(request) = self.pending.find(slot) else {
            return;
        };
        let succeeded = cached.status == 0;
        let joined = request.header.code == Command::JoinConsumerGroup.code();
        let created = request.header.code == Command::CreateTopic.code();
        if succeeded && (joined || created) {
            return self.answer_by_query(slot, &cached, joined);
        }
        if succeeded && let Gather::Reset(named) = &request.gather {
            let waits = ResetWait {
                slot,
                named: named.clone(),
                until: self.desk.now.after(RESET_TIMEOUT),
                op,
                primary,
                cached,
            };
            self.resets.push(waits);
            return self.answer_resets();
        }
        self.send_executed(slot, (op, primary), cached);
    }

    fn send_executed(
        &mut self,
        slot: Slot,
        (op, primary): (Op, GroupPrimary),
        cached: CachedReply,
    ) {
        if let Some(request) = self.pending.close(slot) {
            let header = FrameHeader::reply(&request.header, cached.status);
            let header = header.with_primary(op, primary.primary, primary.view);
            self.send_frame(request.connection, header, vec![cached.body]);
            self.discharge(&request);
        }
    }

    /// A join is answered with the assignment as it is now, and the creation of a topic with the topic: only
    /// their names are kept for retries.
    fn answer_by_query(&mut self, slot: Slot, cached: &CachedReply, joined: bool) {
        let request = if joined {
            let membership = Membership::decode(cached.body.clone());
            membership.map(|membership| Request::SyncConsumerGroup(membership.key.into()))
        } else {
            let names = cached.topic();
            names.map(|(stream, topic)| {
                Request::GetTopic(GetTopic {
                    stream: stream.into(),
                    topic: topic.into(),
                })
            })
        };
        let request = match request {
            Ok(request) => request,
            // Not ours: another node has executed the command.
            Err(error) => {
                let text = format!("the answer of the node that executed it: {error}");
                return self.fail(slot, Failure::new(ErrorCode::Internal, text));
            }
        };
        let connection = self.pending.find(slot).and_then(|it| it.connection);
        let found = connection.and_then(|id| self.connections.find(id));
        let Some((binding, peer)) = found.and_then(|it| Some((it.binding?, it.peer))) else {
            let text = "the session has ended since";
            return self.fail(slot, Failure::new(ErrorCode::SessionNotFound, text));
        };
        let gather = if joined {
            Gather::One
        } else {
            Gather::Topic(None)
        };
        let caller = Caller {
            binding,
            request: RequestNumber(0),
        };
        let work = CatalogWork {
            caller,
            peer,
            request,
        };
        self.gather(slot, gather, 1);
        self.dispatch(slot, ShardId(0), Work::Catalog(work));
    }

    /// Answers the resets that the data groups have carried out, and those that take too long.
    pub(crate) fn answer_resets(&mut self) {
        let now = self.desk.now.monotonic;
        let (done, waiting) = core::mem::take(&mut self.resets)
            .into_iter()
            .partition(|wait| wait.until <= now || self.is_reset(wait));
        self.resets = waiting;
        for wait in done {
            let is_reset = self.is_reset(&wait);
            let ResetWait {
                slot,
                op,
                primary,
                cached,
                ..
            } = wait;
            if is_reset {
                self.send_executed(slot, (op, primary), cached);
            } else {
                let text = format!(
                    "the reset is committed as metadata op {op}, and not carried out yet; send it again under the same number"
                );
                self.fail(slot, Failure::new(ErrorCode::Retry, text));
            }
        }
    }

    fn is_reset(&self, wait: &ResetWait) -> bool {
        if self.projection.applied() < wait.op {
            return false;
        }
        let ResetOf {
            stream,
            topic,
            group,
        } = &*wait.named;
        let Ok(topic) = self.projection.resolve(stream, topic) else {
            return true;
        };
        let Ok(group) = topic.find_group(group) else {
            return true;
        };
        let mut moves = group.moves();
        moves.all(|(_, view)| view.moving().is_none_or(|moving| moving.reset.is_none()))
    }

    fn finish_with(
        &mut self,
        slot: Slot,
        op: Op,
        primary: GroupPrimary,
        outcome: Result<Reply, Failure>,
    ) {
        if outcome.is_err() {
            self.counters.requests_refused += 1;
        }
        if let Some(request) = self.pending.close(slot) {
            self.send_reply(&request, op, Some(primary), outcome);
            self.discharge(&request);
        }
    }

    /// The catalog has told the topic; now the data groups tell its offsets.
    fn on_topic(&mut self, slot: Slot, op: Op, details: wire::TopicDetails) {
        let addresses: Vec<(u16, PartitionAddress)> = details
            .partitions
            .iter()
            .enumerate()
            .filter_map(|(index, partition)| {
                let key = wire::PartitionKey {
                    stream: details.stream,
                    topic: details.id,
                    partition: partition.id,
                };
                let (incarnation, group) = (partition.incarnation, partition.group);
                Some((
                    u16::try_from(index).ok()?,
                    PartitionAddress {
                        key,
                        incarnation,
                        group,
                    },
                ))
            })
            .collect();
        let ask = OffsetsAsk {
            admitted: op,
            consumer: None,
            addresses,
        };
        self.ask_offsets(slot, Gather::Topic(Some((op, details))), ask);
    }

    /// The catalog has told the consumer group; now the data groups tell how far it has got.
    fn on_group(&mut self, slot: Slot, op: Op, details: wire::ConsumerGroupDetails) {
        let (stream, topic) = (details.stream, details.topic);
        let addresses = details.partitions.iter().filter_map(|partition| {
            let key = wire::PartitionKey {
                stream,
                topic,
                partition: partition.partition,
            };
            let placement = self.projection.placement(&key)?;
            let index = u16::try_from(partition.partition.0).ok()?;
            let address = PartitionAddress {
                key,
                incarnation: partition.incarnation,
                group: placement.group,
            };
            Some((index, address))
        });
        let group = GroupKey {
            stream,
            topic,
            group: details.summary.id,
        };
        let ask = OffsetsAsk {
            admitted: op,
            consumer: Some(OffsetsOf::Group(group)),
            addresses: addresses.collect(),
        };
        self.ask_offsets(slot, Gather::Group(Some((op, details))), ask);
    }

    /// Puts the answer of one group where it belongs.
    fn collect(&mut self, slot: Slot, output: Output, primary: ReplicaId) {
        let Some(request) = self.pending.find(slot) else {
            return;
        };
        match (&mut request.gather, output) {
            (Gather::Send(results), Output::Written(written)) => {
                collect_sent(results, written, primary, &mut self.counters);
            }
            (Gather::Store(results), Output::Written(written)) => {
                collect_stored(results, written, primary, &mut self.counters);
            }
            (Gather::Release(session, results), Output::Written(written)) => {
                let asked = (*session, results.as_mut_slice());
                collect_released(asked, written, primary, &mut self.counters);
            }
            (Gather::Delete(results), Output::Written(written)) => {
                collect_deleted(results, written, primary);
            }
            (
                Gather::Poll {
                    results,
                    shards,
                    hurried,
                    ..
                },
                Output::Polled {
                    sections,
                    satisfied,
                },
            ) => {
                for (index, result) in sections {
                    if let Some(section) = results.get_mut(usize::from(index)) {
                        *section = result;
                    }
                }
                if satisfied && !core::mem::replace(hurried, true) {
                    let shards = shards.clone();
                    self.hurry(slot, &shards);
                }
            }
            (Gather::Offsets(results), Output::Offsets(told)) => {
                collect_offsets(results, told, primary);
            }
            (Gather::Topic(Some((_, details))), Output::Offsets(told)) => {
                for (index, offsets) in told {
                    let partition = details.partitions.get_mut(usize::from(index));
                    if let (Some(partition), Ok(offsets)) = (partition, offsets) {
                        partition.start = Some(offsets.start);
                        partition.end = Some(offsets.end);
                    }
                }
            }
            (Gather::Group(Some((_, details))), Output::Offsets(told)) => {
                for (index, offsets) in told {
                    if let Some(partition) = details.partitions.get_mut(usize::from(index)) {
                        tell_progress(partition, primary, offsets);
                    }
                }
            }
            (Gather::Groups(all), Output::Groups(groups)) => all.extend(groups),
            (Gather::Counters(sums), Output::Counters(counters)) => {
                for (name, value) in counters {
                    *sums.entry(name).or_default() += value;
                }
            }
            (Gather::Status(_, all), Output::Replicas(replicas)) => all.extend(replicas),
            (gather, output) => unreachable!("{output:?} does not belong into {gather:?}"),
        }
    }

    /// Every answer is there.
    fn finish(&mut self, slot: Slot, op: Op, primary: Option<GroupPrimary>) {
        let Some(mut request) = self.pending.close(slot) else {
            return;
        };
        // Who goes on with what it was told names this op, and finds it everywhere.
        let op = if let Gather::Topic(Some((told, _))) | Gather::Group(Some((told, _))) =
            &request.gather
        {
            *told
        } else {
            op
        };
        let reply = match core::mem::replace(&mut request.gather, Gather::One) {
            Gather::Send(sections) => Reply::Sent(Sent {
                sections: sections.into_iter().map(|(result, _)| result).collect(),
            }),
            Gather::Store(sections) => Reply::OffsetsStored(OffsetsStored { sections }),
            Gather::Delete(sections) => Reply::OffsetsDeleted(OffsetsDeleted { sections }),
            Gather::Offsets(sections) => Reply::Offsets(wire::Offsets { sections }),
            Gather::Poll {
                results: mut sections,
                max_messages,
                max_bytes,
                ..
            } => {
                fit(&mut sections, max_messages, max_bytes);
                self.counters.polls += 1;
                let bytes = sections
                    .iter()
                    .flat_map(|section| &section.batches)
                    .map(Bytes::len);
                self.counters.bytes_polled += bytes.sum::<usize>() as u64;
                Reply::Polled(Polled { sections })
            }
            Gather::Groups(mut groups) => {
                groups.sort_by_key(|group| group.group);
                Reply::ClusterMetadata(self.cluster_metadata(groups))
            }
            Gather::Counters(sums) => {
                let counters = sums.into_iter();
                let counters = counters
                    .map(|(name, value)| Counter {
                        name: name.into(),
                        value,
                    })
                    .collect();
                Reply::Stats(Stats { counters })
            }
            Gather::Status(_, mut replicas) => {
                replicas.sort_by_key(|replica| replica.group);
                Reply::NodeStatus(NodeStatus {
                    cluster: self.config.cluster,
                    node: self.config.replica,
                    nodes: self.nodes(),
                    replicas,
                })
            }
            Gather::Topic(Some((_, details))) => Reply::Topic(details),
            Gather::Group(Some((_, details))) => Reply::ConsumerGroupDetails(details),
            Gather::Release(_, sections) => Reply::PartitionsReleased(wire::PartitionsReleased {
                sections: sections.into_iter().map(|(result, _)| result).collect(),
            }),
            Gather::One | Gather::Reset(_) | Gather::Topic(None) | Gather::Group(None) => {
                Reply::Done
            }
        };
        self.send_reply(&request, op, primary, Ok(reply));
        self.discharge(&request);
    }

    fn cluster_metadata(&self, groups: Vec<GroupPrimary>) -> ClusterMetadata {
        ClusterMetadata {
            cluster: self.config.cluster,
            node: self.config.replica,
            nodes: self.nodes(),
            groups,
        }
    }

    fn nodes(&self) -> Vec<wire::Node> {
        let nodes = self.config.nodes.iter();
        nodes
            .map(|node| wire::Node {
                replica: node.replica,
                address: node.address.clone(),
            })
            .collect()
    }

    /// Ends the waits of a poll's other shards.
    pub(crate) fn hurry(&mut self, slot: Slot, shards: &[ShardId]) {
        let origin = self.origin(slot);
        for shard in shards {
            if *shard == self.config.shard {
                self.on_hurry(origin);
            } else {
                self.desk.push(Effect::Mesh {
                    to: *shard,
                    message: MeshMessage::Hurry { origin },
                });
            }
        }
    }

    pub(crate) const fn origin(&self, slot: Slot) -> Origin {
        Origin {
            node: self.config.replica,
            shard: self.config.shard,
            slot,
        }
    }

    /// Sends work to the shard that does it.
    pub(crate) fn dispatch(&mut self, slot: Slot, to: ShardId, work: Work) {
        let origin = self.origin(slot);
        if to == self.config.shard {
            self.work.push_back((origin, work));
        } else {
            let message = MeshMessage::Work {
                origin,
                work: work.into(),
            };
            self.desk.push(Effect::Mesh { to, message });
        }
    }

    fn send_reply(
        &mut self,
        request: &InFlight,
        op: Op,
        primary: Option<GroupPrimary>,
        outcome: Result<Reply, Failure>,
    ) {
        let (status, parts) = match outcome {
            Ok(reply) => (0, reply.encode()),
            Err(failure) => (failure.code.code(), vec![failure.encode()]),
        };
        let (replica, view) =
            primary.map_or((ReplicaId(0), View(0)), |group| (group.primary, group.view));
        let header = FrameHeader::reply(&request.header, status).with_primary(op, replica, view);
        self.send_frame(request.connection, header, parts);
    }

    /// Replies to a frame that got no slot.
    pub(crate) fn reply(
        &mut self,
        connection: ConnectionId,
        header: &FrameHeader,
        outcome: Result<Reply, Failure>,
    ) {
        let (status, parts) = match outcome {
            Ok(reply) => (0, reply.encode()),
            Err(failure) => (failure.code.code(), vec![failure.encode()]),
        };
        self.send_frame(Some(connection), FrameHeader::reply(header, status), parts);
    }

    pub(crate) fn refuse_and_close(
        &mut self,
        connection: ConnectionId,
        header: &FrameHeader,
        failure: Failure,
    ) {
        self.counters.requests_malformed += 1;
        self.reply(connection, header, Err(failure));
        self.desk.push(Effect::Close { connection });
    }

    pub(crate) fn send_event(&mut self, connection: ConnectionId, event: &Event) {
        let session = self
            .connections
            .find(connection)
            .and_then(|connection| connection.binding);
        let session = session.map_or(SessionNumber(0), |binding| binding.session);
        self.send_frame(
            Some(connection),
            event.header(session),
            vec![event.encode()],
        );
    }

    fn send_frame(
        &mut self,
        connection: Option<ConnectionId>,
        header: FrameHeader,
        parts: Vec<Bytes>,
    ) {
        if let Some(connection) = connection {
            let size: usize = parts.iter().map(Bytes::len).sum();
            // Joining what is small costs less than hashing and writing it in pieces.
            let frame = if size <= JOINED_MAX {
                vec![Bytes::from(header.frame(&parts.concat()))]
            } else {
                header.frame_of_parts(parts)
            };
            self.desk.push(Effect::Send { connection, frame });
        }
    }

    fn discharge(&mut self, request: &InFlight) {
        if let Some((connection, bytes)) = request.charge {
            if request.header.code == Command::ChangePassword.code()
                && let Some(event) = self.delayed.remove(&connection)
            {
                self.send_event(connection, &event);
            }
            for flow in self.connections.discharge(connection, bytes) {
                self.flow(Some(flow));
            }
        }
    }
}

/// A reset that is committed in the metadata and waits for the data groups.
#[derive(Debug)]
pub(crate) struct ResetWait {
    slot: Slot,
    named: Box<ResetOf>,
    until: u64,
    op: Op,
    primary: GroupPrimary,
    cached: CachedReply,
}

/// How long a reset waits for the data groups before its client has to ask again, nanoseconds.
const RESET_TIMEOUT: u64 = 10_000_000_000;

type WriteResults = Vec<(u16, Result<DataResult, Failure>)>;

fn collect_sent(
    results: &mut [(SendResult, BatchSize)],
    written: WriteResults,
    primary: ReplicaId,
    counters: &mut Counters,
) {
    for (index, result) in written {
        let Some((section, size)) = results.get_mut(usize::from(index)) else {
            continue;
        };
        section.primary = primary;
        match result {
            Ok(DataResult::Appended {
                base_offset,
                repeated,
            }) => {
                section.base_offset = Some(base_offset);
                if repeated {
                    counters.batches_repeated += 1;
                } else {
                    counters.batches_appended += 1;
                    counters.messages_appended += size.messages;
                    counters.bytes_appended += size.bytes;
                }
            }
            other => section.status = Err(failure_of(other)),
        }
    }
}

fn collect_stored(
    results: &mut [StoreResult],
    written: WriteResults,
    primary: ReplicaId,
    counters: &mut Counters,
) {
    for (index, result) in written {
        let Some(section) = results.get_mut(usize::from(index)) else {
            continue;
        };
        section.primary = primary;
        match result {
            Ok(DataResult::Stored { stored }) => {
                section.stored = Some(stored);
                counters.offsets_stored += 1;
            }
            Ok(DataResult::Record { record, .. }) => {
                section.stored = record.stored;
                counters.offsets_stored += 1;
            }
            other => {
                // Those that were refused before they were replicated are counted where that was.
                let late = matches!(
                    other,
                    Ok(DataResult::Failed(
                        Refusal::StaleEpoch { .. } | Refusal::NotHolder { .. }
                    ))
                );
                counters.group_stores_refused += u64::from(late);
                section.status = Err(failure_of(other));
            }
        }
    }
}

fn collect_offsets(
    results: &mut [wire::OffsetResult],
    told: Vec<(u16, Result<PartitionOffsets, Failure>)>,
    primary: ReplicaId,
) {
    for (index, offsets) in told {
        let Some(section) = results.get_mut(usize::from(index)) else {
            continue;
        };
        section.primary = primary;
        match offsets {
            Ok(PartitionOffsets {
                start, end, stored, ..
            }) => (section.start, section.end, section.stored) = (start, end, stored),
            Err(failure) => section.status = Err(failure),
        }
    }
}

/// A release whose move was planned anew meanwhile has only stored.
fn collect_released(
    (session, results): (SessionNumber, &mut [(wire::ReleaseResult, Epoch)]),
    written: WriteResults,
    primary: ReplicaId,
    counters: &mut Counters,
) {
    for (index, result) in written {
        let Some((section, planned)) = results.get_mut(usize::from(index)) else {
            continue;
        };
        section.primary = primary;
        match result {
            Ok(DataResult::Record { record, .. }) => {
                section.stored = record.stored;
                counters.offsets_stored += 1;
                // A store alone leaves the fence with the owner, under its epoch: that may be above a move
                // that was cancelled, and it may be what the owner has named as the move's.
                let is_kept = record.holder.is_some_and(|it| it.session == session);
                if is_kept || record.fence != *planned {
                    section.status = Err(revocation_changed(section.partition));
                }
            }
            other => {
                counters.group_stores_refused += u64::from(other.is_ok());
                section.status = Err(failure_of(other));
            }
        }
    }
}

/// What a data group's primary knows of a consumer group in one partition.
fn tell_progress(
    partition: &mut wire::OwnershipDetails,
    primary: ReplicaId,
    offsets: Result<PartitionOffsets, Failure>,
) {
    partition.primary = primary;
    let standing = match offsets {
        Ok(offsets) => offsets.group.map(|group| (offsets, group)),
        Err(failure) => {
            partition.progress = Err(failure.code);
            return;
        }
    };
    let Some((offsets, group)) = standing else {
        return;
    };
    partition.progress = if group.is_damaged {
        Err(ErrorCode::PartitionDamaged)
    } else {
        Ok(wire::GroupProgress {
            start: offsets.start,
            end: offsets.end,
            stored: offsets.stored,
            next: group.next,
            lag: offsets.end.0.saturating_sub(group.next.0),
            last_polled: group.last_polled,
            fence: group.fence,
            polled_ms_ago: group.polled_ms_ago,
            stored_ms_ago: group.stored_ms_ago,
            stalled_ms: group.stalled_ms,
        })
    };
    if let (Some(moving), Some((waits_for, time_left))) = (&mut partition.moving, group.waits_for) {
        moving.waits_for = Some(waits_for);
        moving.time_left_ms = time_left;
    }
}

fn collect_deleted(results: &mut [DeleteResult], written: WriteResults, primary: ReplicaId) {
    for (index, result) in written {
        let Some(section) = results.get_mut(usize::from(index)) else {
            continue;
        };
        section.primary = primary;
        if !matches!(result, Ok(DataResult::OffsetDeleted { .. })) {
            section.status = Err(failure_of(result));
        }
    }
}

fn failure_of(result: Result<DataResult, Failure>) -> Failure {
    match result {
        Err(failure) => failure,
        Ok(DataResult::Failed(refusal)) => refusal.failure(),
        Ok(other) => Failure::new(
            ErrorCode::Internal,
            format!("{other:?} answers another request"),
        ),
    }
}

/// Takes batches away, from the last section on, until the reply keeps the poll's limits and fits a frame:
/// each shard has kept them by itself only. What is taken away is served by the next poll.
fn fit(sections: &mut [PollResult], max_messages: u32, max_bytes: u32) {
    let overhead = sections.iter().map(|section| {
        let text = section
            .status
            .as_ref()
            .map_or_else(|failure| failure.text.len(), |()| 0);
        SECTION_SIZE + text
    });
    let room = (FRAME_SIZE_MAX as usize)
        .saturating_sub(FRAME_HEADER_SIZE + SECTION_SIZE + overhead.sum::<usize>());
    let mut total = 0;
    let mut messages = 0;
    for section in sections {
        keep_messages(section, u64::from(max_messages).saturating_sub(messages));
        let size = section.batches.iter().map(Bytes::len).sum::<usize>();
        if total + size <= room && (total == 0 || total + size <= max_bytes as usize) {
            total += size;
            messages += section.next.0 - section.from.0;
        } else {
            section.batches.clear();
            section.next = section.from;
        }
    }
}

/// Takes away the batches before which there are `count` messages already.
fn keep_messages(section: &mut PollResult, count: u64) {
    if section.next.0 - section.from.0 <= count {
        return;
    }
    let mut parts = VecDeque::from(core::mem::take(&mut section.batches));
    section.next = section.from;
    while section.next.0 - section.from.0 < count
        && let Some(first) = parts.front()
    {
        let header = Batch::read_header(first).expect("no part begins within a header");
        let mut left = header.size as usize;
        while left > 0 {
            let mut part = parts.pop_front().expect("batches are served as a whole");
            let kept = part.split_to(left.min(part.len()));
            left -= kept.len();
            section.batches.push(kept);
            if !part.is_empty() {
                parts.push_front(part);
            }
        }
        section.next = header.last_offset().next();
    }
}

/// Bytes of a reply's body up to which it is sent in one piece.
const JOINED_MAX: usize = 4096;

/// Bytes of a section in the answer to a poll, without batches and text.
const SECTION_SIZE: usize = 72;
