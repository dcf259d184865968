//! Clients: each a session of the `client` crate, and something that it is there for.

mod admin;
mod auditor;
mod consumer;
mod member;
mod prober;
mod processed;
mod producer;
mod rogue;
mod sender;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use ::client::{
    Backoff, ClientError, Close, ConnectionId, Credentials, Effect, Frame, Input, Retry, Route,
    Session, SessionConfig, Submission, Ticket, next_frame,
};
use ::wire::{ClientId, ErrorCode, Password, Reply, Request, StreamId, Time, TopicId};
use bytes::{Bytes, BytesMut};

pub(crate) use self::producer::order_of;
use self::{
    admin::Admin, auditor::Auditor, consumer::Reading, member::Member, prober::Prober,
    processed::Processed, producer::Sending, rogue::Rogue, sender::Sender,
};
use crate::{
    checks::ledger::Ledger,
    clock::Clock,
    event::Event,
    network::{Arrival, LinkId, Network},
    random::Random,
    run::{MILLISECOND, Run},
    scenario::{ClientKind, ROOT_PASSWORD, Scenario, address_of},
};

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    list: Vec<Client>,
    shared: Shared,
    random: Random,
}

/// What clients number together.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Producers of the client crate that there ever were.
    producers: u64,
    /// Messages that they gave up without knowing what became of them: producer and place.
    given_up: BTreeSet<(u64, u64)>,
    /// Messages of the other kind of senders.
    messages: u64,
    /// What well-behaved members of consumer groups have processed.
    processed: Processed,
    /// Members leave their groups, for all is over.
    members_leave: bool,
}

/// One client.
#[derive(Debug)]
struct Client {
    index: usize,
    clock: Clock,
    random: Random,
    session: Session,
    links: BTreeMap<ConnectionId, LinkId>,
    work: Work,
    tickets: u64,
    /// What has reached it and was not looked at.
    inbox: VecDeque<(LinkId, Arrival)>,
    /// Nothing is done before this time.
    frozen_until: u64,
    /// When it is woken next, as far as planned.
    wakes_at: Option<u64>,
    /// Wakes in a row after which it wanted to be woken at once.
    spins: u32,
    state: ClientState,
}

/// A client may want to be woken at once so often in a row.
const SPINS_MAX: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    Works,
    /// It has nothing left to do, and logs out.
    Closing,
    Closed,
    /// It is gone without a word.
    Killed,
}

/// What a client is there for.
#[derive(Debug)]
enum Work {
    Admin(Admin),
    Sending(Box<Sending>),
    Reading(Box<Reading>),
    Prober(Prober),
    Sender(Sender),
    Member(Box<Member>),
    Rogue(Rogue),
    Auditor(Auditor),
}

/// What a client's work has at hand.
pub(crate) struct Desk<'a> {
    run: &'a mut Run,
    scenario: &'a Scenario,
    ledger: &'a Ledger,
    shared: &'a mut Shared,
    random: &'a mut Random,
    client: usize,
    /// By the client's clock.
    now: Time,
    tickets: &'a mut u64,
    submissions: Vec<Submission>,
}

/// What became of a request.
type Answer = Result<Reply, ::client::ClientError>;

impl Clients {
    pub(crate) fn new(run: &mut Run, scenario: &Scenario, random: &mut Random) -> Self {
        let mut clients = Self {
            list: Vec::new(),
            shared: Shared::default(),
            random: random.fork(),
        };
        for (place, kind) in scenario.clients.iter().enumerate() {
            clients.add(run, scenario, *kind);
            if scenario.absent.contains(&place) {
                clients.list[place].state = ClientState::Closed;
            }
        }
        clients
    }

    /// Somebody who reads everything when the others have gone.
    pub(crate) fn add_auditor(&mut self, run: &mut Run, scenario: &Scenario) {
        self.add(run, scenario, ClientKind::Auditor);
    }

    fn add(&mut self, run: &mut Run, scenario: &Scenario, kind: ClientKind) {
        let index = self.list.len();
        let client = Client::new(run.now, scenario, (index, kind), &mut self.random);
        self.list.push(client);
        let delay = self.random.between(1, 20 * MILLISECOND);
        self.list[index].plan_wake(run, run.now + delay);
    }

    /// Something has reached a client.
    pub(crate) fn on_arrival(
        &mut self,
        run: &mut Run,
        (client, link, arrival): (usize, LinkId, Arrival),
    ) {
        if let Some(client) = self.list.get_mut(client) {
            client.inbox.push_back((link, arrival));
            client.plan_wake(run, run.now);
        }
    }

