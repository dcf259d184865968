//! From a frame to the work that it asks for: everything that is decided before an op exists.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    vec::Vec,
};

use bytes::Bytes;
use catalog::{GroupKey, TopicView};
use partition::DataRequest;
use wire::{
    Acknowledgement, Batch, Command, ConsensusGroup, Consumer, ConsumerGroupId, ErrorCode, Failure,
    FrameHeader, FrameKind, GetNodeStatus, Identifier, Op, PartitionId, PartitionTarget, Plane,
    PollMessages, PollResult, ReplicaId, Reply, Request, RequestNumber, SendMessages, SendResult,
    Sent, partition_of_key,
};

use crate::{
    Answer, Binding, ConnectionId, DiskSpace, Shard, ShardId,
    pending::{BatchSize, Gather, ResetOf},
    shard::Parked,
    work::{
        AttachWork, Caller, CatalogWork, Credentials, GroupReader, LoginWork, Origin,
        PartitionAddress, PollSectionWork, PollWork, Reader, Slot, Work, refused_poll,
    },
};

impl Shard {
    /// A request, or what pretends to be one.
    pub(crate) fn on_frame(&mut self, connection: ConnectionId, header: &FrameHeader, body: Bytes) {
        if self.connections.find(connection).is_none() {
            return;
        }
        self.counters.requests += 1;
        if header.frame_kind() != Some(FrameKind::Request) {
            let text = format!("kind {}: a client sends requests only", header.kind);
            return self.refuse_and_close(
                connection,
                header,
                Failure::new(ErrorCode::MalformedFrame, text),
            );
        }
        if header.code == Command::Ping.code() && body.is_empty() {
            self.see(connection);
            return self.reply(connection, header, Ok(Reply::Done));
        }
        let charge = FRAME_CHARGE + body.len() as u64;
        let flow = self.connections.charge(connection, charge);
        self.flow(flow);
        let slot = self.pending.open(connection, *header, charge);
        if let Err(failure) = self.admit(slot, connection, header, body) {
            self.fail(slot, failure);
        }
    }

    /// Decides what a request needs, and sends it on its way.
    pub(crate) fn admit(
        &mut self,
        slot: Slot,
        connection: ConnectionId,
        header: &FrameHeader,
        body: Bytes,
    ) -> Result<(), Failure> {
        let command = supported(header.code)?;
        if self.stopping {
            return Err(Failure::new(
                ErrorCode::ServerStopping,
                "the node is shutting down",
            ));
        }
        let binding = match command.plane() {
            Plane::Connection => None,
            Plane::Metadata | Plane::Query | Plane::Data => {
                Some(self.authenticated(connection, header)?)
            }
        };
        self.see(connection);
        // Without it a session would be told that it is gone by a node that has not heard of it yet.
        let names_op =
            matches!(command.plane(), Plane::Query | Plane::Data) || command == Command::Attach;
        let waits_for = Op(header.request);
        if names_op && waits_for > self.projection.applied() {
            self.park(
                waits_for,
                Parked::Frame {
                    slot,
                    connection,
                    header: *header,
                    body,
                },
            );
            return Ok(());
        }
        let request = Request::decode(command, body).map_err(|error| Failure::from_body(&error))?;
        // Among several it is the disk of the node that leads the group which counts: see `take_if_room`.
        if !self.desk.has_peers {
            self.check_disk(&request)?;
        }
        self.route(
            &Ask {
                slot,
                connection,
                header,
                binding,
            },
            request,
        )
    }

    /// Takes note of what the disk has room for; what waits for space on a full one is answered, unless other
    /// nodes may carry it out.
    pub(crate) fn on_disk(&mut self, space: DiskSpace) {
        self.disk = space;
        self.tell_reluctance();
        if space == DiskSpace::Nothing && !self.desk.has_peers {
            for slot in self.pending.writes() {
                let text = "the disk is full: it is carried out when there is space, or never";
                self.fail(slot, Failure::new(ErrorCode::OutcomeUnknown, text));
            }
        }
    }

