//! `cohort cluster`.

use std::time::Duration;

use cohort::{Address, ConsensusGroup, NodeStatus, ReplicaDetails, ReplicaState};
use serde_json::{Value, json as object};

use crate::{
    arguments::{ClusterCommand, Format},
    context::Context,
    output::{Cell, Column, Table, json},
    problem::{FAILED, Problem},
};

/// How long a node may take to answer where the command line does not say.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a node says when it is asked itself.
type Answer = Result<NodeStatus, String>;

/// A node and what it says.
struct Asked {
    node: u8,
    address: String,
    answer: Answer,
}

/// Asks the first node that answers who the others are, then those, each for itself. No session is needed, so
/// it works where there is no majority. The exit code tells whether there is one.
pub(super) async fn run(
    context: &Context,
    command: &ClusterCommand,
) -> Result<(String, u8), Problem> {
    let ClusterCommand::Status { digests, output } = command;
    let password = context.password()?;
    let ask = Ask {
        context,
        password: &password,
        digests: *digests,
    };
    let first = ask.first().await?;
    let mut asked = Vec::new();
    for node in &first.nodes {
        let answer = match node.replica == first.node {
            true => Ok(first.clone()),
            false => ask.node(&node.address).await,
        };
        asked.push(Asked {
            node: node.replica.0,
            address: node.address.clone(),
            answer: answer.map_err(|problem| problem.text().to_owned()),
        });
    }
    let report = Report {
        first: &first,
        asked: &asked,
        digests: *digests,
    };
    let code = if report.is_well() { 0 } else { FAILED };
    Ok((report.show(output.output), code))
}

/// How nodes are asked.
struct Ask<'a> {
    context: &'a Context,
    password: &'a str,
    digests: bool,
}

impl Ask<'_> {
    /// What the first of the addresses says that says anything.
    async fn first(&self) -> Result<NodeStatus, Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        for host in self.context.host_list() {
            match self.node(host).await {
                Ok(status) => return Ok(status),
                Err(problem) => problems.push(problem),
            }
        }
        let texts: Vec<&str> = problems.iter().map(Problem::text).collect();
        let text = texts.join("; ");
        Err(match problems.pop() {
            Some(last) => last.with_text(text),
            None => Problem::usage("no address"),
        })
    }

    async fn node(&self, host: &str) -> Result<NodeStatus, Problem> {
        let address: Address = format!("cohort://{host}")
            .parse()
            .map_err(cohort::Error::Address)?;
        let timeout = self.context.timeout().unwrap_or(TIMEOUT);
        let credentials = (self.context.user(), self.password);
        Ok(cohort::node_status(&address, credentials, self.digests, timeout).await?)
    }
}

/// What the nodes say, put together.
struct Report<'a> {
    /// What the node says that was asked first.
    first: &'a NodeStatus,
    asked: &'a [Asked],
    digests: bool,
}

/// A consensus group as the node sees it that is in the latest view of those that answer.
struct Group<'a> {
    latest: &'a ReplicaDetails,
    /// Whether its primary answers and serves.
    is_led: bool,
    /// The highest op that anybody knows to be committed.
    commit: u64,
}

impl<'a> Report<'a> {
    fn answers(&self) -> impl Iterator<Item = &'a NodeStatus> + use<'a> {
        self.asked.iter().filter_map(|it| it.answer.as_ref().ok())
    }

    fn has_majority(&self) -> bool {
        2 * self.answers().count() > self.asked.len()
    }

    /// Whether everything is served, as far as the nodes say.
    fn is_well(&self) -> bool {
        self.has_majority() && self.groups().iter().all(|group| group.is_led)
    }

    /// One sentence.
    fn verdict(&self) -> String {
        let (answer, all) = (self.answers().count(), self.asked.len());
        let groups = self.groups();
        let led = groups.iter().filter(|group| group.is_led).count();
        let nodes = match answer {
            1 => format!("1 of {all} answers"),
            _ => format!("{answer} of {all} answer"),
        };
        if !self.has_majority() {
            format!(
                "{nodes}: no majority; what follows may be old, and nothing is served unless the others reach each other"
            )
        } else if led < groups.len() {
            let without = groups.len() - led;
            format!(
                "{nodes}: {without} of {} consensus groups have no primary at this moment",
                groups.len()
            )
        } else {
            format!("{nodes}: every consensus group has its primary")
        }
    }

