//! The visitor: the address that limits apply to, whether by TLS, and the cookies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use axum::middleware::Next;
use axum::response::Response;

use super::App;
use super::cookies::Cookie;
use crate::guard::network;
use crate::store::SessionRow;
use crate::token::Token;

/// The client that sent a request, as the server knows it: to be inserted into the request's extensions. Behind a
/// proxy it is the client that the proxy names, and not the proxy. Without it, axum's [`ConnectInfo`]
/// counts, if that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address; `None` if there is none, as on a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether the client has sent it by TLS, to the server or to a proxy that is trusted.
    pub is_secure: bool,
}

/// The sender of a request.
#[derive(Clone)]
pub(super) struct Visitor {
    /// The address, of IPv6 its network of 64 bits: that is what one customer has.
    pub(super) address: IpAddr,
    /// Whether the request came by TLS.
    pub(super) is_secure: bool,
    /// Of users who are logged in: one of them is valid, if any.
    pub(super) sessions: Vec<Token>,
    /// Of visitors who are not logged in, for forms.
    pub(super) guests: Vec<Token>,
}

/// A session of a user who is logged in.
pub(super) struct Session {
    pub(super) token: Token,
    pub(super) row: SessionRow,
}

/// What every page gets of a request.
pub(super) struct PageRequest {
    pub(super) app: Arc<App>,
    pub(super) visitor: Visitor,
    pub(super) fields: HeaderMap,
    /// What stands behind `?`.
    pub(super) query: Option<String>,
}

impl FromRequestParts<Arc<App>> for PageRequest {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<App>,
    ) -> Result<Self, ExtensionRejection> {
        let Extension(visitor) = Extension::from_request_parts(parts, app).await?;
        Ok(Self {
            app: Arc::clone(app),
            visitor,
            fields: parts.headers.clone(),
            query: parts.uri.query().map(str::to_owned),
        })
    }
}

/// Adds the visitor to a request.
pub(super) async fn recognise(mut request: Request, next: Next) -> Response {
    let client = client(request.extensions());
    let visitor = visitor(client, request.headers());
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

fn client(extensions: &Extensions) -> Client {
    if let Some(client) = extensions.get::<Client>() {
        return *client;
    }
    let connected = extensions.get::<ConnectInfo<SocketAddr>>();
    Client {
        address: connected.map(|ConnectInfo(address)| address.ip()),
        is_secure: false,
    }
}

fn visitor(client: Client, fields: &HeaderMap) -> Visitor {
    // All without an address are one.
    let address = client.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Visitor {
        address: network(address.to_canonical(), 64),
        is_secure: client.is_secure,
        sessions: Cookie::Session.found(fields, client.is_secure),
        guests: Cookie::Guest.found(fields, client.is_secure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_counts_as_one_address() {
        for (address, seen) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
        ] {
            let client = Client {
                address: address.parse().ok(),
                is_secure: false,
            };
            let visitor = visitor(client, &HeaderMap::new());
            assert_eq!(visitor.address.to_string(), seen);
        }
    }

    #[test]
    fn what_the_server_says_counts_more_than_the_connection() {
        let mut extensions = Extensions::new();
        let of = |extensions: &Extensions| {
            let client = client(extensions);
            (client.address.map(|it| it.to_string()), client.is_secure)
        };
        assert_eq!(of(&extensions), (None, false));
        let proxy: SocketAddr = "192.0.2.1:80".parse().unwrap();
        extensions.insert(ConnectInfo(proxy));
        assert_eq!(of(&extensions), (Some("192.0.2.1".to_owned()), false));
        extensions.insert(Client {
            address: "203.0.113.9".parse().ok(),
            is_secure: true,
        });
        assert_eq!(of(&extensions), (Some("203.0.113.9".to_owned()), true));
    }
}
