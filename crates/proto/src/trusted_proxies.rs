//! Which peers are proxies whose word about their clients is taken, and who the client is then.
//!
//! Whether a connection's peer is trusted is decided once, when it is accepted. Only requests of one
//! that is are searched for the field; of all others it is content like any other.
//!
//! A proxy adds the sender at the end of the field, so that what a client has sent itself stands in
//! front. The last address that is not a trusted proxy's is the client: a trusted proxy wrote it.
//! If the field has something else than an address there, the proxy that wrote it stands for the
//! client.
//!
//! One field counts, and not two: a proxy that writes one passes the other on as its client sent it.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

use crate::client::Forwarded;
use crate::http1::forwarded::{self, Hop};
use crate::{Exchange, ForwardedField, Request};

/// A proxy, or a network of them: `10.0.0.7`, `10.0.0.0/8`, or `unix` for all peers on a Unix
/// socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    /// Peers with these addresses.
    Network(IpNet),
    /// Peers on Unix sockets.
    Unix,
}

impl FromStr for TrustedProxy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let address = text.parse::<IpAddr>().map(IpNet::from);
        let network = address.or_else(|_| text.parse()).map_err(
            |_| "right would be an address, a network such as 10.0.0.0/8, or unix for Unix sockets",
        )?;
        Ok(Self::Network(canonical(network)))
    }
}

/// Networks of IPv4 that are written as IPv6 (`::ffff:10.0.0.0/104`), as themselves: so are addresses.
fn canonical(network: IpNet) -> IpNet {
    if let IpNet::V6(v6) = network
        && let IpAddr::V4(address) = v6.addr().to_canonical()
        && let Some(prefix_len) = v6.prefix_len().checked_sub(96)
        && let Ok(v4) = Ipv4Net::new(address, prefix_len)
    {
        return v4.into();
    }
    network
}

/// The proxies that are trusted; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    unix: bool,
    field: ForwardedField,
}

/// What a connection's peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// A client.
    Client,
    /// A trusted proxy.
    Proxy,
    /// On this machine, and not named: its first request is looked at for the fields of a proxy.
    Unnamed,
}

impl TrustedProxies {
    /// These proxies, who use this field.
    #[must_use]
    pub fn new(proxies: &[TrustedProxy], field: ForwardedField) -> Self {
        let networks = proxies.iter().filter_map(|proxy| match proxy {
            TrustedProxy::Network(network) => Some(*network),
            TrustedProxy::Unix => None,
        });
        Self {
            networks: networks.collect(),
            unix: proxies.contains(&TrustedProxy::Unix),
            field,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// Whether the peer of a connection is one of them; `None`: one on a Unix socket.
    #[must_use]
    pub fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        match peer {
            Some(peer) => self.trusts_address(peer.ip().to_canonical()),
            None => self.unix,
        }
    }

    pub(crate) fn peer_kind(&self, peer: Option<SocketAddr>) -> PeerKind {
        let is_local = || peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback());
        match () {
            () if self.trusts(peer) => PeerKind::Proxy,
            () if is_local() => PeerKind::Unnamed,
            () => PeerKind::Client,
        }
    }

    /// What a request from this peer says of its client. Whether it is a proxy that nobody has named is looked
    /// at once for a connection.
    #[inline]
    pub(crate) fn note(&self, kind: &mut PeerKind, exchange: &mut Exchange) {
        match kind {
            PeerKind::Client => {}
            PeerKind::Proxy => exchange.forwarded = self.forwarded(&exchange.request),
            PeerKind::Unnamed => {
                exchange.unnamed_proxy = forwarded::field_of_a_proxy(&exchange.request);
                *kind = PeerKind::Client;
            }
        }
    }

    /// What is said about a request that came from one of them.
    fn forwarded(&self, request: &Request) -> Forwarded {
        match self.field {
            ForwardedField::XForwardedFor => Forwarded {
                is_secure: forwarded::proto_is_https(request),
                ..self.walk(forwarded::x_forwarded_for(request))
            },
            ForwardedField::Forwarded => self.walk(forwarded::forwarded(request)),
        }
    }

    /// Goes back from the last hop to the first one that is not between proxies of ours.
    fn walk(&self, hops: impl Iterator<Item = Hop>) -> Forwarded {
        let mut found = Forwarded::default();
        for hop in hops {
            found.is_secure = hop.is_secure;
            let Some(from) = hop.from else {
                break;
            };
            found.client = Some(from);
            if !self.trusts_address(from.address) {
                break;
            }
        }
        found
    }

    fn trusts_address(&self, address: IpAddr) -> bool {
        let mut networks = self.networks.iter();
        networks.any(|network| network.contains(&address))
    }
}
