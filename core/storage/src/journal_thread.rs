//! The one thread that writes and flushes the journal, for all shards.
//!
//! It takes everything that is queued, makes one write and one flush, and tells each shard once. While a
//! flush is under way the next frame gathers.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use journal::{Effect, FileId, Input, Journal, Progress, Record};
use wire::{ConsensusGroup, Op, PrepareHeader, ShardId};

use crate::{
    Error, Priority,
    journal_files::{JournalFile, path_of, prepare, zero},
    journal_reads::{PrepareAnswer, PrepareRead, read_prepares},
    paths::journal_directory,
    priority,
};

/// How long no record must come until the last frame is covered by an empty one.
const QUIET: Duration = Duration::from_millis(1);

/// How long until a full disk is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What the journal tells a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    /// How far a shard's records are durable.
    Progress {
        /// The shard.
        shard: ShardId,
        /// How far.
        progress: Progress,
    },
    /// The journal needs room: a checkpoint of this group would free the oldest file.
    CheckpointWanted {
        /// The group.
        group: ConsensusGroup,
    },
}

/// Told what happens, on the journal's thread; it puts the event into a shard's inbox.
type Listener = Box<dyn FnMut(JournalEvent) + Send>;

/// Told why the journal cannot go on; ends the process. A failed flush is never tried again: the page
/// cache may have forgotten what it did not write (V18).
type Fatal = Arc<dyn Fn(Error) + Send + Sync>;

/// The running thread.
#[derive(Debug)]
pub struct JournalThread {
    handle: JournalHandle,
    /// The journal's, then the one that makes its files, then the one that reads them.
    threads: [JoinHandle<()>; 3],
    priority: Priority,
}

/// Hands records to the journal; one for each shard.
#[derive(Clone, Debug)]
pub struct JournalHandle(Arc<Mailbox>);

#[derive(Debug, Default)]
struct Mailbox {
    queue: Mutex<Queue>,
    bell: Condvar,
    /// The journal waits for the file that is being made.
    hurries: AtomicBool,
    /// No further file can be made: the disk is full.
    is_full: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    messages: Vec<Message>,
    /// Whether the thread sleeps, so that ringing costs a system call only then.
    parked: bool,
}

#[derive(Debug)]
enum Message {
    Records(ShardId, Vec<Record>),
    Prepared(FileId),
    Suspend(ConsensusGroup),
    Read(WantedPrepare),
    /// There is no space for the next file.
    Full,
    Stop,
}

/// A prepare that somebody asks for.
struct WantedPrepare {
    group: ConsensusGroup,
    op: Op,
    checksum: u128,
    answer: PrepareAnswer,
}

impl std::fmt::Debug for WantedPrepare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, op, .. } = self;
        write!(f, "WantedPrepare({group}, {op})")
    }
}

impl JournalHandle {
    /// Reads the prepare with this checksum back, on a thread of its own. The answer is none when no file has
    /// it any more, or its bytes are damaged.
    pub fn read_prepare(
        &self,
        group: ConsensusGroup,
        op: Op,
        checksum: u128,
        answer: impl FnOnce(Option<(PrepareHeader, Bytes)>) + Send + 'static,
    ) {
        let answer = Box::new(answer);
        self.send(Message::Read(WantedPrepare {
            group,
            op,
            checksum,
            answer,
        }));
    }

    /// Hands over what a shard wants durable, in order. The vector is left empty.
    pub fn submit(&self, shard: ShardId, records: &mut Vec<Record>) {
        if !records.is_empty() {
            self.send(Message::Records(shard, std::mem::take(records)));
        }
    }

    /// Says that a group is out of service: it cannot free what the journal keeps of it.
    pub fn suspend(&self, group: ConsensusGroup) {
        self.send(Message::Suspend(group));
    }

    /// Whether no further file of the journal can be made because the disk is full. Nothing that does not
    /// fit into the last one becomes durable until there is space; this turns false by itself then.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.0.is_full.load(Ordering::Relaxed)
    }

    /// Whether something waits already for a file that cannot be made because the disk is full.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.is_disk_full() && self.0.hurries.load(Ordering::Relaxed)
    }

    fn send(&self, message: Message) {
        let mut queue = self.lock();
        queue.messages.push(message);
        if queue.parked {
            queue.parked = false;
            drop(queue);
            self.0.bell.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was handed over; waits for something, `timeout` at the longest. Empty after a
    /// time-out.
    fn receive(&self, timeout: Option<Duration>) -> Vec<Message> {
        let mut queue = self.lock();
        if queue.messages.is_empty() {
            queue.parked = true;
            queue = match timeout {
                None => self
                    .0
                    .bell
                    .wait_while(queue, |queue| queue.messages.is_empty())
                    .unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self
                        .0
                        .bell
                        .wait_timeout_while(queue, timeout, |queue| queue.messages.is_empty());
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            queue.parked = false;
        }
        std::mem::take(&mut queue.messages)
    }

    fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.lock().messages)
    }
}

