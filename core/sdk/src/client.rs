//! The client: one session of one user.

use std::{sync::Arc, time::Duration};

use client::{Credentials, Session, SessionConfig};
use wire::{ClientId, Password, Reply, Request, UserId};

use crate::{
    Address, ConsumerBuilder, Error, GroupConsumerBuilder, Id, ProducerBuilder,
    core::{Running, Shared},
};

/// Bytes that a user's name or password may have.
const CREDENTIAL_SIZE_MAX: usize = 255;

/// How a client connects. Made by [`Client::builder`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    address: Address,
    user: Option<(String, Password)>,
    connections: u16,
    connect_timeout: Duration,
    request_timeout: Duration,
    heartbeat_interval: Duration,
    patient: bool,
}

/// A session of one user with a cluster. Cheap to clone; all clones share the session and its connections.
///
/// It reconnects by itself, through any node that it knows, and repeats what may be repeated: a call fails
/// only when its time is up or the server refuses it. The addresses that it is given are where it begins; it
/// learns the other nodes of a cluster, keeps connections to two of them, and opens one to each node that
/// leads what it sends or reads. When a node is lost it goes on over another one at once, with its session and
/// its memberships; what the lost node led waits until the cluster has another primary. A node whose address
/// cannot be reached from here is asked through the others. Requests of the metadata (everything that creates,
/// changes or deletes) are executed at most once, whatever is repeated, one after the other; everything
/// else runs side by side. What one call has done, the next one sees, whichever node it asks.
///
/// Dropping the last clone, producer and consumer ends the connections; [`Client::close`] logs out as well.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) running: Arc<Running>,
    pub(crate) request_timeout: Duration,
}

impl Client {
    /// Connects and logs in: `cohort://user:password@host:port,host:port`, see [`Address`]. One address is
    /// enough to find all nodes, several are for the case that it is down. Waits up to 10 s.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), cohort::Error> {
    /// let client = cohort::Client::connect("cohort://root:secret@127.0.0.1:5100").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the address is wrong, no host can be reached, or the login is refused.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        Self::builder(address)?.connect().await
    }

    /// A client that is not connected yet, to set how it does.
    ///
    /// # Errors
    /// When the address is wrong.
    pub fn builder(address: &str) -> Result<ClientBuilder, Error> {
        let address: Address = address.parse()?;
        let password = Password(address.password().unwrap_or_default().to_string());
        let user = address.user().map(|user| (user.to_string(), password));
        Ok(ClientBuilder {
            address,
            user,
            connections: 1,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(3),
            patient: false,
        })
    }

    /// The time that a Ping takes to a node and back.
    ///
    /// # Errors
    /// When no answer comes in time.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let start = std::time::Instant::now();
        self.request(Request::Ping).await?;
        Ok(start.elapsed())
    }

    /// A producer of messages for a topic.
    ///
    /// ```no_run
    /// # async fn example(client: cohort::Client) -> Result<(), cohort::Error> {
    /// let producer = client.producer("shop", "orders").build().await?;
    /// let receipt = producer.send("order 17").await?;
    /// println!("partition {}, offset {}", receipt.partition, receipt.offset);
    /// # Ok(()) }
    /// ```
    pub fn producer(&self, stream: impl Into<Id>, topic: impl Into<Id>) -> ProducerBuilder {
        ProducerBuilder::new(self.clone(), stream.into(), topic.into())
    }

    /// A consumer of a topic, known to the server by its name, which keeps how far it has got.
    ///
    /// ```no_run
    /// # async fn example(client: cohort::Client) -> Result<(), cohort::Error> {
    /// let mut consumer = client.consumer("shop", "orders", "billing").build().await?;
    /// while let Some(message) = consumer.next().await {
    ///     let message = message?;
    ///     println!("{} {:?}", message.offset(), message.payload());
    /// }
    /// consumer.close().await?;
    /// # Ok(()) }
    /// ```
    pub fn consumer(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        name: impl Into<String>,
    ) -> ConsumerBuilder {
        ConsumerBuilder::new(self.clone(), stream.into(), topic.into(), Some(name.into()))
    }

    /// A member of a consumer group, which shares the partitions of a topic with the other members. One client
    /// can be in a group only once.
    ///
    /// ```no_run
    /// # async fn example(client: cohort::Client) -> Result<(), cohort::Error> {
    /// let mut consumer = client
    ///     .consumer_group("shop", "orders", "billing")
    ///     .create_if_missing(cohort::GroupOptions::default())
    ///     .build()
    ///     .await?;
    /// while let Some(message) = consumer.next().await {
    ///     let message = message?;
    ///     println!("{} {:?}", message.offset(), message.payload());
    /// }
    /// consumer.close().await?;
    /// # Ok(()) }
    /// ```
    pub fn consumer_group(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        group: impl Into<Id>,
    ) -> GroupConsumerBuilder {
        GroupConsumerBuilder::new(self.clone(), stream.into(), topic.into(), group.into())
    }

    /// A consumer that only reads: it has no name, and nothing is stored.
    ///
    /// ```no_run
    /// # async fn example(client: cohort::Client) -> Result<(), cohort::Error> {
    /// // Everything that is there now, and then the end.
    /// let mut reader = client.reader("shop", "orders").stop_at_end(true).build().await?;
    /// while let Some(message) = reader.next().await {
    ///     println!("{:?}", message?.payload());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn reader(&self, stream: impl Into<Id>, topic: impl Into<Id>) -> ConsumerBuilder {
        ConsumerBuilder::new(self.clone(), stream.into(), topic.into(), None)
    }

    /// Logs out and ends the connections, for all clones. Producers and consumers should be closed before:
    /// what they still hold is lost. Waits up to 5 s for the server. After a member of a consumer group was
    /// [detached](crate::GroupConsumer::detach) the connections end without a logout, which would end the
    /// membership.
    pub async fn close(self) {
        self.shared().close(Duration::from_secs(5)).await;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.running.0
    }

    pub(crate) async fn request(&self, request: impl Into<Request>) -> Result<Reply, Error> {
        self.shared()
            .request(request.into(), self.request_timeout)
            .await
    }
}

