//! Who asks: the address that limits are held against, whether by TLS, and the cookies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use ipnet::IpNet;

use super::App;
use super::cookies::Cookie;
use crate::token::Token;

/// The other end of the connection, for servers that do not give axum's [`ConnectInfo`]: insert it
/// into the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; `None` on a unix socket.
    pub address: Option<IpAddr>,
    /// Whether the connection itself is encrypted.
    pub is_tls: bool,
}

/// A proxy, or a network of them, whose word about its clients is taken: `10.0.0.7`, `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedProxy(IpNet);

impl FromStr for TrustedProxy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.parse::<IpAddr>().map(IpNet::from);
        let network = address.or_else(|_| text.parse());
        network
            .map(Self)
            .map_err(|_| "right would be an address or a network such as 10.0.0.0/8")
    }
}

/// Who asks.
#[derive(Clone)]
pub(super) struct Visitor {
    /// The address, of IPv6 its network of 64 bits: that is what one customer has.
    pub(super) address: IpAddr,
    /// Whether the request came by TLS, to this server or to a proxy that is trusted.
    pub(super) is_secure: bool,
    /// Of who is logged in: one of them is, if any.
    pub(super) sessions: Vec<Token>,
    /// Of who is not, for forms.
    pub(super) guests: Vec<Token>,
}

/// Finds out who asks and hands it on.
pub(super) async fn recognise(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = peer(request.extensions());
    let visitor = visitor(peer, request.headers(), &app.options.trusted_proxies);
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

fn peer(extensions: &Extensions) -> Peer {
    if let Some(peer) = extensions.get::<Peer>() {
        return *peer;
    }
    let connected = extensions.get::<ConnectInfo<SocketAddr>>();
    Peer {
        address: connected.map(|ConnectInfo(address)| address.ip()),
        is_tls: false,
    }
}

fn visitor(peer: Peer, fields: &HeaderMap, trusted: &[TrustedProxy]) -> Visitor {
    let is_trusted = |address: IpAddr| {
        let address = address.to_canonical();
        trusted.iter().any(|proxy| proxy.0.contains(&address))
    };
    // All who come by a unix socket are one: it is a proxy's, which can be trusted by its address.
    let mut address = peer.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut is_secure = peer.is_tls;
    if is_trusted(address) {
        is_secure |= last(fields, "x-forwarded-proto").is_some_and(|proto| proto == "https");
        // Each proxy adds whom it heard from at the end: the last who is none of ours is the client.
        let chain: Vec<IpAddr> = listed(fields, "x-forwarded-for")
            .map_while(|text| text.parse().ok())
            .collect();
        let client = chain.iter().copied().find(|address| !is_trusted(*address));
        address = client.or_else(|| chain.last().copied()).unwrap_or(address);
    }
    Visitor {
        address: of_customer(address),
        is_secure,
        sessions: Cookie::Session.found(fields, is_secure),
        guests: Cookie::Guest.found(fields, is_secure),
    }
}

/// The members of a list field, the last first.
fn listed<'f>(fields: &'f HeaderMap, name: &'static str) -> impl Iterator<Item = &'f str> {
    let values = fields.get_all(HeaderName::from_static(name)).into_iter();
    let values: Vec<&HeaderValue> = values.collect();
    let texts = values
        .into_iter()
        .rev()
        .filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.rsplit(',')).map(str::trim)
}

fn last<'f>(fields: &'f HeaderMap, name: &'static str) -> Option<&'f str> {
    listed(fields, name).next()
}

fn of_customer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(
        peer: &str,
        fields: &[(&'static str, &'static str)],
        trusted: &[&str],
    ) -> (String, bool) {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        let trusted: Vec<TrustedProxy> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        let peer = Peer {
            address: peer.parse().ok(),
            is_tls: false,
        };
        let visitor = visitor(peer, &map, &trusted);
        (visitor.address.to_string(), visitor.is_secure)
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let told = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
        ];
        let itself = ("192.0.2.1".to_owned(), false);
        assert_eq!(seen("192.0.2.1", &told, &[]), itself);
        assert_eq!(seen("192.0.2.1", &told, &["198.51.100.0/24"]), itself);
        let client = ("203.0.113.9".to_owned(), true);
        assert_eq!(seen("192.0.2.1", &told, &["192.0.2.0/24"]), client);
        assert_eq!(seen("::ffff:192.0.2.1", &told, &["192.0.2.0/24"]), client);
        assert_eq!(seen("unix", &told, &["127.0.0.1"]), client);
    }

    #[test]
    fn the_client_is_the_last_who_is_no_proxy_of_ours() {
        let trusted = ["192.0.2.0/24"];
        for (chain, expected) in [
            ("198.51.100.7, 203.0.113.9", "203.0.113.9"),
            ("198.51.100.7, 203.0.113.9, 192.0.2.8", "203.0.113.9"),
            ("6.6.6.6, nonsense, 192.0.2.8", "192.0.2.8"),
            ("nonsense", "192.0.2.1"),
            ("192.0.2.7, 192.0.2.8", "192.0.2.7"),
        ] {
            let told = [("x-forwarded-for", chain)];
            assert_eq!(seen("192.0.2.1", &told, &trusted).0, expected, "{chain}");
        }
        let lines = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "203.0.113.9"),
        ];
        assert_eq!(seen("192.0.2.1", &lines, &trusted).0, "203.0.113.9");
    }

    #[test]
    fn a_network_of_64_bits_counts_as_one_address() {
        assert_eq!(seen("2001:db8:1:2:3:4:5:6", &[], &[]).0, "2001:db8:1:2::");
        assert_eq!(seen("::ffff:192.0.2.1", &[], &[]).0, "192.0.2.1");
    }
}
