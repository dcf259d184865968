//! A session, a producer and consumers against a model of a broker, over a network that cuts, delays and
//! reorders.

mod broker;
mod members;
mod network;
mod properties;

use alloc::{collections::BTreeMap, string::ToString, vec, vec::Vec};
use core::time::Duration;

use bytes::Bytes;
use wire::{
    ClientId, Identifier, Message, Offset, PartitionId, Password, ProducerId, Time, Timestamp,
};

use crate::{
    BatchId, Call, ClientError, Close, Consumer, ConsumerConfig, ConsumerEffect, ConsumerEvent,
    ConsumerInput, Credentials, Delivery, Effect, Input, Producer, ProducerConfig, ProducerEffect,
    ProducerInput, PushError, Pushed, Retry, Route, Session, SessionConfig, Submission, Target,
    Ticket,
};
use network::{Arrival, Faults, Network};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Whose request a ticket is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Producer(Call),
    Consumer(Call),
}

/// How a batch ended.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Delivered {
        partition: PartitionId,
        base_offset: Offset,
        count: u32,
    },
    Failed {
        error: ClientError,
        may_be_stored: bool,
    },
}

/// One process with a client in it, and the world around it.
struct World {
    now: u64,
    network: Network,
    session: Session,
    producer: Producer,
    consumer: Option<Consumer>,
    owners: BTreeMap<Ticket, Owner>,
    next_ticket: u64,
    ends: BTreeMap<BatchId, End>,
    received: Vec<(PartitionId, Offset, Bytes)>,
    events: Vec<ConsumerEvent>,
    /// Sessions that were lost.
    losses: u64,
}

impl World {
    fn new(seed: u64, partitions: u32, faults: Faults) -> Self {
        Self::with(seed, partitions, faults, |_| {})
    }

    fn with(
        seed: u64,
        partitions: u32,
        faults: Faults,
        change: impl FnOnce(&mut ProducerConfig),
    ) -> Self {
        let credentials = Credentials {
            name: "ann".to_string(),
            password: Password("pw".to_string()),
        };
        let addresses = vec!["b:1".to_string()];
        let mut session = SessionConfig::new(addresses, credentials, ClientId(77), seed);
        session.connections = 1 + u16::from(seed.is_multiple_of(3));
        let stream = Identifier::Number(1);
        let mut config = ProducerConfig::new(
            stream.clone(),
            stream,
            partitions,
            ProducerId(1234),
            seed ^ 1,
        );
        config.batch_size_max = 400;
        config.batch_messages_max = 5;
        config.request_size_max = 1_000;
        config.in_flight_max = 3;
        config.in_flight_per_partition_max = 1 + usize::try_from(seed % 5).unwrap();
        config.memory_max = 4_000;
        config.delivery_timeout = Duration::from_hours(1);
        config.request_timeout = Duration::from_secs(3);
        change(&mut config);
        Self {
            now: 0,
            network: Network::new(seed, partitions, faults),
            session: Session::new(session),
            producer: Producer::new(Time::default(), config),
            consumer: None,
            owners: BTreeMap::new(),
            next_ticket: 0,
            ends: BTreeMap::new(),
            received: Vec::new(),
            events: Vec::new(),
            losses: 0,
        }
    }

    fn time(&self) -> Time {
        Time {
            monotonic: self.now,
            wall: Timestamp(self.now / 1_000),
        }
    }

    /// Starts a consumer anew, as a restarted process does: nothing is left of the one before.
    fn restart_consumer(&mut self, change: impl FnOnce(&mut ConsumerConfig)) {
        let stream = Identifier::Number(1);
        let name = "reader".to_string();
        let mut config = ConsumerConfig::new(stream.clone(), stream, name, self.now);
        config.poll_size_max = 600;
        config.buffer_size_max = 2_000;
        config.request_timeout = Duration::from_secs(3);
        config.poll_wait_max = Duration::from_millis(500);
        change(&mut config);
        self.consumer = Some(Consumer::new(self.time(), config));
        self.owners
            .retain(|_, owner| !matches!(owner, Owner::Consumer(_)));
    }

    fn push(&mut self, target: Target, key: &str, payload: u64) -> Result<Pushed, PushError> {
        let message = Message {
            key: Bytes::copy_from_slice(key.as_bytes()),
            payload: Bytes::copy_from_slice(&payload.to_le_bytes()),
            ..Message::default()
        };
        let pushed = self.producer.push(self.time(), target, &message)?;
        self.pump();
        Ok(pushed)
    }

    /// Lets the next thing happen, or `until` come.
    fn step(&mut self, until: u64) {
        let deadlines = [
            self.network.next_time(),
            self.session.deadline(),
            self.producer.deadline(),
            self.consumer.as_ref().and_then(Consumer::deadline),
            Some(until),
        ];
        let next = deadlines.into_iter().flatten().min().unwrap_or(until);
        self.now = self.now.max(next);
        let time = self.time();
        for arrival in self.network.take(self.now) {
            let input = match arrival {
                Arrival::Connected(connection) => Input::Connected { connection },
                Arrival::Gone(connection) => Input::Disconnected {
                    connection,
                    reason: "cut".to_string(),
                },
                Arrival::Frame(connection, frame) => Input::Frame { connection, frame },
            };
            self.session.handle(time, input);
        }
        self.session.handle(time, Input::Tick);
        self.producer.handle(time, ProducerInput::Tick);
        if let Some(consumer) = &mut self.consumer {
            consumer.handle(time, ConsumerInput::Tick);
        }
        self.pump();
    }

