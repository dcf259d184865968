//! Three nodes: what a cluster survives, and whom it refuses.

mod deaths;
mod failover;
mod full;
mod rot;
mod transfer;

mod r08;
mod r09;
mod r23;
mod r25;
mod r39;
mod rolling;
mod spread;
mod stage;
mod status;
mod wiped;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cohort::{Client, GroupConsumer, GroupOptions};
use integration::{
    Cluster, Connection, Ledger, Load, NODES, States, again, counter, flip_bit, node_status,
    patient_client, repetitions, states, until,
};
use tokio::task::JoinHandle;
use wire::{ClusterMetadata, ConsensusGroup, ErrorCode, Offset, Op, Reply, Request, TopicDetails};

/// Partitions of a topic: one for each data group.
const PARTITIONS: u32 = 6;

/// Bytes of a message under load.
const MESSAGE: usize = 200;

/// Bytes of a message that nearly fills the largest batch.
const LARGE: usize = 7 * 1024 * 1024 - 4_096;

/// How often who gets nothing looks at what it holds.
const LOOK: Duration = Duration::from_millis(20);

/// The cluster, as the node that is asked knows it.
fn metadata(connection: &mut Connection) -> ClusterMetadata {
    match connection.ask(Request::GetClusterMetadata) {
        Ok(Reply::ClusterMetadata(metadata)) => metadata,
        other => panic!("ask for the cluster: {other:?}"),
    }
}

/// The node that leads a group, as soon as one of those that run says so and it is none of the `dead`.
fn primary(cluster: &Cluster, ask: usize, group: ConsensusGroup) -> usize {
    let mut connection = cluster.login(ask);
    let metadata = metadata(&mut connection);
    let found = metadata.groups.iter().find(|found| found.group == group);
    usize::from(found.expect("the group is there").primary.0)
}

/// Appends a message that is in no other place of the partition, once, whatever happens to primaries meanwhile.
fn append(
    connection: &mut Connection,
    topic: &TopicDetails,
    partition: u32,
    message: &Bytes,
) -> Offset {
    until("a message is appended", || {
        let code = match connection.append(topic, partition, std::slice::from_ref(message)) {
            Ok(offset) => return Some(offset),
            Err(failure) => failure.code,
        };
        assert!(
            code == ErrorCode::OutcomeUnknown || code.retryable(),
            "{code:?}"
        );
        let page = again("it is looked for", || {
            connection.read_from(topic, partition, Offset(0))
        });
        let found = page.messages.iter().find(|(_, bytes)| bytes == message);
        found.map(|(offset, _)| *offset)
    })
}

/// Waits until all these nodes have applied the same number of ops of every consensus group, and requires that they
/// have the same states then (I7).
fn in_step(cluster: &Cluster, nodes: &[usize]) {
    until("the nodes are in step", || {
        let told = nodes
            .iter()
            .map(|node| node_status(cluster.address(*node)).ok());
        let told: Vec<States> = told
            .map(|it| it.as_ref().map(states))
            .collect::<Option<_>>()?;
        let applied = |states: &States| -> Vec<Op> { states.values().map(|it| it.0).collect() };
        if told.iter().any(|it| applied(it) != applied(&told[0])) {
            return None;
        }
        for (node, states) in nodes.iter().zip(&told) {
            assert_eq!(
                states, &told[0],
                "node {node} differs from node {}",
                nodes[0]
            );
        }
        Some(())
    });
}

/// Requires that every node knows the same topic, and that each serves all of it.
fn expect_everywhere(cluster: &Cluster, ledger: &Ledger, topic: &TopicDetails) {
    in_step(cluster, &[0, 1, 2]);
    for node in 0..NODES {
        let mut connection = cluster.login(node);
        // What a node that has just started lacks it fetches.
        again("the node serves", || {
            connection.read_from(topic, 0, Offset(0))
        });
        let found = ledger.check(&mut connection, topic);
        assert_eq!(found.acknowledged, ledger.acknowledged(), "node {node}");
    }
}

/// Waits until so many further messages are acknowledged.
fn progress(ledger: &Ledger, count: u64) {
    let goal = ledger.acknowledged() + count;
    until("messages are acknowledged", || {
        (ledger.acknowledged() >= goal).then_some(())
    });
}

