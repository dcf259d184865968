//! Between a client and the server, to lose an answer.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use wire::{Command, FRAME_HEADER_SIZE, FrameHeader, FrameKind};

/// Passes everything on, but for one answer: that is lost, and the connection with it. It ends with the
/// process of the test.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// Answers until the one that is lost.
    left: Arc<AtomicU32>,
}

impl Proxy {
    /// Stands before the server, and loses the answer of this number, from 1, among those to `command` that
    /// have a body of at least `size` bytes.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn before(server: SocketAddr, command: Command, size: usize, number: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("it listens");
        let left = Arc::new(AtomicU32::new(number));
        let counter = Arc::clone(&left);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                    continue;
                };
                let counter = Arc::clone(&counter);
                // Whoever ends the connection, both sides hear of it.
                let _ = pass(&client, &server, move |header| {
                    let is_it = header.kind == FrameKind::Reply as u8
                        && header.code == command.code()
                        && header.body_size() >= size;
                    is_it && countdown(&counter)
                });
            }
        });
        Self { address, left }
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the answer was lost.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

/// Whether it comes to 0 now.
fn countdown(left: &AtomicU32) -> bool {
    let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(1)
    });
    before == Ok(1)
}

fn pass(
    client: &TcpStream,
    server: &TcpStream,
    mut is_lost: impl FnMut(&FrameHeader) -> bool + Send + 'static,
) -> io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        close(&from, &to);
    });
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        while let Ok(Some(frame)) = next_frame(&mut from) {
            let header = FrameHeader::read(&frame).expect("a whole header");
            if is_lost(&header) || to.write_all(&frame).is_err() {
                break;
            }
        }
        close(&from, &to);
    });
    Ok(())
}

fn next_frame(from: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut frame = vec![0; FRAME_HEADER_SIZE];
    from.read_exact(&mut frame)?;
    let Ok(header) = FrameHeader::read(&frame) else {
        return Ok(None);
    };
    frame.resize(FRAME_HEADER_SIZE + header.body_size(), 0);
    from.read_exact(&mut frame[FRAME_HEADER_SIZE..])?;
    Ok(Some(frame))
}

fn close(one: &TcpStream, other: &TcpStream) {
    // Fails only when it is closed already.
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}
