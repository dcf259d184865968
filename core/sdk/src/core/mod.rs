//! The state machines of one client behind a lock, and who waits for them.
//!
//! Whoever has something new locks the core, feeds it to the machine that it concerns, and lets
//! [`Core::pump`] carry effects between the machines until there are none. Nothing blocks or awaits under
//! the lock: sockets have tasks of their own (`connection`), and so has the clock ([`run_timer`]).

mod connection;
mod consumers;
mod inbox;
mod members;
mod producers;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use client::{
    Call, ClientError, Close, ConnectionId, ConsumerInput, Effect, GroupInput, Input,
    ProducerInput, Retry, Route, Session, Submission, Ticket,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};
use wire::{Event, Reply, Request, Time, Timestamp};

use crate::Error;
use connection::Outgoing;
pub(crate) use consumers::ConsumerEntry;
pub(crate) use inbox::{EVENTS_MAX, Next};
pub(crate) use members::{End, MemberEntry, Settled, Unstored};
pub(crate) use producers::{BatchCell, ProducerEntry};

/// Names a producer or consumer within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MachineId(u64);

impl MachineId {
    /// Spreads producers and consumers over the connections.
    pub(crate) fn lane(self) -> u16 {
        u16::try_from(self.0 % u64::from(u16::MAX)).unwrap_or(0)
    }
}

/// What the tasks and handles of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Wakes the clock's task when it should wait for something earlier.
    timer: Notify,
    /// Where the monotonic clock of this client begins.
    epoch: Instant,
    /// Where the tasks run, from whatever thread the client is used.
    runtime: Handle,
}

/// Keeps a client running: dropped with the last handle of it.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Core {
    session: Session,
    /// Who waits for each request of the session.
    owners: BTreeMap<Ticket, Owner>,
    next_ticket: u64,
    next_machine: u64,
    pub(crate) producers: BTreeMap<MachineId, ProducerEntry>,
    pub(crate) consumers: BTreeMap<MachineId, ConsumerEntry>,
    pub(crate) members: BTreeMap<MachineId, MemberEntry>,
    connections: BTreeMap<ConnectionId, Arc<Outgoing>>,
    /// Who waits for the first login.
    opening: Option<Opening>,
    /// Who waits for the end of the session.
    closing: Option<oneshot::Sender<()>>,
    /// Bytes of the largest frame that the server takes.
    pub(crate) frame_size_max: u32,
    /// A membership is to outlive the client, and with it the session.
    pub(crate) keeps_session: bool,
    /// The time that the clock's task waits for.
    armed: Option<u64>,
    stopped: bool,
}

#[derive(Debug)]
struct Opening {
    sender: oneshot::Sender<Result<(), Error>>,
    /// Whether it waits on when no address can be reached.
    patient: bool,
}

#[derive(Debug)]
enum Owner {
    Caller(oneshot::Sender<Result<Reply, ClientError>>),
    Producer(MachineId, Call),
    Consumer(MachineId, Call),
    Member(MachineId, Call),
}

impl Shared {
    /// Starts a session and the task of its clock.
    pub(crate) fn start(session: Session, frame_size_max: u32) -> Running {
        let core = Core {
            session,
            owners: BTreeMap::new(),
            next_ticket: 0,
            next_machine: 0,
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            members: BTreeMap::new(),
            connections: BTreeMap::new(),
            opening: None,
            closing: None,
            frame_size_max,
            keeps_session: false,
            armed: None,
            stopped: false,
        };
        let shared = Arc::new(Self {
            core: Mutex::new(core),
            timer: Notify::new(),
            epoch: Instant::now(),
            runtime: Handle::current(),
        });
        shared.runtime.spawn(run_timer(Arc::clone(&shared)));
        Running(shared)
    }

