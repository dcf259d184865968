//! A consumer group for tests.

use cohort::{
    ClientId, ConsumerGroupDetails, ConsumerGroupId, ConsumerGroupOptions, ConsumerGroupSummary,
    Epoch, Generation, GroupProgress, GroupStart, Incarnation, MemberDetails, MemberId,
    MemberStatus, Offset, Op, OwnershipDetails, PartitionId, PartitionOwner, ReplicaId,
    SessionNumber, StreamId, Timestamp, TopicId,
};

pub(crate) const NOON: Timestamp = Timestamp(1_772_366_400_250_000);

pub(crate) fn summary(name: &str, member_count: u32, moving_count: u32) -> ConsumerGroupSummary {
    ConsumerGroupSummary {
        id: ConsumerGroupId(1),
        name: name.to_string(),
        created_op: Op(9),
        options: ConsumerGroupOptions {
            rebalance_timeout_ms: 30_000,
            initial_delay_ms: 250,
            start: GroupStart::Earliest,
            offset_expiry_ms: 0,
        },
        generation: Generation(4),
        plan_pending: false,
        empty_since: (member_count == 0).then_some(NOON),
        member_count,
        moving_count,
    }
}

fn member(id: u64, instance: Option<&str>, state: MemberStatus) -> MemberDetails {
    MemberDetails {
        id: MemberId(id),
        client: ClientId(0xc0ff_ee00_u128 << 96 | u128::from(id)),
        session: SessionNumber(20 + id),
        address: Some("127.0.0.1:40112".to_string()),
        instance: instance.map(str::to_string),
        weight: 1,
        state,
        joined: NOON,
        displaced: None,
    }
}

pub(crate) fn partition(id: u32, owner: Option<u64>, stored: Option<u64>) -> OwnershipDetails {
    let next = stored.map_or(10, |stored| stored + 1);
    OwnershipDetails {
        partition: PartitionId(id),
        incarnation: Incarnation(3),
        epoch: Epoch(12),
        owner: owner.map(|member| PartitionOwner {
            member: MemberId(member),
            held_since: Epoch(12),
        }),
        moving: None,
        primary: ReplicaId(0),
        progress: Ok(GroupProgress {
            start: Offset(10),
            end: Offset(100),
            stored: stored.map(Offset),
            next: Offset(next),
            lag: 100 - next,
            last_polled: stored.map(Offset),
            fence: Epoch(12),
            polled_ms_ago: Some(1_250),
            stored_ms_ago: stored.map(|_| 900),
            stalled_ms: (next < 100).then_some(900),
        }),
    }
}

pub(crate) fn group() -> ConsumerGroupDetails {
    ConsumerGroupDetails {
        stream: StreamId(1),
        topic: TopicId(3),
        summary: summary("billing", 2, 0),
        members: vec![
            member(1, None, MemberStatus::Active),
            member(2, Some("till-2"), MemberStatus::Detached),
        ],
        partitions: vec![
            partition(0, Some(1), Some(98)),
            partition(1, Some(2), None),
            partition(2, Some(1), Some(99)),
        ],
    }
}
