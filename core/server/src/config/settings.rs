//! Every setting there is: the one table that the loader, the documents and the checks read.

use catalog::Limits as CatalogLimits;
use wire::{BATCH_SIZE_MAX, Limit};

use super::value::{HOUR, Kind, MINUTE, SECOND};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;
const MILLISECOND: u64 = SECOND / 1_000;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its tables and its key, with dots between.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is unless somebody says otherwise, as it stands in a file; empty for a secret.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

const fn count(
    path: &'static str,
    (min, max): (u64, u64),
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        path,
        kind: Kind::Count { min, max },
        default,
        doc,
    }
}

const fn size(
    path: &'static str,
    (min, max): (u64, u64),
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        path,
        kind: Kind::Size { min, max },
        default,
        doc,
    }
}

const fn time(
    path: &'static str,
    (min, max): (u64, u64),
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        path,
        kind: Kind::Duration { min, max },
        default,
        doc,
    }
}

const fn other(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        path,
        kind,
        default,
        doc,
    }
}

const fn up_to(max: u32) -> (u64, u64) {
    // Lossless; `From` is not const.
    (1, max as u64)
}

const fn within(limit: Limit) -> (u64, u64) {
    (limit.minimum, limit.maximum)
}

const MAXIMUM: CatalogLimits = CatalogLimits::MAXIMUM;

