//! `consume`: how fast messages come back from memory and from the page cache.

use bytes::Bytes;
use wire::{
    Batch, Command, Consumer, Epoch, Offset, PollMessages, PollResult, PollSection, PollStrategy,
    Reply,
};

use crate::{
    bench::Bench,
    connection::{Answer, Connection, unexpected},
    error::Error,
    figure::{Section, Side, Target, Unit, median},
    loopback::{self, Count, Meter, for_so_long},
    probe::CONSUMERS,
    process::Usage,
    produce::{cpu_figures, means_of_neighbours, ratios},
    producer::{self, Load},
    target::{Server, Topic},
};

/// What a consumer asks for at once, bytes.
const POLL_SIZE: u32 = 1 << 20;

/// Bytes of a partition that are read again and again from memory: less than what a server keeps of the
/// newest messages of each of its data groups.
const FROM_MEMORY: u64 = 6 << 20;

/// Bytes of payload in a message.
const MESSAGE: u64 = 1024;

/// Fills a topic and reads it.
///
/// # Errors
/// What stops a producer, a consumer or a probe.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let (mut server, _own) = bench.server()?;
    let mut connection = server.log_in()?;
    let partitions = bench.options.connections.unwrap_or(CONSUMERS);
    let topic = server.create_topic(&mut connection, partitions)?;
    let load = Load {
        producers: partitions,
        batch: 1000,
        message_size: MESSAGE,
        window: 4,
        total: bench.pick(512 << 20, 2 << 30),
        idempotent: false,
    };
    producer::run(&server, connection.session(), &topic, &load)?;
    server.settled_usage()?;
    let sections = measure(bench, &server, &topic)?;
    server.stop()?;
    Ok(sections)
}

/// Reads a topic that is full of messages of 1 KiB.
///
/// # Errors
/// What stops a consumer or a probe.
pub(crate) fn measure(
    bench: &Bench,
    server: &Server,
    topic: &Topic,
) -> Result<Vec<Section>, Error> {
    let connections = bench.options.connections.unwrap_or(CONSUMERS);
    let mut sections = Vec::new();
    for (place, newest) in [
        ("memory", Some(FROM_MEMORY / MESSAGE)),
        ("page cache", None),
    ] {
        let consumers = Consumers {
            bench,
            server,
            topic,
            connections,
            newest,
        };
        sections.push(consumers.measure(place)?);
    }
    Ok(sections)
}

/// Consumers with a partition each.
struct Consumers<'a> {
    bench: &'a Bench,
    server: &'a Server,
    topic: &'a Topic,
    connections: u32,
    /// Read so many of the newest messages, again and again; everything when absent.
    newest: Option<u64>,
}

impl Consumers<'_> {
    /// All rounds, with the bare transfer before and after each.
    fn measure(&self, place: &str) -> Result<Section, Error> {
        let probe = || loopback::transfer(self.bench.shards, self.connections, self.bench.length());
        let (mut probes, mut rates, mut usages) = (vec![probe()?], Vec::new(), Vec::new());
        let mut payload = 0;
        for _ in 0..self.bench.rounds() {
            let (count, usage) = self.round()?;
            rates.push(count.rate);
            payload += count.total;
            usages.extend(usage);
            probes.push(probe()?);
        }
        let bare: Vec<_> = probes.iter().map(|(count, _)| count.rate).collect();
        let measured = median(ratios(&rates, &means_of_neighbours(&bare)));
        let connections = self.connections;
        let mut section = Section::new(format!("consume from {place}: {connections} connections"));
        section.figure("payload", median(rates), Unit::BytesPerSecond);
        if !usages.is_empty() {
            let usages: Vec<_> = usages.iter().collect();
            cpu_figures(&mut section, &usages, payload as f64 / 1e6, "MB of payload");
        }
        section.figure(
            "bare transfer next to it",
            median(bare),
            Unit::BytesPerSecond,
        );
        let cpu: u64 = probes.iter().map(|(_, cpu)| cpu).sum();
        let poured: u64 = probes.iter().map(|(count, _)| count.total).sum();
        let cpu = cpu as f64 / (poured as f64 / 1e6);
        section.figure("bare transfer's CPU per MB", cpu, Unit::Nanoseconds);
        section.target(Target {
            name: format!("consume from {place}"),
            of: "bare loopback transfer",
            side: Side::AtLeast,
            limit: 0.5,
            measured,
            unit: Unit::Ratio,
        });
        Ok(section)
    }

    /// Payload that comes back in one round.
    fn round(&self) -> Result<(Count, Option<Usage>), Error> {
        let login = self.server.log_in()?;
        let mut readers = Vec::new();
        for index in 0..self.connections {
            let mut reader = Reader {
                connection: Connection::attach(self.server.address(), login.session())?,
                request: self.request(index),
                newest: self.newest,
                verify: self.bench.options.verify,
                end: Offset(0),
            };
            // Where the newest messages begin is known once the end is.
            reader.poll(PollStrategy::First, None)?;
            readers.push(reader);
        }
        let before = self.server.usage()?;
        let count = for_so_long(self.bench.length(), readers, Reader::run)?;
        Ok((count, self.server.usage_since(before.as_ref())?))
    }

    fn request(&self, index: u32) -> PollMessages {
        PollMessages {
            stream: self.topic.stream.clone(),
            topic: self.topic.identifier(),
            consumer: Consumer::Single("bench".into()),
            max_messages: u32::MAX,
            max_bytes: self.bench.options.poll_size.unwrap_or(POLL_SIZE),
            min_bytes: 0,
            max_wait_ms: 0,
            commit_on_poll: false,
            sections: vec![PollSection {
                partition: self.topic.partition(index),
                epoch: Epoch(0),
                strategy: PollStrategy::First,
            }],
        }
    }
}

