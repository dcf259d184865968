//! The members of the consumer groups, and what they must get.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{
    findings::Findings,
    member::{Line, Place},
};
use crate::{Cluster, NODES, Tag, binary};

/// The groups: a name, and after how many messages its members store.
pub(super) const GROUPS: [(&str, usize); 2] = [("careful", 1), ("batches", 25)];

/// Members of each group.
const EACH: usize = 3;

/// Members in all.
pub(super) const MEMBERS: usize = GROUPS.len() * EACH;

/// All members; each is a process.
#[derive(Debug)]
pub(super) struct Members {
    urls: Vec<String>,
    running: Vec<Child>,
    books: Vec<Book>,
    findings: Findings,
    killed: usize,
}

/// What the members of a group have said. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Book(Arc<Mutex<BTreeMap<u32, Deliveries>>>);

/// Of one partition, by epoch: the offsets in the order in which they were delivered, and the highest stored.
#[derive(Debug, Default)]
struct Deliveries {
    epochs: BTreeMap<u64, Ownership>,
    tags: BTreeMap<u64, Tag>,
    count: u64,
}

#[derive(Debug, Default)]
struct Ownership {
    delivered: Vec<u64>,
    stored: Option<u64>,
}

impl Members {
    pub(super) fn start(cluster: &Cluster, findings: &Findings) -> Self {
        let mut members = Self {
            urls: (0..NODES).map(|node| cluster.url(node)).collect(),
            running: Vec::new(),
            books: GROUPS.iter().map(|_| Book::default()).collect(),
            findings: findings.clone(),
            killed: 0,
        };
        for number in 0..MEMBERS {
            let member = members.launch(number);
            members.running.push(member);
        }
        members
    }

    fn launch(&self, number: usize) -> Child {
        let (group, every) = GROUPS[number % GROUPS.len()];
        let mut child = Command::new(binary("nemesis"))
            .args(["member", &self.urls[number % NODES], group])
            .arg(every.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("start a member");
        let output = BufReader::new(child.stdout.take().expect("it is read"));
        let book = self.books[number % GROUPS.len()].clone();
        let findings = self.findings.clone();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                match line.parse() {
                    Ok(line) => book.enter(line),
                    // It was killed in the middle of a line, and the next one has begun.
                    Err(()) => findings.tell(format_args!("member {number} says {line:?}")),
                }
            }
        });
        child
    }

    /// Kills a member, and starts another one in its place.
    pub(super) fn replace(&mut self, number: usize) {
        // Fails only when it has ended by itself, which is found out below.
        let _ = self.running[number].kill();
        let _ = self.running[number].wait();
        self.killed += 1;
        self.running[number] = self.launch(number);
    }

    pub(super) const fn killed(&self) -> usize {
        self.killed
    }

    /// A member that ended by itself has failed; another one takes its place.
    pub(super) fn look_after(&mut self) {
        for number in 0..self.running.len() {
            let ended = self.running[number].try_wait();
            if let Some(status) = ended.expect("a child can be waited for") {
                self.findings
                    .wrong(format_args!("member {number} ended by itself: {status}"));
                self.running[number] = self.launch(number);
            }
        }
    }

    /// What the members of a group have said.
    pub(super) fn book(&self, group: usize) -> &Book {
        &self.books[group]
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Deliveries>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, line: Line) {
        let mut book = self.lock();
        match line {
            Line::Got { place, tag } => {
                let deliveries = book.entry(place.partition).or_default();
                deliveries.count += 1;
                deliveries.tags.insert(place.offset, tag);
                deliveries.ownership(place).delivered.push(place.offset);
            }
            Line::Stored { place } => {
                let deliveries = book.entry(place.partition).or_default();
                let ownership = deliveries.ownership(place);
                ownership.stored = ownership.stored.max(Some(place.offset));
            }
        }
    }

    pub(super) fn stored(&self) -> BTreeMap<u32, u64> {
        let book = self.lock();
        let stored = book.iter().filter_map(|(partition, deliveries)| {
            let stored = deliveries.epochs.values().filter_map(|one| one.stored);
            Some((*partition, stored.max()?))
        });
        stored.collect()
    }

    /// Whether the first `end` messages of a partition were delivered, whatever else.
    pub(super) fn has_all(&self, partition: u32, end: u64) -> bool {
        let book = self.lock();
        book.get(&partition).map_or(end == 0, |deliveries| {
            deliveries.tags.len() as u64 >= end && deliveries.tags.keys().copied().eq(0..end)
        })
    }

    /// How many deliveries there were, and how many of them were repeated.
    pub(super) fn counts(&self) -> (u64, u64) {
        let book = self.lock();
        let all: u64 = book.values().map(|deliveries| deliveries.count).sum();
        let different: u64 = book.values().map(|one| one.tags.len() as u64).sum();
        (all, all - different)
    }

    /// The message that was delivered from a place.
    pub(super) fn tags(&self) -> BTreeMap<(u32, u64), Tag> {
        let book = self.lock();
        let tags = book.iter().flat_map(|(partition, deliveries)| {
            let tags = deliveries.tags.iter();
            tags.map(|(offset, tag)| ((*partition, *offset), *tag))
        });
        tags.collect()
    }

    /// What is wrong with the order of what was delivered and stored.
    ///
    /// It goes by epochs and not by time: under each, offsets follow one another without a gap; the first one
    /// is behind what was stored under all earlier epochs, and not beyond what was delivered under them.
    pub(super) fn faults(&self) -> Vec<String> {
        let book = self.lock();
        let mut faults = Vec::new();
        for (partition, deliveries) in book.iter() {
            deliveries.judge(*partition, &mut faults);
        }
        faults
    }
}

