//! One consumer group: its state, and what an op does to it as a whole.

mod membership;
mod partitions;

use alloc::{string::String, vec, vec::Vec};

use wire::{
    ClientId, ConsumerGroupId, Generation, Incarnation, MemberId, Op, PartitionId, SessionNumber,
    Timestamp, Writer,
};

use crate::{
    Assignment, At, GroupChange, GroupName, GroupNotEmpty, GroupOptions, Holder, Holding, Member,
    MemberChange, MembershipRefused, OptionOutOfRange, OptionsUpdate, Ownership, ResetTo,
    StartPolicy,
    assignment::{Decision, plan},
    member::{Members, Slot},
    refusal::LISTED_MAX,
    view::assignment,
};

pub use membership::{Join, Joined};

/// The state of one consumer group after some op.
///
/// Every operation is a function of this state, its arguments, the op number and its timestamp, and
/// changes it at once and whole, or is refused and changes nothing.
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    pub(crate) id: ConsumerGroupId,
    pub(crate) name: String,
    /// The op that created it.
    pub(crate) created: Op,
    pub(crate) options: GroupOptions,
    pub(crate) generation: Generation,
    /// The join that found the group empty, while it waits for more members before the first plan.
    /// Invariant: while it waits it has members, and no ownership names one.
    pub(crate) plan_pending: Option<Op>,
    /// Since when it has had no members.
    /// Invariant: set exactly while it has none.
    pub(crate) empty_since: Option<Timestamp>,
    /// Above the id of every member that there has ever been.
    pub(crate) next_member: MemberId,
    pub(crate) members: Members,
    /// By partition id.
    /// Invariant: names members only; unless a plan is pending, the plan would change nothing.
    pub(crate) ownership: Vec<Ownership<Slot>>,
}

/// What one op has done so far.
pub(crate) struct Step {
    pub(crate) at: At,
    /// Entries that were touched, as they were before, each once.
    touched: Vec<(u32, Ownership<Slot>)>,
    /// By entry, as far as any was touched.
    seen: Vec<bool>,
    pub(crate) members: Vec<MemberChange>,
    options: bool,
    partitions: bool,
}

impl Step {
    pub(crate) const fn new(at: At) -> Self {
        Self {
            at,
            touched: Vec::new(),
            seen: Vec::new(),
            members: Vec::new(),
            options: false,
            partitions: false,
        }
    }
}

/// Equal states are equal, wherever their members have their slots.
impl PartialEq for ConsumerGroup {
    fn eq(&self, other: &Self) -> bool {
        self.snapshot() == other.snapshot()
    }
}

impl Eq for ConsumerGroup {}

impl ConsumerGroup {
    /// A group without members, in a topic of `partitions`.
    #[must_use]
    pub(crate) fn new(
        at: At,
        id: ConsumerGroupId,
        name: String,
        options: GroupOptions,
        partitions: u32,
    ) -> Self {
        Self {
            id,
            name,
            created: at.op,
            options,
            generation: Generation(0),
            plan_pending: None,
            empty_since: Some(at.timestamp),
            next_member: MemberId(1),
            members: Members::default(),
            ownership: vec![Ownership::NEVER; index(PartitionId(partitions))],
        }
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> ConsumerGroupId {
        self.id
    }

    /// Its name, unique in the topic.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The op that created it.
    #[must_use]
    pub const fn created(&self) -> Op {
        self.created
    }

    /// Its options.
    #[must_use]
    pub const fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// Counts the ops that changed any ownership or epoch.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// While the group waits for more members before it shares its partitions out: the join that began
    /// the wait. When [`GroupOptions::initial_delay_ms`] is over, [`ConsumerGroup::plan`] ends it.
    #[must_use]
    pub const fn plan_pending(&self) -> Option<Op> {
        self.plan_pending
    }

    /// Since when it has had no members; none while it has any.
    #[must_use]
    pub const fn empty_since(&self) -> Option<Timestamp> {
        self.empty_since
    }

    /// Where it starts in a partition of which nothing is stored.
    #[must_use]
    pub const fn start(&self, incarnation: Incarnation) -> StartPolicy {
        self.options.start.for_partition(self.created, incarnation)
    }

    /// The members, in order of ids.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.iter().map(|(_, member)| member)
    }

    /// A member by its id.
    #[must_use]
    pub fn member(&self, member: MemberId) -> Option<&Member> {
        self.members.at(self.members.slot(member)?)
    }