struct Reader {
    connection: Connection,
    request: PollMessages,
    /// Read so many of the newest messages, again and again; everything when absent.
    newest: Option<u64>,
    verify: bool,
    /// The end of the partition, as the last poll told it.
    end: Offset,
}

impl Reader {
    fn run(mut self, meter: &Meter) -> Result<(), Error> {
        let mut next = self.end;
        while meter.goes_on() {
            let (strategy, expected) = match self.newest {
                _ if next < self.end => (PollStrategy::Offset(next), Some(next)),
                Some(newest) => {
                    let from = Offset(self.end.0.saturating_sub(newest));
                    (PollStrategy::Offset(from), Some(from))
                }
                None => (PollStrategy::First, None),
            };
            let messages;
            (next, messages) = self.poll(strategy, expected)?;
            meter.count(messages * MESSAGE);
        }
        Ok(())
    }

    /// One poll; gives where to go on, and the number of messages received.
    fn poll(
        &mut self,
        strategy: PollStrategy,
        expected: Option<Offset>,
    ) -> Result<(Offset, u64), Error> {
        self.request.sections[0].strategy = strategy;
        self.connection.send(&self.request.clone().into())?;
        let answer = self.connection.receive()?;
        if self.verify {
            answer.verify()?;
        }
        let result = section(&answer)?;
        if result.next == result.from {
            return Err(Error::answer(
                "PollMessages",
                "no messages where there are some",
            ));
        }
        if expected.is_some_and(|expected| result.from != expected) {
            return Err(Error::answer("PollMessages", "offsets have a gap"));
        }
        if self.verify {
            verify(&result)?;
        }
        self.end = result.end;
        let (next, messages) = (result.next, result.next.0 - result.from.0);
        drop(result);
        self.connection.reuse(answer.body);
        Ok((next, messages))
    }
}

/// The one section of a poll's answer.
fn section(answer: &Answer) -> Result<PollResult, Error> {
    only_section(answer.decode(Command::PollMessages)?)
}

/// The one section of a poll's answer, which has succeeded.
///
/// # Errors
/// `Refused`, `Answer`.
pub(crate) fn only_section(reply: Reply) -> Result<PollResult, Error> {
    let mut polled = match reply {
        Reply::Polled(polled) => polled,
        other => return Err(unexpected("PollMessages", &other)),
    };
    let Some(result) = polled.sections.pop() else {
        return Err(Error::answer("PollMessages", "no section"));
    };
    match &result.status {
        Ok(()) => Ok(result),
        Err(failure) => Err(Error::Refused {
            what: "PollMessages".into(),
            failure: failure.clone(),
        }),
    }
}

/// Checks every batch, and that their offsets are dense.
fn verify(result: &PollResult) -> Result<(), Error> {
    let mut next = None;
    for bytes in &result.batches {
        let bytes: &Bytes = bytes;
        let batch = Batch::read(bytes).map_err(|error| Error::decode("PollMessages", &error))?;
        let base = Offset(batch.header.base_offset);
        if !batch.is_stamped() || next.is_some_and(|next| next != base) {
            return Err(Error::answer("PollMessages", "batches do not join"));
        }
        next = Some(batch.last_offset().next());
    }
    Ok(())
}
