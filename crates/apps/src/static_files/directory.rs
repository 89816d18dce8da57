//! A directory as a page.

use std::os::fd::{AsFd, OwnedFd};

use loadline_proto::{Body, Exchange, Response, Status};
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::StaticFiles;
use super::load::{Failure, LIST, join};
use super::root::{Access, LOOK, RootDirectory};
use crate::content::listing::{ENTRIES_MAX, Entry, Sort, page};
use crate::content::path::SitePath;

impl StaticFiles {
    /// Answers with the page of the directory at `path`. Waits for the disk.
    pub(super) fn serve_listing(&self, path: &SitePath<'_>, exchange: &mut Exchange) {
        let sort = Sort::from_query(exchange.request.query());
        let response = &mut exchange.response;
        match self.list(path.relative()) {
            Ok((entries, more)) => {
                response.clear();
                response.field("Content-Type", "text/html; charset=utf-8");
                response.field("Cache-Control", "no-cache");
                response.body = Body::Bytes(page(path.relative(), entries, sort, more));
            }
            Err(errno) => refuse(errno, response),
        }
    }

    /// What a visitor could fetch in `relative`, and whether there is more than fits.
    fn list(&self, relative: &[u8]) -> Result<(Vec<Entry>, bool), Errno> {
        let root = self.root.directory(Access::Any)?;
        let path = self.root.resolve(&root, relative, LOOK, Access::Any)?.fd;
        let directory: OwnedFd = openat(&path, ".", LIST, Mode::empty())?;
        let mut entries = Vec::new();
        for found in Dir::read_from(&directory)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (name.starts_with(b".") && !self.options.hidden) {
                continue;
            }
            if entries.len() == ENTRIES_MAX {
                return Ok((entries, true));
            }
            // What vanished meanwhile, or leads out of the root, is not there for visitors.
            let Ok(stat) = self.look(&root, relative, directory.as_fd(), name) else {
                continue;
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if matches!(kind, FileType::RegularFile | FileType::Directory) {
                entries.push(Entry {
                    name: name.to_vec(),
                    is_directory: kind == FileType::Directory,
                    size: u64::try_from(stat.st_size).unwrap_or(0),
                    modified_seconds: u64::try_from(stat.st_mtime).unwrap_or(0),
                });
            }
        }
        Ok((entries, false))
    }

    fn look(
        &self,
        root: &RootDirectory,
        relative: &[u8],
        directory: impl AsFd,
        name: &[u8],
    ) -> Result<Stat, Errno> {
        let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(stat);
        }
        let path = join(relative, name);
        fstat(self.root.resolve(root, &path, LOOK, Access::Any)?.fd)
    }
}

/// Answers as for a file where the same goes wrong.
fn refuse(errno: Errno, response: &mut Response) {
    match Failure::of(errno, Access::Any) {
        Failure::Refused(Status::SERVICE_UNAVAILABLE) => response.overloaded(1),
        Failure::Refused(status) => response.error(status),
        Failure::Missing | Failure::WouldBlock => response.error(Status::NOT_FOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_listed_is_refused_as_a_file_is() {
        for (errno, status, retry_after) in [
            (Errno::NOENT, 404, ""),
            (Errno::NOTDIR, 404, ""),
            (Errno::ACCESS, 403, ""),
            (Errno::LOOP, 403, ""),
            (Errno::IO, 500, ""),
            (Errno::TIMEDOUT, 500, ""),
            (Errno::STALE, 503, "1"),
            (Errno::BUSY, 503, "1"),
            (Errno::MFILE, 503, "1"),
            (Errno::NOMEM, 503, "1"),
        ] {
            let mut response = Response::default();
            refuse(errno, &mut response);
            assert_eq!(response.status.code(), status, "{errno:?}");
            let retry = response.fields.get("Retry-After").unwrap_or_default();
            assert_eq!(retry, retry_after.as_bytes(), "{errno:?}");
        }
    }
}
