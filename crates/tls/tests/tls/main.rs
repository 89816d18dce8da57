//! TLS in memory: both ends, without a socket.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[path = "../../../proto/tests/drive/mod.rs"]
mod drive;
mod pair;

mod certificates;
mod client_certificates;
mod connections;
mod early_data;
mod files;
mod handshakes;
mod profiles;
mod records;