#[test]
fn nodes_that_are_started_in_any_order_form_a_cluster() {
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut cluster = Cluster::new();
        let alone = cluster.launch(order[0]);
        // It is there before the others, and asks for them.
        alone
            .log()
            .wait_for("no link to a node")
            .expect("it says so");
        let second = cluster.launch(order[1]);
        cluster.adopt(order[0], alone);
        cluster.adopt(order[1], second);
        let topic = cluster.create_topic(order[1], "orders", PARTITIONS);
        // Two are a majority; the third comes later and learns everything.
        let third = cluster.launch(order[2]);
        cluster.adopt(order[2], third);
        for node in 0..NODES {
            let mut connection = cluster.login(node);
            let known = metadata(&mut connection);
            let addresses = known.nodes.iter().map(|node| node.address.clone());
            let expected = (0..NODES).map(|node| cluster.address(node).to_string());
            assert!(addresses.eq(expected));
            assert_eq!(usize::from(known.node.0), node);
            assert_eq!(known.groups.len(), 7);
            again("the node serves", || {
                connection.read_from(&topic, 0, Offset(0))
            });
        }
        (0..NODES).for_each(|node| drop(cluster.stop(node)));
    }
}

#[test]
fn every_node_takes_every_request_whatever_its_number_of_shards() {
    let shards = ["1", "3", "2"];
    let mut cluster = Cluster::with(|node, site| site.with("node.shards", shards[node]));
    cluster.start();
    let mut connections: Vec<Connection> = (0..NODES).map(|node| cluster.login(node)).collect();
    let topic = cluster.create_topic(1, "orders", PARTITIONS);
    for round in 0..6_u64 {
        for partition in 0..PARTITIONS {
            let node = usize::try_from(round + u64::from(partition)).expect("small") % NODES;
            let message = integration::message(partition, round);
            let appended = append(&mut connections[node], &topic, partition, &message);
            assert_eq!(
                appended,
                Offset(round),
                "partition {partition} through node {node}"
            );
        }
    }
    for (node, connection) in connections.iter_mut().enumerate() {
        for partition in 0..PARTITIONS {
            let page = again("messages are read", || {
                connection.read_from(&topic, partition, Offset(0))
            });
            let expected: Vec<Bytes> = (0..6)
                .map(|round| integration::message(partition, round))
                .collect();
            let found: Vec<Bytes> = page.messages.into_iter().map(|(_, bytes)| bytes).collect();
            assert!(
                found == expected,
                "partition {partition} through node {node}"
            );
        }
    }
    for partition in 0..PARTITIONS {
        for node in 0..NODES {
            let offset = Offset(node as u64);
            again("an offset is stored", || {
                connections[node].store(&topic, partition, "audit", offset)
            });
            let other = &mut connections[(node + 1) % NODES];
            let found = again("an offset is read", || {
                other.stored(&topic, partition, "audit")
            });
            assert_eq!(found.stored, Some(offset));
        }
    }
    // Nobody leads all groups and is asked for none of them.
    let forwarded: u64 = connections
        .iter_mut()
        .map(|connection| counter(connection, "forwarded"))
        .sum();
    assert!(forwarded > 0);
}

#[test]
fn largest_messages_go_through_every_node_too() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", 1);
    let mut connections: Vec<Connection> = (0..NODES).map(|node| cluster.login(node)).collect();
    // One of the nodes leads the partition, the others pass on.
    for (node, connection) in (1_u8..).zip(&mut connections) {
        let message = Bytes::from(vec![node; LARGE]);
        append(connection, &topic, 0, &message);
    }
    for connection in &mut connections {
        let page = again("messages are read", || {
            connection.read_from(&topic, 0, Offset(0))
        });
        let sizes = page.messages.iter().map(|(_, message)| message.len());
        assert!(sizes.eq([LARGE; NODES]));
    }
    in_step(&cluster, &[0, 1, 2]);
}

