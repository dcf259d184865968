//! Writes one connection.

use std::{io, net::Shutdown, rc::Rc};

use bytes::{Buf, Bytes};
use compio::{buf::BufResult, io::AsyncWrite, net::TcpStream};
use socket2::SockRef;

use super::{CloseReason, Connection, Phase, Shared};

/// Writes what is queued, as much as possible at once, until the connection is aborted, or closed and
/// everything is written.
pub(super) async fn write(shared: Rc<Shared>, connection: Rc<Connection>) {
    loop {
        let pieces = connection.output.borrow_mut().take(&shared.pool);
        if pieces.is_empty() {
            match connection.phase.get() {
                Phase::Open => {
                    let ready = || {
                        !connection.output.borrow().is_empty()
                            || connection.phase.get() != Phase::Open
                    };
                    connection.writable.wait_until(ready).await;
                }
                Phase::Flushing => {
                    connection.phase.set(Phase::Lingering);
                    // Fails when the peer has reset the connection already, which is as good.
                    let _ = SockRef::from(&connection.socket).shutdown(Shutdown::Write);
                    return;
                }
                Phase::Lingering | Phase::Aborted => return,
            }
        } else if let Err(error) = write_pieces(&shared, &connection, pieces).await {
            return shared.abort(&connection, CloseReason::Failed(error.kind()));
        }
    }
}

async fn write_pieces(
    shared: &Shared,
    connection: &Connection,
    mut pieces: Vec<Bytes>,
) -> io::Result<()> {
    while !pieces.is_empty() {
        let (written, left) = write_some(&connection.socket, pieces).await;
        let written = match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) => {
                // What is still queued is forgotten, and counted off, when the connection is aborted.
                let lost: usize = left.iter().map(Bytes::len).sum();
                connection.queued.set(connection.queued.get() - lost);
                return Err(error);
            }
        };
        pieces = left;
        advance(&mut pieces, written);
        shared.count_written(connection, written);
    }
    Ok(())
}

/// Writes everything; `moved` is called whenever some of it is gone and some is left.
pub(crate) async fn write_all(
    socket: &TcpStream,
    mut pieces: Vec<Bytes>,
    moved: impl Fn(),
) -> io::Result<()> {
    while !pieces.is_empty() {
        let (written, left) = write_some(socket, pieces).await;
        pieces = left;
        match written? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => advance(&mut pieces, written),
        }
        if !pieces.is_empty() {
            moved();
        }
    }
    Ok(())
}

async fn write_some(
    mut socket: &TcpStream,
    mut pieces: Vec<Bytes>,
) -> (io::Result<usize>, Vec<Bytes>) {
    if pieces.len() == 1 {
        let piece = pieces.swap_remove(0);
        let BufResult(result, piece) = socket.write(piece).await;
        pieces.push(piece);
        return (result, pieces);
    }
    let BufResult(result, pieces) = socket.write_vectored(pieces).await;
    (result, pieces)
}

/// Takes `written` bytes off the front.
fn advance(pieces: &mut Vec<Bytes>, mut written: usize) {
    let mut whole = 0;
    for piece in &mut *pieces {
        if written < piece.len() {
            piece.advance(written);
            break;
        }
        written -= piece.len();
        whole += 1;
    }
    pieces.drain(..whole);
}

impl Shared {
    fn count_written(&self, connection: &Connection, written: usize) {
        self.statistics.borrow_mut().bytes_sent += written as u64;
        connection.written_at.set(self.sweeps.get());
        let before = connection.queued.get();
        // Nothing is left when the connection was aborted during the write.
        let after = before.saturating_sub(written);
        connection.queued.set(after);
        let soft_max = self.limits.queue_soft_max;
        if before > soft_max && after <= soft_max {
            connection.readable.ring();
        }
    }
}
