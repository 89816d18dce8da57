//! The address: it accepts connections, refuses them, or does not react.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::inbox;

/// What becomes of connections to the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Listening {
    /// Connections are accepted.
    Answering,
    /// Connections are refused. The address is kept all the same, so that no other program gets it.
    Refusing,
    /// Nothing comes of connecting: the queue of connections is full and stays so, and the kernel
    /// throws further attempts away.
    Deaf,
}

/// What is held as long as the address is.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    pub(crate) address: SocketAddr,
    /// What fills the queue of one that is deaf.
    _fillers: Vec<OwnedFd>,
}

/// Connections that the kernel keeps until they are accepted; it takes less if `somaxconn` is less.
const BACKLOG: i32 = 4096;
/// With a backlog of 0 the kernel queues one connection; a few more than one are tried.
const FILLERS_MAX: usize = 8;

impl Listener {
    pub(crate) fn bind(address: SocketAddr, listening: Listening) -> io::Result<Self> {
        let socket = new_socket(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_tcp_nodelay(&socket, true)?; // what is accepted inherits it
        inbox::stamp_arrivals(&socket)?; // this, too
        net::bind(&socket, &address)?;
        let address = SocketAddr::try_from(net::getsockname(&socket)?)?;
        let mut fillers = Vec::new();
        match listening {
            Listening::Refusing => {}
            Listening::Answering => net::listen(&socket, BACKLOG)?,
            Listening::Deaf => {
                net::listen(&socket, 0)?;
                fillers = fill(address)?;
            }
        }
        Ok(Self {
            socket,
            address,
            _fillers: fillers,
        })
    }
}

fn new_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let tcp = Some(ipproto::TCP);
    Ok(net::socket_with(family, SocketType::STREAM, flags, tcp)?)
}

/// Connects until an attempt stays in the air. Over loopback the handshake is done when `connect`
/// returns, unless there was no room.
fn fill(address: SocketAddr) -> io::Result<Vec<OwnedFd>> {
    let mut fillers = Vec::new();
    for _ in 0..FILLERS_MAX {
        let filler = new_socket(address)?;
        match net::connect(&filler, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let is_in_the_air = net::getpeername(&filler).is_err();
        fillers.push(filler);
        if is_in_the_air {
            return Ok(fillers);
        }
    }
    let message = format!("the queue of {address} takes more connections than it should");
    Err(io::Error::other(message))
}

/// Accepts a connection; `None`: there is none.
///
/// # Errors
/// The process has no descriptor left, for example.
pub(crate) fn accept(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(connection) => Ok(Some(connection)),
        // One that is gone again says nothing about the others.
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    fn connect(listening: Listening) -> io::Result<TcpStream> {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), listening)?;
        TcpStream::connect_timeout(&listener.address, Duration::from_millis(100))
    }

    #[test]
    fn accepted_refused_or_neither() {
        assert!(connect(Listening::Answering).is_ok());
        let refused = connect(Listening::Refusing).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(io::ErrorKind::ConnectionRefused));
        let ignored = connect(Listening::Deaf).map_err(|error| error.kind());
        assert_eq!(ignored.err(), Some(io::ErrorKind::TimedOut));
    }
}
