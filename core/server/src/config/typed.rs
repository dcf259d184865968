//! The configuration as the rest of the server reads it.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::{BUILT_IN_NAME, ClusterNode, Entry, Value, problem::Origin};

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// What must be the same on all nodes.
    pub cluster: Cluster,
    /// What is this node's own.
    pub node: Node,
}

/// What must be the same on all nodes.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// What tells it from others; always set with more than one node.
    pub id: Option<String>,
    /// What its nodes prove to one another that they know; always set with more than one node.
    pub secret: Option<Password>,
    /// Its nodes, by id; without any, or with one, this one is alone.
    pub nodes: Vec<ClusterNode>,
    /// Data groups, G.
    pub data_groups: u16,
    /// Size at which a segment is closed, bytes.
    pub segment_size: u64,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Limits.
    pub limits: ClusterLimits,
}

/// Timeouts that nodes must agree on.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// How often a client gives a sign of life.
    pub heartbeat_interval: Duration,
    /// How long a silent session lives.
    pub session_timeout: Duration,
    /// How long a session without a connection lives.
    pub disconnect_grace: Duration,
    /// How long a request waits for metadata.
    pub park_timeout: Duration,
    /// The longest wait of a poll.
    pub poll_wait_max: Duration,
}

/// Limits that nodes must agree on.
#[derive(Clone, Debug)]
pub struct ClusterLimits {
    /// Limits of the catalog.
    pub catalog: catalog::Limits,
    /// Idempotent producers remembered per partition.
    pub producers_per_partition: u32,
    /// Single consumers per partition.
    pub consumers_per_partition: u32,
    /// Bytes of one batch.
    pub batch_size: u32,
    /// Messages in one batch.
    pub batch_messages: u32,
    /// Partitions in one request.
    pub sections: u32,
    /// Bytes that one poll may ask for.
    pub poll_bytes: u32,
}

/// What is this node's own.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id.
    pub id: u8,
    /// Where clients are listened for, `host:port`.
    pub address: String,
    /// Where the other nodes are listened for, `host:port`; `None` when there are none.
    pub peer_address: Option<String>,
    /// Where everything durable is.
    pub data_directory: PathBuf,
    /// Bytes of the disk that messages must leave.
    pub disk_reserve: u64,
    /// Shards; `None`: one per core.
    pub shards: Option<u16>,
    /// Whether each shard keeps to a core.
    pub pin_cores: bool,
    /// Whether io_uring is not used although it is there.
    pub force_polling: bool,
    /// The password of `root` at the first start.
    pub root_password: Option<Password>,
    /// Memory for the newest messages, bytes.
    pub tail_memory: u64,
    /// Memory for the indexes of full segments, bytes.
    pub index_memory: u64,
    /// Bytes of full segments read back in a second.
    pub scrub_rate: u64,
    /// Bytes of segments fetched from other nodes in a second, at most; 0: as many as come.
    pub catch_up_rate: u64,
    /// The journal.
    pub journal: Journal,
    /// Connections.
    pub connections: Connections,
    /// The hashing pool.
    pub passwords: Passwords,
    /// What is written to standard error.
    pub logs: Logs,
}

/// The journal of this node. It is always flushed before anything is acknowledged.
#[derive(Clone, Debug)]
pub struct Journal {
    /// Bytes of a file.
    pub file_size: u64,
    /// Bytes since the oldest checkpoint.
    pub size_max: u64,
}

/// Limits of connections.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Connections of one shard.
    pub per_shard: u32,
    /// Unanswered requests of a connection.
    pub requests_in_flight: u32,
    /// Bytes of them.
    pub bytes_in_flight: u64,
    /// Bytes of them on one shard.
    pub bytes_in_flight_per_shard: u64,
    /// Bytes of waiting answers above which nothing is read.
    pub queue_soft_max: u64,
    /// Bytes of waiting answers above which the connection is dropped.
    pub queue_hard_max: u64,
    /// How long a client may fail to read.
    pub slow_timeout: Duration,
    /// How long a client may be silent.
    pub idle_timeout: Duration,
    /// How long a closing connection lives.
    pub linger_timeout: Duration,
}

