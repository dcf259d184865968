//! The links of one shard.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
    net::Shutdown,
    rc::Rc,
};

use bytes::Bytes;
use compio::{buf::BufResult, io::AsyncRead, net::TcpStream};
use socket2::SockRef;
use wire::{FrameHeader, FrameKind, PEER_FRAME_SIZE_MAX, ReplicaId};

use super::{NewLink, queue::Queue};
use crate::{
    Notify,
    buffers::BufferPool,
    connection::{Input, Signal, write_all},
    decoder::take_frames,
};

/// The code of all frames but those of a handshake.
const MESSAGE: u32 = 0;

/// A body below this is copied out of the buffer that it was read into, so that what is kept of it does not
/// keep all the rest.
const COPIED_MAX: usize = 64 * 1024;

/// Bounds of a shard's links.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    /// Bytes that may wait for one link, without those of frames that are kept; what does not fit is dropped.
    pub queue_max: usize,
    /// Bytes of buffers that are kept for the next frames while the links are busy.
    pub buffers_max: usize,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            queue_max: 32 * 1024 * 1024,
            buffers_max: 8 * 1024 * 1024,
        }
    }
}

/// Whether a frame may overtake others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It keeps its place, and is dropped when too much waits.
    Normal,
    /// It keeps its place, and comes as long as the link holds: nobody says it again.
    Kept,
    /// It goes before others when much waits. For small frames whose order does not matter.
    High,
}

/// Counts since the start, of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Frames queued to be sent.
    pub sent: u64,
    /// Frames dropped because too much waits, or there is no link.
    pub dropped: u64,
    /// Frames received.
    pub received: u64,
}

/// What has gone over the links since it was last asked for. That of small frames alone is not told: they come and
/// go all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Nodes of which a large frame has come, or a part of one. What they have said since may be behind it.
    pub receiving: BTreeSet<ReplicaId>,
    /// Whether bytes were sent that others wait behind.
    pub is_sending: bool,
}

/// The links of one shard. Clones share them; all stay on the thread of the runtime that they were made in.
#[derive(Clone, Debug)]
pub struct Links(Rc<Shared>);

struct Shared {
    limits: LinkLimits,
    notify: Notify,
    /// Asks for a new link to a node.
    lost: Box<dyn Fn(ReplicaId)>,
    outgoing: RefCell<BTreeMap<ReplicaId, Rc<Outgoing>>>,
    /// By node and its shard.
    incoming: RefCell<BTreeMap<(ReplicaId, u16), Rc<Incoming>>>,
    received: RefCell<VecDeque<Entry>>,
    pool: BufferPool,
    statistics: Cell<LinkStatistics>,
    traffic: RefCell<Traffic>,
}

enum Entry {
    Frame(ReplicaId, Bytes),
    /// Behind the frames of one read: the shard has taken them, the next read may follow.
    Taken(Rc<Incoming>),
}

#[derive(Debug)]
struct Outgoing {
    peer: ReplicaId,
    socket: TcpStream,
    queue: RefCell<Queue>,
    /// Bytes of the write in flight.
    writing: Cell<usize>,
    ended: Cell<bool>,
    writable: Signal,
}

#[derive(Debug)]
struct Incoming {
    peer: ReplicaId,
    shard: u16,
    socket: TcpStream,
    untaken: Cell<bool>,
    ended: Cell<bool>,
    readable: Signal,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("outgoing", &self.outgoing)
            .field("incoming", &self.incoming)
            .finish_non_exhaustive()
    }
}

impl Links {
    /// No links yet; frames that arrive ring `notify`, and `lost` is told the node whose link has ended.
    #[must_use]
    pub fn new(limits: LinkLimits, notify: Notify, lost: impl Fn(ReplicaId) + 'static) -> Self {
        Self(Rc::new(Shared {
            pool: BufferPool::new(limits.buffers_max),
            limits,
            notify,
            lost: Box::new(lost),
            outgoing: RefCell::default(),
            incoming: RefCell::default(),
            received: RefCell::default(),
            statistics: Cell::default(),
            traffic: RefCell::default(),
        }))
    }

