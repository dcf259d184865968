//! A node of several shards whose disk, clock and clients are the test itself.

use std::{
    collections::{BTreeMap, VecDeque},
    format,
    string::{String, ToString},
    vec::Vec,
};

use bytes::Bytes;
use journal::{Progress, Record, Ticket};
use partition::{FileKind, SegmentChange, SegmentId};
use wire::{
    ClientId, ClusterId, Command, ConsensusGroup, CorrelationId, Event, Failure, FrameHeader,
    FrameKind, Identifier, LoggedIn, Op, ReplicaId, Reply, Request, SessionNumber, ShardId, Time,
    Timestamp,
};

use crate::{
    Config, ConnectionId, Effect, GroupSnapshot, GroupStart, Input, IoTicket, Limits, MeshMessage,
    Node as Address, Note, PeerMessage, Shard, SnapshotPart, shard_of_group,
};

pub(super) const DATA_GROUPS: u16 = 4;

/// What a client has got back.
#[derive(Debug)]
pub(super) enum Received {
    Reply(FrameHeader, Bytes),
    Event(Event),
    Closed,
}

/// What is on the disk.
#[derive(Debug, Default, Clone)]
pub(super) struct Disk {
    /// In the order written, all flushed.
    pub(super) records: Vec<Record>,
    pub(super) snapshots: BTreeMap<ConsensusGroup, GroupSnapshot>,
    pub(super) segments: BTreeMap<SegmentId, Vec<u8>>,
    pub(super) indexes: BTreeMap<SegmentId, Bytes>,
}

/// A range of a file of a segment.
type SegmentRange = (SegmentId, FileKind, u64, u64);

/// What the shell was asked for and has not done.
#[derive(Debug, Default)]
struct Undone {
    records: Vec<Record>,
    written: u64,
    changes: Vec<(IoTicket, SegmentChange)>,
}

pub(super) struct Node {
    nodes: u8,
    pub(super) shards: Vec<Shard>,
    /// What goes to other nodes.
    pub(super) outbox: Vec<(ReplicaId, PeerMessage)>,
    pub(super) disk: Disk,
    undone: Vec<Undone>,
    mesh: VecDeque<(ShardId, ShardId, MeshMessage)>,
    pub(super) received: BTreeMap<ConnectionId, Vec<Received>>,
    pub(super) paused: BTreeMap<ConnectionId, bool>,
    pub(super) notes: Vec<Note>,
    pub(super) ready: usize,
    pub(super) stopped: usize,
    pub(super) now: Time,
    /// While it does, nothing that is written is reported as flushed.
    pub(super) disk_stalls: bool,
    /// While they do, nothing gets into a segment.
    pub(super) files_stall: bool,
    /// While they do, nothing that is to be read of a segment is.
    pub(super) reads_stall: bool,
    unread: Vec<(ShardId, IoTicket, SegmentRange)>,
    correlation: u64,
}

pub(super) fn config(shard: u16, shard_count: u16) -> Config {
    config_of(ReplicaId(0), 1, shard, shard_count)
}

/// Bytes of segments that were fetched and wait for their files.
const FETCHED_MAX: u64 = 1024;

fn config_of(replica: ReplicaId, nodes: u8, shard: u16, shard_count: u16) -> Config {
    const SECOND: u64 = 1_000_000_000;
    let address = |index| Address {
        replica: ReplicaId(index),
        address: format!("127.0.0.1:510{index}"),
    };
    Config {
        cluster: ClusterId(7),
        replica,
        nodes: (0..nodes).map(address).collect(),
        incarnation: 0,
        shard: ShardId(shard),
        shard_count,
        data_groups: DATA_GROUPS,
        root_password: Some("correct horse".into()),
        catalog_limits: catalog::Limits::default(),
        limits: Limits {
            frame_size: 1024 * 1024,
            connections: 16,
            requests_in_flight: 8,
            bytes_in_flight: 256 * 1024,
            bytes_in_flight_shard: 1024 * 1024,
            batch_size: 960 * 1024,
            batch_messages: 1_000,
            poll_wait: 30_000,
            poll_bytes: 64 * 1024,
            sections: 100,
            passwords: 8,
        },
        disconnect_grace: SECOND,
        session_timeout: 10 * SECOND,
        liveness_interval: SECOND,
        park_timeout: 2 * SECOND,
        segment_size: 64 * 1024,
        tail_budget: 64 * 1024,
        fetched_max: FETCHED_MAX,
        fetch_rate: 0,
        index_budget: 64 * 1024,
        scrub_rate: 1024 * 1024,
        producers_max: 100,
        consumers_max: 100,
        clients_max: 12,
    }
}

