//! The metadata group on shard 0: commands, queries, sessions.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::net::SocketAddr;

use catalog::{Catalog, Change, GroupKey, Observed, Operation, Outcome, Projection, SecretHash};
use vsr::{Prepare, Token};
use wire::{
    ClientId, ErrorCode, EvictionReason, Failure, Me, Op, Plane, ReplicaId, Reply, Request,
    SessionNumber, SessionSecret, UserId,
};

use crate::{
    Binding, Note, Output, Sign, StateSnapshot,
    desk::Desk,
    hand_over::{Completed, HandOvers},
    host::{
        Checkpoints, Event, Member, contention::Contention, group_work::GroupWork,
        operation::operation, password::Passwords,
    },
    liveness::{Clocks, Timeouts},
    transfer::Restored,
    work::{AttachWork, Caller, CatalogWork, Origin},
};

/// Sessions that one op ends at the most.
const EXPIRE_AT_ONCE: usize = 1_000;

/// What shard 0 is told about sessions and users.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) timeouts: Timeouts,
    pub(crate) passwords: u32,
    pub(crate) frame_size: u32,
    pub(crate) root_password: Option<String>,
}

/// Who waits for an op of the metadata group.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A metadata command.
    Command(Origin),
    /// A login, with the secret that its session gets; only a hash of it is replicated.
    Login {
        origin: Origin,
        client: ClientId,
        user: UserId,
        secret: SessionSecret,
    },
    /// Nobody: the end of these sessions was proposed.
    Expiry(Vec<(ClientId, SessionNumber)>),
    /// Nobody: moves are complete.
    Completion,
    /// Nobody: what has its time is over; it is proposed again if this comes to nothing.
    Timer,
    /// Nobody.
    Own,
}

/// The metadata group, on the shard that hosts it.
#[derive(Debug)]
pub(crate) struct MetadataHost {
    pub(crate) member: Member,
    pub(crate) catalog: Catalog,
    pub(super) waiting: BTreeMap<Token, Waiting>,
    pub(super) passwords: Passwords,
    clocks: Clocks,
    groups: GroupWork,
    contention: Contention,
    settings: Settings,
    pub(crate) checkpoints: Checkpoints,
    /// Whether the other shards know the metadata as a whole, so that changes are enough.
    announced: bool,
    /// The op up to which the other nodes were told what is committed.
    told: Op,
    /// Whether what a new primary proposes was proposed in this view.
    inaugurated: bool,
    /// When the sessions were looked at last.
    looked_at: u64,
    /// When expiry is looked at again.
    expiry_due: u64,
    /// The node shuts down: whoever loses its connection by that is not silent.
    pub(crate) stopping: bool,
    pub(crate) status_changed: bool,
}

/// How often expiry is looked at, nanoseconds.
const EXPIRY_INTERVAL: u64 = 50_000_000;

/// A time without a look that is longer than this is no silence of the sessions, nanoseconds: this shard, and
/// perhaps the whole process, stood still, and their signs may be on their way.
const STANDSTILL: u64 = 2 * EXPIRY_INTERVAL;

/// After how long something that has had its time is proposed again, nanoseconds.
const TIMER_AGAIN: u64 = 1_000_000_000;

impl MetadataHost {
    pub(crate) fn new(member: Member, catalog: Catalog, settings: Settings) -> Self {
        Self {
            member,
            catalog,
            waiting: BTreeMap::new(),
            passwords: Passwords::new(settings.passwords),
            clocks: Clocks::new(settings.timeouts),
            groups: GroupWork::default(),
            contention: Contention::default(),
            settings,
            checkpoints: Checkpoints::default(),
            announced: false,
            told: Op(0),
            inaugurated: false,
            looked_at: 0,
            expiry_due: 0,
            stopping: false,
            status_changed: true,
        }
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.passwords.is_empty()
    }

    /// Sessions that there are.
    pub(crate) fn session_count(&self) -> usize {
        self.clocks.len()
    }

