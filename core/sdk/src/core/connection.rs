//! Sockets: one task that connects and reads, one that writes.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use client::{ConnectionId, Frame, Input, missing_bytes, next_frame};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
    task::AbortHandle,
};
use wire::FRAME_SIZE_MAX;

use super::Shared;

/// Bytes that one read asks for.
const READ_SIZE: usize = 256 * 1024;

/// Room that there must be for a read; with less the buffer grows first.
const READ_SIZE_MIN: usize = 64 * 1024;

/// Pieces below this size are copied together before they are written.
const JOINED_SIZE_MAX: usize = 16 * 1024;

/// Pieces of one write.
const PIECES_MAX: usize = 64;

/// A peer that takes nothing for so long is gone, even if nobody has said so.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be written to a connection, from the moment that it is asked for.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: Vec<Bytes>,
    closed: bool,
    /// The task that connects and reads.
    reader: Option<AbortHandle>,
}

impl Outgoing {
    /// Begins to connect; the session is told what comes of it.
    pub(super) fn connect(
        shared: Arc<Shared>,
        connection: ConnectionId,
        address: String,
    ) -> Arc<Self> {
        let outgoing = Arc::new(Self {
            queue: Mutex::default(),
            wake: Notify::new(),
        });
        let runtime = shared.runtime.clone();
        let task = runtime.spawn(run(shared, connection, address, Arc::clone(&outgoing)));
        outgoing.with(|queue| queue.reader = Some(task.abort_handle()));
        outgoing
    }

    pub(super) fn send(&self, frame: Vec<Bytes>) {
        self.with(|queue| queue.pieces.extend(frame));
        self.wake.notify_one();
    }

    /// Stops reading; what was sent still goes out.
    pub(super) fn close(&self) {
        self.with(|queue| {
            queue.closed = true;
            if let Some(reader) = &queue.reader {
                reader.abort();
            }
        });
        self.wake.notify_one();
    }

    fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn run(
    shared: Arc<Shared>,
    connection: ConnectionId,
    address: String,
    outgoing: Arc<Outgoing>,
) {
    let reason = match connect(&address).await {
        Ok(stream) => {
            let (reader, writer) = stream.into_split();
            tokio::spawn(write(Arc::clone(&shared), connection, writer, outgoing));
            shared.input(Input::Connected { connection });
            read(&shared, connection, reader).await
        }
        Err(error) => error.to_string(),
    };
    shared.input(Input::Disconnected { connection, reason });
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads until the connection ends, and tells why it did.
async fn read(shared: &Arc<Shared>, connection: ConnectionId, mut reader: OwnedReadHalf) -> String {
    let mut buffer = BytesMut::with_capacity(READ_SIZE);
    loop {
        if buffer.capacity() - buffer.len() < READ_SIZE_MIN {
            let largest = usize::try_from(FRAME_SIZE_MAX).unwrap_or(usize::MAX);
            buffer.reserve(missing_bytes(&buffer).clamp(READ_SIZE, largest));
        }
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return "the server closed the connection".to_string(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
        let mut frames = Vec::new();
        let broken = loop {
            match next_frame(&mut buffer, FRAME_SIZE_MAX) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        shared.frames(connection, frames);
        if let Some(error) = broken {
            return format!("the server sent a frame that cannot be read: {error}");
        }
    }
}

impl Shared {
    /// Feeds frames that came together, so that what they cause goes out together.
    fn frames(self: &Arc<Self>, connection: ConnectionId, frames: Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        let now = self.now();
        let mut core = self.lock();
        if core.stopped {
            return;
        }
        for frame in frames {
            core.session.handle(now, Input::Frame { connection, frame });
        }
        core.pump(self, now);
    }
}

async fn write(
    shared: Arc<Shared>,
    connection: ConnectionId,
    mut writer: OwnedWriteHalf,
    outgoing: Arc<Outgoing>,
) {
    loop {
        let (pieces, closed) =
            outgoing.with(|queue| (std::mem::take(&mut queue.pieces), queue.closed));
        if !pieces.is_empty() {
            if let Err(error) = write_all(&mut writer, pieces).await {
                let reason = error.to_string();
                return shared.input(Input::Disconnected { connection, reason });
            }
        } else if closed {
            // Best effort: the other side may be gone.
            let _ended = writer.shutdown().await;
            return;
        } else {
            outgoing.wake.notified().await;
        }
    }
}

/// Writes many frames with few calls.
async fn write_all(writer: &mut OwnedWriteHalf, pieces: Vec<Bytes>) -> io::Result<()> {
    let mut pieces = join_small(pieces);
    while !pieces.is_empty() {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let count = pieces.len().min(PIECES_MAX);
        for (slice, piece) in slices.iter_mut().zip(&pieces) {
            *slice = IoSlice::new(piece);
        }
        let write = writer.write_vectored(&slices[..count]);
        let mut written = tokio::time::timeout(WRITE_TIMEOUT, write).await??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(piece) = pieces.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            pieces.pop_front();
        }
    }
    Ok(())
}

/// Copies runs of small pieces together; large ones stay as they are.
fn join_small(pieces: Vec<Bytes>) -> VecDeque<Bytes> {
    let mut joined = VecDeque::new();
    let mut run = BytesMut::new();
    for piece in pieces {
        if piece.len() < JOINED_SIZE_MAX {
            run.extend_from_slice(&piece);
        } else {
            if !run.is_empty() {
                joined.push_back(run.split().freeze());
            }
            joined.push_back(piece);
        }
    }
    if !run.is_empty() {
        joined.push_back(run.freeze());
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::{Bytes, JOINED_SIZE_MAX, join_small};

    #[test]
    fn small_pieces_are_joined_and_large_ones_are_not_copied() {
        let large = Bytes::from(vec![1; JOINED_SIZE_MAX]);
        let small = |byte| Bytes::from(vec![byte; 10]);
        let joined = join_small(vec![
            small(2),
            small(3),
            large.clone(),
            small(4),
            large.clone(),
        ]);
        let lengths = joined.iter().map(Bytes::len).collect::<Vec<_>>();
        assert_eq!(lengths, [20, JOINED_SIZE_MAX, 10, JOINED_SIZE_MAX]);
        assert_eq!(joined[1].as_ptr(), large.as_ptr());
        assert!(join_small(Vec::new()).is_empty());
    }
}