    /// A client goes about what has come, and about its work.
    pub(crate) fn wake(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        (network, ledger): (&mut Network, &Ledger),
        client: usize,
    ) {
        self.list[client].wake(run, scenario, (network, ledger), &mut self.shared);
    }

    /// Messages of producers, each with its place, that may have been appended behind later ones.
    pub(crate) const fn given_up(&self) -> &BTreeSet<(u64, u64)> {
        &self.shared.given_up
    }

    /// Members leave their groups from now on.
    pub(crate) const fn let_members_leave(&mut self) {
        self.shared.members_leave = true;
    }

    pub(crate) const fn members_leave(&self) -> bool {
        self.shared.members_leave
    }

    /// Whether all have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.list
            .iter()
            .all(|client| matches!(client.state, ClientState::Closed | ClientState::Killed))
    }

    /// Those that have not ended, for people.
    pub(crate) fn unfinished(&self) -> String {
        let unfinished = self
            .list
            .iter()
            .filter(|client| !matches!(client.state, ClientState::Closed | ClientState::Killed));
        let texts: Vec<String> = unfinished
            .map(|client| {
                let Client { index, state, .. } = client;
                let requests = client.session.requests();
                format!(
                    "client {index} {state:?} ({requests} requests): {:?}",
                    client.work
                )
            })
            .collect();
        texts.join("; ")
    }

    /// A client does nothing for a while.
    pub(crate) fn freeze(&mut self, run: &mut Run, nanoseconds: u64) {
        let client = self.random.index(self.list.len());
        let client = &mut self.list[client];
        client.frozen_until = run.now + nanoseconds;
        run.note(&[21, client.index as u64], || {
            format!("client {}: silent for {nanoseconds} ns", client.index)
        });
    }

    /// A client is gone without a word; another one comes in its place.
    pub(crate) fn kill(&mut self, run: &mut Run, network: &mut Network) {
        let client = self.random.index(self.list.len());
        if self.list[client].state != ClientState::Works {
            return;
        }
        run.note(&[22, client as u64], || format!("client {client}: killed"));
        self.list[client].state = ClientState::Killed;
        for link in std::mem::take(&mut self.list[client].links).into_values() {
            network.cut(run, link);
        }
        let delay = self.random.between(1, 500 * MILLISECOND);
        run.after(delay, Event::Replace { client });
    }

    /// Another client comes in the place of one that was killed.
    pub(crate) fn replace(&mut self, run: &mut Run, scenario: &Scenario, killed: usize) {
        let kind = self.list[killed].work.kind();
        self.add(run, scenario, kind);
    }
}

impl Client {
    fn new(
        now: u64,
        scenario: &Scenario,
        (index, kind): (usize, ClientKind),
        random: &mut Random,
    ) -> Self {
        let drift = i64::try_from(random.below(2 * scenario.faults.drift + 1)).unwrap_or(0);
        let drift = drift - i64::try_from(scenario.faults.drift).unwrap_or(0);
        let session = Session::new(session_config(scenario, random));
        Self {
            index,
            clock: Clock::new(now, drift),
            random: random.fork(),
            session,
            links: BTreeMap::new(),
            work: Work::new(kind),
            tickets: 0,
            inbox: VecDeque::new(),
            frozen_until: 0,
            wakes_at: None,
            spins: 0,
            state: ClientState::Works,
        }
    }

    fn plan_wake(&mut self, run: &mut Run, time: u64) {
        let time = time.max(self.frozen_until).max(run.now);
        if self.wakes_at.is_none_or(|planned| time < planned) {
            self.wakes_at = Some(time);
            run.at(time, Event::Wake { client: self.index });
        }
    }