/// The hashing pool.
#[derive(Clone, Debug)]
pub struct Passwords {
    /// Its threads.
    pub threads: u16,
    /// Checks that may wait on one shard.
    pub waiting: u32,
}

/// What is written to standard error.
#[derive(Clone, Debug)]
pub struct Logs {
    /// The least grave that is written.
    pub level: LogLevel,
    /// How it is written.
    pub format: LogFormat,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something is lost or out of service.
    Error,
    /// Something should be looked at.
    Warn,
    /// Lifecycle.
    Info,
    /// For those who look for a fault.
    Debug,
    /// Everything.
    Trace,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// A secret that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

impl ClusterLimits {
    /// Bytes of the largest frame: a batch and what is around it.
    #[must_use]
    pub fn frame_size(&self) -> u32 {
        (self.batch_size + shard::FRAME_RESERVE).min(wire::FRAME_SIZE_MAX)
    }
}

impl Config {
    /// Takes every entry into its place.
    pub(super) fn from_entries(entries: &[Entry]) -> Self {
        let mut values = Values::new(entries);
        let mut config = Self {
            cluster: Cluster::take(&mut values),
            node: Node::take(&mut values),
        };
        // The built-in file says what the default is.
        let is_default = |origin: &Origin| match origin {
            Origin::Default => true,
            Origin::File { name, .. } => name == BUILT_IN_NAME,
            Origin::CommandLine | Origin::Environment { .. } => false,
        };
        let has_default_address = entries
            .iter()
            .any(|entry| entry.setting.path == "node.address" && is_default(&entry.origin));
        config.listen_as_listed(has_default_address);
        assert!(
            values.0.is_empty(),
            "settings that nothing reads: {:?}",
            values.0.keys()
        );
        config
    }
}

impl Config {
    /// Nodes of the cluster.
    ///
    /// # Panics
    /// When there are more than were let through.
    #[must_use]
    pub fn replica_count(&self) -> u8 {
        u8::try_from(self.cluster.nodes.len().max(1)).expect("a cluster has 1, 3 or 5 nodes")
    }

