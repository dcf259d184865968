//! What every link's socket is told.

use std::{io, net::TcpStream, time::Duration};

use socket2::{SockRef, TcpKeepalive};

/// What is sent and not acknowledged for so long ends the link: the machine at the other end is gone, or does
/// not read, and a new link is the way to find out which.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// Bytes that the kernel takes before it has sent them. What is urgent overtakes what waits behind these.
const UNSENT_MAX: u32 = 256 * 1024;

/// Silence after which the kernel asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(5);

pub(super) fn set(socket: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(Duration::from_secs(1))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}