impl Node {
    /// Starts from a disk, and goes on until nothing is left to do.
    pub(super) fn start(shard_count: u16, disk: Disk) -> Self {
        let mut node = Self::on(shard_count, disk);
        node.settle();
        node
    }

    /// A node whose disk stalls from the beginning.
    pub(super) fn stalled(shard_count: u16, disk: Disk) -> Self {
        let mut node = Self::on(shard_count, disk);
        node.disk_stalls = true;
        node.settle();
        node
    }

    fn read(&mut self, (shard, ticket): (ShardId, IoTicket), range: SegmentRange) {
        self.unread.push((shard, ticket, range));
        self.read_all();
    }

    /// Whatever is to be read of segments is, unless reads stall.
    pub(super) fn read_all(&mut self) {
        if self.reads_stall {
            return;
        }
        for (shard, ticket, (segment, file, position, length)) in std::mem::take(&mut self.unread) {
            let result = self.disk.read(segment, file, position, length);
            self.feed(shard, Input::Read { ticket, result });
        }
    }

    /// Reads of segments that have not ended.
    pub(super) fn unread(&self) -> usize {
        self.unread.len()
    }

    /// A node that reads nothing of its segments for the time being.
    pub(super) fn slow_to_read(shard_count: u16, disk: Disk) -> Self {
        let mut node = Self::on(shard_count, disk);
        node.reads_stall = true;
        node.settle();
        node
    }

    fn on(shard_count: u16, disk: Disk) -> Self {
        Self::of_cluster(ReplicaId(0), 1, shard_count, disk)
    }

    /// One of several nodes; nothing has happened yet.
    pub(super) fn of_cluster(replica: ReplicaId, nodes: u8, shard_count: u16, disk: Disk) -> Self {
        let now = Time {
            monotonic: 1,
            wall: Timestamp(1_700_000_000_000_000),
        };
        let shards = (0..shard_count).map(|shard| {
            let groups = (0..=DATA_GROUPS).map(ConsensusGroup);
            let own =
                groups.filter(|group| shard_of_group(*group, nodes, shard_count) == ShardId(shard));
            let starts = own.map(|group| disk.start_of(group)).collect();
            let config = Config {
                incarnation: (disk.records.len() as u64) << 32,
                ..config_of(replica, nodes, shard, shard_count)
            };
            Shard::new(config, starts, now).unwrap()
        });
        Self {
            nodes,
            shards: shards.collect(),
            outbox: Vec::new(),
            disk: disk.clone(),
            undone: (0..shard_count).map(|_| Undone::default()).collect(),
            mesh: VecDeque::new(),
            received: BTreeMap::new(),
            paused: BTreeMap::new(),
            notes: Vec::new(),
            ready: 0,
            stopped: 0,
            now,
            disk_stalls: false,
            files_stall: false,
            reads_stall: false,
            unread: Vec::new(),
            correlation: 0,
        }
    }

    pub(super) fn fresh(shard_count: u16) -> Self {
        Self::start(shard_count, Disk::default())
    }

    /// Loses everything but the disk, and starts again.
    pub(super) fn crash(self, shard_count: u16) -> Self {
        Self::start(shard_count, self.disk)
    }

    pub(super) fn feed(&mut self, shard: ShardId, input: Input) {
        self.shards[usize::from(shard.0)].handle(self.now, input);
    }

    /// Carries out effects until there are none.
    pub(super) fn settle(&mut self) {
        loop {
            let mut done = false;
            for index in 0..self.shards.len() {
                while let Some(effect) = self.shards[index].next_effect() {
                    done = true;
                    self.carry_out(index, effect);
                }
            }
            while let Some((from, to, message)) = self.mesh.pop_front() {
                done = true;
                self.feed(to, Input::Mesh { from, message });
            }
            if !self.disk_stalls {
                for index in 0..self.shards.len() {
                    done |= self.flush(index);
                }
            }
            if !done {
                return;
            }
        }
    }

    /// Makes a batch of what a shard has written durable. Returns whether there was any.
    pub(super) fn flush(&mut self, index: usize) -> bool {
        let shard = ShardId(u16::try_from(index).unwrap());
        let undone = &mut self.undone[index];
        let records = core::mem::take(&mut undone.records);
        let written = Ticket(undone.written);
        if !records.is_empty() {
            self.disk.records.extend(records);
            self.feed(
                shard,
                Input::Journal(Progress {
                    flushed: written,
                    repeated: written,
                }),
            );
            return true;
        }
        if self.files_stall {
            return false;
        }
        let changes = core::mem::take(&mut undone.changes);
        let Some((through, _)) = changes.last() else {
            return false;
        };
        let through = *through;
        for (_, change) in changes {
            self.disk.change(change);
        }
        self.feed(shard, Input::Changed { through });
        true
    }

