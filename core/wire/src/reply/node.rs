//! Nodes and the cluster.

use alloc::{string::String, vec::Vec};

use crate::{ClusterId, ConsensusGroup, ReplicaId, View, field::body};

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
}
