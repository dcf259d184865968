//! A running server.

use std::{
    fs,
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Log, PATIENCE, until};

/// What stands before the address in the line that says that the server serves.
const READY: &str = "cohort-server is ready on ";

/// A server that was started and has not ended. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    process: Process,
    address: SocketAddr,
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error: the events.
    pub stderr: String,
    /// How long the end took, from when it was asked for.
    pub took: Duration,
}

/// A child process whose outputs are read. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Log,
    stderr: Log,
    started: Instant,
}

impl Server {
    /// Starts `command` and waits until it serves.
    ///
    /// # Errors
    /// How it ended instead.
    pub(crate) fn start(command: Command) -> Result<Self, Ended> {
        Self::wait_until_ready(Process::start(command))
    }

    /// As [`Server::start`], with standard error going to `events` instead of being read.
    pub(crate) fn start_saying_to(command: Command, events: File) -> Result<Self, Ended> {
        Self::wait_until_ready(Process::spawn(command, Some(events)))
    }

    pub(crate) fn wait_until_ready(process: Process) -> Result<Self, Ended> {
        match process.stdout.wait_for(READY) {
            Some(line) => {
                let (_, address) = line.split_once(READY).expect("it was waited for");
                let address = address.parse().expect("the server names its address");
                Ok(Self { process, address })
            }
            None => Err(process.wait()),
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// For the SDK, as `root`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("cohort://root:{}@{}", crate::ROOT_PASSWORD, self.address)
    }

    /// What it has written to standard error.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.process.stderr
    }

    /// What it has written to standard output.
    #[must_use]
    pub const fn output(&self) -> &Log {
        &self.process.stdout
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    #[must_use]
    pub fn terminate(self) -> Ended {
        self.process.terminate()
    }

    /// Asks it to stop, and requires that it does so without a complaint.
    ///
    /// # Panics
    /// When the exit code is not 0.
    pub fn stop(self) -> Ended {
        let ended = self.terminate();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended
    }

    /// Kills it at once: it can do nothing about it.
    #[must_use]
    pub fn kill(self) -> Ended {
        self.process.signal(Signal::KILL);
        self.process.wait()
    }

    /// Stops all its threads where they are, until [`Server::resume`].
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
        let stat = PathBuf::from(format!("/proc/{}/stat", self.process.child.id()));
        until("the server stops", || {
            let stat =
                fs::read_to_string(&stat).expect("a child that is not waited for has a stat");
            // pid (name) state …
            let (_, state) = stat.rsplit_once(')').expect("the name is in parentheses");
            state.trim_start().starts_with('T').then_some(())
        });
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Waits for its end, which something else has brought about.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    #[must_use]
    pub fn wait(self) -> Ended {
        self.process.wait()
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Bytes of memory that it has resident.
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most bytes of memory that it ever had resident.
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn resident_peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.child.id());
        let status = fs::read_to_string(&path).expect("a running process has a status");
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"))
            .unwrap_or_else(|| panic!("no {field} in {path}: it has ended"));
        let kibibytes: u64 = kibibytes.trim().parse().expect("a number");
        kibibytes * 1024
    }
}

impl Process {
    /// Starts a program.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: Command) -> Self {
        Self::spawn(command, None)
    }

    /// Starts a program whose standard output goes to `output` instead of being read.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_writing_to(mut command: Command, output: impl Into<Stdio>) -> Self {
        command.stdout(output);
        Self::run(command.stderr(Stdio::piped()))
    }

    /// What it has written to standard error.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.stderr
    }

    fn spawn(mut command: Command, events: Option<File>) -> Self {
        command
            .stdout(Stdio::piped())
            .stderr(events.map_or_else(Stdio::piped, Stdio::from));
        Self::run(&mut command)
    }

    fn run(command: &mut Command) -> Self {
        command.stdin(Stdio::null());
        let program = PathBuf::from(command.get_program());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", Path::display(&program)));
        Self {
            stdout: follow(child.stdout.take()),
            stderr: follow(child.stderr.take()),
            child,
            started: Instant::now(),
        }
    }

    /// Kills it at once.
    #[must_use]
    pub fn kill(self) -> Ended {
        self.signal(Signal::KILL);
        self.wait()
    }

    /// Whether it has a handler for SIGTERM.
    #[must_use]
    pub fn heeds_signals(&self) -> bool {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap_or_default();
        let mut lines = status.lines();
        let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
        let bit = 1 << (Signal::TERM.as_raw() - 1);
        caught.is_some_and(|caught| caught & bit != 0)
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    #[must_use]
    pub fn terminate(mut self) -> Ended {
        self.started = Instant::now();
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Asks it to stop, and waits for nothing.
    pub fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.exit_status() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        self.stdout.wait_for_end();
        self.stderr.wait_for_end();
        Ended {
            code: status.code(),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            took,
        }
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids are positive");
        let id = Pid::from_raw(id).expect("process ids are positive");
        // Until it is waited for its id is its own, ended or not.
        kill_process(id, signal).expect("a child can be signalled");
    }
}

/// What is read of an output of a process, if it is for us to read.
fn follow(output: Option<impl io::Read + Send + 'static>) -> Log {
    match output {
        Some(output) => Log::follow(output),
        None => Log::follow(io::empty()),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit_status().is_none() {
            // Fails only when it has ended since.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if thread::panicking() {
            eprintln!("---- process {}\n{}", self.child.id(), self.stderr.text());
        }
    }
}
