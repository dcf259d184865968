//! The shard: its state, its one entry, and the order in which it goes about things.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::net::SocketAddr;

use bytes::Bytes;
use catalog::{Catalog, CatalogConfig, GroupKey, Projection};
use partition::{DataConfig, DataGroup};
use vsr::{Recovered, Replica};
use wire::{ConsensusGroup, ErrorCode, Event, Failure, FrameHeader, Op, Time};

use crate::{
    Answer, Binding, Config, ConnectionId, DiskSpace, Effect, GroupSnapshot, Input, MeshMessage,
    Note, Output, ShardId, StateSnapshot,
    answers::ResetWait,
    connection::{Connections, Flow},
    counters::Counters,
    desk::{Desk, Written},
    forward::Forwards,
    hand_over::HandOvers,
    host::{Asker, Confirmed, DataHost, Member, MetadataHost, Settings},
    inflow::Inflow,
    liveness::{Signs, Timeouts},
    mutation,
    pending::Pending,
    poll::{DataHosts, Polls, Surroundings},
    scrub::Scrub,
    transfer::Transfers,
    verify::Verifier,
    work::{GroupWrite, Origin, Slot, Work},
};

/// What a consensus group starts from.
#[derive(Debug)]
pub struct GroupStart {
    /// The group.
    pub group: ConsensusGroup,
    /// Its newest snapshot that can be read.
    pub snapshot: Option<GroupSnapshot>,
    /// What the journal holds of it; `checkpoint` is taken from the snapshot.
    pub recovered: Recovered,
}

/// Why a shard does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The snapshot is not one of this group.
    #[error("snapshot of consensus group {group}: {reason}")]
    Snapshot {
        /// The group.
        group: ConsensusGroup,
        /// What is wrong with it.
        reason: alloc::string::String,
    },
}

/// Something that waits for a metadata op that this shard has not applied yet.
#[derive(Debug)]
pub(crate) enum Parked {
    Frame {
        slot: Slot,
        connection: ConnectionId,
        header: FrameHeader,
        body: Bytes,
    },
    Work {
        origin: Origin,
        work: Work,
    },
    Answer {
        origin: Origin,
        answer: Answer,
    },
}

/// Everything that one core of a node owns.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) desk: Desk,
    pub(crate) connections: Connections,
    pub(crate) pending: Pending,
    pub(crate) projection: Projection,
    projection_known: bool,
    pub(crate) metadata: Option<Box<MetadataHost>>,
    pub(crate) data: DataHosts,
    pub(crate) polls: Polls,
    pub(crate) hand_overs: HandOvers,
    pub(crate) forwards: Forwards,
    /// Work for the groups of this shard, in the order in which it came.
    pub(crate) work: VecDeque<(Origin, Work)>,
    /// By the op waited for and the order of arrival, each with the time when the wait ends.
    pub(crate) parked: BTreeMap<(Op, u64), (u64, Parked)>,
    pub(crate) parked_count: u64,
    /// What waits until its consumer group changes, in the order of arrival, each with the time when the
    /// wait ends and what is answered then.
    pub(crate) group_waits: BTreeMap<(GroupKey, u64), (u64, Origin, GroupWrite, Failure)>,
    /// Resets that the data groups have not carried out yet.
    pub(crate) resets: Vec<ResetWait>,
    signs: Signs,
    /// Events that a connection gets after the reply that it waits for.
    pub(crate) delayed: BTreeMap<ConnectionId, Event>,
    pub(crate) verifier: Verifier,
    scrub: Scrub,
    pub(crate) transfers: Transfers,
    pub(crate) counters: Counters,
    /// Gives the next partition to a batch that names none.
    pub(crate) turn: u32,
    /// Decides which requests are refused so that they need not wait for space.
    pub(crate) disk: DiskSpace,
    /// Whether this node has not heard the primary of the metadata for long, and others have.
    pub(crate) is_cut_off: bool,
    /// Whether one of its replicas is not up to date.
    pub(crate) is_catching_up: bool,
    reconcile_due: u64,
    pub(crate) stopping: bool,
    /// Monotonic nanoseconds.
    pub(crate) stopping_since: u64,
    ready_said: bool,
    pub(crate) stopped_said: bool,
}

