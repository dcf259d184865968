//! A model of a broker with one consumer group, ruled by the real coordinator.

use alloc::{
    collections::{BTreeMap, VecDeque},
    string::ToString,
    vec::Vec,
};

use bytes::Bytes;
use coordinator::{
    Admission, At, Claim, ConsumerGroups, GroupChange, GroupOptions, GroupProjection, Holder,
    Intent, Join, NewGroup, Progress, Right, Weight, hand_over,
};
use wire::{
    AssignedPartition, AssignmentChanged, BatchBuilder, ClientId, Command, Consumer,
    ConsumerGroupAssignment, ConsumerGroupId, Epoch, ErrorCode, Event, FRAME_SIZE_MAX, Failure,
    FrameHeader, Incarnation, LoggedIn, MemberId, Message, Offset, OffsetsStored, Op, PartitionId,
    PartitionsReleased, PollMessages, PollResult, PollSection, PollStrategy, Polled, ProducerId,
    ReleasePartition, ReleaseResult, ReplicaId, Reply, Request, RevokingPartition, SessionNumber,
    SessionSecret, StoreConsumerOffset, StoreResult, StoreSection, StreamId, Timestamp, TopicId,
    UserId, View,
};

use super::{Link, MS, SECOND};
use crate::{Frame, random::Random};

const STREAM: StreamId = StreamId(1);
const TOPIC: TopicId = TopicId(2);
const GRACE: u64 = SECOND;
const SESSION_TIMEOUT: u64 = 10 * SECOND;

pub(super) struct Broker {
    random: Random,
    now: u64,
    op: u64,
    sessions: BTreeMap<ClientId, Live>,
    pub(super) groups: ConsumerGroups,
    /// What the shards know of the group: behind by `lag_ms` at most.
    projection: Option<GroupProjection>,
    applied: u64,
    coming: VecDeque<(u64, u64, GroupChange)>,
    pub(super) lag_ms: u64,
    pub(super) rebalance_timeout_ms: u32,
    pub(super) partitions: Vec<Partition>,
    waiting: Vec<Waiting>,
    /// Frames for clients.
    pub(super) out: Vec<(Link, Frame)>,
    /// Partitions given up by their owners, and those taken.
    pub(super) hand_overs: Vec<(PartitionId, coordinator::HandOver)>,
    pub(super) logins: u64,
}

struct Live {
    session: SessionNumber,
    links: Vec<Link>,
    heard: u64,
    /// The latest metadata command and how it ended.
    last: Option<(u64, Result<Done, Failure>)>,
}

/// How a metadata command ended.
#[derive(Clone, Copy)]
enum Done {
    Joined,
    Otherwise,
}

struct Waiting {
    link: Link,
    header: FrameHeader,
    poll: PollMessages,
    until: u64,
}

#[derive(Default)]
pub(super) struct Partition {
    batches: BTreeMap<u64, Bytes>,
    pub(super) end: u64,
    fence: Epoch,
    holder: Option<MemberId>,
    fence_at_view: Epoch,
    pub(super) stored: Option<Offset>,
    /// The beginning of the ownership, and the highest offset served in it.
    polled: (Epoch, Option<Offset>),
    released: Option<Epoch>,
}

impl Broker {
    pub(super) fn new(seed: u64, partitions: u32) -> Self {
        Self {
            random: Random::new(seed ^ 0xb0),
            now: 0,
            op: 0,
            sessions: BTreeMap::new(),
            groups: ConsumerGroups::default(),
            projection: None,
            applied: 0,
            coming: VecDeque::new(),
            lag_ms: 0,
            rebalance_timeout_ms: 20_000,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            waiting: Vec::new(),
            out: Vec::new(),
            hand_overs: Vec::new(),
            logins: 0,
        }
    }

    /// Appends a batch of `count` messages.
    pub(super) fn produce(&mut self, partition: usize, count: u32) {
        let own = &mut self.partitions[partition];
        let mut builder = BatchBuilder::new();
        for index in 0..u64::from(count) {
            builder.push(&Message {
                payload: Bytes::copy_from_slice(&(own.end + index).to_le_bytes()),
                ..Message::default()
            });
        }
        let batch = builder.build(ProducerId(0), 0);
        let bytes = batch.stamped(Offset(own.end), Timestamp(1)).to_bytes();
        own.batches.insert(own.end, bytes);
        own.end += u64::from(count);
    }

