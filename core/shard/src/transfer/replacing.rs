//! A fetched state takes the place of the own one, and what rests on that follows.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use catalog::{GroupKey, Projection};
use partition::{DataGroup, SegmentChange, SegmentId};
use wire::{
    AssignmentChanged, ClientId, ConsensusGroup, Event, EvictionReason, Generation, Incarnation,
    Op, PartitionKey, SessionNumber,
};

use super::Restored;
use crate::{Shard, desk::Desk};

/// A member of a consumer group, and the group's generation.
type Told = BTreeMap<(GroupKey, SessionNumber), Generation>;

impl Shard {
    /// A snapshot is on the disk: that of a checkpoint of another node, if one was fetched.
    pub(crate) fn install_fetched(&mut self, group: ConsensusGroup, op: Op) -> bool {
        let Some((checkpoint, restored)) = self.take_durable(group, op) else {
            return false;
        };
        let files = match &restored {
            Restored::Data(state) => partition::files_at(&state.snapshot()),
            Restored::Metadata(_) => Vec::new(),
        };
        if let Some(member) = self.member_mut(group) {
            member.snapshot = member.snapshot.max(op);
            member.restored = Some(restored);
        }
        self.feed(group, vsr::Input::CheckpointFetched(checkpoint));
        let is_unused = self
            .member_mut(group)
            .is_some_and(|member| member.restored.take().is_some());
        if !is_unused {
            // Their indexes are made, and they are judged once more, as after a start.
            self.verifier.add(files);
            self.verifier.go_on(&mut self.data, &mut self.desk);
        }
        true
    }

    /// The whole metadata is known anew: whatever could have changed is looked at.
    pub(crate) fn on_metadata_replaced(&mut self, before: &Projection) {
        let ended: Vec<(ClientId, SessionNumber, bool)> = before
            .sessions()
            .filter_map(|(client, view)| {
                let now = self.projection.session(client);
                let is_there = now.is_some_and(|now| now.number == view.number);
                (!is_there).then_some((client, view.number, now.is_some()))
            })
            .collect();
        for (_, session, is_replaced) in ended {
            // Why it ended is not known here.
            let reason = if is_replaced {
                EvictionReason::Replaced
            } else {
                EvictionReason::Expired
            };
            self.on_session_ended(session, reason);
        }
        let groups = before.groups().chain(self.projection.groups());
        let keys: BTreeSet<GroupKey> = groups.map(|(key, _)| key).collect();
        for key in keys {
            self.hand_overs.touch_group(&key);
            self.polls.on_topic_changed((key.stream, key.topic));
            self.unpark_group(key);
        }
        self.tell_members(before);
        if !self.resets.is_empty() {
            self.answer_resets();
        }
    }

    /// Whose assignment may have changed synchronises.
    fn tell_members(&mut self, before: &Projection) {
        let (old, new) = (members_of(before), members_of(&self.projection));
        let mut told = Told::new();
        for (member, generation) in &old {
            if new.get(member) != Some(generation) {
                told.insert(*member, *generation);
            }
        }
        for (member, generation) in &new {
            if old.get(member) != Some(generation) {
                told.insert(*member, *generation);
            }
        }
        for ((key, session), generation) in told {
            let event = Event::AssignmentChanged(AssignmentChanged {
                stream: key.stream,
                topic: key.topic,
                group: key.group,
                generation,
            });
            for connection in self.connections.of_session(session) {
                self.counters.assignment_events += 1;
                self.send_event(connection, &event);
            }
        }
    }
}

fn members_of(projection: &Projection) -> Told {
    let groups = projection.groups();
    groups
        .flat_map(|(key, group)| {
            let generation = group.generation();
            group
                .members()
                .map(move |member| ((key, member.session), generation))
        })
        .collect()
}

fn files_of(state: &DataGroup) -> BTreeSet<SegmentId> {
    let files = partition::files_at(&state.snapshot());
    files.into_iter().map(|file| file.id).collect()
}

/// What is to be deleted once `new` has taken the place of `old` for good.
pub(crate) fn superfluous(old: &mut DataGroup, new: &DataGroup) -> Vec<SegmentChange> {
    let kept = files_of(new);
    let partitions: BTreeSet<(PartitionKey, Incarnation)> = new.partitions().collect();
    let mut changes = Vec::new();
    for segment in files_of(old) {
        let place = (segment.partition, segment.incarnation);
        if partitions.contains(&place) && !kept.contains(&segment) {
            changes.push(SegmentChange::Delete { segment });
        }
    }
    for (partition, incarnation) in old.partitions() {
        if !partitions.contains(&(partition, incarnation)) {
            changes.push(SegmentChange::DeletePartition {
                group: new.group(),
                partition,
                incarnation,
            });
        }
    }
    // What was waiting for a checkpoint of the old state.
    old.checkpointed(Op(u64::MAX));
    while let Some(change) = old.next_change() {
        if matches!(
            change,
            SegmentChange::Delete { .. } | SegmentChange::DeletePartition { .. }
        ) {
            changes.push(change);
        }
    }
    changes
}

/// Everything of a state may be other than it was.
pub(crate) fn touch_all(desk: &mut Desk, state: &DataGroup) {
    for (key, incarnation) in state.partitions() {
        desk.grown.insert((key, incarnation));
        desk.begun.insert(key);
        for (group, _) in state.group_records(key) {
            desk.touched.insert((key, group));
        }
    }
}
