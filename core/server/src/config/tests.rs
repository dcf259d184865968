//! What is refused, in which words, and who overrides whom.

use std::{fs, os::unix::ffi::OsStringExt, path::PathBuf, time::Duration};

use super::*;

fn load_text(text: &str) -> Result<Loaded, Vec<Problem>> {
    load_bytes(text.as_bytes(), &[], &[])
}

fn load_bytes(
    bytes: &[u8],
    command_line: &[(&str, &str)],
    environment: &[(&str, &str)],
) -> Result<Loaded, Vec<Problem>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cohort.toml");
    fs::write(&path, bytes).unwrap();
    load(&sources(Some(&path), &owned(command_line), environment))
}

fn sources<'a>(
    file: Option<&'a Path>,
    command_line: &'a [(String, String)],
    environment: &[(&str, &str)],
) -> Sources<'a> {
    let environment = environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    Sources {
        file,
        command_line,
        environment,
    }
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
        .collect()
}

/// Loading fails with one problem, at `line`, whose text has every one of `parts`.
#[track_caller]
fn refused(bytes: &[u8], line: usize, parts: &[&str]) {
    let problems = load_bytes(bytes, &[], &[]).expect_err("a broken configuration");
    assert_eq!(problems.len(), 1, "{problems:?}");
    let Origin::File { name, line: found } = &problems[0].origin else {
        panic!("{:?}", problems[0].origin);
    };
    let text = problems[0].to_string();
    assert!(name.ends_with("cohort.toml"), "{name}");
    assert_eq!(*found, line, "{text}");
    parts
        .iter()
        .for_each(|part| assert!(text.contains(part), "no {part:?} in {text:?}"));
}

#[test]
fn unknown_key_is_named_with_what_was_meant() {
    refused(
        b"[cluster.timeouts]\n\nhartbeat_interval = \"2 s\"\n",
        3,
        &[
            "unknown key cluster.timeouts.hartbeat_interval",
            "did you mean heartbeat_interval?",
        ],
    );
    refused(
        b"colour = 1\n",
        1,
        &["unknown key colour", "a configuration has: cluster, node"],
    );
    refused(
        b"[node]\ncolour = 1\n",
        2,
        &["[node] has: id, address, peer_address, data_directory"],
    );
}

#[test]
fn duration_without_quotes_is_told_to_have_them() {
    let text = b"[cluster.timeouts]\nsession_timeout = 20 s\n";
    refused(text, 2, &["session_timeout = 20 s", "\"20 s\""]);
    let text = b"[cluster.timeouts]\nsession_timeout = 20s\n";
    refused(text, 2, &["session_timeout = 20s", "\"20s\""]);
    let quoted = load_text("[cluster.timeouts]\nsession_timeout = \"20s\"\n").unwrap();
    assert_eq!(
        quoted.config.cluster.timeouts.session_timeout,
        Duration::from_secs(20)
    );
}

#[test]
fn number_without_a_unit_is_refused() {
    let parts = &[
        "cluster.segment_size = 67108864",
        "without a unit",
        "1 MiB to 4 GiB",
    ];
    refused(b"[cluster]\nsegment_size = 67108864\n", 2, parts);
    refused(
        b"[cluster]\nsegment_size = \"67108864\"\n",
        2,
        &["without a unit"],
    );
}

#[test]
fn negative_value_is_refused() {
    let parts = &[
        "cluster.data_groups = -1",
        "out of range",
        "allowed: 1 to 1024",
    ];
    refused(b"[cluster]\ndata_groups = -1\n", 2, parts);
    let text = b"[cluster.timeouts]\nsession_timeout = \"-1 s\"\n";
    refused(
        text,
        2,
        &["session_timeout = \"-1 s\"", "negative", "1 s to 1 h"],
    );
}

#[test]
fn zero_is_refused_where_it_means_nothing() {
    refused(
        b"[cluster]\ndata_groups = 0\n",
        2,
        &["cluster.data_groups = 0", "allowed: 1 to 1024"],
    );
    let text = b"[cluster.timeouts]\nsession_timeout = \"0 s\"\n";
    refused(
        text,
        2,
        &[
            "session_timeout = \"0 s\"",
            "out of range; allowed: 1 s to 1 h",
        ],
    );
}

#[test]
fn value_above_the_maximum_is_refused() {
    let text = b"[cluster.limits]\nbatch_size = \"8 MiB\"\n";
    refused(
        text,
        2,
        &["cluster.limits.batch_size = \"8 MiB\"", "64 KiB to 7 MiB"],
    );
    let text = b"[cluster]\ndata_groups = 99999999999999999999999999\n";
    refused(text, 2, &["cluster.data_groups", "allowed: 1 to 1024"]);
    let text = b"[cluster]\ndata_groups = 9999999999999999999999999999999999999999999999\n";
    refused(text, 2, &["cluster.data_groups", "out of range"]);
}

