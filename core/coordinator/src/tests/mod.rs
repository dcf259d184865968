//! Whole groups: named cases, and operations at random against a naive model.

mod assignment;
mod fencing;
mod handing_over;
mod members;
mod model;
mod names;
mod partitions;
mod random;
mod replay;
mod statics;

use std::{string::ToString, vec, vec::Vec};

use wire::{
    ClientId, Epoch, Generation, Identifier, MemberId, Op, PartitionId, SessionNumber, Timestamp,
};

use crate::{
    Assignment, At, ConsumerGroup, ConsumerGroups, GroupChange, GroupOptions, Holding, Join,
    JoinRefused, Joined, NewGroup, Ownership, Weight,
};

/// One group with the ops that have been applied to it.
pub(crate) struct Table {
    pub(crate) group: ConsumerGroup,
    pub(crate) op: u64,
}

pub(crate) const MEMBERS_MAX: u32 = 100_000;

pub(crate) fn at(op: u64) -> At {
    At {
        op: Op(op),
        timestamp: Timestamp(op * 1_000),
    }
}

pub(crate) fn group(partitions: u32, options: GroupOptions) -> ConsumerGroup {
    let mut groups = ConsumerGroups::default();
    let new = NewGroup {
        name: "g".to_string(),
        options,
        partitions,
    };
    groups.create(at(1), new, 10).unwrap().clone()
}

pub(crate) fn named(name: &str) -> Identifier {
    Identifier::name(name).unwrap()
}

/// The join of a client whose session has the client's number.
pub(crate) fn dynamic(client: u64) -> Join {
    Join {
        client: ClientId(client.into()),
        session: SessionNumber(client),
        instance: None,
        weight: Weight::default(),
        address: std::format!("10.0.0.{client}:4000"),
    }
}

pub(crate) fn fixed(client: u64, instance: &str) -> Join {
    Join {
        instance: Some(instance.to_string()),
        ..dynamic(client)
    }
}

impl Table {
    /// A group without members, made by op 1; the next op is 10, then 20 and so on.
    pub(crate) fn new(partitions: u32) -> Self {
        Self::with(partitions, GroupOptions::default())
    }

    pub(crate) fn with(partitions: u32, options: GroupOptions) -> Self {
        Self {
            group: group(partitions, options),
            op: 0,
        }
    }

    pub(crate) fn next(&mut self) -> At {
        self.op += 10;
        at(self.op)
    }

    pub(crate) fn try_join(&mut self, join: Join) -> Result<(Joined, GroupChange), JoinRefused> {
        let at = self.next();
        self.group.join(at, join, MEMBERS_MAX)
    }

    /// Joins, and answers the member's id with the change.
    pub(crate) fn join(&mut self, client: u64) -> (u64, GroupChange) {
        let (joined, change) = self.try_join(dynamic(client)).unwrap();
        (joined.member.0, change)
    }

    pub(crate) fn join_fixed(&mut self, client: u64, instance: &str) -> (u64, GroupChange) {
        let (joined, change) = self.try_join(fixed(client, instance)).unwrap();
        (joined.member.0, change)
    }

    pub(crate) fn leave(&mut self, client: u64) -> GroupChange {
        let at = self.next();
        let client_id = ClientId(client.into());
        self.group
            .leave(at, client_id, SessionNumber(client))
            .unwrap()
    }

    /// Completes every move that there is.
    pub(crate) fn settle(&mut self) -> GroupChange {
        let moves = self.moves();
        let at = self.next();
        self.group.complete(at, &moves)
    }

    pub(crate) fn complete(&mut self, moves: &[(u32, u64)]) -> GroupChange {
        let moves: Vec<_> = moves
            .iter()
            .map(|(partition, epoch)| (PartitionId(*partition), Epoch(*epoch)))
            .collect();
        let at = self.next();
        self.group.complete(at, &moves)
    }

    pub(crate) fn moves(&self) -> Vec<(PartitionId, Epoch)> {
        let entries = (0..).map(PartitionId).zip(self.group.ownerships());
        entries
            .filter_map(|(partition, entry)| Some((partition, entry.moving()?.epoch)))
            .collect()
    }

    pub(crate) fn entry(&self, partition: u32) -> Ownership {
        self.group.ownership(PartitionId(partition)).unwrap()
    }

    /// The table in short, as the documentation of the plan writes it: `1`, `1>2`, `->2`, `->-`, `-`.
    pub(crate) fn drawn(&self) -> Vec<std::string::String> {
        let name = |member: Option<MemberId>| member.map_or("-".to_string(), |it| it.to_string());
        let entries = self.group.ownerships();
        entries
            .map(|entry| match entry.holding {
                Holding::Nobody | Holding::Owned { .. } => name(entry.owner()),
                Holding::Revoking { .. } | Holding::Fencing { .. } => {
                    std::format!("{}>{}", name(entry.owner()), name(entry.heir()))
                }
            })
            .collect()
    }

    pub(crate) fn generation(&self) -> u64 {
        let Generation(generation) = self.group.generation();
        generation
    }

    pub(crate) fn assignment(&self, member: u64) -> Assignment {
        self.group.assignment(MemberId(member)).unwrap()
    }

    /// How many partitions each member owns, in order of ids.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let members = self.group.members();
        let count = |member| {
            self.group
                .ownerships()
                .filter(move |it| it.owner() == Some(member))
        };
        members.map(|member| count(member.id).count()).collect()
    }
}

/// Who is told by a change.
pub(crate) fn told(change: &GroupChange) -> Vec<u64> {
    change.notify.iter().map(|holder| holder.member.0).collect()
}

/// Which partitions a change is about.
pub(crate) fn touched(change: &GroupChange) -> Vec<u32> {
    let partitions = change.ownership.iter();
    partitions.map(|(partition, _)| partition.0).collect()
}

pub(crate) fn repeated(text: &str, times: usize) -> Vec<std::string::String> {
    vec![text.to_string(); times]
}
