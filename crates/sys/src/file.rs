//! Files on their way out: which content they have, and whether they are in the page cache already.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use loadline_base::{ContentVersion, OpenFile};
use rustix::fs::{AtFlags, StatxFlags, fstat, statx};
use rustix::io::{Errno, ReadWriteFlags};

/// The content that an open file has now, as far as this machine knows: no other is asked, so it
/// does not wait for one that has gone.
///
/// # Errors
/// The file system failed.
pub fn version(file: impl AsFd) -> io::Result<ContentVersion> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    match statx(&file, c"", flags, StatxFlags::SIZE | StatxFlags::MTIME) {
        Ok(stat) => Ok(ContentVersion {
            size: stat.stx_size,
            modified_ns: nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }),
        // A sandbox that does not know it.
        Err(Errno::NOSYS | Errno::PERM) => {
            let stat = fstat(file)?;
            Ok(ContentVersion {
                size: u64::try_from(stat.st_size).unwrap_or(0),
                modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            })
        }
        Err(error) => Err(error.into()),
    }
}

fn nanoseconds(seconds: impl TryInto<i64>, ns: impl TryInto<i64>) -> i64 {
    let seconds = seconds.try_into().unwrap_or(0);
    let ns = ns.try_into().unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// Whether the file still has the content that was opened, whatever names it has by now.
///
/// # Errors
/// The file system failed.
pub fn is_unchanged(file: impl AsFd, opened: ContentVersion) -> io::Result<bool> {
    Ok(version(file)? == opened)
}

/// What reading from the page cache alone came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedRead {
    /// So many bytes were in the page cache and have been read; 0 at the end of the file.
    Read(usize),
    /// Nothing was: reading would wait.
    NotCached,
    /// The file system does not say (tmpfs: everything is in memory).
    Unknown,
}

/// Reads what is in the page cache at `offset`; never waits for a disk.
///
/// # Errors
/// The file system failed.
pub fn read_cached(file: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<CachedRead> {
    let mut slices = [IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
        Ok(count) => Ok(CachedRead::Read(count)),
        Err(Errno::AGAIN) => Ok(CachedRead::NotCached),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(CachedRead::Unknown),
        Err(error) => Err(error.into()),
    }
}

/// Reads at `offset`, waiting for the disk if need be.
///
/// # Errors
/// The disk or the file system failed.
pub fn read(file: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match rustix::io::pread(&file, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Reads a range into memory, waiting for the disk, so that sending it will not wait. Errors are
/// left for the sending to meet.
pub fn read_ahead(file: impl AsFd, offset: u64, len: u64, scratch: &mut [u8]) {
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end {
        let piece = usize::try_from(end - at).map_or(scratch.len(), |left| left.min(scratch.len()));
        match read(&file, &mut scratch[..piece], at) {
            Ok(count) if count > 0 => at += count as u64,
            _ => return,
        }
    }
}

/// What reading part of a file into memory came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// All of it was read, or all up to the end of the file.
    Whole,
    /// The rest is not in the page cache: reading would wait.
    NotCached,
}

/// Reads `file` from `offset` on behind what is in `buffer` already, until that holds `len` bytes;
/// waits for the disk only if it `may_wait`.
///
/// # Errors
/// The file has changed since it was opened, or the disk or the file system failed.
pub fn fill(
    file: &OpenFile,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
    may_wait: bool,
) -> io::Result<Filled> {
    let mut have = buffer.len();
    buffer.resize(len.max(have), 0);
    let outcome = loop {
        if have >= len {
            break Ok(Filled::Whole);
        }
        let (room, at) = (&mut buffer[have..], offset + have as u64);
        let result = match may_wait {
            true => Ok(CachedRead::Unknown),
            false => read_cached(&file.fd, room, at),
        };
        let count = match result {
            Ok(CachedRead::Read(count)) => Ok(count),
            Ok(CachedRead::NotCached) => break Ok(Filled::NotCached),
            Ok(CachedRead::Unknown) => read(&file.fd, &mut buffer[have..], at),
            Err(error) => Err(error),
        };
        match count {
            Ok(0) => break Ok(Filled::Whole),
            Ok(count) => have += count,
            Err(error) => break Err(error),
        }
    };
    buffer.truncate(have);
    match outcome {
        Ok(Filled::Whole) if !is_unchanged(&file.fd, file.version)? => {
            Err(io::Error::other("the file has changed since it was opened"))
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_change_of_length_or_content_is_seen() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let opened = version(&file).unwrap();
        assert_eq!(opened.size, 10);
        assert!(is_unchanged(&file, opened).unwrap());
        file.write_all(b"x").unwrap();
        assert!(!is_unchanged(&file, opened).unwrap());
        file.set_len(10).unwrap();
        assert_eq!(version(&file).unwrap().size, 10);
        let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        file.set_times(times).unwrap();
        assert!(!is_unchanged(&file, opened).unwrap(), "dated back");
    }

    #[test]
    fn names_links_and_permissions_are_no_part_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, next] = ["file", "link", "next"].map(|name| folder.path().join(name));
        std::fs::write(&path, "0123456789").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let opened = version(&file).unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        assert!(is_unchanged(&file, opened).unwrap(), "a hard link");
        file.set_permissions(PermissionsExt::from_mode(0o600))
            .unwrap();
        assert!(is_unchanged(&file, opened).unwrap(), "permissions");
        std::fs::write(&next, "another").unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(is_unchanged(&file, opened).unwrap(), "replaced");
        std::fs::remove_file(&link).unwrap();
        assert!(is_unchanged(&file, opened).unwrap(), "its last name gone");
    }

    #[test]
    fn what_was_just_written_is_cached() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = [0; 4];
        let cached = read_cached(&file, &mut buffer, 3).unwrap();
        match cached {
            CachedRead::Read(count) => assert_eq!((count, &buffer), (4, b"3456")),
            CachedRead::Unknown => {} // a temporary folder on tmpfs
            CachedRead::NotCached => panic!("written a moment ago"),
        }
        read_ahead(&file, 2, 100, &mut buffer);
        assert_eq!(read(&file, &mut buffer, 8).unwrap(), 2);
    }
}
