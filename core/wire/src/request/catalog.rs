//! Streams, topics, partitions.

use alloc::string::String;

use crate::{Identifier, StreamId, TopicId, field::body};

body! {
    /// Asks for one stream.
    GetStream {
        /// The stream.
        stream: Identifier,
    }

    /// Asks for the streams with an id above `after`.
    GetStreams {
        /// The last id of the page before; 0 for the first page.
        after: StreamId,
        /// The most streams to be answered; 0: as many as the server allows.
        limit: u32,
    }

    /// Makes a stream.
    CreateStream {
        /// Its name.
        name: String,
    }

    /// Removes a stream with its topics.
    DeleteStream {
        /// The stream.
        stream: Identifier,
    }

    /// Renames a stream.
    UpdateStream {
        /// The stream.
        stream: Identifier,
        /// Its new name.
        name: String,
    }

    /// Removes the messages of all topics of a stream, as PurgeTopic does.
    PurgeStream {
        /// The stream.
        stream: Identifier,
    }

    /// Asks for one topic with its partitions.
    GetTopic {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
    }

    /// Asks for the topics of a stream with an id above `after`.
    GetTopics {
        /// The stream.
        stream: Identifier,
        /// The last id of the page before; 0 for the first page.
        after: TopicId,
        /// The most topics to be answered; 0: as many as the server allows.
        limit: u32,
    }

    /// Makes a topic.
    CreateTopic {
        /// The stream.
        stream: Identifier,
        /// Its name.
        name: String,
        /// Its number of partitions, at least 1.
        partitions: u32,
    }

    /// Removes a topic with its partitions and consumer groups.
    DeleteTopic {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
    }

    /// Renames a topic.
    UpdateTopic {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// Its new name.
        name: String,
    }

    /// Removes the messages of a topic, and what consumers and consumer groups have stored. Each partition
    /// begins anew as another incarnation; its offsets go on where they were.
    PurgeTopic {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
    }

    /// Adds partitions to a topic. Keys are placed anew from then on.
    CreatePartitions {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// How many to add.
        count: u32,
    }

    /// Removes the last partitions of a topic with their messages and stored offsets.
    DeletePartitions {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// How many to remove; at least one partition stays.
        count: u32,
    }
}