    fn wake(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        (network, ledger): (&mut Network, &Ledger),
        shared: &mut Shared,
    ) {
        if self.wakes_at.is_none_or(|planned| planned > run.now) {
            // An earlier wake has taken its place.
            return;
        }
        self.wakes_at = None;
        if matches!(self.state, ClientState::Closed | ClientState::Killed) {
            return;
        }
        if run.now < self.frozen_until {
            return self.plan_wake(run, self.frozen_until);
        }
        let now = self.clock.read(run.now);
        while let Some((link, arrival)) = self.inbox.pop_front() {
            self.take(run, network, now, (link, arrival));
        }
        self.session.handle(now, Input::Tick);
        self.pump(run, scenario, (network, ledger), shared);
        let work = match self.state {
            ClientState::Works => self.work.deadline(),
            ClientState::Closing | ClientState::Closed | ClientState::Killed => None,
        };
        let deadlines = [self.session.deadline(), work];
        if let Some(deadline) = deadlines.into_iter().flatten().min() {
            let is_due = deadline <= now.monotonic;
            self.spins = if is_due { self.spins + 1 } else { 0 };
            if self.spins > SPINS_MAX {
                run.fail(format!(
                    "client {} wants to be woken all the time",
                    self.index
                ));
            }
            let time = self.clock.when(deadline).max(run.now + 1_000);
            self.plan_wake(run, time);
        }
    }

    fn take(
        &mut self,
        run: &mut Run,
        network: &mut Network,
        now: Time,
        (link, arrival): (LinkId, Arrival),
    ) {
        let found = self.links.iter().find(|(_, known)| **known == link);
        let Some(connection) = found.map(|(connection, _)| *connection) else {
            return;
        };
        let input = match arrival {
            Arrival::Connected => Input::Connected { connection },
            Arrival::Refused | Arrival::Ended => {
                self.links.remove(&connection);
                network.close_by_client(run, link);
                Input::Disconnected {
                    connection,
                    reason: "the connection is gone".into(),
                }
            }
            Arrival::Frame(bytes) => match frame_of(&bytes) {
                Some(frame) => Input::Frame { connection, frame },
                None => return run.fail(format!("client {}: an unreadable frame", self.index)),
            },
        };
        self.session.handle(now, input);
    }

    /// Carries out what session and work want until both want nothing more.
    fn pump(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        (network, ledger): (&mut Network, &Ledger),
        shared: &mut Shared,
    ) {
        let now = self.clock.read(run.now);
        loop {
            let mut answers = Vec::new();
            while let Some(effect) = self.session.next_effect() {
                answers.extend(self.carry_out(run, scenario, network, effect));
            }
            let mut desk = Desk {
                run,
                scenario,
                ledger,
                shared,
                random: &mut self.random,
                client: self.index,
                now,
                tickets: &mut self.tickets,
                submissions: Vec::new(),
            };
            let is_idle = answers.is_empty();
            for (ticket, answer) in answers {
                self.work.on_answer(&mut desk, ticket, answer);
            }
            if self.state == ClientState::Works {
                self.work.drive(&mut desk);
            }
            let submissions = desk.submissions;
            let is_idle = is_idle && submissions.is_empty();
            for submission in submissions {
                self.session.handle(now, Input::Submit(submission));
            }
            if self.state == ClientState::Works && self.work.is_done(run, scenario, shared) {
                self.state = ClientState::Closing;
                let timeout = Duration::from_secs(1);
                self.session.handle(now, Input::Close(Close { timeout }));
                continue;
            }
            if is_idle {
                return;
            }
        }
    }

    fn carry_out(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        network: &mut Network,
        effect: Effect,
    ) -> Option<(Ticket, Answer)> {
        match effect {
            Effect::Connect {
                connection,
                address,
            } => {
                let node = scenario.node_at(&address).expect("a node of the cluster");
                let link = network.connect(run, self.index, node);
                self.links.insert(connection, link);
            }
            Effect::Send { connection, frame } => {
                if let Some(link) = self.links.get(&connection) {
                    network.send_to_node(run, *link, joined(frame));
                }
            }
            Effect::Close { connection } => {
                if let Some(link) = self.links.remove(&connection) {
                    network.close_by_client(run, link);
                }
            }
            Effect::Completed { ticket, result } => return Some((ticket, result)),
            Effect::Event(event) => {
                run.note(&[23], || format!("client {}: {event:?}", self.index));
                self.work.on_event(self.clock.read(run.now), &event);
            }
            Effect::LoggedIn { session, .. } => {
                run.note(&[24, session.0], || {
                    format!("client {}: session {session}", self.index)
                });
            }
            Effect::SessionLost { session, reason } => {
                self.work.on_session_lost();
                run.note(&[25, session.0], || {
                    format!("client {}: session {session} is lost: {reason}", self.index)
                });
            }
            Effect::Unreachable { .. } => {}
            // The only node that it knows stands aside: it gives up, and somebody else comes.
            Effect::Failed(ClientError::LoginRefused(failure))
                if scenario.disks.forget > 0 && failure.code == ErrorCode::OutOfService =>
            {
                run.counts.logins_out_of_service += 1;
                run.note(&[26], || format!("client {}: {failure}", self.index));
                self.state = ClientState::Killed;
                let client = self.index;
                run.after(100 * MILLISECOND, Event::Replace { client });
            }
            Effect::Failed(error) => {
                if scenario.faults.rot.is_none() {
                    run.fail(format!("client {}: {error}", self.index));
                }
                self.state = ClientState::Closed;
            }
            Effect::Closed => self.state = ClientState::Closed,
        }
        None
    }
}