/// All settings, table by table.
pub const SETTINGS: &[Setting] = &[
    // ---- cluster
    other(
        "cluster.id",
        Kind::Text { max: 64 },
        "",
        "What tells this cluster from all others, so that nodes and data of another one are refused: a name, or 32 hexadecimal digits. Fixed when the data directory is formatted. Needed with more than one node.",
    ),
    other(
        "cluster.secret",
        Kind::Secret { min: 16, max: 255 },
        "",
        "What the nodes prove to one another that they know; it is never sent. Needed with more than one node. Better in the environment than in a file.",
    ),
    other(
        "cluster.nodes",
        Kind::Nodes,
        "",
        "The nodes: ids from 0 without gaps, where clients reach each, where the other nodes do. Fixed when the data directory is formatted. Not set: one node.",
    ),
    count(
        "cluster.data_groups",
        (1, 1_024),
        "24",
        "Data groups over which partitions are spread. Fixed when the data directory is formatted.",
    ),
    size(
        "cluster.segment_size",
        (MIB, 4 * GIB),
        "\"64 MiB\"",
        "Size at which a partition begins its next segment file.",
    ),
    time(
        "cluster.timeouts.heartbeat_interval",
        (100 * MILLISECOND, MINUTE),
        "\"3 s\"",
        "How often a client is expected to give a sign of life. A third of it is how often nodes report live sessions.",
    ),
    time(
        "cluster.timeouts.session_timeout",
        (SECOND, HOUR),
        "\"10 s\"",
        "A session that is silent for so long ends. At least twice heartbeat_interval.",
    ),
    time(
        "cluster.timeouts.disconnect_grace",
        (0, HOUR),
        "\"1 s\"",
        "A session whose last connection is lost ends after this unless it attaches again. At most session_timeout.",
    ),
    time(
        "cluster.timeouts.park_timeout",
        (10 * MILLISECOND, MINUTE),
        "\"2 s\"",
        "How long a request waits for metadata that this node has not applied yet before it is answered Retry.",
    ),
    time(
        "cluster.timeouts.poll_wait_max",
        (0, Limit::POLL_WAIT_MS.maximum * MILLISECOND),
        "\"30 s\"",
        "The longest that a poll may wait for messages.",
    ),
    // ---- cluster.limits
    count(
        "cluster.limits.users",
        up_to(MAXIMUM.users),
        "1024",
        "Users, root included.",
    ),
    count(
        "cluster.limits.sessions",
        up_to(MAXIMUM.sessions),
        "16384",
        "Sessions of all users.",
    ),
    count(
        "cluster.limits.streams",
        up_to(MAXIMUM.streams),
        "4096",
        "Streams.",
    ),
    count(
        "cluster.limits.topics_per_stream",
        up_to(MAXIMUM.topics_per_stream),
        "4096",
        "Topics in one stream.",
    ),
    count(
        "cluster.limits.partitions_per_topic",
        up_to(MAXIMUM.partitions_per_topic),
        "1024",
        "Partitions in one topic. At most partitions.",
    ),
    count(
        "cluster.limits.partitions",
        up_to(MAXIMUM.partitions),
        "65536",
        "Partitions of all topics.",
    ),
    count(
        "cluster.limits.consumer_groups_per_topic",
        up_to(MAXIMUM.consumer_groups_per_topic),
        "1024",
        "Consumer groups of one topic.",
    ),
    count(
        "cluster.limits.members_per_group",
        up_to(MAXIMUM.members_per_group),
        "1024",
        "Members of one consumer group.",
    ),
    count(
        "cluster.limits.memberships_per_session",
        up_to(MAXIMUM.memberships_per_session),
        "1024",
        "Consumer groups that one session is a member of.",
    ),
    count(
        "cluster.limits.producers_per_partition",
        (1, 65_536),
        "1024",
        "Idempotent producers remembered per partition; one more forgets the one that is silent longest.",
    ),
    count(
        "cluster.limits.consumers_per_partition",
        (1, 1_000_000),
        "10000",
        "Single consumers that may have an offset stored in a partition.",
    ),
    size(
        "cluster.limits.batch_size",
        (64 * KIB, BATCH_SIZE_MAX as u64),
        "\"7 MiB\"",
        "Bytes of one batch of messages; a frame may be 64 KiB larger.",
    ),
    count(
        "cluster.limits.batch_messages",
        within(Limit::BATCH_MESSAGES),
        "65536",
        "Messages in one batch.",
    ),
    count(
        "cluster.limits.sections",
        within(Limit::SECTIONS),
        "1024",
        "Partitions in one send, poll or store.",
    ),
    size(
        "cluster.limits.poll_bytes",
        within(Limit::POLL_BYTES),
        "\"7 MiB\"",
        "Bytes that one poll may ask for.",
    ),
    // ---- node
    count(
        "node.id",
        (0, 4),
        "0",
        "Which of cluster.nodes this one is.",
    ),
    other(
        "node.address",
        Kind::Address,
        "\"127.0.0.1:5100\"",
        "Where clients are listened for. Port 0 lets the kernel choose; the choice is printed. With cluster.nodes, unless it is set: what the list says for this node.",
    ),
    other(
        "node.peer_address",
        Kind::Address,
        "",
        "Where the other nodes are listened for. Not set: what cluster.nodes says for this node.",
    ),
    other(
        "node.data_directory",
        Kind::Path,
        "\"data\"",
        "Where everything durable is. A relative path starts at the working directory. An empty directory is formatted at the first start of a single node; with more, by `cohort-server format`.",
    ),
    size(
        "node.disk_reserve",
        (0, TIB),
        "\"128 MiB\"",
        "While the disk has less than this no messages are taken (StorageFull): of several nodes, none for the partitions that this one leads. It is kept for stored offsets, metadata and checkpoints; everything is taken again when there is an eighth more.",
    ),
    other(
        "node.shards",
        Kind::AutoOrCount { min: 1, max: 256 },
        "\"auto\"",
        "Threads that serve clients. \"auto\": one for each core that the process may use.",
    ),
    other(
        "node.pin_cores",
        Kind::Switch,
        "true",
        "Whether each shard keeps to a core of its own. Only with at most as many shards as cores.",
    ),
    other(
        "node.force_polling",
        Kind::Switch,
        "false",
        "Use the polling driver although io_uring is there. Costs 40-45 % more CPU per request.",
    ),
    other(
        "node.root_password",
        Kind::Secret {
            min: wire::PASSWORD_SIZE_MIN,
            max: wire::PASSWORD_SIZE_MAX,
        },
        "",
        "Password with which the first start creates the user root; not needed afterwards. Not set: a random one is made and printed once. With more than one node it is needed for the first start, the same on all.",
    ),
    size(
        "node.tail_memory",
        (16 * MIB, TIB),
        "\"256 MiB\"",
        "Memory for the newest messages of all partitions, from which consumers that keep up are served.",
    ),
    size(
        "node.index_memory",
        (MIB, TIB),
        "\"48 MiB\"",
        "Memory for the indexes of full segments.",
    ),
    size(
        "node.scrub_rate",
        (0, GIB),
        "\"4 MiB\"",
        "Bytes a second of full segments that are read back to see whether they are whole, once an hour at the most. \"0 B\": damage is found when somebody reads.",
    ),
    size(
        "node.catch_up_rate",
        (0, TIB),
        "\"128 MiB\"",
        "Bytes a second of segments that the node fetches from the others when it has lost its disk or was away for long: they serve meanwhile. \"0 B\": as many as come.",
    ),
    // ---- node.journal
    other(
        "node.journal.sync",
        Kind::Choice(&["always"]),
        "\"always\"",
        "When the journal is flushed. \"always\": before anything is acknowledged.",
    ),
    size(
        "node.journal.file_size",
        (16 * MIB, GIB),
        "\"64 MiB\"",
        "Size of a journal file. They are zero-filled in advance and recycled.",
    ),
    size(
        "node.journal.size_max",
        (64 * MIB, 64 * GIB),
        "\"512 MiB\"",
        "Journal since the oldest checkpoint; checkpoints are taken so that it stays below. Bounds how long a start takes. At least four times file_size.",
    ),
    // ---- node.connections
    count(
        "node.connections.per_shard",
        within(Limit::CONNECTIONS),
        "10000",
        "Connections of one shard; one more is refused.",
    ),
    count(
        "node.connections.requests_in_flight",
        within(Limit::REQUESTS_IN_FLIGHT),
        "1024",
        "Requests of one connection that are not answered yet; beyond it nothing more is read from it.",
    ),
    size(
        "node.connections.bytes_in_flight",
        within(Limit::BYTES_IN_FLIGHT),
        "\"16 MiB\"",
        "Bytes of requests of one connection that are not answered yet; beyond it nothing more is read from it. At least cluster.limits.batch_size.",
    ),
    size(
        "node.connections.bytes_in_flight_per_shard",
        (MIB, 64 * GIB),
        "\"128 MiB\"",
        "The same for all connections of a shard together. At least bytes_in_flight.",
    ),
    size(
        "node.connections.queue_soft_max",
        (64 * KIB, GIB),
        "\"16 MiB\"",
        "Bytes of answers that wait for one client; beyond it nothing more is read from it.",
    ),
    size(
        "node.connections.queue_hard_max",
        (MIB, 4 * GIB),
        "\"64 MiB\"",
        "Bytes of answers that wait for one client; beyond it the connection is dropped. At least queue_soft_max and twice cluster.limits.poll_bytes.",
    ),
    time(
        "node.connections.slow_timeout",
        (SECOND, HOUR),
        "\"30 s\"",
        "A connection is dropped that stays above queue_soft_max, or takes no byte of what waits for it, for so long.",
    ),
    time(
        "node.connections.idle_timeout",
        (SECOND, 24 * HOUR),
        "\"60 s\"",
        "A connection is closed from which nothing came for so long. More than cluster.timeouts.poll_wait_max and heartbeat_interval.",
    ),
    time(
        "node.connections.linger_timeout",
        (100 * MILLISECOND, MINUTE),
        "\"2 s\"",
        "How long a connection that is being closed may take to read its last answers.",
    ),
    // ---- node.passwords
    count(
        "node.passwords.threads",
        (1, 64),
        "2",
        "Threads that hash passwords; one check costs some 30 ms of CPU.",
    ),
    count(
        "node.passwords.waiting",
        (1, 65_536),
        "256",
        "Password checks that may wait on one shard; one more is refused.",
    ),
    // ---- node.logs
    other(
        "node.logs.level",
        Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        "\"info\"",
        "What is written to standard error: this and everything graver.",
    ),
    other(
        "node.logs.format",
        Kind::Choice(&["text", "json"]),
        "\"text\"",
        "How: \"text\" for people, \"json\" for programs, one object a line.",
    ),
];

