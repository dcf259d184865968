//! `cohort cluster`.

use cohort::{Client, ClusterMetadata, ConsensusGroup};
use serde_json::{Value, json as object};

use crate::{
    arguments::{ClusterCommand, Format},
    context::Context,
    output::{Cell, Column, Table, json},
    problem::Problem,
};

/// The counter of the ops that a node has applied.
const APPLIED: &str = "ops_applied";

/// What a node says when it is asked itself.
enum Answer {
    Node {
        /// The groups that it knows itself to lead.
        leads: u64,
        /// The ops that it has applied, those of all groups added up.
        applied: u64,
    },
    /// It cannot be reached, or takes no login.
    Silent(String),
}

/// Asks one node for the cluster and every node for itself.
pub(super) async fn run(context: &Context, command: &ClusterCommand) -> Result<String, Problem> {
    let ClusterCommand::Status { output } = command;
    let password = context.password()?;
    let client = context.connect_with(password.clone()).await?;
    let metadata = client.cluster().await?;
    client.close().await;
    // All are connected before any is asked: a login is an op, too.
    let mut clients = Vec::new();
    for node in &metadata.nodes {
        clients.push(context.connect_to(&node.address, password.clone()).await);
    }
    let mut answers = Vec::new();
    for client in &clients {
        let answer = match client {
            Ok(client) => ask(client)
                .await
                .map_err(|problem| problem.text().to_owned()),
            Err(problem) => Err(problem.text().to_owned()),
        };
        answers.push(answer.unwrap_or_else(Answer::Silent));
    }
    for client in clients.into_iter().flatten() {
        client.close().await;
    }
    Ok(show(&metadata, &answers, output.output))
}

async fn ask(client: &Client) -> Result<Answer, Problem> {
    let (metadata, counters) = (client.cluster().await?, client.stats().await?);
    let applied = counters.iter().find(|counter| counter.name == APPLIED);
    Ok(Answer::Node {
        leads: leads(&metadata),
        applied: applied.map_or(0, |counter| counter.value),
    })
}

/// The groups that the node which answers leads, as it says.
fn leads(own: &ClusterMetadata) -> u64 {
    let led = own.groups.iter().filter(|group| group.primary == own.node);
    led.count() as u64
}

fn show(metadata: &ClusterMetadata, answers: &[Answer], format: Format) -> String {
    let (nodes, groups) = (nodes(metadata, answers), groups(metadata));
    let cluster = format!("{:032x}", metadata.cluster.0);
    match format {
        Format::Table => format!(
            "cluster {cluster}, as node {} knows it\n\n{}\n{}",
            metadata.node,
            nodes.table(),
            groups.table()
        ),
        Format::Json => json(&object!({
            "cluster": cluster,
            "node": metadata.node.0,
            "nodes": nodes.objects(),
            "groups": groups.objects(),
        })),
    }
}

fn nodes(metadata: &ClusterMetadata, answers: &[Answer]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("node"),
        Column("address"),
        Column("leads"),
        Column("applied"),
        Column("behind"),
        Column("state"),
    ];
    // The nodes were asked one after the other: who was asked last is ahead by what came meanwhile.
    let most = answers.iter().map(|answer| match answer {
        Answer::Node { applied, .. } => *applied,
        Answer::Silent(_) => 0,
    });
    let most = most.max().unwrap_or(0);
    let mut table = Table::new(COLUMNS);
    for (node, answer) in metadata.nodes.iter().zip(answers) {
        let (leads, applied, behind, state) = match answer {
            Answer::Node { leads, applied } => {
                let behind = Cell::Number(most - applied);
                let (leads, applied) = (Cell::Number(*leads), Cell::Number(*applied));
                (leads, applied, behind, "answers".to_owned())
            }
            Answer::Silent(problem) => (Cell::None, Cell::None, Cell::None, problem.clone()),
        };
        table.row(vec![
            Cell::Number(u64::from(node.replica.0)),
            Cell::Text(node.address.clone()),
            leads,
            applied,
            behind,
            Cell::Text(state),
        ]);
    }
    table
}

fn groups(metadata: &ClusterMetadata) -> Table {
    const COLUMNS: &[Column] = &[Column("group"), Column("view"), Column("primary")];
    let mut table = Table::new(COLUMNS);
    for group in &metadata.groups {
        let name = match group.group {
            ConsensusGroup::METADATA => "0 (metadata)".to_owned(),
            other => other.to_string(),
        };
        table.row(vec![
            Cell::Both(name, Value::from(group.group.0)),
            Cell::Number(u64::from(group.view.0)),
            Cell::Number(u64::from(group.primary.0)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Answer, ClusterMetadata, ConsensusGroup, Format, show};
    use crate::golden::assert_golden;

    #[test]
    fn nodes_are_shown_with_what_each_says_and_groups_with_their_primaries() {
        let node = |replica: u8| wire::Node {
            replica: wire::ReplicaId(replica),
            address: format!("127.0.0.1:510{}", replica + 1),
        };
        let group = |group: u16| wire::GroupPrimary {
            group: ConsensusGroup(group),
            view: wire::View(u32::from(group) * 3),
            primary: wire::ReplicaId(1),
        };
        let metadata = ClusterMetadata {
            cluster: wire::ClusterId(0xABCD),
            node: wire::ReplicaId(1),
            nodes: (0..3).map(node).collect(),
            groups: (0..3).map(group).collect(),
        };
        let answers = [
            Answer::Silent("127.0.0.1:5101 cannot be reached".to_owned()),
            Answer::Node {
                leads: 3,
                applied: 120,
            },
            Answer::Node {
                leads: 0,
                applied: 97,
            },
        ];
        assert_golden("cluster.txt", &show(&metadata, &answers, Format::Table));
        assert_golden("cluster.json", &show(&metadata, &answers, Format::Json));
    }
}
