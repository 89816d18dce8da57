//! One file and one of its neighbours, which is written under another name and then takes its place: a
//! server never sees a part of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_codings::{Coding, Effort, Encoder, Smaller};
use rustix::fs::{FileType, OFlags, Stat, fstat, lstat};
use rustix::io::Errno;

use crate::static_files::version::{FileVersion, is_stale};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 128 << 10;

/// The user who may do anything.
const ROOT: u32 = 0;

/// How the name of a file ends that is being written. It begins with a dot, so it is hidden, and is new each
/// time: another run may be writing the same neighbour, on another machine for instance.
pub(super) const TEMPORARY_SUFFIX: &str = ".loadline-tmp";

/// A path, and what went wrong with it.
pub(super) type PathError = (PathBuf, io::Error);

/// What came of a neighbour.
#[derive(Debug)]
pub(super) enum NeighbourOutcome {
    /// It was written, with this length.
    Written { bytes: u64 },
    /// A server takes the one that is there. `unset`: why it does not have the permissions of its file.
    UpToDate { unset: Option<PathError> },
    /// The file needs none; a stale one may have been removed.
    TooShort { removed: bool },
    /// It would be no smaller than the file; a stale one may have been removed.
    NotSmaller { removed: bool },
}

/// A file that may have neighbours.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    version: FileVersion,
    /// Permissions.
    mode: u32,
    owner: u32,
    group: u32,
}

impl Source {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let metadata = file.metadata()?;
        Ok(Self {
            path: path.to_owned(),
            version: FileVersion::of(&fstat(&file)?),
            mode: metadata.mode() & 0o777,
            owner: metadata.uid(),
            group: metadata.gid(),
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.version.content.size
    }

    /// Sees to one neighbour. An error comes with the path that it is about.
    pub(super) fn neighbour(
        &self,
        coding: Coding,
        bytes_min: u64,
    ) -> Result<NeighbourOutcome, PathError> {
        let mut place = self.path.clone().into_os_string();
        place.push(coding.suffix());
        let place = PathBuf::from(place);
        let of_place = |error: io::Error| (place.clone(), error);
        let there = file_at(&place).map_err(of_place)?;
        // The rule of the static files: so what is left alone here is served there.
        if let Some(there) = &there
            && !is_stale(&FileVersion::of(there), &self.version)
        {
            let unset = self.update_access(there, &place).err().map(of_place);
            return Ok(NeighbourOutcome::UpToDate { unset });
        }
        let remove_stale = || match there.is_some() {
            true => fs::remove_file(&place).map(|()| true).map_err(of_place),
            false => Ok(false),
        };
        if self.len() < bytes_min {
            let removed = remove_stale()?;
            return Ok(NeighbourOutcome::TooShort { removed });
        }
        match self.write(coding, &place) {
            Ok(Some(bytes)) => Ok(NeighbourOutcome::Written { bytes }),
            Ok(None) => {
                let removed = remove_stale()?;
                Ok(NeighbourOutcome::NotSmaller { removed })
            }
            Err(error) => Err(of_place(error)),
        }
    }

    /// Writes the file in a coding; its length, or `None` if it is no smaller so.
    fn write(&self, coding: Coding, place: &Path) -> io::Result<Option<u64>> {
        let source = open(&self.path)?;
        let mut named = tempfile::Builder::new();
        named.prefix(".").suffix(TEMPORARY_SUFFIX);
        let temporary = named.tempfile_in(self.directory())?; // removed unless it gets its place
        let output = io::BufWriter::with_capacity(PIECE_BYTES, temporary.as_file());
        let len = self.len();
        let smaller = Smaller::new(output, len);
        let level = Effort::Ahead.level(coding);
        let mut encoder = Encoder::new(coding, level, len, smaller)?;
        let mut pieces = io::BufReader::with_capacity(PIECE_BYTES, (&source).take(len));
        let copied = io::copy(&mut pieces, &mut encoder)?;
        if copied < len || FileVersion::of(&fstat(&source)?) != self.version {
            return Err(changed());
        }
        let Some((output, bytes)) = encoder.finish()?.end()? else {
            return Ok(None);
        };
        let output = output
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        output.set_modified(self.modified())?;
        self.set_access(output)?;
        output.sync_all()?; // before it has its name: a crash leaves no empty file that looks new
        temporary.persist(place)?;
        Ok(Some(bytes))
    }

    /// Gives a variant, which is its writer's alone so far, the group, permissions and owner of the file.
    fn set_access(&self, output: &File) -> io::Result<()> {
        let mode = match fchown(output, None, Some(self.group)) {
            Ok(()) => self.mode,
            Err(_) => mode_in_other_group(self.mode),
        };
        output.set_permissions(fs::Permissions::from_mode(mode))?;
        let _ = fchown(output, Some(self.owner), None); // only root may
        Ok(())
    }

    /// Gives a variant that a run wrote before, so that it has the time of the file, what has changed of the file's
    /// group, permissions and owner since.
    fn update_access(&self, there: &Stat, place: &Path) -> io::Result<()> {
        let version = FileVersion::of(there);
        let is_of_a_run = version.content.modified_ns == self.version.content.modified_ns;
        let (owner, group, mode) = (there.st_uid, there.st_gid, there.st_mode & 0o777);
        if !is_of_a_run || (owner, group, mode) == (self.owner, self.group, self.mode) {
            return Ok(());
        }
        // What the file forbids by now ends in any case, and before another group has the variant.
        let narrowed = mode & self.mode_in(group);
        let set = || -> io::Result<()> {
            let variant = match open(place) {
                // Somebody else's, who forbids as much.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && narrowed == mode =>
                {
                    return Ok(());
                }
                opened => opened?,
            };
            if FileVersion::of(&fstat(&variant)?) != version {
                return Ok(()); // another run's by now
            }
            let may_be_given = self.may_be_given(owner)?;
            if may_be_given || there.st_nlink == 1 {
                set_mode(&variant, mode, narrowed)?;
            }
            if !may_be_given {
                return Ok(());
            }
            let is_given = group == self.group || fchown(&variant, None, Some(self.group)).is_ok();
            let group = if is_given { self.group } else { group };
            set_mode(&variant, narrowed, self.mode_in(group))?;
            if owner != self.owner {
                let _ = fchown(&variant, Some(self.owner), None); // only root may
            }
            Ok(())
        };
        set().map_err(|error| {
            let text = format!("it cannot be given the permissions of its original: {error}");
            io::Error::new(error.kind(), text)
        })
    }

    /// Whether a variant of this owner may be given more than it has. Whoever may write to the directory could have
    /// moved or linked a file of somebody else there, and given a file of their own the same time.
    fn may_be_given(&self, owner: u32) -> io::Result<bool> {
        if owner == self.owner {
            return Ok(true);
        }
        let directory = fs::metadata(self.directory())?;
        let is_safe_from_others = directory.mode() & 0o022 == 0;
        Ok(is_safe_from_others && [ROOT, owner].contains(&directory.uid()))
    }

    /// The permissions of a variant in this group.
    fn mode_in(&self, group: u32) -> u32 {
        match group == self.group {
            true => self.mode,
            false => mode_in_other_group(self.mode),
        }
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new(""))
    }