/// How often the data groups are compared with the metadata as a whole: only a net, nanoseconds.
const RECONCILE_INTERVAL: u64 = 1_000_000_000;

/// Bytes that committed batches may wait in memory for their segment files, on one shard. Beyond it
/// nothing more is prepared, so that a producer that outruns the disk is slowed down.
const UNWRITTEN_MAX: u64 = 128 * 1024 * 1024;

impl Shard {
    /// A shard with its consensus groups.
    ///
    /// # Errors
    /// When a snapshot does not belong to its group.
    ///
    /// # Panics
    /// When a group is not one of this shard's.
    pub fn new(config: Config, groups: Vec<GroupStart>, now: Time) -> Result<Self, StartError> {
        let mut shard = Self {
            desk: Desk::new(
                (config.replica, config.shard),
                (config.nodes.len(), config.shard_count),
                (now, Inflow::new(config.fetched_max, config.fetch_rate)),
            ),
            connections: Connections::new(config.limits),
            pending: Pending::default(),
            projection: Projection::default(),
            projection_known: false,
            metadata: None,
            data: BTreeMap::new(),
            polls: Polls::default(),
            hand_overs: HandOvers::default(),
            forwards: Forwards::new(config.incarnation),
            group_waits: BTreeMap::new(),
            work: VecDeque::new(),
            parked: BTreeMap::new(),
            parked_count: 0,
            resets: Vec::new(),
            signs: Signs::new(config.liveness_interval),
            delayed: BTreeMap::new(),
            verifier: Verifier::default(),
            scrub: Scrub::new(config.scrub_rate),
            transfers: Transfers::default(),
            counters: Counters::default(),
            turn: 0,
            disk: DiskSpace::default(),
            is_cut_off: false,
            is_catching_up: false,
            reconcile_due: 0,
            stopping: false,
            stopping_since: 0,
            ready_said: false,
            stopped_said: false,
            config,
        };
        for start in groups {
            assert!(shard.config.shard_of(start.group) == shard.config.shard);
            shard.add_group(start)?;
        }
        shard.verifier.go_on(&mut shard.data, &mut shard.desk);
        shard.run();
        Ok(shard)
    }

    fn add_group(&mut self, start: GroupStart) -> Result<(), StartError> {
        let GroupStart {
            group,
            snapshot,
            mut recovered,
        } = start;
        let (checkpoint, state) = match snapshot {
            Some(snapshot) => (Some(snapshot.checkpoint), Some(snapshot.state)),
            None => (None, None),
        };
        recovered.checkpoint = checkpoint;
        let config = vsr::Config {
            cluster: self.config.cluster,
            group,
            replica: self.config.replica,
            replica_count: u8::try_from(self.config.nodes.len())
                .expect("a cluster has 1, 3 or 5 nodes"),
            clients_max: self.config.clients_max as usize,
        };
        let snapshot = recovered.checkpoint.as_ref().map_or(Op(0), |it| it.op);
        let found = recovered.prepares.iter().map(|it| it.header.op()).max();
        let mut member = Member::new(group, Replica::new(config, recovered));
        member.snapshot = snapshot;
        member.found = found.unwrap_or_default();
        let wrong = |reason| StartError::Snapshot { group, reason };
        match state {
            None if group == ConsensusGroup::METADATA => {
                let catalog = Catalog::new(self.catalog_config());
                self.add_metadata(member, catalog);
            }
            None => self.add_data(member, DataGroup::new(self.data_config(group))),
            Some(StateSnapshot::Metadata(state)) if group == ConsensusGroup::METADATA => {
                let catalog = Catalog::restore(self.catalog_config(), state)
                    .map_err(|error| wrong(alloc::format!("{error}")))?;
                self.add_metadata(member, catalog);
            }
            Some(StateSnapshot::Data(state)) if group != ConsensusGroup::METADATA => {
                let files = partition::files_at(&state);
                let state = DataGroup::restore(self.data_config(group), state)
                    .map_err(|error| wrong(alloc::format!("{error}")))?;
                self.verifier.add(files);
                self.add_data(member, state);
            }
            Some(_) => return Err(wrong("it holds the state of another kind of group".into())),
        }
        Ok(())
    }

