//! What can be wrong: with options and the state directory at the start, with an authority later.

use std::io;
use std::path::PathBuf;

use loadline_tls::TlsError;
use thiserror::Error;

/// Why there are no automatic certificates.
#[derive(Debug, Error)]
pub enum AcmeError {
    /// A file or a directory cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could read the keys.
    #[error(
        "{}: its mode is {mode:03o}, so others can read the keys; right would be 700 \
         (chmod 700 {})", path.display(), path.display()
    )]
    ReadableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Somebody else could replace the keys.
    #[error("{}: it belongs to user {owner}; right would be a directory of the server's user", path.display())]
    OwnedByOthers {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Another process has it.
    #[error(
        "{}: another process uses it; right would be a directory of its own for each server",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The URL of the authority's directory is none that can be asked.
    #[error(
        "{0}: not the URL of a directory; right would be https, a host without a user, and a port up to \
         65535, if any"
    )]
    Directory(String),
    /// The terms are to be agreed to.
    #[error(
        "the authority's terms are at {0} ; right would be to read them and to give this option"
    )]
    Terms(String),
    /// The authority cannot be asked for its terms.
    #[error("{url}: it was to be asked for its terms, which this option agrees to: {why}")]
    TermsUnknown {
        /// Of the directory.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A file has no key of an account.
    #[error(
        "{}: not a key in base64url; right would be the HMAC key as the authority shows it, and nothing \
         else", path.display()
    )]
    ExternalKey {
        /// The file.
        path: PathBuf,
    },
    /// The library of TLS refuses.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a request to an authority has no response that can be used.
#[derive(Debug, Error)]
pub(crate) enum HttpError {
    #[error("{0}: not an https URL of a host and a port")]
    Url(String),
    #[error("{host}: {source}")]
    Io { host: String, source: io::Error },
    #[error("{host}: {source}")]
    Tls { host: String, source: TlsError },
    #[error("{host}: no response in HTTP: {fault}")]
    Http { host: String, fault: String },
    #[error("{host}: a response of more than {} KiB", most / 1024)]
    TooLarge { host: String, most: usize },
    #[error("{host}: status {status}")]
    Status { host: String, status: u16 },
    #[error("{host}: not the JSON that an authority sends: {source}")]
    Json {
        host: String,
        source: serde_json::Error,
    },
}
