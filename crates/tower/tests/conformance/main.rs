//! The mount's conformance: an axum app that reports what it saw and answers in every form on
//! demand, under every architecture, seen through a raw socket.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]
#![allow(
    dead_code,
    reason = "what it shares with the server's own suite it uses in part"
)]

#[macro_use]
#[path = "../../../server/tests/conformance/model.rs"]
mod model;
#[path = "../../../proto/tests/drive/answers.rs"]
mod answers;
mod app;
#[path = "../../../server/tests/conformance/client.rs"]
mod client;
#[path = "../shared/client_certificate.rs"]
mod client_certificate;
mod fixture;
#[path = "../../../server/tests/conformance/translated.rs"]
mod translated;
#[path = "../../../server/tests/conformance/translated_tls.rs"]
mod translated_tls;

mod axum_examples;
mod compression;
mod ends;
mod given;
mod http2;
mod overload;
mod proxies;
mod secured;
mod seen;
mod streams;