impl Deliveries {
    fn ownership(&mut self, place: Place) -> &mut Ownership {
        self.epochs.entry(place.epoch).or_default()
    }

    fn judge(&self, partition: u32, faults: &mut Vec<String>) {
        let (mut stored, mut delivered): (Option<u64>, Option<u64>) = (None, None);
        for (epoch, ownership) in &self.epochs {
            let what = format!("partition {partition}, epoch {epoch}");
            for pair in ownership.delivered.windows(2) {
                if pair[1] != pair[0] + 1 {
                    faults.push(format!(
                        "{what}: {} was delivered after {}",
                        pair[1], pair[0]
                    ));
                }
            }
            if let Some(first) = ownership.delivered.first() {
                if stored.is_some_and(|stored| *first <= stored) {
                    faults.push(format!(
                        "{what}: {first} was delivered, {stored:?} was stored"
                    ));
                }
                if *first > delivered.map_or(0, |last| last + 1) {
                    faults.push(format!("{what}: begins at {first}, behind {delivered:?}"));
                }
            }
            if ownership.stored > ownership.delivered.last().copied() {
                faults.push(format!("{what}: stored what was not delivered"));
            }
            delivered = delivered.max(ownership.delivered.iter().copied().max());
            stored = stored.max(ownership.stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Book;
    use crate::Tag;
    use crate::nemesis::member::{Line, Place};

    fn book(lines: &[(&str, u64, u64)]) -> Vec<String> {
        let book = Book::default();
        for (kind, epoch, offset) in lines {
            let place = Place {
                partition: 0,
                epoch: *epoch,
                offset: *offset,
            };
            let tag = Tag {
                producer: 0,
                sequence: *offset,
            };
            book.enter(match *kind {
                "got" => Line::Got { place, tag },
                _ => Line::Stored { place },
            });
        }
        book.faults()
    }

    #[test]
    fn what_was_not_stored_may_come_again_under_a_later_epoch() {
        let lines = [
            ("got", 5, 0),
            ("got", 5, 1),
            ("stored", 5, 0),
            ("got", 9, 1),
            ("stored", 9, 1),
        ];
        assert_eq!(book(&lines), Vec::<String>::new());
    }

    #[test]
    fn gaps_and_repetitions_of_what_was_stored_are_found() {
        for lines in [
            &[("got", 5, 0), ("got", 5, 2)][..],
            &[("got", 5, 0), ("got", 5, 0)],
            &[("got", 5, 1)],
            &[("got", 5, 0), ("stored", 5, 0), ("got", 9, 0)],
            &[("got", 5, 0), ("got", 9, 2)],
            &[("got", 5, 0), ("stored", 5, 1)],
        ] {
            assert_eq!(book(lines).len(), 1, "{lines:?}");
        }
    }
}
