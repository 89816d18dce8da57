//! Whose signature on a certificate counts: of clients, and for our own client of servers.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
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

impl ClientCertificates {
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
