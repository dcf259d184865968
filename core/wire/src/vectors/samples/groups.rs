//! Consumer groups.

use std::{vec, vec::Vec};

use super::{CLIENT, MOMENT, SESSION, Vector, add_exchange, add_reply, add_request, stream, topic};
use crate::{
    AssignedPartition, ClientId, Command, ConsumerGroupAssignment, ConsumerGroupDetails,
    ConsumerGroupId, ConsumerGroupOptions, ConsumerGroupOptionsUpdate, ConsumerGroupSummary,
    ConsumerGroups, CreateConsumerGroup, DeleteConsumerGroup, DisplacedSession, Epoch, ErrorCode,
    Failure, Generation, GetConsumerGroup, GetConsumerGroups, GroupProgress, GroupStart,
    Identifier, Incarnation, JoinConsumerGroup, LeaveConsumerGroup, MemberDetails, MemberId,
    MemberStatus, MoveWait, Offset, OffsetsReset, Op, OwnershipDetails, PartitionId, PartitionMove,
    PartitionOwner, PartitionsReleased, ReleasePartition, ReleaseResult, ReleaseSection,
    RemoveMember, ReplicaId, Reply, ResetConsumerOffset, ResetSection, ResetTarget,
    RevokingPartition, SessionNumber, StreamId, SyncConsumerGroup, Timestamp, TopicId,
    UpdateConsumerGroup,
};

const OTHER_CLIENT: ClientId = ClientId(0x5f5e_5d5c_5b5a_5958_5756_5554_5352_5150);

pub(super) fn add(vectors: &mut Vec<Vector>) {
    add_details(vectors);
    add_list(vectors);
    add_changes(vectors);
    add_members(vectors);
    add_assignments(vectors);
    add_release(vectors);
    add_reset(vectors);
}

/// The group of the samples.
fn group() -> Identifier {
    Identifier::Number(3)
}

fn summary(members: u32) -> ConsumerGroupSummary {
    ConsumerGroupSummary {
        id: ConsumerGroupId(3),
        name: "billing".into(),
        created_op: Op(43),
        options: ConsumerGroupOptions {
            rebalance_timeout_ms: 30_000,
            initial_delay_ms: 0,
            start: GroupStart::Latest,
            offset_expiry_ms: 604_800_000,
        },
        generation: Generation(if members == 0 { 0 } else { 17 }),
        plan_pending: false,
        empty_since: (members == 0).then_some(Timestamp(MOMENT)),
        member_count: members,
        moving_count: members,
    }
}

/// A group of which everything is told that can be told.
pub(crate) fn largest_group() -> ConsumerGroupDetails {
    let [member, _] = members();
    let [moving, _, _] = partitions();
    ConsumerGroupDetails {
        stream: StreamId(1),
        topic: TopicId(2),
        summary: summary(1),
        members: vec![member],
        partitions: vec![OwnershipDetails {
            moving: moving.moving.map(|moving| PartitionMove {
                reset: Some(ResetTarget::Offset(Offset(41))),
                ..moving
            }),
            ..moving
        }],
    }
}

fn members() -> [MemberDetails; 2] {
    [
        MemberDetails {
            id: MemberId(7),
            client: CLIENT,
            session: SessionNumber(SESSION),
            address: Some("192.0.2.7:51834".into()),
            instance: Some("billing-1".into()),
            weight: 1,
            state: MemberStatus::Active,
            joined: Timestamp(MOMENT),
            displaced: Some(DisplacedSession {
                client: OTHER_CLIENT,
                session: SessionNumber(39),
                at: Timestamp(MOMENT + 5),
            }),
        },
        MemberDetails {
            id: MemberId(9),
            client: OTHER_CLIENT,
            session: SessionNumber(40),
            address: None,
            instance: None,
            weight: 1,
            state: MemberStatus::Detached,
            joined: Timestamp(MOMENT + 9),
            displaced: None,
        },
    ]
}

