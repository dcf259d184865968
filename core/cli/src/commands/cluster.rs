//! `cohort cluster`.

use cohort::{ClusterMetadata, ConsensusGroup};
use serde_json::{Value, json as object};

use crate::{
    arguments::{ClusterCommand, Format},
    context::Context,
    output::{Cell, Column, Table, json},
    problem::Problem,
};

/// What a node says when it is asked itself.
enum Answer {
    /// The groups that it knows itself to lead.
    Leads(u64),
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
    let mut answers = Vec::new();
    for node in &metadata.nodes {
        answers.push(match ask(context, &node.address, password.clone()).await {
            Ok(own) => Answer::Leads(leads(&own)),
            Err(problem) => Answer::Silent(problem.text().to_owned()),
        });
    }
    Ok(show(&metadata, &answers, output.output))
}

async fn ask(
    context: &Context,
    address: &str,
    password: String,
) -> Result<ClusterMetadata, Problem> {
    let client = context.connect_to(address, password).await?;
    let metadata = client.cluster().await;
    client.close().await;
    Ok(metadata?)
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
        Column("state"),
    ];
    let mut table = Table::new(COLUMNS);
    for (node, answer) in metadata.nodes.iter().zip(answers) {
        let (leads, state) = match answer {
            Answer::Leads(count) => (Cell::Number(*count), "answers".to_owned()),
            Answer::Silent(problem) => (Cell::None, problem.clone()),
        };
        table.row(vec![
            Cell::Number(u64::from(node.replica.0)),
            Cell::Text(node.address.clone()),
            leads,
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
            Answer::Leads(3),
            Answer::Leads(0),
        ];
        assert_golden("cluster.txt", &show(&metadata, &answers, Format::Table));
        assert_golden("cluster.json", &show(&metadata, &answers, Format::Json));
    }
}
