//! Consumer groups.

use alloc::{string::String, vec::Vec};

use crate::{
    ConsumerGroupId, DecodeError, Epoch, Identifier, MemberId, Offset, PartitionId, Reader,
    Timestamp, Writer,
    field::{Field, body},
};

body! {
    /// Asks for one consumer group: members, ownership, progress.
    GetConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
    }

    /// Asks for the consumer groups of a topic with an id above `after`.
    GetConsumerGroups {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The last id of the page before; 0 for the first page.
        after: ConsumerGroupId,
        /// The most groups to be answered; 0: as many as the server allows.
        limit: u32,
    }

    /// Makes a consumer group.
    CreateConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// Its name.
        name: String,
        /// Its options; those that are absent get their defaults.
        options: ConsumerGroupOptionsUpdate,
    }

    /// Removes a consumer group with its stored offsets.
    DeleteConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
        /// Whether to do it although the group has members; each of them is fenced.
        force: bool,
    }

    /// Makes the session a member of a consumer group; answers the same membership when it is one.
    JoinConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
        /// Makes it a static member, which another session with the same instance id takes over.
        instance: Option<String>,
        /// How large a share of the partitions it takes, compared with the other members; usually 1. 0:
        /// none while anybody else has a weight.
        weight: u16,
    }

    /// Ends the session's membership.
    LeaveConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
    }

    /// Asks for the assignment of the session's member.
    SyncConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
    }

    /// Stores the last offsets of partitions that are being revoked, and gives them up.
    ReleasePartition {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group that the session is a member of.
        group: Identifier,
        /// One per partition, each partition at most once.
        sections: Vec<ReleaseSection>,
    }

    /// One partition that is given up.
    ReleaseSection {
        /// The partition.
        partition: PartitionId,
        /// The epoch under which it is owned.
        epoch: Epoch,
        /// The epoch of the revocation, as the assignment told it.
        planned: Epoch,
        /// The last message that is processed; absent: nothing is to be stored.
        offset: Option<Offset>,
    }

    /// Ends somebody's membership.
    RemoveMember {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
        /// The member.
        member: MemberId,
    }

    /// Changes options of a consumer group; those that are absent stay.
    UpdateConsumerGroup {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
        /// What changes.
        options: ConsumerGroupOptionsUpdate,
    }

    /// Options of a consumer group, as far as they are told.
    ConsumerGroupOptionsUpdate {
        /// How long a member that a partition is revoked from may keep it to finish its work,
        /// milliseconds.
        rebalance_timeout_ms: Option<u32>,
        /// How long an empty group waits for more members after the first join before it shares its
        /// partitions out, milliseconds; 0: not at all.
        initial_delay_ms: Option<u32>,
        /// Where the group starts in a partition of which it has stored nothing.
        start: Option<GroupStart>,
        /// How long the group is kept while it has no members, milliseconds; 0: for good.
        offset_expiry_ms: Option<u64>,
    }

    /// Sets the stored offsets of a consumer group, backwards too.
    ResetConsumerOffset {
        /// The stream.
        stream: Identifier,
        /// The topic.
        topic: Identifier,
        /// The group.
        group: Identifier,
        /// Whether to do it although the group has members: each loses the partitions for a moment and
        /// gets them back under new epochs.
        force: bool,
        /// What becomes of every partition that `sections` does not name; absent: they stay as they are.
        others: Option<ResetTarget>,
        /// One per partition, each partition at most once; at least one unless `others` is there.
        sections: Vec<ResetSection>,
    }

    /// One partition of a reset.
    ResetSection {
        /// The partition.
        partition: PartitionId,
        /// What becomes of its stored offset.
        to: ResetTarget,
    }
}

/// Where a consumer group starts in a partition of which it has stored nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStart {
    /// At the oldest message. On the wire: kind 1.
    Earliest,
    /// Behind the newest message. On the wire: kind 2.
    Latest,
    /// At the first message with a broker time at or after this. On the wire: kind 3, u64.
    Timestamp(Timestamp),
}

impl Field for GroupStart {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.kind(field)? {
            1 => Ok(Self::Earliest),
            2 => Ok(Self::Latest),
            3 => Ok(Self::Timestamp(Field::read(reader, field)?)),
            kind => Err(reader.invalid(field, start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Earliest => writer.u8(1),
            Self::Latest => writer.u8(2),
            Self::Timestamp(timestamp) => writer.u8(3).u64(timestamp.0),
        };
    }
}

/// What a reset makes of a stored offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTarget {
    /// This offset is stored: the group goes on with the message after it. On the wire: kind 1, u64.
    Offset(Offset),
    /// The group goes on with the first message that has a broker time at or after this. On the wire:
    /// kind 2, u64.
    Timestamp(Timestamp),
    /// The group goes on with the oldest message. On the wire: kind 3.
    Earliest,
    /// The group goes on behind the newest message. On the wire: kind 4.
    Latest,
    /// Nothing is stored any more: the group starts by its policy. On the wire: kind 5.
    Nothing,
}

impl Field for ResetTarget {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.kind(field)? {
            1 => Ok(Self::Offset(Field::read(reader, field)?)),
            2 => Ok(Self::Timestamp(Field::read(reader, field)?)),
            3 => Ok(Self::Earliest),
            4 => Ok(Self::Latest),
            5 => Ok(Self::Nothing),
            kind => Err(reader.invalid(field, start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Offset(offset) => writer.u8(1).u64(offset.0),
            Self::Timestamp(timestamp) => writer.u8(2).u64(timestamp.0),
            Self::Earliest => writer.u8(3),
            Self::Latest => writer.u8(4),
            Self::Nothing => writer.u8(5),
        };
    }
}
