//! The data plane follows the metadata: partitions are created and dropped where they live, and what
//! rests on an ended session ends.

use alloc::vec::Vec;

use catalog::{Change, Placement};
use partition::DataRequest;
use wire::{
    Command, ConsensusGroup, Event, EvictionReason, Incarnation, Op, PartitionKey, SessionNumber,
    StreamId, TopicId,
};

use crate::Shard;

impl Shard {
    /// Follows the changes of an op.
    pub(crate) fn on_changes(&mut self, op: Op, changes: &[Change]) {
        if !self.knows_projection() || op <= self.projection.applied() {
            return;
        }
        self.projection.apply(op, changes);
        for change in changes {
            self.on_change(op, change);
        }
        self.unpark();
    }

    fn on_change(&mut self, op: Op, change: &Change) {
        match change {
            Change::TopicCreated {
                stream,
                topic,
                partitions,
                ..
            }
            | Change::PartitionsCreated {
                stream,
                topic,
                partitions,
            } => {
                for placement in partitions {
                    self.propose_create(
                        key(*stream, *topic, placement),
                        placement.incarnation,
                        placement.group,
                        op,
                    );
                }
            }
            Change::TopicDeleted {
                stream,
                topic,
                partitions,
            }
            | Change::PartitionsDeleted {
                stream,
                topic,
                partitions,
            } => {
                for placement in partitions {
                    self.propose_drop(
                        key(*stream, *topic, placement),
                        placement.incarnation,
                        placement.group,
                        op,
                    );
                }
            }
            Change::SessionEnded {
                session, reason, ..
            } => self.on_session_ended(*session, *reason),
            Change::StreamCreated { .. }
            | Change::StreamRenamed { .. }
            | Change::StreamDeleted { .. }
            | Change::TopicRenamed { .. }
            | Change::SessionRegistered { .. }
            | Change::ConsumerGroupCreated { .. }
            | Change::ConsumerGroupChanged { .. }
            | Change::ConsumerGroupDeleted { .. } => {}
        }
    }

    fn propose_create(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        group: ConsensusGroup,
        admitted: Op,
    ) {
        if let Some(host) = self.data.get_mut(&group)
            && host.member.serves()
        {
            host.propose(DataRequest::CreatePartition {
                key,
                incarnation,
                admitted,
            });
        }
    }

    fn propose_drop(
        &mut self,
        key: PartitionKey,
        incarnation: Incarnation,
        group: ConsensusGroup,
        dropped: Op,
    ) {
        if let Some(host) = self.data.get_mut(&group)
            && host.member.serves()
        {
            host.propose(DataRequest::DropPartition {
                key,
                incarnation,
                dropped,
            });
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

    fn on_session_ended(&mut self, session: SessionNumber, reason: EvictionReason) {
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

const fn key(stream: StreamId, topic: TopicId, placement: &Placement) -> PartitionKey {
    PartitionKey {
        stream,
        topic,
        partition: placement.partition,
    }
}
