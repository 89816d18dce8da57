//! Whose signature on a certificate counts: of clients, and for our own client of servers.

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::error::{TlsError, read};

/// Authorities that are trusted.
#[derive(Clone, Debug)]
pub struct Authorities {
    roots: Arc<RootCertStore>,
    label: String,
}

/// Whether clients show certificates.
#[derive(Clone, Debug, Default)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    NotAsked,
    /// They may show one of these authorities.
    Optional(Authorities),
    /// Without one there is no connection.
    Required(Authorities),
}

impl Authorities {
    /// From a file of certificates in PEM.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub fn from_file(path: &Path) -> Result<Self, TlsError> {
        Self::from_pem(&path.display().to_string(), &read(path)?)
    }

    /// Those that the operating system trusts; SSL_CERT_FILE and SSL_CERT_DIR name others.
    ///
    /// # Errors
    /// It has none, or they cannot be read.
    pub fn of_system() -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // Among a hundred some are of a form that nobody can use any more.
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map(ToString::to_string);
            return Err(TlsError::NoSystemAuthorities {
                why: why.unwrap_or_else(|| "there are none".to_owned()),
            });
        }
        Ok(Self {
            roots: Arc::new(roots),
            label: "the system's authorities".to_owned(),
        })
    }

    /// From PEM, with where it comes from.
    ///
    /// # Errors
    /// There is none in it, or one that cannot be read.
    pub fn from_pem(path: &str, pem: &[u8]) -> Result<Self, TlsError> {
        let malformed = |why: String| TlsError::Malformed {
            path: path.to_owned(),
            what: "certificate in PEM",
            why,
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| malformed(error.to_string()))?;
            let added = roots.add(certificate);
            added.map_err(|error| malformed(error.to_string()))?;
        }
        if roots.is_empty() {
            let path = path.to_owned();
            return Err(TlsError::NoCertificate { path });
        }
        Ok(Self {
            roots: Arc::new(roots),
            label: path.to_owned(),
        })
    }

    /// One certificate alone.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn one(der: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(der.to_vec()))?;
        Ok(Self {
            roots: Arc::new(roots),
            label: "a certificate".to_owned(),
        })
    }

    pub(crate) fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    pub(crate) fn unusable(&self, error: &impl ToString) -> TlsError {
        TlsError::Authorities {
            path: self.label.clone(),
            why: error.to_string(),
        }
    }
}

/// Whether a resumed session's client would be let in by a full handshake at this moment, with the
/// certificate that it has shown then: it may have expired since.
///
/// # Errors
/// Why not.
pub(crate) fn verify_again(
    verifier: &dyn ClientCertVerifier,
    chain: Option<&[CertificateDer<'_>]>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    match chain.and_then(<[_]>::split_first) {
        Some((own, others)) => verifier.verify_client_cert(own, others, now).map(drop),
        None if verifier.client_auth_mandatory() => Err(rustls::Error::NoCertificatesPresented),
        None => Ok(()),
    }
}

impl ClientCertificates {
    /// What tickets are bound to, besides their key: a session goes on only where its client would have
    /// been asked for the same.
    pub(crate) fn ticket_context(&self) -> Vec<u8> {
        let (kind, authorities) = match self {
            Self::NotAsked => return Vec::new(),
            Self::Optional(authorities) => (b"optional", authorities),
            Self::Required(authorities) => (b"required", authorities),
        };
        let mut digest = digest::Context::new(&digest::SHA256);
        digest.update(kind);
        for anchor in &authorities.roots.roots {
            digest.update(&anchor.subject);
            digest.update(&anchor.subject_public_key_info);
        }
        digest.finish().as_ref().to_vec()
    }

    /// Whether these ask for the same, and let the same clients in.
    pub(crate) fn are_those_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NotAsked, Self::NotAsked) => true,
            (Self::Optional(own), Self::Optional(others))
            | (Self::Required(own), Self::Required(others)) => {
                own.roots.roots == others.roots.roots
            }
            _ => false,
        }
    }

    /// `None`: they are not asked.
    pub(crate) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let (authorities, is_required) = match self {
            Self::NotAsked => return Ok(None),
            Self::Optional(authorities) => (authorities, false),
            Self::Required(authorities) => (authorities, true),
        };
        let roots = Arc::clone(&authorities.roots);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
        let builder = match is_required {
            true => builder,
            false => builder.allow_unauthenticated(),
        };
        let verifier = builder.build();
        Ok(Some(
            verifier.map_err(|error| authorities.unusable(&error))?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::Profile;

    #[test]
    fn a_resumed_client_is_let_in_until_its_certificate_expires() {
        let mut params = CertificateParams::new([]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 2, 1);
        let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let authority = Authorities::one(own.der()).unwrap();
        let chain = [own.der().clone()];
        let at = |days: u64| {
            let since_1970 = Duration::from_secs((20_454 + days) * 24 * 3600); // 1 January 2026
            UnixTime::since_unix_epoch(since_1970)
        };
        let provider = Profile::default().provider();
        let verifier = |clients: ClientCertificates| clients.verifier(&provider).unwrap().unwrap();
        let required = verifier(ClientCertificates::Required(authority.clone()));
        let optional = verifier(ClientCertificates::Optional(authority));
        for verifier in [&required, &optional] {
            let verify = |days| verify_again(verifier.as_ref(), Some(&chain), at(days));
            assert_eq!(verify(1), Ok(()));
            assert!(verify(40).is_err());
        }
        let nobody = |verifier: &Arc<_>| verify_again(Arc::as_ref(verifier), None, at(1));
        assert_eq!(nobody(&optional), Ok(()));
        assert!(nobody(&required).is_err());
    }
}
