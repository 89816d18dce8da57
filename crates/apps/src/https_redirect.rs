//! Redirects what came without TLS to https.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use loadline_proto::{Context, Exchange, Handler, Outcome, Port, Status, Task};

/// The port of https by default.
const HTTPS_PORT: u16 = 443;

/// Where https is to be had.
#[derive(Clone, Debug, Default)]
pub struct HttpsPort(Arc<AtomicU16>);

/// Wraps a handler: what came without TLS is redirected, if that is wanted.
#[derive(Debug)]
pub struct HttpsRedirect<H> {
    inner: H,
    port: Option<HttpsPort>,
}

impl HttpsPort {
    /// It is this one. Before it is known, redirects go to 443.
    pub fn set(&self, port: u16) {
        self.0.store(port, Relaxed);
    }

    fn get(&self) -> u16 {
        match self.0.load(Relaxed) {
            0 => HTTPS_PORT,
            port => port,
        }
    }
}

impl<H: Handler> HttpsRedirect<H> {
    /// Wraps `inner`. `None`: nothing is redirected.
    #[must_use]
    pub fn new(inner: H, port: Option<HttpsPort>) -> Self {
        Self { inner, port }
    }
}

impl<H: Handler> Handler for HttpsRedirect<H> {
    type Local = H::Local;

    fn mounts(&self) -> Vec<String> {
        self.inner.mounts()
    }

    fn local(&self) -> Self::Local {
        self.inner.local()
    }

    #[inline]
    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        if let Some(port) = &self.port
            && is_redirected(exchange)
            && !self.inner.is_exempt(exchange)
        {
            return redirect(exchange, port.get());
        }
        self.inner.handle(local, exchange, cx)
    }

    fn is_exempt(&self, exchange: &Exchange) -> bool {
        self.inner.is_exempt(exchange)
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        self.inner.handle_blocking(exchange);
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        self.inner.start(exchange, port)
    }

    fn release_unused(&self, cx: &Context<'_>) -> bool {
        self.inner.release_unused(cx)
    }
}

/// Not what a proxy has received by https, nor what came over a Unix socket: there is no TLS there.
fn is_redirected(exchange: &Exchange) -> bool {
    exchange.peer.is_some() && !exchange.is_secure()
}

/// To the same host and target. 308: the method stays.
#[cold]
fn redirect(exchange: &mut Exchange, port: u16) -> Outcome {
    let authority = exchange.request.authority();
    let host = host_of(authority);
    if host.is_empty() {
        exchange.response.error(Status::BAD_REQUEST);
        return Outcome::Ready;
    }
    let mut location = b"https://".to_vec();
    location.extend_from_slice(host);
    if port != HTTPS_PORT {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    let path = exchange.request.path();
    if path.starts_with(b"/") {
        location.extend_from_slice(path);
    }
    if let Some(query) = exchange.request.query() {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    exchange.response.status = Status::PERMANENT_REDIRECT;
    exchange.response.field("Location", location);
    Outcome::Ready
}

/// The host without its port. An IPv6 address has brackets.
fn host_of(authority: &[u8]) -> &[u8] {
    let is_digits = |port: &[u8]| port.iter().all(u8::is_ascii_digit);
    match authority.iter().rposition(|byte| *byte == b':') {
        Some(at) if is_digits(&authority[at + 1..]) => &authority[..at],
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_their_ports() {
        for (authority, host) in [
            ("example.org", "example.org"),
            ("example.org:80", "example.org"),
            ("example.org:", "example.org"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(host_of(authority.as_bytes()), host.as_bytes());
        }
    }
}
