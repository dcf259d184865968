//! What was acknowledged: ranges of offsets and of input lines.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::Duration,
};

use cohort::{Delivery, Error, Receipt};
use serde_json::{Value, json};

use crate::{
    arguments::Format,
    output::json_line,
    terminal::{bytes, grouped, rate},
};

/// Messages on their way, in the order of their lines, and what has become of those before.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    waiting: VecDeque<Waiting>,
    /// The range that may go on with the next message.
    open: Option<Range>,
    /// Ranges that are complete and not told yet.
    ranges: Vec<Range>,
    pub(super) totals: Totals,
    /// The first message that failed: its line, and why.
    pub(super) failure: Option<(u64, Error)>,
}

#[derive(Debug)]
struct Waiting {
    line: u64,
    /// Bytes of the line.
    size: u64,
    delivery: Delivery,
}

/// Messages that stand one behind the other in the input and in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    partition: u32,
    first: u64,
    last: u64,
    first_line: u64,
    last_line: u64,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) stored: u64,
    pub(super) failed: u64,
    /// Sent, and given up before an answer came: stored or not.
    pub(super) unknown: u64,
    /// Bytes of the lines whose messages are stored.
    pub(super) size: u64,
    /// By partition: messages, first and last offset.
    partitions: BTreeMap<u32, (u64, u64, u64)>,
}

