//! What the cases of consumer groups begin with where there are three nodes: a topic with messages, and a group.

use std::{
    thread,
    time::{Duration, Instant},
};

use integration::{
    Cluster, Connection, DEFAULT_OPTIONS, Group, Member, NODES, Site, counter, until,
};
use wire::{
    ConsensusGroup, ConsumerGroupDetails, ConsumerGroupOptionsUpdate, Offset, TopicDetails,
};

use crate::{PARTITIONS, again, append, in_step, primary};

/// Longer than any test: what waits for it has waited in vain.
pub(crate) const NEVER_MS: u32 = 3_600_000;

/// A cluster with a topic and a group.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) topic: TopicDetails,
    pub(crate) group: Group,
    options: ConsumerGroupOptionsUpdate,
}

/// Sessions outlive their connections, and nodes that are killed.
pub(crate) fn patient(site: Site) -> Site {
    site.with("cluster.timeouts.disconnect_grace", "\"60 s\"")
        .with("cluster.timeouts.session_timeout", "\"60 s\"")
}

/// Options with this time for hand-overs.
pub(crate) fn rebalance_timeout(milliseconds: u32) -> ConsumerGroupOptionsUpdate {
    ConsumerGroupOptionsUpdate {
        rebalance_timeout_ms: Some(milliseconds),
        ..DEFAULT_OPTIONS
    }
}

impl Stage {
    /// `each` messages in each partition; hand-overs may take for ever, and sessions live.
    pub(crate) fn new(each: u64) -> Self {
        Self::with(|_, site| patient(site), each, rebalance_timeout(NEVER_MS))
    }

    pub(crate) fn with(
        set: impl Fn(usize, Site) -> Site,
        each: u64,
        options: ConsumerGroupOptionsUpdate,
    ) -> Self {
        let mut cluster = Cluster::with(set);
        cluster.start();
        let topic = cluster.create_topic(0, "orders", PARTITIONS);
        let mut admin = cluster.login(0);
        for partition in 0..PARTITIONS {
            for offset in 0..each {
                let message = integration::message(partition, offset);
                let found = append(&mut admin, &topic, partition, &message);
                assert_eq!(found, Offset(offset));
            }
        }
        let group = Group::create(&mut admin, &topic, "billing", options.clone());
        Self {
            group: group.expect("make a group"),
            cluster,
            topic,
            options,
        }
    }

    /// The node that leads the metadata.
    pub(crate) fn leader(&self, ask: usize) -> usize {
        primary(&self.cluster, ask, ConsensusGroup::METADATA)
    }

    /// The node that leads a partition.
    pub(crate) fn leader_of(&self, partition: u32, ask: usize) -> usize {
        let group = self.topic.partitions[partition as usize].group;
        primary(&self.cluster, ask, group)
    }

    /// A member whose connection is to this node.
    pub(crate) fn join(&self, node: usize) -> Member {
        self.join_group(node, &self.group)
    }

    pub(crate) fn join_group(&self, node: usize, group: &Group) -> Member {
        let connection = self.cluster.login(node);
        Member::try_join(connection, group).expect("join")
    }

    /// Kills a node. Members that talk to it have to attach elsewhere.
    pub(crate) fn kill(&mut self, node: usize) {
        drop(self.cluster.kill(node));
    }

    /// Starts a node that was killed, and waits until all have the same state (I7).
    pub(crate) fn restore(&mut self, node: usize) {
        self.cluster.start_in_order(&[node]);
        in_step(&self.cluster, &[0, 1, 2]);
    }

    /// The group as it is described through a node.
    pub(crate) fn details(&self, node: usize) -> ConsumerGroupDetails {
        let mut connection = self.cluster.login(node);
        self.described(&mut connection)
    }

    pub(crate) fn described(&self, connection: &mut Connection) -> ConsumerGroupDetails {
        again("the group is described", || self.group.describe(connection))
    }

    /// Two members that talk to nodes which live on: the first has polled ten messages of each partition and stored
    /// nothing when the second joins.
    pub(crate) fn two_members(&self, dies: usize) -> (Member, Member) {
        let [here, there] = others(dies);
        let mut first = self.join(here);
        first.wait_for(PARTITIONS as usize);
        for partition in first.owned() {
            let page = again("it is read", || first.poll(partition, 10));
            assert_eq!(page.messages.len(), 10);
        }
        let second = self.join(there);
        first.wait_for_revoking(3);
        (first, second)
    }

    /// Everybody leaves, a node that was killed comes back, and nothing is stored.
    pub(crate) fn end(&mut self, members: impl IntoIterator<Item = Member>, died: usize) {
        for mut member in members {
            again("it leaves", || member.leave());
        }
        self.restore(died);
        self.renew();
    }

    /// Goes on with another group, which has no members and has stored nothing.
    pub(crate) fn renew(&mut self) {
        let mut admin = self.cluster.login(0);
        again("the group goes", || self.group.delete(&mut admin, true));
        let name = format!("after-{}", self.group.id);
        let group = Group::create(&mut admin, &self.topic, &name, self.options.clone());
        self.group = group.expect("make a group");
    }

    /// What all nodes have counted under this name.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let nodes = (0..NODES).map(|node| counter(&mut self.cluster.login(node), name));
        nodes.sum()
    }

    /// What is stored for the group in all partitions, as it is told through a node.
    pub(crate) fn stored(&self, node: usize) -> Vec<Option<Offset>> {
        let mut connection = self.cluster.login(node);
        let all: Vec<u32> = (0..PARTITIONS).collect();
        all.iter()
            .map(|partition| {
                again("an offset is told", || {
                    stored_in(&mut connection, &self.group, *partition)
                })
            })
            .collect()
    }
}

/// What is stored for a group in a partition.
pub(crate) fn stored_in(
    connection: &mut Connection,
    group: &Group,
    partition: u32,
) -> Result<Option<Offset>, wire::Failure> {
    match connection.ask(group.offsets_of(&[partition]))? {
        wire::Reply::Offsets(mut offsets) => {
            let section = offsets.sections.pop().expect("one was asked for");
            section.status.map(|()| section.stored)
        }
        other => panic!("stored offsets: {other:?}"),
    }
}

/// Lets a member store one offset, whatever happens to primaries meanwhile.
pub(crate) fn store(member: &mut Member, partition: u32, offset: u64) {
    let stored = again("an offset is stored", || member.store(partition, offset));
    assert_eq!(stored, Some(Offset(offset)));
}

/// Releases what a member knows to be revoked. What has moved since is refused, which is in order.
pub(crate) fn give_up(member: &mut Member) {
    for partition in member.revoking() {
        until("it is released", || match member.release(partition, None) {
            Err(failure) if failure.code.retryable() => None,
            _ => Some(()),
        });
    }
}

/// The nodes but this one.
pub(crate) fn others(node: usize) -> [usize; 2] {
    [(node + 1) % NODES, (node + 2) % NODES]
}

/// Uses up a moment of irregular length, less than `limit`: something else happens meanwhile.
pub(crate) fn pass_a_moment(round: u32, limit: Duration) {
    let limit = u64::try_from(limit.as_micros()).expect("it is short");
    let length = Duration::from_micros(u64::from(round) * 7_919_993 % limit);
    let end = Instant::now() + length;
    while Instant::now() < end {
        thread::yield_now();
    }
}