    pub(crate) fn now(&self) -> Time {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Time {
            monotonic: nanoseconds(self.epoch.elapsed()),
            wall: Timestamp(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX)),
        }
    }

    /// The core. A panic under the lock is ours and leaves nothing half done that others rely on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds the session and carries on what comes of it.
    pub(crate) fn input(self: &Arc<Self>, input: Input) {
        let now = self.now();
        let mut core = self.lock();
        if !core.stopped {
            core.session.handle(now, input);
            core.pump(self, now);
        }
    }

    /// Waits for the first login; `patient`: also when no address can be reached at first.
    pub(crate) async fn opened(self: &Arc<Self>, patient: bool) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        self.lock().opening = Some(Opening { sender, patient });
        self.input(Input::Tick);
        receiver.await.unwrap_or(Err(Error::Closed))
    }

    /// Sends a request of the application and waits for its answer.
    pub(crate) async fn request(
        self: &Arc<Self>,
        request: Request,
        timeout: Duration,
    ) -> Result<Reply, Error> {
        let (sender, receiver) = oneshot::channel();
        let now = self.now();
        {
            let mut core = self.lock();
            core.ask(
                now,
                Owner::Caller(sender),
                (request, timeout, Route::any(0)),
            );
            core.pump(self, now);
        }
        match receiver.await {
            Ok(result) => result.map_err(Error::from),
            Err(_) => Err(Error::Closed),
        }
    }

    /// Logs out, unless a membership was left behind, and waits until that is done, or `timeout` is over.
    pub(crate) async fn close(self: &Arc<Self>, timeout: Duration) {
        let (sender, receiver) = oneshot::channel();
        let keeps_session = {
            let mut core = self.lock();
            core.closing = Some(sender);
            core.keeps_session
        };
        self.input(if keeps_session {
            Input::Detach
        } else {
            Input::Close(Close { timeout })
        });
        // An error means that the client is stopped, which is as good.
        let _closed = receiver.await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().stop();
        self.0.timer.notify_one();
    }
}

impl Core {
    pub(crate) fn machine_id(&mut self) -> MachineId {
        self.next_machine += 1;
        MachineId(self.next_machine)
    }

    /// Asks something that the session may ask again.
    fn ask(
        &mut self,
        now: Time,
        owner: Owner,
        (request, timeout, route): (Request, Duration, Route),
    ) {
        let submission = Submission {
            ticket: Ticket(0),
            request,
            timeout,
            retry: Retry::Session,
            route,
        };
        self.submit(now, owner, submission);
    }

    fn submit(&mut self, now: Time, owner: Owner, submission: Submission) {
        if self.stopped {
            return;
        }
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.owners.insert(ticket, owner);
        self.session.handle(
            now,
            Input::Submit(Submission {
                ticket,
                ..submission
            }),
        );
    }

    /// Carries effects between the machines and out of them until there are none.
    pub(crate) fn pump(&mut self, shared: &Arc<Shared>, now: Time) {
        while let Some(effect) = self.session.next_effect() {
            self.on_effect(shared, now, effect);
        }
        let wanted = self.deadline();
        if wanted.is_some_and(|wanted| self.armed.is_none_or(|armed| wanted < armed)) {
            self.armed = wanted;
            shared.timer.notify_one();
        }
    }

    fn deadline(&self) -> Option<u64> {
        let producers = self.producers.values().filter_map(|entry| entry.deadline);
        let consumers = self.consumers.values().filter_map(|entry| entry.deadline);
        let members = self.members.values().filter_map(|entry| entry.deadline);
        producers
            .chain(consumers)
            .chain(members)
            .chain(self.session.deadline())
            .min()
    }

