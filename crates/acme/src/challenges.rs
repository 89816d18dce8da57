//! Responses to an authority that validates a name: over HTTP (HTTP-01, RFC 8555 section 8.3), and over
//! TLS (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use loadline_proto::{Body, Context, Exchange, Handler, Method, Outcome, Port, Task};
use loadline_tls::{Certificates, TlsError};

/// Where an authority looks for the response over HTTP.
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// How a name is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method01 {
    /// By a request to port 80.
    Http,
    /// By a handshake with port 443.
    TlsAlpn,
}

/// The responses over HTTP that are to be had at the moment, by token.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: AtomicUsize,
    responses: RwLock<HashMap<Vec<u8>, String>>,
}

impl Tokens {
    fn set(&self, token: &str, response: Option<&str>) {
        let mut responses = self
            .0
            .responses
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match response {
            Some(response) => responses.insert(token.into(), response.to_owned()),
            None => responses.remove(token.as_bytes()),
        };
        self.0.count.store(responses.len(), Relaxed);
    }

    /// The response that a request for this path is for.
    #[inline]
    fn find(&self, path: &[u8]) -> Option<String> {
        let token = path.strip_prefix(PATH)?;
        if self.0.count.load(Relaxed) == 0 {
            return None;
        }
        let responses = self
            .0
            .responses
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        responses.get(token).cloned()
    }
}

/// A response that is shown until this is dropped.
#[derive(Debug)]
pub(crate) struct Shown {
    tokens: Tokens,
    certificates: Arc<Certificates>,
    method: Method01,
    name: String,
    token: String,
}

impl Shown {
    /// Shows what the authority looks for.
    pub(crate) fn new(
        method: Method01,
        (name, token): (&str, &str),
        (response, digest): (&str, &[u8]),
        (tokens, certificates): (&Tokens, &Arc<Certificates>),
    ) -> Result<Self, TlsError> {
        match method {
            Method01::Http => tokens.set(token, Some(response)),
            Method01::TlsAlpn => {
                let certificate = loadline_tls::challenge_certificate(name, digest)?;
                certificates.answer_challenge(name, Some(certificate));
            }
        }
        Ok(Self {
            tokens: tokens.clone(),
            certificates: Arc::clone(certificates),
            method,
            name: name.to_owned(),
            token: token.to_owned(),
        })
    }

    /// Whether it is the response to this challenge.
    pub(crate) fn is_for(&self, method: Method01, token: &str) -> bool {
        self.method == method && self.token == token
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        match self.method {
            Method01::Http => self.tokens.set(&self.token, None),
            Method01::TlsAlpn => self.certificates.answer_challenge(&self.name, None),
        }
    }
}

/// Wraps a handler: requests for a token are answered before it sees them, others are its own, also
/// those below the same path.
#[derive(Debug)]
pub struct HttpChallenges<H> {
    inner: H,
    tokens: Option<Tokens>,
}

impl<H: Handler> HttpChallenges<H> {
    /// Wraps `inner`. `None`: there are no challenges.
    #[must_use]
    pub fn new(inner: H, tokens: Option<Tokens>) -> Self {
        Self { inner, tokens }
    }

    #[inline]
    fn response(&self, exchange: &Exchange) -> Option<String> {
        let tokens = self.tokens.as_ref()?;
        let response = tokens.find(exchange.request.path())?;
        let is_read = matches!(exchange.request.method, Method::Get | Method::Head);
        is_read.then_some(response)
    }
}

impl<H: Handler> Handler for HttpChallenges<H> {
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
        if let Some(response) = self.response(exchange) {
            let to = &mut exchange.response;
            to.field("Content-Type", "application/octet-stream");
            to.field("Cache-Control", "no-store");
            to.body = Body::Bytes(response.into_bytes());
            return Outcome::Ready;
        }
        self.inner.handle(local, exchange, cx)
    }

    fn is_exempt(&self, exchange: &Exchange) -> bool {
        self.response(exchange).is_some() || self.inner.is_exempt(exchange)
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