    /// The member with an instance id.
    #[must_use]
    pub fn member_of_instance(&self, instance: &str) -> Option<&Member> {
        let slot = self.members.of_instance(instance)?;
        self.members.at(slot)
    }

    /// The member of a session.
    ///
    /// # Errors
    /// The session is not a member, or not any more; the two are told apart from one whose instance id
    /// another session has taken.
    pub fn membership(
        &self,
        client: ClientId,
        session: SessionNumber,
    ) -> Result<&Member, MembershipRefused> {
        self.seat(client, session)
            .map(|slot| self.members.occupant(slot))
    }

    pub(crate) fn seat(
        &self,
        client: ClientId,
        session: SessionNumber,
    ) -> Result<Slot, MembershipRefused> {
        let seat = self.members.seat(client, session);
        seat.map_err(|missing| missing.refused(self.group_name(), session))
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
    pub fn ownership(&self, partition: PartitionId) -> Option<Ownership> {
        let entry = self.ownership.get(index(partition))?;
        Some(self.named(entry))
    }

    /// The state of every partition, in order of ids.
    pub fn ownerships(&self) -> impl ExactSizeIterator<Item = Ownership> {
        self.ownership.iter().map(|entry| self.named(entry))
    }

    fn named(&self, entry: &Ownership<Slot>) -> Ownership {
        entry.map(|slot| self.members.occupant(slot).id)
    }

    /// How many partitions a plan would decide differently now: none after every op, except while the
    /// first plan is pending.
    #[must_use]
    pub fn unplanned(&self) -> usize {
        plan(&self.members, &self.ownership).len()
    }

    pub(crate) fn group_name(&self) -> GroupName {
        GroupName {
            id: self.id,
            name: self.name.clone(),
        }
    }

    /// Refuses what must not happen under members, unless forced.
    pub(crate) fn admit_without_members(&self, force: bool) -> Result<(), GroupNotEmpty> {
        if force || self.members.is_empty() {
            return Ok(());
        }
        Err(GroupNotEmpty {
            group: self.group_name(),
            members: self.members.len(),
            first: self
                .members()
                .take(LISTED_MAX)
                .map(|member| member.id)
                .collect(),
        })
    }

    /// Changes options. What is planned or waits keeps its course; deadlines are measured by the new
    /// values.
    ///
    /// # Errors
    /// An option is out of its range; none is changed.
    pub fn update(
        &mut self,
        at: At,
        update: &OptionsUpdate,
    ) -> Result<GroupChange, OptionOutOfRange> {
        let options = update.of(self.options);
        options.check()?;
        let mut step = Step::new(at);
        step.options = options != self.options;
        self.options = options;
        Ok(self.finish(step))
    }

    /// Shares the partitions out after the initial delay that the join with op `pending` began. Does
    /// nothing when that wait is over: by another plan, or because all members have gone.
    pub fn plan(&mut self, at: At, pending: Op) -> GroupChange {
        let mut step = Step::new(at);
        if self.plan_pending == Some(pending) {
            self.plan_pending = None;
            self.replan(&mut step);
        }
        self.finish(step)
    }

    /// Brings the ownership in line with members and partitions, unless the first plan is pending.
    pub(crate) fn replan(&mut self, step: &mut Step) {
        if self.plan_pending.is_some() {
            return;
        }
        let decisions = plan(&self.members, &self.ownership);
        step.touched.reserve(decisions.len());
        for (entry, decision) in decisions {
            let at = step.at;
            let ownership = self.touch(step, entry);
            match decision {
                Decision::Assign { to } => ownership.assign(at, to),
                Decision::Cancel => ownership.cancel(at),
                Decision::Strand => ownership.strand(at),
            }
        }
    }

    /// An entry that is about to change.
    pub(crate) fn touch(&mut self, step: &mut Step, entry: usize) -> &mut Ownership<Slot> {
        let ownership = &mut self.ownership[entry];
        if step.seen.len() <= entry {
            step.seen.resize(entry + 1, false);
        }
        if !core::mem::replace(&mut step.seen[entry], true) {
            step.touched.push((partition(entry).0, *ownership));
        }
        ownership
    }

    /// Ends an op: counts the generation and says what has changed.
    pub(crate) fn finish(&mut self, mut step: Step) -> GroupChange {
        // A partition that is gone counts as one that was never owned.
        let now = |entry: u32| self.ownership.get(index(PartitionId(entry))).copied();
        step.touched
            .retain(|(entry, before)| now(*entry).unwrap_or(Ownership::NEVER) != *before);
        step.touched.sort_by_key(|(entry, _)| *entry);
        let reassigned = !step.touched.is_empty();

        let mut owners = Vec::new();
        let mut ownership = Vec::with_capacity(step.touched.len());
        for (entry, before) in &step.touched {
            owners.extend(before.owner());
            if let Some(after) = now(*entry) {
                owners.extend(after.owner());
                ownership.push((PartitionId(*entry), self.named(&after)));
            }
        }
        self.generation.0 += u64::from(reassigned);
        self.assert_invariants();
        GroupChange {
            group: self.id,
            generation: self.generation,
            partitions: self.partition_count(),
            options: step.options.then_some(self.options),
            members: step.members,
            ownership,
            notify: self.holders(&owners),
            reassigned: reassigned || step.partitions,
        }
    }

    /// Those of `slots` who are still there, each once, in order of ids.
    fn holders(&self, slots: &[Slot]) -> Vec<Holder> {
        let mut seen = vec![false; self.members.slots()];
        let mut holders = Vec::new();
        for slot in slots {
            let Some(member) = self.members.at(*slot) else {
                continue;
            };
            if !core::mem::replace(&mut seen[slot.index()], true) {
                holders.push(member.holder());
            }
        }
        holders.sort_unstable();
        holders
    }

    /// What holds after every op. Walks the whole group, so only where debug assertions are on.
    fn assert_invariants(&self) {
        assert!(self.empty_since.is_some() == self.members.is_empty());
        assert!(self.plan_pending.is_none() || !self.members.is_empty());
        if !cfg!(debug_assertions) {
            return;
        }
        for ownership in &self.ownership {
            assert!(ownership.is_consistent(), "epochs are in order");
            for named in [ownership.owner(), ownership.heir()] {
                assert!(
                    named.is_none_or(|slot| self.members.at(slot).is_some()),
                    "ownership names members only"
                );
                assert!(
                    named.is_none() || self.plan_pending.is_none(),
                    "nobody owns anything before the first plan"
                );
            }
            assert!(
                !self.members.is_empty() || !matches!(ownership.holding, Holding::Owned { .. }),
                "an empty group owns nothing"
            );
        }
        assert!(
            self.plan_pending.is_some() || self.unplanned() == 0,
            "the plan is a fixed point"
        );
    }

    /// The state in a canonical form, for a digest: equal states give equal bytes on every replica.
    pub fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            id,
            name,
            created,
            options,
            generation,
            plan_pending,
            empty_since,
            next_member,
            members,
            ownership,
        } = self;
        writer.u64(id.0).text16(name).u64(created.0);
        options.write_canonical(writer);
        writer.u64(generation.0);
        writer.u64(plan_pending.map_or(0, |op| op.0));
        writer.u8(u8::from(empty_since.is_some()));
        writer.u64(empty_since.map_or(0, |since| since.0));
        writer.u64(next_member.0).count(members.len());
        for (_, member) in members.iter() {
            member.write_canonical(writer);
        }
        writer.count(ownership.len());
        for entry in ownership {
            write_ownership(writer, &self.named(entry));
        }
    }
}

