//! `cohort cluster status`: what it tells of a cluster that serves, and of one that does not.

use std::process::{Command, Output};

use integration::{Cluster, NODES, ROOT_PASSWORD, binary, until};

use crate::{PARTITIONS, in_step};

/// Runs the command through a node.
fn status(cluster: &Cluster, node: usize, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(cluster, node, ROOT_PASSWORD, arguments);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(complaints.is_empty(), "{complaints}");
    let text = String::from_utf8(output.stdout).expect("it is text");
    (output.status.code(), text)
}

fn command(cluster: &Cluster, node: usize, password: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("cohort"));
    command
        .env_clear()
        .env("COHORT_PASSWORD", password)
        .args(["-a", &cluster.address(node).to_string()])
        .args(["cluster", "status"])
        .args(arguments);
    command.output().expect("run the command")
}

/// The digests of a group as the table tells them.
fn digests(text: &str, group: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.contains("DIGEST"));
    let rows = lines.filter(|line| line.starts_with(group));
    let digest = |row: &str| row.split_whitespace().last().map(str::to_owned);
    rows.filter_map(digest).collect()
}

#[test]
fn status_tells_every_replica_as_long_as_a_majority_is_there_and_what_one_node_knows_after_that() {
    let mut cluster = Cluster::new();
    cluster.start();
    let _topic = cluster.create_topic(0, "orders", PARTITIONS);
    in_step(&cluster, &[0, 1, 2]);
    for node in 0..NODES {
        let (code, text) = status(&cluster, node, &["--digests"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains(&format!("asked through node {node}\n")),
            "{text}"
        );
        assert!(
            text.contains("3 of 3 answer: every consensus group has its primary"),
            "{text}"
        );
        for group in ["0 (metadata) ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 "] {
            let digests = digests(&text, group);
            assert_eq!(digests.len(), NODES, "group {group}:\n{text}");
            assert!(
                digests.iter().all(|it| it.len() == 32 && *it == digests[0]),
                "{text}"
            );
        }
    }
    drop(cluster.kill(0));
    let text = until("the others lead everything", || {
        let (code, text) = status(&cluster, 1, &[]);
        (code == Some(0)).then_some(text)
    });
    assert!(
        text.contains("2 of 3 answer: every consensus group has its primary"),
        "{text}"
    );
    assert!(text.contains("cannot reach"), "{text}");

    // Nobody can log in any more, and yet it is told what there is.
    drop(cluster.kill(1));
    let text = until("the last one notices", || {
        let (code, text) = status(&cluster, 2, &[]);
        assert_eq!(code, Some(1), "{text}");
        text.contains("a majority").then_some(text)
    });
    assert!(text.contains("1 of 3 answers: no majority"), "{text}");
    assert!(text.contains("asked through node 2\n"), "{text}");
    let (code, json) = status(&cluster, 2, &["-o", "json"]);
    assert_eq!(code, Some(1));
    for part in [
        "\"answering\": 1",
        "\"majority\": false",
        "\"well\": false",
        "\"node\": 2",
    ] {
        assert!(json.contains(part), "no {part} in {json}");
    }
    // It is told to users only, also then.
    let refused = command(&cluster, 2, "not the password", &[]);
    let complaints = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        complaints.contains("user name or password is wrong"),
        "{complaints}"
    );
    assert!(refused.stdout.is_empty());

    drop(cluster.kill(2));
    // The kernel may take connections for a moment longer.
    until("nobody is there", || {
        let nobody = command(&cluster, 2, ROOT_PASSWORD, &[]);
        assert_eq!(nobody.status.code(), Some(1));
        let complaints = String::from_utf8_lossy(&nobody.stderr);
        complaints.contains("cannot reach").then_some(())
    });
}
