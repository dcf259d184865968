//! Feeds inputs to one replica and compares the exact effects.

use std::vec::Vec;

use bytes::Bytes;
use wire::{
    ClientId, ClusterId, ConsensusGroup, Op, PrepareHeader, ReplicaId, RequestNumber,
    SessionNumber, Time, Timestamp, View,
};

use crate::{
    ChainPoint, Commit, Config, DoViewChange, Effect, Input, Message, Note, Origin, Prepare,
    PrepareMessage, PrepareOk, Recovered, Refusal, Replica, Request, RequestPrepare,
    RequestedPrepare, Rotten, StartView, StartViewChange, SuffixEntry, SuffixReport, Superblock,
    Token,
};

mod checkpoint;
mod choice;
mod damage;
mod installing;
mod leadership;
mod liveness;
mod lost_checkpoint;
mod memory;
mod messages;
mod normal;
mod promises;
mod read_index;
mod recovery;
mod recovery_among_others;
mod rejoining;
mod repair;
mod sessions;
mod state_transfer;
mod view_change;

const CLUSTER: ClusterId = ClusterId(7);
const CLIENT: ClientId = ClientId(0xc1);
const OTHER_CLIENT: ClientId = ClientId(0xc2);
const OPERATION: u16 = 9;
/// Wall clock of the first event.
const START: u64 = 1_000_000;
const MILLISECOND: u64 = 1_000_000;

const fn config(replica: u8, replica_count: u8) -> Config {
    Config {
        cluster: CLUSTER,
        group: ConsensusGroup::METADATA,
        replica: ReplicaId(replica),
        replica_count,
        clients_max: 3,
    }
}

/// One replica, and what it was told.
struct Fixture {
    replica: Replica,
    now: Time,
}

impl Fixture {
    /// Not started yet: nothing it promised is durable.
    fn starting(config: Config, recovered: Recovered) -> (Self, Vec<Effect>) {
        let mut fixture = Self {
            replica: Replica::new(config, recovered),
            now: Time {
                monotonic: 5,
                wall: Timestamp(START),
            },
        };
        let effects = fixture.drain();
        (fixture, effects)
    }

    /// In normal status in view 0, on a fresh disk.
    fn started(replica: u8, replica_count: u8) -> Self {
        Self::configured(config(replica, replica_count))
    }

    fn configured(config: Config) -> Self {
        let (mut fixture, _) = Self::starting(config, Recovered::default());
        fixture.handle(Input::SuperblockWritten { sequence: 1 });
        fixture
    }

    fn alone() -> Self {
        Self::started(0, 1)
    }

    fn drain(&mut self) -> Vec<Effect> {
        core::iter::from_fn(|| self.replica.next_effect()).collect()
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.replica.handle(self.now, input);
        self.drain()
    }

    fn message(&mut self, message: Message) -> Vec<Effect> {
        self.handle(Input::Message(message))
    }

    fn tick_after(&mut self, milliseconds: u64) -> Vec<Effect> {
        self.now.monotonic += milliseconds * MILLISECOND;
        self.handle(Input::Tick)
    }

    fn request(&mut self, token: u64, origin: Origin, body: &'static str) -> Vec<Effect> {
        self.handle(Input::Request(Request {
            token: Token(token),
            origin,
            operation: OPERATION,
            body: Bytes::from_static(body.as_bytes()),
        }))
    }

    /// Requests an op that no client asked for; returns its prepare.
    fn prepare(&mut self, token: u64) -> Prepare {
        let effects = self.request(token, Origin::Internal, "body");
        written(&effects)
    }

    fn durable(&mut self, prepare: &Prepare) -> Vec<Effect> {
        self.handle(Input::PrepareWritten {
            op: prepare.header.op(),
            checksum: prepare.header.checksum,
        })
    }

    fn applied(&mut self, op: u64, reply: &'static str) -> Vec<Effect> {
        self.applied_with(op, reply, Vec::new())
    }

    fn applied_with(&mut self, op: u64, reply: &'static str, ended: Vec<ClientId>) -> Vec<Effect> {
        self.handle(Input::Applied {
            op: Op(op),
            reply: Bytes::from_static(reply.as_bytes()),
            ended,
            registered: true,
        })
    }

    /// n = 1: from the request to the reply of the state machine.
    fn execute(&mut self, token: u64, origin: Origin, reply: &'static str) -> Op {
        let effects = self.request(token, origin, "body");
        let prepare = written(&effects);
        self.durable(&prepare);
        self.applied(prepare.header.op, reply);
        prepare.header.op()
    }

