//! The life of a node: from its data directory to its threads, and back.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::{SocketAddr, ToSocketAddrs},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use journal::{Journal, Uncertain};
use network::{BindError, InboxSender, LinkOrders, LinkThreads, Notify, inbox};
use shard::{GroupSnapshot, GroupStart, shard_of_group};
use storage::{
    DataDirectory, Disks, FileThreads, JournalEvent, JournalThread, Snapshots, scan_journal,
};
use wire::{ConsensusGroup, ShardId};

use crate::{
    Exit,
    config::Config,
    format,
    password::{self, PasswordPool},
    peers, process_limits, random,
    recover::{refuse_lost_journal, tell_damage},
    settings,
    shard_loop::{self, Across, Failed, Outside, Seed, Told},
    signals,
    space::{SpaceWatch, Watched},
};

/// How long what is in flight may take after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages that a ring between two shards holds.
const RING: usize = 4_096;

/// Flushes of the probe at the start.
const PROBE_FLUSHES: usize = 9;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The data directory.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directory was formatted for something else.
    #[error(
        "{key} = {configured}, but {directory} was formatted with {formatted}; it is fixed for ever"
    )]
    Formatted {
        key: String,
        configured: String,
        formatted: String,
        directory: String,
    },
    /// A node of a cluster never formats itself.
    #[error(
        "the data directory {directory} is not formatted; a node of a cluster is formatted once, by \
         `cohort-server format` with its configuration. If it was in use before, its data is lost, and a node \
         that was wiped must not pass for a new one: `cohort-server recover` has it come back from the others"
    )]
    NotFormatted { directory: String },
    /// What would be formatted is in use.
    #[error("the data directory {directory} is formatted already; nothing was changed")]
    AlreadyFormatted { directory: String },
    /// An address that is no address of this machine.
    #[error("{key} = \"{address}\" cannot be listened on: {problem}")]
    Address {
        key: &'static str,
        address: String,
        problem: String,
    },
    /// Any node of a new cluster may be the one that creates `root`.
    #[error(
        "node.root_password is not set, but this node has no metadata yet: with more than one node it is \
         needed for the first start, the same on all"
    )]
    NoRootPassword,
    /// What one node gives up the others may have acknowledged, and they have it.
    #[error(
        "--cut is for a single node: a node of a cluster has its journal repaired by the others when it runs; \
         if it does not start, `cohort-server recover --discard-disk` has it come back from them"
    )]
    CutInCluster,
    /// There is nobody to come back from.
    #[error(
        "there is one node, and what was in {directory} nobody else has: a single node cannot come back without \
         its data directory. Put a copy in its place; or the server formats an empty directory when it starts, \
         and begins anew. If this is a node of a cluster, name its configuration by --config"
    )]
    RecoverAlone { directory: String },
    /// Nobody said that what is there may be given up.
    #[error(
        "the data directory {directory} is not empty: there is {content} in it; {about}. Nothing was changed. A \
         node whose disk is whole, or damaged in part, comes back by being started. If this disk is to be given \
         up, `cohort-server recover --discard-disk` moves all of it aside, and the node comes back from the others"
    )]
    InUse {
        directory: String,
        content: String,
        about: String,
    },
    /// The time orders the disks of a node.
    #[error(
        "the clock of this machine is before 1970 or after 2500: set it, a new disk is later than the one before"
    )]
    Clock,
    /// A snapshot that this version cannot read.
    #[error("the snapshot of consensus group {group} cannot be read by this version: {problem}")]
    Snapshot {
        group: ConsensusGroup,
        problem: String,
    },
    /// A superblock that this version cannot read.
    #[error("the superblock of consensus group {group} cannot be read by this version: {problem}")]
    Superblock {
        group: ConsensusGroup,
        problem: String,
    },
    /// The operating system.
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    /// The metadata.
    #[error(
        "the metadata is out of service, so that nobody could log in: the server does not start; \
         `cohort-server recover` says what is damaged"
    )]
    NoMetadata,
    /// A shard.
    #[error("shard {shard} did not start: {problem}")]
    Shard { shard: u16, problem: String },
}

