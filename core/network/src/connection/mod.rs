//! The connections of one shard.
//!
//! Each connection has one reader and one writer task and lives through these phases:
//!
//! ```text
//! Open ──► Flushing ──► Lingering ──► gone
//!   └──────────┴────────────┴──► Aborted ──► gone
//! ```
//!
//! *Open*: frames are read and written. *Flushing*: the shard has seen `Closed`; what was queued is still
//! written, what arrives is discarded. *Lingering*: our end is closed and the peer's is awaited, since a
//! socket closed with unread bytes resets the connection and can take the last reply with it. *Aborted*:
//! both directions are shut down. A read in flight is never dropped, since bytes would be lost: it always
//! ends by itself or by the socket's shutdown, and only then does its task.

mod events;
mod output;
mod reader;
mod signal;
mod slots;
mod sweeper;
mod writer;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    net::{Shutdown, SocketAddr},
    rc::{Rc, Weak},
    time::Duration,
};

use bytes::Bytes;
use compio::net::{TcpListener, TcpStream};
use socket2::SockRef;
use wire::{FRAME_HEADER_SIZE, FRAME_SIZE_MAX};

pub use self::events::{CloseReason, ConnectionId, Event, SendOutcome, Statistics};
use self::{output::Output, slots::Slots};
pub(crate) use self::{reader::Input, signal::Signal, writer::write_all};
use crate::{Listener, Notify, buffers::BufferPool};

/// How much a connection may hold and how long it may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of this shard; one more is answered with `refusal` and closed.
    pub connections_max: usize,
    /// The frame that a connection over the limit gets before it is closed. May be empty.
    pub refusal: Bytes,
    /// Bytes of a frame, header included, until [`Connections::admit`] is called.
    pub frame_size_before_login: u32,
    /// Bytes of a frame, header included, afterwards.
    pub frame_size_max: u32,
    /// Bytes queued to one connection above which nothing more is read from it.
    pub queue_soft_max: usize,
    /// Bytes queued to one connection above which it is dropped at once.
    pub queue_hard_max: usize,
    /// A connection is dropped when it has been above `queue_soft_max`, or has taken no byte of what is
    /// queued, for this long.
    pub slow_timeout: Duration,
    /// A connection is closed when no frame of it arrived for this long.
    pub idle_timeout: Duration,
    /// How long a closed connection may take to read what was queued and to close its own end.
    pub linger_timeout: Duration,
    /// How often the three timeouts are looked at; they are kept to within this.
    pub sweep_interval: Duration,
    /// Bytes of buffers that this shard keeps for the next frames while it is busy.
    pub buffers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            refusal: Bytes::new(),
            frame_size_before_login: 64 * 1024,
            frame_size_max: FRAME_SIZE_MAX,
            queue_soft_max: 16 * 1024 * 1024,
            queue_hard_max: 64 * 1024 * 1024,
            slow_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            linger_timeout: Duration::from_secs(2),
            sweep_interval: Duration::from_millis(500),
            buffers_max: 16 * 1024 * 1024,
        }
    }
}

/// The connections of one shard. Clones share them; all stay on the thread of the runtime that they were
/// made in.
#[derive(Clone, Debug)]
pub struct Connections(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    notify: Notify,
    events: RefCell<VecDeque<Entry>>,
    slots: RefCell<Slots>,
    /// Those that the shard knows no more, with the sweep after which they are aborted. Their tasks hold
    /// them: the socket closes with the end of the second.
    closing: RefCell<Vec<(u64, Weak<Connection>)>>,
    listeners: RefCell<Vec<Rc<TcpListener>>>,
    pool: BufferPool,
    /// Sweeps so far: the clock of the timeouts.
    sweeps: Cell<u64>,
    /// Whether nothing is read from any connection.
    paused: Cell<bool>,
    statistics: RefCell<Statistics>,
}

/// What is queued for the shard's loop.
#[derive(Debug)]
enum Entry {
    Event(Event),
    /// Behind the frames of one read: the shard has taken them, the next read may follow. Without it a
    /// reader that always finds bytes would outrun the shard, which could not hold it back.
    Taken(Rc<Connection>),
}

#[derive(Debug)]
struct Connection {
    id: ConnectionId,
    peer: SocketAddr,
    socket: TcpStream,
    phase: Cell<Phase>,
    /// Whether the shard asked for no more frames.
    paused: Cell<bool>,
    /// Whether frames of the last read are still queued for the shard.
    untaken: Cell<bool>,
    frame_size_max: Cell<u32>,
    /// The sweep at which a frame last arrived.
    read_at: Cell<u64>,
    /// The sweep at which the peer last took a byte, or had nothing to take.
    written_at: Cell<u64>,
    /// The sweep since which the queue is above its soft limit.
    slow_since: Cell<Option<u64>>,
    output: RefCell<Output>,
    /// Bytes in `output` and in the write in flight.
    queued: Cell<usize>,
    /// Rung when reading may go on.
    readable: Signal,
    /// Rung when there is something to write, or to end.
    writable: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Flushing,
    Lingering,
    Aborted,
}