    /// A metadata command or a query.
    pub(crate) fn request(
        &mut self,
        desk: &mut Desk,
        hand_overs: &HandOvers,
        origin: Origin,
        work: CatalogWork,
    ) {
        let CatalogWork {
            caller,
            peer,
            request,
        } = work;
        if let Err(failure) = self.check_caller(&caller) {
            return self.answer(desk, origin, Err(failure));
        }
        let Some(request) = self.begin_password(desk, origin, &caller, request) else {
            return;
        };
        if request.command().plane() == Plane::Query {
            let now = desk.now.monotonic;
            let outcome = self.query(&caller, peer, (hand_overs, now), request);
            let outcome = outcome.map(Output::Reply);
            return self.answer(desk, origin, outcome);
        }
        let name = request.command().name();
        match operation(&caller, peer, request) {
            Some(operation) => {
                let timeout = self.settings.timeouts.session_timeout;
                let times = (timeout, desk.now.monotonic);
                let asked = (&caller, &operation);
                match self.contention.admit(&self.catalog, asked, times) {
                    Ok(()) => self.propose(desk, origin, &caller, &operation),
                    Err(failure) => self.answer(desk, origin, Err(failure)),
                }
            }
            None => {
                let failure = Failure::new(
                    ErrorCode::Internal,
                    format!("{name} is no metadata command"),
                );
                self.answer(desk, origin, Err(failure));
            }
        }
    }

    /// Whether the answer to a request rests on what this node knows, and not on an op.
    pub(crate) fn is_read(&self, work: &CatalogWork) -> bool {
        work.request.command().plane() == Plane::Query || self.check_caller(&work.caller).is_err()
    }

    fn check_caller(&self, caller: &Caller) -> Result<(), Failure> {
        let Binding {
            client, session, ..
        } = caller.binding;
        match self.catalog.session(client, session) {
            Some(_) => Ok(()),
            // The op that ends it may be a logout whose answer was lost: the client table knows.
            None if caller.request.0 > 0
                && self
                    .member
                    .replica
                    .client_sessions()
                    .session(client)
                    .is_some() =>
            {
                Ok(())
            }
            None => Err(session_not_found(session)),
        }
    }

    /// Proposes a session's command.
    pub(super) fn propose(
        &mut self,
        desk: &mut Desk,
        origin: Origin,
        caller: &Caller,
        operation: &Operation,
    ) {
        if caller.request.0 == 0 {
            let text = "a metadata command needs a request number, counted from 1".to_string();
            return self.answer(
                desk,
                origin,
                Err(Failure::new(ErrorCode::InvalidRequestNumber, text)),
            );
        }
        let who = vsr::Origin::Session {
            client: caller.binding.client,
            session: caller.binding.session,
            request: caller.request,
        };
        self.submit(desk, who, operation, Waiting::Command(origin));
    }

