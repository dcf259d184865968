//! What a data directory is formatted for, and whether one is what the configuration says.

use std::path::Path;

use journal::UnitSize;
use storage::{DataDirectory, Format, FormatNode};
use wire::{ClusterId, DiskId, ReplicaId, checksum128};

use crate::{Exit, config::Config, node::StartError, random, settings};

/// Formats the data directory, which must be empty or missing, and ends.
pub fn format(config: &Config) -> Exit {
    match try_format(config) {
        Ok(directory) => {
            let record = directory.record();
            tracing::info!(
                path = %directory.path().display(),
                cluster = %format_args!("{:032x}", record.cluster.0),
                node = record.replica.0,
                nodes = record.replica_count,
                data_groups = record.data_groups,
                fingerprint = %format_args!("{:032x}", fingerprint(record)),
                "data directory formatted"
            );
            Exit::Success
        }
        Err(error) => {
            tracing::error!("{error}");
            error.exit()
        }
    }
}

fn try_format(config: &Config) -> Result<DataDirectory, StartError> {
    let path = &config.node.data_directory;
    if DataDirectory::is_formatted(path)? {
        let directory = path.display().to_string();
        return Err(StartError::AlreadyFormatted { directory });
    }
    format_directory(config, None)
}

/// Formats an empty or missing directory, perhaps in the place of the one that the node had before.
pub(crate) fn format_directory(
    config: &Config,
    recovered: Option<DiskId>,
) -> Result<DataDirectory, StartError> {
    let format = Format {
        recovered,
        ..wanted(config)
    };
    let journal_size = settings::journal(config, &format).first_file_size;
    let directory = DataDirectory::format(&config.node.data_directory, format, journal_size)?;
    Ok(directory)
}

/// Opens the data directory. A single node formats an empty one itself; in a cluster that would make a node
/// that has lost its disk pass for a new one (V13).
pub(crate) fn open(config: &Config) -> Result<DataDirectory, StartError> {
    let path = &config.node.data_directory;
    if DataDirectory::is_formatted(path)? {
        let directory = DataDirectory::open(path)?;
        compare(config, &directory)?;
        return Ok(directory);
    }
    if config.replica_count() > 1 {
        let directory = path.display().to_string();
        return Err(StartError::NotFormatted { directory });
    }
    let directory = format_directory(config, None)?;
    let data_groups = config.cluster.data_groups;
    tracing::info!(path = %path.display(), data_groups, "data directory formatted");
    Ok(directory)
}

/// What this configuration formats a directory for.
fn wanted(config: &Config) -> Format {
    let cluster = config.cluster.id.as_deref().map(cluster_id);
    Format {
        cluster: cluster.unwrap_or_else(|| ClusterId(random::id())),
        replica: ReplicaId(config.node.id),
        replica_count: config.replica_count(),
        data_groups: config.cluster.data_groups,
        unit_size: UnitSize::default(),
        nodes: nodes(config),
        recovered: None,
    }
}

/// The list of nodes, as it is noted of a cluster.
fn nodes(config: &Config) -> Vec<FormatNode> {
    if config.replica_count() == 1 {
        return Vec::new();
    }
    let listed = config.cluster.nodes.iter();
    listed
        .map(|node| FormatNode {
            client: node.client.clone(),
            peer: node.peer.clone(),
        })
        .collect()
}

/// 32 hexadecimal digits are the id itself; anything else names it.
fn cluster_id(text: &str) -> ClusterId {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten();
    let named = || checksum128(format!("cohort cluster {text}").as_bytes());
    ClusterId(number.filter(|number| *number != 0).unwrap_or_else(named))
}

/// Names the first thing that is not what the directory was formatted for.
fn compare(config: &Config, directory: &DataDirectory) -> Result<(), StartError> {
    let record = directory.record();
    let differs = |key: String, configured: String, formatted: String| {
        Err(StartError::Formatted {
            key,
            configured,
            formatted,
            directory: Path::display(directory.path()).to_string(),
        })
    };
    let numbers = [
        (
            "cluster.data_groups",
            config.cluster.data_groups,
            record.data_groups,
        ),
        ("node.id", config.node.id.into(), record.replica.0.into()),
    ];
    for (key, configured, formatted) in numbers {
        if configured != formatted {
            return differs(key.into(), configured.to_string(), formatted.to_string());
        }
    }
    let count = config.replica_count();
    if count != record.replica_count {
        let nodes = |count: u8| format!("{count} nodes");
        return differs(
            "cluster.nodes".into(),
            nodes(count),
            nodes(record.replica_count),
        );
    }
    if let Some(text) = &config.cluster.id
        && cluster_id(text) != record.cluster
    {
        let formatted = format!("\"{:032x}\"", record.cluster.0);
        return differs("cluster.id".into(), format!("\"{text}\""), formatted);
    }
    for (id, (configured, formatted)) in nodes(config).iter().zip(&record.nodes).enumerate() {
        let addresses = [
            ("client", &configured.client, &formatted.client),
            ("peer", &configured.peer, &formatted.peer),
        ];
        for (key, configured, formatted) in addresses {
            if configured != formatted {
                let key = format!("cluster.nodes: {key} of node {id}");
                return differs(key, format!("\"{configured}\""), format!("\"{formatted}\""));
            }
        }
    }
    Ok(())
}

/// Stands for everything that was fixed when the nodes of a cluster were formatted: equal on all of them.
pub(crate) fn fingerprint(record: &Format) -> u128 {
    let Format {
        cluster,
        replica: _,
        replica_count,
        data_groups,
        unit_size: _,
        nodes,
        recovered: _,
    } = record;
    let mut text = format!("{:032x} {replica_count} {data_groups}", cluster.0);
    for FormatNode { client, peer } in nodes {
        text.push_str(&format!("\n{client} {peer}"));
    }
    checksum128(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Format {
        let node = |id: u8| FormatNode {
            client: format!("a:{id}"),
            peer: format!("b:{id}"),
        };
        Format {
            cluster: ClusterId(7),
            replica: ReplicaId(0),
            replica_count: 3,
            data_groups: 24,
            unit_size: UnitSize::default(),
            nodes: (1..4).map(node).collect(),
            recovered: None,
        }
    }

    #[test]
    fn fingerprint_is_that_of_the_cluster_and_changes_with_all_that_is_fixed() {
        let own = fingerprint(&record());
        let other_node = Format {
            replica: ReplicaId(2),
            unit_size: UnitSize::Bytes4096,
            recovered: Some(DiskId::default()),
            ..record()
        };
        assert_eq!(fingerprint(&other_node), own);
        let mut swapped = record();
        swapped.nodes.swap(0, 1);
        let mut moved = record();
        moved.nodes[2].peer = "b:4".into();
        for changed in [
            Format {
                cluster: ClusterId(8),
                ..record()
            },
            Format {
                replica_count: 5,
                ..record()
            },
            Format {
                data_groups: 25,
                ..record()
            },
            swapped,
            moved,
        ] {
            assert_ne!(fingerprint(&changed), own, "{changed:?}");
        }
    }

    #[test]
    fn cluster_id_is_given_in_digits_or_named() {
        let digits = "000000000000000000000000000000ff";
        assert_eq!(cluster_id(digits), ClusterId(255));
        assert_ne!(cluster_id("orders"), cluster_id("payments"));
        assert_ne!(cluster_id(&"0".repeat(32)), ClusterId(0));
    }
}
