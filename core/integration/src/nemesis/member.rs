//! A member of a consumer group in a process of its own, which can be killed. It says on standard output what
//! it gets and what it has stored; the rest of its life is in the hands of who started it.

use std::{
    collections::BTreeMap,
    fmt, io,
    io::Write as _,
    str::FromStr,
    time::{Duration, Instant},
};

use cohort::{GroupConsumer, GroupOptions, GroupStart, Received, StoreMode};
use tokio::time::timeout;

use super::SIZE;
use crate::{Tag, patient_client, payload};

/// Between two looks at nothing.
const LOOK: Duration = Duration::from_millis(100);

/// What a member says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It got this message.
    Got { place: Place, tag: Tag },
    /// The server has taken its store.
    Stored { place: Place },
}

/// A message of a partition, or its offset, under an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: u32,
    pub(super) epoch: u64,
    pub(super) offset: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, place, tag) = match self {
            Self::Got { place, tag } => ("got", place, Some(tag)),
            Self::Stored { place } => ("stored", place, None),
        };
        let Place {
            partition,
            epoch,
            offset,
        } = place;
        write!(f, "{kind} {partition} {epoch} {offset}")?;
        match tag {
            Some(tag) => write!(f, " {} {}", tag.producer, tag.sequence),
            None => Ok(()),
        }
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, numbers) = text.split_once(' ').ok_or(())?;
        let numbers = numbers.split(' ').map(str::parse::<u64>);
        let numbers = numbers.collect::<Result<Vec<u64>, _>>().map_err(|_| ())?;
        let (&[partition, epoch, offset], tag) = numbers.split_first_chunk().ok_or(())?;
        let small = |number: u64| u32::try_from(number).map_err(|_| ());
        let place = Place {
            partition: small(partition)?,
            epoch,
            offset,
        };
        match (kind, tag) {
            ("got", &[producer, sequence]) => {
                let producer = small(producer)?;
                let tag = Tag { producer, sequence };
                Ok(Self::Got { place, tag })
            }
            ("stored", []) => Ok(Self::Stored { place }),
            _ => Err(()),
        }
    }
}

/// What a member does. Read from the arguments of its process.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// Where the cluster is.
    pub url: String,
    /// The group, in the only topic that there is.
    pub group: String,
    /// Stores after so many messages.
    pub store_every: usize,
}

/// Consumes until the process is killed or its standard input ends.
///
/// # Errors
/// Why it cannot go on.
pub fn consume(options: &MemberOptions) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("make a runtime");
    // Who started it may be gone.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    runtime.block_on(run(options))
}

async fn run(options: &MemberOptions) -> Result<(), String> {
    let client = patient_client(&options.url).await;
    let began = Instant::now();
    let mut member = loop {
        let builder = client
            .consumer_group(super::NAME, super::NAME, options.group.as_str())
            .create_if_missing(
                GroupOptions::default()
                    .start(GroupStart::Earliest)
                    .rebalance_timeout(super::REBALANCE_TIMEOUT),
            )
            .store(StoreMode::Manual)
            .poll_wait(Duration::from_millis(500));
        match builder.build().await {
            Ok(member) => break member,
            Err(error) if error.is_retryable() && began.elapsed() < crate::PATIENCE => {}
            Err(error) => return Err(format!("join: {error}")),
        }
    };
    let mut work = Work::default();
    loop {
        match timeout(LOOK, member.next()).await {
            Ok(Some(Ok(message))) => work.take(&message)?,
            Ok(Some(Err(error))) => return Err(format!("consume: {error}")),
            Ok(None) => return Err("there are no more messages".to_owned()),
            Err(_) => {
                work.store(&member).await?;
                continue;
            }
        }
        if work.count >= options.store_every {
            work.store(&member).await?;
        }
    }
}

/// What is processed, and not known to be stored.
#[derive(Debug, Default)]
struct Work {
    processed: BTreeMap<u32, Place>,
    count: usize,
}

impl Work {
    fn take(&mut self, message: &Received) -> Result<(), String> {
        let place = Place {
            partition: message.partition().0,
            epoch: message.epoch().0,
            offset: message.offset().0,
        };
        let tag = Tag::of(message.payload()).ok_or("a message without a tag")?;
        if *message.payload() != payload(tag, SIZE) {
            return Err(format!("{tag:?} at {place:?} is not as it was sent"));
        }
        say(Line::Got { place, tag })?;
        self.count += 1;
        // Of a partition that is lost by now nothing can be stored any more.
        if message.ack() {
            self.processed.insert(place.partition, place);
        }
        Ok(())
    }

    async fn store(&mut self, member: &GroupConsumer) -> Result<(), String> {
        let processed = std::mem::take(&mut self.processed);
        self.count = 0;
        if processed.is_empty() {
            return Ok(());
        }
        // What was not stored, or may not be, comes again, if it comes to that.
        if member.store().await.is_ok() {
            for place in processed.into_values() {
                say(Line::Stored { place })?;
            }
        }
        Ok(())
    }
}

fn say(line: Line) -> Result<(), String> {
    let mut output = io::stdout().lock();
    let said = writeln!(output, "{line}").and_then(|()| output.flush());
    said.map_err(|error| format!("say what is done: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Line, Place};
    use crate::Tag;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let place = Place {
            partition: 3,
            epoch: 70,
            offset: 9,
        };
        let tag = Tag {
            producer: 1,
            sequence: 55,
        };
        for line in [Line::Got { place, tag }, Line::Stored { place }] {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in [
            "",
            "got 1 2",
            "got 1 2 3 4",
            "stored 1 2 3 4 5",
            "lost 1 2 3",
        ] {
            assert_eq!(text.parse::<Line>(), Err(()), "{text}");
        }
    }
}