impl Work {
    fn new(kind: ClientKind) -> Self {
        match kind {
            ClientKind::Admin => Self::Admin(Admin::default()),
            ClientKind::Producer => Self::Sending(Box::default()),
            ClientKind::Consumer => Self::Reading(Box::default()),
            ClientKind::Prober => Self::Prober(Prober::default()),
            ClientKind::Sender => Self::Sender(Sender::default()),
            ClientKind::Member => Self::Member(Box::default()),
            ClientKind::Rogue => Self::Rogue(Rogue::default()),
            ClientKind::Auditor => Self::Auditor(Auditor::default()),
        }
    }

    const fn kind(&self) -> ClientKind {
        match self {
            Self::Admin(_) => ClientKind::Admin,
            Self::Sending(_) => ClientKind::Producer,
            Self::Reading(_) => ClientKind::Consumer,
            Self::Prober(_) => ClientKind::Prober,
            Self::Sender(_) => ClientKind::Sender,
            Self::Member(_) => ClientKind::Member,
            Self::Rogue(_) => ClientKind::Rogue,
            Self::Auditor(_) => ClientKind::Auditor,
        }
    }

    fn on_answer(&mut self, desk: &mut Desk<'_>, ticket: Ticket, answer: Answer) {
        match self {
            Self::Admin(work) => work.on_answer(ticket),
            Self::Sending(work) => work.on_answer(desk, ticket, answer),
            Self::Reading(work) => work.on_answer(desk, ticket, answer),
            Self::Prober(work) => work.on_answer(ticket),
            Self::Sender(work) => work.on_answer(ticket, &answer),
            Self::Member(work) => work.on_answer(desk, ticket, answer),
            Self::Rogue(work) => work.on_answer(ticket),
            Self::Auditor(work) => work.on_answer(desk, ticket, answer),
        }
    }

    /// Does what is due.
    fn drive(&mut self, desk: &mut Desk<'_>) {
        match self {
            Self::Admin(work) => work.drive(desk),
            Self::Sending(work) => work.drive(desk),
            Self::Reading(work) => work.drive(desk),
            Self::Prober(work) => work.drive(desk),
            Self::Sender(work) => work.drive(desk),
            Self::Member(work) => work.drive(desk),
            Self::Rogue(work) => work.drive(desk),
            Self::Auditor(work) => work.drive(desk),
        }
    }

    /// When it wants to be driven again, by the client's monotonic clock.
    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Admin(work) => Some(work.deadline()),
            Self::Sending(work) => work.deadline(),
            Self::Reading(work) => work.deadline(),
            Self::Prober(work) => Some(work.deadline()),
            Self::Sender(work) => Some(work.deadline()),
            Self::Member(work) => Some(work.deadline()),
            Self::Rogue(work) => Some(work.deadline()),
            Self::Auditor(work) => work.deadline(),
        }
    }

    /// The server has told something unasked.
    fn on_event(&mut self, now: Time, event: &::wire::Event) {
        let has_moved = matches!(event, ::wire::Event::PrimaryChanged(_));
        match self {
            Self::Member(work) => work.on_event(event),
            Self::Sending(work) if has_moved => work.on_primary_changed(now),
            Self::Reading(work) if has_moved => work.on_primary_changed(now),
            Self::Admin(_)
            | Self::Sending(_)
            | Self::Reading(_)
            | Self::Prober(_)
            | Self::Sender(_)
            | Self::Rogue(_)
            | Self::Auditor(_) => {}
        }
    }

    fn on_session_lost(&mut self) {
        if let Self::Member(work) = self {
            work.on_session_lost();
        }
    }

    fn is_done(&self, run: &Run, scenario: &Scenario, shared: &Shared) -> bool {
        let is_over = run.now >= scenario.work_until;
        match self {
            Self::Admin(work) => is_over && work.is_idle(),
            Self::Sending(work) => is_over && work.is_idle(),
            Self::Reading(work) => is_over && work.is_done(),
            Self::Prober(work) => is_over && work.is_idle(),
            Self::Sender(work) => is_over && work.is_idle(),
            Self::Member(work) => is_over && work.is_done(),
            // It stays a member of its groups until its session ends.
            Self::Rogue(work) => is_over && work.is_idle() && shared.members_leave,
            Self::Auditor(work) => work.is_done(),
        }
    }
}

