//! What a shard has done since it started.

use alloc::vec::Vec;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a shard has done since it started, and what it holds now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Counters {
            /// Every counter with its name.
            pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].to_vec()
            }
        }
    };
}

counters! {
    /// Connections at this moment.
    connections,
    /// Requests, or parts of them, that went to another node, which leads their consensus group.
    forwarded,
    /// Prepares of other nodes that were not taken, because too much waited for the disk.
    prepares_dropped,
    /// Frames that were no requests, and requests that could not be read.
    requests_malformed,
    /// Requests taken.
    requests,
    /// Requests that were refused as a whole.
    requests_refused,
    /// Sections of sends that were appended.
    batches_appended,
    /// Messages in them.
    messages_appended,
    /// Bytes in them, headers included.
    bytes_appended,
    /// Batches that a producer had sent before.
    batches_repeated,
    /// Polls answered.
    polls,
    /// Polls that waited for messages.
    polls_waited,
    /// Bytes of batches served.
    bytes_polled,
    /// Ranges of segments read from disk or page cache.
    segment_reads,
    /// Offsets stored by consumers.
    offsets_stored,
    /// Polls of a consumer group's partition that were refused, or taken back before they were answered.
    group_polls_refused,
    /// Stores and releases that were refused.
    group_stores_refused,
    /// Partitions of consumer groups handed over because the owner released them.
    moves_released,
    /// Handed over because all that the owner was served was stored.
    moves_drained,
    /// Taken from the owner because its time was over.
    moves_timed_out,
    /// Given on because the owner was gone.
    moves_from_nobody,
    /// Handed over by a fence that was there already, of an earlier plan or before a restart.
    moves_fenced_before,
    /// Partitions of consumer groups that move, or are about to get their start, at this moment, as the
    /// shards that lead them see it.
    moving,
    /// Partitions of consumer groups at this moment, as the shards that lead them see it, whose owner has neither
    /// polled nor stored for 30 s although messages are left.
    stalled,
    /// Events that told sessions of another assignment.
    assignment_events,
    /// The numbers of the last ops applied, those of all consensus groups added up, also from before the start:
    /// equal on all nodes that have applied the same.
    ops_applied,
    /// Checkpoints taken.
    checkpoints,
    /// Bytes of full segments that were read back to see whether they are whole.
    bytes_scrubbed,
    /// Partitions found damaged.
    partitions_damaged,
    /// Damaged segments that another node had, and that are whole again here.
    segments_mended,
    /// Sessions at this moment, on the shard that hosts the metadata group.
    sessions,
    /// Logins refused.
    logins_refused,
}
