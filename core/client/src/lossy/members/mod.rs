//! Members of a consumer group against a model of a broker, over a network that cuts, delays, loses and
//! repeats.

mod broker;
mod properties;
mod scenarios;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::ToString,
    vec,
    vec::Vec,
};
use core::time::Duration;

use bytes::BytesMut;
use wire::{
    ClientId, ConsumerGroupOptionsUpdate, Epoch, FRAME_SIZE_MAX, FrameKind, Identifier, Offset,
    PartitionId, Password, Request, Time, Timestamp,
};

use crate::{
    Call, ConnectionId, Credentials, Delivery, Effect, FencingToken, Frame, GroupConsumer,
    GroupConsumerConfig, GroupEffect, GroupEvent, GroupInput, Input, Retry, Route, Session,
    SessionConfig, StoreMode, Submission, Ticket, next_frame, random::Random,
};
use broker::Broker;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A connection of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    peer: usize,
    connection: ConnectionId,
}

/// How often things go wrong, per mille.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// A connection is cut when a frame is sent on it.
    cut: u64,
    /// The broker refuses a request for the moment.
    busy: u64,
    /// An event is lost.
    lose_event: u64,
    /// An answer is lost, though the connection stays.
    lose_answer: u64,
    /// A frame for a client comes twice.
    repeat: u64,
    /// The longest delay of a frame, milliseconds; answers and events overtake each other.
    delay_ms: u64,
}

#[derive(Debug)]
enum Arrival {
    Connected(Link),
    Gone(Link),
    ToClient(Link, Frame),
    ToBroker(Link, Frame),
    /// The broker learns that a connection is gone.
    Closed(Link),
}

/// One process with a member in it.
struct Peer {
    session: Session,
    consumer: GroupConsumer,
    owners: BTreeMap<Ticket, Call>,
    next_ticket: u64,
    /// Handed out and not processed.
    open: Vec<Delivery>,
    manual: bool,
    events: Vec<GroupEvent>,
    /// The offset that was handed out last, by partition, since it was assigned.
    runs: BTreeMap<PartitionId, Offset>,
    /// The highest epoch that was told of, and the highest that is lost, by partition.
    known: BTreeMap<PartitionId, Epoch>,
    lost: BTreeMap<PartitionId, Epoch>,
    alive: bool,
}

struct World {
    now: u64,
    /// Steps since time went on.
    standing: u32,
    broker: Broker,
    faults: Faults,
    random: Random,
    arrivals: BTreeMap<(u64, u64), Arrival>,
    next_arrival: u64,
    open: BTreeSet<Link>,
    peers: Vec<Peer>,
    /// How often each message was handed out.
    handed: BTreeMap<(PartitionId, Offset), u32>,
    processed: BTreeSet<(PartitionId, Offset)>,
}

impl World {
    fn new(seed: u64, partitions: u32, faults: Faults) -> Self {
        Self {
            now: 0,
            standing: 0,
            broker: Broker::new(seed, partitions),
            faults,
            random: Random::new(seed ^ 0x90),
            arrivals: BTreeMap::new(),
            next_arrival: 0,
            open: BTreeSet::new(),
            peers: Vec::new(),
            handed: BTreeMap::new(),
            processed: BTreeSet::new(),
        }
    }

