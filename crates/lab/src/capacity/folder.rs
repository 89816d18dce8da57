//! A folder of one search for what its trials leave, gone with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names that are tried; others may have been left by programs that were killed.
const NAMES_MAX: u32 = 1000;

/// Below the folder for temporary files, for nobody else to read.
#[derive(Debug)]
pub(super) struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Makes one.
    ///
    /// # Errors
    /// It cannot be made, in one line.
    pub(super) fn make() -> Result<Self, String> {
        let place = std::env::temp_dir();
        let mut number = 0;
        loop {
            let name = format!("loadline-capacity-{}-{number}", std::process::id());
            let folder = place.join(name);
            match make_private(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if is_taken(&error) && number < NAMES_MAX => number += 1,
                Err(error) => {
                    let place = place.display();
                    return Err(format!("{place}: no folder can be made: {error}"));
                }
            }
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left is in nobody's way
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// Servers may run as another user: they may go through, and not look around.
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().mode(0o711).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_its_own_and_goes_with_its_owner() {
        let (one, other) = (OwnFolder::make().unwrap(), OwnFolder::make().unwrap());
        assert_ne!(one.path(), other.path());
        let path = one.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
    }
}
