//! One certificate with its chain and its key, checked when it is loaded.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureScheme};

use crate::error::{TlsError, read};
use crate::key_file::key_file_warning;
use crate::profile;
use crate::x509;
use crate::{Warning, WarningKind};

/// Renewal is overdue when a certificate has so little time left: authorities renew those of 90 days
/// with 30 days left.
const EXPIRES_SOON: Duration = Duration::from_secs(7 * 24 * 3600);
/// The same as a part of its life, if that is less: those of days are renewed at two thirds, too.
const EXPIRES_SOON_PART: u32 = 6;

/// The kinds of keys, by one of the ways in which each signs: smaller and quicker ones first.
const KINDS: [SignatureScheme; 5] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
];

/// A certificate, its chain, and its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) key: Arc<CertifiedKey>,
    /// Where it came from, for messages.
    label: String,
    names: Vec<String>,
    addresses: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
    key_warning: Option<Warning>,
}

impl Certificate {
    /// From PEM files.
    ///
    /// # Errors
    /// A file cannot be read or used, or key and certificate do not belong together.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (chain, key_pem) = (read(certificate)?, read(key)?);
        let it = Self::from_pem(
            (&certificate.display().to_string(), &chain),
            (&key.display().to_string(), &key_pem),
        )?;
        Ok(Self {
            key_warning: key_file_warning(key, "the private key"),
            ..it
        })
    }

    /// From PEM, each with where it comes from: the certificate and those that its authority gives with
    /// it, and the key.
    ///
    /// # Errors
    /// As `from_files`.
    pub fn from_pem(
        (path, chain): (&str, &[u8]),
        (key_path, key): (&str, &[u8]),
    ) -> Result<Self, TlsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let certificates = certificates.map_err(|error| TlsError::Malformed {
            path: path.to_owned(),
            what: "certificate in PEM",
            why: error.to_string(),
        })?;
        if certificates.is_empty() {
            let path = path.to_owned();
            return Err(TlsError::NoCertificate { path });
        }
        Self::from_der(
            (path, certificates),
            (key_path, private_key(key_path, key)?),
        )
    }

    /// The same of DER.
    pub(crate) fn from_der(
        (path, chain): (&str, Vec<CertificateDer<'static>>),
        (key_path, key): (&str, PrivateKeyDer<'static>),
    ) -> Result<Self, TlsError> {
        let facts = x509::facts(&chain[0]).map_err(|why| TlsError::Malformed {
            path: path.to_owned(),
            what: "certificate",
            why,
        })?;
        let key = CertifiedKey::from_der(chain, key, &profile::provider());
        let key = key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch {
                certificate: path.to_owned(),
                key: key_path.to_owned(),
            },
            error => TlsError::UnusableKey {
                path: key_path.to_owned(),
                why: error.to_string(),
            },
        })?;
        Ok(Self {
            key: Arc::new(key),
            label: path.to_owned(),
            names: facts.names,
            addresses: facts.addresses,
            not_before: facts.not_before,
            not_after: facts.not_after,
            key_warning: None,
        })
    }

    /// One that was made with this key just now, and may have extensions that only its one reader knows.
    pub(crate) fn made(
        label: &str,
        der: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        let facts = x509::facts(&der).map_err(|why| TlsError::Malformed {
            path: label.to_owned(),
            what: "certificate",
            why,
        })?;
        let key = profile::provider().key_provider.load_private_key(key)?;
        Ok(Self {
            key: Arc::new(CertifiedKey::new(vec![der], key)),
            label: label.to_owned(),
            names: facts.names,
            addresses: facts.addresses,
            not_before: facts.not_before,
            not_after: facts.not_after,
            key_warning: None,
        })
    }

    /// Where it came from.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The DNS names that it is for, wildcards included.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The IP addresses that it is for, as text.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// From when on it is valid.
    #[must_use]
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// When it ends.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The certificate itself, as DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        self.key.cert.first().map_or(&[], |der| der)
    }

    /// Whose key has signed it, and its number there, as the certificate has them; `None`: it does not say.
    #[must_use]
    pub fn authority_and_serial(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        x509::authority_and_serial(self.der())
    }

    /// What an operator should know of it: clients will refuse it, or soon.
    #[must_use]
    pub fn warning(&self, now: SystemTime) -> Option<Warning> {
        let warning = |kind, text: String| Some(Warning::new(kind, &self.label, &text));
        if let Ok(since) = now.duration_since(self.not_after) {
            let text = format!("expired {} ago; clients refuse it", days(since));
            return warning(WarningKind::Expired, text);
        }
        if let Ok(until) = self.not_before.duration_since(now)
            && !until.is_zero()
        {
            let text = format!("not valid for another {}", days(until));
            return warning(WarningKind::NotYetValid, text);
        }
        let until_end = |from| self.not_after.duration_since(from).unwrap_or_default();
        let (left, life) = (until_end(now), until_end(self.not_before));
        if left < EXPIRES_SOON.min(life / EXPIRES_SOON_PART) {
            let text = format!("expires in {}", days(left));
            return warning(WarningKind::ExpiresSoon, text);
        }
        None
    }

    /// What an operator should know of its key's file: all users of the machine can read it.
    #[must_use]
    pub fn key_warning(&self) -> Option<&Warning> {
        self.key_warning.as_ref()
    }

    pub(crate) fn is_valid_at(&self, now: SystemTime) -> bool {
        (self.not_before..self.not_after).contains(&now)
    }

    /// Its key's kind, smaller and quicker ones first. Of those of the same kind clients take all or none.
    pub(crate) fn kind(&self) -> usize {
        let signs_by = |scheme: &SignatureScheme| self.key.key.choose_scheme(&[*scheme]).is_some();
        KINDS.iter().position(signs_by).unwrap_or(KINDS.len())
    }
}

/// "3 days", "5 hours".
fn days(time: Duration) -> String {
    let (count, unit) = match time.as_secs() / 3600 {
        hours @ 0..48 => (hours, "hour"),
        hours => (hours / 24, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

fn private_key(path: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = path.to_owned();
    let has = |text: &[u8]| pem.windows(text.len()).any(|window| window == text);
    if has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(TlsError::EncryptedKey { path });
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey { path },
        error => TlsError::Malformed {
            path,
            what: "private key in PEM",
            why: error.to_string(),
        },
    })
}
