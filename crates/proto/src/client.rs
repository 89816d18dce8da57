//! Who sent a request, and what proxies say about that.

use core::net::{IpAddr, SocketAddr};

pub use loadline_base::choices::ForwardedField;

/// Who sent a request, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The address; one of IPv4 as such, however it came.
    pub address: IpAddr,
    /// The port; proxies seldom name it.
    pub port: Option<u16>,
}

impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Self {
        Self {
            address: address.ip().to_canonical(),
            port: Some(address.port()),
        }
    }
}

/// What trusted proxies say about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) client: Option<Client>,
    pub(crate) is_secure: bool,
}
