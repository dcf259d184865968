//! Reads one connection.

use std::{io, rc::Rc};

use bytes::BytesMut;
use compio::{
    buf::{BufResult, IntoInner, IoBufExt},
    io::AsyncRead,
    net::TcpStream,
};
use wire::FRAME_HEADER_SIZE;

use super::{CloseReason, Connection, Entry, Event, Phase, Shared};
use crate::{
    buffers::BufferPool,
    decoder::{BadFrame, take_frames, unfinished},
};

/// What a connection that says little reads into. Memory that was never touched costs nothing, and the
/// front is used again and again while frames are small: a silent connection holds one page or two of this.
const IDLE_BUFFER: usize = 32 * 1024;

/// A smaller rest of an idle buffer is not read into.
const IDLE_ROOM_MIN: usize = 8 * 1024;

/// What is read at once while more is waiting than an idle buffer takes.
const BUSY_BUFFER: usize = 256 * 1024;

/// A smaller rest of a busy buffer is not read into.
const BUSY_ROOM_MIN: usize = 64 * 1024;

/// A frame above this is read straight into a buffer of its size.
const OWN_BUFFER_MIN: usize = 64 * 1024;

/// Bytes that are read and discarded of a connection that is closing, before it is cut off.
const DISCARD_MAX: usize = 64 * 1024 * 1024;

/// Reads frames until the connection ends, then discards what still comes until the peer closes its end.
pub(super) async fn read(shared: Rc<Shared>, connection: Rc<Connection>) {
    let mut input = Input::new();
    read_frames(&shared, &connection, &mut input).await;
    // What it holds is not needed while the connection lingers.
    input.release(&shared.pool);
    discard(&shared, &connection).await;
}

async fn read_frames(shared: &Rc<Shared>, connection: &Rc<Connection>, input: &mut Input) {
    loop {
        shared.wait_to_read(connection).await;
        if connection.phase.get() != Phase::Open {
            return;
        }
        let count = match input.read(&connection.socket, &shared.pool).await {
            Ok(count) => count,
            Err(error) => return shared.abort(connection, CloseReason::Failed(error.kind())),
        };
        // What came although the shard asked for no more waits here.
        shared.wait_to_read(connection).await;
        if connection.phase.get() != Phase::Open {
            return;
        }
        if count == 0 {
            if let Some(bad) = unfinished(&input.buffer, input.needed) {
                shared.refuse_frame(connection, bad);
            }
            return shared.finish(connection, CloseReason::Peer);
        }
        if let Err(bad) = shared.hand_over(connection, input, count) {
            return shared.refuse_frame(connection, bad);
        }
    }
}

/// After the frames: keeps the peer's bytes from resetting the connection before it has read ours.
async fn discard(shared: &Rc<Shared>, connection: &Rc<Connection>) {
    let mut discarded = 0;
    let mut buffer = Vec::with_capacity(IDLE_BUFFER);
    while connection.phase.get() != Phase::Aborted {
        buffer.clear();
        let BufResult(result, returned) = (&connection.socket).read(buffer).await;
        buffer = returned;
        match result {
            Ok(0) if connection.phase.get() == Phase::Open => {
                return shared.finish(connection, CloseReason::Peer);
            }
            Ok(0) => return,
            Ok(count) => discarded += count,
            Err(error) => return shared.abort(connection, CloseReason::Failed(error.kind())),
        }
        if discarded > DISCARD_MAX {
            return shared.abort(connection, CloseReason::Requested);
        }
        if buffer.capacity() < BUSY_BUFFER && discarded > IDLE_BUFFER {
            buffer = Vec::with_capacity(BUSY_BUFFER);
        }
    }
}

impl Shared {
    async fn wait_to_read(&self, connection: &Connection) {
        if self.holds_back(connection) {
            let goes_on = || !self.holds_back(connection);
            connection.readable.wait_until(goes_on).await;
        }
    }

    /// Queues the events of the frames that are whole.
    fn hand_over(
        &self,
        connection: &Rc<Connection>,
        input: &mut Input,
        count: usize,
    ) -> Result<(), BadFrame> {
        let mut events = self.events.borrow_mut();
        let before = events.len();
        let id = connection.id;
        let size_max = connection.frame_size_max.get();
        let end = take_frames(&mut input.buffer, size_max, |header, body| {
            events.push_back(Entry::Event(Event::Frame {
                connection: id,
                header,
                body,
            }));
        });
        let frames = events.len() - before;
        if frames > 0 {
            connection.untaken.set(true);
            events.push_back(Entry::Taken(Rc::clone(connection)));
        }
        drop(events);
        let mut statistics = self.statistics.borrow_mut();
        statistics.bytes_received += count as u64;
        statistics.frames_received += frames as u64;
        if frames > 0 {
            connection.read_at.set(self.sweeps.get());
            self.notify.notify();
        }
        input.needed = end?;
        Ok(())
    }