    /// Refuses what would wait for space on the disk.
    fn check_disk(&self, request: &Request) -> Result<(), Failure> {
        let has_messages = matches!(request, Request::SendMessages(_));
        self.check_room(has_messages, must_be_written(request))
    }

    /// The same among several nodes, for work of a group that this one leads, from whatever node it comes:
    /// returns what there is room for.
    pub(crate) fn take_if_room(&mut self, origin: Origin, work: Work) -> Option<Work> {
        let is_append =
            |(_, request): &(u16, DataRequest)| matches!(request, DataRequest::Append { .. });
        let has_messages =
            matches!(&work, Work::Write { requests, .. } if requests.iter().any(is_append));
        let is_written = match &work {
            Work::Login(_) | Work::Write { .. } | Work::GroupWrite(_) => true,
            Work::Catalog(work) => {
                let host = self.metadata.as_ref();
                host.is_some_and(|host| !host.is_read(work))
            }
            Work::Poll(poll) => poll.commit_on_poll,
            Work::Attach(_)
            | Work::Offsets { .. }
            | Work::Groups
            | Work::Counters
            | Work::Verify(_)
            | Work::Replicas { .. } => false,
        };
        let refusal = self.check_room(has_messages, is_written).err();
        let Some(failure) = refusal.filter(|_| self.desk.has_peers) else {
            return Some(work);
        };
        let answer = Answer::without_group(work.refused(&failure));
        self.desk.answer(origin, answer);
        None
    }

