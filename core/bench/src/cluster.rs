//! Three nodes on this machine, for what is measured of a cluster.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    time::Instant,
};

use rustix::{
    net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt::set_socket_reuseaddr},
    process::Signal,
};

use crate::{
    error::{During, Error},
    process::{Usage, resident},
    server::{Launch, ServerProcess, Startup},
};

/// Nodes of a cluster.
pub(crate) const NODES: usize = 3;

/// What the nodes prove to one another that they know. They listen on the loopback.
const SECRET: &str = "measured and gone";

/// A running cluster; killed when dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    launches: Vec<Launch>,
    addresses: Vec<SocketAddr>,
    processes: Vec<Option<ServerProcess>>,
    /// Hold the ports of the nodes.
    _ports: Vec<OwnedFd>,
}

impl Cluster {
    /// Formats three nodes below the directory of `launch`, starts them, and waits until all serve.
    ///
    /// # Errors
    /// As [`ServerProcess::start`].
    pub(crate) fn start(launch: &Launch) -> Result<(Self, Startup), Error> {
        let found = (0..2 * NODES).map(|_| hold_port());
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let (ports, found): (Vec<OwnedFd>, Vec<SocketAddr>) = found.into_iter().unzip();
        let (addresses, peers) = found.split_at(NODES);
        let node = |id: usize| format!("{id} {} {}", addresses[id], peers[id]);
        let nodes = (0..NODES).map(node).collect::<Vec<_>>().join(", ");
        let launch_of = |id: usize| {
            let mut launch = launch.clone();
            launch.directory = launch.directory.join(format!("node-{id}"));
            launch.settings.extend([
                ("COHORT__CLUSTER__ID", "bench".into()),
                ("COHORT__CLUSTER__SECRET", SECRET.into()),
                ("COHORT__CLUSTER__NODES", nodes.clone()),
                ("COHORT__NODE__ID", id.to_string()),
            ]);
            launch
        };
        let mut cluster = Self {
            launches: (0..NODES).map(launch_of).collect(),
            addresses: addresses.to_vec(),
            processes: Vec::new(),
            _ports: ports,
        };
        for launch in &cluster.launches {
            prepare(launch, "format")?;
        }
        let begin = Instant::now();
        for (launch, address) in cluster.launches.iter().zip(addresses) {
            let process = ServerProcess::spawn(launch, *address)?;
            cluster.processes.push(Some(process));
        }
        let mut startup = None;
        for process in cluster.processes.iter_mut().flatten() {
            startup = Some(process.wait_until_it_serves(begin)?);
        }
        Ok((cluster, startup.expect("there are three")))
    }

    /// Where clients reach a node.
    pub(crate) fn address(&self, id: usize) -> SocketAddr {
        self.addresses[id]
    }

    /// Kills a node, as a loss of power would, and waits for nothing.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn kill(&self, id: usize) -> Result<(), Error> {
        self.processes[id]
            .as_ref()
            .map_or(Ok(()), |process| process.signal(Signal::KILL))
    }

    /// Stops a node's process, which nobody is told.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn pause(&self, id: usize) -> Result<(), Error> {
        self.processes[id]
            .as_ref()
            .map_or(Ok(()), |process| process.signal(Signal::STOP))
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn resume(&self, id: usize) -> Result<(), Error> {
        self.processes[id]
            .as_ref()
            .map_or(Ok(()), |process| process.signal(Signal::CONT))
    }

    /// Starts a node that was killed, and waits until it serves.
    ///
    /// # Errors
    /// As [`ServerProcess::start`].
    pub(crate) fn start_again(&mut self, id: usize) -> Result<(), Error> {
        // Waits until the process is gone that was there.
        drop(self.processes[id].take());
        let begin = Instant::now();
        let process = ServerProcess::spawn(&self.launches[id], self.addresses[id])?;
        let process = self.processes[id].insert(process);
        process.wait_until_it_serves(begin).map(|_| ())
    }

    /// Kills a node and removes all that it has on its disk.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn lose_disk(&mut self, id: usize) -> Result<(), Error> {
        // Waits until the process is gone.
        drop(self.processes[id].take());
        let directory = &self.launches[id].directory;
        std::fs::remove_dir_all(directory).during(format!("remove {}", directory.display()))
    }

    /// Has a node come back that has lost its disk, and waits for nothing.
    ///
    /// # Errors
    /// `Io`, `Server`.
    pub(crate) fn recover(&mut self, id: usize) -> Result<(), Error> {
        prepare(&self.launches[id], "recover")?;
        let process = ServerProcess::spawn(&self.launches[id], self.addresses[id])?;
        self.processes[id] = Some(process);
        Ok(())
    }

    /// Resident bytes of a node; none of one that does not run.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn resident(&self, id: usize) -> Result<u64, Error> {
        self.processes[id]
            .as_ref()
            .map_or(Ok(0), |process| resident(process.pid()))
    }

    /// Figures of a node's process; none of one that does not run.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn usage(&self, id: usize) -> Result<Usage, Error> {
        self.processes[id]
            .as_ref()
            .map_or_else(|| Ok(Usage::default()), |process| Usage::of(process.pid()))
    }

    /// Ends all nodes in order.
    ///
    /// # Errors
    /// As [`ServerProcess::stop`].
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        // One after the other: each hands over what it leads.
        for process in self.processes.iter_mut() {
            process.take().map_or(Ok(()), ServerProcess::stop)?;
        }
        Ok(())
    }
}

/// Formats the data directory of a node, the first time or in the place of a lost one.
fn prepare(launch: &Launch, command: &str) -> Result<(), Error> {
    std::fs::create_dir_all(launch.directory.parent().expect("it has a parent"))
        .during("create the directory of a cluster")?;
    let output = Command::new(&launch.program)
        .arg(command)
        .envs(launch.environment())
        .stdin(Stdio::null())
        .output()
        .during(format!("start {}", launch.program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(Error::Server(format!(
        "a node cannot be formatted by {command}:\n{words}"
    )))
}

/// A port that the kernel gives to nobody else while it is held: bound, and never listened on. A node that is killed
/// finds it free again, whatever connections others make meanwhile.
fn hold_port() -> Result<(OwnedFd, SocketAddr), Error> {
    let find = || {
        let held = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // Whoever says so, too, may listen there as long as this one does not.
        set_socket_reuseaddr(&held, true)?;
        bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddr::try_from(getsockname(&held)?)?;
        Ok::<_, io::Error>((held, address))
    };
    find().during("find a free port")
}
