//! What a session needs to know.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use wire::{ClientId, FRAME_SIZE_MAX, Password};

use crate::Backoff;

/// Name and password of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub name: String,
    /// The user's password.
    pub password: Password,
}

/// Whom to connect to, as whom, and how patiently.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Addresses of nodes, `host:port`, tried in this order; at least one. The session learns the other nodes
    /// of a cluster, and their addresses, from whoever it reaches. It gives addresses back in its effects and
    /// does not look inside.
    pub addresses: Vec<String>,
    /// Who logs in.
    pub credentials: Credentials,
    /// Names this client; to be chosen at random, once. After a login that stayed without an answer the session
    /// goes on under another name, which it chooses with the help of `seed`.
    pub client: ClientId,
    /// Seeds the jitter of the back-off, and further names; to be chosen at random.
    pub seed: u64,
    /// Connections to keep, at least one. With several nodes there are at least two, to different nodes, and
    /// one more to each other node that leads what is asked for.
    pub connections: u16,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long one login or attach may take on an open connection. The server checks passwords slowly
    /// on purpose.
    pub login_timeout: Duration,
    /// A connection that is silent in either direction for so long gets a `Ping`, which keeps the session
    /// alive. A third of the server's session timeout counts when that is less.
    pub heartbeat_interval: Duration,
    /// A connection from which nothing comes for so long after a `Ping` is taken for dead.
    pub heartbeat_timeout: Duration,
    /// Pauses between attempts to connect to one address, and between attempts of one request. What passes
    /// with a change of primaries is asked again sooner, at first.
    pub backoff: Backoff,
    /// Requests that may be unanswered on one connection; the next ones wait.
    pub in_flight_max: usize,
    /// Requests that may be in the session at all, waiting ones included; more are refused at once.
    pub requests_max: usize,
    /// Bytes of the largest frame that is sent or taken.
    pub frame_size_max: u32,
}

impl SessionConfig {
    /// The defaults: one connection, heartbeats every 3 s, 5 s for what should answer at once, 10 s for a
    /// login, 256 requests unanswered and 65,536 in all.
    #[must_use]
    pub fn new(
        addresses: Vec<String>,
        credentials: Credentials,
        client: ClientId,
        seed: u64,
    ) -> Self {
        Self {
            addresses,
            credentials,
            client,
            seed,
            connections: 1,
            connect_timeout: Duration::from_secs(5),
            login_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(3),
            heartbeat_timeout: Duration::from_secs(5),
            backoff: Backoff::default(),
            in_flight_max: 256,
            requests_max: 65_536,
            frame_size_max: FRAME_SIZE_MAX,
        }
    }
}