    fn groups(&self) -> Vec<Group<'a>> {
        let numbers = self.first.replicas.iter().map(|replica| replica.group);
        let groups = numbers.filter_map(|number| {
            let replicas = || self.replicas(number).map(|(_, replica)| replica);
            Some(Group {
                latest: replicas().max_by_key(|replica| replica.view)?,
                is_led: replicas().any(|replica| replica.serves),
                commit: replicas().map(|replica| replica.commit.0).max()?,
            })
        });
        groups.collect()
    }

    /// The replicas of a group, each with its node.
    fn replicas(
        &self,
        group: ConsensusGroup,
    ) -> impl Iterator<Item = (u8, &'a ReplicaDetails)> + use<'a> {
        let asked = self.asked.iter();
        asked.filter_map(move |it| {
            let mut replicas = it.answer.as_ref().ok()?.replicas.iter();
            Some((it.node, replicas.find(|replica| replica.group == group)?))
        })
    }

    fn show(&self, format: Format) -> String {
        let (nodes, groups, replicas) = (self.nodes(), self.group_table(), self.replica_table());
        let cluster = format!("{:032x}", self.first.cluster.0);
        match format {
            Format::Table => format!(
                "cluster {cluster}, asked through node {}\n{}\n\n{}\n{}\n{}",
                self.first.node,
                self.verdict(),
                nodes.table(),
                groups.table(),
                replicas.table()
            ),
            Format::Json => json(&object!({
                "cluster": cluster,
                "node": self.first.node.0,
                "answering": self.answers().count(),
                "majority": self.has_majority(),
                "well": self.is_well(),
                "verdict": self.verdict(),
                "nodes": nodes.objects(),
                "groups": groups.objects(),
                "replicas": replicas.objects(),
            })),
        }
    }

    fn nodes(&self) -> Table {
        const COLUMNS: &[Column] = &[
            Column("node"),
            Column("address"),
            Column("leads"),
            Column("applied"),
            Column("behind"),
            Column("state"),
        ];
        let groups = self.groups();
        let mut table = Table::new(COLUMNS);
        for asked in self.asked {
            let (leads, applied, behind, state) = match &asked.answer {
                Ok(status) => {
                    let replicas = status.replicas.iter();
                    let leads = replicas.clone().filter(|replica| replica.serves).count();
                    let applied = replicas.clone().map(|replica| replica.applied.0).sum();
                    let behind = replicas.map(|replica| lag(&groups, replica)).sum();
                    let (leads, behind) = (Cell::Number(leads as u64), Cell::Number(behind));
                    (leads, Cell::Number(applied), behind, "answers".to_owned())
                }
                Err(problem) => (Cell::None, Cell::None, Cell::None, problem.clone()),
            };
            table.row(vec![
                Cell::Number(u64::from(asked.node)),
                Cell::Text(asked.address.clone()),
                leads,
                applied,
                behind,
                Cell::Text(state),
            ]);
        }
        table
    }

    fn group_table(&self) -> Table {
        const COLUMNS: &[Column] = &[
            Column("group"),
            Column("view"),
            Column("primary"),
            Column("serves"),
            Column("op"),
            Column("commit"),
        ];
        let mut table = Table::new(COLUMNS);
        for group in self.groups() {
            let replicas = self.replicas(group.latest.group);
            let op = replicas.map(|(_, replica)| replica.op.0).max();
            table.row(vec![
                group_cell(group.latest.group),
                Cell::Number(u64::from(group.latest.view.0)),
                Cell::Number(u64::from(group.latest.primary.0)),
                Cell::Flag(group.is_led),
                Cell::maybe(op),
                Cell::Number(group.commit),
            ]);
        }
        table
    }

    fn replica_table(&self) -> Table {
        const COLUMNS: &[Column] = &[
            Column("group"),
            Column("node"),
            Column("view"),
            Column("state"),
            Column("op"),
            Column("durable"),
            Column("commit"),
            Column("applied"),
            Column("lag"),
            Column("checkpoint"),
            Column("damaged"),
            Column("waits_for"),
            Column("digest"),
        ];
        let without_digest = &COLUMNS[..COLUMNS.len() - 1];
        let mut table = Table::new(if self.digests {
            COLUMNS
        } else {
            without_digest
        });
        let groups = self.groups();
        for group in &groups {
            for (node, replica) in self.replicas(group.latest.group) {
                let mut cells = vec![
                    group_cell(replica.group),
                    Cell::Number(u64::from(node)),
                    Cell::Number(u64::from(replica.view.0)),
                    Cell::Text(state(replica).to_owned()),
                    Cell::Number(replica.op.0),
                    Cell::Number(replica.durable.0),
                    Cell::Number(replica.commit.0),
                    Cell::Number(replica.applied.0),
                    Cell::Number(lag(&groups, replica)),
                    Cell::Number(replica.checkpoint.0),
                    Cell::Number(replica.damaged),
                    replica.waits_for.clone().map_or(Cell::None, Cell::Text),
                ];
                if self.digests {
                    let digest = replica.digest.map(|digest| format!("{digest:032x}"));
                    cells.push(digest.map_or(Cell::None, Cell::Text));
                }
                table.row(cells);
            }
        }
        table
    }
}

