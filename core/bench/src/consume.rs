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
    loopback::{self, Meter, for_so_long},
    probe::CONSUMERS,
    produce::{means_of_neighbours, ratios},
    producer::{self, Load},
    target::{Server, Topic},
};

/// What a consumer asks for at once, bytes.
const POLL_SIZE: u32 = 4 << 20;

/// Bytes of a partition that are read again and again from memory: less than what a server keeps of the
/// newest messages of each of its data groups.
const FROM_MEMORY: u64 = 6 << 20;

/// Bytes of payload in a message.
const MESSAGE: u64 = 1024;

/// Fills a topic and reads it.
///
/// # Errors
/// What stops a producer, a consumer or a probe.
pub(crate) fn run(bench: &mut Bench) -> Result<Section, Error> {
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
    let section = measure(bench, &server, &topic)?;
    server.stop()?;
    Ok(section)
}

/// Reads a topic that is full of messages of 1 KiB.
///
/// # Errors
/// What stops a consumer or a probe.
pub(crate) fn measure(bench: &Bench, server: &Server, topic: &Topic) -> Result<Section, Error> {
    let connections = bench.options.connections.unwrap_or(CONSUMERS);
    let mut section = Section::new(format!("consume: {connections} connections"));
    let memory = FROM_MEMORY / MESSAGE;
    for (place, newest) in [("memory", Some(memory)), ("page cache", None)] {
        let mut probes = vec![loopback::transfer(
            bench.shards,
            connections,
            bench.length(),
        )?];
        let mut rates = Vec::new();
        for _ in 0..bench.rounds() {
            rates.push(round(bench, server, topic, newest)?);
            probes.push(loopback::transfer(
                bench.shards,
                connections,
                bench.length(),
            )?);
        }
        let measured = median(ratios(&rates, &means_of_neighbours(&probes)));
        section.figure(
            format!("from {place}, payload"),
            median(rates),
            Unit::BytesPerSecond,
        );
        section.figure(
            format!("loopback transfer next to it ({place})"),
            median(probes),
            Unit::BytesPerSecond,
        );
        section.target(Target {
            name: format!("consume from {place}"),
            of: "bare loopback transfer",
            side: Side::AtLeast,
            limit: 0.5,
            measured,
            unit: Unit::Ratio,
        });
    }
    Ok(section)
}

/// Payload per second of consumers with a partition each, of all of it or of its newest messages.
fn round(bench: &Bench, server: &Server, topic: &Topic, newest: Option<u64>) -> Result<f64, Error> {
    let connections = bench.options.connections.unwrap_or(CONSUMERS);
    let login = server.log_in()?;
    let mut readers = Vec::new();
    for index in 0..connections {
        let connection = Connection::attach(server.address(), login.session())?;
        let partition = topic.partition(index);
        let request = PollMessages {
            stream: topic.stream.clone(),
            topic: topic.identifier(),
            consumer: Consumer::Single("bench".into()),
            max_messages: u32::MAX,
            max_bytes: bench.options.poll_size.unwrap_or(POLL_SIZE),
            min_bytes: 0,
            max_wait_ms: 0,
            commit_on_poll: false,
            sections: vec![PollSection {
                partition,
                epoch: Epoch(0),
                strategy: PollStrategy::First,
            }],
        };
        readers.push(Reader {
            connection,
            request,
            newest,
            verify: bench.options.verify,
        });
    }
    for_so_long(bench.length(), readers, Reader::run)
}

struct Reader {
    connection: Connection,
    request: PollMessages,
    /// Read so many of the newest messages, again and again; everything when absent.
    newest: Option<u64>,
    verify: bool,
}

impl Reader {
    fn run(mut self, meter: &Meter) -> Result<(), Error> {
        let (mut next, mut end) = (None, Offset(0));
        while meter.goes_on() {
            let from = next.filter(|next| *next < end);
            let strategy = match (from, self.newest) {
                (Some(next), _) => PollStrategy::Offset(next),
                (None, Some(newest)) => PollStrategy::Offset(Offset(end.0.saturating_sub(newest))),
                (None, None) => PollStrategy::First,
            };
            let (answered, amount) = self.poll(strategy, from)?;
            (next, end) = (Some(answered.0), answered.1);
            meter.count(amount);
        }
        Ok(())
    }

    /// One poll; gives where to go on, the end, and the bytes of payload received.
    fn poll(
        &mut self,
        strategy: PollStrategy,
        expected: Option<Offset>,
    ) -> Result<((Offset, Offset), u64), Error> {
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
        let place = (result.next, result.end);
        let messages = result.next.0 - result.from.0;
        drop(result);
        self.connection.reuse(answer.body);
        Ok((place, messages * MESSAGE))
    }
}

/// The one section of a poll's answer.
fn section(answer: &Answer) -> Result<PollResult, Error> {
    let mut polled = match answer.decode(Command::PollMessages)? {
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