    fn add_metadata(&mut self, member: Member, catalog: Catalog) {
        let settings = Settings {
            timeouts: Timeouts {
                disconnect_grace: self.config.disconnect_grace,
                session_timeout: self.config.session_timeout,
            },
            passwords: self.config.limits.passwords,
            frame_size: self.config.limits.frame_size,
            root_password: self.config.root_password.clone(),
        };
        let mut host = MetadataHost::new(member, catalog, settings);
        host.pump(&mut self.desk);
        self.metadata = Some(Box::new(host));
    }

    fn add_data(&mut self, member: Member, state: DataGroup) {
        let group = member.group;
        let mut host = DataHost::new(member, state);
        host.pump(&mut self.desk);
        self.data.insert(group, host);
    }

    pub(crate) const fn catalog_config(&self) -> CatalogConfig {
        CatalogConfig {
            data_groups: self.config.data_groups,
            limits: self.config.catalog_limits,
        }
    }

    pub(crate) const fn data_config(&self, group: ConsensusGroup) -> DataConfig {
        DataConfig {
            segment_size: self.config.segment_size,
            tail_budget: self.config.tail_budget,
            index_budget: self.config.index_budget,
            producers_max: self.config.producers_max as usize,
            consumers_max: self.config.consumers_max as usize,
            ..DataConfig::new(group)
        }
    }

    /// Feeds one event. What it leads to comes out of [`Shard::next_effect`].
    pub fn handle(&mut self, now: Time, input: Input) {
        self.desk.now = now;
        self.dispatch_input(input);
        self.run();
    }

    fn dispatch_input(&mut self, input: Input) {
        match input {
            Input::Opened { connection, peer } => self.on_opened(connection, peer),
            Input::Frame {
                connection,
                header,
                body,
            } => self.on_frame(connection, &header, body),
            Input::BadFrame {
                connection,
                header,
                error,
            } => {
                let failure = Failure::from_frame(&error);
                let header = header.unwrap_or_default();
                self.refuse_and_close(connection, &header, failure);
            }
            Input::Closed { connection } => self.on_closed(connection),
            Input::Mesh { from: _, message } => self.on_mesh(message),
            Input::Peer { from, message } => self.on_peer(from, message),
            Input::PeerUp { node } => self.on_peer_up(node),
            Input::PeerDown { node } => self.on_peer_down(node),
            Input::Receiving { from } => self.on_receiving(from),
            Input::Moving => self.on_moving(),
            Input::PrepareRead {
                group,
                op,
                to,
                prepare,
            } => self.feed(group, vsr::Input::PrepareRead { op, to, prepare }),
            Input::Tick => self.on_tick(),
            Input::Journal(progress) => {
                for written in self.desk.written(progress) {
                    self.on_written(written);
                }
            }
            Input::CheckpointWanted { group } => self.want_checkpoint(group),
            Input::Changed { through } => self.on_changed(through),
            Input::Read { ticket, result } => self.on_read(ticket, result.ok().as_ref()),
            Input::Flushed { ticket } => self.on_flushed(ticket),
            Input::SnapshotRead { ticket, part } => self.on_snapshot_read(ticket, part),
            Input::SnapshotDecoded { ticket, snapshot } => {
                self.on_snapshot_decoded(ticket, snapshot);
            }
            Input::SnapshotWritten { group, op } => self.on_snapshot_written(group, op),
            Input::PasswordChecked {
                ticket,
                valid,
                secret,
            } => {
                if let Some(host) = &mut self.metadata {
                    host.on_password_checked(&mut self.desk, ticket, valid, secret);
                }
            }
            Input::PasswordHashed { ticket, phc } => {
                if let Some(host) = &mut self.metadata {
                    host.on_password_hashed(&mut self.desk, ticket, phc);
                }
            }
            Input::Disk(space) => self.on_disk(space),
            Input::Stop => self.on_stop(),
        }
    }

    /// The next thing to do, if there is one. What was handed in since the last one is collected first:
    /// requests that came in together share a prepare.
    pub fn next_effect(&mut self) -> Option<Effect> {
        if self.desk.effects.is_empty() {
            self.settle();
        }
        if self.desk.effects.is_empty() {
            self.desk.send_heartbeats();
        }
        let effect = self.desk.effects.pop_front();
        if let Some(Effect::Note(note)) = &effect {
            self.count(note);
        }
        effect
    }

