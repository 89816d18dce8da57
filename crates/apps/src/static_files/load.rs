//! From a path to an entry: opens, reads and describes what is there.

use std::cell::Cell;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

use loadline_base::{Millis, OpenFile};
use loadline_codings::Coding;
use loadline_proto::Status;
use rustix::fs::{FileType, OFlags, fstat, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use super::entry::{Entry, Probe, Resource, Seen, Target};
use super::making::Making;
use super::options::StaticOptions;
use super::representation::{Facts, Origin, Representation};
use super::root::{Access, Found, LOOK, READ, Root, RootDirectory};
use super::version::{FileVersion, is_stale, is_young};
use crate::content::multipart::Content;
use crate::content::path::SitePath;

/// How often a file that changes while it is read is read again, before a loop leaves it to a
/// thread that may wait, and before that one gives up.
const ATTEMPTS_CACHED: usize = 2;
const ATTEMPTS_ANY: usize = 20;

/// Why there is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing is there.
    Missing,
    /// It may not be had, or not now.
    Refused(Status),
    /// It may be there, but that takes waiting for the disk.
    WouldBlock,
}

impl Failure {
    /// What an error of opening or reading means for the client.
    pub(super) fn of(errno: Errno, access: Access) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => {
                Self::Missing
            }
            Errno::AGAIN if access == Access::Cached => Self::WouldBlock,
            // Descriptors, memory, a race that went on: it may work in a moment.
            Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::AGAIN
            | Errno::INTR
            | Errno::STALE
            | Errno::BUSY => Self::Refused(Status::SERVICE_UNAVAILABLE),
            // The disk, or the network that stands in for it.
            Errno::IO | Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => {
                Self::Refused(Status::INTERNAL_SERVER_ERROR)
            }
            // Permissions, links that leave the root or run in circles, devices.
            _ => Self::Refused(Status::FORBIDDEN),
        }
    }
}

/// What a load needs to know.
pub(super) struct Loader<'l> {
    pub(super) root: &'l Root,
    pub(super) options: &'l StaticOptions,
    pub(super) access: Access,
    pub(super) now: Millis,
    /// The time of day, from before anything is looked at.
    pub(super) wall: SystemTime,
    /// What was known of the path.
    pub(super) before: Option<Arc<Entry>>,
    /// How many loads began before this one.
    pub(super) number: u64,
    /// All that was looked at lies on the mount of a root that is local.
    pub(super) is_local: Cell<bool>,
}

/// What was opened.
enum Opened {
    File(OwnedFd, FileVersion),
    Directory,
}

/// A name beside the one that was found, and what is there: it decides with it.
type Beside = (Vec<u8>, Seen);

