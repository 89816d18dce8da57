//! The document root: opens what lies below it, and nothing else.
//!
//! The kernel does the resolving where it can (`openat2` with RESOLVE_BENEATH); `walk` does it
//! component by component where it cannot. Neither compares strings, so neither can be raced.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, stat};
use rustix::io::Errno;

use super::local::is_local;
use super::version::FileVersion;
use super::walk;

/// What may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: what is not in the kernel's caches fails with `Errno::AGAIN`.
    Cached,
    /// The disk.
    Any,
}

/// How `openat2` may be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolver {
    /// Linux 5.12 and later.
    Cached,
    /// Linux 5.6 and later: without RESOLVE_CACHED.
    Uncached,
    /// Not at all: an older kernel, or a system call filter.
    Walk,
}

/// The document root.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    follow_symlinks: bool,
    resolver: Resolver,
    current: RwLock<Arc<RootDirectory>>,
    /// Called before what may hang.
    before: Before,
}

/// What tests put before each step that may wait for the file system, by the path that is asked for.
pub(super) type Before = fn(&[u8]);

/// What was opened, and whether it is sure to lie on the mount of a root that is local.
pub(super) struct Found {
    pub(super) fd: OwnedFd,
    pub(super) is_local: bool,
}

/// The directory that the root's path led to when it was last looked at.
#[derive(Debug)]
pub(super) struct RootDirectory {
    fd: OwnedFd,
    identity: (u64, u64),
    /// It can be looked at without waiting for more than a disk; so can what its own mount holds.
    pub(super) is_local: bool,
    /// Where it is without symbolic links, for links that name their target by an absolute path.
    canonical: PathBuf,
}

impl RootDirectory {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        Ok(Self {
            is_local: is_local(&fd),
            fd,
            identity: (stat.st_dev, stat.st_ino),
            canonical: path.canonicalize()?,
        })
    }
}

