//! Settings that contradict one another.

use std::collections::BTreeSet;

use super::{ClusterNode, Entry, Problem, Value, problem::Origin};

/// `larger` must be at least `factor` times `smaller`, or more than it.
struct Rule {
    larger: &'static str,
    smaller: &'static str,
    relation: Relation,
    why: &'static str,
}

#[derive(Clone, Copy)]
enum Relation {
    AtLeastTimes(u64),
    MoreThan,
}

const fn at_least(larger: &'static str, smaller: &'static str, why: &'static str) -> Rule {
    Rule {
        larger,
        smaller,
        relation: Relation::AtLeastTimes(1),
        why,
    }
}

const RULES: &[Rule] = &[
    Rule {
        larger: "cluster.timeouts.session_timeout",
        smaller: "cluster.timeouts.heartbeat_interval",
        relation: Relation::AtLeastTimes(2),
        why: "one late sign of life would end a session",
    },
    at_least(
        "cluster.timeouts.session_timeout",
        "cluster.timeouts.disconnect_grace",
        "a session without a connection would outlive one that is silent",
    ),
    at_least(
        "cluster.limits.partitions",
        "cluster.limits.partitions_per_topic",
        "no topic could have so many",
    ),
    at_least(
        "node.connections.bytes_in_flight",
        "cluster.limits.batch_size",
        "the largest batch could never be sent",
    ),
    at_least(
        "node.connections.bytes_in_flight_per_shard",
        "node.connections.bytes_in_flight",
        "no connection could use its own",
    ),
    at_least(
        "node.connections.queue_hard_max",
        "node.connections.queue_soft_max",
        "a connection would be dropped before it is slowed down",
    ),
    Rule {
        larger: "node.connections.queue_hard_max",
        smaller: "cluster.limits.poll_bytes",
        relation: Relation::AtLeastTimes(2),
        why: "two answers in a row would drop a connection",
    },
    Rule {
        larger: "node.connections.idle_timeout",
        smaller: "cluster.timeouts.poll_wait_max",
        relation: Relation::MoreThan,
        why: "a client that waits for messages would be taken for gone",
    },
    Rule {
        larger: "node.connections.idle_timeout",
        smaller: "cluster.timeouts.heartbeat_interval",
        relation: Relation::MoreThan,
        why: "a client that is well would be taken for gone",
    },
    Rule {
        larger: "node.journal.size_max",
        smaller: "node.journal.file_size",
        relation: Relation::AtLeastTimes(4),
        why: "files are recycled as wholes, and one must be free while others are pinned",
    },
];

/// Every rule that is broken.
pub(super) fn contradictions(entries: &[Entry]) -> Vec<Problem> {
    let numbers = RULES.iter().filter_map(|rule| rule.broken(entries));
    numbers.chain(in_cluster(entries)).collect()
}

/// What a list of nodes asks for, and what makes no sense without one.
fn in_cluster(entries: &[Entry]) -> Vec<Problem> {
    let listed = find(entries, "cluster.nodes");
    let own = find(entries, "node.id");
    let peer_address = find(entries, "node.peer_address");
    let mut problems = Vec::new();
    let mut refuse = |entry: &Entry, text: String| {
        let origin = entry.origin.clone();
        problems.push(Problem { origin, text });
    };
    let Value::Nodes(nodes) = &listed.value else {
        for entry in [own, peer_address] {
            if !matches!(entry.value, Value::Count(0) | Value::Unset) {
                let (path, value) = (entry.setting.path, entry.value.display());
                refuse(
                    entry,
                    format!(
                        "{path} = {value}, but cluster.nodes is not set: there is one node, whose id is 0"
                    ),
                );
            }
        }
        return problems;
    };
    if let Some(text) = wrong_list(nodes) {
        refuse(listed, format!("cluster.nodes: {text}"));
        return problems;
    }
    if magnitude(&own.value) >= nodes.len() as u128 {
        let value = own.value.display();
        let last = nodes.len() - 1;
        refuse(
            own,
            format!(
                "node.id = {value} is not in cluster.nodes ({}); allowed: 0 to {last}",
                listed.origin
            ),
        );
    }
    if nodes.len() > 1 {
        for (path, why) in [
            (
                "cluster.secret",
                "without one anybody could be taken for a node",
            ),
            (
                "cluster.id",
                "without one nodes of other clusters could not be told apart",
            ),
        ] {
            let entry = find(entries, path);
            if entry.value == Value::Unset {
                refuse(
                    listed,
                    format!(
                        "{path} is not set, but cluster.nodes has {} nodes: {why}; {}",
                        nodes.len(),
                        entry.setting.kind.allowed()
                    ),
                );
            }
        }
    }
    problems
}

/// What is wrong with a list of nodes.
fn wrong_list(nodes: &[ClusterNode]) -> Option<String> {
    let count = nodes.len();
    if !matches!(count, 1 | 3 | 5) {
        return Some(format!(
            "{count} nodes; allowed: 1, 3 or 5, since an even number bears no more losses than one less"
        ));
    }
    let mut ids = BTreeSet::new();
    if let Some(node) = nodes.iter().find(|node| !ids.insert(node.id)) {
        return Some(format!("id = {} is there twice", node.id));
    }
    if let Some(node) = nodes.iter().find(|node| usize::from(node.id) >= count) {
        let last = count - 1;
        return Some(format!(
            "id = {} of {count} nodes; allowed: 0 to {last}, each once",
            node.id
        ));
    }
    let mut addresses = BTreeSet::new();
    let all = nodes.iter().flat_map(|node| [&node.client, &node.peer]);
    let twice = all
        .map(|address| address.to_lowercase())
        .find(|address| !addresses.insert(address.clone()));
    twice.map(|address| {
        format!("{address} is there twice; each address belongs to one node and one purpose")
    })
}

impl Rule {
    fn broken(&self, entries: &[Entry]) -> Option<Problem> {
        let larger = find(entries, self.larger);
        let smaller = find(entries, self.smaller);
        let (left, right) = (magnitude(&larger.value), magnitude(&smaller.value));
        let (holds, relation) = match self.relation {
            Relation::AtLeastTimes(1) => (left >= right, "at least".to_owned()),
            Relation::AtLeastTimes(factor) => (
                left >= right.saturating_mul(u128::from(factor)),
                format!("at least {factor} times"),
            ),
            Relation::MoreThan => (left > right, "more than".to_owned()),
        };
        if holds {
            return None;
        }
        let blamed = if larger.origin == Origin::Default {
            smaller
        } else {
            larger
        };
        Some(Problem {
            origin: blamed.origin.clone(),
            text: format!(
                "{} = {} ({}) must be {relation} {} = {} ({}): {}",
                self.larger,
                larger.value.display(),
                larger.origin,
                self.smaller,
                smaller.value.display(),
                smaller.origin,
                self.why
            ),
        })
    }
}

fn find<'a>(entries: &'a [Entry], path: &str) -> &'a Entry {
    let found = entries.iter().find(|entry| entry.setting.path == path);
    found.expect("rules name settings that exist")
}

fn magnitude(value: &Value) -> u128 {
    match value {
        Value::Count(value) | Value::Size(value) => u128::from(*value),
        Value::Duration(duration) => duration.as_nanos(),
        Value::Auto
        | Value::Switch(_)
        | Value::Choice(_)
        | Value::Address(_)
        | Value::Path(_)
        | Value::Secret(_)
        | Value::Text(_)
        | Value::Nodes(_)
        | Value::Unset => unreachable!("rules compare numbers"),
    }
}