impl StartError {
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Storage(storage::Error::Damaged { .. } | storage::Error::Uncertain { .. })
            | Self::Snapshot { .. }
            | Self::Superblock { .. }
            | Self::NoMetadata => Exit::Damaged,
            Self::Formatted { .. } | Self::Address { .. } | Self::NoRootPassword => {
                Exit::Configuration
            }
            Self::CutInCluster | Self::RecoverAlone { .. } => Exit::Usage,
            Self::Storage(_)
            | Self::Bind(_)
            | Self::NotFormatted { .. }
            | Self::AlreadyFormatted { .. }
            | Self::InUse { .. }
            | Self::Clock
            | Self::System { .. }
            | Self::Shard { .. } => Exit::CannotStart,
        }
    }
}

/// Serves until a signal comes.
pub fn serve(config: &Config) -> Exit {
    end_process_on_panic();
    let started = Instant::now();
    let node = match Node::start(config, started) {
        Ok(node) => node,
        Err(error) => {
            tracing::error!("{error}");
            if error.exit() == Exit::Damaged && config.replica_count() > 1 {
                tracing::info!(
                    "the other nodes have what this one had: `cohort-server recover --discard-disk` moves the \
                     data directory aside, and the node comes back from them"
                );
            }
            return error.exit();
        }
    };
    node.run()
}

/// What the thread that started a node hears.
enum Heard {
    Shard(ShardId, Result<Told, Failed>),
    /// A signal asks the process to end.
    Signal(&'static str),
}

/// How long a port may be in use when it is to be listened on, and how long until the next look.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// A running node.
struct Node {
    /// Ends first: it looks at the journal.
    space: SpaceWatch,
    links: Option<LinkThreads>,
    journal: JournalThread,
    threads: Vec<JoinHandle<()>>,
    heard: Receiver<Heard>,
    inboxes: Vec<InboxSender<Outside>>,
    /// The signal that ended it before it was ready.
    stopped_by: Option<&'static str>,
    /// Unlocked last.
    directory: DataDirectory,
}

/// What the data directory holds.
struct Found {
    groups: BTreeMap<ConsensusGroup, GroupStart>,
    journal: Journal,
    /// Nothing was ever written here.
    is_new: bool,
}

/// The sockets that a node listens on.
struct Listening {
    /// One for each shard.
    clients: Vec<network::Listener>,
    /// None where there are no other nodes.
    peers: Option<network::Listener>,
}

impl Listening {
    fn bind(config: &Config, shard_count: u16) -> Result<Self, StartError> {
        let address = resolve("node.address", &config.node.address)?;
        let clients = bind_shards(address, usize::from(shard_count))?;
        let peers = match &config.node.peer_address {
            None => None,
            Some(address) => {
                let address = resolve("node.peer_address", address)?;
                bind_shards(address, 1)?.pop()
            }
        };
        Ok(Self { clients, peers })
    }
}

/// A process that was killed a moment ago may keep its port a little longer: the kernel takes apart in the background
/// what it was told to do.
fn bind_shards(address: SocketAddr, count: usize) -> Result<Vec<network::Listener>, StartError> {
    let begin = Instant::now();
    let mut is_told = false;
    loop {
        match network::bind_shards(address, count) {
            Err(error)
                if error.error.kind() == io::ErrorKind::AddrInUse
                    && begin.elapsed() < BIND_PATIENCE =>
            {
                if !core::mem::replace(&mut is_told, true) {
                    tracing::info!(%address, "the port is in use: it is tried again for {BIND_PATIENCE:?}");
                }
                thread::sleep(BIND_PAUSE);
            }
            bound => return Ok(bound?),
        }
    }
}

impl Node {
    fn start(config: &Config, started: Instant) -> Result<Self, StartError> {
        let (tell, heard) = mpsc::channel();
        let is_begun = tell_signals(tell.clone())?;
        let directory = format::open(config)?;
        tell_disk(&directory);
        let shard_count = shard_count(config)?;
        let mut found = find(config, &directory)?;
        let Listening { clients, peers } = Listening::bind(config, shard_count)?;
        let address = clients[0].address();
        let (root_password, printed) = root_password(config, found.is_new)?;
        let shard_config = settings::shard(
            config,
            directory.record(),
            shard_count,
            address,
            root_password,
        );

        let bells: Vec<Notify> = (0..shard_count).map(|_| Notify::new()).collect();
        let (inboxes, own_inboxes): (Vec<_>, Vec<_>) =
            bells.iter().map(|bell| inbox(bell.clone())).unzip();
        is_begun.store(true, Ordering::SeqCst);
        let journal = start_journal(&directory, found.journal, &inboxes, shard_count)?;
        let links = start_links(config, &directory, peers, &inboxes)?;
        let driver = choose_driver(config);
        let common = Common {
            config,
            directory: &directory,
            shard_config,
            driver,
            passwords: start_passwords(config)?,
            cores: cores(config),
            journal: journal.handle(),
            links: links.as_ref().map(LinkThreads::orders).unwrap_or_default(),
            started,
            tell,
        };
        let ends = Ends {
            bells,
            inboxes: own_inboxes,
            senders: &inboxes,
            listeners: clients,
        };
        let threads = common.start_shards(ends, &mut found.groups)?;
        drop(common);
        let space = watch_space(config, &directory, &journal, &inboxes)?;
        let mut node = Self {
            space,
            links,
            journal,
            threads,
            heard,
            inboxes,
            stopped_by: None,
            directory,
        };
        node.wait_until_ready(shard_count)?;
        if node.stopped_by.is_none() {
            let elapsed = started.elapsed();
            tracing::info!(%address, shards = shard_count, driver = driver.name(), ?elapsed, "ready");
            announce(&format!("cohort-server is ready on {address}\n"));
            if let Some(password) = printed {
                announce(&format!(
                    "user root, password {password} (printed this once)\n"
                ));
            }
        }
        Ok(node)
    }