impl AsFd for RootDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Flags for reading: they keep an open from waiting for the other end of a pipe, and from side effects.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Flags for looking at what is there, which needs no permission to read it.
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl Root {
    /// Takes `path` as the root. Symbolic links in it are followed again when they change.
    pub(super) fn open(path: &Path, follow_symlinks: bool, before: Before) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let directory = RootDirectory::open(&path)?;
        // Its contents must be within reach; and this shows what the kernel can do.
        let resolver = probe(directory.as_fd())?;
        Ok(Self {
            path,
            follow_symlinks,
            resolver,
            current: RwLock::new(Arc::new(directory)),
            before,
        })
    }

    /// Does without `openat2` from here on.
    pub(super) fn walk_only(&mut self) {
        self.resolver = Resolver::Walk;
    }

    /// Where the root's path leads now. While it leads nowhere, the directory of before stays.
    ///
    /// Fails with `Errno::AGAIN` if that would have to be waited for.
    pub(super) fn directory(&self, access: Access) -> Result<Arc<RootDirectory>, Errno> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        if access == Access::Cached && !current.is_local {
            return Err(Errno::AGAIN);
        }
        (self.before)(self.path.as_os_str().as_bytes());
        let same = |stat: &Stat| (stat.st_dev, stat.st_ino) == current.identity;
        if !stat(&self.path).as_ref().is_ok_and(|now| !same(now)) {
            return Ok(current);
        }
        if access == Access::Cached {
            return Err(Errno::AGAIN); // where it leads is not known yet
        }
        let Ok(next) = RootDirectory::open(&self.path) else {
            return Ok(current);
        };
        let next = Arc::new(next);
        let mut slot = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *slot = Arc::clone(&next);
        Ok(next)
    }

    /// What is at an absolute path below the root.
    pub(super) fn version_at(&self, path: &CString) -> Result<Option<FileVersion>, Errno> {
        (self.before)(path.as_bytes());
        FileVersion::at(path)
    }

    /// The same, but of a link the link itself.
    pub(super) fn link_at(&self, path: &CString) -> Result<Option<FileVersion>, Errno> {
        (self.before)(path.as_bytes());
        FileVersion::of_link_at(path)
    }

    /// The absolute path of something below the root, for a later look at its version.
    pub(super) fn absolute(&self, relative: &[u8]) -> Option<CString> {
        let root = self.path.as_os_str().as_bytes();
        let mut path = Vec::with_capacity(root.len() + relative.len() + 2);
        path.extend_from_slice(root);
        path.push(b'/');
        path.extend_from_slice(relative);
        CString::new(path).ok()
    }

    /// Opens `relative` (see `SitePath::relative`) with `READ` or `LOOK`.
    pub(super) fn resolve(
        &self,
        directory: &RootDirectory,
        relative: &[u8],
        flags: OFlags,
        access: Access,
    ) -> Result<Found, Errno> {
        let relative = if relative.is_empty() { b"." } else { relative };
        if access == Access::Any {
            (self.before)(relative);
        } else if self.resolver != Resolver::Cached || !directory.is_local {
            return Err(Errno::AGAIN);
        }
        if self.resolver == Resolver::Walk {
            return self.walk(directory, relative, flags);
        }
        let mut how = ResolveFlags::NO_MAGICLINKS;
        if access == Access::Cached {
            how |= ResolveFlags::CACHED;
        }
        if !self.follow_symlinks {
            how |= ResolveFlags::BENEATH;
        }
        // Other mounts are for threads that may wait: they may be another machine's.
        let on_mount = how | ResolveFlags::NO_XDEV;
        match openat2(directory, relative, flags, Mode::empty(), on_mount) {
            Ok(fd) => Ok(Found {
                fd,
                is_local: directory.is_local,
            }),
            Err(Errno::XDEV) if access == Access::Cached => Err(Errno::AGAIN),
            Err(Errno::XDEV | Errno::AGAIN) if access == Access::Any => {
                self.resolve_elsewhere(directory, relative, flags, how)
            }
            Err(errno) => Err(errno),
        }
    }

    /// What is not on the root's mount, or behind a link with an absolute target, which may lie inside
    /// all the same, or one with `..` while something was being renamed.
    fn resolve_elsewhere(
        &self,
        directory: &RootDirectory,
        relative: &[u8],
        flags: OFlags,
        how: ResolveFlags,
    ) -> Result<Found, Errno> {
        match openat2(directory, relative, flags, Mode::empty(), how) {
            Ok(fd) => Ok(Found {
                fd,
                is_local: false,
            }),
            Err(Errno::XDEV | Errno::AGAIN) if !self.follow_symlinks => {
                self.walk(directory, relative, flags)
            }
            Err(errno) => Err(errno),
        }
    }

    fn walk(
        &self,
        directory: &RootDirectory,
        relative: &[u8],
        flags: OFlags,
    ) -> Result<Found, Errno> {
        let fd = if self.follow_symlinks {
            openat(directory, relative, flags, Mode::empty())?
        } else {
            let roots = [self.path.as_path(), directory.canonical.as_path()];
            walk::open_beneath(directory.as_fd(), &roots, relative, flags)?
        };
        Ok(Found {
            is_local: directory.is_local && fstat(&fd)?.st_dev == directory.identity.0,
            fd,
        })
    }
}

fn probe(directory: BorrowedFd<'_>) -> io::Result<Resolver> {
    let try_with = |resolve| openat2(directory, ".", LOOK, Mode::empty(), resolve);
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match try_with(beneath | ResolveFlags::CACHED) {
        Ok(_) | Err(Errno::AGAIN) => return Ok(Resolver::Cached),
        Err(Errno::ACCESS) => return Err(Errno::ACCESS.into()),
        Err(_) => {}
    }
    Ok(match try_with(beneath) {
        Ok(_) => Resolver::Uncached,
        Err(_) => Resolver::Walk,
    })
}
