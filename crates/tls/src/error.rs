//! What can be wrong with certificates, keys and options: one clear line each.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why TLS cannot be served so.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Of the file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of certificates has none.
    #[error("{path}: no certificate in it; right would be PEM with -----BEGIN CERTIFICATE-----")]
    NoCertificate {
        /// Of the file.
        path: String,
    },
    /// A file of a key has none.
    #[error("{path}: no private key in it; right would be PEM with -----BEGIN PRIVATE KEY-----")]
    NoKey {
        /// Of the file.
        path: String,
    },
    /// A key is encrypted.
    #[error(
        "{path}: the private key is encrypted; right would be one without a passphrase that only \
         the server's user can read (openssl pkey -in {path} -out key.pem)"
    )]
    EncryptedKey {
        /// Of the file.
        path: String,
    },
    /// PEM or DER that cannot be read.
    #[error("{path}: not a {what}: {why}")]
    Malformed {
        /// Of the file.
        path: String,
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A key of a kind that cannot be used.
    #[error(
        "{path}: this key cannot be used: {why}; right would be ECDSA (P-256, P-384) or RSA of 2048 to 8192 bits"
    )]
    UnusableKey {
        /// Of the file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Key and certificate do not belong together.
    #[error("{key}: this key does not belong to the certificate in {certificate}")]
    Mismatch {
        /// Of the certificate's file.
        certificate: String,
        /// Of the key's file.
        key: String,
    },
    /// A file of ticket keys is too short to be secret.
    #[error(
        "{path}: {len} bytes are too few for a ticket key; right would be 32 or more random ones (openssl rand 80)"
    )]
    ShortTicketKey {
        /// Of the file.
        path: String,
        /// What it has.
        len: usize,
    },
    /// The library refuses.
    #[error("TLS: {0}")]
    Library(#[from] rustls::Error),
    /// The authorities of client certificates cannot be used.
    #[error("{path}: {why}")]
    Authorities {
        /// Of the file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The system trusts nobody.
    #[error(
        "no authorities that this machine trusts were found ({why}); right would be the package \
         ca-certificates, or a file of certificates in PEM"
    )]
    NoSystemAuthorities {
        /// What was found instead.
        why: String,
    },
    /// A certificate could not be made.
    #[error("no certificate could be made: {0}")]
    SelfSigned(#[from] rcgen::Error),
    /// The digest of a challenge is none.
    #[error("{len} bytes are no digest of a challenge; right would be 32, by SHA-256")]
    ChallengeDigest {
        /// What it has.
        len: usize,
    },
    /// Options that exclude each other.
    #[error("early data excludes {0}; right would be one of them")]
    EarlyData(&'static str),
    /// Files would be served as they are now, however they change.
    #[error("changes of TLS files cannot be followed: {0}")]
    Unwatched(#[source] io::Error),
    /// A name that is none.
    #[error("{0}: not the name of a server")]
    ServerName(String),
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match &error {
            TlsError::Unreadable { source, .. } | TlsError::Unwatched(source) => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// A whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}
