//! What is measured: a server of our own, or one that runs already.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use wire::{
    ConsumerGroupId, ConsumerGroupOptionsUpdate, CreateConsumerGroup, CreateStream, CreateTopic,
    ErrorCode, Identifier, PartitionId, Reply, TopicId,
};

use crate::{
    cluster::Cluster,
    connection::{Connection, unexpected},
    error::Error,
    process::{Usage, resident},
    server::{Launch, PASSWORD, ServerProcess, Startup, USER},
};

/// The stream that holds every topic of a measurement.
const STREAM: &str = "bench";

/// Every option of a consumer group as it is by default.
const USUAL: ConsumerGroupOptionsUpdate = ConsumerGroupOptionsUpdate {
    rebalance_timeout_ms: None,
    initial_delay_ms: None,
    start: None,
    offset_expiry_ms: None,
};

/// The bytes written are final when they have not grown for so long.
const SETTLED: Duration = Duration::from_millis(500);

/// Less is no growth: also a server at rest wakes its threads, and writes some bytes for each.
const UNSETTLED_MIN: u64 = 64 * 1024;

/// They are taken as they are after this.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A server, and who we are to it.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    user: String,
    password: String,
    process: Option<ServerProcess>,
    /// Of a cluster; `address` is that of its first node.
    cluster: Option<Cluster>,
    topics: u64,
    groups: u64,
}

/// A consumer group that was made for a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) topic: Topic,
    pub(crate) id: ConsumerGroupId,
}

/// A topic that was made for a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) stream: Identifier,
    pub(crate) id: TopicId,
    pub(crate) partitions: u32,
}

impl Topic {
    pub(crate) fn identifier(&self) -> Identifier {
        self.id.into()
    }

    /// The partition of the n-th of several workers.
    pub(crate) const fn partition(&self, worker: u32) -> PartitionId {
        PartitionId(worker % self.partitions)
    }
}

impl Server {
    /// A server that runs already.
    pub(crate) const fn external(address: SocketAddr, user: String, password: String) -> Self {
        Self {
            address,
            user,
            password,
            process: None,
            cluster: None,
            topics: 0,
            groups: 0,
        }
    }

    /// A server of our own.
    ///
    /// # Errors
    /// As [`ServerProcess::start`].
    pub(crate) fn start(launch: &Launch) -> Result<(Self, Startup), Error> {
        let (process, cluster, startup) = if launch.is_cluster {
            let (cluster, startup) = Cluster::start(launch)?;
            (None, Some(cluster), startup)
        } else {
            let (process, startup) = ServerProcess::start(launch)?;
            (Some(process), None, startup)
        };
        let first = cluster.as_ref().map(|cluster| cluster.address(0));
        let address = process.as_ref().map(ServerProcess::address).or(first);
        let server = Self {
            address: address.expect("it is one or the other"),
            user: USER.into(),
            password: PASSWORD.into(),
            process,
            cluster,
            topics: 0,
            groups: 0,
        };
        Ok((server, startup))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends a server of our own in order; leaves another one alone.
    ///
    /// # Errors
    /// As [`ServerProcess::stop`].
    pub(crate) fn stop(self) -> Result<(), Error> {
        self.cluster.map_or(Ok(()), |mut cluster| cluster.stop())?;
        self.process.map_or(Ok(()), ServerProcess::stop)
    }

    /// Kills a server of our own; leaves another one alone.
    ///
    /// # Errors
    /// As [`ServerProcess::kill`].
    pub(crate) fn kill(self) -> Result<(), Error> {
        self.process.map_or(Ok(()), ServerProcess::kill)
    }

    /// The cluster, if it is one of our own.
    pub(crate) const fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        self.cluster.as_mut()
    }

    /// Whether it is a cluster of our own.
    pub(crate) const fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// A connection with a session of its own to another node of the cluster.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn log_in_at(&self, address: SocketAddr) -> Result<Connection, Error> {
        let mut connection = Connection::open(address)?;
        self.log_in_on(&mut connection)?;
        Ok(connection)
    }

    /// A connection with a session of its own. The session ends with it, or when it is silent for long: no
    /// measurement relies on that of another.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn log_in(&self) -> Result<Connection, Error> {
        let mut connection = Connection::open(self.address)?;
        self.log_in_on(&mut connection)?;
        Ok(connection)
    }

    /// Begins a session on a connection.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn log_in_on(&self, connection: &mut Connection) -> Result<(), Error> {
        connection.log_in(&self.user, &self.password)
    }

    pub(crate) fn login(&self) -> wire::Login {
        wire::Login {
            name: self.user.clone(),
            password: wire::Password(self.password.clone()),
        }
    }

    /// Makes a topic, and the stream when it is not there.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn create_topic(
        &mut self,
        connection: &mut Connection,
        partitions: u32,
    ) -> Result<Topic, Error> {
        let stream = Identifier::Name(STREAM.into());
        match connection.call(CreateStream {
            name: STREAM.into(),
        }) {
            Ok(_) => {}
            Err(Error::Refused { failure, .. })
                if failure.code == ErrorCode::StreamAlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.topics += 1;
        // On a server that runs on, earlier measurements have left theirs.
        let name = format!("run-{}-{}", std::process::id(), self.topics);
        let reply = connection.call(CreateTopic {
            stream: stream.clone(),
            name,
            partitions,
        })?;
        match reply {
            Reply::Topic(details) => Ok(Topic {
                stream,
                id: details.id,
                partitions,
            }),
            other => Err(unexpected("CreateTopic", &other)),
        }
    }

    /// Makes a consumer group with the usual options.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn create_group(
        &mut self,
        connection: &mut Connection,
        topic: &Topic,
    ) -> Result<Group, Error> {
        self.groups += 1;
        let reply = connection.call(CreateConsumerGroup {
            stream: topic.stream.clone(),
            topic: topic.identifier(),
            name: format!("group-{}", self.groups),
            options: USUAL,
        })?;
        match reply {
            Reply::ConsumerGroup(summary) => Ok(Group {
                topic: topic.clone(),
                id: summary.id,
            }),
            other => Err(unexpected("CreateConsumerGroup", &other)),
        }
    }

    /// Figures of the process, if it is our own.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn usage(&self) -> Result<Option<Usage>, Error> {
        let Some(process) = &self.process else {
            return Ok(None);
        };
        Usage::of(process.pid()).map(Some)
    }

    /// What was added to the figures, if the process is our own.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn usage_since(&self, before: Option<&Usage>) -> Result<Option<Usage>, Error> {
        let now = self.usage()?;
        Ok(now.zip(before).map(|(now, before)| now.since(before)))
    }

    /// Resident bytes of the process, if it is our own.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn resident(&self) -> Result<Option<u64>, Error> {
        let Some(process) = &self.process else {
            return Ok(None);
        };
        resident(process.pid()).map(Some)
    }

    /// [`Server::usage`] once nothing is written any more: segments are written behind the answers.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn settled_usage(&self) -> Result<Option<Usage>, Error> {
        let begin = Instant::now();
        let mut since = begin;
        let mut written = 0;
        loop {
            let Some(usage) = self.usage()? else {
                return Ok(None);
            };
            if usage.written > written + UNSETTLED_MIN {
                written = usage.written;
                since = Instant::now();
            }
            if since.elapsed() > SETTLED || begin.elapsed() > SETTLE_TIMEOUT {
                return Ok(Some(usage));
            }
            thread::sleep(SETTLED / 10);
        }
    }
}
