//! Where a server runs: a directory with its configuration and its data.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use wire::{PartitionId, TopicDetails};

use crate::{Ended, Server, binary, server::Process};

/// The password of `root`.
pub const ROOT_PASSWORD: &str = "correct-horse";

/// What every server is told unless a test says otherwise: small, so that much happens with little data.
const SETTINGS: &[(&str, &str)] = &[
    ("cluster.data_groups", "2"),
    ("cluster.segment_size", "\"1 MiB\""),
    ("node.address", "\"127.0.0.1:0\""),
    ("node.shards", "2"),
    ("node.pin_cores", "false"),
    ("node.tail_memory", "\"16 MiB\""),
    ("node.journal.file_size", "\"16 MiB\""),
    ("node.journal.size_max", "\"64 MiB\""),
    ("node.connections.per_shard", "2000"),
    // Tests seldom close their own end.
    ("node.connections.linger_timeout", "\"100 ms\""),
];

/// A directory with a configuration and the data of one node. It goes away with the value.
#[derive(Debug)]
pub struct Site {
    directory: TempDir,
    data: PathBuf,
    settings: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    user: Option<u32>,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// A site without data.
    ///
    /// # Panics
    /// When there is no place for temporary files.
    #[must_use]
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("cohort-").expect("make a temporary directory");
        let settings = SETTINGS
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let data = directory.path().join("data");
        Self {
            settings: settings.collect(),
            variables: Vec::new(),
            data,
            directory,
            user: None,
        }
    }

    /// Sets one thing, as it would stand in the file.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.set(key, value);
        self
    }

    /// Sets one thing, as it would stand in the file.
    pub fn set(&mut self, key: &str, value: &str) {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    /// Sets a variable of the environment, which has none otherwise.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts the data somewhere else.
    #[must_use]
    pub fn with_data(mut self, data: &Path) -> Self {
        data.clone_into(&mut self.data);
        self
    }

    /// Runs the server as this user, which only root may ask for.
    #[must_use]
    pub const fn as_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// A site with the same settings and a copy of the data. No server may run on this one.
    ///
    /// # Panics
    /// When the data cannot be copied.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut copy = Self::new();
        copy.settings.clone_from(&self.settings);
        copy.variables.clone_from(&self.variables);
        copy_directory(&self.data, &copy.data);
        copy
    }

    /// The directory, for further files.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The directory with the segments of a partition.
    ///
    /// # Panics
    /// When the topic has no such partition.
    #[must_use]
    pub fn partition(&self, topic: &TopicDetails, partition: PartitionId) -> PathBuf {
        let found = topic.partitions.iter().find(|found| found.id == partition);
        let found = found.expect("the topic has the partition");
        let (stream, topic, incarnation) = (topic.stream, topic.id, found.incarnation);
        self.data.join(format!(
            "group-{}/{stream}-{topic}-{partition}-{incarnation}",
            found.group
        ))
    }

    /// Starts a server and waits until it serves.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(&self) -> Server {
        self.try_start().unwrap_or_else(|ended| {
            panic!(
                "the server does not start ({:?}):\n{}",
                ended.code, ended.stderr
            )
        })
    }

    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// How it ended instead.
    pub fn try_start(&self) -> Result<Server, Ended> {
        Server::start(self.command(&[]))
    }

    /// Starts a server whose events go to a file, and waits until it serves.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_saying_to(&self, events: fs::File) -> Server {
        Server::start_saying_to(self.command(&[]), events).expect("the server starts")
    }

    /// Starts a server and waits for nothing.
    #[must_use]
    pub fn launch(&self) -> Process {
        Process::start(self.command(&[]))
    }

    /// Runs `cohort-server` with these arguments and this site's configuration to its end.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Process::start(self.command(arguments)).wait()
    }

    /// The line of the configuration file that sets `key`, from 1.
    ///
    /// # Panics
    /// When none does.
    #[must_use]
    pub fn line_of(&self, key: &str) -> usize {
        let text = self.configuration();
        let line = text.lines().position(|line| line.starts_with(key));
        line.expect("the key is set") + 1
    }

    /// Whether the program can be run at all, by the user that the site has.
    #[must_use]
    pub fn can_run(&self) -> bool {
        let version = self.command(&["--version"]).output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Files below the data directory that `accept` takes, sorted. The paths it sees are relative.
    #[must_use]
    pub fn files(&self, accept: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        list(&self.data, &mut found);
        found.retain(|path| {
            let relative = path.strip_prefix(&self.data).expect("it is below");
            accept(&relative.to_string_lossy())
        });
        found.sort();
        found
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let configuration = self.directory.path().join("cohort.toml");
        fs::write(&configuration, self.configuration()).expect("write the configuration");
        let mut command = Command::new(binary("cohort-server"));
        command
            .args(arguments)
            .arg("--config")
            .arg(configuration)
            .current_dir(self.directory.path())
            .env_clear()
            .envs(self.variables.iter().cloned());
        if let Some(user) = self.user {
            use std::os::unix::process::CommandExt;
            command.uid(user).gid(user);
        }
        command
    }

    fn configuration(&self) -> String {
        let mut text = format!(
            "node.root_password = \"{ROOT_PASSWORD}\"\nnode.data_directory = \"{}\"\n",
            self.data.display()
        );
        for (key, value) in &self.settings {
            text.push_str(&format!("{key} = {value}\n"));
        }
        text
    }
}

fn list(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("list the data directory") {
        let path = entry.expect("list the data directory").path();
        if path.is_dir() {
            list(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("make a directory");
    for entry in fs::read_dir(from).expect("list the data directory") {
        let entry = entry.expect("list the data directory");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_directory(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copy a file");
        }
    }
}