    /// Sends over this link from now on.
    ///
    /// # Errors
    /// When the socket cannot be attached to the runtime; another link is asked for.
    pub fn add_outgoing(&self, link: NewLink) -> io::Result<()> {
        let socket = TcpStream::from_std(link.socket).inspect_err(|_| (self.0.lost)(link.peer))?;
        let link = Rc::new(Outgoing {
            peer: link.peer,
            socket,
            queue: RefCell::default(),
            writing: Cell::new(0),
            ended: Cell::new(false),
            writable: Signal::default(),
        });
        let before = self
            .0
            .outgoing
            .borrow_mut()
            .insert(link.peer, Rc::clone(&link));
        if let Some(before) = before {
            before.end();
        }
        compio::runtime::spawn(write(Rc::clone(&self.0), Rc::clone(&link))).detach();
        compio::runtime::spawn(wait_for_end(Rc::clone(&self.0), link)).detach();
        Ok(())
    }

    /// Reads from this link. One from the same shard of the same node takes the place of an older one.
    ///
    /// # Errors
    /// When the socket cannot be attached to the runtime; the other end then makes another link.
    pub fn add_incoming(&self, link: NewLink) -> io::Result<()> {
        let key = (link.peer, link.shard);
        let link = Rc::new(Incoming {
            peer: link.peer,
            shard: link.shard,
            socket: TcpStream::from_std(link.socket)?,
            untaken: Cell::new(false),
            ended: Cell::new(false),
            readable: Signal::default(),
        });
        let before = self.0.incoming.borrow_mut().insert(key, Rc::clone(&link));
        if let Some(before) = before {
            before.end();
        }
        compio::runtime::spawn(read(Rc::clone(&self.0), link)).detach();
        Ok(())
    }

    /// Queues a frame with this body, in parts. Says whether it will be sent, as far as the link holds;
    /// otherwise nothing of it is. A link that cannot keep what is to be kept ends.
    ///
    /// # Panics
    /// When the frame would be larger than [`PEER_FRAME_SIZE_MAX`].
    pub fn send(&self, to: ReplicaId, body: Vec<Bytes>, urgency: Urgency) -> bool {
        let outgoing = self.0.outgoing.borrow();
        let is_queued = outgoing.get(&to).is_some_and(|link| {
            let frame = FrameHeader::peer(MESSAGE).frame_of_parts(body);
            let room = self.0.limits.queue_max.saturating_sub(link.writing.get());
            let is_queued = link.queue.borrow_mut().push(frame, urgency, room);
            link.writable.ring();
            if !is_queued && urgency == Urgency::Kept {
                tracing::warn!(
                    node = to.0,
                    "a node does not read what it is sent: its link is ended"
                );
                link.end();
            }
            is_queued
        });
        self.0.count(|statistics| match is_queued {
            true => statistics.sent += 1,
            false => statistics.dropped += 1,
        });
        let dropped = self.statistics().dropped;
        if !is_queued && outgoing.contains_key(&to) && dropped.is_power_of_two() {
            tracing::warn!(
                node = to.0,
                dropped,
                "a node does not read what it is sent: frames are dropped"
            );
        }
        is_queued
    }

    /// The next frame that has arrived: who sent it, and its body. The shard takes all there are before it
    /// waits again: a link is read on only when its last frames were taken.
    #[must_use]
    pub fn next_frame(&self) -> Option<(ReplicaId, Bytes)> {
        loop {
            let entry = self.0.received.borrow_mut().pop_front()?;
            match entry {
                Entry::Frame(from, body) => return Some((from, body)),
                Entry::Taken(link) => {
                    link.untaken.set(false);
                    link.readable.ring();
                }
            }
        }
    }

    /// Ends the links over which a node sends: what it says makes no sense.
    pub fn cut_incoming(&self, from: ReplicaId) {
        let incoming = self.0.incoming.borrow();
        let all = incoming.values().filter(|link| link.peer == from);
        all.for_each(|link| link.end());
    }

    /// What happened so far.
    #[must_use]
    pub fn statistics(&self) -> LinkStatistics {
        self.0.statistics.get()
    }

    /// What has gone over them since this was last asked.
    #[must_use]
    pub fn take_traffic(&self) -> Traffic {
        self.0.traffic.take()
    }

    /// Ends all links, and asks for no new ones.
    pub fn close_all(&self) {
        let outgoing = std::mem::take(&mut *self.0.outgoing.borrow_mut());
        outgoing.values().for_each(|link| link.end());
        let incoming = std::mem::take(&mut *self.0.incoming.borrow_mut());
        incoming.values().for_each(|link| link.end());
    }
}

impl Shared {
    fn count(&self, count: impl FnOnce(&mut LinkStatistics)) {
        let mut statistics = self.statistics.get();
        count(&mut statistics);
        self.statistics.set(statistics);
    }