    /// Waits until all shards serve or follow, or a signal comes: the nodes of a cluster need each other.
    fn wait_until_ready(&mut self, shard_count: u16) -> Result<(), StartError> {
        let mut ready = 0;
        while ready < shard_count {
            match self.heard.recv() {
                Ok(Heard::Shard(_, Ok(Told::Ready))) => ready += 1,
                Ok(Heard::Shard(_, Ok(Told::Stopped))) => {}
                Ok(Heard::Shard(_, Err(Failed::NoMetadata))) => return Err(StartError::NoMetadata),
                Ok(Heard::Shard(shard, Err(Failed::Io(error)))) => {
                    return Err(StartError::Shard {
                        shard: shard.0,
                        problem: error.to_string(),
                    });
                }
                Ok(Heard::Signal(signal)) => {
                    self.stopped_by = Some(signal);
                    break;
                }
                Err(_) => unreachable!("what hears signals lives as long as the process"),
            }
        }
        Ok(())
    }

    /// Waits until it has to end: the signal, or what a shard died of.
    fn wait_for_signal(&self) -> Result<&'static str, (ShardId, Failed)> {
        if let Some(signal) = self.stopped_by {
            return Ok(signal);
        }
        loop {
            match self.heard.recv() {
                Ok(Heard::Signal(signal)) => return Ok(signal),
                Ok(Heard::Shard(shard, Err(problem))) => return Err((shard, problem)),
                Ok(Heard::Shard(_, Ok(Told::Ready | Told::Stopped))) => {}
                Err(_) => unreachable!("what hears signals lives as long as the process"),
            }
        }
    }

    /// Waits for a signal, then ends everything in order.
    fn run(self) -> Exit {
        match self.wait_for_signal() {
            Ok(signal) => tracing::info!(
                signal,
                "stopping: what is in flight is finished, nothing new is taken"
            ),
            Err((shard, problem)) => {
                tracing::error!(shard = shard.0, "shard failed: {problem}");
                return Exit::Failed;
            }
        }
        for inbox in &self.inboxes {
            inbox.send(Outside::Stop);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut running = self.threads.len();
        while running > 0 {
            match self
                .heard
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(Heard::Shard(_, Ok(Told::Stopped))) => running -= 1,
                Ok(Heard::Shard(_, Ok(Told::Ready)) | Heard::Signal(_)) => {}
                Ok(Heard::Shard(shard, Err(problem))) => {
                    tracing::error!(shard = shard.0, "shard failed: {problem}");
                    return Exit::Failed;
                }
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!(
                        "{running} shards are not done after {STOP_TIMEOUT:?}: the process ends"
                    );
                    return Exit::Failed;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(links) = self.links {
            links.stop();
        }
        for inbox in &self.inboxes {
            inbox.send(Outside::End);
        }
        for thread in self.threads {
            // A panic ends the process.
            let _ = thread.join();
        }
        drop(self.space);
        self.journal.stop();
        drop(self.directory);
        tracing::info!("stopped");
        Exit::Success
    }
}

/// A shard that fails leaves nothing that the others could go on with.
fn end_process_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        process::abort();
    }));
}

