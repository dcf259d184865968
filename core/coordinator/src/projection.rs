//! What every shard of a node keeps of a consumer group.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use wire::{
    ClientId, ConsumerGroupId, Generation, Incarnation, MemberId, Op, PartitionId, SessionNumber,
};

use crate::{
    Admission, Assignment, Claim, ConsumerGroup, GroupChange, GroupName, GroupOptions, Holder,
    Member, MemberChange, MembershipRefused, Ownership, Park, StartPolicy,
    admission::admit,
    group::{index, partition},
    member::{Members, Slot},
    view::assignment,
};

/// The state of a partition with the sessions of those that it names.
pub type OwnershipView = Ownership<Holder>;

/// Members and ownership of a group after some op. It is built once from a [`ConsumerGroup`] and then
/// follows by the changes of every op; it may lag behind, so safety never rests on it.
#[derive(Clone, Debug)]
pub struct GroupProjection {
    id: ConsumerGroupId,
    name: String,
    created: Op,
    options: GroupOptions,
    generation: Generation,
    members: Members,
    ownership: Vec<Ownership<Slot>>,
}

impl From<&ConsumerGroup> for GroupProjection {
    fn from(group: &ConsumerGroup) -> Self {
        Self {
            id: group.id,
            name: group.name.clone(),
            created: group.created,
            options: group.options,
            generation: group.generation,
            members: group.members.clone(),
            ownership: group.ownership.clone(),
        }
    }
}

/// Equal wherever the members have their slots.
impl PartialEq for GroupProjection {
    fn eq(&self, other: &Self) -> bool {
        let names = |it: &Self| {
            (
                it.id,
                it.name.clone(),
                it.created,
                it.options,
                it.generation,
            )
        };
        let members = |it: &Self| {
            it.members
                .iter()
                .map(|(_, member)| member.clone())
                .collect()
        };
        let (own, others): (Vec<Member>, Vec<Member>) = (members(self), members(other));
        names(self) == names(other) && own == others && self.views().eq(other.views())
    }
}

impl Eq for GroupProjection {}

impl GroupProjection {
    /// The group's id.
    #[must_use]
    pub const fn id(&self) -> ConsumerGroupId {
        self.id
    }

    /// The group's id and name.
    #[must_use]
    pub fn name(&self) -> GroupName {
        GroupName {
            id: self.id,
            name: self.name.to_owned(),
        }
    }

    /// Its options.
    #[must_use]
    pub const fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// Its generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Where it starts in a partition of which nothing is stored.
    #[must_use]
    pub const fn start(&self, incarnation: Incarnation) -> StartPolicy {
        self.options.start.for_partition(self.created, incarnation)
    }

    /// Its members, in order of ids.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.iter().map(|(_, member)| member)
    }

    /// The member of a session.
    ///
    /// # Errors
    /// The session is not a member, or not any more.
    pub fn membership(
        &self,
        client: ClientId,
        session: SessionNumber,
    ) -> Result<&Member, MembershipRefused> {
        match self.members.seat(client, session) {
            Ok(slot) => Ok(self.members.occupant(slot)),
            Err(missing) => Err(missing.refused(self.name(), session)),
        }
    }

    /// What a member is told: its partitions, and those that it has to give up.
    #[must_use]
    pub fn assignment(&self, member: MemberId) -> Option<Assignment> {
        let slot = self.members.slot(member)?;
        let ownership = self.ownership.iter();
        Some(assignment((slot, member), self.generation, ownership))
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.ownership.len()).expect("partitions of a topic fit a u32")
    }

    /// The state of a partition, if there is such a partition.
    #[must_use]
    pub fn view(&self, partition: PartitionId) -> Option<OwnershipView> {
        let entry = self.ownership.get(index(partition))?;
        Some(self.resolved(entry))
    }

    /// The partitions that move, in order of ids: what the reconciler has to bring to an end.
    pub fn moves(&self) -> impl Iterator<Item = (PartitionId, OwnershipView)> {
        let entries = self.ownership.iter().enumerate();
        let moving = entries.filter(|(_, entry)| entry.moving().is_some());
        moving.map(|(entry, ownership)| (partition(entry), self.resolved(ownership)))
    }

    /// The state of every partition, in order of ids.
    pub fn views(&self) -> impl ExactSizeIterator<Item = OwnershipView> {
        self.ownership.iter().map(|entry| self.resolved(entry))
    }

    fn resolved(&self, entry: &Ownership<Slot>) -> OwnershipView {
        entry.map(|slot| self.members.occupant(slot).holder())
    }

    /// Whether a claim is admitted, by the group as it is after the op `applied`, the last one that the
    /// shard has followed.
    #[must_use]
    pub fn admit(&self, partition: PartitionId, claim: &Claim, applied: Op) -> Admission {
        // First of all: whatever else is wrong may be right after that op.
        let rests_on = claim.rests_on();
        if rests_on > applied {
            return Admission::Park(Park::Applied(rests_on));
        }
        let member = match self.membership(claim.client, claim.session) {
            Ok(member) => member.id,
            Err(refused) => return Admission::NotMember(refused),
        };
        match self.view(partition) {
            Some(view) => admit(&view, member, claim),
            None => Admission::PartitionNotFound {
                partitions: self.partition_count(),
            },
        }
    }

    /// Follows the group by one op.
    ///
    /// # Panics
    /// When the change does not fit: it is another group's, or an op in between is missing.
    pub fn follow(&mut self, change: &GroupChange) {
        assert!(change.group == self.id, "a change is its group's");
        self.generation = change.generation;
        if let Some(options) = change.options {
            self.options = options;
        }
        for member in &change.members {
            if let MemberChange::Put(member) = member {
                self.members.put(member.clone());
            }
        }
        let partitions = index(PartitionId(change.partitions));
        self.ownership.resize(partitions, Ownership::NEVER);
        for (partition, ownership) in &change.ownership {
            let slot = |member| self.members.slot(member).expect("an owner is a member");
            self.ownership[index(*partition)] = ownership.map(slot);
        }
        // Nothing names them any more.
        for member in &change.members {
            if let MemberChange::Left(member) | MemberChange::Gone(member) = member {
                let slot = self.members.slot(member.id);
                self.members.remove(slot.expect("who goes was a member"));
            }
        }
    }
}