/// One that is being revoked, one that waits for its fence on another node, one that was never owned.
fn partitions() -> [OwnershipDetails; 3] {
    let revoked = OwnershipDetails {
        partition: PartitionId(0),
        incarnation: Incarnation(42),
        epoch: Epoch(50),
        owner: Some(PartitionOwner {
            member: MemberId(7),
            held_since: Epoch(48),
        }),
        moving: Some(PartitionMove {
            to: Some(MemberId(9)),
            planned: Epoch(57),
            since: Timestamp(MOMENT + 9),
            reset: None,
            waits_for: Some(MoveWait::Drain),
            time_left_ms: Some(28_500),
        }),
        primary: ReplicaId(0),
        progress: Ok(GroupProgress {
            start: Offset(10),
            end: Offset(1_002),
            stored: Some(Offset(999)),
            next: Offset(1_000),
            lag: 2,
            last_polled: Some(Offset(1_001)),
            fence: Epoch(50),
            polled_ms_ago: Some(12_000),
            stored_ms_ago: Some(11_500),
            stalled_ms: Some(11_500),
        }),
    };
    let fencing = OwnershipDetails {
        partition: PartitionId(1),
        owner: None,
        moving: Some(PartitionMove {
            to: None,
            planned: Epoch(56),
            since: Timestamp(MOMENT + 8),
            reset: Some(ResetTarget::Nothing),
            waits_for: None,
            time_left_ms: None,
        }),
        primary: ReplicaId(2),
        progress: Err(ErrorCode::NotPrimary),
        ..revoked.clone()
    };
    let never = OwnershipDetails {
        partition: PartitionId(2),
        epoch: Epoch(0),
        owner: None,
        moving: None,
        progress: Ok(GroupProgress {
            start: Offset(0),
            end: Offset(0),
            stored: None,
            next: Offset(0),
            lag: 0,
            last_polled: None,
            fence: Epoch(0),
            polled_ms_ago: None,
            stored_ms_ago: None,
            stalled_ms: None,
        }),
        ..revoked.clone()
    };
    [revoked, fencing, never]
}

fn add_details(vectors: &mut Vec<Vector>) {
    let get = GetConsumerGroup {
        stream: stream(),
        topic: topic(),
        group: Identifier::name("billing").unwrap(),
    };
    let details = ConsumerGroupDetails {
        stream: StreamId(1),
        topic: TopicId(2),
        summary: summary(2),
        members: members().to_vec(),
        partitions: partitions().to_vec(),
    };
    add_exchange(vectors, "two members, three partitions", get, details);
}

fn add_list(vectors: &mut Vec<Vector>) {
    let page = GetConsumerGroups {
        stream: stream(),
        topic: topic(),
        after: ConsumerGroupId(2),
        limit: 100,
    };
    let groups = ConsumerGroups {
        groups: vec![summary(2)],
        more: false,
    };
    add_exchange(vectors, "the last page", page, groups);
}

fn add_changes(vectors: &mut Vec<Vector>) {
    let create = CreateConsumerGroup {
        stream: stream(),
        topic: topic(),
        name: "billing".into(),
        options: ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: None,
            initial_delay_ms: None,
            start: Some(GroupStart::Latest),
            offset_expiry_ms: Some(604_800_000),
        },
    };
    add_exchange(vectors, "group billing", create, summary(0));
    let update = UpdateConsumerGroup {
        stream: stream(),
        topic: topic(),
        group: group(),
        options: ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: Some(60_000),
            initial_delay_ms: Some(500),
            start: Some(GroupStart::Timestamp(Timestamp(MOMENT))),
            offset_expiry_ms: None,
        },
    };
    let mut updated = summary(0);
    updated.options = ConsumerGroupOptions {
        rebalance_timeout_ms: 60_000,
        initial_delay_ms: 500,
        start: GroupStart::Timestamp(Timestamp(MOMENT)),
        ..updated.options
    };
    add_exchange(vectors, "three options", update, updated);
    let delete = DeleteConsumerGroup {
        stream: stream(),
        topic: topic(),
        group: group(),
        force: true,
    };
    add_exchange(vectors, "with its members", delete, Reply::Done);
}

fn add_members(vectors: &mut Vec<Vector>) {
    let leave = LeaveConsumerGroup {
        stream: stream(),
        topic: topic(),
        group: group(),
    };
    add_exchange(vectors, "group 3", leave, Reply::Done);
    let remove = RemoveMember {
        stream: stream(),
        topic: topic(),
        group: group(),
        member: MemberId(9),
    };
    add_exchange(vectors, "member 9 of group 3", remove, Reply::Done);
}

