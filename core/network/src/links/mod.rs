//! Links between the nodes of a cluster.
//!
//! Every shard of a node has a link of its own to every other node and sends over that one only; what it is
//! sent comes in over links that the other nodes have made. Threads of their own make links: one for each
//! other node dials, one listens. A link that is made, both ends having proved that they belong to the
//! cluster, goes to its shard, whose [`Links`] reads and writes it. A node that cannot be reached, a stranger,
//! or one of another cluster costs the shards nothing.

mod complaints;
mod dial;
mod handshake;
mod introduction;
mod listen;
mod options;
mod queue;
mod shard_links;

use std::{
    collections::BTreeMap,
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use socket2::SockRef;
use wire::ReplicaId;

use self::{
    complaints::Complaints,
    dial::{Dialler, Order},
    listen::Answerer,
};
pub use self::{
    handshake::{HandshakeError, RefusalText},
    introduction::{Difference, KnownDisks, LINK_VERSION, LinkSecret, Membership, Register},
    shard_links::{LinkLimits, LinkStatistics, Links, Traffic, Urgency},
};
use crate::Listener;

/// Another node, and where it listens for this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerNode {
    /// Which it is.
    pub replica: ReplicaId,
    /// `host:port`; a name is looked up anew for every attempt.
    pub address: String,
}

/// A link that is made, for the shard that reads or writes it.
#[derive(Debug)]
pub struct NewLink {
    /// The node at the other end.
    pub(crate) peer: ReplicaId,
    /// The shard of the node that made it: of this node for an outgoing link, of the other for an incoming
    /// one.
    pub(crate) shard: u16,
    pub(crate) socket: TcpStream,
}

impl NewLink {
    /// The node at the other end.
    #[must_use]
    pub const fn peer(&self) -> ReplicaId {
        self.peer
    }

    /// The shard of this node that it belongs to, which has `shard_count` of them.
    #[must_use]
    pub const fn shard(&self, shard_count: u16) -> u16 {
        self.shard % shard_count
    }
}

/// What the threads tell. In this order for each link: `Up`, then the link.
#[derive(Debug)]
pub enum LinkNews {
    /// A link over which a shard of this node sends.
    Outgoing(NewLink),
    /// A link over which another node sends.
    Incoming(NewLink),
    /// A link with this node is new: what was on its way over an older one may be lost.
    Up {
        /// The node.
        peer: ReplicaId,
    },
    /// A link to this node has ended, or never was, and cannot be made at this moment.
    Down {
        /// The node.
        peer: ReplicaId,
    },
}

/// Told the news, on any thread.
type Tell = Arc<dyn Fn(LinkNews) + Send + Sync>;

/// The threads that make links.
#[derive(Debug)]
pub struct LinkThreads {
    orders: LinkOrders,
    answerer: JoinHandle<()>,
    listener: TcpListener,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

/// Lets a shard say that a link of its own has ended. The default knows no other node.
#[derive(Clone, Debug, Default)]
pub struct LinkOrders(BTreeMap<ReplicaId, Sender<Order>>);

impl LinkOrders {
    /// Asks for a new link from a shard to a node.
    pub fn lost(&self, peer: ReplicaId, shard: u16) {
        if let Some(orders) = self.0.get(&peer) {
            // A process that is ending needs no links.
            let _ = orders.send(Order::Lost { shard });
        }
    }

    fn alive(&self, peer: ReplicaId) {
        if let Some(orders) = self.0.get(&peer) {
            // As above.
            let _ = orders.send(Order::Alive);
        }
    }
}

impl LinkThreads {
    /// Listens for other nodes and dials all of `peers`, for every shard of this node.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        own: Membership,
        listener: Listener,
        peers: Vec<PeerNode>,
        tell: impl Fn(LinkNews) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let address = listener.address();
        let listener = TcpListener::from(listener);
        let (own, tell): (_, Tell) = (Arc::new(own), Arc::new(tell));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut orders = BTreeMap::new();
        for node in peers {
            let (order, received) = mpsc::channel();
            orders.insert(node.replica, order);
            let name = format!("link-to-{}", node.replica);
            let dialler = Dialler::new(Arc::clone(&own), node, Arc::clone(&tell), received);
            spawn(name, move || dialler.run())?;
        }
        let orders = LinkOrders(orders);
        let answerer = Answerer::new(own, tell, orders.clone());
        let answerer = spawn("links".into(), {
            let (listener, is_over) = (listener.try_clone()?, Arc::clone(&is_over));
            move || answerer.run(&listener, &is_over)
        })?;
        Ok(Self {
            orders,
            answerer,
            listener,
            address,
            is_over,
        })
    }

    /// Lets shards ask for new links.
    #[must_use]
    pub fn orders(&self) -> LinkOrders {
        self.orders.clone()
    }

    /// Where the other nodes are listened for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes no more links, but for an attempt that is under way. Those that there are stay with their shards.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Release);
        // Ends the accept in flight. Not connected is what Linux says of every listener.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for orders in self.orders.0.values() {
            // A thread that has ended needs no order.
            let _ = orders.send(Order::Stop);
        }
        // A panic was told on standard error.
        let _ = self.answerer.join();
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run)
}

#[cfg(test)]
mod tests;
