//! From the configuration to what each part is told.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use storage::Format;
use wire::{ErrorCode, Failure, FrameHeader, ReplicaId, ShardId};

use crate::{config::Config, random};

/// Bytes of the journal's first file, which the first start waits for.
const FIRST_FILE: u64 = 16 * 1024 * 1024;

/// Bytes that a shard has fetched from other nodes and not written, so that a disk that is slower than the
/// network fills no memory.
const FETCHED_MAX: u64 = 32 * 1024 * 1024;

/// Bytes of a frame before login: a name and a password.
const FRAME_BEFORE_LOGIN: u32 = 64 * 1024;

/// What the shards of a node are told.
pub(crate) fn shard(
    config: &Config,
    format: &Format,
    shard_count: u16,
    address: SocketAddr,
    root_password: Option<String>,
) -> shard::Config {
    let (cluster, node) = (&config.cluster, &config.node);
    let (timeouts, limits) = (&cluster.timeouts, &cluster.limits);
    let groups = u64::from(format.data_groups.max(1));
    shard::Config {
        cluster: format.cluster,
        replica: format.replica,
        nodes: nodes(format, address),
        shard: ShardId(0),
        shard_count,
        data_groups: format.data_groups,
        root_password,
        catalog_limits: limits.catalog,
        limits: shard::Limits {
            frame_size: limits.frame_size(),
            connections: node.connections.per_shard,
            requests_in_flight: node.connections.requests_in_flight,
            bytes_in_flight: node.connections.bytes_in_flight,
            bytes_in_flight_shard: node.connections.bytes_in_flight_per_shard,
            batch_size: limits.batch_size,
            batch_messages: limits.batch_messages,
            poll_wait: milliseconds(timeouts.poll_wait_max),
            poll_bytes: limits.poll_bytes,
            sections: limits.sections,
            passwords: node.passwords.waiting,
        },
        disconnect_grace: nanoseconds(timeouts.disconnect_grace),
        session_timeout: nanoseconds(timeouts.session_timeout),
        liveness_interval: nanoseconds(timeouts.heartbeat_interval) / 3,
        park_timeout: nanoseconds(timeouts.park_timeout),
        incarnation: u64::from_le_bytes(random::bytes()),
        segment_size: cluster.segment_size,
        tail_budget: node.tail_memory / groups,
        fetched_max: FETCHED_MAX,
        fetch_rate: node.catch_up_rate.div_ceil(u64::from(shard_count.max(1))),
        index_budget: node.index_memory / groups,
        scrub_rate: node.scrub_rate / u64::from(shard_count.max(1)),
        producers_max: limits.producers_per_partition,
        consumers_max: limits.consumers_per_partition,
        clients_max: limits.catalog.sessions,
    }
}

/// All nodes, by index, as clients reach them.
fn nodes(format: &Format, address: SocketAddr) -> Vec<shard::Node> {
    if format.nodes.is_empty() {
        return vec![shard::Node {
            replica: format.replica,
            address: address.to_string(),
        }];
    }
    let all = (0..format.replica_count).map(ReplicaId).zip(&format.nodes);
    all.map(|(replica, node)| shard::Node {
        replica,
        address: node.client.clone(),
    })
    .collect()
}

/// What the connections of a shard are told.
pub(crate) fn connections(config: &Config) -> network::Limits {
    let connections = &config.node.connections;
    let text = format!(
        "the shard has {} connections, which is the limit",
        connections.per_shard
    );
    let refusal = Failure::new(ErrorCode::TooManyConnections, text);
    let header = FrameHeader::reply(&FrameHeader::default(), refusal.code.code());
    let frame_size_max = config.cluster.limits.frame_size();
    network::Limits {
        connections_max: connections.per_shard as usize,
        refusal: Bytes::from(header.frame(&refusal.encode())),
        frame_size_before_login: FRAME_BEFORE_LOGIN.min(frame_size_max),
        frame_size_max,
        queue_soft_max: size(connections.queue_soft_max),
        queue_hard_max: size(connections.queue_hard_max),
        slow_timeout: connections.slow_timeout,
        idle_timeout: connections.idle_timeout,
        linger_timeout: connections.linger_timeout,
        ..network::Limits::default()
    }
}

/// What the journal is told.
pub(crate) fn journal(config: &Config, format: &Format) -> journal::Config {
    let identity = journal::identity(format.cluster, format.replica);
    let journal = &config.node.journal;
    journal::Config {
        file_size: journal.file_size,
        first_file_size: journal.file_size.min(FIRST_FILE),
        live_max: journal.size_max,
        checkpoint_at: journal.size_max / 2,
        ..journal::Config::new(identity, format.unit_size)
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
