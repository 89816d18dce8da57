//! What every connection of a server has in common.

use crate::{ErrorPages, Limits, TrustedProxies};

/// What every connection of a server has in common.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The bounds.
    pub limits: Limits,
    /// Whether a connection may serve more than one request.
    pub keep_alive: bool,
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
            error_pages: ErrorPages::plain(),
            trusted_proxies: TrustedProxies::default(),
            listener: 0,
        }
    }
}
