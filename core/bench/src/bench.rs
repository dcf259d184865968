//! What every measurement of one run shares.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use network::available_cores;
use tempfile::TempDir;

use crate::{
    disk::ProbeFiles,
    error::{During, Error},
    options::Options,
    server::{Launch, Startup, find_program},
    target::Server,
};

/// Bytes of a probe file: those of a journal file.
const PROBE_FILE: u64 = 64 << 20;

/// One run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) shards: u16,
    directory: TempDir,
    probe_files: Option<ProbeFiles>,
    /// Those of several writers at once.
    writers: Vec<ProbeFiles>,
    servers: usize,
}

impl Bench {
    /// Makes the directory for everything that this run puts on the disk. It is gone when the run ends.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new(options: Options) -> Result<Self, Error> {
        let shards = match options.shards {
            Some(shards) => shards,
            None => {
                let cores = available_cores().during("ask for the cores")?.len();
                u16::try_from(cores).unwrap_or(u16::MAX)
            }
        };
        fs::create_dir_all(&options.directory)
            .during(format!("create {}", options.directory.display()))?;
        let directory = tempfile::Builder::new()
            .prefix("cohort-bench-")
            .tempdir_in(&options.directory)
            .during(format!(
                "create a directory in {}",
                options.directory.display()
            ))?;
        Ok(Self {
            options,
            shards,
            directory,
            probe_files: None,
            writers: Vec::new(),
            servers: 0,
        })
    }

    /// Leaves everything where it is; says where.
    pub(crate) fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The quick or the full amount.
    pub(crate) const fn pick<T: Copy>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// How often a test is repeated between its probes.
    pub(crate) fn rounds(&self) -> usize {
        self.options.rounds.unwrap_or(self.pick(3, 5))
    }

    /// How long one repetition takes that is not counted otherwise.
    pub(crate) const fn length(&self) -> Duration {
        self.pick(Duration::from_millis(800), Duration::from_millis(2_000))
    }

    /// The probe's files, made at the first use.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn probe_files(&mut self) -> Result<&mut ProbeFiles, Error> {
        let files = match self.probe_files.take() {
            Some(files) => files,
            None => {
                let count = self.pick(4, 8);
                ProbeFiles::create(self.directory.path(), "probe", (count, PROBE_FILE))?
            }
        };
        Ok(self.probe_files.insert(files))
    }

    /// Files for so many writers at once, made at the first use.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn writers(&mut self, count: usize) -> Result<&mut [ProbeFiles], Error> {
        while self.writers.len() < count {
            let name = format!("writer-{}", self.writers.len());
            let files = ProbeFiles::create(self.directory.path(), &name, (2, PROBE_FILE))?;
            self.writers.push(files);
        }
        Ok(&mut self.writers[..count])
    }

    /// How a server on a new data directory is started.
    ///
    /// # Errors
    /// `Usage` when there is no server program, or a running one is to be measured.
    pub(crate) fn launch(&mut self) -> Result<Launch, Error> {
        if self.options.address.is_some() {
            let text = "this needs a server of its own; leave --address out";
            return Err(Error::Usage(text.into()));
        }
        self.servers += 1;
        Ok(Launch {
            program: find_program(self.options.server.as_deref())?,
            shards: self.shards,
            directory: self.directory().join(format!("server-{}", self.servers)),
            settings: Vec::new(),
            is_cluster: self.options.cluster,
        })
    }

    /// The server to be measured: the one at `--address`, or a new one with its launch and start.
    ///
    /// # Errors
    /// `Usage`, `Io`, `Server`.
    pub(crate) fn server(&mut self) -> Result<(Server, Option<(Launch, Startup)>), Error> {
        if let Some(address) = self.options.address {
            let variable = |name: &str| {
                std::env::var(name).map_err(|_| Error::Usage(format!("{name} is not set")))
            };
            let (user, password) = (variable("COHORT_USER")?, variable("COHORT_PASSWORD")?);
            return Ok((Server::external(address, user, password), None));
        }
        let launch = self.launch()?;
        let (server, startup) = Server::start(&launch)?;
        Ok((server, Some((launch, startup))))
    }

    /// Removes what a server has left.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove(launch: &Launch) -> Result<(), Error> {
        let directory: &PathBuf = &launch.directory;
        fs::remove_dir_all(directory).during(format!("remove {}", directory.display()))
    }
}
