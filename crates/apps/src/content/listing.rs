//! A directory as a page.

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as the file system has it.
    pub name: Vec<u8>,
    /// Whether it is a directory (or a link to one).
    pub is_directory: bool,
    /// Length in bytes; not shown for a directory.
    pub size: u64,
    /// When it last changed, in seconds since 1970.
    pub modified_seconds: u64,
}

/// What the entries are sorted by. Directories come first in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// By name, ignoring the case of ASCII letters.
    #[default]
    Name,
    /// By size.
    Size,
    /// By time of the last change.
    Time,
}

/// How the entries are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// Largest, latest or last first.
    pub descending: bool,
}

impl Sort {
    /// Reads `sort=name|size|time` and `order=asc|desc`; anything else is ignored.
    #[must_use]
    pub fn from_query(query: Option<&[u8]>) -> Self {
        let _ = query;
        Self::default()
    }
}

/// Most entries that a page shows.
pub const ENTRIES_MAX: usize = 10_000;

/// The page (UTF-8 HTML) of the directory `relative` (see `SitePath::relative`). All links are
/// relative, so it works below any prefix, provided it is served under a trailing slash.
///
/// `more`: the caller stopped reading before the directory's end; the page says so, as it does when
/// it cuts the entries itself at `ENTRIES_MAX`.
#[must_use]
pub fn page(relative: &[u8], entries: Vec<Entry>, sort: Sort, more: bool) -> Vec<u8> {
    let _ = (relative, entries, sort, more);
    unimplemented!()
}