    /// The primary of the data group changes: it no longer knows what was polled.
    pub(super) fn change_view(&mut self, partition: usize) {
        let own = &mut self.partitions[partition];
        own.fence_at_view = own.fence;
        own.polled.1 = None;
        own.released = None;
    }

    pub(super) fn forget_session(&mut self, client: ClientId) {
        if let Some(live) = self.sessions.remove(&client) {
            self.end_session(client, live.session);
        }
    }

    pub(super) fn session_of(&self, client: ClientId) -> Option<SessionNumber> {
        self.sessions.get(&client).map(|live| live.session)
    }

    /// An administrator ends a membership.
    pub(super) fn remove_member(&mut self, member: MemberId) {
        let at = self.at();
        let group = self
            .groups
            .group_mut(ConsumerGroupId(1))
            .expect("the group");
        let change = group.remove(at, member).expect("a member");
        self.publish(change);
    }

    /// A forced reset of every partition to `offset`, or to none.
    pub(super) fn reset(&mut self) {
        let at = self.at();
        let count = u32::try_from(self.partitions.len()).expect("few");
        let partitions = (0..count).map(|id| (PartitionId(id), coordinator::ResetTo::Nothing));
        let reset = coordinator::Reset {
            partitions: partitions.collect(),
            force: true,
        };
        let group = self
            .groups
            .group_mut(ConsumerGroupId(1))
            .expect("the group");
        let change = group.reset(at, &reset).expect("it is forced");
        self.publish(change);
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        let coming = self.coming.front().map(|(time, ..)| *time);
        let waiting = self.waiting.iter().map(|waiting| waiting.until).min();
        coming.into_iter().chain(waiting).min()
    }