#[test]
fn duplicate_key_is_refused() {
    let text = b"[node]\naddress = \"127.0.0.1:1\"\naddress = \"127.0.0.1:2\"\n";
    refused(text, 3, &["address = \"127.0.0.1:2\"", "duplicate key"]);
}

#[test]
fn key_in_the_wrong_table_is_told_where_it_belongs() {
    let text = b"[node]\nsession_timeout = \"10 s\"\n";
    refused(
        text,
        2,
        &["node.session_timeout", "belongs in [cluster.timeouts]"],
    );
    refused(
        b"[nod]\naddress = \"127.0.0.1:1\"\n",
        1,
        &["unknown key nod", "did you mean node?"],
    );
    refused(
        b"[[node]]\naddress = \"127.0.0.1:1\"\n",
        1,
        &["node is a table"],
    );
}

#[test]
fn byte_order_mark_is_refused() {
    refused(b"\xef\xbb\xbf[node]\nshards = 1\n", 1, &["byte order mark"]);
}

#[test]
fn tab_is_refused() {
    refused(b"[node]\n\tshards = 1\n", 2, &["a tab in `shards = 1`"]);
    refused(
        b"[node]\naddress = \"127.0.0.1:1\\t\"\n",
        2,
        &["node.address", "control character"],
    );
}

#[test]
fn empty_file_is_refused() {
    refused(b"", 0, &["empty"]);
    refused(b"\n  \n", 0, &["empty"]);
}

#[test]
fn include_that_does_not_exist_is_no_key() {
    refused(b"include = \"more.toml\"\n", 1, &["unknown key include"]);
}

#[test]
fn directory_missing_file_and_unreadable_text_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let problem = |path: &Path| {
        let problems = load(&sources(Some(path), &[], &[])).expect_err("no such configuration");
        problems[0].to_string()
    };
    let text = problem(directory.path());
    assert!(
        text.contains("a directory where a file is expected"),
        "{text}"
    );
    assert!(
        text.contains(&directory.path().display().to_string()),
        "{text}"
    );
    let missing = problem(&directory.path().join("none.toml"));
    assert!(
        missing.contains("none.toml: there is no such file"),
        "{missing}"
    );
    refused(b"[node]\n# \xff\nshards = 1\n", 2, &["not UTF-8"]);
}

#[test]
fn boolean_as_text_is_refused() {
    let parts = &[
        "node.pin_cores = \"true\"",
        "text where true or false is expected",
        "quotes",
    ];
    refused(b"[node]\npin_cores = \"true\"\n", 2, parts);
    refused(
        b"[node]\nshards = true\n",
        2,
        &["true or false where \"auto\" or a whole number"],
    );
    refused(b"[node]\nshards = 1.5\n", 2, &["a fraction where"]);
    refused(
        b"[node]\naddress = [1]\n",
        2,
        &["a list where an IP address with a port"],
    );
    refused(
        b"[node.journal]\nsync = \"interval\"\n",
        2,
        &["node.journal.sync", "\"always\""],
    );
}

#[test]
fn all_mistakes_are_said_at_once() {
    let text = "[node]\nshards = 0\ncolour = 1\npin_cores = 3\n";
    let problems = load_text(text).expect_err("three mistakes");
    let mut lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.sort();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains("toml:2: node.shards = 0"), "{lines:?}");
    assert!(
        lines[1].contains("toml:3: unknown key node.colour"),
        "{lines:?}"
    );
    assert!(lines[2].contains("toml:4: node.pin_cores = 3"), "{lines:?}");
}

#[test]
fn each_limit_of_the_catalog_is_taken_from_its_own_key() {
    let keys = catalog::Limits::INITIAL.all().map(|(limit, _)| limit);
    // A topic cannot have more partitions than there are.
    let text: String = (2..)
        .zip(keys)
        .map(|(value, limit)| match limit {
            catalog::Limit::Partitions => "partitions = 100\n".to_owned(),
            limit => format!("{} = {value}\n", limit.name()),
        })
        .collect();
    let loaded = load_text(&format!("[cluster.limits]\n{text}")).unwrap();
    let values = loaded.config.cluster.limits.catalog.all();
    assert_eq!(
        values.map(|(_, value)| value),
        [2, 3, 4, 5, 6, 100, 8, 9, 10]
    );
}

