//! What a data group is told when it starts.

use wire::ConsensusGroup;

/// What a data group is told when it starts.
///
/// The first group of fields decides results and files, so it must be equal on all replicas; the others
/// are this node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataConfig {
    /// The data group.
    pub group: ConsensusGroup,
    /// Bytes at which a segment is closed; a larger batch has a segment to itself.
    pub segment_size: u64,
    /// Producers remembered per partition; one more forgets the one that has been silent longest.
    pub producers_max: usize,
    /// Single consumers that may have an offset stored in a partition.
    pub consumers_max: usize,

    /// Bytes of recent batches kept in memory, all partitions together. Batches that are not in their
    /// segment yet are kept whatever it says.
    pub tail_budget: u64,
    /// Bytes of indexes of full segments kept in memory, all partitions together.
    pub index_budget: u64,
}

impl DataConfig {
    /// The defaults for `group`.
    #[must_use]
    pub const fn new(group: ConsensusGroup) -> Self {
        Self {
            group,
            segment_size: 64 * 1024 * 1024,
            producers_max: 1024,
            consumers_max: 10_000,
            tail_budget: 16 * 1024 * 1024,
            index_budget: 2 * 1024 * 1024,
        }
    }
}
