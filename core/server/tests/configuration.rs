//! The binary before it serves: what it refuses, how fast, and what it leaves behind.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use tempfile::TempDir;

const CONFIGURATION: i32 = 3;
const USAGE: i32 = 2;

/// A working directory, with `cohort.toml` in it if there is a text.
struct Place(TempDir);

impl Place {
    fn with(text: Option<&[u8]>) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        if let Some(text) = text {
            fs::write(directory.path().join("cohort.toml"), text).expect("write the file");
        }
        Self(directory)
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_cohort-server"))
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .current_dir(self.0.path())
            .output()
            .expect("run the binary")
    }

    fn names(&self) -> BTreeSet<OsString> {
        let entries = fs::read_dir(self.0.path()).expect("list the directory");
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .collect()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn broken_configurations_are_refused_at_once_and_nothing_is_created() {
    let cases: [(&[u8], &[&str]); 14] = [
        (
            b"[cluster.timeouts]\nhartbeat_interval = \"3 s\"\n",
            &["hartbeat_interval", "did you mean"],
        ),
        (
            b"[cluster.timeouts]\nsession_timeout = 20s\n",
            &["session_timeout", "quotes"],
        ),
        (
            b"[cluster]\ndata_groups = -3\n",
            &["cluster.data_groups", "out of range"],
        ),
        (
            b"[cluster.timeouts]\nsession_timeout = \"0 s\"\n",
            &["session_timeout", "out of range"],
        ),
        (
            b"[cluster.limits]\nbatch_size = \"1 GiB\"\n",
            &["batch_size", "64 KiB to 7 MiB"],
        ),
        (
            b"[node]\nshards = 1\nshards = 2\n",
            &["shards", "duplicate key"],
        ),
        (
            b"[node]\nsession_timeout = \"10 s\"\n",
            &["session_timeout", "[cluster.timeouts]"],
        ),
        (
            b"\xef\xbb\xbf[node]\nshards = 1\n",
            &["cohort.toml:1", "byte order mark"],
        ),
        (b"[node]\n\tshards = 1\n", &["shards", "a tab"]),
        (b"", &["cohort.toml", "empty"]),
        (b"include = \"common.toml\"\n", &["include", "unknown key"]),
        (
            b"[node]\naddress = \"\xff\"\n",
            &["cohort.toml:2", "not UTF-8"],
        ),
        (
            b"[node]\npin_cores = \"true\"\n",
            &["pin_cores", "true or false is expected"],
        ),
        (
            b"[node]\nshards = 1\n[node.connections\n",
            &["cohort.toml:3", "[node.connections"],
        ),
    ];
    for (text, parts) in cases {
        let place = Place::with(Some(text));
        let start = Instant::now();
        let output = place.run(&["--config", "cohort.toml"], &[]);
        assert!(start.elapsed() < Duration::from_secs(2));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(CONFIGURATION), "{said}");
        parts
            .iter()
            .for_each(|part| assert!(said.contains(part), "no {part:?} in {said}"));
        assert!(output.stdout.is_empty());
        assert_eq!(place.names(), ["cohort.toml".into()].into());
    }
}

#[test]
fn directory_and_missing_file_are_refused() {
    let place = Place::with(None);
    for (name, part) in [
        (".", "a directory where a file is expected"),
        ("none.toml", "no such file"),
    ] {
        let output = place.run(&["--config", name], &[]);
        assert_eq!(output.status.code(), Some(CONFIGURATION));
        let said = stderr(&output);
        assert!(
            said.contains(&format!("cohort-server: {name}: ")) && said.contains(part),
            "{said}"
        );
    }
    assert!(place.names().is_empty());
}

#[test]
fn check_says_that_a_configuration_is_right_and_creates_nothing() {
    let place = Place::with(Some(b"[node]\nshards = 2\n"));
    let variable = ("COHORT__NODE__SHARD", "3");
    let output = place.run(&["--config", "cohort.toml", "--check"], &[variable]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "the configuration is right\n");
    let said = stderr(&output);
    assert!(
        said.contains("warning: environment COHORT__NODE__SHARD: sets nothing"),
        "{said}"
    );
    assert_eq!(place.names().len(), 1);
}

#[test]
fn printed_configuration_shows_origins_and_masks_the_secret() {
    let place = Place::with(Some(b"[node]\nshards = 2\npin_cores = false\n"));
    let arguments = [
        "-c",
        "cohort.toml",
        "--set",
        "node.pin_cores=true",
        "--print-config",
    ];
    let variables = [
        ("COHORT__NODE__SHARDS", "3"),
        ("COHORT__NODE__ROOT_PASSWORD", "hunter22"),
    ];
    let output = place.run(&arguments, &variables);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let line = |start: &str| {
        text.lines()
            .find(|line| line.starts_with(start))
            .expect(start)
    };
    assert!(line("shards = 3").ends_with("# environment COHORT__NODE__SHARDS"));
    assert!(line("pin_cores = true").ends_with("# command line"));
    assert!(line("data_directory = \"data\"").ends_with("# default"));
    assert!(line("# root_password = \"(masked)\"").ends_with("COHORT__NODE__ROOT_PASSWORD"));
    assert!(!text.contains("hunter22"));

    fs::write(place.0.path().join("printed.toml"), &text).expect("write what was printed");
    let output = place.run(&["-c", "printed.toml", "--check"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn wrong_command_line_has_a_code_of_its_own() {
    let place = Place::with(None);
    let output = place.run(&["--port", "5100"], &[]);
    assert_eq!(output.status.code(), Some(USAGE));
    let said = stderr(&output);
    assert!(said.contains("--port") && said.contains("--help"), "{said}");
}

#[test]
fn help_version_and_example_are_printed() {
    let place = Place::with(None);
    let help = place.run(&["--help"], &[]);
    assert!(help.status.success() && stdout(&help).contains("Examples:"));
    let version = place.run(&["-V"], &[]);
    assert_eq!(
        stdout(&version),
        concat!("cohort-server ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let example = place.run(&["--print-example"], &[]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/production.toml");
    assert_eq!(
        stdout(&example),
        fs::read_to_string(file).expect("the example")
    );
}

#[test]
fn node_of_a_cluster_starts_only_formatted_and_with_a_password_for_root() {
    let config = b"[cluster]\nid = \"test\"\nnodes = [\n\
          { id = 0, client = \"127.0.0.1:1\", peer = \"127.0.0.1:2\" },\n\
          { id = 1, client = \"127.0.0.1:3\", peer = \"127.0.0.1:4\" },\n\
          { id = 2, client = \"127.0.0.1:5\", peer = \"127.0.0.1:6\" },\n]\n\
          [node]\naddress = \"127.0.0.1:0\"\npeer_address = \"127.0.0.1:0\"\n";
    let place = Place::with(Some(config));
    let secret = [("COHORT__CLUSTER__SECRET", "sixteen letters!")];
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = place.run(&[arguments, &["-c", "cohort.toml"]].concat(), variables);
        (output.status.code(), stderr(&output))
    };
    let (code, said) = run(&["format"], &[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("cohort.toml:3: cluster.secret is not set"),
        "{said}"
    );
    assert_eq!(place.names().len(), 1, "nothing is created");

    let (code, said) = run(&["run"], &secret);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("`cohort-server format`"), "{said}");
    assert_eq!(place.names().len(), 1, "nothing is created");

    let (code, said) = run(&["format"], &secret);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("sixteen"), "{said}");
    let (code, said) = run(&["run"], &secret);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("node.root_password is not set"), "{said}");
    let (code, said) = run(&["recover", "--cut"], &secret);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--cut is for a single node"), "{said}");
}
