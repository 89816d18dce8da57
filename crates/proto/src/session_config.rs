//! What every connection of a server has in common.

pub use loadline_base::choices::Http2;

use crate::{ErrorPages, Limits, TrustedProxies};

/// What every connection of a server has in common.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The bounds.
    pub limits: Limits,
    /// Whether a connection may serve more than one request.
    pub keep_alive: bool,
    /// Whether a connection that begins with HTTP/2's preface speaks HTTP/2 (prior knowledge, RFC 9113
    /// section 3.3), or each. Where a layer such as TLS is below, it decides (ALPN), but for `Only`.
    pub http2: Http2,
    /// Content of error answers.
    pub error_pages: ErrorPages,
    /// Proxies whose word about their clients is taken.
    pub trusted_proxies: TrustedProxies,
    /// The number of their listener, in the order of the server's addresses; the server sets it.
    pub listener: u32,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            keep_alive: true,
            http2: Http2::On,
            error_pages: ErrorPages::plain(),
            trusted_proxies: TrustedProxies::default(),
            listener: 0,
        }
    }
}
