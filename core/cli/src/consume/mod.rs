//! `cohort consume`.

mod format;

use std::{future::ready, pin::pin};

use cohort::{Client, Consumer, ConsumerEvent, PartitionId, Received, Start, StoreMode};

use crate::{
    arguments::{ConsumeArguments, From},
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
    refuse_what_reads_nothing(arguments)?;
    let client = context.connect().await?;
    let mut consumer = build(&client, arguments).await?;
    let mut reading = Reading {
        arguments,
        output,
        gathered: 0,
        unsettled: Vec::new(),
        count: 0,
    };
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
    // There is no other way to end following.
    Ok(if interrupted && !arguments.follow {
        INTERRUPTED
    } else {
        0
    })
}

fn refuse_what_reads_nothing(arguments: &ConsumeArguments) -> Result<(), Problem> {
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
}

impl Reading<'_> {
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
            self.write(message?)?;
            let done = self
                .arguments
                .count
                .is_some_and(|count| self.count >= count);
            if done || self.output.is_gone() {
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

    fn write(&mut self, message: Received) -> Result<(), Problem> {
        let line = Shown::of(&message).write(self.arguments.output);
        self.gathered += line.len();
        self.count += 1;
        self.output.write(&line)?;
        if self.arguments.consumer.is_some() {
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
