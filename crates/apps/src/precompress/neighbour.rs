//! One file and one of its neighbours, which is written under another name and then takes its place: a
//! server never sees a part of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_codings::{Coding, Effort, Encoder, Smaller};
use rustix::fs::{FileType, OFlags, Stat, fstat, lstat};
use rustix::io::Errno;

use crate::static_files::version::{FileVersion, is_stale};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 128 << 10;

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
    /// A server takes the one that is there. `kept_because`: it should have the permissions that its file has now, and
    /// why it was not written anew.
    UpToDate { kept_because: Option<PathError> },
    /// The file needs none; the one that was there may have been removed.
    TooShort { removed: bool },
    /// It would be no smaller than the file; the one that was there may have been removed.
    NotSmaller { removed: bool },
}

/// A file that may have neighbours.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    version: FileVersion,
    access: FileAccess,
}

/// Who may do what with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileAccess {
    owner: u32,
    group: u32,
    /// Permissions.
    mode: u32,
}

impl Source {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let stat = fstat(&file)?;
        Ok(Self {
            path: path.to_owned(),
            version: FileVersion::of(&stat),
            access: FileAccess::of(&stat),
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
        let is_there = there.is_some();
        // The rule of the static files: so what is left alone here is served there.
        let current = there.filter(|there| !is_stale(&FileVersion::of(there), &self.version));
        let Some(current) = current else {
            return self
                .replace(coding, bytes_min, &place, is_there)
                .map_err(of_place);
        };
        let replaced = match self.has_access(&current) {
            Ok(true) => return Ok(NeighbourOutcome::UpToDate { kept_because: None }),
            Ok(false) => self.replace(coding, bytes_min, &place, is_there),
            Err(error) => Err(error),
        };
        Ok(replaced.unwrap_or_else(|error| {
            let text = format!("it cannot be given the permissions of its original: {error}");
            let error = io::Error::new(error.kind(), text);
            NeighbourOutcome::UpToDate {
                kept_because: Some(of_place(error)),
            }
        }))
    }

    /// Writes a neighbour, or removes the one that is there if the file has none.
    fn replace(
        &self,
        coding: Coding,
        bytes_min: u64,
        place: &Path,
        is_there: bool,
    ) -> io::Result<NeighbourOutcome> {
        let remove = || match is_there {
            true => fs::remove_file(place).map(|()| true),
            false => Ok(false),
        };
        if self.len() < bytes_min {
            let removed = remove()?;
            return Ok(NeighbourOutcome::TooShort { removed });
        }
        let Some(bytes) = self.write(coding, place)? else {
            let removed = remove()?;
            return Ok(NeighbourOutcome::NotSmaller { removed });
        };
        Ok(NeighbourOutcome::Written { bytes })
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
        let FileAccess { owner, group, mode } = self.access;
        let mode = match fchown(output, None, Some(group)) {
            Ok(()) => mode,
            Err(_) => mode_in_other_group(mode),
        };
        output.set_permissions(fs::Permissions::from_mode(mode))?;
        let _ = fchown(output, Some(owner), None); // only root may
        Ok(())
    }

    /// Whether a variant that is up to date has the access that one would have that is written now, or one as good. One
    /// without exactly the time of its file was not written by a run, and is left alone.
    ///
    /// The access of a file that is there is never changed: whoever may write to the directory, or replace it by a link,
    /// could have put a file of somebody else there.
    fn has_access(&self, there: &Stat) -> io::Result<bool> {
        let version = FileVersion::of(there);
        let is_of_a_run = version.content.modified_ns == self.version.content.modified_ns;
        let access = FileAccess::of(there);
        if !is_of_a_run || access == self.access {
            return Ok(true);
        }
        // What can be given depends on the user, the groups and the file system: a file without a name shows it.
        let trial = tempfile::tempfile_in(self.directory())?;
        self.set_access(&trial)?;
        let given = FileAccess::of(&fstat(&trial)?);
        Ok(access.is_as_good(given, self.access))
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

impl FileAccess {
    fn of(stat: &Stat) -> Self {
        Self {
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode & 0o777,
        }
    }

    /// Whether a variant with this access may stay, where one that is written now would have `given`. One of somebody
    /// else who could give it as little may: else two users would write each other's variants anew, at each run.
    fn is_as_good(self, given: Self, of_file: Self) -> bool {
        let is_as_near = |own: u32, given: u32, wanted: u32| own == wanted || given != wanted;
        self == given
            || self.mode == of_file.mode_in(self.group)
                && is_as_near(self.owner, given.owner, of_file.owner)
                && is_as_near(self.group, given.group, of_file.group)
    }

    /// The permissions of a variant in this group.
    fn mode_in(self, group: u32) -> u32 {
        match group == self.group {
            true => self.mode,
            false => mode_in_other_group(self.mode),
        }
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

    #[test]
    fn a_variant_is_written_anew_only_if_that_brings_its_access_nearer_to_its_files() {
        const FILE: (u32, u32, u32) = (1, 10, 0o640);
        let access = |(owner, group, mode)| FileAccess { owner, group, mode };
        // What is there, what one would have that is written now, and whether the first may stay.
        let table = [
            ((1, 10, 0o644), (1, 10, 0o640), false), // the file was for everybody
            ((1, 10, 0o600), (1, 10, 0o640), false), // it was for its owner
            ((2, 10, 0o640), (1, 10, 0o640), false), // it was another owner's
            ((1, 11, 0o600), (1, 10, 0o640), false), // it was another group's
            ((1, 11, 0o600), (1, 11, 0o600), true),  // the group cannot be given
            ((1, 11, 0o640), (1, 11, 0o600), false), // the other group may read it
            ((2, 10, 0o640), (3, 10, 0o640), true),  // another user cannot give the owner either
            ((2, 11, 0o600), (3, 10, 0o640), false), // but the group
            ((2, 10, 0o640), (3, 12, 0o600), true),  // another user could give the group
            ((2, 10, 0o644), (3, 12, 0o600), false),
            ((1, 10, 0o755), (1, 10, 0o755), true), // a file system that has no permissions
        ];
        for (there, given, expected) in table {
            let may_stay = access(there).is_as_good(access(given), access(FILE));
            assert_eq!(may_stay, expected, "{there:?} {given:?}");
        }
    }
}
