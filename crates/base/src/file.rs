//! An open file and the content that it had when it was opened. Data only: nothing here reads.

use std::os::fd::OwnedFd;

/// What distinguishes two contents of one open file.
///
/// The time of the inode's change is no part of it: that moves when another file is renamed over
/// this one, with permissions and with hard links, none of which an open descriptor sees. So a file
/// that is written to in place, at the same length, and whose modification time is put back, counts
/// as unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContentVersion {
    /// Length in bytes.
    pub size: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A file that was opened for reading, with the content it had then.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor; read with an explicit offset only, since it may be shared.
    pub fd: OwnedFd,
    /// The content at the time of opening. An answer must not finish if it has changed since.
    pub version: ContentVersion,
    /// It lies on this machine, so that a read which need not wait for its disk does not wait at all.
    pub is_local: bool,
}
