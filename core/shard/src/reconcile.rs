//! The data plane follows the metadata: partitions are created and dropped where they live, and what
//! rests on an ended session ends.

use alloc::vec::Vec;

use catalog::{Change, GroupKey, Notice, Placement};
use coordinator::{GroupChange, Holder, MemberChange};
use partition::DataRequest;
use wire::{
    AssignmentChanged, Command, Event, EvictionReason, Incarnation, MembershipEndReason,
    MembershipEnded, Op, PartitionKey, SessionNumber, StreamId, TopicId,
};

use crate::{Shard, host::Waiter};

impl Shard {
    /// Follows the changes of an op.
    pub(crate) fn on_changes(&mut self, op: Op, changes: &[Change]) {
        if !self.knows_projection() || op <= self.projection.applied() {
            return;
        }
        self.projection.apply(op, changes);
        for change in changes {
            self.on_change(op, change);
            for notice in change.notices() {
                self.tell_assignment(&notice);
            }
        }
        self.unpark();
        if !self.resets.is_empty() {
            self.answer_resets();
        }
    }

    fn on_change(&mut self, op: Op, change: &Change) {
        match change {
            Change::TopicCreated {
                stream,
                topic,
                partitions,
                ..
            }
            | Change::PartitionsPurged {
                stream,
                topic,
                partitions,
            }
            | Change::PartitionsCreated {
                stream,
                topic,
                partitions,
            } => self.propose_creates((*stream, *topic), partitions, op),
            Change::TopicDeleted {
                stream,
                topic,
                partitions,
            }
            | Change::PartitionsDeleted {
                stream,
                topic,
                partitions,
            } => self.propose_drops((*stream, *topic), partitions, op),
            Change::SessionEnded {
                session, reason, ..
            } => self.on_session_ended(*session, *reason),
            Change::ConsumerGroupChanged {
                stream,
                topic,
                change,
            } => self.on_group_changed((*stream, *topic), change),
            Change::ConsumerGroupDeleted {
                stream,
                topic,
                group,
                members,
                partitions,
                ..
            } => {
                let key = GroupKey {
                    stream: *stream,
                    topic: *topic,
                    group: *group,
                };
                self.on_group_deleted(key, members, (op, partitions));
            }
            Change::StreamCreated { .. }
            | Change::StreamRenamed { .. }
            | Change::StreamDeleted { .. }
            | Change::TopicRenamed { .. }
            | Change::SessionRegistered { .. }
            | Change::ConsumerGroupCreated { .. } => {}
        }
    }

    /// Whoever waits in the group's name is judged again, and what it has to move goes on.
    fn on_group_changed(&mut self, (stream, topic): (StreamId, TopicId), change: &GroupChange) {
        let group = change.group;
        let key = GroupKey {
            stream,
            topic,
            group,
        };
        for (partition, _) in &change.ownership {
            self.hand_overs.touch((key, *partition));
            self.polls.on_reassigned(PartitionKey {
                stream,
                topic,
                partition: *partition,
            });
        }
        // Deadlines follow the options, and partitions may be gone.
        self.hand_overs.touch_group(&key);
        self.unpark_group(key);
        for member in &change.members {
            self.tell_who_goes(key, member);
        }
    }

    fn on_group_deleted(
        &mut self,
        key: GroupKey,
        members: &[Holder],
        (dropped, partitions): (Op, &[Placement]),
    ) {
        self.hand_overs.touch_group(&key);
        self.unpark_group(key);
        self.polls.on_topic_changed((key.stream, key.topic));
        for placement in partitions {
            if let Some(host) = self.data.get_mut(&placement.group)
                && host.member.serves()
            {
                let partition = placement_key(&key, placement);
                let request = DataRequest::DropConsumerGroup {
                    key: partition,
                    incarnation: placement.incarnation,
                    dropped,
                    group: key.group,
                };
                host.queue(request, Waiter::Fence(key.group));
            }
        }
        for holder in members {
            let ended = MembershipEnded {
                stream: key.stream,
                topic: key.topic,
                group: key.group,
                member: holder.member,
                by: None,
                address: None,
            };
            let event = Event::MembershipEnded(MembershipEndReason::GroupDeleted, ended);
            self.tell_session(holder.session, &event);
        }
    }

