//! `cohort consume`.

mod event;
mod format;
mod group;

use std::{collections::BTreeSet, future::ready, pin::pin};

use cohort::{Client, Consumer, ConsumerEvent, Error, PartitionId, Received, Start, StoreMode};

use crate::{
    arguments::{ConsumeArguments, From, MessageFormat},
    context::Context,
    output::Output,
    problem::{INTERRUPTED, Problem},
    race::{First, first, interrupted},
    time,
};
use format::Shown;

/// Bytes of output that are gathered before they are written.
const GATHER_SIZE: usize = 64 * 1024;

/// Reads until the end, the count or ctrl-C; the exit code.
pub(crate) async fn run(
    context: &Context,
    arguments: &ConsumeArguments,
    output: &mut Output,
) -> Result<u8, Problem> {
    refuse_what_makes_no_sense(arguments)?;
    if let Some(group) = &arguments.group {
        return group::run(context, arguments, group, output).await;
    }
    let client = context.connect().await?;
    let mut consumer = build(&client, arguments).await?;
    let mut reading = Reading::new(arguments, output);
    let ended = reading.read(&mut consumer).await;
    // Whatever happened, what was written counts.
    reading.settle()?;
    if arguments.consumer.is_some() {
        // Whoever presses ctrl-C once more does not want to wait for it.
        match first(pin!(interrupted()), consumer.flush()).await {
            First::Left(()) => return Ok(INTERRUPTED),
            First::Right(flushed) => flushed?,
        }
    }
    drop(consumer);
    let interrupted = ended?;
    client.close().await;
    reading.check()?;
    // There is no other way to end following.
    Ok(if interrupted && !arguments.follow {
        INTERRUPTED
    } else {
        0
    })
}

fn refuse_what_makes_no_sense(arguments: &ConsumeArguments) -> Result<(), Problem> {
    if arguments.events && arguments.output != MessageFormat::Json {
        let text = "--events needs -o json: in other formats events cannot be told from messages";
        return Err(Problem::usage(text));
    }
    let text = match arguments.from {
        Some(From::Next) if arguments.consumer.is_none() => {
            "--from next needs --consumer: next is behind what a consumer has stored"
        }
        Some(From::At(Start::Last(0))) if !arguments.follow => {
            "--from end needs --follow: behind the last message there is nothing yet"
        }
        Some(_) | None => return Ok(()),
    };
    Err(Problem::usage(text))
}

async fn build(client: &Client, arguments: &ConsumeArguments) -> Result<Consumer, Problem> {
    let topic = arguments.topic.clone();
    let builder = match &arguments.consumer {
        // A message is processed when it is written, and that is not when the next one is asked for.
        Some(name) => client
            .consumer(topic.stream, topic.topic, name)
            .store(StoreMode::Manual),
        None => client.reader(topic.stream, topic.topic),
    };
    let mut builder = builder.stop_at_end(!arguments.follow).on_event(tell);
    if let Some(from) = arguments.from {
        builder = builder
            .start(from.start(time::now()))
            .resume(from == From::Next);
    }
    if !arguments.partition.is_empty() {
        builder = builder.partitions(arguments.partition.iter().copied().map(PartitionId));
    }
    Ok(builder.build().await?)
}

/// Tells people what happens beside messages.
fn tell(event: &ConsumerEvent) {
    match event {
        ConsumerEvent::Skipped {
            partition,
            from,
            to,
        } => {
            let count = to.0 - from.0;
            eprintln!(
                "cohort: partition {partition}: {count} messages from offset {from} on are gone, it goes on at {to}"
            );
        }
        ConsumerEvent::Retrying { error } => eprintln!("cohort: {error}; trying again"),
        // These end in an error of the command.
        ConsumerEvent::StoreRefused { .. }
        | ConsumerEvent::PartitionFailed { .. }
        | ConsumerEvent::Failed(_) => {}
    }
}

struct Reading<'a> {
    arguments: &'a ConsumeArguments,
    output: &'a mut Output,
    /// Bytes that are not flushed yet.
    gathered: usize,
    /// Messages that are written and not flushed yet.
    unsettled: Vec<Received>,
    count: u64,
    /// Partitions that cannot be read any more; the others are.
    failed: BTreeSet<PartitionId>,
}