    fn on_effect(&mut self, shared: &Arc<Shared>, now: Time, effect: Effect) {
        match effect {
            Effect::Connect {
                connection,
                address,
            } => {
                let outgoing = Outgoing::connect(Arc::clone(shared), connection, address);
                self.connections.insert(connection, outgoing);
            }
            Effect::Send { connection, frame } => {
                if let Some(outgoing) = self.connections.get(&connection) {
                    outgoing.send(frame);
                }
            }
            Effect::Close { connection } => {
                if let Some(outgoing) = self.connections.remove(&connection) {
                    outgoing.close();
                }
            }
            Effect::Completed { ticket, result } => self.on_completed(now, ticket, result),
            Effect::LoggedIn { frame_size_max, .. } => {
                self.frame_size_max = frame_size_max;
                self.opened(Ok(()));
            }
            Effect::Failed(error) => self.opened(Err(error.into())),
            Effect::Unreachable { address, reason } => {
                if self
                    .opening
                    .as_ref()
                    .is_some_and(|opening| !opening.patient)
                {
                    self.opened(Err(Error::Unreachable { address, reason }));
                }
            }
            Effect::Closed => {
                if let Some(sender) = self.closing.take() {
                    let _nobody_waits = sender.send(());
                }
            }
            // Single consumers and producers survive their session.
            Effect::SessionLost { .. } => self.feed_members(now, &GroupInput::SessionLost),
            Effect::Event(event) => {
                if matches!(event, Event::PrimaryChanged(_)) {
                    self.on_primary_changed(now);
                }
                self.feed_members(now, &GroupInput::Told(event));
            }
        }
    }

    fn on_primary_changed(&mut self, now: Time) {
        for id in self.producers.keys().copied().collect::<Vec<_>>() {
            self.feed_producer(now, id, ProducerInput::PrimaryChanged);
        }
        for id in self.consumers.keys().copied().collect::<Vec<_>>() {
            self.feed_consumer(now, id, ConsumerInput::PrimaryChanged);
        }
    }

    fn opened(&mut self, result: Result<(), Error>) {
        if let Some(opening) = self.opening.take() {
            let _nobody_waits = opening.sender.send(result);
        }
    }

    fn on_completed(&mut self, now: Time, ticket: Ticket, result: Result<Reply, ClientError>) {
        match self.owners.remove(&ticket) {
            Some(Owner::Caller(sender)) => {
                let _nobody_waits = sender.send(result);
            }
            Some(Owner::Producer(id, call)) => {
                self.feed_producer(now, id, ProducerInput::Answered { call, result });
            }
            Some(Owner::Consumer(id, call)) => {
                self.feed_consumer(now, id, ConsumerInput::Answered { call, result });
            }
            Some(Owner::Member(id, call)) => {
                self.feed_member(now, id, GroupInput::Answered { call, result });
            }
            None => {}
        }
    }

    /// Feeds every machine whose time has come.
    fn tick(&mut self, shared: &Arc<Shared>, now: Time) {
        self.armed = None;
        self.session.handle(now, Input::Tick);
        let due =
            |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now.monotonic);
        let producers = self
            .producers
            .iter()
            .filter(|(_, entry)| due(entry.deadline));
        for id in producers.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.feed_producer(now, id, ProducerInput::Tick);
        }
        let consumers = self
            .consumers
            .iter()
            .filter(|(_, entry)| due(entry.deadline));
        for id in consumers.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.feed_consumer(now, id, ConsumerInput::Tick);
        }
        let members = self.members.iter().filter(|(_, entry)| due(entry.deadline));
        for id in members.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.feed_member(now, id, GroupInput::Tick);
        }
        self.pump(shared, now);
    }

    /// Ends everything without a word to the server.
    fn stop(&mut self) {
        self.stopped = true;
        for outgoing in std::mem::take(&mut self.connections).into_values() {
            outgoing.close();
        }
        self.owners.clear();
        self.opening = None;
        self.closing = None;
        for entry in self.producers.values_mut() {
            entry.abandon();
        }
        for entry in self.consumers.values_mut() {
            entry.abandon();
        }
        for entry in self.members.values_mut() {
            entry.abandon();
        }
    }
}

/// The task of a client's clock.
async fn run_timer(shared: Arc<Shared>) {
    loop {
        let armed = {
            let core = shared.lock();
            if core.stopped {
                return;
            }
            core.armed
        };
        let Some(armed) = armed else {
            shared.timer.notified().await;
            continue;
        };
        let deadline = shared.epoch + Duration::from_nanos(armed);
        let woken = tokio::time::timeout_at(deadline.into(), shared.timer.notified()).await;
        if woken.is_err() {
            let now = shared.now();
            let mut core = shared.lock();
            if !core.stopped {
                core.tick(&shared, now);
            }
        }
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
