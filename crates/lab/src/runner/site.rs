//! The document root: files that are made for a run, and what an answer has to be.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::error::RunnerError;
use crate::file_error::FileError;

/// Files are written and read in pieces of this size.
const PIECE_BYTES: usize = 1 << 16;
/// From this size on, files are large: they do not go out in one write.
const LARGE_BYTES: u64 = 64 << 10;

/// What is served.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) folder: PathBuf,
    known: BTreeMap<String, Content>,
}

/// What an answer has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: u64,
    /// In hexadecimal.
    pub(super) sha256: String,
}

/// Paths of those that some servers treat differently.
pub(super) fn large_files(files: &BTreeMap<String, u64>) -> Vec<String> {
    let large = files.iter().filter(|(_, bytes)| **bytes >= LARGE_BYTES);
    large.map(|(name, _)| format!("/{name}")).collect()
}

impl Root {
    /// Makes files of these sizes below a folder; those that are there already stay.
    pub(super) fn make(folder: &Path, files: &BTreeMap<String, u64>) -> Result<Self, RunnerError> {
        fs::create_dir_all(folder).map_err(FileError::of(folder))?;
        open_to_all(folder);
        let mut known = BTreeMap::new();
        for (name, bytes) in files {
            let path = folder.join(name);
            let made = make_file(&path, *bytes).and_then(|()| content(&path));
            known.insert(format!("/{name}"), made.map_err(FileError::of(&path))?);
        }
        Ok(Self {
            folder: folder.to_owned(),
            known,
        })
    }

    /// A folder that is there.
    pub(super) fn found(folder: &Path) -> Result<Self, RunnerError> {
        let folder = fs::canonicalize(folder)
            .map_err(|error| format!("root {}: {error}", folder.display()))?;
        if !folder.is_dir() {
            return Err(format!(
                "root {}: not a folder; right would be the folder that servers are to serve",
                folder.display()
            )
            .into());
        }
        Ok(Self {
            folder,
            known: BTreeMap::new(),
        })
    }

    /// What the answer for a path has to be; `None`: not known, since it names no file.
    pub(super) fn content(&mut self, path: &str) -> Option<Content> {
        if let Some(content) = self.known.get(path) {
            return Some(content.clone());
        }
        let name = path.split(['?', '#']).next()?.trim_start_matches('/');
        let is_plain = !name.split('/').any(|part| part == "..") && !name.contains('%');
        let file = self.folder.join(name);
        if !is_plain || !file.is_file() {
            return None;
        }
        let content = content(&file).ok()?;
        self.known.insert(path.to_owned(), content.clone());
        Some(content)
    }
}

/// Servers that go on as another user have to reach it.
fn open_to_all(folder: &Path) {
    // If that is refused, the check of the first answer says what came of it.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
}

/// Text that does not compress to nothing, the same for each name and size. Written beside and
/// renamed, so that a file that is there is whole.
fn make_file(path: &Path, bytes: u64) -> io::Result<()> {
    if path.metadata().is_ok_and(|found| found.len() == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
        open_to_all(folder);
    }
    // No file of a site has a name that begins so.
    let beside = path.with_file_name(".part");
    let mut out = BufWriter::with_capacity(PIECE_BYTES, File::create(&beside)?);
    let mut state = bytes | 1;
    for _ in 0..bytes {
        out.write_all(&[next_letter(&mut state)])?;
    }
    out.flush()?;
    fs::rename(&beside, path)
}

/// A letter, a digit or the end of a line, from a linear congruence (Knuth's MMIX).
fn next_letter(state: &mut u64) -> u8 {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n";
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    LETTERS[(*state >> 58) as usize]
}

fn content(path: &Path) -> io::Result<Content> {
    let mut reader = BufReader::with_capacity(PIECE_BYTES, File::open(path)?);
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        match reader.read(&mut piece)? {
            0 => break,
            count => {
                hash.update(&piece[..count]);
                bytes += count as u64;
            }
        }
    }
    let hash = hash.finalize();
    let digits = hash.iter().map(|byte| format!("{byte:02x}"));
    Ok(Content {
        bytes,
        sha256: digits.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_sizes_and_are_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("root");
        let sizes = [
            ("a.html", 93),
            ("v/b.bin", 200_000),
            ("empty", 0),
            ("x.part", 5),
            ("x.txt", 7),
        ];
        let files = sizes.map(|(name, bytes)| (name.to_owned(), bytes)).into();
        let mut root = Root::make(&folder, &files).unwrap();
        for (name, bytes) in sizes {
            assert_eq!(folder.join(name).metadata().unwrap().len(), bytes, "{name}");
            assert_eq!(root.content(&format!("/{name}")).unwrap().bytes, bytes);
        }
        assert_eq!(
            root.content("/empty").unwrap().sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let made_at = |name: &str| folder.join(name).metadata().unwrap().modified().unwrap();
        let before = made_at("v/b.bin");
        let mut again = Root::make(&folder, &files).unwrap();
        assert_eq!(made_at("v/b.bin"), before);
        assert_eq!(again.content("/v/b.bin"), root.content("/v/b.bin"));
    }

    #[test]
    fn of_a_folder_that_is_there_files_are_known() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.txt"), "abc").unwrap();
        let mut root = Root::found(folder.path()).unwrap();
        assert_eq!(root.content("/x.txt?a=b").unwrap().bytes, 3);
        for path in ["/", "/y", "/../x.txt", "/a%20b"] {
            assert_eq!(root.content(path), None, "{path}");
        }
        assert!(Root::found(&folder.path().join("x.txt")).is_err());
    }
}
