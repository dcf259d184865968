//! Consumer groups.

use alloc::{string::String, vec::Vec};

use crate::{
    ClientId, ConsumerGroupId, Epoch, ErrorCode, Failure, Generation, GroupStart, Incarnation,
    MemberId, Offset, Op, PartitionId, ReplicaId, ResetTarget, SessionNumber, StreamId, Timestamp,
    TopicId,
    field::{body, states},
};

body! {
    /// The assignment of the session's member at one generation, from the answering node's copy of the
    /// metadata after the op that the header names.
    ConsumerGroupAssignment {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The consumer group.
        group: ConsumerGroupId,
        /// The member.
        member: MemberId,
        /// The group's generation.
        generation: Generation,
        /// Whether the group still waits for more members before it shares its partitions out.
        plan_pending: bool,
        /// How many members the group has.
        member_count: u32,
        /// How many partitions the topic has.
        partition_count: u32,
        /// What the member may poll and store, in order of partitions. What is on its way to it is not
        /// in here.
        owned: Vec<AssignedPartition>,
        /// What it has to give up, in order of partitions: it may store, not poll.
        revoking: Vec<RevokingPartition>,
    }

    /// A partition that a member owns.
    AssignedPartition {
        /// The partition.
        partition: PartitionId,
        /// The metadata op that created or purged it.
        incarnation: Incarnation,
        /// The epoch of polls and stores.
        epoch: Epoch,
        /// The epoch at which the unbroken ownership began.
        held_since: Epoch,
    }

    /// A partition that is being revoked from a member.
    RevokingPartition {
        /// The partition.
        partition: PartitionId,
        /// The metadata op that created or purged it.
        incarnation: Incarnation,
        /// The epoch of stores, and of the release.
        epoch: Epoch,
        /// The epoch at which the unbroken ownership began.
        held_since: Epoch,
        /// The epoch that the release has to name.
        planned: Epoch,
        /// About how long until it is taken, released or not, milliseconds.
        time_left_ms: u32,
    }

    /// A consumer group in a list.
    ConsumerGroupSummary {
        /// Its id.
        id: ConsumerGroupId,
        /// Its name.
        name: String,
        /// The metadata op that created it.
        created_op: Op,
        /// Its options.
        options: ConsumerGroupOptions,
        /// Its generation.
        generation: Generation,
        /// Whether it still waits for more members before it shares its partitions out.
        plan_pending: bool,
        /// Since when it has had no members; absent while it has any.
        empty_since: Option<Timestamp>,
        /// How many members it has.
        member_count: u32,
        /// How many partitions are moving.
        moving_count: u32,
    }

    /// The options of a consumer group.
    ConsumerGroupOptions {
        /// How long a member that a partition is revoked from may keep it to finish its work,
        /// milliseconds.
        rebalance_timeout_ms: u32,
        /// How long an empty group waits for more members after the first join before it shares its
        /// partitions out, milliseconds; 0: not at all.
        initial_delay_ms: u32,
        /// Where the group starts in a partition of which it has stored nothing.
        start: GroupStart,
        /// How long the group is kept while it has no members, milliseconds; 0: for good.
        offset_expiry_ms: u64,
    }

    /// A page of consumer groups.
    ConsumerGroups {
        /// In the order of their ids.
        groups: Vec<ConsumerGroupSummary>,
        /// Whether there are groups with a higher id.
        more: bool,
    }

    /// A consumer group with its members and partitions.
    ConsumerGroupDetails {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// What a list tells of it.
        summary: ConsumerGroupSummary,
        /// In the order of their ids.
        members: Vec<MemberDetails>,
        /// Every partition of the topic, in the order of their ids.
        partitions: Vec<OwnershipDetails>,
    }

    /// A member of a consumer group.
    MemberDetails {
        /// Its id.
        id: MemberId,
        /// The client whose session it is.
        client: ClientId,
        /// The session.
        session: SessionNumber,
        /// From where its session joined, for people; absent when that is not known.
        address: Option<String>,
        /// The instance id of a static member.
        instance: Option<String>,
        /// Its weight.
        weight: u16,
        /// Whether its session lives.
        state: MemberStatus,
        /// When it joined; a take-over does not change it.
        joined: Timestamp,
        /// From whom its session took it over, where that session lived: two processes hold, or held, one
        /// instance id.
        displaced: Option<DisplacedSession>,
    }

    /// A session whose membership another one has taken over.
    DisplacedSession {
        /// Its client.
        client: ClientId,
        /// The session.
        session: SessionNumber,
        /// When it was taken over.
        at: Timestamp,
    }

    /// Who holds a partition for a consumer group, where it goes, and how far the group has got in it.
    OwnershipDetails {
        /// The partition.
        partition: PartitionId,
        /// The metadata op that created or purged it.
        incarnation: Incarnation,
        /// The epoch of the last grant; 0: it was never owned.
        epoch: Epoch,
        /// Who owns it, also while it is being revoked.
        owner: Option<PartitionOwner>,
        /// Where it goes, if it moves.
        moving: Option<PartitionMove>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
        /// How far the group has got; or why the node that answers does not know it: `NotPrimary`,
        /// `NotReady`, `PartitionDamaged`.
        progress: Result<GroupProgress, ErrorCode>,
    }

    /// The owner of a partition.
    PartitionOwner {
        /// The member.
        member: MemberId,
        /// The epoch at which its unbroken ownership began.
        held_since: Epoch,
    }

    /// A partition that moves from its owner, if it has one.
    PartitionMove {
        /// The member that it goes to, if there is one.
        to: Option<MemberId>,
        /// The epoch that it will have there.
        planned: Epoch,
        /// When it began to move.
        since: Timestamp,
        /// What the stored offset is set to, if it is.
        reset: Option<ResetTarget>,
        /// What it waits for; absent when the node that answers does not know it.
        waits_for: Option<MoveWait>,
        /// About how long until a revocation ends without its owner, milliseconds; absent when the move
        /// has no deadline, or the node that answers does not know it.
        time_left_ms: Option<u32>,
    }

    /// How far a consumer group has got in a partition.
    GroupProgress {
        /// The offset of the oldest message.
        start: Offset,
        /// The offset behind the newest message.
        end: Offset,
        /// The last message processed.
        stored: Option<Offset>,
        /// The message that the group goes on with: stored + 1, not before `start`.
        next: Offset,
        /// How many messages there are from `next` on.
        lag: u64,
        /// The highest offset that was served since its owner's ownership began; absent when nothing was,
        /// or it is not known since another node led the data group.
        last_polled: Option<Offset>,
        /// The highest epoch that the data group has seen; older ones are refused.
        fence: Epoch,
        /// How long ago the owner polled the partition, milliseconds; absent when it has not since its
        /// ownership began, or since the node leads the data group.
        polled_ms_ago: Option<u32>,
        /// How long ago the owner stored an offset, milliseconds; absent in the same cases.
        stored_ms_ago: Option<u32>,
        /// For how long the owner has neither polled nor stored, milliseconds, counted at most since its
        /// ownership began or the node leads the data group; absent where no messages are left or nobody
        /// owns the partition. A member that only gives signs of life shows here.
        stalled_ms: Option<u32>,
    }

    /// Partitions were released, or not, in the order of the request.
    PartitionsReleased {
        /// One per section.
        sections: Vec<ReleaseResult>,
    }

    /// How the release of one partition went.
    ReleaseResult {
        /// The partition.
        partition: PartitionId,
        /// Whether it succeeded. `RevocationChanged`: the offset is stored, nothing was released.
        status: Result<(), Failure>,
        /// The node that leads the partition's data group.
        primary: ReplicaId,
        /// What is stored now: not lower than before, perhaps higher than what was asked for.
        stored: Option<Offset>,
    }

    /// The offsets of a consumer group are reset.
    OffsetsReset {
        /// The consumer group.
        group: ConsumerGroupId,
        /// Its generation after the op of the reset.
        generation: Generation,
        /// How many partitions were reset.
        partition_count: u32,
    }
}

states! {
    /// Whether a member's session lives.
    MemberStatus {
        /// It does.
        Active = 1,
        /// It has ended; a static member keeps its partitions for a while.
        Detached = 2,
    }

    /// What a partition that moves waits for.
    MoveWait {
        /// That the owner stores all that it was served, releases the partition, or runs out of time.
        Drain = 1,
        /// That the owner releases the partition, or runs out of time: what it was served is not known
        /// since another node led the data group.
        Release = 2,
        /// That the data group commits the fence.
        Fence = 3,
        /// That the metadata group commits the completion; the fence is raised.
        Completion = 4,
        /// That the data group begins the partition's new incarnation.
        Incarnation = 5,
    }
}