/// The setting at `path`.
pub(super) fn setting(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

impl Setting {
    /// The table that holds it.
    #[must_use]
    pub fn table(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }

    /// Its name within the table.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, key)| key)
    }

    /// The environment variable that sets it.
    #[must_use]
    pub fn variable(&self) -> String {
        format!(
            "{ENVIRONMENT_PREFIX}{}",
            self.path.replace('.', "__").to_uppercase()
        )
    }
}

/// What the names of all our environment variables begin with.
pub(super) const ENVIRONMENT_PREFIX: &str = "COHORT__";

#[cfg(test)]
mod tests {
    use shard::FRAME_RESERVE;

    use super::*;
    use crate::config::Value;

    #[test]
    fn paths_are_unique_and_tables_are_in_one_piece() {
        let mut tables: Vec<&str> = SETTINGS.iter().map(Setting::table).collect();
        tables.dedup();
        let mut seen = std::collections::BTreeSet::new();
        tables
            .iter()
            .for_each(|table| assert!(seen.insert(table), "{table} is in two pieces"));
        let mut paths = std::collections::BTreeSet::new();
        SETTINGS
            .iter()
            .for_each(|setting| assert!(paths.insert(setting.path)));
    }

    #[test]
    fn every_limit_of_the_catalog_has_the_key_that_its_refusals_name() {
        let maxima = CatalogLimits::MAXIMUM.all();
        for ((limit, initial), (_, maximum)) in CatalogLimits::INITIAL.all().into_iter().zip(maxima)
        {
            let path = format!("cluster.limits.{}", limit.name());
            let expected = [u64::from(initial), 1, u64::from(maximum)];
            assert_eq!(numbers(&path), expected, "{path}");
        }
    }

