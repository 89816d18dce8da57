//! The files below a directory that a server would serve: no symbolic links, and nothing hidden but what
//! is below `.well-known`.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::neighbour::TEMPORARY_SUFFIX;

/// A temporary file that has not changed for so long was left behind by a run that was killed.
const LEFT_BEHIND_AFTER_S: i64 = 3600;

/// What is called for each file, and for what cannot be read or removed.
type Visit<'v> = &'v mut dyn FnMut(PathBuf, io::Result<()>);

/// Visits the files below `directory`, in no order, and removes what killed runs have left behind there.
///
/// # Errors
/// It cannot be read itself.
pub(super) fn files(directory: &Path, now: SystemTime, visit: Visit<'_>) -> io::Result<()> {
    let now_s = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs().cast_signed(),
        Err(_) => 0,
    };
    // Directories that are known and not yet read: of a tree, the siblings on one way down.
    let mut directories = Vec::new();
    read(directory, now_s, &mut directories, visit)?;
    while let Some(directory) = directories.pop() {
        if let Err(error) = read(&directory, now_s, &mut directories, visit) {
            visit(directory, Err(error));
        }
    }
    Ok(())
}

fn read(
    directory: &Path,
    now_s: i64,
    directories: &mut Vec<PathBuf>,
    visit: Visit<'_>,
) -> io::Result<()> {
    for found in fs::read_dir(directory)? {
        let found = found?;
        let name = found.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b".") && bytes.ends_with(TEMPORARY_SUFFIX.as_bytes()) {
            if let Err(error) = remove_left_behind(&found, now_s) {
                visit(found.path(), Err(error));
            }
            continue;
        }
        if bytes.starts_with(b".") && name != ".well-known" {
            continue;
        }
        let kind = found.file_type()?;
        if kind.is_dir() {
            directories.push(found.path());
        } else if kind.is_file() {
            visit(found.path(), Ok(()));
        }
    }
    Ok(())
}

/// Removes a temporary file that no run can be writing any more. Its modification time does not say so: shortly
/// before it gets its place it has that of its original.
fn remove_left_behind(found: &DirEntry, now_s: i64) -> io::Result<()> {
    let removed = found.metadata().and_then(|metadata| {
        let is_old = now_s.saturating_sub(metadata.ctime()) > LEFT_BEHIND_AFTER_S;
        match is_old && !metadata.is_dir() {
            true => fs::remove_file(found.path()),
            false => Ok(()),
        }
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()), // it has its place by now
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A run removed what another one was writing, on another machine for instance.
    #[test]
    fn temporary_files_are_removed_once_no_run_can_be_writing_them() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let temporary = [".Xy12ab.loadline-tmp", ".a.js.gz.loadline-tmp"].map(|it| root.join(it));
        for path in &temporary {
            fs::write(path, "half").unwrap();
        }
        fs::write(root.join("a.js"), "a").unwrap();
        fs::write(root.join(".hidden"), "h").unwrap();
        for (minutes, is_there) in [(0, true), (30, true), (90, false)] {
            let now = SystemTime::now() + Duration::from_secs(60 * minutes);
            let mut visited = Vec::new();
            files(root, now, &mut |path, looked| {
                looked.unwrap();
                visited.push(path);
            })
            .unwrap();
            assert_eq!(visited, [root.join("a.js")]);
            for path in &temporary {
                assert_eq!(path.exists(), is_there, "{minutes} minutes later");
            }
        }
        assert!(root.join(".hidden").exists());
    }
}
