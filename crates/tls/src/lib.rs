//! TLS for Loadline: rustls in memory, as a layer between a session and its socket.
//!
//! ```text
//!   socket ── received ──► TlsLayer ── plain bytes ──► session      `layer`
//!   socket ◄──── Send ──── TlsLayer ◄── plain bytes ── session
//!                             │ ▲
//!             take_computation│ │computed                           `handshake`
//!                             ▼ │
//!                     a worker: key exchange, signature
//! ```
//!
//! The layer reads no socket and starts no thread. What takes long in a handshake is a [`Computation`]
//! that the server's architecture carries out where it does not hold up a loop.
//!
//! - [`TlsServer`] is what the connections of a listener share: a [`Protocol`] for it.
//! - [`Certificates`] are chosen by the name that a client asks for, and can be replaced while they are
//!   served: from files ([`CertificateFiles`]), or by any other source.
//! - A [`FileWatch`] looks after files while they are served, on a thread of its own.
//! - [`TlsFiles`] is all of that in one line, for a server that is built in code.
//! - [`Tickets`] are how sessions are resumed.
//! - [`TlsClient`] is the other end, and a [`TlsConnector`] its connections to one server.
//!
//! Kernel TLS would take the place of `TlsLayer` behind the handshake (`layer::State::Open`): an order
//! that gives the socket its keys, and from then on a session without a layer.
//!
//! [`Computation`]: loadline_proto::Computation
//! [`Protocol`]: loadline_proto::Protocol
#![forbid(unsafe_code)]

mod anyone;
mod authorities;
mod certificate;
mod certificates;
mod client;
mod client_authorities;
mod counters;
mod error;
mod failure;
mod file_watch;
mod files;
mod first_message;
mod handshake;
mod handshake_permits;
mod key_file;
mod layer;
mod profile;
mod record_progress;
mod self_signed;
mod server;
mod server_sessions;
mod sessions;
mod shared;
mod tickets;
mod tls_files;
mod warning;
mod x509;

pub use authorities::{Authorities, ClientCertificates};
pub use certificate::Certificate;
pub use certificates::Certificates;
pub use client::{TlsClient, TlsClientOptions, TlsConnector, Trust};
pub use client_authorities::ClientAuthorityFile;
pub use counters::HandshakeCounts;
pub use error::TlsError;
pub use file_watch::{FileWatch, Reload, WatchedFiles};
pub use files::{CertificateFiles, CertificatePair, ChangedFiles, TakenUp};
pub use key_file::key_file_warning;
pub use layer::TlsLayer;
pub use profile::{Cipher, KeyExchange, Profile};
pub use self_signed::{challenge_certificate, self_signed};
pub use server::{HANDSHAKES_MAX, TlsOptions, TlsServer};
pub use tickets::{TicketFiles, Tickets};
pub use tls_files::{TlsFiles, TlsFromFiles};
pub use warning::{Warning, WarningKind};
