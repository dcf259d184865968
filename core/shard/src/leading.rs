//! What the replicas of a shard learn of their node, because it bears on who had better lead.

use alloc::vec::Vec;

use wire::{ConsensusGroup, ReplicaId};

use crate::{DiskSpace, Shard, host::Member};

impl Shard {
    /// The replicas that it hosts.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        let metadata = self.metadata.iter().map(|host| &host.member);
        metadata.chain(self.data.values().map(|host| &host.member))
    }

    /// Tells all replicas that it hosts.
    pub(crate) fn feed_all(&mut self, input: &vsr::Input) {
        let groups: Vec<ConsensusGroup> = self.members().map(|member| member.group).collect();
        for group in groups {
            self.feed(group, input.clone());
        }
    }

    /// Whether this node would rather have others lead: what it leads it can append nothing to.
    fn is_reluctant(&self) -> bool {
        self.disk != DiskSpace::Enough
    }

    /// Tells its replicas.
    pub(crate) fn tell_reluctance(&mut self) {
        self.feed_all(&vsr::Input::Reluctant(self.is_reluctant()));
    }

    /// All groups of a node share its links: what any of them has said may be behind this.
    pub(crate) fn on_receiving(&mut self, from: ReplicaId) {
        self.feed_all(&vsr::Input::Receiving { from });
    }

    /// They share the journal and the links of this one, too.
    pub(crate) fn on_moving(&mut self) {
        self.feed_all(&vsr::Input::Moving);
    }
}
