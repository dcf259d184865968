//! A node that loses its disk, and comes back from the others.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use wire::{ConsensusGroup, NodeStatus, Op, ReplicaDetails, ReplicaState};

use crate::{Cluster, NODES, PATIENCE, node_status};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes the disk of a node away that does not run.
///
/// # Panics
/// When its data directory cannot be removed.
pub(super) fn wipe(cluster: &Cluster, node: usize) {
    fs::remove_dir_all(cluster.site(node).data()).expect("wipe a node");
}

/// Formats a new one in the place of the lost one.
pub(super) fn recover(cluster: &Cluster, node: usize) -> Result<(), String> {
    let ended = cluster.site(node).run(&["recover"]);
    match ended.code {
        Some(0) => Ok(()),
        code => Err(format!(
            "recover of node {node} ({code:?}): {}",
            ended.stderr
        )),
    }
}

/// Waits until all nodes have on their disks, and have applied, what is committed by now. Others go on meanwhile.
pub(super) fn wait_until_in_step(cluster: &Cluster) -> Result<Duration, String> {
    let began = Instant::now();
    let mut goal: Option<BTreeMap<ConsensusGroup, Op>> = None;
    loop {
        let statuses = (0..NODES).map(|node| node_status(cluster.address(node)).ok());
        let statuses: Option<Vec<NodeStatus>> = statuses.collect();
        let lacks = match (&statuses, &goal) {
            (None, _) => "a node does not tell its status".to_owned(),
            (Some(statuses), None) => {
                goal = Some(committed(statuses));
                continue;
            }
            (Some(statuses), Some(goal)) => match first_behind(statuses, goal) {
                None => return Ok(began.elapsed()),
                Some(lacks) => lacks,
            },
        };
        if began.elapsed() > PATIENCE {
            return Err(lacks);
        }
        thread::sleep(PAUSE);
    }
}

fn committed(statuses: &[NodeStatus]) -> BTreeMap<ConsensusGroup, Op> {
    let mut committed = BTreeMap::new();
    for replica in statuses.iter().flat_map(|status| &status.replicas) {
        let op = committed.entry(replica.group).or_insert(replica.commit);
        *op = replica.commit.max(*op);
    }
    committed
}

/// Who lacks something, and what.
fn first_behind(statuses: &[NodeStatus], goal: &BTreeMap<ConsensusGroup, Op>) -> Option<String> {
    for status in statuses {
        let is_whole = |replica: &&ReplicaDetails| {
            let goal = goal.get(&replica.group).copied().unwrap_or_default();
            replica.state == ReplicaState::Normal
                && replica.damaged == 0
                && replica.durable.min(replica.applied) >= goal
        };
        if let Some(replica) = status.replicas.iter().find(|replica| !is_whole(replica)) {
            let goal = goal.get(&replica.group);
            return Some(format!("node {}, of {goal:?}: {replica:?}", status.node.0));
        }
    }
    None
}