impl JournalThread {
    /// Starts the journal of a data directory where its scan ended, and waits until everything that the
    /// scan found is safe on the disk again.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        data: &Path,
        journal: Journal,
        listener: Listener,
        fatal: Fatal,
    ) -> Result<Self, Error> {
        let directory = journal_directory(data);
        let handle = JournalHandle(Arc::new(Mailbox::default()));
        let (files, orders) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let maker = spawn("journal-files", &directory, {
            let (directory, handle, fatal) =
                (directory.clone(), handle.clone(), Arc::clone(&fatal));
            move || make_files(&directory, &orders, &handle, &fatal)
        })?;
        let (reads, wanted) = mpsc::channel();
        let reader = spawn("journal-reads", &directory, {
            let (directory, config) = (directory.clone(), *journal.config());
            move || read_prepares(&directory, &config, &wanted)
        })?;
        let thread = spawn("journal", &directory, {
            let (directory, handle) = (directory.clone(), handle.clone());
            let mut writer = Writer {
                directory,
                handle,
                journal,
                listener,
                files,
                reads,
                open: BTreeMap::new(),
            };
            move || {
                let priority = priority::raise();
                if let Err(error) = writer.run(|| ready.send(priority).is_ok()) {
                    fatal(error);
                }
            }
        })?;
        // An error means that the thread has ended, which `fatal` was told of.
        let priority = is_ready.recv().unwrap_or(Priority::Normal);
        Ok(Self {
            handle,
            threads: [thread, maker, reader],
            priority,
        })
    }

    /// Hands records over.
    #[must_use]
    pub fn handle(&self) -> JournalHandle {
        self.handle.clone()
    }

    /// What the operating system has granted.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// Writes and flushes what was handed over, and ends the threads.
    pub fn stop(self) {
        self.handle.send(Message::Stop);
        for thread in self.threads {
            // A panic of the thread was told on standard error.
            let _ = thread.join();
            // A file in the making is of no use any more.
            self.handle.0.hurries.store(true, Ordering::Relaxed);
        }
    }
}

fn spawn(
    name: &str,
    directory: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(Error::io("start a thread for", directory))
}

/// An order for the thread that makes files.
#[derive(Debug)]
enum Order {
    Prepare {
        file: FileId,
        from: Option<FileId>,
        size: u64,
    },
    Delete {
        file: FileId,
    },
}

fn make_files(directory: &Path, orders: &Receiver<Order>, handle: &JournalHandle, fatal: &Fatal) {
    for order in orders {
        let made = match order {
            Order::Prepare { file, from, size } => {
                match make_file(directory, orders, handle, (file, from, size)) {
                    Some(made) => made.map(|()| handle.send(Message::Prepared(file))),
                    None => return,
                }
            }
            Order::Delete { file } => delete(directory, file),
        };
        if let Err(error) = made {
            return fatal(error);
        }
    }
}

