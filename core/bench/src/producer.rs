//! Producers that keep a window of batches unacknowledged.

use std::{
    collections::BTreeMap,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use wire::{
    Acknowledgement, Batch, BatchBuilder, Command, Message, PartitionTarget, ProducerId, Reply,
    SendMessages, SendSection,
};

use crate::{
    connection::{Connection, Session, unexpected},
    error::Error,
    failover_broker::is_passing,
    latency::Latency,
    noise::noise,
    target::{Server, Topic},
};

/// Before what was refused for the moment is sent again.
const PAUSE: Duration = Duration::from_millis(2);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Each with a connection, a thread and a partition of its own.
    pub(crate) producers: u32,
    /// Messages of a batch.
    pub(crate) batch: u32,
    /// Bytes of a message's payload.
    pub(crate) message_size: u64,
    /// Batches of a producer that are not acknowledged.
    pub(crate) window: usize,
    /// Bytes of payload in all; what does not fill a batch for each producer is left out.
    pub(crate) total: u64,
    /// Whether batches are numbered, so that the server tells repeated ones.
    pub(crate) idempotent: bool,
}

impl Load {
    /// Batches of each producer; at least one.
    fn batches(&self) -> u64 {
        let round = self.batch_payload() * u64::from(self.producers);
        (self.total / round).max(1)
    }

    fn batch_payload(&self) -> u64 {
        self.message_size * u64::from(self.batch)
    }

    /// Bytes of payload that are sent.
    pub(crate) fn payload(&self) -> u64 {
        self.batches() * self.batch_payload() * u64::from(self.producers)
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// From the first batch to the last acknowledgement.
    pub(crate) elapsed: Duration,
    /// Bytes of payload.
    pub(crate) payload: u64,
    /// Of a batch, from before it is sent until it is acknowledged.
    pub(crate) latency: Latency,
    /// Batches that were sent again, because another node leads than the one that they were for.
    pub(crate) again: u64,
}

/// Sends all of a load to a topic.
///
/// # Errors
/// The first of a producer.
pub(crate) fn run(
    server: &Server,
    session: Session,
    topic: &Topic,
    load: &Load,
) -> Result<Outcome, Error> {
    let mut producers = Vec::new();
    for index in 0..load.producers {
        let connection = Connection::attach(server.address(), session)?;
        let endures = server.is_cluster() && !load.idempotent;
        let producer = Producer::new(connection, topic, index, load);
        producers.push(Producer {
            endures,
            ..producer
        });
    }
    let barrier = Barrier::new(producers.len() + 1);
    let batches = load.batches();
    thread::scope(|scope| {
        let workers: Vec<_> = producers
            .into_iter()
            .map(|producer| {
                scope.spawn(|| {
                    barrier.wait();
                    producer.run(batches)
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let mut outcome = Outcome {
            elapsed: Duration::ZERO,
            payload: load.payload(),
            latency: Latency::new(),
            again: 0,
        };
        for worker in workers {
            let (end, done) = worker.join().expect("a producer does not panic")?;
            outcome.latency.merge(&done.latency);
            outcome.again += done.again;
            outcome.elapsed = outcome.elapsed.max(end - start);
        }
        Ok(outcome)
    })
}

struct Producer {
    connection: Connection,
    request: SendMessages,
    batch: Batch,
    window: usize,
    /// 0: not idempotent.
    id: ProducerId,
    sequence: u64,
    /// When each batch was sent that is not acknowledged, by its correlation id.
    sent: BTreeMap<u64, Instant>,
    latency: Latency,
    /// Whether what is refused for the moment is sent again, though it may be there twice then.
    endures: bool,
    again: u64,
}

impl Producer {
    fn new(connection: Connection, topic: &Topic, index: u32, load: &Load) -> Self {
        let size = usize::try_from(load.message_size).expect("a message fits memory");
        let mut builder = BatchBuilder::new();
        for number in 0..load.batch {
            let seed = u64::from(index) << 32 | u64::from(number);
            builder.push(&Message {
                payload: Bytes::from(noise(seed + 1, size)),
                ..Message::default()
            });
        }
        let batch = builder.build(ProducerId(0), 0);
        let id = match load.idempotent {
            true => ProducerId(connection.session().client.0 ^ u128::from(index)),
            false => ProducerId(0),
        };
        Self {
            request: SendMessages {
                stream: topic.stream.clone(),
                topic: topic.identifier(),
                acknowledgement: Acknowledgement::Quorum,
                sections: vec![SendSection {
                    target: PartitionTarget::Explicit(topic.partition(index)),
                    batch: batch.clone(),
                }],
            },
            connection,
            batch,
            window: load.window,
            id,
            sequence: 0,
            sent: BTreeMap::new(),
            latency: Latency::new(),
            endures: false,
            again: 0,
        }
    }

    /// Sends so many batches; gives the moment of the last acknowledgement.
    fn run(mut self, batches: u64) -> Result<(Instant, Self), Error> {
        for _ in 0..batches {
            while self.sent.len() >= self.window {
                self.await_one()?;
            }
            self.send(Instant::now())?;
        }
        while !self.sent.is_empty() {
            self.await_one()?;
        }
        Ok((Instant::now(), self))
    }

    /// Sends a batch that has been under way since then.
    fn send(&mut self, since: Instant) -> Result<(), Error> {
        if self.id != ProducerId(0) {
            self.sequence += 1;
            self.request.sections[0].batch = self.batch.clone().numbered(self.id, self.sequence);
        }
        let correlation = self.connection.send(&self.request.clone().into())?;
        self.sent.insert(correlation.0, since);
        Ok(())
    }

    fn await_one(&mut self) -> Result<(), Error> {
        let answer = self.connection.receive()?;
        let sent = self.sent.remove(&answer.header.correlation);
        let Some(sent) = sent else {
            return Err(Error::answer("SendMessages", "nobody has asked for it"));
        };
        let refused = match answer.decode(Command::SendMessages) {
            Ok(Reply::Sent(reply)) if reply.sections.len() == 1 => {
                match &reply.sections[0].status {
                    Ok(()) => None,
                    Err(failure) => Some(Error::Refused {
                        what: "SendMessages".into(),
                        failure: failure.clone(),
                    }),
                }
            }
            Ok(other) => return Err(unexpected("SendMessages", &other)),
            Err(error) => Some(error),
        };
        match refused {
            None => self.latency.record(sent.elapsed()),
            Some(error) if self.endures && is_passing(&error) => {
                self.again += 1;
                thread::sleep(PAUSE);
                self.send(sent)?;
            }
            Some(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_cut_to_whole_batches_for_every_producer() {
        let load = Load {
            producers: 3,
            batch: 10,
            message_size: 100,
            window: 2,
            total: 10_000,
            idempotent: false,
        };
        assert_eq!((load.batches(), load.payload()), (3, 9_000));
        let tiny = Load { total: 1, ..load };
        assert_eq!((tiny.batches(), tiny.payload()), (1, 3_000));
    }
}