    /// Goes about everything that needs nothing from outside.
    pub(crate) fn run(&mut self) {
        loop {
            if let Some((group, at_least, from)) = self.desk.fetches.pop() {
                self.begin_fetch(group, at_least, from);
            } else if let Some((op, changes)) = self.desk.published.pop_front() {
                self.on_changes(op, &changes);
            } else if let Some((origin, work)) = self.work.pop_front() {
                self.execute(origin, work);
            } else if let Some((origin, answer)) = self.desk.answers.pop_front() {
                self.on_answer(origin, answer);
            } else if !self.desk.grown.is_empty() {
                let grown = core::mem::take(&mut self.desk.grown);
                self.polls.on_grown(grown);
            } else if !self.note_touched() && !self.run_polls() && !self.reconcile_groups() {
                break;
            }
        }
    }

    fn run_polls(&mut self) -> bool {
        let (polls, mut around) = self.polls_and_surroundings();
        polls.run(&mut around)
    }

    /// The polls, and what they need.
    fn polls_and_surroundings(&mut self) -> (&mut Polls, Surroundings<'_>) {
        let around = Surroundings {
            desk: &mut self.desk,
            hosts: &mut self.data,
            counters: &mut self.counters,
            projection: &self.projection,
        };
        (&mut self.polls, around)
    }

    /// A checkpoint of the group is taken as soon as there can be one.
    pub(crate) fn want_checkpoint(&mut self, group: ConsensusGroup) {
        match &mut self.metadata {
            Some(host) if group == ConsensusGroup::METADATA => host.checkpoints.want(),
            _ => {
                if let Some(host) = self.data.get_mut(&group) {
                    host.checkpoints.want();
                }
            }
        }
    }

    /// Makes prepares of what is queued, begins checkpoints, and says what has changed.
    fn settle(&mut self) {
        let mut changed = self.settle_data();
        if let Some(host) = &mut self.metadata {
            host.begin_checkpoint(&mut self.desk);
            if core::mem::take(&mut host.status_changed) {
                changed.push(ConsensusGroup::METADATA);
                host.inaugurate(&mut self.desk);
                if let Some(projection) = host.announce(&self.desk) {
                    self.announce(projection);
                }
            }
        }
        self.report_signs();
        if let Some(host) = &mut self.metadata {
            host.expire(&mut self.desk);
        }
        if !changed.is_empty() {
            self.on_status_changed(&changed);
            self.reconcile_all();
            self.reconcile_all_groups();
        }
        self.run();
        self.tell_completed();
        if let Some(host) = &mut self.metadata {
            host.complete_moves(&mut self.desk);
        }
        self.run();
        self.say_ready();
        self.say_stopped();
    }

    /// The data groups' part, and what is certain now. Returns those of which something has changed.
    fn settle_data(&mut self) -> Vec<ConsensusGroup> {
        let unwritten: u64 = self.data.values().map(|host| host.state.unwritten()).sum();
        let mut stored = Vec::new();
        let mut confirmed: Vec<Confirmed> = Vec::new();
        if let Some(host) = &mut self.metadata {
            confirmed.extend(host.member.confirmations.take());
        }
        let mut changed = Vec::new();
        for host in self.data.values_mut() {
            // Without space for messages nothing catches up, and stored offsets must not wait for it.
            if unwritten <= UNWRITTEN_MAX
                || host.state.unwritten() == 0
                || self.disk != DiskSpace::Enough
            {
                host.fill(&mut self.desk);
            }
            host.begin_checkpoint(&mut self.desk);
            stored.extend(host.poll_results.drain(..));
            confirmed.extend(host.member.confirmations.take());
            if core::mem::take(&mut host.status_changed) {
                changed.push(host.member.group);
            }
        }
        let (polls, mut around) = self.polls_and_surroundings();
        for (id, index, outcome) in stored {
            polls.on_stored(&mut around, id, index, outcome);
        }
        let mut reads = Vec::new();
        for (asker, group, outcome) in confirmed {
            match asker {
                Asker::Poll(id) => polls.on_confirmed(&mut around, id, group, outcome),
                Asker::Work(id) => reads.push((id, outcome)),
            }
        }
        for (id, outcome) in reads {
            self.on_read_confirmed(id, outcome);
        }
        changed
    }