/// How many ops that somebody knows to be committed a replica has not applied.
fn lag(groups: &[Group<'_>], replica: &ReplicaDetails) -> u64 {
    let mut groups = groups.iter();
    let group = groups.find(|group| group.latest.group == replica.group);
    let commit = group.map_or(replica.commit.0, |group| group.commit);
    // The nodes were asked one after the other.
    commit.saturating_sub(replica.applied.0)
}

const fn state(replica: &ReplicaDetails) -> &'static str {
    match replica.state {
        ReplicaState::Normal if replica.serves => "primary",
        ReplicaState::Normal => "normal",
        ReplicaState::ViewChange => "view change",
        ReplicaState::Recovering => "recovering",
        ReplicaState::RecoveringHead => "recovering head",
        ReplicaState::StateTransfer => "state transfer",
        ReplicaState::OutOfService => "out of service",
    }
}

fn group_cell(group: ConsensusGroup) -> Cell {
    let name = match group {
        ConsensusGroup::METADATA => "0 (metadata)".to_owned(),
        other => other.to_string(),
    };
    Cell::Both(name, Value::from(group.0))
}

#[cfg(test)]
mod tests {
    use super::{Asked, ConsensusGroup, Format, NodeStatus, ReplicaDetails, ReplicaState, Report};
    use crate::golden::assert_golden;
    use wire::{ClusterId, Node, Op, ReplicaId, View};

    fn replica(node: u8, group: u16) -> ReplicaDetails {
        ReplicaDetails {
            group: ConsensusGroup(group),
            view: View(u32::from(group) * 3),
            primary: ReplicaId(1),
            state: ReplicaState::Normal,
            serves: node == 1,
            op: Op(120),
            durable: Op(120),
            commit: Op(119),
            applied: Op(if node == 1 { 119 } else { 97 }),
            checkpoint: Op(64),
            damaged: 0,
            waits_for: None,
            digest: None,
        }
    }

    fn status(node: u8) -> NodeStatus {
        let of = |node: u8| Node {
            replica: ReplicaId(node),
            address: format!("127.0.0.1:510{}", node + 1),
        };
        NodeStatus {
            cluster: ClusterId(0xABCD),
            node: ReplicaId(node),
            nodes: (0..3).map(of).collect(),
            replicas: (0..3).map(|group| replica(node, group)).collect(),
        }
    }

    fn asked(node: u8, answer: Option<NodeStatus>) -> Asked {
        let address = format!("127.0.0.1:510{}", node + 1);
        Asked {
            node,
            answer: answer.ok_or_else(|| format!("cannot reach {address}: Connection refused")),
            address,
        }
    }

    #[test]
    fn each_replica_is_shown_with_how_far_it_has_got_and_what_it_waits_for() {
        let mut slow = status(2);
        slow.replicas[2].state = ReplicaState::ViewChange;
        slow.replicas[2].damaged = 7;
        slow.replicas[2].waits_for = Some("a checkpoint that contains op 101".to_owned());
        slow.replicas[1].digest = Some(0xFEED);
        let first = status(1);
        let asked = [
            asked(0, None),
            asked(1, Some(status(1))),
            asked(2, Some(slow)),
        ];
        let mut report = Report {
            first: &first,
            asked: &asked,
            digests: false,
        };
        assert!(report.is_well());
        assert_golden("cluster.txt", &report.show(Format::Table));
        report.digests = true;
        assert_golden("cluster.json", &report.show(Format::Json));
    }

    #[test]
    fn one_of_three_says_that_there_is_no_majority_and_what_it_knows() {
        let mut alone = status(0);
        for replica in &mut alone.replicas {
            replica.waits_for =
                Some("a majority that misses the primary of view 0, or that primary".to_owned());
        }
        let first = alone.clone();
        let asked = [asked(0, Some(alone)), asked(1, None), asked(2, None)];
        let report = Report {
            first: &first,
            asked: &asked,
            digests: false,
        };
        assert!(!report.is_well());
        assert_golden("cluster-minority.txt", &report.show(Format::Table));
        assert_golden("cluster-minority.json", &report.show(Format::Json));
    }

    #[test]
    fn group_without_a_primary_is_not_well_though_a_majority_answers() {
        let mut statuses = [status(0), status(1), status(2)];
        statuses[1].replicas[2].serves = false;
        let first = statuses[0].clone();
        let asked = [0, 1, 2].map(|node| asked(node, Some(statuses[usize::from(node)].clone())));
        let report = Report {
            first: &first,
            asked: &asked,
            digests: false,
        };
        assert!(!report.is_well());
        assert_eq!(
            report.verdict(),
            "3 of 3 answer: 1 of 3 consensus groups have no primary at this moment"
        );
    }
}
