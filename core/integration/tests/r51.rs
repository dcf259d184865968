//! R51: no mistake in the configuration is swallowed, and ids and names never mix.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    process::Command,
    time::Duration,
};

use cohort::{Client, Id};
use integration::{Connection, Ended, PATIENCE, Process, ROOT_PASSWORD, Site, binary};
use tempfile::TempDir;
use wire::{CreateTopic, ErrorCode, Identifier, Reply};

const CONFIGURATION: i32 = 3;

/// "Each exits in < 2 s"; longer here, since the machine may be busy.
const SOON: Duration = Duration::from_secs(10);

/// A working directory with a configuration file.
struct Place(TempDir);

impl Place {
    fn with(text: &[u8]) -> Self {
        let directory = TempDir::with_prefix("cohort-").expect("make a temporary directory");
        fs::write(directory.path().join("cohort.toml"), text).expect("write the file");
        Self(directory)
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
        let mut command = Command::new(binary("cohort-server"));
        command
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .current_dir(self.0.path());
        Process::start(command).wait()
    }

    /// Requires a refusal with these words, and that nothing is left behind.
    fn refused(&self, name: &str, parts: &[&str]) {
        let before = self.names();
        let ended = self.run(&["--config", name], &[]);
        assert_eq!(ended.code, Some(CONFIGURATION), "{name}: {}", ended.stderr);
        assert!(ended.took < SOON, "{:?}", ended.took);
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "no {part:?} in: {}",
                ended.stderr
            );
        }
        assert_eq!(self.names(), before, "nothing is created");
    }

    fn names(&self) -> BTreeSet<OsString> {
        let entries = fs::read_dir(self.0.path()).expect("list the directory");
        entries
            .map(|entry| entry.expect("list the directory").file_name())
            .collect()
    }
}

/// Step 1. Fifteen broken configurations: each is refused with file, line, key, and what would be right, and
/// nothing is created on the disk.
#[test]
fn r51_1_broken_configurations_are_refused_and_nothing_is_created() {
    let cases: &[(&[u8], &[&str])] = &[
        (
            b"[cluster.timeouts]\n\nhartbeat_timeout = \"3 s\"\n",
            &["cohort.toml:3", "hartbeat_timeout", "unknown key"],
        ),
        (
            b"[cluster.timeouts]\nsession_timeout = 20s\n",
            &["cohort.toml:2", "session_timeout", "quotes"],
        ),
        (
            b"[cluster]\ndata_groups = -3\n",
            &["cohort.toml:2", "data_groups", "-3", "1 to 1024"],
        ),
        (
            b"[cluster.timeouts]\nsession_timeout = \"0 s\"\n",
            &["cohort.toml:2", "session_timeout", "0 s", "1 s to 1 h"],
        ),
        (
            b"[cluster.limits]\nbatch_size = \"1 GiB\"\n",
            &["cohort.toml:2", "batch_size", "1 GiB", "64 KiB to 7 MiB"],
        ),
        (
            b"[node]\nshards = 1\nshards = 2\n",
            &["cohort.toml:3", "shards", "duplicate key"],
        ),
        (
            b"[node]\nsession_timeout = \"10 s\"\n",
            &["cohort.toml:2", "session_timeout", "[cluster.timeouts]"],
        ),
        (
            b"\xef\xbb\xbf[node]\nshards = 1\n",
            &["cohort.toml:1", "byte order mark"],
        ),
        (
            b"[node]\n\tshards = 1\n",
            &["cohort.toml:2", "shards", "a tab"],
        ),
        (b"", &["cohort.toml", "empty"]),
        (
            b"include = \"more.toml\"\n",
            &["cohort.toml:1", "include", "unknown key"],
        ),
        (
            b"[node]\naddress = \"\xff\"\n",
            &["cohort.toml:2", "not UTF-8"],
        ),
        (
            b"[node]\npin_cores = \"true\"\n",
            &["cohort.toml:2", "pin_cores", "true or false"],
        ),
    ];
    for (text, parts) in cases {
        Place::with(text).refused("cohort.toml", parts);
    }
    let place = Place::with(b"[node]\nshards = 1\n");
    place.refused(".", &["a directory where a file is expected"]);
    let missing = OsString::from_vec(b"none.toml".to_vec());
    place.refused(
        missing.to_str().expect("it is"),
        &["none.toml", "no such file"],
    );
}