    pub(crate) fn feed(&mut self, group: ConsensusGroup, input: vsr::Input) {
        if group == ConsensusGroup::METADATA {
            if let Some(host) = &mut self.metadata {
                host.member.handle(&self.desk, input);
                host.pump(&mut self.desk);
            }
        } else if let Some(host) = self.data.get_mut(&group) {
            host.member.handle(&self.desk, input);
            host.pump(&mut self.desk);
        }
    }

    fn on_written(&mut self, written: Written) {
        match written {
            Written::Prepare {
                group,
                op,
                checksum,
                size: _,
            } => {
                self.feed(group, vsr::Input::PrepareWritten { op, checksum });
            }
            Written::Superblock { group, sequence } => {
                self.feed(group, vsr::Input::SuperblockWritten { sequence });
            }
        }
    }

    fn on_changed(&mut self, through: crate::IoTicket) {
        for change in self.desk.changed(through) {
            if let Some((segment, end)) = change.appended
                && let Some(host) = self.data.get_mut(&segment.group)
            {
                host.state.appended(segment, end);
            }
        }
        for host in self.data.values_mut() {
            host.checkpoints.on_changed(&mut self.desk, through);
        }
        self.changed_for_fetches(through);
        self.changed_for_mending(through);
    }

    fn on_flushed(&mut self, ticket: crate::IoTicket) {
        for host in self.data.values_mut() {
            host.checkpoints.on_flushed(&mut self.desk, ticket);
        }
        self.flushed_for_fetches(ticket);
        self.flushed_for_mending(ticket);
    }

    fn on_read(&mut self, ticket: crate::IoTicket, bytes: Option<&Bytes>) {
        if self.on_part_read(ticket, bytes) {
            return;
        }
        let (polls, mut around) = self.polls_and_surroundings();
        if polls.on_read(&mut around, ticket, bytes) {
            return;
        }
        let around = (&mut self.data, &mut self.counters);
        if !self.scrub.on_read(around, &mut self.desk, ticket, bytes) {
            self.verifier
                .on_read(&mut self.data, &mut self.desk, ticket, bytes);
        }
    }

    fn on_snapshot_written(&mut self, group: ConsensusGroup, op: Op) {
        if self.install_fetched(group, op) {
            return;
        }
        match &mut self.metadata {
            Some(host) if group == ConsensusGroup::METADATA => {
                host.on_snapshot_written(&mut self.desk, op);
            }
            _ => {
                if let Some(host) = self.data.get_mut(&group) {
                    host.on_snapshot_written(&mut self.desk, op);
                }
            }
        }
    }

    fn on_opened(&mut self, connection: ConnectionId, peer: SocketAddr) {
        if self.connections.is_full() || self.stopping {
            let (code, text) = if self.stopping {
                (
                    ErrorCode::ServerStopping,
                    "the node is shutting down".into(),
                )
            } else {
                let limit = self.config.limits.connections;
                let text = alloc::format!("the shard has {limit} connections, which is the limit");
                (ErrorCode::TooManyConnections, text)
            };
            let failure = Failure::new(code, text);
            return self.refuse_and_close(connection, &FrameHeader::default(), failure);
        }
        self.connections.open(connection, peer);
        self.counters.connections = self.connections.len() as u64;
    }

    fn on_closed(&mut self, connection: ConnectionId) {
        for (slot, request) in self.pending.close_connection(connection) {
            if let crate::pending::Gather::Poll { shards, .. } = &request.gather {
                self.hurry(slot, shards);
            }
        }
        self.delayed.remove(&connection);
        if let Some(binding) = self.connections.close(connection) {
            self.signs.disconnected(binding.session);
        }
        self.counters.connections = self.connections.len() as u64;
    }

    pub(crate) fn bind(&mut self, connection: ConnectionId, binding: Binding) {
        let session = self.projection.session(binding.client);
        if session.is_none_or(|session| session.number != binding.session) {
            // It has ended since it was found; the connection learns so from its next request.
            return;
        }
        if let Some(before) = self.connections.bind(connection, binding) {
            self.signs.disconnected(before.session);
        }
        self.signs.connected(binding.client, binding.session);
        self.desk.push(Effect::Admit { connection });
    }

