//! Nodes and the cluster.

use alloc::{string::String, vec::Vec};

use crate::{
    ClusterId, ConsensusGroup, Op, ReplicaId, View,
    field::{body, states},
};

body! {
    /// Counters of the node that answers.
    Stats {
        /// In the order of their names.
        counters: Vec<Counter>,
    }

    /// One counter.
    Counter {
        /// Its name, as in the metrics endpoint.
        name: String,
        /// Its value.
        value: u64,
    }

    /// The cluster, as the node that answers knows it.
    ClusterMetadata {
        /// The cluster.
        cluster: ClusterId,
        /// The node that answers.
        node: ReplicaId,
        /// All nodes, in the order of their ids.
        nodes: Vec<Node>,
        /// All consensus groups, the metadata group first.
        groups: Vec<GroupPrimary>,
    }

    /// A node.
    Node {
        /// Its id.
        replica: ReplicaId,
        /// Where it takes clients: `host:port`.
        address: String,
    }

    /// Who leads a consensus group.
    GroupPrimary {
        /// The consensus group.
        group: ConsensusGroup,
        /// Its view.
        view: View,
        /// The primary of that view.
        primary: ReplicaId,
    }

    /// The replicas of the node that answers, as they are at this moment.
    NodeStatus {
        /// The cluster.
        cluster: ClusterId,
        /// The node that answers.
        node: ReplicaId,
        /// All nodes, in the order of their ids.
        nodes: Vec<Node>,
        /// Its replicas, that of the metadata group first.
        replicas: Vec<ReplicaDetails>,
    }

    /// A node's part in one consensus group.
    ReplicaDetails {
        /// The consensus group.
        group: ConsensusGroup,
        /// Its view there.
        view: View,
        /// The primary of that view.
        primary: ReplicaId,
        /// What it does.
        state: ReplicaState,
        /// Whether it leads the group and takes requests.
        serves: bool,
        /// The last op of its journal.
        op: Op,
        /// The last op that is on its disk with all before it.
        durable: Op,
        /// The last op that it knows to be committed.
        commit: Op,
        /// The last op of its state.
        applied: Op,
        /// The op of its newest checkpoint.
        checkpoint: Op,
        /// Ops of its journal that are damaged and not fetched yet.
        damaged: u64,
        /// What it waits for, in words for people; absent when it waits for nothing.
        waits_for: Option<String>,
        /// A digest of the state after `applied`, if it was asked for: equal on all replicas.
        digest: Option<u128>,
    }
}

states! {
    /// What a replica does.
    ReplicaState {
        /// It takes part in its view.
        Normal = 1,
        /// It has left a view and waits for the journal of the next one.
        ViewChange = 2,
        /// It has just started, and its promise for the view to come is not on its disk yet.
        Recovering = 3,
        /// It has just started, and the end of its journal may be lost: it only listens until it has it.
        RecoveringHead = 4,
        /// It installs a checkpoint of another replica.
        StateTransfer = 5,
        /// It takes no part until somebody repairs its disk.
        OutOfService = 6,
    }
}
