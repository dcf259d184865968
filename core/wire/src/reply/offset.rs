//! Stored offsets.

use alloc::vec::Vec;

use crate::{Failure, Offset, PartitionId, ReplicaId, field::body};

body! {
    /// What a consumer has stored, in the order of the request.
    Offsets {
        /// One per partition.
        sections: Vec<OffsetResult>,
    }

    /// What a consumer has stored for one partition.
    OffsetResult {
        /// The partition.
        partition: PartitionId,
        /// Whether it succeeded; if not, the offsets mean nothing.
        status: Result<(), Failure>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
        /// The offset of the oldest message.
        start: Offset,
        /// The offset behind the newest message.
        end: Offset,
        /// The last message processed.
        stored: Option<Offset>,
    }

    /// Offsets were stored, or not, in the order of the request.
    OffsetsStored {
        /// One per section.
        sections: Vec<StoreResult>,
    }

    /// How one partition's store went.
    StoreResult {
        /// The partition.
        partition: PartitionId,
        /// Whether it succeeded.
        status: Result<(), Failure>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
        /// What is stored now: not lower than before, perhaps higher than what was asked for.
        stored: Option<Offset>,
    }

    /// Offsets were forgotten, or not, in the order of the request.
    OffsetsDeleted {
        /// One per partition.
        sections: Vec<DeleteResult>,
    }

    /// How one partition's deletion went.
    DeleteResult {
        /// The partition.
        partition: PartitionId,
        /// Whether it succeeded.
        status: Result<(), Failure>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
    }
}