    /// Starts a process with a member.
    fn start(&mut self, change: impl FnOnce(&mut GroupConsumerConfig)) -> usize {
        let peer = self.peers.len();
        let id = u64::try_from(peer).expect("few");
        let credentials = Credentials {
            name: "ann".to_string(),
            password: Password("pw".to_string()),
        };
        let client = ClientId(u128::from(id) + 1);
        let session = SessionConfig::new(vec!["a:1".to_string()], credentials, client, id);
        let name = |name: &str| Identifier::Name(name.to_string());
        let mut config = GroupConsumerConfig::new(name("s"), name("t"), name("g"), id);
        config.create = Some(ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: None,
            initial_delay_ms: None,
            start: None,
            offset_expiry_ms: None,
        });
        config.poll_size_max = 400;
        config.buffer_size_max = 1_200;
        config.poll_wait_max = Duration::from_millis(500);
        config.request_timeout = Duration::from_secs(2);
        change(&mut config);
        self.peers.push(Peer {
            session: Session::new(session),
            manual: config.store == StoreMode::Manual,
            consumer: GroupConsumer::new(self.time(), config),
            owners: BTreeMap::new(),
            next_ticket: 0,
            open: Vec::new(),
            events: Vec::new(),
            runs: BTreeMap::new(),
            known: BTreeMap::new(),
            lost: BTreeMap::new(),
            alive: true,
        });
        self.input(peer, GroupInput::Tick);
        peer
    }

    fn time(&self) -> Time {
        Time {
            monotonic: self.now,
            wall: Timestamp(self.now / 1_000),
        }
    }

    fn strikes(&mut self, per_mille: u64) -> bool {
        self.random.between(0, 999) < per_mille
    }

    fn later(&mut self, arrival: Arrival) {
        let delay = self.random.between(0, self.faults.delay_ms * MS) + MS / 10;
        self.next_arrival += 1;
        let key = (self.now + delay, self.next_arrival);
        self.arrivals.insert(key, arrival);
    }

    fn input(&mut self, peer: usize, input: GroupInput) {
        let time = self.time();
        self.peers[peer].consumer.handle(time, input);
        self.pump(peer);
    }

    /// Lets the next thing happen, or `until` come.
    fn step(&mut self, until: u64) {
        let alive = self.peers.iter().filter(|peer| peer.alive);
        let own = alive.flat_map(|peer| [peer.session.deadline(), peer.consumer.deadline()]);
        let next = own
            .chain([
                self.arrivals.first_key_value().map(|((time, _), _)| *time),
                self.broker.next_time(),
            ])
            .flatten()
            .min();
        // The broker's own timers are looked at now and then.
        let next = next.unwrap_or(until).min(self.now + 20 * MS).min(until);
        self.standing = if next <= self.now {
            self.standing + 1
        } else {
            0
        };
        assert!(
            self.standing < 1_000,
            "time stands still: {:?}",
            self.deadlines()
        );
        self.now = self.now.max(next);
        while let Some(entry) = self.arrivals.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let arrival = entry.remove();
            self.arrive(arrival);
        }
        self.broker.tick(self.now);
        self.send_out();
        let time = self.time();
        for peer in 0..self.peers.len() {
            if self.peers[peer].alive {
                self.peers[peer].session.handle(time, Input::Tick);
                self.input(peer, GroupInput::Tick);
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let time = self.time();
        let (peer, input) = match arrival {
            Arrival::ToBroker(link, frame) => {
                let busy = self.strikes(self.faults.busy);
                self.broker.tick(self.now);
                self.broker.handle(link, frame, busy);
                return self.send_out();
            }
            Arrival::Closed(link) => return self.broker.on_closed(link),
            Arrival::Connected(link) => (
                link.peer,
                Input::Connected {
                    connection: link.connection,
                },
            ),
            Arrival::Gone(link) => (
                link.peer,
                Input::Disconnected {
                    connection: link.connection,
                    reason: "cut".to_string(),
                },
            ),
            Arrival::ToClient(link, _) if !self.open.contains(&link) => return,
            Arrival::ToClient(link, frame) => (
                link.peer,
                Input::Frame {
                    connection: link.connection,
                    frame,
                },
            ),
        };
        if self.peers[peer].alive {
            self.peers[peer].session.handle(time, input);
            self.pump(peer);
        }
    }

    fn send_out(&mut self) {
        for (link, frame) in core::mem::take(&mut self.broker.out) {
            let event = frame.header.frame_kind() == Some(FrameKind::Event);
            let lost = if event {
                self.faults.lose_event
            } else {
                self.faults.lose_answer
            };
            if self.strikes(lost) {
                continue;
            }
            if self.strikes(self.faults.repeat) {
                self.later(Arrival::ToClient(link, frame.clone()));
            }
            self.later(Arrival::ToClient(link, frame));
        }
    }

    /// Who wants to be called when.
    fn deadlines(&self) -> Vec<(Option<u64>, Option<u64>)> {
        let peers = self.peers.iter();
        peers
            .map(|peer| (peer.session.deadline(), peer.consumer.deadline()))
            .collect()
    }

    fn run_until(&mut self, limit: u64, done: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "not done in time");
            self.step(end);
        }
    }

    fn run_for(&mut self, duration: u64) {
        let end = self.now + duration;
        while self.now < end {
            self.step(end);
        }
    }

    /// Carries effects between the machines of a process until there are none.
    fn pump(&mut self, index: usize) {
        let time = self.time();
        loop {
            let peer = &mut self.peers[index];
            if let Some(effect) = peer.consumer.next_effect() {
                match effect {
                    GroupEffect::Submit {
                        call,
                        request,
                        timeout,
                        node,
                    } => {
                        peer.check_request(&request);
                        peer.next_ticket += 1;
                        let ticket = Ticket(peer.next_ticket);
                        peer.owners.insert(ticket, call);
                        let submission = Submission {
                            ticket,
                            request,
                            timeout,
                            retry: Retry::Session,
                            route: Route {
                                node,
                                ..Route::any(0)
                            },
                        };
                        peer.session.handle(time, Input::Submit(submission));
                    }
                    GroupEffect::Event(event) => peer.on_event(event),
                }
                continue;
            }
            let Some(effect) = peer.session.next_effect() else {
                return;
            };
            self.on_session_effect(index, effect);
        }
    }

    fn on_session_effect(&mut self, index: usize, effect: Effect) {
        let time = self.time();
        let peer = &mut self.peers[index];
        match effect {
            Effect::Connect { connection, .. } => {
                let link = Link {
                    peer: index,
                    connection,
                };
                self.open.insert(link);
                self.later(Arrival::Connected(link));
            }
            Effect::Send { connection, frame } => {
                let link = Link {
                    peer: index,
                    connection,
                };
                self.send(link, &frame);
            }
            Effect::Close { connection } => {
                let link = Link {
                    peer: index,
                    connection,
                };
                self.open.remove(&link);
                self.later(Arrival::Closed(link));
            }
            Effect::Completed { ticket, result } => {
                if let Some(call) = peer.owners.remove(&ticket) {
                    let input = GroupInput::Answered { call, result };
                    peer.consumer.handle(time, input);
                }
            }
            Effect::Event(event) => peer.consumer.handle(time, GroupInput::Told(event)),
            Effect::SessionLost { .. } => peer.consumer.handle(time, GroupInput::SessionLost),
            Effect::Failed(error) => panic!("the session failed: {error}"),
            Effect::LoggedIn { .. } | Effect::Unreachable { .. } | Effect::Closed => {}
        }
    }

    fn send(&mut self, link: Link, frame: &[bytes::Bytes]) {
        if !self.open.contains(&link) {
            return;
        }
        let mut bytes = BytesMut::new();
        frame.iter().for_each(|part| bytes.extend_from_slice(part));
        let frame = next_frame(&mut bytes, FRAME_SIZE_MAX)
            .expect("a sound frame")
            .expect("a whole frame");
        let cut = self.strikes(self.faults.cut);
        if !cut || self.random.between(0, 1) == 0 {
            self.later(Arrival::ToBroker(link, frame));
        }
        if cut {
            self.cut(link);
        }
    }

    fn cut(&mut self, link: Link) {
        if self.open.remove(&link) {
            self.later(Arrival::Gone(link));
            self.later(Arrival::Closed(link));
        }
    }

    /// The process dies.
    fn kill(&mut self, peer: usize) {
        self.peers[peer].alive = false;
        let links = self.open.iter().filter(|link| link.peer == peer);
        for link in links.copied().collect::<Vec<_>>() {
            self.open.remove(&link);
            self.later(Arrival::Closed(link));
        }
    }

    /// The application asks for the next message. By default that processes the one before.
    fn take(&mut self, index: usize) -> Option<Delivery> {
        let time = self.time();
        let peer = &mut self.peers[index];
        if !peer.manual {
            for done in peer.open.drain(..) {
                self.processed.insert((done.partition, done.message.offset));
            }
        }
        let delivery = peer.consumer.next_message(time);
        if let Some(delivery) = &delivery {
            let (partition, offset) = (delivery.partition, delivery.message.offset);
            let payload = u64::from_le_bytes(delivery.message.payload[..8].try_into().unwrap());
            assert_eq!(payload, offset.0);
            peer.on_handed(partition, offset);
            *self.handed.entry((partition, offset)).or_default() += 1;
            peer.open.push(delivery.clone());
        }
        self.pump(index);
        delivery
    }

    /// The application ends the member; what it was handed last is processed, by default.
    fn close(&mut self, index: usize, timeout: Duration) {
        let peer = &mut self.peers[index];
        if !peer.manual {
            for done in peer.open.drain(..) {
                self.processed.insert((done.partition, done.message.offset));
            }
            peer.consumer.settle_last();
        }
        self.input(index, GroupInput::Close { timeout });
    }

    /// The application has processed one of the messages that it was handed, in any order.
    fn process_one(&mut self, index: usize) {
        let time = self.time();
        let count = self.peers[index].open.len();
        if count == 0 || !self.peers[index].manual {
            return;
        }
        let chosen = usize::try_from(self.random.between(0, count as u64 - 1)).expect("few");
        let peer = &mut self.peers[index];
        let done = peer.open.swap_remove(chosen);
        let (partition, offset) = (done.partition, done.message.offset);
        self.processed.insert((partition, offset));
        let token = FencingToken {
            group: wire::ConsumerGroupId(1),
            partition,
            epoch: done.epoch,
        };
        peer.consumer.acknowledge(time, token, offset);
        self.pump(index);
    }

    /// Everybody takes and processes what there is until all of it is processed and stored.
    fn work_off(&mut self, limit: u64) {
        let end = self.now + limit;
        while !self.is_worked_off() {
            assert!(self.now < end, "not worked off in time");
            for peer in 0..self.peers.len() {
                if self.peers[peer].alive {
                    while self.take(peer).is_some() {
                        self.process_one(peer);
                    }
                    while self.peers[peer].manual && !self.peers[peer].open.is_empty() {
                        self.process_one(peer);
                    }
                }
            }
            self.run_for(20 * MS);
        }
    }

    fn is_worked_off(&self) -> bool {
        let mut partitions = self.broker.partitions.iter();
        partitions.all(|own| own.end == own.stored.map_or(0, |stored| stored.0 + 1))
    }

    fn total(&self) -> u64 {
        self.broker.partitions.iter().map(|own| own.end).sum()
    }

    /// What is stored is processed, all of it: nothing is ever skipped.
    fn check_stored(&self) {
        for (id, own) in (0..).map(PartitionId).zip(&self.broker.partitions) {
            for offset in 0..own.stored.map_or(0, |stored| stored.0 + 1) {
                assert!(
                    self.processed.contains(&(id, Offset(offset))),
                    "{id}/{offset} was skipped"
                );
            }
        }
    }

    fn repeated(&self) -> usize {
        self.handed.values().filter(|times| **times > 1).count()
    }

    /// The partitions that a member believes to have.
    fn owned(&self, peer: usize) -> Vec<u32> {
        let held = self.peers[peer].consumer.partitions();
        held.filter(|held| !held.revoking)
            .map(|held| held.token.partition.0)
            .collect()
    }
}