#[test]
fn members_of_a_group_may_be_at_different_nodes() {
    let mut cluster = Cluster::with(|node, site| site.with("node.shards", ["2", "1", "3"][node]));
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut connection = cluster.login(0);
    let count = 20_u64;
    for partition in 0..PARTITIONS {
        for offset in 0..count {
            let message = integration::message(partition, offset);
            append(&mut connection, &topic, partition, &message);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("make a runtime");
    let taken: Arc<Mutex<BTreeSet<(u32, u64)>>> = Arc::default();
    let members = (0..NODES).map(|node| {
        let member = runtime.block_on(join(&cluster, node));
        let held = Arc::new(AtomicUsize::new(0));
        let task = runtime.spawn(take(member, Arc::clone(&taken), Arc::clone(&held)));
        (task, held)
    });
    let members: Vec<(JoinHandle<()>, Arc<AtomicUsize>)> = members.collect();
    until(
        "every member has its share and everything is delivered",
        || {
            assert!(members.iter().all(|(task, _)| !task.is_finished()));
            let is_shared = members
                .iter()
                .all(|(_, held)| held.load(Ordering::SeqCst) == 2);
            let all = u64::from(PARTITIONS) * count;
            let is_all = taken.lock().expect("nobody panics").len() as u64 == all;
            (is_shared && is_all).then_some(())
        },
    );
    drop(runtime);
}

/// A member of a group whose client begins at this node.
async fn join(cluster: &Cluster, node: usize) -> (Client, GroupConsumer) {
    let client = patient_client(&cluster.url(node)).await;
    let member = client
        .consumer_group("orders", "orders", "billing")
        .create_if_missing(GroupOptions::default())
        .poll_wait(Duration::from_millis(50))
        .build();
    let member = member.await.expect("join");
    (client, member)
}

/// Takes what comes, and tells how many partitions are held.
async fn take(
    (_client, mut member): (Client, GroupConsumer),
    taken: Arc<Mutex<BTreeSet<(u32, u64)>>>,
    held: Arc<AtomicUsize>,
) {
    loop {
        let next = tokio::time::timeout(LOOK, member.next()).await;
        held.store(member.partitions().len(), Ordering::SeqCst);
        if let Ok(next) = next {
            let message = next.expect("it goes on").expect("nothing fails");
            let (partition, offset) = (message.partition().0, message.offset().0);
            assert_eq!(*message.payload(), integration::message(partition, offset));
            taken
                .lock()
                .expect("nobody panics")
                .insert((partition, offset));
        }
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_primaries_are_killed_under_load() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..3, &ledger);
    progress(&ledger, 1_000);
    for round in 0..repetitions(3, 30) {
        let asked = usize::try_from(round).expect("small") % NODES;
        let victim = primary(&cluster, asked, ConsensusGroup::METADATA);
        drop(cluster.kill(victim));
        progress(&ledger, 1_000);
        cluster.start_in_order(&[victim]);
        progress(&ledger, 200);
    }
    load.finish();
    expect_everywhere(&cluster, &ledger, &topic);
}

#[test]
fn node_that_stands_still_is_done_without_and_catches_up() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    for (paused, number) in (0..NODES).zip((0..).step_by(3)) {
        // Connected to another node: how long a client waits for a silent one is not what this is about.
        let url = cluster.url(paused + 1);
        let load = Load::start(&url, &topic, number..number + 3, &ledger);
        progress(&ledger, 500);
        cluster.server(paused).pause();
        progress(&ledger, 2_000);
        cluster.server(paused).resume();
        progress(&ledger, 200);
        load.finish();
    }
    expect_everywhere(&cluster, &ledger, &topic);
}

#[test]
fn node_that_was_away_fetches_what_it_lacks_and_can_do_without_either_of_the_others() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    drop(cluster.kill(2));
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(0), &topic, 0..3, &ledger);
    progress(&ledger, u64::from(repetitions(20_000, 200_000)));
    cluster.start_in_order(&[2]);
    load.finish();
    in_step(&cluster, &[0, 1, 2]);
    for dead in [0, 1] {
        drop(cluster.kill(dead));
        let mut connection = cluster.login(2);
        again("the node serves", || {
            connection.read_from(&topic, 0, Offset(0))
        });
        for partition in 0..PARTITIONS {
            let message = integration::message(partition, 1_000 + dead as u64);
            append(&mut connection, &topic, partition, &message);
        }
        cluster.start_in_order(&[dead]);
        in_step(&cluster, &[0, 1, 2]);
    }
    let mut connection = cluster.login(2);
    let ends = (0..PARTITIONS).map(|partition| {
        let page = again("it is read", || {
            connection.read_from(&topic, partition, Offset(0))
        });
        page.messages.len() as u64
    });
    let found: u64 = ends.sum();
    assert!(found >= ledger.acknowledged() + 2 * u64::from(PARTITIONS));
}