    fn carry_out(&mut self, index: usize, effect: Effect) {
        let shard = ShardId(u16::try_from(index).unwrap());
        match effect {
            Effect::Send { connection, frame } => {
                let received = decode(&frame.concat());
                self.received.entry(connection).or_default().push(received);
            }
            Effect::Close { connection } => {
                self.received
                    .entry(connection)
                    .or_default()
                    .push(Received::Closed);
            }
            Effect::Admit { .. } => {}
            Effect::Pause { connection } => {
                assert_ne!(self.paused.insert(connection, true), Some(true));
            }
            Effect::Resume { connection } => {
                assert_eq!(self.paused.insert(connection, false), Some(true));
            }
            Effect::Mesh { to, message } => self.mesh.push_back((shard, to, message)),
            Effect::Peer { to, message } => {
                assert!(self.nodes > 1, "a single node has no peers");
                self.outbox.push((to, message));
            }
            Effect::ReadPrepare {
                group,
                op,
                checksum,
                to,
            } => {
                let prepare = self.disk.prepare(group, checksum);
                self.feed(
                    shard,
                    Input::PrepareRead {
                        group,
                        op,
                        to,
                        prepare,
                    },
                );
            }
            Effect::Journal(record) => {
                self.undone[index].records.push(record);
                self.undone[index].written += 1;
            }
            Effect::Change { ticket, change } => self.undone[index].changes.push((ticket, change)),
            Effect::Read {
                ticket,
                segment,
                file,
                position,
                length,
            } => {
                self.read((shard, ticket), (segment, file, position, length));
            }
            Effect::Flush { ticket, .. } => self.feed(shard, Input::Flushed { ticket }),
            Effect::WriteSnapshot { snapshot } => {
                let (group, op) = (snapshot.group, snapshot.checkpoint.op);
                self.disk.snapshots.insert(group, *snapshot);
                self.feed(shard, Input::SnapshotWritten { group, op });
            }
            Effect::ReadSnapshot { .. }
            | Effect::DecodeSnapshot { .. }
            | Effect::CheckPassword { .. }
            | Effect::HashPassword { .. } => self.answer_at_once(shard, effect),
            Effect::Ready => self.ready += 1,
            Effect::Stopped => self.stopped += 1,
            Effect::Note(note) => self.notes.push(note),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other effects that come here concern passwords"
    )]
    fn answer_at_once(&mut self, shard: ShardId, effect: Effect) {
        let input = match effect {
            Effect::ReadSnapshot {
                ticket,
                group,
                op,
                position,
                length,
            } => Input::SnapshotRead {
                ticket,
                part: self.disk.read_snapshot(group, op, (position, length)),
            },
            Effect::DecodeSnapshot { ticket, bytes, .. } => Input::SnapshotDecoded {
                ticket,
                snapshot: rmp_serde::from_slice(&bytes).ok(),
            },
            other => return self.see_to_password(shard, other),
        };
        self.feed(shard, input);
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other effects never come here"
    )]
    fn see_to_password(&mut self, shard: ShardId, effect: Effect) {
        let input = match effect {
            Effect::CheckPassword {
                ticket,
                password,
                phc,
            } => Input::PasswordChecked {
                ticket,
                valid: phc.is_some_and(|phc| phc == password.0),
                secret: [9; 32],
            },
            Effect::HashPassword { ticket, password } => Input::PasswordHashed {
                ticket,
                phc: password.0,
            },
            other => panic!("{other:?}"),
        };
        self.feed(shard, input);
    }

    /// Hands in what another node has sent.
    pub(super) fn receive(&mut self, from: ReplicaId, message: PeerMessage) {
        let shards = u16::try_from(self.shards.len()).unwrap();
        for (shard, message) in message.by_shard(self.nodes, shards) {
            self.feed(shard, Input::Peer { from, message });
        }
    }

    /// Tells all shards something.
    pub(super) fn tell(&mut self, input: impl Fn() -> Input) {
        for shard in 0..self.shards.len() {
            self.feed(ShardId(u16::try_from(shard).unwrap()), input());
        }
    }

    /// Lets time pass in steps of 10 ms.
    pub(super) fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.now.monotonic += 10_000_000;
            self.now.wall.0 += 10_000;
            self.tell(|| Input::Tick);
            self.settle();
        }
    }

    /// The shard that a connection of these tests is made to.
    pub(super) fn shard_of(&self, connection: ConnectionId) -> ShardId {
        ShardId(u16::try_from(connection.0 % self.shards.len() as u64).unwrap())
    }

    pub(super) fn open(&mut self, connection: u64) -> ConnectionId {
        let connection = ConnectionId(connection);
        let peer = "127.0.0.1:40000".parse().unwrap();
        self.feed(
            self.shard_of(connection),
            Input::Opened { connection, peer },
        );
        self.settle();
        connection
    }

    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.feed(self.shard_of(connection), Input::Closed { connection });
        self.settle();
    }

    pub(super) fn send(&mut self, connection: ConnectionId, header: FrameHeader, body: &[u8]) {
        let frame = Bytes::from(header.frame(body));
        let header = FrameHeader::read(&frame).unwrap();
        let body = header.body(&frame).unwrap();
        self.feed(
            self.shard_of(connection),
            Input::Frame {
                connection,
                header,
                body,
            },
        );
    }

    /// The data group of a partition of the one topic of these tests.
    pub(super) fn group_of(&self, partition: u32) -> ConsensusGroup {
        let mut placements = self.shards[0].projection.placements();
        let found = placements.find(|(key, _)| key.partition.0 == partition);
        found.expect("it is there").1.group
    }

    pub(super) fn take(&mut self, connection: ConnectionId) -> Vec<Received> {
        self.received.remove(&connection).unwrap_or_default()
    }

    pub(super) fn next_correlation(&mut self) -> CorrelationId {
        self.correlation += 1;
        CorrelationId(self.correlation)
    }

    /// A client without a session.
    pub(super) fn client(&mut self, connection: u64, client: u128) -> Client {
        Client {
            connection: self.open(connection),
            id: ClientId(client),
            session: SessionNumber(0),
            secret: wire::SessionSecret([0; 32]),
            request: 0,
            seen: 0,
        }
    }

    /// Logs a client in over a connection.
    pub(super) fn log_in(&mut self, connection: u64, client: u128) -> Client {
        let mut client = self.client(connection, client);
        let login = wire::Login {
            name: "root".into(),
            password: wire::Password("correct horse".into()),
        };
        match self.call(&mut client, login) {
            Ok(Reply::LoggedIn(LoggedIn {
                session, secret, ..
            })) => {
                client.session = session;
                client.secret = secret;
                client
            }
            other => panic!("login: {other:?}"),
        }
    }

    /// Lets a new connection carry a client's session.
    pub(super) fn attach(
        &mut self,
        client: &mut Client,
        connection: u64,
    ) -> Result<Reply, Failure> {
        client.connection = self.open(connection);
        let secret = client.secret;
        self.call(client, wire::Attach { secret })
    }

    /// Sends a request without waiting for its answer.
    pub(super) fn submit(
        &mut self,
        client: &mut Client,
        request: impl Into<Request>,
    ) -> CorrelationId {
        let request = request.into();
        let command = request.command();
        let correlation = self.next_correlation();
        let mut header = FrameHeader::request(command.code(), correlation, client.id);
        header.session = client.session.0;
        header.request = if command.plane() == wire::Plane::Metadata {
            client.request += 1;
            client.request
        } else {
            client.seen
        };
        self.send(client.connection, header, &request.encode());
        correlation
    }

    /// Sends a request and takes its answer, which must be there without time passing.
    pub(super) fn call(
        &mut self,
        client: &mut Client,
        request: impl Into<Request>,
    ) -> Result<Reply, Failure> {
        let request = request.into();
        let command = request.command();
        let correlation = self.submit(client, request);
        self.settle();
        self.answer(client, command, correlation)
            .unwrap_or_else(|| panic!("{command:?} has no answer"))
    }

    /// Takes the answer to one request, if it is there.
    pub(super) fn answer(
        &mut self,
        client: &mut Client,
        command: Command,
        correlation: CorrelationId,
    ) -> Option<Result<Reply, Failure>> {
        let received = self.received.get_mut(&client.connection)?;
        let position = received.iter().position(
            |received| matches!(received, Received::Reply(header, _) if header.correlation == correlation.0),
        )?;
        let Received::Reply(header, body) = received.remove(position) else {
            unreachable!()
        };
        assert_eq!(header.code, command.code());
        if command.plane() == wire::Plane::Metadata && header.status == 0 {
            client.seen = client.seen.max(header.op().0);
        }
        Some(match header.status {
            0 => Ok(Reply::decode(command, body).unwrap()),
            status => Err(Failure::decode(status, &body)),
        })
    }
}

