//! How far the replicas of a shard have got, for people.

use alloc::{string::ToString, vec::Vec};

use vsr::Status;
use wire::{Op, ReplicaDetails, ReplicaState};

use crate::{Shard, host::Member};

impl Shard {
    /// The replicas that this shard hosts; digests cost the reading of their whole states.
    pub(crate) fn replicas(&self, digests: bool) -> Vec<ReplicaDetails> {
        let metadata = self.metadata.iter().map(|host| {
            let digest = digests.then(|| host.catalog.digest());
            details(&host.member, host.catalog.applied(), digest)
        });
        let data = self.data.values().map(|host| {
            let digest = digests.then(|| host.state.digest());
            details(&host.member, host.state.op(), digest)
        });
        metadata.chain(data).collect()
    }
}

fn details(member: &Member, applied: Op, digest: Option<u128>) -> ReplicaDetails {
    let replica = &member.replica;
    let waits_for = replica.waits_for();
    ReplicaDetails {
        group: member.group,
        view: replica.view(),
        primary: replica.primary(),
        state: match replica.status() {
            Status::Normal => ReplicaState::Normal,
            Status::ViewChange => ReplicaState::ViewChange,
            Status::Recovering => ReplicaState::Recovering,
            Status::RecoveringHead => ReplicaState::RecoveringHead,
            Status::StateTransfer => ReplicaState::StateTransfer,
            Status::OutOfService(_) => ReplicaState::OutOfService,
        },
        serves: replica.is_serving(),
        op: replica.op(),
        durable: replica.durable(),
        commit: replica.commit_max(),
        applied,
        checkpoint: replica.checkpoint_op(),
        damaged: replica.damaged_count(),
        waits_for: waits_for.map(|wait| wait.to_string()),
        digest,
    }
}
