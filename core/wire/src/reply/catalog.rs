//! Streams, topics, partitions.

use alloc::{string::String, vec::Vec};

use crate::{
    ConsensusGroup, Incarnation, Offset, PartitionId, StreamId, Timestamp, TopicId, field::body,
};

body! {
    /// A stream.
    StreamDetails {
        /// Its id.
        id: StreamId,
        /// Its name.
        name: String,
        /// When it was made.
        created: Timestamp,
        /// How many topics it has.
        topics: u32,
    }

    /// A page of streams.
    Streams {
        /// In the order of their ids.
        streams: Vec<StreamDetails>,
        /// Whether there are streams with a higher id.
        more: bool,
    }

    /// A topic with its partitions.
    TopicDetails {
        /// Its stream.
        stream: StreamId,
        /// Its id.
        id: TopicId,
        /// Its name.
        name: String,
        /// When it was made.
        created: Timestamp,
        /// In the order of their ids.
        partitions: Vec<PartitionDetails>,
    }

    /// A partition.
    PartitionDetails {
        /// Its id.
        id: PartitionId,
        /// The metadata op that created it.
        incarnation: Incarnation,
        /// The data group that holds it.
        group: ConsensusGroup,
        /// The offset of its oldest message, where the node knows it.
        start: Option<Offset>,
        /// The offset behind its newest message, where the node knows it.
        end: Option<Offset>,
    }

    /// A topic in a list.
    TopicSummary {
        /// Its id.
        id: TopicId,
        /// Its name.
        name: String,
        /// When it was made.
        created: Timestamp,
        /// How many partitions it has.
        partitions: u32,
    }

    /// A page of topics.
    Topics {
        /// In the order of their ids.
        topics: Vec<TopicSummary>,
        /// Whether there are topics with a higher id.
        more: bool,
    }

    /// Partitions were added or removed.
    PartitionsChanged {
        /// How many the topic has now.
        partitions: u32,
    }
}
