//! The other end of a connection in 24 bytes. Each connection keeps it, also when it is idle, and the
//! standard library's takes 32.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::trusted_proxies::PeerKind;

/// An address, or none on a Unix socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    address: [u8; 16],
    scope_id: u32,
    port: u16,
    family: Family,
    /// What it counts as.
    pub(crate) kind: PeerKind,
}

#[derive(Clone, Copy, Debug)]
enum Family {
    Unix,
    V4,
    V6,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>, kind: PeerKind) -> Self {
        let mut peer = Self {
            address: [0; 16],
            scope_id: 0,
            port: address.map_or(0, |address| address.port()),
            family: Family::Unix,
            kind,
        };
        match address {
            None => {}
            Some(SocketAddr::V4(v4)) => {
                peer.family = Family::V4;
                peer.address[..4].copy_from_slice(&v4.ip().octets());
            }
            Some(SocketAddr::V6(v6)) => {
                peer.family = Family::V6;
                peer.address = v6.ip().octets();
                peer.scope_id = v6.scope_id();
            }
        }
        peer
    }

    /// The address again. (The flow label of IPv6, which is no part of it, is left out.)
    #[inline]
    pub(crate) fn address(self) -> Option<SocketAddr> {
        let [a, b, c, d, ..] = self.address;
        match self.family {
            Family::Unix => None,
            Family::V4 => Some((Ipv4Addr::new(a, b, c, d), self.port).into()),
            Family::V6 => {
                let ip = Ipv6Addr::from(self.address);
                Some(SocketAddrV6::new(ip, self.port, 0, self.scope_id).into())
            }
        }
    }
}

const _: () = assert!(size_of::<Peer>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for text in [
            "192.0.2.7:80",
            "0.0.0.0:0",
            "[2001:db8::1]:65535",
            "[::ffff:192.0.2.7]:80",
            "[fe80::1%3]:80",
        ] {
            let address = Some(text.parse().unwrap());
            assert_eq!(
                Peer::new(address, PeerKind::Client).address(),
                address,
                "{text}"
            );
        }
        assert_eq!(Peer::new(None, PeerKind::Client).address(), None);
    }
}
