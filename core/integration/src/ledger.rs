//! What was sent, what was acknowledged, and what must be there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use wire::{Offset, TopicDetails};

use crate::{Connection, Page, Tag, again, payload};

/// Notes every message before it is sent, and every acknowledgement before it counts. Clones share it.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Bytes of a payload.
    size: usize,
    /// Messages that each producer has sent.
    sent: BTreeMap<u32, u64>,
    /// Where each acknowledged message is, by partition and offset.
    acknowledged: BTreeMap<(u32, u64), Tag>,
}

/// What [`Ledger::check`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Messages that could be read.
    pub messages: u64,
    /// Those among them that were acknowledged.
    pub acknowledged: u64,
}

impl Ledger {
    /// An empty one, for payloads of `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            size,
            sent: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        })))
    }

    /// Notes that `producer` sends its next message, and gives its payload.
    #[must_use]
    pub fn send(&self, producer: u32) -> (Tag, Bytes) {
        let mut state = self.lock();
        let size = state.size;
        let sent = state.sent.entry(producer).or_default();
        let tag = Tag {
            producer,
            sequence: *sent,
        };
        *sent += 1;
        (tag, payload(tag, size))
    }

    /// Notes that a message is acknowledged to be at this place.
    ///
    /// # Panics
    /// When another one was acknowledged to be there.
    pub fn acknowledge(&self, tag: Tag, partition: u32, offset: Offset) {
        let before = self.lock().acknowledged.insert((partition, offset.0), tag);
        assert!(
            before.is_none_or(|before| before == tag),
            "offset {offset} of partition {partition} was given to {before:?} and to {tag:?}"
        );
    }

    /// Messages that were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.lock().acknowledged.len() as u64
    }

    /// The message that is acknowledged to be at this place.
    #[must_use]
    pub fn at(&self, partition: u32, offset: Offset) -> Option<Tag> {
        let state = self.lock();
        state.acknowledged.get(&(partition, offset.0)).copied()
    }

    /// Messages that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.lock().sent.values().sum()
    }

    /// Reads all partitions of the topic, and compares.
    ///
    /// # Panics
    /// When offsets have a gap; when a message is not one that was sent, byte for byte, or is there twice, or
    /// before one that its producer sent earlier; when one that was acknowledged is not in its place.
    pub fn check(&self, connection: &mut Connection, topic: &TopicDetails) -> Found {
        // What is acknowledged before the reading begins must be read, and what was sent before it ends may
        // be: messages may go on being sent.
        let acknowledged = self.lock().acknowledged.clone();
        let pages: Vec<(u32, Page)> = topic
            .partitions
            .iter()
            .map(|partition| {
                let partition = partition.id.0;
                // Another node may come to lead it meanwhile.
                let page = again("the partition can be read", || {
                    connection.read_from(topic, partition, Offset(0))
                });
                (partition, page)
            })
            .collect();
        let state = self.lock();
        let (size, sent) = (state.size, state.sent.clone());
        drop(state);
        let state = State {
            size,
            sent,
            acknowledged,
        };
        state.compare(&pages)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn compare(&self, pages: &[(u32, Page)]) -> Found {
        let mut found = Found::default();
        let mut seen = BTreeSet::new();
        for (partition, page) in pages {
            let mut last: BTreeMap<u32, u64> = BTreeMap::new();
            for (expected, (offset, bytes)) in (0..).zip(&page.messages) {
                assert_eq!(offset.0, expected, "offsets of {partition} are dense");
                let tag = self.verify(bytes);
                assert!(seen.insert(tag), "{tag:?} is there twice");
                let before = last.insert(tag.producer, tag.sequence);
                assert!(
                    before.is_none_or(|before| before < tag.sequence),
                    "{tag:?} is behind {before:?}"
                );
                if let Some(acknowledged) = self.acknowledged.get(&(*partition, offset.0)) {
                    assert_eq!(*acknowledged, tag, "at offset {offset} of {partition}");
                    found.acknowledged += 1;
                }
                found.messages += 1;
            }
            assert_eq!(page.end.0, page.messages.len() as u64);
        }
        let acknowledged = self.acknowledged.len() as u64;
        assert_eq!(
            found.acknowledged, acknowledged,
            "everything acknowledged is in its place"
        );
        found
    }

    fn verify(&self, bytes: &Bytes) -> Tag {
        let tag = Tag::of(bytes).expect("a message that says what it is");
        let sent = self.sent.get(&tag.producer).copied().unwrap_or_default();
        assert!(tag.sequence < sent, "{tag:?} was never sent");
        assert_eq!(*bytes, payload(tag, self.size), "{tag:?} as it was sent");
        tag
    }
}
