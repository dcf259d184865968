//! Lets other nodes make their links to this one.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    Complaints, HandshakeError, LinkNews, LinkOrders, Membership, NewLink, Tell, handshake, options,
};

/// Handshakes at a time; who comes beyond them is closed at once and comes again.
const HANDSHAKES_MAX: usize = 64;

/// Wait before the next accept after one that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts links until it is shut down.
pub(super) struct Answerer {
    own: Arc<Membership>,
    tell: Tell,
    /// Who dials hears who is there.
    orders: LinkOrders,
    handshakes: Arc<AtomicUsize>,
    complaints: Arc<Mutex<Complaints>>,
}

impl Answerer {
    pub(super) fn new(own: Arc<Membership>, tell: Tell, orders: LinkOrders) -> Self {
        Self {
            own,
            tell,
            orders,
            handshakes: Arc::default(),
            complaints: Arc::default(),
        }
    }

    pub(super) fn run(&self, listener: &TcpListener, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            match listener.accept() {
                Ok((socket, address)) => self.take_up(socket, address),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if is_over.load(Ordering::Acquire) => return,
                Err(error) => {
                    self.complain(&format!("a link could not be accepted: {error}"));
                    thread::sleep(ACCEPT_RETRY);
                }
            }
        }
    }

    /// A thread of its own for each handshake, so that a silent stranger keeps nobody waiting.
    fn take_up(&self, socket: TcpStream, address: SocketAddr) {
        let place = Place::take(&self.handshakes);
        let Some(place) = place else {
            return self.complain(&format!(
                "{HANDSHAKES_MAX} connections are being judged; the one from {} is closed",
                address.ip()
            ));
        };
        let (own, tell) = (Arc::clone(&self.own), Arc::clone(&self.tell));
        let (orders, complaints) = (self.orders.clone(), Arc::clone(&self.complaints));
        let judge = move || {
            if let Err(error) = meet(socket, &own, &tell, &orders) {
                let text = format!("a link from {} is refused: {error}", address.ip());
                complain(&complaints, &text);
            }
            drop(place);
        };
        let started = thread::Builder::new()
            .name("link-handshake".into())
            .spawn(judge);
        if let Err(error) = started {
            self.complain(&format!("a link could not be judged: {error}"));
        }
    }

    fn complain(&self, text: &str) {
        complain(&self.complaints, text);
    }
}

fn complain(complaints: &Mutex<Complaints>, text: &str) {
    let mut complaints = complaints.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = complaints.is_worth_telling(text) {
        tracing::warn!(count, "{text}");
    }
}

fn meet(
    socket: TcpStream,
    own: &Membership,
    tell: &Tell,
    orders: &LinkOrders,
) -> Result<(), HandshakeError> {
    options::set(&socket)?;
    let (peer, shard) = handshake::answer(&socket, own)?;
    tracing::info!(node = peer.0, shard, "link from a node");
    tell(LinkNews::Up { peer });
    let link = NewLink {
        peer,
        shard,
        socket,
    };
    tell(LinkNews::Incoming(link));
    orders.alive(peer);
    Ok(())
}

/// One of the handshakes that may go on at a time.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::AcqRel) < HANDSHAKES_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
