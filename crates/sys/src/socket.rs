//! Sockets: listening, accepting, receiving, closing.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags,
    SocketType, sockopt,
};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    /// A TCP address; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// A Unix socket at this path.
    Unix(PathBuf),
}

impl<A: Into<SocketAddr>> From<A> for ListenAddr {
    fn from(address: A) -> Self {
        Self::Tcp(address.into())
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that the kernel keeps until they are accepted.
    pub backlog: u32,
    /// Let several listeners share the address; the kernel spreads connections (TCP only).
    pub reuse_port: bool,
    /// Show a connection only when its first bytes came (TCP only).
    pub defer_accept: bool,
    /// Leave IPv4 to others at `[::]`, which otherwise takes its connections too.
    pub ipv6_only: bool,
    /// What the kernel may keep for a connection in either direction, in bytes; `None`: as much as it
    /// finds good (TCP only).
    pub buffer_bytes: Option<usize>,
    /// Permissions of a Unix socket's file; `None`: by the process's mask.
    pub unix_mode: Option<u32>,
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The socket: non-blocking, closed on exec.
    pub socket: OwnedFd,
    /// The client's address; `None` over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The number of the listener, as its owner counts them; 0 as `accept` leaves it.
    pub listener: u32,
}

/// Listens at `address`, and says at which address it came to be (the port, if it was 0).
///
/// What connections inherit from the listener is set on it, once: `TCP_NODELAY`, and the
/// sizes of buffers if they are given.
///
/// # Errors
/// The address is taken, not ours, or may not be used; the path has no folder.
pub fn listen(address: &ListenAddr, options: ListenOptions) -> io::Result<(OwnedFd, ListenAddr)> {
    match address {
        ListenAddr::Tcp(address) => listen_tcp(*address, options),
        ListenAddr::Unix(path) => Ok((listen_unix(path, options)?, ListenAddr::Unix(path.clone()))),
    }
}

/// What the kernel may keep for a socket to send and to receive, both together, in bytes: what it grants now,
/// and, of a listener, to new connections. Where nobody has set it, it grants some connections more later.
///
/// # Errors
/// Not a socket.
pub fn buffer_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let send_bytes = sockopt::socket_send_buffer_size(socket)?;
    let receive_bytes = sockopt::socket_recv_buffer_size(socket)?;
    Ok((send_bytes + receive_bytes) as u64)
}

fn listen_tcp(address: SocketAddr, options: ListenOptions) -> io::Result<(OwnedFd, ListenAddr)> {
    let socket = tcp_socket(address)?;
    // A server restarts on its port at once, past connections of its predecessor in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if matches!(address, SocketAddr::V6(v6) if v6.ip().is_unspecified()) {
        // Said in either case: the default is the machine's (`net.ipv6.bindv6only`).
        sockopt::set_ipv6_v6only(&socket, options.ipv6_only)?;
    }
    // An answer leaves in one call, so there is nothing for Nagle's algorithm to gather.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(bytes) = options.buffer_bytes {
        // Before `listen`: the window that a handshake offers depends on it. The kernel doubles what it
        // is given.
        sockopt::set_socket_recv_buffer_size(&socket, bytes / 2)?;
        sockopt::set_socket_send_buffer_size(&socket, bytes / 2)?;
    }
    if options.defer_accept {
        let name = libc::TCP_DEFER_ACCEPT;
        set_option(
            socket.as_fd(),
            libc::IPPROTO_TCP,
            name,
            DEFER_ACCEPT_SECONDS,
        )?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, backlog(options))?;
    let bound = SocketAddr::try_from(net::getsockname(&socket)?)?;
    Ok((socket, ListenAddr::Tcp(bound)))
}

/// Seconds that the kernel waits for first bytes before it shows the connection without them.
const DEFER_ACCEPT_SECONDS: libc::c_int = 5;

/// Sets an option that is a number, for which rustix has no function.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel reads
    // `size_of_val(&value)` bytes at the address of `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Two servers that start at once would both find a dead socket, or one that is bound and does not listen
/// yet: the second would remove the file of the first. So one at a time is here.
fn listen_unix(path: &Path, options: ListenOptions) -> io::Result<OwnedFd> {
    let lock = lock_folder(path)?;
    let listening = listen_at(path, options);
    if let Some(lock) = lock {
        let _ = lock.unlock(); // a child may have the descriptor until it executes its program
    }
    listening
}