/// Where these bytes begin in one of a node's journal files.
fn find_in_journal(cluster: &Cluster, node: usize, wanted: &[u8]) -> (PathBuf, u64) {
    let site = cluster.site(node);
    let files = site.files(|path| path.ends_with(".journal"));
    let found = files.into_iter().find_map(|path| {
        let bytes = std::fs::read(&path).expect("read the journal");
        let mut windows = bytes.windows(wanted.len());
        let position = windows.position(|window| window == wanted)?;
        Some((path, position as u64))
    });
    found.expect("it is in the journal")
}

#[test]
fn what_a_node_cannot_read_in_its_journal_it_fetches_from_the_others() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut connection = cluster.login(0);
    let count = 30;
    for number in 0..count {
        for partition in 0..PARTITIONS {
            let message = integration::message(partition, number);
            append(&mut connection, &topic, partition, &message);
        }
    }
    in_step(&cluster, &[0, 1, 2]);
    for (victim, number) in [(2, 10), (1, count - 1)] {
        drop(cluster.kill(victim));
        for partition in 0..PARTITIONS {
            let message = integration::message(partition, number);
            let (path, position) = find_in_journal(&cluster, victim, &message[..16]);
            flip_bit(&path, position);
        }
        cluster.start_in_order(&[victim]);
        in_step(&cluster, &[0, 1, 2]);
    }
    // Either of the two that were damaged is now needed.
    drop(cluster.kill(0));
    let mut connection = cluster.login(1);
    for partition in 0..PARTITIONS {
        let page = again("it is read", || {
            connection.read_from(&topic, partition, Offset(0))
        });
        let expected = (0..count).map(|number| integration::message(partition, number));
        let found = page.messages.into_iter().map(|(_, message)| message);
        assert!(found.eq(expected), "partition {partition}");
    }
}

#[test]
fn r29_3_what_was_acknowledged_is_there_after_all_nodes_were_killed_at_once() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let ledger = Ledger::new(MESSAGE);
    for round in 0..repetitions(2, 20) {
        let load = Load::start(&cluster.url(0), &topic, 2 * round..2 * round + 2, &ledger);
        progress(&ledger, 1_000);
        (0..NODES).for_each(|node| drop(cluster.kill(node)));
        cluster.start_in_order(&[2, 0, 1]);
        progress(&ledger, 500);
        load.finish();
    }
    expect_everywhere(&cluster, &ledger, &topic);
}

#[test]
fn client_that_knows_one_node_only_goes_on_there_when_another_one_dies() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(1, "orders", PARTITIONS);
    let mut connection = cluster.login(1);
    drop(cluster.kill(0));
    for partition in 0..PARTITIONS {
        let message = integration::message(partition, 0);
        append(&mut connection, &topic, partition, &message);
        let page = again("it is read", || {
            connection.read_from(&topic, partition, Offset(0))
        });
        assert!(page.messages.iter().all(|(_, found)| *found == message));
    }
}

/// A cluster whose node 2 was told something else, and serves without it.
fn with_stranger(key: &str, value: &str) -> (Cluster, String, String) {
    let mut cluster = Cluster::with(|node, site| match node {
        2 => site.with(key, value),
        _ => site,
    });
    cluster.start_in_order(&[0, 1]);
    let stranger = cluster.launch(2);
    let here = stranger
        .log()
        .wait_for("refuses this node")
        .expect("it says so");
    let there = cluster
        .server(0)
        .log()
        .wait_for("is refused")
        .expect("it says so");
    let topic = cluster.create_topic(0, "orders", PARTITIONS);
    let mut connection = cluster.login(0);
    append(
        &mut connection,
        &topic,
        0,
        &Bytes::from_static(b"without it"),
    );
    let ended = stranger.terminate();
    assert_eq!(
        ended.code,
        Some(0),
        "it waits for the others and can be stopped: {}",
        ended.stderr
    );
    (cluster, here, there)
}