/// A client of these tests.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) connection: ConnectionId,
    pub(super) id: ClientId,
    pub(super) session: SessionNumber,
    pub(super) secret: wire::SessionSecret,
    pub(super) request: u64,
    /// The highest metadata op that it knows of.
    pub(super) seen: u64,
}

impl Disk {
    fn start_of(&self, group: ConsensusGroup) -> GroupStart {
        let mut recovered = vsr::Recovered::default();
        let snapshot = self.snapshots.get(&group).cloned();
        for record in &self.records {
            match record {
                Record::Prepare { header, body } if header.group() == group => {
                    recovered.prepares.push(vsr::Prepare {
                        header: *header,
                        body: body.clone(),
                    });
                }
                Record::Superblock(superblock) if superblock.group == group => {
                    let body = superblock.body.clone();
                    recovered.superblock = Some(vsr::Superblock::decode(body).unwrap());
                }
                Record::Prepare { .. } | Record::Superblock(_) => {}
            }
        }
        GroupStart {
            group,
            snapshot,
            recovered,
        }
    }

    fn prepare(&self, wanted: ConsensusGroup, checksum: u128) -> Option<vsr::Prepare> {
        self.records.iter().find_map(|record| match record {
            Record::Prepare { header, body }
                if header.group() == wanted && header.checksum == checksum =>
            {
                Some(vsr::Prepare {
                    header: *header,
                    body: body.clone(),
                })
            }
            Record::Prepare { .. } | Record::Superblock(_) => None,
        })
    }

