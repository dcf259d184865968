//! A session on plain connections, which goes on at another node when its connection is lost.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use wire::{Failure, Reply, Request};

use crate::Connection;

/// How long one thing is tried.
const TRIES: Duration = Duration::from_secs(25);

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(20);

/// A session; its connections go past the gates.
#[derive(Debug)]
pub(super) struct Voice {
    pub(super) connection: Connection,
    addresses: Vec<SocketAddr>,
    next: usize,
}

impl Voice {
    /// Logs in at one of these nodes, this one first; `None` when none takes a login.
    pub(super) fn login(addresses: &[SocketAddr], first: usize) -> Option<Self> {
        let began = Instant::now();
        let mut next = first;
        while began.elapsed() < TRIES {
            next += 1;
            if let Ok(connection) = Connection::try_login(addresses[(next - 1) % addresses.len()]) {
                return Some(Self {
                    connection,
                    addresses: addresses.to_vec(),
                    next,
                });
            }
            thread::sleep(PAUSE);
        }
        None
    }

    /// Asks once; `None` when the connection is lost.
    pub(super) fn ask(&mut self, request: impl Into<Request>) -> Option<Result<Reply, Failure>> {
        self.connection.try_ask(request)
    }

    /// Asks until there is an answer that is not only for now. For what does the same when it is done twice.
    /// `None` when there is none in time, or the session has ended.
    pub(super) fn insist(&mut self, request: impl Into<Request>) -> Option<Result<Reply, Failure>> {
        let (request, began) = (request.into(), Instant::now());
        while began.elapsed() < TRIES {
            match self.connection.try_ask(request.clone()) {
                Some(Err(failure)) if failure.code.retryable() => thread::sleep(PAUSE),
                Some(answer) => return Some(answer),
                None => self.attach()?,
            }
        }
        None
    }

    fn attach(&mut self) -> Option<()> {
        let began = Instant::now();
        while began.elapsed() < TRIES {
            let address = self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            match self.connection.try_attach(address) {
                Ok(connection) => {
                    self.connection = connection;
                    return Some(());
                }
                Err(Some(failure)) if !failure.code.retryable() => return None,
                Err(_) => thread::sleep(PAUSE),
            }
        }
        None
    }
}