    /// Where nothing else is said, a node listens where the list says that it is reached.
    fn listen_as_listed(&mut self, has_default_address: bool) {
        let own = usize::from(self.node.id);
        let Some(listed) = self.cluster.nodes.get(own) else {
            return;
        };
        if has_default_address {
            self.node.address.clone_from(&listed.client);
        }
        if self.cluster.nodes.len() == 1 {
            self.node.peer_address = None;
        } else if self.node.peer_address.is_none() {
            self.node.peer_address = Some(listed.peer.clone());
        }
    }
}

impl Cluster {
    fn take(values: &mut Values) -> Self {
        let mut nodes = values.nodes("cluster.nodes");
        nodes.sort_by_key(|node| node.id);
        Self {
            id: values.text("cluster.id"),
            secret: values.secret("cluster.secret"),
            nodes,
            data_groups: values.count("cluster.data_groups"),
            segment_size: values.size("cluster.segment_size"),
            timeouts: Timeouts {
                heartbeat_interval: values.duration("cluster.timeouts.heartbeat_interval"),
                session_timeout: values.duration("cluster.timeouts.session_timeout"),
                disconnect_grace: values.duration("cluster.timeouts.disconnect_grace"),
                park_timeout: values.duration("cluster.timeouts.park_timeout"),
                poll_wait_max: values.duration("cluster.timeouts.poll_wait_max"),
            },
            limits: ClusterLimits::take(values),
        }
    }
}

impl Cluster {
    /// What has to be the same on all nodes though it may be changed: state that is replicated depends on it.
    pub(crate) fn agreed(&self) -> Vec<(&'static str, u64)> {
        let limits = &self.limits;
        let catalog = &limits.catalog;
        let limits = [
            ("cluster.limits.users", catalog.users),
            ("cluster.limits.sessions", catalog.sessions),
            ("cluster.limits.streams", catalog.streams),
            (
                "cluster.limits.topics_per_stream",
                catalog.topics_per_stream,
            ),
            (
                "cluster.limits.partitions_per_topic",
                catalog.partitions_per_topic,
            ),
            ("cluster.limits.partitions", catalog.partitions),
            (
                "cluster.limits.consumer_groups_per_topic",
                catalog.consumer_groups_per_topic,
            ),
            (
                "cluster.limits.members_per_group",
                catalog.members_per_group,
            ),
            (
                "cluster.limits.memberships_per_session",
                catalog.memberships_per_session,
            ),
            (
                "cluster.limits.producers_per_partition",
                limits.producers_per_partition,
            ),
            (
                "cluster.limits.consumers_per_partition",
                limits.consumers_per_partition,
            ),
            ("cluster.limits.batch_size", limits.batch_size),
            ("cluster.limits.batch_messages", limits.batch_messages),
            ("cluster.limits.sections", limits.sections),
            ("cluster.limits.poll_bytes", limits.poll_bytes),
        ];
        let limits = limits.into_iter().map(|(name, value)| (name, value.into()));
        let segment_size = ("cluster.segment_size", self.segment_size);
        core::iter::once(segment_size).chain(limits).collect()
    }
}

impl ClusterLimits {
    fn take(values: &mut Values) -> Self {
        Self {
            catalog: catalog::Limits {
                users: values.count("cluster.limits.users"),
                sessions: values.count("cluster.limits.sessions"),
                streams: values.count("cluster.limits.streams"),
                topics_per_stream: values.count("cluster.limits.topics_per_stream"),
                partitions_per_topic: values.count("cluster.limits.partitions_per_topic"),
                partitions: values.count("cluster.limits.partitions"),
                consumer_groups_per_topic: values.count("cluster.limits.consumer_groups_per_topic"),
                members_per_group: values.count("cluster.limits.members_per_group"),
                memberships_per_session: values.count("cluster.limits.memberships_per_session"),
            },
            producers_per_partition: values.count("cluster.limits.producers_per_partition"),
            consumers_per_partition: values.count("cluster.limits.consumers_per_partition"),
            batch_size: values.small_size("cluster.limits.batch_size"),
            batch_messages: values.count("cluster.limits.batch_messages"),
            sections: values.count("cluster.limits.sections"),
            poll_bytes: values.small_size("cluster.limits.poll_bytes"),
        }
    }
}

impl Node {
    fn take(values: &mut Values) -> Self {
        let sync = values.choice("node.journal.sync");
        assert!(sync == "always", "the only choice");
        Self {
            id: values.count("node.id"),
            address: values.address("node.address").expect("there is a default"),
            peer_address: values.address("node.peer_address"),
            data_directory: values.directory("node.data_directory"),
            disk_reserve: values.size("node.disk_reserve"),
            shards: values.auto_or_count("node.shards"),
            pin_cores: values.switch("node.pin_cores"),
            force_polling: values.switch("node.force_polling"),
            root_password: values.secret("node.root_password"),
            tail_memory: values.size("node.tail_memory"),
            index_memory: values.size("node.index_memory"),
            scrub_rate: values.size("node.scrub_rate"),
            catch_up_rate: values.size("node.catch_up_rate"),
            journal: Journal {
                file_size: values.size("node.journal.file_size"),
                size_max: values.size("node.journal.size_max"),
            },
            connections: Connections::take(values),
            passwords: Passwords {
                threads: values.count("node.passwords.threads"),
                waiting: values.count("node.passwords.waiting"),
            },
            logs: Logs {
                level: level(values.choice("node.logs.level")),
                format: format(values.choice("node.logs.format")),
            },
        }
    }
}

impl Connections {
    fn take(values: &mut Values) -> Self {
        Self {
            per_shard: values.count("node.connections.per_shard"),
            requests_in_flight: values.count("node.connections.requests_in_flight"),
            bytes_in_flight: values.size("node.connections.bytes_in_flight"),
            bytes_in_flight_per_shard: values.size("node.connections.bytes_in_flight_per_shard"),
            queue_soft_max: values.size("node.connections.queue_soft_max"),
            queue_hard_max: values.size("node.connections.queue_hard_max"),
            slow_timeout: values.duration("node.connections.slow_timeout"),
            idle_timeout: values.duration("node.connections.idle_timeout"),
            linger_timeout: values.duration("node.connections.linger_timeout"),
        }
    }
}

fn level(word: &str) -> LogLevel {
    match word {
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

fn format(word: &str) -> LogFormat {
    if word == "json" {
        LogFormat::Json
    } else {
        LogFormat::Text
    }
}

/// What is not in its place yet. Each value is of its setting's kind and within its range, so a mismatch
/// here is a mistake in the table, found by every start.
struct Values(BTreeMap<&'static str, Value>);

impl Values {
    fn new(entries: &[Entry]) -> Self {
        Self(
            entries
                .iter()
                .map(|entry| (entry.setting.path, entry.value.clone()))
                .collect(),
        )
    }

    fn take(&mut self, path: &str) -> Value {
        self.0
            .remove(path)
            .unwrap_or_else(|| panic!("{path} is in the table"))
    }

    fn count<T: TryFrom<u64>>(&mut self, path: &str) -> T {
        let Value::Count(value) = self.take(path) else {
            panic!("{path} is a count")
        };
        T::try_from(value).unwrap_or_else(|_| panic!("the range of {path} fits its type"))
    }

    fn auto_or_count(&mut self, path: &str) -> Option<u16> {
        match self.take(path) {
            Value::Auto => None,
            Value::Count(value) => Some(u16::try_from(value).expect("its range fits a u16")),
            value => panic!("{path} is {value:?}"),
        }
    }

    fn size(&mut self, path: &str) -> u64 {
        let Value::Size(value) = self.take(path) else {
            panic!("{path} is a size")
        };
        value
    }

    fn small_size(&mut self, path: &str) -> u32 {
        u32::try_from(self.size(path)).expect("its range fits a u32")
    }

    fn duration(&mut self, path: &str) -> Duration {
        let Value::Duration(value) = self.take(path) else {
            panic!("{path} is a duration")
        };
        value
    }

    fn switch(&mut self, path: &str) -> bool {
        let Value::Switch(value) = self.take(path) else {
            panic!("{path} is a switch")
        };
        value
    }

    fn choice(&mut self, path: &str) -> &'static str {
        let Value::Choice(value) = self.take(path) else {
            panic!("{path} is a choice")
        };
        value
    }

    fn address(&mut self, path: &str) -> Option<String> {
        match self.take(path) {
            Value::Unset => None,
            Value::Address(value) => Some(value.to_string()),
            value => panic!("{path} is {value:?}"),
        }
    }

    fn text(&mut self, path: &str) -> Option<String> {
        match self.take(path) {
            Value::Unset => None,
            Value::Text(value) => Some(value),
            value => panic!("{path} is {value:?}"),
        }
    }

    fn nodes(&mut self, path: &str) -> Vec<ClusterNode> {
        match self.take(path) {
            Value::Unset => Vec::new(),
            Value::Nodes(value) => value,
            value => panic!("{path} is {value:?}"),
        }
    }

    fn directory(&mut self, path: &str) -> PathBuf {
        let Value::Path(value) = self.take(path) else {
            panic!("{path} is a path")
        };
        value
    }

    fn secret(&mut self, path: &str) -> Option<Password> {
        match self.take(path) {
            Value::Unset => None,
            Value::Secret(value) => Some(Password(value)),
            value => panic!("{path} is {value:?}"),
        }
    }
}
