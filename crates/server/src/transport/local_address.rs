//! The addresses at which connections arrive: few, so a connection remembers which one in a byte.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use loadline_sys::socket;

/// Addresses that are remembered: those of a machine with many networks. Connections at any other
/// ask the kernel for each request of an app.
const ADDRESSES_MAX: usize = 32;

/// Addresses at which connections have arrived.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses([OnceLock<SocketAddr>; ADDRESSES_MAX]);

/// Which one it is: not known yet, or none (a Unix socket), or one of those remembered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Arrived {
    #[default]
    Unknown,
    Nowhere,
    At(u8),
}

impl LocalAddresses {
    /// Of this socket, whose connection keeps `arrived`: one system call, the first time.
    #[inline]
    pub(crate) fn of(&self, arrived: &mut Arrived, socket: BorrowedFd<'_>) -> Option<SocketAddr> {
        match *arrived {
            Arrived::Unknown => self.ask(arrived, socket),
            Arrived::Nowhere => None,
            Arrived::At(index) => self.0.get(usize::from(index))?.get().copied(),
        }
    }

    #[cold]
    fn ask(&self, arrived: &mut Arrived, socket: BorrowedFd<'_>) -> Option<SocketAddr> {
        let Some(address) = socket::local(socket) else {
            *arrived = Arrived::Nowhere;
            return None;
        };
        let mut known = (0..).zip(&self.0);
        if let Some((index, _)) = known.find(|(_, known)| *known.get_or_init(|| address) == address)
        {
            *arrived = Arrived::At(index);
        }
        Some(address)
    }
}