pub(crate) fn write_ownership(writer: &mut Writer, ownership: &Ownership) {
    let Ownership { epoch, .. } = ownership;
    writer.u64(epoch.0);
    writer.u64(ownership.owner().map_or(0, |owner| owner.0));
    writer.u64(ownership.held_since().map_or(0, |since| since.0));
    let Some(planned) = ownership.moving() else {
        writer.u8(0);
        return;
    };
    writer.u8(1).u64(planned.to.map_or(0, |to| to.0));
    writer.u64(planned.epoch.0).u64(planned.since.0);
    match planned.reset {
        None => writer.u8(0),
        Some(ResetTo::Nothing) => writer.u8(1),
        Some(ResetTo::Offset(offset)) => writer.u8(2).u64(offset.0),
        Some(ResetTo::Start(start)) => {
            let (kind, timestamp) = start.parts();
            writer.u8(3).u8(kind).u64(timestamp.0)
        }
    };
}

/// The entry of a partition.
pub(crate) fn index(partition: PartitionId) -> usize {
    usize::try_from(partition.0).expect("a u32 fits a usize")
}

/// The partition of an entry.
pub(crate) fn partition(index: usize) -> PartitionId {
    PartitionId(u32::try_from(index).expect("partitions of a topic fit a u32"))
}
