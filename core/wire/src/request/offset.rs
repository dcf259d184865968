//! Stored offsets.

use alloc::vec::Vec;

use super::Consumer;
use crate::{Epoch, Identifier, Offset, PartitionId, field::body};

body! {
    /// Asks what a consumer has stored.
    GetConsumerOffset {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The consumer.
        consumer: Consumer,
        /// The partitions, each at most once.
        partitions: Vec<PartitionId>,
    }

    /// Stores how far a consumer has got.
    StoreConsumerOffset {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The consumer.
        consumer: Consumer,
        /// One per partition, each partition at most once.
        sections: Vec<StoreSection>,
    }

    /// One partition of a store.
    StoreSection {
        /// The partition.
        partition: PartitionId,
        /// The epoch under which it is owned; 0 for a single consumer.
        epoch: Epoch,
        /// The last message that is processed.
        offset: Offset,
    }

    /// Forgets what a consumer has stored.
    DeleteConsumerOffset {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The consumer.
        consumer: Consumer,
        /// The partitions, each at most once.
        partitions: Vec<PartitionId>,
    }
}
