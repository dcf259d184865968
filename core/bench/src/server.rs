//! The server process that is measured.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use wire::Request;

use crate::{
    connection::Connection,
    error::{During, Error},
};

/// The user that every data directory has.
pub(crate) const USER: &str = "root";

/// Its password on the servers that are started here. They listen on the loopback, for as long as they are
/// measured.
pub(crate) const PASSWORD: &str = "measured and gone";

/// How long a start may take.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an orderly end may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two attempts to connect.
const START_PAUSE: Duration = Duration::from_micros(500);

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) shards: u16,
    pub(crate) directory: PathBuf,
    /// Further settings, as environment variables.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// Whether it is a cluster of three.
    pub(crate) is_cluster: bool,
}

impl Launch {
    /// All settings but the address, as environment variables.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            (
                "COHORT__NODE__DATA_DIRECTORY",
                self.directory.display().to_string(),
            ),
            ("COHORT__NODE__SHARDS", self.shards.to_string()),
            ("COHORT__NODE__ROOT_PASSWORD", PASSWORD.into()),
        ];
        all.extend(self.settings.iter().cloned());
        all
    }
}

/// How long a start took, from the moment before the process was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Startup {
    /// Until the first ping was answered.
    pub(crate) ping: Duration,
    /// Until the first login was answered, which takes a password check.
    pub(crate) login: Duration,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    address: SocketAddr,
    output: PathBuf,
}

impl ServerProcess {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// `Server` with the server's last words when it ends or does not serve in time.
    pub(crate) fn start(launch: &Launch) -> Result<(Self, Startup), Error> {
        let begin = Instant::now();
        let mut server = Self::spawn(launch, free_address()?)?;
        let startup = server.wait_until_it_serves(begin)?;
        Ok((server, startup))
    }

    /// Starts a server at an address, and waits for nothing.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn spawn(launch: &Launch, address: SocketAddr) -> Result<Self, Error> {
        let output = launch.directory.with_extension("output");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&output)
            .during(format!("create {}", output.display()))?;
        let errors = file.try_clone().during("share the server's output")?;
        let child = Command::new(&launch.program)
            .env("COHORT__NODE__ADDRESS", address.to_string())
            .envs(launch.environment())
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .during(format!("start {}", launch.program.display()))?;
        Ok(Self {
            child,
            address,
            output,
        })
    }

    /// Waits until it answers a login.
    ///
    /// # Errors
    /// As [`ServerProcess::start`].
    pub(crate) fn wait_until_it_serves(&mut self, begin: Instant) -> Result<Startup, Error> {
        let (mut connection, ping) = loop {
            let mut connection = self.first_connection(begin)?;
            // One that came before the server had all its listeners may be lost.
            match connection.call(Request::Ping) {
                Err(Error::Io { .. }) => self.wait_on(begin)?,
                answer => {
                    answer?;
                    break (connection, begin.elapsed());
                }
            }
        };
        self.first_login(&mut connection, begin)?;
        let login = begin.elapsed();
        Ok(Startup { ping, login })
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(std::io::Error::from)
            .during("signal the server")
    }

    fn first_connection(&mut self, begin: Instant) -> Result<Connection, Error> {
        loop {
            match Connection::open(self.address) {
                Ok(connection) => return Ok(connection),
                Err(_) => self.wait_on(begin)?,
            }
        }
    }

    fn first_login(&mut self, connection: &mut Connection, begin: Instant) -> Result<(), Error> {
        loop {
            match connection.log_in(USER, PASSWORD) {
                Err(Error::Refused { failure, .. }) if failure.code.retryable() => {
                    self.wait_on(begin)?;
                }
                result => return result,
            }
        }
    }

    /// Waits a moment, unless that is hopeless.
    fn wait_on(&mut self, begin: Instant) -> Result<(), Error> {
        let ended = self.child.try_wait().during("ask for the server")?;
        if let Some(status) = ended {
            return Err(self.failed(&format!("ended with {status}")));
        }
        if begin.elapsed() > START_TIMEOUT {
            return Err(self.failed(&format!("did not serve within {START_TIMEOUT:?}")));
        }
        thread::sleep(START_PAUSE);
        Ok(())
    }

    fn failed(&self, what: &str) -> Error {
        let output = fs::read_to_string(&self.output).unwrap_or_default();
        let lines: Vec<_> = output.lines().rev().take(10).collect();
        let words: Vec<_> = lines.into_iter().rev().collect();
        Error::Server(format!("the server {what}:\n{}", words.join("\n")))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server in order.
    ///
    /// # Errors
    /// `Server` when it does not end in time, or not with success.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        let begin = Instant::now();
        self.signal(Signal::TERM)?;
        loop {
            match self.child.try_wait().during("ask for the server")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failed(&format!("stopped with {status}"))),
                None if begin.elapsed() > STOP_TIMEOUT => {
                    return Err(self.failed(&format!("did not stop within {STOP_TIMEOUT:?}")));
                }
                None => thread::sleep(START_PAUSE),
            }
        }
    }

    /// Ends the server at once, as a loss of power would.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn kill(mut self) -> Result<(), Error> {
        self.child.kill().during("kill the server")?;
        self.child.wait().during("kill the server").map(|_| ())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Fails when it has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server beside this program, unless another one is named.
pub(crate) fn find_program(named: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let own = std::env::current_exe().during("find this program")?;
    let program = own.with_file_name("cohort-server");
    if program.is_file() {
        return Ok(program);
    }
    let program = program.display();
    Err(Error::Usage(format!(
        "{program} is not there: build it (cargo build --release -p server), or name one with --server"
    )))
}

/// Known before the server starts, so that a start can be timed from outside.
fn free_address() -> Result<SocketAddr, Error> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .during("find a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(program: &str, directory: &Path) -> Launch {
        Launch {
            program: program.into(),
            shards: 1,
            directory: directory.join("data"),
            settings: Vec::new(),
            is_cluster: false,
        }
    }

    #[test]
    fn server_that_ends_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("server.sh");
        fs::write(&script, "#!/bin/sh\necho the disk is on holiday\nexit 3\n").unwrap();
        let program = script.to_str().unwrap();
        Command::new("chmod")
            .args(["+x", program])
            .status()
            .unwrap();
        let error = ServerProcess::start(&launch(program, directory.path())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("3") && text.contains("on holiday"), "{text}");
    }

    #[test]
    fn absent_server_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let launch = launch("/no/such/server", directory.path());
        let text = ServerProcess::start(&launch).unwrap_err().to_string();
        assert!(text.contains("/no/such/server"), "{text}");
    }
}
