//! Questions about consumer groups.

use coordinator::{Assignment, ConsumerGroup, Member, MemberState, Ownership};
use wire::{
    AssignedPartition, ClientId, ConsumerGroupAssignment, ConsumerGroupDetails,
    ConsumerGroupSummary, ConsumerGroups, DisplacedSession, ErrorCode, Failure, GetConsumerGroup,
    GetConsumerGroups, GroupProgress, Identifier, MemberDetails, MemberId, MemberStatus, MoveWait,
    Op, OwnershipDetails, PartitionId, PartitionMove, PartitionOwner, ReplicaId, ResetTarget,
    RevokingPartition, SessionNumber, SyncConsumerGroup, Timestamp,
};

use super::{GroupKey, GroupPath, present};
use crate::{Catalog, Placement, Topic, query::take_page};

/// Something that a primary of the metadata group has to do to a consumer group when its time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupTimer {
    /// The group waits for more members: [`PlanGroups`](crate::Operation::PlanGroups) after the delay.
    Plan {
        /// The group.
        key: GroupKey,
        /// The join that began the wait.
        pending: Op,
        /// How long it waits, milliseconds.
        delay_ms: u32,
    },
    /// A static member is away: [`ExpireMembers`](crate::Operation::ExpireMembers) after the session
    /// timeout.
    Detached {
        /// The group.
        key: GroupKey,
        /// The member.
        member: MemberId,
        /// The session that it had last.
        session: SessionNumber,
    },
    /// The group is empty and not kept for good: [`ExpireGroups`](crate::Operation::ExpireGroups) after
    /// its expiry.
    Empty {
        /// The group.
        key: GroupKey,
        /// Since when it is empty.
        since: Timestamp,
        /// How long it is kept, milliseconds.
        expiry_ms: u64,
    },
}

/// What a client asks to see its assignment, with the ids: never those of another group of the name.
impl From<GroupKey> for SyncConsumerGroup {
    fn from(key: GroupKey) -> Self {
        Self {
            stream: key.stream.into(),
            topic: key.topic.into(),
            group: key.group.into(),
        }
    }
}

impl Catalog {
    /// A consumer group by its ids.
    #[must_use]
    pub fn consumer_group(&self, key: &GroupKey) -> Option<&ConsumerGroup> {
        let topic = self.streams.get(key.stream)?.topics.get(key.topic)?;
        topic.groups.group(key.group)
    }

    /// The member of a consumer group that has an instance id, by what a client calls the group.
    #[must_use]
    pub fn instance_holder(
        &self,
        (stream, topic, group): (&Identifier, &Identifier, &Identifier),
        instance: &str,
    ) -> Option<(GroupKey, &Member)> {
        let path = GroupPath {
            stream,
            topic,
            group,
        };
        let (key, _, group) = self.find_group(&path).ok()?;
        Some((key, group.member_of_instance(instance)?))
    }

    /// The groups that a client's session is a member of, in order of keys.
    pub fn memberships(&self, client: ClientId) -> impl Iterator<Item = GroupKey> {
        self.memberships.of(client).copied()
    }

    /// The assignment of a session's member. `time_left` tells how long a revocation still has, in
    /// milliseconds, by its partition and the time when it began: whoever answers measures that.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`, `ConsumerGroupNotFound`, `ConsumerGroupMemberNotFound`,
    /// `FencedInstanceId`.
    pub fn assignment(
        &self,
        (client, session): (ClientId, SessionNumber),
        sync: &SyncConsumerGroup,
        time_left: impl FnMut(&GroupKey, PartitionId, Timestamp) -> u32,
    ) -> Result<ConsumerGroupAssignment, Failure> {
        let (key, topic, group) = self.find_group(&GroupPath {
            stream: &sync.stream,
            topic: &sync.topic,
            group: &sync.group,
        })?;
        let member = group.membership(client, session)?.id;
        let assignment = group.assignment(member);
        let assignment = assignment.expect("the member was found");
        Ok(assigned(&key, (topic, group), &assignment, time_left))
    }

    /// A page of a topic's consumer groups, in order of ids.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`.
    pub fn consumer_groups_page(
        &self,
        page: &GetConsumerGroups,
    ) -> Result<ConsumerGroups, Failure> {
        let (_, topic) = self.find_topic(&page.stream, &page.topic)?;
        let found = topic.groups.iter_after(page.after);
        let (groups, more) = take_page(found.map(summary), page.limit);
        Ok(ConsumerGroups { groups, more })
    }

    /// A consumer group with its members and partitions. `observe` tells what only the data groups know
    /// of a partition.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`, `ConsumerGroupNotFound`.
    pub fn consumer_group_details(
        &self,
        asked: &GetConsumerGroup,
        mut observe: impl FnMut(&GroupKey, &Placement, &Ownership) -> Observed,
    ) -> Result<ConsumerGroupDetails, Failure> {
        let (key, topic, group) = self.find_group(&GroupPath {
            stream: &asked.stream,
            topic: &asked.topic,
            group: &asked.group,
        })?;
        let entries = topic.partitions.iter().zip(group.ownerships());
        let partitions = entries.map(|(placement, ownership)| {
            let observed = observe(&key, placement, &ownership);
            ownership_details(placement, &ownership, observed)
        });
        Ok(ConsumerGroupDetails {
            stream: key.stream,
            topic: key.topic,
            summary: summary(group),
            members: group.members().map(member_details).collect(),
            partitions: partitions.collect(),
        })
    }