    /// Forgets a link that has ended, and asks for another one, unless there is one already.
    fn on_end(&self, link: &Rc<Outgoing>) {
        link.end();
        let mut outgoing = self.outgoing.borrow_mut();
        let current = outgoing.get(&link.peer);
        if current.is_some_and(|current| Rc::ptr_eq(current, link)) {
            outgoing.remove(&link.peer);
            drop(outgoing);
            (self.lost)(link.peer);
        }
    }
}

impl Outgoing {
    /// Ends the write and the read in flight, and with them the tasks.
    fn end(&self) {
        if !self.ended.replace(true) {
            // Not connected is what a reset leaves.
            let _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
        }
        self.writable.ring();
    }
}

impl Incoming {
    fn end(&self) {
        if !self.ended.replace(true) {
            // Not connected is what a reset leaves.
            let _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
        }
        self.readable.ring();
    }
}

/// Writes what is queued until the link ends.
async fn write(shared: Rc<Shared>, link: Rc<Outgoing>) {
    while !link.ended.get() {
        let pieces = link.queue.borrow_mut().take();
        if pieces.is_empty() {
            let ready = || link.ended.get() || !link.queue.borrow().is_empty();
            link.writable.wait_until(ready).await;
            continue;
        }
        link.writing.set(pieces.iter().map(Bytes::len).sum());
        let moved = || shared.traffic.borrow_mut().is_sending = true;
        if let Err(error) = write_all(&link.socket, pieces, moved).await {
            tracing::debug!(node = link.peer.0, "link: {error}");
            return shared.on_end(&link);
        }
        link.writing.set(0);
        if !link.queue.borrow().is_empty() {
            moved();
        }
    }
}

/// Nothing comes over an outgoing link but its end.
async fn wait_for_end(shared: Rc<Shared>, link: Rc<Outgoing>) {
    let BufResult(result, _) = (&link.socket).read(Vec::with_capacity(16)).await;
    if !link.ended.get() {
        match result {
            Ok(0) => tracing::info!(node = link.peer.0, "a link to a node was closed by it"),
            Ok(_) => tracing::warn!(
                node = link.peer.0,
                "a node speaks on a link that is not its own"
            ),
            Err(error) => tracing::info!(node = link.peer.0, "a link to a node has ended: {error}"),
        }
    }
    shared.on_end(&link);
}

/// Reads frames until the link ends.
async fn read(shared: Rc<Shared>, link: Rc<Incoming>) {
    let mut input = Input::new();
    if let Err(problem) = read_frames(&shared, &link, &mut input).await {
        tracing::warn!(node = link.peer.0, "a link from a node is cut: {problem}");
    }
    input.release(&shared.pool);
    link.end();
    let key = (link.peer, link.shard);
    let mut incoming = shared.incoming.borrow_mut();
    if incoming
        .get(&key)
        .is_some_and(|current| Rc::ptr_eq(current, &link))
    {
        incoming.remove(&key);
    }
}

async fn read_frames(
    shared: &Rc<Shared>,
    link: &Rc<Incoming>,
    input: &mut Input,
) -> Result<(), String> {
    loop {
        link.readable
            .wait_until(|| link.ended.get() || !link.untaken.get())
            .await;
        if link.ended.get() {
            return Ok(());
        }
        match input.read(&link.socket, &shared.pool).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
        let mut received = shared.received.borrow_mut();
        let before = received.len();
        let (mut is_foreign, mut is_large) = (false, false);
        let end = take_frames(input.buffer_mut(), PEER_FRAME_SIZE_MAX, |header, body| {
            is_foreign |= header.frame_kind() != Some(FrameKind::Peer) || header.code != MESSAGE;
            is_large |= body.len() >= COPIED_MAX;
            if !is_foreign {
                received.push_back(Entry::Frame(link.peer, detached(body)));
            }
        });
        let frames = received.len() - before;
        if frames > 0 {
            link.untaken.set(true);
            received.push_back(Entry::Taken(Rc::clone(link)));
            shared.notify.notify();
        }
        drop(received);
        // What the next frame needs is known when its header is there.
        is_large |= end.as_ref().is_ok_and(|needed| *needed >= COPIED_MAX);
        if is_large {
            shared.traffic.borrow_mut().receiving.insert(link.peer);
        }
        shared.count(|statistics| statistics.received += frames as u64);
        if is_foreign {
            return Err("a frame that is none of a link".into());
        }
        match end {
            Ok(needed) => input.set_needed(needed),
            Err(bad) => return Err(bad.error.to_string()),
        }
    }
}

fn detached(body: Bytes) -> Bytes {
    match body.len() < COPIED_MAX {
        true => Bytes::copy_from_slice(&body),
        false => body,
    }
}
