//! Servers that do the least that the server's runtime can do: the measure for what the real one does.

use std::{
    io,
    net::{SocketAddr, TcpStream as StdStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use compio::{
    buf::BufResult,
    io::{AsyncRead, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::spawn,
};
use network::{
    Driver, Listener, available_cores, bind_shards, build_runtime, choose_driver, pin_to_core,
};

use crate::{
    error::{During, Error},
    noise::noise,
    process::own_cpu,
};

/// What the names of the threads begin with.
const THREAD: &str = "bare-";

/// What one read of the echo takes at most.
const ECHO_BUFFER: usize = 64 * 1024;

/// What the source writes at once.
const SOURCE_BUFFER: usize = 1 << 20;

/// What a bare server does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Writes back what it has read.
    Echo,
    /// Writes without end, once it has read something.
    Source,
}

/// A bare server, in this process, on threads like the shards of a server.
#[derive(Debug)]
pub(crate) struct BareServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BareServer {
    /// Starts `threads` threads, each pinned to a core when there are as many, that share a port.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn start(threads: u16, duty: Duty) -> Result<Self, Error> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = bind_shards(any, usize::from(threads))
            .map_err(|error| error.error)
            .during("listen on the loopback")?;
        let address = listeners[0].address();
        let cores = available_cores().during("ask for the cores")?;
        let pins = listeners.len() <= cores.len();
        let driver = choose_driver(false).driver;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, started) = mpsc::channel();
        let threads = listeners
            .into_iter()
            .enumerate()
            .map(|(index, listener)| {
                let shard = Thread {
                    listener,
                    core: pins.then(|| cores[index]),
                    driver,
                    duty,
                    stop: Arc::clone(&stop),
                };
                let sender = sender.clone();
                let run = move || {
                    if let Err(error) = shard.run(&sender) {
                        let _ = sender.send(Err(error));
                    }
                };
                thread::Builder::new()
                    .name(format!("{THREAD}{index}"))
                    .spawn(run)
            })
            .collect::<io::Result<_>>()
            .during("start a bare server")?;
        let server = Self {
            address,
            stop,
            threads,
        };
        for _ in &server.threads {
            let start = started.recv().expect("this function holds a sender");
            start.during("start a bare server")?;
        }
        Ok(server)
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of its threads since it started, nanoseconds. There must be no other bare server.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn cpu(&self) -> Result<u64, Error> {
        own_cpu(THREAD)
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Each thread looks at the flag when it has accepted a connection. The kernel chooses the thread
        // by the client's port, so this reaches all of them in a few turns.
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && StdStream::connect(self.address).is_ok() {
                thread::yield_now();
            }
        }
    }
}

struct Thread {
    listener: Listener,
    core: Option<usize>,
    driver: Driver,
    duty: Duty,
    stop: Arc<AtomicBool>,
}

impl Thread {
    fn run(self, started: &mpsc::Sender<io::Result<()>>) -> io::Result<()> {
        if let Some(core) = self.core {
            pin_to_core(core)?;
        }
        let (duty, stop) = (self.duty, self.stop);
        build_runtime(self.driver)?.block_on(async move {
            let listener = TcpListener::from_std(self.listener.into())?;
            let _ = started.send(Ok(()));
            spawn(accept(listener, duty, stop))
                .await
                .unwrap_or_else(|_| Err(io::Error::other("the accepting task ended")))
        })
    }
}

async fn accept(listener: TcpListener, duty: Duty, stop: Arc<AtomicBool>) -> io::Result<()> {
    let piece = Bytes::from(noise(2, SOURCE_BUFFER));
    loop {
        let (socket, _) = listener.accept().await?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        socket.set_nodelay(true)?;
        match duty {
            Duty::Echo => spawn(echo(socket)).detach(),
            Duty::Source => spawn(pour(socket, piece.clone())).detach(),
        }
    }
}

/// Ends with the connection.
async fn echo(mut socket: TcpStream) {
    let mut buffer = Vec::with_capacity(ECHO_BUFFER);
    loop {
        buffer.clear();
        let BufResult(count, filled) = socket.read(buffer).await;
        let Ok(1..) = count else { return };
        let BufResult(result, written) = socket.write_all(filled).await;
        buffer = written;
        if result.is_err() {
            return;
        }
    }
}

/// Ends with the connection.
async fn pour(mut socket: TcpStream, piece: Bytes) {
    let BufResult(count, _) = socket.read(Vec::with_capacity(64)).await;
    let Ok(1..) = count else { return };
    while socket.write_all(piece.clone()).await.0.is_ok() {}
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn echo_gives_back_what_it_is_given_and_ends() {
        let server = BareServer::start(2, Duty::Echo).unwrap();
        for _ in 0..8 {
            let mut client = StdStream::connect(server.address()).unwrap();
            client.write_all(b"to and fro").unwrap();
            let mut answer = [0; 10];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"to and fro");
        }
        let address = server.address();
        drop(server);
        assert!(StdStream::connect(address).is_err());
    }

    #[test]
    fn source_waits_to_be_asked_and_then_pours() {
        let server = BareServer::start(1, Duty::Source).unwrap();
        let mut client = StdStream::connect(server.address()).unwrap();
        client.write_all(&[1]).unwrap();
        let mut received = vec![0; 3 * SOURCE_BUFFER];
        client.read_exact(&mut received).unwrap();
        assert_eq!(
            received[..SOURCE_BUFFER],
            received[SOURCE_BUFFER..2 * SOURCE_BUFFER]
        );
    }
}
