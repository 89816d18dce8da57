//! An open file and the version of it that was opened. Data only: nothing here reads.

use std::os::fd::OwnedFd;

/// What tells two states of a file apart: identity, length and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Last change of the inode, nanoseconds since 1970.
    pub changed_ns: i64,
}

/// A file that was opened for reading, with the version it had then.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor; read with an explicit offset only, since it may be shared.
    pub fd: OwnedFd,
    /// The version at the time of opening. An answer must not finish if it has changed since.
    pub version: FileVersion,
}
