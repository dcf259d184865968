//! How consumer groups end.

use alloc::vec::Vec;

use coordinator::Deleted;
use wire::{Failure, Reply, StreamId, Timestamp};

use super::{GroupKey, GroupPath};
use crate::{Catalog, Change, Placement, Topic, apply::Step};

impl Catalog {
    pub(crate) fn delete_group(
        &mut self,
        step: &mut Step,
        path: &GroupPath<'_>,
        force: bool,
    ) -> Result<Reply, Failure> {
        let key = self.group_key(path)?;
        let groups = self.groups_mut(&key).expect("the group was found");
        let deleted = groups.delete(&key.group.into(), force)?;
        self.group_deleted(step, key, deleted);
        Ok(Reply::Done)
    }

    pub(crate) fn expire_groups(
        &mut self,
        step: &mut Step,
        groups: &[(GroupKey, Timestamp)],
    ) -> Reply {
        for (key, empty_since) in groups {
            let groups = self.groups_mut(key);
            let expired = groups.and_then(|groups| groups.expire(key.group, *empty_since));
            if let Some(deleted) = expired {
                self.group_deleted(step, *key, deleted);
            }
        }
        Reply::Done
    }

    /// The topic stays: its data groups have to forget what the group has stored.
    fn group_deleted(&mut self, step: &mut Step, key: GroupKey, deleted: Deleted) {
        let topic = self.topic_mut(key.stream, key.topic);
        let partitions = topic.expect("the group was found").partitions.clone();
        self.drop_group(step, key, deleted, partitions);
    }

    /// Ends the groups of a topic that is no longer in its stream, members and all.
    pub(crate) fn drop_groups(&mut self, step: &mut Step, stream: StreamId, topic: &Topic) {
        for group in topic.groups.iter() {
            let key = GroupKey {
                stream,
                topic: topic.id,
                group: group.id(),
            };
            let deleted = Deleted {
                group: group.id(),
                name: group.name().into(),
                generation: group.generation(),
                members: group.members().map(|member| member.holder()).collect(),
            };
            // What they have stored goes with the partitions.
            self.drop_group(step, key, deleted, Vec::new());
        }
    }

    fn drop_group(
        &mut self,
        step: &mut Step,
        key: GroupKey,
        deleted: Deleted,
        partitions: Vec<Placement>,
    ) {
        for holder in &deleted.members {
            self.memberships.remove(holder.client, &key);
        }
        step.changes.push(Change::ConsumerGroupDeleted {
            stream: key.stream,
            topic: key.topic,
            group: key.group,
            generation: deleted.generation,
            members: deleted.members,
            partitions,
        });
    }
}