#[test]
fn secret_is_never_shown() {
    let text = "[node]\nroot_password = 12345678\n";
    let problems = load_text(text).expect_err("a number");
    assert!(
        !problems[0].to_string().contains("12345678"),
        "{problems:?}"
    );
    let loaded = load_text("[node]\nroot_password = \"hunter22\"\n").unwrap();
    assert_eq!(
        loaded.config.node.root_password,
        Some(Password("hunter22".into()))
    );
    let shown = format!("{} {loaded:?}", print_effective(&loaded.entries));
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("root_password = \"(masked)\""), "{shown}");
}

#[test]
fn password_of_root_is_held_to_the_limits_of_every_password() {
    let load_password = |password: &str| {
        load_bytes(
            b"[node]\n",
            &[],
            &[("COHORT__NODE__ROOT_PASSWORD", password)],
        )
        .map(|_| ())
    };
    for length in [0, 3, 7, 256] {
        let password = "x".repeat(length);
        let text = load_password(&password).expect_err("too short or too long")[0].to_string();
        for part in [
            "COHORT__NODE__ROOT_PASSWORD",
            &format!("(masked): {length} bytes"),
            "allowed: 8 to 255 bytes",
        ] {
            assert!(text.contains(part), "no {part:?} in {text:?}");
        }
        assert!(length == 0 || !text.contains(&password), "{text}");
    }
    for length in [8, 255] {
        assert_eq!(load_password(&"x".repeat(length)), Ok(()));
    }
}

#[test]
fn contradictions_name_both_sides_with_their_origins() {
    let cases = [
        (
            "[cluster.timeouts]\nheartbeat_interval = \"6 s\"\n",
            2,
            "session_timeout = \"10 s\" (default) must be at least 2 times cluster.timeouts.heartbeat_interval = \"6 s\"",
        ),
        (
            "[cluster.timeouts]\ndisconnect_grace = \"11 s\"\n",
            2,
            "disconnect_grace = \"11 s\"",
        ),
        (
            "[cluster.limits]\npartitions = 1000\n",
            2,
            "cluster.limits.partitions_per_topic = 1024 (default)",
        ),
        (
            "[node.connections]\nbytes_in_flight = \"1 MiB\"\n",
            2,
            "the largest batch could never be sent",
        ),
        (
            "[node.connections]\nbytes_in_flight_per_shard = \"8 MiB\"\n",
            2,
            "bytes_in_flight = \"16 MiB\"",
        ),
        (
            "[node.connections]\nqueue_hard_max = \"15 MiB\"\n",
            2,
            "queue_soft_max = \"16 MiB\"",
        ),
        (
            "[node.connections]\nqueue_soft_max = \"1 MiB\"\nqueue_hard_max = \"13 MiB\"\n",
            3,
            "at least 2 times cluster.limits.poll_bytes",
        ),
        (
            "[cluster.timeouts]\npoll_wait_max = \"60 s\"\n",
            2,
            "must be more than cluster.timeouts.poll_wait_max",
        ),
        (
            "[node.journal]\nsize_max = \"128 MiB\"\n",
            2,
            "at least 4 times node.journal.file_size",
        ),
    ];
    for (text, line, part) in cases {
        refused(text.as_bytes(), line, &[part]);
    }
    let text = "[cluster.timeouts]\npoll_wait_max = \"0 s\"\nheartbeat_interval = \"10 s\"\nsession_timeout = \"30 s\"\n\n[node.connections]\nidle_timeout = \"10 s\"\n";
    refused(text.as_bytes(), 7, &["a client that is well"]);
}

#[test]
fn environment_beats_command_line_beats_file_beats_default() {
    let text = b"[node]\nshards = 2\npin_cores = false\nforce_polling = true\n";
    let command_line = [
        ("node.shards", "3"),
        ("node.pin_cores", "true"),
        ("node.shards", "4"),
    ];
    let environment = [("COHORT__NODE__SHARDS", "5"), ("PATH", "/bin")];
    let loaded = load_bytes(text, &command_line, &environment).unwrap();
    let node = &loaded.config.node;
    assert_eq!(
        (node.shards, node.pin_cores, node.force_polling),
        (Some(5), true, true)
    );
    assert!(loaded.warnings.is_empty());
    let shown = print_effective(&loaded.entries);
    let origin = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_once("  # ").unwrap().1.to_owned()
    };
    assert_eq!(origin("shards = 5"), "environment COHORT__NODE__SHARDS");
    assert_eq!(origin("pin_cores = true"), "command line");
    assert!(origin("force_polling = true").ends_with("cohort.toml:4"));
    assert_eq!(origin("data_groups = 24"), "default");
}

