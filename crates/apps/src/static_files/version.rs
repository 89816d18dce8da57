//! What a file was when it was looked at, by which the cache knows whether it is fresh.
//!
//! That is more than an answer on its way asks for: it goes on while the open file has its content
//! (`ContentVersion`), whatever becomes of the path. Here a change of the inode counts too, since it
//! shows a file that was rewritten and then dated back, or may be read by others than before.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use loadline_base::ContentVersion;
use rustix::fs::{AtFlags, CWD, Stat, StatxFlags, StatxTimestamp, fstat, statat, statx};
use rustix::io::Errno;

/// How old a change must be before a version is taken to distinguish contents: the clocks of file
/// systems are coarse, on some by two seconds.
const SETTLED_AFTER_NS: i64 = 2_000_000_000;

/// A path that is longer with its end, in bytes, is not looked up (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// What distinguishes two states of a file: identity, content and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVersion {
    /// Device number of the file system.
    pub(crate) device: u64,
    /// Inode number.
    pub(crate) inode: u64,
    /// What an answer on its way goes by.
    pub(crate) content: ContentVersion,
    /// Last change of the inode, nanoseconds since 1970.
    pub(crate) changed_ns: i64,
}

impl FileVersion {
    /// What a `stat` shows.
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            content: ContentVersion {
                size: u64::try_from(stat.st_size).unwrap_or(0),
                modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            },
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether an open file is still this, as far as this machine knows: no other is asked.
    pub(crate) fn is_of(&self, file: impl AsFd) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
        // An open descriptor never changes its device and inode.
        let now = match statx(&file, c"", flags, wanted) {
            Ok(stat) => {
                let ns = |time: StatxTimestamp| nanoseconds(time.tv_sec, u64::from(time.tv_nsec));
                (stat.stx_size, ns(stat.stx_mtime), ns(stat.stx_ctime))
            }
            Err(Errno::NOSYS | Errno::PERM) => match fstat(file) {
                Ok(stat) => Self::of(&stat).seen(), // a sandbox that does not know the call
                Err(_) => return false,
            },
            Err(_) => return false,
        };
        now == self.seen()
    }

    fn seen(&self) -> (u64, i64, i64) {
        (self.content.size, self.content.modified_ns, self.changed_ns)
    }

    /// What is at an absolute path, links followed; `None` if nothing is there.
    pub(crate) fn at(path: &CString) -> Result<Option<Self>, Errno> {
        Self::looked_up(path, AtFlags::empty())
    }

    /// The same, but of a link the link itself.
    pub(crate) fn of_link_at(path: &CString) -> Result<Option<Self>, Errno> {
        Self::looked_up(path, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn looked_up(path: &CString, flags: AtFlags) -> Result<Option<Self>, Errno> {
        match statat(CWD, path, flags) {
            Ok(stat) => Ok(Some(Self::of(&stat))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            // One of its names is longer than names can be there: a neighbour's, for instance.
            Err(Errno::NAMETOOLONG) if path.as_bytes_with_nul().len() <= PATH_BYTES_MAX => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

fn nanoseconds(seconds: i64, part: u64) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(part as i64)
}

/// Whether a neighbour was made from an older state of its file. Some packers keep the time in whole seconds or
/// milliseconds, and seconds as floating-point numbers come out up to a microsecond off.
pub(crate) fn is_stale(neighbour: &FileVersion, file: &FileVersion) -> bool {
    let (made_ns, file_ns) = (neighbour.content.modified_ns, file.content.modified_ns);
    let units_ns: [i64; 2] = [1_000_000_000, 1_000_000];
    let unit_ns = units_ns.into_iter().find(|unit| made_ns % unit == 0);
    file_ns.saturating_sub(made_ns) >= unit_ns.unwrap_or(1_000)
}

/// Whether the file could have changed since without its times showing it.
pub(crate) fn is_young(version: &FileVersion, now: SystemTime) -> bool {
    let now_ns = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(_) => 0,
    };
    let settled_ns = now_ns.saturating_sub(SETTLED_AFTER_NS);
    let modified_near = version.content.modified_ns.abs_diff(now_ns) < SETTLED_AFTER_NS as u64;
    // The time of the inode's change cannot be set: one in the future is a clock set back.
    version.changed_ns > settled_ns || modified_near
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_has_a_name_that_is_too_long_but_something_may_have_such_a_path() {
        let path = |text: String| CString::new(text).unwrap();
        let long_name = path(format!("/{}", "n".repeat(256)));
        assert_eq!(FileVersion::at(&long_name), Ok(None));
        let long_path = path("/.".repeat(PATH_BYTES_MAX / 2));
        assert_eq!(FileVersion::at(&long_path), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn a_file_is_young_until_its_times_have_settled() {
        const SECOND: i64 = 1_000_000_000;
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let version = |modified: i64, changed: i64| FileVersion {
            content: ContentVersion {
                size: 0,
                modified_ns: modified * SECOND,
            },
            changed_ns: changed * SECOND,
            ..FileVersion::default()
        };
        let table = [
            (990, 990, false),
            (999, 999, true),
            (10, 999, true),    // put there with an old time
            (999, 990, true),   // cannot be, but if so, it is near
            (2000, 990, false), // dated ahead on purpose
            (2000, 2000, true), // the clock was set back
            (998, 998, false),
        ];
        for (modified, changed, expected) in table {
            let version = version(modified, changed);
            assert_eq!(is_young(&version, now), expected, "{modified} {changed}");
        }
    }

    #[test]
    fn a_neighbour_is_stale_if_its_time_was_not_cut_from_that_of_its_file() {
        const BEGIN_NS: i64 = 1_500_000_000_000_000_000;
        let at = |ns: i64| FileVersion {
            content: ContentVersion {
                size: 0,
                modified_ns: BEGIN_NS + ns,
            },
            ..FileVersion::default()
        };
        let table = [
            (123_456_789, 123_456_789, false),
            (123_456_789, 123_456_900, false), // a floating-point number
            (123_456_789, 623_456_789, true),  // changed in the same second
            (623_456_789, 123_456_789, false),
            (123_000_000, 123_999_999, false), // whole milliseconds
            (123_000_000, 124_000_000, true),
            (0, 999_999_999, false), // whole seconds
            (0, 1_000_000_000, true),
        ];
        for (neighbour, file, expected) in table {
            let is_stale = is_stale(&at(neighbour), &at(file));
            assert_eq!(is_stale, expected, "{neighbour} {file}");
        }
    }
}
