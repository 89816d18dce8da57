//! Precompressed neighbours of the files of a directory, as the static files take them: `app.js.gz`,
//! `app.js.zst` and `app.js.br` beside `app.js`.
//!
//! Files that a server would not serve (hidden ones, symbolic links) have none. What is up to date, and has the
//! permissions that its file has now, is left alone; what gets no smaller is not kept. A file is read in pieces, so
//! its length does not matter.

mod neighbour;
mod walk;

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

pub use loadline_codings::Coding;
use loadline_codings::is_text_like;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::content::media_type::MediaTypes;
pub use crate::content::media_type::TypePattern;
use neighbour::{NeighbourOutcome, Source};

/// Files that wait for a thread. More would only lie in memory: finding one is quicker than compressing it.
const WAITING_MAX: usize = 64;

/// What is compressed, and how.
#[derive(Clone, Debug)]
pub struct PrecompressOptions {
    /// Content codings to write.
    pub codings: Vec<Coding>,
    /// Shorter files have no neighbours.
    pub bytes_min: u64,
    /// Media types of the files that have neighbours; none: text, and what is like it.
    pub types: Vec<TypePattern>,
    /// Threads that compress.
    pub jobs: NonZeroUsize,
}

/// What became of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that may have neighbours.
    pub files: u64,
    /// Neighbours written, with the bytes of their files and their own.
    pub written: u64,
    /// Bytes of the files whose neighbours were written, once for each.
    pub bytes_before: u64,
    /// Bytes of these neighbours.
    pub bytes_after: u64,
    /// Neighbours that were there and are not older than their files.
    pub up_to_date: u64,
    /// Neighbours that would have been no smaller.
    pub not_smaller: u64,
    /// Of those, or of files that are too short by now, neighbours that were removed since they were older
    /// than their files, or had other permissions.
    pub removed: u64,
    /// Files, neighbours and directories with which something went wrong.
    pub failed: u64,
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.written += other.written;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
        self.up_to_date += other.up_to_date;
        self.not_smaller += other.not_smaller;
        self.removed += other.removed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            files,
            written,
            bytes_before,
            bytes_after,
            up_to_date,
            not_smaller,
            removed,
            failed,
        } = self;
        write!(
            f,
            "{files} files: {written} variants written ({bytes_before} bytes became {bytes_after}), \
             {up_to_date} up to date, {not_smaller} would be no smaller, {removed} removed, {failed} failed"
        )
    }
}

/// Where something went wrong, and what: called by several threads.
pub type Report<'r> = &'r (dyn Fn(&Path, &io::Error) + Sync);

/// Writes the neighbours of the files below `directory`.
///
/// # Errors
/// The directory cannot be read, or another process does the same there (`ErrorKind::WouldBlock`). What
/// goes wrong with a file is reported, and counted. A variant that is up to date and cannot be given the
/// permissions of its file is only reported.
pub fn precompress(
    directory: &Path,
    options: &PrecompressOptions,
    report: Report<'_>,
) -> io::Result<Summary> {
    // Two runs would compress the same files twice.
    let lock = std::fs::File::open(directory)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(io::ErrorKind::WouldBlock.into()); // a file system without locks has none to wait for
    }
    let types = MediaTypes::default();
    let is_wanted = |path: &Path| {
        let media_type = types.of(path.as_os_str().as_encoded_bytes());
        match options.types.is_empty() {
            true => is_text_like(&media_type),
            false => options.types.iter().any(|it| it.fits(&media_type)),
        }
    };
    let (found, waiting) = sync_channel::<PathBuf>(WAITING_MAX);
    let waiting = Arc::new(Mutex::new(waiting));
    let (mut summary, now) = (Summary::default(), SystemTime::now());
    thread::scope(|scope| {
        let jobs = 0..options.jobs.get();
        let threads: Vec<_> = jobs
            .map(|_| {
                let waiting = Arc::clone(&waiting);
                scope.spawn(move || work(&waiting, options, report))
            })
            .collect();
        drop(waiting); // it ends with the threads
        let walked = walk::files(directory, now, &mut |path, looked| match looked {
            Ok(()) if is_wanted(&path) => {
                let _ = found.send(path); // if they have all panicked, nobody takes it
            }
            Ok(()) => {}
            Err(error) => {
                summary.failed += 1;
                report(&path, &error);
            }
        });
        drop(found);
        for thread in threads {
            match thread.join() {
                Ok(part) => summary.add(&part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        walked
    })?;
    Ok(summary)
}

/// Takes files until there are no more.
fn work(
    waiting: &Mutex<Receiver<PathBuf>>,
    options: &PrecompressOptions,
    report: Report<'_>,
) -> Summary {
    let mut summary = Summary::default();
    loop {
        let next = match waiting.lock() {
            Ok(waiting) => waiting.recv(),
            Err(_) => return summary, // another thread has panicked, which ends it all
        };
        let Ok(path) = next else {
            return summary;
        };
        summary.files += 1;
        let source = match Source::open(&path) {
            Ok(source) => source,
            Err(error) => {
                summary.failed += 1;
                report(&path, &error);
                continue;
            }
        };
        for coding in &options.codings {
            let made = source.neighbour(*coding, options.bytes_min);
            match made {
                Ok(NeighbourOutcome::Written { bytes }) => {
                    summary.written += 1;
                    summary.bytes_before += source.len();
                    summary.bytes_after += bytes;
                }
                Ok(NeighbourOutcome::UpToDate { kept_because }) => {
                    summary.up_to_date += 1;
                    if let Some((path, error)) = kept_because {
                        report(&path, &error);
                    }
                }
                Ok(NeighbourOutcome::TooShort { removed }) => summary.removed += u64::from(removed),
                Ok(NeighbourOutcome::NotSmaller { removed }) => {
                    summary.not_smaller += 1;
                    summary.removed += u64::from(removed);
                }
                Err((path, error)) => {
                    summary.failed += 1;
                    report(&path, &error);
                }
            }
        }
    }
}