#[test]
fn unknown_variable_of_ours_is_a_warning() {
    let environment = [
        ("COHORT__NODE__SHARD", "5"),
        ("COHORT_HOME", "/"),
        ("COHORT__X", "1"),
    ];
    let loaded = load_bytes(b"[node]\nshards = 2\n", &[], &environment).unwrap();
    assert_eq!(loaded.config.node.shards, Some(2));
    let warnings: Vec<String> = loaded.warnings.iter().map(Problem::to_string).collect();
    let expected =
        "environment COHORT__NODE__SHARD: sets nothing; did you mean COHORT__NODE__SHARDS?";
    assert_eq!(warnings, [expected, "environment COHORT__X: sets nothing"]);
}

#[test]
fn bad_values_of_environment_and_command_line_name_their_source() {
    let command_line = owned(&[("node.shards", "many"), ("node.shard", "1")]);
    let mut sources = sources(None, &command_line, &[("COHORT__NODE__PIN_CORES", "yes")]);
    let name = "COHORT__NODE__ADDRESS".into();
    sources
        .environment
        .push((name, OsString::from_vec(vec![0xff])));
    let problems = load(&sources).expect_err("four mistakes");
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert!(
        lines[0].starts_with("command line: node.shards = many: "),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("unknown setting node.shard; did you mean node.shards?"),
        "{lines:?}"
    );
    assert!(lines[2].contains("environment COHORT__NODE__PIN_CORES: node.pin_cores = yes"));
    assert_eq!(
        lines[3],
        "environment COHORT__NODE__ADDRESS: not UTF-8 text"
    );
}

#[test]
fn built_in_file_says_nothing_but_defaults() {
    let loaded = load(&Sources::default()).unwrap();
    for entry in &loaded.entries {
        assert_eq!(
            entry.value,
            entry.setting.default_value(),
            "{}",
            entry.setting.path
        );
    }
    let origin = Origin::File {
        name: BUILT_IN_NAME.into(),
        line: 5,
    };
    assert!(loaded.entries.iter().any(|entry| entry.origin == origin));
}

#[test]
fn what_is_printed_can_be_loaded_again() {
    let first = load_text("[node]\nshards = 3\n\n[node.logs]\nformat = \"json\"\n").unwrap();
    let second = load_text(&print_effective(&first.entries)).unwrap();
    for (first, second) in first.entries.iter().zip(&second.entries) {
        assert_eq!(first.value, second.value, "{}", first.setting.path);
    }
}

/// A cluster of three, in the lines that every case of it begins with.
const CLUSTER: &str = r#"[cluster]
id = "test"
secret = "sixteen letters!"
nodes = [
  { id = 0, client = "a:1", peer = "a:2" },
  { id = 1, client = "b:1", peer = "b:2" },
  { id = 2, client = "c:1", peer = "c:2" },
]
[node]
"#;

#[test]
fn cluster_listens_where_its_list_says_unless_told_otherwise() {
    let config = load_text(&format!("{CLUSTER}id = 2\n")).unwrap().config;
    assert_eq!(config.replica_count(), 3);
    assert_eq!(config.node.address, "c:1");
    assert_eq!(config.node.peer_address.as_deref(), Some("c:2"));
    let text =
        format!("{CLUSTER}address = \"127.0.0.1:5100\"\npeer_address = \"0.0.0.0:7\"\nid = 1\n");
    let config = load_text(&text).unwrap().config;
    assert_eq!(config.node.address, "127.0.0.1:5100");
    assert_eq!(config.node.peer_address.as_deref(), Some("0.0.0.0:7"));
}

#[test]
fn list_of_nodes_is_the_same_as_tables_in_one_line_and_in_the_environment() {
    let tables = "[[cluster.nodes]]\nid = 1\nclient = \"b:1\"\npeer = \"b:2\"\n\
                  [[cluster.nodes]]\nid = 0\nclient = \"a:1\"\npeer = \"a:2\"\n\
                  [[cluster.nodes]]\nid = 2\nclient = \"c:1\"\npeer = \"c:2\"\n\
                  [cluster]\nid = \"test\"\nsecret = \"sixteen letters!\"\n";
    let inline = load_text(CLUSTER).unwrap().config.cluster.nodes;
    assert_eq!(load_text(tables).unwrap().config.cluster.nodes, inline);
    let variables = [
        ("COHORT__CLUSTER__NODES", "0 a:1 a:2, 1 b:1 b:2, 2 c:1 c:2"),
        ("COHORT__CLUSTER__ID", "test"),
        ("COHORT__CLUSTER__SECRET", "sixteen letters!"),
    ];
    let loaded = load_bytes(b"[node]\n", &[], &variables).unwrap();
    assert_eq!(loaded.config.cluster.nodes, inline);
    let built_in = load(&sources(None, &[], &variables)).unwrap().config;
    assert_eq!((&*built_in.node.address, built_in.node.id), ("a:1", 0));
    let shown = print_effective(&loaded.entries);
    assert!(!shown.contains("sixteen"), "{shown}");
    let again = load_bytes(shown.as_bytes(), &[], &variables[2..]).unwrap();
    assert_eq!(again.config.cluster.nodes, inline);
}

