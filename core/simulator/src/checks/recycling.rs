//! V15: what a journal may give up is in the checkpoints of a majority.

use journal::SuperblockRecord;
use wire::Op;

use crate::{node::Node, run::Run};

/// A node writes down how much of its journal nobody needs any more.
pub(crate) fn check(run: &mut Run, nodes: &[Node], record: &SuperblockRecord) {
    let op = record.checkpoint;
    if op == Op(0) {
        return;
    }
    // One that was lost counts: who lacks what the others gave up gets their checkpoint.
    let lost = |node: &Node| node.lost_snapshots.get(&record.group).copied();
    let newest = |node: &Node| node.newest_snapshot_op(record.group).max(lost(node));
    let holders = nodes.iter().filter(|node| newest(node) >= Some(op)).count();
    run.counts.recyclings_checked += 1;
    if holders <= nodes.len() / 2 {
        let group = record.group;
        run.fail(format!(
            "group {group} gives up its journal up to op {op}, which is in {holders} checkpoints"
        ));
    }
}
