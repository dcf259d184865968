//! `cohort send`.

mod input;
mod ledger;

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use cohort::{Error, Producer};
use tokio::sync::mpsc;

use crate::{
    arguments::{Format, SendArguments},
    context::Context,
    output::{Output, json, json_line},
    problem::{INTERRUPTED, Problem},
    race::{First, first, interrupted},
    terminal::{ProgressLine, bar, bytes, grouped, rate},
};
use input::{Chunk, Line, Rules};
use ledger::Ledger;

/// How long messages that were sent may still take after ctrl-C.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends everything; the exit code.
pub(crate) async fn run(
    context: &Context,
    arguments: &SendArguments,
    output: &mut Output,
) -> Result<u8, Problem> {
    let files = &arguments.file;
    let reads_input = files.is_empty() || files.iter().any(|file| file.as_os_str() == "-");
    if reads_input && context.reads_standard_input() {
        return Err(Problem::usage(
            "standard input cannot hold both the password and messages",
        ));
    }
    let client = context.connect().await?;
    let topic = arguments.topic.clone();
    let producer = client
        .producer(topic.stream, topic.topic)
        .batch_size(arguments.batch_size)
        .batch_messages(arguments.batch_messages)
        .linger(arguments.linger)
        .delivery_timeout(arguments.delivery_timeout)
        .build()
        .await?;
    let mut sending = Sending::new(&producer, arguments, output, input::size(files));
    let read = input::read(files.clone(), rules(arguments));
    let result = sending.send_all(read).await;
    sending.ledger.give_up();
    sending.tell_result(arguments)?;
    let interrupted = result?;
    sending.check()?;
    client.close().await;
    Ok(if interrupted { INTERRUPTED } else { 0 })
}

fn rules(arguments: &SendArguments) -> Rules {
    Rules {
        format: arguments.format,
        key: arguments.key.clone(),
        key_from: arguments.key_from.clone(),
        partition: arguments.partition,
        ignore_partitions: arguments.ignore_partitions,
    }
}

struct Sending<'a> {
    producer: &'a Producer,
    output: &'a mut Output,
    /// How acknowledged ranges are shown, if they are.
    acknowledged: Option<Format>,
    ledger: Ledger,
    progress: ProgressLine,
    /// Bytes of all input, if known.
    whole: Option<u64>,
    started: Instant,
}

impl<'a> Sending<'a> {
    fn new(
        producer: &'a Producer,
        arguments: &SendArguments,
        output: &'a mut Output,
        whole: Option<u64>,
    ) -> Self {
        Self {
            producer,
            output,
            acknowledged: arguments.acknowledged.then_some(arguments.output.output),
            ledger: Ledger::default(),
            progress: ProgressLine::new(!arguments.quiet),
            whole,
            started: Instant::now(),
        }
    }

    /// Sends until the input ends, a message fails, or ctrl-C is pressed, and waits for what was sent. Says
    /// whether it was interrupted.
    async fn send_all(&mut self, mut chunks: mpsc::Receiver<Chunk>) -> Result<bool, Problem> {
        let mut interrupt = pin!(interrupted());
        let result = loop {
            match first(interrupt.as_mut(), self.next(&mut chunks)).await {
                First::Left(()) => {
                    // What is not stored in time does not count.
                    let _finished = tokio::time::timeout(PATIENCE, self.finish()).await;
                    return Ok(true);
                }
                First::Right(Ok(true)) if self.ledger.failure.is_none() => {}
                First::Right(Ok(_)) => break Ok(()),
                First::Right(Err(problem)) => break Err(problem),
            }
        };
        // The thread that reads stops at its next line.
        drop(chunks);
        match first(interrupt.as_mut(), self.finish()).await {
            First::Left(()) => Ok(true),
            First::Right(finished) => finished.and(result).map(|()| false),
        }
    }

    /// Sends the next piece of input, or tells of what has become known while there is none. Says whether
    /// there may be more.
    async fn next(&mut self, chunks: &mut mpsc::Receiver<Chunk>) -> Result<bool, Problem> {
        let chunk = if self.ledger.is_empty() {
            First::Right(chunks.recv().await)
        } else {
            let settled = pin!(self.ledger.settle_next());
            first(settled, chunks.recv()).await
        };
        let First::Right(chunk) = chunk else {
            self.tell().await?;
            return Ok(true);
        };
        let Some(chunk) = chunk else { return Ok(false) };
        for line in chunk? {
            self.send(line).await?;
        }
        self.tell().await?;
        Ok(true)
    }

    async fn send(&mut self, line: Line) -> Result<(), Problem> {
        let Line {
            number,
            message,
            size,
        } = line;
        let at = |error: Error| {
            let text = format!("line {number}: {error}");
            Problem::from(error).with_text(text)
        };
        let producer = self.producer;
        let mut enqueue = pin!(producer.enqueue(message));
        let delivery = match first(enqueue.as_mut(), std::future::ready(())).await {
            First::Left(delivery) => delivery,
            // There is no room: time to tell what is stored.
            First::Right(()) => {
                self.tell().await?;
                enqueue.await
            }
        };
        let delivery = delivery.map_err(at)?;
        self.ledger.push(number, size, delivery);
        Ok(())
    }

    /// Waits until everything that was sent is stored or has failed.
    async fn finish(&mut self) -> Result<(), Problem> {
        // There is nothing more that a batch could linger for; asking is enough, the answers come to the ledger.
        let producer = self.producer;
        let flush = pin!(producer.flush());
        let _asked = first(flush, std::future::ready(())).await;
        while !self.ledger.is_empty() {
            self.ledger.settle_next().await;
            self.tell().await?;
        }
        self.tell().await
    }

    /// Shows what is known by now.
    async fn tell(&mut self) -> Result<(), Problem> {
        self.ledger.settle_ready().await;
        let ranges = self.ledger.take_ranges();
        if let Some(format) = self.acknowledged
            && !ranges.is_empty()
        {
            for range in ranges {
                self.output.line(&range.show(format))?;
            }
            self.output.flush()?;
        }
        let (stored, size) = (self.ledger.totals.stored, self.ledger.totals.size);
        let whole = self.whole;
        let rate = rate(stored, self.started.elapsed());
        self.progress.show(|| {
            let share = whole.map_or_else(String::new, |whole| bar(size, whole) + " ");
            format!(
                "{share}{} messages, {} ({}/s)",
                grouped(stored),
                bytes(size),
                grouped(rate)
            )
        });
        Ok(())
    }

    fn tell_result(&mut self, arguments: &SendArguments) -> Result<(), Problem> {
        self.progress.clear();
        let time = self.started.elapsed();
        let totals = &self.ledger.totals;
        match arguments.output.output {
            Format::Json if arguments.acknowledged => {
                let summary = serde_json::json!({ "summary": totals.object(time) });
                self.output.line(&json_line(&summary))
            }
            Format::Json => self.output.write(json(&totals.object(time)).as_bytes()),
            Format::Table if arguments.quiet => Ok(()),
            Format::Table => {
                eprintln!("{}", totals.sentence(time));
                Ok(())
            }
        }
    }

    /// Whether everything that was sent is stored.
    fn check(&self) -> Result<(), Problem> {
        match &self.ledger.failure {
            None => Ok(()),
            Some((line, error)) => {
                let text = format!("line {line}: {error}");
                Err(Problem::from(error.clone()).with_text(text))
            }
        }
    }
}