    /// Tells a session that its membership is over, unless it has asked for that, or is over itself.
    fn tell_who_goes(&mut self, key: GroupKey, change: &MemberChange) {
        let (reason, member, session, by) = match change {
            // It is told by the reply, and wherever else the session asks.
            MemberChange::Left(_) => return,
            MemberChange::Gone(member) => {
                (MembershipEndReason::Removed, member, member.session, None)
            }
            MemberChange::Put(member) => match &member.displaced {
                Some(displaced) => (
                    MembershipEndReason::FencedInstanceId,
                    member,
                    displaced.session,
                    Some(member.client),
                ),
                None => return,
            },
        };
        let address = by.map(|_| member.address.clone());
        let ended = MembershipEnded {
            stream: key.stream,
            topic: key.topic,
            group: key.group,
            member: member.id,
            by,
            address: address.filter(|address| !address.is_empty()),
        };
        self.tell_session(session, &Event::MembershipEnded(reason, ended));
    }

    fn tell_session(&mut self, session: SessionNumber, event: &Event) {
        for connection in self.connections.of_session(session) {
            // Who leaves learns it from the reply.
            let leaves = self
                .pending
                .has_command(connection, Command::LeaveConsumerGroup);
            if !leaves {
                self.send_event(connection, event);
            }
        }
    }

    fn tell_assignment(&mut self, notice: &Notice) {
        let event = Event::AssignmentChanged(AssignmentChanged {
            stream: notice.key.stream,
            topic: notice.key.topic,
            group: notice.key.group,
            generation: notice.generation,
        });
        for connection in self.connections.of_session(notice.session) {
            self.counters.assignment_events += 1;
            self.send_event(connection, &event);
        }
    }

    fn propose_creates(
        &mut self,
        (stream, topic): (StreamId, TopicId),
        partitions: &[Placement],
        admitted: Op,
    ) {
        for placement in partitions {
            if let Some(host) = self.data.get_mut(&placement.group)
                && host.member.serves()
            {
                host.propose(DataRequest::CreatePartition {
                    key: key(stream, topic, placement),
                    incarnation: placement.incarnation,
                    admitted,
                });
            }
        }
    }

    fn propose_drops(
        &mut self,
        (stream, topic): (StreamId, TopicId),
        partitions: &[Placement],
        dropped: Op,
    ) {
        for placement in partitions {
            if let Some(host) = self.data.get_mut(&placement.group)
                && host.member.serves()
            {
                host.propose(DataRequest::DropPartition {
                    key: key(stream, topic, placement),
                    incarnation: placement.incarnation,
                    dropped,
                });
            }
        }
    }

    /// Compares the data groups that this node leads with the metadata as a whole. Level-triggered: it
    /// does not matter what was missed.
    pub(crate) fn reconcile_all(&mut self) {
        if !self.knows_projection() {
            return;
        }
        let applied = self.projection.applied();
        for (key, placement) in self.projection.placements() {
            if let Some(host) = self.data.get_mut(&placement.group)
                && host.member.serves()
                && host
                    .state
                    .incarnation(key)
                    .is_none_or(|here| here < placement.incarnation)
            {
                let incarnation = placement.incarnation;
                host.propose(DataRequest::CreatePartition {
                    key,
                    incarnation,
                    admitted: applied,
                });
            }
        }
        for (group, host) in &mut self.data {
            if !host.member.serves() {
                continue;
            }
            let projection = &self.projection;
            let stray: Vec<(PartitionKey, Incarnation)> = host
                .state
                .partitions()
                .filter(|(key, incarnation)| {
                    // One that is newer than this copy of the metadata is not judged by it.
                    incarnation.0 <= applied.0
                        && projection
                            .placement(key)
                            .is_none_or(|placement| placement.group != *group)
                })
                .collect();
            for (key, incarnation) in stray {
                host.propose(DataRequest::DropPartition {
                    key,
                    incarnation,
                    dropped: applied,
                });
            }
        }
    }

    pub(crate) fn on_session_ended(&mut self, session: SessionNumber, reason: EvictionReason) {
        let event = Event::Evicted(reason);
        for connection in self.connections.unbind(session) {
            // Who logs out learns it from the reply.
            if self.pending.has_command(connection, Command::Logout) {
                continue;
            }
            // Who changes its password learns from the reply that it did, then that its session is over.
            if self
                .pending
                .has_command(connection, Command::ChangePassword)
            {
                self.delayed.insert(connection, event.clone());
            } else {
                self.send_event(connection, &event);
            }
        }
    }
}

const fn placement_key(key: &GroupKey, placement: &Placement) -> PartitionKey {
    PartitionKey {
        stream: key.stream,
        topic: key.topic,
        partition: placement.partition,
    }
}

const fn key(stream: StreamId, topic: TopicId, placement: &Placement) -> PartitionKey {
    PartitionKey {
        stream,
        topic,
        partition: placement.partition,
    }
}