/// Step 1, the unreadable one: for others than root, whom permissions do not hold back.
#[test]
fn r51_1_unreadable_file_is_refused() {
    let place = Place::with(b"[node]\nshards = 1\n");
    let file = place.0.path().join("cohort.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("lock the file");
    if fs::read(&file).is_ok() {
        eprintln!("SKIPPED: this user may read everything");
        return;
    }
    place.refused("cohort.toml", &["cohort.toml", "ermission"]);
}

/// Step 2. Settings that contradict one another: one sentence for each rule, with both settings.
#[test]
fn r51_2_contradictions_are_refused_with_both_settings() {
    for (first, second) in [
        (
            "cluster.timeouts.session_timeout = \"5 s\"",
            "cluster.timeouts.heartbeat_interval = \"3 s\"",
        ),
        (
            "cluster.timeouts.session_timeout = \"10 s\"",
            "cluster.timeouts.disconnect_grace = \"11 s\"",
        ),
        (
            "cluster.limits.partitions = 10",
            "cluster.limits.partitions_per_topic = 11",
        ),
        (
            "node.connections.bytes_in_flight = \"1 MiB\"",
            "cluster.limits.batch_size = \"2 MiB\"",
        ),
        (
            "node.connections.bytes_in_flight_per_shard = \"8 MiB\"",
            "node.connections.bytes_in_flight = \"9 MiB\"",
        ),
        (
            "node.connections.queue_hard_max = \"15 MiB\"",
            "node.connections.queue_soft_max = \"16 MiB\"",
        ),
        (
            "node.connections.queue_hard_max = \"13 MiB\"",
            "cluster.limits.poll_bytes = \"7 MiB\"",
        ),
        (
            "node.connections.idle_timeout = \"30 s\"",
            "cluster.timeouts.poll_wait_max = \"30 s\"",
        ),
        (
            "node.journal.size_max = \"64 MiB\"",
            "node.journal.file_size = \"17 MiB\"",
        ),
    ] {
        let place = Place::with(format!("{first}\n{second}\n").as_bytes());
        let key = |line: &'static str| line.split_once(" =").expect("a setting").0;
        place.refused(
            "cohort.toml",
            &[key(first), key(second), "must be", "cohort.toml:1"],
        );
    }
    // Several mistakes are told at once.
    let place = Place::with(b"node.shards = 0\nnode.hue = 1\n");
    place.refused(
        "cohort.toml",
        &["cohort.toml:1", "shards", "cohort.toml:2", "hue"],
    );
}

/// Step 3. Environment before command line before file before default, as the help says and as the effective
/// configuration shows with the origin of each value.
#[test]
fn r51_3_order_of_origins_is_documented_and_shown() {
    let place =
        Place::with(b"node.shards = 2\nnode.tail_memory = \"20 MiB\"\nnode.pin_cores = false\n");
    let arguments = [
        "--config",
        "cohort.toml",
        "--set",
        "node.shards=3",
        "--set",
        "node.tail_memory=30 MiB",
        "--print-config",
    ];
    let ended = place.run(&arguments, &[("COHORT__NODE__SHARDS", "4")]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let line = |start: &str| {
        let mut lines = ended.stdout.lines();
        lines
            .find(|line| line.starts_with(start))
            .expect(start)
            .to_owned()
    };
    assert!(line("shards = 4").ends_with("# environment COHORT__NODE__SHARDS"));
    assert!(line("tail_memory = \"30 MiB\"").ends_with("# command line"));
    assert!(line("pin_cores = false").contains("cohort.toml"));
    assert!(line("force_polling = false").ends_with("# default"));
    let help = place.run(&["--help"], &[]);
    let order = help
        .stdout
        .find("the environment")
        .zip(help.stdout.find("the default"));
    assert!(
        order.is_some_and(|(first, last)| first < last),
        "{}",
        help.stdout
    );
}

/// Step 4. A variable with our prefix that sets nothing is warned about, also by a server that runs.
#[test]
fn r51_4_unknown_variable_is_warned_about() {
    let place = Place::with(b"node.shards = 1\n");
    let variable = [("COHORT__NODE__SHARD", "3"), ("COHORT_NODE_SHARDS", "3")];
    let ended = place.run(&["--config", "cohort.toml", "--check"], &variable);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let warned = ended
        .stderr
        .lines()
        .find(|line| line.contains("COHORT__NODE__SHARD:"));
    assert!(
        warned.is_some_and(|line| line.contains("warning")),
        "{}",
        ended.stderr
    );
}

/// Step 5. A topic with id 7 is there, and none can be named `7`: whoever says `7` gets the id, or a refusal
/// that says how to write it; never another topic.
#[test]
fn r51_5_name_of_digits_and_id_are_never_mixed_up() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let first = connection.create_topic("orders", 1);
    for number in 2..=7 {
        let topic = CreateTopic {
            stream: first.stream.into(),
            name: format!("topic-{number}"),
            partitions: 1,
        };
        match connection.ask(topic) {
            Ok(Reply::Topic(topic)) => assert_eq!(topic.id.0, number),
            other => panic!("{other:?}"),
        }
    }
    let digits = CreateTopic {
        stream: first.stream.into(),
        name: "7".to_owned(),
        partitions: 1,
    };
    let refused = connection.ask(digits).expect_err("no name");
    assert_eq!(refused.code, ErrorCode::InvalidName, "{refused}");
    let find = |connection: &mut Connection, topic: Identifier| {
        let stream = first.stream.into();
        connection.ask(wire::GetTopic { stream, topic })
    };
    match find(&mut connection, Identifier::Number(7)) {
        Ok(Reply::Topic(topic)) => assert_eq!(topic.name, "topic-7"),
        other => panic!("{other:?}"),
    }
    let refused = find(&mut connection, Identifier::Name("7".to_owned())).expect_err("no topic");
    assert_eq!(refused.code, ErrorCode::TopicNotFound, "{refused}");

    sdk_keeps_ids_and_names_apart(&server.url());
    command_line_keeps_ids_and_names_apart(&server.address().to_string());
    drop(connection);
    server.stop();
}

fn sdk_keeps_ids_and_names_apart(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("make a runtime");
    let work = async {
        let client = Client::connect(url).await.expect("connect");
        let refused = client.topic("orders", "7").await.expect_err("no name");
        assert!(refused.to_string().contains("#7"), "{refused}");
        let created = client.create_topic("orders", "7", 1).await;
        assert!(created.is_err(), "no name");
        let topic = client.topic("orders", 7_u64).await.expect("by id");
        assert_eq!(topic.name, "topic-7");
        let id = Id::parse("#7").expect("an id");
        assert_eq!(client.topic("orders", id).await, Ok(topic));
        client.close().await;
    };
    let bounded = async { tokio::time::timeout(PATIENCE, work).await };
    runtime.block_on(bounded).expect("it ends");
}

fn command_line_keeps_ids_and_names_apart(address: &str) {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary("cohort"));
        command
            .args(["--address", address])
            .args(arguments)
            .env_clear()
            .env("COHORT_PASSWORD", ROOT_PASSWORD);
        Process::start(command).wait()
    };
    for arguments in [
        &["topic", "get", "orders", "7"][..],
        &["topic", "create", "orders", "7"],
        &["topic", "delete", "orders", "7", "--yes"],
        &["consume", "orders", "7"],
    ] {
        let ended = run(arguments);
        assert_ne!(ended.code, Some(0), "{arguments:?}: {}", ended.stdout);
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
    }
    let refused = run(&["topic", "get", "orders", "7"]);
    assert!(refused.stderr.contains("#7"), "{}", refused.stderr);
    for id in ["#7", "id:7"] {
        let ended = run(&["topic", "get", "orders", id, "-o", "json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        // Id and name.
        let compact: String = ended.stdout.split_whitespace().collect();
        assert!(compact.contains("\"id\":7"), "{}", ended.stdout);
        assert!(compact.contains("\"name\":\"topic-7\""), "{}", ended.stdout);
    }
    let list = run(&["topic", "list", "orders", "-o", "json"]);
    let compact: String = list.stdout.split_whitespace().collect();
    assert!(
        compact.contains("\"id\":7") && compact.contains("\"name\":\"topic-7\""),
        "{compact}"
    );
}
