//! What a shard is told when it starts.

use alloc::{string::String, vec::Vec};

use wire::{ClusterId, ConsensusGroup, ReplicaId, ShardId};

/// One node of the cluster, as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its index in the roster.
    pub replica: ReplicaId,
    /// Where clients reach it, `host:port`.
    pub address: String,
}

/// What a shard is told when it starts. Equal on all shards of a node but for `shard`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub replica: ReplicaId,
    /// Every node, by index.
    pub nodes: Vec<Node>,
    /// Chosen anew by every process, at random: what is answered late is told from what was asked before a
    /// restart.
    pub incarnation: u64,
    /// This shard.
    pub shard: ShardId,
    /// Shards of this node.
    pub shard_count: u16,
    /// Data groups of the cluster, G.
    pub data_groups: u16,
    /// PHC string of the password with which the first start creates `root`.
    pub root_password: Option<String>,
    /// Limits of the catalog.
    pub catalog_limits: catalog::Limits,
    /// Limits of connections and requests.
    pub limits: Limits,
    /// How long a session lives without a connection, nanoseconds.
    pub disconnect_grace: u64,
    /// How long a session lives without a sign of life, nanoseconds.
    pub session_timeout: u64,
    /// How often live sessions are reported to shard 0, nanoseconds.
    pub liveness_interval: u64,
    /// How long a request waits for a metadata op that this node has not applied yet, nanoseconds.
    pub park_timeout: u64,
    /// Size at which a segment is closed, bytes.
    pub segment_size: u64,
    /// Bytes of recent batches kept in memory, per data group.
    pub tail_budget: u64,
    /// Bytes fetched from other nodes that may wait for their segment files, on this shard; beyond it nothing
    /// more is asked for.
    pub fetched_max: u64,
    /// Bytes a second of segments that are asked of other nodes to catch up; 0: as many as come.
    pub fetch_rate: u64,
    /// Bytes of indexes of full segments kept in memory, per data group.
    pub index_budget: u64,
    /// Bytes a second of full segments that are read back to find damage; 0: none.
    pub scrub_rate: u64,
    /// Idempotent producers remembered per partition.
    pub producers_max: u32,
    /// Single consumers that may have an offset stored in a partition.
    pub consumers_max: u32,
    /// Clients in the client table of the metadata group.
    pub clients_max: u32,
}

/// Limits of connections and requests on one shard.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest frame taken, bytes.
    pub frame_size: u32,
    /// Connections of this shard.
    pub connections: u32,
    /// Requests in flight on one connection; beyond it nothing more is read from it.
    pub requests_in_flight: u32,
    /// Bytes in flight on one connection; beyond it nothing more is read from it.
    pub bytes_in_flight: u64,
    /// Bytes in flight on all connections of the shard together.
    pub bytes_in_flight_shard: u64,
    /// The largest batch taken, header included, bytes; leaves [`FRAME_RESERVE`] of a frame.
    pub batch_size: u32,
    /// Messages in one batch.
    pub batch_messages: u32,
    /// The longest wait of a poll, milliseconds.
    pub poll_wait: u32,
    /// Bytes that one poll may ask for.
    pub poll_bytes: u32,
    /// Partitions in one send, poll or store.
    pub sections: u32,
    /// Passwords being checked or hashed at once.
    pub passwords: u32,
}

/// Bytes of a frame that are left for other things than a batch: headers, names, the other sections of an
/// answer.
pub const FRAME_RESERVE: u32 = 64 * 1024;

impl Config {
    /// The shard of this node that hosts a consensus group.
    #[must_use]
    pub fn shard_of(&self, group: ConsensusGroup) -> ShardId {
        let nodes = u8::try_from(self.nodes.len()).expect("a cluster has 1, 3 or 5 nodes");
        shard_of_group(group, nodes, self.shard_count)
    }
}

/// The shard of a node with `shard_count` shards that hosts a consensus group in a cluster of
/// `replica_count` nodes. The metadata group lives on shard 0; data groups are spread so that the groups
/// led by one node land on all of its shards.
///
/// # Panics
/// When a count is 0.
#[must_use]
pub fn shard_of_group(group: ConsensusGroup, replica_count: u8, shard_count: u16) -> ShardId {
    assert!(replica_count > 0 && shard_count > 0);
    if group == ConsensusGroup::METADATA {
        return ShardId(0);
    }
    let k = group.0 - 1;
    ShardId(k / u16::from(replica_count) % shard_count)
}