/// Locks the folder of a socket. `None`: that cannot be, since this user may not read it for instance.
///
/// # Errors
/// Another process is there now: the address is in use.
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Ok(folder) = File::open(folder) else {
        return Ok(None);
    };
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(Errno::ADDRINUSE.into()),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn listen_at(path: &Path, options: ListenOptions) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = new_socket(AddressFamily::UNIX)?;
    match net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, &address)?;
            net::bind(&socket, &address)?;
        }
        result => result?,
    }
    if let Some(mode) = options.unix_mode {
        // Before `listen`: until then no client can connect, whatever the mask allowed.
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    }
    net::listen(&socket, backlog(options))?;
    Ok(socket)
}

/// Removes a socket file that a predecessor left behind, and nothing else.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let in_use = || io::Error::from(Errno::ADDRINUSE);
    let found = rustix::fs::lstat(path)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(in_use());
    }
    let probe = new_socket(AddressFamily::UNIX)?;
    match net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => Ok(rustix::fs::unlink(path)?),
        _ => Err(in_use()), // connected, or its backlog is full: a server listens
    }
}

/// A TCP socket of the family of an address: non-blocking, closed on exec.
pub(crate) fn tcp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    new_socket(match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    })
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn backlog(options: ListenOptions) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
}

/// Takes the next connection, if there is one; never waits.
///
/// # Errors
/// At a descriptor limit or without memory; see [`AcceptError`] to distinguish them. Errors of a
/// connection that died in the queue are passed over.
pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<Accepted>, AcceptError> {
    // A bound, so that a stream of dying connections cannot hold the caller here.
    for _ in 0..64 {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match net::acceptfrom_with(listener, flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(internet_address);
                return Ok(Some(Accepted {
                    socket,
                    peer,
                    listener: 0,
                }));
            }
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                return Err(AcceptError::Exhausted);
            }
            Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP)) => {
                return Err(AcceptError::Listener(error.into()));
            }
            Err(_) => {} // the connection's own error (accept(2), "Error handling")
        }
    }
    Ok(None)
}

/// Why nothing could be accepted.
#[derive(Debug)]
pub enum AcceptError {
    /// A descriptor limit is reached, or memory is short: the connection still waits.
    Exhausted,
    /// The listener itself is unusable.
    Listener(io::Error),
}

/// The address of the other end; `None` over a Unix socket.
///
/// # Errors
/// It has gone, and its address with it, though what it sent may still be there.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Option<SocketAddr>> {
    Ok(net::getpeername(socket)?.and_then(internet_address))
}

/// The address at which a connection has arrived.
#[must_use]
pub fn local(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    net::getsockname(socket).ok().and_then(internet_address)
}

fn internet_address(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok() // a Unix address has no peer to name
}

/// Receives what is there, without waiting: `Ok(None)` if nothing is, `Ok(Some(0))` at the end.
///
/// # Errors
/// The connection failed.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    unless_blocked(|| {
        let (count, _) = net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        Ok(count)
    })
}

