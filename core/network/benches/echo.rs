//! The connection layer against the least that compio can do, in one process and one run.
//!
//! `cargo bench -p network` prints, for each load, the bare figure, ours, and the ratio. The server has one
//! core and the clients another; figures of different runs do not compare, ratios do.
#![expect(clippy::print_stdout, reason = "prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use compio::{
    buf::BufResult,
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use network::{
    Connections, Event, Limits, Notify, available_cores, bind, build_runtime, choose_driver, mesh,
    pin_to_core,
};
use wire::{ClientId, CorrelationId, FRAME_HEADER_SIZE, FrameHeader};

const ROUNDS: usize = 5;

/// Replies up to this size are made in one piece.
const COPY_MAX: usize = 4096;

/// One kind of traffic: frames of `body` bytes, `window` at once, on `connections`.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    connections: usize,
    window: usize,
    body: usize,
    /// Whether the body comes back, or only a header.
    echoes: bool,
    seconds: f64,
}

const LOADS: [Load; 4] = [
    Load {
        name: "ping, 64 connections, 16 in flight",
        connections: 64,
        window: 16,
        body: 0,
        echoes: true,
        seconds: 1.5,
    },
    Load {
        name: "ping, 8 connections, 1 in flight",
        connections: 8,
        window: 1,
        body: 0,
        echoes: true,
        seconds: 1.0,
    },
    Load {
        name: "1 KiB echo, 64 connections, 16 in flight",
        connections: 64,
        window: 16,
        body: 1024,
        echoes: true,
        seconds: 1.0,
    },
    Load {
        name: "1 MiB in, 8 connections, 2 in flight",
        connections: 8,
        window: 2,
        body: 1 << 20,
        echoes: false,
        seconds: 1.5,
    },
];

fn main() {
    // Run as a test there is nothing to do.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let force_polling = std::env::args().any(|argument| argument == "--polling");
    for load in LOADS {
        let mut bare = Vec::new();
        let mut ours = Vec::new();
        for _ in 0..ROUNDS {
            bare.push(measure(load, force_polling, false));
            ours.push(measure(load, force_polling, true));
        }
        let (bare, ours) = (median(bare), median(ours));
        let ratio = 100.0 * ours / bare;
        let mib = (FRAME_HEADER_SIZE + load.body) as f64 / f64::from(1 << 20);
        println!(
            "{:42} bare {:9.0}/s {:6.0} MiB/s   ours {:9.0}/s {:6.0} MiB/s   {ratio:3.0} %",
            load.name,
            bare,
            bare * mib,
            ours,
            ours * mib
        );
    }
    idle(force_polling);
    exchange(force_polling, 1, 200_000);
    exchange(force_polling, 256, 40_000_000);
}

