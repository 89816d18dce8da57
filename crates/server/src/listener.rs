//! A bound address, and listening on it as often as an architecture needs.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use loadline_sys::socket::{backlog_len, listen};
use loadline_sys::{ListenAddr, ListenOptions};

use crate::{Accept, ServerOptions};

/// How often, and how long apart, an address is tried again that is in use. The kernel takes a ring
/// down some time after its process has ended, and the listener with it: after a kill, a server that
/// is started again at once would find its own address taken. Half a second in all.
const IN_USE_TRIES: u32 = 25;
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    address: ListenAddr,
    options: ListenOptions,
    /// Dropped after the socket: with the last listener of the address, what it names is dead.
    _file: Option<Arc<SocketFile>>,
}

impl Listener {
    /// Listens at `address`. With `Accept::ReusePort` further ones can be had by `again`.
    pub(crate) fn bind(
        address: &ListenAddr,
        options: &ServerOptions,
        unix_mode: Option<u32>,
    ) -> io::Result<Self> {
        let has_loops = options.architecture.has_loops();
        let options = ListenOptions {
            backlog: options.backlog,
            reuse_port: has_loops && options.accept == Accept::ReusePort && options.loops > 1,
            defer_accept: options.defer_accept,
            unix_mode,
        };
        let (socket, bound) = listen_patiently(address, options).map_err(|error| {
            io::Error::new(error.kind(), format!("listening on {address}: {error}"))
        })?;
        let file = match &bound {
            ListenAddr::Unix(path) => Some(Arc::new(SocketFile::new(path.clone())?)),
            ListenAddr::Tcp(_) => None,
        };
        Ok(Self {
            socket,
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

    /// Where it is bound: with the port that the kernel chose, if it was 0.
    pub(crate) fn address(&self) -> &ListenAddr {
        &self.address
    }
}

/// Listens, also where a predecessor is about to leave the address.
fn listen_patiently(
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