/// Each change of [`CLUSTER`] is refused at its line with these words.
fn changes_refused(cases: &[(&str, &str, usize, &[&str])]) {
    for (from, to, line, parts) in cases {
        assert!(CLUSTER.contains(from), "{from}");
        refused(CLUSTER.replace(from, to).as_bytes(), *line, parts);
    }
}

#[test]
fn mistakes_in_the_entry_of_a_node_are_named_with_their_line() {
    changes_refused(&[
        ("id = 1,", "", 6, &["a node without id"]),
        (
            "peer = \"c:2\"",
            "peer = \"c:2\", pear = \"c:2\"",
            7,
            &["unknown key pear", "did you mean peer?"],
        ),
        ("\"b:2\"", "\"b\"", 6, &["peer = \"b\"", "host:port"]),
        ("\"b:2\"", "5", 6, &["peer is not text"]),
        (
            "id = 1,",
            "id = \"1\",",
            6,
            &["id is not a whole number", "0 to 4"],
        ),
        (
            "id = 1,",
            "id = 5,",
            6,
            &["id = 5: out of range; allowed: 0 to 4"],
        ),
    ]);
    refused(
        b"[cluster]\nnodes = 3\n",
        2,
        &["cluster.nodes: not a list", "[[cluster.nodes]]"],
    );
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let last = "  { id = 2, client = \"c:1\", peer = \"c:2\" },\n";
    changes_refused(&[
        (
            "id = 1,",
            "id = 3,",
            4,
            &["id = 3 of 3 nodes; allowed: 0 to 2"],
        ),
        ("id = 1,", "id = 0,", 4, &["id = 0 is there twice"]),
        ("b:2", "c:2", 4, &["c:2 is there twice"]),
        ("b:2", "B:1", 4, &["b:1 is there twice"]),
        (last, "", 4, &["2 nodes; allowed: 1, 3 or 5"]),
        (
            "secret = \"sixteen letters!\"\n",
            "",
            3,
            &["cluster.secret is not set", "16 to 255 bytes"],
        ),
        (
            "sixteen letters!",
            "fifteen letters",
            3,
            &["(masked): 15 bytes; allowed: 16 to 255"],
        ),
        (
            "id = \"test\"\n",
            "",
            3,
            &["cluster.id is not set", "1 to 64 bytes"],
        ),
        (
            "[node]\n",
            "[node]\nid = 3\n",
            10,
            &["node.id = 3 is not in cluster.nodes", "allowed: 0 to 2"],
        ),
    ]);
    refused(
        b"[node]\nid = 1\n",
        2,
        &["node.id = 1, but cluster.nodes is not set"],
    );
}

#[test]
fn configurations_of_the_example_cluster_are_right_once_there_is_a_secret() {
    for id in 0..3 {
        let name = format!("../../configs/cluster/node-{}.toml", id + 1);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let secret = [("COHORT__CLUSTER__SECRET", "only for this machine")];
        let config = load(&sources(Some(&path), &[], &secret)).unwrap().config;
        assert_eq!((config.node.id, config.replica_count()), (id, 3));
        let problems = load(&sources(Some(&path), &[], &[])).unwrap_err();
        assert!(
            problems[0].text.contains("cluster.secret is not set"),
            "{problems:?}"
        );
    }
}

fn production_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/production.toml")
}

#[test]
fn production_file_is_what_the_table_says() {
    let text = fs::read_to_string(production_path()).unwrap();
    assert!(
        text == production_file(),
        "configs/production.toml is out of date: cargo test -p server -- --ignored write_production_file"
    );
    let loaded = load_text(&text).unwrap();
    for entry in &loaded.entries {
        assert_eq!(
            entry.value,
            entry.setting.default_value(),
            "{}",
            entry.setting.path
        );
        assert_eq!(
            entry.origin == Origin::Default,
            entry.setting.default.is_empty()
        );
    }
}

#[test]
#[ignore = "writes configs/production.toml"]
fn write_production_file() {
    fs::write(production_path(), production_file()).unwrap();
}