    pub(super) fn submit(
        &mut self,
        desk: &mut Desk,
        origin: vsr::Origin,
        operation: &Operation,
        waiting: Waiting,
    ) {
        let token = self.member.next_token();
        self.waiting.insert(token, waiting);
        let (operation, body) = (operation.kind(), operation.encode());
        let request = vsr::Request {
            token,
            origin,
            operation,
            body,
        };
        self.member.handle(desk, vsr::Input::Request(request));
        self.pump(desk);
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other requests never come here"
    )]
    fn query(
        &self,
        caller: &Caller,
        peer: SocketAddr,
        (hand_overs, now): (&HandOvers, u64),
        request: Request,
    ) -> Result<Reply, Failure> {
        let catalog = &self.catalog;
        let by = caller.user();
        match request {
            Request::GetMe => {
                let Binding {
                    client,
                    session,
                    user,
                } = caller.binding;
                let user_name = catalog
                    .user_by_id(user)
                    .map(|user| user.name.clone())
                    .unwrap_or_default();
                Ok(Me {
                    client,
                    session,
                    user,
                    user_name,
                    address: peer.to_string(),
                }
                .into())
            }
            Request::GetUser(r) => catalog.user_details(by, &r.user).map(Reply::User),
            Request::GetUsers(r) => catalog.users_page(by, &r).map(Reply::Users),
            Request::GetStream(r) => catalog.stream_details(&r.stream).map(Reply::Stream),
            Request::GetStreams(r) => Ok(catalog.streams_page(&r).into()),
            Request::GetTopic(r) => catalog.topic_details(&r.stream, &r.topic).map(Reply::Topic),
            Request::GetTopics(r) => catalog.topics_page(&r).map(Reply::Topics),
            Request::GetConsumerGroups(r) => {
                catalog.consumer_groups_page(&r).map(Reply::ConsumerGroups)
            }
            Request::GetConsumerGroup(r) => {
                let details = catalog.consumer_group_details(&r, |_, _, _| Observed {
                    primary: self.member.primary().primary,
                    // The data groups are asked next.
                    progress: Err(ErrorCode::NotReady),
                    waits_for: None,
                    time_left_ms: None,
                });
                details.map(Reply::ConsumerGroupDetails)
            }
            Request::SyncConsumerGroup(r) => {
                let who = (caller.binding.client, caller.binding.session);
                let left = |key: &GroupKey, partition, _| {
                    hand_overs.time_left(key, partition, now).unwrap_or(0)
                };
                catalog.assignment(who, &r, left).map(Reply::Assignment)
            }
            other => {
                let text = format!("{} is not answered by the catalog", other.command().name());
                Err(Failure::new(ErrorCode::Internal, text))
            }
        }
    }

    /// Finds the session that a connection wants to carry.
    pub(crate) fn attach(&self, desk: &mut Desk, origin: Origin, work: &AttachWork) {
        let AttachWork {
            client,
            session: number,
            secret,
        } = *work;
        let outcome = match self.catalog.session(client, number) {
            Some(session) if session.secret_hash.matches(&hash_of_secret(&secret)) => {
                let binding = Binding {
                    client,
                    session: number,
                    user: session.user,
                };
                Ok(Output::Bound(binding, Reply::Done))
            }
            Some(_) => {
                let text = format!("the secret is not that of session {number}");
                Err(Failure::new(ErrorCode::InvalidCredentials, text))
            }
            None => Err(session_not_found(number)),
        };
        self.answer(desk, origin, outcome);
    }

    pub(super) fn answer(&self, desk: &mut Desk, origin: Origin, outcome: Result<Output, Failure>) {
        let answer = self.member.answer(self.catalog.applied(), outcome);
        desk.answer(origin, answer);
    }

    /// Carries out what the replica asks for.
    pub(crate) fn pump(&mut self, desk: &mut Desk) {
        loop {
            while let Some(event) = self.member.next_event(desk) {
                self.on_event(desk, event);
            }
            // The other nodes act by what they know of the metadata: they learn at once what is committed,
            // unless the next prepare tells them.
            let applied = self.member.replica.commit_min();
            if applied <= self.told || applied < self.member.replica.op() {
                return;
            }
            self.told = applied;
            self.member.replica.tell_commit();
        }
    }

    fn on_event(&mut self, desk: &mut Desk, event: Event) {
        match event {
            Event::Apply { prepare, token } => self.apply(desk, prepare, token),
            Event::Reply { token, op, body } => {
                if let Some(Waiting::Command(origin)) = self.waiting.remove(&token) {
                    let cached =
                        Outcome::decode_result(body).expect("the client table keeps our own");
                    let answer = self.member.answer(op, Ok(Output::Executed(cached)));
                    desk.answer(origin, answer);
                }
            }
            Event::Refuse { token, reason } => self.refuse(desk, token, reason),
            Event::Evict { client, session } => {
                let reason = EvictionReason::TableFull;
                let sessions = [(client, session)].to_vec();
                let operation = Operation::EndSessions { sessions, reason };
                self.submit(desk, vsr::Origin::Internal, &operation, Waiting::Own);
            }
            Event::ReplaceState { op } => self.replace_state(desk, op),
            Event::StatusChanged => self.status_changed = true,
        }
    }

    /// The state of another node takes the place of the own one. The shards learn of it as a whole.
    fn replace_state(&mut self, desk: &Desk, op: Op) {
        let Some(Restored::Metadata(catalog)) = self.member.restored.take() else {
            unreachable!("the replica was given a checkpoint of the metadata")
        };
        assert!(catalog.applied() <= op);
        let old = core::mem::replace(&mut self.catalog, catalog);
        for session in old.sessions() {
            let (client, number) = (session.client, session.number);
            if self.catalog.session(client, number).is_none() {
                self.clocks.end(number);
            }
        }
        self.announced = false;
        let timeout = self.settings.timeouts.session_timeout;
        let now = desk.now.monotonic;
        self.groups.restart(&self.catalog, timeout, now);
        self.checkpoints.give_up();
    }

    fn refuse(&mut self, desk: &mut Desk, token: Token, reason: vsr::Refusal) {
        match self.waiting.remove(&token) {
            Some(Waiting::Command(origin) | Waiting::Login { origin, .. }) => {
                let failure = self.member.refusal(reason);
                self.answer(desk, origin, Err(failure));
            }
            Some(Waiting::Expiry(sessions)) => self.clocks.unexpire(&sessions),
            Some(Waiting::Completion) => self.groups.on_proposed(),
            Some(Waiting::Timer) => {}
            Some(Waiting::Own) => self.inaugurated = false,
            None => {}
        }
    }

    fn apply(&mut self, desk: &mut Desk, prepare: Prepare, token: Option<Token>) {
        let (op, timestamp) = (prepare.header.op(), prepare.header.timestamp());
        let operation = Operation::decode(prepare.header.operation, prepare.body)
            .expect("the prepare's checksum covers what was encoded here");
        let outcome = self.catalog.apply(op, timestamp, &operation);
        let registered = matches!(operation, Operation::Register { .. }) && outcome.result.is_ok();
        self.follow(desk, &outcome.changes);
        let times = (self.settings.timeouts.session_timeout, desk.now.monotonic);
        self.groups.follow(&self.catalog, &outcome.changes, times);
        if self.member.serves() {
            let (_, now) = times;
            for note in self.contention.follow(&outcome.changes, timestamp, now) {
                desk.note(note);
            }
        }
        if self.announced {
            desk.publish(op, outcome.changes.clone());
        }
        let reply = outcome.encode_result();
        if let Some(waiting) = token.and_then(|token| self.waiting.remove(&token)) {
            if matches!(waiting, Waiting::Completion) {
                self.groups.on_proposed();
            }
            self.answer_applied(desk, op, waiting, &outcome);
        }
        let applied = vsr::Input::Applied {
            op,
            reply,
            ended: outcome.ended,
            registered,
        };
        self.member.handle(desk, applied);
    }

    fn answer_applied(&self, desk: &mut Desk, op: Op, waiting: Waiting, outcome: &Outcome) {
        let (origin, output) = match waiting {
            Waiting::Command(origin) => {
                let cached = Outcome::decode_result(outcome.encode_result())
                    .expect("it was encoded just now");
                (origin, Ok(Output::Executed(cached)))
            }
            Waiting::Login {
                origin,
                client,
                user,
                secret,
            } => {
                let session = SessionNumber(op.0);
                let logged_in = wire::LoggedIn {
                    session,
                    secret,
                    user,
                    session_timeout_ms: milliseconds(self.settings.timeouts.session_timeout),
                    frame_size_max: self.settings.frame_size,
                };
                let binding = Binding {
                    client,
                    session,
                    user,
                };
                (
                    origin,
                    outcome
                        .result
                        .clone()
                        .map(|_| Output::Bound(binding, logged_in.into())),
                )
            }
            Waiting::Expiry(_) | Waiting::Completion | Waiting::Timer | Waiting::Own => return,
        };
        let answer = self.member.answer(op, output);
        desk.answer(origin, answer);
    }

    fn follow(&mut self, desk: &mut Desk, changes: &[Change]) {
        let is_replayed = !self.announced;
        for change in changes {
            match change {
                Change::SessionRegistered {
                    client, session, ..
                } => {
                    self.clocks.begin(*client, *session, desk.now.monotonic);
                    desk.note(Note::SessionRegistered {
                        session: *session,
                        is_replayed,
                    });
                }
                Change::SessionEnded {
                    session, reason, ..
                } => {
                    self.clocks.end(*session);
                    desk.note(Note::SessionEnded {
                        session: *session,
                        reason: *reason,
                        is_replayed,
                    });
                }
                Change::StreamCreated { .. }
                | Change::StreamRenamed { .. }
                | Change::StreamDeleted { .. }
                | Change::TopicCreated { .. }
                | Change::TopicRenamed { .. }
                | Change::TopicDeleted { .. }
                | Change::PartitionsCreated { .. }
                | Change::PartitionsDeleted { .. }
                | Change::PartitionsPurged { .. }
                | Change::ConsumerGroupCreated { .. }
                | Change::ConsumerGroupChanged { .. }
                | Change::ConsumerGroupDeleted { .. } => {}
            }
        }
    }

    /// The whole metadata for the shards that know nothing yet, once it is as new as this node's journal.
    pub(crate) fn announce(&mut self, desk: &Desk) -> Option<Projection> {
        if self.announced || !(self.member.serves() || self.member.follows().is_some()) {
            return None;
        }
        self.announced = true;
        for session in self.catalog.sessions() {
            self.clocks
                .begin(session.client, session.number, desk.now.monotonic);
        }
        Some(Projection::from(&self.catalog))
    }

    /// What a primary proposes when it begins to serve.
    pub(crate) fn inaugurate(&mut self, desk: &mut Desk) {
        if !self.member.serves() {
            self.inaugurated = false;
            return;
        }
        if core::mem::replace(&mut self.inaugurated, true) {
            return;
        }
        self.clocks.restart(desk.now.monotonic);
        self.contention.restart();
        let timeout = self.settings.timeouts.session_timeout;
        self.groups
            .restart(&self.catalog, timeout, desk.now.monotonic);
        // The very first op: where there is any, there is `root`.
        if self.catalog.user_by_id(UserId::ROOT).is_none()
            && let Some(phc) = self.settings.root_password.clone()
        {
            let operation = Operation::CreateRoot {
                password_hash: phc.into(),
            };
            self.submit(desk, vsr::Origin::Internal, &operation, Waiting::Own);
        }
        if let Some(operation) = self.catalog.limits_to_set() {
            self.submit(desk, vsr::Origin::Internal, &operation, Waiting::Own);
        }
    }

    /// What sessions did on the connections of a node.
    pub(crate) fn on_signs(&mut self, now: u64, node: ReplicaId, signs: &[Sign]) {
        for sign in signs {
            self.clocks.on_sign(node, *sign, now);
        }
    }

    /// The connections that a node has, all of them: none when it is gone.
    pub(crate) fn on_connections(
        &mut self,
        now: u64,
        node: ReplicaId,
        sessions: &[(ClientId, SessionNumber, u32)],
    ) {
        self.clocks.on_connections(node, sessions, now);
    }

    /// The connections of the sessions that a node carries, as far as known here.
    pub(crate) fn connections_of(&self, node: ReplicaId) -> Vec<(ClientId, SessionNumber, u32)> {
        self.clocks.connections_of(node)
    }

    /// Data groups have committed the fences of these moves.
    pub(crate) fn on_completed(&mut self, completed: &[Completed]) {
        self.groups.on_completed(completed);
    }

    /// Proposes to complete the moves that are fenced. While that is on its way the next ones gather.
    pub(crate) fn complete_moves(&mut self, desk: &mut Desk) {
        if !self.member.serves() {
            return;
        }
        if let Some(operation) = self.groups.complete(&self.catalog) {
            self.submit(desk, vsr::Origin::Internal, &operation, Waiting::Completion);
        }
    }

    /// Proposes the end of sessions that were silent for too long. Called when everything that has come is
    /// taken: what is in the inbox of a shard that stood still may be the signs of whoever is looked at.
    pub(crate) fn expire(&mut self, desk: &mut Desk) {
        let now = desk.now.monotonic;
        let unwatched = now.saturating_sub(core::mem::replace(&mut self.looked_at, now));
        if unwatched > STANDSTILL {
            self.clocks.forgive(unwatched, now);
        }
        if !self.member.serves() || !self.inaugurated || self.stopping {
            return;
        }
        // Others wait for the partitions of whoever has lost its connection.
        if self.clocks.lost_due().is_some_and(|due| due <= now) {
            self.end_expired(desk, EvictionReason::Disconnected);
        }
        if now < self.expiry_due {
            return;
        }
        self.expiry_due = now.saturating_add(EXPIRY_INTERVAL);
        self.end_expired(desk, EvictionReason::Expired);
        for operation in self.groups.due(now, TIMER_AGAIN) {
            self.submit(desk, vsr::Origin::Internal, &operation, Waiting::Timer);
        }
    }

    fn end_expired(&mut self, desk: &mut Desk, reason: EvictionReason) {
        let now = desk.now.monotonic;
        let sessions = self.clocks.expired(now, reason, EXPIRE_AT_ONCE);
        if !sessions.is_empty() {
            let operation = Operation::EndSessions {
                sessions: sessions.clone(),
                reason,
            };
            let waiting = Waiting::Expiry(sessions);
            self.submit(desk, vsr::Origin::Internal, &operation, waiting);
        }
    }

    /// Begins a checkpoint that is wanted, if one can begin.
    pub(crate) fn begin_checkpoint(&mut self, desk: &mut Desk) {
        let Self {
            member,
            catalog,
            checkpoints,
            ..
        } = self;
        checkpoints.begin(member, desk, || {
            (StateSnapshot::Metadata(catalog.snapshot()), Vec::new())
        });
    }

    pub(crate) fn on_snapshot_written(&mut self, desk: &mut Desk, op: Op) {
        if self.checkpoints.on_written(&mut self.member, desk, op) {
            self.pump(desk);
        }
    }
}

/// What is replicated of a session's secret: its BLAKE2s-256.
pub(super) fn hash_of_secret(secret: &SessionSecret) -> SecretHash {
    use blake2::Digest;
    SecretHash(blake2::Blake2s256::digest(secret.0).into())
}

pub(super) fn session_not_found(session: SessionNumber) -> Failure {
    Failure::new(
        ErrorCode::SessionNotFound,
        format!("session {session} has ended, or never was"),
    )
}

fn milliseconds(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds / 1_000_000).unwrap_or(u32::MAX)
}