    fn check_room(&self, has_messages: bool, is_written: bool) -> Result<(), Failure> {
        let text = match self.disk {
            DiskSpace::Reserve if has_messages => {
                "the disk is nearly full: messages are taken again when there is space; stored \
                 offsets, metadata and reads still work"
            }
            DiskSpace::Nothing if is_written => {
                "the disk is full: writes are taken again when there is space; reads still work"
            }
            DiskSpace::Enough | DiskSpace::Reserve | DiskSpace::Nothing => return Ok(()),
        };
        Err(Failure::new(ErrorCode::StorageFull, text))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other requests go to the catalog"
    )]
    fn route(&mut self, ask: &Ask<'_>, request: Request) -> Result<(), Failure> {
        let Ask {
            slot,
            connection,
            header,
            ..
        } = *ask;
        match request {
            Request::Login(login) => {
                if header.client().0 == 0 {
                    let text = "client id 0: a client chooses a random id that is not 0";
                    return Err(Failure::new(ErrorCode::InvalidArgument, text));
                }
                let (client, name, password) = (header.client(), login.name, login.password);
                let work = Work::Login(LoginWork {
                    client,
                    name,
                    password,
                });
                self.refuse_second_session(connection)?;
                self.dispatch(slot, ShardId(0), work);
            }
            Request::Attach(attach) => {
                let (client, session) = (header.client(), header.session());
                self.refuse_second_session(connection)?;
                let work = AttachWork {
                    client,
                    session,
                    secret: attach.secret,
                };
                self.dispatch(slot, ShardId(0), Work::Attach(work));
            }
            Request::SendMessages(send) => self.route_send(slot, send)?,
            Request::PollMessages(poll) => self.route_poll(ask, poll)?,
            Request::StoreConsumerOffset(store) => self.route_store(ask, store)?,
            Request::ReleasePartition(release) => self.route_release(ask, release)?,
            Request::DeleteConsumerOffset(delete) => self.route_delete(slot, delete)?,
            Request::GetConsumerOffset(get) => self.route_offsets(slot, get)?,
            Request::GetClusterMetadata => {
                self.ask_all(slot, Gather::Groups(Vec::new()), || Work::Groups)
            }
            Request::GetNodeStatus(status) => self.route_status(ask, status)?,
            Request::GetStats => {
                self.ask_all(slot, Gather::Counters(BTreeMap::new()), || Work::Counters)
            }
            request => self.route_to_catalog(ask, request)?,
        }
        Ok(())
    }

    /// Without a session the password is checked here, not where the metadata group is led: who asks may have
    /// come because nobody leads.
    fn route_status(&mut self, ask: &Ask<'_>, status: GetNodeStatus) -> Result<(), Failure> {
        let found = self.connections.find(ask.connection);
        let digests = status.digests;
        if found.is_some_and(|connection| connection.binding.is_some()) {
            self.authenticated(ask.connection, ask.header)?;
            self.ask_replicas(ask.slot, digests);
            return Ok(());
        }
        let work = Work::Verify(Credentials {
            name: status.name,
            password: status.password,
        });
        self.gather(ask.slot, Gather::Status(digests, Vec::new()), 1);
        self.dispatch(ask.slot, ShardId(0), work);
        Ok(())
    }

    /// Everything that is not of the data plane.
    fn route_to_catalog(&mut self, ask: &Ask<'_>, request: Request) -> Result<(), Failure> {
        let slot = ask.slot;
        if matches!(request, Request::GetTopic(_)) {
            self.gather(slot, Gather::Topic(None), 1);
        }
        if matches!(request, Request::GetConsumerGroup(_)) {
            self.gather(slot, Gather::Group(None), 1);
        }
        if let Request::ResetConsumerOffset(reset) = &request {
            let named = ResetOf {
                stream: reset.stream.clone(),
                topic: reset.topic.clone(),
                group: reset.group.clone(),
            };
            self.gather(slot, Gather::Reset(named.into()), 1);
        }
        let request_number = match request.command().plane() {
            Plane::Metadata => ask.header.request_number(),
            Plane::Connection | Plane::Query | Plane::Data => RequestNumber(0),
        };
        let caller = Caller {
            binding: ask.binding.ok_or_else(unauthenticated)?,
            request: request_number,
        };
        let peer = self.peer_of(ask.connection);
        let work = CatalogWork {
            caller,
            peer,
            request,
        };
        self.dispatch(slot, ShardId(0), Work::Catalog(work));
        Ok(())
    }

    fn authenticated(
        &self,
        connection: ConnectionId,
        header: &FrameHeader,
    ) -> Result<Binding, Failure> {
        let binding = self
            .connections
            .find(connection)
            .and_then(|connection| connection.binding);
        let Some(binding) = binding else {
            return Err(unauthenticated());
        };
        if binding.client == header.client() && binding.session == header.session() {
            Ok(binding)
        } else {
            let text = format!(
                "the connection carries session {}, the request names session {}",
                binding.session,
                header.session()
            );
            Err(Failure::new(ErrorCode::SessionMismatch, text))
        }
    }

    fn refuse_second_session(&self, connection: ConnectionId) -> Result<(), Failure> {
        match self
            .connections
            .find(connection)
            .and_then(|connection| connection.binding)
        {
            None => Ok(()),
            Some(binding) => {
                let text = format!("the connection carries session {} already", binding.session);
                Err(Failure::new(ErrorCode::AlreadyLoggedIn, text))
            }
        }
    }

    fn route_send(&mut self, slot: Slot, send: SendMessages) -> Result<(), Failure> {
        self.check_sections(send.sections.len())?;
        let topic = self.projection.resolve(&send.stream, &send.topic)?;
        let admitted = self.projection.applied();
        let mut results = Vec::with_capacity(send.sections.len());
        let mut writes = Writes::default();
        let mut turn = self.turn;
        for (index, section) in send.sections.into_iter().enumerate() {
            let size = BatchSize::of(&section.batch);
            let target =
                target(topic, &section.target, &section.batch, &mut turn).and_then(|partition| {
                    Ok((
                        partition,
                        self.check_batch(topic, partition, &section.batch)?,
                    ))
                });
            let (partition, status) = match target {
                Ok((partition, address)) => {
                    let PartitionAddress {
                        key,
                        incarnation,
                        group,
                    } = address;
                    let request = DataRequest::Append {
                        key,
                        incarnation,
                        admitted,
                        batch: section.batch,
                    };
                    writes.push(group, index, request);
                    (partition, Ok(()))
                }
                Err(failure) => (named_partition(&section.target), Err(failure)),
            };
            let result = SendResult {
                partition,
                status,
                primary: ReplicaId(0),
                base_offset: None,
            };
            results.push((result, size));
        }
        self.turn = turn;
        if send.acknowledgement == Acknowledgement::None {
            self.answer_early(
                slot,
                Sent {
                    sections: results.iter().map(|(result, _)| result.clone()).collect(),
                }
                .into(),
            );
        }
        self.dispatch_writes(slot, admitted, Gather::Send(results), writes);
        Ok(())
    }

    fn check_batch(
        &self,
        topic: &TopicView,
        partition: PartitionId,
        batch: &Batch,
    ) -> Result<PartitionAddress, Failure> {
        let size_max = self.config.limits.batch_size;
        if batch.header.size > size_max {
            let text = format!(
                "the batch has {} bytes; {size_max} are the limit",
                batch.header.size
            );
            return Err(Failure::new(ErrorCode::BatchTooLarge, text));
        }
        let limit = self.config.limits.batch_messages;
        if batch.header.count > limit {
            let text = format!(
                "the batch has {} messages; {limit} are the limit",
                batch.header.count
            );
            return Err(Failure::new(ErrorCode::TooManyMessages, text));
        }
        address(topic, partition)
    }

    fn route_poll(&mut self, ask: &Ask<'_>, poll: PollMessages) -> Result<(), Failure> {
        let slot = ask.slot;
        self.check_sections(poll.sections.len())?;
        Self::check_distinct(poll.sections.iter().map(|section| section.partition))?;
        self.check_poll(&poll)?;
        let limits = &self.config.limits;
        let topic = self.projection.resolve(&poll.stream, &poll.topic)?;
        let wait = wait_of(&poll);
        let reader = reader(ask, topic, poll.consumer)?;
        let epochs = poll.sections.iter().map(|section| section.epoch);
        let admitted = self.admitted(matches!(reader, Reader::Group(_)), epochs);
        let template = PollWork {
            admitted,
            reader,
            max_messages: poll.max_messages,
            max_bytes: poll.max_bytes.min(limits.poll_bytes),
            min_bytes: poll.min_bytes.min(limits.poll_bytes),
            deadline: self.desk.now.after(wait),
            commit_on_poll: poll.commit_on_poll,
            sections: Vec::new(),
        };
        let mut results = Vec::with_capacity(poll.sections.len());
        let mut by_shard: BTreeMap<ShardId, Vec<PollSectionWork>> = BTreeMap::new();
        let mut refused = false;
        for (index, section) in poll.sections.iter().enumerate() {
            let status = address(topic, section.partition).map(|address| {
                let (epoch, strategy) = (section.epoch, section.strategy);
                let work = PollSectionWork {
                    index: section_index(index),
                    address,
                    epoch,
                    strategy,
                };
                by_shard
                    .entry(self.config.shard_of(address.group))
                    .or_default()
                    .push(work);
            });
            refused |= status.is_err();
            results.push(match status {
                Ok(()) => unanswered_poll(section.partition),
                Err(failure) => refused_poll(section.partition, failure),
            });
        }
        let shards: Vec<ShardId> = by_shard.keys().copied().collect();
        let (max_messages, max_bytes) = (template.max_messages, template.max_bytes);
        let gather = Gather::Poll {
            results,
            max_messages,
            max_bytes,
            shards: shards.clone(),
            hurried: refused,
        };
        self.gather(slot, gather, shards.len());
        for (shard, sections) in by_shard {
            // A refusal is an answer: nobody waits for messages beside it.
            let deadline = if refused { 0 } else { template.deadline };
            self.dispatch(
                slot,
                shard,
                Work::Poll(PollWork {
                    sections,
                    deadline,
                    ..template.clone()
                }),
            );
        }
        self.finish_if_done(slot);
        Ok(())
    }

    fn check_poll(&self, poll: &PollMessages) -> Result<(), Failure> {
        let limits = &self.config.limits;
        if poll.max_messages == 0 {
            return Err(Failure::new(
                ErrorCode::InvalidArgument,
                "max messages is 0; at least 1 is needed",
            ));
        }
        if poll.max_wait_ms > limits.poll_wait {
            let text = format!(
                "max wait is {} ms; {} ms are the limit",
                poll.max_wait_ms, limits.poll_wait
            );
            return Err(Failure::new(ErrorCode::InvalidArgument, text));
        }
        if poll.commit_on_poll && poll.sections.len() > 1 {
            let text = "a poll that stores what it serves takes one section";
            return Err(Failure::new(ErrorCode::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn dispatch_writes(
        &mut self,
        slot: Slot,
        admitted: Op,
        gather: Gather,
        writes: Writes,
    ) {
        self.gather(slot, gather, writes.by_group.len());
        for (group, requests) in writes.by_group {
            let shard = self.config.shard_of(group);
            self.dispatch(
                slot,
                shard,
                Work::Write {
                    group,
                    admitted,
                    requests,
                },
            );
        }
        self.finish_if_done(slot);
    }

    pub(crate) fn ask_replicas(&mut self, slot: Slot, digests: bool) {
        let gather = Gather::Status(digests, Vec::new());
        self.ask_all(slot, gather, || Work::Replicas { digests });
    }

    fn ask_all(&mut self, slot: Slot, gather: Gather, work: impl Fn() -> Work) {
        let count = self.config.shard_count;
        self.gather(slot, gather, usize::from(count));
        for shard in 0..count {
            self.dispatch(slot, ShardId(shard), work());
        }
    }

    /// Refuses a request that names a partition twice.
    pub(crate) fn check_distinct(
        partitions: impl Iterator<Item = PartitionId>,
    ) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        for partition in partitions {
            if !seen.insert(partition) {
                let text = format!("partition {partition} is named twice");
                return Err(Failure::new(ErrorCode::InvalidArgument, text));
            }
        }
        Ok(())
    }

    pub(crate) fn check_sections(&self, count: usize) -> Result<(), Failure> {
        let limit = self.config.limits.sections;
        match count {
            0 => Err(Failure::new(
                ErrorCode::InvalidArgument,
                "the request has no sections",
            )),
            count if count > limit as usize => {
                let text = format!("the request has {count} sections; {limit} are the limit");
                Err(Failure::new(ErrorCode::TooManySections, text))
            }
            _ => Ok(()),
        }
    }
}

/// A request on its way to work.
pub(crate) struct Ask<'a> {
    pub(crate) slot: Slot,
    connection: ConnectionId,
    header: &'a FrameHeader,
    binding: Option<Binding>,
}

/// What a request without a body is charged with, bytes.
const FRAME_CHARGE: u64 = 256;

/// Requests by the data group that they go to.
#[derive(Default)]
pub(crate) struct Writes {
    by_group: BTreeMap<ConsensusGroup, Vec<(u16, DataRequest)>>,
}

impl Writes {
    pub(crate) fn push(&mut self, group: ConsensusGroup, index: usize, request: DataRequest) {
        self.by_group
            .entry(group)
            .or_default()
            .push((section_index(index), request));
    }
}

/// Whether a request leads to an op.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the data plane only polls and questions may lead to none"
)]
fn must_be_written(request: &Request) -> bool {
    let command = request.command();
    match command.plane() {
        Plane::Metadata => true,
        Plane::Connection => command == Command::Login,
        Plane::Query => false,
        Plane::Data => match request {
            Request::PollMessages(poll) => poll.commit_on_poll,
            _ => command != Command::GetConsumerOffset,
        },
    }
}