impl Connections {
    /// No connections yet; events ring `notify`.
    ///
    /// # Panics
    /// Outside a compio runtime, and when the limits contradict one another.
    #[must_use]
    pub fn new(limits: Limits, notify: Notify) -> Self {
        limits.assert_consistent();
        let shared = Rc::new(Shared {
            pool: BufferPool::new(limits.buffers_max),
            limits,
            notify,
            events: RefCell::default(),
            slots: RefCell::default(),
            closing: RefCell::default(),
            listeners: RefCell::default(),
            sweeps: Cell::new(0),
            paused: Cell::new(false),
            statistics: RefCell::default(),
        });
        compio::runtime::spawn(sweeper::sweep(Rc::downgrade(&shared))).detach();
        Self(shared)
    }

    /// Accepts what arrives at `listener`.
    ///
    /// # Errors
    /// When the socket cannot be attached to the runtime.
    pub fn listen(&self, listener: Listener) -> io::Result<()> {
        let listener = Rc::new(TcpListener::from_std(listener.socket)?);
        self.0.listeners.borrow_mut().push(Rc::clone(&listener));
        compio::runtime::spawn(events::accept(Rc::clone(&self.0), listener)).detach();
        Ok(())
    }

    /// Accepts nothing more.
    pub fn stop_listening(&self) {
        for listener in self.0.listeners.borrow_mut().drain(..) {
            // Ends the accept in flight. Not connected is what Linux says of every listener.
            let _ = SockRef::from(&*listener).shutdown(Shutdown::Both);
        }
    }

    /// Takes the oldest event. The shard takes all there are, and handles each, before it waits again: a
    /// connection's next bytes are read only when its last frames were taken.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        loop {
            let entry = self.0.events.borrow_mut().pop_front()?;
            match entry {
                Entry::Event(event) => return Some(event),
                Entry::Taken(connection) => {
                    connection.untaken.set(false);
                    connection.readable.ring();
                }
            }
        }
    }

    /// Queues a frame, in parts that are written one behind the other.
    pub fn send(&self, connection: ConnectionId, parts: Vec<Bytes>) -> SendOutcome {
        let Some(found) = self.find(connection) else {
            return SendOutcome::Gone;
        };
        let size: usize = parts.iter().map(Bytes::len).sum();
        let queued = found.queued.get() + size;
        if queued > self.0.limits.queue_hard_max {
            self.0.statistics.borrow_mut().slow += 1;
            self.0.abort(&found, CloseReason::Slow { queued });
            return SendOutcome::Gone;
        }
        self.0.queue(&found, parts, size);
        self.0.statistics.borrow_mut().frames_sent += 1;
        if queued > self.0.limits.queue_soft_max {
            SendOutcome::Slow { queued }
        } else {
            SendOutcome::Queued
        }
    }

    /// Closes the connection after what is queued is written. `Closed` follows the frames that were read
    /// before.
    pub fn close(&self, connection: ConnectionId) {
        if let Some(found) = self.find(connection) {
            self.0.finish(&found, CloseReason::Requested);
        }
    }

    /// Closes all connections and stops listening.
    pub fn close_all(&self) {
        self.stop_listening();
        let all: Vec<_> = self.0.slots.borrow().iter().cloned().collect();
        for connection in all {
            self.0.finish(&connection, CloseReason::Requested);
        }
    }

    /// Whether no socket is open any more, flushing and lingering ones included.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let gone = |(_, connection): &(u64, Weak<Connection>)| connection.strong_count() == 0;
        self.0.slots.borrow().len() == 0 && self.0.closing.borrow().iter().all(gone)
    }

    /// Hands over nothing more of the connection than what is queued already: the frames of one read, at
    /// most 256 KiB of them, or one larger frame.
    pub fn pause(&self, connection: ConnectionId) {
        if let Some(found) = self.find(connection) {
            found.paused.set(true);
        }
    }

    /// Reads on after [`Connections::pause`].
    pub fn resume(&self, connection: ConnectionId) {
        if let Some(found) = self.find(connection) {
            found.paused.set(false);
            found.read_at.set(self.0.sweeps.get());
            found.readable.ring();
        }
    }

    /// Reads nothing more from any connection, or reads on.
    pub fn pause_all(&self, paused: bool) {
        if self.0.paused.replace(paused) && !paused {
            let sweep = self.0.sweeps.get();
            for connection in self.0.slots.borrow().iter() {
                connection.read_at.set(sweep);
                connection.readable.ring();
            }
        }
    }

    /// Allows frames of the full size, after a login.
    pub fn admit(&self, connection: ConnectionId) {
        if let Some(found) = self.find(connection) {
            found.frame_size_max.set(self.0.limits.frame_size_max);
        }
    }

    /// Where the client of an open connection is.
    #[must_use]
    pub fn peer(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.find(connection).map(|found| found.peer)
    }

    /// Bytes that wait to be written to the connection; 0 when it is gone.
    #[must_use]
    pub fn queued(&self, connection: ConnectionId) -> usize {
        self.find(connection).map_or(0, |found| found.queued.get())
    }

    /// Open connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.slots.borrow().len()
    }

    /// What happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.statistics.borrow().clone()
    }

    fn find(&self, connection: ConnectionId) -> Option<Rc<Connection>> {
        self.0.slots.borrow().find(connection).cloned()
    }
}