impl<'a> Reading<'a> {
    const fn new(arguments: &'a ConsumeArguments, output: &'a mut Output) -> Self {
        Self {
            arguments,
            output,
            gathered: 0,
            unsettled: Vec::new(),
            count: 0,
            failed: BTreeSet::new(),
        }
    }

    /// Says whether it was interrupted.
    async fn read(&mut self, consumer: &mut Consumer) -> Result<bool, Problem> {
        let mut interrupt = pin!(interrupted());
        loop {
            // What is there is taken without a pause; before there is one, the reader gets everything.
            let next = {
                let mut next = pin!(consumer.next());
                match first(next.as_mut(), ready(())).await {
                    First::Left(message) => message,
                    First::Right(()) => {
                        self.settle()?;
                        match first(interrupt.as_mut(), next).await {
                            First::Left(()) => return Ok(true),
                            First::Right(message) => message,
                        }
                    }
                }
            };
            let Some(message) = next else {
                return Ok(false);
            };
            self.take(message)?;
            if self.is_done() {
                return Ok(false);
            }
            if self.gathered >= GATHER_SIZE {
                self.settle()?;
                if let First::Left(()) = first(interrupt.as_mut(), ready(())).await {
                    return Ok(true);
                }
            }
        }
    }

    /// Writes a message, or tells of a partition that is not read any more.
    fn take(&mut self, message: Result<Received, Error>) -> Result<(), Problem> {
        match message {
            Ok(message) => self.write(message),
            Err(error) => {
                let Error::PartitionFailed { partition, .. } = &error else {
                    return Err(error.into());
                };
                self.failed.insert(*partition);
                eprintln!("{}", Problem::from(error));
                Ok(())
            }
        }
    }

    /// Whether nothing more is wanted, or of all that is wanted nothing can be read.
    fn is_done(&self) -> bool {
        let wanted = &self.arguments.partition;
        let lost = |partition: &u32| self.failed.contains(&PartitionId(*partition));
        self.arguments
            .count
            .is_some_and(|count| self.count >= count)
            || self.output.is_gone()
            || (!wanted.is_empty() && wanted.iter().all(lost))
    }

    /// Whether every partition could be read.
    fn check(&self) -> Result<(), Problem> {
        match self.failed.len() {
            0 => Ok(()),
            1 => Err(Problem::new("1 partition was not read to its end")),
            failed => Err(Problem::new(format!(
                "{failed} partitions were not read to their ends"
            ))),
        }
    }

    fn write(&mut self, message: Received) -> Result<(), Problem> {
        let line = Shown::of(&message).write(self.arguments.output);
        self.gathered += line.len();
        self.count += 1;
        self.output.write(&line)?;
        if self.arguments.consumer.is_some() || self.arguments.group.is_some() {
            self.unsettled.push(message);
        }
        Ok(())
    }

    /// Flushes what was written; then it is processed.
    fn settle(&mut self) -> Result<(), Problem> {
        self.gathered = 0;
        self.output.flush()?;
        // What nobody reads is not processed.
        if !self.output.is_gone() {
            for message in self.unsettled.drain(..) {
                message.ack();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cohort::{ClientError, ConsumerError};

    use super::{Error, Output, PartitionId, Reading};
    use crate::arguments::{Arguments, Command, parse};

    fn failed(partition: u32) -> Error {
        Error::PartitionFailed {
            partition: PartitionId(partition),
            error: ConsumerError::Request(ClientError::Closed),
        }
    }

    #[test]
    fn other_partitions_are_read_when_one_cannot_be() {
        let words = ["cohort", "consume", "s", "t", "-p", "1", "-p", "2"];
        let Ok(Arguments {
            command: Command::Consume(arguments),
            ..
        }) = parse(words.map(Into::into))
        else {
            panic!()
        };
        let mut output = Output::new();
        let mut reading = Reading::new(&arguments, &mut output);
        reading.check().unwrap();
        reading.take(Err(failed(2))).unwrap();
        assert!(!reading.is_done());
        let problem = reading.check().unwrap_err().to_string();
        assert_eq!(problem, "cohort: 1 partition was not read to its end");
        // There is nothing left to wait for.
        reading.take(Err(failed(1))).unwrap();
        assert!(reading.is_done());
        // What is wrong with the whole ends it.
        reading.take(Err(Error::Closed)).unwrap_err();
    }
}
