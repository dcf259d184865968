//! What stands between two nodes, or between clients and a node, and may hold things up.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use wire::FRAME_HEADER_SIZE;

/// Bytes of an introduction between nodes.
const INTRODUCTION: usize = 76;

/// Where an introduction says who dials.
const REPLICA: usize = 2;

/// What is read at once.
const CHUNK: usize = 64 * 1024;

/// How a gate treats what comes from one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// Everything passes.
    #[default]
    Open,
    /// Nothing passes, and nobody is told. What came meanwhile passes later, if the connection lives so long.
    Silent,
    /// Connections are ended, and so is every new one.
    Closed,
    /// Everything that is read at once passes so much later.
    Slow(Duration),
}

/// Passes connections on to one address. Between nodes it knows by the introduction who dials, and treats
/// everybody as it is told to. It ends with the process.
#[derive(Clone, Debug)]
pub struct Gate {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    passages: BTreeMap<u8, Passage>,
    open: Vec<(u8, TcpStream, TcpStream)>,
}

impl Gate {
    /// Stands before a node's address for other nodes.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn for_nodes(target: SocketAddr) -> Self {
        Self::stand(target, true)
    }

    /// Stands before a node's address for clients, who are all number 0.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn for_clients(target: SocketAddr) -> Self {
        Self::stand(target, false)
    }

    fn stand(target: SocketAddr, introduced: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared {
            target,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let shared = Arc::clone(&own);
                // Whoever ends the connection, both sides hear of it.
                thread::spawn(move || drop(shared.admit(from, introduced)));
            }
        });
        Self { address, shared }
    }

    /// Where to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says how what comes from this node is treated, from now on. Answers to what a node dials are no
    /// more than the handshake, so this is one direction between two nodes.
    pub fn set(&self, from: usize, passage: Passage) {
        let from = u8::try_from(from).expect("there are few nodes");
        let mut state = self.shared.lock();
        state.passages.insert(from, passage);
        if passage == Passage::Closed {
            state.end_all(Some(from));
        }
        self.shared.changed.notify_all();
    }

    /// Ends all connections; new ones are passed on. Gives how many there were.
    pub fn cut(&self) -> usize {
        self.shared.lock().end_all(None)
    }
}

impl State {
    fn end_all(&mut self, from: Option<u8>) -> usize {
        let before = self.open.len();
        self.open.retain(|(owner, one, other)| {
            let ends = from.is_none_or(|from| from == *owner);
            if ends {
                close(one, other);
            }
            !ends
        });
        before - self.open.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a connection on until it ends.
    fn admit(&self, mut from: TcpStream, introduced: bool) -> io::Result<()> {
        let mut first = Vec::new();
        if introduced {
            first.resize(FRAME_HEADER_SIZE + INTRODUCTION, 0);
            from.read_exact(&mut first)?;
        }
        let who = first.get(FRAME_HEADER_SIZE + REPLICA);
        let who = who.copied().unwrap_or_default();
        // What is held up is held up before the other end hears of the connection.
        if self.pass(who).is_none() {
            return Ok(());
        }
        let mut to = TcpStream::connect(self.target)?;
        from.set_nodelay(true)?;
        to.set_nodelay(true)?;
        {
            let mut state = self.lock();
            if state.passages.get(&who) == Some(&Passage::Closed) {
                return Ok(());
            }
            state.open.push((who, from.try_clone()?, to.try_clone()?));
        }
        to.write_all(&first)?;
        let (mut back_from, mut back_to) = (to.try_clone()?, from.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut back_from, &mut back_to);
            close(&back_from, &back_to);
        });
        let result = self.forward(who, &mut from, &mut to);
        close(&from, &to);
        let own = from.peer_addr();
        let mut state = self.lock();
        state
            .open
            .retain(|(_, one, _)| match (&own, one.peer_addr()) {
                (Ok(own), Ok(other)) => *own != other,
                // What is not connected any more has no address.
                (_, other) => other.is_ok(),
            });
        result
    }

    fn forward(&self, who: u8, from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let size = from.read(&mut chunk)?;
            if size == 0 {
                return Ok(());
            }
            match self.pass(who) {
                Some(Passage::Slow(delay)) => thread::sleep(delay),
                Some(_) => {}
                None => return Ok(()),
            }
            to.write_all(&chunk[..size])?;
        }
    }

    /// Waits until something may pass; `None` when the connection is to end.
    fn pass(&self, who: u8) -> Option<Passage> {
        let mut state = self.lock();
        loop {
            match state.passages.get(&who).copied().unwrap_or_default() {
                Passage::Silent => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Passage::Closed => return None,
                passage => return Some(passage),
            }
        }
    }
}

fn close(one: &TcpStream, other: &TcpStream) {
    // Fails only when it is closed already.
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}