impl ClientBuilder {
    /// Sets who logs in, in place of what the address says.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), Password(password.into())));
        self
    }

    /// Sets the number of connections, 1 unless set. Producers and consumers are spread over them; one
    /// connection carries a few GB/s. With several nodes there are at least two, to different nodes, and more
    /// to those that lead what is asked for: at most one to each.
    #[must_use]
    pub const fn connections(mut self, connections: u16) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how long [`ClientBuilder::connect`] waits, 10 s unless set.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long one call may take, repetitions included, 30 s unless set.
    #[must_use]
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets after how much silence a connection is probed, 3 s unless set; a third of the server's session
    /// timeout counts when that is less. A connection that stays silent is replaced.
    #[must_use]
    pub const fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self
    }

    /// Waits for a server that cannot be reached yet, for as long as the connect timeout allows, instead of
    /// failing when each address was tried once.
    #[must_use]
    pub const fn wait_for_server(mut self, wait: bool) -> Self {
        self.patient = wait;
        self
    }

    /// Connects and logs in. To be called within a tokio runtime with I/O and time enabled; the client's
    /// tasks run there.
    ///
    /// # Errors
    /// When no user is given, no host can be reached, or the login is refused.
    pub async fn connect(self) -> Result<Client, Error> {
        let invalid = |what, problem: String| Error::Invalid { what, problem };
        let (name, password) = self
            .user
            .clone()
            .ok_or_else(|| invalid("user", "no user is given to log in".to_string()))?;
        check_credentials(&name, &password.0)?;
        if self.connections == 0 {
            return Err(invalid("connections", "at least one is needed".to_string()));
        }
        let running = self.start(Credentials { name, password })?;
        let opened = running.0.opened(self.patient);
        match tokio::time::timeout(self.connect_timeout, opened).await {
            Ok(result) => result?,
            Err(_) => {
                return Err(Error::Unreachable {
                    address: self.address.hosts().join(","),
                    reason: format!("no login within {} ms", self.connect_timeout.as_millis()),
                });
            }
        }
        let request_timeout = self.request_timeout;
        Ok(Client {
            running: Arc::new(running),
            request_timeout,
        })
    }

    fn start(&self, credentials: Credentials) -> Result<Running, Error> {
        let client = ClientId(random_u128()?);
        let hosts = self.address.hosts().to_vec();
        let mut config = SessionConfig::new(hosts, credentials, client, random_u64()?);
        config.connections = self.connections;
        config.heartbeat_interval = self.heartbeat_interval;
        let frame_size_max = config.frame_size_max;
        Ok(Shared::start(Session::new(config), frame_size_max))
    }
}

/// A random number that is not 0.
pub(crate) fn random_u128() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Invalid {
        what: "random numbers",
        problem: error.to_string(),
    })?;
    Ok(u128::from_le_bytes(bytes).max(1))
}

pub(crate) fn random_u64() -> Result<u64, Error> {
    let bytes = random_u128()?.to_le_bytes();
    let (half, _) = bytes.split_at(8);
    Ok(half
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The session that a client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The user.
    pub user: UserId,
    /// The user's name.
    pub user_name: String,
    /// The session's number.
    pub session: u64,
    /// This client's address, as the server sees it.
    pub address: String,
}

/// Refuses a name or a password that no user can have.
pub(crate) fn check_credentials(name: &str, password: &str) -> Result<(), Error> {
    for (what, text) in [("user", name), ("password", password)] {
        if text.is_empty() || text.len() > CREDENTIAL_SIZE_MAX {
            let problem = format!(
                "1 to {CREDENTIAL_SIZE_MAX} bytes are allowed, not {}",
                text.len()
            );
            return Err(Error::Invalid { what, problem });
        }
    }
    Ok(())
}
