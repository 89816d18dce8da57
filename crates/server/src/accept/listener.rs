//! A bound address, and listening on it as often as an architecture needs.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use loadline_sys::socket::{backlog_len, buffer_bytes, listen};
use loadline_sys::{ListenAddr, ListenOptions};

use crate::{Accept, ServerOptions};

/// How often, and how long apart, an address is tried again that is in use. The kernel takes a ring
/// down some time after its process has ended, and the listener with it: after a kill, a server that
/// is started again at once would find its own address taken. Half a second in all.
const IN_USE_TRIES: u32 = 25;
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// An address that cannot be listened on; what [`serve`](crate::serve) returns has it inside.
#[derive(Debug)]
pub struct ListenError {
    /// Which.
    pub address: ListenAddr,
    /// Why not.
    pub reason: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listening on {}: {}", self.address, self.reason)
    }
}

impl std::error::Error for ListenError {}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Dropped before the socket, with the last listener of the address: once that is closed, a successor
    /// may put its own file there.
    _file: Option<Arc<SocketFile>>,
    socket: OwnedFd,
    /// Its place among the addresses of the server.
    number: u32,
    address: ListenAddr,
    options: ListenOptions,
}

impl Listener {
    /// Listens at each of `addresses`. With `Accept::ReusePort` further ones can be had by `again`.
    pub(crate) fn bind_all(
        addresses: &[ListenAddr],
        options: &ServerOptions,
        unix_mode: Option<u32>,
    ) -> io::Result<Vec<Self>> {
        let has_loops = options.architecture.has_loops();
        let bind = |(number, address): (u32, &ListenAddr)| {
            let options = ListenOptions {
                backlog: options.backlog,
                reuse_port: has_loops && options.accept == Accept::ReusePort && options.loops > 1,
                defer_accept: options.defer_accept,
                ipv6_only: leaves_ipv4(address, addresses),
                buffer_bytes: options.socket_buffer_bytes,
                unix_mode,
            };
            Self::bind(number, address, options)
        };
        (0..).zip(addresses).map(bind).collect()
    }

    fn bind(number: u32, address: &ListenAddr, options: ListenOptions) -> io::Result<Self> {
        let (socket, bound) = listen_retrying(address, options).map_err(|reason| {
            let kind = reason.kind();
            let address = address.clone();
            io::Error::new(kind, ListenError { address, reason })
        })?;
        let file = match &bound {
            ListenAddr::Unix(path) => Some(Arc::new(SocketFile::new(path.clone())?)),
            ListenAddr::Tcp(_) => None,
        };
        Ok(Self {
            socket,
            number,
            address: bound,
            options,
            _file: file,
        })
    }

    /// One more listener at the same address, for another loop: of its own with
    /// `Accept::ReusePort`, otherwise (and over a Unix socket) the same one by another descriptor.
    pub(crate) fn again(&self) -> io::Result<Self> {
        let separate = self.options.reuse_port && matches!(self.address, ListenAddr::Tcp(_));
        let socket = if separate {
            listen(&self.address, self.options)?.0
        } else {
            self.socket.try_clone()?
        };
        Ok(Self {
            socket,
            number: self.number,
            address: self.address.clone(),
            options: self.options,
            _file: self._file.clone(),
        })
    }

    /// Connections that wait to be accepted; over a Unix socket, where the kernel does not say, the
    /// most that there can be.
    pub(crate) fn backlog_len(&self) -> u64 {
        backlog_len(self.as_fd()).map_or_else(|| u64::from(self.options.backlog), u64::from)
    }

    /// What the kernel grants a new connection to send and to receive; 0 where it does not say.
    pub(crate) fn socket_buffer_bytes(&self) -> u64 {
        buffer_bytes(self.as_fd()).unwrap_or(0)
    }

    /// Its place among the addresses of the server.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Where it is bound: with the port that the kernel chose, if it was 0.
    pub(crate) fn address(&self) -> &ListenAddr {
        &self.address
    }
}

/// Whether another of `all` has IPv4 at the port of `address`: then `[::]` there is for IPv6 alone.
/// Without one it is for both, as it is everywhere on Linux where nobody says otherwise.
fn leaves_ipv4(address: &ListenAddr, all: &[ListenAddr]) -> bool {
    let ListenAddr::Tcp(address) = address else {
        return false;
    };
    let has_ipv4 = |other: &ListenAddr| match other {
        ListenAddr::Tcp(other) => other.is_ipv4() && other.port() == address.port(),
        ListenAddr::Unix(_) => false,
    };
    address.port() != 0 && all.iter().any(has_ipv4)
}

