//! Where a user stands, and what it begins with.

use super::cookies::Jar;

/// Where a user stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first connection is opened, before anything is due.
    Opening,
    /// Nothing until then; then the next step is due.
    Thinking { until_ns: u64 },
    /// A request is due; a connection may be missing.
    Due,
    /// The connection was asked for.
    Connecting,
    /// The request is on its way out.
    Sending,
    /// The answer is awaited, until then.
    Awaiting { until_ns: u64 },
    /// The setup is done, which has not been reported.
    SetUp,
    /// The start is awaited.
    Starting,
    /// It does nothing any more.
    Done,
}

/// Cookies and captured values that a user begins with, and the page that links are relative to.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) jar: Jar,
    pub(super) captured: Vec<Option<Vec<u8>>>,
    pub(super) page: Vec<u8>,
}