    /// A sign of life of the session that the connection carries.
    pub(crate) fn see(&mut self, connection: ConnectionId) {
        let binding = self
            .connections
            .find(connection)
            .and_then(|connection| connection.binding);
        if let Some(binding) = binding {
            self.signs.seen(binding.session);
        }
    }

    pub(crate) fn peer_of(&self, connection: ConnectionId) -> SocketAddr {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        self.connections
            .find(connection)
            .map_or(unknown, |connection| connection.peer)
    }

    pub(crate) fn flow(&mut self, flow: Option<Flow>) {
        match flow {
            Some(Flow::Pause(connection)) => self.desk.push(Effect::Pause { connection }),
            Some(Flow::Resume(connection)) => self.desk.push(Effect::Resume { connection }),
            None => {}
        }
    }

    /// Lets something wait for a metadata op.
    pub(crate) fn park(&mut self, op: Op, parked: Parked) {
        self.parked_count += 1;
        let until = self.desk.now.after(self.config.park_timeout);
        self.parked.insert((op, self.parked_count), (until, parked));
    }

    /// Goes on with what waited for the metadata that is here now.
    pub(crate) fn unpark(&mut self) {
        let applied = self.projection.applied();
        while let Some(entry) = self.parked.first_entry() {
            if entry.key().0 > applied {
                break;
            }
            match entry.remove().1 {
                Parked::Frame {
                    slot,
                    connection,
                    header,
                    body,
                } => {
                    if self.pending.find(slot).is_some()
                        && let Err(failure) = self.admit(slot, connection, &header, body)
                    {
                        self.fail(slot, failure);
                    }
                }
                Parked::Work { origin, work } => self.work.push_back((origin, work)),
                Parked::Answer { origin, answer } => self.desk.answers.push_back((origin, answer)),
            }
        }
    }

    fn expire_parked(&mut self) {
        let now = self.desk.now.monotonic;
        let expired: Vec<(Op, u64)> = self
            .parked
            .iter()
            .filter(|(_, (until, _))| *until <= now)
            .map(|(key, _)| *key)
            .collect();
        for key in expired {
            let Some((_, parked)) = self.parked.remove(&key) else {
                continue;
            };
            let applied = self.projection.applied();
            let text = alloc::format!(
                "the node has applied metadata op {applied}, the request needs {}",
                key.0
            );
            let failure = Failure::new(ErrorCode::Retry, text);
            match parked {
                Parked::Frame { slot, .. } => self.fail(slot, failure),
                Parked::Answer { origin, .. } => self.fail(origin.slot, failure),
                Parked::Work { origin, work } => {
                    let answer = Answer::without_group(work.refused(&failure));
                    self.desk.answer(origin, answer);
                }
            }
        }
    }

    /// Does work for a group of this shard.
    fn execute(&mut self, origin: Origin, work: Work) {
        if work.admitted() > self.projection.applied() && !mutation::PARK {
            return self.park(work.admitted(), Parked::Work { origin, work });
        }
        let work = self.pass_on(origin, work);
        let work = work.and_then(|work| self.take_if_room(origin, work));
        if let Some(work) = work.and_then(|work| self.confirm_first(origin, work)) {
            self.carry_out(origin, work);
        }
    }