    /// The rows of a table of PROTOCOL.md, cell by cell, without marks and separators of thousands.
    fn rows(heading: &str) -> Vec<Vec<String>> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/PROTOCOL.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (_, section) = text.split_once(&format!("\n{heading}\n")).unwrap();
        let table = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = table.take_while(|line| line.starts_with('|')).skip(2);
        rows.map(|row| {
            let cells = row.trim_matches('|').split('|');
            cells
                .map(|cell| cell.trim().trim_matches('`').replace(',', ""))
                .collect()
        })
        .collect()
    }

    /// The default, the least and the most of a setting, as plain numbers.
    fn numbers(path: &str) -> [u64; 3] {
        let setting = setting(path).unwrap();
        let unit = if path.contains(".timeouts.") {
            MILLISECOND
        } else {
            1
        };
        let default = match setting.default_value() {
            Value::Count(value) | Value::Size(value) => value,
            Value::Duration(value) => u64::try_from(value.as_millis()).unwrap(),
            other => panic!("{other:?}"),
        };
        match setting.kind {
            Kind::Count { min, max } | Kind::Size { min, max } | Kind::Duration { min, max } => {
                [default, min / unit, max / unit]
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn limits_of_a_node_are_those_that_the_protocol_promises() {
        let around = u64::from(FRAME_RESERVE);
        let frame_size = numbers("cluster.limits.batch_size").map(|batch| batch + around);
        let mut promised = 0;
        for (name, numbers) in [
            ("frame_size", frame_size),
            ("connections", numbers("node.connections.per_shard")),
            (
                "requests_in_flight",
                numbers("node.connections.requests_in_flight"),
            ),
            (
                "bytes_in_flight",
                numbers("node.connections.bytes_in_flight"),
            ),
            ("batch_messages", numbers("cluster.limits.batch_messages")),
            ("sections", numbers("cluster.limits.sections")),
            ("poll_wait_ms", numbers("cluster.timeouts.poll_wait_max")),
            ("poll_bytes", numbers("cluster.limits.poll_bytes")),
        ] {
            let rows = rows("### Limits of a node");
            let row = rows.iter().find(|row| row[0] == name).expect(name);
            assert_eq!(
                row[1..4],
                numbers.map(|number| number.to_string()),
                "{name}"
            );
            promised += 1;
            assert!(promised <= rows.len());
        }
        assert_eq!(promised, rows("### Limits of a node").len());
    }

    #[test]
    fn limits_of_the_cluster_are_those_that_the_protocol_promises() {
        let rows = rows("### Limits of the cluster");
        for (name, key) in [
            ("users", "users"),
            ("sessions", "sessions"),
            ("streams", "streams"),
            ("topics in one stream", "topics_per_stream"),
            ("partitions in one topic", "partitions_per_topic"),
            ("partitions in all topics", "partitions"),
            ("consumer groups of one topic", "consumer_groups_per_topic"),
            ("members of one consumer group", "members_per_group"),
            (
                "consumer groups that one session is a member of",
                "memberships_per_session",
            ),
            (
                "single consumers with an offset in one partition",
                "consumers_per_partition",
            ),
            (
                "producers known to one partition",
                "producers_per_partition",
            ),
        ] {
            let row = rows.iter().find(|row| row[0] == name).expect(name);
            let [default, _, most] = numbers(&format!("cluster.limits.{key}"));
            assert_eq!(row[1], default.to_string(), "{name}");
            assert_eq!(row[2], most.to_string(), "{name}");
        }
    }

    #[test]
    fn variable_names_the_tables() {
        let setting = setting("node.connections.per_shard").unwrap();
        assert_eq!(setting.variable(), "COHORT__NODE__CONNECTIONS__PER_SHARD");
    }
}
