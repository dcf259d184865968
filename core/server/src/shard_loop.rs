//! One shard's thread: hands everything in, carries out what comes of it, waits for more.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use journal::{Progress, Record};
use network::{
    Connections, Driver, Endpoint, Event, Inbox, InboxSender, LinkLimits, LinkOrders, Links,
    Listener, NewLink, Notify,
};
use partition::{SegmentChange, SegmentFile};
use shard::{
    ConnectionId, DiskSpace, Effect, GroupSnapshot, GroupStart, Input, IoTicket, MeshMessage, Note,
    PeerMessage, Shard, SnapshotPart, StateSnapshot,
};
use storage::{Done, FileThreads, Job, JournalHandle, Segments, SnapshotRange};
use wire::{ConsensusGroup, Op, ReplicaId, ShardId, Time, Timestamp};

use crate::{
    names, notes,
    password::{PasswordAnswer, PasswordPool, PasswordWork},
    peers, random,
};

/// How often a shard is told that time has passed.
const TICK: Duration = Duration::from_millis(10);

/// Messages taken from one peer's ring in a turn.
const MESH_BATCH: usize = 1_024;

/// Bytes of messages that are handed over to be written to segments, at least, unless a tick comes first.
/// Each time wakes a thread that competes with what clients wait for.
const CHANGE_BYTES: usize = 256 * 1024;

/// Events of connections handled before effects are carried out. Requests that come in together share a
/// prepare, but none of them waits for ever.
const EVENT_BATCH: usize = 1_024;

/// What other threads tell a shard.
#[derive(Debug)]
pub(crate) enum Outside {
    /// The journal.
    Journal(Progress),
    /// The journal needs room.
    CheckpointWanted(ConsensusGroup),
    /// The file threads.
    Done(Done),
    /// The hashing pool.
    Password(IoTicket, PasswordAnswer),
    /// What watches the disk.
    Disk(DiskSpace),
    /// A link over which this shard sends.
    Outgoing(NewLink),
    /// A link over which another node sends.
    Incoming(NewLink),
    /// Another disk has taken the place of this node's: what a process with the old one says counts no more.
    PeerReplaced(ReplicaId),
    /// A link with this node is new.
    PeerUp(ReplicaId),
    /// The link to this node has ended and cannot be made again at this moment.
    PeerDown(ReplicaId),
    /// A prepare that another node asked for, if the journal has it.
    PrepareRead {
        /// Its consensus group.
        group: ConsensusGroup,
        /// Its op.
        op: Op,
        /// Who asked.
        to: ReplicaId,
        /// The prepare.
        prepare: Option<vsr::Prepare>,
    },
    /// A snapshot of another node, if it is one.
    Decoded(IoTicket, Option<Box<GroupSnapshot>>),
    /// The process is to end.
    Stop,
    /// All shards have stopped: none asks another for anything any more.
    End,
}

/// What goes from shard to shard.
#[derive(Debug)]
pub(crate) enum Across {
    /// Of one shard to another.
    Mesh(MeshMessage),
    /// Of another node, which it came in from over a link of the sending shard.
    Peer(ReplicaId, Box<PeerMessage>),
}

/// What a shard tells the thread that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It serves.
    Ready,
    /// Nothing is in flight any more and its connections are closed.
    Stopped,
}

/// Why a shard does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// It hosts the metadata, and that is out of service.
    #[error("the metadata is out of service")]
    NoMetadata,
    /// The runtime or the listener cannot be set up, or a snapshot does not fit its group.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Everything that a shard's thread starts with.
pub(crate) struct Seed {
    pub(crate) config: shard::Config,
    pub(crate) groups: Vec<GroupStart>,
    /// The data directory.
    pub(crate) data: PathBuf,
    pub(crate) core: Option<usize>,
    pub(crate) driver: Driver,
    pub(crate) limits: network::Limits,
    pub(crate) listener: Listener,
    pub(crate) links: LinkOrders,
    pub(crate) notify: Notify,
    pub(crate) endpoint: Endpoint<Across>,
    pub(crate) inbox: Inbox<Outside>,
    pub(crate) inbox_sender: InboxSender<Outside>,
    pub(crate) journal: JournalHandle,
    pub(crate) files: FileThreads,
    pub(crate) passwords: PasswordPool,
    pub(crate) started: Instant,
    pub(crate) tell: Box<dyn Fn(Told) + Send>,
}

