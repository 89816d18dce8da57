//! Certificates in files, taken up again when the files change.
//!
//! A certificate and its key are two files, and whoever renews them writes one after the other; and a file
//! of several certificates that is half written may be whole to all appearances. So files are taken up once
//! two looks in turn have found them the same.

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
    pairs: Vec<(CertificatePair, ChangedFiles)>,
    certificates: Arc<Certificates>,
}

/// What came of a look at the files.
#[derive(Debug, Default)]
pub struct TakenUp {
    /// Certificates were taken up.
    pub is_any: bool,
    /// Of each pair that cannot be used, by the name of its file: its certificate of before stays.
    pub errors: Vec<TlsError>,
}

impl CertificateFiles {
    /// Reads them. The first one, or another one for its first name or for an address of it, is for clients that
    /// ask for no name, or for one that none is for.
    ///
    /// # Errors
    /// One cannot be read or used.
    pub fn load(pairs: Vec<CertificatePair>) -> Result<Self, TlsError> {
        let watched = |pair: CertificatePair| {
            let files = ChangedFiles::new(vec![pair.certificate.clone(), pair.key.clone()]);
            (pair, files)
        };
        let pairs: Vec<_> = pairs.into_iter().map(watched).collect();
        let certificates = pairs.iter().map(|(pair, _)| load(pair));
        let certificates = certificates.collect::<Result<_, _>>()?;
        Ok(Self {
            pairs,
            certificates: Arc::new(Certificates::new(certificates)),
        })
    }

    /// Those in service.
    #[must_use]
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// Takes up the pairs that have changed, at the second look that finds them so. An error is reported once.
    pub fn refresh(&mut self) -> TakenUp {
        self.take_up(false)
    }

    /// Takes all of them up, whether they have changed or not.
    pub fn reload(&mut self) -> TakenUp {
        self.take_up(true)
    }

    /// A pair that cannot be used does not hold up the others.
    fn take_up(&mut self, also_unchanged: bool) -> TakenUp {
        let mut it = TakenUp::default();
        let mut all = self.certificates.all();
        for (index, (pair, files)) in self.pairs.iter_mut().enumerate() {
            let mut new = None;
            let take_up = |_: &[PathBuf]| -> Result<(), TlsError> {
                new = Some(load(pair)?);
                Ok(())
            };
            let result = match also_unchanged {
                true => Some(files.reload(take_up)),
                false => files.refresh(take_up),
            };
            it.errors.extend(result.and_then(Result::err));
            let (Some(new), Some(current)) = (new, all.get_mut(index)) else {
                continue;
            };
            *current = new;
            self.certificates.replace(all.clone()); // now: the next pair may have bytes that panic
            it.is_any = true;
        }
        it
    }
}

fn load(pair: &CertificatePair) -> Result<Certificate, TlsError> {
    Certificate::from_files(&pair.certificate, &pair.key)
}

/// Files, and what they were when they were taken up.
#[derive(Debug)]
pub struct ChangedFiles {
    paths: Vec<PathBuf>,
    /// Empty if not all of them were: some may have been, so that even their state of before is a change.
    taken_up: Vec<Option<Version>>,
    /// What is not taken up yet.
    changed: Option<Changed>,
}

/// Files that have changed. If they cannot be taken up they are tried again at each look, since it may be for
/// want of memory or descriptors, which does not show in them.
#[derive(Debug)]
struct Changed {
    seen: Vec<Option<Version>>,
    /// Its error was.
    is_reported: bool,
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
            changed: None,
        };
        it.taken_up = it.look();
        it
    }

    /// Has them taken up as they are now.
    pub(crate) fn reload(
        &mut self,
        take_up: impl FnOnce(&[PathBuf]) -> Result<(), TlsError>,
    ) -> Result<(), TlsError> {
        let seen = self.look();
        let result = take_up(&self.paths);
        match result {
            Ok(()) => (self.taken_up, self.changed) = (seen, None),
            Err(_) => self.could_not_take_up(seen),
        }
        result
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Has them taken up if they have changed, and are as they were at the look before.
    pub(crate) fn refresh(
        &mut self,
        take_up: impl FnOnce(&[PathBuf]) -> Result<(), TlsError>,
    ) -> Option<Result<(), TlsError>> {
        let seen = self.look();
        if seen == self.taken_up {
            self.changed = None;
            return None;
        }
        let before = self.changed.take().filter(|before| before.seen == seen);
        let Some(before) = before else {
            let is_reported = false;
            self.changed = Some(Changed { seen, is_reported });
            return None; // it may be half written
        };
        match take_up(&self.paths) {
            Ok(()) => {
                self.taken_up = seen;
                Some(Ok(()))
            }
            Err(error) => {
                self.could_not_take_up(seen);
                (!before.is_reported).then_some(Err(error))
            }
        }
    }

    /// Its error is reported.
    fn could_not_take_up(&mut self, seen: Vec<Option<Version>>) {
        let is_reported = true;
        self.changed = Some(Changed { seen, is_reported });
        self.taken_up.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As where there were no descriptors left for a moment: nothing of the files shows it.
    #[test]
    fn what_could_not_be_taken_up_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.pem");
        let mut files = ChangedFiles::new(vec![path.clone()]);
        fs::write(path, b"new").unwrap();
        let refused = |_: &[PathBuf]| {
            let path = "c.pem".to_owned();
            Err(TlsError::NoCertificate { path })
        };
        assert!(files.refresh(refused).is_none());
        assert!(files.refresh(refused).unwrap().is_err());
        assert!(files.refresh(refused).is_none(), "reported once");
        assert!(files.reload(refused).is_err());
        assert!(files.refresh(refused).is_none());
        assert!(matches!(files.refresh(|_| Ok(())), Some(Ok(()))));
        assert!(files.refresh(|_| Ok(())).is_none());
    }

    /// One of several was taken up before another failed: it is to be taken up again as it was.
    #[test]
    fn files_that_are_put_back_are_taken_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), b"old").unwrap();
        fs::write(at("new"), b"new").unwrap();
        let link = |to: &str| {
            let _ = fs::remove_file(at("c.pem")); // at first there is none
            std::os::unix::fs::symlink(at(to), at("c.pem")).unwrap();
        };
        link("old");
        let mut files = ChangedFiles::new(vec![at("c.pem")]);
        link("new");
        let partly = |_: &[PathBuf]| {
            let path = "k.pem".to_owned();
            Err(TlsError::NoCertificate { path })
        };
        assert!(files.refresh(partly).is_none(), "it may be half written");
        assert!(files.refresh(partly).unwrap().is_err());
        link("old");
        assert!(files.refresh(|_| Ok(())).is_none(), "another change");
        assert!(matches!(files.refresh(|_| Ok(())), Some(Ok(()))));
        assert!(files.refresh(|_| Ok(())).is_none());
    }
}