/// What is on the disk cannot be trusted after a failed write or flush (V18).
#[expect(clippy::needless_pass_by_value, reason = "the storage gives it away")]
pub(crate) fn fatal(error: storage::Error) {
    tracing::error!("{error}; the process ends, since nothing can be promised any more");
    process::exit(Exit::Failed.code());
}

/// Tells of signals from now on. Until what it gives is set they end the process at once: however long it takes to
/// read what is on the disk, nobody waits for anything of it.
fn tell_signals(tell: mpsc::Sender<Heard>) -> Result<Arc<AtomicBool>, StartError> {
    let what = "wait for signals";
    let is_begun = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&is_begun);
    let stop = move |name| {
        if begun.load(Ordering::SeqCst) {
            tell.send(Heard::Signal(name)).unwrap_or_default();
        } else {
            tracing::info!(signal = name, "stopped before anything was begun");
            process::exit(Exit::Success.code());
        }
    };
    signals::on_stop(stop).map_err(|source| StartError::System { what, source })?;
    Ok(is_begun)
}

fn start_links(
    config: &Config,
    directory: &DataDirectory,
    listener: Option<network::Listener>,
    inboxes: &[InboxSender<Outside>],
) -> Result<Option<LinkThreads>, StartError> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.address();
    let what = "start the threads that make links";
    let disks = Disks::open(directory, random::id())?;
    let links = peers::start(config, (directory.record(), disks), listener, inboxes)
        .map_err(|source| StartError::System { what, source })?;
    if !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "links between nodes are authenticated, not encrypted: their network must be open to nobody else"
        );
    }
    tracing::info!(%address, node = directory.record().replica.0, "listening for the other nodes");
    Ok(Some(links))
}