/// Runs a shard until it is stopped.
///
/// # Errors
/// Why it does not run.
pub(crate) fn run(seed: Seed) -> Result<(), Failed> {
    if let Some(core) = seed.core
        && let Err(error) = network::pin_to_core(core)
    {
        tracing::warn!(
            shard = seed.config.shard.0,
            core,
            "cannot keep to a core: {error}"
        );
    }
    let runtime = network::build_runtime(seed.driver)?;
    runtime.block_on(async move {
        let loop_ = ShardLoop::new(seed)?;
        // The root future is polled at every turn of the runtime: the loop runs as a task.
        compio::runtime::spawn(loop_.run())
            .await
            .map_err(|_| io::Error::other("the shard's loop has panicked"))?;
        Ok(())
    })
}

struct ShardLoop {
    shard: Shard,
    own: ShardId,
    replica_count: u8,
    shard_count: u16,
    connections: Connections,
    links: Links,
    /// Messages of other nodes that nobody could make sense of.
    foreign: u64,
    notify: Notify,
    endpoint: Endpoint<Across>,
    inbox: Inbox<Outside>,
    inbox_sender: InboxSender<Outside>,
    journal: JournalHandle,
    records: Vec<Record>,
    files: FileThreads,
    /// Changes of segments that wait to be handed over together, and the bytes of messages in them.
    changes: Vec<Job>,
    changed_bytes: usize,
    passwords: PasswordPool,
    clock: Clock,
    next_tick: Instant,
    stopping: bool,
    stopped: bool,
    ended: bool,
    tell: Box<dyn Fn(Told) + Send>,
}

impl ShardLoop {
    fn new(seed: Seed) -> Result<Self, Failed> {
        let clock = Clock {
            started: seed.started,
        };
        let (own, shard_count) = (seed.config.shard, seed.config.shard_count);
        let replica_count = seed.config.nodes.len();
        let replica_count = u8::try_from(replica_count).expect("a cluster has 1, 3 or 5 nodes");
        let files = files_of(&seed.groups, replica_count);
        let shard = Shard::new(seed.config, seed.groups, clock.now());
        let mut shard = shard.map_err(io::Error::other)?;
        if shard.is_out_of_service(ConsensusGroup::METADATA) {
            tell_notes(own, &mut shard);
            return Err(Failed::NoMetadata);
        }
        put_segments_in_order(&shard, (&seed.data, replica_count), files)
            .map_err(io::Error::other)?;
        let connections = Connections::new(seed.limits, seed.notify.clone());
        connections.listen(seed.listener)?;
        let orders = seed.links;
        let links = Links::new(LinkLimits::default(), seed.notify.clone(), move |peer| {
            orders.lost(peer, own.0);
        });
        Ok(Self {
            shard,
            own,
            replica_count,
            shard_count,
            connections,
            links,
            foreign: 0,
            notify: seed.notify,
            endpoint: seed.endpoint,
            inbox: seed.inbox,
            inbox_sender: seed.inbox_sender,
            journal: seed.journal,
            records: Vec::new(),
            files: seed.files,
            changes: Vec::new(),
            changed_bytes: 0,
            passwords: seed.passwords,
            clock,
            next_tick: Instant::now(),
            stopping: false,
            stopped: false,
            ended: false,
            tell: seed.tell,
        })
    }

    async fn run(mut self) {
        let ticker = self.notify.clone();
        let ticks = compio::runtime::spawn(async move {
            loop {
                compio::time::sleep(TICK).await;
                ticker.notify();
            }
        });
        let mut told = false;
        // One that has stopped serves the others until they have, too: what they have taken needs its groups.
        while !self.ended {
            self.turn();
            if !told && self.stopped && self.connections.is_quiet() {
                told = true;
                (self.tell)(Told::Stopped);
            }
            self.notify.notified().await;
        }
        self.links.close_all();
        self.hand_changes_over();
        drop(ticks);
    }