    /// Does what is due: follows the metadata, moves partitions, ends waits and sessions.
    pub(super) fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
        while let Some((time, ..)) = self.coming.front()
            && *time <= self.now
        {
            let (_, op, change) = self.coming.pop_front().expect("there is one");
            self.applied = op;
            if let Some(projection) = &mut self.projection {
                projection.follow(&change);
            }
            self.notify(&change);
        }
        self.expire();
        self.reconcile();
        for waiting in core::mem::take(&mut self.waiting) {
            self.serve(waiting);
        }
    }

    pub(super) fn on_closed(&mut self, link: Link) {
        for live in self.sessions.values_mut() {
            if live.links.contains(&link) {
                live.links.retain(|other| *other != link);
                live.heard = live.heard.min(self.now);
                if live.links.is_empty() {
                    live.heard = self.now;
                }
            }
        }
        self.waiting.retain(|waiting| waiting.link != link);
    }

    fn expire(&mut self) {
        let now = self.now;
        let over = self.sessions.iter().filter(|(client, live)| {
            let patience = if live.links.is_empty() {
                GRACE
            } else {
                SESSION_TIMEOUT
            };
            let waits = self
                .waiting
                .iter()
                .any(|waiting| waiting.header.client() == **client);
            !waits && now >= live.heard + patience
        });
        for client in over.map(|(client, _)| *client).collect::<Vec<_>>() {
            self.forget_session(client);
        }
    }

    fn end_session(&mut self, client: ClientId, session: SessionNumber) {
        let at = self.at();
        let Some(group) = self.groups.group_mut(ConsumerGroupId(1)) else {
            return;
        };
        let change = group.end_sessions(at, &[(client, session)], false);
        self.publish(change);
    }

    fn at(&mut self) -> At {
        self.op += 1;
        At {
            op: Op(self.op),
            timestamp: Timestamp(self.now / 1_000),
        }
    }

    fn publish(&mut self, change: GroupChange) {
        let earliest = self.coming.back().map_or(0, |(time, ..)| *time);
        let lag = self.random.between(0, self.lag_ms * MS);
        let time = (self.now + lag).max(earliest);
        self.coming.push_back((time, self.op, change));
    }

    fn notify(&mut self, change: &GroupChange) {
        for holder in &change.notify {
            let Some(live) = self.sessions.get(&holder.client) else {
                continue;
            };
            if live.session != holder.session {
                continue;
            }
            let event = Event::AssignmentChanged(AssignmentChanged {
                stream: STREAM,
                topic: TOPIC,
                group: change.group,
                generation: change.generation,
            });
            for link in live.links.clone() {
                let frame = Frame {
                    header: event.header(holder.session),
                    body: event.encode(),
                };
                self.out.push((link, frame));
            }
        }
    }

    /// What the reconciler does: raises the fences of moves that may end, then completes them.
    fn reconcile(&mut self) {
        let Some(projection) = &self.projection else {
            return;
        };
        let mut completed = Vec::new();
        for (id, view) in projection.moves() {
            let moving = view.moving().expect("it moves");
            let own = &mut self.partitions[usize::try_from(id.0).expect("few")];
            if own.fence >= moving.epoch {
                completed.push((id, own.fence));
                continue;
            }
            let since = moving.since.0 * 1_000 + u64::from(self.rebalance_timeout_ms) * MS;
            let known = Some(own.polled.0) == view.held_since();
            let progress = Progress {
                fence: own.fence,
                fence_at_view: own.fence_at_view,
                stored: own.stored,
                last_polled: own.polled.1.filter(|_| known),
                released: own.released == Some(moving.epoch),
                timed_out: self.now >= since,
            };
            let Some(how) = hand_over(&view, &progress) else {
                continue;
            };
            self.hand_overs.push((id, how));
            own.fence = moving.epoch;
            own.holder = moving.to.map(|to: Holder| to.member);
            if moving.reset.is_some() {
                own.stored = None;
            }
            completed.push((id, moving.epoch));
        }
        if completed.is_empty() {
            return;
        }
        let at = self.at();
        let group = self.groups.group_mut(ConsumerGroupId(1)).expect("it moves");
        let change = group.complete(at, &completed);
        if change.is_empty() {
            self.op -= 1;
        } else {
            self.publish(change);
        }
    }

    /// Takes a request; answers are in `out` at once or later.
    pub(super) fn handle(&mut self, link: Link, frame: Frame, busy: bool) {
        let header = frame.header;
        let client = header.client();
        let command = Command::from_code(header.code).expect("a known command");
        let request = Request::decode(command, frame.body).expect("a sound body");
        if let Request::Login(_) = request {
            return self.login(link, &header);
        }
        let now = self.now;
        let Some(live) = self
            .sessions
            .get_mut(&client)
            .filter(|live| live.session == header.session())
        else {
            return self.answer(link, &header, Err(failure(ErrorCode::SessionNotFound)));
        };
        live.heard = now;
        if busy && !matches!(request, Request::Attach(_) | Request::Ping) {
            return self.answer(link, &header, Err(failure(ErrorCode::NotReady)));
        }
        let reply = if let Request::Attach(_) = request {
            live.links.push(link);
            Ok(Reply::Done)
        } else if let Request::Ping = request {
            Ok(Reply::Done)
        } else if let Request::GetClusterMetadata = request {
            Err(failure(ErrorCode::CommandNotSupported))
        } else if let Request::PollMessages(poll) = request {
            let until = self.now + u64::from(poll.max_wait_ms) * MS;
            return self.serve(Waiting {
                link,
                header,
                poll,
                until,
            });
        } else if let Request::StoreConsumerOffset(store) = request {
            Ok(self.store(&header, &store))
        } else if let Request::ReleasePartition(release) = request {
            Ok(self.release(&header, &release))
        } else if let Request::SyncConsumerGroup(_) = request {
            let (op, reply) = self.sync(&header);
            return self.answer_at(op, link, &header, reply);
        } else {
            self.metadata(&header, &request)
        };
        self.answer(link, &header, reply);
        self.reconcile();
    }

    fn login(&mut self, link: Link, header: &FrameHeader) {
        let client = header.client();
        self.forget_session(client);
        self.op += 1;
        self.logins += 1;
        let session = SessionNumber(self.op);
        let live = Live {
            session,
            links: alloc::vec![link],
            heard: self.now,
            last: None,
        };
        self.sessions.insert(client, live);
        let reply = Reply::LoggedIn(LoggedIn {
            session,
            secret: SessionSecret([0; 32]),
            user: UserId(1),
            session_timeout_ms: 10_000,
            frame_size_max: FRAME_SIZE_MAX,
        });
        self.answer(link, header, Ok(reply));
    }

    /// A metadata command, executed once under its number.
    fn metadata(&mut self, header: &FrameHeader, request: &Request) -> Result<Reply, Failure> {
        let client = header.client();
        let last = self.sessions[&client].last.clone();
        let done = match last {
            Some((number, done)) if number == header.request => done,
            Some(_) | None => {
                let done = self.execute(header, request);
                let live = self.sessions.get_mut(&client).expect("it asks");
                live.last = Some((header.request, done.clone()));
                done
            }
        };
        match done? {
            Done::Otherwise if matches!(request, Request::CreateConsumerGroup(_)) => {
                // Nobody looks into it.
                Err(failure(ErrorCode::ConsumerGroupAlreadyExists))
            }
            Done::Otherwise => Ok(Reply::Done),
            Done::Joined => self.assignment_by_group(header),
        }
    }

    fn execute(&mut self, header: &FrameHeader, request: &Request) -> Result<Done, Failure> {
        let at = self.at();
        let (client, session) = (header.client(), header.session());
        if let Request::CreateConsumerGroup(create) = request {
            let partitions = u32::try_from(self.partitions.len()).expect("few");
            let new = NewGroup {
                name: create.name.clone(),
                options: GroupOptions {
                    rebalance_timeout_ms: self.rebalance_timeout_ms,
                    ..GroupOptions::default()
                },
                partitions,
            };
            let group = self.groups.create(at, new, 1)?;
            self.projection = Some(GroupProjection::from(group));
            self.applied = self.op;
            return Ok(Done::Otherwise);
        }
        if let Request::JoinConsumerGroup(join) = request {
            let group = self.groups.find_mut(&join.group)?;
            let joining = Join {
                client,
                session,
                instance: join.instance.clone(),
                weight: Weight(join.weight),
                address: "here".to_string(),
            };
            let (_, change) = group.join(at, joining, 100)?;
            self.publish(change);
            return Ok(Done::Joined);
        }
        let Request::LeaveConsumerGroup(leave) = request else {
            panic!("{request:?}")
        };
        let group = self.groups.find_mut(&leave.group)?;
        let change = group.leave(at, client, session)?;
        self.publish(change);
        Ok(Done::Otherwise)
    }

    fn assignment_by_group(&self, header: &FrameHeader) -> Result<Reply, Failure> {
        let group = self
            .groups
            .group(ConsumerGroupId(1))
            .ok_or_else(|| failure(ErrorCode::ConsumerGroupNotFound))?;
        let member = group.membership(header.client(), header.session())?.id;
        let assignment = group.assignment(member).expect("a member");
        Ok(self.wire(&assignment))
    }

    /// By the copy of a node: at least as new as the client has seen.
    fn sync(&mut self, header: &FrameHeader) -> (u64, Result<Reply, Failure>) {
        let old = self.applied >= header.request && self.random.between(0, 1) == 0;
        let Some(projection) = self.projection.as_ref().filter(|_| old) else {
            return (self.op, self.assignment_by_group(header));
        };
        let reply = match projection.membership(header.client(), header.session()) {
            Ok(member) => {
                let assignment = projection.assignment(member.id).expect("a member");
                Ok(self.wire(&assignment))
            }
            Err(refused) => Err(refused.into()),
        };
        (self.applied, reply)
    }

    fn wire(&self, assignment: &coordinator::Assignment) -> Reply {
        let incarnation = Incarnation(1);
        let timeout = u64::from(self.rebalance_timeout_ms) * MS;
        let owned = assignment.owned.iter().map(|owned| AssignedPartition {
            partition: owned.partition,
            incarnation,
            epoch: owned.epoch,
            held_since: owned.held_since,
        });
        let revoking = assignment.revoking.iter().map(|entry| {
            let left = (entry.since.0 * 1_000 + timeout).saturating_sub(self.now) / MS;
            RevokingPartition {
                partition: entry.partition,
                incarnation,
                epoch: entry.epoch,
                held_since: entry.held_since,
                planned: entry.planned,
                time_left_ms: u32::try_from(left).expect("short"),
            }
        });
        Reply::Assignment(ConsumerGroupAssignment {
            stream: STREAM,
            topic: TOPIC,
            group: ConsumerGroupId(1),
            member: assignment.member,
            generation: assignment.generation,
            plan_pending: false,
            member_count: 1,
            partition_count: u32::try_from(self.partitions.len()).expect("few"),
            owned: owned.collect(),
            revoking: revoking.collect(),
        })
    }

    /// What a claim comes to at the partition's primary, without regard to the fence.
    fn admit(
        &self,
        header: &FrameHeader,
        partition: PartitionId,
        epoch: Epoch,
        intent: Intent,
    ) -> Result<Right, Failure> {
        let Some(projection) = &self.projection else {
            return Err(failure(ErrorCode::ConsumerGroupNotFound));
        };
        let claim = Claim {
            client: header.client(),
            session: header.session(),
            epoch,
            intent,
        };
        match projection.admit(partition, &claim, Op(self.applied)) {
            Admission::Serve(right) | Admission::Lift(right) => Ok(right),
            refused @ (Admission::Park(_)
            | Admission::NotOwned
            | Admission::Revoking { .. }
            | Admission::NotMember(_)
            | Admission::PartitionNotFound { .. }) => Err(refused
                .refusal(&projection.name(), partition, &claim)
                .expect("it is refused")),
        }
    }

    fn serve(&mut self, waiting: Waiting) {
        let Waiting {
            link,
            header,
            poll,
            until,
        } = &waiting;
        let Consumer::Group(_) = &poll.consumer else {
            panic!("{:?}", poll.consumer)
        };
        if self.session_of(header.client()) != Some(header.session()) {
            let refusal = Err(failure(ErrorCode::SessionNotFound));
            return self.answer(*link, header, refusal);
        }
        let mut left = i64::from(poll.max_bytes);
        let mut sections = Vec::new();
        for section in &poll.sections {
            let partition = section.partition;
            let served = self
                .admit(header, partition, section.epoch, Intent::Poll)
                .and_then(|right| self.read(right, section, poll.commit_on_poll, &mut left));
            sections.push(served.unwrap_or_else(|failure| refusal(partition, failure)));
        }
        let empty = sections
            .iter()
            .all(|section| section.status.is_ok() && section.batches.is_empty());
        if empty && self.now < *until {
            return self.waiting.push(waiting);
        }
        let (link, header) = (*link, *header);
        if let Some(live) = self.sessions.get_mut(&header.client()) {
            live.heard = self.now;
        }
        self.answer(link, &header, Ok(Reply::Polled(Polled { sections })));
    }

    fn read(
        &mut self,
        right: Right,
        section: &PollSection,
        commit: bool,
        left: &mut i64,
    ) -> Result<PollResult, Failure> {
        let partition = section.partition;
        let held_since = self.held_since(partition);
        let own = &mut self.partitions[usize::try_from(partition.0).expect("few")];
        own.raise(right)?;
        let from = match section.strategy {
            PollStrategy::Next => own.stored.map_or(0, |stored| stored.0 + 1),
            PollStrategy::Offset(offset) => offset.0,
            strategy @ (PollStrategy::Timestamp(_) | PollStrategy::First | PollStrategy::Last) => {
                panic!("{strategy:?}")
            }
        };
        let first = own.batches.range(..=from).next_back();
        let first = first.map_or(0, |(base, _)| *base);
        let mut batches = Vec::new();
        let mut next = from;
        if from < own.end {
            for (base, bytes) in own.batches.range(first..) {
                if *left <= 0 && !batches.is_empty() {
                    break;
                }
                *left -= i64::try_from(bytes.len()).expect("small");
                let after = own.batches.range(base + 1..).next();
                next = after.map_or(own.end, |(base, _)| *base);
                batches.push(bytes.clone());
            }
        }
        if next > from {
            if own.polled.0 != held_since {
                own.polled = (held_since, None);
            }
            own.polled.1 = own.polled.1.max(Some(Offset(next - 1)));
            if commit {
                own.stored = own.stored.max(Some(Offset(next - 1)));
            }
        }
        Ok(PollResult {
            partition,
            status: Ok(()),
            primary: ReplicaId(0),
            start: Offset(0),
            end: Offset(own.end),
            stored: own.stored,
            from: Offset(from),
            next: Offset(next),
            batches,
        })
    }

    fn held_since(&self, partition: PartitionId) -> Epoch {
        let view = self.projection.as_ref().and_then(|own| own.view(partition));
        view.and_then(|view| view.held_since()).unwrap_or(Epoch(0))
    }

    fn store_one(
        &mut self,
        header: &FrameHeader,
        section: &StoreSection,
        intent: Intent,
    ) -> Result<(Right, Option<Offset>), Failure> {
        let right = self.admit(header, section.partition, section.epoch, intent)?;
        let own = &mut self.partitions[usize::try_from(section.partition.0).expect("few")];
        own.raise(right)?;
        assert!(section.offset.0 < own.end);
        own.stored = own.stored.max(Some(section.offset));
        Ok((right, own.stored))
    }

    fn store(&mut self, header: &FrameHeader, store: &StoreConsumerOffset) -> Reply {
        let sections = store.sections.iter().map(|section| {
            let result = self.store_one(header, section, Intent::Store);
            StoreResult {
                partition: section.partition,
                stored: result.as_ref().ok().and_then(|(_, stored)| *stored),
                status: result.map(|_| ()),
                primary: ReplicaId(0),
            }
        });
        Reply::OffsetsStored(OffsetsStored {
            sections: sections.collect(),
        })
    }

    fn release(&mut self, header: &FrameHeader, release: &ReleasePartition) -> Reply {
        let mut sections = Vec::new();
        for section in &release.sections {
            let intent = Intent::Release {
                planned: section.planned,
            };
            let id = section.partition;
            let stored = match section.offset {
                Some(offset) => {
                    let (partition, epoch) = (id, section.epoch);
                    let store = StoreSection {
                        partition,
                        epoch,
                        offset,
                    };
                    self.store_one(header, &store, intent)
                }
                None => self
                    .admit(header, id, section.epoch, intent)
                    .and_then(|right| {
                        let own = &mut self.partitions[usize::try_from(id.0).expect("few")];
                        own.raise(right).map(|()| (right, own.stored))
                    }),
            };
            let now_stored = stored.as_ref().ok().and_then(|(_, stored)| *stored);
            let status = stored.and_then(|(right, _)| {
                let (planned, _) = right
                    .release
                    .ok_or_else(|| failure(ErrorCode::RevocationChanged))?;
                let own = &mut self.partitions[usize::try_from(id.0).expect("few")];
                own.released = Some(planned);
                Ok(())
            });
            sections.push(ReleaseResult {
                partition: id,
                status,
                primary: ReplicaId(0),
                stored: now_stored,
            });
        }
        Reply::PartitionsReleased(PartitionsReleased { sections })
    }

    fn answer(&mut self, link: Link, request: &FrameHeader, result: Result<Reply, Failure>) {
        self.answer_at(self.op, link, request, result);
    }

    fn answer_at(
        &mut self,
        op: u64,
        link: Link,
        request: &FrameHeader,
        result: Result<Reply, Failure>,
    ) {
        let (status, body) = match result {
            Ok(reply) => (0, reply.to_bytes()),
            Err(failure) => (failure.code.code(), failure.encode()),
        };
        let header =
            FrameHeader::reply(request, status).with_primary(Op(op), ReplicaId(0), View(0));
        self.out.push((link, Frame { header, body }));
    }
}

impl Partition {
    /// The fence's judgement.
    fn raise(&mut self, right: Right) -> Result<(), Failure> {
        if right.epoch < self.fence {
            return Err(failure(ErrorCode::StaleEpoch));
        }
        if right.epoch == self.fence && self.holder.is_some_and(|holder| holder != right.member) {
            return Err(failure(ErrorCode::PartitionNotOwned));
        }
        self.fence = right.epoch;
        self.holder = Some(right.member);
        Ok(())
    }
}

fn failure(code: ErrorCode) -> Failure {
    Failure::new(code, "no")
}

fn refusal(partition: PartitionId, failure: Failure) -> PollResult {
    PollResult {
        partition,
        status: Err(failure),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(0),
        stored: None,
        from: Offset(0),
        next: Offset(0),
        batches: Vec::new(),
    }
}
