//! Nodes that lose what was on their disks, and come back from the others (V13).

use super::World;
use crate::{
    event::{Event, Fault},
    node::Node,
    rot,
    run::MILLISECOND,
};

impl World {
    /// A node loses its disk, or what it has promised; the next one only when every group has taken the last one
    /// back, for more than a minority must not be without.
    pub(super) fn lose_some_disk(&mut self) {
        let node = self.some_node();
        if !self.checks.without_disk.is_empty() || !self.nodes[node].is_ready() {
            return;
        }
        self.count_as_without_disk(node);
        let forgets = self.random.chance(self.scenario.disks.forget);
        self.crash_and_start(node, false);
        if !forgets {
            return self.lose_disk(node);
        }
        let (place, random) = (&mut self.nodes[node], &mut self.random);
        rot::strike_newest(place, &mut self.run, random);
        self.checks.record_lost = Some((node, false));
        let delay = self.random.between(300, 900) * MILLISECOND;
        self.run
            .after(delay, Event::Fault(Fault::RecoveredDisk { node }));
    }

    /// All its replicas are to be taken back.
    fn count_as_without_disk(&mut self, node: usize) {
        let groups = Node::groups(&self.scenario);
        self.checks.without_disk = groups.map(|group| (node, group)).collect();
    }

    /// An operator is told that a node cannot know what it has promised, and gives up what is on its disk. If the
    /// record was there after all, the node is in its views, and another one may be without its disk by now.
    pub(super) fn recover_node(&mut self, node: usize) {
        if !self.checks.without_disk.iter().any(|(of, _)| *of == node) {
            return;
        }
        self.count_as_without_disk(node);
        if let Some((_, true)) = self.checks.record_lost.take() {
            self.run.counts.records_lost += 1;
        }
        self.crash_and_start(node, false);
        self.lose_disk(node);
    }

    fn lose_disk(&mut self, node: usize) {
        self.run.counts.disks_lost += 1;
        self.run.note(&[66, node as u64], || {
            format!("node {node}: its disk is lost, and it is to come back from the others")
        });
        self.nodes[node].lose_disk(&self.scenario);
    }
}