impl Limits {
    fn assert_consistent(&self) {
        let header = u32::try_from(FRAME_HEADER_SIZE).expect("a header is small");
        assert!(self.frame_size_before_login >= header);
        assert!(self.frame_size_before_login <= self.frame_size_max);
        assert!(self.frame_size_max <= FRAME_SIZE_MAX);
        assert!(self.queue_soft_max <= self.queue_hard_max);
        assert!(!self.sweep_interval.is_zero());
    }

    /// How many sweeps `timeout` lasts.
    fn sweeps(&self, timeout: Duration) -> u64 {
        let sweeps = timeout.as_nanos().div_ceil(self.sweep_interval.as_nanos());
        u64::try_from(sweeps).unwrap_or(u64::MAX)
    }
}

impl Shared {
    fn push_event(&self, event: Event) {
        self.events.borrow_mut().push_back(Entry::Event(event));
        self.notify.notify();
    }

    /// Takes up a connection: its tasks start, its first event is queued.
    fn open(self: &Rc<Self>, socket: TcpStream, peer: SocketAddr) {
        let connection = self.slots.borrow_mut().insert(|id| Connection {
            id,
            peer,
            socket,
            phase: Cell::new(Phase::Open),
            paused: Cell::new(false),
            untaken: Cell::new(false),
            frame_size_max: Cell::new(self.limits.frame_size_before_login),
            read_at: Cell::new(self.sweeps.get()),
            written_at: Cell::new(self.sweeps.get()),
            slow_since: Cell::new(None),
            output: RefCell::default(),
            queued: Cell::new(0),
            readable: Signal::default(),
            writable: Signal::default(),
        });
        self.statistics.borrow_mut().opened += 1;
        let id = connection.id;
        self.push_event(Event::Opened {
            connection: id,
            peer,
        });
        compio::runtime::spawn(reader::read(Rc::clone(self), Rc::clone(&connection))).detach();
        compio::runtime::spawn(writer::write(Rc::clone(self), connection)).detach();
    }

    /// Ends an open connection for the shard; what is queued is still written.
    fn finish(&self, connection: &Rc<Connection>, reason: CloseReason) {
        if self.retire(connection, reason) {
            connection.phase.set(Phase::Flushing);
            connection.wake();
        }
    }

    /// Ends a connection in whatever phase, and forgets what is queued.
    fn abort(&self, connection: &Rc<Connection>, reason: CloseReason) {
        self.retire(connection, reason);
        if connection.phase.replace(Phase::Aborted) != Phase::Aborted {
            connection.forget_queue();
            // Fails when the peer has reset the connection already, which is as good.
            let _ = SockRef::from(&connection.socket).shutdown(Shutdown::Both);
            connection.wake();
        }
    }

    /// Says `Closed`, once: no event of this connection follows, and nothing can be sent to it.
    fn retire(&self, connection: &Rc<Connection>, reason: CloseReason) -> bool {
        if !self.slots.borrow_mut().remove(connection.id) {
            return false;
        }
        let deadline = self.sweeps.get() + 1 + self.limits.sweeps(self.limits.linger_timeout);
        self.closing
            .borrow_mut()
            .push((deadline, Rc::downgrade(connection)));
        self.statistics.borrow_mut().closed += 1;
        self.push_event(Event::Closed {
            connection: connection.id,
            reason,
        });
        true
    }

    fn queue(&self, connection: &Connection, parts: Vec<Bytes>, size: usize) {
        let before = connection.queued.get();
        if before == 0 {
            connection.written_at.set(self.sweeps.get());
            connection.writable.ring();
        }
        connection.queued.set(before + size);
        let mut output = connection.output.borrow_mut();
        for part in parts {
            output.push(part, &self.pool);
        }
    }

    /// Whether the next read must wait.
    fn holds_back(&self, connection: &Connection) -> bool {
        connection.phase.get() == Phase::Open
            && (self.paused.get()
                || connection.paused.get()
                || connection.untaken.get()
                || connection.queued.get() > self.limits.queue_soft_max)
    }
}

impl Connection {
    fn forget_queue(&self) {
        let forgotten = self.output.borrow_mut().clear();
        self.queued.set(self.queued.get() - forgotten);
    }

    fn wake(&self) {
        self.readable.ring();
        self.writable.ring();
    }
}

#[cfg(test)]
mod tests;
