//! `idle`: what a cluster costs that has many partitions and groups, and nothing to do.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    bench::Bench,
    cluster::{Cluster, NODES},
    error::Error,
    failover_broker::until_ok,
    figure::{Section, Side, Target, Unit},
    process::Usage,
    target::Server,
};

/// Topics, and the partitions and the consumer groups of each.
const TOPICS: u32 = 10;
const PARTITIONS: u32 = 1_000;
const GROUPS: u32 = 100;

/// How long a cluster has been idle before it is measured.
const REST: Duration = Duration::from_secs(10);

/// The limits: of one core, and of resident bytes, for each node.
const CORE_MAX: f64 = 0.05;
const RESIDENT_MAX: f64 = 256.0 * 1024.0 * 1024.0;

/// Makes it all, lets it rest, and looks at each node's process.
///
/// # Errors
/// `Usage` with a server that runs already; what stops a node.
pub(crate) fn run(bench: &mut Bench) -> Result<Section, Error> {
    let lasts = Duration::from_secs(bench.pick(20, 60));
    let mut launch = bench.launch()?;
    launch.is_cluster = true;
    let (mut server, _) = Server::start(&launch)?;
    let mut connection = server.log_in()?;
    for _ in 0..TOPICS {
        let topic = server.create_topic(&mut connection, PARTITIONS)?;
        for _ in 0..GROUPS {
            server.create_group(&mut connection, &topic)?;
        }
    }
    thread::sleep(REST);
    let views = until_ok(|| server.log_in())?.views()?;
    drop(connection);
    let before = usages(cluster(&mut server))?;
    let begin = Instant::now();
    thread::sleep(lasts);
    let elapsed = begin.elapsed().as_nanos() as f64;
    let after = usages(cluster(&mut server))?;
    let changes = until_ok(|| server.log_in())?.views()?.saturating_sub(views);
    let mut nodes = Vec::new();
    for (node, (before, after)) in before.iter().zip(&after).enumerate() {
        let used: u64 = after.since(before).cpu.values().sum();
        let resident = cluster(&mut server).resident(node)? as f64;
        nodes.push((used as f64 / elapsed, resident));
    }
    server.stop()?;
    Bench::remove(&launch)?;
    Ok(section(&nodes, changes))
}

/// `nodes`: the part of a core that each node uses, and its resident bytes.
fn section(nodes: &[(f64, f64)], changes: u64) -> Section {
    let (partitions, groups) = (TOPICS * PARTITIONS, TOPICS * GROUPS);
    let mut section = Section::new(format!(
        "idle: three nodes, {partitions} partitions, {groups} consumer groups"
    ));
    for (node, (core, resident)) in nodes.iter().enumerate() {
        section.figure(format!("node {node}, of a core"), *core, Unit::Ratio);
        section.figure(format!("node {node}, resident"), *resident, Unit::Bytes);
    }
    section.figure("view changes meanwhile", changes as f64, Unit::Ratio);
    let most = |of: fn(&(f64, f64)) -> f64| nodes.iter().map(of).fold(0.0, f64::max);
    for (name, limit, measured, unit) in [
        (
            "idle node of a cluster, CPU",
            CORE_MAX,
            most(|(core, _)| *core),
            Unit::Ratio,
        ),
        (
            "idle node of a cluster, memory",
            RESIDENT_MAX,
            most(|(_, resident)| *resident),
            Unit::Bytes,
        ),
    ] {
        section.target(Target {
            name: name.into(),
            of: "the node that uses most",
            side: Side::AtMost,
            limit,
            measured,
            unit,
        });
    }
    section
}

fn cluster(server: &mut Server) -> &mut Cluster {
    server.cluster_mut().expect("it was started as one")
}

fn usages(cluster: &Cluster) -> Result<Vec<Usage>, Error> {
    (0..NODES).map(|node| cluster.usage(node)).collect()
}
