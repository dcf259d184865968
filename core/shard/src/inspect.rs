//! What is looked at from outside: for checks between replicas.

use catalog::Catalog;
use partition::DataGroup;
use wire::{ConsensusGroup, Op};

use crate::Shard;

impl Shard {
    /// The last op that a group of this shard has applied: for checks between replicas.
    #[must_use]
    pub fn applied_point(&self, group: ConsensusGroup) -> Option<vsr::ChainPoint> {
        self.member(group)
            .map(|member| member.replica.applied_point())
    }

    /// The view of a group of this shard.
    #[must_use]
    pub fn view(&self, group: ConsensusGroup) -> Option<wire::View> {
        self.member(group).map(|member| member.replica.view())
    }

    /// The metadata op up to which this shard knows the metadata: what it serves rests on that.
    #[must_use]
    pub const fn metadata_applied(&self) -> Op {
        self.projection.applied()
    }

    /// The metadata state machine, where this shard hosts it: for checks between replicas.
    #[must_use]
    pub fn catalog(&self) -> Option<&Catalog> {
        self.metadata.as_ref().map(|host| &host.catalog)
    }

    /// The state machine of a data group of this shard: for checks between replicas.
    #[must_use]
    pub fn data_group(&self, group: ConsensusGroup) -> Option<&DataGroup> {
        self.data.get(&group).map(|host| &host.state)
    }
}