    /// When the file was modified last, to the nanosecond.
    fn modified(&self) -> SystemTime {
        let ns = self.version.content.modified_ns;
        let distance = Duration::from_nanos(ns.unsigned_abs());
        match ns < 0 {
            true => UNIX_EPOCH - distance,
            false => UNIX_EPOCH + distance,
        }
    }
}

fn set_mode(file: &File, before: u32, mode: u32) -> io::Result<()> {
    match before == mode {
        true => Ok(()),
        false => file.set_permissions(fs::Permissions::from_mode(mode)),
    }
}

/// Permissions of a variant in another group than its file: this group and others may do only what the file's group
/// and others both may.
fn mode_in_other_group(mode: u32) -> u32 {
    let both = (mode >> 3) & mode & 0o7;
    (mode & 0o700) | (both << 3) | both
}

/// The file in a neighbour's place. A link is none: it is written over, since a server follows it only
/// within its root.
fn file_at(place: &Path) -> io::Result<Option<Stat>> {
    let there = match lstat(place) {
        Ok(there) => there,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => Ok(Some(there)),
        FileType::Symlink => Ok(None),
        _ => Err(io::Error::other("something other than a file is there")),
    }
}

fn changed() -> io::Error {
    io::Error::other("the file has changed while it was read; run it again")
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)) // a pipe in its place must not hang
        .open(path)
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_group_may_do_no_more_than_everybody() {
        for (mode, expected) in [
            (0o644, 0o644),
            (0o640, 0o600),
            (0o664, 0o644),
            (0o604, 0o600),
            (0o751, 0o711),
            (0o400, 0o400),
        ] {
            assert_eq!(mode_in_other_group(mode), expected, "{mode:o}");
        }
    }
}