    fn read_snapshot(
        &self,
        group: ConsensusGroup,
        op: Op,
        (position, length): (u64, u64),
    ) -> Option<SnapshotPart> {
        let snapshot = self.snapshots.get(&group)?;
        if snapshot.checkpoint.op != op {
            return None;
        }
        let body = Bytes::from(rmp_serde::to_vec(snapshot).unwrap());
        let size = body.len() as u64;
        let index = |at: u64| usize::try_from(at.min(size)).unwrap();
        Some(SnapshotPart {
            size,
            checksum: wire::checksum128(&body),
            bytes: body.slice(index(position)..index(position + length)),
        })
    }

    fn change(&mut self, change: SegmentChange) {
        match change {
            SegmentChange::Append {
                segment,
                position,
                parts,
            } => {
                let file = self.segments.entry(segment).or_default();
                let bytes = parts.concat();
                let position = usize::try_from(position).unwrap();
                if file.len() < position + bytes.len() {
                    file.resize(position + bytes.len(), 0);
                }
                file[position..position + bytes.len()].copy_from_slice(&bytes);
            }
            SegmentChange::WriteIndex { segment, bytes } => {
                self.indexes.insert(segment, bytes);
            }
            SegmentChange::Delete { segment } => {
                self.segments.remove(&segment);
                self.indexes.remove(&segment);
            }
            SegmentChange::DeletePartition {
                partition,
                incarnation,
                ..
            } => {
                let other =
                    |id: &SegmentId| (id.partition, id.incarnation) != (partition, incarnation);
                self.segments.retain(|id, _| other(id));
                self.indexes.retain(|id, _| other(id));
            }
        }
    }

    fn read(
        &self,
        segment: SegmentId,
        file: FileKind,
        position: u64,
        length: u64,
    ) -> Result<Bytes, String> {
        let bytes = match file {
            FileKind::Segment => self.segments.get(&segment).map(Vec::as_slice),
            FileKind::Index => self.indexes.get(&segment).map(|bytes| &bytes[..]),
        };
        let bytes = bytes.ok_or_else(|| format!("{segment:?} is not there"))?;
        let start = usize::try_from(position).unwrap().min(bytes.len());
        let end = usize::try_from(position + length).unwrap().min(bytes.len());
        Ok(Bytes::copy_from_slice(&bytes[start..end]))
    }
}

fn decode(frame: &[u8]) -> Received {
    let frame = Bytes::copy_from_slice(frame);
    let header = FrameHeader::read(&frame).unwrap();
    let body = header.body(&frame).unwrap();
    match header.frame_kind() {
        Some(FrameKind::Reply) => Received::Reply(header, body),
        Some(FrameKind::Event) => Received::Event(Event::decode(&header, body).unwrap().unwrap()),
        other => panic!("{other:?} from a node"),
    }
}

pub(super) fn name(text: &str) -> Identifier {
    Identifier::Name(text.to_string())
}