/// Listens, also where a predecessor is about to leave the address.
fn listen_retrying(
    address: &ListenAddr,
    options: ListenOptions,
) -> io::Result<(OwnedFd, ListenAddr)> {
    let mut tries_left = IN_USE_TRIES;
    loop {
        match listen(address, options) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries_left > 0 => {
                tries_left -= 1;
                std::thread::sleep(IN_USE_PAUSE);
            }
            result => return result,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The file of a Unix socket; removed in the end, unless a successor has put its own there.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&path)?;
        Ok(Self { path, identity })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path); // left behind, it is no obstacle to a successor
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

    use rustix::net::{self, AddressFamily, SocketType, sockopt};

    use super::*;

    fn tcp(address: &str) -> ListenAddr {
        ListenAddr::Tcp(address.parse().unwrap())
    }

    #[test]
    fn the_unspecified_address_leaves_ipv4_to_whom_it_was_given() {
        let unix = ListenAddr::Unix("/80".into());
        let all = [
            tcp("[::]:80"),
            tcp("127.0.0.1:80"),
            tcp("0.0.0.0:81"),
            tcp("0.0.0.0:0"),
            unix.clone(),
        ];
        let table = [
            (tcp("[::]:80"), true),
            (tcp("[::]:81"), true),
            (tcp("[::]:82"), false),
            (tcp("[::]:0"), false), // each takes a port of its own
            (unix, false),
        ];
        for (address, expected) in table {
            assert_eq!(leaves_ipv4(&address, &all), expected, "{address}");
        }
        assert!(!leaves_ipv4(
            &tcp("[::]:80"),
            &[tcp("[::]:80"), tcp("[::1]:80")]
        ));
    }

    /// In both orders, with a listener for all loops and with one for each.
    #[test]
    fn ipv4_and_ipv6_share_a_port() {
        let Some((kept, port)) = kept_port() else {
            return;
        };
        let ways =
            [Accept::Shared, Accept::ReusePort].map(|accept| [(accept, false), (accept, true)]);
        for (accept, swapped) in ways.into_iter().flatten() {
            let options = ServerOptions {
                accept,
                loops: 2,
                defer_accept: false, // the clients send nothing
                ..ServerOptions::default()
            };
            if accept == Accept::ReusePort {
                sockopt::set_socket_reuseport(&kept, true).unwrap();
            }
            let mut both = [
                tcp(&format!("0.0.0.0:{port}")),
                tcp(&format!("[::]:{port}")),
            ];
            if swapped {
                both.reverse();
            }
            let listeners = Listener::bind_all(&both, &options, None).unwrap();
            for listener in &listeners {
                let address = tcp_address(listener);
                let peer = peer_of_a_client(address, listener);
                assert_eq!(
                    peer.is_ipv4(),
                    address.is_ipv4(),
                    "{address} in {listeners:?}"
                );
                listener.again().unwrap();
            }
        }
    }

    #[test]
    fn the_unspecified_address_alone_takes_both() {
        if kept_port().is_none() {
            return;
        }
        let any = tcp("[::]:0");
        let options = ServerOptions {
            defer_accept: false, // the clients send nothing
            ..ServerOptions::default()
        };
        let listeners = Listener::bind_all(&[any], &options, None).unwrap();
        let address = tcp_address(&listeners[0]);
        for ip in ["127.0.0.1", "::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            let peer = peer_of_a_client((ip, address.port()).into(), &listeners[0]);
            assert_eq!(peer.ip().to_canonical(), ip);
        }
    }

    /// A port that the kernel gives to nobody who does not ask for it: bound, and not listened on. Without IPv6,
    /// says so and has none.
    fn kept_port() -> Option<(OwnedFd, u16)> {
        let any: SocketAddr = "[::]:0".parse().unwrap();
        let socket = net::socket(AddressFamily::INET6, SocketType::STREAM, None);
        let bound = socket.and_then(|socket| {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            net::bind(&socket, &any).map(|()| socket)
        });
        let Ok(socket) = bound else {
            let _ = writeln!(io::stderr(), "\nskipped: this machine has no IPv6");
            return None;
        };
        let bound = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap();
        Some((socket, bound.port()))
    }

    fn tcp_address(listener: &Listener) -> SocketAddr {
        match listener.address() {
            ListenAddr::Tcp(address) => *address,
            ListenAddr::Unix(_) => panic!("not TCP"),
        }
    }

    /// Connects to `address`, and returns the connection that `listener` then accepts.
    fn peer_of_a_client(address: SocketAddr, listener: &Listener) -> SocketAddr {
        let local: IpAddr = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let _client = TcpStream::connect((local, address.port())).unwrap();
        loadline_sys::wait_any(&[listener.as_fd()], Some(20_000)).unwrap();
        let accepted = loadline_sys::socket::accept(listener.as_fd()).unwrap();
        accepted.expect("it waits here").peer.unwrap()
    }
}
