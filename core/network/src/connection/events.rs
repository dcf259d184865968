//! What a shard hears of its connections, and how they begin.

use std::{fmt, io, net::SocketAddr, rc::Rc, time::Duration};

use bytes::Bytes;
use compio::net::{TcpListener, TcpStream};
use wire::{DecodeError, FrameHeader};

use super::Shared;

/// Wait before the next accept after one that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A connection of one shard; never used again in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What happened to a connection. The first event of each is `Opened`, the last is `Closed`.
#[derive(Debug)]
pub enum Event {
    /// A client connected.
    Opened {
        /// The new connection.
        connection: ConnectionId,
        /// Where the client is.
        peer: SocketAddr,
    },
    /// A whole frame whose header and checksum are right.
    Frame {
        /// Where it came from.
        connection: ConnectionId,
        /// Its header.
        header: FrameHeader,
        /// Its body, a slice of the buffer that it was read into.
        body: Bytes,
    },
    /// The bytes that came are no frame that may be taken. Nothing more is read from the connection: answer
    /// if there is a header to answer to, then close.
    BadFrame {
        /// Where it came from.
        connection: ConnectionId,
        /// The header, if version and kind are right, so that an error can be addressed.
        header: Option<FrameHeader>,
        /// What is wrong.
        error: DecodeError,
    },
    /// The connection is over: no event of it follows, and what is sent to it is dropped. What was queued
    /// before is still written unless the reason is a fault of the connection.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its end.
    Peer,
    /// The shard asked for it.
    Requested,
    /// Reading or writing failed.
    Failed(io::ErrorKind),
    /// The peer does not read what it asked for.
    Slow {
        /// Bytes that were queued.
        queued: usize,
    },
    /// No frame came for as long as is allowed.
    Idle,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("closed by the peer"),
            Self::Requested => f.write_str("closed by the server"),
            Self::Failed(kind) => write!(f, "failed: {kind}"),
            Self::Slow { queued } => write!(f, "does not read: {queued} bytes were queued"),
            Self::Idle => f.write_str("idle for too long"),
        }
    }
}

/// What became of a frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// It will be written.
    Queued,
    /// It will be written, but more is queued than a well-behaved client leaves unread. Nothing is read
    /// from the connection until that is better, and it is dropped if it does not get better in time.
    Slow {
        /// Bytes that are queued.
        queued: usize,
    },
    /// The connection is closed, or was just dropped because too much is queued.
    Gone,
}

/// Counts since the start, of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections accepted.
    pub opened: u64,
    /// Connections closed, for whatever reason.
    pub closed: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Accepts that failed.
    pub accept_failures: u64,
    /// Connections dropped because they did not read.
    pub slow: u64,
    /// Connections closed because nothing came.
    pub idle: u64,
    /// Good frames read.
    pub frames_received: u64,
    /// Frames queued to be written.
    pub frames_sent: u64,
    /// Frames refused.
    pub bad_frames: u64,
    /// Bytes read.
    pub bytes_received: u64,
    /// Bytes written.
    pub bytes_sent: u64,
}

/// Accepts until the listener is shut down.
pub(super) async fn accept(shared: Rc<Shared>, listener: Rc<TcpListener>) {
    loop {
        let accepted = listener.accept().await;
        if !shared
            .listeners
            .borrow()
            .iter()
            .any(|other| Rc::ptr_eq(other, &listener))
        {
            return;
        }
        match accepted {
            Ok((socket, peer)) => take_up(&shared, socket, peer),
            Err(error) => {
                shared.statistics.borrow_mut().accept_failures += 1;
                if is_exhaustion(&error) {
                    tracing::warn!(%error, "a connection could not be accepted");
                    compio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

fn take_up(shared: &Rc<Shared>, socket: TcpStream, peer: SocketAddr) {
    if socket.set_nodelay(true).is_err() {
        // The peer is gone already.
        return;
    }
    if shared.slots.borrow().len() < shared.limits.connections_max {
        shared.open(socket, peer);
        return;
    }
    let mut statistics = shared.statistics.borrow_mut();
    statistics.refused += 1;
    if statistics.refused.is_power_of_two() {
        let (limit, refused) = (shared.limits.connections_max, statistics.refused);
        tracing::warn!(%peer, limit, refused, "too many connections on this shard: one more is refused");
    }
    drop(statistics);
    compio::runtime::spawn(refuse(socket, shared.limits.refusal.clone())).detach();
}

async fn refuse(mut socket: TcpStream, refusal: Bytes) {
    use compio::io::AsyncWriteExt;
    if !refusal.is_empty() {
        // A new connection's send buffer has room for this; a peer that left does not miss it.
        let _ = socket.write_all(refusal).await;
    }
}

/// Whether the process or machine has run out of something, so that the next accept fails alike; else the
/// failure belongs to the one connection.
fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
