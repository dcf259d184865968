//! Makes and renews the links to one other node.

use std::{
    collections::BTreeMap,
    net::{TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use super::{
    Complaints, HandshakeError, LinkNews, Membership, NewLink, PeerNode, Tell, handshake, options,
};

/// How long a connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The wait after the first attempt that fails; doubled by each further one.
const WAIT_MIN: Duration = Duration::from_millis(20);

/// The longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A link that was shorter than this is no sign that the next attempt is worth hurrying.
const SHORT: Duration = Duration::from_secs(1);

/// What the thread of one node is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The link of this shard has ended.
    Lost { shard: u16 },
    /// The node has made a link itself: it can be reached.
    Alive,
    /// The process is to end.
    Stop,
}

/// Makes links to one node until it is told to stop.
pub(super) struct Dialler {
    own: Arc<Membership>,
    node: PeerNode,
    tell: Tell,
    orders: Receiver<Order>,
    /// Shards without a link, each with the time before which none is tried.
    wanted: BTreeMap<u16, Instant>,
    /// When each shard got its last link.
    made: BTreeMap<u16, Instant>,
    /// Attempts in a row that failed.
    failures: u32,
    /// Whether it was told that the node cannot be reached, and no link was made since.
    is_down: bool,
    complaints: Complaints,
}

impl Dialler {
    pub(super) fn new(
        own: Arc<Membership>,
        node: PeerNode,
        tell: Tell,
        orders: Receiver<Order>,
    ) -> Self {
        let now = Instant::now();
        Self {
            wanted: (0..own.shard_count).map(|shard| (shard, now)).collect(),
            own,
            node,
            tell,
            orders,
            made: BTreeMap::new(),
            failures: 0,
            is_down: false,
            complaints: Complaints::default(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let next = self.wanted.iter().min_by_key(|(shard, at)| (**at, **shard));
            let order = match next.map(|(shard, at)| (*shard, *at)) {
                None => self
                    .orders
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some((shard, at)) => {
                    let wait = at.saturating_duration_since(Instant::now());
                    let order = self.orders.recv_timeout(wait);
                    if order == Err(RecvTimeoutError::Timeout) {
                        self.attempt(shard);
                    }
                    order
                }
            };
            match order {
                Ok(Order::Lost { shard }) => self.on_lost(shard),
                Ok(Order::Alive) => self.on_alive(),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn on_lost(&mut self, shard: u16) {
        let now = Instant::now();
        let made = self.made.get(&shard);
        let was_short = made.is_some_and(|made| now.duration_since(*made) < SHORT);
        let wait = if was_short {
            jittered(WAIT_MIN)
        } else {
            Duration::ZERO
        };
        self.wanted.insert(shard, now + wait);
    }

    /// What was waited for is there.
    fn on_alive(&mut self) {
        if self.failures > 0 {
            self.failures = 0;
            let now = Instant::now();
            self.wanted.values_mut().for_each(|at| *at = now);
        }
    }

    fn attempt(&mut self, shard: u16) {
        let peer = self.node.replica;
        match self.connect(shard) {
            Ok(socket) => {
                let now = Instant::now();
                self.failures = 0;
                self.is_down = false;
                self.wanted.remove(&shard);
                self.made.insert(shard, now);
                // The node is there: nothing is gained by waiting with the others.
                self.wanted.values_mut().for_each(|at| *at = now);
                tracing::info!(
                    node = peer.0,
                    shard,
                    address = self.node.address,
                    "link to a node"
                );
                self.complaints.forget();
                (self.tell)(LinkNews::Up { peer });
                let link = NewLink {
                    peer,
                    shard,
                    socket,
                };
                (self.tell)(LinkNews::Outgoing(link));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_down, true) {
                    (self.tell)(LinkNews::Down { peer });
                }
                let text = error.to_string();
                if let Some(count) = self.complaints.is_worth_telling(&text) {
                    tracing::warn!(
                        node = peer.0,
                        address = self.node.address,
                        count,
                        "no link to a node: {text}"
                    );
                }
                let wait = WAIT_MIN
                    .saturating_mul(1 << self.failures.min(10))
                    .min(WAIT_MAX);
                self.failures = self.failures.saturating_add(1);
                let at = Instant::now() + jittered(wait);
                self.wanted
                    .values_mut()
                    .for_each(|other| *other = at.max(*other));
            }
        }
    }

    fn connect(&self, shard: u16) -> Result<TcpStream, HandshakeError> {
        let mut failed = None;
        for address in self.node.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(socket) => {
                    options::set(&socket)?;
                    handshake::dial(&socket, &self.own, self.node.replica, shard)?;
                    return Ok(socket);
                }
                Err(error) => failed = Some(error),
            }
        }
        let none = || std::io::Error::other("the name has no address");
        Err(failed.unwrap_or_else(none).into())
    }
}

/// Between half of a time and all of it, so that nodes that lost each other do not meet in step.
fn jittered(wait: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness the whole wait is as good.
    let share = match getrandom::fill(&mut byte) {
        Ok(()) => u32::from(byte[0]),
        Err(_) => 256,
    };
    wait / 2 + wait * share / 512
}
