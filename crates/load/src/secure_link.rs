//! A connection whose bytes pass through a layer on their way: TLS at the client's end.
//!
//! ```text
//!   request ── seal ──► out ── flush ──► socket
//!   answer  ◄──────── received ◄──────── socket
//! ```
//!
//! It reads no socket. What the layer itself has to say (its first message, an alert) is in `out`, too.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use loadline_base::Buffer;
use loadline_proto::{ClientLayer, Connector, FailureCause, LayerFailure};
use loadline_record::ErrorKind;
use loadline_sys::connect;
use thiserror::Error;

/// Plain bytes that are sealed at once: 64 KiB fit into a core's caches, in both forms.
pub const SEALED_BYTES_MAX: usize = 64 << 10;

/// The bytes of one connection on their way.
#[derive(Debug)]
pub struct SecureLink {
    layer: Box<dyn ClientLayer>,
    out: Buffer,
    out_sent: usize,
    /// Plain bytes that `out` stands for and that are not counted as sent.
    sealed: usize,
    /// When the connection was there, and the handshake could begin.
    begun_ns: u64,
}

/// A handshake that is done.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// It went on with an earlier session.
    pub is_resumed: bool,
}

/// The layer of a connection has failed, or could not begin.
#[derive(Debug)]
pub struct Broken;

impl SecureLink {
    /// For a connection that was established at `now_ns`; its first message waits to be flushed.
    ///
    /// # Errors
    /// It cannot begin.
    pub fn begin(connector: &dyn Connector, now_ns: u64) -> Result<Self, Broken> {
        let mut out = Buffer::default();
        Ok(Self {
            layer: connector.connect(&mut out).map_err(|_| Broken)?,
            out,
            out_sent: 0,
            sealed: 0,
            begun_ns: now_ns,
        })
    }

    /// Takes plain bytes that are to be sent, [`SEALED_BYTES_MAX`] at most, once all before them have
    /// left.
    pub fn seal(&mut self, plain: &[u8]) {
        let taken = plain.len().min(SEALED_BYTES_MAX);
        self.layer.send(&plain[..taken], &mut self.out);
        self.sealed += taken;
    }

    /// Bytes came from the socket: those of the peer are appended to `plain`.
    ///
    /// # Errors
    /// The peer or the network has broken the layer's rules; [`failure`](Self::failure) says how.
    pub fn received(&mut self, bytes: &mut [u8], plain: &mut Buffer) -> Result<(), Broken> {
        let received = self.layer.received(bytes, plain, &mut self.out);
        received.map_err(|_| Broken)
    }

    /// Gives what waits to the socket, as far as that takes it; returns how many plain bytes have left.
    /// Of a part it is one: which of them those were cannot be said.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        if self.is_flushed() {
            return Ok(0);
        }
        let count = connect::send(socket, &self.out[self.out_sent..])?.unwrap_or(0);
        self.out_sent += count;
        if self.is_flushed() {
            self.out.clear();
            self.out_sent = 0;
            return Ok(std::mem::take(&mut self.sealed));
        }
        let is_begun = count > 0 && self.sealed > 1;
        self.sealed -= usize::from(is_begun);
        Ok(usize::from(is_begun))
    }

    /// Says that nothing more will be sent, if the socket takes that.
    pub fn part(&mut self, socket: BorrowedFd<'_>) {
        self.layer.finish(&mut self.out);
        let _ = self.flush(socket); // the end of the connection says it, too
    }

    /// Whether nothing waits to be sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.out_sent == self.out.len()
    }

    /// The handshake, if it is done at `now_ns`.
    #[must_use]
    pub fn handshake(&self, now_ns: u64) -> Option<Handshake> {
        let is_resumed = self.layer.is_resumed()?;
        let took_ns = now_ns.saturating_sub(self.begun_ns);
        Some(Handshake {
            took_ns,
            is_resumed,
        })
    }

    /// Whether the peer has said that it sends no more: what ends otherwise may have been cut.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.layer.has_ended()
    }

    /// Whether client and server have agreed on HTTP/2.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.layer
            .security()
            .is_some_and(|security| security.is_http2)
    }

    /// Why it has failed.
    #[must_use]
    pub fn failure(&self) -> Option<&LayerFailure> {
        self.layer.failure()
    }

    /// What its failure is counted as.
    #[must_use]
    pub fn error_kind(&self) -> ErrorKind {
        match self.failure() {
            Some(failure) if failure.cause.is_of_certificate() => ErrorKind::Certificate,
            _ => ErrorKind::Handshake,
        }
    }
}

/// A run against this server makes no sense: why, in one line.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UnfitServer(String);

impl UnfitServer {
    /// `None`: another connection may do better.
    #[must_use]
    pub fn new(server: SocketAddr, failure: &LayerFailure) -> Option<Self> {
        let right = match failure.cause {
            FailureCause::Other => return None,
            FailureCause::Authority => {
                "; right would be the certificate of its authority by --cacert, or --insecure for a \
                 server of one's own"
            }
            FailureCause::Certificate => {
                "; right would be another certificate, or --insecure for a server of one's own"
            }
            FailureCause::ClientCertificate => {
                "; right would be one that it accepts, by --cert and --key"
            }
            FailureCause::Unfit => "",
        };
        Some(Self(format!("{server}: {}{right}", failure.text)))
    }

    /// It does not speak HTTP/2.
    #[must_use]
    pub fn without_http2(server: SocketAddr, is_secure: bool) -> Self {
        let how = match is_secure {
            true => "by TLS (ALPN h2)",
            false => "in the clear, without being asked by HTTP/1.1 first",
        };
        let right = "a server that does, or a load without --http2";
        Self(format!(
            "{server}: it does not speak HTTP/2 {how}; right would be {right}"
        ))
    }
}
