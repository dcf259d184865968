//! Offsets that single consumers have stored in one partition. Names are a key space of their own: no
//! consumer group's offset is ever found under one.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use wire::Offset;

use crate::Refusal;

/// The stored offsets of one partition. A stored offset is that of the last message processed, and only
/// rises.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offsets {
    by_name: BTreeMap<String, Offset>,
}

impl Offsets {
    /// What is stored for the consumer.
    pub(crate) fn stored(&self, consumer: &str) -> Option<Offset> {
        self.by_name.get(consumer).copied()
    }

    /// Stores an offset, unless a higher one is stored: a late or repeated store never moves it back.
    /// Returns what is stored then. The caller has checked that the message exists.
    pub(crate) fn store(
        &mut self,
        consumer: String,
        offset: Offset,
        consumers_max: usize,
    ) -> Result<Offset, Refusal> {
        if let Some(stored) = self.by_name.get_mut(&consumer) {
            *stored = offset.max(*stored);
            return Ok(*stored);
        }
        if self.by_name.len() >= consumers_max {
            let limit = consumers_max as u64;
            return Err(Refusal::TooManyConsumers { limit });
        }
        self.by_name.insert(consumer, offset);
        Ok(offset)
    }

    /// Forgets the consumer; returns what was stored.
    pub(crate) fn delete(&mut self, consumer: &str) -> Option<Offset> {
        self.by_name.remove(consumer)
    }

    pub(crate) fn snapshot(&self) -> Vec<(String, Offset)> {
        let consumers = self.by_name.iter();
        consumers
            .map(|(name, offset)| (name.clone(), *offset))
            .collect()
    }

    pub(crate) fn restore(consumers: Vec<(String, Offset)>) -> Self {
        Self {
            by_name: consumers.into_iter().collect(),
        }
    }
}