    /// Hands in everything that is there, then carries out what comes of it.
    fn turn(&mut self) {
        let now = self.clock.now();
        self.take_events(now);
        let Self {
            shard, endpoint, ..
        } = self;
        endpoint.drain(MESH_BATCH, |from, message| {
            let from = ShardId(u16::try_from(from).expect("shards are counted by a u16"));
            match message {
                Across::Mesh(message) => shard.handle(now, Input::Mesh { from, message }),
                Across::Peer(from, message) => {
                    let message = *message;
                    shard.handle(now, Input::Peer { from, message });
                }
            }
        });
        self.take_inbox(now);
        self.take_peers(now);
        let moment = Instant::now();
        if moment >= self.next_tick {
            self.next_tick = moment + TICK;
            self.tell_traffic(now);
            self.shard.handle(now, Input::Tick);
            self.hand_changes_over();
        }
        self.carry_out_all();
    }

    /// What goes over the links of this shard. Groups that other shards of this node lead do without.
    fn tell_traffic(&mut self, now: Time) {
        let traffic = self.links.take_traffic();
        for from in traffic.receiving {
            self.shard.handle(now, Input::Receiving { from });
        }
        if traffic.is_sending {
            self.shard.handle(now, Input::Moving);
        }
    }

    fn take_events(&mut self, now: Time) {
        let mut taken = 0;
        while let Some(event) = self.connections.next_event() {
            self.shard.handle(now, input(event));
            taken += 1;
            if taken == EVENT_BATCH {
                taken = 0;
                self.carry_out_all();
            }
        }
    }

    /// What other nodes have sent; each message goes to the shard that it is for.
    fn take_peers(&mut self, now: Time) {
        let mut taken = 0;
        while let Some((from, body)) = self.links.next_frame() {
            let message = match PeerMessage::decode(body) {
                Ok(message) => message,
                Err(error) => {
                    // Another version, or a fault: what follows may rest on it.
                    self.refuse_peer(from, &error.to_string());
                    self.links.cut_incoming(from);
                    continue;
                }
            };
            let parts = message.by_shard(self.replica_count, self.shard_count);
            if parts.is_empty() {
                // An answer to what this node asked when it had more shards.
                self.refuse_peer(from, "it is for a shard that is not there");
            }
            for (shard, message) in parts {
                if shard == self.own {
                    self.shard.handle(now, Input::Peer { from, message });
                } else {
                    let across = Across::Peer(from, message.into());
                    self.endpoint.send(usize::from(shard.0), across);
                }
            }
            taken += 1;
            if taken == EVENT_BATCH {
                taken = 0;
                self.carry_out_all();
            }
        }
    }

    fn refuse_peer(&mut self, from: ReplicaId, problem: &str) {
        self.foreign += 1;
        if self.foreign.is_power_of_two() {
            let (shard, count) = (self.own.0, self.foreign);
            tracing::warn!(
                shard,
                node = from.0,
                count,
                "a message of a node is dropped: {problem}"
            );
        }
    }

