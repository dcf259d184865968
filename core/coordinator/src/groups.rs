//! The consumer groups of one topic.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, vec::Vec};
use core::ops::Bound;

use wire::{ConsumerGroupId, Generation, Identifier, PartitionId, Timestamp, Writer, check_name};

use crate::{
    At, ConsumerGroup, CreateRefused, DeleteRefused, GroupChange, GroupNotFound, GroupOptions,
    Holder,
};

/// The groups of a topic, by id and by name. It ends with its topic.
///
/// Invariants: ids and names lead to each other; every id is below that of the next group, so none ever
/// names another group again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroups {
    groups: BTreeMap<ConsumerGroupId, ConsumerGroup>,
    ids: BTreeMap<String, ConsumerGroupId>,
    next: ConsumerGroupId,
}

/// A group that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// Its name, unique in the topic.
    pub name: String,
    /// Its options.
    pub options: GroupOptions,
    /// Partitions of the topic.
    pub partitions: u32,
}

/// A group that is no more: data groups forget what it has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its id.
    pub group: ConsumerGroupId,
    /// Its name.
    pub name: String,
    /// Its last generation.
    pub generation: Generation,
    /// The members that it had, in order of ids. All that they do is refused from now on.
    pub members: Vec<Holder>,
}

impl Default for ConsumerGroups {
    fn default() -> Self {
        Self::with_next_id(ConsumerGroupId(1))
    }
}

impl ConsumerGroups {
    pub(crate) const fn with_next_id(next: ConsumerGroupId) -> Self {
        Self {
            groups: BTreeMap::new(),
            ids: BTreeMap::new(),
            next,
        }
    }

    /// The id of the next group.
    #[must_use]
    pub const fn next_id(&self) -> ConsumerGroupId {
        self.next
    }

    /// How many groups there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// In order of ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ConsumerGroup> {
        self.groups.values()
    }

    /// Those with ids above `after`, in order of ids: the next page of a list.
    pub fn iter_after(&self, after: ConsumerGroupId) -> impl Iterator<Item = &ConsumerGroup> {
        let page = (Bound::Excluded(after), Bound::Unbounded);
        self.groups.range(page).map(|(_, group)| group)
    }

    /// A group by its id.
    #[must_use]
    pub fn group(&self, group: ConsumerGroupId) -> Option<&ConsumerGroup> {
        self.groups.get(&group)
    }

    /// A group by its id, to apply an operation to it.
    pub fn group_mut(&mut self, group: ConsumerGroupId) -> Option<&mut ConsumerGroup> {
        self.groups.get_mut(&group)
    }

    /// A group by what a client calls it. Numbers are ids and names are names.
    ///
    /// # Errors
    /// There is no such group.
    pub fn find(&self, group: &Identifier) -> Result<&ConsumerGroup, GroupNotFound> {
        let id = self.id(group)?;
        Ok(&self.groups[&id])
    }

    /// The same, to apply an operation to it.
    ///
    /// # Errors
    /// There is no such group.
    pub fn find_mut(&mut self, group: &Identifier) -> Result<&mut ConsumerGroup, GroupNotFound> {
        let id = self.id(group)?;
        let found = self.groups.get_mut(&id);
        Ok(found.expect("the index leads to a group"))
    }

    fn id(&self, group: &Identifier) -> Result<ConsumerGroupId, GroupNotFound> {
        let id = match group {
            Identifier::Number(id) => Some(ConsumerGroupId(*id)),
            Identifier::Name(name) => self.ids.get(name).copied(),
        };
        let id = id.filter(|id| self.groups.contains_key(id));
        id.ok_or_else(|| GroupNotFound {
            group: group.clone(),
        })
    }

    /// Creates a group without members.
    ///
    /// # Errors
    /// The name is not one or is taken, an option is out of its range, or the topic has as many groups
    /// as it may have. A group that exists is never touched.
    pub fn create(
        &mut self,
        at: At,
        new: NewGroup,
        groups_max: u32,
    ) -> Result<&ConsumerGroup, CreateRefused> {
        let NewGroup {
            name,
            options,
            partitions,
        } = new;
        if let Err(problem) = check_name(&name) {
            return Err(CreateRefused::InvalidName { name, problem });
        }
        if let Some(id) = self.ids.get(&name) {
            let group = self.groups[id].group_name();
            return Err(CreateRefused::Exists { group });
        }
        options.check()?;
        let groups = self.len();
        if u32::try_from(groups).is_ok_and(|groups| groups >= groups_max) {
            return Err(CreateRefused::TooMany { groups, groups_max });
        }
        let id = self.next;
        self.next = ConsumerGroupId(id.0 + 1);
        self.ids.insert(name.clone(), id);
        let group = ConsumerGroup::new(at, id, name, options, partitions);
        Ok(self.groups.entry(id).or_insert(group))
    }

    /// Deletes a group with all that it holds.
    ///
    /// # Errors
    /// There is no such group, or it has members and it is not forced.
    pub fn delete(&mut self, group: &Identifier, force: bool) -> Result<Deleted, DeleteRefused> {
        let found = self.find(group)?;
        found.admit_without_members(force)?;
        let id = found.id();
        Ok(self.remove(id))
    }

    /// Deletes a group that has had no members since `empty_since`. Does nothing when somebody has joined
    /// meanwhile, even if they have left again, or it is gone: who proposes it judges by what it knew a
    /// moment before.
    pub fn expire(&mut self, group: ConsumerGroupId, empty_since: Timestamp) -> Option<Deleted> {
        let expired = self.groups.get(&group)?.empty_since() == Some(empty_since);
        expired.then(|| self.remove(group))
    }

    fn remove(&mut self, id: ConsumerGroupId) -> Deleted {
        let group = self.groups.remove(&id);
        let group = group.expect("a group that was found is there");
        let indexed = self.ids.remove(group.name());
        assert!(indexed == Some(id), "the index by name is out of step");
        Deleted {
            group: id,
            name: group.name().to_owned(),
            generation: group.generation(),
            members: group.members().map(|member| member.holder()).collect(),
        }
    }

    /// The topic has `count` more partitions. Answers what changed, group by group.
    pub fn partitions_created(&mut self, at: At, count: u32) -> Vec<GroupChange> {
        self.each(|group| group.partitions_created(at, count))
    }

    /// The topic has `count` partitions less, the highest ones. Answers what changed, group by group.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn partitions_deleted(&mut self, at: At, count: u32) -> Vec<GroupChange> {
        self.each(|group| group.partitions_deleted(at, count))
    }

    /// Partitions of the topic were purged. Answers what changed, group by group.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn purge(&mut self, at: At, partitions: &[PartitionId]) -> Vec<GroupChange> {
        self.each(|group| group.purge(at, partitions))
    }

    fn each(&mut self, change: impl FnMut(&mut ConsumerGroup) -> GroupChange) -> Vec<GroupChange> {
        let changes = self.groups.values_mut().map(change);
        changes.filter(|change| !change.is_empty()).collect()
    }

    /// The groups in a canonical form, for a digest.
    pub fn write_canonical(&self, writer: &mut Writer) {
        writer.u64(self.next.0).count(self.groups.len());
        for group in self.groups.values() {
            group.write_canonical(writer);
        }
    }

    /// Whether a group of a snapshot has a name and id of its own.
    pub(crate) fn restore_group(&mut self, group: ConsumerGroup) -> bool {
        let (id, name) = (group.id(), group.name().to_owned());
        self.ids.insert(name, id).is_none() && self.groups.insert(id, group).is_none()
    }
}
