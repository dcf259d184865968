//! Listening sockets: one per shard, all on one port.

use std::{io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel completes and keeps while a shard is busy.
const BACKLOG: i32 = 4096;

/// A bound, listening socket that no shard serves yet.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: std::net::TcpListener,
    address: SocketAddr,
}

/// Why an address could not be listened on.
#[derive(Debug)]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// What the kernel said.
    pub error: io::Error,
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "listen on {}: {}", self.address, self.error)?;
        f.write_str(match self.error.kind() {
            io::ErrorKind::AddrInUse => "; another process has the port",
            io::ErrorKind::AddrNotAvailable => "; no network interface has this address",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need a capability",
            _ => "",
        })
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Listener {
    /// The address listened on, with the port that the kernel chose if 0 was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl From<Listener> for std::net::TcpListener {
    fn from(listener: Listener) -> Self {
        listener.socket
    }
}

/// Listens on `address`, sharing the port with the other shards of this process.
///
/// # Errors
/// Names the address and the reason.
pub fn bind(address: SocketAddr) -> Result<Listener, BindError> {
    listen(address).map_err(|error| BindError { address, error })
}

/// Listens `shards` times on one address; the kernel spreads connections over the listeners. Port 0 is
/// chosen once.
///
/// A port that another process serves is refused, also when that process would share it: the first socket
/// is bound without the permission to share first.
///
/// # Errors
/// Names the address and the reason.
pub fn bind_shards(address: SocketAddr, shards: usize) -> Result<Vec<Listener>, BindError> {
    assert!(shards > 0);
    probe_unshared(address).map_err(|error| BindError { address, error })?;
    let mut listeners = vec![bind(address)?];
    let address = listeners[0].address();
    while listeners.len() < shards {
        listeners.push(bind(address)?);
    }
    Ok(listeners)
}

fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let socket = std::net::TcpListener::from(socket);
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

/// Fails where a process of the same user listens with SO_REUSEPORT, which the shared bind would join
/// without a word: half the connections would go to the other server.
fn probe_unshared(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn shards_share_the_port_that_the_kernel_chose() {
        let listeners = bind_shards(loopback(), 3).unwrap();
        let port = listeners[0].address().port();
        assert_ne!(port, 0);
        assert!(
            listeners
                .iter()
                .all(|listener| listener.address().port() == port)
        );
    }

    #[test]
    fn second_server_on_the_port_is_refused_although_ports_can_be_shared() {
        let first = bind_shards(loopback(), 2).unwrap();
        let error = bind_shards(first[0].address(), 2).unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.contains(&first[0].address().to_string()), "{text}");
        assert!(text.contains("another process has the port"), "{text}");
        drop(first);
        bind_shards(error.address, 2).unwrap();
    }

    #[test]
    fn address_of_no_interface_is_named() {
        let address: SocketAddr = "198.51.100.7:5100".parse().unwrap();
        let text = bind_shards(address, 1).unwrap_err().to_string();
        assert!(text.contains("198.51.100.7:5100"), "{text}");
        assert!(text.contains("no network interface"), "{text}");
    }
}
