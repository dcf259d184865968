//! Three nodes on one machine.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
};

use rustix::net::{
    AddressFamily, SocketType, bind, getsockname, socket, sockopt::set_socket_reuseaddr,
};
use wire::{GetTopic, Reply, TopicDetails};

use crate::{Connection, Ended, Gate, Process, ROOT_PASSWORD, Server, Site, patient_client, until};

/// Nodes of a cluster.
pub const NODES: usize = 3;

/// A cluster of three, each node with a configuration and data of its own.
#[derive(Debug)]
pub struct Cluster {
    sites: Vec<Site>,
    servers: Vec<Option<Server>>,
    clients: Vec<SocketAddr>,
    /// What stands before each node, for clients and for other nodes; the list of nodes names it.
    gates: Vec<(Gate, Gate)>,
    /// The ports of the nodes: bound, so that the kernel gives them to nobody else, and never listened on.
    _ports: Vec<OwnedFd>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// Formats three nodes, and starts none.
    ///
    /// # Panics
    /// When one cannot be formatted.
    #[must_use]
    pub fn new() -> Self {
        Self::with(|_, site| site)
    }

    /// The same, with settings of each node's own.
    ///
    /// # Panics
    /// When one cannot be formatted.
    #[must_use]
    pub fn with(set: impl Fn(usize, Site) -> Site) -> Self {
        let cluster = Self::unformatted(set);
        cluster.format();
        cluster
    }

    /// Formats all nodes.
    ///
    /// # Panics
    /// When one cannot be formatted.
    pub fn format(&self) {
        for site in &self.sites {
            let ended = site.run(&["format"]);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        }
    }

    /// Changes a setting of a node.
    pub fn set(&mut self, id: usize, key: &str, value: &str) {
        self.sites[id].set(key, value);
    }

    /// Three nodes that are not formatted.
    ///
    /// # Panics
    /// When there are no ports.
    #[must_use]
    pub fn unformatted(set: impl Fn(usize, Site) -> Site) -> Self {
        Self::make(set, false)
    }

    /// Three formatted nodes that know each other, and are known to clients, only by the addresses of gates.
    ///
    /// # Panics
    /// When one cannot be formatted.
    #[must_use]
    pub fn gated(set: impl Fn(usize, Site) -> Site) -> Self {
        let cluster = Self::make(set, true);
        cluster.format();
        cluster
    }

    fn make(set: impl Fn(usize, Site) -> Site, gated: bool) -> Self {
        let (ports, addresses): (Vec<_>, Vec<_>) = (0..2 * NODES).map(|_| reserve()).unzip();
        let (clients, peers) = addresses.split_at(NODES);
        let gate = |id: usize| (Gate::for_clients(clients[id]), Gate::for_nodes(peers[id]));
        let gates: Vec<(Gate, Gate)> = (0..NODES).filter(|_| gated).map(gate).collect();
        let node = |id: usize| {
            let (client, peer) = match gates.get(id) {
                Some((client, peer)) => (client.address(), peer.address()),
                None => (clients[id], peers[id]),
            };
            format!("{{ id = {id}, client = \"{client}\", peer = \"{peer}\" }}")
        };
        let nodes = format!("[{}, {}, {}]", node(0), node(1), node(2));
        let site = |id: usize| {
            let site = Site::new()
                .with("cluster.id", "\"test\"")
                .with("cluster.secret", "\"of no use elsewhere\"")
                .with("cluster.nodes", &nodes)
                .with("cluster.data_groups", "6")
                .with("node.id", &id.to_string())
                .with("node.address", &format!("\"{}\"", clients[id]));
            let site = match gated {
                true => site.with("node.peer_address", &format!("\"{}\"", peers[id])),
                false => site,
            };
            set(id, site)
        };
        Self {
            sites: (0..NODES).map(site).collect(),
            servers: (0..NODES).map(|_| None).collect(),
            clients: clients.to_vec(),
            gates,
            _ports: ports,
        }
    }

