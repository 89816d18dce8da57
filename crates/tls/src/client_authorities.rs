//! The authorities of client certificates in a file, taken up again when it changes.

use std::path::{Path, PathBuf};

use crate::{Authorities, ChangedFiles, ClientCertificates, TlsError, TlsServer};

/// A file of the authorities whose certificates clients are asked for.
#[derive(Debug)]
pub struct ClientAuthorityFile {
    path: PathBuf,
    is_optional: bool,
    file: ChangedFiles,
    certificates: ClientCertificates,
}

impl ClientAuthorityFile {
    /// Reads it. If it is optional, clients may go without a certificate.
    ///
    /// # Errors
    /// It cannot be read or used.
    pub fn load(path: PathBuf, is_optional: bool) -> Result<Self, TlsError> {
        let file = ChangedFiles::new(vec![path.clone()]);
        Ok(Self {
            certificates: read(&path, is_optional)?,
            path,
            is_optional,
            file,
        })
    }

    /// What clients are asked for.
    #[must_use]
    pub fn certificates(&self) -> &ClientCertificates {
        &self.certificates
    }

    /// Has these servers ask for what the file says, whether it has changed or not.
    ///
    /// # Errors
    /// It cannot be read or used; the authorities of before stay.
    pub fn reload(&mut self, servers: &[&TlsServer]) -> Result<(), TlsError> {
        let (path, is_optional) = (&self.path, self.is_optional);
        let certificates = &mut self.certificates;
        self.file.reload(|_| {
            *certificates = take_up(path, is_optional, servers)?;
            Ok(())
        })
    }

    /// The same if it has changed, at the second look that finds it so. `None`: it was not taken up; an error is
    /// reported once.
    pub fn refresh(&mut self, servers: &[&TlsServer]) -> Option<Result<(), TlsError>> {
        let (path, is_optional) = (&self.path, self.is_optional);
        let certificates = &mut self.certificates;
        self.file.refresh(|_| {
            *certificates = take_up(path, is_optional, servers)?;
            Ok(())
        })
    }
}

fn take_up(
    path: &Path,
    is_optional: bool,
    servers: &[&TlsServer],
) -> Result<ClientCertificates, TlsError> {
    let new = read(path, is_optional)?;
    for server in servers {
        server.replace_client_certificates(&new)?;
    }
    Ok(new)
}

fn read(path: &Path, is_optional: bool) -> Result<ClientCertificates, TlsError> {
    let authorities = Authorities::from_file(path)?;
    Ok(match is_optional {
        true => ClientCertificates::Optional(authorities),
        false => ClientCertificates::Required(authorities),
    })
}