    fn take_inbox(&mut self, now: Time) {
        let Self {
            shard,
            inbox,
            links,
            stopping,
            ended,
            ..
        } = self;
        let mut progress = None;
        inbox.drain(|outside| match outside {
            // Both numbers only rise: the newest says it all.
            Outside::Journal(newer) => progress = Some(newer),
            Outside::CheckpointWanted(group) => {
                shard.handle(now, Input::CheckpointWanted { group })
            }
            Outside::Done(done) => shard.handle(now, done_input(done)),
            Outside::Password(ticket, PasswordAnswer::Checked { valid }) => {
                shard.handle(
                    now,
                    Input::PasswordChecked {
                        ticket,
                        valid,
                        secret: random::bytes(),
                    },
                );
            }
            Outside::Password(ticket, PasswordAnswer::Hashed { phc }) => {
                shard.handle(now, Input::PasswordHashed { ticket, phc });
            }
            Outside::Decoded(ticket, snapshot) => {
                shard.handle(now, Input::SnapshotDecoded { ticket, snapshot });
            }
            Outside::Disk(space) => shard.handle(now, Input::Disk(space)),
            Outside::PeerReplaced(node) => links.cut_incoming(node),
            Outside::PeerUp(node) => shard.handle(now, Input::PeerUp { node }),
            Outside::PeerDown(node) => shard.handle(now, Input::PeerDown { node }),
            Outside::Outgoing(link) => tell_unattached(links.add_outgoing(link)),
            Outside::Incoming(link) => tell_unattached(links.add_incoming(link)),
            Outside::PrepareRead {
                group,
                op,
                to,
                prepare,
            } => shard.handle(
                now,
                Input::PrepareRead {
                    group,
                    op,
                    to,
                    prepare,
                },
            ),
            Outside::End => *ended = true,
            Outside::Stop => {
                *stopping = true;
                shard.handle(now, Input::Stop);
            }
        });
        if let Some(progress) = progress {
            self.shard.handle(now, Input::Journal(progress));
        }
        if self.stopping {
            self.connections.stop_listening();
        }
    }

    fn carry_out_all(&mut self) {
        while let Some(effect) = self.shard.next_effect() {
            self.carry_out(effect);
        }
        self.journal.submit(self.own, &mut self.records);
        self.endpoint.flush();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { connection, frame } => {
                // A slow reader is the connections' matter; one that is gone is told by `Closed`.
                let _ = self.connections.send(id(connection), frame);
            }
            Effect::Close { connection } => self.connections.close(id(connection)),
            Effect::Admit { connection } => self.connections.admit(id(connection)),
            Effect::Pause { connection } => self.connections.pause(id(connection)),
            Effect::Resume { connection } => self.connections.resume(id(connection)),
            Effect::Mesh { to, message } => {
                self.endpoint.send(usize::from(to.0), Across::Mesh(message));
            }
            Effect::Peer { to, message } => self.send_peer(to, &message),
            Effect::ReadPrepare {
                group,
                op,
                checksum,
                to,
            } => self.read_prepare((group, op, checksum), to),
            Effect::Journal(record) => self.records.push(record),
            Effect::Change { ticket, change } => self.change(change_job(ticket, change)),
            Effect::Read { .. }
            | Effect::Flush { .. }
            | Effect::WriteSnapshot { .. }
            | Effect::ReadSnapshot { .. } => self.files.submit(file_job(effect)),
            Effect::DecodeSnapshot { ticket, bytes, .. } => {
                let answer = self.inbox_sender.clone();
                let decode = move || {
                    let snapshot = decode_snapshot(&bytes);
                    answer.send(Outside::Decoded(ticket, snapshot));
                };
                self.files.submit(Job::Decode(Box::new(decode)));
            }
            Effect::CheckPassword {
                ticket,
                password,
                phc,
            } => {
                let password = password.0;
                self.hash(ticket, PasswordWork::Check { password, phc });
            }
            Effect::HashPassword { ticket, password } => {
                let password = password.0;
                self.hash(ticket, PasswordWork::Hash { password });
            }
            Effect::Ready => (self.tell)(Told::Ready),
            Effect::Stopped => {
                self.stopped = true;
                self.connections.close_all();
            }
            Effect::Note(note) => self.note(&note),
        }
    }

    /// What does not fit is lost, as on a link that ends.
    fn send_peer(&self, to: ReplicaId, message: &PeerMessage) {
        let body = message.encode();
        let size = body.iter().map(Bytes::len).sum();
        let urgency = peers::urgency(message, size);
        let _ = self.links.send(to, body, urgency);
    }

    fn read_prepare(&self, (group, op, checksum): (ConsensusGroup, Op, u128), to: ReplicaId) {
        let answer = self.inbox_sender.clone();
        self.journal
            .read_prepare(group, op, checksum, move |found| {
                let prepare = found.map(|(header, body)| vsr::Prepare { header, body });
                answer.send(Outside::PrepareRead {
                    group,
                    op,
                    to,
                    prepare,
                });
            });
    }

    fn change(&mut self, job: Job) {
        if let Job::Append { pieces, .. } = &job {
            self.changed_bytes += pieces.iter().map(Bytes::len).sum::<usize>();
        }
        self.changes.push(job);
        if self.changed_bytes >= CHANGE_BYTES {
            self.hand_changes_over();
        }
    }

    fn hand_changes_over(&mut self) {
        self.changed_bytes = 0;
        for job in self.changes.drain(..) {
            self.files.submit(job);
        }
    }

    fn note(&self, note: &Note) {
        if let Note::Replica {
            group,
            note: vsr::Note::OutOfService(_),
        } = note
        {
            self.journal.suspend(*group);
        }
        notes::tell(self.own, note);
    }

    fn hash(&self, ticket: IoTicket, work: PasswordWork) {
        let answer = self.inbox_sender.clone();
        let submitted = self.passwords.submit(work, move |result| {
            answer.send(Outside::Password(ticket, result))
        });
        // The shard bounds what it asks for by what the pool takes.
        assert!(submitted.is_ok(), "the pool takes what a shard may ask for");
    }
}

