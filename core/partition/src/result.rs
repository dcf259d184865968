//! What a committed request is answered with.

use alloc::string::{String, ToString};

use wire::{ConsumerGroupId, Epoch, ErrorCode, Failure, Incarnation, Offset, Op, PartitionKey};

use crate::{EpochHolder, GroupRecord};

/// The result of one committed request; equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataResult {
    /// The partition is there with the incarnation named; perhaps it was before.
    Created,
    /// The incarnation named is not there any more; perhaps it never was.
    Dropped,
    /// The batch is in the partition.
    Appended {
        /// Offset of its first message.
        base_offset: Offset,
        /// It was there already: the producer sent it twice, and this is where the first one went.
        repeated: bool,
    },
    /// An offset is stored for the consumer.
    Stored {
        /// The one that is stored now: the one asked for, or a higher one of before.
        stored: Offset,
    },
    /// Nothing is stored for the consumer any more.
    OffsetDeleted {
        /// What was.
        stored: Offset,
    },
    /// Messages before `start` are gone.
    HeadTruncated {
        /// The partition's start.
        start: Offset,
    },
    /// A consumer group has this in the partition now. A fence that was too low, a store that was behind,
    /// and a release to a grant that is behind the fence are answered so too.
    Record {
        /// The consumer group.
        group: ConsumerGroupId,
        /// What it has.
        record: GroupRecord,
    },
    /// Nothing is known of the consumer group any more.
    ConsumerGroupDropped {
        /// The consumer group.
        group: ConsumerGroupId,
    },
    /// Refused; nothing was changed, except that a consumer group's store of an offset that does not exist
    /// raises the fence.
    Failed(Refusal),
}

/// What came of one request of a data prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The partition.
    pub key: PartitionKey,
    /// The incarnation named.
    pub incarnation: Incarnation,
    /// The result.
    pub result: DataResult,
}

/// Why a partition is not looked at: what is asked for was resolved from metadata that this data group
/// is behind, or that is old. Resolving it again and asking again helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// The partition is not here: not created yet, or dropped.
    #[error("the partition is not here")]
    NotHere,
    /// It is here with another incarnation.
    #[error("the partition has incarnation {here}, not {named}")]
    OtherIncarnation {
        /// The one here.
        here: Incarnation,
        /// The one asked for.
        named: Incarnation,
    },
}

/// Why a committed request changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The partition is not looked at.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// The offset is not that of a message, or not a start that the partition can have.
    #[error(
        "offset {offset} is out of range: the partition starts at {start} and ends before {end}"
    )]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// The first offset held.
        start: Offset,
        /// The offset of the next message.
        end: Offset,
    },
    /// A batch of the producer is missing before this one.
    #[error("sequence {sequence} of the producer is out of order: {expected} is the next")]
    SequenceOutOfOrder {
        /// The batch's sequence.
        sequence: u64,
        /// The one that would be appended.
        expected: u64,
    },
    /// The sequence was appended before, and is not among those whose offsets are kept.
    #[error(
        "sequence {sequence} of the producer was appended before, {last} is the last; its offset is no longer kept"
    )]
    SequenceTooOld {
        /// The batch's sequence.
        sequence: u64,
        /// The producer's last.
        last: u64,
    },
    /// Another batch was appended under the sequence: two producers use one id, or one began anew with
    /// its old id.
    #[error(
        "sequence {sequence} of the producer names another batch, at offset {offset}; a producer that begins anew takes a new id"
    )]
    SequenceReused {
        /// The batch's sequence.
        sequence: u64,
        /// Where the other batch is.
        offset: Offset,
    },
    /// The partition knows nothing of the producer, which has sent batches before: it was silent for so
    /// long that it was forgotten, or the partition was purged.
    #[error(
        "the producer is not known here, so sequence {sequence} cannot be checked; only 1 begins a producer"
    )]
    ProducerUnknown {
        /// The batch's sequence.
        sequence: u64,
    },
    /// As many consumers as may have stored an offset in the partition.
    #[error("{limit} consumers have offsets stored in the partition, and no more may")]
    TooManyConsumers {
        /// The limit.
        limit: u64,
    },
    /// The consumer has nothing stored.
    #[error("the consumer has no offset stored in the partition")]
    OffsetNotStored,
    /// The partition was granted again since.
    #[error("epoch {epoch} is stale: the consumer group's fence in the partition is at {fence}")]
    StaleEpoch {
        /// The epoch named.
        epoch: Epoch,
        /// The fence.
        fence: Epoch,
    },
    /// The epoch is another member's, or another session's, or nobody's.
    #[error(
        "epoch {epoch} of the partition belongs to {}, not to {asked}",
        name(here)
    )]
    NotHolder {
        /// The epoch, which is the fence.
        epoch: Epoch,
        /// Whose it is.
        here: Option<EpochHolder>,
        /// Who asked.
        asked: EpochHolder,
    },
    /// What it is about may be deleted: it rests on metadata that is older than the last deletion that
    /// the data group knows of, and the consumer group has nothing in the partition.
    #[error("resolved from the metadata of op {admitted}, before the deletion at op {dropped}")]
    GroupGone {
        /// The metadata op applied at admission.
        admitted: Op,
        /// The metadata op of the last deletion.
        dropped: Op,
    },
}

fn name(holder: &Option<EpochHolder>) -> String {
    match holder {
        Some(holder) => holder.to_string(),
        None => "nobody".to_string(),
    }
}

impl Refusal {
    /// The code for programs.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Absent(_) => ErrorCode::Retry,
            Self::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Self::SequenceOutOfOrder { .. } => ErrorCode::SequenceOutOfOrder,
            Self::SequenceTooOld { .. } => ErrorCode::SequenceTooOld,
            Self::SequenceReused { .. } => ErrorCode::SequenceReused,
            Self::ProducerUnknown { .. } => ErrorCode::ProducerUnknown,
            Self::TooManyConsumers { .. } => ErrorCode::TooManyConsumers,
            Self::OffsetNotStored => ErrorCode::OffsetNotStored,
            Self::StaleEpoch { .. } => ErrorCode::StaleEpoch,
            Self::NotHolder { .. } => ErrorCode::PartitionNotOwned,
            Self::GroupGone { .. } => ErrorCode::Retry,
        }
    }

    /// The error reply.
    #[must_use]
    pub fn failure(&self) -> Failure {
        Failure::new(self.code(), self.to_string())
    }
}
