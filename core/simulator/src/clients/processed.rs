//! What members have processed, by the ownership in which they have: the next owner goes on behind it.

use std::collections::BTreeMap;

use catalog::GroupKey;
use wire::{Epoch, PartitionId};

/// A partition in a group, and the epoch since which one member owns it without a break.
pub(super) type Ownership = (GroupKey, PartitionId, Epoch);

/// The last message processed in each ownership; `None` where the owner has forgotten it.
#[derive(Debug, Default)]
pub(super) struct Processed(BTreeMap<Ownership, Option<u64>>);

impl Processed {
    /// The owner begins without knowing of anything before. Where it has begun already (it took itself for
    /// gone, and was not: the answer to a leave was lost), it goes on behind what is stored, and what it
    /// stores or releases says nothing of what it had processed before.
    pub(super) fn begin(&mut self, ownership: Ownership) {
        if let Some(last) = self.0.get_mut(&ownership) {
            *last = None;
        }
    }

    /// The owner has processed messages up to `last`. Returns whether they are the first ones of the
    /// ownership.
    pub(super) fn advance(&mut self, ownership: Ownership, last: u64) -> bool {
        match self.0.get_mut(&ownership) {
            None => {
                self.0.insert(ownership, Some(last));
                true
            }
            Some(known) => {
                *known = known.map(|_| last);
                false
            }
        }
    }

    /// The last message that was processed in the ownership, if anybody knows.
    pub(super) fn last(&self, ownership: &Ownership) -> Option<u64> {
        self.0.get(ownership).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use catalog::GroupKey;
    use wire::{ConsumerGroupId, Epoch, PartitionId, StreamId, TopicId};

    use super::Processed;

    #[test]
    fn owner_that_has_forgotten_what_it_processed_is_not_compared() {
        let key = GroupKey {
            stream: StreamId(1),
            topic: TopicId(1),
            group: ConsumerGroupId(1),
        };
        let ownership = (key, PartitionId(5), Epoch(63));
        let mut processed = Processed::default();
        processed.begin(ownership);
        assert!(processed.advance(ownership, 163), "its first messages");
        assert!(!processed.advance(ownership, 215));
        assert_eq!(processed.last(&ownership), Some(215));
        // It comes back in the same ownership: 215 was not stored.
        processed.begin(ownership);
        assert_eq!(processed.last(&ownership), None);
        assert!(!processed.advance(ownership, 215), "not its first messages");
        assert_eq!(processed.last(&ownership), None);
    }
}