fn supported(code: u32) -> Result<Command, Failure> {
    match Command::from_code(code) {
        Some(command) if command.supported() => Ok(command),
        Some(command) => {
            let text = format!(
                "{} (command {code}) is not executed by this version",
                command.name()
            );
            Err(Failure::new(ErrorCode::CommandNotSupported, text))
        }
        None => {
            let text = format!("{code} is not a command");
            Err(Failure::new(ErrorCode::CommandUnknown, text))
        }
    }
}

fn unauthenticated() -> Failure {
    Failure::new(
        ErrorCode::Unauthenticated,
        "the connection has no session: log in or attach first",
    )
}

/// The partition that a batch goes to.
fn target(
    topic: &TopicView,
    target: &PartitionTarget,
    batch: &Batch,
    turn: &mut u32,
) -> Result<PartitionId, Failure> {
    let count = topic.partition_count();
    match target {
        PartitionTarget::Explicit(partition) => Ok(*partition),
        PartitionTarget::Key(key) => Ok(partition_of_key(key, count)),
        PartitionTarget::Balanced if batch.header.sequence != 0 => {
            let text = "an idempotent batch must name its partition: its sequence counts there";
            Err(Failure::new(ErrorCode::InvalidArgument, text))
        }
        PartitionTarget::Balanced => {
            *turn = turn.wrapping_add(1);
            Ok(PartitionId(*turn % count))
        }
    }
}

