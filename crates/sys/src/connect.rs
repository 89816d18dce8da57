//! The client's side of sockets: connecting from a chosen address, sending, parting.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};

use crate::socket::{set_option, tcp_socket, unless_blocked};

/// Begins to connect to `address`, from `source` if given, without waiting.
///
/// The outcome shows as the socket becoming writable; then [`outcome`] returns it. The port is chosen
/// when the connection is made, so that one source address serves as many connections as there are
/// ports for each destination, rather than in all (`IP_BIND_ADDRESS_NO_PORT`, Linux 4.2).
///
/// `receive_buffer_bytes` bounds what the kernel takes in before it is read, from the first byte on, as
/// [`bound_receive_buffer`] does.
///
/// # Errors
/// At the descriptor limit, without a free port (`AddrNotAvailable`), without a route, or refused at
/// once.
pub fn connect(
    address: &SocketAddr,
    source: Option<IpAddr>,
    receive_buffer_bytes: Option<usize>,
) -> io::Result<OwnedFd> {
    let socket = tcp_socket(*address)?;
    // A request leaves in one call, so there is nothing for Nagle's algorithm to gather.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(bytes) = receive_buffer_bytes {
        bound_receive_buffer(socket.as_fd(), bytes)?;
    }
    if let Some(source) = source {
        let name = libc::IP_BIND_ADDRESS_NO_PORT;
        set_option(socket.as_fd(), libc::IPPROTO_IP, name, 1)?;
        net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    match net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// What became of a connection that was begun: call it once the socket is writable.
///
/// # Errors
/// Why there is none: refused, timed out, reset, no route.
pub fn outcome(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

/// Sends what the socket takes of `bytes`; `None`: nothing, until it becomes writable.
///
/// # Errors
/// The connection is broken. There is no signal.
#[inline]
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    unless_blocked(|| net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))
}

/// What reading would bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// At least one byte.
    Some,
    /// Nothing yet.
    None,
    /// The end: the peer has closed its side in good order.
    End,
}

/// Looks at what reading would bring, without reading it.
///
/// # Errors
/// The connection is broken, and everything that came before has been read.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<Unread> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = unless_blocked(|| net::recv(socket, &mut [0_u8; 1], flags))?;
    Ok(match peeked {
        Some((0, _)) => Unread::End,
        Some(_) => Unread::Some,
        None => Unread::None,
    })
}

/// Has the coming close of the socket reset the connection instead of ending it in good order.
pub fn reset_on_close(socket: BorrowedFd<'_>) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO)); // then it ends in good order
}

/// Bounds what the kernel takes in before it is read: to be set before connecting, or as soon as
/// connected. Linux doubles it and has a least of some KiB.
///
/// # Errors
/// Only for a mistake of ours.
pub fn bound_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, bytes)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Events, Interest, Poller};

    fn wait_for(socket: &OwnedFd) {
        let (poller, mut events) = (Poller::new().unwrap(), Events::new());
        poller.add(socket, 1, Interest::Connection).unwrap();
        assert_eq!(poller.wait(&mut events, Some(5_000)).unwrap(), 1);
    }

    /// A connection: our end, and the other.
    fn connected(source: Option<IpAddr>, buffer_bytes: Option<usize>) -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = connect(&address, source, buffer_bytes).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        wait_for(&socket);
        (socket, accepted)
    }

    #[test]
    fn connects_from_the_address_asked_for_and_sends() {
        let source = "127.0.0.9".parse().unwrap();
        let (socket, mut accepted) = connected(Some(source), None);
        outcome(socket.as_fd()).unwrap();
        assert_eq!(accepted.peer_addr().unwrap().ip(), source);
        assert_eq!(send(socket.as_fd(), b"hello").unwrap(), Some(5));
        let mut five = [0; 5];
        accepted.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"hello");
        reset_on_close(socket.as_fd());
        drop(socket);
        let error = accepted.read(&mut five).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_full_socket_takes_nothing() {
        let (socket, mut accepted) = connected(None, None);
        let bytes = vec![0; 1 << 20];
        let mut sent = 0;
        while let Some(count) = send(socket.as_fd(), &bytes).unwrap() {
            sent += count;
        }
        assert!(sent > 0);
        drop(socket);
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), sent);
        accepted.flush().unwrap();
    }

    #[test]
    fn the_end_shows_without_reading_and_only_behind_what_came_before() {
        let (socket, mut accepted) = connected(None, Some(4096));
        assert_eq!(unread(socket.as_fd()).unwrap(), Unread::None);
        accepted.write_all(b"x").unwrap();
        drop(accepted);
        crate::wait_any(&[socket.as_fd()], Some(5_000)).unwrap();
        assert_eq!(unread(socket.as_fd()).unwrap(), Unread::Some);
        let mut buffer = [0; 8];
        assert_eq!(
            crate::socket::receive(socket.as_fd(), &mut buffer).unwrap(),
            Some(1)
        );
        crate::wait_any(&[socket.as_fd()], Some(5_000)).unwrap();
        assert_eq!(unread(socket.as_fd()).unwrap(), Unread::End);
    }

    #[test]
    fn a_bounded_buffer_stops_whoever_sends_to_one_that_does_not_read() {
        let bound = 8 << 10;
        let (socket, accepted) = connected(None, Some(bound));
        let taken = sockopt::socket_recv_buffer_size(&socket).unwrap();
        assert_eq!(taken, 2 * bound);
        drop(accepted);
    }

    #[test]
    fn where_nobody_listens_it_is_refused() {
        // Bound, so that the port stays reserved meanwhile.
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = tcp_socket(anywhere).unwrap();
        net::bind(&bound, &anywhere).unwrap();
        let address = SocketAddr::try_from(net::getsockname(&bound).unwrap()).unwrap();
        let refused = connect(&address, None, None).and_then(|socket| {
            wait_for(&socket);
            outcome(socket.as_fd())
        });
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
