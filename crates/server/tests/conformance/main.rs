//! Conformance: a black box over sockets. Every case runs under every model of every
//! architecture, each as a test of its own.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[path = "../../../proto/tests/drive/answers.rs"]
mod answers;
#[allow(dead_code, reason = "a client's end is for the tests of layers")]
#[path = "../../../proto/tests/drive/records.rs"]
mod records;
#[macro_use]
mod model;
mod client;
mod fixture;
mod translated;
mod translated_tls;

mod compression;
mod config;
mod connection_log;
mod connections;
mod elsewhere;
mod failures;
mod files;
mod framing;
mod handshake_bound;
mod http2;
mod last_words;
mod later;
mod layered;
mod many_streams;
mod regression;
mod reloads;
mod replaced;
mod ring_features;
mod selection;
mod shutdown;
mod slow_uploads;
mod streams;
mod tls;
mod tls_drain;
mod tls_http2;

#[test]
fn every_architecture_has_a_model() {
    for architecture in loadline_server::Architecture::ALL {
        let covered = |model: &fixture::Model| model.options().architecture == *architecture;
        assert!(fixture::Model::ALL.iter().any(covered), "{architecture:?}");
    }
}