impl Peer {
    /// Nothing is polled or stored under an ownership that was lost.
    fn check_request(&self, request: &Request) {
        let mut sections: Vec<(PartitionId, Epoch)> = Vec::new();
        if let Request::PollMessages(poll) = request {
            let own = poll.sections.iter();
            sections.extend(own.map(|own| (own.partition, own.epoch)));
        } else if let Request::StoreConsumerOffset(store) = request {
            let own = store.sections.iter();
            sections.extend(own.map(|own| (own.partition, own.epoch)));
        } else if let Request::ReleasePartition(release) = request {
            let own = release.sections.iter();
            sections.extend(own.map(|own| (own.partition, own.epoch)));
        }
        for (partition, epoch) in sections {
            let lost = self.lost.get(&partition).copied().unwrap_or(Epoch(0));
            assert!(epoch > lost, "{partition} under {epoch} after it was lost");
        }
    }

    fn on_event(&mut self, event: GroupEvent) {
        match &event {
            GroupEvent::Assigned { partitions } => {
                for token in partitions {
                    self.runs.remove(&token.partition);
                    self.known.insert(token.partition, token.epoch);
                }
            }
            GroupEvent::Lost { partition, .. } => {
                let epoch = self.known.remove(partition).expect("assigned before");
                self.lost.insert(*partition, epoch);
                self.runs.remove(partition);
            }
            GroupEvent::Revoked { partition } => {
                self.known.remove(partition).expect("assigned before");
                self.runs.remove(partition);
            }
            GroupEvent::Failed(error) => panic!("{error}"),
            GroupEvent::Joined { .. }
            | GroupEvent::Revoking { .. }
            | GroupEvent::Retained { .. }
            | GroupEvent::Stalled { .. }
            | GroupEvent::Skipped { .. }
            | GroupEvent::StoreRefused { .. }
            | GroupEvent::Retrying { .. }
            | GroupEvent::PartitionFailed { .. } => {}
        }
        self.events.push(event);
    }

    /// Messages come in order, without a gap, of partitions that were assigned before.
    fn on_handed(&mut self, partition: PartitionId, offset: Offset) {
        assert!(self.known.contains_key(&partition), "{partition}");
        if let Some(last) = self.runs.insert(partition, offset) {
            assert_eq!(last.next(), offset);
        }
    }
}