fn named_partition(target: &PartitionTarget) -> PartitionId {
    match target {
        PartitionTarget::Explicit(partition) => *partition,
        PartitionTarget::Balanced | PartitionTarget::Key(_) => PartitionId(0),
    }
}

pub(crate) fn address(
    topic: &TopicView,
    partition: PartitionId,
) -> Result<PartitionAddress, Failure> {
    let placement = topic.placement(partition)?;
    Ok(PartitionAddress {
        key: topic.key(partition),
        incarnation: placement.incarnation,
        group: placement.group,
    })
}

pub(crate) fn single(consumer: Consumer) -> Result<alloc::string::String, Failure> {
    match consumer {
        Consumer::Single(name) => match wire::check_name(&name) {
            Ok(()) => Ok(name),
            Err(problem) => {
                let text = format!("consumer {name:?}: {}", problem);
                Err(Failure::new(ErrorCode::InvalidName, text))
            }
        },
        Consumer::Group(group) => {
            let text = format!(
                "consumer group {group}: its offsets are deleted by ResetConsumerOffset, to nothing"
            );
            Err(Failure::new(ErrorCode::InvalidArgument, text))
        }
    }
}

/// Who reads: a single consumer, or the session in a consumer group's name.
pub(crate) fn reader(
    ask: &Ask<'_>,
    topic: &TopicView,
    consumer: Consumer,
) -> Result<Reader, Failure> {
    match consumer {
        Consumer::Group(group) => group_reader(ask, topic, &group).map(Reader::Group),
        single_one @ Consumer::Single(_) => single(single_one).map(Reader::Single),
    }
}

pub(crate) fn group_reader(
    ask: &Ask<'_>,
    topic: &TopicView,
    group: &Identifier,
) -> Result<GroupReader, Failure> {
    let binding = ask.binding.ok_or_else(unauthenticated)?;
    Ok(GroupReader {
        key: group_key(topic, topic.find_group(group)?.id()),
        client: binding.client,
        session: binding.session,
    })
}

pub(crate) const fn group_key(topic: &TopicView, group: ConsumerGroupId) -> GroupKey {
    GroupKey {
        stream: topic.stream,
        topic: topic.id,
        group,
    }
}

/// How long a poll waits for messages at the most, nanoseconds.
const fn wait_of(poll: &PollMessages) -> u64 {
    match poll.min_bytes {
        0 => 0,
        _ => poll.max_wait_ms as u64 * 1_000_000,
    }
}

/// Stands where the answer of a section will be.
fn unanswered_poll(partition: PartitionId) -> PollResult {
    PollResult {
        status: Ok(()),
        ..refused_poll(partition, Failure::new(ErrorCode::Retry, ""))
    }
}

pub(crate) fn section_index(index: usize) -> u16 {
    u16::try_from(index).expect("the number of sections is limited")
}
