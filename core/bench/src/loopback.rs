//! What the loopback does when nobody works.

use std::{
    io::{BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use wire::FRAME_HEADER_SIZE;

use crate::{
    bare::{BareServer, Duty},
    error::{During, Error},
    latency::Latency,
};

/// Bytes of the smallest frame, there and back.
const MESSAGE: usize = FRAME_HEADER_SIZE;

/// What a consumer reads at once behind a header.
const BODY: usize = 1 << 20;

/// Latencies of 64 bytes there and back between two threads that block, for so long.
///
/// # Errors
/// `Io`.
pub(crate) fn round_trip(length: Duration) -> Result<Latency, Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).during("listen on the loopback")?;
    let address = listener.local_addr().during("listen on the loopback")?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> std::io::Result<()> {
            let (mut socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            let mut message = [0; MESSAGE];
            while socket.read_exact(&mut message).is_ok() {
                socket.write_all(&message)?;
            }
            Ok(())
        });
        let latency = exchange(address, length);
        let echoed = echo.join().expect("the echo does not panic");
        echoed.during("echo over the loopback")?;
        latency
    })
}

fn exchange(address: SocketAddr, length: Duration) -> Result<Latency, Error> {
    let mut socket = TcpStream::connect(address).during("connect to the loopback")?;
    socket.set_nodelay(true).during("configure a connection")?;
    let mut message = [7; MESSAGE];
    let mut latency = Latency::new();
    let start = Instant::now();
    while start.elapsed() < length {
        let sent = Instant::now();
        socket
            .write_all(&message)
            .and_then(|()| socket.read_exact(&mut message))
            .during("exchange messages over the loopback")?;
        latency.record(sent.elapsed());
    }
    Ok(latency)
}

/// Bytes that `connections` blocking readers receive from a bare server that pours on
/// `threads` threads. They read as a consumer does: a header, then a megabyte.
/// Gives also the CPU time of those threads, nanoseconds.
///
/// # Errors
/// `Io`.
pub(crate) fn transfer(
    threads: u16,
    connections: u32,
    length: Duration,
) -> Result<(Count, u64), Error> {
    let server = BareServer::start(threads, Duty::Source)?;
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let mut socket = TcpStream::connect(server.address()).during("connect to a bare server")?;
        socket.write_all(&[1]).during("ask a bare server")?;
        sockets.push(socket);
    }
    let count = for_so_long(length, sockets, |socket, on| {
        let mut reader = BufReader::with_capacity(16 * 1024, &socket);
        let (mut header, mut body) = ([0; FRAME_HEADER_SIZE], vec![0; BODY]);
        while on.goes_on() {
            reader
                .read_exact(&mut header)
                .and_then(|()| reader.read_exact(&mut body))
                .during("receive from a bare server")?;
            on.count((header.len() + body.len()) as u64);
        }
        let _ = socket.shutdown(Shutdown::Both);
        Ok(())
    })?;
    Ok((count, server.cpu()?))
}

/// What the workers of one measurement share.
#[derive(Debug)]
pub(crate) struct Meter {
    stop: AtomicBool,
    counted: AtomicU64,
}

impl Meter {
    /// Whether to work on.
    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts what is done.
    pub(crate) fn count(&self, amount: u64) {
        self.counted.fetch_add(amount, Ordering::Relaxed);
    }
}

/// What the workers of one measurement have counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    /// Per second, after the warm-up.
    pub(crate) rate: f64,
    /// In all.
    pub(crate) total: u64,
}

/// A part of the length that is not measured: buffers and windows open meanwhile.
const WARM_UP: u32 = 5;

/// Runs `work` on one thread for each item and gives what they count.
///
/// # Errors
/// The first of a worker.
pub(crate) fn for_so_long<T: Send>(
    length: Duration,
    items: Vec<T>,
    work: impl Fn(T, &Meter) -> Result<(), Error> + Sync,
) -> Result<Count, Error> {
    let meter = Meter {
        stop: AtomicBool::new(false),
        counted: AtomicU64::new(0),
    };
    let barrier = Barrier::new(items.len() + 1);
    thread::scope(|scope| {
        let workers: Vec<_> = items
            .into_iter()
            .map(|item| {
                scope.spawn(|| {
                    barrier.wait();
                    work(item, &meter)
                })
            })
            .collect();
        barrier.wait();
        thread::sleep(length / WARM_UP);
        let (start, before) = (Instant::now(), meter.counted.load(Ordering::Relaxed));
        thread::sleep(length);
        let counted = meter.counted.load(Ordering::Relaxed) - before;
        let rate = counted as f64 / start.elapsed().as_secs_f64();
        meter.stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("a worker does not panic")?;
        }
        let total = meter.counted.load(Ordering::Relaxed);
        Ok(Count { rate, total })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_measured() {
        let latency = round_trip(Duration::from_millis(20)).unwrap();
        assert!(latency.count() > 10 && latency.median() > 0.0);
        assert!(transfer(1, 2, Duration::from_millis(50)).unwrap().0.rate > 0.0);
    }

    #[test]
    fn error_of_a_worker_is_the_result() {
        let result = for_so_long(Duration::ZERO, vec![1, 2], |item, _| match item {
            1 => Ok(()),
            _ => Err(Error::Server("gone".into())),
        });
        assert_eq!(result.unwrap_err().to_string(), "gone");
    }
}