/// Makes a file, as soon as there is space for it; `None` when nobody waits for it any more.
fn make_file(
    directory: &Path,
    orders: &Receiver<Order>,
    handle: &JournalHandle,
    (file, from, size): (FileId, Option<FileId>, u64),
) -> Option<Result<(), Error>> {
    let Mailbox {
        hurries, is_full, ..
    } = &*handle.0;
    loop {
        match prepare(directory, file, from, size, hurries) {
            Err(error) if error.is_full() => {
                if !is_full.swap(true, Ordering::Relaxed) {
                    tracing::error!("{error}; what does not fit into the last one has to wait");
                    handle.send(Message::Full);
                }
            }
            made => {
                hurries.store(false, Ordering::Relaxed);
                if is_full.swap(false, Ordering::Relaxed) {
                    tracing::info!("there is space for the journal again");
                }
                return Some(made);
            }
        }
        match orders.recv_timeout(RETRY) {
            Ok(Order::Delete { file }) => {
                if let Err(error) = delete(directory, file) {
                    return Some(Err(error));
                }
            }
            // One file is made at a time.
            Ok(Order::Prepare { .. }) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

fn delete(directory: &Path, file: FileId) -> Result<(), Error> {
    let path = path_of(directory, file);
    match fs::remove_file(&path).map_err(Error::io("delete", &path)) {
        Err(error) if error.is_missing() => Ok(()),
        other => other,
    }
}

struct Writer {
    directory: PathBuf,
    handle: JournalHandle,
    journal: Journal,
    listener: Listener,
    files: Sender<Order>,
    reads: Sender<PrepareRead>,
    open: BTreeMap<FileId, JournalFile>,
}

impl Writer {
    fn run(&mut self, mut tell_ready: impl FnMut() -> bool) -> Result<(), Error> {
        let mut told = false;
        let mut stopping = false;
        loop {
            let mut messages = self.handle.take();
            while let Some(effect) = self.next_effect(&mut messages, &mut stopping) {
                self.carry_out(effect)?;
                messages = self.handle.take();
            }
            if !told && self.journal.is_ready() {
                told = tell_ready();
            }
            let wants_quiet = self.journal.wants_quiet();
            let stalled = self.journal.is_stalled();
            self.handle.0.hurries.store(stalled, Ordering::Relaxed);
            if stopping {
                if wants_quiet {
                    // The next start then finds nothing that it has to wonder about.
                    self.journal.handle(Input::Quiet);
                    continue;
                }
                // What waits for space that does not come was never acknowledged.
                if !stalled || self.handle.is_disk_full() {
                    return Ok(());
                }
            }
            let messages = self.handle.receive(wants_quiet.then_some(QUIET));
            if messages.is_empty() && wants_quiet {
                self.journal.handle(Input::Quiet);
            }
            self.feed(messages, &mut stopping);
        }
    }

    /// Feeds what has come since, so that it goes into the next frame, then asks what to do.
    fn next_effect(&mut self, messages: &mut Vec<Message>, stopping: &mut bool) -> Option<Effect> {
        self.feed(std::mem::take(messages), stopping);
        self.journal.next_effect()
    }

    fn feed(&mut self, messages: Vec<Message>, stopping: &mut bool) {
        for message in messages {
            match message {
                Message::Records(shard, records) => {
                    for record in records {
                        self.journal.handle(Input::Record { shard, record });
                    }
                }
                Message::Prepared(file) => self.journal.handle(Input::Prepared { file }),
                Message::Suspend(group) => self.journal.handle(Input::Suspend { group }),
                Message::Read(wanted) => self.locate(wanted),
                Message::Full => {}
                Message::Stop => *stopping = true,
            }
        }
    }

    /// Lets the reading thread look where this prepare may be.
    fn locate(&self, wanted: WantedPrepare) {
        let WantedPrepare {
            group,
            op,
            checksum,
            answer,
        } = wanted;
        // The receiver ends only when this thread has.
        let _ = self.reads.send(PrepareRead {
            places: self.journal.locate(group, op),
            wanted: (group, op, checksum),
            answer,
        });
    }

    /// Writes a frame. Nearly always its flush is next, and goes with it.
    fn write(&mut self, file: FileId, position: u64) -> Result<(), Error> {
        let path = self.open(file)?;
        let next = self.journal.next_effect();
        let open = &self.open[&file];
        if matches!(next, Some(Effect::Flush { file: flushed }) if flushed == file) {
            let written = open.write_durable(self.journal.frame(), position);
            written.map_err(Error::io("write and flush", &path))?;
            self.journal.handle(Input::Flushed);
            return Ok(());
        }
        let written = open.write(self.journal.frame(), position);
        written.map_err(Error::io("write", &path))?;
        match next {
            Some(next) => self.carry_out(next),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Write { file, position } => self.write(file, position)?,
            Effect::Zero {
                file,
                position,
                length,
            } => {
                let path = self.open(file)?;
                zero(&self.open[&file].cached, position, length)
                    .map_err(Error::io("write", &path))?;
            }
            Effect::Flush { file } => {
                let path = self.open(file)?;
                self.open[&file]
                    .cached
                    .sync_data()
                    .map_err(Error::io("flush", &path))?;
                self.journal.handle(Input::Flushed);
            }
            Effect::Prepare { file, from, size } => {
                if let Some(from) = from {
                    self.open.remove(&from);
                }
                self.order(Order::Prepare { file, from, size });
            }
            Effect::Delete { file } => {
                self.open.remove(&file);
                self.order(Order::Delete { file });
            }
            Effect::Read {
                file,
                position,
                length,
            } => {
                self.open(file)?;
                let mut bytes = vec![0; length as usize];
                // What cannot be read is told as such; the journal knows what that means.
                let bytes = match self.open[&file].cached.read_exact_at(&mut bytes, position) {
                    Ok(()) => Bytes::from(bytes),
                    Err(_) => Bytes::new(),
                };
                self.journal.handle(Input::Read {
                    file,
                    position,
                    bytes,
                });
            }
            Effect::Progress { shard, progress } => {
                (self.listener)(JournalEvent::Progress { shard, progress });
            }
            Effect::CheckpointWanted { group, .. } => {
                (self.listener)(JournalEvent::CheckpointWanted { group });
            }
        }
        Ok(())
    }

    fn order(&self, order: Order) {
        // The receiver ends only after `fatal` was told why.
        let _ = self.files.send(order);
    }

    /// Opens a file unless it is open, and names it.
    fn open(&mut self, file: FileId) -> Result<PathBuf, Error> {
        let path = path_of(&self.directory, file);
        if !self.open.contains_key(&file) {
            // The current file and the one before it are all that is written.
            while self.open.len() >= 4 {
                self.open.pop_first();
            }
            let opened = JournalFile::open(&path);
            self.open
                .insert(file, opened.map_err(Error::io("open", &path))?);
        }
        Ok(path)
    }
}