    /// n = 1: the session that a register opens.
    fn register(&mut self, client: ClientId) -> SessionNumber {
        let op = self.execute(1_000, Origin::Register { client }, "");
        SessionNumber(op.0)
    }
}

const fn session(client: ClientId, session: SessionNumber, request: u64) -> Origin {
    Origin::Session {
        client,
        session,
        request: RequestNumber(request),
    }
}

/// The one prepare that the effects write.
fn written(effects: &[Effect]) -> Prepare {
    let mut prepares = effects.iter().filter_map(|effect| {
        if let Effect::WritePrepare(prepare) = effect {
            Some(prepare.clone())
        } else {
            None
        }
    });
    let prepare = prepares.next().expect("a prepare is written");
    assert_eq!(prepares.next(), None);
    prepare
}

/// A prepare as a primary of view 0 makes it, put together by hand.
fn prepare_at(parent: ChainPoint, timestamp: u64, body: &'static str) -> Prepare {
    Prepare {
        header: PrepareHeader {
            parent: parent.checksum,
            cluster: CLUSTER.0,
            op: parent.op.0 + 1,
            timestamp,
            operation: OPERATION,
            version: 1,
            ..PrepareHeader::default()
        }
        .sealed(body.as_bytes()),
        body: Bytes::from_static(body.as_bytes()),
    }
}

/// The first `count` prepares of view 0.
fn chain(count: u64) -> Vec<Prepare> {
    let mut head = ChainPoint::default();
    (1..=count)
        .map(|op| {
            let prepare = prepare_at(head, START + op, "body");
            head = point(&prepare);
            prepare
        })
        .collect()
}

const fn point(prepare: &Prepare) -> ChainPoint {
    ChainPoint {
        op: prepare.header.op(),
        checksum: prepare.header.checksum,
    }
}

const EMPTY: ChainPoint = ChainPoint {
    op: Op(0),
    checksum: 0,
};

/// From the primary of view 0.
fn prepare_message(prepare: &Prepare, commit: ChainPoint) -> Message {
    Message::Prepare(PrepareMessage {
        replica: ReplicaId(0),
        view: View(0),
        commit,
        prepare: prepare.clone(),
    })
}

/// The heartbeat of the primary of view 0.
const fn heartbeat(op: u64, commit: ChainPoint) -> Commit {
    Commit {
        replica: ReplicaId(0),
        view: View(0),
        op: Op(op),
        commit,
        checkpoint_quorum: Op(0),
    }
}

const fn prepare_ok(replica: u8, prepare: &Prepare) -> PrepareOk {
    PrepareOk {
        replica: ReplicaId(replica),
        view: View(0),
        op: prepare.header.op(),
        checksum: prepare.header.checksum,
        checkpoint: Op(0),
    }
}

const fn send(to: u8, message: Message) -> Effect {
    Effect::Send {
        to: ReplicaId(to),
        message,
    }
}

const fn apply(prepare: Prepare, token: Option<u64>) -> Effect {
    Effect::Apply {
        prepare,
        token: match token {
            Some(token) => Some(Token(token)),
            None => None,
        },
    }
}

const fn refuse(token: u64, reason: Refusal) -> Effect {
    Effect::Refuse {
        token: Token(token),
        reason,
    }
}

const fn committed(op: u64) -> Effect {
    Effect::Note(Note::Committed { op: Op(op) })
}

/// The superblock of a replica that has entered `view` with the journal up to `head`.
fn superblock(sequence: u64, view: u32, head: u64) -> Superblock {
    Superblock {
        sequence,
        view: View(view),
        log_view: View(view),
        head: Op(head),
        ..Superblock::default()
    }
}

/// As [`prepare_at`], prepared in `view`.
fn prepare_in(view: u32, parent: ChainPoint, timestamp: u64) -> Prepare {
    let mut prepare = prepare_at(parent, timestamp, "body");
    prepare.header.view = view;
    prepare.header = prepare.header.sealed(&prepare.body);
    prepare
}

/// The superblock of a replica whose journal is that of `log_view`, and that has left it for `view`.
fn superblock_between(sequence: u64, log_view: u32, view: u32, prepares: &[Prepare]) -> Superblock {
    let entry = |prepare: &Prepare| SuffixEntry {
        op: prepare.header.op(),
        header: Some(prepare.header),
        nack: false,
    };
    Superblock {
        view: View(view),
        log_view: View(log_view),
        head: Op(prepares.last().map_or(0, |it| it.header.op)),
        suffix: prepares.iter().map(entry).collect(),
        ..superblock(sequence, 0, 0)
    }
}