    /// Runs until `done` says so; fails if that takes more than `limit` nanoseconds.
    fn run_until(&mut self, limit: u64, done: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "not done in time: {:?}", self.ends.len());
            self.step(end);
        }
    }

    fn run_for(&mut self, duration: u64) {
        let end = self.now + duration;
        while self.now < end {
            self.step(end);
        }
    }

    /// Carries effects between the machines until there are none.
    fn pump(&mut self) {
        let mut busy = true;
        while busy {
            busy = false;
            while let Some(effect) = self.producer.next_effect() {
                busy = true;
                self.on_producer_effect(effect);
            }
            while let Some(effect) = self.consumer.as_mut().and_then(Consumer::next_effect) {
                busy = true;
                match effect {
                    ConsumerEffect::Submit {
                        call,
                        request,
                        timeout,
                        node,
                    } => {
                        let (owner, retry) = (Owner::Consumer(call), Retry::Session);
                        self.submit(
                            owner,
                            Submission {
                                ticket: Ticket(0),
                                request,
                                timeout,
                                retry,
                                route: Route {
                                    node,
                                    ..Route::any(1)
                                },
                            },
                        );
                    }
                    ConsumerEffect::Event(event) => self.events.push(event),
                }
            }
            while let Some(effect) = self.session.next_effect() {
                busy = true;
                self.on_session_effect(effect);
            }
        }
    }

    fn on_producer_effect(&mut self, effect: ProducerEffect) {
        match effect {
            ProducerEffect::Submit {
                call,
                request,
                timeout,
                node,
            } => {
                let (owner, retry) = (Owner::Producer(call), Retry::Caller);
                self.submit(
                    owner,
                    Submission {
                        ticket: Ticket(0),
                        request,
                        timeout,
                        retry,
                        route: Route {
                            lane: 0,
                            node,
                            ordered: true,
                        },
                    },
                );
            }
            ProducerEffect::Delivered {
                batch,
                partition,
                base_offset,
                count,
            } => {
                let end = End::Delivered {
                    partition,
                    base_offset,
                    count,
                };
                assert_eq!(self.ends.insert(batch, end), None);
            }
            ProducerEffect::Failed {
                batch,
                error,
                may_be_stored,
                ..
            } => {
                assert_eq!(
                    self.ends.insert(
                        batch,
                        End::Failed {
                            error,
                            may_be_stored
                        }
                    ),
                    None
                );
            }
        }
    }

    fn submit(&mut self, owner: Owner, submission: Submission) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.owners.insert(ticket, owner);
        let time = self.time();
        self.session.handle(
            time,
            Input::Submit(Submission {
                ticket,
                ..submission
            }),
        );
    }

    fn on_session_effect(&mut self, effect: Effect) {
        let time = self.time();
        match effect {
            Effect::Connect {
                connection,
                address,
            } => self.network.connect(self.now, connection, &address),
            Effect::Send { connection, frame } => self.network.send(self.now, connection, &frame),
            Effect::Close { connection } => self.network.close(connection),
            Effect::Completed { ticket, result } => match self.owners.remove(&ticket) {
                Some(Owner::Producer(call)) => {
                    self.producer
                        .handle(time, ProducerInput::Answered { call, result });
                }
                Some(Owner::Consumer(call)) => {
                    let consumer = self
                        .consumer
                        .as_mut()
                        .expect("owners go with their consumer");
                    consumer.handle(time, ConsumerInput::Answered { call, result });
                }
                None => {}
            },
            Effect::Failed(error) => panic!("the session failed: {error}"),
            Effect::Event(wire::Event::PrimaryChanged(_)) => {
                self.producer.handle(time, ProducerInput::PrimaryChanged);
                if let Some(consumer) = &mut self.consumer {
                    consumer.handle(time, ConsumerInput::PrimaryChanged);
                }
            }
            Effect::SessionLost { .. } => self.losses += 1,
            Effect::Event(_)
            | Effect::LoggedIn { .. }
            | Effect::Unreachable { .. }
            | Effect::Closed => {}
        }
    }

    /// Takes a message off the consumer, if there is one.
    fn receive(&mut self) -> Option<Delivery> {
        let time = self.time();
        let delivery = self.consumer.as_mut()?.next_message(time);
        self.pump();
        if let Some(delivery) = &delivery {
            let message = &delivery.message;
            let received = (delivery.partition, message.offset, message.payload.clone());
            self.received.push(received);
        }
        delivery
    }

    fn close(&mut self) {
        let close = Close {
            timeout: Duration::from_secs(1),
        };
        self.session.handle(self.time(), Input::Close(close));
        self.pump();
    }
}
