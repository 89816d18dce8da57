//! Certificates in files, taken up again when the files change.
//!
//! A certificate and its key are two files, and whoever renews them writes one after the other. So a
//! failure counts only if it is still there at the next look.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Certificate, Certificates, TlsError};

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePair {
    /// The certificate and those that its authority gives with it, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

/// Certificates in files.
#[derive(Debug)]
pub struct CertificateFiles {
    pairs: Vec<CertificatePair>,
    files: ChangedFiles,
    certificates: Arc<Certificates>,
}

impl CertificateFiles {
    /// Reads them. The first one is for clients that ask for no name, or for one that none is for.
    ///
    /// # Errors
    /// One cannot be read or used.
    pub fn load(pairs: Vec<CertificatePair>) -> Result<Self, TlsError> {
        let paths = (pairs.iter()).flat_map(|pair| [pair.certificate.clone(), pair.key.clone()]);
        let files = ChangedFiles::new(paths.collect());
        let certificates = load(&pairs)?;
        Ok(Self {
            pairs,
            files,
            certificates: Arc::new(Certificates::new(certificates)),
        })
    }

    /// Those in service.
    #[must_use]
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// Takes up what has changed. `None`: nothing has; an error is reported once, and the certificates of
    /// before stay.
    pub fn refresh(&mut self) -> Option<Result<(), TlsError>> {
        let Self {
            pairs,
            files,
            certificates,
        } = self;
        files.refresh(|_| {
            certificates.replace(load(pairs)?);
            Ok(())
        })
    }

    /// Takes the files up whether they have changed or not.
    ///
    /// # Errors
    /// One cannot be read or used; the certificates of before stay.
    pub fn reload(&mut self) -> Result<(), TlsError> {
        self.files.note();
        self.certificates.replace(load(&self.pairs)?);
        Ok(())
    }
}

fn load(pairs: &[CertificatePair]) -> Result<Vec<Certificate>, TlsError> {
    let load = |pair: &CertificatePair| Certificate::from_files(&pair.certificate, &pair.key);
    pairs.iter().map(load).collect()
}

/// Files, and what they were when they were taken up.
#[derive(Debug)]
pub struct ChangedFiles {
    paths: Vec<PathBuf>,
    taken_up: Vec<Option<Version>>,
    /// What could not be taken up at the last look.
    doubtful: Option<Vec<Option<Version>>>,
}

/// By which a change of a file shows; `None` of one that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl ChangedFiles {
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let mut it = Self {
            paths,
            taken_up: Vec::new(),
            doubtful: None,
        };
        it.taken_up = it.look();
        it
    }

    /// They are taken up as they are now.
    pub(crate) fn note(&mut self) {
        self.taken_up = self.look();
        self.doubtful = None;
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Has them taken up if they have changed.
    pub(crate) fn refresh(
        &mut self,
        take_up: impl FnOnce(&[PathBuf]) -> Result<(), TlsError>,
    ) -> Option<Result<(), TlsError>> {
        let seen = self.look();
        if seen == self.taken_up {
            self.doubtful = None;
            return None;
        }
        let result = take_up(&self.paths);
        if result.is_err() && self.doubtful.as_ref() != Some(&seen) {
            self.doubtful = Some(seen);
            return None;
        }
        self.doubtful = None;
        self.taken_up = seen;
        Some(result)
    }

    fn look(&self) -> Vec<Option<Version>> {
        let version = |path: &PathBuf| {
            let of = fs::metadata(path).ok()?;
            Some(Version {
                device: of.dev(),
                inode: of.ino(),
                len: of.len(),
                modified: (of.mtime(), of.mtime_nsec()),
                changed: (of.ctime(), of.ctime_nsec()),
            })
        };
        self.paths.iter().map(version).collect()
    }
}
