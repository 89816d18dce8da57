//! What is known of a connection whose bytes are encrypted.

use std::sync::Arc;

/// What is known of a connection whose bytes are encrypted: the same for each of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// The version of TLS: "TLSv1.3".
    pub version: &'static str,
    /// Whether client and server have agreed on HTTP/2 (ALPN "h2").
    pub is_http2: bool,
    /// The name that the client has asked for (SNI).
    pub server_name: Option<Arc<str>>,
    /// Who the client's certificate says it is, by RFC 4514: "CN=ada,O=Example". `None`: it has shown
    /// none. One that was shown is signed by an authority that the server trusts.
    pub client_subject: Option<Arc<str>>,
    /// What was received has come before the handshake was done: somebody may have recorded it and send
    /// it again.
    pub is_early: bool,
    /// Field lines that responses have over this connection alone, each with its line end:
    /// `Strict-Transport-Security`.
    pub response_lines: Arc<[u8]>,
}