impl Loader<'_> {
    /// The entry for `path` as things are now.
    pub(super) fn load(&self, path: &SitePath<'_>) -> Result<Entry, Failure> {
        let failure = |errno| Failure::of(errno, self.access);
        let directory = self.root.directory(self.access).map_err(failure)?;
        self.is_local.set(directory.is_local);
        let relative = path.relative();
        if !path.is_directory_like() {
            return match self.open(&directory, relative)? {
                Opened::File(fd, version) => self.file(&directory, relative, fd, version, vec![]),
                Opened::Directory => Ok(self.entry(Target::Redirect, vec![])),
            };
        }
        let mut beside: Vec<Beside> = Vec::new();
        for index in &self.options.index {
            let path = join(relative, index.as_bytes());
            match self.open(&directory, &path) {
                Ok(Opened::File(fd, version)) => {
                    return self.file(&directory, &path, fd, version, beside);
                }
                // Something is there that cannot be an index: it may change, so look each time.
                Ok(Opened::Directory) => {
                    beside.push((path, Seen::Target(Some(FileVersion::default()))));
                }
                Err(Failure::Missing) => beside.push((path, Seen::Target(None))),
                Err(failure) => return Err(failure),
            }
        }
        let found = self.root.resolve(&directory, relative, LOOK, self.access);
        let fd = self.noted(found, relative).map_err(failure)?;
        match file_type(&fd).map_err(failure)? {
            FileType::Directory => Ok(self.entry(Target::Directory, vec![])),
            _ => Err(Failure::Missing),
        }
    }

    /// An entry; without probes it is made anew each second.
    fn entry(&self, target: Target, probes: Vec<Probe>) -> Entry {
        let is_local = self.is_local.get();
        let limits = &self.options.cache;
        Entry::new(target, probes, is_local, limits, self.now, self.number)
    }

    /// What was found, having noted where it lies. What was not found lies nowhere, so it is where
    /// its directory is that counts, and the directory is that of something found. But a link may lead to what
    /// another machine does not have, or not now.
    fn noted(&self, found: Result<Found, Errno>, relative: &[u8]) -> Result<OwnedFd, Errno> {
        let is_local = match &found {
            Ok(found) => found.is_local,
            Err(Errno::XDEV) => true, // out of the root: from then on only the link is looked at
            Err(_) => self.access == Access::Cached || !self.is_anything_at(relative),
        };
        self.is_local.set(self.is_local.get() && is_local);
        Ok(found?.fd)
    }

    /// Whether there is anything under a name, be it a link that leads nowhere.
    fn is_anything_at(&self, relative: &[u8]) -> bool {
        let absolute = self.root.absolute(relative);
        absolute.is_some_and(|it| matches!(self.root.link_at(&it), Ok(Some(_))))
    }

    fn open(&self, directory: &RootDirectory, relative: &[u8]) -> Result<Opened, Failure> {
        let failure = |errno| Failure::of(errno, self.access);
        let found = self.root.resolve(directory, relative, READ, self.access);
        let fd = match found {
            // A directory that may be entered but not read is one all the same.
            Err(Errno::ACCESS) => {
                let found = self.root.resolve(directory, relative, LOOK, self.access);
                let path = self.noted(found, relative).map_err(failure)?;
                return match file_type(&path).map_err(failure)? {
                    FileType::Directory => Ok(Opened::Directory),
                    _ => Err(Failure::Refused(Status::FORBIDDEN)),
                };
            }
            found => self.noted(found, relative).map_err(failure)?,
        };
        let stat = fstat(&fd).map_err(failure)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Opened::File(fd, FileVersion::of(&stat))),
            FileType::Directory => Ok(Opened::Directory),
            _ => Err(Failure::Refused(Status::FORBIDDEN)),
        }
    }

    fn file(
        &self,
        directory: &RootDirectory,
        path: &[u8],
        fd: OwnedFd,
        version: FileVersion,
        beside: Vec<Beside>,
    ) -> Result<Entry, Failure> {
        let mut watched = beside;
        let (identity, version) = self.content(fd, version)?;
        let mut variants = Vec::new();
        let codings = Coding::COMPRESSED.into_iter();
        for coding in codings.filter(|_| self.options.precompressed) {
            let neighbour = [path, coding.suffix().as_bytes()].concat();
            let (content, seen) = self.neighbour(directory, &neighbour, &version)?;
            if let (Some(content), Some(found)) = (content, seen.version()) {
                variants.push((coding, content, *found));
            }
            watched.push((neighbour, seen));
        }
        let making = Making::of(path, &identity, &version, self.options);
        let made = match (&making, &self.before) {
            (Some(_), Some(before)) => before.made_of(&identity, &version),
            _ => Vec::new(),
        };
        let has_variants = !variants.is_empty() || making.is_some();
        let represent = |coding, content, version, origin| {
            let facts = Facts {
                path,
                coding,
                version,
                content,
                origin,
                has_variants,
                loaded: self.wall,
            };
            Representation::new(facts, self.options)
        };
        let is_beside = |coding: Coding| variants.iter().any(|(beside, ..)| *beside == coding);
        let made: Vec<Representation> = (made.into_iter())
            .filter(|(coding, _)| !is_beside(*coding))
            .map(|(coding, bytes)| represent(coding, Content::Shared(bytes), version, Origin::Made))
            .collect();
        let beside = variants
            .into_iter()
            .map(|(coding, content, version)| represent(coding, content, version, Origin::File));
        let resource = Resource {
            variants: beside.chain(made).collect(),
            identity: represent(Coding::Identity, identity, version, Origin::File),
            making,
        };
        watched.push((path.to_vec(), Seen::Target(Some(version))));
        let probes = self.probes(&watched);
        Ok(self.entry(Target::File(resource), probes))
    }

    /// The content of a neighbour of a file, unless it is stale; and what to look for at its path.
    fn neighbour(
        &self,
        directory: &RootDirectory,
        path: &[u8],
        version: &FileVersion,
    ) -> Result<(Option<Content>, Seen), Failure> {
        let (mut opened, mut seen) = (self.open(directory, path), Seen::Target(None));
        if let Ok(Opened::Directory) | Err(Failure::Refused(Status::FORBIDDEN)) = opened {
            // Tried again after the look: if it becomes a neighbour later, another look shows that.
            seen = self.seen(directory, path);
            opened = self.open(directory, path);
        }
        let content = match opened {
            Ok(Opened::File(_, found)) if is_stale(&found, version) => {
                return Ok((None, Seen::Target(Some(found))));
            }
            Ok(Opened::File(fd, found)) => self.content(fd, found),
            Ok(Opened::Directory) | Err(Failure::Refused(Status::FORBIDDEN)) => {
                return Ok((None, seen));
            }
            Err(failure) => Err(failure),
        };
        match content {
            Ok((content, found)) => Ok((Some(content), Seen::Target(Some(found)))),
            Err(Failure::WouldBlock) => Err(Failure::WouldBlock),
            // A neighbour that cannot be had is none: the file itself can.
            Err(Failure::Missing | Failure::Refused(_)) => Ok((None, Seen::Target(None))),
        }
    }

    /// What there is in the place of a neighbour that cannot be had.
    fn seen(&self, directory: &RootDirectory, path: &[u8]) -> Seen {
        let Some(absolute) = self.root.absolute(path) else {
            return Seen::Target(None);
        };
        let resolved = self.root.resolve(directory, path, LOOK, self.access);
        match resolved.err() {
            Some(Errno::XDEV) => {
                let link = self.root.link_at(&absolute).ok().flatten();
                link.map_or(Seen::Target(None), Seen::LinkOut)
            }
            _ => Seen::Target(self.root.version_at(&absolute).ok().flatten()),
        }
    }

    /// What to look at to know that all of `watched` is as it was; nothing if looking cannot show it.
    fn probes(&self, watched: &[Beside]) -> Vec<Probe> {
        let mut versions = watched.iter().filter_map(|(_, seen)| seen.version());
        if versions.any(|version| is_young(version, self.wall)) {
            return Vec::new();
        }
        let probe = |(path, expected): &Beside| {
            let (path, expected) = (self.root.absolute(path)?, *expected);
            Some(Probe { path, expected })
        };
        let probes: Option<Vec<Probe>> = watched.iter().map(probe).collect();
        probes.unwrap_or_default()
    }

    /// A small file's bytes, or a large one's descriptor; and the version they are of.
    fn content(
        &self,
        fd: OwnedFd,
        version: FileVersion,
    ) -> Result<(Content, FileVersion), Failure> {
        let failure = |errno| Failure::of(errno, self.access);
        let mut before = version;
        let attempts = match self.access {
            Access::Cached => ATTEMPTS_CACHED,
            Access::Any => ATTEMPTS_ANY,
        };
        for _ in 0..attempts {
            if before.content.size > self.options.memory_bytes_max {
                let file = Arc::new(OpenFile {
                    fd,
                    version: before.content,
                    is_local: self.is_local.get(),
                });
                return Ok((Content::File(file), before));
            }
            let bytes = read_whole(&fd, before.content.size, self.access).map_err(failure)?;
            let after = FileVersion::of(&fstat(&fd).map_err(failure)?);
            match bytes {
                Some(bytes) if after == before => return Ok((Content::Shared(bytes), after)),
                _ => before = after,
            }
        }
        // It keeps changing: there is no one state of it to send.
        Err(match self.access {
            Access::Cached => Failure::WouldBlock,
            Access::Any => Failure::Refused(Status::SERVICE_UNAVAILABLE),
        })
    }
}