    /// Starts all nodes, and waits until they serve.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start(&mut self) {
        self.start_in_order(&[0, 1, 2]);
    }

    /// Starts nodes one after the other, waiting for none, then waits until all of them serve.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start_in_order(&mut self, order: &[usize]) {
        let launched: Vec<(usize, Process)> =
            order.iter().map(|id| (*id, self.launch(*id))).collect();
        for (id, process) in launched {
            self.adopt(id, process);
        }
    }

    /// Starts a node's process, and waits for nothing.
    #[must_use]
    pub fn launch(&self, id: usize) -> Process {
        self.sites[id].launch()
    }

    /// Waits until a process that was launched serves.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn adopt(&mut self, id: usize, process: Process) {
        let server = Server::wait_until_ready(process).unwrap_or_else(|ended| {
            panic!(
                "node {id} does not start ({:?}):\n{}",
                ended.code, ended.stderr
            )
        });
        self.servers[id] = Some(server);
    }

    /// A node's place.
    #[must_use]
    pub fn site(&self, id: usize) -> &Site {
        &self.sites[id]
    }

    /// A running node.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn server(&self, id: usize) -> &Server {
        self.servers[id].as_ref().expect("the node runs")
    }

    /// Whether a node was started, and neither killed nor stopped since.
    #[must_use]
    pub fn runs(&self, id: usize) -> bool {
        self.servers[id].is_some()
    }

    /// Whether a node that was started has ended by itself.
    pub fn has_ended(&mut self, id: usize) -> bool {
        self.servers[id]
            .as_mut()
            .is_some_and(|server| !server.is_running())
    }

    /// Kills a node at once.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self, id: usize) -> Ended {
        self.servers[id].take().expect("the node runs").kill()
    }

    /// Asks a node to stop, and requires that it does so without a complaint.
    ///
    /// # Panics
    /// When it does not run, or complains.
    pub fn stop(&mut self, id: usize) -> Ended {
        self.servers[id].take().expect("the node runs").stop()
    }

    /// What stands before a node for its clients.
    ///
    /// # Panics
    /// When the cluster was made without gates.
    #[must_use]
    pub fn client_gate(&self, id: usize) -> &Gate {
        &self.gates.get(id).expect("the cluster has gates").0
    }

    /// What stands before a node for the other nodes.
    ///
    /// # Panics
    /// When the cluster was made without gates.
    #[must_use]
    pub fn node_gate(&self, id: usize) -> &Gate {
        &self.gates.get(id).expect("the cluster has gates").1
    }

    /// Where clients reach a node, past its gate if it has one.
    #[must_use]
    pub fn address(&self, id: usize) -> SocketAddr {
        self.clients[id]
    }

    /// For the SDK, as `root`: all nodes, beginning with this one.
    #[must_use]
    pub fn url(&self, first: usize) -> String {
        let address = |id: usize| match self.gates.get(id) {
            Some((gate, _)) => gate.address(),
            None => self.clients[id],
        };
        let addresses = (0..NODES).map(|step| address((first + step) % NODES).to_string());
        let addresses: Vec<String> = addresses.collect();
        format!("cohort://root:{ROOT_PASSWORD}@{}", addresses.join(","))
    }

    /// Logs in at a node, as soon as the cluster takes logins.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn login(&self, id: usize) -> Connection {
        until(
            "the cluster takes a login",
            || match Connection::try_login(self.clients[id]) {
                Ok(connection) => Some(connection),
                Err(Some(failure)) => {
                    assert!(failure.code.retryable(), "{failure}");
                    None
                }
                Err(None) => None,
            },
        )
    }
}

impl Cluster {
    /// Makes a stream of this name with a topic of the same name, through this node, whatever happens to the
    /// primaries meanwhile, and waits until all partitions are served.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn create_topic(&self, id: usize, name: &str, partitions: u32) -> TopicDetails {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("make a runtime");
        let topic = runtime.block_on(async {
            let client = patient_client(&self.url(id)).await;
            let stream = client.create_stream(name).await.expect("make a stream");
            let topic = client.create_topic(stream.id, name, partitions).await;
            client.close().await;
            topic.expect("make a topic")
        });
        let mut connection = self.login(id);
        until("the partitions are served", || {
            let request = GetTopic {
                stream: topic.stream.into(),
                topic: topic.id.into(),
            };
            match connection.ask(request) {
                Ok(Reply::Topic(found)) => {
                    let served = found.partitions.iter().all(|one| one.end.is_some());
                    served.then_some(())
                }
                Err(failure) if failure.code.retryable() => None,
                other => panic!("ask for a topic: {other:?}"),
            }
        });
        topic
    }
}

/// A port of the loopback interface, and what keeps it.
fn reserve() -> (OwnedFd, SocketAddr) {
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).expect("make a socket");
    // Whoever says so, too, may listen there as long as this one does not.
    set_socket_reuseaddr(&held, true).expect("share the port");
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    bind(&held, &any).expect("bind a port");
    let address = getsockname(&held).expect("a bound socket has an address");
    let address = SocketAddr::try_from(address).expect("it is an address of the internet");
    (held, address)
}