fn announce(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody needs to listen.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The address behind `host:port`.
fn resolve(key: &'static str, address: &str) -> Result<SocketAddr, StartError> {
    let refuse = |problem: String| StartError::Address {
        key,
        address: address.to_owned(),
        problem,
    };
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| refuse(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| refuse("the name has no address".into()))
}

fn tell_disk(directory: &DataDirectory) {
    match storage::probe_flush(directory.path(), PROBE_FLUSHES) {
        Ok(probe) => {
            tracing::info!(median = ?probe.median, slowest = ?probe.slowest, "flush of 4 KiB")
        }
        Err(error) => tracing::warn!("the disk cannot be probed: {error}"),
    }
}

fn shard_count(config: &Config) -> Result<u16, StartError> {
    if let Some(count) = config.node.shards {
        return Ok(count);
    }
    let what = "count the cores";
    let cores = network::available_cores().map_err(|source| StartError::System { what, source })?;
    Ok(u16::try_from(cores.len())
        .unwrap_or(u16::MAX)
        .clamp(1, config.cluster.data_groups.max(1)))
}

fn cores(config: &Config) -> Vec<usize> {
    if config.node.pin_cores {
        network::available_cores().unwrap_or_default()
    } else {
        Vec::new()
    }
}

fn choose_driver(config: &Config) -> network::Driver {
    let choice = network::choose_driver(config.node.force_polling);
    if let Some(warning) = &choice.warning {
        tracing::warn!("{warning}");
    }
    let shards = u64::from(config.node.shards.unwrap_or(1));
    let limits = process_limits::check(u64::from(config.node.connections.per_shard) * shards);
    if let Some(warning) = &limits.warning {
        tracing::warn!("{warning}");
    }
    choice.driver
}

fn start_passwords(config: &Config) -> Result<PasswordPool, StartError> {
    let passwords = &config.node.passwords;
    let what = "start the hashing pool";
    PasswordPool::start(passwords.threads, passwords.waiting as usize)
        .map_err(|source| StartError::System { what, source })
}

/// The hash that the first start creates `root` with, and the password if nobody knows it yet.
fn root_password(
    config: &Config,
    is_new: bool,
) -> Result<(Option<String>, Option<String>), StartError> {
    if !is_new {
        return Ok((None, None));
    }
    match &config.node.root_password {
        Some(password) => Ok((Some(password::hash(&password.0)), None)),
        None if config.replica_count() > 1 => Err(StartError::NoRootPassword),
        None => {
            let password = random::password();
            Ok((Some(password::hash(&password)), Some(password)))
        }
    }
}

fn find(config: &Config, directory: &DataDirectory) -> Result<Found, StartError> {
    let journal = settings::journal(config, directory.record());
    // Who is alone can ask nobody what was in a tail that cannot be read, and does not start.
    let uncertain = (directory.record().replica_count > 1).then_some(Uncertain::Keep);
    let mut found = scan_journal(directory.path(), journal, uncertain)?;
    tell_damage(&found);
    refuse_lost_journal(directory, &found)?;
    let snapshots = Snapshots::new(directory.path());
    let mut groups = BTreeMap::new();
    let is_rejoining = directory.record().recovered.is_some();
    let mut is_new = found.scanned.damage.is_empty() && !is_rejoining;
    for group in (0..=directory.record().data_groups).map(ConsensusGroup) {
        let snapshot = read_snapshot(&snapshots, group)?;
        let scanned = found.scanned.groups.remove(&group);
        if group == ConsensusGroup::METADATA {
            is_new &= snapshot.is_none()
                && scanned
                    .as_ref()
                    .is_none_or(|scanned| scanned.prepares.is_empty());
        }
        let mut start = GroupStart::from_disk(
            group,
            snapshot,
            scanned,
            &found.scanned.damage,
            is_rejoining,
        )
        .map_err(|error| StartError::Superblock {
            group,
            problem: error.to_string(),
        })?;
        // That a checkpoint is lost does not make a node new.
        is_new &= !start.has_lost_checkpoint();
        start.recovered.nonce = random::id();
        groups.insert(group, start);
    }
    let journal = Journal::resume(journal, found.scanned.resume);
    Ok(Found {
        groups,
        journal,
        is_new,
    })
}

fn read_snapshot(
    snapshots: &Snapshots,
    group: ConsensusGroup,
) -> Result<Option<GroupSnapshot>, StartError> {
    let (newest, damaged) = snapshots.newest(group)?;
    for error in damaged {
        tracing::error!(group = group.0, "snapshot: {error}");
    }
    let Some(newest) = newest else {
        return Ok(None);
    };
    let snapshot: GroupSnapshot =
        rmp_serde::from_slice(&newest.payload).map_err(|error| StartError::Snapshot {
            group,
            problem: error.to_string(),
        })?;
    Ok(Some(snapshot))
}

fn start_journal(
    directory: &DataDirectory,
    journal: Journal,
    inboxes: &[InboxSender<Outside>],
    shard_count: u16,
) -> Result<JournalThread, StartError> {
    let inboxes = inboxes.to_vec();
    let replica_count = directory.record().replica_count;
    let listener = move |event| match event {
        JournalEvent::Progress { shard, progress } => {
            inboxes[usize::from(shard.0)].send(Outside::Journal(progress));
        }
        JournalEvent::CheckpointWanted { group } => {
            let shard = shard_of_group(group, replica_count, shard_count);
            inboxes[usize::from(shard.0)].send(Outside::CheckpointWanted(group));
        }
    };
    let thread = JournalThread::start(
        directory.path(),
        journal,
        Box::new(listener),
        Arc::new(fatal),
    )?;
    tracing::info!(priority = %thread.priority(), "journal thread");
    Ok(thread)
}

fn watch_space(
    config: &Config,
    directory: &DataDirectory,
    journal: &JournalThread,
    inboxes: &[InboxSender<Outside>],
) -> Result<SpaceWatch, StartError> {
    let watched = Watched {
        data: directory.path().to_path_buf(),
        reserve: config.node.disk_reserve,
        journal: journal.handle(),
        inboxes: inboxes.to_vec(),
    };
    let what = "watch the space on the disk";
    SpaceWatch::start(watched).map_err(|source| StartError::System { what, source })
}

/// What all shards of a node share, or have alike.
struct Common<'a> {
    config: &'a Config,
    directory: &'a DataDirectory,
    shard_config: shard::Config,
    driver: network::Driver,
    passwords: PasswordPool,
    cores: Vec<usize>,
    journal: storage::JournalHandle,
    links: LinkOrders,
    started: Instant,
    tell: mpsc::Sender<Heard>,
}

