//! Versions, cipher suites and key exchange: Mozilla's profiles.
//! <https://wiki.mozilla.org/Security/Server_Side_TLS>

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Which clients are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// TLS 1.2 and 1.3, with forward secrecy and authenticated encryption: all clients of the last ten
    /// years.
    #[default]
    Intermediate,
    /// TLS 1.3 alone.
    Modern,
}

/// How a connection gets its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExchange {
    /// X25519 and ML-KEM-768 together.
    X25519Mlkem768,
    /// X25519.
    X25519,
    /// The curve P-256.
    P256,
    /// The curve P-384.
    P384,
}

/// What encrypts a connection of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// In both, in the order of the server's choice: processors of the last ten years have AES.
const TLS13_SUITES: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];

const TLS12_SUITES: [SupportedCipherSuite; 6] = [
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

impl Profile {
    pub(crate) fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::Intermediate => &BOTH,
            Self::Modern => &BOTH[..1],
        }
    }

    pub(crate) fn provider(self) -> Arc<CryptoProvider> {
        let mut provider = CryptoProvider::clone(&provider());
        if self == Self::Modern {
            provider.cipher_suites = TLS13_SUITES.to_vec();
        }
        Arc::new(provider)
    }

    /// The same with one key exchange alone, and with one cipher alone, which TLS 1.2 does not have.
    pub(crate) fn provider_of(
        self,
        key_exchange: Option<KeyExchange>,
        cipher: Option<Cipher>,
    ) -> Arc<CryptoProvider> {
        let mut provider = CryptoProvider::clone(&self.provider());
        if let Some(one) = key_exchange {
            provider.kx_groups = vec![match one {
                KeyExchange::X25519Mlkem768 => kx_group::X25519MLKEM768,
                KeyExchange::X25519 => kx_group::X25519,
                KeyExchange::P256 => kx_group::SECP256R1,
                KeyExchange::P384 => kx_group::SECP384R1,
            }];
        }
        if let Some(one) = cipher {
            provider.cipher_suites = vec![match one {
                Cipher::Aes128Gcm => cipher_suite::TLS13_AES_128_GCM_SHA256,
                Cipher::Aes256Gcm => cipher_suite::TLS13_AES_256_GCM_SHA384,
                Cipher::ChaCha20Poly1305 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            }];
        }
        Arc::new(provider)
    }
}

/// The library's cryptography with all that a profile may have. X25519MLKEM768 comes first: what is
/// recorded today cannot be read by a quantum computer later. The order of key exchanges is that of clients: a
/// server takes the first one of its client's that is among these.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let provider = PROVIDER.get_or_init(|| {
        Arc::new(CryptoProvider {
            cipher_suites: [&TLS13_SUITES[..], &TLS12_SUITES].concat(),
            kx_groups: vec![
                kx_group::X25519MLKEM768,
                kx_group::X25519,
                kx_group::SECP256R1,
                kx_group::SECP384R1,
            ],
            ..aws_lc_rs::default_provider()
        })
    });
    Arc::clone(provider)
}
