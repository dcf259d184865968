//! What an op changed, for those who follow the catalog.

use alloc::{string::String, vec::Vec};

use wire::{ClientId, EvictionReason, SessionNumber, StreamId, TopicId, UserId};

use crate::Placement;

/// One change of what the shards of a node keep in their [`Projection`](crate::Projection). The changes
/// of an op are published together, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A stream was created; it is empty.
    StreamCreated {
        /// The stream.
        stream: StreamId,
        /// Its name.
        name: String,
    },
    /// A stream has another name.
    StreamRenamed {
        /// The stream.
        stream: StreamId,
        /// The new name.
        name: String,
    },
    /// A stream was deleted; its topics were deleted before, by changes of their own.
    StreamDeleted {
        /// The stream.
        stream: StreamId,
    },
    /// A topic was created.
    TopicCreated {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// Its name.
        name: String,
        /// All its partitions, in order of ids.
        partitions: Vec<Placement>,
    },
    /// A topic has another name.
    TopicRenamed {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The new name.
        name: String,
    },
    /// A topic was deleted with all its partitions.
    TopicDeleted {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The partitions that it had, in order of ids: the data groups drop them.
        partitions: Vec<Placement>,
    },
    /// Partitions were added above the highest one.
    PartitionsCreated {
        /// Their stream.
        stream: StreamId,
        /// Their topic.
        topic: TopicId,
        /// The new ones, in order of ids.
        partitions: Vec<Placement>,
    },
    /// The highest partitions were deleted.
    PartitionsDeleted {
        /// Their stream.
        stream: StreamId,
        /// Their topic.
        topic: TopicId,
        /// The deleted ones, in order of ids: the data groups drop them.
        partitions: Vec<Placement>,
    },
    /// A session began.
    SessionRegistered {
        /// Its client.
        client: ClientId,
        /// Its number.
        session: SessionNumber,
        /// Who logged in.
        user: UserId,
    },
    /// A session ended.
    SessionEnded {
        /// Its client.
        client: ClientId,
        /// Its number.
        session: SessionNumber,
        /// Why.
        reason: EvictionReason,
    },
}