impl Desk<'_> {
    /// Hands a request to the session.
    fn submit(&mut self, request: Request, timeout: Duration, retry: Retry) -> Ticket {
        self.submit_on(Route::any(0), request, timeout, retry)
    }

    /// Hands a request to the session, with the way that it is to take.
    fn submit_on(
        &mut self,
        route: Route,
        request: Request,
        timeout: Duration,
        retry: Retry,
    ) -> Ticket {
        *self.tickets += 1;
        let ticket = Ticket(*self.tickets);
        self.submissions.push(Submission {
            ticket,
            request,
            timeout,
            retry,
            route,
        });
        ticket
    }

    /// Whether something new may be begun.
    const fn may_begin(&self) -> bool {
        self.run.now < self.scenario.work_until
    }

    /// The time so many nanoseconds from now.
    const fn after(&self, nanoseconds: u64) -> u64 {
        self.now.after(nanoseconds)
    }

    /// One of the topics that there are, with its partitions.
    fn pick_topic(&mut self) -> Option<(StreamId, TopicId, u32)> {
        let topics = topics(self.ledger);
        match topics.is_empty() {
            true => None,
            false => Some(*self.random.pick(&topics)),
        }
    }
}

/// The topics that there are, with their partitions.
fn topics(ledger: &Ledger) -> Vec<(StreamId, TopicId, u32)> {
    let all = ::wire::GetStreams {
        after: StreamId(0),
        limit: 0,
    };
    let mut topics = Vec::new();
    for stream in ledger.catalog().streams_page(&all).streams {
        let page = ::wire::GetTopics {
            stream: ::wire::Identifier::Number(stream.id.0),
            after: TopicId(0),
            limit: 0,
        };
        let found = ledger.catalog().topics_page(&page);
        let found = found.map(|page| page.topics).unwrap_or_default();
        topics.extend(
            found
                .iter()
                .map(|topic| (stream.id, topic.id, topic.partitions)),
        );
    }
    topics
}

fn session_config(scenario: &Scenario, random: &mut Random) -> SessionConfig {
    let credentials = Credentials {
        name: "root".into(),
        password: Password(ROOT_PASSWORD.into()),
    };
    let addresses = addresses(scenario, random);
    let client = ClientId(random.wide().max(1));
    SessionConfig {
        connections: u16::try_from(random.between(1, 3)).unwrap_or(1),
        connect_timeout: Duration::from_millis(random.between(50, 300)),
        login_timeout: Duration::from_millis(random.between(200, 1_000)),
        heartbeat_interval: Duration::from_millis(random.between(50, 1_000)),
        heartbeat_timeout: Duration::from_millis(random.between(200, 800)),
        backoff: backoff(random),
        in_flight_max: random.index(8) + 1,
        requests_max: 64,
        frame_size_max: scenario.limits.frame_size,
        ..SessionConfig::new(addresses, credentials, client, random.number())
    }
}

/// The addresses that a client is given: some of the nodes. It learns the others.
fn addresses(scenario: &Scenario, random: &mut Random) -> Vec<String> {
    let mut all: Vec<String> = (0..scenario.replicas).map(address_of).collect();
    let mut chosen = Vec::new();
    while all.len() > 1 && (chosen.is_empty() || random.chance(500)) {
        chosen.push(all.swap_remove(random.index(all.len())));
    }
    if chosen.is_empty() { all } else { chosen }
}

fn backoff(random: &mut Random) -> Backoff {
    Backoff {
        min: Duration::from_millis(random.between(1, 20)),
        max: Duration::from_millis(random.between(30, 300)),
    }
}

/// The pieces of a frame in one.
pub(crate) fn joined(parts: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(parts) {
        Ok([whole]) => whole,
        Err(parts) => Bytes::from(parts.concat()),
    }
}

fn frame_of(bytes: &Bytes) -> Option<Frame> {
    let mut buffer = BytesMut::from(&bytes[..]);
    next_frame(&mut buffer, ::wire::FRAME_SIZE_MAX).ok()?
}
