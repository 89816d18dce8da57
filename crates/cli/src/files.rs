//! Files that the program writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A result file, tried out before the run: that a directory is missing should not show after an hour.
#[derive(Debug)]
pub(crate) struct Output {
    /// With the option that names it.
    name: String,
    path: PathBuf,
    /// What is no file: a pipe, say, which is opened once. A file is made when there is something to
    /// be written, so that a run that fails leaves an older one as it was, and no empty one.
    open: Option<File>,
}

impl Output {
    /// Sees that the file can be written.
    pub(crate) fn open(option: &str, path: Option<&Path>) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let name = format!("{option} {}", path.display());
        if path.as_os_str() == "-" || is_standard_output(path) {
            return Err(Failure::usage(format!(
                "{name}: standard output has the result in words; right would be a file of its own"
            )));
        }
        match try_out(path) {
            Ok(open) => Ok(Some(Self {
                name,
                path: path.to_owned(),
                open,
            })),
            Err(error) => {
                let why = why_not_written(&error);
                Err(Failure::usage(format!(
                    "{name}: {why}; right would be a file that can be written"
                )))
            }
        }
    }

    /// Writes it, if there is to be one.
    pub(crate) fn write(
        output: Option<Self>,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Some(Self { name, path, open }) = output else {
            return Ok(());
        };
        let is_file = open.is_none();
        let written = open
            .map_or_else(|| File::create(&path), Ok)
            .map(BufWriter::new)
            .and_then(|mut to| write(&mut to).and_then(|()| to.flush()));
        written.map_err(|error| {
            if is_file {
                let _ = fs::remove_file(&path); // half of a result is none; the error is reported
            }
            Failure::failed(format!("{name}: {error}"))
        })
    }
}

/// Writes a text whole or not at all: a reader never sees half of it.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part: PathBuf = path.with_file_name(name);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part); // it may not be there
        Failure::file(path, error)
    })
}

/// Why a file cannot be written.
pub(crate) fn why_not_written(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such directory".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission to write it".to_owned(),
        io::ErrorKind::IsADirectory => "a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// The full path of a file that may not be there yet. `None` if its directory is not there either.
pub(crate) fn full(file: &Path) -> Option<PathBuf> {
    if let Ok(full) = fs::canonicalize(file) {
        return Some(full);
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Some(fs::canonicalize(folder).ok()?.join(file.file_name()?))
}

/// Whether the file is the one that standard output goes to: each would overwrite the other. A pipe or
/// a terminal takes both, one behind the other.
fn is_standard_output(path: &Path) -> bool {
    let found = (fs::metadata(path), fs::metadata("/proc/self/fd/1"));
    matches!(found, (Ok(file), Ok(output)) if file.is_file()
        && (file.dev(), file.ino()) == (output.dev(), output.ino()))
}

/// Sees that a file can be written, and leaves it as it was; gives what is no file, open.
fn try_out(path: &Path) -> io::Result<Option<File>> {
    let is_new =
        matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let file = OpenOptions::new().write(true).create(is_new).open(path)?;
    if is_new {
        fs::remove_file(fs::canonicalize(path)?)?; // a link to nothing stays one
        return Ok(None);
    }
    let is_file = file.metadata()?.is_file();
    Ok((!is_file).then_some(file))
}
