//! Opening below a directory one component at a time, for kernels without `openat2`, and for
//! symbolic links with absolute targets, which `openat2` refuses even if they lead inside.
//!
//! No component is followed by the kernel: each is opened with O_NOFOLLOW relative to the one
//! before, and links are read and walked here. The way back up (`..` in a link) goes along the
//! descriptors that led down, so it cannot pass the root, whatever is renamed meanwhile.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

/// Links in one path. 40 is the kernel's own bound.
const LINKS_MAX: usize = 40;

/// Components still to walk. A path has 4096 bytes at most; links may add as many each.
const COMPONENTS_MAX: usize = 4096;

/// Opens `relative` below `root` with `flags`. `roots` are paths that lead to the root itself: an
/// absolute link target below one of them counts as inside.
///
/// Fails with `Errno::XDEV` if the way leads out of the root.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    roots: &[&Path],
    relative: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut walk = Walk {
        root,
        descent: Vec::new(),
        ahead: VecDeque::new(),
        links: 0,
    };
    walk.prepend(Path::new(OsStr::from_bytes(relative)))?;
    while let Some(step) = walk.ahead.pop_front() {
        match step {
            Step::Up => {
                walk.descent.pop().ok_or(Errno::XDEV)?;
            }
            Step::Down(name) => {
                let last = walk.ahead.is_empty();
                let wanted = if last {
                    flags
                } else {
                    OFlags::PATH | OFlags::CLOEXEC
                };
                if let Some(fd) = walk.enter(&name, wanted, roots)? {
                    if last {
                        return Ok(fd);
                    }
                    walk.descent.push(fd);
                }
            }
        }
    }
    // It ended at a directory on the way: the root itself, or where a link's `..` led.
    openat(walk.place(), ".", flags, Mode::empty())
}

enum Step {
    Down(Vec<u8>),
    Up,
}

struct Walk<'r> {
    root: BorrowedFd<'r>,
    /// The directories from below the root down to here.
    descent: Vec<OwnedFd>,
    ahead: VecDeque<Step>,
    links: usize,
}

impl Walk<'_> {
    /// Opens `name` here; `None` if it was a link, whose target is ahead now.
    fn enter(
        &mut self,
        name: &[u8],
        flags: OFlags,
        roots: &[&Path],
    ) -> Result<Option<OwnedFd>, Errno> {
        let opened = openat(self.place(), name, flags | OFlags::NOFOLLOW, Mode::empty());
        let fd = match opened {
            // Without O_PATH, this is how a link shows itself.
            Err(Errno::LOOP) => {
                let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(self.place(), name, look, Mode::empty())?
            }
            other => other?,
        };
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::Symlink {
            return Ok(Some(fd));
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        // Of the link that was opened, not of what may have its name by now.
        let target = readlinkat(&fd, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            let inside = roots.iter().find_map(|root| target.strip_prefix(root).ok());
            let inside = inside.ok_or(Errno::XDEV)?;
            self.descent.clear();
            self.prepend(inside)?;
        } else {
            self.prepend(target)?;
        }
        Ok(None)
    }

    fn prepend(&mut self, path: &Path) -> Result<(), Errno> {
        for component in path.components().rev() {
            self.ahead.push_front(match component {
                Component::Normal(name) => Step::Down(name.as_bytes().to_vec()),
                Component::ParentDir => Step::Up,
                Component::CurDir => continue,
                Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
            });
        }
        if self.ahead.len() > COMPONENTS_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(())
    }

    fn place(&self) -> BorrowedFd<'_> {
        self.descent.last().map_or(self.root, AsFd::as_fd)
    }
}
