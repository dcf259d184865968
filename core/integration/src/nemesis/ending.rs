//! What must hold when everything is mended.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use wire::{GetTopic, Offset, Reply, TopicDetails};

use super::{
    faults::Suffered,
    findings::Findings,
    members::{Book, GROUPS, Members},
    plan::{KINDS, Kind},
    voice::Voice,
};
use crate::{Cluster, Ledger, NODES, PATIENCE, counter, until};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the members have got everything.
pub(super) fn drain(
    cluster: &Cluster,
    topic: &TopicDetails,
    members: &mut Members,
    findings: &Findings,
) {
    let Some(ends) = ends(cluster, topic) else {
        return findings.wrong("nobody tells where partitions end");
    };
    for (group, (name, _)) in GROUPS.iter().enumerate() {
        for (partition, end) in &ends {
            // Members that store after every message may be far behind: they have to get on.
            let mut newest = (Instant::now(), members.book(group).counts());
            while !members.book(group).has_all(*partition, *end) {
                let counts = members.book(group).counts();
                if counts != newest.1 {
                    newest = (Instant::now(), counts);
                }
                if newest.0.elapsed() > PATIENCE {
                    findings.wrong(format_args!(
                        "group {name}: not all {end} messages of partition {partition} are delivered"
                    ));
                    return;
                }
                members.look_after();
                thread::sleep(PAUSE);
            }
        }
    }
    findings.tell("everything is delivered to both groups");
}

fn ends(cluster: &Cluster, topic: &TopicDetails) -> Option<BTreeMap<u32, u64>> {
    let addresses: Vec<_> = (0..NODES).map(|node| cluster.address(node)).collect();
    let mut voice = Voice::login(&addresses, 0)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let request = GetTopic {
            stream: topic.stream.into(),
            topic: topic.id.into(),
        };
        let Ok(Reply::Topic(found)) = voice.insist(request)? else {
            return None;
        };
        let ends = found.partitions.iter();
        let ends: Option<BTreeMap<u32, u64>> =
            ends.map(|one| Some((one.id.0, one.end?.0))).collect();
        if ends.is_some() {
            return ends;
        }
        thread::sleep(PAUSE);
    }
    None
}

/// All nodes have applied the same, and each gives everything that was acknowledged, once and in order.
pub(super) fn compare(
    cluster: &Cluster,
    topic: &TopicDetails,
    ledger: &Ledger,
    findings: &Findings,
) {
    let compared = catch_unwind(AssertUnwindSafe(|| {
        let mut connections: Vec<_> = (0..NODES).map(|node| cluster.login(node)).collect();
        let applied = until("the nodes are in step", || {
            let applied = connections
                .iter_mut()
                .map(|connection| counter(connection, "ops_applied"));
            let applied: BTreeSet<u64> = applied.collect();
            (applied.len() == 1).then_some(applied)
        });
        findings.tell(format_args!("all nodes have applied {applied:?} ops"));
        for (node, connection) in connections.iter_mut().enumerate() {
            until("the node serves all partitions", || {
                let mut partitions = topic.partitions.iter();
                partitions
                    .all(|one| connection.read_from(topic, one.id.0, Offset(0)).is_ok())
                    .then_some(())
            });
            let found = ledger.check(connection, topic);
            findings.tell(format_args!(
                "node {node}: {} messages, {} of them acknowledged, {} sent",
                found.messages,
                found.acknowledged,
                ledger.sent()
            ));
        }
    }));
    if let Err(panic) = compared {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        findings.wrong(text.unwrap_or("the nodes cannot be compared"));
    }
}

/// Every message came from its place, in order, and again only where it was not stored.
pub(super) fn judge_deliveries(books: &[Book], ledger: &Ledger, findings: &Findings) {
    for (book, (name, _)) in books.iter().zip(GROUPS) {
        for fault in book.faults() {
            findings.wrong(format_args!("group {name}: {fault}"));
        }
        for ((partition, offset), tag) in book.tags() {
            let sent = ledger.at(partition, Offset(offset));
            if sent.is_some_and(|sent| sent != tag) {
                findings.wrong(format_args!(
                    "group {name}: {tag:?} came from {offset} of partition {partition}, not {sent:?}"
                ));
            }
        }
        let (all, repeated) = book.counts();
        findings.tell(format_args!(
            "group {name}: {all} deliveries, {repeated} of them repeated because they were not stored"
        ));
    }
}

/// Every kind of fault has hit a primary under load once in each round, at least.
pub(super) fn judge_faults(suffered: &BTreeMap<Kind, Suffered>, rounds: u32, findings: &Findings) {
    // What is wrong has ended the last round.
    let is_whole = findings.is_clean();
    for kind in KINDS {
        let found = suffered.get(&kind).copied().unwrap_or_default();
        let [during, after] = found.longest.map(|longest| longest.as_millis());
        findings.tell(format_args!(
            "{kind:?}: {} times, {} of them a primary under load; all partitions went on within {during} ms, and {after} ms afterwards",
            found.count, found.primaries
        ));
        if is_whole && found.primaries < rounds {
            findings.wrong(format_args!(
                "{kind:?} has hit a primary under load {} times in {rounds} rounds: it proves too little",
                found.primaries
            ));
        }
    }
}