fn assignment(owned: Vec<u32>, revoking: Vec<u32>) -> ConsumerGroupAssignment {
    let (incarnation, epoch, held_since) = (Incarnation(42), Epoch(50), Epoch(48));
    let owned = owned.into_iter().map(|partition| AssignedPartition {
        partition: PartitionId(partition),
        incarnation,
        epoch,
        held_since,
    });
    let revoking = revoking.into_iter().map(|partition| RevokingPartition {
        partition: PartitionId(partition),
        incarnation,
        epoch,
        held_since,
        planned: Epoch(57),
        time_left_ms: 28_500,
    });
    ConsumerGroupAssignment {
        stream: StreamId(1),
        topic: TopicId(2),
        group: ConsumerGroupId(3),
        member: MemberId(7),
        generation: Generation(17),
        plan_pending: false,
        member_count: 2,
        partition_count: 3,
        owned: owned.collect(),
        revoking: revoking.collect(),
    }
}

fn add_assignments(vectors: &mut Vec<Vector>) {
    let join = |instance: Option<&str>| JoinConsumerGroup {
        stream: stream(),
        topic: topic(),
        group: group(),
        instance: instance.map(Into::into),
        weight: 1,
    };
    let first = assignment(vec![1, 2], vec![]);
    add_exchange(vectors, "group 3", join(None), first);
    let variant = "static";
    add_request(vectors, variant, "a static member", join(Some("billing-1")));
    let idle = ConsumerGroupAssignment {
        plan_pending: true,
        ..assignment(vec![], vec![])
    };
    let idle = (Command::JoinConsumerGroup, idle.into());
    add_reply(vectors, "pending", "the group waits for more members", idle);
    let sync = SyncConsumerGroup {
        stream: stream(),
        topic: topic(),
        group: group(),
    };
    let kept = assignment(vec![1, 2], vec![0]);
    add_exchange(vectors, "partition 0 is to be given up", sync, kept);
}

fn add_release(vectors: &mut Vec<Vector>) {
    let section = |partition, planned, offset: Option<u64>| ReleaseSection {
        partition: PartitionId(partition),
        epoch: Epoch(50),
        planned: Epoch(planned),
        offset: offset.map(Offset),
    };
    let release = ReleasePartition {
        stream: stream(),
        topic: topic(),
        group: group(),
        sections: vec![
            section(0, 57, Some(1_001)),
            section(1, 56, Some(77)),
            section(2, 57, None),
        ],
    };
    let result = |partition, status, stored: Option<u64>| ReleaseResult {
        partition: PartitionId(partition),
        status,
        primary: ReplicaId(0),
        stored: stored.map(Offset),
    };
    let changed = Failure::new(
        ErrorCode::RevocationChanged,
        "partition 1 does not move under epoch 56 any more",
    );
    let released = PartitionsReleased {
        sections: vec![
            result(0, Ok(()), Some(1_001)),
            result(1, Err(changed), Some(77)),
            result(2, Ok(()), None),
        ],
    };
    add_exchange(vectors, "three partitions", release, released);
}

fn add_reset(vectors: &mut Vec<Vector>) {
    let reset = |others, sections| ResetConsumerOffset {
        stream: stream(),
        topic: topic(),
        group: group(),
        force: false,
        others,
        sections,
    };
    let targets = [
        ResetTarget::Offset(Offset(499)),
        ResetTarget::Timestamp(Timestamp(MOMENT)),
        ResetTarget::Earliest,
        ResetTarget::Latest,
        ResetTarget::Nothing,
    ];
    let sections = targets.into_iter().zip(0..);
    let sections = sections.map(|(to, partition)| ResetSection {
        partition: PartitionId(partition),
        to,
    });
    let done = OffsetsReset {
        group: ConsumerGroupId(3),
        generation: Generation(18),
        partition_count: 5,
    };
    let some = reset(None, sections.collect());
    add_exchange(vectors, "five partitions", some, done);
    let all = reset(Some(ResetTarget::Earliest), vec![]);
    add_request(vectors, "all", "every partition", all);
}