/// A disk with the journal of `log_view`; the view was left for `view` if that is another.
fn disk_between(log_view: u32, view: u32, prepares: &[Prepare]) -> Recovered {
    Recovered {
        superblock: Some(superblock_between(9, log_view, view, prepares)),
        prepares: prepares.to_vec(),
        nonce: 99,
        ..Recovered::default()
    }
}

/// A prepare of which only the op is known, lost since the journal was installed.
const fn rotten(op: u64) -> Rotten {
    Rotten {
        op: Op(op),
        header: None,
        before: u64::MAX,
    }
}

const fn wish(replica: u8, view: u32, promised: u32) -> Message {
    Message::StartViewChange(StartViewChange {
        replica: ReplicaId(replica),
        view: View(view),
        promised: View(promised),
    })
}

/// The vote of a replica whose journal is that of `log_view`: `committed` and then `suffix`.
fn vote(
    replica: u8,
    view: u32,
    log_view: u32,
    commit: ChainPoint,
    suffix: &[Prepare],
) -> DoViewChange {
    let report = |prepare: &Prepare| SuffixReport {
        op: prepare.header.op(),
        header: Some(prepare.header),
        nack: false,
        present: true,
    };
    DoViewChange {
        replica: ReplicaId(replica),
        view: View(view),
        log_view: View(log_view),
        op: Op(commit.op.0 + suffix.len() as u64),
        commit,
        checkpoint: Op(0),
        suffix: suffix.iter().map(report).collect(),
    }
}

/// The journal of `view`: what is committed, and then `suffix`.
fn start_view(replica: u8, view: u32, commit: ChainPoint, suffix: &[Prepare]) -> StartView {
    StartView {
        replica: ReplicaId(replica),
        view: View(view),
        op: Op(commit.op.0 + suffix.len() as u64),
        commit,
        checkpoint_quorum: Op(0),
        suffix: suffix.iter().map(|prepare| prepare.header).collect(),
        nonce: None,
    }
}

const fn request_prepare(replica: u8, view: u32, op: u64, checksum: Option<u128>) -> Message {
    Message::RequestPrepare(RequestPrepare {
        replica: ReplicaId(replica),
        view: View(view),
        op: Op(op),
        checksum,
    })
}

fn requested_prepare(replica: u8, view: u32, is_committed: bool, prepare: &Prepare) -> Message {
    Message::RequestedPrepare(RequestedPrepare {
        replica: ReplicaId(replica),
        view: View(view),
        is_committed,
        prepare: prepare.clone(),
    })
}

const fn ok_in(replica: u8, view: u32, prepare: &Prepare) -> PrepareOk {
    PrepareOk {
        view: View(view),
        ..prepare_ok(replica, prepare)
    }
}

const fn view_entered(view: u32) -> Effect {
    Effect::Note(Note::ViewEntered { view: View(view) })
}

const fn view_change_started(view: u32) -> Effect {
    Effect::Note(Note::ViewChangeStarted { view: View(view) })
}

fn wishes_for_a_view(effects: &[Effect]) -> bool {
    effects
        .iter()
        .any(|it| matches!(it, Effect::Note(Note::ViewWished { .. })))
}

/// A backup that has had a tick, so that the next is not the first.
fn backup() -> Fixture {
    let mut backup = Fixture::started(2, 3);
    backup.tick_after(10);
    backup.message(Message::Commit(heartbeat(0, EMPTY)));
    backup
}

const fn view_wished(view: u32) -> Effect {
    Effect::Note(Note::ViewWished { view: View(view) })
}

impl Fixture {
    /// In normal status in view 0, with these prepares, all of them durable.
    fn backup_with(replica: u8, replica_count: u8, prepares: &[Prepare]) -> Self {
        let mut backup = Self::started(replica, replica_count);
        for prepare in prepares {
            backup.message(prepare_message(prepare, EMPTY));
            backup.durable(prepare);
        }
        backup
    }

    /// Time goes on in ticks that are not late; returns what they brought.
    fn wait(&mut self, milliseconds: u64) -> Vec<Effect> {
        (0..milliseconds / 10)
            .flat_map(|_| self.tick_after(10))
            .collect()
    }
}
