//! What the replicas of a shard learn of their node, because it bears on who had better lead.

use alloc::vec::Vec;

use vsr::Status;
use wire::{ConsensusGroup, ReplicaId, ShardId};

use crate::{DiskSpace, Effect, MeshMessage, Shard, host::Member};

/// How long a node has not heard the primary of the metadata, which others hear, when it would rather lead nothing,
/// nanoseconds.
const CUT_OFF_MIN: u64 = 1_000_000_000;

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

    /// Whether this node would rather have others lead: it can append nothing to what it leads, or knows too little of
    /// the metadata to serve it.
    fn is_reluctant(&self) -> bool {
        self.disk != DiskSpace::Enough || self.is_cut_off
    }

    /// The shard with the metadata: looks whether it has been cut off from the primary of that for long, while the
    /// others go on with it. Then it serves no new sessions, and knows nothing of new partitions and groups.
    pub(crate) fn watch_metadata(&mut self) {
        let Some(host) = &self.metadata else {
            return;
        };
        let since = host.member.replica.suspects_since();
        let now = self.desk.now.monotonic;
        let is_cut_off = since.is_some_and(|since| now.saturating_sub(since) >= CUT_OFF_MIN);
        if is_cut_off == self.is_cut_off {
            return;
        }
        self.on_cut_off(is_cut_off);
        let own = self.config.shard;
        let shards = (0..self.config.shard_count).map(ShardId);
        for to in shards.filter(|to| *to != own) {
            let message = MeshMessage::CutOff(is_cut_off);
            self.desk.push(Effect::Mesh { to, message });
        }
    }

    pub(crate) fn on_cut_off(&mut self, is_cut_off: bool) {
        self.is_cut_off = is_cut_off;
        self.tell_reluctance();
    }

    /// Replicas that want a checkpoint, or have no head, fetch what they lack over the links and disks that all share.
    pub(crate) fn watch_catching_up(&mut self) {
        let is_behind = |member: &Member| {
            let replica = &member.replica;
            let has_no_head = replica.status() == Status::RecoveringHead;
            has_no_head || replica.wanted_checkpoint().is_some()
        };
        let is_catching_up = self.members().any(is_behind);
        if is_catching_up != self.is_catching_up {
            self.is_catching_up = is_catching_up;
            self.feed_all(&vsr::Input::CatchingUp(is_catching_up));
        }
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