/// A name in a directory below the root.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        some => [some, b"/", name].concat(),
    }
}

fn file_type(fd: &OwnedFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// The first `size` bytes; `None` if there are fewer by now.
pub(super) fn read_whole(
    fd: &OwnedFd,
    size: u64,
    access: Access,
) -> Result<Option<Arc<[u8]>>, Errno> {
    let size = usize::try_from(size).map_err(|_| Errno::FBIG)?;
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
    let Some(room) = Arc::get_mut(&mut bytes) else {
        return Err(Errno::NOMEM); // cannot be: no other thread has it yet
    };
    let mut filled = 0;
    while filled < size {
        match read_at(fd, &mut room[filled..], filled as u64, access) {
            Ok(0) => return Ok(None),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(Some(bytes))
}

/// Reads at `offset`; with `Access::Cached` only what is in the page cache, else `Errno::AGAIN`.
pub(super) fn read_at(
    fd: impl AsFd,
    buffer: &mut [u8],
    offset: u64,
    access: Access,
) -> Result<usize, Errno> {
    if access == Access::Any {
        return pread(fd, buffer, offset);
    }
    let slices = &mut [IoSliceMut::new(buffer)];
    match preadv2(&fd, slices, offset, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) if is_memory(&fd) => pread(fd, buffer, offset),
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
        other => other,
    }
}

/// Whether the file lives in memory: tmpfs refuses NOWAIT, though it hardly ever waits.
fn is_memory(fd: impl AsFd) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    fstatfs(fd).is_ok_and(|fs| matches!(fs.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Flags for reading a directory's names.
pub(super) const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