/// What there is one of for each shard.
struct Ends<'a> {
    bells: Vec<Notify>,
    inboxes: Vec<network::Inbox<Outside>>,
    senders: &'a [InboxSender<Outside>],
    listeners: Vec<network::Listener>,
}

/// What belongs to one shard alone.
struct Own {
    notify: Notify,
    inbox: network::Inbox<Outside>,
    inbox_sender: InboxSender<Outside>,
    endpoint: network::Endpoint<Across>,
    listener: network::Listener,
}

impl Common<'_> {
    /// Starts all shards; the first, which hosts the metadata, last.
    fn start_shards(
        &self,
        ends: Ends<'_>,
        groups: &mut BTreeMap<ConsensusGroup, GroupStart>,
    ) -> Result<Vec<JoinHandle<()>>, StartError> {
        let Ends {
            bells,
            mut inboxes,
            senders,
            listeners,
        } = ends;
        let mut threads = Vec::new();
        let endpoints = network::mesh(&bells, RING);
        for (index, (endpoint, listener)) in endpoints.into_iter().zip(listeners).enumerate().rev()
        {
            let own = Own {
                notify: bells[index].clone(),
                inbox: inboxes.pop().expect("there is an inbox for every shard"),
                inbox_sender: senders[index].clone(),
                endpoint,
                listener,
            };
            threads.push(self.start_shard(index, own, groups)?);
        }
        Ok(threads)
    }

    fn start_shard(
        &self,
        index: usize,
        parts: Own,
        groups: &mut BTreeMap<ConsensusGroup, GroupStart>,
    ) -> Result<JoinHandle<()>, StartError> {
        let own = ShardId(u16::try_from(index).expect("shards are counted by a u16"));
        let shard_count = self.shard_config.shard_count;
        let replica_count = self.directory.record().replica_count;
        let is_hosted = |group| shard_of_group(group, replica_count, shard_count) == own;
        let hosted = groups.extract_if(.., |group, _| is_hosted(*group));
        let groups = hosted.map(|(_, start)| start).collect();
        let (tell, tell_failure) = (self.tell.clone(), self.tell.clone());
        let seed = Seed {
            config: shard::Config {
                shard: own,
                ..self.shard_config.clone()
            },
            groups,
            data: self.directory.path().to_path_buf(),
            core: self.cores.get(index).copied(),
            driver: self.driver,
            limits: settings::connections(self.config),
            files: start_files(self.directory, own, &parts.inbox_sender)?,
            listener: parts.listener,
            links: self.links.clone(),
            notify: parts.notify,
            endpoint: parts.endpoint,
            inbox: parts.inbox,
            inbox_sender: parts.inbox_sender,
            journal: self.journal.clone(),
            passwords: self.passwords.clone(),
            started: self.started,
            // Nobody listens any more when the process is ending.
            tell: Box::new(move |what| tell.send(Heard::Shard(own, Ok(what))).unwrap_or_default()),
        };
        let run = move || {
            if let Err(error) = shard_loop::run(seed) {
                tell_failure
                    .send(Heard::Shard(own, Err(error)))
                    .unwrap_or_default();
            }
        };
        let what = "start a shard's thread";
        thread::Builder::new()
            .name(format!("shard-{own}"))
            .spawn(run)
            .map_err(|source| StartError::System { what, source })
    }
}

fn start_files(
    directory: &DataDirectory,
    own: ShardId,
    inbox: &InboxSender<Outside>,
) -> Result<FileThreads, StartError> {
    let inbox = inbox.clone();
    let answer = Arc::new(move |done| inbox.send(Outside::Done(done)));
    Ok(FileThreads::start(
        directory.path(),
        own.0,
        answer,
        Arc::new(fatal),
    )?)
}