impl Ledger {
    pub(super) fn push(&mut self, line: u64, size: u64, delivery: Delivery) {
        self.waiting.push_back(Waiting {
            line,
            size,
            delivery,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Counts what is still on its way as not known.
    pub(super) fn give_up(&mut self) {
        self.totals.unknown += u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.waiting.clear();
    }

    /// Notes what is known by now of the messages that come first.
    pub(super) async fn settle_ready(&mut self) {
        poll_fn(|context| {
            while let Some(Waiting {
                line,
                size,
                delivery,
            }) = self.waiting.front_mut()
            {
                let (line, size) = (*line, *size);
                let Poll::Ready(result) = Pin::new(delivery).poll(context) else {
                    break;
                };
                self.waiting.pop_front();
                self.note(line, size, result);
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for the message that comes first.
    pub(super) async fn settle_next(&mut self) {
        let Some(Waiting {
            line,
            size,
            delivery,
        }) = self.waiting.front_mut()
        else {
            return;
        };
        let (line, size) = (*line, *size);
        let result = delivery.await;
        self.waiting.pop_front();
        self.note(line, size, result);
    }

    fn note(&mut self, line: u64, size: u64, result: Result<Receipt, Error>) {
        match result {
            Ok(receipt) => {
                self.totals.size += size;
                self.note_stored(line, receipt.partition.0, receipt.offset.0);
            }
            Err(error) => {
                self.totals.failed += 1;
                self.failure.get_or_insert((line, error));
            }
        }
    }

    fn note_stored(&mut self, line: u64, partition: u32, offset: u64) {
        self.totals.stored += 1;
        let (count, _, last) = self
            .totals
            .partitions
            .entry(partition)
            .or_insert((0, offset, offset));
        *count += 1;
        *last = offset;
        match &mut self.open {
            Some(range)
                if range.partition == partition
                    && range.last + 1 == offset
                    && range.last_line + 1 == line =>
            {
                range.last = offset;
                range.last_line = line;
            }
            open @ (Some(_) | None) => {
                self.ranges.extend(open.replace(Range {
                    partition,
                    first: offset,
                    last: offset,
                    first_line: line,
                    last_line: line,
                }));
            }
        }
    }

    /// The ranges since the last call.
    pub(super) fn take_ranges(&mut self) -> Vec<Range> {
        self.ranges.extend(self.open.take());
        std::mem::take(&mut self.ranges)
    }
}

impl Range {
    pub(super) fn show(&self, format: Format) -> String {
        let Self {
            partition,
            first,
            last,
            first_line,
            last_line,
        } = self;
        match format {
            Format::Table => {
                format!(
                    "partition {partition}: offsets {first}-{last}, lines {first_line}-{last_line}"
                )
            }
            Format::Json => json_line(&json!({
                "partition": partition,
                "first": first,
                "last": last,
                "first_line": first_line,
                "last_line": last_line,
            })),
        }
    }
}

impl Totals {
    /// One line for people.
    pub(super) fn sentence(&self, time: Duration) -> String {
        let mut sentence = format!(
            "{} {} stored",
            grouped(self.stored),
            plural(self.stored, "message")
        );
        if self.stored > 0 {
            let places = self.partitions.len() as u64;
            sentence += &format!(" in {places} {}", plural(places, "partition"));
        }
        if self.failed > 0 {
            sentence += &format!(", {} not", grouped(self.failed));
        }
        if self.unknown > 0 {
            sentence += &format!(", {} without an answer", grouped(self.unknown));
        }
        format!(
            "{sentence}, {} in {}.{:03} s ({} messages/s, {}/s)",
            bytes(self.size),
            time.as_secs(),
            time.subsec_millis(),
            grouped(rate(self.stored, time)),
            bytes(rate(self.size, time)),
        )
    }

    /// For programs.
    pub(super) fn object(&self, time: Duration) -> Value {
        let partitions = self.partitions.iter().map(|(partition, (messages, first, last))| {
            json!({ "partition": partition, "messages": messages, "first": first, "last": last })
        });
        json!({
            "stored": self.stored,
            "failed": self.failed,
            "unknown": self.unknown,
            "bytes": self.size,
            "milliseconds": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            "partitions": partitions.collect::<Vec<_>>(),
        })
    }
}

fn plural(count: u64, word: &str) -> String {
    format!("{word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Duration, Format, Ledger, Range};
    use crate::{golden::assert_golden, output::json};

    fn ledger(stored: &[(u64, u32, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (line, partition, offset) in stored {
            ledger.note_stored(*line, *partition, *offset);
        }
        ledger
    }

    #[test]
    fn neighbours_make_a_range() {
        let mut ledger = ledger(&[
            (1, 0, 5),
            (2, 0, 6),
            (3, 1, 0),
            (4, 1, 1),
            (5, 1, 3),
            (7, 1, 4),
            (8, 0, 7),
        ]);
        let range = |partition, first, last, first_line, last_line| Range {
            partition,
            first,
            last,
            first_line,
            last_line,
        };
        let expected = [
            range(0, 5, 6, 1, 2),
            range(1, 0, 1, 3, 4),
            range(1, 3, 3, 5, 5),
            range(1, 4, 4, 7, 7),
            range(0, 7, 7, 8, 8),
        ];
        assert_eq!(ledger.take_ranges(), expected);
        // What was told is complete.
        ledger.note_stored(9, 0, 8);
        assert_eq!(ledger.take_ranges(), [range(0, 8, 8, 9, 9)]);
        assert_eq!(ledger.take_ranges(), []);
    }

    #[test]
    fn results_are_told_to_people_and_programs() {
        let mut ledger = ledger(&[(1, 0, 5), (2, 0, 6), (3, 1, 0)]);
        ledger.totals.size = 3_000_000;
        let time = Duration::from_millis(1_250);
        let ranges = ledger.take_ranges();
        let all = |format| {
            ranges
                .iter()
                .map(|range| range.show(format) + "\n")
                .collect::<String>()
        };
        assert_golden("send-acknowledged.txt", &all(Format::Table));
        assert_golden("send-acknowledged.jsonl", &all(Format::Json));
        assert_golden("send.txt", &(ledger.totals.sentence(time) + "\n"));
        assert_golden("send.json", &json(&ledger.totals.object(time)));
        ledger.totals.failed = 2;
        ledger.totals.unknown = 1;
        let sentence = ledger.totals.sentence(time);
        assert!(
            sentence
                .starts_with("3 messages stored in 2 partitions, 2 not, 1 without an answer, 2.8"),
            "{sentence}"
        );
    }

    #[test]
    fn one_and_none_are_counted_in_right_words() {
        let sentence = |stored: &[(u64, u32, u64)]| {
            let sentence = ledger(stored).totals.sentence(Duration::from_secs(1));
            sentence.split(',').next().map(str::to_string)
        };
        assert_eq!(sentence(&[]).as_deref(), Some("0 messages stored"));
        let one = sentence(&[(1, 0, 5)]);
        assert_eq!(one.as_deref(), Some("1 message stored in 1 partition"));
    }
}
