//! Whose signature on a certificate counts: of clients, and for our own client of servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::error::{TlsError, read};

/// Where distributions keep what they trust: Debian and Alpine, Fedora, openSUSE.
const SYSTEM_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

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

    /// Those that the system trusts: of the file that `SSL_CERT_FILE` names, otherwise of where
    /// distributions keep them.
    ///
    /// # Errors
    /// There is no such file, or no certificate in it.
    pub fn of_system() -> Result<Self, TlsError> {
        let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let usual = || SYSTEM_FILES.iter().map(PathBuf::from);
        let path = named.or_else(|| usual().find(|path| path.exists()));
        let path = path.unwrap_or_else(|| SYSTEM_FILES[0].into());
        let pem = read(&path)?;
        let mut roots = RootCertStore::empty();
        // One that cannot be read is trusted by nobody: the others count.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
        let label = path.display().to_string();
        match roots.is_empty() {
            true => Err(TlsError::NoCertificate { path: label }),
            false => Ok(Self {
                roots: Arc::new(roots),
                label,
            }),
        }
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
        let verifier = builder.build().map_err(|error| TlsError::Authorities {
            path: authorities.label.clone(),
            why: error.to_string(),
        })?;
        Ok(Some(verifier))
    }
}