    /// Everything about consumer groups that has its time, in order of keys. Walks all groups: for a
    /// primary that begins to serve; afterwards it looks at the groups that change, with
    /// [`Catalog::timers_of`].
    pub fn group_timers(&self) -> impl Iterator<Item = GroupTimer> {
        self.topics().flat_map(|(stream, topic)| {
            topic.groups.iter().flat_map(move |group| {
                let key = GroupKey {
                    stream,
                    topic: topic.id,
                    group: group.id(),
                };
                timers(key, group)
            })
        })
    }

    /// The same for one group; nothing when it does not exist.
    pub fn timers_of(&self, key: GroupKey) -> impl Iterator<Item = GroupTimer> {
        let group = self.consumer_group(&key).into_iter();
        group.flat_map(move |group| timers(key, group))
    }
}

/// What the data groups know of a partition and a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The node that leads the partition's data group.
    pub primary: ReplicaId,
    /// How far the group has got, or why that is not known.
    pub progress: Result<GroupProgress, ErrorCode>,
    /// What a move waits for, where that is known.
    pub waits_for: Option<MoveWait>,
    /// How long until a revocation ends without its owner, milliseconds, where that is known.
    pub time_left_ms: Option<u32>,
}

fn timers(key: GroupKey, group: &ConsumerGroup) -> impl Iterator<Item = GroupTimer> {
    let options = group.options();
    let plan = group.plan_pending().map(|pending| GroupTimer::Plan {
        key,
        pending,
        delay_ms: options.initial_delay_ms,
    });
    let kept_for_good = options.offset_expiry_ms == 0;
    let empty = group.empty_since().filter(|_| !kept_for_good);
    let empty = empty.map(|since| GroupTimer::Empty {
        key,
        since,
        expiry_ms: options.offset_expiry_ms,
    });
    let members = group.members();
    let away = members.filter(|member| member.state == MemberState::Detached);
    let away = away.map(move |member| GroupTimer::Detached {
        key,
        member: member.id,
        session: member.session,
    });
    plan.into_iter().chain(empty).chain(away)
}

fn count(of: usize) -> u32 {
    u32::try_from(of).expect("members and partitions fit a u32")
}

pub(super) fn summary(group: &ConsumerGroup) -> ConsumerGroupSummary {
    let moving = group.ownerships().filter(|entry| entry.moving().is_some());
    ConsumerGroupSummary {
        id: group.id(),
        name: group.name().into(),
        created_op: group.created(),
        options: group.options().into(),
        generation: group.generation(),
        plan_pending: group.plan_pending().is_some(),
        empty_since: group.empty_since(),
        member_count: count(group.members().len()),
        moving_count: count(moving.count()),
    }
}

fn assigned(
    key: &GroupKey,
    (topic, group): (&Topic, &ConsumerGroup),
    assignment: &Assignment,
    mut time_left: impl FnMut(&GroupKey, PartitionId, Timestamp) -> u32,
) -> ConsumerGroupAssignment {
    let incarnation = |partition: PartitionId| {
        let index = usize::try_from(partition.0).expect("a u32 fits a usize");
        topic.partitions[index].incarnation
    };
    let owned = assignment.owned.iter().map(|owned| AssignedPartition {
        partition: owned.partition,
        incarnation: incarnation(owned.partition),
        epoch: owned.epoch,
        held_since: owned.held_since,
    });
    let revoking = assignment.revoking.iter().map(|revoked| RevokingPartition {
        partition: revoked.partition,
        incarnation: incarnation(revoked.partition),
        epoch: revoked.epoch,
        held_since: revoked.held_since,
        planned: revoked.planned,
        time_left_ms: time_left(key, revoked.partition, revoked.since),
    });
    ConsumerGroupAssignment {
        stream: key.stream,
        topic: key.topic,
        group: key.group,
        member: assignment.member,
        generation: assignment.generation,
        plan_pending: group.plan_pending().is_some(),
        member_count: count(group.members().len()),
        partition_count: group.partition_count(),
        owned: owned.collect(),
        revoking: revoking.collect(),
    }
}

fn member_details(member: &Member) -> MemberDetails {
    let displaced = member.displaced.map(|displaced| DisplacedSession {
        client: displaced.client,
        session: displaced.session,
        at: displaced.at,
    });
    MemberDetails {
        id: member.id,
        client: member.client,
        session: member.session,
        address: present(&member.address),
        instance: member.instance.clone(),
        weight: member.weight.0,
        state: match member.state {
            MemberState::Active => MemberStatus::Active,
            MemberState::Detached => MemberStatus::Detached,
        },
        joined: member.joined,
        displaced,
    }
}

fn ownership_details(
    placement: &Placement,
    ownership: &Ownership,
    observed: Observed,
) -> OwnershipDetails {
    let owner = ownership.owner().zip(ownership.held_since());
    let moving = ownership.moving().map(|moving| PartitionMove {
        to: moving.to,
        planned: moving.epoch,
        since: moving.since,
        reset: moving.reset.map(ResetTarget::from),
        waits_for: observed.waits_for,
        time_left_ms: observed.time_left_ms,
    });
    OwnershipDetails {
        partition: placement.partition,
        incarnation: placement.incarnation,
        epoch: ownership.epoch,
        owner: owner.map(|(member, held_since)| PartitionOwner { member, held_since }),
        moving,
        primary: observed.primary,
        progress: observed.progress,
    }
}