fn tell_unattached(attached: io::Result<()>) {
    if let Err(error) = attached {
        tracing::warn!("a link could not be taken up: {error}");
    }
}

/// Tells the operator what a shard notes that is not going to run.
fn tell_notes(own: ShardId, shard: &mut Shard) {
    while let Some(effect) = shard.next_effect() {
        if let Effect::Note(note) = effect {
            notes::tell(own, &note);
        }
    }
}

/// The segments of each data group when its snapshot was taken. One of several touches nothing of a group whose newest
/// snapshot is lost: much of it may be what another node is about to tell of.
fn files_of(groups: &[GroupStart], replica_count: u8) -> Vec<(ConsensusGroup, Vec<SegmentFile>)> {
    let data = groups.iter().filter(|start| {
        let is_left_alone = replica_count > 1 && start.has_lost_checkpoint();
        start.group != ConsensusGroup::METADATA && !is_left_alone
    });
    data.map(|start| {
        let state = start.snapshot.as_ref().map(|snapshot| &snapshot.state);
        let files = match state {
            Some(StateSnapshot::Data(state)) => partition::files_at(state),
            Some(StateSnapshot::Metadata(_)) | None => Vec::new(),
        };
        (start.group, files)
    })
    .collect()
}

/// Cuts what is behind the snapshots off: it is in the journal, and is written again. One of several also deletes
/// the segments that no snapshot knows, which a transfer that was cut short may have brought. Nothing is touched of
/// a group that is out of service, whose snapshot may be an older one.
fn put_segments_in_order(
    shard: &Shard,
    (data, replica_count): (&Path, u8),
    groups: Vec<(ConsensusGroup, Vec<SegmentFile>)>,
) -> Result<(), storage::Error> {
    let segments = Segments::new(data, 1);
    for (group, files) in groups {
        if shard.is_out_of_service(group) {
            continue;
        }
        if replica_count > 1 {
            let known = files.iter().map(|file| names::segment(file.id)).collect();
            let deleted = segments.keep_only(group, &known)?;
            if deleted > 0 {
                tracing::debug!(
                    group = group.0,
                    deleted,
                    "files behind the snapshot are deleted"
                );
            }
        }
        for file in files.iter().filter(|file| file.open) {
            segments.truncate(&names::segment(file.id), file.segment.length)?;
        }
    }
    Ok(())
}

/// Both clocks of this machine.
#[derive(Clone, Copy, Debug)]
struct Clock {
    started: Instant,
}

impl Clock {
    fn now(self) -> Time {
        let monotonic = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let wall = Timestamp(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX));
        Time { monotonic, wall }
    }
}

const fn id(connection: ConnectionId) -> network::ConnectionId {
    network::ConnectionId(connection.0)
}