    fn refuse_frame(&self, connection: &Connection, bad: BadFrame) {
        self.statistics.borrow_mut().bad_frames += 1;
        let BadFrame { header, error } = bad;
        self.push_event(Event::BadFrame {
            connection: connection.id,
            header,
            error,
        });
    }
}

/// The bytes of a connection that are no whole frame yet, and where the next ones go.
///
/// Three kinds of buffer take turns. An *idle* one while the client says little: it is in the kernel's
/// hands as long as the client is silent, so it is small. A *busy* one after a read that filled what it was
/// given, since more is waiting then. One of the frame's *own* size for a large frame, or for one that the
/// client has not finished sending, so that the frame needs no copy and holds no other frame's memory.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: BytesMut,
    kind: Kind,
    /// Bytes that the next frame needs in all; a header's when that is not there yet.
    needed: usize,
    /// Whether the last read filled the room that it was given.
    filled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Idle,
    Busy,
    Own { size: usize },
}

impl Kind {
    const fn size(self) -> usize {
        match self {
            Self::Idle => IDLE_BUFFER,
            Self::Busy => BUSY_BUFFER,
            Self::Own { size } => size,
        }
    }
}

impl Input {
    pub(crate) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            kind: Kind::Idle,
            needed: FRAME_HEADER_SIZE,
            filled: false,
        }
    }

    /// What was read and not taken off.
    pub(crate) const fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Says how many bytes the next frame needs in all.
    pub(crate) const fn set_needed(&mut self, needed: usize) {
        self.needed = needed;
    }

    /// One read, into the buffer that suits. 0 means that the peer closed its end.
    pub(crate) async fn read(
        &mut self,
        mut socket: &TcpStream,
        pool: &BufferPool,
    ) -> io::Result<usize> {
        let end = self.prepare(pool);
        let start = self.buffer.len();
        let buffer = std::mem::take(&mut self.buffer);
        let BufResult(result, slice) = socket.read(buffer.slice(start..end)).await;
        self.buffer = slice.into_inner();
        let count = result?;
        self.filled = count == end - start;
        Ok(count)
    }

    /// Sees to it that the buffer has room; says up to where the next read may fill it.
    fn prepare(&mut self, pool: &BufferPool) -> usize {
        if self.buffer.is_empty() {
            // From the front again if the frames in it are done with.
            let _ = self.buffer.try_reclaim(self.kind.size());
        }
        let missing = self.needed - self.buffer.len();
        let room = self.buffer.capacity() - self.buffer.len();
        let stalled = !self.buffer.is_empty() && !self.filled;
        if self.needed > OWN_BUFFER_MIN || (stalled && self.needed > IDLE_BUFFER) {
            let size = self.needed;
            if self.kind != (Kind::Own { size }) {
                self.move_to(pool, Kind::Own { size });
            }
            return size;
        }
        if self.filled && !matches!(self.kind, Kind::Own { .. }) {
            if self.kind != Kind::Busy || room < missing.max(BUSY_ROOM_MIN) {
                self.move_to(pool, Kind::Busy);
            }
        } else if self.kind != Kind::Idle || room < missing.max(IDLE_ROOM_MIN) {
            self.move_to(pool, Kind::Idle);
        }
        self.buffer.capacity()
    }

    fn move_to(&mut self, pool: &BufferPool, kind: Kind) {
        if kind == Kind::Idle && self.kind == Kind::Idle {
            self.buffer.reserve(IDLE_BUFFER - self.buffer.len());
            return;
        }
        let mut buffer = match kind {
            Kind::Idle => BytesMut::with_capacity(IDLE_BUFFER),
            Kind::Busy => pool.take(BUSY_BUFFER),
            Kind::Own { size } => pool.take(size),
        };
        buffer.extend_from_slice(&self.buffer);
        std::mem::swap(&mut self.buffer, &mut buffer);
        let left = std::mem::replace(&mut self.kind, kind);
        if left != Kind::Idle {
            pool.give(left.size(), buffer);
        }
    }

    pub(crate) fn release(&mut self, pool: &BufferPool) {
        let buffer = std::mem::take(&mut self.buffer);
        let kind = std::mem::replace(&mut self.kind, Kind::Idle);
        if kind != Kind::Idle {
            pool.give(kind.size(), buffer);
        }
    }
}