#[test]
fn node_with_another_secret_is_refused_by_name_on_both_sides() {
    let (_cluster, here, there) = with_stranger("cluster.secret", "\"another one's secret\"");
    assert!(here.contains("cluster.secret is not the same"), "{here}");
    assert!(
        there.contains("node 2 has another cluster.secret"),
        "{there}"
    );
    assert!(!here.contains("of no use") && !there.contains("another one's"));
}

#[test]
fn node_of_another_cluster_is_refused_by_name_on_both_sides() {
    let (_cluster, here, there) = with_stranger("cluster.id", "\"other\"");
    for text in [here, there] {
        assert!(text.contains("the cluster's id is"), "{text}");
    }
}

#[test]
fn node_with_another_number_of_data_groups_is_refused_by_name_on_both_sides() {
    let (_cluster, here, there) = with_stranger("cluster.data_groups", "4");
    assert!(
        here.contains("cluster.data_groups is 4 here and 6 there"),
        "{here}"
    );
    assert!(
        there.contains("cluster.data_groups is 6 here and 4 there"),
        "{there}"
    );
}

#[test]
fn node_with_other_limits_is_refused_by_name_on_both_sides() {
    let (_cluster, here, there) = with_stranger("cluster.limits.members_per_group", "77");
    assert!(
        here.contains("cluster.limits.members_per_group is 77 here and 1024 there"),
        "{here}"
    );
    assert!(
        there.contains("cluster.limits.members_per_group is 1024 here and 77 there"),
        "{there}"
    );
}

#[test]
fn node_with_another_list_of_nodes_is_refused_by_name() {
    let nodes = "[{ id = 0, client = \"127.0.0.1:1\", peer = \"PEER\" }, \
                 { id = 1, client = \"127.0.0.1:2\", peer = \"127.0.0.1:3\" }, \
                 { id = 2, client = \"127.0.0.1:4\", peer = \"127.0.0.1:5\" }]";
    let mut cluster = Cluster::unformatted(|_, site| site);
    let first = cluster.site(0).run(&["--print-config"]).stdout;
    let (_, peer) = first
        .split_once("id = 0, client = ")
        .expect("the list is printed");
    let (_, peer) = peer.split_once("peer = \"").expect("it has peers");
    let (peer, _) = peer.split_once('"').expect("it is text");
    let nodes = nodes.replace("PEER", peer);
    cluster.set(2, "cluster.nodes", &nodes);
    cluster.set(2, "node.peer_address", "\"127.0.0.1:0\"");
    cluster.format();
    let first = cluster.launch(0);
    let stranger = cluster.launch(2);
    let here = stranger
        .log()
        .wait_for("refuses this node")
        .expect("it says so");
    assert!(here.contains("the list of nodes"), "{here}");
    let there = first.log().wait_for("is refused").expect("it says so");
    assert!(there.contains("the list of nodes"), "{there}");
}

#[test]
fn node_of_a_cluster_is_formatted_once_and_for_ever() {
    let cluster = Cluster::unformatted(|_, site| site);
    let site = cluster.site(0);
    let ended = site.run(&[]);
    assert_eq!(ended.code, Some(4));
    assert!(
        ended.stderr.contains("is not formatted"),
        "{}",
        ended.stderr
    );
    assert!(
        site.run(&["format"])
            .stderr
            .contains("data directory formatted")
    );
    let again = site.run(&["format"]);
    assert_eq!(again.code, Some(4));
    assert!(
        again
            .stderr
            .contains("is formatted already; nothing was changed"),
        "{}",
        again.stderr
    );
    for (setting, part) in [
        ("node.id=1", "node.id = 1, but"),
        ("cluster.data_groups=8", "cluster.data_groups = 8, but"),
        ("cluster.id=other", "cluster.id = \"other\", but"),
        ("cluster.nodes=0 a:1 a:2", "cluster.nodes = 1 nodes, but"),
        (
            "cluster.nodes=0 a:1 a:2, 1 b:1 b:2, 2 c:1 c:2",
            "cluster.nodes: client of node 0 = \"a:1\", but",
        ),
    ] {
        let ended = site.run(&["--set", setting]);
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(part),
            "no {part:?} in {}",
            ended.stderr
        );
        assert!(
            ended.stderr.contains("it is fixed for ever"),
            "{}",
            ended.stderr
        );
    }
}