/// A call again as long as it is interrupted; `None`: it would have to wait.
#[inline]
pub(crate) fn unless_blocked<T>(
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> io::Result<Option<T>> {
    loop {
        match call() {
            Ok(value) => return Ok(Some(value)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether bytes or the end are there to be received.
#[must_use]
pub fn has_input(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    !matches!(net::recv(socket, &mut [0_u8], flags), Err(Errno::AGAIN))
}

/// Whether nothing more will come, and nothing is left to be received.
#[must_use]
pub fn is_at_end(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    match net::recv(socket, &mut [0_u8], flags) {
        Ok((_, count)) => count == 0,
        Err(error) => error != Errno::AGAIN,
    }
}

/// Throws away what is there, at most as much as `buffer` holds, without waiting or copying: what
/// is in `buffer` stays as it is (`MSG_TRUNC` of tcp(7)). Answers as [`receive`] does.
///
/// # Errors
/// The connection failed.
#[inline]
pub fn discard(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    unless_blocked(|| {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let (_, count) = net::recv(socket, &mut *buffer, flags)?;
        Ok(count)
    })
}

/// Half-closes: the peer reads the end after what was sent.
///
/// # Errors
/// The connection is gone already.
pub fn finish(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(socket, Shutdown::Write)?)
}

/// Ends a connection in both directions: whoever waits for it wakes up. The descriptor stays open.
pub fn cut(socket: BorrowedFd<'_>) {
    let _ = net::shutdown(socket, Shutdown::Both); // gone already: as well
}

/// Connections that wait at a listener to be accepted; `None` if the kernel does not say (only TCP).
#[must_use]
pub fn backlog_len(listener: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(listener).map(|info| info.tcpi_unacked) // of a listener: the length of its queue
}

/// How long ago a connection last received bytes, in milliseconds, as exact as the kernel's ticks (1 to
/// 10 ms); `None` if the kernel does not say (only TCP).
#[must_use]
pub fn received_ago_ms(socket: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(socket).map(|info| info.tcpi_last_data_recv)
}

fn tcp_info(socket: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    // SAFETY: all fields of `tcp_info` are integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes at most `len`
    // bytes at the address of `info`, which is that large and lives through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    (result == 0).then_some(info)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    const OPTIONS: ListenOptions = ListenOptions {
        backlog: 16,
        reuse_port: false,
        defer_accept: false,
        ipv6_only: false,
        buffer_bytes: None,
        unix_mode: None,
    };

    fn anywhere() -> ListenAddr {
        ListenAddr::Tcp(([127, 0, 0, 1], 0).into())
    }

    fn port_of(address: &ListenAddr) -> SocketAddr {
        match address {
            ListenAddr::Tcp(address) => *address,
            ListenAddr::Unix(_) => panic!("not TCP"),
        }
    }

    fn accepted(listener: &OwnedFd) -> Accepted {
        crate::wait_any(&[listener.as_fd()], Some(5_000)).unwrap();
        accept(listener.as_fd()).unwrap().unwrap()
    }

    #[test]
    fn what_is_accepted_inherits_nodelay_and_never_waits() {
        let (listener, address) = listen(&anywhere(), OPTIONS).unwrap();
        assert!(accept(listener.as_fd()).unwrap().is_none());
        assert_eq!(backlog_len(listener.as_fd()), Some(0));
        let mut client = TcpStream::connect(port_of(&address)).unwrap();
        crate::wait_any(&[listener.as_fd()], Some(5_000)).unwrap();
        assert_eq!(backlog_len(listener.as_fd()), Some(1));
        let server = accepted(&listener);
        assert_eq!(server.peer, Some(client.local_addr().unwrap()));
        assert!(sockopt::tcp_nodelay(&server.socket).unwrap());
        let (socket, mut buffer) = (server.socket.as_fd(), [0; 8]);
        assert_eq!(receive(socket, &mut buffer).unwrap(), None);
        client.write_all(b"abc").unwrap();
        crate::wait_any(&[socket], Some(5_000)).unwrap();
        assert_eq!(receive(socket, &mut buffer).unwrap(), Some(3));
        finish(socket).unwrap();
        assert_eq!(client.read(&mut buffer).unwrap(), 0);
        drop(client);
        crate::wait_any(&[socket], Some(5_000)).unwrap();
        assert_eq!(receive(socket, &mut buffer).unwrap(), Some(0));
    }

    #[test]
    fn what_has_waited_to_be_read_has_an_age() {
        let (listener, address) = listen(&anywhere(), OPTIONS).unwrap();
        let mut client = TcpStream::connect(port_of(&address)).unwrap();
        let server = accepted(&listener);
        let begun = Instant::now();
        client.write_all(b"abc").unwrap();
        crate::wait_any(&[server.socket.as_fd()], Some(5_000)).unwrap();
        let came = Instant::now();
        while came.elapsed() < Duration::from_millis(40) {
            std::thread::yield_now();
        }
        let ago_ms = u64::from(received_ago_ms(server.socket.as_fd()).unwrap());
        let tick = Duration::from_millis(10);
        let ago = Duration::from_millis(ago_ms);
        assert!(ago + tick >= Duration::from_millis(40), "{ago:?}");
        assert!(ago <= begun.elapsed() + tick, "{ago:?}");
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(received_ago_ms(one.as_fd()), None);
    }

    #[test]
    fn what_is_discarded_is_counted_and_not_seen() {
        let (listener, address) = listen(&anywhere(), OPTIONS).unwrap();
        let mut client = TcpStream::connect(port_of(&address)).unwrap();
        let server = accepted(&listener);
        let (socket, mut buffer) = (server.socket.as_fd(), [7; 8]);
        assert_eq!(discard(socket, &mut buffer).unwrap(), None);
        client.write_all(b"abcdefghij").unwrap();
        crate::wait_any(&[socket], Some(5_000)).unwrap();
        assert_eq!(discard(socket, &mut buffer).unwrap(), Some(8));
        assert_eq!(buffer, [7; 8]);
        assert_eq!(receive(socket, &mut buffer).unwrap(), Some(2));
        assert_eq!(&buffer[..2], b"ij");
        drop(client);
        crate::wait_any(&[socket], Some(5_000)).unwrap();
        assert_eq!(discard(socket, &mut buffer).unwrap(), Some(0));
    }

    #[test]
    fn an_address_in_use_is_refused_unless_shared() {
        let (_listener, address) = listen(&anywhere(), OPTIONS).unwrap();
        let error = listen(&address, OPTIONS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let shared = ListenOptions {
            reuse_port: true,
            ..OPTIONS
        };
        let (_one, address) = listen(&anywhere(), shared).unwrap();
        let (_two, again) = listen(&address, shared).unwrap();
        assert_eq!(address, again);
    }

    #[test]
    fn connections_inherit_the_sizes_of_their_buffers() {
        let bytes = 64 << 10;
        let options = ListenOptions {
            buffer_bytes: Some(bytes),
            ..OPTIONS
        };
        let (listener, address) = listen(&anywhere(), options).unwrap();
        let _client = TcpStream::connect(port_of(&address)).unwrap();
        let server = accepted(&listener).socket;
        assert_eq!(sockopt::socket_recv_buffer_size(&server).unwrap(), bytes);
        assert_eq!(sockopt::socket_send_buffer_size(&server).unwrap(), bytes);
        for socket in [&listener, &server] {
            assert_eq!(buffer_bytes(socket.as_fd()).unwrap(), 2 * bytes as u64);
        }
    }

    #[test]
    fn a_deferred_connection_shows_with_its_first_bytes() {
        let options = ListenOptions {
            defer_accept: true,
            ..OPTIONS
        };
        let (listener, address) = listen(&anywhere(), options).unwrap();
        let mut client = TcpStream::connect(port_of(&address)).unwrap();
        assert!(accept(listener.as_fd()).unwrap().is_none());
        client.write_all(b"a").unwrap();
        let server = accepted(&listener);
        assert_eq!(
            receive(server.socket.as_fd(), &mut [0; 8]).unwrap(),
            Some(1)
        );
    }

    #[test]
    fn of_servers_that_start_at_once_one_replaces_a_dead_socket_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = ListenAddr::Unix(path.clone());
        drop(listen(&address, OPTIONS).unwrap());
        let other = File::open(folder.path()).unwrap();
        other.lock().unwrap();
        let error = listen(&address, OPTIONS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        other.unlock().unwrap();
        for round in 0..20 {
            let listening: Vec<_> = std::thread::scope(|scope| {
                let start = |_| scope.spawn(|| listen(&address, OPTIONS));
                let starts: Vec<_> = (0..4).map(start).collect();
                let results = starts.into_iter().map(|start| start.join().unwrap());
                results.filter_map(Result::ok).collect()
            });
            assert_eq!(listening.len(), 1, "round {round}");
            let _client = UnixStream::connect(&path).unwrap();
            accepted(&listening[0].0);
        }
    }

    #[test]
    fn only_a_dead_socket_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = ListenAddr::Unix(path.clone());
        let (listener, _) = listen(&address, OPTIONS).unwrap();
        let error = listen(&address, OPTIONS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let mode = Some(0o640);
        let options = ListenOptions {
            unix_mode: mode,
            ..OPTIONS
        };
        let (listener, _) = listen(&address, options).unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        assert_eq!(Some(stat.st_mode & 0o777), mode);
        let _client = UnixStream::connect(&path).unwrap();
        assert_eq!(accepted(&listener).peer, None);
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"precious").unwrap();
        let error = listen(&address, OPTIONS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