    pub(crate) fn carry_out(&mut self, origin: Origin, work: Work) {
        match work {
            Work::Login(_) | Work::Attach(_) | Work::Catalog(_) => {
                self.execute_metadata(origin, work)
            }
            Work::Write {
                group,
                admitted,
                requests,
            } => match self.data.get_mut(&group) {
                Some(host) => host.write(&mut self.desk, origin, requests),
                None => self.refuse_work(
                    origin,
                    Work::Write {
                        group,
                        admitted,
                        requests,
                    },
                ),
            },
            Work::Poll(poll) => self.polls.begin(origin, poll),
            Work::GroupWrite(write) => self.write_for_group(origin, write),
            Work::Offsets {
                consumer,
                partitions,
                ..
            } => {
                let told = partitions
                    .iter()
                    .map(|(index, address)| (*index, self.offsets(address, consumer.as_ref())));
                let answer = Answer::without_group(Ok(Output::Offsets(told.collect())));
                self.desk.answer(origin, answer);
            }
            Work::Groups => {
                let metadata = self.metadata.iter().map(|host| host.member.primary());
                let data = self.data.values().map(|host| host.member.primary());
                let groups = metadata.chain(data).collect();
                self.desk
                    .answer(origin, Answer::without_group(Ok(Output::Groups(groups))));
            }
            Work::Verify(credentials) => match &mut self.metadata {
                Some(host) => host.verify(&mut self.desk, origin, credentials),
                None => self.refuse_work(origin, Work::Verify(credentials)),
            },
            Work::Replicas { digests } => {
                let replicas = self.replicas(digests);
                let answer = Answer::without_group(Ok(Output::Replicas(replicas)));
                self.desk.answer(origin, answer);
            }
            Work::Counters => {
                if let Some(host) = &self.metadata {
                    self.counters.sessions = host.session_count() as u64;
                }
                self.counters.moving = self.hand_overs.len() as u64;
                self.counters.stalled = self.stalled_count();
                self.counters.ops_applied = self.ops_applied();
                let counters = self.counters.all();
                self.desk.answer(
                    origin,
                    Answer::without_group(Ok(Output::Counters(counters))),
                );
            }
        }
    }

    fn ops_applied(&self) -> u64 {
        let metadata = self.metadata.iter().map(|host| &host.member);
        let members = metadata.chain(self.data.values().map(|host| &host.member));
        members
            .map(|member| member.replica.applied_point().op.0)
            .sum()
    }

    fn execute_metadata(&mut self, origin: Origin, work: Work) {
        let Some(host) = &mut self.metadata else {
            return self.refuse_work(origin, work);
        };
        match work {
            Work::Login(login) => host.login(&mut self.desk, origin, login),
            Work::Attach(attach) => host.attach(&mut self.desk, origin, &attach),
            Work::Catalog(work) => {
                host.request(&mut self.desk, &self.hand_overs, origin, work);
            }
            other @ (Work::Write { .. }
            | Work::GroupWrite(_)
            | Work::Poll(_)
            | Work::Offsets { .. }
            | Work::Groups
            | Work::Counters
            | Work::Verify(_)
            | Work::Replicas { .. }) => self.refuse_work(origin, other),
        }
    }

    pub(crate) fn refuse_work(&mut self, origin: Origin, work: Work) {
        let failure = Failure::new(
            ErrorCode::Internal,
            "the shard does not host the consensus group",
        );
        let answer = Answer::without_group(work.refused(&failure));
        self.desk.answer(origin, answer);
    }

    fn on_mesh(&mut self, message: MeshMessage) {
        match message {
            MeshMessage::Work { origin, work } => self.work.push_back((origin, *work)),
            MeshMessage::Answer { origin, answer } => {
                self.desk.answers.push_back((origin, *answer))
            }
            MeshMessage::Hurry { origin } => self.on_hurry(origin),
            MeshMessage::Projection(projection) => self.on_projection(*projection),
            MeshMessage::Changes { op, changes } => self.on_changes(op, &changes),
            MeshMessage::Moved(completed) => self.on_moved(completed),
            MeshMessage::Liveness(signs) => self.pass_signs(signs),
            MeshMessage::CutOff(is_cut_off) => self.on_cut_off(is_cut_off),
            MeshMessage::PrimaryChanged(primary) => self.on_primary_changed(&primary),
        }
    }

