//! What a node says of its replicas, to whom, and with nobody else there.

use std::{string::String, vec::Vec};

use wire::{
    ConsensusGroup, ErrorCode, Failure, GetNodeStatus, NodeStatus, Op, Password, ReplicaDetails,
    ReplicaState, Reply,
};

use super::{
    cluster::{Cluster, with_topic},
    node::{DATA_GROUPS, Disk, Node},
};

fn ask(name: &str, password: &str) -> GetNodeStatus {
    GetNodeStatus {
        name: name.into(),
        password: Password(password.into()),
        digests: true,
    }
}

/// Asks a node without a session.
fn status(node: &mut Node, connection: u64) -> Result<NodeStatus, Failure> {
    let mut stranger = node.client(connection, 0);
    let reply = node.call(&mut stranger, ask("root", "correct horse"))?;
    let Reply::NodeStatus(status) = reply else {
        panic!("{reply:?}");
    };
    Ok(status)
}

fn of_metadata(status: &NodeStatus) -> &ReplicaDetails {
    let first = &status.replicas[0];
    assert_eq!(first.group, ConsensusGroup::METADATA);
    first
}

/// What each node says of its replicas, without what they are told later than others.
fn states(cluster: &mut Cluster, connection: u64) -> Vec<Vec<(Op, Option<u128>)>> {
    let nodes = 0..3;
    let states = nodes.map(|node| {
        let status = status(cluster.node(node), connection).unwrap();
        let replicas = status.replicas.iter();
        replicas.map(|it| (it.applied, it.digest)).collect()
    });
    states.collect()
}

#[test]
fn every_node_tells_all_its_replicas_and_equal_states_have_equal_digests() {
    let (mut cluster, _admin) = with_topic();
    let told = status(cluster.node(2), 50).unwrap();
    assert_eq!((told.node.0, told.nodes.len()), (2, 3));
    let groups: Vec<u16> = told.replicas.iter().map(|it| it.group.0).collect();
    let expected: Vec<u16> = (0..=DATA_GROUPS).collect();
    assert_eq!(groups, expected);
    for replica in &told.replicas {
        assert_eq!(replica.state, ReplicaState::Normal);
        assert_eq!(
            (replica.op, replica.durable),
            (replica.commit, replica.commit)
        );
        assert_eq!(replica.applied, replica.commit);
        assert_eq!((replica.damaged, replica.waits_for.as_deref()), (0, None));
        assert_eq!(replica.serves, replica.primary == told.node);
        let leader = cluster.leader(replica.group);
        assert_eq!(leader, Some(replica.primary.0));
    }
    let told = states(&mut cluster, 51);
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
    assert!(told[0].iter().all(|(_, digest)| digest.is_some()));
    assert!(told[0][0].0 > Op(0));
}

#[test]
fn digests_are_read_only_when_they_are_wanted() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(2, 5);
    let ask = GetNodeStatus {
        digests: false,
        ..ask("", "")
    };
    let Ok(Reply::NodeStatus(told)) = node.call(&mut client, ask) else {
        panic!("a session needs no password");
    };
    assert!(told.replicas.iter().all(|it| it.digest.is_none()));
}

#[test]
fn status_is_told_to_users_only() {
    let mut node = Node::fresh(2);
    let mut admin = node.log_in(2, 5);
    let alice = wire::CreateUser {
        name: "alice".into(),
        password: Password("correct horse".into()),
    };
    node.call(&mut admin, alice).unwrap();
    let mut stranger = node.client(3, 0);
    let refused = [("root", "wrong"), ("nobody", "correct horse"), ("", "")];
    for (name, password) in refused {
        let failure = node.call(&mut stranger, ask(name, password)).unwrap_err();
        assert_eq!(failure.code, ErrorCode::InvalidCredentials, "{name}");
        assert_eq!(failure.text, "user name or password is wrong");
    }
    node.call(&mut stranger, ask("alice", "correct horse"))
        .unwrap();
    let bar = wire::UpdateUser {
        user: super::node::name("alice"),
        name: None,
        active: Some(false),
    };
    node.call(&mut admin, bar).unwrap();
    let failure = node.call(&mut stranger, ask("alice", "correct horse"));
    assert_eq!(failure.unwrap_err().code, ErrorCode::InvalidCredentials);
    // It is no login.
    let me = node.call(&mut stranger, wire::Request::GetMe).unwrap_err();
    assert_eq!(me.code, ErrorCode::Unauthenticated);
    // On a connection with a session another one's number is refused, whatever the password.
    admin.session.0 += 1;
    let failure = node.call(&mut admin, ask("root", "correct horse"));
    assert_eq!(failure.unwrap_err().code, ErrorCode::SessionMismatch);
}

#[test]
fn node_without_metadata_says_that_it_knows_nobody() {
    let mut node = Node::stalled(2, Disk::default());
    let failure = status(&mut node, 2).unwrap_err();
    assert_eq!(failure.code, ErrorCode::NotReady);
    assert!(
        failure.text.contains("knows nobody's password"),
        "{failure}"
    );
}

#[test]
fn node_without_a_majority_says_so_and_what_it_knows() {
    let (mut cluster, _admin) = with_topic();
    let leader = cluster.leader(ConsensusGroup::METADATA).unwrap();
    let backup = (leader + 1) % 3;
    let before = of_metadata(&status(cluster.node(backup), 50).unwrap()).clone();
    // In this order: two that are left would choose another primary.
    cluster.kill((leader + 2) % 3);
    cluster.kill(leader);
    cluster.pass(5_000);
    let told = status(cluster.node(backup), 51).unwrap();
    let after = of_metadata(&told);
    assert_eq!(
        (after.applied, after.digest),
        (before.applied, before.digest)
    );
    assert!(told.replicas.iter().all(|it| !it.serves));
    let waits = |replica: &ReplicaDetails| -> String { replica.waits_for.clone().unwrap() };
    let view = before.view;
    let expected =
        std::format!("a majority that misses the primary of view {view}, or that primary");
    assert_eq!(waits(after), expected);
    let led = told.replicas.iter().filter(|it| it.primary == told.node);
    let led: Vec<String> = led.map(waits).collect();
    assert!(!led.is_empty());
    for wait in led {
        assert_eq!(wait, "a majority: it heard none and leads no more");
    }
}