fn input(event: Event) -> Input {
    match event {
        Event::Opened { connection, peer } => Input::Opened {
            connection: ConnectionId(connection.0),
            peer,
        },
        Event::Frame {
            connection,
            header,
            body,
        } => Input::Frame {
            connection: ConnectionId(connection.0),
            header,
            body,
        },
        Event::BadFrame {
            connection,
            header,
            error,
        } => Input::BadFrame {
            connection: ConnectionId(connection.0),
            header,
            error,
        },
        Event::Closed { connection, reason } => {
            tracing::debug!(connection = connection.0, "connection {reason}");
            Input::Closed {
                connection: ConnectionId(connection.0),
            }
        }
    }
}

fn done_input(done: Done) -> Input {
    match done {
        Done::Changed { ticket } => Input::Changed {
            through: IoTicket(ticket),
        },
        Done::Read { ticket, result } => {
            let result = result.map_err(|error| {
                tracing::error!("{error}");
                error.to_string()
            });
            Input::Read {
                ticket: IoTicket(ticket),
                result,
            }
        }
        Done::Flushed { ticket } => Input::Flushed {
            ticket: IoTicket(ticket),
        },
        Done::SnapshotRead { ticket, result } => Input::SnapshotRead {
            ticket: IoTicket(ticket),
            part: snapshot_part(result),
        },
        Done::SnapshotWritten { group, op } => Input::SnapshotWritten { group, op },
    }
}

/// A job of the threads that read files and flush them.
fn file_job(effect: Effect) -> Job {
    match effect {
        Effect::Read {
            ticket,
            segment,
            file,
            position,
            length,
        } => Job::Read {
            ticket: ticket.0,
            segment: names::segment(segment),
            kind: names::file_kind(file),
            position,
            length,
        },
        Effect::Flush { ticket, segments } => Job::Flush {
            ticket: ticket.0,
            segments: segments.into_iter().map(names::segment).collect(),
        },
        Effect::WriteSnapshot { snapshot } => snapshot_job(snapshot),
        Effect::ReadSnapshot {
            ticket,
            group,
            op,
            position,
            length,
        } => Job::ReadSnapshot {
            ticket: ticket.0,
            group,
            op,
            position,
            length,
        },
        other => unreachable!("no file is read or flushed for {other:?}"),
    }
}

fn change_job(ticket: IoTicket, change: SegmentChange) -> Job {
    let ticket = ticket.0;
    match change {
        SegmentChange::Append {
            segment,
            position,
            parts,
        } => Job::Append {
            ticket,
            segment: names::segment(segment),
            position,
            pieces: parts,
        },
        SegmentChange::WriteIndex { segment, bytes } => Job::WriteIndex {
            ticket,
            segment: names::segment(segment),
            bytes,
        },
        SegmentChange::Delete { segment } => Job::Delete {
            ticket,
            segment: names::segment(segment),
        },
        SegmentChange::DeletePartition {
            group,
            partition,
            incarnation,
        } => Job::DeletePartition {
            ticket,
            group,
            partition,
            incarnation,
        },
    }
}

/// A snapshot that is gone is no error: a newer one has taken its place.
fn snapshot_part(result: Result<SnapshotRange, storage::Error>) -> Option<SnapshotPart> {
    match result {
        Ok(SnapshotRange {
            size,
            checksum,
            bytes,
        }) => Some(SnapshotPart {
            size,
            checksum,
            bytes,
        }),
        Err(error) => {
            if !error.is_missing() {
                tracing::error!("{error}");
            }
            None
        }
    }
}

fn decode_snapshot(bytes: &Bytes) -> Option<Box<GroupSnapshot>> {
    let decoded = rmp_serde::from_slice(bytes);
    decoded
        .inspect_err(|error| tracing::warn!("another node's snapshot cannot be read: {error}"))
        .ok()
}

fn snapshot_job(snapshot: Box<GroupSnapshot>) -> Job {
    Job::Snapshot {
        group: snapshot.group,
        op: snapshot.checkpoint.op,
        encode: Box::new(move || rmp_serde::to_vec(&*snapshot).expect("a snapshot can be encoded")),
    }
}