    fn on_tick(&mut self) {
        let now = self.desk.now.monotonic;
        if self.desk.take_moved() {
            self.on_moving();
        }
        let had_commits = self.desk.heartbeats.has_commits();
        if let Some(host) = &mut self.metadata {
            host.member.handle(&self.desk, vsr::Input::Tick);
            host.pump(&mut self.desk);
            host.inaugurate(&mut self.desk);
        }
        for host in self.data.values_mut() {
            host.member.handle(&self.desk, vsr::Input::Tick);
            host.pump(&mut self.desk);
        }
        if self.desk.heartbeats.has_commits() && !had_commits {
            self.join_heartbeat();
        }
        self.watch_metadata();
        self.watch_catching_up();
        self.polls.on_time(now);
        if self.ready_said && !self.stopping {
            self.scrub.on_time(&self.data, &mut self.desk);
        }
        self.verifier.go_on(&mut self.data, &mut self.desk);
        self.expire_forwards();
        self.watch_fetches();
        self.watch_mending();
        self.hand_overs.on_time(now);
        if !self.parked.is_empty() {
            self.expire_parked();
        }
        if !self.group_waits.is_empty() {
            self.expire_group_waits();
        }
        if !self.resets.is_empty() {
            self.answer_resets();
        }
        if now >= self.reconcile_due {
            self.reconcile_due = now.saturating_add(RECONCILE_INTERVAL);
            self.reconcile_all();
            self.hand_overs.refresh();
            self.free_space();
        }
    }

    /// The heartbeat of one group is due: those of the others go with it, and are due together from then on.
    fn join_heartbeat(&mut self) {
        if let Some(host) = &mut self.metadata {
            host.member.replica.tell_commit();
            host.pump(&mut self.desk);
        }
        for host in self.data.values_mut() {
            host.member.replica.tell_commit();
            host.pump(&mut self.desk);
        }
    }

    /// What is deleted takes space until a checkpoint no longer needs it. The journal asks for one when it
    /// grows, which it does not do while no messages are taken.
    fn free_space(&mut self) {
        if self.disk != DiskSpace::Enough {
            for host in self.data.values_mut() {
                host.checkpoints.want();
            }
        }
    }

    fn report_signs(&mut self) {
        if self.signs.is_due(self.desk.now.monotonic) {
            // Who waits for an answer is alive, though silent.
            let connections: Vec<ConnectionId> = self.pending.polling().collect();
            for connection in connections {
                self.see(connection);
            }
        }
        if let Some(signs) = self.signs.report(self.desk.now.monotonic) {
            self.pass_signs(signs);
        }
    }

    /// Says what the shards that know nothing yet have to know.
    fn announce(&mut self, projection: Projection) {
        for shard in 1..self.config.shard_count {
            let message = MeshMessage::Projection(Box::new(projection.clone()));
            self.desk.push(Effect::Mesh {
                to: ShardId(shard),
                message,
            });
        }
        self.on_projection(projection);
    }

    fn on_projection(&mut self, projection: Projection) {
        let before = core::mem::replace(&mut self.projection, projection);
        if core::mem::replace(&mut self.projection_known, true) {
            self.on_metadata_replaced(&before);
        }
        self.reconcile_all();
        self.reconcile_all_groups();
        self.unpark();
    }

    pub(crate) const fn knows_projection(&self) -> bool {
        self.projection_known
    }

    fn say_ready(&mut self) {
        if self.ready_said || !self.projection_known {
            return;
        }
        let metadata = self
            .metadata
            .iter()
            .all(|host| host.member.is_settled() && host.is_idle());
        if metadata && self.data.values().all(|host| host.member.is_settled()) {
            self.ready_said = true;
            self.desk.push(Effect::Ready);
        }
    }

    /// Whether its groups have nothing in flight, and nothing is on the way to a disk.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.metadata.iter().all(|host| host.is_idle())
            && self.data.values().all(DataHost::is_idle)
            && self.desk.is_idle()
    }

    fn count(&mut self, note: &Note) {
        match note {
            Note::Checkpoint { .. } => self.counters.checkpoints += 1,
            Note::Damaged { .. } => self.counters.partitions_damaged += 1,
            Note::Mended { .. } => self.counters.segments_mended += 1,
            Note::LoginRefused => self.counters.logins_refused += 1,
            Note::Replica { .. }
            | Note::SessionRegistered { .. }
            | Note::SessionEnded { .. }
            | Note::InstanceContended { .. } => {}
        }
    }

    /// Whether a consensus group of this shard takes no part until somebody repairs its disk. What is in its
    /// files may be all that is left: nobody changes them.
    #[must_use]
    pub fn is_out_of_service(&self, group: ConsensusGroup) -> bool {
        self.member(group).is_some_and(Member::is_out_of_service)
    }
}
