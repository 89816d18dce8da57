//! How servers are reached by https.

use clap::ValueHint;

use super::values::{Cipher, KeyExchange};
use super::{LoadSpec, Scheme};
use crate::rules::exclude;
use crate::values::{FilePath, OnOff};
use crate::{SpecError, Table, one_of, spec};

spec! {
    /// How servers are reached by https.
    #[command(next_help_heading = "TLS")]
    pub struct TlsClientSpec {
        /// Certificates in PEM of the authorities to trust, in place of the system's.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub cacert: Option<FilePath>,

        /// Trust any certificate: for your own servers.
        #[arg(long)]
        pub insecure: bool,

        /// The client's certificate in PEM, followed by its authority's, for servers that ask for one
        /// (with --key).
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub cert: Option<FilePath>,

        /// Its private key, in PEM and not encrypted (with --cert).
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub key: Option<FilePath>,

        /// Whether a connection resumes the session of an earlier one, by its ticket: on or off. Off: each
        /// handshake is a full one, like a new client's.
        #[arg(long, value_name = "on|off", default_value = "off")]
        pub tls_resume: OnOff,

        /// Offer only this key exchange, so that servers are compared with the same one
        /// [default: all, x25519mlkem768 first].
        #[arg(long, value_name = "NAME",
            value_parser = one_of(KeyExchange::ALL, KeyExchange::name))]
        pub tls_key_exchange: Option<KeyExchange>,

        /// Offer only this cipher, and TLS 1.3 alone, so that servers are compared with the same one
        /// [default: all, aes-128-gcm first].
        #[arg(long, value_name = "NAME", value_parser = one_of(Cipher::ALL, Cipher::name))]
        pub tls_cipher: Option<Cipher>,
    }
}

impl TlsClientSpec {
    /// Whether something is said about whom to trust.
    #[must_use]
    pub fn says_trust(&self) -> bool {
        self.insecure || self.cacert.is_some()
    }
}

/// Options that are about TLS alone.
pub(super) const OF_TLS: &[&str] = &[
    "cacert",
    "insecure",
    "cert",
    "key",
    "tls-resume",
    "tls-key-exchange",
    "tls-cipher",
];

/// Options of TLS, where there is none.
pub(super) fn check(spec: &LoadSpec, given: &Table) -> Result<(), SpecError> {
    // A list may have URLs of its own, and the lab adds one later.
    let may_be_https = spec.requests.urls.is_some() || spec.url.is_empty() || {
        let mut urls = spec.url.iter();
        urls.any(|url| url.scheme() == Scheme::Https)
    };
    match may_be_https {
        true => Ok(()),
        false => exclude(OF_TLS, "it is for TLS, and no URL begins with https", given),
    }
}