/// Two shards: one sends `window` messages, the other sends each back.
fn exchange(force_polling: bool, window: usize, count: usize) {
    let driver = choose_driver(force_polling).driver;
    let bells = [Notify::new(), Notify::new()];
    let cores = available_cores().unwrap();
    let start = Instant::now();
    let threads: Vec<_> = mesh::<usize>(&bells, 1024)
        .into_iter()
        .zip(bells)
        .map(|(mut endpoint, bell)| {
            let core = cores[endpoint.index() % cores.len()];
            thread::spawn(move || {
                pin_to_core(core).unwrap();
                let shard = async move {
                    let sends = endpoint.index() == 0;
                    let mut taken = 0;
                    let mut back = Vec::new();
                    if sends {
                        (0..window).for_each(|number| endpoint.send(1, number));
                        endpoint.flush();
                    }
                    while taken < count {
                        bell.notified().await;
                        taken += endpoint.drain(1024, |_, message| back.push(message));
                        for message in back.drain(..) {
                            endpoint.send(usize::from(sends), message);
                        }
                        endpoint.flush();
                    }
                };
                let runtime = build_runtime(driver).unwrap();
                runtime.block_on(async { compio::runtime::spawn(shard).await.unwrap() });
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "mesh, {window} in flight: {:.1} million messages/s each way, {:.1} us a round",
        count as f64 / seconds / 1e6,
        seconds * 1e6 / (count / window) as f64
    );
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Requests per second.
fn measure(load: Load, force_polling: bool, ours: bool) -> f64 {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.address();
    let driver = choose_driver(force_polling).driver;
    let stop = Arc::new(AtomicBool::new(false));
    let cores = available_cores().unwrap();
    let server = {
        let stop = Arc::clone(&stop);
        let core = cores[0];
        thread::spawn(move || {
            pin_to_core(core).unwrap();
            build_runtime(driver).unwrap().block_on(async move {
                let served = if ours {
                    compio::runtime::spawn(serve(listener, load, stop))
                } else {
                    compio::runtime::spawn(serve_bare(listener, load, stop))
                };
                served.await.unwrap();
            });
        })
    };
    pin_to_core(cores[cores.len() - 1]).unwrap();
    let rate = build_runtime(driver)
        .unwrap()
        .block_on(async move { compio::runtime::spawn(drive(address, load)).await.unwrap() });
    stop.store(true, Ordering::Relaxed);
    drop(std::net::TcpStream::connect(address));
    server.join().unwrap();
    rate
}

async fn serve(listener: network::Listener, load: Load, stop: Arc<AtomicBool>) {
    let notify = Notify::new();
    let limits = Limits {
        frame_size_before_login: 4 << 20,
        ..Limits::default()
    };
    let connections = Connections::new(limits, notify.clone());
    connections.listen(listener).unwrap();
    while !stop.load(Ordering::Relaxed) {
        notify.notified().await;
        while let Some(event) = connections.next_event() {
            if let Event::Frame {
                connection,
                header,
                body,
            } = event
            {
                let reply = FrameHeader::reply(&header, 0);
                let parts = if load.echoes && body.len() > COPY_MAX {
                    reply.frame_of_parts(vec![body])
                } else if load.echoes {
                    vec![Bytes::from(reply.frame(&body))]
                } else {
                    vec![Bytes::from(reply.frame(&[]))]
                };
                connections.send(connection, parts);
            }
        }
    }
}

/// Reads what is there and writes it back, or writes back a header for each frame's worth of bytes.
async fn serve_bare(listener: network::Listener, load: Load, stop: Arc<AtomicBool>) {
    let listener = TcpListener::from_std(listener.into()).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        compio::runtime::spawn(async move {
            let mut buffer = Vec::with_capacity(256 * 1024);
            let mut received = 0;
            loop {
                buffer.clear();
                let BufResult(count, filled) = (&socket).read(buffer).await;
                let Ok(count @ 1..) = count else { return };
                buffer = filled;
                if load.echoes {
                    let BufResult(result, written) = (&socket).write_all(buffer).await;
                    buffer = written;
                    if result.is_err() {
                        return;
                    }
                    continue;
                }
                received += count;
                let frame = FRAME_HEADER_SIZE + load.body;
                let replies = received / frame * FRAME_HEADER_SIZE;
                received %= frame;
                if replies > 0 && (&socket).write_all(vec![0; replies]).await.0.is_err() {
                    return;
                }
            }
        })
        .detach();
    }
}

async fn drive(address: SocketAddr, load: Load) -> f64 {
    let frame = FrameHeader::request(1, CorrelationId(1), ClientId(1)).frame(&vec![7; load.body]);
    let requests = Bytes::from(frame.repeat(load.window));
    let reply = if load.echoes {
        frame.len()
    } else {
        FRAME_HEADER_SIZE
    };
    let mut sockets = Vec::new();
    for _ in 0..load.connections {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        sockets.push(socket);
    }
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(load.seconds);
    let count = Rc::new(std::cell::Cell::new(0_usize));
    let tasks: Vec<_> = sockets
        .into_iter()
        .map(|mut socket| {
            let (requests, count) = (requests.clone(), Rc::clone(&count));
            compio::runtime::spawn(async move {
                let mut replies = Vec::with_capacity(reply * load.window);
                while Instant::now() < end {
                    socket.write_all(requests.clone()).await.0.unwrap();
                    replies.clear();
                    let BufResult(result, filled) = socket.read_exact(replies).await;
                    result.unwrap();
                    replies = filled;
                    count.set(count.get() + load.window);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    count.get() as f64 / start.elapsed().as_secs_f64()
}

/// What a connection costs that has talked once and is silent.
fn idle(force_polling: bool) {
    const COUNT: usize = 9_000;
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.address();
    let driver = choose_driver(force_polling).driver;
    let load = LOADS[0];
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let server = thread::spawn(move || {
        build_runtime(driver).unwrap().block_on(async move {
            compio::runtime::spawn(serve(listener, load, stopped))
                .await
                .unwrap();
        });
    });
    let before = resident();
    let request = FrameHeader::request(1, CorrelationId(1), ClientId(1)).frame(&[]);
    let clients: Vec<_> = (0..COUNT)
        .map(|_| {
            use std::io::{Read, Write};
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(&request).unwrap();
            client.read_exact(&mut [0; FRAME_HEADER_SIZE]).unwrap();
            client
        })
        .collect();
    let each = (resident() - before) / COUNT;
    println!("{COUNT} idle connections: {each} bytes resident each");
    stop.store(true, Ordering::Relaxed);
    drop(clients);
    server.join().unwrap();
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
